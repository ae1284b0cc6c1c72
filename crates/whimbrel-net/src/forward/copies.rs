//! Copies: an event whose topic asks for it takes two paths to each destination.
//!
//! Both copies are the same frame, with another part of the tree: receivers know events by their
//! ticks. A broker through which both pass passes each part of the tree on once; so behind a link
//! that no path goes round, the copy that comes first goes on.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{EventId, HOST_PUBENDS_MAX, HostId, Seeded, Tick, Time};
use whimbrel_wire::{Dest, Subtree};

use super::{Carrier, Sending, TreeParts};
use crate::Net;
use crate::io::LinkOutput;
use crate::route::{TopicPaths, TreeNode};

/// Most parts of trees of which is known that they were passed on.
pub const PASSED_MAX: usize = 4_096;

/// A part of an event's tree that was passed on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PassedPart {
    id: EventId,
    port: u16,
    /// Hash of its bytes.
    hash: u64,
}

/// What is kept of copies: those that are on their path, and those that have passed through.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// By own stream: the tick by which the last copy of its events should have arrived everywhere,
    /// by the clock that events have their ticks of.
    due: [Tick; HOST_PUBENDS_MAX as usize],
    passed: BTreeSet<PassedPart>,
    /// The parts in `passed`, the oldest first.
    order: VecDeque<PassedPart>,
    /// Of the part that is looked at.
    part: Vec<u8>,
}

impl Copies {
    /// Records that copies of an event are on their path. Returns [`Copies::earlier_us`] of before.
    fn send(&mut self, id: EventId, slowest_us: u64) -> u64 {
        let earlier_us = self.earlier_us(id);
        let due = &mut self.due[usize::from(id.pubend.index())];
        *due = (*due).max(Tick(id.tick.0.saturating_add(slowest_us * 1_000)));
        earlier_us
    }

    /// The age, microseconds, of an event at which the last copy of an earlier event of its stream
    /// should have arrived; 0: all are there.
    pub(super) fn earlier_us(&self, id: EventId) -> u64 {
        self.due[usize::from(id.pubend.index())].0.saturating_sub(id.tick.0) / 1_000
    }

    /// The part of an event's tree, as it is known once it is passed on.
    pub(super) fn part(&mut self, id: EventId, default_previous: Tick, part: &Subtree<'_>) -> PassedPart {
        self.part.clear();
        part.write_root(&mut self.part);
        let hash = Seeded::new(0).hash_one((default_previous, &self.part));
        PassedPart { id, port: part.port(), hash }
    }

    /// Whether a part was passed on.
    pub(super) fn has_passed(&self, part: &PassedPart) -> bool {
        self.passed.contains(part)
    }

    /// Whether any part of an event's tree was passed on.
    pub(super) fn knows(&self, id: EventId) -> bool {
        self.passed.range(PassedPart { id, port: 0, hash: 0 }..).next().is_some_and(|part| part.id == id)
    }

    /// Records that a part is passed on.
    pub(super) fn record_passed(&mut self, part: PassedPart) {
        if self.passed.insert(part) {
            self.order.push_back(part);
        }
        while self.order.len() > PASSED_MAX {
            let oldest = self.order.pop_front().expect("there are some");
            self.passed.remove(&oldest);
        }
    }
}

impl Net {
    /// When the last copy of the events of an own stream should have arrived everywhere.
    pub fn copies_due(&self, index: u8) -> Time {
        Time::from_nanos(self.traffic.copies.due[usize::from(index)].0)
    }

    /// Passes a copy on to one neighbour, unless this part of its tree was passed on before.
    pub(super) fn pass_copy_on(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        part: &Subtree<'_>,
        default: Tick,
        out: &mut dyn LinkOutput,
    ) {
        let passed = self.traffic.copies.part(sending.id, default, part);
        if self.traffic.copies.has_passed(&passed) {
            self.stats.copies_joined += 1;
            return;
        }
        if self.pass_on(now, sending, part, default, out) {
            self.traffic.copies.record_passed(passed);
        }
    }

    /// Sends an event to these brokers over two paths each. `dests` is in the order of host ids.
    pub(super) fn dispatch_copies(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        dests: &[(HostId, Dest)],
        out: &mut dyn LinkOutput,
    ) {
        let hosts: Vec<HostId> = dests.iter().map(|(host, _)| *host).collect();
        let deadline_us = u64::from(sending.deadline_ms.unwrap_or(0)) * 1_000;
        if fault!(self, SamePathTwice) {
            return self.dispatch(now, &Sending { paths: TopicPaths::One, ..*sending }, dests, out);
        }
        let Net { routes, peers, topology, traffic, timers, stats, .. } = self;
        let found = routes.copies(&hosts, deadline_us);
        stats.unreachable += found.trees.unreachable.len() as u64;
        let slowest_us = found.slowest_us.iter().copied().max().unwrap_or(0);
        // Nothing waits for a copy that is late.
        let earlier_us = traffic.copies.send(sending.id, u64::from(slowest_us).min(deadline_us));
        let copying = Copying { slowest_us: &found.slowest_us, earlier_us, deadline_us };
        let mut carrier = Carrier { now, peers, topology, traffic, timers, stats };
        let mut broken = Vec::new();
        for tree in &found.trees.trees {
            let parts = TreeParts { tree, dests, avoided: &[], copying: Some(copying) };
            carrier.send_tree(sending, parts, &mut broken, out);
        }
        // A destination has lost its copy only if it stands nowhere else.
        let dead: Vec<u16> = broken.iter().map(|(port, _)| *port).collect();
        if !dead.is_empty() {
            let kept: BTreeSet<u16> = found.trees.trees.iter().flat_map(|tree| tree.destinations_but(&dead)).collect();
            let is_lost = |(host, _): &(HostId, Dest)| {
                hosts.binary_search(host).is_ok_and(|number| !kept.contains(&(number as u16)))
            };
            broken.iter_mut().for_each(|(_, below)| below.retain(is_lost));
        }
        for (port, below) in broken.into_iter().filter(|(_, below)| !below.is_empty()) {
            self.repair(now, sending, port, below, out);
        }
    }
}

/// What the frames of copies say of each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying<'a> {
    /// By destination: the time of its slowest path, microseconds.
    slowest_us: &'a [u32],
    /// The age of the event, microseconds, by which copies of earlier ones should have arrived.
    earlier_us: u64,
    deadline_us: u64,
}

impl Copying<'_> {
    /// See [`whimbrel_wire::CopiedEvent::last_us`]; of a part with these destinations.
    pub(super) fn last_us(&self, part: &[TreeNode]) -> u32 {
        let slowest =
            part.iter().filter_map(|node| node.destination).map(|number| self.slowest_us[usize::from(number)]);
        let last_us = u64::from(slowest.max().unwrap_or(0)).max(self.earlier_us).min(self.deadline_us);
        u32::try_from(last_us).unwrap_or(u32::MAX)
    }
}
