//! Topics: an ordered map in which a filter finds its topics.
//!
//! A component of its own: it knows nothing of sessions, events or other brokers.

mod index;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use index::{TopicEntry, TopicIndex, TopicVersion};
pub(crate) use walk::{VisitOutcome, WalkCursor, WalkEnd};
