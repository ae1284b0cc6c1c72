//! An access link that several members share, without IO: the radio cell, or the emulated network
//! of an experiment whose total bandwidth is bounded.
//!
//! Members hand in pieces of byte streams. The link sends one chunk at a time, at its one rate, and
//! takes the members with something to send in turn. So each gets an equal part of the rate, and
//! the part that a member does not use is shared by the others. The bytes that a member may have
//! waiting are bounded: its sender asks [`Access::has_room`], and holds the rest back. A chunk
//! arrives when it has been sent and the link's delay has passed.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_event::Time;

use crate::link::Arrival;

/// The properties of a shared access link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes per second over all members, at least 1.
    pub rate: u64,
    /// The time from the end of sending to arrival.
    pub delay: Duration,
    /// The largest piece that is sent at once, bytes, at least 1. It bounds how long a member waits
    /// for each other member.
    pub chunk: usize,
    /// Bytes that one member may have waiting, at least 1; the piece that crosses the bound is
    /// still taken.
    pub queue: usize,
}

impl Shape {
    /// The wireless network of 10 MB/s in the experiments on semi-durable subscriptions.
    pub const WIDE: Shape = Shape { rate: 10_000_000, delay: Duration::from_millis(5), chunk: 1460, queue: 64 << 10 };

    /// The network of 220 kB/s in those experiments.
    pub const NARROW: Shape = Shape { rate: 220_000, ..Shape::WIDE };

    /// How long it takes to send a number of bytes.
    pub fn sending(&self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as u128 * 1_000_000_000).div_ceil(u128::from(self.rate)) as u64)
    }
}

/// A sender on the link. The name is free again after [`Access::leave`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(usize);

/// The pieces of one member that wait for its turn.
#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Arrival>,
    bytes: usize,
    joined: bool,
    /// Whether it is in `turns`.
    listed: bool,
    /// The number of earlier members with this index: their pieces are not delivered.
    term: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Access {
    shape: Shape,
    queues: Vec<Queue>,
    /// Members with something to send; the first is next.
    turns: VecDeque<usize>,
    /// When the sending of the present chunk ends.
    idle_at: Time,
    /// Pieces that have been sent or are being sent, each with its arrival.
    flying: VecDeque<(Time, usize, u64, Arrival)>,
}

impl Access {
    /// A link without members.
    pub fn new(shape: Shape) -> Self {
        Access { shape, queues: Vec::new(), turns: VecDeque::new(), idle_at: Time::ZERO, flying: VecDeque::new() }
    }

    /// Adds a member.
    pub fn join(&mut self) -> Member {
        let free = self.queues.iter().position(|queue| !queue.joined && !queue.listed);
        let member = free.unwrap_or_else(|| {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        });
        self.queues[member].joined = true;
        Member(member)
    }

    /// Removes a member: its pieces, waiting or in flight, are lost.
    pub fn leave(&mut self, member: Member) {
        let queue = &mut self.queues[member.0];
        let (listed, term) = (queue.listed, queue.term + 1);
        *queue = Queue { listed, term, ..Queue::default() };
    }

    /// Whether a member may hand in another piece.
    pub fn has_room(&self, member: Member) -> bool {
        self.queues[member.0].bytes < self.shape.queue
    }

    /// Bytes that a member has waiting.
    pub fn waiting(&self, member: Member) -> usize {
        self.queues[member.0].bytes
    }

    /// Hands in a piece, or the end of a stream.
    ///
    /// # Panics
    /// When the member has no room for it.
    pub fn push(&mut self, now: Time, member: Member, piece: Arrival) {
        assert!(self.has_room(member), "{member:?} has as much waiting as it may");
        self.send(now);
        if self.turns.is_empty() {
            // The link was idle, and begins now.
            self.idle_at = self.idle_at.max(now);
        }
        let queue = &mut self.queues[member.0];
        queue.bytes += piece.bytes();
        queue.pieces.push_back(piece);
        if !core::mem::replace(&mut queue.listed, true) {
            self.turns.push_back(member.0);
        }
        self.send(now);
    }

    /// When the link next acts by itself: a chunk arrives, or a turn begins, after which a member
    /// may have room again.
    pub fn next_change(&self) -> Option<Time> {
        let arrival = self.flying.front().map(|(at, ..)| *at);
        let turn = (!self.turns.is_empty()).then_some(self.idle_at);
        [arrival, turn].into_iter().flatten().min()
    }

