//! The losses of overwriting policies, computed from the distribution of outages.
//!
//! A partition holds `capacity` events and receives `rate` new ones each second, of importance 1 to
//! 10, each equally likely. An event that is kept until the age `a` is lost for those subscribers
//! whose outage lasts longer than that after it ([`Away::residual`]). So a policy is described by
//! the ages until which it keeps events.

use super::outage::{Away, BISECTIONS, Outages};

/// The number of levels of importance; the least is 1.
pub const LEVELS: usize = whimbrel_event::IMPORTANCE_MAX as usize;

/// An overwriting policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The least recently published event is overwritten.
    Lrp,
    /// Any event is overwritten.
    Random,
    /// A part of the capacity is lrp; events overwritten there go to the rest if they are more
    /// important than events in it.
    Priority {
        /// The part that is lrp.
        share: f64,
        /// Seconds that an event stays in the rest.
        lifetime: f64,
    },
    /// The best possible: events are kept by the probability and the importance of their being
    /// needed.
    Optimum,
}

/// The load of a partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Events that it holds.
    pub capacity: f64,
    /// Events that arrive each second.
    pub rate: f64,
}

/// The part of the events published during outages that is lost, by importance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses([f64; LEVELS]);

impl Losses {
    /// The lost part of all importance.
    pub fn weighted(&self) -> f64 {
        let total: f64 = (1..=LEVELS).map(|importance| importance as f64).sum();
        (1..=LEVELS).zip(self.0).map(|(importance, loss)| importance as f64 * loss).sum::<f64>() / total
    }
}

impl Policy {
    /// The losses when the policy expects `outages`, and `met` happens; in the long run both are
    /// the same.
    pub fn losses(self, load: Load, outages: &Outages, met: &impl Away) -> Losses {
        match self {
            // Each write overwrites any event with equal probability, so ages at the end are
            // exponential.
            Policy::Random => Losses([met.residual_beyond_exponential(load.capacity / load.rate); LEVELS]),
            _ => {
                let ages = self.ages(load, outages);
                Losses(ages.map(|age| met.residual(age)))
            }
        }
    }

    /// How long events are kept, by importance. Not for [`Policy::Random`], whose ages are a
    /// distribution.
    pub fn ages(self, load: Load, outages: &Outages) -> [f64; LEVELS] {
        match self {
            Policy::Lrp => [load.capacity / load.rate; LEVELS],
            Policy::Random => panic!("the ages at which a random policy overwrites are spread over all times"),
            Policy::Priority { share, lifetime } => priority(load, share, lifetime),
            Policy::Optimum => optimum(load, outages),
        }
    }
}

/// The rest of the capacity is filled from the most important level down, each event for its
/// lifetime. The level that fits in part has the remaining space: there more important events that
/// come and go push out the oldest, so each stays for a part of the lifetime.
fn priority(load: Load, share: f64, lifetime: f64) -> [f64; LEVELS] {
    let lrp = share * load.capacity / load.rate;
    let mut room = (1.0 - share) * load.capacity;
    let mut ages = [lrp; LEVELS];
    for age in ages.iter_mut().rev() {
        let wanted = load.rate / LEVELS as f64 * lifetime;
        let part = (room / wanted).clamp(0.0, 1.0);
        *age += part * lifetime;
        room -= part * wanted;
    }
    ages
}

