//! Metrics of fences.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use whimbrel_selector::Fences;

/// Result of reading the configuration again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Other settings are in force.
    Changed,
    /// The settings are the same as before.
    Unchanged,
    /// The settings were refused, and those before stay in force.
    Refused,
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::Changed, Outcome::Unchanged, Outcome::Refused];

    fn name(self) -> &'static str {
        match self {
            Outcome::Changed => "changed",
            Outcome::Unchanged => "unchanged",
            Outcome::Refused => "refused",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Metrics of fences.
#[derive(Clone, Debug, Default)]
pub struct FenceMetrics {
    number: Gauge<u64, AtomicU64>,
    bytes: Gauge<u64, AtomicU64>,
    reloads: Family<ResultLabel, Counter>,
}

impl FenceMetrics {
    pub(super) fn new(registry: &mut Registry) -> FenceMetrics {
        let metrics = FenceMetrics::default();
        registry.register("whimbrel_fences", "Fences that selectors may name", metrics.number.clone());
        registry.register(
            "whimbrel_fences_bytes",
            "About how much memory fences take, in bytes",
            metrics.bytes.clone(),
        );
        let help = "How often fences were read again, by result: changed, unchanged, refused";
        registry.register("whimbrel_fence_reloads", help, metrics.reloads.clone());
        for outcome in Outcome::ALL {
            drop(metrics.reloads.get_or_create(&ResultLabel { result: outcome.name() }));
        }
        metrics
    }

    /// Sets the fences in force.
    pub fn set(&self, fences: &Fences) {
        self.number.set(fences.len() as u64);
        self.bytes.set(fences.memory() as u64);
    }

    /// Counts an attempt to read the configuration again.
    pub fn reloaded(&self, outcome: Outcome) {
        self.reloads.get_or_create(&ResultLabel { result: outcome.name() }).inc();
    }
}
