//! Publishers that have at most a window of unacknowledged messages, and do nothing else.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use super::super::accounts::PacketIds;
use super::super::link::{Endpoint, Link, SCRATCH_BYTES};
use super::super::process::CpuClock;
use super::super::target::Target;
use super::super::wire::{Frame, Protocol, QoS, Template};
use super::{Grouping, Rate, latencies};

/// After this long without an acknowledgement the broker counts as stuck.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The number of events taken from the poll at once.
const EVENTS: usize = 256;

struct Publisher {
    endpoint: Endpoint,
    template: Template,
    packet_ids: Option<PacketIds>,
    /// The sending times of unacknowledged messages. Acknowledgements arrive in this order.
    open: VecDeque<Instant>,
    sent: u64,
}

/// All publishers of a load, driven by one thread.
pub(super) struct Publishers {
    poll: Poll,
    publishers: Vec<Publisher>,
    window: usize,
    /// The number of messages that each may send in all.
    left: u64,
    scratch: Vec<u8>,
    accepted: u64,
    waits: Histogram<u64>,
    last_progress: Instant,
}

impl Publishers {
    /// Connects all publishers, each with its own topic.
    pub(super) fn connect(target: Target, grouping: Grouping, body: usize) -> Result<Publishers> {
        let poll = Poll::new().context("making a poll")?;
        let mut publishers = Vec::new();
        for index in 0..grouping.publishers {
            let mut link = Link::open(target, &format!("p{index}-{}", std::process::id()))?;
            link.prepare_publishing(index, QoS::AtLeastOnce)?;
            let mut endpoint = link.into_endpoint()?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut endpoint.stream, Token(index), interest)?;
            let topic = target.topic(index, QoS::AtLeastOnce);
            let template = Template::new(target.protocol, &topic, QoS::AtLeastOnce, body);
            let packet_ids = (target.protocol != Protocol::Nats).then(PacketIds::default);
            publishers.push(Publisher { endpoint, template, packet_ids, open: VecDeque::new(), sent: 0 });
        }
        Ok(Publishers {
            poll,
            publishers,
            window: grouping.window,
            left: u64::MAX,
            scratch: vec![0; SCRATCH_BYTES],
            accepted: 0,
            waits: latencies(),
            last_progress: Instant::now(),
        })
    }

    /// Measures for a time, after a warm-up.
    pub(super) fn measure(&mut self, (warm_up, slice): (Duration, Duration), broker: Option<CpuClock>) -> Result<Rate> {
        let begin = Instant::now();
        self.left = u64::MAX;
        self.turn_while(|_, now| now < begin + warm_up)?;
        let (begin, before) = (Instant::now(), self.accepted);
        let read = || broker.map(CpuClock::read).transpose();
        let cpu = read()?;
        self.waits.reset();
        // At least until something was acknowledged, however slow the broker is.
        self.turn_while(|all, now| now < begin + slice || all.accepted == before)?;
        let (elapsed, accepted) = (begin.elapsed(), self.accepted - before);
        let used = read()?.zip(cpu).map(|(end, start)| end - start);
        self.left = 0;
        self.settle()?;
        ensure!(accepted > 0, "nothing was acknowledged in {slice:?}");
        Ok(Rate::of(accepted, elapsed, used, &self.waits))
    }

    /// Publishes `each` messages per publisher and waits until all are acknowledged; returns how
    /// long that took.
    pub(super) fn send(&mut self, each: u64) -> Result<Duration> {
        let begin = Instant::now();
        self.left = each;
        self.settle()?;
        Ok(begin.elapsed())
    }

    /// Continues until nothing is left to be sent or acknowledged.
    fn settle(&mut self) -> Result<()> {
        self.turn_while(|all, _| all.publishers.iter().any(|own| own.sent < all.left || !own.open.is_empty()))
    }

    fn turn_while(&mut self, goes_on: impl Fn(&Publishers, Instant) -> bool) -> Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        self.last_progress = Instant::now();
        loop {
            let now = Instant::now();
            for publisher in &mut self.publishers {
                publisher.publish(self.window, self.left, now)?;
            }
            if !goes_on(self, now) {
                return Ok(());
            }
            ensure!(now - self.last_progress < STALLED_AFTER, "nothing was acknowledged for {STALLED_AFTER:?}");
            self.poll.poll(&mut events, Some(Duration::from_millis(10))).context("waiting for the sockets")?;
            for event in &events {
                self.receive(event.token().0)?;
            }
        }
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let Publisher { endpoint, packet_ids, open, .. } = &mut self.publishers[index];
        let (now, mut came) = (Instant::now(), 0);
        let waits = &mut self.waits;
        endpoint.receive(&mut self.scratch, |frame, _| {
            let Frame::Accepted(id) = frame else {
                return match frame {
                    Frame::Ready => Ok(()),
                    frame => bail!("a publisher received {frame:?}, which it did not ask for"),
                };
            };
            if let (Some(id), Some(ids)) = (id, packet_ids.as_mut()) {
                ids.free(id)?;
            }
            let since = open.pop_front().context("the broker acknowledged more than was sent")?;
            waits.saturating_record((now - since).as_nanos() as u64);
            came += 1;
            Ok(())
        })?;
        if came > 0 {
            self.accepted += came;
            self.last_progress = now;
        }
        Ok(())
    }
}

impl Publisher {
    /// Sends as many messages as the window allows, `left` in all.
    fn publish(&mut self, window: usize, left: u64, now: Instant) -> Result<()> {
        while self.open.len() < window && self.sent < left {
            let id = match &mut self.packet_ids {
                None => 0,
                Some(ids) => match ids.take() {
                    Some(id) => id,
                    None => break,
                },
            };
            self.template.write(&mut self.endpoint.out, self.sent, id);
            self.open.push_back(now);
            self.sent += 1;
        }
        self.endpoint.flush()
    }
}
