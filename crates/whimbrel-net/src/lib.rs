//! The network layer of a broker: it finds the other brokers, learns what they want, and chooses
//! the ways of events to them. A deterministic state machine without IO, below the core.
//!
//! It knows hosts, filters, frames and ages. It does not know sessions, logs or cursors, and cannot
//! reach them.
//!
//! - [`link`]: what a connection to another broker is like.
//! - [`topology`]: the link-state database: which brokers there are, and who is linked with whom.
//! - [`route`]: the best paths to other brokers, and trees of paths for a set of them.
//! - [`interest`]: what a broker tells the others that its subscribers want, in few entries.

pub mod interest;
pub mod link;
pub mod route;
pub mod topology;

pub use link::{Channel, HangUp, PeerInput, PeerLink};
