//! Any bytes as a frame, a stream and an event, and frames and trees made from them: nothing
//! panics, and each has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_fuzz::frames::any_bytes;

fuzz_target!(|bytes: &[u8]| any_bytes(bytes));
