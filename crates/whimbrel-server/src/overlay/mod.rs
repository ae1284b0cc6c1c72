//! Links to other brokers: one QUIC connection each, with three streams and datagrams each way.
//!
//! Only bytes are moved here. What they mean, and which of two links between the same brokers
//! stays, is the core's.

mod admit;
mod beat;
mod channel;
mod counts;
mod dial;
mod endpoint;
mod gather;
mod link;
mod peers;
mod port;
mod refused;
mod runtime;

pub use channel::CHANNELS;
pub use counts::{Counts, LinkAccount, OverlayAccount};
pub use endpoint::{Overlay, Plan, StartError};
pub(crate) use peers::PeerAccount;
pub use port::Port;

use std::net::SocketAddr;
use std::sync::Arc;

use whimbrel_core::Channel;

/// Links at once, those in their handshake included.
pub const LINKS_MAX: usize = 256;

/// A new link.
#[derive(Debug)]
pub struct Opened<'a> {
    /// What is sent over it.
    pub port: &'a Arc<Port>,
    /// Whether this broker has dialled.
    pub dialed: bool,
    /// The other broker's name, from its certificate; nobody is known with `--dev`.
    pub name: Option<&'a str>,
    /// Its address.
    pub address: SocketAddr,
}

/// What links belong to.
pub trait Uplink: Send + Sync + 'static {
    /// A link is open.
    fn opened(&self, link: &Opened<'_>) -> Box<dyn Inlet>;
}

/// Where one link's input goes. It is dropped when the link has ended.
pub trait Inlet: Send {
    /// Whether more may be read. If not, the link's port is woken when it may.
    fn may_read(&mut self) -> bool;

    /// The next bytes of a channel, cut anywhere, or one datagram.
    fn bytes(&mut self, channel: Channel, bytes: &[u8]);

    /// So many bytes are left to be sent in a channel: fewer than when that was told last, and
    /// little enough to go on.
    fn room(&mut self, channel: Channel, unsent: usize);
}
