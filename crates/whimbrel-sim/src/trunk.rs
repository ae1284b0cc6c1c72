//! A connection between two brokers over a path of a wide area, without IO: not QUIC, but what its
//! user sees of it.
//!
//! Several ordered byte streams in both directions and single datagrams share the path's rate and
//! queue. A lost packet shows as delay of its own stream, and only of it: it is sent again a round
//! trip and 25 ms later, each further time after twice as long. A lost datagram is gone. A receiver
//! that does not read a stream blocks it when its window is full. A side that hears nothing for the
//! idle time is told that the connection has ended; connecting again is the caller's.
//!
//! Simpler than the real thing: streams never overfill the path's queue (they use half of it, in
//! turns), acknowledgements and window updates cost no bytes and are only delayed, and setting up
//! takes no time.

mod kinds;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_event::Time;

use crate::random::Random;
use crate::wan::{Counters, Link, WanProfile};

pub use kinds::{End, Event, Refused, Shape, Side};

/// Bytes of a stream that may wait to be sent.
pub const UNSENT_MAX: usize = 64 << 20;
/// The largest datagram, and what of a stream is sent at once, bytes.
pub const PACKET_MAX: usize = 1200;
/// Datagrams under way, over both directions; more are lost.
pub const DATAGRAMS_MAX: usize = 1 << 16;
/// Streams that a connection may have.
pub const STREAMS_MAX: usize = 64;
/// What a packet has beside its content, bytes.
const OVERHEAD: usize = 30;
/// What a loss takes to be noticed beyond a round trip.
const NOTICE: Duration = Duration::from_millis(25);
/// A packet that is under way for so long, as it was lost several times, is a stall: what came
/// after it in its stream waits as well.
const STALL: Duration = Duration::from_secs(1);
/// How often the wait before sending again doubles.
const DOUBLINGS_MAX: u32 = 4;
/// A window is opened again when that part of it has been read.
const WINDOW_PARTS: usize = 8;
/// How soon the queue is looked at again at the earliest.
const LOOK: Duration = Duration::from_micros(1);

/// A part of a stream under way.
#[derive(Debug)]
struct Packet {
    from: Side,
    stream: usize,
    number: u64,
    /// When it was sent first.
    since: Time,
    /// How often it was sent before.
    tries: u32,
    bytes: Vec<u8>,
}

/// What happens at a moment to come. Arrivals know how often the link had been cut when they were
/// sent.
#[derive(Debug)]
enum Due {
    Packet { packet: Packet, cuts: u64 },
    Datagram { to: Side, bytes: Vec<u8>, cuts: u64 },
    Alive { to: Side, cuts: u64 },
    Retry(Packet),
    Credit { to: Side, stream: usize, bytes: usize },
    Room(Side),
    KeepAlive(Side),
    Idle(Side),
}

/// One direction of one stream.
#[derive(Debug, Default)]
struct Flow {
    unsent: VecDeque<Vec<u8>>,
    unsent_bytes: usize,
    /// How much of the first unsent piece has been sent.
    cut_off: usize,
    /// Bytes sent whose reading the sender has not heard of.
    in_window: usize,
    next_number: u64,
    /// At the receiver: the number that comes next, and what came before its turn.
    expected: u64,
    early: BTreeMap<u64, Vec<u8>>,
    stalled: bool,
    unread: VecDeque<Vec<u8>>,
    /// Bytes read that the sender is not told of yet.
    owed: usize,
}

impl Flow {
    /// The next bytes to send, at most so many, which are at least 1.
    fn take(&mut self, most: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(first) = self.unsent.front() {
            let count = (first.len() - self.cut_off).min(most - taken.len());
            if taken.is_empty() && count == first.len() {
                taken = self.unsent.pop_front().unwrap_or_default();
                continue;
            }
            if count == 0 {
                break;
            }
            taken.extend_from_slice(&first[self.cut_off..self.cut_off + count]);
            self.cut_off += count;
            if self.cut_off == first.len() {
                self.unsent.pop_front();
                self.cut_off = 0;
            }
        }
        self.unsent_bytes -= taken.len();
        self.in_window += taken.len();
        taken
    }
}

/// A connection. See the module's documentation.
#[derive(Debug)]
pub struct Trunk {
    shape: Shape,
    /// By the side that sends.
    links: [Link; 2],
    /// By sending side, then stream.
    flows: [Vec<Flow>; 2],
    heard: [Time; 2],
    closed: [bool; 2],
    /// Which stream may send next.
    turns: [usize; 2],
    /// Whether the queue will be looked at again.
    looking: [bool; 2],
    due: BTreeMap<(Time, u64), Due>,
    next_due: u64,
    datagrams: usize,
    stalled: Option<(Time, Time)>,
    ready: VecDeque<Event>,
    now: Time,
}

