//! Experiments, the main job and side-by-side benchmarks.

pub mod bench;
mod brokers;
pub mod catalogue;
mod cores;
pub mod dial;
mod durable;
pub mod engine_servers;
pub mod experiment;
pub mod fleet;
pub mod goal;
mod output;
pub mod plan;
mod progress;
pub mod relay;
mod responsiveness;
mod scale;
mod semi_durable;
