//! Wide-area links without IO: the fate of each datagram, given when it is sent and the link's
//! properties.
//!
//! A [`Link`] is one direction. It tells when a datagram arrives, or that it does not, and holds no
//! bytes. A [`Wan`] is a link that also holds the datagrams: push, ask for the next arrival, pop.
//! Both directions of a path are two of them, each with its own [`WanProfile`]. Everything follows
//! from a seed.
//!
//! A datagram passes, in this order: the cut (nothing passes while the link is cut), the queue
//! before the bottleneck (full means lost), the bottleneck's rate, and the path, where it may be
//! lost, damaged, copied, and delayed.

mod carry;
mod profile;

#[cfg(test)]
mod tests;

use std::time::Duration;

use whimbrel_event::Time;

use crate::random::Random;

pub use carry::{Datagram, FLYING_MAX, Wan};
pub use profile::{Jitter, Loss, MILLION, WanProfile};

/// Counters of a link, in datagrams except `bytes`. All counters only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Handed to the link.
    pub sent: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Lost on the path, by the loss of the profile.
    pub lost: u64,
    /// Lost because the link was cut, when they were sent or before they arrived.
    pub cut: u64,
    /// Lost because the queue was full, copies included.
    pub dropped: u64,
    /// Copies made by the path.
    pub duplicated: u64,
    /// Damaged, copies included.
    pub corrupted: u64,
    /// Arriving before one that was sent earlier, copies included.
    pub reordered: u64,
}

impl Counters {
    /// Both together, for the sum over several links.
    #[must_use]
    pub fn plus(self, other: Counters) -> Counters {
        Counters {
            sent: self.sent + other.sent,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
            cut: self.cut + other.cut,
            dropped: self.dropped + other.dropped,
            duplicated: self.duplicated + other.duplicated,
            corrupted: self.corrupted + other.corrupted,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// The arrival of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Landing {
    /// The time.
    pub at: Time,
    /// Whether bits are wrong.
    pub corrupt: bool,
}

/// The fate of a datagram. If the link is cut before it lands, it does not land: see
/// [`Link::cuts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// When the bottleneck has sent it, or would have, had it not been lost before.
    pub departs: Time,
    /// How it arrives, unless it is lost.
    pub landing: Option<Landing>,
    /// How a copy of it arrives, if the path makes one. There is no copy of a lost one.
    pub copy: Option<Landing>,
}

/// One direction of a path. See the module's documentation.
#[derive(Debug)]
pub struct Link {
    profile: WanProfile,
    random: Random,
    /// Whether the loss is in its bad state.
    bad: bool,
    /// When the bottleneck has sent everything that it was given.
    idle_at: Time,
    /// The latest arrival so far.
    last_arrival: Time,
    is_cut: bool,
    cuts: u64,
    counters: Counters,
}

impl Link {
    /// A link on which nothing is in flight, its loss in the good state.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]); that is a mistake of the
    /// caller.
    pub fn new(profile: WanProfile, random: Random) -> Self {
        profile.check();
        Link {
            profile,
            random,
            bad: false,
            idle_at: Time::ZERO,
            last_arrival: Time::ZERO,
            is_cut: false,
            cuts: 0,
            counters: Counters::default(),
        }
    }

    /// The present profile.
    pub fn profile(&self) -> &WanProfile {
        &self.profile
    }

    /// Sets the profile. Waiting datagrams are sent at the new rate; those that have left arrive as
    /// before.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]).
    pub fn set_profile(&mut self, now: Time, profile: WanProfile) {
        profile.check();
        let waiting = self.waiting(now);
        self.profile = profile;
        self.idle_at = now + self.sending(waiting);
    }

    /// Cuts the link: datagrams in flight and later ones do not arrive.
    pub fn cut(&mut self) {
        if !self.is_cut {
            self.is_cut = true;
            self.cuts += 1;
        }
    }

    /// Ends the cut: datagrams sent from now on arrive again.
    pub fn heal(&mut self) {
        self.is_cut = false;
    }

    /// Whether the link is cut.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The number of cuts so far. The carrier of the datagrams compares it at sending and at
    /// arrival, and reports losses to [`Link::lost_under_way`].
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Counts datagrams that did not land because of a cut after they were sent.
    pub fn lost_under_way(&mut self, count: u64) {
        self.counters.cut += count;
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that wait before the bottleneck, including the datagram that is being sent, rounded
    /// up.
    pub fn waiting(&self, now: Time) -> usize {
        let nanos = self.idle_at.since(now).as_nanos();
        (nanos * u128::from(self.profile.rate)).div_ceil(1_000_000_000).min(self.profile.queue as u128) as usize
    }

    /// When at most this many bytes wait, if nothing else is sent; not before `now`.
    pub fn drained_to(&self, now: Time, bytes: usize) -> Time {
        let lead = self.sending(bytes).as_nanos().min(u128::from(u64::MAX)) as u64;
        now.max(Time::from_nanos(self.idle_at.as_nanos().saturating_sub(lead)))
    }

    /// Sends a datagram of a number of bytes. `now` never goes back.
    pub fn send(&mut self, now: Time, bytes: usize) -> Fate {
        self.counters.sent += 1;
        self.counters.bytes += bytes as u64;
        let lost = |departs| Fate { departs, landing: None, copy: None };
        if self.is_cut {
            self.counters.cut += 1;
            return lost(now);
        }
        if !self.enqueue(now, bytes) {
            return lost(self.idle_at.max(now));
        }
        let departs = self.idle_at;
        if self.loses() {
            self.counters.lost += 1;
            return lost(departs);
        }
        let landing = Some(self.land());
        let copied = self.random.chance(self.profile.duplicate) && self.enqueue(now, bytes);
        self.counters.duplicated += u64::from(copied);
        let copy = copied.then(|| self.land());
        Fate { departs, landing, copy }
    }

    /// Takes the bytes into the queue, if it has room. An empty queue has room for any datagram.
    fn enqueue(&mut self, now: Time, bytes: usize) -> bool {
        let waiting = self.waiting(now);
        if waiting > 0 && waiting.saturating_add(bytes) > self.profile.queue {
            self.counters.dropped += 1;
            return false;
        }
        self.idle_at = self.idle_at.max(now) + self.sending(bytes);
        true
    }

    /// How long the bottleneck takes for a number of bytes.
    fn sending(&self, bytes: usize) -> Duration {
        if self.profile.rate == u64::MAX {
            return Duration::ZERO;
        }
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.profile.rate));
        Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
    }

    /// One step of the Gilbert-Elliott chain; returns whether the datagram is lost in the state
    /// before the step.
    fn loses(&mut self) -> bool {
        let loss = self.profile.loss;
        let (leave, lose) = if self.bad { (loss.to_good, loss.in_bad) } else { (loss.to_bad, loss.in_good) };
        let lost = self.random.below(MILLION) < lose;
        if self.random.below(MILLION) < leave {
            self.bad = !self.bad;
        }
        lost
    }

    /// The arrival of a datagram that leaves when the bottleneck is idle again.
    fn land(&mut self) -> Landing {
        let mut at = self.idle_at + self.profile.delay + self.profile.jitter.draw(&mut self.random);
        if !self.profile.reorders {
            at = at.max(self.last_arrival);
        }
        self.counters.reordered += u64::from(at < self.last_arrival);
        self.last_arrival = self.last_arrival.max(at);
        let corrupt = self.random.chance(self.profile.corrupt);
        self.counters.corrupted += u64::from(corrupt);
        Landing { at, corrupt }
    }
}
