//! The clients: publishers that number their events, and subscribers that note when each arrives.

use whimbrel_core::{Accepted, Delivery, Granted, Kick, Link, LinkOutput, Output, Refusal, Sent};
use whimbrel_event::{Qos, Time};

use super::scene::{PAIRS, TOPICS};
use crate::cores::Clients;

/// Bytes at the beginning of an event's body that number it.
pub const NUMBER_BYTES: usize = 8;

/// See the module's documentation. The subscriber of a pair has the link with the pair's index.
#[derive(Debug)]
pub struct Audience {
    now: Time,
    /// By topic: when each event was published.
    pub sent: [Vec<Time>; TOPICS.len()],
    /// By pair: when each event of its topic arrived first, or [`Time::MAX`]. Events at the end may
    /// be missing.
    pub came: [Vec<Time>; PAIRS],
    /// Events that arrived again.
    pub repeated: u64,
    /// Subscriptions that were answered.
    pub answered: usize,
}

impl Audience {
    /// Nothing was published.
    pub fn new(now: Time) -> Audience {
        let (sent, came) = (Default::default(), Default::default());
        Audience { now, sent, came, repeated: 0, answered: 0 }
    }

    /// Forgets which events were published and arrived; the next one has the number 0 again.
    pub fn forget(&mut self) {
        self.sent.iter_mut().for_each(Vec::clear);
        self.came.iter_mut().for_each(Vec::clear);
    }

    /// When an event arrived at a pair's subscriber; `None`: it did not.
    pub fn arrival(&self, pair: usize, number: usize) -> Option<Time> {
        self.came[pair].get(number).copied().filter(|at| *at != Time::MAX)
    }
}

impl Clients for Audience {
    fn at(&mut self, now: Time, _: usize) {
        self.now = now;
    }
}

impl LinkOutput for Audience {}

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
        let number = delivery.accepted.event.payload.first_chunk::<NUMBER_BYTES>();
        let number = u64::from_le_bytes(*number.expect("events are numbered")) as usize;
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
