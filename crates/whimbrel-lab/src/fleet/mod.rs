//! The main job, `whimbrel demo`: a city's vehicles, one MQTT connection each, tell their positions to dispatch consoles
//! and line watchers through a broker, and a checker that knows only what was sent and what arrived judges the broker.

pub mod args;
pub mod attribution;
pub mod board;
pub mod checker;
pub mod city;
pub mod delays;
pub mod geo;
pub mod message;
pub mod schedule;
pub mod summary;
pub mod trace;
pub mod view;
