//! Selectors once more, written to be evidently right and not to be fast: nothing of the crate is
//! used but its public interface, to ask it for its opinion. Shared by the tests and the fuzz
//! target.

#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

pub mod checks;
pub mod evaluate;
pub mod event;
pub mod fences;
pub mod generate;
pub mod json;
pub mod operations;
pub mod parse;
