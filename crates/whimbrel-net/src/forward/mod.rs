//! Events are sent: from this broker's streams to the brokers that want them, and through this
//! broker to others. Silence goes the same ways.
//!
//! An event of an own stream costs one look-up of the tree for its set of destinations, one
//! encoding, and per link one copy and a header of some 8 bytes per destination behind it. An event
//! of another broker that is passed on costs a look at its header and the copy.

mod budget;
mod copies;
pub(crate) mod nack;
mod relay;
mod silence;

use whimbrel_event::{EventId, HostId, Reliability, Tick, Time};
use whimbrel_wire::{
    CopiedEvent, Dest, EventFrame, Part, Repairers, Silence, StampedEvent, Subtree, TreeReader, TreeWriter, compact,
};

use crate::due::NetTimers;
use crate::io::{Hop, LinkOutput};
use crate::link::peers::Peers;
use crate::link::queue::{FrameClass, Waiting, WaitingEvent};
use crate::pace::Routing;
use crate::route::{TopicPaths, Tree, TreeNode};
use crate::stats::NetStats;
use crate::topology::Topology;
use crate::traces::{TraceStep, Traces};
use crate::transit::Transit;
use crate::{Channel, Net, PeerLink};
use budget::{Budgets, ways_left};
use copies::{Copies, Copying};
use nack::OpenNacks;

pub use copies::PASSED_MAX;
pub use nack::{HOPS_MAX, MERGE_FOR, OPEN_NACKS_MAX};
pub(crate) use relay::EventArrival;

/// Bytes of the largest event that a broker of an overlay takes, packed: the size of a frame less
/// what a frame adds to its event.
pub const EVENT_BYTES_MAX: usize = whimbrel_wire::FRAME_BYTES_MAX - HEADER_BYTES_MAX;

/// Most bytes of an event and its tree that go as one datagram: a packet of 1,200 bytes, the least
/// that QUIC has, holds them with their headers.
const DATAGRAM_EVENT_MAX: usize = 1_000;

/// Unsent bytes of datagrams from which on events go on a stream: QUIC sends datagrams before all
/// streams, and has room for few.
const DATAGRAMS_UNSENT_MAX: usize = 16 << 10;

/// Most bytes that a frame adds to its event: further destinations get the event in another frame.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Buffers for frames, and the state kept of frames that pass.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffers {
    pub(crate) open: OpenNacks,
    pub(crate) transit: Transit,
    pub(crate) traces: Traces,
    copies: Copies,
    /// The frame that is being encoded.
    pub(crate) frame: Vec<u8>,
    tree: Vec<u8>,
    /// The destinations of the event that is being sent.
    hosts: Vec<HostId>,
}

/// An event that is to be sent to several brokers.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The event.
    pub id: EventId,
    /// Its age since it was accepted, microseconds.
    pub age_us: u64,
    /// The age, milliseconds, at which it should be at its subscribers; positive. `None`: its topic
    /// has no deadline, or it is sent again.
    pub deadline_ms: Option<u32>,
    /// It answers a nack.
    pub answer: bool,
    /// Its topic retains it.
    pub retain: bool,
    /// The brokers that have changed its path because of a link that was down.
    pub repairers: Repairers,
    /// It goes as a datagram over links whose other end knows stamps, where it fits one: it is of
    /// best effort, and has a deadline.
    pub by_datagram: bool,
    /// The paths that it takes from its own broker, if it has a deadline.
    pub paths: TopicPaths,
    /// See [`CopiedEvent::last_us`]; `None`: it has no copies.
    pub last_us: Option<u32>,
    /// In its packed form; at most [`EVENT_BYTES_MAX`].
    pub event: &'a [u8],
}

impl Sending<'_> {
    /// The class of the stream's events.
    fn class(&self) -> FrameClass {
        FrameClass::of_stream(self.id.pubend)
    }

    /// Its parts, kept while it waits for a driver.
    fn waiting(&self, now: Time, tree: &[u8], default_previous: Tick) -> WaitingEvent {
        let Sending { id, age_us, deadline_ms, answer, retain, repairers, last_us, event, .. } = *self;
        let (since, tree, event) = (now, tree.into(), event.into());
        WaitingEvent {
            id,
            age_us,
            since,
            deadline_ms,
            answer,
            retain,
            repairers,
            last_us,
            tree,
            default_previous,
            event,
        }
    }

    fn of_waiting(now: Time, waiting: &WaitingEvent) -> Sending<'_> {
        Sending {
            id: waiting.id,
            age_us: waiting.age_us_at(now),
            deadline_ms: waiting.deadline_ms,
            answer: waiting.answer,
            retain: waiting.retain,
            repairers: waiting.repairers,
            by_datagram: false,
            paths: TopicPaths::One,
            last_us: waiting.last_us,
            event: &waiting.event,
        }
    }

    fn header<'t>(&self, tree: &'t [u8], default_previous: Tick) -> EventFrame<'t> {
        EventFrame {
            pubend: self.id.pubend,
            tick: self.id.tick,
            age_us: self.age_us,
            answer: self.answer,
            retain: self.retain,
            repairers: self.repairers,
            tree,
            default_previous,
            event: &[],
        }
    }
}

