//! The links of a fabric, and what a node sends over them.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{AcceptedEvent, EventId, Time};
use whimbrel_net::{Channel, HangUp, Hop, LinkOutput, PeerLink};

/// The state of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireState {
    /// Bytes arrive.
    Up,
    /// Bytes are lost, and the ends are not told.
    Cut,
    /// The connection has ended.
    Closed,
}

/// The trouble of one direction of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// What is sent arrives so much later.
    pub more: Duration,
    /// What is sent does not arrive, and the ends are not told.
    pub is_silent: bool,
}

/// A wire between two nodes, over which one connection goes at a time.
pub struct Wire {
    /// The nodes at its ends; the first one dials.
    pub nodes: [usize; 2],
    /// The delay in each direction.
    pub delay: Duration,
    /// The trouble of what each end sends.
    pub trouble: [Trouble; 2],
    /// Of what each end sends: datagrams that are lost, thousandths.
    pub loss: [u16; 2],
    /// When the last bytes of each direction and channel arrive: streams stay in order.
    pub arrives: [[Time; Channel::ALL.len()]; 2],
    /// Its state.
    pub state: WireState,
    /// The number of the connection: bytes of an earlier one are lost.
    pub connection: u32,
    /// The name of the link at each end, while that end has not ended it.
    pub links: [Option<PeerLink>; 2],
    /// Bytes of each stream and direction that it takes per millisecond; `None`: all at once.
    pub flow: Option<u64>,
    /// When the last byte of each direction and channel leaves.
    pub busy_until: [[Time; Channel::ALL.len()]; 2],
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub wire: usize,
    pub connection: u32,
    /// 0 or 1.
    pub side: usize,
}

/// What is on its way.
#[derive(Debug)]
pub enum Flight {
    /// Bytes arrive at an end.
    Bytes { to: End, channel: Channel, bytes: Vec<u8> },
    /// Bytes have left an end, and make room there.
    Left { from: End, channel: Channel, bytes: usize },
    /// The other end has ended the connection.
    Closed { to: End },
}

/// The use of a link's name at a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkUse {
    /// No link has it.
    Free,
    /// An end of a wire.
    Wire { wire: usize, side: usize },
    /// A link whose other end is a test.
    Stranger,
}

/// The effects of a node on its links, until the fabric carries them.
#[derive(Default)]
pub struct Side {
    /// Frames and datagrams, in order.
    pub sent: Vec<(PeerLink, Channel, Vec<u8>)>,
    /// Links that the node has ended.
    pub hung_up: Vec<(PeerLink, HangUp)>,
    /// Brokers that it asks for a link to.
    pub dials: Vec<(String, String)>,
    /// Events that have passed over its links.
    pub hops: Vec<(EventId, Hop)>,
    /// Unsent bytes of links that do not take all at once, by channel.
    pub unsent: BTreeMap<PeerLink, [usize; Channel::ALL.len()]>,
}

impl LinkOutput for Side {
    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        self.sent.push((link, channel, bytes.to_vec()));
        let Some(unsent) = self.unsent.get_mut(&link).filter(|_| channel != Channel::Datagram) else { return 0 };
        unsent[channel as usize] += bytes.len();
        unsent[channel as usize]
    }

    fn peer_hang_up(&mut self, link: PeerLink, why: HangUp) {
        self.hung_up.push((link, why));
    }

    fn peer_dial(&mut self, name: &str, address: &str) {
        self.dials.push((name.into(), address.into()));
    }

    fn wants_steps(&self) -> bool {
        true
    }

    fn hop(&mut self, event: &AcceptedEvent<'_>, hop: Hop) {
        self.hops.push((event.id, hop));
    }
}
