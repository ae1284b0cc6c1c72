//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod brokers;
mod cert;
mod client_list;
mod clients;
mod data;
mod engine;
mod follow;
mod operations;
mod passwd;
mod plan;
mod pub_sub;
mod serve;
mod system;
mod takeover;
mod upgrade;
