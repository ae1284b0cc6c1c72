//! A session whose client is away: messages at QoS 1 are queued for it, then the client returns and
//! takes them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use mio::{Events, Interest, Poll, Token};

use super::super::accounts::Order;
use super::super::link::{Endpoint, Link, SCRATCH_BYTES, hello_lasting};
use super::super::peers::{Peer, Setup};
use super::super::process::CpuClock;
use super::super::target::Target;
use super::super::wire::{self, Frame, QoS};
use super::publishers::Publishers;
use super::{DurableArgs, Grouping, Row};
use crate::progress;

/// Messages of the backlog.
const MESSAGES: u64 = 100_000;

/// Bytes of a body.
const BODY: usize = 100;

/// Unacknowledged messages at the broker, at most.
const WINDOW: usize = 1_000;

/// The goal for messages queued and drained, per second.
const IN: f64 = 150_000.0;
const OUT: f64 = 600_000.0;

/// After this long without a message the rest counts as lost.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The session of the client that is away.
const SESSION: &str = "absent";

/// The broker that is measured, and how it keeps the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    OnDisk,
    InMemory,
    Mosquitto,
    Rumqttd,
}

impl Side {
    const ALL: [Side; 4] = [Side::OnDisk, Side::InMemory, Side::Mosquitto, Side::Rumqttd];

    fn name(self) -> &'static str {
        match self {
            Side::OnDisk => "whimbrel",
            Side::InMemory => "whimbrel, memory only",
            Side::Mosquitto => "mosquitto, memory only",
            Side::Rumqttd => "rumqttd, memory only",
        }
    }

    fn peer(self) -> Peer {
        match self {
            Side::OnDisk | Side::InMemory => Peer::Whimbrel,
            Side::Mosquitto => Peer::Mosquitto,
            Side::Rumqttd => Peer::Rumqttd,
        }
    }
}

/// Messages per second and the broker's CPU microseconds per message.
#[derive(Clone, Copy, Debug)]
struct Figures {
    rate: f64,
    cpu: f64,
}

impl Figures {
    fn of(elapsed: Duration, cpu: Duration) -> Figures {
        Figures { rate: MESSAGES as f64 / elapsed.as_secs_f64(), cpu: cpu.as_secs_f64() * 1e6 / MESSAGES as f64 }
    }
}

/// Queues and drains with each broker.
pub(super) fn rows(args: &DurableArgs) -> Result<Vec<Row>> {
    let is_asked = |side: &Side| side.peer() == Peer::Whimbrel || args.brokers.contains(&side.peer());
    let sides: Vec<Side> = Side::ALL.into_iter().filter(is_asked).collect();
    let plan = args.start.shuffled(args.rounds, &sides);
    let progress = progress::bar(plan.len() as u64);
    let mut measured: BTreeMap<Side, Vec<[Figures; 2]>> = BTreeMap::new();
    for (round, side) in plan {
        progress.set_message(format!("round {}: backlog of {}", round + 1, side.name()));
        let figures = measure(args, side).with_context(|| format!("round {}, {}", round + 1, side.name()))?;
        measured.entry(side).or_default().push(figures);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let mut rows = Vec::new();
    for (index, way, goal) in [(0, "queued", IN), (1, "drained", OUT)] {
        for (side, figures) in &measured {
            let row = |what: &str, unit, of: &dyn Fn(&Figures) -> f64| {
                let of: Vec<f64> = figures.iter().map(|both| of(&both[index])).collect();
                Row::median("backlog", format!("{way}: {}{what}", side.name()), unit, &of, args.start.seed)
            };
            let rate = row("", "1/s", &|figures| figures.rate).drawn(way, side.name());
            let rate = if *side == Side::OnDisk { rate.at_least(goal) } else { rate };
            rows.extend([rate, row(", CPU per message", "µs", &|figures| figures.cpu)]);
        }
    }
    Ok(rows)
}

fn measure(args: &DurableArgs, side: Side) -> Result<[Figures; 2]> {
    let setup = args.free("");
    let setup = if side == Side::OnDisk { setup } else { Setup { disk: None, ..setup } };
    let broker = args.start(side.peer(), setup)?;
    let clock = CpuClock::of(broker.pid())?;
    let mut absent = Link::open_lasting(broker.target, SESSION)?;
    absent.subscribe(0, QoS::AtLeastOnce, SESSION)?;
    absent.leave()?;
    let grouping = Grouping { publishers: 1, window: WINDOW };
    let mut publishers = Publishers::connect(broker.target, grouping, BODY)?;
    let before = clock.read()?;
    let elapsed = publishers.send(MESSAGES)?;
    let queued = Figures::of(elapsed, clock.read()? - before);
    let before = clock.read()?;
    let elapsed = drain(broker.target)?;
    let drained = Figures::of(elapsed, clock.read()? - before);
    Ok([queued, drained])
}

/// Returns to the session and takes the queued messages, acknowledging them; returns how long that
/// took.
fn drain(target: Target) -> Result<Duration> {
    let mut poll = Poll::new().context("making a poll")?;
    let begin = Instant::now();
    let mut endpoint = Endpoint::connecting(target, hello_lasting(target.protocol, SESSION))?;
    poll.registry().register(&mut endpoint.stream, Token(0), Interest::READABLE | Interest::WRITABLE)?;
    let (mut order, mut last) = (Order::default(), begin);
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut events = Events::with_capacity(4);
    while order.received < MESSAGES {
        poll.poll(&mut events, Some(Duration::from_millis(10))).context("waiting for the socket")?;
        let is_ready = !events.is_empty();
        let before = order.received;
        if is_ready {
            endpoint.receive(&mut scratch, |frame, out| {
                match frame {
                    Frame::Message { body, ack, .. } => {
                        order.note(wire::stamp(body)?);
                        wire::acknowledge(out, ack);
                    }
                    Frame::Ready => {}
                    frame => bail!("the subscriber received {frame:?}, which it did not ask for"),
                }
                Ok(())
            })?;
            endpoint.flush()?;
        }
        let now = Instant::now();
        if order.received > before {
            last = now;
        }
        ensure!(now - last < STALLED_AFTER, "{} of {MESSAGES} came, then nothing", order.received);
    }
    ensure!(order.lost == 0 && order.repeated == 0, "{} lost, {} repeated", order.lost, order.repeated);
    Ok(begin.elapsed())
}
