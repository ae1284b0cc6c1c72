//! Drivers, configuration, metrics and HTTP around the core.

pub mod access;
pub mod api;
pub mod config;
mod console;
pub mod control;
mod discovery;
pub mod drive;
pub mod engine;
mod fences;
mod http;
pub mod identity;
mod listen;
mod logging;
mod metrics;
pub mod overlay;
mod process;
mod proxy;
mod server;
mod service;
pub mod store;
pub mod telemetry;
pub mod tls;
mod websocket;

pub use fences::Outcome;
pub use server::{Error, Ready, Server, run};
