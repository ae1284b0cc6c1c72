//! Streams: those that this broker hosts, and its knowledge of any stream.

mod ended_hosts;
mod knowledge;
mod pubends;
mod sources;
mod stream_set;

pub use ended_hosts::ENDED_HOSTS_MAX;
pub use knowledge::{CatchUpInterest, Consolidated, Interest, KNOWLEDGE_BYTES_MAX, KNOWLEDGE_ENTRIES_MAX, Knowledge};
pub use knowledge::{Passed, TickState};
pub use pubends::{AHEAD_MAX, Streams};
pub(crate) use sources::Sources;
pub use sources::{ENDED_MAX, HOSTS_MAX};
pub(crate) use stream_set::{StreamSet, WATERMARK_AGE, low_watermark_of};
