//! What is read from the broker when metrics are asked for.

use std::time::Duration;

use whimbrel_core::cache::PartitionGauges;
use whimbrel_core::overlay::{LinkInfo, OverlayStats, RoamGauges};
use whimbrel_mqtt::{Broker, Stats};
use whimbrel_selector::Expensive;

use crate::store::StoreAccount;

/// What the broker tells of itself at one moment.
#[derive(Debug, Default)]
pub struct Account {
    /// Counters and gauges.
    pub stats: Stats,
    /// What the selectors that cost most have cost.
    pub expensive: Vec<Expensive>,
    /// The filters of the cache's partitions, in their order, without the default one.
    pub filters: Vec<String>,
    /// What the partitions hold and did, the default one last.
    pub partitions: Vec<PartitionGauges>,
    /// The clients with most gaps, and how many.
    pub gappy: Vec<(String, u64)>,
    /// What the overlay has counted; zeros without one.
    pub overlay: OverlayStats,
    /// What there is of sessions that move; zeros without an overlay.
    pub roaming: RoamGauges,
    /// The links to other brokers.
    pub links: Vec<LinkInfo>,
    /// What the journal holds and did; nothing without one.
    pub store: StoreAccount,
    /// How long clients have been held up for it.
    pub congested: Duration,
}

impl Account {
    pub(super) fn of(broker: &Broker) -> Account {
        let filters = broker.cache_plan().partitions.iter().map(|partition| partition.filter.to_string());
        Account {
            stats: broker.stats(),
            expensive: broker.expensive_selectors(),
            filters: filters.collect(),
            partitions: broker.cache_gauges(),
            gappy: broker.gappy_clients(),
            overlay: broker.core().overlay_stats().cloned().unwrap_or_default(),
            roaming: broker.core().roam_gauges().unwrap_or_default(),
            links: broker.core().links(),
            store: StoreAccount::default(),
            congested: Duration::ZERO,
        }
    }
}
