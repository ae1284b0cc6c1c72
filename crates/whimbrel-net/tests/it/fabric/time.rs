//! Time passes: bytes that were sent arrive, and deadlines are met.

use core::time::Duration;

use whimbrel_event::{Time, fnv1a, split_mix};
use whimbrel_net::{Channel, PeerInput, PeerLink};

use super::ledger::HopNote;
use super::node::Node;
use super::wires::{End, Flight, LinkUse, Trouble, WireState};
use super::{Cuts, Fabric, Slot};

/// Most moments in one call of [`Fabric::run`].
const TURNS_MAX: usize = 1 << 24;

/// Most parts into which the bytes that arrive at one moment are cut.
const PARTS_MAX: usize = 1 << 16;

/// A hello tells another minor version than that of this program.
fn say_minor(bytes: &mut [u8], channel: Channel, minor: u8) {
    // Behind its length: its type, and the major version.
    const HELLO: u8 = 1;
    if let (Channel::Control, [_, HELLO, _, said, ..]) = (channel, bytes) {
        *said = minor;
    }
}

impl Fabric {
    /// Carries what a node has sent, and ends the links that it has hung up.
    pub(super) fn carry(&mut self, number: usize) {
        let side = &mut self.slots[number].side;
        let (sent, hung_up) = (core::mem::take(&mut side.sent), core::mem::take(&mut side.hung_up));
        let (hops, dials) = (core::mem::take(&mut side.hops), core::mem::take(&mut side.dials));
        self.slots[number].dials.extend(dials);
        for (id, hop) in hops {
            self.ledger.record(HopNote { at: self.now, node: number, id, hop });
        }
        for (link, channel, mut bytes) in sent {
            if let Some(minor) = self.slots[number].setup.minor {
                say_minor(&mut bytes, channel, minor);
            }
            for part in [self.now.as_nanos(), number as u64, u64::from(link.0), channel as u64] {
                self.digest = fnv1a(self.digest, &part.to_le_bytes());
            }
            self.digest = fnv1a(self.digest, &bytes);
            match self.slots[number].links[link.0 as usize] {
                LinkUse::Wire { wire, side } => self.send(wire, side, channel, bytes),
                LinkUse::Stranger => {}
                LinkUse::Free => panic!("node {number} has sent over a link that has ended"),
            }
        }
        for (link, why) in hung_up {
            self.slots[number].hung_up.push((link, why));
            let used_by = self.slots[number].links[link.0 as usize];
            self.free_link(number, link);
            if let LinkUse::Wire { wire, side } = used_by {
                self.hang_up(wire, side);
            }
        }
    }

    /// One end of a wire ends the connection; the other end is told after the delay.
    fn hang_up(&mut self, wire: usize, side: usize) {
        let at = &mut self.wires[wire];
        at.links[side] = None;
        if at.links == [None; 2] {
            at.state = WireState::Closed;
        } else if at.state == WireState::Up {
            let to = End { wire, connection: at.connection, side: 1 - side };
            let when = self.now + at.delay;
            self.begin_flight(when, Flight::Closed { to });
        }
    }

    fn send(&mut self, wire: usize, side: usize, channel: Channel, bytes: Vec<u8>) {
        let at = &mut self.wires[wire];
        let from = End { wire, connection: at.connection, side };
        let mut leaves = self.now;
        let limit = at.flow.filter(|_| channel != Channel::Datagram);
        if let Some(flow) = limit {
            let busy_until = &mut at.busy_until[side][channel as usize];
            // A flow of zero is one that never ends.
            let takes = (bytes.len() as u64 * 1_000_000).checked_div(flow).map_or(Duration::MAX, Duration::from_nanos);
            leaves = (*busy_until).max(self.now).after(takes);
            *busy_until = leaves;
        }
        let Trouble { more, is_silent } = at.trouble[side];
        let may_be_lost = channel == Channel::Datagram && at.loss[side] > 0;
        let is_drawn = may_be_lost && split_mix(&mut self.random) % 1_000 < u64::from(at.loss[side]);
        let is_lost = at.state != WireState::Up || is_silent || is_drawn;
        let mut arrives = leaves.after(at.delay).after(more);
        if channel != Channel::Datagram {
            let last = &mut at.arrives[side][channel as usize];
            arrives = arrives.max(*last);
            *last = arrives;
        }
        if limit.is_some() {
            self.begin_flight(leaves, Flight::Left { from, channel, bytes: bytes.len() });
        }
        if !is_lost {
            let to = End { side: 1 - side, ..from };
            self.begin_flight(arrives, Flight::Bytes { to, channel, bytes });
        }
    }

