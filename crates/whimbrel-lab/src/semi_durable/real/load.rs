//! One publisher and mobile subscribers over sockets, in a closed loop.
//!
//! The publisher is at most a window of events ahead of the slowest subscriber that is connected
//! and has caught up, so the broker's core is never idle and its queues never overflow. Subscribers
//! in catch-up do not count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};
use whimbrel_sim::mobility::{Mobility, Node};
use whimbrel_sim::random::Random;

use super::mobile::{Counts, Mobile};
use crate::bench::accounts::PacketIds;
use crate::bench::link::{Endpoint, Link, SCRATCH_BYTES};
use crate::bench::lowat;
use crate::bench::process::CpuClock;
use crate::bench::target::Target;
use crate::bench::wire::{Frame, QoS, Template};

/// The brokers between which subscribers move.
pub const BROKERS: usize = 2;

/// The kinds of subscribers, by their selectors.
pub const CLASSES: usize = 10;

/// Values of the attribute that one class wants.
pub const VALUES_PER_CLASS: u64 = 10;

/// The topic of all events.
pub const TOPIC: &str = "field/events";

/// The number of subscribers.
pub const SUBSCRIBERS: usize = 200;

/// Events that the slowest caught-up subscriber has not received yet, at most.
const WINDOW: u64 = 4000;

/// Events that the broker has not acknowledged yet, at most.
const UNACKNOWLEDGED: u64 = 1000;

/// Bytes of an acknowledgement.
const ACKNOWLEDGEMENT: usize = 4;

/// The publisher makes no more events while this many bytes wait for its socket.
const UNSENT_LIMIT: usize = 256 * 1024;

/// Sockets are read after this long even if they have not become readable.
const SWEEP_AFTER: Duration = Duration::from_millis(2);

/// Without any progress for this long the broker is stuck.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The durability of subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Missed events are lost.
    Nondurable,
    /// Missed events are recovered as far as the cache has them.
    SemiDurable,
    /// All missed events are recovered: the broker logs them.
    Durable,
}

impl Kind {
    /// Whether they tell their position when they return.
    pub fn keeps(self) -> bool {
        self != Kind::Nondurable
    }

    /// The value of MQTT's property.
    pub fn durability(self) -> &'static str {
        match self {
            Kind::Nondurable => "nondurable",
            Kind::SemiDurable => "semi-durable",
            Kind::Durable => "durable",
        }
    }
}

/// The parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The durability of subscribers.
    pub kind: Kind,
    /// Bytes of an event's body.
    pub body: usize,
    /// The subscribers' mobility.
    pub mobility: Mobility,
    /// The time before the measurement: caches fill, outages begin to end.
    pub warm_up: Duration,
    /// The length of the measurement.
    pub measure: Duration,
    /// The seed of the moves.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Events published.
    pub published: u64,
    /// Events that subscribers received.
    pub delivered: u64,
    /// Events that they found to be missing.
    pub lost: u64,
    /// The number of subscribers' returns.
    pub returns: u64,
    /// The time measured, seconds.
    pub elapsed: f64,
    /// CPU seconds of all brokers.
    pub broker_cpu: f64,
}

impl Figures {
    /// Events that the brokers accept from the publisher per second of their CPU time, with all
    /// consequences.
    pub fn published_per_cpu(&self) -> f64 {
        self.published as f64 / self.broker_cpu
    }

    /// Events that they deliver per second of CPU time.
    pub fn delivered_per_cpu(&self) -> f64 {
        self.delivered as f64 / self.broker_cpu
    }

    /// Events that the publisher has sent per second of the clock.
    pub fn published_per_second(&self) -> f64 {
        self.published as f64 / self.elapsed
    }

    /// Percent of the events that were lost.
    pub fn loss(&self) -> f64 {
        100.0 * self.lost as f64 / (self.lost + self.delivered) as f64
    }
}

