//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../common/mod.rs"]
mod common;

mod connection;
mod follow;
mod position;
mod transports;
