//! Throughput: publishers that have at most a window of messages in flight to the slowest
//! subscriber.
//!
//! One thread drives all connections. The count is of messages that subscribers received, in
//! sequence; a message that the broker drops is a loss, reported and never counted as delivered.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};

use super::accounts::{Order, PacketIds};
use super::link::{Endpoint, Link, SCRATCH_BYTES};
use super::lowat;
use super::process::CpuClock;
use super::target::Target;
use super::wire::{self, Frame, Protocol, QoS, Template};

/// After this long without any progress the rest counts as lost.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// A publisher makes no more messages while this many bytes wait for its socket.
const UNSENT_LIMIT: usize = 256 * 1024;

/// A subscriber (and a publisher that waits for acknowledgements) is woken once this part of the
/// window has arrived, so that reading costs the generator little and the broker no wake-ups. The
/// rest of the window is then still in flight: the broker does not run dry.
const WAKE_PART: u64 = 2;

/// Sockets are read after this long even if they have not become readable: the bytes there may be
/// all that the broker will send, for example if its own window is smaller than a batch.
const SWEEP_AFTER: Duration = Duration::from_millis(2);

/// Bytes of an MQTT PUBACK; JetStream's acknowledgements are longer.
const SHORTEST_ACKNOWLEDGEMENT: usize = 4;

/// The number of events taken from the poll at once.
const EVENTS: usize = 1024;

/// The messages, publishers and subscribers of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Publishers, each with a topic of its own.
    pub publishers: usize,
    /// Subscribers of each topic.
    pub subscribers: usize,
    /// Quality of service, of publishing and of the subscriptions.
    pub qos: QoS,
    /// Bytes of a body.
    pub body: usize,
    /// Messages of a publisher that its slowest subscriber has not received yet, at most.
    pub window: u64,
    /// At QoS 1: messages of a publisher that the broker has not acknowledged yet, at most.
    pub unacknowledged: u64,
    /// User properties of the subscriptions (MQTT 5).
    pub user: &'static [(&'static str, &'static str)],
    /// Whether the sessions of the subscribers outlive their connections (MQTT).
    pub lasting: bool,
}

impl Load {
    /// The number of messages for which a connection is woken.
    fn wake_after_messages(&self) -> usize {
        let window = match self.qos {
            QoS::AtMostOnce => self.window,
            QoS::AtLeastOnce => self.window.min(self.unacknowledged),
        };
        (window / WAKE_PART).max(1) as usize
    }
}

/// The times of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The time before the measurement starts.
    pub warm_up: Duration,
    /// The least length of the measurement: it is extended until something has been delivered.
    pub measure: Duration,
}

/// The result. Everything except losses and repeats is of the measured interval.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Messages received by subscribers.
    pub delivered: u64,
    /// The length of the interval.
    pub elapsed: Duration,
    /// The CPU time of the broker.
    pub broker_cpu: Option<Duration>,
    /// The CPU time of the generator.
    pub own_cpu: Duration,
    /// Read calls of subscribers that returned bytes.
    pub reads: u64,
    /// Messages that were never delivered, over the whole run.
    pub lost: u64,
    /// Messages that were delivered again or out of order, over the whole run.
    pub repeated: u64,
}

impl Outcome {
    /// The broker's CPU microseconds per delivered message, which are also CPU seconds per million
    /// of them.
    pub fn broker_micros(&self) -> Option<f64> {
        self.broker_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.delivered as f64)
    }

    /// The generator's CPU microseconds per delivered message.
    pub fn own_micros(&self) -> f64 {
        self.own_cpu.as_secs_f64() * 1e6 / self.delivered as f64
    }

    /// Delivered messages per second.
    pub fn rate(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }

    /// Delivered messages per read call of a subscriber: how much the broker batches.
    pub fn per_read(&self) -> f64 {
        self.delivered as f64 / self.reads as f64
    }
}

