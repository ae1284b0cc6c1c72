//! The connections of a storm: subscribers that stay, subscribers that leave and return, and the
//! publisher.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use super::super::link::{Endpoint, Link, SCRATCH_BYTES};
use super::super::process::CpuClock;
use super::super::target::Target;
use super::super::wire::{self, Frame, QoS, mqtt};
use super::wanted::{ATTRIBUTE, Values, Wanted};

/// Connections that are being opened at the same time, at most. It is below the broker's listen
/// queue: the kernel's handling of more is not the broker's responsibility.
const AT_ONCE: usize = 1_000;

/// Connections that are begun before the sockets of staying subscribers are read again.
const OPENED_AT_ONCE: usize = 8;

/// How long all are connected before some leave: it measures what their presence costs the staying
/// subscribers.
const ALL_THERE: Duration = Duration::from_secs(3);

/// After this long without any progress the broker counts as stuck.
const STALLED_AFTER: Duration = Duration::from_secs(20);

/// How long returned subscribers are watched after the last has caught up.
const AFTER: Duration = Duration::from_secs(2);

/// The first part of the absence, in which latencies are not counted: connections are still being
/// closed.
const SETTLING: Duration = Duration::from_secs(2);

/// The longest latency that is distinguished.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// The time that the run may take beyond the absence, seconds; events are prepared for it.
const RUN_SECONDS: u64 = 120;

/// The number of staying subscribers' sockets that are read at once.
const READ_AT_ONCE: usize = 16;

/// Bytes of a body, as in the experiment on semi-durable subscriptions.
const BODY: usize = 50;

/// The topic of all events.
const TOPIC: &str = "storm/events";

/// How long the broker keeps sessions, where it keeps them, seconds.
const SESSION_SECONDS: u32 = 3_600;

/// The parameters of a storm.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    pub(super) pid: u32,
    pub(super) returning: usize,
    pub(super) staying: usize,
    pub(super) event_rate: u64,
    pub(super) away: Duration,
    pub(super) qos: QoS,
    pub(super) keep_sessions: bool,
    pub(super) seed: u64,
}

/// Latencies of one phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latency {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// The result.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The time from the first connection of the storm until the last subscription was confirmed.
    pub(super) connected: Duration,
    /// The time from then until the last subscriber had everything that was published before the
    /// storm.
    pub(super) caught_up: Duration,
    /// The CPU time of the broker until then.
    pub(super) broker_cpu: Duration,
    /// The missed events that returned subscribers received.
    pub(super) recovered: u64,
    pub(super) missed: u64,
    pub(super) wrong: u64,
    /// Latencies while all were connected, before some left.
    pub(super) all_there: Latency,
    pub(super) before: Latency,
    pub(super) during: Latency,
    pub(super) after: Latency,
    /// The 99th percentile of the publisher's delay during the storm.
    pub(super) lateness: Duration,
    pub(super) token_bytes: usize,
}

/// One subscriber.
struct Subscriber {
    /// `None` while it is away.
    endpoint: Option<Endpoint>,
    wanted: Wanted,
    selector: String,
    token: String,
    confirmed: bool,
    caught_up: bool,
}

/// All connections.
pub(super) struct Crowd {
    plan: Plan,
    /// The staying subscribers, and the publisher as the last.
    near: Poll,
    /// The returning subscribers.
    far: Poll,
    /// All subscribers, the staying ones first.
    subscribers: Vec<Subscriber>,
    publisher: Endpoint,
    values: Values,
    scratch: Vec<u8>,
    start: Instant,
    sent: u64,
    latencies: Histogram<u64>,
    lateness: Histogram<u64>,
    /// The numbers of the storm's subscribers that have begun to connect, that were confirmed, and
    /// that have caught up.
    opened: usize,
    confirmed: usize,
    caught_up: usize,
    /// Events before this one are those of the absence.
    storm_at: u64,
    /// The events that returning subscribers had received before they left.
    had: u64,
    all_there: Latency,
    last_progress: Instant,
}

