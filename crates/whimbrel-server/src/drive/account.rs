//! The broker's numbers for one request of metrics.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use whimbrel_core::cache::PartitionGauges;
use whimbrel_core::overlay::{LinkInfo, OverlayStats, RoamGauges, TopologyInfo};
use whimbrel_core::{GapClass, GapCounts, LatencyHistogram, Punctuality};
use whimbrel_event::{HostId, Time};
use whimbrel_mqtt::{MqttBroker, Stats};
use whimbrel_selector::Expensive;

use crate::store::StoreAccount;

/// The broker's numbers at one moment.
#[derive(Debug, Default)]
pub struct Account {
    /// Counters and gauges.
    pub stats: Stats,
    /// The selectors that cost most, and their cost.
    pub expensive: Vec<Expensive>,
    /// The filters of the cache's partitions, in their order, without the default one.
    pub filters: Vec<String>,
    /// Gauges and counters of the partitions, the default one last.
    pub partitions: Vec<PartitionGauges>,
    /// Gaps in deliveries to subscriptions.
    pub gaps: GapCounts,
    /// Number of known brokers and of reachable brokers, both with this one.
    pub brokers: (u64, u64),
    /// Number of known brokers whose configurations have other topic profiles than this one's.
    pub differing_profiles: u64,
    /// The filters of profiles with a deadline, the first 64 of whose topics
    /// something was delivered, and whether it was in time.
    pub punctualities: Vec<(String, Punctuality)>,
    /// The clients with most gaps, and their number of gaps.
    pub gappy: Vec<(String, u64)>,
    /// Counters of the overlay; zeros without one.
    pub overlay: OverlayStats,
    /// Gauges of sessions that move; zeros without an overlay.
    pub roaming: RoamGauges,
    /// The links to other brokers.
    pub links: Vec<LinkInfo>,
    /// Latencies of deliveries, by the promise of their subscriptions.
    pub latencies: Vec<(GapClass, LatencyHistogram)>,
    /// Gauges and counters of the journal; zeros without one.
    pub store: StoreAccount,
    /// Latency from a submission to the journal until it is durable, seconds; none without one.
    pub latency: Option<Histogram>,
    /// Time for which clients have been held up for the disk.
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
            differing_profiles: broker.core().topic_profiles().differing().len() as u64,
            punctualities: punctualities(broker),
            gappy: broker.gappy_clients(),
            overlay: broker.core().overlay_stats().unwrap_or_default(),
            roaming: broker.core().roam_gauges().unwrap_or_default(),
            links: broker.core().links(),
            latencies: broker.latencies().map(|(class, latency)| (class, *latency)).collect(),
            store: StoreAccount::default(),
            latency: None,
            congested: Duration::ZERO,
        }
    }
}

/// Most profiles with metrics of their deliveries.
const PUNCTUALITIES_MAX: usize = 64;

fn punctualities(broker: &MqttBroker) -> Vec<(String, Punctuality)> {
    let profiles = broker.core().topic_profiles();
    let all = profiles.punctualities().take(PUNCTUALITIES_MAX);
    all.map(|(filter, punctuality)| (filter.to_owned(), *punctuality)).collect()
}

/// Number of known brokers and of reachable brokers, both with this one, `host`.
pub(crate) fn brokers(topology: &[TopologyInfo], host: HostId) -> (u64, u64) {
    let is_reachable = |broker: &&TopologyInfo| broker.host == host || !broker.path.is_empty();
    let reachable = topology.iter().filter(is_reachable).count();
    (topology.len().max(1) as u64, reachable.max(1) as u64)
}
