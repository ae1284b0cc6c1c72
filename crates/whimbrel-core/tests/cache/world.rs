//! A cache, and a list of all events written to it.

use std::ops::ControlFlow;
use std::time::Duration;

use whimbrel_core::cache::{
    Cache, CacheItem, Capacity, DefaultPlan, NextRead, PartitionPlan, PartitionSet, Plan, Policy,
};
use whimbrel_event::{Attributes, Event, EventId, EventRef, Headers, PubendId, Qos, Reliability, Tick, Time};

/// A sequence of numbers from a seed (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// One event as it was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub serial: u64,
    pub partition: usize,
    pub at: Time,
    pub event: Event,
}

/// An item shown to a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Event(u64),
    Hole(PubendId, Tick, Tick),
}

pub struct World {
    pub cache: Cache,
    pub all: Vec<Written>,
    pub now: Time,
    pub random: Random,
}

pub fn event(pubend: u64, tick: u64, topic: &str, importance: u8, payload: usize) -> Event {
    let id = EventId { pubend: PubendId(pubend), tick: Tick(tick) };
    let event = EventRef {
        topic,
        attributes: Attributes::EMPTY,
        payload: &vec![b'x'; payload],
        headers: Headers::EMPTY,
        qos: Qos::AtLeastOnce,
        reliability: Reliability::Reliable,
        importance,
        expires: None,
        deadline_ms: None,
        publisher: whimbrel_event::Publisher::UNKNOWN,
    };
    Event::keep(id, Time::from_nanos(tick), &event)
}

/// Partitions for the topics `0/#`, `1/#` and so on, the last of them the default one; all alike.
pub fn plan(partitions: usize, capacity: Capacity, policy: Policy) -> Plan {
    let partition = |number| PartitionPlan { filter: format!("{number}/#").into(), selector: None, capacity, policy };
    Plan {
        partitions: (0..partitions - 1).map(partition).collect(),
        default: DefaultPlan { capacity, policy },
        ceiling: u64::MAX,
    }
}

impl World {
    pub fn new(plan: Plan, seed: u64) -> Self {
        World {
            cache: Cache::new(plan, seed),
            all: Vec::new(),
            now: Time::from_nanos(1_000_000_000),
            random: Random::new(seed),
        }
    }

    pub fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    pub fn write(&mut self, partition: usize, pubend: u64, importance: u8, payload: usize) -> u64 {
        let serial = self.cache.end_serial();
        let tick = self.now.as_nanos() + serial;
        let topic = match self.cache.plan().partitions.get(partition) {
            Some(plan) => plan.filter.replace('#', "a"),
            None => format!("{partition}/a"),
        };
        let event = event(pubend, tick, &topic, importance, payload);
        self.all.push(Written { serial, partition, at: self.now, event: event.clone() });
        self.cache.write(serial, partition, &event.packed().unpack(), self.now);
        serial
    }

    /// An event of one of `pubends` to any partition, with any importance and up to 100 bytes.
    pub fn write_any(&mut self, pubends: u64) -> u64 {
        let partitions = self.cache.plan().count() as u64;
        let (partition, pubend) = (self.random.below(partitions) as usize, 1 + self.random.below(pubends));
        let (importance, payload) = (1 + self.random.below(10) as u8, self.random.below(100) as usize);
        self.write(partition, pubend, importance, payload)
    }

    /// Reads from `from` to the end in pieces of up to `budget` slots.
    pub fn read(&self, from: u64, set: &PartitionSet, mut budget: impl FnMut() -> usize) -> Vec<Shown> {
        let mut shown = Vec::new();
        let mut at = from;
        loop {
            let next = self.read_piece(at, set, budget(), &mut shown);
            if next.exhausted {
                assert_eq!(next.serial, self.cache.end_serial().max(from));
                return shown;
            }
            assert!(next.serial > at || (at == from && next.serial >= from), "{next:?} after {at}");
            at = next.serial;
        }
    }

    fn read_piece(&self, at: u64, set: &PartitionSet, budget: usize, shown: &mut Vec<Shown>) -> NextRead {
        self.cache.read(at, set, budget, |item| {
            shown.push(match item {
                CacheItem::Event { serial, event } => {
                    let written = &self.all[serial as usize - 1];
                    assert_eq!(event, written.event.packed(), "the event of another serial");
                    Shown::Event(serial)
                }
                CacheItem::Hole { pubend, from, to } => Shown::Hole(pubend, from, to),
            });
            ControlFlow::Continue(())
        })
    }

    /// Serials of the events that a partition holds.
    pub fn held(&self, partition: usize) -> Vec<u64> {
        let shown = self.read(0, &PartitionSet::from_iter([partition]), || usize::MAX);
        shown.iter().filter_map(|item| if let Shown::Event(serial) = item { Some(*serial) } else { None }).collect()
    }

    pub fn some_partitions(&mut self) -> PartitionSet {
        let partitions = self.cache.plan().count();
        (0..partitions).filter(|_| self.random.below(3) > 0).collect()
    }

    /// Asserts for a reader that knows all events up to `after(pubend)` and reads `set` in pieces:
    /// every later event is shown to it once, or lies in a hole that was shown, or the partitions
    /// are incomplete there; and holes come before the events behind them.
    pub fn check_reader(&mut self, set: &PartitionSet, pubends: u64, after: &dyn Fn(u64) -> u64) {
        let from = (1..=pubends).map(|p| self.cache.serial_for(PubendId(p), Tick(after(p)))).min().expect("a pubend");
        let mut budgets = Random::new(self.random.below(1 << 40));
        let shown = self.read(from, set, || 1 + budgets.below(40) as usize);
        let mut last = 0;
        let mut seen = vec![false; self.all.len() + 1];
        let mut latest = vec![0; pubends as usize + 1];
        let mut missing: Vec<Vec<(u64, u64)>> = vec![Vec::new(); pubends as usize + 1];
        for item in &shown {
            match item {
                Shown::Event(serial) => {
                    assert!(*serial > last, "{serial} after {last}");
                    last = *serial;
                    seen[last as usize] = true;
                    let written = &self.all[last as usize - 1];
                    assert!(set.contains(written.partition), "an event of another partition");
                    let id = written.event.id();
                    latest[id.pubend.0 as usize] = id.tick.0;
                }
                Shown::Hole(pubend, first, to) => {
                    assert!(first <= to);
                    // As a reader does: it forgets the range before its position.
                    let first = first.0.max(latest[pubend.0 as usize] + 1);
                    missing[pubend.0 as usize].push((first, to.0));
                }
            }
        }
        for written in self.all.iter().filter(|written| set.contains(written.partition)) {
            let id = written.event.id();
            let (pubend, tick) = (id.pubend.0, id.tick.0);
            if tick <= after(pubend) || seen[written.serial as usize] {
                continue;
            }
            let known = missing[pubend as usize].iter().any(|(first, to)| (*first..=*to).contains(&tick));
            let incomplete = self.cache.incomplete(set, id.pubend).0 >= tick;
            assert!(known || incomplete, "{written:?} is neither shown nor known to be missing");
        }
        for pubend in 1..=pubends {
            let begin = self.cache.serial_for(PubendId(pubend), Tick(after(pubend)));
            let early = self.all.iter().filter(|written| {
                let id = written.event.id();
                id.pubend.0 == pubend
                    && id.tick.0 <= after(pubend)
                    && written.serial >= begin
                    && seen[written.serial as usize]
            });
            assert!(early.count() <= 64, "a reader begins too early");
        }
    }
}
