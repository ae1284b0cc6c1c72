//! What it costs to add and to remove a selector while there are many.

use fastrand::Rng;
use whimbrel_selector::Selector;

use super::options::{Options, label};
use super::{Indexed, filter, now};
use crate::mixes::Workload;

const REPLACED: usize = 20_000;

/// Nanoseconds of each operation.
#[derive(Default)]
struct Times {
    parse: Vec<u64>,
    add: Vec<u64>,
    remove: Vec<u64>,
}

pub fn print(options: &Options) {
    println!(
        "\nAdding and removing, ns each, over {REPLACED} replacements at random; reading the clock takes {} of them.",
        clock()
    );
    println!(
        "{:30} {:>8} | {:>7} {:>7} {:>8} | {:>7} {:>7} {:>8} | {:>7} {:>7} {:>8} | {:>7}",
        "mix, fields, values, attributes",
        "count",
        "add",
        "p99",
        "max",
        "with parse",
        "p99",
        "max",
        "remove",
        "p99",
        "max",
        "parse"
    );
    for plan in options.plans() {
        let times = replace(&Workload::calibrated(plan));
        let both = times.parse.iter().zip(&times.add).map(|(parse, add)| parse + add).collect();
        println!(
            "{:30}  {:>8} | {} | {}    | {} | {:>7}",
            label(&plan),
            plan.count,
            figures(times.add),
            figures(both),
            figures(times.remove),
            times.parse.iter().sum::<u64>() / REPLACED as u64
        );
    }
}

fn replace(workload: &Workload) -> Times {
    let Indexed { mut index, mut places } = Indexed::new(workload);
    // Selectivity is learned from events.
    workload.events.iter().for_each(|event| index.for_each_match(super::topic(), event, |_| ()));
    let mut keys: Vec<u32> = (0..workload.plan.count as u32).collect();
    let mut rng = Rng::with_seed(workload.plan.seed);
    let mut times = Times::default();
    for number in 0..REPLACED {
        let place = rng.usize(..keys.len());
        let fresh = workload.plan.count + number;
        let text = workload.part(fresh).selector();
        let start = now();
        let found = index.remove(filter(), places[place], keys[place]).0;
        times.remove.push(now() - start);
        assert!(found, "it was added");
        let start = now();
        let selector = Selector::parse(&text).expect("generated");
        times.parse.push(now() - start);
        let start = now();
        places[place] = index.insert(filter(), Some(&selector), fresh as u32).0;
        times.add.push(now() - start);
        keys[place] = fresh as u32;
    }
    times
}

/// What reading the clock costs.
fn clock() -> u64 {
    let mut times: Vec<_> = (0..1_000).map(|_| now()).collect();
    times = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn figures(mut times: Vec<u64>) -> String {
    times.sort_unstable();
    let mean = times.iter().sum::<u64>() / times.len() as u64;
    format!("{mean:>7} {:>7} {:>8}", times[times.len() * 99 / 100], times[times.len() - 1])
}