impl Crowd {
    /// Connects all subscribers, keeps their tokens, and closes the connections of those that are
    /// to return.
    pub(super) fn connect(plan: &Plan) -> Result<Crowd> {
        let mut random = fastrand::Rng::with_seed(plan.seed);
        let near = Poll::new().context("making a poll")?;
        let subscriber = |_| {
            let wanted = Wanted::draw(&mut random);
            let (selector, token) = (wanted.selector(), String::new());
            Subscriber { endpoint: None, wanted, selector, token, confirmed: false, caught_up: false }
        };
        let mut subscribers: Vec<Subscriber> = (0..plan.staying + plan.returning).map(subscriber).collect();
        for (index, subscriber) in subscribers.iter_mut().take(plan.staying).enumerate() {
            let mut link = Link::open(plan.target, &format!("near{index}"))?;
            let user = [("w-durability", "semi-durable"), ("w-selector", &*subscriber.selector)];
            subscriber.token = link.subscribe_with("storm/#", plan.qos, &user)?;
            let mut endpoint = link.into_endpoint()?;
            near.registry().register(&mut endpoint.stream, Token(index), Interest::READABLE)?;
            subscriber.endpoint = Some(endpoint);
        }
        let mut publisher = Link::open(plan.target, "storm")?.into_endpoint()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        near.registry().register(&mut publisher.stream, Token(plan.staying), interest)?;
        let events = (plan.away.as_secs() + RUN_SECONDS) * plan.event_rate;
        let mut crowd = Crowd {
            far: Poll::new().context("making a poll")?,
            plan: plan.clone(),
            near,
            subscribers,
            publisher,
            values: Values::new(events as usize, plan.seed),
            scratch: vec![0; SCRATCH_BYTES],
            start: Instant::now(),
            sent: 0,
            latencies: histogram()?,
            lateness: histogram()?,
            opened: 0,
            confirmed: 0,
            caught_up: 0,
            storm_at: 0,
            had: 0,
            all_there: Latency::default(),
            last_progress: Instant::now(),
        };
        crowd.visit()?;
        crowd.be_there()?;
        crowd.leave()?;
        crowd.subscribers[plan.staying..].iter_mut().for_each(|one| one.token.clear());
        // They connect once more to get tokens after all of that.
        crowd.visit()?;
        crowd.leave()?;
        Ok(crowd)
    }

    /// Starts the events' clock.
    fn begin_clock(&mut self) {
        self.start = Instant::now() - self.due(self.sent);
    }

    /// Measures latencies while all are connected.
    fn be_there(&mut self) -> Result<()> {
        self.begin_clock();
        self.run_until(Instant::now() + SETTLING)?;
        self.begin_phase()?;
        self.run_until(Instant::now() + ALL_THERE)?;
        self.all_there = self.begin_phase()?;
        self.await_all()?;
        let far = &mut self.subscribers[self.plan.staying..];
        self.had = far.iter().map(|one| one.wanted.received).sum();
        Ok(())
    }

    /// The returning subscribers connect.
    fn visit(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(AT_ONCE);
        while self.confirmed < self.plan.returning {
            self.open_more()?;
            self.far.poll(&mut events, Some(STALLED_AFTER)).context("waiting for the sockets")?;
            for event in &events {
                self.receive_far(event.token().0)?;
            }
            self.check_progress()?;
        }
        Ok(())
    }

    /// The returning subscribers leave.
    fn leave(&mut self) -> Result<()> {
        for subscriber in &mut self.subscribers[self.plan.staying..] {
            let mut endpoint = subscriber.endpoint.take().context("everybody is there")?;
            endpoint.out.extend_from_slice(mqtt::DISCONNECT_PACKET);
            endpoint.flush()?;
            subscriber.confirmed = false;
        }
        (self.opened, self.confirmed) = (0, 0);
        Ok(())
    }

