//! The log on a replicated engine: nothing that was acknowledged is lost, whatever becomes of the
//! disk, of requests and of answers.

#[path = "../../../whimbrel-journal/tests/journal/common/work.rs"]
mod common;
mod holes;
mod homes;
mod lives;
mod local;
#[cfg(feature = "mutants")]
mod mutants;
mod owners;
mod refused;