    /// The next chunk that has arrived by now. Call it until it returns `None` whenever
    /// [`Access::next_change`] is due.
    pub fn read(&mut self, now: Time) -> Option<(Member, Arrival)> {
        self.send(now);
        while self.flying.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, member, term, arrival) = self.flying.pop_front()?;
            if self.queues[member].term == term && self.queues[member].joined {
                return Some((Member(member), arrival));
            }
        }
        None
    }

    /// Sends the chunks whose turn has begun by now: each begins when the one before it was sent.
    fn send(&mut self, now: Time) {
        while self.idle_at <= now {
            let Some(member) = self.turns.pop_front() else { return };
            let queue = &mut self.queues[member];
            let Some(piece) = queue.pieces.pop_front() else {
                queue.listed = false;
                continue;
            };
            let chunk = match piece {
                Arrival::Bytes(mut bytes) if bytes.len() > self.shape.chunk => {
                    let rest = bytes.split_off(self.shape.chunk);
                    queue.pieces.push_front(Arrival::Bytes(rest));
                    Arrival::Bytes(bytes)
                }
                piece => piece,
            };
            let (count, term) = (chunk.bytes(), queue.term);
            queue.bytes -= count;
            queue.listed = !queue.pieces.is_empty();
            if queue.listed {
                self.turns.push_back(member);
            }
            self.idle_at = self.idle_at + self.shape.sending(count);
            self.flying.push_back((self.idle_at + self.shape.delay, member, term, chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { rate: 1_000_000, delay: Duration::from_millis(2), chunk: 1000, queue: 64_000 };

    fn bytes(count: usize) -> Arrival {
        Arrival::Bytes(vec![0; count])
    }

    /// Everything that arrives: when, at whom, how many bytes.
    fn drain(access: &mut Access) -> Vec<(Time, Member, usize)> {
        let mut arrivals = Vec::new();
        while let Some(now) = access.next_change() {
            while let Some((member, arrival)) = access.read(now) {
                arrivals.push((now, member, arrival.bytes()));
            }
        }
        arrivals
    }

    fn ms(count: u64) -> Time {
        Time::ZERO + Duration::from_millis(count)
    }

    #[test]
    fn one_member_has_the_whole_rate_and_two_have_half_each() {
        let mut access = Access::new(SHAPE);
        let (one, other) = (access.join(), access.join());
        access.push(ms(10), one, bytes(50_000));
        let arrivals = drain(&mut access);
        assert_eq!(arrivals.len(), 50, "in chunks");
        assert_eq!(arrivals[0].0, ms(13), "a chunk is sent in 1 ms and arrives 2 ms later");
        assert_eq!(arrivals[49].0, ms(62));
        access.push(ms(100), one, bytes(50_000));
        access.push(ms(100), other, bytes(10_000));
        let arrivals = drain(&mut access);
        let last = |member| arrivals.iter().rfind(|(_, whose, _)| *whose == member).map(|(at, ..)| *at);
        assert_eq!(last(other), Some(ms(123)), "in turn, while both have something to send");
        assert_eq!(last(one), Some(ms(162)), "and nothing of the rate is left unused");
    }

    #[test]
    fn many_members_share_fairly_whatever_they_hand_in() {
        let mut access = Access::new(SHAPE);
        let members: Vec<Member> = (0..20).map(|_| access.join()).collect();
        for (at, member) in members.iter().enumerate() {
            // Every other member hands in much at once, the rest many small pieces.
            for _ in 0..if at % 2 == 0 { 1 } else { 30 } {
                access.push(ms(0), *member, bytes(if at % 2 == 0 { 30_000 } else { 1000 }));
            }
        }
        let arrivals = drain(&mut access);
        let by = |member: &Member, until: Time| -> usize {
            let of = arrivals.iter().filter(|(at, whose, _)| whose == member && *at <= until);
            of.map(|(.., count)| count).sum()
        };
        for until in [100, 200, 400] {
            let counts: Vec<usize> = members.iter().map(|member| by(member, ms(until))).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.expect("some") - least.expect("some") <= 2 * SHAPE.chunk, "{counts:?}");
        }
        assert_eq!(arrivals.last().map(|(at, ..)| *at), Some(ms(602)), "600 kB at 1 MB/s");
    }

    #[test]
    fn what_a_member_may_have_waiting_is_bounded() {
        let mut access = Access::new(SHAPE);
        let member = access.join();
        let mut taken = 0;
        while access.has_room(member) {
            access.push(ms(0), member, bytes(10_000));
            taken += 10_000;
        }
        assert!((64_000..76_000).contains(&taken), "{taken} bytes are taken at once");
        let waiting = access.waiting(member);
        assert!((64_000..74_000).contains(&waiting), "{waiting} bytes wait");
        assert_eq!(access.next_change(), Some(ms(1)));
        while !access.has_room(member) {
            let now = access.next_change().expect("something is under way");
            while access.read(now).is_some() {}
        }
        access.push(access.next_change().expect("something is under way"), member, bytes(1));
    }

    #[test]
    #[should_panic(expected = "as much waiting as it may")]
    fn a_member_that_has_no_room_must_wait() {
        let mut access = Access::new(SHAPE);
        let member = access.join();
        for _ in 0..9 {
            access.push(ms(0), member, bytes(10_000));
        }
    }

    #[test]
    fn a_stream_ends_after_its_bytes_and_what_a_leaver_sent_is_nobodys() {
        let mut access = Access::new(SHAPE);
        let (one, other) = (access.join(), access.join());
        access.push(ms(0), one, bytes(3000));
        access.push(ms(0), one, Arrival::End);
        access.push(ms(0), other, bytes(3000));
        access.leave(other);
        let third = access.join();
        access.push(ms(0), third, bytes(10));
        let arrivals = drain(&mut access);
        let counts: Vec<(Member, usize)> = arrivals.iter().map(|(_, member, count)| (*member, *count)).collect();
        assert_ne!(third, one);
        assert_eq!(counts.iter().filter(|(member, _)| *member == one).count(), 4, "three chunks and the end");
        assert_eq!(counts.iter().rfind(|(member, _)| *member == one), Some(&(one, 0)));
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), 3010);
        let reused = access.join();
        assert!(reused == other || third == other, "names are used again");
    }

    #[test]
    fn a_link_that_was_idle_begins_when_something_is_handed_in() {
        let mut access = Access::new(SHAPE);
        let member = access.join();
        access.push(ms(0), member, bytes(1000));
        assert_eq!(drain(&mut access).len(), 1);
        access.push(ms(500), member, bytes(1000));
        assert_eq!(drain(&mut access), [(ms(503), member, 1000)]);
        // The link is inspected late, and has sent without a pause.
        access.push(ms(600), member, bytes(5000));
        let late = ms(700);
        let mut count = 0;
        while access.read(late).is_some() {
            count += 1;
        }
        assert_eq!(count, 5);
        assert_eq!(access.idle_at, ms(605));
    }
}
