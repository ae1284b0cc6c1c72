//! Events on their way: from this broker's streams to those who want them, and through this broker
//! to others.
//!
//! An event that passes costs one look-up of the tree for its set of destinations, one encoding,
//! and per link one copy and a header of some 8 bytes per destination behind it. One that passes
//! through costs a look at its header and the copy.

use whimbrel_event::{AcceptedEvent, EventId, HostId, Reliability, Tick, Time};
use whimbrel_net::link::peers::Peers;
use whimbrel_net::route::{Tree, TreeNode};
use whimbrel_wire::{Dest, EventFrame, Repairers, Subtree, TreeWriter, compact};

use super::stats::OverlayStats;
use super::traces::TraceStep;
use super::{FrameBuffers, Overlay, is_local};
use crate::api::{Channel, EventStep, Output, PeerLink};
use crate::broker::Broker;

/// Bytes of the largest event that a broker of an overlay takes, packed: what a frame holds, less
/// what it adds to its event.
pub const EVENT_BYTES_MAX: usize = whimbrel_wire::FRAME_BYTES_MAX - HEADER_BYTES_MAX;

/// Bytes that a frame adds to its event, at most: destinations beyond that get it in another frame.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// An event that is to be sent to several brokers.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) id: EventId,
    pub(super) age_us: u64,
    pub(super) answer: bool,
    pub(super) retain: bool,
    pub(super) repairers: Repairers,
    /// As it travels.
    pub(super) event: &'a [u8],
}

