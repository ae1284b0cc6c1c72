//! Links without IO: when bytes arrive, given what was sent and the link's properties.
//! A [`Pipe`] is one direction of a byte stream, as TCP or TLS gives it: in order and without loss
//! while it lives, but cut into arbitrary chunks, delayed, slow, full, and sometimes silently dead.
//! Its user writes bytes, asks [`Pipe::next_arrival`], and reads when that time has come.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_event::Time;

use crate::random::Random;

/// The properties of a link, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The least time from sending to arrival.
    pub delay: Duration,
    /// Added to the delay, from nothing to this much; never reorders a stream.
    pub jitter: Duration,
    /// Bytes per second, at least 1.
    pub rate: u64,
    /// Bytes that are in flight or wait unread at the receiver, at least 1; more wait at the
    /// sender.
    pub capacity: usize,
    /// The largest piece in which bytes arrive, at least 1.
    pub chunk: usize,
}

impl Profile {
    /// A local network.
    pub const LAN: Profile = Profile {
        delay: Duration::from_micros(100),
        jitter: Duration::from_micros(50),
        rate: 100_000_000,
        capacity: 256 << 10,
        chunk: 16 << 10,
    };

    /// A link that takes everything at once.
    pub const PERFECT: Profile = Profile {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        rate: u64::MAX,
        capacity: usize::MAX,
        chunk: usize::MAX,
    };

    /// A vehicle's radio link.
    pub const RADIO: Profile = Profile {
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(60),
        rate: 200_000,
        capacity: 16 << 10,
        chunk: 1400,
    };
}

/// The output of a pipe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The next bytes of the stream.
    Bytes(Vec<u8>),
    /// The stream has ended.
    End,
}

impl Arrival {
    /// The number of bytes in it.
    pub fn bytes(&self) -> usize {
        match self {
            Arrival::Bytes(bytes) => bytes.len(),
            Arrival::End => 0,
        }
    }
}

/// One direction of a byte stream.
#[derive(Debug)]
pub struct Pipe {
    profile: Profile,
    random: Random,
    /// Bytes that were written and that the link does not take yet.
    backlog: VecDeque<u8>,
    flying: VecDeque<(Time, Arrival)>,
    flying_bytes: usize,
    /// When the link has sent what it took.
    idle_at: Time,
    last_arrival: Time,
    /// Whether the writer has finished.
    finished: bool,
    /// Whether the end of the stream is in flight, or has arrived.
    end_sent: bool,
    /// Whether the receiver does not read.
    stalled: bool,
    /// Whether the link is dead: nothing arrives any more, and neither end is told.
    dead: bool,
}

impl Pipe {
    /// An empty pipe.
    pub fn new(profile: Profile, random: Random) -> Self {
        Pipe {
            profile,
            random,
            backlog: VecDeque::new(),
            flying: VecDeque::new(),
            flying_bytes: 0,
            idle_at: Time::ZERO,
            last_arrival: Time::ZERO,
            finished: false,
            end_sent: false,
            stalled: false,
            dead: false,
        }
    }

    /// Writes bytes; those that the link does not take yet wait in the backlog. After
    /// [`Pipe::finish`] they are lost.
    pub fn write(&mut self, now: Time, bytes: &[u8]) {
        if !self.finished {
            self.backlog.extend(bytes);
            self.pump(now);
        }
    }

    /// Bytes that the link has not taken yet.
    pub fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Ends the stream after the bytes that were written.
    pub fn finish(&mut self, now: Time) {
        if !self.finished {
            self.finished = true;
            self.pump(now);
        }
    }

    /// Ends the stream at once: waiting bytes are lost, and so is a random part of those in flight.
    pub fn reset(&mut self, now: Time) {
        self.backlog.clear();
        let kept = self.random.below(self.flying.len() as u64 + 1) as usize;
        self.end_sent &= !self.flying.drain(kept..).any(|(_, arrival)| arrival == Arrival::End);
        self.flying_bytes = self.flying.iter().map(|(_, arrival)| arrival.bytes()).sum();
        self.stalled = false;
        self.finished = true;
        self.pump(now);
    }

    /// Kills the link: nothing arrives any more, and neither end is told.
    pub fn die(&mut self) {
        self.dead = true;
    }

    /// The receiver stops reading.
    pub fn stall(&mut self) {
        self.stalled = true;
    }

    /// The receiver reads again.
    pub fn resume(&mut self) {
        self.stalled = false;
    }