    /// The absence, the storm, and the time after it.
    pub(super) fn run(mut self) -> Result<Outcome> {
        let clock = CpuClock::of(self.plan.pid)?;
        self.begin_clock();
        let gone = Instant::now();
        self.run_until(gone + SETTLING.min(self.plan.away / 2))?;
        self.begin_phase()?;
        self.run_until(gone + self.plan.away)?;
        let before = self.begin_phase()?;
        let (begin, cpu) = (Instant::now(), clock.read()?);
        self.storm_at = self.sent;
        self.last_progress = begin;
        let mut connected = Duration::ZERO;
        while self.caught_up < self.plan.returning {
            self.open_more()?;
            self.step()?;
            self.check_progress()?;
            if self.confirmed == self.plan.returning && connected == Duration::ZERO {
                connected = begin.elapsed();
            }
        }
        let (caught_up, broker_cpu) = (begin.elapsed(), clock.read()? - cpu);
        let lateness = quantile(&self.lateness, 0.99);
        let far = &self.subscribers[self.plan.staying..];
        let recovered = far.iter().map(|one| one.wanted.received).sum::<u64>() - self.had;
        let during = self.begin_phase()?;
        self.run_until(Instant::now() + AFTER)?;
        let after = self.begin_phase()?;
        self.finish()?;
        let sum = |of: fn(&Wanted) -> u64| self.subscribers.iter().map(|one| of(&one.wanted)).sum();
        Ok(Outcome {
            connected,
            caught_up,
            broker_cpu,
            recovered,
            missed: sum(|wanted| wanted.missed),
            wrong: sum(|wanted| wanted.wrong),
            all_there: self.all_there,
            before,
            during,
            after,
            lateness,
            token_bytes: self.subscribers.iter().map(|one| one.token.len()).max().unwrap_or(0),
        })
    }

    /// Returns the latencies of the present phase, and begins another.
    fn begin_phase(&mut self) -> Result<Latency> {
        let latencies = std::mem::replace(&mut self.latencies, histogram()?);
        self.lateness = histogram()?;
        Ok(Latency { p50: quantile(&latencies, 0.5), p99: quantile(&latencies, 0.99) })
    }

    fn run_until(&mut self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Stops events, and waits for those in flight.
    fn await_all(&mut self) -> Result<()> {
        let end = self.sent;
        let patience = Instant::now() + STALLED_AFTER;
        let mut missing = 0..self.subscribers.len();
        // A subscriber that has everything stays so: the search continues with the first one that
        // lacks something.
        while let Some(index) = missing.clone().next() {
            if self.subscribers[index].wanted.has_all(end, &self.values) || Instant::now() > patience {
                missing.start += 1;
            } else {
                self.publisher.flush()?;
                self.read_near()?;
                self.read_far(false)?;
            }
        }
        Ok(())
    }

    /// Counts events that were not delivered as missed.
    fn finish(&mut self) -> Result<()> {
        self.await_all()?;
        let end = self.sent;
        for subscriber in &mut self.subscribers {
            subscriber.wanted.pass(end, &self.values);
        }
        Ok(())
    }

    fn check_progress(&self) -> Result<()> {
        ensure!(
            self.last_progress.elapsed() < STALLED_AFTER,
            "{} of {} were confirmed, {} caught up, and then nothing came for {STALLED_AFTER:?}",
            self.confirmed,
            self.plan.returning,
            self.caught_up
        );
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.publish_due()?;
        self.read_near()?;
        self.read_far(true)
    }

    /// Publishes the events that are due; an event's latency counts from when it was due.
    fn publish_due(&mut self) -> Result<()> {
        let now = self.start.elapsed();
        while self.due(self.sent) <= now {
            let number = self.sent;
            let value = self.values.get(number).to_string();
            let mut body = [b'.'; BODY];
            body[..wire::STAMP_BYTES].copy_from_slice(&number.to_be_bytes());
            let packet_id = (number % u64::from(u16::MAX)) as u16 + 1;
            let out = &mut self.publisher.out;
            mqtt::publish_with(out, TOPIC, Some(packet_id), &[(ATTRIBUTE, &value)], &body);
            self.lateness.saturating_record((now - self.due(number)).as_nanos() as u64);
            self.sent += 1;
        }
        self.publisher.flush()
    }

    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos(number * 1_000_000_000 / self.plan.event_rate)
    }

