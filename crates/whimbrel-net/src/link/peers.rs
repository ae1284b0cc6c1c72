//! Links to other brokers: the neighbour at the other end, and what is unsent on each.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, LatencyHistogram, PubendId, Time};
use whimbrel_wire::Cutter;

use super::estimate::Estimate;
use super::queue::{FrameClass, LinkQueue, Occupancy};
use super::watch::{ConditionCause, LinkCondition, LinkWatch};
use super::{Channel, PeerLink};
use crate::fault::NetFaults;
use crate::registry::{MAPS_MAX, MapBacklog};
use crate::route::cost::cost_us;

pub use super::driver::UNSENT_LITTLE;

/// Most links at a time, those that have not said hello included.
pub const LINKS_MAX: usize = 256;

/// Time within which a new link has to say hello.
pub const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A peer that takes nothing for this time, while more than [`Channel::little`] is unsent on some
/// channel, is disconnected.
pub const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Unsent bytes of state above which no more is given out: it waits as a set of changed keys, and
/// is read when there is room.
pub const CONTROL_HIGH: usize = 256 << 10;

/// Unsent bytes of reliable events above which further ones are not sent: the receiver finds a
/// hole and asks for it.
pub const RELIABLE_HIGH: usize = 4 << 20;

/// Unsent bytes of urgent events above which further ones of streams that are far behind are not
/// sent, as with reliable ones; above twice as much, none are.
pub const URGENT_HIGH: usize = 1 << 20;

/// Unsent bytes of events of best effort above which further ones are dropped.
pub const BEST_EFFORT_HIGH: usize = 1 << 20;

/// The first minor version of the protocol with replicated maps beside the retained messages.
const MINOR_WITH_MAPS: u8 = 2;

/// The first minor version of the protocol with domains.
const MINOR_WITH_DOMAINS: u8 = 3;

/// The first minor version of the protocol whose links are watched, and have an urgent channel.
const MINOR_WITH_WATCH: u8 = 3;

/// The first minor version of the protocol that knows repeated events.
const MINOR_WITH_REPEATS: u8 = 4;

/// The delay that is announced for a link before its first probe has come back, microseconds.
const DELAY_UNKNOWN_US: u32 = 1_000;

/// Unsent bytes of a channel from which on no more is sent over it; see [`Peer::admits`] for urgent
/// events.
pub(crate) fn high_of(channel: Channel) -> usize {
    match channel {
        Channel::Control => CONTROL_HIGH,
        Channel::Urgent => URGENT_HIGH,
        Channel::Reliable => RELIABLE_HIGH,
        Channel::BestEffort | Channel::Datagram => BEST_EFFORT_HIGH,
    }
}

/// The broker at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Host of the neighbour.
    pub host: HostId,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its name.
    pub name: Box<str>,
    /// Version of its program; empty if it has not told it.
    pub version: Box<str>,
    /// Minor version of its protocol.
    pub minor: u8,
    /// How far its clock is ahead of this one's, nanoseconds, the delay of the hello included.
    pub ahead: i64,
}

/// Counters of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that were sent.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that were received.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames with an event that were sent.
    pub events_out: u64,
    /// Of these, urgent ones.
    pub urgent_out: u64,
    /// Frames with an event that were received.
    pub events_in: u64,
    /// Events that were not sent because too much was unsent.
    pub events_held_back: u64,
}

/// The state that the other end is still to be told, as keys whose present values are sent.
#[derive(Debug, Default)]
pub struct PeerBacklog {
    /// Hosts whose link states are to be told.
    pub states: BTreeSet<HostId>,
    /// Hosts whose interests are to be told.
    pub interests: BTreeSet<HostId>,
    /// Entries of replicated maps that are to be told, by the numbers of the maps.
    pub maps: [MapBacklog; MAPS_MAX],
    /// The version of each broker's interest that the other end has.
    pub has: BTreeMap<HostId, (u64, u64)>,
    /// The other end has told its versions, so it is known what it lacks.
    pub is_compared: bool,
}

impl PeerBacklog {
    /// The number of states, interests and entries that are to be told, and of versions that are
    /// known of the other end.
    pub fn len(&self) -> usize {
        let entries: usize = self.maps.iter().map(MapBacklog::len).sum();
        self.states.len() + self.interests.len() + entries + self.has.len()
    }

