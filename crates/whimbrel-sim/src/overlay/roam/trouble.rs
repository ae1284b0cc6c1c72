//! When anything was wrong in a world: promises that hold in calm are not checked in a storm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_core::Broker;
use whimbrel_event::{HostId, Time};

use super::web::Web;
use crate::overlay::book::Process;
use crate::rig::START;

/// After the last fault brokers may take this long to find each other again: a connection that has
/// gone silent ends after ten seconds.
pub(super) const LINGER: Duration = Duration::from_secs(14);

/// By this time after a broker was started again all others have found it.
const FOUND_AGAIN: Duration = Duration::from_secs(3);

/// The greatest age of a replica's copy of a session, with a margin.
pub(super) const COPY: Duration = Duration::from_millis(1_000);

/// The longest time of a group commit in these worlds, plus the one before it.
pub(super) const GROUP: Duration = Duration::from_millis(500);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// When anything was wrong, in order; the last span may still be open.
    spans: Vec<(Time, Option<Time>)>,
    /// When processes ended.
    pub(super) ends: BTreeMap<Process, Time>,
    /// When the log of processes that went on was taken by their successors.
    pub(super) taken: BTreeMap<Process, Time>,
    /// When an engine did not answer a process.
    pub(super) silences: Vec<(Time, Time)>,
    /// When processes began.
    pub(super) begins: BTreeMap<Process, Time>,
    /// When machines lost their disks, in order.
    pub(super) losses: Vec<(Time, usize)>,
    /// Between which processes connections were made; filled in when the world is over.
    pub(super) met: Vec<[Process; 2]>,
    /// The links between brokers over time.
    pub(super) web: Web,
    /// The links over which brokers could hear each other over time.
    pub(super) hearing: Web,
    /// All hosts that there were, each with its machine and the number of its disk.
    hosts: BTreeMap<HostId, (usize, u32)>,
    /// The hosts of which the brokers of each machine have heard since it lost its disk, as far as
    /// they knew when they or the world ended.
    heard: BTreeMap<usize, BTreeSet<HostId>>,
    /// When connections were cut or broken.
    pub(super) cuts: Vec<Time>,
    /// When connections stalled, as packets were lost again and again: an answer over one does not
    /// arrive.
    stalls: Vec<(Time, Time)>,
    /// When brokers stood still: answers may be late by as much. They were not out of reach.
    pub(super) stills: Vec<(Time, Time)>,
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

    /// Records that connections have stalled.
    pub(super) fn stall(&mut self, spans: impl Iterator<Item = (Time, Time)>) {
        for (since, until) in spans {
            match self.stalls.last_mut() {
                Some((from, to)) if since <= *to => (*from, *to) = (since.min(*from), until.max(*to)),
                _ => self.stalls.push((since, until)),
            }
        }
    }

    /// Whether a connection stalled between two moments.
    pub(super) fn stalled(&self, from: Time, to: Time) -> bool {
        self.stalls.iter().any(|(since, until)| *since <= to && *until >= from)
    }

    /// As [`Web::has_heard`], for brokers that do not stand still.
    pub(super) fn has_heard(&self, there: (usize, Time), here: (usize, Time)) -> bool {
        self.hearing.has_heard(there, here)
    }

    /// Whether an answer may have been late between two moments: a connection stalled, or a broker
    /// stood still then or shortly before.
    pub(super) fn held_up(&self, from: Time, to: Time) -> bool {
        let was_still = |(since, until): &(Time, Time)| *since <= to && *until + COPY >= from;
        self.stalled(from, to) || self.stills.iter().any(was_still)
    }

    /// Whether anything was wrong between two moments, or shortly before.
    pub(super) fn any(&self, from: Time, to: Time) -> bool {
        self.held_up(from, to)
            || self.spans.iter().any(|(began, ended)| *began <= to && ended.is_none_or(|ended| ended + LINGER >= from))
    }

    /// Whether at some moment in the span a node had no way to a host, or a disk was lost, or the
    /// host is not known.
    pub(super) fn was_away(&self, host: HostId, node: usize, span: (Time, Time)) -> bool {
        self.hosts.get(&host).is_none_or(|(its, _)| self.were_apart((*its, node), span))
    }

    /// Whether one machine could not reach another at some moment between two, or a disk was lost.
    pub(super) fn were_apart(&self, (one, other): (usize, usize), (from, to): (Time, Time)) -> bool {
        let before = Time::from_nanos(from.as_nanos().saturating_sub(FOUND_AGAIN.as_nanos() as u64));
        self.web.were_apart(one, other, (before, to)) || self.stalled(before, to) || self.lost_disk(before, to)
    }

    /// Whether a process ended within `most` after a moment, or while an engine did not answer.
    /// If it has a successor, what happened since that began was never durable.
    pub(super) fn ended_within(&self, process: Process, after: Time, most: Duration) -> bool {
        let is_silent = |end: Time| self.silences.iter().any(|(since, until)| *since <= end && *until + most >= after);
        let is_soon = |end: &Time| *end >= after && (end.since(after) <= most || is_silent(*end));
        self.ends.get(&process).is_some_and(is_soon)
            || self.taken.get(&process).is_some_and(|taken| *taken <= after || is_soon(taken))
    }

    /// Whether a disk was lost between two moments.
    pub(super) fn lost_disk(&self, from: Time, to: Time) -> bool {
        self.losses.iter().any(|(at, _)| (from..=to).contains(at))
    }

    /// Whether a machine lost its disk after a moment.
    pub(super) fn lost_disk_of(&self, node: usize, after: Time) -> bool {
        self.losses.iter().any(|(at, of)| *of == node && *at >= after)
    }

    /// The number of machines that were without a process at some moment between two.
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

    /// The number of the disk that a process had.
    pub(super) fn disk_of(&self, process: Process) -> u32 {
        self.disk_at(process.0, self.begins.get(&process).copied().unwrap_or(Time::ZERO))
    }

    /// The number of the disk that a machine had at a moment.
    pub(super) fn disk_at(&self, node: usize, moment: Time) -> u32 {
        self.losses.iter().filter(|(at, of)| *of == node && *at <= moment).count() as u32
    }

    /// Whether no process is left that could know what a process knew: it is gone with its disk,
    /// and so are all that were ever connected to it, to one of those, and so on. The time of a
    /// connection is ignored, so some processes count as knowing that never heard of it. A process
    /// that is not counted knows nothing.
    pub(super) fn is_forgotten_by_all(&self, process: Process) -> bool {
        let (mut known, mut open) = (BTreeSet::from([process]), vec![process]);
        while let Some(process) = open.pop() {
            if !self.ends.contains_key(&process) {
                return false;
            }
            let heir = (process.0, process.1 + 1);
            let is_lost = self.begins.get(&heir).is_some_and(|at| self.losses.contains(&(*at, heir.0)));
            let met = self.met.iter().filter(|pair| pair.contains(&process)).flatten().copied();
            open.extend(met.chain((!is_lost).then_some(heir)).filter(|other| known.insert(*other)));
        }
        true
    }

    /// A broker begins on a machine, perhaps without its predecessor's disk.
    pub(super) fn begin(&mut self, (node, disk): (usize, u32), host: HostId) {
        if self.hosts.insert(host, (node, disk)).is_none() {
            self.heard.remove(&node);
        }
    }

    /// The hosts that had a machine's disk: one, unless a host ended before its number was written.
    pub(super) fn hosts_of(&self, place: (usize, u32)) -> impl Iterator<Item = HostId> {
        self.hosts.iter().filter(move |(_, of)| **of == place).map(|(host, _)| *host)
    }

    /// A broker ends, or the world does: records of which hosts it has heard.
    pub(super) fn hear(&mut self, node: usize, core: &Broker) {
        let known: Vec<HostId> = self.known_to(core).collect();
        self.heard.entry(node).or_default().extend(known);
    }

    /// The hosts of which a broker has heard by now.
    pub(super) fn known_to(&self, core: &Broker) -> impl Iterator<Item = HostId> {
        self.hosts.keys().filter(|host| core.has_heard_of(**host)).copied()
    }

    /// Whether no broker, at the end of the world, has heard of a host since it has its present
    /// disk.
    pub(super) fn is_unheard_of(&self, host: HostId) -> bool {
        !self.heard.values().any(|heard| heard.contains(&host))
    }

    /// When the host began that a machine had at a moment; a disk belongs to one host.
    pub(super) fn born(&self, node: usize, by: Time) -> Time {
        let began = self.losses.iter().filter(|(at, of)| *of == node && *at <= by).map(|(at, _)| *at);
        began.max().unwrap_or(START)
    }

    /// Whether in the end no broker can know of the host that a machine had at a moment: it is gone
    /// with its disk, and so are all brokers that can have heard of it.
    pub(super) fn is_known_to_none(&self, node: usize, at: Time) -> bool {
        let Some(end) = self.changed else { return false };
        !self.web.who_may_know((node, self.born(node, at)), end, &self.losses).contains(&true)
    }

    /// Whether a connection was cut between two moments.
    pub(super) fn cut(&self, from: Time, to: Time) -> bool {
        self.cuts.iter().any(|at| (from..=to).contains(at))
    }
}