/// The destination of silence: a broker, with the incarnation and version of its interest that the
/// silence is for.
#[derive(Clone, Copy, Debug)]
pub struct SilenceTarget {
    /// The broker.
    pub host: HostId,
    /// Its incarnation.
    pub incarnation: u64,
    /// The version of its interest.
    pub version: u64,
    /// Events of best effort go to it: silence of those streams follows them on their channel.
    pub gets_best_effort: bool,
}

impl Net {
    /// Sends an event of an own stream to the brokers that want it. `dests` is in the order of
    /// hosts.
    pub fn send_own(&mut self, now: Time, sending: &Sending<'_>, dests: &[(HostId, Dest)], out: &mut dyn LinkOutput) {
        self.stats.events_forwarded += 1;
        self.stats.destinations += dests.len() as u64;
        self.dispatch(now, sending, dests, out);
    }

    /// Sends an event again, to one broker that lacked it.
    pub fn send_again(&mut self, now: Time, sending: &Sending<'_>, to: HostId, dest: Dest, out: &mut dyn LinkOutput) {
        self.stats.events_answered += 1;
        self.traffic.traces.record(now, sending.id, TraceStep::Answered);
        self.dispatch(now, sending, &[(to, dest)], out);
    }

    /// Sends an event to these brokers over the best paths from here. `dests` is in the order of
    /// host ids.
    pub(crate) fn dispatch(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        dests: &[(HostId, Dest)],
        out: &mut dyn LinkOutput,
    ) {
        self.routes.update(&self.topology);
        if sending.paths != TopicPaths::One && sending.deadline_ms.is_some() && self.config.routing != Routing::Direct {
            return self.dispatch_copies(now, sending, dests, out);
        }
        let earlier_us = match sending.deadline_ms {
            Some(_) if sending.id.pubend.host() == self.identity.host => self.traffic.copies.earlier_us(sending.id),
            _ => 0,
        };
        let behind_copies;
        let sending = if earlier_us > 0 {
            behind_copies = Sending { last_us: u32::try_from(earlier_us).ok(), ..*sending };
            &behind_copies
        } else {
            sending
        };
        let avoided = match sending.deadline_ms {
            Some(_) => Budgets::of(now, self).exceeded(sending, dests.iter().map(|(host, _)| *host)),
            None => Vec::new(),
        };
        let mut hosts = core::mem::take(&mut self.traffic.hosts);
        hosts.clear();
        hosts.extend(dests.iter().map(|(host, _)| *host));
        let Net { routes, peers, topology, traffic, timers, stats, .. } = self;
        let mut carrier = Carrier { now, peers, topology, traffic, timers, stats };
        let found = routes.trees(&hosts);
        // A broker that is in no tree finds the hole by the next event, or by silence, once there
        // is a path.
        carrier.stats.unreachable += found.unreachable.len() as u64;
        let mut broken = Vec::new();
        for tree in &found.trees {
            let parts = TreeParts { tree, dests, avoided: &avoided, copying: None };
            carrier.send_tree(sending, parts, &mut broken, out);
        }
        self.traffic.hosts = hosts;
        for (port, below) in broken {
            self.repair(now, sending, port, below, out);
        }
    }
    /// Passes an event on to one neighbour, along its part of the tree. Returns whether it is on its
    /// path, or waits for the link.
    pub(crate) fn pass_on(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        part: &Subtree<'_>,
        default: Tick,
        out: &mut dyn LinkOutput,
    ) -> bool {
        let is_rerouted = sending.deadline_ms.is_some() && Budgets::of(now, self).is_exceeded_by(sending, part);
        if let Some(link) = self.peers.behind(part.port()).filter(|_| !is_rerouted) {
            let mut tree = core::mem::take(&mut self.traffic.tree);
            tree.clear();
            part.write_root(&mut tree);
            let is_sent = self.carrier(now).send_event(link, sending, &tree, default, out);
            self.traffic.tree = tree;
            return is_sent;
        }
        let mut below = Vec::new();
        part.destinations(|ports, dest| {
            if let Some(host) = self.host_behind(ports) {
                below.push((host, dest));
            }
        });
        self.repair(now, sending, part.port(), below, out);
        false
    }

