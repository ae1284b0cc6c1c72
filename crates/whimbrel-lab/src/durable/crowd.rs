//! Publishers and subscribers over sockets, driven by one thread: events come by the clock, whether the broker keeps up or not.
//!
//! Sockets are looked at in turn, not waited for: with a thousand subscribers that is the cheaper way, and it wakes nobody for a single event.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::publisher::Publisher;
use super::subscriber::{Counts, Keeper, Subscriber};
use super::{PUBLISHERS, RATE};
use crate::bench::link::SCRATCH_BYTES;
use crate::bench::target::Target;

/// Positions are acknowledged this often, as in the paper.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(250);

/// Connections that are being opened at the same time.
const OPENING: usize = 64;

/// How long a subscription may take to be confirmed, and what is on its way to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Progress is noted so often, seconds.
const HISTORY_STEP: f64 = 0.1;

/// The longest latency that is told apart, µs.
const LATENCY_MAX: u64 = 100_000_000;

/// How subscribers go and come back.
#[derive(Clone, Copy, Debug)]
pub struct Absences {
    /// From one departure to the next.
    pub period: Duration,
    /// How long.
    pub away: Duration,
}

/// See the module's documentation.
pub struct Crowd {
    target: Target,
    publishers: Vec<Publisher>,
    /// All subscribers.
    pub subscribers: Vec<Subscriber>,
    keeper: Keeper,
    /// Events per second.
    rate: u64,
    /// How often sockets are looked at.
    look: Duration,
    absences: Option<Absences>,
    /// When whose next departure or return is.
    moves: Vec<(Instant, usize)>,
    random: fastrand::Rng,
    start: Instant,
    /// The number of the next event.
    sent: u64,
    looked: Instant,
    acknowledged: Instant,
    /// While it is kept: at each moment since then, seconds, what [`Crowd::progress`] tells.
    history: Option<(Instant, Vec<[f64; 3]>)>,
    /// Latencies of those subscribers whose index is below `observed`, µs.
    latencies: Histogram<u64>,
    /// How many subscribers are observed.
    pub observed: usize,
    scratch: Vec<u8>,
}

