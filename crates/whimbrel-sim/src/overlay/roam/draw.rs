//! Draws a world of roaming clients, and the faults in it, from its seed.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::Config;

use super::client::{Keeper, Life, Role};
use super::habit::Habit;
use super::publisher::{Trade, VOLATILE};
use super::world::{Fault, World};
use crate::overlay::client::Wish;
use crate::overlay::draw::{deadline, drift, links, tiny};
use crate::random::Random;
use crate::rig::START;
use crate::trunk::Side;
use crate::wan::{Loss, WanProfile};

/// How long storms last, in seconds.
const STORM: [u64; 3] = [4, 6, 10];

/// When clients begin: brokers have found each other by then.
pub(super) const BEGIN: Duration = Duration::from_millis(1_500);

/// The greatest step forward of a clock when its broker is started again, nanoseconds.
const STEP_MAX: u64 = 200_000_000_000;

/// The greatest step back, nanoseconds: publishers wait until the broker's streams may continue.
const BACK_MAX: u64 = 300_000_000;

/// Where clients go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wander {
    /// To any broker, in storms.
    Everywhere,
    /// Away and back to their own broker, in storms in which no disk is lost.
    Bound,
    /// As [`Wander::Bound`], without storms.
    Home,
}

/// The deadline of all topics where all have one, if none is drawn.
const URGENT: Duration = Duration::from_millis(100);

/// How long brokers stand still, at most.
const STILL_MAX: Duration = Duration::from_millis(1_500);

/// When and how long brokers stand still in an overloaded world. Nothing else in the world is drawn
/// differently.
pub(super) fn stills(world: &World<'_>, storm: Duration, seed: u64) -> Vec<(Time, Fault)> {
    let mut random = Random::new(seed ^ 0x0073_7469_6c6c);
    let every = *random.pick(&[Duration::from_millis(300), Duration::from_millis(800), Duration::from_secs(2)]);
    let nodes = world.net.nodes.len() as u64;
    let (mut at, mut stills) = (START + BEGIN, Vec::new());
    while at < START + BEGIN + storm {
        // In 300 of 1,000 cases all brokers, as if they were on one machine.
        let all = random.chance(300);
        let span = random.span(STILL_MAX);
        let which = random.below(nodes) as usize;
        stills.extend(
            (0..nodes as usize).filter(|node| all || *node == which).map(|node| (at, Fault::Still(node, span))),
        );
        at = at + random.span(every) + Duration::from_millis(1);
    }
    stills
}

/// How long a link is disturbed, at most.
const DISTURBED_MAX: Duration = Duration::from_secs(3);

/// Disturbances of links: they become slow, lossy or narrow, in one direction or both, or are cut
/// again and again. Nothing else in the world is drawn differently.
pub(super) fn disturbances(world: &World<'_>, storm: Duration, seed: u64) -> Vec<(Time, Fault)> {
    let mut random = Random::new(seed ^ 0x0064_6973_7475);
    let every = *random.pick(&[Duration::from_millis(200), Duration::from_millis(700), Duration::from_secs(2)]);
    let edges = world.net.edges.len() as u64;
    let (mut at, mut faults) = (START + BEGIN, Vec::new());
    while at < START + BEGIN + storm {
        let edge = random.below(edges) as usize;
        let sides = *random.pick(&[[true; 2], [true, false], [false, true]]);
        let end = at + random.span(DISTURBED_MAX);
        match random.below(5) {
            0 => faults.push((at, Fault::Cut(edge, sides))),
            1 => {
                // What is under way at a cut is lost: some must arrive between two of them.
                let delay = world.net.edges[edge].at_first.map(|profile| profile.typical()).into_iter().max();
                let period = Duration::from_millis(*random.pick(&[40, 150, 600])).max(4 * delay.unwrap_or_default());
                let mut flap = at;
                while flap < end {
                    faults.push((flap, Fault::Cut(edge, sides)));
                    faults.push((flap + period / 2, Fault::Heal(edge)));
                    flap = flap + period;
                }
            }
            kind => {
                for side in [Side::Near, Side::Far].into_iter().filter(|side| sides[*side as usize]) {
                    let profile = disturbed(&mut random, kind, world.net.edges[edge].at_first[side as usize]);
                    faults.push((at, Fault::Disturb(edge, side, profile)));
                }
            }
        }
        faults.push((end, Fault::Heal(edge)));
        at = end + random.span(every) + Duration::from_millis(1);
    }
    faults
}