/// Runs `load` against `target`; `broker` is the clock of the broker's process, where it is known.
///
/// # Errors
/// When the broker refuses or breaks a connection, breaks the protocol, or delivers nothing for
/// five seconds.
pub fn run(target: Target, load: &Load, timing: &Timing, broker: Option<CpuClock>) -> Result<Outcome> {
    let mut generator = Generator::connect(target, load)?;
    generator.turn_until(Instant::now() + timing.warm_up)?;
    let start = Reading::take(&generator, broker)?;
    generator.turn_until(start.at + timing.measure)?;
    let mut end = Reading::take(&generator, broker)?;
    while end.delivered == start.delivered {
        // A busy machine may let no process run for the whole interval: it is extended, and
        // `STALLED_AFTER` bounds it.
        generator.turn_until(end.at + SWEEP_AFTER)?;
        end = Reading::take(&generator, broker)?;
    }
    let lost = generator.finish()?;
    if uses_jetstream(target, load) {
        Link::open(target, "setup")?.remove_stream("setup")?;
    }
    Ok(Outcome {
        delivered: end.delivered - start.delivered,
        elapsed: end.at - start.at,
        broker_cpu: end.broker_cpu.zip(start.broker_cpu).map(|(end, start)| end - start),
        own_cpu: end.own_cpu - start.own_cpu,
        reads: end.reads - start.reads,
        lost,
        repeated: generator.subscribers.iter().map(|subscriber| subscriber.order.repeated).sum(),
    })
}

fn uses_jetstream(target: Target, load: &Load) -> bool {
    target.protocol == Protocol::Nats && load.qos == QoS::AtLeastOnce
}

/// All counters at one moment.
struct Reading {
    at: Instant,
    delivered: u64,
    reads: u64,
    broker_cpu: Option<Duration>,
    own_cpu: Duration,
}

impl Reading {
    fn take(generator: &Generator, broker: Option<CpuClock>) -> Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            delivered: generator.subscribers.iter().map(|subscriber| subscriber.order.received).sum(),
            reads: generator.reads,
            broker_cpu: broker.map(CpuClock::read).transpose()?,
            own_cpu: CpuClock::own().read()?,
        })
    }
}

struct Subscriber {
    endpoint: Endpoint,
    order: Order,
}

/// A publisher with the messages it may still send.
struct Publisher {
    endpoint: Endpoint,
    template: Template,
    audience: Range<usize>,
    window: u64,
    unacknowledged_limit: u64,
    sent: u64,
    accepted: u64,
    /// The messages that the slowest subscriber has received.
    received: u64,
    packet_ids: Option<PacketIds>,
    stopped: bool,
}

impl Publisher {
    /// Makes and sends the messages that the windows allow.
    fn publish(&mut self) -> Result<()> {
        if !self.stopped && self.endpoint.unsent() < UNSENT_LIMIT {
            let room = self.window.saturating_sub(self.sent - self.received);
            let unacknowledged = self.sent - self.accepted;
            let room = room.min(self.unacknowledged_limit.saturating_sub(unacknowledged));
            for _ in 0..room {
                let id = match &mut self.packet_ids {
                    None => 0,
                    Some(ids) => match ids.take() {
                        Some(id) => id,
                        None => break,
                    },
                };
                self.template.write(&mut self.endpoint.out, self.sent, id);
                self.sent += 1;
            }
        }
        self.endpoint.flush()
    }

    fn on_frame(accepted: &mut u64, packet_ids: &mut Option<PacketIds>, frame: Frame<'_>) -> Result<()> {
        match (frame, packet_ids) {
            (Frame::Accepted(Some(id)), Some(ids)) => ids.free(id)?,
            (Frame::Accepted(None), _) | (Frame::Ready, _) => {}
            (frame, _) => bail!("a publisher received {frame:?}, which it did not ask for"),
        }
        *accepted += u64::from(matches!(frame, Frame::Accepted(_)));
        Ok(())
    }
}

struct Generator {
    poll: Poll,
    publishers: Vec<Publisher>,
    subscribers: Vec<Subscriber>,
    scratch: Vec<u8>,
    reads: u64,
    last_progress: Instant,
}

