//! A connection between two brokers over a wide-area path, without IO: a model of what the user of
//! a QUIC connection sees.
//!
//! Ordered byte streams in both directions and single datagrams share the path's rate and queue. A
//! lost packet delays its own stream, and no other: it is sent again a round trip and 25 ms later,
//! and each further time after twice that wait. A lost datagram is gone. A receiver that does not
//! read a stream blocks it when its window is full. A side that receives nothing for the idle time
//! is told that the connection has ended; the caller connects again.
//!
//! Simplifications: streams never overfill the path's queue (they use half of it, in turns),
//! acknowledgements and window updates cost no bytes and are only delayed, and setting up takes no
//! time.

mod kinds;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_event::Time;

use crate::random::Random;
use crate::wan::{Counters, Link, WanProfile};

pub use kinds::{End, Event, Refused, Shape, Side};

/// Bytes of a stream that may wait to be sent, at most.
pub const UNSENT_MAX: usize = 64 << 20;
/// The size of the largest datagram, and of the largest part of a stream that is sent at once,
/// bytes.
pub const PACKET_MAX: usize = 1200;
/// Datagrams in flight, over both directions; more are lost.
pub const DATAGRAMS_MAX: usize = 1 << 16;
/// Streams that a connection may have.
pub const STREAMS_MAX: usize = 64;
/// Bytes of a packet besides its content.
const OVERHEAD: usize = 30;
/// How long after a round trip a loss is noticed.
const NOTICE: Duration = Duration::from_millis(25);
/// A packet that is in flight for this long, as it was lost several times, is a stall: later
/// packets of its stream wait as well.
const STALL: Duration = Duration::from_secs(1);
/// The number of times that the wait before a retransmission doubles.
const DOUBLINGS_MAX: u32 = 4;
/// The receiver tells the sender of read bytes in steps of the window divided by this.
const WINDOW_PARTS: usize = 8;
/// The least time until the queue is inspected again.
const LOOK: Duration = Duration::from_micros(1);

/// A part of a stream in flight.
#[derive(Debug)]
struct Packet {
    from: Side,
    stream: usize,
    number: u64,
    /// When it was first sent.
    since: Time,
    /// The number of earlier transmissions.
    tries: u32,
    bytes: Vec<u8>,
}

/// A future action. Arrivals carry the number of cuts that the link had when they were sent.
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
    /// The number of bytes of the first unsent piece that were sent.
    cut_off: usize,
    /// Bytes sent of which the sender does not know that they were read.
    in_window: usize,
    next_number: u64,
    /// At the receiver: the number of the next packet, and packets that arrived before their turn.
    expected: u64,
    early: BTreeMap<u64, Vec<u8>>,
    stalled: bool,
    unread: VecDeque<Vec<u8>>,
    /// Bytes read of which the sender was not told yet.
    owed: usize,
}

impl Flow {
    /// The next bytes to send, at most `most`, which is at least 1.
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
    /// By side: the stream that may send next.
    turns: [usize; 2],
    /// By side: whether the queue will be inspected again.
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
            // The two sides do not send at the same moments.
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
    /// When the connection has ended there, the datagram is too long, or too many are in flight.
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

    /// The median delay of data from one side, without waiting for the bottleneck.
    pub fn typical(&self, from: Side) -> Duration {
        self.links[from.index()].profile().typical()
    }

    /// A side stops reading a stream.
    pub fn stall(&mut self, to: Side, stream: usize) {
        self.flows[to.other().index()][stream].stalled = true;
    }

    /// A side reads a stream again.
    pub fn resume(&mut self, now: Time, to: Side, stream: usize) {
        self.now = now;
        let flow = &mut self.flows[to.other().index()][stream];
        flow.stalled = false;
        let unread = std::mem::take(&mut flow.unread);
        unread.into_iter().for_each(|bytes| self.give(now, to, stream, bytes));
    }

    /// Everything that one side sends is lost from now on, and so is everything in flight.
    pub fn cut(&mut self, from: Side) {
        self.links[from.index()].cut();
    }

    /// Ends the cut of a side: data sent from now on arrive again.
    pub fn heal(&mut self, from: Side) {
        self.links[from.index()].heal();
    }

    /// Sets the profile of the path from a side.
    ///
    /// # Panics
    /// If the profile is out of its bounds ([`WanProfile::check`]).
    pub fn set_profile(&mut self, now: Time, from: Side, profile: WanProfile) {
        self.links[from.index()].set_profile(now, profile);
    }

    /// The counters of the path from a side.
    pub fn counters(&self, from: Side) -> Counters {
        self.links[from.index()].counters()
    }

    /// The connection ends at once, and both sides are told.
    pub fn reset(&mut self, now: Time) {
        self.now = now;
        self.close(Side::Near, End::Reset);
        self.close(Side::Far, End::Reset);
    }

    /// When [`Trunk::poll`] is next due, if nothing else happens; `None` when both sides have
    /// ended.
    pub fn next_event(&self) -> Option<Time> {
        let due = || self.due.first_key_value().map(|((at, _), _)| *at);
        if self.ready.is_empty() { due() } else { Some(self.now) }
    }

    /// The next event that has happened by now; `None`: there is none left. `now` never goes back.
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
                // A lost one is sent again as soon as the loss is noticed, so that a burst of
                // losses does not end the connection.
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

    /// Whether something arrives at a side that was sent when its link had been cut `cuts` times;
    /// if so, the side has received something of the other.
    fn hears(&mut self, now: Time, to: Side, cuts: u64) -> bool {
        let link = &mut self.links[to.other().index()];
        if link.cuts() != cuts {
            link.lost_under_way(1);
            return false;
        }
        self.heard[to.index()] = now;
        true
    }

    /// Sends a number of bytes; returns when they have left, and when they arrive. Damaged packets
    /// are discarded; a copy does no harm.
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

    /// The next stream in turn that has bytes to send and may send them.
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

    /// Sends a lost packet again when its loss is noticed.
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

    /// The span in which a stream has stalled, or will, as packets were lost again and again, if
    /// there was one since the last call.
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

    /// Delivers the next bytes of a stream to a side, and opens the sender's window again, in
    /// larger steps.
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

    /// The sender learns how many bytes were read. Over a cut link it learns it later.
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

    /// The connection ends for a side, unless it has ended there.
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
