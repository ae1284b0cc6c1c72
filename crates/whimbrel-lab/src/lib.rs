//! Experiments, the main job and side-by-side benchmarks.
