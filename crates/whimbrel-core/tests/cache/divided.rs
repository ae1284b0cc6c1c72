//! Which partitions a subscription may find its events in, and changing the division.

use std::time::Duration;

use whimbrel_core::cache::{Cache, Capacity, DefaultPlan, PartitionPlan, PartitionSet, Plan, Policy};
use whimbrel_event::{Event, PubendId};
use whimbrel_selector::{Selector, TopicFilter};

use crate::complete::{CAPACITIES, POLICIES};
use crate::world::{World, plan};

fn partition(filter: &str, selector: &str) -> PartitionPlan {
    PartitionPlan {
        filter: filter.into(),
        selector: (!selector.is_empty()).then(|| Selector::parse(selector).expect("a good selector")),
        capacity: Capacity::Events(100),
        policy: Policy::Lrp,
    }
}

fn candidates(cache: &Cache, filter: &str, selector: &str) -> Vec<usize> {
    let selector = (!selector.is_empty()).then(|| Selector::parse(selector).expect("a good selector"));
    cache.candidates(TopicFilter::new(filter).expect("a good filter"), selector.as_ref()).iter().collect()
}

#[test]
fn a_subscription_looks_only_where_its_events_may_be() {
    let partitions = vec![
        partition("a/#", "x < 10"),
        partition("a/#", "x >= 10 AND x < 20"),
        partition("a/b", ""),
        partition("+/c", ""),
    ];
    let cache = Cache::new(Plan { partitions, ..Plan::default() }, 1);
    for (filter, selector, expected) in [
        ("a/b", "x = 5", &[0][..]),
        ("a/b", "x = 15", &[1]),
        ("a/b", "x BETWEEN 5 AND 15", &[0, 1, 2]),
        ("a/b", "", &[0, 1, 2]),
        ("a/c", "x = 30", &[3]),
        ("a/d", "x = 30", &[4]),
        ("b/#", "", &[3, 4]),
        ("#", "x > 100", &[2, 3, 4]),
        ("$SYS/c", "", &[4]),
        ("#", "", &[0, 1, 2, 3, 4]),
    ] {
        assert_eq!(candidates(&cache, filter, selector), expected, "{filter} where {selector}");
    }
}

/// The first partition whose filter matches, as an index would tell.
fn deal(plan: &Plan) -> impl Fn(&Event) -> usize {
    let prefixes: Vec<String> = plan.partitions.iter().map(|p| p.filter.trim_end_matches('#').to_string()).collect();
    move |event| prefixes.iter().position(|prefix| event.topic().starts_with(&**prefix)).unwrap_or(prefixes.len())
}

fn reconfigure(world: &mut World, plan: &Plan) {
    let deal = deal(plan);
    world.cache.reconfigure(plan.clone(), world.now, |event| deal(&Event::copied(event)));
    for written in &mut world.all {
        written.partition = deal(&written.event);
    }
    assert_eq!(world.cache.bytes(), world.cache.gauges().map(|gauges| gauges.bytes).sum::<u64>());
}

fn step(world: &mut World, pubends: u64) {
    world.write_any(pubends);
    let span = world.random.below(5_000_000);
    world.pass(Duration::from_nanos(span));
}

#[test]
fn whatever_the_division_becomes_nothing_is_lost_unknown() {
    for seed in 0..12 {
        let policy = POLICIES[seed as usize % 4];
        let mut world = World::new(plan(3, CAPACITIES[seed as usize % 3], policy), seed);
        for _ in 0..12 {
            for _ in 0..world.random.below(900) {
                step(&mut world, 4);
            }
            let capacity = CAPACITIES[world.random.below(3) as usize];
            let policy = POLICIES[world.random.below(4) as usize];
            let mut new = plan(1 + world.random.below(4) as usize, capacity, policy);
            if world.random.below(2) == 0 {
                new.partitions.reverse();
            }
            if world.random.below(3) == 0 {
                new.ceiling = 25_000;
            }
            reconfigure(&mut world, &new);
            let set = world.some_partitions();
            let now = world.now.as_nanos();
            world.check_reader(&set, 4, &|pubend| now.saturating_sub(pubend * 300_000_000));
            world.check_reader(&PartitionSet::first(new.count()), 4, &|_| 0);
            assert!(world.cache.bytes() <= new.ceiling);
        }
    }
}

#[test]
fn a_larger_partition_keeps_all_it_has_and_knows() {
    for policy in POLICIES {
        let mut world = World::new(plan(2, Capacity::Events(200), policy), 1);
        (0..1_500).for_each(|_| step(&mut world, 2));
        let held = |world: &World| [world.held(0), world.held(1)];
        let known = |world: &World| {
            let set = PartitionSet::first(2);
            (world.read(0, &set, || 9_999), [1, 2].map(|pubend| world.cache.incomplete(&set, PubendId(pubend))))
        };
        let before = (held(&world), known(&world));
        reconfigure(&mut world, &plan(2, Capacity::Events(400), policy));
        assert_eq!((held(&world), known(&world)), before, "{policy:?}");
        (0..300).for_each(|_| step(&mut world, 2));
        let held = held(&world);
        assert!(held[0].len() + held[1].len() >= 640, "{policy:?}");
    }
}

#[test]
fn a_new_partition_takes_over_what_it_names() {
    let mut world = World::new(plan(1, Capacity::Events(1_000), Policy::Lrp), 2);
    for _ in 0..600 {
        world.write(0, 1, 5, 10);
    }
    let new = Plan {
        partitions: vec![partition("0/#", "")],
        default: DefaultPlan { capacity: Capacity::Events(1_000), policy: Policy::Lrp },
        ceiling: u64::MAX,
    };
    reconfigure(&mut world, &new);
    assert_eq!(world.held(0), (501..=600).collect::<Vec<u64>>());
    assert!(world.held(1).is_empty());
    world.check_reader(&PartitionSet::first(1), 1, &|_| 0);
}

#[test]
fn a_smaller_partition_overwrites_by_its_new_policy() {
    for policy in POLICIES {
        let mut world = World::new(plan(1, Capacity::Events(500), Policy::Lrp), 3);
        (0..700).for_each(|_| step(&mut world, 2));
        reconfigure(&mut world, &plan(1, Capacity::Events(100), policy));
        let held = world.held(0);
        assert_eq!(held.len(), 100, "{policy:?}");
        if policy == Policy::Lrp {
            assert_eq!(held, (601..=700).collect::<Vec<u64>>());
        }
        world.check_reader(&PartitionSet::first(1), 2, &|_| 0);
    }
}
