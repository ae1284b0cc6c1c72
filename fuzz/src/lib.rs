//! The checks behind the fuzz targets: the same code that the ordinary tests run on a bounded
//! number of inputs.

#[path = "../../crates/whimbrel-mqtt/tests/codec_checks/mod.rs"]
pub mod checks;

/// Checks of selectors and of the index over them.
#[path = "../../crates/whimbrel-selector/tests/naive/mod.rs"]
pub mod naive;

/// Checks of frames between brokers.
#[path = "../../crates/whimbrel-wire/tests/frame_checks/mod.rs"]
pub mod frames;
