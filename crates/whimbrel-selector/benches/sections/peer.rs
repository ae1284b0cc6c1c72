//! The same selectors and events in the a-tree crate.

use core::hint::black_box;

use a_tree::{ATree, AttributeDefinition};

use super::options::{Options, label};
use super::{Indexed, median, time};
use crate::mixes::{Event, Mix, Plan, Workload};

/// What its language can say.
const MIXES: [Mix; 3] = [Mix::Equality, Mix::Ranges, Mix::LogicPlain];

pub fn print(options: &Options) {
    println!(
        "\nThe a-tree crate: ns per event, to search alone and with making its event of the attributes; ratios to the index; ns to add a selector to it."
    );
    println!(
        "{:30} {:>8} {:>8} {:>11} {:>12} {:>12} {:>8} {:>8} {:>10}",
        "mix, fields, values, attributes",
        "count",
        "matches",
        "index ns",
        "search",
        "with event",
        "ratio",
        "ratio",
        "add"
    );
    // Adding to a-tree takes longer the more there is in it, minutes for a cell of 100,000: only
    // the first of the fields and values asked for.
    let (zipf, any_field) = (options.zipf[..1].to_vec(), options.any_field[..1].to_vec());
    let one = Options { mixes: MIXES.to_vec(), zipf, any_field, ..options.clone() };
    for plan in one.plans() {
        print_cell(plan, options);
    }
}

fn print_cell(plan: Plan, options: &Options) {
    let workload = Workload::calibrated(plan);
    let mut indexed = Indexed::new(&workload);
    let mut made_tree = None;
    let add = time(plan.count, || made_tree = Some(tree(&workload)));
    let tree = made_tree.expect("just made");
    let events = &workload.events;
    let some = (1_000_000 / plan.count).clamp(10, events.len());
    let matches = indexed.run(events) as f64 / events.len() as f64;
    for event in &events[..some] {
        assert_eq!(indexed.keys(event), keys(&tree, event), "the index and a-tree disagree: {plan:?} {event:?}");
    }
    let (mut own, mut search, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        own.push(time(events.len(), || {
            black_box(indexed.run(events));
        }));
        let made: Vec<_> = events[..some].iter().map(|event| made(&tree, event)).collect();
        search.push(time(some, || {
            for event in &made {
                black_box(tree.search(event).expect("its own event").matches().len());
            }
        }));
        whole.push(time(some, || {
            events[..some].iter().for_each(|event| {
                black_box(tree.search(&self::made(&tree, event)).expect("its own event").matches().len());
            })
        }));
    }
    let (own, search, whole) = (median(own), median(search), median(whole));
    println!(
        "{:30}  {:>8} {matches:>8.1} {own:>11.0} {search:>12.0} {whole:>12.0} {:>8.1} {:>8.1} {add:>10.0}",
        label(&plan),
        plan.count,
        search / own,
        whole / own
    );
}

fn tree(workload: &Workload) -> ATree<u32> {
    let define = |(name, text): &(&'static str, String)| match text.parse::<i64>() {
        Ok(_) => AttributeDefinition::integer(name),
        Err(_) => AttributeDefinition::string(name),
    };
    let definitions: Vec<_> = workload.events[0].attributes.iter().map(define).collect();
    let mut tree = ATree::new(&definitions).expect("distinct names");
    for number in 0..workload.plan.count {
        let text = workload.part(number).a_tree().expect("a mix that it can express");
        tree.insert(&(number as u32), &text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    tree
}

fn made(tree: &ATree<u32>, event: &Event) -> a_tree::Event {
    let mut builder = tree.make_event();
    for (name, text) in &event.attributes {
        match text.parse() {
            Ok(number) => builder.with_integer(name, number),
            Err(_) => builder.with_string(name, text),
        }
        .expect("defined so");
    }
    builder.build().expect("nothing is missing")
}

fn keys(tree: &ATree<u32>, event: &Event) -> Vec<u32> {
    let mut keys: Vec<u32> =
        tree.search(&made(tree, event)).expect("its own event").matches().iter().copied().copied().collect();
    keys.sort_unstable();
    keys
}
