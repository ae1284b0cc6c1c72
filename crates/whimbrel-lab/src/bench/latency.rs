//! Latency: an open loop at a fixed rate, with one publisher and one subscriber whose delays count.
//!
//! The rate does not depend on the broker: a message is due at its time, and its latency counts
//! from then, whether or not the publisher was late. One thread sends and receives without
//! sleeping, so that no wake-up but the broker's is measured.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;

use super::accounts::Order;
use super::link::{Endpoint, Link, SCRATCH_BYTES};
use super::target::Target;
use super::wire::{self, Frame, QoS, Template};

/// Messages per second.
pub const RATE: u64 = 5_000;

/// How long the last messages may take to arrive; also the highest latency that is distinguished.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that may wait for the publisher's socket; beyond it the broker counts as stuck.
const UNSENT_LIMIT: usize = 16 * 1024 * 1024;

/// The receive buffer of the subscriber that stops reading: small, so that the broker soon notices
/// it.
const STUCK_BUFFER: usize = 4096;

/// The time in which the buffers of the subscriber that stops reading fill up: with 1,000-byte
/// bodies 5 MB, more than the kernel's largest send buffer by default.
pub const FILL: Duration = Duration::from_secs(1);

/// Latencies of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99th percentile of the generator's own delay in sending.
    pub own_p99: Duration,
    /// Messages that were never delivered.
    pub lost: u64,
}

/// Measures for `measure` after `warm_up`, with bodies of `body` bytes.
///
/// # Errors
/// When the broker refuses or breaks a connection, or breaks the protocol.
pub fn run(target: Target, body: usize, warm_up: Duration, measure: Duration) -> Result<Latency> {
    let mut course = Course::connect(&Ends::of(target), body, false)?;
    course.run_for(warm_up)?;
    course.measure(measure)
}

/// The ends of a measurement, and its rate.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The publisher's broker.
    pub publisher: Target,
    /// The subscriber's broker.
    pub subscriber: Target,
    /// Messages per second, at least 1 and at most 1,000,000.
    pub rate: u64,
    /// Whether the subscriber wants the published topic; else it is connected and receives nothing.
    pub wants: bool,
}

impl Ends {
    /// Both at one broker, at the default rate.
    pub fn of(target: Target) -> Ends {
        Ends { publisher: target, subscriber: target, rate: RATE, wants: true }
    }
}

/// Measures between two brokers for `measure` after `warm_up`, with bodies of `body` bytes; `mark`
/// is called when the measurement begins and when its last message is sent. Returns `None` if the
/// subscriber wants nothing.
///
/// # Errors
/// As [`run`].
pub fn run_between(
    ends: &Ends,
    body: usize,
    (warm_up, measure): (Duration, Duration),
    mut mark: impl FnMut() -> Result<()>,
) -> Result<Option<Latency>> {
    let mut course = Course::connect(ends, body, false)?;
    course.run_for(warm_up)?;
    mark()?;
    if ends.wants {
        let latency = course.measure(measure)?;
        mark()?;
        return Ok(Some(latency));
    }
    course.run_for(measure)?;
    mark()?;
    Ok(None)
}

/// Measures before and after a second subscriber to the same topic stops reading; the time `fill`
/// passes before the second measurement.
///
/// # Errors
/// As [`run`].
pub fn run_disturbed(target: Target, body: usize, fill: Duration, measure: Duration) -> Result<(Latency, Latency)> {
    let mut course = Course::connect(&Ends::of(target), body, true)?;
    course.run_for(fill)?;
    let before = course.measure(measure)?;
    course.stop_reading()?;
    course.run_for(fill)?;
    let after = course.measure(measure)?;
    Ok((before, after))
}

/// One publisher, the measured subscriber, and perhaps another.
struct Course {
    publisher: Endpoint,
    template: Template,
    subscriber: Endpoint,
    other: Option<Endpoint>,
    other_reads: bool,
    scratch: Vec<u8>,
    start: Instant,
    /// Time between messages, nanoseconds.
    interval: u64,
    /// The number of messages sent; message `n` is due `n` intervals after the start.
    sent: u64,
    order: Order,
    record: Record,
}

/// The records of a measurement.
struct Record {
    /// Messages due before this, in nanoseconds since the start, are not measured.
    from: u64,
    latencies: Histogram<u64>,
    lateness: Histogram<u64>,
}

impl Record {
    fn starting(from: u64) -> Result<Record> {
        let histogram = || Histogram::new_with_bounds(1, PATIENCE.as_nanos() as u64, 3);
        Ok(Record { from, latencies: histogram()?, lateness: histogram()? })
    }
}