impl Generator {
    fn connect(target: Target, load: &Load) -> Result<Generator> {
        let name = |role: &str, index: usize| format!("{role}{index}-{}", std::process::id());
        if uses_jetstream(target, load) {
            Link::open(target, "setup")?.make_stream("setup")?;
        }
        let poll = Poll::new().context("making a poll")?;
        let register = |endpoint: &mut Endpoint, token: usize| {
            poll.registry().register(&mut endpoint.stream, Token(token), Interest::READABLE | Interest::WRITABLE)
        };
        let mut subscribers = Vec::new();
        for index in 0..load.publishers * load.subscribers {
            let name = name("s", index);
            let mut link = if load.lasting { Link::open_lasting(target, &name)? } else { Link::open(target, &name)? };
            let topic = index / load.subscribers;
            if load.user.is_empty() {
                link.subscribe(topic, load.qos, &name)?;
            } else {
                link.subscribe_with(&target.topic(topic, load.qos), load.qos, load.user)?;
            }
            let mut endpoint = link.into_endpoint()?;
            lowat::wake_after(&endpoint.stream, load.wake_after_messages() * load.body)?;
            register(&mut endpoint, load.publishers + index)?;
            subscribers.push(Subscriber { endpoint, order: Order::default() });
        }
        let mut publishers = Vec::new();
        for index in 0..load.publishers {
            let mut link = Link::open(target, &name("p", index))?;
            link.prepare_publishing(index, load.qos)?;
            let mut endpoint = link.into_endpoint()?;
            register(&mut endpoint, index)?;
            let acknowledged = load.qos == QoS::AtLeastOnce;
            if acknowledged {
                lowat::wake_after(&endpoint.stream, load.wake_after_messages() * SHORTEST_ACKNOWLEDGEMENT)?;
            }
            publishers.push(Publisher {
                endpoint,
                template: Template::new(target.protocol, &target.topic(index, load.qos), load.qos, load.body),
                audience: index * load.subscribers..(index + 1) * load.subscribers,
                window: load.window,
                unacknowledged_limit: if acknowledged { load.unacknowledged } else { u64::MAX },
                sent: 0,
                accepted: 0,
                received: 0,
                packet_ids: (acknowledged && target.protocol != Protocol::Nats).then(PacketIds::default),
                stopped: false,
            });
        }
        let scratch = vec![0; SCRATCH_BYTES];
        Ok(Generator { poll, publishers, subscribers, scratch, reads: 0, last_progress: Instant::now() })
    }

