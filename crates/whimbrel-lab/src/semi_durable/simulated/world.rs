//! Plays a scenario.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use anyhow::Result;
use whimbrel_core::{
    Attach, Core, Durability, Filter, Following, Input, Interest, Limits, Link, Publish, RetainHandling, Start,
};
use whimbrel_event::{AttributesBuf, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick, Time};
use whimbrel_selector::Selector;
use whimbrel_sim::access::Access;
use whimbrel_sim::link::Arrival;
use whimbrel_sim::mobility::{Node, State, Stay};
use whimbrel_sim::random::Random;

use super::radio::{Backbone, Carried, Radio, Shared, arrived};
use super::scenario::{ATTRIBUTE, CLASSES, Scenario, TOPIC, VALUES};
use super::subscriber::{Published, Subscriber};
use super::tally::{Outcome, Tally};

/// When every simulation begins.
const START: Time = Time::from_nanos(1_700_000_000_000_000_000);

/// From the publisher's broker to each of the others: one hears of everything later than the other.
const DELAYS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(30)];

/// Plays `scenario` with the randomness of `seed`: events, outages and moves are the same whatever is kept and overwritten.
///
/// # Errors
/// When the scenario is impossible.
pub fn play(scenario: &Scenario, seed: u64) -> Result<Outcome> {
    let mut world = World::new(scenario, seed)?;
    world.run(scenario.warm_up());
    for subscriber in &mut world.subscribers {
        subscriber.counted.start = world.logs[subscriber.class].len();
    }
    world.run(scenario.length);
    world.finish();
    let mut classes = vec![Tally::default(); CLASSES];
    for mut subscriber in world.subscribers {
        subscriber.end(&world.logs[subscriber.class]);
        classes[subscriber.class].add(subscriber.tally);
    }
    Ok(Outcome { classes })
}

/// A broker that subscribers come to.
struct Broker {
    core: Core,
    delay: Duration,
    /// When what the publisher's broker knows arrives.
    coming: VecDeque<(Time, Carried)>,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A broker goes on with what it could not finish, or a timer is due.
    Deadline(usize),
    /// Knowledge arrives at a broker.
    Knowledge(usize),
    /// The shared link moves.
    Access,
    /// A subscriber comes, goes or moves.
    Move(usize),
    /// An event is published.
    Publish,
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Time,
    origin: Core,
    brokers: Vec<Broker>,
    subscribers: Vec<Subscriber>,
    nodes: Vec<Node>,
    /// By subscriber: the broker it is at.
    places: Vec<Option<usize>>,
    /// When which subscriber's stay ends, and what follows.
    moves: BinaryHeap<Reverse<(Time, usize)>>,
    selectors: Vec<Selector>,
    shared: Option<Shared>,
    events: Events,
    logs: Vec<Vec<Published>>,
    pubend: PubendId,
    /// Subscribers stay where they are once they are connected, and publishing ends when all are.
    ending: bool,
}

