//! The costs of writing to the cache and of reading from it.
//!
//! `make` is the cost of making the event, which is part of all others. `keep` is the cost of
//! keeping one elsewhere: it is allocated, waits in a plain queue as long as in the cache, and is
//! dropped.

use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::cache::{Cache, Capacity, DefaultPlan, PartitionPlan, PartitionSet, Plan, Policy};
use whimbrel_event::{
    AcceptedEvent, Attributes, AttributesBuf, Event, EventId, EventRef, Headers, PubendId, Qos, Reliability, Tick, Time,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICIES: [(&str, Policy); 4] =
    [("lrp", Policy::Lrp), ("random", Policy::Random), ("priority", Policy::PRIORITY), ("value", Policy::Value)];

const SIZES: [u64; 2] = [3_000, 300_000];

const PUBENDS: u64 = 4;

/// Events of 50 bytes with an attribute, 1 ms apart.
struct Source {
    attributes: AttributesBuf,
    serial: u64,
}

impl Source {
    fn new() -> Self {
        let mut attributes = AttributesBuf::new();
        attributes.push("index", "57");
        Source { attributes, serial: 0 }
    }

    fn next(&mut self) -> (u64, AcceptedEvent<'_>) {
        self.serial += 1;
        let now = Time::from_nanos(self.serial * 1_000_000);
        let mixed = self.serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let id = EventId { pubend: PubendId(mixed % PUBENDS), tick: Tick(now.as_nanos()) };
        let attributes: Attributes<'_> = self.attributes.as_attributes();
        let event = EventRef {
            topic: "fleet/7/position",
            attributes,
            payload: &[b'x'; 50],
            headers: Headers::EMPTY,
            qos: Qos::AtLeastOnce,
            reliability: Reliability::Reliable,
            importance: (1 + mixed / PUBENDS % 10) as u8,
            expires: None,
            deadline_ms: None,
            publisher: whimbrel_event::Publisher::UNKNOWN,
        };
        (self.serial, AcceptedEvent { id, accepted: now, clock_offset: 0, event })
    }

    fn keep(&mut self) -> Event {
        let (_, event) = self.next();
        event.keep()
    }
}

fn plan(events: u64, partitions: u64, policy: Policy) -> Plan {
    let capacity = Capacity::Events(events / partitions);
    let partition = |number| PartitionPlan { filter: format!("{number}/#").into(), selector: None, capacity, policy };
    Plan {
        partitions: (0..partitions - 1).map(partition).collect(),
        default: DefaultPlan { capacity, policy },
        ceiling: u64::MAX,
    }
}

/// A cache that has overwritten twice as much as it holds.
fn full(events: u64, partitions: u64, policy: Policy) -> (Cache, Source) {
    let mut cache = Cache::new(plan(events, partitions, policy), 1);
    let mut source = Source::new();
    for _ in 0..3 * events {
        write(&mut cache, &mut source, partitions);
    }
    (cache, source)
}

fn write(cache: &mut Cache, source: &mut Source, partitions: u64) {
    let (serial, event) = source.next();
    cache.write(serial, (serial % partitions) as usize, &event, event.accepted);
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(1));
    for events in SIZES {
        group.bench_function(BenchmarkId::new("make", events), |b| {
            let mut source = Source::new();
            b.iter(|| black_box(source.next().0));
        });
        group.bench_function(BenchmarkId::new("keep", events), |b| {
            let mut source = Source::new();
            let mut queue: VecDeque<Event> = (0..events).map(|_| source.keep()).collect();
            b.iter(|| {
                queue.pop_front();
                queue.push_back(source.keep());
            });
        });
        for (name, policy) in POLICIES {
            group.bench_function(BenchmarkId::new(name, events), |b| {
                let (mut cache, mut source) = full(events, 1, policy);
                b.iter(|| write(&mut cache, &mut source, 1));
            });
        }
        group.bench_function(BenchmarkId::new("lrp, 10 partitions", events), |b| {
            let (mut cache, mut source) = full(events, 10, Policy::Lrp);
            b.iter(|| write(&mut cache, &mut source, 10));
        });
    }
    group.finish();
}

/// A reader that finds its place and reads on for 1,000 slots; per slot.
fn reads(c: &mut Criterion) {
    const SLOTS: usize = 1_000;
    let mut group = c.benchmark_group("read 1,000 slots");
    group.throughput(Throughput::Elements(SLOTS as u64));
    for events in SIZES {
        for partitions in [1, 10] {
            for (name, policy) in POLICIES {
                let (cache, _) = full(events, partitions, policy);
                let set = PartitionSet::first(partitions as usize);
                let end = cache.end_serial();
                group.bench_function(BenchmarkId::new(format!("{name}, {partitions} partitions"), events), |b| {
                    let mut turn: u64 = 0;
                    b.iter(|| {
                        turn = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
                        let from = end - events / 2 + (turn >> 33) % (events / 6);
                        cache.read(from, &set, SLOTS, |item| {
                            black_box(&item);
                            ControlFlow::Continue(())
                        })
                    });
                });
            }
        }
    }
    group.finish();
}

fn seeks(c: &mut Criterion) {
    let mut group = c.benchmark_group("seek");
    for events in SIZES {
        let (cache, _) = full(events, 1, Policy::Random);
        let set = PartitionSet::first(1);
        let end = cache.end_serial();
        group.bench_function(BenchmarkId::new("random", events), |b| {
            let mut turn: u64 = 0;
            b.iter(|| {
                turn = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let begin = end - events + (turn >> 33) % events;
                let from = cache.serial_for(PubendId(turn % PUBENDS), Tick(begin * 1_000_000));
                cache.read(from, &set, 1, |item| {
                    black_box(&item);
                    ControlFlow::Continue(())
                })
            });
        });
    }
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
}

criterion_group! { name = cache; config = settings(); targets = writes, reads, seeks }
criterion_main!(cache);
