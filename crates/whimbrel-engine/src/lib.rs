#![doc = include_str!("../README.md")]

#[macro_use]
mod fault;

mod engine;
mod lease;
pub mod nats;
mod rebuild;
mod record;
mod replicated;
pub mod twin;

pub use engine::{CUT_RECORDS_MAX, Engine, EngineError, RecordNumber, StreamRecord, Subject};
#[cfg(feature = "mutants")]
pub use fault::EngineMutant;
pub use lease::{Claim, ClaimStep, ClaimTerms, LEASE_OBSERVED_FOR, LEASE_RENEWED_EVERY, Lease, LeaseEntry, Leases};
pub use rebuild::{StartError, StartReport};
pub use record::{Commit, CommitId, EngineRecord, Epoch, Malformed, OtherSegment};
pub use replicated::{Acknowledgement, Replicated};