/// What is published, and when.
struct Events {
    random: Random,
    interval: Duration,
    next: Time,
    body: Vec<u8>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Result<World<'a>> {
        let mut random = Random::new(seed);
        let (mut nodes_random, events_random) = (random.fork(), random.fork());
        let broker = |delay| -> Result<Broker> {
            let mut core = Core::new(Limits::default(), seed, START);
            core.set_buffer(vec![Interest { filter: TOPIC.into(), selector: None }]);
            core.set_cache(START, scenario.plan()?);
            Ok(Broker { core, delay, coming: VecDeque::new() })
        };
        let covered = |class: usize| {
            let lrp = scenario.policy == whimbrel_core::cache::Policy::Lrp;
            (scenario.durability == Durability::SemiDurable && lrp).then_some(scenario.capacities[class] as usize)
        };
        let classes = || (0..scenario.subscribers).map(|index| index % CLASSES);
        let node = |index| Node::new(scenario.mobility, index / CLASSES % DELAYS.len(), nodes_random.fork());
        let nodes: Result<Vec<Node>, _> = (0..scenario.subscribers).map(node).collect();
        let mut world = World {
            scenario,
            now: START,
            origin: Core::new(Limits::default(), seed + 1, START),
            brokers: DELAYS.map(broker).into_iter().collect::<Result<_>>()?,
            subscribers: classes().map(|class| Subscriber::new(class, covered(class))).collect(),
            nodes: nodes.map_err(|why| anyhow::anyhow!("no subscriber can move like that: {why:?}"))?,
            places: vec![None; scenario.subscribers],
            moves: BinaryHeap::new(),
            selectors: (0..CLASSES).map(Scenario::selector).collect::<Result<_>>()?,
            shared: scenario.access.map(|shape| Shared {
                access: Access::new(shape),
                members: vec![None; scenario.subscribers],
                full: vec![false; scenario.subscribers],
            }),
            events: Events {
                random: events_random,
                interval: Duration::from_secs_f64(1.0 / scenario.rate),
                next: START,
                body: vec![b'.'; scenario.body],
            },
            logs: vec![Vec::new(); CLASSES],
            pubend: PubendId(0),
            ending: false,
        };
        world.introduce();
        (0..scenario.subscribers).for_each(|index| world.begin_stay(index));
        Ok(world)
    }

    /// The publisher comes, and the brokers hear of its broker's streams.
    fn introduce(&mut self) {
        let attach = Attach {
            link: Link(0),
            client_id: "publisher",
            clean_start: true,
            expiry: Duration::ZERO,
            window: u16::MAX,
            will: None,
            without_copy: false,
        };
        self.origin.handle(START, Input::Attach(attach), &mut Backbone::default());
        self.publish();
        self.pubend = self.brokers[0].coming[0].1.pubend;
        for broker in &mut self.brokers {
            let host = Input::Host {
                host: self.pubend.host(),
                reliable: 4,
                best_effort: 4,
                birth: Tick(START.as_nanos() - 1),
            };
            broker.core.handle(START, host, &mut Backbone::default());
        }
    }

    /// Lets time pass.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, step)) = self.next_step().filter(|(at, _)| *at <= end) {
            self.take(at, step);
        }
        self.now = end;
    }

    /// Lets all who are away come back and get what they missed; what was published until then is counted.
    fn finish(&mut self) {
        self.ending = true;
        for index in 0..self.subscribers.len() {
            if self.places[index].is_some() {
                self.count_no_more(index);
            }
        }
        let quiet = |world: &World<'_>| {
            let coming = world.brokers.iter().any(|broker| !broker.coming.is_empty());
            let moving = world.shared.as_ref().is_some_and(|shared| shared.access.next_change().is_some());
            let due = |broker: &Broker| broker.core.next_deadline().is_some_and(|(at, _)| at <= world.now);
            !coming && !moving && !world.brokers.iter().any(due)
        };
        while self.places.contains(&None) || !quiet(self) {
            let (at, step) = self.next_step().expect("somebody is still to come back, or something is on its way");
            self.take(at, step);
        }
    }

    fn count_no_more(&mut self, index: usize) {
        let subscriber = &mut self.subscribers[index];
        subscriber.counted.end = self.logs[subscriber.class].len();
    }

    fn next_step(&self) -> Option<(Time, Step)> {
        let deadlines = self.brokers.iter().enumerate().filter_map(|(index, broker)| {
            let (at, _) = broker.core.next_deadline()?;
            Some((at.max(self.now), Step::Deadline(index)))
        });
        let coming = self
            .brokers
            .iter()
            .enumerate()
            .filter_map(|(index, broker)| Some((broker.coming.front()?.0, Step::Knowledge(index))));
        let shared = self.shared.as_ref().and_then(|shared| Some((shared.access.next_change()?, Step::Access)));
        let moves = self.moves.peek().map(|Reverse((at, index))| (*at, Step::Move(*index)));
        let publishing = !self.ending || self.places.contains(&None);
        let publish = publishing.then_some((self.events.next, Step::Publish));
        // Of what happens at the same time, the first here comes first.
        deadlines.chain(coming).chain(shared).chain(moves).chain(publish).min_by_key(|(at, _)| *at)
    }

    fn take(&mut self, at: Time, step: Step) {
        assert!(at >= self.now, "time runs forward");
        self.now = at;
        match step {
            Step::Deadline(broker) => self.tell(broker, Input::Deadline),
            Step::Knowledge(broker) => {
                let (_, carried) = self.brokers[broker].coming.pop_front().expect("it was the next step");
                self.tell(broker, Input::Knowledge(carried.segment()));
            }
            Step::Access => self.move_bytes(),
            Step::Move(index) => {
                self.moves.pop();
                if !self.ending || self.places[index].is_none() {
                    self.end_stay(index);
                    self.begin_stay(index);
                }
            }
            Step::Publish => self.publish(),
        }
    }

    fn tell(&mut self, broker: usize, input: Input<'_>) {
        let World { now, pubend, subscribers, logs, shared, brokers, .. } = self;
        let mut radio = Radio { now: *now, pubend: *pubend, subscribers, logs, shared: shared.as_mut() };
        brokers[broker].core.handle(*now, input, &mut radio);
    }

    fn publish(&mut self) {
        let Events { random, interval, next, body } = &mut self.events;
        let value = random.below(VALUES);
        let importance = random.between(1, u64::from(whimbrel_event::IMPORTANCE_MAX)) as u8;
        *next = self.now + *interval;
        let mut attributes = AttributesBuf::new();
        attributes.push(ATTRIBUTE, &value.to_string());
        let event = EventRef {
            topic: TOPIC,
            attributes: attributes.as_attributes(),
            payload: body,
            headers: Headers::EMPTY,
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance,
            expires: None,
            deadline_ms: None,
            publisher: Publisher::UNKNOWN,
        };
        let mut out = Backbone::default();
        let publish = Publish { link: Link(0), tag: 1, retain: false, number: None, event };
        self.origin.handle(self.now, Input::Publish(publish), &mut out);
        let class = value as usize * CLASSES / VALUES as usize;
        for carried in out.segments {
            self.logs[class].push(Published { tick: carried.upto, importance });
            for broker in &mut self.brokers {
                broker.coming.push_back((self.now + broker.delay, carried.clone()));
            }
        }
    }

    /// What has come over the shared link goes to its subscribers, and brokers may send again to those that have room.
    fn move_bytes(&mut self) {
        let mut open = Vec::new();
        let World { now, pubend, subscribers, logs, shared, .. } = self;
        let Some(shared) = shared else { return };
        while let Some((member, arrival)) = shared.access.read(*now) {
            let index = shared.members.iter().position(|other| *other == Some(member));
            let index = index.expect("what is on its way to somebody who left is not read");
            if let Arrival::Bytes(bytes) = arrival {
                arrived(&bytes, *pubend, &mut subscribers[index], logs);
            }
        }
        for (index, full) in shared.full.iter_mut().enumerate().filter(|(_, full)| **full) {
            if shared.members[index].is_some_and(|member| shared.access.has_room(member)) {
                *full = false;
                open.push(index);
            }
        }
        for index in open {
            let broker = self.places[index].expect("who has room is there");
            self.tell(broker, Input::Writable { link: Link(index as u32) });
        }
    }

    fn end_stay(&mut self, index: usize) {
        let Some(broker) = self.places[index].take() else { return };
        self.tell(broker, Input::Detach { link: Link(index as u32), publish_will: false, expiry: None });
        self.subscribers[index].leave(self.now);
        if let Some(shared) = &mut self.shared {
            shared.full[index] = false;
            if let Some(member) = shared.members[index].take() {
                shared.access.leave(member);
            }
        }
    }

    fn begin_stay(&mut self, index: usize) {
        let Stay { duration, state, broker } = self.nodes[index].next().expect("its stays never end");
        if state == State::Connected {
            self.connect(index, broker);
        }
        let stays = self.ending && state == State::Connected;
        if stays {
            self.count_no_more(index);
        } else {
            self.moves.push(Reverse((self.now + duration, index)));
        }
    }

    fn connect(&mut self, index: usize, broker: usize) {
        self.places[index] = Some(broker);
        if let Some(shared) = &mut self.shared {
            shared.members[index] = Some(shared.access.join());
        }
        let subscriber = &mut self.subscribers[index];
        let class = subscriber.class;
        subscriber.arrive(self.now, &self.logs[class]);
        let (link, token) = (Link(index as u32), subscriber.token.take());
        let attach = Attach {
            link,
            client_id: &format!("subscriber-{index}"),
            clean_start: true,
            expiry: Duration::ZERO,
            window: u16::MAX,
            will: None,
            without_copy: false,
        };
        self.tell(broker, Input::Attach(attach));
        let kept = self.scenario.durability == Durability::SemiDurable;
        let selector = self.selectors[class].clone();
        let filter = Filter {
            filter: TOPIC,
            qos: Qos::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::DoNotSend,
            identifier: 0,
            selector: Some(&selector),
            following: Following {
                durability: self.scenario.durability,
                start: token.as_ref().map_or(Start::Own, |token| Start::Token(token, &[])),
                by_token: kept,
                notices: kept,
                wants_token: kept,
            },
        };
        self.tell(broker, Input::Subscribe { link, tag: 1, filters: &[filter] });
    }
}
