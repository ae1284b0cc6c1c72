//! Draws a world, and what happens in it, from its seed.

use std::time::Duration;

use whimbrel_core::cache::{Capacity, DefaultPlan, Plan as Cache, Policy};
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::Time;
use whimbrel_mqtt::Config;

use super::client::{Class, Client, Role, Trade};
use super::clock::AHEAD_MAX;
use super::line::Edge;
use super::logs::Log;
use super::net::Fabric;
use super::world::{Fault, World};
use crate::engine::{BrokerStream, BuiltIn};
use crate::random::Random;
use crate::rig::START;
use crate::trunk::Shape;
use crate::wan::{Jitter, Loss, WanProfile};

/// How long storms last, in seconds.
const STORM: [u64; 3] = [5, 10, 20];

/// The payload of the largest events where there are disks, bytes: with everything around it it
/// must fit into a batch of the log.
const LOGGED_BYTES_MAX: u64 = 4_000;

/// With more brokers than this all links have a steady delay.
const MANY: usize = 30;

/// The number of brokers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// As drawn from the seed: mostly few.
    Drawn,
    /// A given number, at least two.
    Of(usize),
}

/// The drawn course of a world.
pub(super) struct Plan {
    pub(super) storm: Duration,
    pub(super) crashes: u64,
    /// No client changes its subscriptions, and no broker loses its state.
    pub(super) is_steady: bool,
}

pub(super) fn config(seed: u64) -> Config {
    let mut random = Random::new(seed ^ 0x636f_6e66_6967);
    let mut config = Config::default();
    config.core.silence_after = Duration::from_secs(*random.pick(&[1, 5, 30]));
    config
}

/// Fills a world.
pub(super) fn world(world: &mut World<'_>, size: Size) -> Plan {
    // A hundred brokers that start at the same moment need seconds until they can ask each other
    // for sessions (decision 13, Open).
    world.net.moves_sessions = matches!(size, Size::Drawn);
    let mut random = world.random.fork();
    let storm = Duration::from_secs(*random.pick(&STORM));
    let count = match size {
        Size::Of(count) => count,
        Size::Drawn if random.chance(30) => random.between(10, 20) as usize,
        Size::Drawn => random.between(2, 6) as usize,
    };
    if random.chance(200) {
        world.net.cache = Some(tiny(&mut random));
        world.book.is_tiny = true;
    }
    let is_apart = random.chance(500);
    let mut drawn = random.clone().fork();
    let mut timed = random.clone().fork().fork();
    world.net.terms.deadline = deadline(&mut timed);
    let drifts = timed.chance(500);
    let engines = world.engines;
    let has_disks = drawn.chance(600) || engines.is_some();
    for _ in 0..count {
        let ahead = if is_apart { ahead(&mut random) } else { 0 };
        let log = (has_disks && drawn.chance(550)).then(|| log(&mut drawn, engines));
        let node = world.add_machine(ahead, log);
        world.net.nodes[node].clock.ppm = if drifts { drift(&mut timed) } else { 0 };
    }
    links(&mut world.net, &mut random, count);
    let changes = random.chance(700);
    clients(world, &mut random, (count, changes));
    durable(world, &mut drawn, changes);
    let mut plan = Plan { storm, crashes: 0, is_steady: !changes };
    let mut faults = faults(world, &mut random, &mut plan, is_apart);
    if engines.is_some() {
        faults.extend(ends(world, &mut drawn, &mut plan));
    }
    world.plan(faults);
    plan
}

/// A cache that does not hold the events of a few seconds.
pub(super) fn tiny(random: &mut Random) -> Cache {
    let capacity = Capacity::Events(*random.pick(&[4, 20, 100]));
    Cache { default: DefaultPlan { capacity, policy: Policy::Lrp }, ..Cache::default() }
}

/// Clocks are off by nothing, by some seconds, or by years.
fn ahead(random: &mut Random) -> i64 {
    let most = *random.pick(&[Duration::from_millis(10), Duration::from_secs(30), AHEAD_MAX]);
    let span = random.below(most.as_nanos() as u64) as i64;
    if random.chance(500) { span } else { -span }
}

/// The deadline of all topics, in half of the worlds.
pub(super) fn deadline(random: &mut Random) -> Option<Duration> {
    let millis = *random.pick(&[50, 200, 2_000]);
    random.chance(500).then_some(Duration::from_millis(millis))
}

