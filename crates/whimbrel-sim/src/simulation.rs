//! Whole runs: a scenario drawn from one seed, played against a broker, and checked.

use std::fmt;
use std::time::Duration;

use whimbrel_core::cache::{Capacity, DefaultPlan, PartitionPlan, Plan, Policy};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, Stats};
use whimbrel_selector::Selector;

use crate::access::Shape;
use crate::check::{Bounds, Checker, Violation};
use crate::choice::Choice;
use crate::client::{Client, Follower, Habits, Honest, Hostile, Persona, random_filter};
use crate::digests::Digests;
use crate::link::Profile;
use crate::random::Random;
use crate::rig::{START, VERSION};
use crate::trace::KEPT;
use crate::world::{Tamper, World};

/// How long clients and links misbehave, in seconds.
const STORM: [u64; 3] = [10, 20, 40];

/// The least length of the calm after the storm: all wills and session expiries of the scenario are
/// over by its end.
const CALM_MIN: Duration = Duration::from_secs(30);

/// The greatest length of the calm: the slowest link and the smallest window have let everything
/// through by its end.
const CALM_MAX: Duration = Duration::from_secs(7200);

/// How much earlier than all other clients the witness begins.
const HEAD_START: Duration = Duration::from_millis(1);

/// The client id of the witness.
const WITNESS: &str = "witness";

/// The mean time between divisions of the cache, and between steps of the wall clock.
const WEATHER: Duration = Duration::from_secs(3);

/// Steps of the wall clock, nanoseconds: far back, back, a little, forward as far as the broker
/// follows, and far forward.
const STEPS: [i64; 5] = [-3_600_000_000_000, -1_000_000_000, 2_000_000, 59_000_000_000, 31_536_000_000_000_000];

/// How long until the next check whether the calm may end.
const CALM_STEP: Duration = Duration::from_secs(10);

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A digest of the run: equal for two runs in which the same things happened.
    pub digest: u64,
    /// Digests of everything that brokers sent, one for each stream.
    pub streams: Digests,
    /// Messages that the broker accepted, wills included.
    pub published: u64,
    /// Messages that it sent to clients, repetitions included.
    pub delivered: u64,
    /// The virtual time that passed.
    pub lasted: Duration,
    /// The broker's own counters.
    pub stats: Stats,
    /// Whether it was not checked to its end; see [`Checker::is_unsure`].
    pub cut_short: bool,
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// The last of the broker's input and output, if a rule was broken.
    pub story: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, digest, published, delivered, lasted, .. } = self;
        write!(f, "seed {seed}: {published} published, {delivered} delivered in {lasted:?}, digest {digest:016x}")?;
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", self.story)?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(f, "replay: WHIMBREL_SEED={seed} cargo test -p whimbrel-sim --test it simulation::replay -- --nocapture")
    }
}

/// Plays the scenario of a seed.
pub fn run(seed: u64) -> Report {
    play(seed, KEPT, None, |_| {})
}

/// As [`run`], with a story of the last `kept` entries, at least one.
pub fn replay(seed: u64, kept: usize) -> Report {
    play(seed, kept, None, |_| {})
}

/// As [`run`], with a tamperer between the broker and all clients.
pub fn run_tampered(seed: u64, tamper: &mut dyn Tamper) -> Report {
    play(seed, KEPT, Some(tamper), |_| {})
}

/// As [`run`], with a fault in the broker.
#[cfg(feature = "mutants")]
pub fn run_mutant(seed: u64, mutant: whimbrel_core::Mutant) -> Report {
    play(seed, KEPT, None, |world| world.broker.build_in(mutant))
}

fn play(seed: u64, kept: usize, tamper: Option<&mut dyn Tamper>, alter: impl FnOnce(&mut World<'_>)) -> Report {
    let mut random = Random::new(seed);
    let config = draw_config(&mut random);
    let followed = random.chance(600);
    let plans = *random.pick(&[Plans::Default, Plans::One, Plans::One, Plans::Many]);
    let bounds = Bounds {
        inflight_max: config.core.inflight_max.into(),
        session_queue_bytes: config.core.session_queue_bytes,
        best_effort_queue_bytes: config.core.best_effort_queue_bytes,
        topic_alias_max: config.limits.topic_alias_maximum,
        connect_timeout: config.limits.connect_timeout,
        witness: followed.then_some(WITNESS),
        nothing_overwritten: plans == Plans::Default,
    };
    let scale = *random.pick(&[1, 16, 64]);
    let storm = Duration::from_secs(*random.pick(&STORM));
    let mut world = World::new(config, Checker::new(bounds, START), scale, random.fork(), START);
    world.keep(kept);
    alter(&mut world);
    if let Some(tamper) = tamper {
        world.tamper(tamper);
    }
    populate(&mut world, &mut random);
    if followed {
        follow(&mut world, &mut random);
    }
    weather(&mut world, &mut random, START + storm, plans);
    world.calm();
    let calm = world.now();
    while world.checker().violations().is_empty() && !world.checker().is_unsure() {
        world.run_until(world.now() + CALM_STEP);
        let lasted = world.now().since(calm);
        if lasted >= CALM_MAX || lasted >= CALM_MIN && !world.checker().owes() {
            world.finish();
            world.drain();
            break;
        }
    }
    report(seed, &world)
}

fn report(seed: u64, world: &World<'_>) -> Report {
    let checker = world.checker();
    let (published, delivered) = checker.counts();
    let (violations, cut_short) = (checker.violations().to_vec(), checker.is_unsure());
    let story = if violations.is_empty() { String::new() } else { world.trace().story(START) };
    let lasted = world.now().since(START);
    let (digest, streams, stats) = (world.trace().digest(), world.trace().streams().clone(), world.stats());
    Report { seed, digest, streams, published, delivered, lasted, stats, cut_short, violations, story }
}

/// How the cache is divided and how large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plans {
    /// Room for everything.
    Default,
    /// Small.
    One,
    /// Small, and divided again and again.
    Many,
}

