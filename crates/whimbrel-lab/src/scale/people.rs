//! Clients: whether they are answered, and their deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_core::{Accepted, Delivery, Granted, Kick, Link, LinkOutput, Output, Refusal, Sent};
use whimbrel_event::{Qos, Time};

use crate::bench::wire;
use crate::cores::Clients;

/// A delivery to a subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    /// The subscriber's connection.
    pub link: Link,
    /// The event's number.
    pub number: usize,
    /// The time.
    pub at: Time,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct People {
    now: Time,
    /// Connections that have their sessions.
    pub attached: BTreeSet<Link>,
    /// Connections that were refused since the last look.
    pub refused: Vec<Link>,
    /// By connection: when each subscription was answered, in order, and how many brokers did not
    /// know of it then.
    pub answered: BTreeMap<Link, Vec<(Time, usize)>>,
    /// When each event was published.
    pub sent: Vec<Time>,
    /// The deliveries, in order.
    pub got: Vec<Got>,
}

impl People {
    /// No clients.
    pub fn new(now: Time) -> People {
        People {
            now,
            attached: BTreeSet::new(),
            refused: Vec::new(),
            answered: BTreeMap::new(),
            sent: Vec::new(),
            got: Vec::new(),
        }
    }

    /// The delays of delivered events from a number on.
    pub fn delays(&self, link: Link, from: usize) -> Vec<Duration> {
        let own = self.got.iter().filter(|got| got.link == link && got.number >= from);
        own.map(|got| got.at.since(self.sent[got.number])).collect()
    }
}

impl Clients for People {
    fn at(&mut self, now: Time, _: usize) {
        self.now = now;
    }
}

impl LinkOutput for People {}

impl Output for People {
    fn attached(&mut self, link: Link, _: bool) {
        self.attached.insert(link);
    }

    fn refused(&mut self, link: Link, _: Refusal) {
        self.refused.push(link);
    }

    fn kicked(&mut self, link: Link, why: Kick) {
        panic!("client {} was thrown out: {why:?}", link.0);
    }

    fn subscribed(&mut self, link: Link, _: u16, results: &[Result<Granted, Refusal>], pending: &[Box<str>]) {
        assert!(results.iter().all(Result::is_ok), "client {} was told {results:?}", link.0);
        self.answered.entry(link).or_default().push((self.now, pending.len()));
    }

    fn unsubscribed(&mut self, _: Link, _: u16, _: &[bool]) {}

    fn accepted(&mut self, _: Link, _: u16, _: Qos, result: Accepted) {
        assert!(matches!(result, Accepted::Routed { .. }), "an event was not accepted: {result:?}");
    }

    fn completed(&mut self, _: Link, _: u16, _: bool) {}

    fn release(&mut self, _: Link, _: u16, _: bool) {}

    fn deliver(&mut self, link: Link, delivery: &Delivery<'_>) -> Sent {
        let number = wire::stamp(delivery.accepted.event.payload).expect("events are numbered") as usize;
        self.got.push(Got { link, number, at: self.now });
        Sent::Open
    }
}
