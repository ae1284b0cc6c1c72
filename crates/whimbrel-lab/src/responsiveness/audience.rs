//! The clients: publishers that number their events, and subscribers that note when each arrives.

use whimbrel_core::{Accepted, Delivery, Granted, Hop, Kick, Link, LinkOutput, Output, Refusal, Sent};
use whimbrel_event::{AcceptedEvent, Qos, Time};

use super::judge::{EventKey, HopLog};
use crate::cores::Clients;

/// Bytes at the beginning of an event's body that number it.
pub const NUMBER_BYTES: usize = 8;

/// See the module's documentation. A subscriber's link has its index, and it subscribes to one
/// topic.
#[derive(Debug)]
pub struct Audience {
    now: Time,
    node: usize,
    topics: Vec<String>,
    /// By topic: when each event was published.
    pub sent: Vec<Vec<Time>>,
    /// By subscriber: when each event of its topic arrived first, or [`Time::MAX`]. Events at the
    /// end may be missing.
    pub came: Vec<Vec<Time>>,
    /// The hops of all events, if they are to be judged.
    pub hops: Option<HopLog>,
    /// Events that arrived again.
    pub repeated: u64,
    /// Subscriptions that were answered.
    pub answered: usize,
}

impl Audience {
    /// Nothing was published to these topics, which have this many subscribers.
    pub fn new(now: Time, topics: Vec<String>, subscribers: usize) -> Audience {
        let [sent, came] = [topics.len(), subscribers].map(|count| vec![Vec::new(); count]);
        Audience { now, node: 0, topics, sent, came, hops: None, repeated: 0, answered: 0 }
    }

    /// Forgets which events were published and arrived; the next one has the number 0 again.
    pub fn forget(&mut self) {
        self.sent.iter_mut().for_each(Vec::clear);
        self.came.iter_mut().for_each(Vec::clear);
        self.hops.iter_mut().for_each(HopLog::clear);
    }

    /// When an event arrived at a subscriber; `None`: it did not.
    pub fn arrival(&self, subscriber: usize, number: usize) -> Option<Time> {
        self.came[subscriber].get(number).copied().filter(|at| *at != Time::MAX)
    }
}

impl Clients for Audience {
    fn at(&mut self, now: Time, node: usize) {
        (self.now, self.node) = (now, node);
    }
}

/// The number in an event's body.
fn number_of(payload: &[u8]) -> usize {
    u64::from_le_bytes(*payload.first_chunk::<NUMBER_BYTES>().expect("events are numbered")) as usize
}

impl LinkOutput for Audience {
    fn wants_steps(&self) -> bool {
        self.hops.is_some()
    }

    fn hop(&mut self, event: &AcceptedEvent<'_>, hop: Hop) {
        let event = &event.event;
        let topic = self.topics.iter().position(|topic| *topic == event.topic).expect("it is one of them");
        if let Some(log) = &mut self.hops {
            log.record(EventKey { topic, number: number_of(event.payload) }, self.node, self.now, hop);
        }
    }
}

impl Output for Audience {
    fn attached(&mut self, _: Link, _: bool) {}

    fn refused(&mut self, link: Link, why: Refusal) {
        panic!("client {} was refused: {why:?}", link.0);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        panic!("client {} was thrown out: {why:?}", link.0);
    }

    fn subscribed(&mut self, link: Link, _: u16, results: &[Result<Granted, Refusal>], _: &[Box<str>]) {
        assert!(results.iter().all(Result::is_ok), "client {} was told {results:?}", link.0);
        self.answered += 1;
    }

    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}

    fn accepted(&mut self, _: Link, _: u16, _: Qos, result: Accepted) {
        assert!(matches!(result, Accepted::Routed { .. }), "an event was not accepted: {result:?}");
    }

    fn completed(&mut self, _: Link, _: u16, _: bool) {}

    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let number = number_of(delivery.accepted.event.payload);
        let came = &mut self.came[link.0 as usize];
        if came.len() <= number {
            came.resize(number + 1, Time::MAX);
        }
        if came[number] == Time::MAX {
            came[number] = self.now;
        } else {
            self.repeated += 1;
        }
        Sent::Open
    }
}
