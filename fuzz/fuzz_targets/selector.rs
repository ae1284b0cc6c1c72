//! Selectors and the index over them against an evaluator that was written apart from them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::naive::checks::any_bytes;

fuzz_target!(|bytes: &[u8]| any_bytes(bytes));
