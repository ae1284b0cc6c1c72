//! For any overwritten events, a reader gets each event or knows that it may have missed it.

use std::time::Duration;

use whimbrel_core::cache::{Capacity, Policy};

use crate::world::{World, plan};

pub const POLICIES: [Policy; 4] = [Policy::Lrp, Policy::Random, Policy::PRIORITY, Policy::Value];

pub const CAPACITIES: [Capacity; 3] = [
    Capacity::Events(150),
    Capacity::Bytes(40_000),
    Capacity::Time { keep: Duration::from_millis(900), ceiling: 30_000 },
];

#[test]
fn what_is_not_shown_is_known_to_be_missing() {
    for (number, policy) in POLICIES.into_iter().enumerate() {
        for (kind, capacity) in CAPACITIES.into_iter().enumerate() {
            for seed in 0..4 {
                let mut world = World::new(
                    plan(1 + seed as usize, capacity, policy),
                    seed * 100 + number as u64 * 10 + kind as u64,
                );
                let pubends = 1 + seed * 3;
                for step in 0..6_000 {
                    world.write_any(pubends);
                    let span = world.random.below(5_000_000);
                    world.pass(Duration::from_nanos(span));
                    if step % 97 == 0 {
                        let set = world.some_partitions();
                        let ages = world.random.below(4_000_000_000);
                        let now = world.now.as_nanos();
                        world.check_reader(&set, pubends, &|pubend| now.saturating_sub(ages / pubend));
                        world.check_reader(&set, pubends, &|_| 0);
                    }
                }
            }
        }
    }
}