    /// Whether there is nothing to be told, and no version is known of the other end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The longest delay of information on a link, as a multiple of the link's delay, and a constant
/// beside: lost frames are sent again.
const WAY_DELAYS: u64 = 6;
const WAY_REPEATED: Duration = Duration::from_millis(100);

/// One link.
#[derive(Debug)]
pub struct Peer {
    /// The driver's name for the link.
    pub link: PeerLink,
    /// This broker has asked for the link.
    pub dialed: bool,
    /// The name in the certificate of the other end, if certificates prove names.
    pub certified: Option<Box<str>>,
    /// When the connection was made.
    pub opened: Time,
    /// Known once it has said hello; then the link is up.
    pub who: Option<PeerIdentity>,
    /// The number by which other brokers name this link.
    pub port: u16,
    /// What the link costs beside delay and loss, microseconds: it is metered.
    pub surcharge_us: u32,
    /// Cuts the bytes of each stream into frames; by channel.
    pub cutters: [Cutter; Channel::STREAMS],
    /// Bytes that the driver has not sent; by channel.
    pub unsent: [usize; Channel::ALL.len()],
    /// What waits in front of the driver.
    pub(crate) queue: LinkQueue,
    /// When the last bulk message was sent.
    pub bulk_at: Time,
    /// For each channel, since when more than [`Channel::little`] is unsent on it without any of it
    /// being taken.
    stuck_since: [Option<Time>; Channel::ALL.len()],
    /// Delay and loss.
    pub estimate: Estimate,
    /// The events with a deadline that cross it.
    pub(crate) watch: LinkWatch,
    /// State that the neighbour is still to be told.
    pub pending: PeerBacklog,
    /// Frames and bytes that went over the link.
    pub counters: LinkCounters,
    /// Ages of events when they were received over this link.
    pub latency: LatencyHistogram,
}

impl Peer {
    /// A link whose hello has not come. `mark`: unsent bytes of the driver on a channel from which
    /// on frames wait in front of it.
    pub fn new(now: Time, link: PeerLink, dialed: bool, certified: Option<&str>, mark: usize) -> Peer {
        let faults = NetFaults::default();
        Peer {
            link,
            dialed,
            certified: certified.map(Box::from),
            opened: now,
            who: None,
            port: 0,
            surcharge_us: 0,
            cutters: Default::default(),
            unsent: [0; Channel::ALL.len()],
            queue: LinkQueue::new(mark, faults),
            bulk_at: Time::ZERO,
            stuck_since: [None; Channel::ALL.len()],
            estimate: Estimate::new(now),
            watch: LinkWatch::new(faults),
            pending: PeerBacklog::default(),
            counters: LinkCounters::default(),
            latency: LatencyHistogram::default(),
        }
    }

    /// Records the number of unsent bytes of a channel.
    pub fn set_unsent(&mut self, now: Time, channel: Channel, unsent: usize) {
        let before = core::mem::replace(&mut self.unsent[channel as usize], unsent);
        // A few urgent bytes may wait for control traffic that goes on. What is unsent of datagrams
        // is known when one is sent only.
        let is_much = unsent > channel.little().max(UNSENT_LITTLE) && channel != Channel::Datagram;
        let stuck_since = &mut self.stuck_since[channel as usize];
        if !is_much || unsent < before {
            *stuck_since = is_much.then_some(now);
        } else {
            stuck_since.get_or_insert(now);
        }
    }

    /// Unsent bytes of those channels on which more than [`Channel::little`] is unsent.
    pub fn unsent(&self) -> usize {
        let unsent = Channel::ALL.into_iter().map(|channel| (channel, self.unsent[channel as usize]));
        unsent.filter(|(channel, unsent)| *unsent > channel.little()).map(|(_, unsent)| unsent).sum()
    }

    /// Whether more may be sent on a channel: what the driver has unsent and what waits in front of
    /// it are below the channel's bound.
    pub fn has_room(&self, channel: Channel) -> bool {
        self.backlog(channel) < high_of(channel)
    }