impl Crowd {
    /// Connects the publishers.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn connect(target: Target, keeper: Keeper, look: Duration, seed: u64) -> Result<Crowd> {
        let now = Instant::now();
        let mut crowd = Crowd {
            target,
            publishers: (0..PUBLISHERS).map(Publisher::new).collect(),
            subscribers: Vec::new(),
            keeper,
            rate: RATE,
            look,
            absences: None,
            moves: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            start: now,
            sent: 0,
            looked: now,
            acknowledged: now,
            history: None,
            latencies: Histogram::new_with_bounds(1, LATENCY_MAX, 3).context("making a histogram")?,
            observed: 0,
            scratch: vec![0; SCRATCH_BYTES],
        };
        crowd.publishers_return()?;
        crowd.set_rate(RATE);
        Ok(crowd)
    }

    /// From now on so many events come per second.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        self.start = Instant::now() - self.due(self.sent);
    }

    /// Connects the publishers, again after a crash.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn publishers_return(&mut self) -> Result<()> {
        self.publishers.iter_mut().try_for_each(|publisher| publisher.connect(self.target))?;
        let limit = Instant::now() + PATIENCE;
        while !self.publishers.iter().all(Publisher::is_ready) {
            ensure!(Instant::now() < limit, "the broker has not accepted the publishers for {PATIENCE:?}");
            self.publishers.iter_mut().try_for_each(|publisher| publisher.turn(&mut self.scratch))?;
        }
        Ok(())
    }

    /// So many subscribers more; events go on in the meantime.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn add_subscribers(&mut self, more: usize) -> Result<()> {
        let first = self.subscribers.len();
        self.subscribers.extend((first..first + more).map(|index| Subscriber::new(index, self.keeper)));
        self.come(first..first + more)
    }

    /// These subscribers connect, and are there when this returns; events go on in the meantime.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn come(&mut self, which: std::ops::Range<usize>) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        let mut opened = which.start;
        while !self.subscribers[which.clone()].iter().all(Subscriber::is_there) {
            let there = self.subscribers[which.start..opened].iter().filter(|one| one.is_there()).count();
            while opened < which.end && opened - which.start < there + OPENING {
                self.subscribers[opened].connect(self.target, self.sent)?;
                opened += 1;
            }
            ensure!(Instant::now() < limit, "not all subscriptions were confirmed within {PATIENCE:?}");
            self.step()?;
        }
        Ok(())
    }

    /// These subscribers leave.
    pub fn leave(&mut self, which: std::ops::Range<usize>) {
        self.subscribers[which].iter_mut().for_each(Subscriber::leave);
    }

    /// The broker is gone, and all connections with it.
    pub fn lose_all(&mut self) {
        self.publishers.iter_mut().for_each(Publisher::lose);
        self.subscribers.iter_mut().for_each(Subscriber::leave);
    }

    /// From now on subscribers go and come back, each at times of its own.
    pub fn begin_absences(&mut self, absences: Absences) {
        let now = Instant::now();
        self.absences = Some(absences);
        let mut first = || now + absences.period.mul_f64(self.random.f64());
        self.moves = (0..self.subscribers.len()).map(|index| (first(), index)).collect();
    }

    /// Nobody leaves any more, and everybody comes back.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn end_absences(&mut self) -> Result<()> {
        (self.absences, self.moves) = (None, Vec::new());
        let away: Vec<usize> =
            (0..self.subscribers.len()).filter(|index| !self.subscribers[*index].is_there()).collect();
        away.into_iter().try_for_each(|index| self.come(index..index + 1))
    }

    /// From now on progress is noted.
    pub fn keep_history(&mut self) {
        self.history = Some((Instant::now(), Vec::new()));
    }

    /// Progress noted: moment, delivered and released, all in seconds.
    pub fn history(&mut self) -> Vec<[f64; 3]> {
        self.history.take().map(|(_, moments)| moments).unwrap_or_default()
    }

    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos(number * 1_000_000_000 / self.rate)
    }

    /// Events go on for so long.
    ///
    /// # Errors
    /// When the broker refuses, or breaks the protocol.
    pub fn run(&mut self, span: Duration) -> Result<()> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Waits until everybody who is there has everything sent up to now, which goes on; how long that took, or `None` if it took too long.
    ///
    /// # Errors
    /// When the broker refuses, or breaks the protocol.
    pub fn catch_up(&mut self) -> Result<Option<Duration>> {
        let begin = Instant::now();
        while !self.subscribers.iter().all(Subscriber::is_live) {
            if begin.elapsed() > PATIENCE {
                return Ok(None);
            }
            self.step()?;
        }
        Ok(Some(begin.elapsed()))
    }

    /// No more events: waits until everything has arrived. Returns whether it has.
    ///
    /// # Errors
    /// When the broker refuses, or breaks the protocol.
    pub fn drain(&mut self) -> Result<bool> {
        let limit = Instant::now() + PATIENCE;
        let sent = self.sent;
        // Nothing is due for longer than this takes.
        self.start = Instant::now() + 2 * PATIENCE;
        while Instant::now() < limit {
            self.step()?;
            let all =
                self.subscribers.iter().all(|subscriber| !subscriber.is_there() || subscriber.has_all_before(sent));
            if all && self.publishers.iter().all(Publisher::is_done) {
                self.set_rate(self.rate);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn step(&mut self) -> Result<()> {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.start);
        while self.due(self.sent) < passed {
            self.publishers[(self.sent % PUBLISHERS as u64) as usize].push(self.sent);
            self.sent += 1;
        }
        self.publishers.iter_mut().try_for_each(|publisher| publisher.turn(&mut self.scratch))?;
        if now.saturating_duration_since(self.looked) < self.look {
            let next = (self.start + self.due(self.sent)).min(self.looked + self.look);
            std::thread::sleep(next.saturating_duration_since(now));
            return Ok(());
        }
        self.looked = now;
        self.look_at_all(now)?;
        self.move_some(now)
    }

    fn look_at_all(&mut self, now: Instant) -> Result<()> {
        let acknowledges = now.saturating_duration_since(self.acknowledged) >= ACKNOWLEDGE_EVERY;
        let Crowd { subscribers, scratch, latencies, observed, start, rate, .. } = self;
        for (index, subscriber) in subscribers.iter_mut().enumerate() {
            let is_observed = index < *observed;
            subscriber.receive(scratch, |number| {
                if is_observed {
                    let due = *start + Duration::from_nanos(number * 1_000_000_000 / *rate);
                    let late = Instant::now().saturating_duration_since(due);
                    latencies.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
                }
            })?;
            if acknowledges {
                subscriber.acknowledge()?;
            }
        }
        if acknowledges {
            self.acknowledged = now;
        }
        let progress = self.progress();
        if let Some((since, moments)) = &mut self.history {
            let at = now.saturating_duration_since(*since).as_secs_f64();
            let last = moments.last().copied();
            if last.is_none_or(|last| at - last[0] >= HISTORY_STEP) {
                // While nobody is there, what was delivered stays as it is.
                let delivered = progress.0.unwrap_or(last.map_or(0.0, |last| last[1]));
                moments.push([at, delivered, progress.1]);
            }
        }
        Ok(())
    }

    fn move_some(&mut self, now: Instant) -> Result<()> {
        let Some(Absences { period, away }) = self.absences else { return Ok(()) };
        for (at, index) in &mut self.moves {
            if *at > now {
                continue;
            }
            let subscriber = &mut self.subscribers[*index];
            if subscriber.is_there() {
                subscriber.leave();
                *at += away;
            } else {
                subscriber.connect(self.target, self.sent)?;
                *at += period - away;
            }
        }
        Ok(())
    }

    /// Events that the broker has accepted.
    pub fn accepted(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.accepted).sum()
    }

    /// What became of the events of all subscribers.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for Subscriber { counts, .. } in &self.subscribers {
            sum.received += counts.received;
            sum.lost += counts.lost;
            sum.repeated += counts.repeated;
        }
        sum
    }

    /// How long ago the oldest event was due that a subscriber who is there, and has caught up with what it missed, has not got.
    pub fn lag(&self) -> Duration {
        let live = self.subscribers.iter().filter(|subscriber| subscriber.is_live());
        let oldest = live.map(|subscriber| subscriber.reached().0).min().unwrap_or(self.sent);
        Instant::now().saturating_duration_since(self.start + self.due(oldest))
    }

    /// The 99th percentile of the observed latencies since the last call, ms.
    pub fn latency(&mut self) -> f64 {
        let p99 = self.latencies.value_at_quantile(0.99) as f64 / 1e3;
        self.latencies.reset();
        p99
    }

    /// What the slowest of those who are there has got, if anybody is, and what all, there or not, have acknowledged: seconds of events.
    fn progress(&self) -> (Option<f64>, f64) {
        let seconds = |number: u64| number as f64 / self.rate as f64;
        let there = self.subscribers.iter().filter(|subscriber| subscriber.is_live());
        let delivered = there.map(|subscriber| subscriber.reached().0).min();
        let released = self.subscribers.iter().map(|subscriber| subscriber.reached().1).min();
        (delivered.map(seconds), seconds(released.unwrap_or(0)))
    }
}
