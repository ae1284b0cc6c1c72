//! When anything was wrong in a world: what is promised of calm is not asked of a storm.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_event::Time;

use crate::overlay::book::Process;

/// So long after the last fault brokers may still be finding each other again: a connection that has gone silent ends after ten seconds.
pub(super) const LINGER: Duration = Duration::from_secs(14);

/// How old the copy of a session is at most that its deputy has, and a little.
pub(super) const COPY: Duration = Duration::from_millis(1_000);

/// What a group commit takes at most in these worlds, and one before it.
pub(super) const GROUP: Duration = Duration::from_millis(500);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// In order; the last may go on.
    spans: Vec<(Time, Option<Time>)>,
    /// When processes ended.
    pub(super) ends: BTreeMap<Process, Time>,
    /// When processes began.
    pub(super) begins: BTreeMap<Process, Time>,
    /// When a machine's disk was lost, and how long its broker had been gone.
    pub(super) losses: Vec<(Time, usize)>,
    /// When connections were cut or broken.
    pub(super) cuts: Vec<Time>,
    /// When something last changed.
    pub(super) changed: Option<Time>,
}

impl Troubles {
    /// Something is wrong from now on, or nothing is.
    pub(super) fn set(&mut self, now: Time, is_wrong: bool) {
        self.changed = Some(now);
        match (self.spans.last_mut(), is_wrong) {
            (Some((_, None)), true) => {}
            (Some((_, end @ None)), false) => *end = Some(now),
            (_, true) => self.spans.push((now, None)),
            (_, false) => self.spans.push((now, Some(now))),
        }
    }

    /// Whether anything was wrong, or had been shortly before, between two moments.
    pub(super) fn any(&self, from: Time, to: Time) -> bool {
        self.spans.iter().any(|(began, ended)| *began <= to && ended.is_none_or(|ended| ended + LINGER >= from))
    }

    /// Whether a process ended so soon after a moment.
    pub(super) fn ended_within(&self, process: Process, after: Time, most: Duration) -> bool {
        self.ends.get(&process).is_some_and(|at| *at >= after && at.since(after) <= most)
    }

    /// Whether a disk was lost between two moments.
    pub(super) fn lost_disk(&self, from: Time, to: Time) -> bool {
        self.losses.iter().any(|(at, _)| (from..=to).contains(at))
    }

    /// Whether that machine lost its disk after a moment.
    pub(super) fn lost_disk_of(&self, node: usize, after: Time) -> bool {
        self.losses.iter().any(|(at, of)| *of == node && *at >= after)
    }

    /// How many machines were without a process at some moment between two.
    pub(super) fn gone(&self, from: Time, to: Time) -> usize {
        let is_gone = |process: &Process, at: Time| {
            let back = self.begins.get(&(process.0, process.1 + 1)).copied();
            at <= to && back.is_none_or(|back| back >= from)
        };
        let mut nodes: Vec<usize> =
            self.ends.iter().filter(|(process, at)| is_gone(process, **at)).map(|(process, _)| process.0).collect();
        nodes.dedup();
        nodes.len()
    }

    /// Whether a machine had a process at some moment between two.
    pub(super) fn is_up_between(&self, node: usize, (from, to): (Time, Time)) -> bool {
        let of_node = self.begins.iter().filter(|((of, _), _)| *of == node);
        // The first process of each machine is there from the beginning.
        let first = self.ends.get(&(node, 1)).is_none_or(|end| *end >= from);
        first
            || of_node
                .clone()
                .any(|(process, began)| *began <= to && self.ends.get(process).is_none_or(|end| *end >= from))
    }

    /// Whether there was a moment since then at which no machine had a process, nor a disk that it came back with: what only brokers knew is forgotten.
    pub(super) fn lost_all(&self, since: Time, nodes: usize) -> bool {
        let is_empty = |node: usize, at: Time| {
            let ended =
                self.ends.iter().filter(|((of, _), end)| *of == node && **end <= at).map(|(process, _)| process);
            let back = ended.max().and_then(|(_, life)| self.begins.get(&(node, life + 1)));
            back.is_some_and(|back| *back > at && self.losses.contains(&(*back, node)))
        };
        self.ends.values().any(|at| *at >= since && (0..nodes).all(|node| is_empty(node, *at)))
    }

    /// Whether a connection was cut between two moments.
    pub(super) fn cut(&self, from: Time, to: Time) -> bool {
        self.cuts.iter().any(|at| (from..=to).contains(at))
    }
}
