//! The measured figures of one world.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use whimbrel_core::Link;
use whimbrel_event::Time;

use super::map::Map;
use super::world::{Burst, Ground, REST_KINDS, World};
use crate::bench::process::resident_bytes;
use crate::cores::meter::{Kind, Meter};

/// How long any step may take, at most.
const MOST: Duration = Duration::from_secs(600);

/// The time until silence is told as rarely as ever after the last change.
const CALM: Duration = Duration::from_secs(45);

/// A whole period of idle traffic.
const REST: Duration = Duration::from_secs(30);

/// The time between two new subscriptions at each broker during churn, and the length of the churn.
const CHURN_EVERY: Duration = Duration::from_secs(10);
const CHURN: Duration = Duration::from_secs(3);

/// The number of events whose mean cost is taken.
const EVENTS: usize = 2_000;

/// Events come in bursts: brokers share one processor here, and the work of all others between two
/// events is not that of a broker with its own.
const BURST: Burst = Burst { events: 50, pause: Duration::from_micros(10), every: Duration::from_millis(25) };

/// The time between two events while something is gone.
const STEADY: Duration = Duration::from_millis(20);

/// How long events continue after something is gone.
const GO_ON: Duration = Duration::from_secs(8);

/// A topic that one broker wants.
const ONE: &str = "probe/one";

/// A topic that a tenth of the brokers want.
const WIDE: &str = "probe/wide";

/// See the module's documentation. Times are in seconds, processor times in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The number of brokers, and of subscriptions over all of them.
    pub brokers: usize,
    pub subscriptions: usize,
    pub links: usize,
    /// The times from the simultaneous start of all brokers: until all reach each other, and until
    /// all interests are in force.
    pub start: [f64; 2],
    /// The bytes that were sent until then on each link.
    pub start_bytes: f64,
    /// The number of entries that a broker holds for the overlay.
    pub entries: f64,
    pub bytes: f64,
    /// The process's memory, per broker.
    pub resident: f64,
    /// Bytes per second on each link, over both directions: at rest, and while each broker gets a
    /// subscription each 10 s.
    pub rest: f64,
    pub churn: f64,
    /// The processor time of one broker per second at rest, for everything except events: with a
    /// processor to itself, and in turn with all others.
    pub rest_cpu: f64,
    pub rest_cpu_in_turn: f64,
    /// The time until a SUBSCRIBE is answered at rest; the longest while others subscribe.
    pub suback: f64,
    pub suback_churn: f64,
    /// The brokers that did not know of a subscription when it was answered, at rest.
    pub pending: f64,
    /// The cost of an event for one broker: at the publisher's broker, at one on the path, at the
    /// subscriber's.
    pub event: [f64; 3],
    /// The cost of an event for a tenth of all brokers, per each of these, at the publisher's
    /// broker.
    pub wide: f64,
    /// After a link, or a broker, is silently gone: the time until all know it; the longest delay
    /// of an event whose path it was on.
    pub link_gone: [f64; 2],
    pub broker_gone: [f64; 2],
    /// The kinds of state, as lines of text.
    pub kinds: Vec<String>,
}

/// The parts that a quick run leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    calm: Duration,
    rest: Duration,
    churn: Duration,
    events: usize,
}

impl Length {
    /// The full length, or a short one.
    pub fn of(quick: bool) -> Length {
        match quick {
            true => Length {
                calm: Duration::from_secs(2),
                rest: Duration::from_secs(2),
                churn: Duration::from_secs(1),
                events: 50,
            },
            false => Length { calm: CALM, rest: REST, churn: CHURN, events: EVENTS },
        }
    }
}