    /// Keeps the windows full until `deadline`.
    fn turn_until(&mut self, deadline: Instant) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            for publisher in &mut self.publishers {
                publisher.publish()?;
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(());
            }
            let waited = now - self.last_progress;
            ensure!(
                waited < STALLED_AFTER,
                "nothing was delivered for {STALLED_AFTER:?}: the broker is stuck or drops messages"
            );
            self.turn(&mut events, deadline - now)?;
        }
    }

    /// Waits for events, at most for `limit`, and reads.
    fn turn(&mut self, events: &mut Events, limit: Duration) -> Result<()> {
        match self.poll.poll(events, Some(limit.min(SWEEP_AFTER))) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            other => other.context("waiting for the sockets")?,
        }
        if events.is_empty() {
            for token in 0..self.publishers.len() + self.subscribers.len() {
                self.receive(token)?;
            }
            return self.update_windows();
        }
        for event in events.iter() {
            let Token(token) = event.token();
            self.receive(token)?;
        }
        self.update_windows()
    }

    /// Reads from the connection of number `token`: first the publishers, then the subscribers.
    fn receive(&mut self, token: usize) -> Result<()> {
        let Some(publisher) = self.publishers.get_mut(token) else {
            return self.receive_delivered(token - self.publishers.len());
        };
        let Publisher { endpoint, accepted, packet_ids, .. } = publisher;
        endpoint.receive(&mut self.scratch, |frame, _| Publisher::on_frame(accepted, packet_ids, frame))?;
        Ok(())
    }

    fn receive_delivered(&mut self, index: usize) -> Result<()> {
        let Subscriber { endpoint, order } = &mut self.subscribers[index];
        self.reads += endpoint.receive(&mut self.scratch, |frame, out| {
            match frame {
                Frame::Message { body, ack, .. } => {
                    order.note(wire::stamp(body)?);
                    wire::acknowledge(out, ack);
                }
                Frame::Ready => {}
                frame => bail!("a subscriber received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        endpoint.flush()
    }

    fn update_windows(&mut self) -> Result<()> {
        for publisher in &mut self.publishers {
            let audience = &self.subscribers[publisher.audience.clone()];
            let received = audience.iter().map(|subscriber| subscriber.order.next);
            let (slowest, fastest) = received.fold((u64::MAX, 0), |(low, high), next| (low.min(next), high.max(next)));
            ensure!(
                fastest <= publisher.sent,
                "messages came that this run did not send: does another load use this broker?"
            );
            if slowest > publisher.received {
                publisher.received = slowest;
                self.last_progress = Instant::now();
            }
        }
        Ok(())
    }

    /// Stops publishing, waits for messages in flight, and returns the number of messages lost in
    /// the whole run.
    fn finish(&mut self) -> Result<u64> {
        for publisher in &mut self.publishers {
            publisher.stopped = true;
        }
        let mut events = Events::with_capacity(EVENTS);
        self.last_progress = Instant::now();
        while self.publishers.iter().any(|publisher| publisher.received < publisher.sent) {
            let waited = self.last_progress.elapsed();
            if waited >= STALLED_AFTER {
                break;
            }
            for publisher in &mut self.publishers {
                publisher.publish()?;
            }
            self.turn(&mut events, STALLED_AFTER - waited)?;
        }
        let mut lost = 0;
        for publisher in &self.publishers {
            for subscriber in &self.subscribers[publisher.audience.clone()] {
                lost += subscriber.order.lost + (publisher.sent - subscriber.order.next);
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_broker::{Fault, TestBroker};
    use super::*;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(10), measure: Duration::from_millis(50) };

    fn load(publishers: usize, subscribers: usize, qos: QoS) -> Load {
        Load { publishers, subscribers, qos, body: 100, window: 50, unacknowledged: 10, user: &[], lasting: false }
    }

    #[test]
    fn everything_is_delivered_within_the_windows() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            let broker = TestBroker::start(Fault::None);
            let outcome = run(broker.target(), &load(2, 3, qos), &TIMING, None).expect("a run");
            assert_eq!((outcome.lost, outcome.repeated), (0, 0));
            assert!(outcome.delivered > 0 && outcome.reads > 0, "{outcome:?}");
            assert!(outcome.broker_micros().is_none());
            let seen = broker.stop();
            assert!(seen.delivered >= outcome.delivered, "counted {} of {}", outcome.delivered, seen.delivered);
            assert_eq!(seen.delivered, 3 * seen.published, "all that was published was waited for");
            let limit = if qos == QoS::AtLeastOnce { 10 } else { 50 };
            assert!(seen.most_on_the_way <= limit, "{} on the way, {limit} allowed", seen.most_on_the_way);
        }
    }

    #[test]
    fn an_interval_lasts_until_something_was_delivered() {
        let broker = TestBroker::start(Fault::None);
        let timing = Timing { warm_up: Duration::ZERO, measure: Duration::ZERO };
        let outcome = run(broker.target(), &load(1, 1, QoS::AtMostOnce), &timing, None).expect("a run");
        assert!(outcome.delivered > 0 && outcome.elapsed > Duration::ZERO, "{outcome:?}");
    }

    #[test]
    fn dropped_messages_are_counted_as_lost_and_never_as_delivered() {
        let broker = TestBroker::start(Fault::DropEvery(10));
        let outcome = run(broker.target(), &load(1, 2, QoS::AtMostOnce), &TIMING, None).expect("a run");
        let seen = broker.stop();
        assert!(outcome.lost > 0);
        assert_eq!(outcome.lost, 2 * seen.published - seen.delivered);
        assert!(outcome.delivered <= seen.delivered);
    }

    #[test]
    fn messages_that_come_twice_are_counted_apart() {
        let broker = TestBroker::start(Fault::RepeatEvery(10));
        let outcome = run(broker.target(), &load(1, 1, QoS::AtMostOnce), &TIMING, None).expect("a run");
        let seen = broker.stop();
        assert_eq!(outcome.lost, 0);
        assert_eq!(outcome.repeated, seen.delivered - seen.published);
        assert!(outcome.repeated > 0);
    }
}
