//! Time per event of the index over selectors and of all of them one by one, and of events that
//! meet no selector.

#[allow(dead_code, reason = "the report uses the rest")]
mod mixes;

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mixes::{Mix, Plan, Workload};
use whimbrel_selector::{MatchIndex, Scan, TopicFilter, TopicName};

const MIXES: [Mix; 5] = [Mix::Equality, Mix::Ranges, Mix::PrefixRange, Mix::Logic, Mix::Fence];

const COUNT: usize = 100_000;

fn workload(mix: Mix) -> Workload {
    Workload::calibrated(Plan {
        mix,
        attributes: 10,
        zipf: false,
        any_field: false,
        count: COUNT,
        matching: 0.001,
        events: 600,
        seed: 1,
    })
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text).expect("a filter")
}

fn topic(text: &str) -> TopicName<'_> {
    TopicName::new(text).expect("a topic")
}

fn index(workload: &Workload) -> MatchIndex<u32> {
    let mut index = MatchIndex::new(1);
    index.set_fences(Arc::clone(&workload.fences));
    for number in 0..COUNT {
        index.insert(filter("fleet/+/position"), Some(&workload.selector(number)), number as u32);
    }
    index
}

fn scan(workload: &Workload) -> Scan<u32> {
    let mut scan = Scan::new(Arc::clone(&workload.fences));
    (0..COUNT).for_each(|number| scan.push(&workload.selector(number), number as u32));
    scan
}

/// 100,000 selectors, of which 0.1 % match.
fn matching(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("selectors");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for mix in MIXES {
        let workload = workload(mix);
        let mut index = index(&workload);
        let mut events = workload.events.iter().cycle();
        group.bench_function(BenchmarkId::new("index", mix.name()), |bencher| {
            bencher.iter(|| {
                let mut matches = 0;
                let event = events.next().expect("it has no end");
                index.for_each_match(topic("fleet/7/position"), event, |_| matches += 1);
                matches
            });
        });
        drop(index);
        let mut scan = scan(&workload);
        group.sample_size(20);
        group.bench_function(BenchmarkId::new("one by one", mix.name()), |bencher| {
            bencher.iter(|| {
                let mut matches = 0;
                scan.for_each_true(events.next().expect("it has no end"), |_| matches += 1);
                matches
            });
        });
        group.sample_size(100);
    }
    group.finish();
}

/// Events on topics without selectors: alone, and with 100,000 selectors elsewhere.
fn bystanders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("no selector");
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let workload = workload(Mix::Equality);
    for (name, selectors) in [("anywhere", 0), ("here, but elsewhere", COUNT)] {
        let mut index = MatchIndex::new(1);
        (0..10_000).for_each(|key| {
            index.insert(filter(&format!("fleet/{key}/status")), None, key);
        });
        for number in 0..selectors {
            let text = format!("city/{}/position", number % 1_000);
            index.insert(filter(&text), Some(&workload.selector(number)), number as u32);
        }
        let mut events = workload.events.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut matches = 0;
                let event = events.next().expect("it has no end");
                index.for_each_match(topic("fleet/777/status"), event, |_| matches += 1);
                matches
            });
        });
    }
    group.finish();
}

criterion_group!(benches, matching, bystanders);
criterion_main!(benches);