impl Sending<'_> {
    /// On which way events of that stream go.
    pub(super) fn channel(&self) -> Channel {
        match self.id.pubend.reliability() {
            Reliability::Reliable => Channel::Reliable,
            Reliability::BestEffort => Channel::BestEffort,
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

impl Broker {
    /// An event of an own stream passes that other brokers want, as `brokers` of the overlay tell.
    pub(crate) fn forward(&mut self, now: Time, event: &AcceptedEvent<'_>, retain: bool, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let mut wanted = core::mem::take(&mut self.brokers);
        if fault!(self, SentToAll) {
            wanted = overlay.destinations.numbers();
        }
        if !is_local(event.event.topic) {
            wanted.sort_unstable();
            wanted.dedup();
            let dests = overlay.matched(now, event.id, &wanted);
            let mut bytes = core::mem::take(&mut overlay.traffic.event);
            bytes.clear();
            compact::write(event, &mut bytes);
            let age_us = now.since(event.accepted).as_micros() as u64;
            let repairers = Repairers::NONE;
            let sending = Sending { id: event.id, age_us, answer: false, retain, repairers, event: &bytes };
            overlay.stats.events_forwarded += 1;
            overlay.stats.destinations += dests.len() as u64;
            overlay.dispatch(now, &sending, &dests, out);
            overlay.traffic.event = bytes;
            if fault!(self, PreviousNotMoved) {
                overlay.take_back(event.id, &dests);
            }
        }
        wanted.clear();
        self.brokers = wanted;
    }
}

impl Overlay {
    /// An event is for those destinations: whether or not it reaches them, what comes next is told
    /// to follow it.
    fn matched(&mut self, now: Time, id: EventId, wanted: &[u32]) -> Vec<(HostId, Dest)> {
        let own = usize::from(id.pubend.index());
        let mut dests = Vec::with_capacity(wanted.len());
        for number in wanted {
            let destination = self.destinations.get_mut(*number).expect("who stands in the index is served");
            let previous = core::mem::replace(&mut destination.last[own], id.tick);
            destination.gets_best_effort |= id.pubend.reliability() == Reliability::BestEffort;
            dests.push((destination.host, Dest { tag: destination.tag, previous }));
            self.is_quiet_after(now, *number);
        }
        // In the order in which sets of destinations are known.
        dests.sort_unstable_by_key(|(host, _)| *host);
        dests
    }

    /// Sends an event to these brokers, in the order of their ids, over the best ways from here.
    pub(super) fn dispatch(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        dests: &[(HostId, Dest)],
        out: &mut dyn Output,
    ) {
        self.routes.update(&self.topology);
        let mut hosts = core::mem::take(&mut self.traffic.hosts);
        hosts.clear();
        hosts.extend(dests.iter().map(|(host, _)| *host));
        let Overlay { routes, peers, traffic, stats, .. } = self;
        let mut carrier = Carrier { now, peers, traffic, stats };
        let found = routes.trees(&hosts);
        // Who is not in the trees finds out by the next event, or by silence, once there is a way.
        carrier.stats.unreachable += found.unreachable.len() as u64;
        let mut broken = Vec::new();
        for tree in &found.trees {
            carrier.send_tree(sending, (tree, dests), &mut broken, out);
        }
        self.traffic.hosts = hosts;
        for (port, below) in broken {
            self.repair(now, sending, port, below, out);
        }
    }

    /// Passes an event on to one neighbour, as its tree says.
    pub(super) fn pass_on(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        (part, default): (&Subtree<'_>, Tick),
        out: &mut dyn Output,
    ) {
        if let Some(link) = self.peers.behind(part.port()) {
            let mut tree = core::mem::take(&mut self.traffic.tree);
            tree.clear();
            part.write_root(&mut tree);
            self.carrier(now).send_event(link, sending, (&tree, default), out);
            self.traffic.tree = tree;
            return;
        }
        let mut below = Vec::new();
        part.destinations(|ports, dest| {
            if let Some(host) = self.host_behind(ports) {
                below.push((host, dest));
            }
        });
        self.repair(now, sending, part.port(), below, out);
    }

    /// Which broker ports lead to, from this one on.
    pub(super) fn host_behind(&self, ports: &[u16]) -> Option<HostId> {
        let (first, rest) = ports.split_first()?;
        let mut host = self.peers.neighbour(*first)?;
        for port in rest {
            let neighbours = &self.topology.get(host)?.neighbours;
            host = neighbours.iter().find(|neighbour| neighbour.port == *port)?.host;
        }
        Some(host)
    }

    /// The link that an event was to take is down: it takes others, unless too many have repaired
    /// its way already.
    fn repair(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        port: u16,
        mut below: Vec<(HostId, Dest)>,
        out: &mut dyn Output,
    ) {
        let sending =
            if fault!(self, RepairLoop) { &Sending { repairers: Repairers::NONE, ..*sending } } else { sending };
        // A part of a tree has them in the order of their ways.
        below.sort_unstable_by_key(|(host, _)| *host);
        below.dedup_by_key(|(host, _)| *host);
        let mut repairers = sending.repairers;
        if below.is_empty() || repairers.as_slice().contains(&self.host) || !repairers.push(self.host) {
            self.stats.repairs_given_up += 1;
            self.traffic.traces.record(now, sending.id, TraceStep::GivenUp);
            return;
        }
        self.stats.repairs += 1;
        let dead: Vec<HostId> = self.peers.neighbour(port).into_iter().collect();
        let hosts: Vec<HostId> = below.iter().map(|(host, _)| *host).collect();
        self.routes.update(&self.topology);
        let found = self.routes.avoiding(sending.repairers.as_slice(), &dead).trees(&hosts);
        self.stats.unreachable += found.unreachable.len() as u64;
        self.traffic.traces.record(now, sending.id, TraceStep::Repaired);
        let sending = Sending { repairers, ..*sending };
        let mut broken = Vec::new();
        for tree in &found.trees {
            self.carrier(now).send_tree(&sending, (tree, &below), &mut broken, out);
        }
        // A second link is down that nobody knows of yet: that part is left to the nack.
        self.stats.repairs_given_up += broken.len() as u64;
    }

    /// Sends frames, while the rest is looked at.
    pub(super) fn carrier(&mut self, now: Time) -> Carrier<'_> {
        Carrier { now, peers: &mut self.peers, traffic: &mut self.traffic, stats: &mut self.stats }
    }
}

/// The parts of a tree for which there is no link: its port, and who lies behind it.
type Broken = Vec<(u16, Vec<(HostId, Dest)>)>;

/// Sends frames.
pub(super) struct Carrier<'a> {
    now: Time,
    peers: &'a mut Peers,
    traffic: &'a mut FrameBuffers,
    stats: &'a mut OverlayStats,
}

impl Carrier<'_> {
    /// Sends an event along one tree: to each neighbour its part.
    fn send_tree(
        &mut self,
        sending: &Sending<'_>,
        (tree, dests): (&Tree, &[(HostId, Dest)]),
        broken: &mut Broken,
        out: &mut dyn Output,
    ) {
        let nodes = &tree.nodes;
        let mut bytes = core::mem::take(&mut self.traffic.tree);
        let mut at = 1;
        while at < nodes.len() {
            let end = end_of(nodes, at);
            let part = &nodes[at..end];
            at = end;
            let Some(link) = self.peers.behind(part[0].port) else {
                let below = part.iter().filter_map(|node| node.destination);
                broken.push((part[0].port, below.map(|number| dests[usize::from(number)]).collect()));
                continue;
            };
            let dest = |number: u16| dests[usize::from(number)].1;
            let first = part.iter().find_map(|node| node.destination).expect("each part leads somewhere");
            let default = dest(first).previous;
            bytes.clear();
            put_nodes(TreeWriter::new(&mut bytes, sending.id.tick, default), part, dest);
            self.send_event(link, sending, (&bytes, default), out);
        }
        self.traffic.tree = bytes;
    }

    /// Sends an event to one neighbour, with the tree of what lies beyond it.
    pub(super) fn send_event(
        &mut self,
        link: PeerLink,
        sending: &Sending<'_>,
        (tree, default): (&[u8], Tick),
        out: &mut dyn Output,
    ) {
        let channel = sending.channel();
        let peer = self.peers.get_mut(link).expect("the link is up");
        let to = peer.host().expect("who is there has said hello");
        if !peer.has_room(channel) {
            peer.counters.events_held_back += 1;
            self.traffic.traces.record(self.now, sending.id, TraceStep::HeldBack(to));
            return;
        }
        peer.counters.events_out += 1;
        let mut frame = core::mem::take(&mut self.traffic.frame);
        frame.clear();
        sending.header(tree, default).encode_header(sending.event.len(), &mut frame);
        self.stats.header_bytes += frame.len() as u64;
        frame.extend_from_slice(sending.event);
        self.send(link, channel, &frame, out);
        self.traffic.traces.record(self.now, sending.id, TraceStep::Sent(to));
        tell_step(sending, EventStep::Sent { to, is_answer: sending.answer }, out);
        self.traffic.frame = frame;
    }

    /// Sends a frame to a neighbour; nothing if the link is gone.
    pub(super) fn send(&mut self, link: PeerLink, channel: Channel, frame: &[u8], out: &mut dyn Output) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let unsent = out.peer_bytes(link, channel, frame);
        peer.counters.frames_out += 1;
        peer.counters.bytes_out += frame.len() as u64;
        peer.set_unsent(self.now, channel, unsent);
    }
}

/// Tells whoever wants to know it what became of an event; one that cannot be read is left to whom
/// it is for.
pub(super) fn tell_step(sending: &Sending<'_>, step: EventStep, out: &mut dyn Output) {
    if out.wants_steps()
        && let Ok(event) = compact::read(sending.event, sending.id)
    {
        out.step(&event, step);
    }
}

/// Writes the part of a tree that one neighbour gets: these nodes in pre-order, and what `dest`
/// knows of each destination among them.
pub(super) fn put_nodes(mut writer: TreeWriter<'_>, nodes: &[TreeNode], dest: impl Fn(u16) -> Dest) {
    let (first, rest) = nodes.split_first().expect("a part has a first node");
    writer.root(first.destination.map(&dest), usize::from(first.children));
    for node in rest {
        writer.child(node.port, node.destination.map(&dest), usize::from(node.children));
    }
    writer.finish();
}

/// Behind the last node of the part of a tree that begins at `at`, in pre-order.
fn end_of(nodes: &[TreeNode], at: usize) -> usize {
    let mut left = 1_usize;
    let mut end = at;
    while left > 0 {
        left = left - 1 + usize::from(nodes[end].children);
        end += 1;
    }
    end
}
