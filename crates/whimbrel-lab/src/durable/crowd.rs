//! Publishers and subscribers over sockets, driven by one thread: events are due by the clock,
//! whether the broker keeps up or not.
//!
//! Sockets are polled in turn: with a thousand subscribers that is cheaper than waiting for them,
//! and no process is woken for a single event.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::publisher::Publisher;
use super::subscriber::{Counts, Keeper, Subscriber};
use super::topology::Topology;
use super::{PUBLISHERS, RATE};
use crate::bench::link::SCRATCH_BYTES;
use crate::bench::target::Target;

/// The time between two acknowledgements of a position, as in the paper.
pub const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(250);

/// Connections that are being opened at the same time.
const OPENING: usize = 64;

/// How long a subscription may take to be confirmed, and events in flight to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two records of progress, seconds.
const HISTORY_STEP: f64 = 0.1;

/// The longest latency that is distinguished, µs.
const LATENCY_MAX: u64 = 100_000_000;

/// The number of faults that are described, at most.
const WRONGS_MAX: usize = 32;

/// How subscribers leave and return.
#[derive(Clone, Copy, Debug)]
pub struct Absences {
    /// The time from one departure to the next.
    pub period: Duration,
    /// The time away.
    pub away: Duration,
}

/// The latencies of some of the subscribers, µs.
struct Observed {
    which: Range<usize>,
    latencies: Histogram<u64>,
}

/// See the module's documentation.
pub struct Crowd {
    /// The publishers' broker, and the subscribers' brokers by place.
    publishing: Target,
    places: Vec<Target>,
    publishers: Vec<Publisher>,
    /// All subscribers.
    pub subscribers: Vec<Subscriber>,
    keeper: Keeper,
    /// The time between two acknowledgements of a position, and the number of acknowledgements.
    pub acknowledge_every: Duration,
    pub acknowledgements: u64,
    /// Events per second.
    rate: u64,
    /// The time between two polls of the sockets.
    look: Duration,
    absences: Option<Absences>,
    /// The next departure or return of each subscriber.
    moves: Vec<(Instant, usize)>,
    random: fastrand::Rng,
    start: Instant,
    /// The number of the next event.
    sent: u64,
    looked: Instant,
    acknowledged: Instant,
    /// If it is kept: its start, and records of seconds since then with the two values of
    /// [`Crowd::progress`].
    history: Option<(Instant, Vec<[f64; 3]>)>,
    observed: Vec<Observed>,
    /// The time from when an event was due until its publisher was answered, µs.
    answers: Histogram<u64>,
    scratch: Vec<u8>,
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3).context("making a histogram")
}

/// How long after the start an event is due.
fn due(number: u64, rate: u64) -> Duration {
    Duration::from_nanos(number * 1_000_000_000 / rate)
}

