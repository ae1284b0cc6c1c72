//! Drivers, configuration, metrics and HTTP around the core.

pub mod config;
pub mod drive;
pub mod tls;
