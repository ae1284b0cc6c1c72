//! Counters of links.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use quinn::{Connection, VarInt};
use rustls::pki_types::CertificateDer;
use whimbrel_core::Channel;

use super::channel::{self, CHANNELS};
use super::peers::{PeerAccount, Peers};
use crate::identity::trust::Refusal;

/// Why there is no link, beyond [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer, or the path broke.
    Unreachable,
    /// The other broker refused.
    RefusedByPeer,
    /// The peer does not speak this protocol, or breaks it.
    Protocol,
    /// The limit of links or handshakes is reached.
    Full,
    /// A host name could not be resolved to an address that can be dialled.
    Name,
}

impl Failure {
    /// All reasons, in the order of their counters.
    pub const ALL: [Failure; 5] =
        [Failure::Unreachable, Failure::RefusedByPeer, Failure::Protocol, Failure::Full, Failure::Name];

    /// The reason's label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Unreachable => "unreachable",
            Failure::RefusedByPeer => "refused_by_peer",
            Failure::Protocol => "protocol",
            Failure::Full => "full",
            Failure::Name => "name",
        }
    }
}

/// The certificates that the other end has shown.
pub(super) fn chain_of(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok().map(|chain| *chain)
}

/// Counters of all links together.
#[derive(Debug, Default)]
pub struct Counts {
    opened: AtomicU64,
    redialed: AtomicU64,
    refusals: [AtomicU64; Refusal::ALL.len()],
    failures: [AtomicU64; Failure::ALL.len()],
    /// Bytes that were given to links that have ended.
    ended_sent: AtomicU64,
    /// Bytes received over links that have ended.
    ended_received: AtomicU64,
    /// The links that are up, in the order in which they were opened.
    links: Mutex<BTreeMap<u64, Arc<LinkCounts>>>,
    /// The addresses that are configured or were found, and whether their brokers are reached.
    pub(super) peers: Peers,
}

/// Lists a link as up until this is dropped.
pub(super) struct Up {
    counts: Arc<Counts>,
    number: u64,
}

impl Drop for Up {
    fn drop(&mut self) {
        let mut links = self.counts.links.lock();
        if let Some(link) = links.remove(&self.number) {
            let (sent, received) = link.bytes();
            self.counts.ended_sent.fetch_add(sent, Ordering::Relaxed);
            self.counts.ended_received.fetch_add(received, Ordering::Relaxed);
        }
    }
}

/// Counters of one link.
#[derive(Debug)]
pub(crate) struct LinkCounts {
    /// The other broker's name by its certificate, or its address where there is none.
    pub(crate) peer: String,
    /// The name that the other broker has told; the same as `peer` where certificates prove names.
    told: OnceLock<String>,
    pub(crate) address: SocketAddr,
    pub(super) connection: Connection,
    sent: [Flow; Channel::ALL.len()],
    received: [Flow; Channel::ALL.len()],
    /// Datagrams that were not sent: too large, or without room.
    pub(super) dropped: AtomicU64,
    /// Bytes that were compressed, and their compressed size.
    plain: AtomicU64,
    packed: AtomicU64,
}

#[derive(Debug, Default)]
struct Flow {
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl Flow {
    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.pieces.load(Ordering::Relaxed))
    }
}

impl LinkCounts {
    pub(super) fn new(peer: String, connection: Connection) -> LinkCounts {
        let (address, told) = (connection.remote_address(), OnceLock::new());
        let (sent, received) = Default::default();
        let (dropped, plain, packed) = Default::default();
        LinkCounts { peer, told, address, connection, sent, received, dropped, plain, packed }
    }

    /// Records the name that the other broker has told.
    pub(super) fn name_peer(&self, name: &str) {
        self.told.get_or_init(|| name.to_owned());
    }

    pub(super) fn sent(&self, channel: Channel, bytes: usize) {
        self.sent[channel as usize].add(bytes);
    }