/// By how much a clock runs faster than the world's: at most 100 parts per million, either way.
pub(super) fn drift(random: &mut Random) -> i64 {
    random.below(201) as i64 - 100
}

/// A disk. In most worlds everything that is published there is logged, otherwise what is in a
/// durable interest.
fn log(random: &mut Random, engines: Option<BuiltIn>) -> Log {
    let persistent = Profile { filter: "#".into(), persistence: Persistence::Persistent, ..Profile::default() };
    let profiles = if random.chance(600) { vec![persistent] } else { Vec::new() };
    match engines {
        Some(built_in) => Log::on(BrokerStream::draw(random, built_in), profiles, random.fork()),
        None => Log::new(profiles, random.fork()),
    }
}

/// Ends of processes whose logs are on engines, with their disks or without.
fn ends(world: &World<'_>, random: &mut Random, plan: &mut Plan) -> Vec<(Time, Fault)> {
    let (mut at, mut faults) = (START + random.span(Duration::from_secs(2)), Vec::new());
    let every = *random.pick(&[Duration::from_secs(1), Duration::from_secs(4)]);
    let machines: Vec<usize> = world.book.disks.iter().copied().collect();
    while at < START + plan.storm && !machines.is_empty() {
        let node = *random.pick(&machines);
        let lasts = if random.chance(300) { Duration::ZERO } else { random.span(Duration::from_secs(3)) };
        faults.push((at, Fault::Crash(node, random.chance(500))));
        faults.push((at + lasts, Fault::Start(node, 0)));
        plan.crashes += 1;
        at = at + random.span(every) + Duration::from_millis(1);
    }
    plan.is_steady &= plan.crashes == 0;
    faults
}

/// Adds clients whose session is kept by a broker with a disk.
fn durable(world: &mut World<'_>, random: &mut Random, changes: bool) {
    let begins = START + Duration::from_millis(1);
    for node in world.book.disks.clone() {
        for _ in 0..random.below(3) {
            let every = Duration::from_millis(*random.pick(&[300, 2_000, 8_000]));
            let role = Client::life(Class::Durable, changes.then_some(every), random);
            let wake = begins + random.span(Duration::from_secs(2));
            let name = format!("d{}", world.clients.len());
            let client = Client::new(name, node, role, random.fork(), wake);
            world.add(client);
        }
    }
}

pub(super) fn links(net: &mut Fabric, random: &mut Random, count: usize) {
    let kind = random.below(6);
    let mut pairs: Vec<(usize, usize)> = match kind {
        0 => (1..count).map(|node| (node - 1, node)).collect(),
        1 => (0..count).map(|node| (node, (node + 1) % count)).collect(),
        2 => (1..count).map(|node| (0, node)).collect(),
        3 => (1..count).map(|node| (random.below(node as u64) as usize, node)).collect(),
        4 if count <= 10 => (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other))).collect(),
        _ => {
            let tree = (1..count).map(|node| (random.below(node as u64) as usize, node)).collect::<Vec<_>>();
            let more =
                (0..count / 2).map(|_| (random.below(count as u64) as usize, random.below(count as u64) as usize));
            tree.into_iter().chain(more).collect()
        }
    };
    pairs.retain(|(one, other)| one != other);
    if random.chance(100) {
        let node = random.below(count as u64) as usize;
        pairs.push((node, node));
    }
    if random.chance(200) {
        let (one, other) = *random.pick(&pairs);
        pairs.push(if random.chance(500) { (one, other) } else { (other, one) });
    }
    let is_lan = random.chance(200);
    // Each change of a delay is told to all brokers: many of them with unsteady links would do
    // little else.
    let is_steady = count > MANY;
    for (one, other) in pairs {
        let ends = if random.chance(500) { (one, other) } else { (other, one) };
        let mut profiles = if is_lan { [lan(); 2] } else { [profile(random), profile(random)] };
        if is_steady {
            profiles = profiles.map(|profile| WanProfile { jitter: Jitter::NONE, ..profile });
        }
        let shape = Shape { profiles, window: *random.pick(&[64 << 10, 1 << 20]), ..Shape::over(WanProfile::PERFECT) };
        let mut edge = Edge::new(ends, shape);
        // Two such edges between the same brokers would replace each other for ever: a broker that
        // is told of another link waits until the present one has ended.
        let is_parallel = |other: &Edge| other.is_stubborn && other.ends == edge.ends;
        edge.is_stubborn = random.chance(100) && !net.edges.iter().any(is_parallel);
        net.add_edge(edge);
    }
}