/// A path that has become slow, lossy or narrow.
fn disturbed(random: &mut Random, kind: u64, profile: WanProfile) -> WanProfile {
    match kind {
        2 => WanProfile { delay: profile.delay + Duration::from_millis(random.between(20, 300)), ..profile },
        3 => WanProfile { loss: Loss::independent(random.between(50_000, 500_000)), ..profile },
        _ => WanProfile { rate: random.between(20_000, 200_000), queue: 64 << 10, ..profile },
    }
}

/// The drawn course of a world.
pub(super) struct Plan {
    pub(super) storm: Duration,
    pub(super) faults: Vec<(Time, Fault)>,
}

/// The weights of the kinds of faults.
#[derive(Clone, Copy, Default)]
struct Kinds {
    cuts: u64,
    resets: u64,
    crashes: u64,
    partitions: u64,
    /// How many of 1,000 crashes cost the disk.
    losses: u64,
    /// How many of 1,000 crashes end another broker soon after.
    pairs: u64,
}

pub(super) fn config(seed: u64) -> (Config, Vec<Profile>) {
    let mut random = Random::new(seed ^ 0x636f_6e66_6967);
    let mut config = Config::default();
    config.core.silence_after = Duration::from_secs(*random.pick(&[1, 5, 30]));
    config.core.max_retain = random.pick(&[None, None, Some(1), Some(3)]).map(Duration::from_secs);
    // Each kind of world has position bases seldom and often; nothing else depends on it.
    config.core.base_every = Duration::from_millis([100, 1_000, 300_000][seed as usize % 3]);
    // All in-flight packet ids may have to be dropped in one batch of a small log.
    config.core.inflight_max = *random.pick(&[4, 30, 80]);
    let profile = |filter: &str, persistence| Profile { filter: filter.into(), persistence, ..Profile::default() };
    let mut profiles = Vec::new();
    if random.chance(300) {
        profiles.push(profile(VOLATILE, Persistence::Volatile));
    }
    if random.chance(400) {
        profiles.push(profile("#", Persistence::Persistent));
    }
    (config, profiles)
}

/// Fills a world.
pub(super) fn world(world: &mut World<'_>, wander: Wander) -> Plan {
    world.net.moves_sessions = wander == Wander::Everywhere;
    let mut random = world.random.fork();
    let storm = Duration::from_secs(*random.pick(&STORM));
    let count = [2, 3, 4, random.between(5, 8) as usize][random.weighted(&[3, 9, 4, 3])];
    if random.chance(250) && wander != Wander::Home {
        world.net.cache = Some(tiny(&mut random));
    }
    let mut timed = random.clone().fork().fork();
    let drawn = deadline(&mut timed);
    world.net.terms.deadline = drawn.or(world.is_disturbed.then_some(URGENT));
    let drifts = timed.chance(500) || world.is_disturbed;
    for _ in 0..count {
        let ahead = if random.chance(300) { random.below(2_000_000_000) as i64 } else { 0 };
        world.add_machine(ahead);
        let node = world.net.nodes.len() - 1;
        world.net.nodes[node].clock.ppm = if drifts { drift(&mut timed) } else { 0 };
    }
    links(&mut world.net, &mut random, count);
    let moves = *random.pick(&[400, 1_000, 3_000]);
    subscribers(world, &mut random, count, (moves, wander));
    publishers(world, &mut random, count, wander);
    let drawn = match random.weighted(&[5, 4, 3, 3, 3]) {
        0 => Kinds::default(),
        1 => Kinds { crashes: 1, ..Kinds::default() },
        2 => Kinds { cuts: 1, partitions: 2, resets: 1, ..Kinds::default() },
        3 => Kinds { crashes: 1, losses: 600, ..Kinds::default() },
        _ => Kinds { cuts: 2, resets: 1, crashes: 2, partitions: 1, losses: 200, pairs: 300 },
    };
    let kinds = match wander {
        Wander::Everywhere => drawn,
        Wander::Bound => Kinds { losses: 0, ..drawn },
        Wander::Home => Kinds::default(),
    };
    let kinds = if world.is_disturbed { Kinds::default() } else { kinds };
    let faults = faults(world, &mut random, storm, kinds);
    Plan { storm, faults }
}