    /// Sends an event that departed over a link, and may be lost there, once more around that link.
    pub(crate) fn detour(&mut self, now: Time, port: u16, event: &WaitingEvent, out: &mut dyn LinkOutput) {
        let Ok(tree) = TreeReader::new(&event.tree, event.id.tick, event.default_previous) else { return };
        let mut below = Vec::new();
        tree.destinations(|ports, dest| {
            let ports: Vec<u16> = [port].into_iter().chain(ports.iter().copied()).collect();
            below.extend(self.host_behind(&ports).map(|host| (host, dest)));
        });
        self.stats.detours += 1;
        self.repair(now, &Sending::of_waiting(now, event), port, below, out);
    }

    /// The broker at the end of a path of ports that begins here; none if a part of the path is
    /// unknown.
    pub(crate) fn host_behind(&self, ports: &[u16]) -> Option<HostId> {
        let (first, rest) = ports.split_first()?;
        let mut host = self.peers.neighbour(*first)?;
        for port in rest {
            let neighbours = &self.topology.get(host)?.neighbours;
            host = neighbours.iter().find(|neighbour| neighbour.port == *port)?.host;
        }
        Some(host)
    }

    /// Sends an event around a link that is down. Gives it up if this broker has repaired its path
    /// before, or [`Repairers`] is full. With [`Routing::Direct`] there is no other way.
    fn repair(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        port: u16,
        mut below: Vec<(HostId, Dest)>,
        out: &mut dyn LinkOutput,
    ) {
        if self.config.routing == Routing::Direct {
            self.stats.unreachable += below.len() as u64;
            self.traffic.traces.record(now, sending.id, TraceStep::GivenUp);
            return;
        }
        let sending =
            if fault!(self, RepairLoop) { &Sending { repairers: Repairers::NONE, ..*sending } } else { sending };
        // A part of a tree lists destinations in the order of their paths.
        below.sort_unstable_by_key(|(host, _)| *host);
        below.dedup_by_key(|(host, _)| *host);
        let mut repairers = sending.repairers;
        if below.is_empty() || repairers.as_slice().contains(&self.identity.host) || !repairers.push(self.identity.host)
        {
            self.stats.repairs_given_up += 1;
            self.traffic.traces.record(now, sending.id, TraceStep::GivenUp);
            return;
        }
        let dead: Vec<HostId> = self.peers.neighbour(port).into_iter().collect();
        self.carrier(now).record_reroute(sending, port);
        let hosts: Vec<HostId> = below.iter().map(|(host, _)| *host).collect();
        self.routes.update(&self.topology);
        let found = self.routes.avoiding(sending.repairers.as_slice(), &dead).trees(&hosts);
        self.stats.unreachable += found.unreachable.len() as u64;
        let sending = Sending { repairers, ..*sending };
        let mut broken = Vec::new();
        for tree in &found.trees {
            let parts = TreeParts { tree, dests: &below, avoided: &[], copying: None };
            self.carrier(now).send_tree(&sending, parts, &mut broken, out);
        }
        // A second link is down that the topology does not show yet: that part is left to the nack.
        self.stats.repairs_given_up += broken.len() as u64;
    }

    /// Sends parts of a silence to a broker over the best path.
    pub fn send_silence(&mut self, now: Time, to: SilenceTarget, parts: Vec<Part>, out: &mut dyn LinkOutput) {
        self.routes.update(&self.topology);
        let trees = self.routes.trees(&[to.host]);
        let Some(tree) = trees.trees.first() else { return };
        let way = &tree.nodes[1..];
        let port = way[0].port;
        let mut bytes = Vec::with_capacity(16);
        let end = Dest { tag: 0, previous: Tick(0) };
        put_nodes(TreeWriter::new(&mut bytes, Tick(0), Tick(0)), way, |_| end);
        let Some(link) = self.peers.behind(port) else { return };
        let (from, incarnation, version) = (self.identity.host, to.incarnation, to.version);
        // Without best-effort events one frame has the parts of those streams, too.
        let channel_of = |part: &Part| match from.pubend(part.index).reliability() {
            Reliability::BestEffort if to.gets_best_effort => Channel::BestEffort,
            _ => Channel::Reliable,
        };
        let silence = Silence { from, target_tree: &bytes, incarnation, version, parts };
        self.stats.silences_out += self.carrier(now).send_silence(link, silence, channel_of, out);
    }

