//! The network layer of a broker: it finds the other brokers, learns what they want, and chooses
//! the ways of events to them. A deterministic state machine without IO, below the core.
//!
//! It knows hosts, filters, frames and ages. It does not know sessions, logs or cursors, and cannot
//! reach them.
//!
//! - [`link`]: connections to other brokers: the neighbour, what is unsent, delay and loss.
//! - [`topology`]: the link-state database: which brokers there are, and who is linked with whom.
//! - [`route`]: the best paths to other brokers, and trees of paths for a set of them.
//! - [`interest`]: what brokers want: this one, in few entries, and all others.
//! - [`transit`]: frames that passed lately, to be sent again if they are lost farther on.
//! - [`deadlines`]: deadlines by time and by purpose.

pub mod deadlines;
pub mod interest;
pub mod link;
pub mod route;
pub mod topology;
pub mod transit;

pub use link::{Channel, HangUp, PeerInput, PeerLink};
