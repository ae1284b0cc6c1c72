//! Metrics of deliveries with a deadline.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use whimbrel_core::{LateCause, Punctuality, SLACK_BOUNDS_PERCENT};

/// Encodes deliveries by profile: in time by slack, and late by cause.
pub fn encode(encoder: &mut DescriptorEncoder, profiles: &[(String, Punctuality)]) -> fmt::Result {
    let help = "Deliveries within their deadline, by topic profile and by what was left of the deadline, at most this part in per cent; of the first 64 profiles";
    let name = "whimbrel_deliveries_in_time";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (filter, punctuality) in profiles {
        for (bound, count) in SLACK_BOUNDS_PERCENT.iter().zip(punctuality.in_time) {
            let labels = [("profile", filter.as_str()), ("slack", &*bound.to_string())];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "Deliveries after their deadline, by topic profile and cause: late from another broker (path), lost and asked for (loss), after they had come here (wait), or to a client that had been away (absence)";
    let mut metric = encoder.encode_descriptor("whimbrel_deliveries_late", help, None, MetricType::Counter)?;
    for (filter, punctuality) in profiles {
        let causes = LateCause::ALL.iter().map(|cause| cause.name()).zip(punctuality.late);
        for (cause, count) in causes.chain([("absence", punctuality.after_absence)]) {
            let labels = [("profile", filter.as_str()), ("cause", cause)];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