/// Runs `load` against the brokers at `targets`, whose CPU clocks are `brokers`; the publisher is
/// at the first one.
///
/// # Errors
/// When a broker refuses, ends a connection, breaks the protocol, repeats events or is stuck.
pub fn run(targets: [Target; BROKERS], load: &Load, brokers: [CpuClock; BROKERS]) -> Result<Figures> {
    let mut generator = Generator::connect(targets, load)?;
    let used = || brokers.into_iter().map(CpuClock::read).sum::<Result<Duration>>();
    generator.turn_until(Instant::now() + load.warm_up)?;
    let (start, cpu) = (generator.reading(), used()?);
    generator.turn_until(start.at + load.measure)?;
    let (end, cpu_end) = (generator.reading(), used()?);
    ensure!(end.published > start.published, "{} took nothing in {:?}", targets[0], load.measure);
    ensure!(load.kind == Kind::Nondurable || end.counts.repeated == 0, "{} events came again", end.counts.repeated);
    ensure!(
        load.kind != Kind::Durable || end.counts.lost == 0,
        "{} events of durable subscribers were lost",
        end.counts.lost
    );
    Ok(Figures {
        published: end.published - start.published,
        delivered: end.counts.received - start.counts.received,
        lost: end.counts.lost - start.counts.lost,
        returns: end.counts.returns - start.counts.returns,
        elapsed: (end.at - start.at).as_secs_f64(),
        broker_cpu: (cpu_end - cpu).as_secs_f64(),
    })
}

/// All counters at one moment.
struct Reading {
    at: Instant,
    published: u64,
    counts: Counts,
}

struct Publisher {
    endpoint: Endpoint,
    /// One for each value of the attribute.
    templates: Vec<Template>,
    ids: PacketIds,
    sent: u64,
    accepted: u64,
    /// The events that the slowest caught-up subscriber has received.
    received: u64,
}

