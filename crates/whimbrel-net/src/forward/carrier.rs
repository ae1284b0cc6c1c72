//! Frames are given to links, or wait in front of them.

use whimbrel_event::{HostId, Tick, Time};
use whimbrel_wire::{CopiedEvent, Dest, LinkStamp, StampedEvent, TreeWriter, compact};

use super::budget::ways_left;
use super::copies::CopyAges;
use super::{FrameBuffers, Sending};
use crate::domains::{DomainPlace, may_carry};
use crate::due::NetTimers;
use crate::fault::NetFaults;
use crate::io::{Hop, LinkOutput};
use crate::link::peers::Peers;
use crate::link::queue::{FrameClass, Waiting};
use crate::route::{Tree, TreeNode, Trees};
use crate::stats::NetStats;
use crate::topology::Topology;
use crate::traces::TraceStep;
use crate::{Channel, PeerLink};

/// Most bytes of an event and its tree that go as one datagram: a packet of 1,200 bytes, the least
/// that QUIC has, holds them with their headers.
const DATAGRAM_EVENT_MAX: usize = 1_000;

/// Unsent bytes of datagrams from which on events go on a stream: QUIC sends datagrams before all
/// streams, and has room for few.
const DATAGRAMS_UNSENT_MAX: usize = 16 << 10;

/// The parts of a tree for which there is no link, or one that is avoided: port and destinations
/// behind it.
pub(super) type Broken = Vec<(u16, Vec<(HostId, Dest)>)>;

/// A tree that is to be sent: to each neighbour its part.
#[derive(Clone, Copy)]
pub(super) struct TreeParts<'a> {
    pub(super) tree: &'a Tree,
    /// The destinations, in the order of their numbers in the tree.
    pub(super) dests: &'a [(HostId, Dest)],
    /// Parts behind these ports are left out.
    pub(super) avoided: &'a [u16],
    /// Of copies.
    pub(super) copying: Option<CopyAges<'a>>,
}

/// The part of the network layer that sends frames.
pub(crate) struct Carrier<'a> {
    pub(crate) now: Time,
    pub(crate) peers: &'a mut Peers,
    pub(super) topology: &'a Topology,
    pub(super) traffic: &'a mut FrameBuffers,
    pub(crate) timers: &'a mut NetTimers,
    pub(crate) stats: &'a mut NetStats,
    pub(super) faults: NetFaults,
}

impl Carrier<'_> {
    /// Sends an event along trees in which each destination stands once. Returns the parts for
    /// which there is no link, or one that is avoided.
    pub(super) fn send_trees(
        &mut self,
        sending: &Sending<'_>,
        found: &Trees,
        dests: &[(HostId, Dest)],
        avoided: &[u16],
        out: &mut dyn LinkOutput,
    ) -> Broken {
        // A broker that is in no tree finds the hole by the next event, or by silence, once there
        // is a path.
        self.record_unreachable(sending, found.unreachable.len() as u64);
        let mut broken = Vec::new();
        for tree in &found.trees {
            let parts = TreeParts { tree, dests, avoided, copying: None };
            self.send_tree(sending, parts, &mut broken, out);
        }
        broken
    }

    /// Counts destinations of an event to which there is no path.
    #[inline]
    pub(super) fn record_unreachable(&mut self, sending: &Sending<'_>, count: u64) {
        if count == 0 {
            return;
        }
        self.stats.unreachable += count;
        if !sending.label().is_any() {
            self.stats.domain_refusals[DomainPlace::Route as usize] += count;
        }
    }

    /// Whether an event may be written to a neighbour: the last look, whatever path was chosen, and
    /// however long it has waited.
    #[inline]
    fn may_write(&mut self, to: HostId, sending: &Sending<'_>) -> bool {
        let is_leak = || fault!(self, DetourLeavesDomain) && !sending.repairers.as_slice().is_empty();
        if may_carry(self.topology, sending.label(), to) || is_leak() {
            return true;
        }
        self.stats.domain_refusals[DomainPlace::Link as usize] += 1;
        false
    }

    /// Sends an event along one tree: to each neighbour its part.
    pub(super) fn send_tree(
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
            match copying.map(|copying| copying.last_us(part)) {
                None => self.send_event(link, sending, &bytes, default, out),
                last_us => self.send_event(link, &Sending { last_us, ..*sending }, &bytes, default, out),
            };
        }
        self.traffic.tree = bytes;
    }

    /// Sends an event to one neighbour, with the tree of the destinations beyond it. Returns
    /// whether it was sent, or waits for the link.
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

    /// Gives an event to the driver; with a datagram the event of the one before goes behind it, if
    /// that is to be repeated.
    #[inline]
    fn write_event(
        &mut self,
        (link, to, channel): (PeerLink, HostId, Channel),
        sending: &Sending<'_>,
        tree: &[u8],
        default: Tick,
        out: &mut dyn LinkOutput,
    ) {
        if !self.may_write(to, sending) {
            return;
        }
        let mut frame = core::mem::take(&mut self.traffic.frame);
        frame.clear();
        let stamp = self.put_header(link, sending, tree, default, &mut frame);
        self.stats.header_bytes += frame.len() as u64;
        self.stats.event_bytes += sending.event.len() as u64;
        frame.extend_from_slice(sending.event);
        let stamp = stamp.filter(|_| channel == Channel::Datagram);
        let repeated = stamp.and_then(|stamp| self.append_repeat(link, sending, tree, stamp, &mut frame));
        self.write(link, channel, &frame, out);
        self.traffic.traces.record(self.now, sending.id, TraceStep::Sent(to));
        tell_hop(sending, Hop::Sent { to, is_answer: sending.answer }, out);
        if let Some(id) = repeated {
            self.traffic.traces.record(self.now, id, TraceStep::Repeated(to));
        }
        self.traffic.frame = frame;
    }

    /// Encodes the header of an event's frame. One with a deadline is stamped if the neighbour
    /// knows stamps. Returns its stamp.
    #[inline]
    fn put_header(
        &mut self,
        link: PeerLink,
        sending: &Sending<'_>,
        tree: &[u8],
        default: Tick,
        frame: &mut Vec<u8>,
    ) -> Option<LinkStamp> {
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
        stamp
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

    /// Sends a control frame to a neighbour; whether there is a link with room.
    pub(crate) fn send_with_room(&mut self, link: Option<PeerLink>, frame: &[u8], out: &mut dyn LinkOutput) -> bool {
        let link = link.filter(|link| self.peers.get(*link).is_some_and(|peer| peer.has_room(Channel::Control)));
        if let Some(link) = link {
            self.send(link, FrameClass::Control, frame, out);
        }
        link.is_some()
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
