//! The short ways for PUBLISH and acknowledgements agree with the general one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::checks::publish_fast;

fuzz_target!(|bytes: &[u8]| publish_fast(bytes));