/// Plays a world and measures it. The world is returned: memory that it frees would be used by the
/// next one, for which the process would then seem to grow less.
///
/// # Errors
/// When an expected state is never reached.
pub fn measure(map: Map, ground: Ground, length: Length, bar: &ProgressBar) -> Result<(Figures, World)> {
    let brokers = map.brokers();
    let before = resident()?;
    let mut figures = Figures { brokers, subscriptions: brokers * ground.each, ..Figures::default() };
    let mut world = World::new(map, ground);
    let say = |what: &str| bar.set_message(format!("{brokers} brokers: {what}"));
    say("begin");
    figures.start[0] = world.until_linked(MOST)?.as_secs_f64();
    figures.start[1] = figures.start[0] + world.until_known(MOST)?.as_secs_f64();
    let (sent, links) = world.sent_bytes();
    (figures.links, figures.start_bytes) = (links, sent as f64 / links as f64);
    say("rest");
    world.run(length.calm);
    let (began, meter) = rest(&mut world, length, &mut figures);
    figures.resident = (resident()? - before).max(0.0) / brokers as f64;
    figures.rest_cpu = figures.rest_cpu_in_turn * world.share_alone(began, &meter)?;
    let publisher = 0;
    let subscriber = world.map.farthest(publisher);
    say("events");
    let (who, whom) = events(&mut world, [publisher, subscriber], length, &mut figures)?;
    say("churn");
    churn(&mut world, length, &mut figures)?;
    world.run(length.rest.min(Duration::from_secs(10)));
    say("a link is gone");
    gone(&mut world, (who, whom), &mut figures, false)?;
    say("a broker is gone");
    gone(&mut world, (who, whom), &mut figures, true)?;
    bar.inc(1);
    Ok((figures, world))
}

fn resident() -> Result<f64> {
    Ok(resident_bytes(std::process::id()).context("looking at the own memory")? as f64)
}

/// Measures a world at rest. Returns since when, and the brokers' times in turn.
fn rest(world: &mut World, length: Length, figures: &mut Figures) -> (Time, Meter) {
    world.meter();
    let began = world.now();
    let (before, links) = world.sent_bytes();
    world.run(length.rest);
    let (after, _) = world.sent_bytes();
    let meter = world.meter();
    let seconds = length.rest.as_secs_f64();
    figures.rest = (after - before) as f64 / links as f64 / seconds;
    let spent: Duration = REST_KINDS.map(|kind| meter.sum(kind)).iter().sum();
    figures.rest_cpu_in_turn = spent.as_secs_f64() * 1e6 / seconds / figures.brokers as f64;
    let sizes = world.sizes();
    figures.entries = sizes.iter().map(|size| size.entries as f64).sum();
    figures.bytes = sizes.iter().map(|size| size.bytes as f64).sum();
    let line =
        |size: &whimbrel_core::overlay::OverlaySize| format!("{} {} ({} B)", size.what, size.entries, size.bytes);
    figures.kinds = sizes.iter().map(line).collect();
    (began, meter)
}

/// One broker publishes events that one broker wants, and events that a tenth of all want.
fn events(
    world: &mut World,
    [from, to]: [usize; 2],
    length: Length,
    figures: &mut Figures,
) -> Result<((usize, Link), (usize, Link))> {
    let (whom, took, pending) = world.ask_for(to, ONE)?;
    (figures.suback, figures.pending) = (took.as_secs_f64(), pending as f64);
    let publisher = world.come_to(&[from])?[0];
    let others: Vec<usize> = (1..figures.brokers).step_by(10).collect();
    for (other, link) in others.iter().zip(world.come_to(&others)?) {
        world.subscribe_to(*other, link, WIDE);
    }
    world.until_known(MOST)?;
    world.run(Duration::from_secs(1));
    let path = world.path(from, to)?;
    let first = world.people.sent.len();
    // Costs of the first event only are not counted.
    world.publish_many((from, publisher), ONE, (10, BURST));
    world.meter();
    world.publish_many((from, publisher), ONE, (length.events, BURST));
    world.run(Duration::from_secs(1));
    let meter = world.meter();
    let came = world.people.delays(whom, first).len();
    ensure!(came == length.events + 10, "{came} of {} events came", length.events + 10);
    let between = &path[1..path.len() - 1];
    let on_the_way =
        between.iter().map(|node| World::each_event(&meter, *node, Kind::Event, length.events)).sum::<f64>();
    figures.event = [
        World::each_event(&meter, from, Kind::Publish, length.events),
        if between.is_empty() { 0.0 } else { on_the_way / between.len() as f64 },
        World::each_event(&meter, to, Kind::Event, length.events),
    ];
    world.publish_many((from, publisher), WIDE, (10, BURST));
    world.meter();
    let some = (length.events / 4).max(1);
    world.publish_many((from, publisher), WIDE, (some, BURST));
    world.run(Duration::from_secs(1));
    let meter = world.meter();
    figures.wide = World::each_event(&meter, from, Kind::Publish, some) / others.len() as f64;
    Ok(((from, publisher), (to, whom)))
}

