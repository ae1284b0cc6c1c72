//! Experiments, the main job and side-by-side benchmarks.

pub mod bench;
pub mod fleet;
