//! Any bytes, and well-formed packets damaged: nothing panics, and what is accepted survives the
//! way there and back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::checks::decode_any;
use whimbrel_fuzz::checks::generate::{Choices, mutated_packet};

fuzz_target!(|bytes: &[u8]| {
    decode_any(bytes);
    decode_any(&mutated_packet(&mut Choices::new(bytes)).1);
});
