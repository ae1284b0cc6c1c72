#![doc = include_str!("../README.md")]

#[macro_use]
mod fault;

pub mod deadlines;
mod dispatch;
pub mod domains;
mod due;
mod event;
mod flood;
pub mod forward;
pub mod interest;
mod io;
pub mod link;
mod net;
mod outbid;
mod pace;
pub mod registry;
pub mod route;
pub mod rpc;
mod stats;
pub mod topology;
pub mod traces;
pub mod transit;

pub use dispatch::Work;
pub use due::NetDue;
pub use event::{NetEvent, NetStep};
#[cfg(feature = "mutants")]
pub use fault::NetMutant;
pub use io::{Hop, Io, LinkOutput};
pub use link::{Channel, HangUp, PeerInput, PeerLink};
pub use net::{Config, Identity, Net};
pub use pace::{ANNOUNCE_EVERY, Pace, Routing};
pub use stats::NetStats;
