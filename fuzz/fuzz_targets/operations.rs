//! Sequences of operations on a whole broker, as its clients see it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::checks::operations::operations;

fuzz_target!(|bytes: &[u8]| operations(bytes));
