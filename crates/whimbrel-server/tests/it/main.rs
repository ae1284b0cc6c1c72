//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../common/mod.rs"]
mod common;

mod api;
mod certificates;
mod config;
mod docs;
mod fences;
mod http;
mod https;
mod links;
mod listeners;
mod numbers;
mod operators;
mod overlay;
mod partitions;
mod paths;
mod proxy;
mod strangers;
mod tokens;
mod traces;
mod websocket;
