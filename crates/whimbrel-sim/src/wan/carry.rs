//! A link with the datagrams in it.

use std::collections::BTreeMap;

use whimbrel_event::Time;

use super::{Counters, Landing, Link, WanProfile};
use crate::random::Random;

/// Datagrams that may be in flight on one [`Wan`]; more are lost as if the queue were full.
pub const FLYING_MAX: usize = 1 << 16;

/// A datagram that has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The time of arrival.
    pub at: Time,
    /// The bytes, perhaps with one bit wrong.
    pub bytes: Vec<u8>,
}

/// One direction of a path, carrying datagrams.
#[derive(Debug)]
pub struct Wan {
    link: Link,
    /// Draws the wrong bits, apart from the link's own draws.
    random: Random,
    /// By arrival; those that arrive at the same time in the order in which they were sent.
    flying: BTreeMap<(Time, u64), Vec<u8>>,
    next_number: u64,
    overfull: u64,
}

impl Wan {
    /// A link on which nothing is in flight.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]).
    pub fn new(profile: WanProfile, mut random: Random) -> Self {
        let link = Link::new(profile, random.fork());
        Wan { link, random, flying: BTreeMap::new(), next_number: 0, overfull: 0 }
    }

    /// Sends a datagram. `now` never goes back.
    pub fn push(&mut self, now: Time, bytes: Vec<u8>) {
        let fate = self.link.send(now, bytes.len());
        if let Some(copy) = fate.copy {
            self.launch(copy, bytes.clone());
        }
        if let Some(landing) = fate.landing {
            self.launch(landing, bytes);
        }
    }

    fn launch(&mut self, landing: Landing, mut bytes: Vec<u8>) {
        if self.flying.len() >= FLYING_MAX {
            self.overfull += 1;
            return;
        }
        if landing.corrupt && !bytes.is_empty() {
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.flying.insert((landing.at, self.next_number), bytes);
        self.next_number += 1;
    }

    /// When the next datagram arrives, if nothing else happens.
    pub fn next_arrival(&self) -> Option<Time> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next datagram that has arrived by now.
    pub fn pop(&mut self, now: Time) -> Option<Datagram> {
        self.next_arrival().filter(|at| *at <= now)?;
        let ((at, _), bytes) = self.flying.pop_first()?;
        Some(Datagram { at, bytes })
    }

    /// Cuts the link: datagrams in flight and later ones are lost.
    pub fn cut(&mut self) {
        self.link.cut();
        self.link.lost_under_way(self.flying.len() as u64);
        self.flying.clear();
    }

    /// Ends the cut: datagrams sent from now on arrive again.
    pub fn heal(&mut self) {
        self.link.heal();
    }

    /// Sets the profile.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]).
    pub fn set_profile(&mut self, now: Time, profile: WanProfile) {
        self.link.set_profile(now, profile);
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        let counters = self.link.counters();
        Counters { dropped: counters.dropped + self.overfull, ..counters }
    }
}
