//! MQTT 5.0, by subject.

mod acknowledge;
mod auth;
mod connack;
mod connect;
mod disconnect;
mod flow;
mod malformed;
mod order;
mod properties;
mod publish;
mod retained;
mod session;
mod shared;
mod subscribe;
mod topics;
mod unsubscribe;
mod will;
