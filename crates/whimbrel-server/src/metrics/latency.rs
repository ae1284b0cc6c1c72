//! Metrics of latencies.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use whimbrel_core::overlay::LinkInfo;
use whimbrel_core::{GapClass, LATENCY_BOUNDS_US, LatencyHistogram};

/// Encodes latencies of deliveries, by class, and ages of events on arrival over links.
pub fn encode(
    encoder: &mut DescriptorEncoder,
    classes: &[(GapClass, LatencyHistogram)],
    links: &[LinkInfo],
) -> fmt::Result {
    let help = "How long a delivery took from the moment at which its event was accepted until it was handed to a client that was connected all the time; of \
                every 61st delivery";
    let classes = classes.iter().map(|(class, latency)| (class.name(), latency));
    put(encoder, ("whimbrel_delivery_seconds", help), "class", classes)?;
    let help =
        "How old events were, since their broker had accepted them, when they came over a link for the first time";
    let links = links.iter().map(|link| (&*link.name, &link.latency));
    put(encoder, ("whimbrel_link_event_age_seconds", help), "peer", links)
}

fn put<'a>(
    encoder: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    label: &str,
    latencies: impl Iterator<Item = (&'a str, &'a LatencyHistogram)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (value, latency) in latencies {
        let bounds = LATENCY_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets().iter().copied()).collect();
        let sum = latency.sum_us() as f64 / 1e6;
        metric.encode_family(&[(label, value)])?.encode_histogram::<NoLabelSet>(
            sum,
            latency.count(),
            &buckets,
            None,
        )?;
    }
    Ok(())
}
