//! Worlds whose broker has a log: scenarios drawn from one seed, with crashes, full disks and
//! failing disks.

use std::fmt;
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use whimbrel_core::cache::Plan;
use whimbrel_core::store::Disk;
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, Stats};

use crate::check::{Bounds, Checker, Violation};
use crate::client::{Client, Follower, Habits, Honest, Persona};
use crate::digests::Digests;
use crate::disk::{EVENT_BYTES_MAX, Pace};
use crate::ledger::Counts;
use crate::link::Profile as Link;
use crate::random::Random;
use crate::rig::{START, VERSION};
use crate::simulation::draw_plan;
use crate::trace::KEPT;
use crate::world::World;

/// How long clients, links and disks misbehave, in seconds.
const STORM: [u64; 3] = [5, 10, 20];

/// How long the calm after the storm lasts: by its end everything that waits has been answered.
const CALM: Duration = Duration::from_secs(120);

/// The mean time between two disturbances of the disk.
const WEATHER: Duration = Duration::from_secs(2);

/// Half of the longest time that a disk is full, and that a machine with a failed disk waits for
/// its restart.
const TROUBLE: Duration = Duration::from_secs(5);

/// The greatest step of the clock at a restart.
const STEP_MAX: Duration = Duration::from_secs(60);

/// How long it takes, at most, until a disk without room for more files is full.
const FILLING: Duration = Duration::from_secs(10);

/// How long sessions outlive their connections, at most: longer than any world lasts, and short
/// enough to be waited for at its end.
const EXPIRY_MAX: Duration = Duration::from_secs(1_500);

/// The disturbances that durable worlds may have. One that brokers do not withstand yet is named
/// here, and off.
#[derive(Clone, Copy, Debug)]
struct May {
    /// Whether the broker's machine crashes.
    crash: bool,
    /// Whether a sync may fail.
    fail: bool,
    /// Whether the disk may be full for a while.
    fill: bool,
    /// Whether there are clients that know their position, unacknowledged events are given up after
    /// a while, and the order of deliveries is checked.
    follow: bool,
}

/// The disturbances that every broker must withstand.
const SETTLED: May = May { crash: true, fail: true, fill: true, follow: false };

/// The disturbances of the widest worlds.
const WIDE: May = May { follow: true, ..SETTLED };

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// A digest of the run: equal for two runs in which the same things happened.
    pub digest: u64,
    /// Digests of everything that brokers sent, one for each stream.
    pub streams: Digests,
    /// The ledger's counts.
    pub counts: Counts,
    /// The number of syncs that failed.
    pub failures: u64,
    /// The number of times that the log was full.
    pub fillings: u64,
    /// The last broker's own counters.
    pub stats: Stats,
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// The last of the broker's input and output, if a rule was broken.
    pub story: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, digest, counts, failures, fillings, .. } = self;
        write!(f, "seed {seed}: {counts:?}, {failures} failed syncs, {fillings} times full, digest {digest:016x}")?;
        if self.violations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{}", self.story)?;
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        write!(f, "replay: WHIMBREL_SEED={seed} cargo test -p whimbrel-sim --test it durable::replay -- --nocapture")
    }
}

/// Plays the scenario of a seed.
pub fn run(seed: u64) -> Report {
    play(seed, (SETTLED, KEPT), |_| {})
}

/// As [`run`], in a world with more disturbances.
pub fn run_wide(seed: u64) -> Report {
    play(seed, (WIDE, KEPT), |_| {})
}

/// As [`run_wide`], with a story of the last `kept` entries.
pub fn replay_wide(seed: u64, kept: usize) -> Report {
    play(seed, (WIDE, kept), |_| {})
}

/// As [`run`], with a story of the last `kept` entries, at least one.
pub fn replay(seed: u64, kept: usize) -> Report {
    play(seed, (SETTLED, kept), |_| {})
}

/// As [`run`], with a fault in the broker, also after crashes.
#[cfg(feature = "mutants")]
pub fn run_mutant(seed: u64, mutant: whimbrel_core::Mutant) -> Report {
    play(seed, (SETTLED, KEPT), |world| world.build_in(mutant))
}

