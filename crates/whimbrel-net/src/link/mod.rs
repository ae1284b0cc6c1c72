//! Links to other brokers: the driver's words for them, the neighbour at the other end, what a link
//! is like.

mod driver;
pub mod estimate;
mod follow;
mod handshake;
pub mod peers;
mod probe;
pub mod queue;
pub mod share;
mod urgent;
pub mod watch;

pub use driver::{Channel, HangUp, PeerInput, PeerLink};
pub(crate) use probe::DatagramContent;
pub(crate) use urgent::WaysLeft;
