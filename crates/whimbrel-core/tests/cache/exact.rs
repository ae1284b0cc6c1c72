//! The contents under each policy are exactly those of its definition, replayed over the list of
//! all events.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_core::cache::{Capacity, Policy};

use crate::world::{World, plan};

/// The cost of an event in an lrp partition.
fn cost(world: &World, serial: u64) -> u64 {
    let len = world.all[serial as usize - 1].event.packed().as_bytes().len() as u64;
    len + len * 24 / 256 + 52
}

fn importance(world: &World, serial: u64) -> u8 {
    world.all[serial as usize - 1].event.view().importance
}

fn arrival(world: &World, serial: u64) -> u64 {
    world.all[serial as usize - 1].at.as_nanos()
}

fn write_some(world: &mut World) -> u64 {
    let span = world.random.below(20_000_000);
    world.pass(Duration::from_nanos(span));
    let (importance, payload) = (1 + world.random.below(10) as u8, world.random.below(200) as usize);
    let pubend = 1 + world.random.below(3);
    world.write(0, pubend, importance, payload)
}

#[test]
fn lrp_keeps_the_newest() {
    for seed in 0..5 {
        let mut world = World::new(plan(1, Capacity::Events(700), Policy::Lrp), seed);
        for _ in 0..2_500 {
            let serial = write_some(&mut world);
            if serial.is_multiple_of(50) {
                let kept: Vec<u64> = (serial.saturating_sub(699).max(1)..=serial).collect();
                assert_eq!(world.held(0), kept);
            }
        }
        assert_eq!(world.cache.gauges().next().map(|gauges| gauges.holes), Some(0));
    }
}

/// The newest events that fit into a number of bytes, oldest first.
fn newest_within(world: &World, last: u64, bytes: u64) -> Vec<u64> {
    let mut left = bytes;
    let fits = |serial: &u64| {
        let cost = cost(world, *serial);
        let fits = cost <= left;
        left -= cost.min(left);
        fits
    };
    let mut newest: Vec<u64> = (1..=last).rev().take_while(fits).collect();
    newest.reverse();
    newest
}

#[test]
fn lrp_keeps_the_newest_that_fit_but_for_a_chunk() {
    const CAPACITY: u64 = 50_000;
    let mut world = World::new(plan(1, Capacity::Bytes(CAPACITY), Policy::Lrp), 7);
    let mut fewest_free = CAPACITY;
    for _ in 0..2_500 {
        let serial = write_some(&mut world);
        let held = world.held(0);
        assert!(newest_within(&world, serial, CAPACITY).ends_with(&held), "the newest, and no more than fit");
        assert!(held.ends_with(&newest_within(&world, serial, CAPACITY * 7 / 8)), "a chunk less at most");
        fewest_free = fewest_free.min(CAPACITY - world.cache.bytes());
    }
    assert!(fewest_free < 100, "room is used before a chunk is evicted, but {fewest_free} bytes were always free");
}

#[test]
fn large_events_are_evicted_one_by_one() {
    const CAPACITY: u64 = 100_000;
    let mut world = World::new(plan(1, Capacity::Bytes(CAPACITY), Policy::Lrp), 7);
    for number in 0..1_000_usize {
        world.write(0, 1, 5, if number.is_multiple_of(2) { 2_000 } else { 10 });
        // The largest takes 2,400 bytes with its charge.
        let is_full = number > 200;
        assert!(!is_full || world.cache.bytes() > CAPACITY - 2_600, "{} bytes after {number}", world.cache.bytes());
    }
}

#[test]
fn lrp_by_time_keeps_what_arrived_lately() {
    let keep = Duration::from_millis(1_500);
    let mut world = World::new(plan(1, Capacity::Time { keep, ceiling: u64::MAX }, Policy::Lrp), 8);
    for _ in 0..2_500 {
        let serial = write_some(&mut world);
        let oldest = world.now.as_nanos().saturating_sub(1_500_000_000);
        let kept: Vec<u64> = (1..=serial).filter(|serial| arrival(&world, *serial) >= oldest).collect();
        assert_eq!(world.held(0), kept);
    }
}

#[test]
fn other_policies_by_time_keep_as_many_as_arrived_lately() {
    let keep = Duration::from_millis(1_600);
    for policy in [Policy::Random, Policy::PRIORITY, Policy::Value] {
        let mut world = World::new(plan(1, Capacity::Time { keep, ceiling: u64::MAX }, policy), 8);
        for _ in 0..2_500 {
            let serial = write_some(&mut world);
            let now = world.now.as_nanos();
            let since = |span: u64| (1..=serial).filter(|past| now - arrival(&world, *past) < span).count() as u64;
            let events = world.cache.events();
            // The unused room of the protected part stays unused.
            let fewest = if policy == Policy::PRIORITY { since(1_600_000_000) * 8 / 10 } else { since(1_600_000_000) };
            assert!((fewest..=since(1_700_000_000)).contains(&events), "{policy:?}: {events}");
        }
    }
}