fn play(seed: u64, (may, kept): (May, usize), alter: impl FnOnce(&mut World<'_>)) -> Report {
    let mut random = Random::new(seed ^ 0x64_7572_6162_6c65);
    let config = draw_config(&mut random, may);
    let scale = *random.pick(&[1, 16]);
    let storm = Duration::from_secs(*random.pick(&STORM));
    let mut world = World::new(config.clone(), Checker::new(asleep(&config), START), scale, random.fork(), START);
    world.keep(kept);
    alter(&mut world);
    let plan = if random.chance(600) { draw_plan(&mut random) } else { Plan::default() };
    world.keep_log(config, draw_profiles(&mut random), plan, draw_pace(&mut random));
    populate(&mut world, &mut random);
    if may.follow {
        follow(&mut world, &mut random);
        world.look_at_order();
    }
    let (failures, fillings) = weather(&mut world, &mut random, (may, START + storm));
    world.calm();
    world.run_until(world.now() + CALM);
    if world.ledger().violations().is_empty() {
        world.finish();
    }
    let ledger = world.ledger();
    let violations = ledger.violations().to_vec();
    let story = if violations.is_empty() { String::new() } else { world.trace().story(START) };
    let (digest, counts, stats) = (world.trace().digest(), ledger.counts(), world.stats());
    let streams = world.trace().streams().clone();
    Report { seed, digest, streams, counts, failures, fillings, stats, violations, story }
}

/// Bounds for the checker of worlds without a log, which sees nothing here.
fn asleep(config: &Config) -> Bounds {
    Bounds {
        inflight_max: config.core.inflight_max.into(),
        session_queue_bytes: config.core.session_queue_bytes,
        best_effort_queue_bytes: config.core.best_effort_queue_bytes,
        topic_alias_max: config.limits.topic_alias_maximum,
        connect_timeout: config.limits.connect_timeout,
        witness: None,
        nothing_overwritten: false,
    }
}

/// Disturbs the disk until a moment; returns the number of failed syncs, and of times that the log
/// was full.
fn weather(world: &mut World<'_>, random: &mut Random, (may, until): (May, Time)) -> (u64, u64) {
    let (mut failures, mut fillings) = (0, 0);
    let weights = [3, u64::from(may.crash), u64::from(may.fail), u64::from(may.fill)];
    let weights = weights.map(|weight| weight * *random.pick(&[0, 1, 2]));
    let calm = weights.iter().sum::<u64>() == 0;
    while world.now() < until {
        let next = world.now() + random.span(WEATHER) + Duration::from_millis(1);
        world.run_until(next.min(until));
        if world.disk() == Disk::Poisoned {
            failures += 1;
            world.run_until(world.now() + random.span(TROUBLE));
            world.crash();
        } else if !calm {
            match random.weighted(&weights) {
                0 => {}
                1 => {
                    if random.chance(300) {
                        // The machine starts with another clock.
                        let nanos = random.below(STEP_MAX.as_nanos() as u64) as i64;
                        world.step_wall(if random.chance(500) { nanos } else { -nanos });
                    }
                    world.crash();
                }
                2 => world.fail_sync(true),
                _ => {
                    world.fill_disk(true);
                    // The room that is left in the files is used up first.
                    let last = world.now() + FILLING;
                    while world.disk() == Disk::Open && world.now() < last {
                        world.run_until(world.now() + Duration::from_millis(100));
                    }
                    world.run_until(world.now() + random.span(TROUBLE));
                    fillings += u64::from(world.disk() == Disk::Full);
                    world.fill_disk(false);
                }
            }
        }
    }
    world.fail_sync(false);
    if world.disk() == Disk::Poisoned {
        failures += 1;
        world.crash();
    }
    (failures, fillings)
}

fn draw_pace(random: &mut Random) -> Pace {
    let least = Duration::from_micros(*random.pick(&[100, 100, 1_000, 20_000]));
    Pace { least, most: least.max(Duration::from_micros(*random.pick(&[100, 1_000, 20_000, 200_000]))) }
}

fn draw_profiles(random: &mut Random) -> Vec<Profile> {
    let profile = |filter: &str, persistence| Profile { filter: filter.into(), persistence, ..Profile::default() };
    match random.below(3) {
        0 => vec![profile("#", Persistence::Persistent)],
        1 => vec![profile("a/+", Persistence::Volatile), profile("a/#", Persistence::Persistent)],
        _ => vec![profile("+/b/#", Persistence::Persistent), profile("c/#", Persistence::Volatile)],
    }
}

fn draw_config(random: &mut Random, may: May) -> Config {
    let mut config = Config { version: VERSION.into(), ..Config::default() };
    config.limits.receive_maximum = *random.pick(&[5, 1024]);
    config.limits.topic_alias_maximum = *random.pick(&[0, 3, 256]);
    config.core.inflight_max = *random.pick(&[4, 1024]);
    config.core.silence_after = Duration::from_secs(*random.pick(&[1, 5, 30]));
    config.core.tracked_queue_bytes = *random.pick(&[2 << 10, 16 << 10, 256 << 10]);
    config.core.logged_event_bytes = EVENT_BYTES_MAX;
    config.core.session_expiry_max = EXPIRY_MAX;
    let max_retain = random.pick(&[None, None, None, Some(1), Some(5)]).map(Duration::from_secs);
    config.core.max_retain = max_retain.filter(|_| may.follow);
    config
}

fn populate(world: &mut World<'_>, random: &mut Random) {
    let now = world.now();
    for number in 0..random.between(2, 10) {
        let mut persona = Persona::draw(random);
        persona.numbers = persona.version == Version::V5_0 && random.chance(500);
        persona.is_told_names = persona.version == Version::V5_0 && number % 2 == 0;
        let link = persona.link;
        let client = Honest::new(format!("c{number}"), persona, random.fork(), now);
        world.add_at(Client::Honest(Box::new(client)), link, None);
    }
    let persona = Persona::draw(random);
    let client = Honest::new("local".to_owned(), persona, random.fork(), now);
    world.add_at(Client::Honest(Box::new(client)), Link::LAN, None);
}

/// Adds clients that know their position, and in some worlds a witness that tells the ledger about
/// unlogged events.
fn follow(world: &mut World<'_>, random: &mut Random) {
    let now = world.now();
    if random.chance(600) {
        let witness = Follower::new("witness".to_owned(), Habits::witness(), random.fork(), now);
        world.add(Client::Follower(Box::new(witness)), Link::PERFECT);
    }
    for number in 0..random.below(5) {
        let habits = Habits::draw_logged(random);
        let link = habits.link;
        let client = Follower::new(format!("f{number}"), habits, random.fork(), now);
        world.add(Client::Follower(Box::new(client)), link);
    }
}