fn subscribers(world: &mut World<'_>, random: &mut Random, count: usize, (moves, wander): (u64, Wander)) {
    for number in 0..random.between(3, 6) {
        let keeper = *random.pick(&[Keeper::Client, Keeper::Exactly, Keeper::AtLeast]);
        let mut wish = Wish::draw(random);
        if random.chance(300) {
            wish.filter = "#".to_owned();
        }
        wish.qos = if keeper == Keeper::Exactly { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
        let habit = Habit {
            pause: random.chance(900).then(|| Duration::from_millis(moves)),
            is_bound: wander != Wander::Everywhere,
            away: Duration::from_millis(*random.pick(&[50, 500, 2_000])),
            withholds: *random.pick(&[0, 0, 100]),
            haunts: *random.pick(&[0, 300]),
        };
        let role = Role::Subscriber(Box::new(Life::new(keeper, wish, habit)));
        let node = random.below(count as u64) as usize;
        let wake = START + BEGIN + random.span(Duration::from_millis(300));
        world.add(format!("s{number}"), node, role, wake);
    }
}

fn publishers(world: &mut World<'_>, random: &mut Random, count: usize, wander: Wander) {
    let pause = Duration::from_millis(*random.pick(&[30, 100, 250]));
    for number in 0..random.between(1, 3) {
        let moves = random.chance(500).then(|| Duration::from_millis(*random.pick(&[300, 1_000, 3_000])));
        let mut trade = Trade::new(pause, moves.filter(|_| wander == Wander::Everywhere));
        trade.is_numbered = random.chance(850);
        trade.has_session = random.chance(300);
        trade.volatile = if world.has_volatile() { *random.pick(&[0, 100]) } else { 0 };
        trade.qos = if random.chance(500) { Qos::ExactlyOnce } else { Qos::AtLeastOnce };
        let node = random.below(count as u64) as usize;
        let wake = START + BEGIN + random.span(Duration::from_millis(400));
        world.add(format!("p{number}"), node, Role::Publisher(Box::new(trade)), wake);
    }
}

/// The faults during the storm.
fn faults(world: &World<'_>, random: &mut Random, storm: Duration, kinds: Kinds) -> Vec<(Time, Fault)> {
    let (edges, nodes) = (world.net.edges.len() as u64, world.net.nodes.len() as u64);
    let weights = [kinds.cuts, kinds.resets, kinds.crashes, kinds.partitions];
    let mut faults = Vec::new();
    if weights.iter().sum::<u64>() == 0 {
        return faults;
    }
    let every = *random.pick(&[Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(20)]);
    let end = START + BEGIN + storm;
    let mut at = START + BEGIN + Duration::from_millis(500) + random.span(every.min(storm / 2));
    while at < end {
        let mean = *random.pick(&[Duration::from_millis(300), Duration::from_secs(2), Duration::from_secs(6)]);
        let lasts = random.span(mean);
        match random.weighted(&weights) {
            0 => {
                let edge = random.below(edges) as usize;
                let sides = *random.pick(&[[true; 2], [true; 2], [true, false], [false, true]]);
                faults.push((at, Fault::Cut(edge, sides)));
                faults.push((at + lasts, Fault::Heal(edge)));
            }
            1 => faults.push((at, Fault::Reset(random.below(edges) as usize))),
            2 => {
                let node = random.below(nodes) as usize;
                crash(&mut faults, random, (at, lasts), (node, kinds.losses));
                if random.chance(kinds.pairs) {
                    let (soon, other) = (at + random.span(Duration::from_millis(200)), random.below(nodes) as usize);
                    crash(&mut faults, random, (soon, lasts), (other, kinds.losses));
                }
            }
            _ => {
                // Some brokers are cut off from the others.
                let part: Vec<bool> = (0..nodes).map(|_| random.chance(500)).collect();
                for (edge, known) in world.net.edges.iter().enumerate() {
                    if part[known.ends.0] != part[known.ends.1] {
                        faults.push((at, Fault::Cut(edge, [true; 2])));
                        faults.push((at + lasts, Fault::Heal(edge)));
                    }
                }
            }
        }
        at = at + random.span(every) + Duration::from_millis(1);
    }
    faults
}

fn crash(
    faults: &mut Vec<(Time, Fault)>,
    random: &mut Random,
    (at, lasts): (Time, Duration),
    (node, losses): (usize, u64),
) {
    faults.push((at, Fault::Crash(node, random.chance(600))));
    let step = match random.below(4) {
        0 => -(random.below(BACK_MAX) as i64),
        1 => random.below(STEP_MAX) as i64,
        _ => 0,
    };
    faults.push((at + lasts, Fault::Start(node, step, random.chance(losses))));
}

/// The storm is over: everything works.
pub(super) fn heal(world: &mut World<'_>) {
    world.plan(Vec::new());
    for edge in 0..world.net.edges.len() {
        world.happen(Fault::Heal(edge));
    }
    for node in 0..world.net.machines() {
        world.happen(Fault::Start(node, 0, false));
    }
}
