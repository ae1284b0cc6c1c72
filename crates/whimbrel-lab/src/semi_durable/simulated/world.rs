//! Plays a scenario.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::Result;
use whimbrel_core::{CacheInterest, Durability, Link};
use whimbrel_event::{
    AttributesBuf, Event, EventId, EventRef, Headers, PubendId, Publisher, Qos, Reliability, Tick, Time,
};
use whimbrel_selector::Selector;
use whimbrel_sim::access::Access;
use whimbrel_sim::link::Arrival;
use whimbrel_sim::mobility::{Node, State, Stay};
use whimbrel_sim::random::Random;

use super::radio::{HOME, Radio, Shared, arrived};
use super::scenario::{ATTRIBUTE, CLASSES, Scenario, TOPIC, VALUES};
use super::subscriber::{Published, Subscriber};
use super::tally::{Outcome, Tally};
use crate::cores::costs::Costs;
use crate::cores::{Ask, Cores, START, Setup, Wish};

/// The time for brokers to find each other.
const JOIN: Duration = Duration::from_secs(3);

/// The time after which everything in flight has arrived.
const ARRIVE: Duration = Duration::from_secs(1);

/// The delays from the publisher's broker to each of the others: one receives everything later than
/// the other.
const DELAYS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(30)];

/// Plays `scenario` with the randomness of `seed`: events, outages and moves are the same whatever
/// is kept and overwritten.
///
/// # Errors
/// When the scenario is impossible.
pub fn play(scenario: &Scenario, seed: u64) -> Result<Outcome> {
    let mut world = World::new(scenario, seed)?;
    world.run(scenario.warm_up());
    let Radio { subscribers, logs, .. } = &mut world.radio;
    for subscriber in subscribers {
        subscriber.counted.start = logs[subscriber.class].len();
    }
    world.run(scenario.length);
    world.finish();
    let mut classes = vec![Tally::default(); CLASSES];
    let Radio { subscribers, logs, .. } = world.radio;
    for mut subscriber in subscribers {
        subscriber.end(&logs[subscriber.class]);
        classes[subscriber.class].add(subscriber.tally);
    }
    Ok(Outcome { classes })
}

/// The next action.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Brokers act, or something arrives at one.
    Cores,
    /// The shared link acts.
    Access,
    /// A subscriber connects, disconnects or moves.
    Move(usize),
    /// An event is published.
    Publish,
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Time,
    /// The publisher's broker, and the brokers of subscribers.
    net: Cores,
    radio: Radio,
    nodes: Vec<Node>,
    /// By subscriber: its broker.
    places: Vec<Option<usize>>,
    /// The ends of stays, by subscriber.
    moves: BinaryHeap<Reverse<(Time, usize)>>,
    selectors: Vec<Selector>,
    events: Events,
    /// Whether subscribers stay connected from now on, until all are and publishing ends.
    ending: bool,
}

