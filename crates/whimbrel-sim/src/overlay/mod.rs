//! Worlds of many brokers, drawn from one seed: wide-area connections between them, which are cut,
//! break and heal; processes that end and are started again; clients that connect, leave and move.
//! The book sees only what clients send and receive.

mod arrivals;
mod book;
mod client;
mod clock;
mod cuts;
mod deed;
mod dial;
mod door;
mod draw;
mod judge;
mod line;
mod logs;
mod net;
mod owners;
pub mod roam;
#[cfg(all(test, feature = "mutants"))]
mod scenes;
mod still;
#[cfg(test)]
mod tests;
pub mod traffic;
mod world;

use std::fmt;
use std::time::Duration;

use whimbrel_mqtt::MqttBroker;

pub use book::{ARRIVE_MAX, Counts, Rule, Violation};
pub use client::Class;
pub use clock::AHEAD_MAX;
pub use draw::Size;
pub use net::Traffic;

use crate::digests::Digests;
use crate::engine::BuiltIn;
use crate::rig::START;
use world::World;

/// How long a world runs after the storm: by the end everything that was held up has been
/// delivered, and brokers have found each other again.
const SETTLE: Duration = Duration::from_secs(40);

/// How long publishers continue after the storm.
const GO_ON: Duration = Duration::from_secs(5);

/// Unsent bytes on one way of a connection, at most: the brokers' own bound plus the largest frame.
const UNSENT_MAX: usize = 8 << 20;

/// The number of repairs for each event sent to a broker, at most.
const REPAIRS_MAX: u64 = 3;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A digest of the run: equal for two runs in which the same things happened.
    pub digest: u64,
    /// Digests of everything that brokers sent, one for each stream.
    pub streams: Digests,
    /// The number of brokers.
    pub brokers: usize,
    /// The book's counters.
    pub counts: Counts,
    /// Counters of the connections between brokers.
    pub traffic: Traffic,
    /// Events that arrived at a broker for its subscriptions.
    pub received: u64,
    /// Events among these that no subscription there wanted.
    pub unwanted: u64,
    /// Nacks.
    pub nacks: u64,
    /// Link states of other brokers that were news to a broker.
    pub states: u64,
    /// Changes of the condition of a link that events with a deadline cross.
    pub conditions: u64,
    /// Events with a deadline that went another way because of a link.
    pub rerouted: u64,
    /// The number of processes that ended.
    pub crashes: u64,
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// The last things that clients sent and received, empty unless the run was to keep them.
    pub story: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, brokers, counts, traffic, received, unwanted, nacks, states, crashes, digest, .. } = self;
        write!(
            f,
            "seed {seed}: {brokers} brokers, {counts:?}, {traffic:?}, {received} received, {unwanted} of them unwanted, "
        )?;
        write!(f, "{nacks} nacks, {states} link states, {crashes} crashes, digest {digest:016x}")?;
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", self.story)?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(f, "replay: WHIMBREL_SEED={seed} cargo test -p whimbrel-sim --test it overlay::replay -- --nocapture")
    }
}

/// Plays the scenario of a seed.
pub fn run(seed: u64) -> Report {
    play(seed, Size::Drawn, None, |_| {})
}

/// As [`run`], with a number of brokers.
pub fn run_sized(seed: u64, size: Size) -> Report {
    play(seed, size, None, |_| {})
}

/// As [`run_sized`], and the report has the last `kept` things that happened, at least one.
pub fn replay(seed: u64, size: Size, kept: usize) -> Report {
    play(seed, size, Some(kept), |_| {})
}

/// As [`run`], with a fault in all brokers.
#[cfg(feature = "mutants")]
pub fn run_mutant(seed: u64, mutant: whimbrel_core::Mutant) -> Report {
    play(seed, Size::Drawn, None, |broker| broker.build_in(mutant))
}

