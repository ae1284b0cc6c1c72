//! Events are sent: from this broker's streams to the brokers that want them, and through this
//! broker to others.
//!
//! An event of an own stream costs one look-up of the tree for its set of destinations, one
//! encoding, and per link one copy and a header of some 8 bytes per destination behind it. An event
//! of another broker that is passed on costs a look at its header and the copy.

use whimbrel_event::{AcceptedEvent, EventId, HostId, Reliability, Tick, Time};
use whimbrel_net::link::peers::Peers;
use whimbrel_net::route::{Tree, TreeNode};
use whimbrel_wire::{Dest, EventFrame, Repairers, Subtree, TreeWriter, compact};

use super::net::{FrameBuffers, Net};
use super::stats::OverlayStats;
use super::traces::TraceStep;
use super::{Overlay, is_local};
use crate::api::{Channel, EventStep, Output, PeerLink};
use crate::broker::Broker;

/// Bytes of the largest event that a broker of an overlay takes, packed: the size of a frame less
/// what a frame adds to its event.
pub const EVENT_BYTES_MAX: usize = whimbrel_wire::FRAME_BYTES_MAX - HEADER_BYTES_MAX;

/// Most bytes that a frame adds to its event: further destinations get the event in another frame.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// An event that is to be sent to several brokers.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) id: EventId,
    pub(super) age_us: u64,
    pub(super) answer: bool,
    pub(super) retain: bool,
    pub(super) repairers: Repairers,
    /// In its packed form.
    pub(super) event: &'a [u8],
}

impl Sending<'_> {
    /// The channel for events of the stream's reliability.
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
    /// Sends an event of an own stream to the brokers that want it; their numbers are in
    /// `self.brokers`.
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
            let mut bytes = core::mem::take(&mut overlay.net.traffic.event);
            bytes.clear();
            compact::write(event, &mut bytes);
            let age_us = now.since(event.accepted).as_micros() as u64;
            let repairers = Repairers::NONE;
            let sending = Sending { id: event.id, age_us, answer: false, retain, repairers, event: &bytes };
            overlay.net.stats.events_forwarded += 1;
            overlay.net.stats.destinations += dests.len() as u64;
            overlay.net.dispatch(now, &sending, &dests, out);
            overlay.net.traffic.event = bytes;
            if fault!(self, PreviousNotMoved) {
                overlay.take_back(event.id, &dests);
            }
        }
        wanted.clear();
        self.brokers = wanted;
    }
}

impl Overlay {
    /// The destinations of an event, with the data for each. The event's tick is from now on the
    /// previous one for each of them, whether or not the event reaches it.
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
        // Sets of destinations are known in this order.
        dests.sort_unstable_by_key(|(host, _)| *host);
        dests
    }
}

impl Net {
    /// Sends an event to these brokers over the best paths from here. `dests` is in the order of
    /// host ids.
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
        let Net { routes, peers, traffic, stats, .. } = self;
        let mut carrier = Carrier { now, peers, traffic, stats };
        let found = routes.trees(&hosts);
        // A broker that is in no tree finds the hole by the next event, or by silence, once there
        // is a path.
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

    /// Passes an event on to one neighbour, along its part of the tree.
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

    /// The broker at the end of a path of ports that begins here; none if a part of the path is
    /// unknown.
    pub(super) fn host_behind(&self, ports: &[u16]) -> Option<HostId> {
        let (first, rest) = ports.split_first()?;
        let mut host = self.peers.neighbour(*first)?;
        for port in rest {
            let neighbours = &self.topology.get(host)?.neighbours;
            host = neighbours.iter().find(|neighbour| neighbour.port == *port)?.host;
        }
        Some(host)
    }

    /// Sends an event around a link that is down. Gives it up if this broker has repaired its path
    /// before, or [`Repairers`] is full.
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
        // A part of a tree lists destinations in the order of their paths.
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
        // A second link is down that the topology does not show yet: that part is left to the nack.
        self.stats.repairs_given_up += broken.len() as u64;
    }

    /// Borrows what sending takes, beside the rest of the overlay.
    pub(super) fn carrier(&mut self, now: Time) -> Carrier<'_> {
        Carrier { now, peers: &mut self.peers, traffic: &mut self.traffic, stats: &mut self.stats }
    }
}

/// The parts of a tree for which there is no link: port and destinations behind it.
type Broken = Vec<(u16, Vec<(HostId, Dest)>)>;

/// The part of the overlay that sends frames.
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

    /// Sends an event to one neighbour, with the tree of the destinations beyond it.
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

/// Reports a step of an event to the driver if it wants steps. An event that cannot be read is left
/// to its destination.
pub(super) fn tell_step(sending: &Sending<'_>, step: EventStep, out: &mut dyn Output) {
    if out.wants_steps()
        && let Ok(event) = compact::read(sending.event, sending.id)
    {
        out.step(&event, step);
    }
}

/// Writes the part of a tree that one neighbour gets: these nodes in pre-order, with `dest` of each
/// destination among them.
pub(super) fn put_nodes(mut writer: TreeWriter<'_>, nodes: &[TreeNode], dest: impl Fn(u16) -> Dest) {
    let (first, rest) = nodes.split_first().expect("a part has a first node");
    writer.root(first.destination.map(&dest), usize::from(first.children));
    for node in rest {
        writer.child(node.port, node.destination.map(&dest), usize::from(node.children));
    }
    writer.finish();
}

/// The index behind the last node of the part of a tree that begins at `at`, in pre-order.
fn end_of(nodes: &[TreeNode], at: usize) -> usize {
    let mut left = 1_usize;
    let mut end = at;
    while left > 0 {
        left = left - 1 + usize::from(nodes[end].children);
        end += 1;
    }
    end
}