/// The events to publish, with their times.
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
        let mut net = Cores::new(Costs::FREE, seed);
        net.add(Setup::default());
        for (at, delay) in DELAYS.into_iter().enumerate() {
            let buffer = vec![CacheInterest { filter: TOPIC.into(), selector: None }];
            net.add(Setup { buffer, cache: Some(scenario.plan()?), ..Setup::default() });
            net.link([HOME, broker_at(at)], delay);
        }
        let covered = |class: usize| {
            let lrp = scenario.policy == whimbrel_core::cache::Policy::Lrp;
            (scenario.durability == Durability::SemiDurable && lrp).then_some(scenario.capacities[class] as usize)
        };
        let classes = (0..scenario.subscribers).map(|index| index % CLASSES);
        let subscribers = classes.map(|class| Subscriber::new(class, covered(class))).collect();
        let node = |index| Node::new(scenario.mobility, index / CLASSES % DELAYS.len(), nodes_random.fork());
        let nodes: Result<Vec<Node>, _> = (0..scenario.subscribers).map(node).collect();
        let shared = scenario.access.map(|shape| Shared {
            access: Access::new(shape),
            members: vec![None; scenario.subscribers],
            full: vec![false; scenario.subscribers],
        });
        let began = START + JOIN;
        let mut world = World {
            scenario,
            now: began,
            net,
            radio: Radio::new(subscribers, CLASSES, shared),
            nodes: nodes.map_err(|why| anyhow::anyhow!("no subscriber can move like that: {why:?}"))?,
            places: vec![None; scenario.subscribers],
            moves: BinaryHeap::new(),
            selectors: (0..CLASSES).map(Scenario::selector).collect::<Result<_>>()?,
            events: Events {
                random: events_random,
                interval: Duration::from_secs_f64(1.0 / scenario.rate),
                next: began,
                body: vec![b'.'; scenario.body],
            },
            ending: false,
        };
        world.introduce();
        (0..scenario.subscribers).for_each(|index| world.begin_stay(index));
        Ok(world)
    }

    /// The brokers find each other, and the publisher connects.
    fn introduce(&mut self) {
        self.net.run_until(self.now, &mut self.radio);
        let (client, lasting) = ("publisher".to_owned(), Duration::ZERO);
        self.net.ask(HOME, Ask::Attach { link: Link(0), client, lasting, window: u16::MAX }, &mut self.radio);
        self.publish();
    }

    /// Lets time pass.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, step)) = self.next_step().filter(|(at, _)| *at <= end) {
            self.take(at, step);
        }
        self.now = end;
    }

    /// Lets all subscribers return and receive missed events; events published until then are
    /// counted.
    fn finish(&mut self) {
        self.ending = true;
        for index in 0..self.radio.subscribers.len() {
            if self.places[index].is_some() {
                self.count_no_more(index);
            }
        }
        let mut end = self.now + ARRIVE;
        loop {
            let moving = self.radio.shared.as_ref().is_some_and(|shared| shared.access.next_change().is_some());
            if moving || self.places.contains(&None) {
                end = self.now + ARRIVE;
            }
            let (at, step) = self.next_step().expect("brokers go on for ever");
            if at > end {
                return;
            }
            self.take(at, step);
        }
    }

    fn count_no_more(&mut self, index: usize) {
        let Radio { subscribers, logs, .. } = &mut self.radio;
        let subscriber = &mut subscribers[index];
        subscriber.counted.end = logs[subscriber.class].len();
    }

    fn next_step(&self) -> Option<(Time, Step)> {
        let net = self.net.next().map(|at| (at.max(self.now), Step::Cores));
        let shared = self.radio.shared.as_ref().and_then(|shared| Some((shared.access.next_change()?, Step::Access)));
        let moves = self.moves.peek().map(|Reverse((at, index))| (*at, Step::Move(*index)));
        let publishing = !self.ending || self.places.contains(&None);
        let publish = publishing.then_some((self.events.next, Step::Publish));
        // Of actions that are due at the same time, the first one here is done first.
        net.into_iter().chain(shared).chain(moves).chain(publish).min_by_key(|(at, _)| *at)
    }

    fn take(&mut self, at: Time, step: Step) {
        assert!(at >= self.now, "time runs forward");
        (self.now, self.net.now) = (at, at);
        match step {
            Step::Cores => self.net.step(&mut self.radio),
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

    fn ask(&mut self, broker: usize, ask: Ask) {
        self.net.ask(broker, ask, &mut self.radio);
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
        // Its name is given by the broker that accepts it.
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, self.now, &event);
        self.radio.published = None;
        self.ask(HOME, Ask::Publish(Link(0), 1, event));
        let tick = self.radio.published.expect("a broker without a log passes an event on at once");
        let class = value as usize * CLASSES / VALUES as usize;
        self.radio.logs[class].push(Published { tick, importance });
    }

    /// Passes data from the shared link to subscribers; brokers may send again to those with room.
    fn move_bytes(&mut self) {
        let mut open = Vec::new();
        let Radio { pubend, subscribers, logs, shared, .. } = &mut self.radio;
        let Some(shared) = shared else { return };
        while let Some((member, arrival)) = shared.access.read(self.now) {
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
            self.ask(broker, Ask::Writable(Link(index as u32)));
        }
    }

    fn end_stay(&mut self, index: usize) {
        let Some(broker) = self.places[index].take() else { return };
        self.ask(broker, Ask::Detach(Link(index as u32)));
        self.radio.subscribers[index].leave(self.now);
        if let Some(shared) = &mut self.radio.shared {
            shared.full[index] = false;
            if let Some(member) = shared.members[index].take() {
                shared.access.leave(member);
            }
        }
    }

    fn begin_stay(&mut self, index: usize) {
        let Stay { duration, state, broker } = self.nodes[index].next().expect("its stays never end");
        if state == State::Connected {
            self.connect(index, broker_at(broker));
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
        let Radio { subscribers, logs, shared, .. } = &mut self.radio;
        if let Some(shared) = shared {
            shared.members[index] = Some(shared.access.join());
        }
        let subscriber = &mut subscribers[index];
        let class = subscriber.class;
        subscriber.arrive(self.now, &logs[class]);
        let (link, from) = (Link(index as u32), subscriber.token.clone());
        let (client, lasting) = (format!("subscriber-{index}"), Duration::ZERO);
        self.ask(broker, Ask::Attach { link, client, lasting, window: u16::MAX });
        let kept = self.scenario.durability == Durability::SemiDurable;
        let wish = Wish {
            filter: TOPIC.into(),
            selector: Some(self.selectors[class].clone()),
            durability: self.scenario.durability,
            qos: Qos::AtMostOnce,
            from,
            by_token: kept,
            notices: kept,
        };
        self.ask(broker, Ask::Subscribe(link, Box::new(wish)));
    }
}

/// The number of the broker of a cell.
fn broker_at(cell: usize) -> usize {
    HOME + 1 + cell
}
