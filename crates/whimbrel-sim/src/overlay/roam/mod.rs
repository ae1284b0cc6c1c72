//! Worlds in which clients wander: durable subscriptions and sessions that go from broker to broker
//! while those end, lose their disks and are cut off. The book sees what clients say and hear,
//! which processes ended, and what was written to the disks.

mod book;
mod client;
mod counts;
mod deed;
mod draw;
mod judge;
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

use crate::digests::Digests;
use crate::overlay::book::{ARRIVE_MAX, Rule, Violation};
use crate::rig::START;
use world::World;

/// How long publishers go on after the storm.
const GO_ON: Duration = Duration::from_secs(2);

/// After the storm: until then brokers have found each other, sessions have found their clients,
/// and all that was held up has come.
const SETTLE: Duration = Duration::from_secs(45);

/// A client that takes one event after another, slowly, still gets what has come while it was away:
/// for so long, and so often, it has more time.
const SLOW: Duration = Duration::from_secs(5);
const SLOW_TIMES: u32 = 24;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// Two runs with the same digest did the same.
    pub digest: u64,
    /// Of all that brokers sent, one for each stream.
    pub streams: Digests,
    /// Brokers.
    pub brokers: usize,
    /// What was seen.
    pub counts: Counts,
    /// Processes that ended.
    pub crashes: usize,
    /// Disks that were lost.
    pub losses: usize,
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// The last of what clients said and heard, if that was asked for.
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

/// Plays the scenario of that seed.
pub fn run(seed: u64) -> Report {
    run_wandering(seed, Wander::Everywhere)
}

/// As [`run`], with clients that go where they may go.
pub fn run_wandering(seed: u64, wander: Wander) -> Report {
    let _told = super::Told(seed);
    play(seed, wander, World::new(seed, draw::config(seed), None, Box::new(|_| {})))
}

/// As [`run_wandering`], and brokers stand still now and then, as processes do on a machine that
/// has too much to do.
pub fn run_overloaded(seed: u64, wander: Wander) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, World::new(seed, draw::config(seed), None, Box::new(|_| {})))
}

/// As [`run_overloaded`], with the last `kept` things that happened, at least one.
pub fn replay_overloaded(seed: u64, wander: Wander, kept: usize) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, World::new(seed, draw::config(seed), Some(kept), Box::new(|_| {})))
}

/// As [`run_overloaded`], with a fault in all brokers.
#[cfg(feature = "mutants")]
pub fn run_overloaded_mutant(seed: u64, wander: Wander, mutant: whimbrel_core::Mutant) -> Report {
    let _told = super::Told(seed);
    play_overloaded(seed, wander, mutated(seed, mutant))
}

/// As [`run`], with the last `kept` things that happened, at least one.
pub fn replay(seed: u64, wander: Wander, kept: usize) -> Report {
    let _told = super::Told(seed);
    play(seed, wander, World::new(seed, draw::config(seed), Some(kept), Box::new(|_| {})))
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

/// A world whose brokers have a fault.
#[cfg(feature = "mutants")]
fn mutated<'a>(seed: u64, mutant: whimbrel_core::Mutant) -> World<'a> {
    let mut world = World::new(seed, draw::config(seed), None, Box::new(move |broker| broker.build_in(mutant)));
    world.net.prepare = Box::new(move |restoring| restoring.build_in(mutant));
    world
}

/// In the end each client's session is at one broker: what others had of it has been given up.
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
    (0..world.net.nodes.len()).for_each(|node| world.note_heard(node));
    world.book.close(probes);
    count_keepers(&mut world);
    Report {
        seed,
        digest: world.digest(),
        streams: core::mem::take(&mut world.net.digests),
        brokers: world.net.nodes.len(),
        counts: world.book.counts,
        crashes: world.book.troubles.ends.len(),
        losses: world.book.troubles.losses.len(),
        violations: core::mem::take(&mut world.book.violations),
        story: world.story(),
    }
}