#[test]
fn random_overwrites_any_event_with_equal_probability() {
    const KEPT: u64 = 2_000;
    const WRITTEN: u64 = 8_000;
    const RUNS: u64 = 20;
    let mut by_age = [0_u64; (WRITTEN / 500) as usize];
    for seed in 0..RUNS {
        let mut world = World::new(plan(1, Capacity::Events(KEPT), Policy::Random), seed);
        for _ in 0..WRITTEN {
            world.write(0, 1, 5, 10);
        }
        let held = world.held(0);
        assert_eq!((held.len() as u64, held.last()), (KEPT, Some(&WRITTEN)));
        held.iter().for_each(|serial| by_age[((serial - 1) / 500) as usize] += 1);
    }
    for (place, count) in by_age.iter().enumerate() {
        // Each write after the event, once the partition was full, has overwritten it with the same
        // probability.
        let expected: f64 = (place as u64 * 500..(place as u64 + 1) * 500)
            .map(|at| (1.0 - 1.0 / KEPT as f64).powi((WRITTEN - at.max(KEPT)) as i32))
            .sum::<f64>()
            * RUNS as f64;
        let off = (*count as f64 - expected) / expected.sqrt();
        assert!(off.abs() < 5.0, "{place}: {count} of {expected:.0}");
    }
}

#[test]
fn random_is_fair_to_large_and_small_events() {
    let mut world = World::new(plan(1, Capacity::Events(4_000), Policy::Random), 3);
    for number in 0..5_000 {
        let payload = if (3_000..3_600).contains(&number) { 0 } else { 9_000 };
        world.write(0, 1, 5, payload);
    }
    let held = world.held(0);
    for from in [0, 1_000, 2_000, 3_000] {
        // A thousand writes have overwritten each with the same probability: 0.78 of them stay, 13
        // of a thousand more or less.
        let stay = held.iter().filter(|serial| (from + 1..=from + 1_000).contains(*serial)).count();
        assert!((715..845).contains(&stay), "{stay} of a thousand after {from}");
    }
}

/// The policy with priorities over plain lists.
struct Priorities {
    plain: VecDeque<u64>,
    /// Serials, and the times of their arrival.
    protected: Vec<(u64, u64)>,
    room: (usize, usize),
    lifetime: u64,
}

impl Priorities {
    fn write(&mut self, world: &World, serial: u64, now: u64) {
        self.plain.push_back(serial);
        self.protected.retain(|(_, since)| now - since <= self.lifetime);
        while self.plain.len() > self.room.0 {
            let victim = self.plain.pop_front().expect("more than there is room for");
            if self.protected.len() == self.room.1 {
                let least =
                    self.protected.iter().min_by_key(|(serial, _)| (importance(world, *serial), *serial)).copied();
                match least {
                    Some(least) if importance(world, least.0) < importance(world, victim) => {
                        self.protected.retain(|other| *other != least);
                    }
                    _ => continue,
                }
            }
            self.protected.push((victim, now));
        }
    }

    fn kept(&self) -> Vec<u64> {
        let mut kept: Vec<u64> =
            self.protected.iter().map(|(serial, _)| *serial).chain(self.plain.iter().copied()).collect();
        kept.sort_unstable();
        kept
    }
}

#[test]
fn priority_keeps_what_the_paper_says() {
    for (lifetime, events, per_mille) in
        [(4_000, 500, 200), (700, 300, 500), (100_000, 600, 100), (2_000, 40, 0), (2_000, 40, 1_000)]
    {
        let policy = Policy::Priority { protected: per_mille, lifetime: Duration::from_millis(lifetime) };
        let mut world = World::new(plan(1, Capacity::Events(events), policy), lifetime);
        let protected = (events * u64::from(per_mille) / 1_000) as usize;
        let mut model = Priorities {
            plain: VecDeque::new(),
            protected: Vec::new(),
            room: (events as usize - protected, protected),
            lifetime: lifetime * 1_000_000,
        };
        for _ in 0..4_000 {
            let serial = write_some(&mut world);
            model.write(&world, serial, world.now.as_nanos());
            if serial.is_multiple_of(7) {
                assert_eq!(world.held(0), model.kept(), "lifetime {lifetime} ms, {events} events, after {serial}");
            }
        }
        let gauges = world.cache.gauges().next().expect("one partition");
        assert_eq!(gauges.protected as usize, model.protected.len());
    }
}

