//! Metrics of spans; 0 without a collector.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;

use super::encoding::{put, put_family};
use crate::telemetry::Counts;

pub fn encode(encoder: &mut DescriptorEncoder, counts: &Counts) -> fmt::Result {
    let help = "Spans of traces that the collector has taken";
    put(encoder, "whimbrel_spans_exported", help, &ConstCounter::new(counts.exported()))?;
    let help = "Spans of traces that were dropped: queue_full, or the collector was unreachable or refused them";
    put_family(encoder, "whimbrel_spans_dropped", help, "reason", counts.dropped().into_iter())
}
