//! What a driver may tell the broker, and what it is told.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_core::cache::Plan;
use whimbrel_core::store::{AtomNo, Disk, Fetched};
use whimbrel_core::{Channel, HangUp, Interest, PeerInput, PeerLink};
use whimbrel_event::HostId;
use whimbrel_selector::Fences;

use super::Origin;

/// The driver's name for one open connection: small numbers, unique among open ones, reusable after closing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u32);

/// What can happen to the broker.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A transport connection exists.
    Opened {
        /// Its name.
        conn: ConnId,
        /// The kind of listener it came over.
        origin: Origin,
    },
    /// The next bytes of the connection's stream, cut anywhere. Ignored after the broker closed the connection.
    Bytes {
        /// From where.
        conn: ConnId,
        /// At least one.
        bytes: &'a [u8],
    },
    /// The transport connection is gone without the broker having asked for it.
    Closed {
        /// Which.
        conn: ConnId,
    },
    /// At most [`crate::LOW_WATER`] bytes are unsent, as asked with [`Output::notify_drained`].
    Drained {
        /// Of which connection.
        conn: ConnId,
    },
    /// [`crate::Broker::next_deadline`] has come.
    Deadline,
    /// The fences that selectors refer to, from now on.
    Fences(&'a Arc<Fences>),
    /// How the cache for semi-durable subscriptions is divided, from now on.
    Cache(&'a Plan),
    /// What the broker asks other brokers for on its own behalf, from now on.
    Buffer(&'a [Interest]),
    /// All atoms up to this one are durable; see [`whimbrel_core::store`].
    Committed {
        /// The last of them.
        upto: AtomNo,
    },
    /// What the log takes has changed.
    Disk(Disk),
    /// What [`crate::Broker::fetch`] asked for.
    Fetched(Fetched<'a>),
    /// An operator ends the session of that client, which is disconnected (0x98) if it is there.
    DropSession {
        /// Whose; it need not exist.
        client_id: &'a str,
    },
    /// Something happens on the links to other brokers.
    Peer(PeerInput<'a>),
    /// The server is about to end: every client is told (0x8B) and disconnected; new ones are refused.
    Drain,
}

/// Where the broker's output goes.
pub trait Output {
    /// Takes bytes for a connection; may swap the vector for an empty one. At most once per connection and step.
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>);
    /// Closes a connection once everything sent has been written. No [`Input::Closed`] follows.
    fn close(&mut self, conn: ConnId);
    /// Bytes taken by [`Output::send`] and not written yet.
    fn backlog(&self, conn: ConnId) -> usize;
    /// Asks for one [`Input::Drained`] as soon as the backlog is at most [`crate::LOW_WATER`].
    fn notify_drained(&mut self, conn: ConnId);
    /// Asks for no more input of a connection for a while: its publisher runs ahead of the clock.
    fn hold(&mut self, _conn: ConnId, _span: Duration) {}
    /// Asks for no more input of a connection until [`Output::resume`] or its end: enough of what it asked for waits. What was read already may
    /// still be given to the broker.
    fn pause(&mut self, _conn: ConnId) {}
    /// Asks for input of that connection again.
    fn resume(&mut self, _conn: ConnId) {}
    /// As [`whimbrel_core::Output::peer_bytes`].
    fn peer_bytes(&mut self, _link: PeerLink, _channel: Channel, _bytes: &[u8]) -> usize {
        0
    }
    /// As [`whimbrel_core::Output::peer_hang_up`].
    fn peer_hang_up(&mut self, _link: PeerLink, _why: HangUp) {}
    /// As [`whimbrel_core::Output::peer_dial`].
    fn peer_dial(&mut self, _name: &str, _address: &str) {}
    /// As [`whimbrel_core::Output::copy_used`].
    fn copy_used(&mut self, _client: &str, _age: Duration) {}
    /// As [`whimbrel_core::Output::asked`].
    fn asked(&mut self, _from: HostId, _number: u64, _question: &str) {}
    /// As [`whimbrel_core::Output::answered`].
    fn answered(&mut self, _from: HostId, _number: u64, _answer: &str) {}
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// A connection has to have sent its CONNECT, or something within its keep-alive.
    Silence,
    /// `$SYS` is due.
    Sys,
    /// A deadline of the core.
    Core(whimbrel_core::Reason),
}