    fn read_near(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(READ_AT_ONCE);
        self.near.poll(&mut events, Some(Duration::ZERO)).context("looking at the sockets")?;
        for event in &events {
            let Token(index) = event.token();
            if index == self.plan.staying {
                self.publisher.receive(&mut self.scratch, |_, _| Ok(()))?;
            } else {
                self.receive(index, true)?;
            }
        }
        Ok(())
    }

    /// Reads for returned subscribers, and in between for staying ones.
    fn read_far(&mut self, publishes: bool) -> Result<()> {
        let mut events = Events::with_capacity(AT_ONCE);
        self.far.poll(&mut events, Some(Duration::ZERO)).context("looking at the sockets")?;
        for event in &events {
            self.receive_far(event.token().0)?;
            // Checking what one of them has caught up with takes a tenth of a millisecond; staying
            // subscribers wait no longer than that.
            if publishes {
                self.publish_due()?;
            }
            self.read_near()?;
        }
        Ok(())
    }

    /// Begins as many connections as may be in progress at once.
    fn open_more(&mut self) -> Result<()> {
        let end = self.plan.returning.min(self.confirmed + AT_ONCE).min(self.opened + OPENED_AT_ONCE);
        while self.opened < end {
            let index = self.plan.staying + self.opened;
            let subscriber = &mut self.subscribers[index];
            let mut hello = Vec::new();
            let known = !subscriber.token.is_empty();
            let lasting = self.plan.keep_sessions.then_some(SESSION_SECONDS);
            mqtt::connect_5(&mut hello, &format!("far{index}"), lasting, None);
            let mut user = vec![("w-durability", "semi-durable"), ("w-selector", &*subscriber.selector)];
            if known {
                user.push(("w-from", &subscriber.token));
            }
            if !(known && self.plan.keep_sessions) {
                mqtt::subscribe(&mut hello, true, 1, ("storm/#", self.plan.qos), &user);
            }
            let mut endpoint = Endpoint::connecting(self.plan.target, hello)?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.far.registry().register(&mut endpoint.stream, Token(index), interest)?;
            subscriber.endpoint = Some(endpoint);
            self.opened += 1;
        }
        Ok(())
    }

    fn receive_far(&mut self, index: usize) -> Result<()> {
        self.receive(index, false)?;
        let Crowd { subscribers, values, storm_at, caught_up, .. } = self;
        let subscriber = &mut subscribers[index];
        if subscriber.confirmed && !subscriber.caught_up && *storm_at > 0 {
            subscriber.caught_up = subscriber.wanted.has_all(*storm_at, values);
            *caught_up += usize::from(subscriber.caught_up);
        }
        Ok(())
    }

    fn receive(&mut self, index: usize, is_near: bool) -> Result<()> {
        let Crowd { subscribers, plan, values, scratch, start, latencies, confirmed, last_progress, .. } = self;
        let Subscriber { endpoint, wanted, token, confirmed: is_confirmed, .. } = &mut subscribers[index];
        let Some(endpoint) = endpoint else { return Ok(()) };
        endpoint.flush()?;
        let was_confirmed = *is_confirmed;
        let now = start.elapsed().as_nanos() as u64;
        let resumed = plan.keep_sessions && !token.is_empty();
        let reads = endpoint.receive(scratch, |frame, out| {
            match frame {
                Frame::Message { body, ack, .. } => {
                    let number = wire::stamp(body)?;
                    wanted.came(number, values);
                    wire::acknowledge(out, ack);
                    if is_near {
                        latencies.saturating_record(now.saturating_sub(number * 1_000_000_000 / plan.event_rate));
                    }
                }
                Frame::Ready if !resumed => {}
                Frame::Ready => *is_confirmed = true,
                Frame::Subscribed { token: begins, .. } => {
                    *is_confirmed = true;
                    begins.clone_into(token);
                }
                frame => bail!("a subscriber received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        *confirmed += usize::from(!was_confirmed && *is_confirmed);
        if reads > 0 {
            *last_progress = Instant::now();
        }
        endpoint.flush()
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3).context("making a histogram")
}

fn quantile(histogram: &Histogram<u64>, quantile: f64) -> Duration {
    Duration::from_nanos(histogram.value_at_quantile(quantile))
}