impl Trunk {
    /// A connection that both sides have from now on.
    ///
    /// # Panics
    /// If the shape is out of its bounds.
    pub fn new(now: Time, shape: Shape, mut random: Random) -> Self {
        assert!((1..=STREAMS_MAX).contains(&shape.streams) && shape.window >= 1, "streams with windows");
        assert!(shape.keep_alive > Duration::ZERO, "a side lets itself be heard now and then");
        let links = shape.profiles.map(|profile| Link::new(profile, random.fork()));
        let flows = [0, 1].map(|_| (0..shape.streams).map(|_| Flow::default()).collect());
        let mut trunk = Trunk {
            shape,
            links,
            flows,
            heard: [now; 2],
            closed: [false; 2],
            turns: [0; 2],
            looking: [false; 2],
            due: BTreeMap::new(),
            next_due: 0,
            datagrams: 0,
            stalled: None,
            ready: VecDeque::new(),
            now,
        };
        for side in [Side::Near, Side::Far] {
            // The sides do not beat in time.
            let first = Duration::from_nanos(random.below(shape.keep_alive.as_nanos() as u64) + 1);
            trunk.plan(now + first, Due::KeepAlive(side));
            trunk.plan(now + shape.idle, Due::Idle(side));
        }
        trunk
    }

    fn plan(&mut self, at: Time, due: Due) {
        self.due.insert((at, self.next_due), due);
        self.next_due += 1;
    }

