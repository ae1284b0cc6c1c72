//! The virtual driver: brokers' cores, subscribers and links in simulated time.
//!
//! A publisher's broker accepts all events. Two others are linked with it by the overlay, over
//! links of different delay; these hold the caches, and mobile subscribers connect to them. MQTT's
//! packets are left out, except for their length where bandwidth is limited. Each subscriber keeps
//! its own token, compares the events it receives with the published ones, and finds for every
//! missing event the gap that it was told.

mod bandwidth;
mod buffer;
mod importance;
mod loss;
mod radio;
mod scenario;
mod subscriber;
mod tally;
mod world;

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::experiment::{Effort, Plan};
use scenario::Scenario;
use tally::Outcome;

/// The parts that the virtual driver measures.
pub const PLANS: &[Plan] = &[
    loss::DEFAULTS,
    buffer::PLAN,
    importance::GAIN,
    importance::MEMORY,
    loss::TIME_DOWN_PLAN,
    loss::VARIATION,
    bandwidth::PLAN,
];

/// The buffer sizes of one run, by class: a run shows all of them at once.
const CAPACITIES: [u64; scenario::CLASSES] = [500, 750, 1000, 1250, 1500, 2000, 2500, 3000, 3500, 4000];

/// Plays a scenario with each seed.
fn play_all(scenario: &Scenario, effort: Effort, bar: &ProgressBar) -> Result<Vec<Outcome>> {
    (1..=effort.seeds)
        .map(|seed| {
            let outcome = world::play(scenario, seed);
            bar.inc(1);
            outcome
        })
        .collect()
}

/// The length of a run: as given, or a twentieth of it in a quick run.
fn length(effort: Effort, seconds: u64) -> Duration {
    let whole = Duration::from_secs(seconds);
    if effort.quick { whole / 20 } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::Durability;
    use whimbrel_core::cache::Policy;

    /// A small and hard scenario: short caches, frequent outages.
    fn hard(policy: Policy) -> Scenario {
        let mobility = whimbrel_sim::mobility::Mobility {
            mean_outage: Duration::from_secs(4),
            fraction_down: 0.3,
            graceful_rate: 0.02,
            ..Default::default()
        };
        Scenario {
            rate: 200.0,
            capacities: [100; scenario::CLASSES],
            policy,
            mobility,
            subscribers: 40,
            length: Duration::from_secs(120),
            ..Scenario::default()
        }
    }

    #[test]
    fn nothing_is_lost_silently_and_nothing_comes_twice_whatever_is_overwritten() {
        for policy in [Policy::Lrp, Policy::Random, Policy::PRIORITY, Policy::Value] {
            let total = world::play(&hard(policy), 7).expect("it can be played").total();
            assert!(total.lost > 500, "{policy:?}: the caches are too small for some outages: {}", total.lost);
            assert_eq!((total.silent, total.repeated, total.uncovered), (0, 0, 0), "{policy:?}");
            assert_eq!(total.expected, total.delivered + total.lost, "{policy:?}");
        }
    }

    #[test]
    fn without_a_cache_what_was_published_during_outages_is_lost() {
        let scenario = Scenario { durability: Durability::Nondurable, ..hard(Policy::Lrp) };
        let total = world::play(&scenario, 7).expect("it can be played").total();
        assert!((25.0..35.0).contains(&total.loss()), "{} %", total.loss());
    }

    #[test]
    fn a_seed_is_all_there_is_to_a_run() {
        let play = || world::play(&hard(Policy::Random), 3).expect("it can be played");
        assert_eq!(play(), play());
    }

    #[test]
    fn what_a_limited_link_cannot_carry_is_in_gaps() {
        let shape = whimbrel_sim::access::Shape { rate: 20_000, ..whimbrel_sim::access::Shape::NARROW };
        let total = world::play(&Scenario { access: Some(shape), ..hard(Policy::Lrp) }, 7).expect("played").total();
        assert!(total.loss() > 30.0, "the link carries a part only: {} %", total.loss());
        assert_eq!((total.silent, total.repeated), (0, 0));
        assert!(total.name_bytes > 0 && total.name_bytes < total.bytes / 2);
    }
}
