//! The network layer of a broker: it finds the other brokers, learns what they want, and carries
//! events to them. A deterministic state machine without IO, below the core.
//!
//! It knows hosts, filters, frames and ages. It does not know sessions, logs or cursors, and cannot
//! reach them.
//!
//! [`Net`] is driven with what happens on links and with its own deadlines; each step may tell the
//! composition above a [`NetEvent`].
//!
//! - [`link`]: connections to other brokers: handshake, probes, the neighbour, what is unsent.
//! - [`topology`]: the link-state database: which brokers there are, and who is linked with whom.
//! - [`route`]: the best paths to other brokers, and trees of paths for a set of them.
//! - [`interest`]: what brokers want: this one, in few entries, and all others.
//! - `flood`: link states and interests reach every broker.
//! - [`forward`]: events and silence along trees of paths, around links that are down, and again
//!   where they were lost.
//! - [`registry`]: maps that are the same at every broker.
//! - [`rpc`]: messages between brokers that need not be neighbours.
//! - `dispatch`, `event`: an input or a deadline is handled in steps, and what they tell.
//! - [`transit`]: frames that passed lately, to be sent again if they are lost farther on.
//! - [`deadlines`], [`traces`], `stats`: deadlines by time and by purpose; the latest steps of
//!   events; counters.
//! - `fault`: faults that tests build in.

#[macro_use]
mod fault;

pub mod deadlines;
mod dispatch;
mod event;
mod flood;
pub mod forward;
pub mod interest;
mod io;
pub mod link;
mod net;
pub mod registry;
pub mod route;
pub mod rpc;
mod stats;
pub mod topology;
pub mod traces;
pub mod transit;

pub use dispatch::Work;
pub use event::{NetEvent, NetStep};
#[cfg(feature = "mutants")]
pub use fault::NetMutant;
pub use flood::ANNOUNCE_EVERY;
pub use io::{Hop, Io, LinkOutput};
pub use link::{Channel, HangUp, PeerInput, PeerLink};
pub use net::{Config, Identity, Net, NetDue};
pub use stats::NetStats;