fn lan() -> WanProfile {
    WanProfile { delay: Duration::from_micros(100), rate: 125_000_000, queue: 4 << 20, ..WanProfile::PERFECT }
}

fn profile(random: &mut Random) -> WanProfile {
    let delay = Duration::from_millis(*random.pick(&[1, 5, 20, 80, 150]));
    WanProfile {
        delay,
        jitter: *random.pick(&[Jitter::NONE, Jitter::Uniform(Duration::from_millis(2)), Jitter::Uniform(delay)]),
        reorders: random.chance(300),
        loss: *random.pick(&[Loss::NONE, Loss::independent(1_000), Loss::bursts(20_000, 4), Loss::bursts(100_000, 3)]),
        rate: *random.pick(&[250_000, 2_000_000, 125_000_000]),
        queue: *random.pick(&[64 << 10, 1 << 20]),
        ..WanProfile::PERFECT
    }
}

fn clients(world: &mut World<'_>, random: &mut Random, (count, changes): (usize, bool)) {
    let place = |random: &mut Random| random.below(count as u64) as usize;
    let begins = START + Duration::from_millis(1);
    let pause = Duration::from_millis(*random.pick(&[20, 100, 500]));
    let qos = *random.pick(&[[0, 1, 0], [1, 3, 1], [3, 1, 0]]);
    let bytes: u64 = *random.pick(&[0, 200, 200, 20_000]);
    let bytes = if world.book.disks.is_empty() { bytes } else { bytes.min(LOGGED_BYTES_MAX) };
    for number in 0..random.between(1, 4) {
        let retained = *random.pick(&[0, 50, 300]);
        let role = Role::Publisher(Trade { pause, retained, bytes, qos });
        let wake = begins + random.span(Duration::from_secs(1));
        let node = place(random);
        let client = Client::new(format!("p{number}"), node, role, random.fork(), wake);
        world.add(client);
    }
    for number in 0..random.between(2, 8).max(count as u64 / 4) {
        let class = [Class::Plain, Class::Noticed, Class::SemiDurable][random.weighted(&[2, 2, 3])];
        let every = Duration::from_millis(*random.pick(&[300, 2_000, 8_000]));
        let role = Client::life(class, changes.then_some(every), random);
        let wake = begins + random.span(Duration::from_secs(2));
        let node = place(random);
        let client = Client::new(format!("s{number}"), node, role, random.fork(), wake);
        world.add(client);
    }
}

/// The faults during the storm.
fn faults(world: &World<'_>, random: &mut Random, plan: &mut Plan, is_apart: bool) -> Vec<(Time, Fault)> {
    let (edges, nodes) = (world.net.edges.len() as u64, world.net.nodes.len() as u64);
    let mut faults = Vec::new();
    let weights = [4, u64::from(random.chance(700)), u64::from(random.chance(300)), u64::from(random.chance(300))];
    let weights = weights.map(|weight| weight * random.below(3));
    if weights.iter().sum::<u64>() == 0 {
        return faults;
    }
    let every = *random.pick(&[Duration::from_secs(1), Duration::from_secs(4)]);
    let mut at = START + random.span(every);
    while at < START + plan.storm {
        let mean = *random.pick(&[Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(8)]);
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
                plan.crashes += 1;
                let node = random.below(nodes) as usize;
                faults.push((at, Fault::Crash(node, random.chance(500))));
                let ahead = if is_apart { ahead(random) } else { 0 };
                faults.push((at + lasts, Fault::Start(node, ahead)));
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
    plan.is_steady &= plan.crashes == 0;
    faults
}

/// The storm is over: everything works.
pub(super) fn heal(world: &mut World<'_>) {
    world.plan(Vec::new());
    for edge in 0..world.net.edges.len() {
        world.happen(Fault::Heal(edge));
    }
    for node in 0..world.net.nodes.len() {
        let ahead = world.net.nodes[node].clock.ahead;
        world.happen(Fault::Start(node, ahead));
    }
}
