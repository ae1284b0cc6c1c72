//! Metrics of brokers that are found in the local network.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::discovery::Dismissal;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// Metrics of discovery; all are 0 where it is off.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryMetrics {
    brokers: Gauge<u64, AtomicU64>,
    found: Counter,
    lost: Counter,
    dismissed: Family<CauseLabel, Counter>,
}

impl DiscoveryMetrics {
    pub(super) fn new(registry: &mut Registry) -> DiscoveryMetrics {
        let metrics = DiscoveryMetrics::default();
        let help = "Brokers of this deployment that are found in the local network at present";
        registry.register("whimbrel_discovery_brokers", help, metrics.brokers.clone());
        let help = "Brokers of this deployment that were found in the local network";
        registry.register("whimbrel_discovery_found", help, metrics.found.clone());
        let help = "Brokers that were found and then announced no more";
        registry.register("whimbrel_discovery_lost", help, metrics.lost.clone());
        let help = "Announcements in the local network that were not taken, by cause";
        registry.register("whimbrel_discovery_dismissed", help, metrics.dismissed.clone());
        for why in Dismissal::ALL {
            drop(metrics.dismissed.get_or_create(&CauseLabel { cause: why.name() }));
        }
        metrics
    }

    /// Sets the number of brokers.
    pub fn set(&self, brokers: usize) {
        self.brokers.set(brokers as u64);
    }

    /// Counts a broker that is found.
    pub fn found(&self) {
        self.found.inc();
    }

    /// Counts a broker that is announced no more.
    pub fn lost(&self) {
        self.lost.inc();
    }

    /// Counts an announcement that is not taken.
    pub fn dismissed(&self, why: Dismissal) {
        self.dismissed.get_or_create(&CauseLabel { cause: why.name() }).inc();
    }
}