/// As [`run`], with logs on engines: processes end with their disks, and requests to engines are
/// lost or late. The report has the last `kept` things that happened, if that is not `None`.
pub fn run_replicated(seed: u64, kept: Option<usize>) -> Report {
    let _told = Told(seed);
    let mut world = World::new(seed, draw::config(seed), kept, Box::new(|_| {}));
    world.engines = Some(BuiltIn::default());
    play_world(seed, Size::Drawn, world)
}

/// As [`run_replicated`], with a fault in all engines.
#[cfg(feature = "mutants")]
pub fn run_replicated_mutant(seed: u64, mutant: whimbrel_engine::EngineMutant) -> Report {
    let _told = Told(seed);
    let mut world = World::new(seed, draw::config(seed), None, Box::new(|_| {}));
    world.engines = Some(BuiltIn { mutant: Some(mutant) });
    play_world(seed, Size::Drawn, world)
}

/// Prints the seed of a world in which something panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this happened in the world of seed {}", self.0);
        }
    }
}

fn play(seed: u64, size: Size, kept: Option<usize>, change: impl Fn(&mut MqttBroker)) -> Report {
    let _told = Told(seed);
    let world = World::new(seed, draw::config(seed), kept, Box::new(change));
    play_world(seed, size, world)
}

/// Plays a world to its end.
fn play_world(seed: u64, size: Size, mut world: World<'_>) -> Report {
    let plan = draw::world(&mut world, size);
    world.run_until(START + plan.storm);
    finish(&mut world);
    report(seed, &mut world, &plan)
}

/// Repairs everything, lets the world settle, and checks it.
fn finish(world: &mut World<'_>) {
    draw::heal(world);
    world.calm();
    world.run_until(world.now() + GO_ON);
    world.hush();
    world.run_until(world.now() + SETTLE);
    let probes = world.now();
    for _ in 0..2 {
        world.publish_all();
        world.run_until(world.now() + Duration::from_millis(50));
    }
    world.run_until(world.now() + ARRIVE_MAX + Duration::from_secs(1));
    world.collect();
    let names: Vec<String> = world.net.nodes.iter().map(|node| node.name.clone()).collect();
    let now = world.now();
    world.book.close(now, &names, probes);
}

fn report(seed: u64, world: &mut World<'_>, plan: &draw::Plan) -> Report {
    let (received, unwanted) =
        (world.net.sum(|stats| stats.events_received), world.net.sum(|stats| stats.events_unwanted));
    if plan.is_steady && unwanted > 0 {
        world
            .book
            .breaks(Rule::Interest, format!("{unwanted} of {received} events came to brokers that did not want them"));
    }
    let invalid = world.net.sum(|stats| stats.net.frames_invalid);
    if invalid > 0 {
        world.book.breaks(Rule::Bounds, format!("{invalid} frames made no sense"));
    }
    if world.net.traffic.unsent > UNSENT_MAX {
        world.book.breaks(Rule::Bounds, format!("{} bytes were unsent", world.net.traffic.unsent));
    }
    check_repairs(world);
    Report {
        seed,
        digest: world.digest(),
        streams: core::mem::take(&mut world.net.digests),
        brokers: world.net.nodes.len(),
        counts: world.book.counts,
        traffic: world.net.traffic,
        received,
        unwanted,
        nacks: world.net.sum(|stats| stats.nacks_out),
        states: world.net.sum(|stats| stats.net.states_learned),
        conditions: world.net.sum(|stats| stats.net.conditions_changed),
        rerouted: world.net.sum(|stats| stats.net.reroutes.iter().sum()),
        crashes: plan.crashes,
        violations: world.book.violations.clone(),
        story: world.story(),
    }
}

/// Checks that no event goes round in a circle of repairs.
fn check_repairs(world: &mut World<'_>) {
    let (repairs, sent) = (
        world.net.sum(|stats| stats.net.repairs),
        world.net.sum(|stats| stats.net.destinations + stats.net.events_answered),
    );
    if repairs > sent * REPAIRS_MAX {
        world.book.breaks(Rule::Bounds, format!("{sent} times an event was sent to somebody, and {repairs} repaired"));
    }
}
