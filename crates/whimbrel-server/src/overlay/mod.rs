//! Links to other brokers: one QUIC connection each, with a stream for each of up to four channels
//! and datagrams each way. The streams of a thin link's events are followed by compressed ones.
//!
//! This module only moves bytes. Their meaning, and which of two links between the same brokers
//! stays, is up to the core.

mod admit;
mod channel;
mod codec;
mod counts;
mod dial;
mod dscp;
mod endpoint;
mod fault;
mod intake;
mod link;
mod output;
mod peers;
mod refused;
mod runtime;

pub use channel::CHANNELS;
pub use counts::{Counts, LinkAccount, OverlayAccount};
pub use dscp::Dscp;
pub use endpoint::{Overlay, Plan, StartError};
pub use fault::LinkFaults;
pub use output::Port;
pub(crate) use peers::PeerAccount;

use std::net::SocketAddr;
use std::sync::Arc;

use whimbrel_core::Channel;

/// Links at once, those in their handshake included.
pub const LINKS_MAX: usize = 256;

/// A new link.
#[derive(Debug)]
pub struct Opened<'a> {
    /// The link's output.
    pub port: &'a Arc<Port>,
    /// Whether this broker has dialled.
    pub dialed: bool,
    /// The other broker's name, from its certificate; with `--dev` no names are known.
    pub name: Option<&'a str>,
    /// The other broker's address.
    pub address: SocketAddr,
}

/// The broker's side of all links.
pub trait Uplink: Send + Sync + 'static {
    /// A link is open.
    fn opened(&self, link: &Opened<'_>) -> Box<dyn Inlet>;
}

/// Receiver of one link's input. It is dropped when the link has ended.
pub trait Inlet: Send {
    /// Whether more may be read. If not, the link's port is woken when it may.
    fn may_read(&mut self) -> bool;

    /// The next bytes of a channel, cut anywhere, or one datagram.
    fn bytes(&mut self, channel: Channel, bytes: &[u8]);

    /// `unsent` bytes are left to be sent in a channel: fewer than when last told, and few enough
    /// to go on.
    fn room(&mut self, channel: Channel, unsent: usize);

    /// `sent` packets have left the connection since the last call, and `lost` of all packets were
    /// found to be lost.
    fn packets(&mut self, sent: u32, lost: u32);
}
