//! Events on topics without selectors, before and after many selectors were added elsewhere.

use core::hint::black_box;

use whimbrel_selector::{MatchIndex, TopicFilter, TopicName};

use super::options::Options;
use super::{median, time};
use crate::mixes::{Event, Mix, Plan, Workload};

/// Subscriptions without selector.
const PLAIN: u32 = 10_000;

/// Topics under which the selectors stand.
const TOPICS: usize = 1_000;

pub fn print(options: &Options) {
    let plan = Plan {
        mix: Mix::Equality,
        attributes: 10,
        zipf: false,
        any_field: false,
        count: 100_000,
        matching: 0.001,
        events: options.events,
        seed: options.seed,
    };
    let workload = Workload::calibrated(plan);
    let mut alone = plain(plan.seed);
    let mut crowded = plain(plan.seed);
    for number in 0..plan.count {
        let text = format!("city/{}/position", number % TOPICS);
        let filter = TopicFilter::new(&text).expect("a filter");
        crowded.insert(filter, Some(&workload.selector(number)), number as u32);
    }
    let topics: Vec<_> =
        (0..workload.events.len()).map(|number| format!("fleet/{}/status", number * 7 % PLAIN as usize)).collect();
    let mut rounds = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.max(11) {
        rounds.0.push(run(&mut alone, &topics, &workload.events));
        rounds.1.push(run(&mut crowded, &topics, &workload.events));
    }
    let (alone, crowded) = (median(rounds.0), median(rounds.1));
    println!("\nEvents that meet no selector, among {PLAIN} subscriptions without: ns per event");
    println!(
        "no selectors anywhere {alone:.1}, with {} on {TOPICS} other topics {crowded:.1}, ratio {:.3}",
        plan.count,
        crowded / alone
    );
}

/// Subscriptions without selector, two of which match each event.
fn plain(seed: u64) -> MatchIndex<u32> {
    let mut index = MatchIndex::new(seed);
    for key in 0..PLAIN {
        let text = format!("fleet/{key}/status");
        index.insert(TopicFilter::new(&text).expect("a filter"), None, key);
    }
    index.insert(TopicFilter::new("fleet/+/status").expect("a filter"), None, PLAIN);
    index
}

fn run(index: &mut MatchIndex<u32>, topics: &[String], events: &[Event]) -> f64 {
    const TIMES: usize = 20;
    time(TIMES * events.len(), || {
        for _ in 0..TIMES {
            for (topic, event) in topics.iter().zip(events) {
                let mut matches = 0;
                index.for_each_match(TopicName::new(topic).expect("a topic"), event, |_| matches += 1);
                assert_eq!(black_box(matches), 2);
            }
        }
    })
}