    /// Records bytes that were compressed, and their compressed size.
    pub(super) fn packed(&self, plain: usize, packed: usize) {
        self.plain.fetch_add(plain as u64, Ordering::Relaxed);
        self.packed.fetch_add(packed as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, channel: Channel, bytes: usize) {
        self.received[channel as usize].add(bytes);
    }
}

impl LinkCounts {
    /// Bytes given to the link, and bytes received over it.
    fn bytes(&self) -> (u64, u64) {
        let sum = |flows: &[Flow]| flows.iter().map(|flow| flow.read().0).sum();
        (sum(&self.sent), sum(&self.received))
    }
}

/// State and counters of one link at one moment.
#[derive(Clone, Debug)]
pub struct LinkAccount {
    /// The other broker's name; its address until that is known.
    pub peer: String,
    /// The other broker's address.
    pub address: SocketAddr,
    /// Bytes and pieces (outputs of the broker) sent, by the place of the channel.
    pub sent: [(u64, u64); CHANNELS.len()],
    /// Bytes and pieces (reads) received, by the place of the channel.
    pub received: [(u64, u64); CHANNELS.len()],
    /// The path's round-trip time, as estimated by QUIC.
    pub rtt: Duration,
    /// Packets sent.
    pub packets: u64,
    /// Of these, packets that were lost.
    pub lost: u64,
    /// Datagrams that were not sent.
    pub dropped: u64,
    /// Bytes of `sent` that were compressed.
    pub plain: u64,
    /// The compressed bytes that were sent in place of these.
    pub packed: u64,
}

/// State and counters of all links at one moment.
#[derive(Clone, Debug, Default)]
pub struct OverlayAccount {
    /// Links opened so far.
    pub opened: u64,
    /// Of these, those that were dialled after one to the same address had ended.
    pub redialed: u64,
    /// Number of certificates refused, by reason.
    pub refusals: Vec<(&'static str, u64)>,
    /// The links that are up.
    pub links: Vec<LinkAccount>,
}

impl Counts {
    pub(super) fn up(self: &Arc<Self>, link: Arc<LinkCounts>) -> Up {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.links.lock().insert(number, link);
        Up { counts: self.clone(), number }
    }

    pub(super) fn redialed(&self) {
        self.redialed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        let at = Refusal::ALL.iter().position(|known| *known == refusal).expect("the list is complete");
        self.refusals[at].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, failure: Failure) {
        let at = Failure::ALL.iter().position(|known| *known == failure).expect("the list is complete");
        self.failures[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there is a link to an address. All links of a broker are at one socket, so that is
    /// its address whichever of the two has dialled.
    pub(super) fn is_linked(&self, address: SocketAddr) -> bool {
        let is_same = |link: &LinkCounts| (link.address.ip(), link.address.port()) == (address.ip(), address.port());
        self.links.lock().values().any(|link| is_same(link))
    }

    /// The configured and the found peers at this moment.
    pub(crate) fn peers(&self) -> Vec<PeerAccount> {
        self.peers.account()
    }

    /// Bytes received over all links since the start, and bytes given to them.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let links = self.links.lock();
        let ended = (self.ended_received.load(Ordering::Relaxed), self.ended_sent.load(Ordering::Relaxed));
        links
            .values()
            .map(|link| link.bytes())
            .fold(ended, |(came, went), (sent, received)| (came + received, went + sent))
    }

    /// Closes the links that are refused by now: `judge` returns the reason, from a broker's name
    /// and certificates.
    pub(crate) fn review(&self, judge: impl Fn(&LinkCounts, &[CertificateDer<'static>]) -> Option<Refusal>) {
        let links: Vec<Arc<LinkCounts>> = self.links.lock().values().cloned().collect();
        for link in links {
            let Some(chain) = chain_of(&link.connection) else { continue };
            if let Some(why) = judge(&link, &chain) {
                self.refused(why);
                let (peer, address, why_text) = (&link.peer, link.address, why.text());
                tracing::warn!(peer, %address, why = why_text, "the link to another broker is closed: it is refused by now");
                link.connection.close(VarInt::from_u32(channel::NOT_ALLOWED), why.text().as_bytes());
            }
        }
    }

    /// All counters at this moment.
    pub fn account(&self) -> OverlayAccount {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let refusals = Refusal::ALL.iter().map(|refusal| refusal.name()).zip(self.refusals.iter().map(load));
        let failures = Failure::ALL.iter().map(|failure| failure.name()).zip(self.failures.iter().map(load));
        let links: Vec<Arc<LinkCounts>> = self.links.lock().values().cloned().collect();
        let links = links.iter().map(|link| {
            let path = link.connection.stats().path;
            LinkAccount {
                peer: link.told.get().unwrap_or(&link.peer).clone(),
                address: link.address,
                sent: std::array::from_fn(|at| link.sent[at].read()),
                received: std::array::from_fn(|at| link.received[at].read()),
                rtt: path.rtt,
                packets: path.sent_packets,
                lost: path.lost_packets,
                dropped: load(&link.dropped),
                plain: load(&link.plain),
                packed: load(&link.packed),
            }
        });
        OverlayAccount {
            opened: load(&self.opened),
            redialed: load(&self.redialed),
            refusals: refusals.chain(failures).collect(),
            links: links.collect(),
        }
    }
}
