//! The primitives that [`crate::Handover`] uses. A test compiles the same source with replacements
//! that try all interleavings.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
