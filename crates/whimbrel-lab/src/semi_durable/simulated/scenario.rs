//! The parameters of a simulation.

use std::time::Duration;

use anyhow::{Context, Result};
use whimbrel_core::Durability;
use whimbrel_core::cache::{Capacity, DefaultPlan, PartitionPlan, Plan, Policy};
use whimbrel_selector::Selector;
use whimbrel_sim::access::Shape;
use whimbrel_sim::mobility::Mobility;

/// The number of partitions of the cache, and of kinds of subscribers: each wants one tenth of the
/// range of the attribute.
pub const CLASSES: usize = 10;

/// The number of values of the attribute.
pub const VALUES: u64 = 100;

/// The attribute's name.
pub const ATTRIBUTE: &str = "v";

/// The topic of all events.
pub const TOPIC: &str = "field/events";

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Events per second.
    pub rate: f64,
    /// The events that each partition of a broker's cache holds.
    pub capacities: [u64; CLASSES],
    /// The partitions' overwriting policy.
    pub policy: Policy,
    /// The mobility of subscribers.
    pub mobility: Mobility,
    /// The number of subscribers.
    pub subscribers: usize,
    /// Bytes of an event's body.
    pub body: usize,
    /// [`Durability::SemiDurable`] or [`Durability::Nondurable`].
    pub durability: Durability,
    /// The link that all subscribers share; `None`: no limit.
    pub access: Option<Shape>,
    /// The time that is counted, after the caches have filled.
    pub length: Duration,
}

impl Default for Scenario {
    /// The paper's default parameters, at the rate at which it compares kinds of subscriptions.
    fn default() -> Self {
        Scenario {
            rate: 285.29,
            capacities: [3000; CLASSES],
            policy: Policy::Lrp,
            mobility: Mobility::default(),
            subscribers: 200,
            body: 50,
            durability: Durability::SemiDurable,
            access: None,
            length: Duration::from_secs(3600),
        }
    }
}

/// The mean time between requests is to be twice as long where outages are.
const GRACEFUL_RATE_AT_24_S: f64 = 0.000_309 / 2.0;

impl Scenario {
    /// The paper's mobility with longer outages: 24 s, and so rare that the fraction of time down
    /// stays the same.
    pub fn longer_outages() -> Mobility {
        Mobility { mean_outage: Duration::from_secs(24), graceful_rate: GRACEFUL_RATE_AT_24_S, ..Mobility::default() }
    }

    /// Events per second that go to one partition.
    pub fn class_rate(&self) -> f64 {
        self.rate / CLASSES as f64
    }

    /// How long until the caches are full and policies have learned what they will know.
    pub fn warm_up(&self) -> Duration {
        const SLACK: f64 = 1.05;
        const MORE: Duration = Duration::from_secs(60);
        let largest = self.capacities.iter().copied().max().unwrap_or(0) as f64;
        Duration::from_secs_f64(largest / self.class_rate() * SLACK) + MORE
    }

    /// The selector of a class's subscribers.
    pub fn selector(class: usize) -> Result<Selector> {
        let low = class as u64 * VALUES / CLASSES as u64;
        let high = (class as u64 + 1) * VALUES / CLASSES as u64 - 1;
        Selector::parse(&format!("{ATTRIBUTE} BETWEEN {low} AND {high}")).context("making a selector")
    }

    /// The division of a broker's cache.
    pub fn plan(&self) -> Result<Plan> {
        let partition = |(class, events): (usize, &u64)| {
            Ok(PartitionPlan {
                filter: TOPIC.into(),
                selector: Some(Scenario::selector(class)?),
                capacity: Capacity::Events(*events),
                policy: self.policy,
            })
        };
        Ok(Plan {
            partitions: self.capacities.iter().enumerate().map(partition).collect::<Result<_>>()?,
            default: DefaultPlan { capacity: Capacity::Events(0), policy: Policy::Lrp },
            ceiling: u64::MAX,
        })
    }
}
