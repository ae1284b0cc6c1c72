//! Streams: those that this broker hosts, and its knowledge of any stream.
//!
//! - `kind`: to which own streams the events of a topic go. `own`, `sources`: the own streams; all
//!   streams that a broker passes on. `remote_stream`: one of another broker. `knowledge`: what is
//!   known of a stream. `stream_set`: small sets of streams. `ended_hosts`: those that are no more.
//! - `accept`: an event of a client gets its tick, and is logged if it must be. `pass`: the
//!   consolidated stream passes an event to all that want it. `holding`: publishers are held back.
//! - `remote`: events and silence of other brokers' streams are taken in. `holes`: what is missing
//!   of them is asked for. `held_back`: events that wait for copies of earlier ones.
//!   `predecessors`: events that must not be passed before another one.
//! - `destinations`: the interests of other brokers in the own streams, and the events that go to
//!   them. `silence`: other brokers are told up to where own streams have nothing for them.
//!   `answer`: what they ask for is sent again.

mod accept;
mod answer;
pub(crate) mod destinations;
mod ended_hosts;
mod held_back;
mod holding;
mod holes;
mod kind;
mod knowledge;
mod own;
mod pass;
mod predecessors;
mod remote;
mod remote_stream;
mod silence;
mod sources;
mod stream_set;

pub(crate) use accept::{EventOrigin, tell};
pub(crate) use answer::OwnEvents;
pub(crate) use destinations::Destinations;
pub use ended_hosts::ENDED_HOSTS_MAX;
pub(crate) use holes::Holes;
pub use kind::StreamKind;
pub use knowledge::{CatchUpInterest, Consolidated, Interest, KNOWLEDGE_BYTES_MAX, KNOWLEDGE_ENTRIES_MAX, Knowledge};
pub use knowledge::{Passed, TickState};
pub use own::{AHEAD_MAX, Streams};
pub use predecessors::PREDECESSOR_MAX;
pub(crate) use predecessors::Stalled;
pub(crate) use remote_stream::RemoteArrival;
pub(crate) use silence::QUIET_MAX;
pub(crate) use sources::Sources;
pub use sources::{ENDED_MAX, HOSTS_MAX};
pub(crate) use stream_set::{StreamSet, WATERMARK_AGE, low_watermark_of};
