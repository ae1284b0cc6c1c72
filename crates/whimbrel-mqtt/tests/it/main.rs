//! All tests from outside that need no binary of their own: one is linked sooner than many.

#[path = "../codec_checks/mod.rs"]
mod codec_checks;

mod access;
mod codec_bytes;
mod codec_fuzz_short;
mod codec_properties;
mod codec_rules;
mod late;
mod leave;
mod operators;
mod packets;
mod passing;
mod refused;
