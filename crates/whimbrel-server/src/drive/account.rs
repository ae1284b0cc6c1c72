//! What is read from the broker when metrics are asked for.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use whimbrel_core::cache::PartitionGauges;
use whimbrel_core::overlay::{LinkInfo, OverlayStats, RoamGauges, TopologyInfo};
use whimbrel_core::{GapClass, GapCounts, LatencyHistogram};
use whimbrel_event::{HostId, Time};
use whimbrel_mqtt::{MqttBroker, Stats};
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
    /// The gaps in what subscriptions got.
    pub gaps: GapCounts,
    /// Brokers that are known, and those to which there is a way, this one included.
    pub brokers: (u64, u64),
    /// The clients with most gaps, and how many.
    pub gappy: Vec<(String, u64)>,
    /// What the overlay has counted; zeros without one.
    pub overlay: OverlayStats,
    /// What there is of sessions that move; zeros without an overlay.
    pub roaming: RoamGauges,
    /// The links to other brokers.
    pub links: Vec<LinkInfo>,
    /// How long deliveries took, by what their subscriptions are promised.
    pub latencies: Vec<(GapClass, LatencyHistogram)>,
    /// What the journal holds and did; nothing without one.
    pub store: StoreAccount,
    /// How long what was given to it took to become durable, in seconds; nothing without one.
    pub latency: Option<Histogram>,
    /// How long clients have been held up for it.
    pub congested: Duration,
}

impl Account {
    pub(super) fn of(broker: &MqttBroker, now: Time) -> Account {
        let filters = broker.cache_plan().partitions.iter().map(|partition| partition.filter.to_string());
        Account {
            stats: broker.stats(),
            expensive: broker.expensive_selectors(),
            filters: filters.collect(),
            partitions: broker.cache_gauges(),
            gaps: broker.core().gap_counts(),
            brokers: brokers(&broker.core().topology(now), broker.core().host()),
            gappy: broker.gappy_clients(),
            overlay: broker.core().overlay_stats().cloned().unwrap_or_default(),
            roaming: broker.core().roam_gauges().unwrap_or_default(),
            links: broker.core().links(),
            latencies: broker.latencies().map(|(class, latency)| (class, *latency)).collect(),
            store: StoreAccount::default(),
            latency: None,
            congested: Duration::ZERO,
        }
    }
}

/// Brokers that are known, and those to which there is a way, both with this one, `host`.
pub(crate) fn brokers(topology: &[TopologyInfo], host: HostId) -> (u64, u64) {
    let is_reachable = |broker: &&TopologyInfo| broker.host == host || !broker.path.is_empty();
    let reachable = topology.iter().filter(is_reachable).count();
    (topology.len().max(1) as u64, reachable.max(1) as u64)
}