    /// Whether a channel takes an event or silence of a stream. Beyond its bound the urgent channel
    /// holds back only streams that are far behind, which are late in any case: a hole would make
    /// another stream late, too.
    pub(crate) fn admits(&self, channel: Channel, pubend: PubendId) -> bool {
        let (backlog, high) = (self.backlog(channel), high_of(channel));
        backlog < high || (channel == Channel::Urgent && backlog < 2 * high && !self.queue.is_far_behind(pubend))
    }

    /// Bytes for a channel that have not left: the driver's unsent ones, and those that wait in
    /// front of it.
    pub fn backlog(&self, channel: Channel) -> usize {
        self.unsent[channel as usize] + self.queue.bytes_on(channel)
    }

    /// What waits in front of the driver, by class.
    pub fn queued(&self) -> [Occupancy; FrameClass::ALL.len()] {
        self.queue.occupancy()
    }

    /// The longest time that a frame received now was on its way, bounded by the age of the link.
    pub fn way_at_most(&self, now: Time) -> Duration {
        let way = self.estimate.delay_us().map_or(Duration::MAX, |delay| {
            Duration::from_micros(WAY_DELAYS * u64::from(delay)).saturating_add(WAY_REPEATED)
        });
        way.min(now.since(self.opened))
    }

    /// Whether more waits on the control channel than is sent with a look at room: the neighbour
    /// has this broker answer, and takes nothing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.is_overrun(Channel::Control)
    }

    /// Whether the neighbour takes nothing, see [`STUCK_AFTER`].
    pub fn is_stuck(&self, now: Time) -> bool {
        self.stuck_since.iter().flatten().any(|since| now.since(*since) >= STUCK_AFTER)
    }

    /// Whether the link is up and its neighbour has a replicated map of this number: the retained
    /// messages, or with a protocol of 1.2 or later any map.
    pub(crate) fn knows_map(&self, map: u8) -> bool {
        self.who.as_ref().is_some_and(|who| map == 0 || who.minor >= MINOR_WITH_MAPS)
    }

    /// Whether the link is up and its neighbour knows that a value may be withheld from it.
    pub(crate) fn knows_withheld(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.minor >= MINOR_WITH_DOMAINS)
    }

    /// The channel for silence of a stream that would else go on `otherwise`: it follows the
    /// stream's events.
    pub(crate) fn silence_channel(&self, pubend: PubendId, otherwise: Channel) -> Channel {
        let is_urgent = FrameClass::of_stream(pubend) == FrameClass::Urgent && self.counters.urgent_out > 0;
        match (is_urgent, otherwise) {
            (true, _) => self.queue.channel(FrameClass::Urgent),
            (false, Channel::Urgent) => Channel::Reliable,
            (false, _) => otherwise,
        }
    }

    /// Whether the link is up and its neighbour knows stamped events, reports and flashes.
    pub(crate) fn is_watched(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.minor >= MINOR_WITH_WATCH)
    }

    /// Whether the link is up and its neighbour knows repeated events.
    pub(crate) fn knows_repeats(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.minor >= MINOR_WITH_REPEATS)
    }

    /// The condition of the direction to the neighbour.
    pub fn condition(&self) -> LinkCondition {
        self.watch.condition()
    }

    /// How the condition was found, and since when others are told of it; zero: it never changed.
    pub fn condition_cause(&self) -> (ConditionCause, Time) {
        self.watch.cause()
    }

    /// Delay (microseconds) and loss (thousandths) of the link as other brokers are told.
    pub(crate) fn announced(&self) -> (u32, u16) {
        // The values told before, unless they have changed much: each change makes every broker
        // compute its paths anew.
        let (delay_us, loss) = self.estimate.told().unwrap_or((DELAY_UNKNOWN_US, 0));
        self.watch.announced(delay_us, loss)
    }

    /// By how much the link is slower at present than other brokers are told, microseconds.
    pub(crate) fn surplus_us(&self, now: Time) -> u32 {
        let (announced_us, _) = self.announced();
        self.watch.surplus_us(now, announced_us, &self.estimate)
    }

    /// What the link costs at present, microseconds: as other brokers are told, and by how much it
    /// is slower.
    pub(crate) fn present_cost_us(&self, now: Time) -> u64 {
        let (delay_us, loss) = self.announced();
        cost_us(delay_us, loss) + u64::from(self.surplus_us(now))
    }

    /// The broker at the other end, once it is known.
    pub fn host(&self) -> Option<HostId> {
        self.who.as_ref().map(|who| who.host)
    }
}

