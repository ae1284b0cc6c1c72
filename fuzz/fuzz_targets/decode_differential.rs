//! An independent codec reads the same, and differs in its verdict only where that is listed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::checks::generate::{Choices, mutated_packet};
use whimbrel_fuzz::checks::oracle::differential;

fuzz_target!(|bytes: &[u8]| {
    differential(bytes);
    differential(&mutated_packet(&mut Choices::new(bytes)).1);
});
