//! Worlds whose brokers have their logs on an engine: processes end with their disks, successors
//! begin while they go on, and engines do not answer. A log belongs to the process that took it
//! last; all others stop, and no other does.

use std::collections::BTreeSet;
use std::time::Duration;

use whimbrel_event::Time;

use super::client::Client;
use super::draw::BEGIN;
use super::world::{Fault, World};
use crate::engine::{BrokerStream, BuiltIn};
use crate::overlay::book::Rule;
use crate::overlay::logs::Log;
use crate::overlay::owners::BEAT;
use crate::random::Random;
use crate::rig::START;

/// By when a former process has stopped after its successor has begun, or the engine answers it
/// again: it asks every [`BEAT`], and again if there is no answer.
const STOPPED_MAX: Duration = BEAT.saturating_add(Duration::from_millis(1_200));

/// How long an engine does not answer a process, at most.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// By how much the clocks of a former process and its successor differ, at most.
const APART_MAX: u64 = 300_000_000;

/// How many of 1,000 former processes leave a record, where they may, behind their successor's.
const STRAYS_PERMILLE: u64 = 300;

/// How many of 1,000 former processes are cut off from their clients and from other brokers.
const LONELY_PERMILLE: u64 = 250;

/// How many of 1,000 former processes are not answered by the engine for a while.
const UNANSWERED_PERMILLE: u64 = 300;

/// How a world's engines are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Engines {
    /// A fault that is built into all of them.
    pub(super) built_in: BuiltIn,
    /// Whether processes do not look at what they are told about the owner of their log.
    pub(super) are_blind: bool,
}

/// What is known of the owners of logs.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// How the engines are; `None`: there are none.
    pub(super) engines: Option<Engines>,
    /// Former processes that run, each with the time by which it must have stopped.
    formers: Vec<(usize, Time)>,
    /// Machines with a record of a former process in their stream: their process ends when it
    /// writes.
    strays: BTreeSet<usize>,
    /// Successors that began while the former process went on.
    pub(super) successions: u64,
    /// Former processes that were refused or asked, and stopped.
    pub(super) stopped: u64,
    /// Processes that ended because of a stray record.
    pub(super) strayed: u64,
}

impl Client {
    /// Its connections to a process stay when that moves from one node to another.
    pub(super) fn stay_with(&mut self, node: usize, former: usize) {
        if self.conn.is_some() && self.node == node {
            self.node = former;
        }
        self.ghost.iter_mut().filter(|(of, ..)| *of == node).for_each(|(of, ..)| *of = former);
    }
}

impl World<'_> {
    /// A log for a new machine.
    pub(super) fn new_log(&mut self) -> Log {
        let profiles = self.profiles.clone();
        let Some(Engines { built_in, are_blind }) = self.ownership.engines else {
            return Log::new(profiles, self.random.fork());
        };
        self.net.owners.are_blind = are_blind;
        Log::on(BrokerStream::draw(&mut self.random, built_in), profiles, self.random.fork())
    }

    /// The successor of a machine's process begins, while that goes on.
    pub(super) fn succeed(&mut self, node: usize, step: i64) {
        let now = self.now();
        if !self.net.is_up(node) || self.net.former(node).is_some() {
            return;
        }
        let process = self.net.process(node);
        let former = self.net.succeed(node);
        if self.random.chance(LONELY_PERMILLE) {
            self.net.leave_alone(former);
        } else {
            self.clients.iter_mut().for_each(|client| client.stay_with(node, former));
        }
        self.book.troubles.taken.insert(process, now);
        self.ownership.successions += 1;
        let is_silent = self.random.chance(UNANSWERED_PERMILLE);
        let span = if is_silent { self.random.span(SILENCE_MAX) } else { Duration::ZERO };
        let until = self.silence(former, now + span);
        self.ownership.formers.push((former, until + STOPPED_MAX));
        self.start(node, step, false);
    }

    /// The engine does not answer a process until a moment; returns until when it does not, after
    /// all.
    pub(super) fn silence(&mut self, node: usize, until: Time) -> Time {
        self.book.troubles.silences.push((self.now(), until));
        self.net.silence(node, until)
    }

    /// Ends processes whose logs have ended, and checks which ones have.
    pub(super) fn end_owners(&mut self) {
        let now = self.net.now;
        for node in core::mem::take(&mut self.net.owners.ended) {
            if !self.net.is_up(node) {
                continue;
            }
            let machine = self.net.machine_of(node);
            if machine != node {
                self.ownership.stopped += 1;
                self.ownership.formers.retain(|(former, _)| *former != node);
                if self.random.chance(STRAYS_PERMILLE) && self.net.is_up(machine) {
                    self.stray(node, machine);
                }
            } else if self.ownership.strays.remove(&node) {
                self.ownership.strayed += 1;
            } else {
                let what = format!("the log of {:?} has ended, and nobody has taken it", self.net.process(node));
                self.book.breaks(Rule::Takeover, what);
            }
            self.happen(Fault::Crash(node, true));
            if machine == node {
                self.happen(Fault::Start(node, 0, false));
            }
        }
        let is_late = |(_, due): &(usize, Time)| *due < now;
        if let Some((former, due)) = self.ownership.formers.iter().copied().find(is_late) {
            let what = format!("{:?} has not stopped by {due:?}: it has a successor", self.net.process(former));
            self.book.breaks(Rule::Takeover, what);
            self.ownership.formers.retain(|other| !is_late(other));
        }
    }

    fn stray(&mut self, former: usize, machine: usize) {
        let fates = self.random.fork();
        let driver = self.net.nodes[former].log.as_mut().and_then(Log::driver);
        if driver.is_some_and(|driver| driver.storage().stray(fates)) {
            self.ownership.strays.insert(machine);
        }
    }
}

/// Successors that begin while the former process goes on, ends of processes, and engines that do
/// not answer. Nothing else in the world is drawn differently.
pub(super) fn troubles(world: &World<'_>, storm: Duration, seed: u64) -> Vec<(Time, Fault)> {
    let mut random = Random::new(seed ^ 0x6f77_6e65_7273);
    let every = *random.pick(&[Duration::from_millis(700), Duration::from_secs(2), Duration::from_secs(4)]);
    let weights = *random.pick(&[[1, 0, 0], [0, 1, 0], [1, 1, 1], [3, 2, 2]]);
    let nodes = world.net.nodes.len() as u64;
    let (mut at, mut faults) = (START + BEGIN + random.span(every), Vec::new());
    while at < START + BEGIN + storm {
        let node = random.below(nodes) as usize;
        let step = random.below(2 * APART_MAX) as i64 - APART_MAX as i64;
        match random.weighted(&weights) {
            0 => {
                faults.push((at, Fault::Crash(node, random.chance(600))));
                let lasts = if random.chance(300) { Duration::ZERO } else { random.span(Duration::from_secs(3)) };
                faults.push((at + lasts, Fault::Start(node, step, false)));
            }
            1 => faults.push((at, Fault::Succeed(node, step))),
            _ => faults.push((at, Fault::Silence(node, random.span(SILENCE_MAX)))),
        }
        at = at + random.span(every) + Duration::from_millis(1);
    }
    faults
}
