//! What subscribers are told: how late events are, while clocks drift and a link becomes slow in
//! one direction; and that a known event has not come by its deadline.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::{
    Accepted, Delivery, Durability, Granted, Hop, Kick, Link, LinkOutput, NOTICE_TOPIC, Output, Profile, Refusal, Sent,
};
use whimbrel_event::{
    AcceptedEvent, Attributes, Event, EventId, EventRef, Headers, HostId, PubendId, Publisher, Qos, Reliability, Tick,
    Time,
};
use whimbrel_sim::random::Random;

use super::judge::{DelayCauses, EventKey, HopLog, Judge, LateEvent};
use super::runs::play_all;
use super::scene::{Contender, DEADLINE, EVERY, Preset, Technique};
use super::truth::{Floor, Truth};
use crate::cores::costs::Costs;
use crate::cores::drift::ClockDrift;
use crate::cores::wire::WayTruth;
use crate::cores::{Ask, Clients, Cores, START, Setup, Wish};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "told", rows: &["told-age", "told-overdue"], measure };

/// The delay of each direction of the link, and that of the events' direction later.
const DELAY: Duration = Duration::from_millis(20);
const SLOW_DELAY: Duration = Duration::from_millis(100);

/// By how much each packet's delay differs at most.
const NOISE: f64 = 0.05;

/// By how much the clocks run too fast, millionths.
const DRIFTS: [ClockDrift; 2] = [ClockDrift(50), ClockDrift(-50)];

/// When publishing begins, when the trouble does, and how long events are watched from then on:
/// half of the time over which the least delays are remembered.
const BEGIN: Duration = Duration::from_secs(5);
const TROUBLE: Duration = Duration::from_secs(60);
const WATCHED: Duration = Duration::from_secs(300);
const QUICK_WATCHED: Duration = Duration::from_secs(30);

/// How long a black hole is watched.
const HOLE_WATCHED: Duration = Duration::from_secs(5);

/// How long events take at most after the last was published.
const DRAIN: Duration = Duration::from_secs(5);

/// The publisher's broker, the subscriber's, and one that both have a link to.
const FROM: usize = 0;
const TO: usize = 1;
const BETWEEN: usize = 2;

/// The clients' links.
const PUBLISHER: Link = Link(1);
const SUBSCRIBER: Link = Link(2);

const TOPIC: &str = "alarm";

/// Bytes of an event's body: its number.
const NUMBER_BYTES: usize = 8;

/// The trouble of the link between the publisher's broker and the subscriber's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WayTrouble {
    /// The events' direction takes [`SLOW_DELAY`]; there is no other link.
    SlowOneWay,
    /// Nothing arrives, and there is another way.
    Hole,
}

/// What one event met.
#[derive(Clone, Copy, Debug)]
struct ToldEvent {
    published: Time,
    /// When it arrived at the subscriber's broker.
    here: Option<Time>,
    /// When it was delivered, and its age as the broker told it.
    delivered: Option<(Time, Duration)>,
    /// When the subscriber was told that it was overdue.
    told: Option<Time>,
}

/// The subscriber, and a look at the links of its broker.
#[derive(Debug)]
struct NoticeReader {
    now: Time,
    node: usize,
    drift: ClockDrift,
    fates: Vec<ToldEvent>,
    /// The numbers of events that have arrived.
    numbers: BTreeMap<EventId, usize>,
    /// Events that the subscriber was told to be overdue, and when.
    overdue: Vec<(EventId, Time)>,
    hops: HopLog,
}

/// The number in an event's body.
fn number_of(payload: &[u8]) -> usize {
    u64::from_le_bytes(*payload.first_chunk::<NUMBER_BYTES>().expect("events are numbered")) as usize
}

/// The event of a notice that one is overdue.
fn overdue_of(payload: &[u8]) -> Option<EventId> {
    let told: serde_json::Value = serde_json::from_slice(payload).expect("notices are JSON");
    let text = |name: &str| told[name].as_str().unwrap_or_default();
    (text("kind") == "overdue")
        .then(|| format!("{}:{}", text("pubend"), text("tick")).parse().expect("it names an event"))
}

impl Clients for NoticeReader {
    fn at(&mut self, now: Time, node: usize) {
        (self.now, self.node) = (now, node);
    }
}

impl LinkOutput for NoticeReader {
    fn wants_steps(&self) -> bool {
        true
    }

    fn hop(&mut self, event: &AcceptedEvent<'_>, hop: Hop) {
        let number = number_of(event.event.payload);
        self.hops.record(EventKey { topic: 0, number }, self.node, self.now, hop);
        if self.node == TO && matches!(hop, Hop::Came { .. }) {
            self.numbers.insert(event.id, number);
            self.fates[number].here.get_or_insert(self.now);
        }
    }
}

impl Output for NoticeReader {
    fn attached(&mut self, _: Link, _: bool) {}

    fn refused(&mut self, link: Link, why: Refusal) {
        panic!("client {} was refused: {why:?}", link.0);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        panic!("client {} was thrown out: {why:?}", link.0);
    }