#[test]
fn priority_in_bytes_holds_both_parts_to_their_share() {
    let policy = Policy::Priority { protected: 300, lifetime: Duration::from_secs(3) };
    let mut world = World::new(plan(1, Capacity::Bytes(60_000), policy), 5);
    for _ in 0..4_000 {
        write_some(&mut world);
        assert!(world.cache.bytes() <= 60_000);
    }
    let held = world.held(0);
    let recent: u64 = held.iter().rev().take_while(|serial| **serial > 3_900).map(|serial| cost(&world, *serial)).sum();
    assert!(recent > 15_000, "the newest are there: {recent}");
    let older: Vec<u8> =
        held.iter().filter(|serial| **serial < 3_700).map(|serial| importance(&world, *serial)).collect();
    assert!(older.len() > 20 && older.iter().all(|importance| *importance >= 7), "what is old is important: {older:?}");
}

/// P(outage > age) as the cache assumes it, and learns it, to the accuracy that its steps allow.
fn longer(observed: &[u64], age_ns: u64) -> f64 {
    let age = age_ns as f64 / 1e6;
    let seen = observed.iter().filter(|outage| **outage as f64 > age).count() as f64;
    (8.0 * (-age / 24_000.0).exp() + seen) / (8.0 + observed.len() as f64)
}

#[test]
fn value_overwrites_what_is_worth_least() {
    for observations in [0, 300] {
        let mut world = World::new(plan(1, Capacity::Events(400), Policy::Value), observations);
        let observed: Vec<u64> = (0..observations).map(|n| 10 + n * n / 20).collect();
        observed.iter().for_each(|ms| world.cache.observe_outage(Duration::from_millis(*ms)));
        let mut before = Vec::new();
        for _ in 0..3_000 {
            let serial = write_some(&mut world);
            let held = world.held(0);
            before.push(serial);
            let gone: Vec<u64> = before.iter().copied().filter(|serial| held.binary_search(serial).is_err()).collect();
            if serial <= 400 {
                assert!(gone.is_empty());
                continue;
            }
            let [victim] = gone[..] else { panic!("one event makes room for one: {gone:?}") };
            let now = world.now.as_nanos();
            // The histogram is exact to an eighth of an age.
            let worth = |serial: u64, by: f64| {
                let age = (now - arrival(&world, serial)) as f64 * by;
                f64::from(importance(&world, serial)) * longer(&observed, age as u64)
            };
            let least = before.iter().map(|serial| worth(*serial, 7.0 / 8.0)).fold(f64::MAX, f64::min);
            let at_least = worth(victim, 9.0 / 8.0);
            assert!(at_least <= least, "{victim} is worth {at_least} or more, the least {least}");
            before = held;
        }
    }
}

#[test]
fn an_event_that_exceeds_its_partition_drives_nothing_out() {
    for policy in crate::complete::POLICIES {
        let mut world = World::new(plan(1, Capacity::Bytes(20_000), policy), 1);
        for _ in 0..20 {
            world.write(0, 1, 5, 10);
        }
        let held = world.held(0);
        world.write(0, 1, 5, 30_000);
        assert_eq!(world.held(0), held);
        world.check_reader(&(0..1).collect(), 1, &|_| 0);
    }
    let mut world = World::new(plan(1, Capacity::Events(0), Policy::Lrp), 1);
    world.write(0, 1, 5, 10);
    assert_eq!((world.held(0), world.cache.bytes()), (vec![], 0));
    world.check_reader(&(0..1).collect(), 1, &|_| 0);
}

#[test]
fn all_partitions_together_stay_below_the_ceiling() {
    for policy in crate::complete::POLICIES {
        let mut of_three = plan(3, Capacity::Bytes(30_000), policy);
        of_three.ceiling = 45_000;
        let mut world = World::new(of_three, 11);
        for _ in 0..600 {
            world.write(0, 1, 5, 50);
        }
        // By lrp a chunk is evicted as a whole.
        assert!(world.cache.bytes() > if policy == Policy::Lrp { 27_000 } else { 29_000 });
        for _ in 0..3_000 {
            world.write_any(2);
            assert!(world.cache.bytes() <= 45_000);
        }
        let bytes: Vec<u64> = world.cache.gauges().map(|gauges| gauges.bytes).collect();
        assert!(bytes.iter().all(|bytes| *bytes > 13_000), "the largest gives way: {bytes:?}");
        assert_eq!(bytes.iter().sum::<u64>(), world.cache.bytes());
        world.check_reader(&(0..3).collect(), 2, &|_| 0);
    }
}
