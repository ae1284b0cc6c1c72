//! Durable subscribers that keep their positions, and their counts.

use std::time::Duration;

use hdrhistogram::Histogram;
use whimbrel_core::{Accepted, Delivery, Granted, Kick, Link, LinkOutput, Output, Refusal, Sent};
use whimbrel_event::{CheckpointToken, EventId, Qos, Time};

use crate::bench::wire;
use crate::cores::Clients;
use crate::durable::subscriber::{Counts, count};
use crate::durable::{CLASSES, PUBLISHERS};

/// The first number of subscribers' connections; lower numbers are publishers'.
pub const FIRST: u32 = PUBLISHERS as u32;

/// The longest latency that is distinguished, µs.
const LATENCY_MAX: u64 = 1_000_000_000;

/// See the module's documentation.
#[derive(Debug)]
pub struct Person {
    /// The class of events that it wants.
    pub class: usize,
    /// The broker to which it connects.
    pub node: usize,
    /// Whether its subscription was confirmed.
    pub is_there: bool,
    /// Its position, except `last`.
    pub token: Option<CheckpointToken>,
    last: [Option<EventId>; PUBLISHERS],
    /// The number of the next event of each publisher.
    next: [Option<u64>; PUBLISHERS],
    /// The value of `next` at its last acknowledgement.
    acknowledged: [Option<u64>; PUBLISHERS],
    /// When it returned, and the number before which it must have everything to have caught up.
    pub behind: Option<(Time, u64)>,
    /// The times that it took to catch up.
    pub caught_up: Vec<Duration>,
    /// The counts of its events.
    pub counts: Counts,
}

impl Person {
    fn new(class: usize, node: usize) -> Person {
        Person {
            class,
            node,
            is_there: false,
            token: None,
            last: [None; PUBLISHERS],
            next: [None; PUBLISHERS],
            acknowledged: [None; PUBLISHERS],
            behind: None,
            caught_up: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Its present position.
    pub fn place(&mut self) -> Option<CheckpointToken> {
        let token = self.token.as_mut()?;
        for id in self.last.into_iter().flatten() {
            token.advance(id).expect("four streams are within what a token covers");
        }
        Some(token.clone())
    }

    /// Its position, if there is something that it has not acknowledged.
    pub fn acknowledges(&mut self) -> Option<CheckpointToken> {
        if !self.is_there || self.acknowledged == self.next {
            return None;
        }
        self.acknowledged = self.next;
        self.place()
    }

    /// Whether it has all wanted events before a number.
    pub fn has_all_before(&self, number: u64) -> bool {
        self.next.iter().all(|next| next.is_some_and(|next| next >= number))
    }

    /// The number before which it has everything, and the number before which it has acknowledged
    /// everything; 0: nothing yet.
    pub fn reached(&self) -> (u64, u64) {
        let least = |all: &[Option<u64>; PUBLISHERS]| all.iter().map(|next| next.unwrap_or(0)).min().unwrap_or(0);
        (least(&self.next), least(&self.acknowledged))
    }
}

/// All subscribers.
pub struct People {
    now: Time,
    /// When the first event was due, and the number of events per second.
    pub began: Time,
    rate: u64,
    /// By the number of the connection, from [`FIRST`] on.
    pub all: Vec<Person>,
    /// Latencies since they were last read, µs.
    pub latencies: Histogram<u64>,
    /// The time from when an event was due until its publisher was answered, µs.
    pub answers: Histogram<u64>,
    /// The accepted events of each publisher.
    accepted: [u64; PUBLISHERS],
}

impl People {
    /// No subscribers. `began`: when the first event is due; `rate`: events per second.
    pub fn new(began: Time, rate: u64) -> People {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds make sense");
        let (latencies, answers) = (histogram(), histogram());
        People { now: began, began, rate, all: Vec::new(), latencies, answers, accepted: [0; PUBLISHERS] }
    }

    /// Adds a subscriber that is not connected yet.
    pub fn add(&mut self, class: usize, node: usize) {
        self.all.push(Person::new(class % CLASSES, node));
    }

    /// When an event is due.
    pub fn due(&self, number: u64) -> Time {
        self.began + Duration::from_nanos(number * 1_000_000_000 / self.rate)
    }

    /// The counts of all subscribers' events.
    pub fn counts(&self) -> Counts {
        self.all.iter().fold(Counts::default(), |sum, person| sum.plus(person.counts))
    }

    fn person(&mut self, link: Link) -> &mut Person {
        &mut self.all[(link.0 - FIRST) as usize]
    }
}

impl Clients for People {
    fn at(&mut self, now: Time, _: usize) {
        self.now = now;
    }
}

impl LinkOutput for People {}

impl Output for People {
    fn attached(&mut self, _: Link, _: bool) {}

    fn refused(&mut self, link: Link, why: Refusal) {
        panic!("client {} was refused: {why:?}", link.0);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        panic!("client {} was thrown out: {why:?}", link.0);
    }

    fn subscribed(&mut self, link: Link, _: u16, results: &[Result<Granted, Refusal>], _: &[Box<str>]) {
        let person = self.person(link);
        match results {
            [Ok(granted)] => {
                person.is_there = true;
                if person.token.is_none() {
                    person.token.clone_from(&granted.begins);
                }
            }
            other => panic!("subscriber {} asked for one subscription and was told {other:?}", link.0),
        }
    }

    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}

    fn accepted(&mut self, link: Link, _: u16, _: Qos, result: Accepted) {
        assert!(matches!(result, Accepted::Routed { .. }), "an event was not accepted: {result:?}");
        // Events of a publisher are accepted in order.
        let Some(accepted) = self.accepted.get_mut(link.0 as usize) else { return };
        let number = *accepted * PUBLISHERS as u64 + u64::from(link.0);
        *accepted += 1;
        let late = self.now.since(self.due(number));
        self.answers.saturating_record(late.as_micros() as u64);
    }

    fn completed(&mut self, _: Link, _: u16, _: bool) {}

    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let now = self.now;
        let number = wire::stamp(delivery.accepted.event.payload).expect("events are numbered");
        let late = now.since(self.due(number));
        self.latencies.saturating_record(late.as_micros() as u64);
        let person = self.person(link);
        let stream = (number % PUBLISHERS as u64) as usize;
        person.last[stream] = person.last[stream].max(Some(delivery.accepted.id));
        count(number, &mut person.next[stream], &mut person.counts);
        if let Some((since, target)) = person.behind
            && person.has_all_before(target)
        {
            person.caught_up.push(now.since(since));
            person.behind = None;
        }
        Sent::Open
    }
}
