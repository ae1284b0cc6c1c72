//! Encodes single metrics.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelValue, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// The first bound of a histogram of commits, in seconds; each next one is twice as large.
const COMMIT_LEAST: f64 = 0.000_25;

/// Number of that histogram's bounds: the last is 8.192 s.
const COMMIT_BOUNDS: u16 = 16;

/// A histogram of the times until a commit is durable, seconds.
pub(crate) fn commit_latency() -> Histogram {
    Histogram::new(exponential_buckets(COMMIT_LEAST, 2.0, COMMIT_BOUNDS))
}

/// One without labels.
pub(super) fn put(encoder: &mut DescriptorEncoder, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Counters that differ in one label.
pub(super) fn put_family<T: EncodeLabelValue>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    label: &str,
    counts: impl Iterator<Item = (T, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, ConstCounter::new(0u64).metric_type())?;
    for (value, count) in counts {
        ConstCounter::new(count).encode(metric.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}