fn note_latency(latencies: &mut Histogram<u64>, due: Instant) {
    let late = Instant::now().saturating_duration_since(due);
    latencies.saturating_record(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
}

fn take_quantile(latencies: &mut Histogram<u64>, quantile: f64) -> f64 {
    let value = latencies.value_at_quantile(quantile) as f64 / 1e3;
    latencies.reset();
    value
}

impl Crowd {
    /// Connects the publishers.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn connect(topology: &Topology, keeper: Keeper, look: Duration, seed: u64) -> Result<Crowd> {
        let now = Instant::now();
        let mut crowd = Crowd {
            publishing: topology.publishers(),
            places: topology.subscribers(),
            publishers: (0..PUBLISHERS).map(Publisher::new).collect(),
            subscribers: Vec::new(),
            keeper,
            acknowledge_every: ACKNOWLEDGE_EVERY,
            acknowledgements: 0,
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
            observed: Vec::new(),
            answers: histogram()?,
            scratch: vec![0; SCRATCH_BYTES],
        };
        crowd.connect_publishers()?;
        crowd.set_rate(RATE);
        Ok(crowd)
    }

    /// Sets the number of events per second from now on.
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate;
        self.start = Instant::now() - self.due(self.sent);
    }

    fn connect_publishers(&mut self) -> Result<()> {
        self.publishers.iter_mut().try_for_each(|publisher| publisher.connect(self.publishing))?;
        let limit = Instant::now() + PATIENCE;
        while !self.publishers.iter().all(Publisher::is_ready) {
            ensure!(Instant::now() < limit, "the broker has not accepted the publishers for {PATIENCE:?}");
            self.turn_publishers()?;
        }
        Ok(())
    }

    fn turn_publishers(&mut self) -> Result<()> {
        let Crowd { publishers, scratch, answers, start, rate, .. } = self;
        publishers.iter_mut().try_for_each(|publisher| {
            publisher.turn(scratch, |number| note_latency(answers, *start + due(number, *rate)))
        })
    }

    /// Adds a number of subscribers, over all places in turn; events continue meanwhile.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn add_subscribers(&mut self, more: usize) -> Result<()> {
        let (first, places) = (self.subscribers.len(), self.places.len());
        let class = |index: usize| index / places;
        let new = (first..first + more).map(|index| Subscriber::new(index, class(index), index % places, self.keeper));
        self.subscribers.extend(new);
        self.come(first..first + more)
    }

    /// Adds a number of subscribers at one place, and returns their indices.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn add_subscribers_at(&mut self, place: usize, more: usize) -> Result<Range<usize>> {
        let which = self.subscribers.len()..self.subscribers.len() + more;
        self.subscribers.extend(which.clone().map(|index| Subscriber::new(index, index, place, self.keeper)));
        self.come(which.clone())?;
        Ok(which)
    }

    /// Connects these subscribers, and waits until they are subscribed; events continue meanwhile.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn come(&mut self, which: Range<usize>) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        let mut opened = which.start;
        while !self.subscribers[which.clone()].iter().all(Subscriber::is_there) {
            let there = self.subscribers[which.start..opened].iter().filter(|one| one.is_there()).count();
            while opened < which.end && opened - which.start < there + OPENING {
                let place = self.subscribers[opened].place;
                self.subscribers[opened].connect(self.places[place], self.sent)?;
                opened += 1;
            }
            ensure!(Instant::now() < limit, "not all subscriptions were confirmed within {PATIENCE:?}");
            self.step()?;
        }
        Ok(())
    }

    /// The broker of a place has ended, and all connections with it.
    pub fn lose(&mut self, place: usize) {
        self.subscribers.iter_mut().filter(|subscriber| subscriber.place == place).for_each(Subscriber::leave);
    }

    /// Subscribers leave and return from now on, each at its own times.
    pub fn begin_absences(&mut self, absences: Absences) {
        let now = Instant::now();
        self.absences = Some(absences);
        let mut first = || now + absences.period.mul_f64(self.random.f64());
        self.moves = (0..self.subscribers.len()).map(|index| (first(), index)).collect();
    }

    /// Subscribers no longer leave, and those that are away return.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn end_absences(&mut self) -> Result<()> {
        (self.absences, self.moves) = (None, Vec::new());
        let away: Vec<usize> =
            (0..self.subscribers.len()).filter(|index| !self.subscribers[*index].is_there()).collect();
        away.into_iter().try_for_each(|index| self.come(index..index + 1))
    }

    /// Records progress from now on.
    pub fn keep_history(&mut self) {
        self.history = Some((Instant::now(), Vec::new()));
    }

    /// The recorded progress: time, delivered and released, all in seconds.
    pub fn history(&mut self) -> Vec<[f64; 3]> {
        self.history.take().map(|(_, moments)| moments).unwrap_or_default()
    }

    fn due(&self, number: u64) -> Duration {
        due(number, self.rate)
    }

    /// The number of the next event.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Runs events for a time.
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

    /// Runs events for a time, and further until each connected subscriber has received an event of
    /// every publisher, and so knows which is next.
    ///
    /// # Errors
    /// When that takes too long, or the broker refuses, or breaks the protocol.
    pub fn settle(&mut self, span: Duration) -> Result<()> {
        self.run(span)?;
        let begin = Instant::now();
        while !self.subscribers.iter().all(|subscriber| !subscriber.is_there() || subscriber.has_heard_of_all()) {
            ensure!(begin.elapsed() < PATIENCE, "subscribers have not heard of all publishers within {PATIENCE:?}");
            self.step()?;
        }
        Ok(())
    }

    /// Waits until these subscribers are connected and have everything that was sent before they
    /// returned; events continue.
    ///
    /// # Errors
    /// When that takes too long, or the broker refuses, or breaks the protocol.
    pub fn catch_up(&mut self, which: Range<usize>) -> Result<()> {
        let begin = Instant::now();
        while !self.subscribers[which.clone()].iter().all(Subscriber::is_live) {
            ensure!(begin.elapsed() < PATIENCE, "subscribers have not caught up within {PATIENCE:?}");
            self.step()?;
        }
        Ok(())
    }

    /// Stops events and waits until everything has arrived. Returns whether it has.
    ///
    /// # Errors
    /// When the broker refuses, or breaks the protocol.
    pub fn drain(&mut self) -> Result<bool> {
        let limit = Instant::now() + PATIENCE;
        let sent = self.sent;
        // No event is due for longer than this takes.
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
        self.turn_publishers()?;
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
        let acknowledges = now.saturating_duration_since(self.acknowledged) >= self.acknowledge_every;
        let Crowd { subscribers, scratch, observed, start, rate, acknowledgements, sent, .. } = self;
        for (index, subscriber) in subscribers.iter_mut().enumerate() {
            let mut observed = observed.iter_mut().find(|group| group.which.contains(&index));
            subscriber.receive(scratch, *sent, |number| {
                if let Some(group) = &mut observed {
                    note_latency(&mut group.latencies, *start + due(number, *rate));
                }
            })?;
            if acknowledges {
                *acknowledgements += u64::from(subscriber.acknowledge()?);
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
                // While no subscriber is caught up, the delivered value stays as it is.
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
                subscriber.connect(self.places[subscriber.place], self.sent)?;
                *at += period - away;
            }
        }
        Ok(())
    }

    /// Events that the broker has accepted.
    pub fn accepted(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.accepted).sum()
    }

    /// The counts of all subscribers' events.
    pub fn counts(&self) -> Counts {
        self.subscribers.iter().fold(Counts::default(), |sum, subscriber| sum.plus(subscriber.counts))
    }

    /// Descriptions of the first faults, for notes.
    pub fn wrongs(&self) -> Vec<String> {
        self.subscribers.iter().flat_map(Subscriber::notes).take(WRONGS_MAX).collect()
    }

    /// The age of the oldest event that a connected subscriber lacks which has caught up.
    pub fn lag(&self) -> Duration {
        let live = self.subscribers.iter().filter(|subscriber| subscriber.is_live());
        let oldest = live.map(|subscriber| subscriber.reached().0).min().unwrap_or(self.sent);
        Instant::now().saturating_duration_since(self.start + self.due(oldest))
    }

    /// Records the latencies of these subscribers, which are in no other group, from now on;
    /// returns the group's index.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn observe(&mut self, which: Range<usize>) -> Result<usize> {
        self.observed.push(Observed { which, latencies: histogram()? });
        Ok(self.observed.len() - 1)
    }

    /// A quantile of the observed latencies of a group since the last call, ms.
    pub fn latency(&mut self, group: usize, quantile: f64) -> f64 {
        take_quantile(&mut self.observed[group].latencies, quantile)
    }

    /// A quantile of the observed latencies of a group since the last call of [`Crowd::latency`],
    /// ms.
    pub fn latency_beside(&self, group: usize, quantile: f64) -> f64 {
        self.observed[group].latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    /// A quantile of the times until publishers were answered since the last call, ms.
    pub fn answered(&mut self, quantile: f64) -> f64 {
        take_quantile(&mut self.answers, quantile)
    }

    /// The seconds of events that the slowest caught-up subscriber has received, if there is one,
    /// and that all subscribers have acknowledged.
    fn progress(&self) -> (Option<f64>, f64) {
        let seconds = |number: u64| number as f64 / self.rate as f64;
        let there = self.subscribers.iter().filter(|subscriber| subscriber.is_live());
        let delivered = there.map(|subscriber| subscriber.reached().0).min();
        let released = self.subscribers.iter().map(|subscriber| subscriber.reached().1).min();
        (delivered.map(seconds), seconds(released.unwrap_or(0)))
    }
}
