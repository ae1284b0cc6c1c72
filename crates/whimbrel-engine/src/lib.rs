#![doc = include_str!("../README.md")]

#[macro_use]
mod fault;

mod engine;
mod lease;
mod mark;
pub mod nats;
mod ranges;
mod record;
mod replicated;
mod start;
mod stream;
pub mod twin;

pub use engine::{CUT_RECORDS_MAX, Engine, EngineError, RecordNumber, StreamRecord, Subject};
#[cfg(feature = "mutants")]
pub use fault::EngineMutant;
pub use lease::{Claim, ClaimStep, ClaimTerms, LEASE_OBSERVED_FOR, LEASE_RENEWED_EVERY, Lease, LeaseEntry, Leases};
pub use mark::{DirectoryMark, begin_without_engine};
pub use record::{Commit, CommitId, EngineRecord, Epoch, MalformedRecord, OtherSegment};
pub use replicated::{Acknowledgement, Behind, QUEUE_BYTES_MAX, Replicated, Standing};
pub use start::{StartOptions, StartReport, StreamStartError};
pub use stream::StreamEnd;