impl Course {
    fn connect(ends: &Ends, body: usize, with_other: bool) -> Result<Course> {
        let subscribe = |name: &str| -> Result<Link> {
            let mut link = Link::open(ends.subscriber, name)?;
            link.subscribe(usize::from(!ends.wants), QoS::AtMostOnce, name)?;
            Ok(link)
        };
        let target = ends.publisher;
        let subscriber = subscribe("measured")?.into_endpoint()?;
        let mut other = None;
        if with_other {
            other = Some(subscribe("other")?.into_endpoint()?);
        }
        let publisher = Link::open(target, "publisher")?.into_endpoint()?;
        let topic = target.topic(0, QoS::AtMostOnce);
        Ok(Course {
            publisher,
            template: Template::new(target.protocol, &topic, QoS::AtMostOnce, body),
            subscriber,
            other,
            other_reads: true,
            scratch: vec![0; SCRATCH_BYTES],
            start: Instant::now(),
            interval: 1_000_000_000 / ends.rate,
            sent: 0,
            order: Order::default(),
            record: Record::starting(u64::MAX)?,
        })
    }

    /// The other subscriber stops reading.
    fn stop_reading(&mut self) -> Result<()> {
        self.other_reads = false;
        let Some(other) = &self.other else { return Ok(()) };
        let small = socket2::SockRef::from(&other.stream).set_recv_buffer_size(STUCK_BUFFER);
        small.context("setting a small receive buffer")
    }

    /// The time since the start, nanoseconds.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Sends messages that are due for `time`, and receives.
    fn run_for(&mut self, time: Duration) -> Result<()> {
        let last = self.sent + time.as_nanos() as u64 / self.interval;
        while self.sent < last {
            let due = self.sent * self.interval;
            let now = self.now();
            if now >= due {
                self.template.write(&mut self.publisher.out, due, 0);
                self.publisher.flush()?;
                ensure!(self.publisher.unsent() < UNSENT_LIMIT, "the broker does not keep up with the pace");
                self.sent += 1;
                if due >= self.record.from {
                    self.record.lateness.saturating_record(now - due);
                }
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Runs for `time` and waits for the last messages.
    fn measure(&mut self, time: Duration) -> Result<Latency> {
        let sent_before = self.sent;
        self.record = Record::starting(self.sent * self.interval)?;
        self.run_for(time)?;
        let patience = Instant::now() + PATIENCE;
        while self.order.next < self.sent && Instant::now() < patience {
            self.publisher.flush()?;
            self.receive()?;
        }
        let Record { latencies, lateness, .. } = std::mem::replace(&mut self.record, Record::starting(u64::MAX)?);
        ensure!(!latencies.is_empty(), "nothing was delivered in {time:?}");
        // The time of the wait does not make later messages late.
        self.start += Duration::from_nanos(self.now().saturating_sub(self.sent * self.interval));
        let quantile = |histogram: &Histogram<u64>, q| Duration::from_nanos(histogram.value_at_quantile(q));
        Ok(Latency {
            p50: quantile(&latencies, 0.5),
            p99: quantile(&latencies, 0.99),
            own_p99: quantile(&lateness, 0.99),
            lost: (self.sent - sent_before).saturating_sub(latencies.len()),
        })
    }

    fn receive(&mut self) -> Result<()> {
        let Course { subscriber, scratch, start, order, record, interval, .. } = self;
        subscriber.receive(scratch, |frame, _| {
            let Frame::Message { body, .. } = frame else {
                bail!("a subscriber received {frame:?}, which it did not ask for")
            };
            let due = wire::stamp(body)?;
            if order.note(due / *interval) && due >= record.from {
                let now = start.elapsed().as_nanos() as u64;
                record.latencies.saturating_record(now.saturating_sub(due));
            }
            Ok(())
        })?;
        match &mut self.other {
            Some(other) if self.other_reads => other.receive(&mut self.scratch, |_, _| Ok(())).map(drop),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_broker::{Fault, TestBroker};
    use super::*;

    const TIME: Duration = Duration::from_millis(40);

    #[test]
    fn every_message_is_sent_at_its_time_and_measured() {
        let broker = TestBroker::start(Fault::None);
        let latency = run(broker.target(), 100, Duration::from_millis(4), TIME).expect("a run");
        assert_eq!(broker.stop().published, RATE * 44 / 1000);
        assert_eq!(latency.lost, 0);
        assert!(Duration::ZERO < latency.p50 && latency.p50 <= latency.p99, "{latency:?}");
    }

    #[test]
    fn a_lost_message_is_told_and_a_subscriber_that_stops_reading_is_left_alone() {
        let broker = TestBroker::start(Fault::DropEvery(7));
        let (before, after) = run_disturbed(broker.target(), 100, Duration::from_millis(4), TIME).expect("a run");
        let dropped = RATE * 40 / 1000 / 7;
        for latency in [before, after] {
            assert!(latency.lost.abs_diff(dropped) <= 1, "{latency:?}, {dropped} dropped");
        }
        broker.stop();
    }
}
