//! Ids, ticks, checkpoint tokens, events and typed attributes.
//!
//! The vocabulary that all other parts of Whimbrel share. It depends on no other crate of Whimbrel,
//! and does no IO: time is a number that the caller passes in. This also holds for [`Clock`]; it is
//! here, beside [`Time`], so that every driver can have one, real or simulated, whether or not it
//! drives a broker's core.

mod attributes;
pub mod clock;
mod domains;
mod event;
mod hash;
mod id;
mod latency;
mod mix;
mod packed;
mod predecessors;
mod time;
mod token;

pub use attributes::{ATTRIBUTE_TEXT_MAX, Attributes, AttributesBuf, InvalidAttributes, Value};
pub use clock::Clock;
pub use domains::{
    DOMAIN_BYTES_MAX, DOMAINS_MAX, DomainLabel, Domains, JOINED_BYTES_MAX, LABEL_BYTES_MAX, LABEL_LISTS_MAX, is_domain,
};
pub use event::{Event, EventRef, Headers, IMPORTANCE_DEFAULT, IMPORTANCE_MAX, Publisher, Qos, Reliability, WeakEvent};
pub use hash::Seeded;
pub use id::{
    EVENT_ID_TEXT_MAX, EventId, EventIdText, HOST_FURTHER_MAX, HOST_PUBENDS_MAX, HOST_RELIABLE_MAX, HostId,
    InvalidEventId, KIND_PUBENDS_MAX, PubendId, StreamClass, Tick,
};
pub use latency::{LATENCY_BOUNDS_US, LatencyHistogram};
pub use mix::{FNV_OFFSET, fnv1a, split_mix};
pub use packed::{AcceptedEvent, Packed};
pub use predecessors::{PREDECESSORS_MAX, Predecessors, PredecessorsBuf};
pub use time::Time;
pub use token::{CheckpointToken, Deployment, InvalidToken, TokenFull};
