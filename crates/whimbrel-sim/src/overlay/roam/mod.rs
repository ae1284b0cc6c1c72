//! Worlds of roaming clients: durable subscriptions and sessions move from broker to broker while
//! brokers end, lose their disks and are cut off. The book sees what clients send and receive,
//! which processes ended, and what was written to the disks.

mod book;
mod client;
mod counts;
mod deed;
mod draw;
mod fact;
mod habit;
mod judge;
mod owners;
mod publisher;
mod repeat;
mod trouble;
mod web;
mod world;

use std::fmt;
use std::time::Duration;

pub use client::Keeper;
pub use counts::Counts;
pub use draw::Wander;

use whimbrel_core::TopicPaths;

use crate::digests::Digests;
#[cfg(feature = "mutants")]
use crate::engine::BuiltIn;
use crate::overlay::book::{ARRIVE_MAX, Rule, Violation};
use crate::rig::START;
use owners::Engines;
use world::World;

/// How long publishers continue after the storm.
const GO_ON: Duration = Duration::from_secs(2);

/// How long a world runs after the storm: by the end brokers have found each other, sessions have
/// found their clients, and everything that was held up has been delivered.
const SETTLE: Duration = Duration::from_secs(45);

/// A client that takes one event at a time still needs to receive what it missed while away. The
/// world then runs on in steps of [`SLOW`], at most [`SLOW_TIMES`], until a step has no delivery.
const SLOW: Duration = Duration::from_secs(5);
const SLOW_TIMES: u32 = 24;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A digest of the run: equal for two runs in which the same things happened.
    pub digest: u64,
    /// Digests of everything that brokers sent, one for each stream.
    pub streams: Digests,
    /// Brokers.
    pub brokers: usize,
    /// The book's counters.
    pub counts: Counts,
    /// Changes of the condition of a link that events with a deadline cross.
    pub conditions: u64,
    /// Events with a deadline that went another way because of a link.
    pub rerouted: u64,
    /// The number of processes that ended.
    pub crashes: usize,
    /// The number of disks that were lost.
    pub losses: usize,
    /// Successors that began while the former process went on.
    pub successions: u64,
    /// Former processes that stopped.
    pub stopped: u64,
    /// Processes that ended because of a record of their former process.
    pub strayed: u64,
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// The last things that clients sent and received, empty unless the run was to keep them.
    pub story: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, brokers, counts, crashes, losses, digest, .. } = self;
        write!(f, "seed {seed}: {brokers} brokers, {counts:?}, {crashes} crashes, {losses} disks lost, ")?;
        write!(f, "digest {digest:016x}")?;
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", self.story)?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(f, "replay: WHIMBREL_SEED={seed} cargo test -p whimbrel-sim --test it roam::replay -- --nocapture")
    }
}

/// Plays the scenario of a seed.
pub fn run(seed: u64) -> Report {
    run_wandering(seed, Wander::Everywhere)
}

/// As [`run`], with clients that go where `wander` says.
pub fn run_wandering(seed: u64, wander: Wander) -> Report {
    let _told = super::Told(seed);
    play(seed, wander, fresh(seed, None))
}

/// As [`run_wandering`], with brokers that now and then stand still, as processes do on an
/// overloaded machine.
pub fn run_overloaded(seed: u64, wander: Wander) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, fresh(seed, None))
}

/// As [`run_overloaded`], and the report has the last `kept` things that happened, at least one.
pub fn replay_overloaded(seed: u64, wander: Wander, kept: usize) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, fresh(seed, Some(kept)))
}

/// As [`run_overloaded`], with a fault in all brokers.
#[cfg(feature = "mutants")]
pub fn run_overloaded_mutant(seed: u64, wander: Wander, mutant: whimbrel_core::Mutant) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, mutated(seed, mutant))
}

/// As [`run`], with topics that have deadlines and links that become slow, lossy or narrow in one
/// direction or both, or are cut again and again: events, which take these `paths`, change their
/// way all the time.
pub fn run_disturbed(seed: u64, paths: TopicPaths) -> Report {
    let _told = super::Told(seed);
    play_disturbed(seed, paths, fresh(seed, None))
}

/// As [`run_disturbed`], and the report has the last `kept` things that happened, at least one.
pub fn replay_disturbed(seed: u64, paths: TopicPaths, kept: usize) -> Report {
    let _told = super::Told(seed);
    play_disturbed(seed, paths, fresh(seed, Some(kept)))
}

/// As [`run`], with logs on engines: processes end with their disks, successors begin while the
/// former processes go on, requests to engines are lost or late, and engines do not answer.
pub fn run_replicated(seed: u64) -> Report {
    let _told = super::Told(seed);
    play_replicated(seed, Engines::default(), fresh(seed, None))
}

/// As [`run_replicated`], and the report has the last `kept` things that happened, at least one.
pub fn replay_replicated(seed: u64, kept: usize) -> Report {
    let _told = super::Told(seed);
    play_replicated(seed, Engines::default(), fresh(seed, Some(kept)))
}

/// As [`run_replicated`], with a fault in all engines.
#[cfg(feature = "mutants")]
pub fn run_replicated_mutant(seed: u64, mutant: whimbrel_engine::EngineMutant) -> Report {
    let _told = super::Told(seed);
    play_replicated(seed, Engines { built_in: BuiltIn { mutant: Some(mutant) }, are_blind: false }, fresh(seed, None))
}