    fn subscribed(&mut self, _: Link, _: u16, results: &[Result<Granted, Refusal>], _: &[Box<str>]) {
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}

    fn accepted(&mut self, _: Link, _: u16, _: Qos, result: Accepted) {
        assert!(matches!(result, Accepted::Routed { .. }), "an event was not accepted: {result:?}");
    }

    fn completed(&mut self, _: Link, _: u16, _: bool) {}

    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, _: Link, delivery: &Delivery<'_>) -> Sent {
        let event = &delivery.accepted.event;
        if event.topic == NOTICE_TOPIC {
            self.overdue.extend(overdue_of(event.payload).map(|id| (id, self.now)));
            return Sent::Open;
        }
        let age = delivery.accepted.age(self.drift.shown_at(self.now));
        self.fates[number_of(event.payload)].delivered.get_or_insert((self.now, age));
        Sent::Open
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct ToldRun {
    trouble: WayTrouble,
    /// Which clock is the fast one.
    is_swapped: bool,
    seed: u64,
    watched: Duration,
}

/// What a run gives.
#[derive(Clone, Debug)]
struct ToldOutcome {
    /// The events that were published after the trouble began.
    fates: Vec<ToldEvent>,
    /// Why those were late that had a way in time.
    causes: DelayCauses,
}

/// How paths are chosen, and how fast.
const CONTENDER: Contender = Contender { version: Technique::Reactive, preset: Preset::Own };

impl ToldRun {
    /// The truth of the links.
    fn truth(&self) -> Truth {
        let good = WayTruth { noise: NOISE, ..WayTruth::steady(DELAY) };
        let mut links = vec![[FROM, TO]];
        if self.trouble == WayTrouble::Hole {
            links.extend([[FROM, BETWEEN], [BETWEEN, TO]]);
        }
        let mut truth = Truth::steady(links.into_iter().map(|ends| (ends, DELAY))).map(|_| good);
        truth.change(0, START + TROUBLE, |side, way| match self.trouble {
            WayTrouble::SlowOneWay if side == 0 => WayTruth { delay: SLOW_DELAY, ..way },
            WayTrouble::SlowOneWay => way,
            WayTrouble::Hole => WayTruth { loss: 1.0, ..way },
        });
        truth
    }

    fn world(&self, truth: &Truth) -> (Cores, NoticeReader) {
        let mut net = Cores::new(Costs::FREE, self.seed << 16);
        let [mut of_from, mut of_to] = DRIFTS;
        if self.is_swapped {
            core::mem::swap(&mut of_from, &mut of_to);
        }
        for drift in [of_from, of_to, ClockDrift::default()] {
            let profile = Profile { filter: TOPIC.into(), deadline: Some(DEADLINE), ..Profile::default() };
            let (routing, pace) = (CONTENDER.version.routing(), CONTENDER.preset.pace());
            net.add(Setup { routing, pace, profiles: vec![profile], drift, ..Setup::default() });
        }
        for link in &truth.links {
            net.link_over(link.ends, link.courses.clone());
        }
        let (fates, numbers, overdue) = (Vec::new(), BTreeMap::new(), Vec::new());
        let hops = HopLog::default();
        (net, NoticeReader { now: START, node: FROM, drift: of_to, fates, numbers, overdue, hops })
    }

    /// Plays the run.
    fn play(&self) -> ToldOutcome {
        let truth = self.truth();
        let (mut net, mut listener) = self.world(&truth);
        net.run_until(START + BEGIN / 2, &mut listener);
        for (node, link) in [(FROM, PUBLISHER), (TO, SUBSCRIBER)] {
            let client = format!("client-{}", link.0);
            net.ask(node, Ask::Attach { link, client, lasting: Duration::ZERO, window: u16::MAX }, &mut listener);
        }
        let wish = Wish {
            filter: Cow::Borrowed(TOPIC),
            selector: None,
            durability: Durability::Nondurable,
            qos: Qos::AtMostOnce,
            from: None,
            by_token: false,
            notices: true,
        };
        net.ask(TO, Ask::Subscribe(SUBSCRIBER, Box::new(wish)), &mut listener);
        let phase = Duration::from_micros(Random::new(self.seed).below(EVERY.as_micros() as u64));
        let mut next = START + BEGIN + phase;
        while next.since(START) < TROUBLE + self.watched {
            net.run_until(next, &mut listener);
            let body = (listener.fates.len() as u64).to_le_bytes();
            listener.fates.push(ToldEvent { published: next, here: None, delivered: None, told: None });
            let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, next, &event(&body));
            net.ask(FROM, Ask::Publish(PUBLISHER, 1, event), &mut listener);
            next = next + EVERY;
        }
        net.run_until(next + DRAIN, &mut listener);
        for (id, at) in core::mem::take(&mut listener.overdue) {
            // Otherwise the notice was about silence.
            if let Some(number) = listener.numbers.get(&id) {
                listener.fates[*number].told.get_or_insert(at);
            }
        }
        let nodes = 0..=BETWEEN;
        let hosts: Vec<HostId> = nodes.map(|node| net.core(node).host()).collect();
        let judge = Judge { truth: &truth, hosts: &hosts, settled: CONTENDER.preset.settled() };
        let causes = judge.count(&listener.hops, &late_events(&truth, &listener.fates));
        listener.fates.retain(|fate| fate.published.since(START) >= TROUBLE);
        ToldOutcome { fates: listener.fates, causes }
    }
}