/// All links, by the driver's names for them, and the numbers by which other brokers know them.
#[derive(Debug, Default)]
pub struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    count: usize,
    /// The neighbour that a port leads to, whether or not there is a link to it at present. A
    /// number is given to one neighbour only, until this process ends or all numbers are used.
    ports: Vec<HostId>,
    /// The first number: another after each start, so that trees of an earlier incarnation lead
    /// nowhere rather than elsewhere.
    first_port: u16,
    /// The link to a neighbour.
    by_host: BTreeMap<HostId, PeerLink>,
}

/// Ports of one process; a broker that has met more neighbours uses numbers again.
const PORTS_MAX: usize = 16_384;

impl Peers {
    /// No links. The first port depends on the incarnation.
    pub fn new(incarnation: u64) -> Peers {
        // Small numbers take fewer bytes in trees.
        Peers { first_port: (incarnation / 1_000_000_000 % 32) as u16, ..Peers::default() }
    }

    /// The number of links, those without a hello included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A link.
    pub fn get(&self, link: PeerLink) -> Option<&Peer> {
        self.slots.get(link.0 as usize)?.as_deref()
    }

    /// A link, to be changed.
    pub fn get_mut(&mut self, link: PeerLink) -> Option<&mut Peer> {
        self.slots.get_mut(link.0 as usize)?.as_deref_mut()
    }

    /// Adds a link.
    ///
    /// # Panics
    /// When there is a link of that name.
    pub fn insert(&mut self, peer: Peer) {
        let at = peer.link.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        assert!(self.slots[at].is_none(), "a link is opened once");
        self.slots[at] = Some(Box::new(peer));
        self.count += 1;
    }

    /// Removes a link.
    pub fn remove(&mut self, link: PeerLink) -> Option<Peer> {
        let peer = self.slots.get_mut(link.0 as usize)?.take()?;
        self.count -= 1;
        if let Some(host) = peer.host()
            && self.by_host.get(&host) == Some(&link)
        {
            self.by_host.remove(&host);
        }
        Some(*peer)
    }

    /// Records that a link is up. Returns the number by which its neighbour is known.
    pub fn bring_up(&mut self, link: PeerLink, who: PeerIdentity) -> u16 {
        let host = who.host;
        let port = self.ports.iter().position(|known| *known == host).unwrap_or_else(|| {
            if self.ports.len() >= PORTS_MAX {
                self.ports.clear();
            }
            self.ports.push(host);
            self.ports.len() - 1
        });
        let port = port as u16 + self.first_port;
        self.by_host.insert(host, link);
        let peer = self.get_mut(link).expect("a link that said hello is there");
        (peer.who, peer.port) = (Some(who), port);
        if peer.is_watched() {
            peer.queue.open_urgent();
        }
        port
    }

    /// The neighbour that a number stands for.
    pub fn neighbour(&self, port: u16) -> Option<HostId> {
        self.ports.get(usize::from(port.checked_sub(self.first_port)?)).copied()
    }

    /// The link behind a number, if it is up.
    pub fn behind(&self, port: u16) -> Option<PeerLink> {
        self.by_host.get(&self.neighbour(port)?).copied()
    }

    /// The link to a neighbour.
    pub fn to(&self, host: HostId) -> Option<PeerLink> {
        self.by_host.get(&host).copied()
    }

    /// The links that are up, in order of the neighbours' ids.
    pub fn up(&self) -> impl Iterator<Item = &Peer> {
        self.by_host.values().map(|link| self.get(*link).expect("a link that is up is there"))
    }

    /// All links, also those that are not up.
    pub fn links(&self) -> Vec<PeerLink> {
        self.slots.iter().flatten().map(|peer| peer.link).collect()
    }

    /// The names of the links that are up.
    pub fn links_up(&self) -> Vec<PeerLink> {
        self.by_host.values().copied().collect()
    }
}