    /// Writes to a stream of one side.
    ///
    /// # Errors
    /// When the connection has ended there, or too much is unsent; nothing of it is taken then.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn write(&mut self, now: Time, from: Side, stream: usize, bytes: Vec<u8>) -> Result<(), Refused> {
        if self.closed[from.index()] {
            return Err(Refused::Closed);
        }
        let flow = &mut self.flows[from.index()][stream];
        if flow.unsent_bytes + bytes.len() > UNSENT_MAX {
            return Err(Refused::Full);
        }
        if !bytes.is_empty() {
            flow.unsent_bytes += bytes.len();
            flow.unsent.push_back(bytes);
            self.pump(now, from);
        }
        Ok(())
    }

    /// Sends a datagram, which may be lost.
    ///
    /// # Errors
    /// When the connection has ended there, the datagram is too long, or too many are under way.
    pub fn send(&mut self, now: Time, from: Side, bytes: Vec<u8>) -> Result<(), Refused> {
        if self.closed[from.index()] {
            return Err(Refused::Closed);
        }
        if bytes.len() > PACKET_MAX {
            return Err(Refused::TooLong);
        }
        if self.datagrams >= DATAGRAMS_MAX {
            return Err(Refused::Full);
        }
        let (_, landing) = self.transmit(now, from, bytes.len());
        if let Some(at) = landing {
            self.datagrams += 1;
            let cuts = self.links[from.index()].cuts();
            self.plan(at, Due::Datagram { to: from.other(), bytes, cuts });
        }
        Ok(())
    }

    /// Bytes that a stream of one side has not sent yet.
    pub fn unsent(&self, from: Side, stream: usize) -> usize {
        self.flows[from.index()][stream].unsent_bytes
    }

    /// How long something takes that one side sends, without waiting for the bottleneck, mostly.
    pub fn typical(&self, from: Side) -> Duration {
        self.links[from.index()].profile().typical()
    }

    /// A side stops reading a stream.
    pub fn stall(&mut self, to: Side, stream: usize) {
        self.flows[to.other().index()][stream].stalled = true;
    }

    /// It reads again.
    pub fn resume(&mut self, now: Time, to: Side, stream: usize) {
        self.now = now;
        let flow = &mut self.flows[to.other().index()][stream];
        flow.stalled = false;
        let unread = std::mem::take(&mut flow.unread);
        unread.into_iter().for_each(|bytes| self.give(now, to, stream, bytes));
    }

    /// What one side sends is lost from now on, and so is what is under way.
    pub fn cut(&mut self, from: Side) {
        self.links[from.index()].cut();
    }

    /// What that side sends from now on arrives again.
    pub fn heal(&mut self, from: Side) {
        self.links[from.index()].heal();
    }

    /// Another profile of the path from that side.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]).
    pub fn set_profile(&mut self, now: Time, from: Side, profile: WanProfile) {
        self.links[from.index()].set_profile(now, profile);
    }

    /// What the path from that side has done.
    pub fn counters(&self, from: Side) -> Counters {
        self.links[from.index()].counters()
    }

    /// The connection ends at once, and both sides are told.
    pub fn reset(&mut self, now: Time) {
        self.now = now;
        self.close(Side::Near, End::Reset);
        self.close(Side::Far, End::Reset);
    }

    /// When [`Trunk::poll`] has something to do, if nothing else happens; never again when both
    /// sides have ended.
    pub fn next_event(&self) -> Option<Time> {
        let due = || self.due.first_key_value().map(|((at, _), _)| *at);
        if self.ready.is_empty() { due() } else { Some(self.now) }
    }

    /// What has happened by now, one event at a time, until there is none. `now` never goes back.
    pub fn poll(&mut self, now: Time) -> Option<Event> {
        self.now = now;
        while self.ready.is_empty() {
            let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
            let due = first.remove();
            self.play(now, due);
        }
        self.ready.pop_front()
    }

    fn play(&mut self, now: Time, due: Due) {
        match due {
            Due::Packet { packet, cuts } => {
                if self.hears(now, packet.from.other(), cuts) {
                    self.arrive(now, packet);
                } else {
                    self.again(now, packet);
                }
            }
            Due::Datagram { to, bytes, cuts } => {
                self.datagrams -= 1;
                if self.hears(now, to, cuts) && !self.closed[to.index()] {
                    self.ready.push_back(Event::Datagram { to, bytes });
                }
            }
            Due::Alive { to, cuts } => {
                self.hears(now, to, cuts);
            }
            Due::Retry(packet) => self.dispatch(now, packet),
            Due::Credit { to, stream, bytes } => self.credit(now, to, stream, bytes),
            Due::Room(side) => {
                self.looking[side.index()] = false;
                self.pump(now, side);
            }
            Due::KeepAlive(side) if !self.closed[side.index()] => {
                // One that is lost is sent again as soon as that is noticed, so that a burst of
                // losses ends nothing.
                let mut next = self.shape.keep_alive;
                if let (_, Some(at)) = self.transmit(now, side, 0) {
                    let cuts = self.links[side.index()].cuts();
                    self.plan(at, Due::Alive { to: side.other(), cuts });
                } else {
                    next = next.min(self.notice());
                }
                self.plan(now + next, Due::KeepAlive(side));
            }
            Due::Idle(side) if !self.closed[side.index()] => {
                let end = self.heard[side.index()] + self.shape.idle;
                if end <= now { self.close(side, End::Idle) } else { self.plan(end, Due::Idle(side)) }
            }
            Due::KeepAlive(_) | Due::Idle(_) => {}
        }
    }

    /// Whether something that was sent to a side when its link had been cut so often arrives; then
    /// the side has heard of the other.
    fn hears(&mut self, now: Time, to: Side, cuts: u64) -> bool {
        let link = &mut self.links[to.other().index()];
        if link.cuts() != cuts {
            link.lost_under_way(1);
            return false;
        }
        self.heard[to.index()] = now;
        true
    }

    /// Sends so many bytes: when they have left, and when they arrive. What arrives damaged is
    /// thrown away; a copy does no harm.
    fn transmit(&mut self, now: Time, from: Side, bytes: usize) -> (Time, Option<Time>) {
        let fate = self.links[from.index()].send(now, bytes + OVERHEAD);
        let landings = [fate.landing, fate.copy].into_iter().flatten();
        (fate.departs, landings.filter(|landing| !landing.corrupt).map(|landing| landing.at).min())
    }

    /// Lets the path take what streams may send, in turns.
    fn pump(&mut self, now: Time, from: Side) {
        let side = from.index();
        while let Some(stream) = self.next_stream(side) {
            let share = self.links[side].profile().queue / 2;
            let waiting = self.links[side].waiting(now);
            if waiting > 0 && waiting + PACKET_MAX > share {
                if !self.looking[side] {
                    self.looking[side] = true;
                    let at = self.links[side].drained_to(now, share.saturating_sub(PACKET_MAX));
                    self.plan(at.max(now + LOOK), Due::Room(from));
                }
                return;
            }
            self.turns[side] = (stream + 1) % self.shape.streams;
            let flow = &mut self.flows[side][stream];
            let bytes = flow.take(PACKET_MAX.min(self.shape.window - flow.in_window));
            let number = flow.next_number;
            flow.next_number += 1;
            self.dispatch(now, Packet { from, stream, number, since: now, tries: 0, bytes });
        }
    }

    /// The next stream in turn that has something to send and may.
    fn next_stream(&self, side: usize) -> Option<usize> {
        let streams = self.shape.streams;
        (self.turns[side]..self.turns[side] + streams).map(|turn| turn % streams).find(|stream| {
            let flow = &self.flows[side][*stream];
            flow.unsent_bytes > 0 && flow.in_window < self.shape.window
        })
    }

    fn dispatch(&mut self, now: Time, packet: Packet) {
        if self.closed[packet.from.index()] {
            return;
        }
        let (departs, landing) = self.transmit(now, packet.from, packet.bytes.len());
        let cuts = self.links[packet.from.index()].cuts();
        match landing {
            Some(at) => self.plan(at, Due::Packet { packet, cuts }),
            None => self.again(departs, packet),
        }
    }

    /// Sends a lost packet again when the loss is noticed.
    fn again(&mut self, lost: Time, mut packet: Packet) {
        let wait = self.notice() * 2_u32.pow(packet.tries.min(DOUBLINGS_MAX));
        packet.tries = packet.tries.saturating_add(1);
        let until = lost + wait + self.typical(packet.from);
        if until.since(packet.since) >= STALL {
            let since = self.stalled.map_or(packet.since, |(since, _)| since.min(packet.since));
            self.stalled = Some((since, self.stalled.map_or(until, |(_, known)| known.max(until))));
        }
        self.plan(lost + wait, Due::Retry(packet));
    }

    /// From when to when a stream has stalled, and will, as packets were lost again and again, if
    /// one has since this was asked last.
    pub fn take_stall(&mut self) -> Option<(Time, Time)> {
        self.stalled.take()
    }

    fn notice(&self) -> Duration {
        self.links.iter().map(|link| link.profile().typical()).sum::<Duration>() + NOTICE
    }

    fn arrive(&mut self, now: Time, packet: Packet) {
        let (to, stream) = (packet.from.other(), packet.stream);
        if self.closed[to.index()] {
            return;
        }
        self.flows[packet.from.index()][stream].early.insert(packet.number, packet.bytes);
        while let Some(bytes) = self.next_in_order(packet.from, stream) {
            self.give(now, to, stream, bytes);
        }
    }

    fn next_in_order(&mut self, from: Side, stream: usize) -> Option<Vec<u8>> {
        let flow = &mut self.flows[from.index()][stream];
        let bytes = flow.early.remove(&flow.expected)?;
        flow.expected += 1;
        Some(bytes)
    }

    /// Gives a side what is next of a stream, and its sender room for as much, in larger parts.
    fn give(&mut self, now: Time, to: Side, stream: usize, bytes: Vec<u8>) {
        if self.closed[to.index()] {
            return;
        }
        let back = self.links[to.index()].profile().typical();
        let flow = &mut self.flows[to.other().index()][stream];
        if flow.stalled {
            flow.unread.push_back(bytes);
            return;
        }
        flow.owed += bytes.len();
        self.ready.push_back(Event::Bytes { to, stream, bytes });
        if flow.owed >= self.shape.window.div_ceil(WINDOW_PARTS) {
            let bytes = std::mem::take(&mut flow.owed);
            self.plan(now + back, Due::Credit { to: to.other(), stream, bytes });
        }
    }

    /// The sender hears that so much was read. Over a cut link it hears of it later.
    fn credit(&mut self, now: Time, to: Side, stream: usize, bytes: usize) {
        if self.closed[to.index()] || self.closed[to.other().index()] {
            return;
        }
        if self.links[to.other().index()].is_cut() {
            let later = now + self.notice();
            return self.plan(later, Due::Credit { to, stream, bytes });
        }
        self.flows[to.index()][stream].in_window -= bytes;
        self.pump(now, to);
    }

    /// The connection ends for a side, unless it has.
    fn close(&mut self, side: Side, why: End) {
        if std::mem::replace(&mut self.closed[side.index()], true) {
            return;
        }
        self.ready.push_back(Event::Closed { side, why });
        self.flows[side.index()].iter_mut().for_each(|flow| {
            flow.unsent.clear();
            flow.unsent_bytes = 0;
        });
        if self.closed == [true; 2] {
            self.due.clear();
        }
    }
}

#[cfg(test)]
mod tests;
