//! The links between brokers.

use std::time::Duration;

use whimbrel_core::{Channel, PeerLink};

use super::door::Said;
use super::wire::{Departed, PacketSums, Parcel, WayCourse, WayTruth, Wire};
use super::{Cores, START, Task, What};

/// The time from a link's end, or a dial without an answer, to the next dial: between the first and
/// the longest of the broker's own pauses.
const REDIAL_EVERY: Duration = Duration::from_secs(2);

/// Bytes of the packet that closes a connection.
const CLOSE_BYTES: usize = 50;

/// Spreads the seeds of worlds, so that their links draw differently.
const SEED_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

impl Cores {
    /// Links two brokers, over a link of a fixed delay that is not dialled again when it has ended.
    pub fn link(&mut self, ends: [usize; 2], delay: Duration) {
        let course = || WayCourse(vec![(START, WayTruth::steady(delay))]);
        self.add_wire(ends, [course(), course()], false);
    }

    /// Links two brokers, over a link with the truth of both directions, from the first end and
    /// from the second one; when it has ended it is dialled again until it is there.
    pub fn link_over(&mut self, ends: [usize; 2], courses: [WayCourse; 2]) {
        self.add_wire(ends, courses, true);
    }

    fn add_wire(&mut self, ends: [usize; 2], courses: [WayCourse; 2], is_redialled: bool) {
        let ends = ends.map(|node| {
            self.next_link += 1;
            (node, PeerLink(self.next_link))
        });
        let seed = self.seed.wrapping_mul(SEED_STRIDE).wrapping_add(self.wires.len() as u64);
        self.wires.push(Wire::new(ends, courses, is_redialled, seed));
        self.raise(self.wires.len() - 1);
    }

    pub(super) fn raise(&mut self, wire: usize) {
        let ends = self.wires[wire].ends;
        if ends.iter().any(|(node, _)| self.nodes[*node].core.is_none()) {
            return;
        }
        // With new names, so that data in flight under the old ones are discarded.
        let ends = ends.map(|(node, _)| {
            self.next_link += 1;
            (node, PeerLink(self.next_link))
        });
        self.wires[wire].renew(ends);
        self.by_end.extend(ends.map(|end| (end, wire)));
        for (side, (node, link)) in ends.into_iter().enumerate() {
            let at = self.now + self.wires[wire].delay(1 - side, self.now);
            self.plan(at, node, Task::Opened(link, side == 0));
        }
    }

    /// A side of a wire has ended the connection; the other one is told if the wire carries that.
    pub(super) fn close(&mut self, wire: usize, side: usize) {
        for end in self.wires[wire].ends {
            self.by_end.remove(&end);
        }
        let ended = &mut self.wires[wire];
        ended.is_up = false;
        let (other, link) = ended.ends[1 - side];
        let told = ended.carry(side, self.now, Parcel { channel: Channel::Datagram, bytes: CLOSE_BYTES });
        if let Some(at) = told {
            self.plan(at, other, Task::Closed(link));
        }
        self.redial_later(wire);
    }

    fn redial_later(&mut self, wire: usize) {
        if self.wires[wire].is_redialled {
            self.next += 1;
            self.agenda.insert((self.now + REDIAL_EVERY, self.next), What::Redial(wire));
        }
    }

    /// Dials a wire again, unless it is up or an end is dead.
    pub(super) fn redial(&mut self, wire: usize) {
        if !self.wires[wire].is_up {
            if self.wires[wire].is_answered(self.now) {
                self.raise(wire);
            } else {
                self.redial_later(wire);
            }
        }
    }

    /// Everything sent between two brokers is lost from now on, and neither is told.
    pub fn cut(&mut self, ends: [usize; 2]) {
        let is_it = |wire: &&mut Wire| ends.iter().all(|node| wire.ends.iter().any(|(end, _)| end == node));
        self.wires.iter_mut().filter(is_it).for_each(|wire| wire.is_cut = true);
    }

    pub(super) fn carry(&mut self, number: usize, said: Said) {
        let Said { link, channel, bytes, at } = said;
        let Some(wire) = self.by_end.get(&(number, link)).map(|wire| &mut self.wires[*wire]) else { return };
        let side = wire.side_of(number);
        let (to, far) = wire.ends[1 - side];
        if let Some(at) = wire.carry(side, at, Parcel { channel, bytes: bytes.len() }) {
            self.plan(at, to, Task::Bytes(far, channel, bytes));
        }
    }

    /// Bytes of streams that have left the driver of the narrow link from a broker to another one,
    /// by channel.
    ///
    /// # Panics
    /// When there is no such link.
    pub fn served(&self, from: usize, to: usize) -> [u64; Channel::STREAMS] {
        let is_it = |wire: &&Wire| [from, to].iter().all(|node| wire.ends.iter().any(|(end, _)| end == node));
        let wire = self.wires.iter().find(is_it).expect("they are linked");
        wire.served(wire.side_of(from))
    }

    /// All that all brokers have given to the network.
    pub fn sent(&self) -> PacketSums {
        let mut sum = PacketSums::default();
        self.wires.iter().for_each(|wire| (0..2).for_each(|side| sum.add(wire.sent(side))));
        sum
    }

    /// Serves the driver of a side of a wire: frames leave, and its broker is told of room.
    pub(super) fn serve(&mut self, wire: usize, side: usize) {
        let now = self.now;
        let Wire { is_up, is_cut, .. } = self.wires[wire];
        if !is_up || is_cut {
            return;
        }
        let [own, (to, far)] = [self.wires[wire].ends[side], self.wires[wire].ends[1 - side]];
        for Departed { channel, frame, arrives } in self.wires[wire].serve(side, now) {
            self.plan(arrives, to, Task::Bytes(far, channel, frame));
        }
        while let Some((channel, unsent)) = self.wires[wire].room(side) {
            self.plan(now, own.0, Task::Room(own.1, channel, unsent));
        }
        if let Some(at) = self.wires[wire].look_later(side, now) {
            self.next += 1;
            self.agenda.insert((at, self.next), What::Serve(wire, side));
        }
    }

    /// A broker has ended a link; one that is not dialled again does not come up before a process
    /// is started.
    pub(super) fn end(&mut self, number: usize, link: PeerLink) {
        let Some(wire) = self.by_end.get(&(number, link)).copied() else { return };
        self.close(wire, self.wires[wire].side_of(number));
    }
}