/// Keeping an event of importance i a moment longer at the age a is worth i × P(outage > a). Each
/// is kept until that has fallen to a level, the same for all, at which they fill the capacity.
fn optimum(load: Load, outages: &Outages) -> [f64; LEVELS] {
    let ages = |level: f64| -> [f64; LEVELS] {
        std::array::from_fn(|index| outages.time_of_survival(level / (index + 1) as f64))
    };
    let held = |level: f64| ages(level).iter().sum::<f64>() * load.rate / LEVELS as f64;
    // In logarithms: the level may be as small as the survival of the longest relevant outage.
    let mut range = (f64::MIN_POSITIVE.ln(), (LEVELS as f64).ln());
    for _ in 0..BISECTIONS {
        let middle = (range.0 + range.1) / 2.0;
        if held(middle.exp()) > load.capacity { range.0 = middle } else { range.1 = middle }
    }
    ages(range.1.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition of the paper's experiment with priorities, at the rate that its policy
    /// sustained.
    const PAPER: Load = Load { capacity: 2000.0, rate: 25.863 };

    fn lost(policy: Policy, load: Load, outages: &Outages) -> Losses {
        policy.losses(load, outages, outages)
    }

    fn near(one: f64, other: f64, tolerance: f64) {
        assert!((one - other).abs() <= tolerance, "{one} is not {other} within {tolerance}");
    }

    #[test]
    fn lrp_loses_what_is_older_than_its_capacity() {
        let losses = lost(Policy::Lrp, PAPER, &Outages::exponential(24.0));
        near(losses.weighted(), (-2000.0 / (25.863 * 24.0_f64)).exp(), 1e-12);
    }

    #[test]
    fn the_optimum_gains_what_the_means_of_importance_say() {
        // With exponential outages and room for all levels, the loss of importance is that of lrp
        // times their geometric mean over their arithmetic mean: 17.7 % less for 1 to 10.
        let outages = Outages::exponential(24.0);
        let geometric = (1..=LEVELS).map(|importance| (importance as f64).ln()).sum::<f64>() / LEVELS as f64;
        let expected = geometric.exp() / 5.5 * lost(Policy::Lrp, PAPER, &outages).weighted();
        near(lost(Policy::Optimum, PAPER, &outages).weighted(), expected, 1e-9);
        near(1.0 - geometric.exp() / 5.5, 0.1766, 1e-4);
    }

    #[test]
    fn the_optimum_fills_the_capacity_and_is_the_best() {
        for (capacity, variation) in [(100.0, 1.0), (700.0, 1.0), (2000.0, 1.0), (2000.0, 2.5), (6000.0, 2.0)] {
            let load = Load { capacity, rate: 25.0 };
            let outages = Outages::hyper_exponential(24.0, variation);
            let ages = Policy::Optimum.ages(load, &outages);
            let held: f64 = ages.iter().map(|age| age * load.rate / LEVELS as f64).sum();
            near(held, capacity, 1e-6 * capacity);
            let best = lost(Policy::Optimum, load, &outages).weighted();
            let priority = Policy::Priority { share: 0.8, lifetime: 48.0 };
            for other in [Policy::Lrp, Policy::Random, priority] {
                assert!(best <= lost(other, load, &outages).weighted() + 1e-12, "{other:?} at {load:?}");
            }
        }
    }

    #[test]
    fn priority_protects_the_most_important_that_fit() {
        let load = Load { capacity: 2000.0, rate: 25.0 };
        let ages = Policy::Priority { share: 0.8, lifetime: 48.0 }.ages(load, &Outages::exponential(24.0));
        // 400 places, of which each level needs 120: three whole levels and a third of the next.
        assert_eq!(ages[7..], [64.0 + 48.0; 3]);
        near(ages[6], 64.0 + 16.0, 1e-9);
        assert_eq!(ages[..6], [64.0; 6]);
    }

    /// The policies again, in the plainest way, with random arrivals: ages at which events were
    /// overwritten, by importance.
    mod played {
        use super::*;
        use fastrand::Rng;

        #[derive(Clone, Copy)]
        struct Kept {
            born: f64,
            importance: usize,
            protected_at: f64,
        }

        fn oldest(events: &[Kept]) -> usize {
            let first = events.iter().enumerate().min_by(|(_, a), (_, b)| a.born.total_cmp(&b.born));
            first.expect("there are events").0
        }

        pub fn losses(policy: Policy, load: Load, outages: &Outages, events: usize, seed: u64) -> Losses {
            let mut random = Rng::with_seed(seed);
            let (mut kept, mut protected): (Vec<Kept>, Vec<Kept>) = (Vec::new(), Vec::new());
            let (mut now, mut lost, mut count) = (0.0, [0.0; LEVELS], [0.0; LEVELS]);
            let warm_up = events / 5;
            for index in 0..events {
                now += -(1.0 - random.f64()).ln() / load.rate;
                let new = Kept { born: now, importance: random.usize(1..=LEVELS), protected_at: 0.0 };
                kept.push(new);
                let mut ended = Vec::new();
                match policy {
                    Policy::Lrp if kept.len() as f64 > load.capacity => ended.push(kept.swap_remove(oldest(&kept))),
                    Policy::Random if kept.len() as f64 > load.capacity => {
                        let victim = random.usize(..kept.len() - 1);
                        ended.push(kept.swap_remove(victim));
                    }
                    Policy::Optimum if kept.len() as f64 > load.capacity => {
                        let value = |event: &Kept| event.importance as f64 * outages.survival(now - event.born);
                        let least = kept.iter().enumerate().min_by(|(_, a), (_, b)| value(a).total_cmp(&value(b)));
                        let victim = least.expect("there are events").0;
                        ended.push(kept.swap_remove(victim));
                    }
                    Policy::Priority { share, lifetime } => {
                        let over = |event: &Kept| now - event.protected_at > lifetime;
                        ended.extend(protected.extract_if(.., |event| over(event)));
                        if kept.len() as f64 > share * load.capacity {
                            let moved = kept.swap_remove(oldest(&kept));
                            protected.push(Kept { protected_at: now, ..moved });
                        }
                        if protected.len() as f64 > (1.0 - share) * load.capacity {
                            let last = protected.len() - 1;
                            let least = protected.iter().map(|event| event.importance).min().expect("it is full");
                            let victim = if protected[last].importance == least {
                                last
                            } else {
                                let equals = || protected.iter().enumerate().filter(|(_, e)| e.importance == least);
                                equals().min_by(|(_, a), (_, b)| a.born.total_cmp(&b.born)).expect("one at least").0
                            };
                            ended.push(protected.swap_remove(victim));
                        }
                    }
                    _ => {}
                }
                for event in ended.iter().filter(|_| index > warm_up) {
                    lost[event.importance - 1] += outages.residual(now - event.born);
                    count[event.importance - 1] += 1.0;
                }
            }
            Losses(std::array::from_fn(|level| lost[level] / count[level]))
        }
    }

    #[test]
    fn the_computed_losses_are_those_of_the_policies_when_played() {
        let load = Load { capacity: 400.0, rate: 5.0 };
        for (variation, seed) in [(1.0, 5), (2.0, 6)] {
            let outages = Outages::hyper_exponential(24.0, variation);
            let priority = Policy::Priority { share: 0.8, lifetime: 48.0 };
            for (policy, tolerance) in
                [(Policy::Lrp, 0.03), (Policy::Random, 0.03), (priority, 0.03), (Policy::Optimum, 0.03)]
            {
                let computed = lost(policy, load, &outages);
                let played = played::losses(policy, load, &outages, 30_000, seed);
                let apart = played.weighted() / computed.weighted() - 1.0;
                assert!(apart.abs() < tolerance, "{policy:?}, variation {variation}, seed {seed}: {apart}");
            }
        }
    }
}
