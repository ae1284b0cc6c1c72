//! Reading in pieces, over some of the partitions, and its cost.

use std::ops::ControlFlow;

use whimbrel_core::cache::{CacheItem, Capacity, PartitionSet, Policy};
use whimbrel_event::{PubendId, Tick};

use crate::complete::POLICIES;
use crate::world::{Shown, World, plan};

fn events(shown: &[Shown]) -> Vec<u64> {
    shown.iter().filter_map(|item| if let Shown::Event(serial) = item { Some(*serial) } else { None }).collect()
}

#[test]
fn a_reader_that_stops_anywhere_continues_there() {
    for policy in POLICIES {
        let mut world = World::new(plan(3, Capacity::Events(40), policy), 3);
        for _ in 0..400 {
            world.write_any(3);
        }
        let set = PartitionSet::first(3);
        let whole = world.read(0, &set, || usize::MAX);
        let serials = events(&whole);
        for budget in [0, 1, 2, 3, 7, 50] {
            assert_eq!(events(&world.read(0, &set, || budget)), serials, "{policy:?}, pieces of {budget}");
        }
        for cut in 1..=world.cache.end_serial() {
            let later: Vec<u64> = serials.iter().copied().filter(|serial| *serial >= cut).collect();
            assert_eq!(events(&world.read(cut, &set, || 5)), later, "{policy:?} from {cut}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_has_read_what_it_was_shown_last() {
    let mut world = World::new(plan(2, Capacity::Events(40), Policy::Lrp), 4);
    for _ in 0..60 {
        world.write_any(2);
    }
    let set = PartitionSet::first(2);
    let mut from = 0;
    let mut serials = Vec::new();
    loop {
        let next = world.cache.read(from, &set, 1_000, |item| {
            let CacheItem::Event { serial, .. } = item else { panic!("lrp leaves no holes") };
            serials.push(serial);
            ControlFlow::Break(())
        });
        from = next.serial;
        if next.exhausted {
            break;
        }
        assert_eq!(next.looked_at, 1);
    }
    assert_eq!(serials, events(&world.read(0, &set, || usize::MAX)));
}

#[test]
fn partitions_that_are_not_asked_for_are_not_shown() {
    let mut world = World::new(plan(3, Capacity::Events(100), Policy::Lrp), 5);
    let (one, two) = (world.write(0, 1, 5, 1), world.write(2, 1, 5, 1));
    world.write(1, 1, 5, 1);
    let set: PartitionSet = [0, 2].into_iter().collect();
    assert_eq!(events(&world.read(0, &set, || 1)), [one, two]);
    assert_eq!(world.read(0, &PartitionSet::EMPTY, || 1), []);
    assert_eq!((world.cache.first_serial(), world.cache.end_serial()), (1, 4));
    assert_eq!(world.cache.pubends().collect::<Vec<_>>(), [PubendId(1)]);
    assert_eq!(world.cache.serial_for(PubendId(9), Tick(0)), 4);
}

#[test]
fn a_write_costs_the_same_whatever_the_cache_holds() {
    for policy in POLICIES {
        let work = |held: u64| {
            let mut world = World::new(plan(1, Capacity::Events(held), policy), 6);
            let mut write = |count: u64| {
                for _ in 0..count {
                    world.pass(std::time::Duration::from_micros(100));
                    let (pubend, importance) = (1 + world.random.below(4), 1 + world.random.below(10) as u8);
                    world.write(0, pubend, importance, 0);
                }
                world.cache.gauges().next().expect("one partition").work
            };
            let before = write(3 * held);
            (write(3 * held) - before) as f64 / (3 * held) as f64
        };
        let (few, many) = (work(2_000), work(40_000));
        assert!(few < 25.0 && many < 25.0, "{policy:?}: {few} slots for each write, {many} with twenty times as many");
    }
}

#[test]
fn a_reader_of_a_random_partition_looks_at_what_is_in_its_range() {
    for held in [2_000, 40_000] {
        let mut world = World::new(plan(1, Capacity::Events(held), Policy::Random), 7);
        for _ in 0..4 * held {
            let pubend = 1 + world.random.below(4);
            world.write(0, pubend, 5, 0);
        }
        let set = PartitionSet::first(1);
        let from = world.cache.end_serial() - held / 4;
        let mut shown = 0;
        let next = world.cache.read(from, &set, usize::MAX, |item| {
            shown += usize::from(matches!(item, CacheItem::Event { .. }));
            ControlFlow::Continue(())
        });
        assert!(next.exhausted && shown > held as usize / 8);
        assert!(next.looked_at <= 2 * shown + 16, "{} slots for {shown} events of {held}", next.looked_at);
    }
}

#[test]
fn holes_never_outnumber_events_by_much() {
    for policy in POLICIES {
        for pubends in [1, 4, 40] {
            let mut world = World::new(plan(1, Capacity::Events(1_000), policy), 8);
            for _ in 0..8_000 {
                world.write_any(pubends);
                let gauges = world.cache.gauges().next().expect("one partition");
                assert!(gauges.holes <= gauges.events + 256, "{policy:?}: {gauges:?}");
            }
            let after = world.now.as_nanos() + 5_000;
            world.check_reader(&PartitionSet::first(1), pubends, &|_| after);
        }
    }
}