/// The events that were late, and which an omniscient router would have delivered in time.
fn late_events(truth: &Truth, fates: &[ToldEvent]) -> Vec<LateEvent> {
    let mut floor = Floor::new(truth, BETWEEN + 1);
    let numbered = fates.iter().enumerate();
    let late = numbered.filter(|(_, fate)| fate.delivered.is_none_or(|(at, _)| at.since(fate.published) > DEADLINE));
    let of = |(number, fate): (usize, &ToldEvent)| LateEvent {
        key: EventKey { topic: 0, number },
        to: TO,
        published: fate.published,
    };
    late.map(of).filter(|event| floor.takes(FROM, TO, event.published).is_some_and(|least| least <= DEADLINE)).collect()
}

fn event(payload: &[u8]) -> EventRef<'_> {
    EventRef {
        topic: TOPIC,
        attributes: Attributes::EMPTY,
        payload,
        headers: Headers::EMPTY,
        qos: Qos::AtMostOnce,
        reliability: Reliability::Reliable,
        importance: whimbrel_event::IMPORTANCE_DEFAULT,
        expires: None,
        deadline_ms: None,
        publisher: Publisher::UNKNOWN,
    }
}

/// By how much ages were told wrong, milliseconds: the worst.
fn error_ms(fates: &[ToldEvent]) -> f64 {
    let errors = fates.iter().filter_map(|fate| fate.delivered.map(|(at, age)| at.since(fate.published).abs_diff(age)));
    errors.max().expect("events are delivered").as_secs_f64() * 1e3
}

/// How long after its deadline, or after it was known to exist if that was later, a subscriber was
/// told of each event that had not been delivered by then, milliseconds.
fn told_after_ms(fates: &[ToldEvent]) -> Vec<f64> {
    let mut told = Vec::new();
    // An event's frame names the one before it, and no other.
    for pair in fates.windows(2) {
        let (fate, next) = (pair[0], pair[1]);
        let known = [fate.here, next.here].into_iter().flatten().min().unwrap_or(Time::MAX);
        let due = known.max(fate.published + DEADLINE);
        let (delivered, _) = fate.delivered.expect("events are reliable");
        if delivered > due {
            let at = fate.told.unwrap_or(delivered).min(delivered);
            told.push(at.since(due).as_secs_f64() * 1e3);
        }
    }
    told
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let watched = if effort.quick { QUICK_WATCHED } else { WATCHED };
    let runs = |trouble, watched| {
        let of = move |is_swapped| move |seed| ToldRun { trouble, is_swapped, seed, watched };
        [false, true].into_iter().flat_map(move |is_swapped| (1..=effort.seeds).map(of(is_swapped)))
    };
    let mut jobs: Vec<ToldRun> = runs(WayTrouble::SlowOneWay, watched).collect();
    jobs.extend(runs(WayTrouble::Hole, HOLE_WATCHED));
    let played = play_all(&jobs, bar, ToldRun::play);
    let of = |trouble| {
        let is_it = move |(job, _): &(&ToldRun, &ToldOutcome)| job.trouble == trouble;
        jobs.iter().zip(&played).filter(is_it).map(|(_, outcome)| &outcome.fates)
    };
    let errors: Vec<f64> = of(WayTrouble::SlowOneWay).map(|fates| error_ms(fates)).collect();
    let told: Vec<f64> = of(WayTrouble::Hole).flat_map(|fates| told_after_ms(fates)).collect();
    let age = Head {
        id: "told-age",
        measure: "error of the age that is told, 20 ms become 100 one way while watched, clocks 100 ppm apart, worst",
        unit: "ms",
        paper: None,
        goal: Goal::at_most(5.0),
    };
    let overdue = Head {
        id: "told-overdue",
        measure: "deadline of an event that is known and has not come → its subscriber is told, worst",
        unit: "ms",
        paper: None,
        goal: Goal::at_most(20.0),
    };
    let overdue = if told.is_empty() {
        overdue.unmeasured("no event that was known was missing at its deadline")
    } else {
        overdue.worst(&told).beside(0.0)
    };
    let mut causes = DelayCauses::default();
    played.iter().for_each(|outcome| causes.add(&outcome.causes));
    let notes = vec![
        format!("told: {} events were known and missing at their deadlines", told.len()),
        format!("told: events, {}", causes.text()),
    ];
    Ok(Part { rows: vec![age.worst(&errors).beside(0.0), overdue], notes, charts: Vec::new() })
}