    /// When something can next be read, if nothing else happens.
    pub fn next_arrival(&self) -> Option<Time> {
        if self.dead || self.stalled { None } else { self.flying.front().map(|(at, _)| *at) }
    }

    /// The next piece that has arrived by now.
    pub fn read(&mut self, now: Time) -> Option<Arrival> {
        self.next_arrival().filter(|at| *at <= now)?;
        let (_, arrival) = self.flying.pop_front()?;
        self.flying_bytes -= arrival.bytes();
        self.pump(now);
        Some(arrival)
    }

    /// Lets the link take as much as it has room for.
    fn pump(&mut self, now: Time) {
        while !self.backlog.is_empty() && self.flying_bytes < self.profile.capacity {
            let room = self.profile.capacity - self.flying_bytes;
            let most = room.min(self.profile.chunk).min(self.backlog.len());
            // Mostly whole pieces, but also arbitrary cuts.
            let count = if self.random.chance(300) { self.random.between(1, most as u64) as usize } else { most };
            let bytes: Vec<u8> = self.backlog.drain(..count).collect();
            let sending = Duration::from_nanos(count as u64 * 1_000_000_000 / self.profile.rate);
            self.idle_at = self.idle_at.max(now) + sending;
            self.flying_bytes += count;
            self.launch(Arrival::Bytes(bytes));
        }
        if self.finished && self.backlog.is_empty() && !self.end_sent {
            self.end_sent = true;
            self.idle_at = self.idle_at.max(now);
            self.launch(Arrival::End);
        }
    }

    fn launch(&mut self, arrival: Arrival) {
        let jitter = Duration::from_nanos(self.random.below(self.profile.jitter.as_nanos() as u64 + 1));
        let at = (self.idle_at + self.profile.delay + jitter).max(self.last_arrival);
        self.last_arrival = at;
        self.flying.push_back((at, arrival));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pipe: &mut Pipe) -> (Vec<u8>, bool, Time) {
        let (mut bytes, mut ended, mut last) = (Vec::new(), false, Time::ZERO);
        while let Some(at) = pipe.next_arrival() {
            assert!(at >= last, "arrivals are in order");
            assert!(!ended, "nothing comes after the end");
            last = at;
            match pipe.read(at).expect("it has arrived") {
                Arrival::Bytes(more) => bytes.extend(more),
                Arrival::End => ended = true,
            }
        }
        (bytes, ended, last)
    }

    #[test]
    fn a_stream_comes_out_as_it_went_in() {
        for seed in 0..50 {
            let mut pipe = Pipe::new(Profile::RADIO, Random::new(seed));
            let sent: Vec<u8> = (0..50_000_u32).map(|n| n as u8).collect();
            pipe.write(Time::ZERO, &sent);
            assert!(pipe.backlog() >= 50_000 - Profile::RADIO.capacity, "the link takes what it can hold");
            pipe.finish(Time::ZERO);
            let (bytes, ended, last) = drain(&mut pipe);
            assert_eq!(bytes, sent, "seed {seed}");
            assert!(ended, "seed {seed}");
            assert!(last.since(Time::ZERO) >= Duration::from_millis(250), "50 kB at 200 kB/s take a while: {last:?}");
        }
    }

    #[test]
    fn a_reset_ends_the_stream_after_a_part_of_it() {
        for seed in 0..50 {
            let mut pipe = Pipe::new(Profile::RADIO, Random::new(seed));
            let sent: Vec<u8> = (0..30_000_u32).map(|n| n as u8).collect();
            pipe.write(Time::ZERO, &sent);
            pipe.finish(Time::ZERO);
            pipe.reset(Time::ZERO);
            let (bytes, ended, _) = drain(&mut pipe);
            assert!(sent.starts_with(&bytes) && bytes.len() <= Profile::RADIO.capacity && ended, "seed {seed}");
        }
    }

    #[test]
    fn a_stalled_reader_holds_back_the_writer_and_a_dead_link_everything() {
        let mut pipe = Pipe::new(Profile::LAN, Random::new(1));
        pipe.stall();
        pipe.write(Time::ZERO, &vec![0; 300 << 10]);
        assert_eq!(pipe.next_arrival(), None);
        assert_eq!(pipe.backlog(), 44 << 10);
        pipe.resume();
        assert_eq!(drain(&mut pipe).0.len(), 300 << 10);
        pipe.write(Time::ZERO, &[1, 2, 3]);
        pipe.die();
        assert_eq!(pipe.next_arrival(), None);
    }
}