/// Plays the storm: the cache is divided anew, and the wall clock steps.
fn weather(world: &mut World<'_>, random: &mut Random, until: Time, plans: Plans) {
    if plans != Plans::Default {
        world.divide(&draw_plan(random));
    }
    let steps = random.chance(300);
    while world.now() < until {
        let next = world.now() + random.span(WEATHER) + Duration::from_millis(1);
        world.run_until(next.min(until));
        if plans == Plans::Many {
            world.divide(&draw_plan(random));
        }
        if steps {
            world.step_wall(*random.pick(&STEPS));
        }
    }
}

/// A division of the cache with little room.
pub(crate) fn draw_plan(random: &mut Random) -> Plan {
    let mut partitions = Vec::new();
    for _ in 0..random.below(4) {
        let selector = random.chance(400).then(|| Choice::draw(random).to_string());
        let selector = selector.map(|text| Selector::parse(&text).expect("a selector of a known form"));
        let (filter, capacity, policy) = (random_filter(random).into(), draw_capacity(random), draw_policy(random));
        partitions.push(PartitionPlan { filter, selector, capacity, policy });
    }
    let default = DefaultPlan { capacity: draw_capacity(random), policy: draw_policy(random) };
    let ceiling = *random.pick(&[u64::MAX, u64::MAX, 100_000]);
    Plan { partitions, default, ceiling }
}

fn draw_capacity(random: &mut Random) -> Capacity {
    match random.below(3) {
        0 => Capacity::Events(*random.pick(&[1, 10, 100, 1000])),
        1 => Capacity::Bytes(*random.pick(&[1_000, 20_000, 1_000_000])),
        _ => Capacity::Time { keep: Duration::from_secs(*random.pick(&[1, 5])), ceiling: 200_000 },
    }
}

fn draw_policy(random: &mut Random) -> Policy {
    let lifetime = Duration::from_secs(*random.pick(&[1, 10, 48]));
    let priority = Policy::Priority { protected: *random.pick(&[0, 200, 900]), lifetime };
    *random.pick(&[Policy::Lrp, Policy::Lrp, Policy::Random, priority, Policy::Value])
}

/// Bounds that are small enough to be reached in many runs.
fn draw_config(random: &mut Random) -> Config {
    let mut config = Config { version: VERSION.into(), ..Config::default() };
    config.limits.receive_maximum = *random.pick(&[5, 1024]);
    config.limits.topic_alias_maximum = *random.pick(&[0, 3, 256]);
    config.limits.keep_alive_max = *random.pick(&[0, 0, 8]);
    config.limits.connect_timeout = Duration::from_secs(*random.pick(&[2, 10]));
    config.core.inflight_max = *random.pick(&[4, 1024]);
    config.core.session_queue_bytes = *random.pick(&[16 << 10, 128 << 10, 64 << 20]);
    config.core.tracked_queue_bytes = *random.pick(&[2 << 10, 16 << 10, 256 << 10]);
    config.core.silence_after = Duration::from_secs(*random.pick(&[1, 5, 30]));
    config.core.best_effort_queue_bytes = *random.pick(&[8 << 10, 1 << 20]);
    config
}

fn populate(world: &mut World<'_>, random: &mut Random) {
    let now = world.now() + HEAD_START;
    let cells = draw_cells(world, random);
    for number in 0..random.between(2, 16) {
        let persona = Persona::draw(random);
        let link = persona.link;
        let client = Honest::new(format!("c{number}"), persona, random.fork(), now);
        world.add_at(Client::Honest(Box::new(client)), link, *random.pick(&cells));
    }
    for number in 0..random.below(4) {
        let client = Hostile::new(format!("h{number}"), random.fork(), now);
        world.add(Client::Hostile(client), Profile::LAN);
    }
}

/// Clients with tracked subscriptions, and a witness.
fn follow(world: &mut World<'_>, random: &mut Random) {
    let now = world.now();
    let cells = draw_cells(world, random);
    let witness = Follower::new(WITNESS.to_owned(), Habits::witness(), random.fork(), now);
    world.add(Client::Follower(Box::new(witness)), Profile::PERFECT);
    for number in 0..random.between(1, 6) {
        let habits = Habits::draw(random);
        let link = habits.link;
        let client = Follower::new(format!("f{number}"), habits, random.fork(), now + HEAD_START);
        world.add_at(Client::Follower(Box::new(client)), link, *random.pick(&cells));
    }
}

/// Where each client is: nowhere in particular, or in a cell whose access link it shares.
fn draw_cells(world: &mut World<'_>, random: &mut Random) -> Vec<Option<usize>> {
    if random.chance(700) {
        return vec![None];
    }
    let shape = *random.pick(&[Shape::WIDE, Shape::NARROW]);
    vec![None, Some(world.add_cell(shape)), Some(world.add_cell(shape))]
}