/// As [`run_replicated`], with processes that do not look whether they own their logs.
pub fn run_replicated_blind(seed: u64) -> Report {
    let _told = super::Told(seed);
    play_replicated(seed, Engines { are_blind: true, ..Engines::default() }, fresh(seed, None))
}

/// As [`run`], and the report has the last `kept` things that happened, at least one.
pub fn replay(seed: u64, wander: Wander, kept: usize) -> Report {
    let _told = super::Told(seed);
    play(seed, wander, fresh(seed, Some(kept)))
}

/// As [`run`], with a fault in all brokers.
#[cfg(feature = "mutants")]
pub fn run_mutant(seed: u64, mutant: whimbrel_core::Mutant) -> Report {
    run_wandering_mutant(seed, Wander::Everywhere, mutant)
}

/// As [`run_wandering`], with a fault in all brokers.
#[cfg(feature = "mutants")]
pub fn run_wandering_mutant(seed: u64, wander: Wander, mutant: whimbrel_core::Mutant) -> Report {
    let _told = super::Told(seed);
    play(seed, wander, mutated(seed, mutant))
}

/// A world that keeps the last `kept` things that happened.
fn fresh<'a>(seed: u64, kept: Option<usize>) -> World<'a> {
    World::new(seed, draw::config(seed), kept, Box::new(|_| {}))
}

/// A world whose brokers have a fault.
#[cfg(feature = "mutants")]
fn mutated<'a>(seed: u64, mutant: whimbrel_core::Mutant) -> World<'a> {
    let mut world = World::new(seed, draw::config(seed), None, Box::new(move |broker| broker.build_in(mutant)));
    world.net.prepare = Box::new(move |restoring| restoring.build_in(mutant));
    world
}

/// Checks that in the end at most one broker owns each client's session: the others have given up
/// their state of it.
fn count_keepers(world: &mut World<'_>) {
    let names: Vec<String> = world.book.accounts.values().map(|account| account.name.clone()).collect();
    for name in names {
        let brokers = world.net.nodes.iter().filter_map(|node| node.broker.as_ref());
        let sessions = brokers.filter_map(|broker| broker.core().session(&name)?.place);
        let kept: Vec<u64> = sessions.filter(|place| place.given_to.is_none()).map(|place| place.epoch).collect();
        if kept.len() > 1 {
            world.book.breaks(Rule::Takeover, format!("{} brokers keep the session of {name}: {kept:?}", kept.len()));
        }
    }
}

fn play(seed: u64, wander: Wander, mut world: World<'_>) -> Report {
    let plan = draw::world(&mut world, wander);
    play_planned(seed, plan, world)
}

fn play_overloaded(seed: u64, wander: Wander, mut world: World<'_>) -> Report {
    let mut plan = draw::world(&mut world, wander);
    plan.faults.extend(draw::stills(&world, plan.storm, seed));
    play_planned(seed, plan, world)
}

fn play_replicated(seed: u64, engines: Engines, mut world: World<'_>) -> Report {
    world.ownership.engines = Some(engines);
    let mut plan = draw::world(&mut world, Wander::Everywhere);
    plan.faults.extend(owners::troubles(&world, plan.storm, seed));
    play_planned(seed, plan, world)
}

fn play_disturbed(seed: u64, paths: TopicPaths, mut world: World<'_>) -> Report {
    world.is_disturbed = true;
    world.net.terms.paths = paths;
    let mut plan = draw::world(&mut world, Wander::Everywhere);
    plan.faults.extend(draw::disturbances(&world, plan.storm, seed));
    play_planned(seed, plan, world)
}

fn play_planned(seed: u64, plan: draw::Plan, mut world: World<'_>) -> Report {
    world.plan(plan.faults);
    world.run_until(START + plan.storm);
    draw::heal(&mut world);
    world.calm();
    world.run_until(world.now() + GO_ON);
    world.hush();
    world.run_until(world.now() + (SETTLE - SLOW));
    for _ in 0..SLOW_TIMES {
        let delivered = world.book.counts.delivered;
        world.run_until(world.now() + SLOW);
        if world.book.counts.delivered == delivered {
            break;
        }
    }
    let probes = world.now();
    for _ in 0..2 {
        world.publish_all();
        world.run_until(world.now() + Duration::from_millis(50));
    }
    world.run_until(world.now() + ARRIVE_MAX + Duration::from_secs(1));
    world.book.troubles.met = core::mem::take(&mut world.net.met);
    (0..world.net.machines()).for_each(|node| world.note_heard(node));
    world.book.close(probes);
    count_keepers(&mut world);
    Report {
        seed,
        digest: world.digest(),
        streams: core::mem::take(&mut world.net.digests),
        brokers: world.net.machines(),
        counts: world.book.counts,
        conditions: world.net.sum(|stats| stats.net.conditions_changed),
        rerouted: world.net.sum(|stats| stats.net.reroutes.iter().sum()),
        crashes: world.book.troubles.ends.len(),
        losses: world.book.troubles.losses.len(),
        successions: world.ownership.successions,
        stopped: world.ownership.stopped,
        strayed: world.ownership.strayed,
        violations: core::mem::take(&mut world.book.violations),
        story: world.story(),
    }
}
