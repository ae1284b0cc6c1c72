//! Copies: an event whose topic asks for it takes two paths to each destination.
//!
//! Both copies are the same frame, with another part of the tree: receivers know events by their
//! ticks. A broker through which both pass passes each part of the tree on once; so behind a link
//! that no path goes round, the copy that comes first goes on.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{EventId, HOST_PUBENDS_MAX, HostId, Seeded, Tick};
use whimbrel_wire::{Dest, Subtree};

use super::Sending;
use super::carrier::{Broken, Carrier, TreeParts};
use crate::io::LinkOutput;
use crate::route::{CopyTrees, TreeNode};

/// Copies that take longer, microseconds, are not waited for by silence, nor by later events that
/// take one path.
pub(super) const COPIES_TAKE_MAX_US: u64 = 1_000_000;

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
pub(crate) struct CopiesSeen {
    /// By own stream: the tick by which the last copy of its events should have arrived everywhere,
    /// by the clock that events have their ticks of.
    due: [Tick; HOST_PUBENDS_MAX as usize],
    passed: BTreeSet<PassedPart>,
    /// The parts in `passed`, the oldest first.
    order: VecDeque<PassedPart>,
    /// Of the part that is looked at.
    part: Vec<u8>,
}

impl CopiesSeen {
    /// Records that copies of an event are on their path. Returns [`CopiesSeen::earlier_us`] of
    /// before.
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

impl Carrier<'_> {
    /// Sends an event to these brokers along trees in which they stand twice. `dests` is in the
    /// order of host ids. Returns the destinations that stand only in parts for which there is no
    /// link, and the age, microseconds, at which the last copy should be everywhere.
    pub(super) fn send_copies(
        &mut self,
        sending: &Sending<'_>,
        found: &CopyTrees,
        dests: &[(HostId, Dest)],
        out: &mut dyn LinkOutput,
    ) -> (Broken, u64) {
        let deadline_us = u64::from(sending.deadline_ms.unwrap_or(0)) * 1_000;
        let slowest_us = found.slowest_us.iter().copied().max().unwrap_or(0);
        // Nothing waits for a copy that is late.
        let most_us = deadline_us.min(COPIES_TAKE_MAX_US);
        let earlier_us = self.traffic.copies.send(sending.id, u64::from(slowest_us).min(most_us)).min(most_us);
        let copying = CopyAges { slowest_us: &found.slowest_us, earlier_us, deadline_us };
        self.stats.events_copied += 1;
        self.stats.events_targeted += u64::from(found.is_around_trouble());
        self.record_unreachable(sending, found.trees.unreachable.len() as u64);
        let mut broken = Vec::new();
        for tree in &found.trees.trees {
            let parts = TreeParts { tree, dests, avoided: &[], copying: Some(copying) };
            self.send_tree(sending, parts, &mut broken, out);
        }
        // A destination has lost its copies only if it stands nowhere else.
        let dead: Vec<u16> = broken.iter().map(|(port, _)| *port).collect();
        if !dead.is_empty() {
            let kept: BTreeSet<u16> = found.trees.trees.iter().flat_map(|tree| tree.destinations_but(&dead)).collect();
            let is_lost = |(host, _): &(HostId, Dest)| {
                let number = dests.binary_search_by_key(host, |(known, _)| *known);
                number.is_ok_and(|number| !kept.contains(&(number as u16)))
            };
            broken.iter_mut().for_each(|(_, below)| below.retain(is_lost));
            broken.retain(|(_, below)| !below.is_empty());
        }
        (broken, earlier_us.max(u64::from(slowest_us)).min(most_us))
    }
}

/// What the frames of copies say of each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyAges<'a> {
    /// By destination: the time of its slowest path, microseconds.
    slowest_us: &'a [u32],
    /// The age of the event, microseconds, by which copies of earlier ones should have arrived.
    earlier_us: u64,
    deadline_us: u64,
}

impl CopyAges<'_> {
    /// See [`whimbrel_wire::CopiedEvent::last_us`]; of a part with these destinations.
    pub(super) fn last_us(&self, part: &[TreeNode]) -> u32 {
        let slowest =
            part.iter().filter_map(|node| node.destination).map(|number| self.slowest_us[usize::from(number)]);
        let last_us = u64::from(slowest.max().unwrap_or(0)).max(self.earlier_us).min(self.deadline_us);
        u32::try_from(last_us).unwrap_or(u32::MAX)
    }
}