/// Each broker gets a new subscription now and then.
fn churn(world: &mut World, length: Length, figures: &mut Figures) -> Result<()> {
    let brokers = figures.brokers;
    let clients = world.come_to(&(0..brokers).collect::<Vec<usize>>())?;
    world.run(Duration::from_secs(1));
    let pause = CHURN_EVERY / brokers as u32;
    let count = (length.churn.as_nanos() / pause.as_nanos()).max(1) as usize;
    let (before, links) = world.sent_bytes();
    let began = world.now();
    let mut asked = Vec::new();
    for number in 0..count {
        let node = number * 7 % brokers;
        let link = clients[node];
        world.subscribe_to(node, link, &format!("churn/{number}"));
        asked.push((world.now(), link));
        world.run(pause);
    }
    let (after, _) = world.sent_bytes();
    figures.churn = (after - before) as f64 / links as f64 / world.now().since(began).as_secs_f64();
    world.run(Duration::from_secs(3));
    let mut longest = Duration::ZERO;
    for (at, link) in asked {
        let answers = world.people.answered.get_mut(&link).context("a subscription is not answered")?;
        ensure!(!answers.is_empty(), "a subscription is not answered");
        longest = longest.max(answers.remove(0).0.since(at));
    }
    figures.suback_churn = longest.as_secs_f64();
    Ok(())
}

/// A link or a broker on the path of events is silently gone.
fn gone(
    world: &mut World,
    ((from, publisher), (to, whom)): ((usize, Link), (usize, Link)),
    figures: &mut Figures,
    is_broker: bool,
) -> Result<()> {
    let path = world.path(from, to)?;
    let links = path.windows(2).map(|pair| [pair[0].min(pair[1]), pair[0].max(pair[1])]);
    let parts: Vec<[usize; 2]> = match is_broker {
        true => path[1..path.len() - 1].iter().map(|node| [*node, *node]).collect(),
        false => links.collect(),
    };
    // If each is indispensable, no event has another path.
    let Some(part) = parts.into_iter().find(|part| world.map.holds_without(*part)) else { return Ok(()) };
    let first = world.people.sent.len();
    for _ in 0..10 {
        world.publish((from, publisher), ONE);
        world.run(STEADY);
    }
    if is_broker {
        world.vanish(part[0]);
    } else {
        world.cut(part);
    }
    let began = world.now();
    let mut known = None;
    let mut sent = first + 10;
    while world.now().since(began) < GO_ON {
        world.publish((from, publisher), ONE);
        sent += 1;
        world.run(STEADY);
        if known.is_none() && world.is_gone(part) {
            known = Some(world.now().since(began));
        }
    }
    let known = match known {
        Some(known) => known,
        None => world.now().since(began) + world.until_gone(part, MOST)?,
    };
    world.run(Duration::from_secs(5));
    let delays = world.people.delays(whom, first);
    ensure!(delays.len() == sent - first, "{} of {} events came", delays.len(), sent - first);
    let longest = delays.into_iter().max().unwrap_or_default();
    let found = [known.as_secs_f64(), longest.as_secs_f64()];
    if is_broker {
        figures.broker_gone = found;
    } else {
        figures.link_gone = found;
        world.map.links.retain(|link| *link != part);
    }
    Ok(())
}