    /// Borrows what sending takes, beside the rest of the network layer.
    pub(crate) fn carrier(&mut self, now: Time) -> Carrier<'_> {
        let Net { peers, topology, traffic, timers, stats, .. } = self;
        Carrier { now, peers, topology, traffic, timers, stats }
    }
}

/// The parts of a tree for which there is no link, or one that is avoided: port and destinations
/// behind it.
type Broken = Vec<(u16, Vec<(HostId, Dest)>)>;

/// A tree that is to be sent: to each neighbour its part.
#[derive(Clone, Copy)]
struct TreeParts<'a> {
    tree: &'a Tree,
    /// The destinations, in the order of their numbers in the tree.
    dests: &'a [(HostId, Dest)],
    /// Parts behind these ports are left out.
    avoided: &'a [u16],
    /// Of copies.
    copying: Option<Copying<'a>>,
}

/// The part of the network layer that sends frames.
pub(crate) struct Carrier<'a> {
    pub(crate) now: Time,
    pub(crate) peers: &'a mut Peers,
    topology: &'a Topology,
    traffic: &'a mut FrameBuffers,
    pub(crate) timers: &'a mut NetTimers,
    stats: &'a mut NetStats,
}

impl Carrier<'_> {
    /// Sends an event along one tree: to each neighbour its part.
    fn send_tree(
        &mut self,
        sending: &Sending<'_>,
        parts: TreeParts<'_>,
        broken: &mut Broken,
        out: &mut dyn LinkOutput,
    ) {
        let TreeParts { tree, dests, avoided, copying } = parts;
        let mut bytes = core::mem::take(&mut self.traffic.tree);
        for part in tree.parts() {
            let is_avoided = !avoided.is_empty() && avoided.contains(&part[0].port);
            let Some(link) = self.peers.behind(part[0].port).filter(|_| !is_avoided) else {
                let below = part.iter().filter_map(|node| node.destination);
                broken.push((part[0].port, below.map(|number| dests[usize::from(number)]).collect()));
                continue;
            };
            let dest = |number: u16| dests[usize::from(number)].1;
            let first = part.iter().find_map(|node| node.destination).expect("each part leads somewhere");
            // A part of copies that stands in several places is the same in each.
            let default = if copying.is_some() { dests[0].1.previous } else { dest(first).previous };
            bytes.clear();
            put_nodes(TreeWriter::new(&mut bytes, sending.id.tick, default), part, dest);
            let last_us = copying.map(|copying| copying.last_us(part)).or(sending.last_us);
            self.send_event(link, &Sending { last_us, ..*sending }, &bytes, default, out);
        }
        self.traffic.tree = bytes;
    }

    /// Sends an event to one neighbour, with the tree of the destinations beyond it. Returns whether
    /// it was sent, or waits for the link.
    pub(crate) fn send_event(
        &mut self,
        link: PeerLink,
        sending: &Sending<'_>,
        tree: &[u8],
        default: Tick,
        out: &mut dyn LinkOutput,
    ) -> bool {
        let class = sending.class();
        let peer = self.peers.get_mut(link).expect("the link is up");
        let fits = sending.by_datagram && tree.len() + sending.event.len() <= DATAGRAM_EVENT_MAX;
        let is_few = peer.unsent[Channel::Datagram as usize] < DATAGRAMS_UNSENT_MAX;
        let is_datagram = fits && is_few && peer.is_watched();
        let channel = if is_datagram { Channel::Datagram } else { peer.queue.channel(class) };
        let to = peer.host().expect("who is there has said hello");
        if !peer.admits(channel, sending.id.pubend) {
            peer.counters.events_held_back += 1;
            self.traffic.traces.record(self.now, sending.id, TraceStep::HeldBack(to));
            return false;
        }
        peer.counters.events_out += 1;
        peer.counters.urgent_out += u64::from(class == FrameClass::Urgent);
        if !is_datagram && !peer.queue.passes(channel, peer.unsent[channel as usize]) {
            let event = Box::new(sending.waiting(self.now, tree, default));
            let ways = ways_left(self.topology, peer, &event);
            peer.queue.push_event(class, event, ways);
            return true;
        }
        self.write_event((link, to, channel), sending, tree, default, out);
        true
    }

    /// Gives an event to the driver.
    #[inline]
    fn write_event(
        &mut self,
        (link, to, channel): (PeerLink, HostId, Channel),
        sending: &Sending<'_>,
        tree: &[u8],
        default: Tick,
        out: &mut dyn LinkOutput,
    ) {
        let mut frame = core::mem::take(&mut self.traffic.frame);
        frame.clear();
        self.put_header(link, sending, tree, default, &mut frame);
        self.stats.header_bytes += frame.len() as u64;
        self.stats.event_bytes += sending.event.len() as u64;
        frame.extend_from_slice(sending.event);
        self.write(link, channel, &frame, out);
        self.traffic.traces.record(self.now, sending.id, TraceStep::Sent(to));
        tell_hop(sending, Hop::Sent { to, is_answer: sending.answer }, out);
        self.traffic.frame = frame;
    }

    /// Encodes the header of an event's frame. One with a deadline is stamped if the neighbour
    /// knows stamps.
    #[inline]
    fn put_header(&mut self, link: PeerLink, sending: &Sending<'_>, tree: &[u8], default: Tick, frame: &mut Vec<u8>) {
        let header = sending.header(tree, default);
        let stamp = sending.deadline_ms.and_then(|deadline_ms| {
            let waiting = sending.waiting(self.now, tree, default);
            self.stamp(link, waiting, deadline_ms)
        });
        let stamped = stamp.map(|stamp| StampedEvent { stamp, frame: header });
        match (stamped, sending.last_us) {
            (Some(stamped), Some(last_us)) => {
                CopiedEvent { last_us, stamped }.encode_header(sending.event.len(), frame);
            }
            (Some(stamped), None) => stamped.encode_header(sending.event.len(), frame),
            (None, _) => header.encode_header(sending.event.len(), frame),
        }
    }

    /// Sends a frame to a neighbour; nothing if the link is gone.
    pub(crate) fn send(&mut self, link: PeerLink, class: FrameClass, frame: &[u8], out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let channel = peer.queue.channel(class);
        if !peer.queue.passes(channel, peer.unsent[channel as usize]) {
            return peer.queue.push(class, frame);
        }
        self.write(link, channel, frame, out);
    }

    /// Gives the driver what has waited for a channel, as far as it has room.
    pub(crate) fn release(&mut self, link: PeerLink, channel: Channel, out: &mut dyn LinkOutput) {
        // Bounded by what waits: each turn takes one.
        while let Some(peer) = self.peers.get_mut(link)
            && let Some(waiting) = peer.queue.release(self.now, channel, peer.unsent[channel as usize])
        {
            match waiting {
                Waiting::Frame(frame) => self.write(link, channel, &frame, out),
                Waiting::Event(event) => {
                    let to = peer.host().expect("events wait for who has said hello");
                    let sending = Sending::of_waiting(self.now, &event);
                    self.write_event((link, to, channel), &sending, &event.tree, event.default_previous, out);
                }
            }
        }
    }

    /// Gives a frame to the driver; nothing if the link is gone.
    pub(crate) fn write(&mut self, link: PeerLink, channel: Channel, frame: &[u8], out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let unsent = out.peer_bytes(link, channel, frame);
        peer.counters.frames_out += 1;
        peer.counters.bytes_out += frame.len() as u64;
        peer.set_unsent(self.now, channel, unsent);
    }
}

/// Reports a hop of an event to the driver if it wants steps. An event that cannot be read is left
/// to its destination.
pub(crate) fn tell_hop(sending: &Sending<'_>, hop: Hop, out: &mut dyn LinkOutput) {
    if out.wants_steps()
        && let Ok(event) = compact::read(sending.event, sending.id)
    {
        out.hop(&event, hop);
    }
}

/// Writes the part of a tree that one neighbour gets: these nodes in pre-order, with `dest` of each
/// destination among them.
pub(crate) fn put_nodes(mut writer: TreeWriter<'_>, nodes: &[TreeNode], dest: impl Fn(u16) -> Dest) {
    let (first, rest) = nodes.split_first().expect("a part has a first node");
    writer.root(first.destination.map(&dest), usize::from(first.children));
    for node in rest {
        writer.child(node.port, node.destination.map(&dest), usize::from(node.children));
    }
    writer.finish();
}