    fn begin_flight(&mut self, at: Time, flight: Flight) {
        self.flights_begun += 1;
        self.flights.insert((at, self.flights_begun), flight);
    }

    /// The node and the link at an end, unless that connection has ended there.
    fn at(&self, end: End) -> Option<(usize, PeerLink)> {
        let wire = &self.wires[end.wire];
        let link = wire.links[end.side].filter(|_| wire.connection == end.connection)?;
        Some((wire.nodes[end.side], link))
    }

    fn land(&mut self, flight: Flight) {
        match flight {
            Flight::Bytes { to, channel, bytes } => {
                if let Some((node, link)) = self.at(to).filter(|_| self.wires[to.wire].state == WireState::Up) {
                    self.arrive(node, link, channel, bytes, to);
                }
            }
            Flight::Left { from, channel, bytes } => {
                let Some((node, link)) = self.at(from) else { return };
                let Some(unsent) = self.slots[node].side.unsent.get_mut(&link) else { return };
                let unsent = &mut unsent[channel as usize];
                let before = *unsent;
                *unsent -= bytes;
                let unsent = *unsent;
                if before > channel.little() {
                    self.input(node, PeerInput::Room { link, channel, unsent });
                }
            }
            Flight::Closed { to } => {
                if self.at(to).is_some() {
                    self.wires[to.wire].state = WireState::Closed;
                    self.close_end(to.wire, to.side);
                }
            }
        }
    }

    /// Gives a node what arrives over a link, cut as configured.
    fn arrive(&mut self, node: usize, link: PeerLink, channel: Channel, mut bytes: Vec<u8>, to: End) {
        let Cuts::Anywhere(mut seed) = self.cuts else {
            return self.input(node, PeerInput::Bytes { link, channel, bytes: &bytes });
        };
        if channel == Channel::Datagram {
            return self.input(node, PeerInput::Bytes { link, channel, bytes: &bytes });
        }
        self.join_next(&mut bytes, channel, to);
        let mut rest = bytes.as_slice();
        for _ in 0..PARTS_MAX {
            // One part in two is short, so that it ends within a length or a header.
            let random = split_mix(&mut seed);
            let most = if random & 1 == 0 { 8 } else { rest.len() as u64 + 1 };
            let (part, behind) = rest.split_at(((random >> 1) % most).min(rest.len() as u64) as usize);
            self.input(node, PeerInput::Bytes { link, channel, bytes: part });
            rest = behind;
            if rest.is_empty() || self.at(to) != Some((node, link)) {
                break;
            }
        }
        if !rest.is_empty() && self.at(to) == Some((node, link)) {
            self.input(node, PeerInput::Bytes { link, channel, bytes: rest });
        }
        self.cuts = Cuts::Anywhere(seed);
    }

    /// Appends the bytes that arrive next, if they arrive now and on the same stream.
    fn join_next(&mut self, bytes: &mut Vec<u8>, channel: Channel, to: End) {
        while let Some(first) = self.flights.first_entry() {
            let is_now = first.key().0 <= self.now;
            match first.get() {
                Flight::Bytes { to: next, channel: same, .. } if is_now && *next == to && *same == channel => {}
                _ => return,
            }
            if let Flight::Bytes { bytes: more, .. } = first.remove() {
                bytes.extend(more);
            }
        }
    }

    fn next_at(&self) -> Option<Time> {
        let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
        let nodes = self.slots.iter().filter_map(|slot| Some(slot.setup.global(slot.node.as_ref()?.next_deadline())));
        nodes.chain(flight).min()
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..TURNS_MAX {
            let Some(at) = self.next_at().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = at.max(self.now);
            if self.flights.first_key_value().is_some_and(|((due, _), _)| *due <= self.now) {
                let (_, flight) = self.flights.pop_first().expect("it is there");
                self.land(flight);
                continue;
            }
            for number in 0..self.slots.len() {
                let Slot { node, setup, .. } = &self.slots[number];
                if node.as_ref().is_some_and(|node| setup.global(node.next_deadline()) <= self.now) {
                    self.act(number, Node::meet);
                }
            }
        }
        panic!("{span:?} pass within {TURNS_MAX} moments");
    }

    /// Lets time pass in milliseconds until a condition holds. Returns how long it took; `None` if
    /// it did not hold within the limit.
    pub fn run_until(&mut self, limit: Duration, is_true: impl Fn(&Fabric) -> bool) -> Option<Duration> {
        let began = self.now;
        for _ in 0..=limit.as_millis() {
            if is_true(self) {
                return Some(self.now.since(began));
            }
            self.run(Duration::from_millis(1));
        }
        None
    }
}
