//! The costs of computing all paths anew, of merging some of them into a tree, and of learning a
//! link state of another broker.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use whimbrel_event::{HostId, Tick, Time};
use whimbrel_net::route::{MapOutages, Routes, TopicPaths};
use whimbrel_net::topology::{LinkState, Neighbour, Topology};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NOW: Time = Time::from_nanos(1_000_000_000_000_000);

/// A well-mixed number.
fn mixed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn host(number: usize) -> HostId {
    HostId::new(mixed(number as u64))
}

fn end(from: usize, to: usize, port: usize) -> Neighbour {
    let (low, high) = (from.min(to) as u64, from.max(to) as u64);
    let delay_us = 500 + (mixed(low << 32 | high) >> 40) as u32 % 50_000;
    Neighbour { host: host(to), port: port as u16, delay_us, loss: (delay_us % 7) as u16, surcharge_us: 0 }
}

fn state(number: usize, sequence: u64, neighbours: &[usize]) -> LinkState {
    LinkState {
        host: host(number),
        incarnation: 1,
        sequence,
        name: format!("broker-{number}").into(),
        reliable: 4,
        further: 4,
        birth: Tick(1),
        addresses: vec!["10.0.0.1:7000".into()],
        neighbours: neighbours.iter().enumerate().map(|(port, to)| end(number, *to, port)).collect(),
        previous: Vec::new(),
        domains: Default::default(),
        protocol: whimbrel_wire::Protocol::OWN,
        later: Box::default(),
    }
}

/// Brokers and their neighbours.
struct World(Vec<Vec<usize>>);

impl World {
    fn mesh(brokers: usize) -> World {
        World((0..brokers).map(|of| (0..brokers).filter(|to| *to != of).collect()).collect())
    }

    /// A ring with random links until each broker has about `degree` of them.
    fn random(brokers: usize, degree: usize) -> World {
        let mut links: Vec<Vec<usize>> = vec![Vec::new(); brokers];
        for one in 0..brokers {
            for turn in 0..degree / 2 {
                let random = mixed((one * degree + turn) as u64) >> 20;
                let other = if turn == 0 { (one + 1) % brokers } else { random as usize % brokers };
                if one != other && !links[one].contains(&other) {
                    links[one].push(other);
                    links[other].push(one);
                }
            }
        }
        World(links)
    }

    fn topology(&self) -> Topology {
        let mut topology = Topology::new(host(0));
        topology.announce(NOW, state(0, 1, &self.0[0])).expect("a good state");
        for (number, links) in self.0.iter().enumerate().skip(1) {
            topology.learn(NOW, state(number, 1, links), Duration::ZERO);
        }
        topology
    }

    fn routes(&self) -> Routes {
        let mut routes = Routes::new(host(0));
        routes.update(&self.topology());
        routes
    }

    /// Every `every`th broker.
    fn set(&self, every: usize) -> Vec<HostId> {
        let mut set: Vec<HostId> = (0..self.0.len()).step_by(every).map(host).collect();
        set.sort_unstable();
        set
    }
}

fn worlds() -> [(&'static str, World); 4] {
    [
        ("mesh of 100", World::mesh(100)),
        ("mesh of 1,000", World::mesh(1_000)),
        ("1,000 of degree 8", World::random(1_000, 8)),
        ("10,000 of degree 8", World::random(10_000, 8)),
    ]
}

/// From the link states to the paths; and the paths alone.
fn recomputing(c: &mut Criterion) {
    let mut group = c.benchmark_group("recompute");
    for (name, world) in worlds() {
        let topology = world.topology();
        group.bench_function(BenchmarkId::new("all", name), |b| {
            b.iter(|| {
                let mut routes = Routes::new(host(0));
                assert!(routes.update(&topology));
                routes
            });
        });
        group.bench_function(BenchmarkId::new("a detour", name), |b| {
            let mut routes = world.routes();
            let hosts = world.set(1);
            let mut turn = 0;
            b.iter(|| {
                turn = (turn + 1) % hosts.len();
                black_box(routes.avoiding(&hosts[turn..=turn], &[]).cost_us(hosts[0]))
            });
        });
    }
    group.finish();
}

fn trees(c: &mut Criterion) {
    let mut group = c.benchmark_group("tree");
    for (name, world) in worlds() {
        let mut routes = world.routes();
        for every in [100, 10, 1] {
            let set = world.set(every);
            let size = set.len();
            group.bench_function(BenchmarkId::new(format!("made for {size}"), name), |b| {
                b.iter(|| routes.ways().trees(&set));
            });
            group.bench_function(BenchmarkId::new(format!("remembered for {size}"), name), |b| {
                b.iter(|| routes.trees(&set).trees.len());
            });
        }
    }
    group.finish();
}

/// A link state that repeats the last one, one that changes it, and a look-up of a host's place.
fn learning(c: &mut Criterion) {
    let mut group = c.benchmark_group("learn");
    for (name, world) in worlds() {
        let (mut topology, routes) = (world.topology(), world.routes());
        let mut sequence = 1;
        group.bench_function(BenchmarkId::new("a repetition", name), |b| {
            let fresh = || {
                sequence += 1;
                state(1, sequence, &world.0[1])
            };
            b.iter_batched(fresh, |state| topology.learn(NOW, state, Duration::ZERO), BatchSize::SmallInput);
        });
        let hosts = world.set(1);
        group.bench_function(BenchmarkId::new("next hop", name), |b| {
            let mut turn: u64 = 0;
            b.iter(|| {
                turn += 1;
                routes.next_hop(hosts[mixed(turn) as usize % hosts.len()])
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

/// The first trees of copies in a map, with the pairs of paths to all brokers; and those after it.
fn copies(c: &mut Criterion) {
    let mut group = c.benchmark_group("copies");
    let worlds = [("mesh of 50", World::mesh(50)), ("1,000 of degree 8", World::random(1_000, 8))];
    let outages = MapOutages::default();
    for (name, world) in worlds {
        let topology = world.topology();
        let fresh = || {
            let mut routes = Routes::new(host(0));
            routes.update(&topology);
            routes
        };
        let to = |count: usize| {
            let mut set: Vec<HostId> = (1..=count).map(host).collect();
            set.sort_unstable();
            set
        };
        for (what, set) in [("one broker", to(1)), ("ten brokers", to(10)), ("all brokers", to(world.0.len() - 1))] {
            group.bench_function(BenchmarkId::new(what, name), |b| {
                b.iter_batched_ref(
                    fresh,
                    |routes| black_box(routes.copies(&set, TopicPaths::Two, 100_000, &outages).trees.trees.len()),
                    BatchSize::SmallInput,
                );
            });
        }
        group.bench_function(BenchmarkId::new("again", name), |b| {
            let (mut routes, set) = (fresh(), to(10));
            b.iter(|| black_box(routes.copies(&set, TopicPaths::Two, 100_000, &outages).trees.trees.len()));
        });
    }
}

criterion_group! { name = routes; config = settings(); targets = recomputing, trees, copies, learning }
criterion_main!(routes);