impl Publisher {
    fn connect(target: Target, body: usize, poll: &Poll) -> Result<Publisher> {
        let mut endpoint = Link::open(target, "publisher")?.into_endpoint()?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut endpoint.stream, Token(SUBSCRIBERS), both)?;
        lowat::wake_after(&endpoint.stream, UNACKNOWLEDGED as usize / 2 * ACKNOWLEDGEMENT)?;
        // The last digit of the sequence number is the class, the one before it the value within.
        let value = |number: u64| number % 10 * VALUES_PER_CLASS + number / 10 % VALUES_PER_CLASS;
        let importance = |number: u64| number % 7 + 2;
        let template = |number: u64| {
            let (value, importance) = (value(number).to_string(), importance(number).to_string());
            Template::with_attributes(
                TOPIC,
                QoS::AtLeastOnce,
                body,
                &[("v", value.as_str()), ("w-importance", importance.as_str())],
            )
        };
        let templates = (0..CLASSES as u64 * VALUES_PER_CLASS).map(template).collect();
        Ok(Publisher { endpoint, templates, ids: PacketIds::default(), sent: 0, accepted: 0, received: 0 })
    }

    fn publish(&mut self) -> Result<()> {
        if self.endpoint.unsent() < UNSENT_LIMIT {
            let room = WINDOW.saturating_sub(self.sent - self.received.min(self.sent));
            let room = room.min(UNACKNOWLEDGED.saturating_sub(self.sent - self.accepted));
            for _ in 0..room {
                let Some(id) = self.ids.take() else { break };
                let template = &self.templates[(self.sent % self.templates.len() as u64) as usize];
                template.write(&mut self.endpoint.out, self.sent, id);
                self.sent += 1;
            }
        }
        self.endpoint.flush()
    }

    fn receive(&mut self, scratch: &mut [u8]) -> Result<()> {
        let Publisher { endpoint, ids, accepted, .. } = self;
        endpoint.receive(scratch, |frame, _| {
            match frame {
                Frame::Accepted(Some(id)) => {
                    ids.free(id)?;
                    *accepted += 1;
                }
                frame => bail!("the publisher received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        Ok(())
    }
}

struct Generator {
    targets: [Target; BROKERS],
    kind: Kind,
    poll: Poll,
    publisher: Publisher,
    /// Whether all initial subscriptions are in force: before that, nothing is published.
    has_begun: bool,
    mobiles: Vec<Mobile>,
    /// The ends of stays, by subscriber.
    moves: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The number of bytes for which a subscriber is woken.
    batch: usize,
    scratch: Vec<u8>,
    last_progress: Instant,
}

impl Generator {
    fn connect(targets: [Target; BROKERS], load: &Load) -> Result<Generator> {
        let poll = Poll::new().context("making a poll")?;
        let mut random = Random::new(load.seed);
        let publisher = Publisher::connect(targets[0], load.body, &poll)?;
        let node = |index: usize, random: &mut Random| {
            // Half of each class starts at each broker.
            Node::new(load.mobility, index / CLASSES % load.mobility.brokers, random.fork())
                .map_err(|why| anyhow::anyhow!("no subscriber can move like that: {why:?}"))
        };
        let mobile = |index| Ok(Mobile::new(index, node(index, &mut random)?));
        let mobiles = (0..SUBSCRIBERS).map(mobile).collect::<Result<Vec<Mobile>>>()?;
        let now = Instant::now();
        Ok(Generator {
            targets,
            kind: load.kind,
            poll,
            publisher,
            has_begun: false,
            mobiles,
            moves: (0..SUBSCRIBERS).map(|index| Reverse((now, index))).collect(),
            batch: (WINDOW / CLASSES as u64 / 2) as usize * load.body,
            scratch: vec![0; SCRATCH_BYTES],
            last_progress: now,
        })
    }

    fn reading(&self) -> Reading {
        let mut counts = Counts::default();
        for mobile in &self.mobiles {
            counts.received += mobile.counts.received;
            counts.lost += mobile.counts.lost;
            counts.repeated += mobile.counts.repeated;
            counts.returns += mobile.counts.returns;
        }
        Reading { at: Instant::now(), published: self.publisher.accepted, counts }
    }

    fn turn_until(&mut self, deadline: Instant) -> Result<()> {
        /// The number of events taken from the poll at once.
        const EVENTS: usize = 1024;
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Ok(());
            }
            self.move_subscribers(now)?;
            self.has_begun = self.has_begun || !self.mobiles.iter().any(Mobile::is_asking);
            if self.has_begun {
                self.publisher.publish()?;
            }
            self.wait(&mut events, deadline - now)?;
            self.update_window()?;
        }
    }

    fn move_subscribers(&mut self, now: Instant) -> Result<()> {
        while let Some(Reverse((at, index))) = self.moves.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.moves.pop();
            let stay = self.mobiles[index].move_on(&self.targets, self.kind, self.poll.registry())?;
            if let Some(next) = at.checked_add(stay) {
                self.moves.push(Reverse((next, index)));
            }
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, limit: Duration) -> Result<()> {
        match self.poll.poll(events, Some(limit.min(SWEEP_AFTER))) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            other => other.context("waiting for the sockets")?,
        }
        let sent = self.publisher.sent;
        if events.is_empty() {
            for index in 0..SUBSCRIBERS {
                self.mobiles[index].receive(&mut self.scratch, self.batch, sent)?;
            }
            return self.publisher.receive(&mut self.scratch);
        }
        for event in events.iter() {
            match event.token() {
                Token(SUBSCRIBERS) => self.publisher.receive(&mut self.scratch)?,
                Token(index) => self.mobiles[index].receive(&mut self.scratch, self.batch, sent)?,
            }
        }
        Ok(())
    }

    fn update_window(&mut self) -> Result<()> {
        let sent = self.publisher.sent;
        // The stream of a broker that is not the publisher's may itself be as far behind as the
        // window allows.
        let progress = self.mobiles.iter_mut().filter_map(|mobile| mobile.progress(sent, WINDOW));
        let slowest = progress.min().unwrap_or(self.publisher.accepted);
        if slowest > self.publisher.received {
            self.last_progress = Instant::now();
        }
        self.publisher.received = slowest;
        ensure!(self.last_progress.elapsed() < STALLED_AFTER, "nothing was delivered for {STALLED_AFTER:?}");
        Ok(())
    }
}
