//! Metrics of the cache for semi-durable subscriptions, by partition, and of gaps.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use whimbrel_core::cache::PartitionGauges;
use whimbrel_core::{GapClass, GapCounts, GapReason, Stats};

use super::encoding::put_family;
use super::selectors::label;
use crate::api::answers::Lost;
use crate::api::lost;

/// Name, help text, whether it is a counter, and how the number is read.
type Row = (&'static str, &'static str, bool, fn(&PartitionGauges) -> u64);

const ROWS: [Row; 7] = [
    (
        "whimbrel_partition_events",
        "Events in a partition of the cache, by its place in the configuration",
        false,
        |p| p.events,
    ),
    ("whimbrel_partition_bytes", "Bytes of a partition, its bookkeeping included", false, |p| p.bytes),
    ("whimbrel_partition_protected", "Events that a partition keeps for their importance", false, |p| p.protected),
    ("whimbrel_partition_holes", "Holes between the events of a partition", false, |p| p.holes),
    ("whimbrel_partition_written", "Events written to a partition since it was set up", true, |p| p.written),
    ("whimbrel_partition_overwritten", "Events of a partition that were overwritten", true, |p| p.overwritten),
    ("whimbrel_partition_work", "Slots looked at or moved to find room in a partition", true, |p| p.work),
];

/// Encodes gauges and counters of each partition. The default one is labelled so, the others by
/// their number, from 1, and their filter.
pub fn encode(encoder: &mut DescriptorEncoder, filters: &[String], partitions: &[PartitionGauges]) -> fmt::Result {
    let named = filters.iter().zip(1..).map(|(filter, number)| (number.to_string(), label(filter)));
    let labels: Vec<(String, String)> = named.chain([("default".to_owned(), "#".to_owned())]).collect();
    for (name, help, grows, read) in ROWS {
        let kind = if grows { MetricType::Counter } else { MetricType::Gauge };
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for ((number, filter), partition) in labels.iter().zip(partitions) {
            let labels = [("partition", number.as_str()), ("filter", filter.as_str())];
            let one = metric.encode_family(&labels)?;
            if grows {
                ConstCounter::new(read(partition)).encode(one)?;
            } else {
                ConstGauge::new(read(partition)).encode(one)?;
            }
        }
    }
    Ok(())
}

/// Encodes the gaps by reason, and the clients with most of them.
pub fn encode_gaps(
    encoder: &mut DescriptorEncoder,
    stats: &Stats,
    gaps: &GapCounts,
    gappy: &[(String, u64)],
) -> fmt::Result {
    let reasons = [
        ("overwritten", stats.gaps_overwritten),
        ("not-buffered", stats.gaps_not_buffered),
        ("released", stats.gaps_released),
        ("lost", stats.gaps_lost),
        ("slow", stats.gaps_slow),
        ("assumed", stats.gaps_assumed),
        ("best-effort", stats.gaps_best_effort),
    ];
    let help = "Gaps in what subscriptions got, told or not, by reason";
    put_family(encoder, "whimbrel_gaps", help, "reason", reasons.into_iter())?;
    let help = "The same gaps by what their subscriptions are promised, and by reason";
    let kind = ConstCounter::new(0u64).metric_type();
    let mut metric = encoder.encode_descriptor("whimbrel_class_gaps", help, None, kind)?;
    for class in GapClass::ALL {
        for reason in GapReason::ALL {
            let labels = [("class", class.name()), ("reason", reason.name())];
            ConstCounter::new(gaps.of(class, reason)).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "What subscriptions lost by what they are promised: deliveries that were dropped of those promised nothing, gaps of all but those of best effort";
    let Lost { nondurable, semi_durable, durable } = lost(stats, gaps);
    let counts =
        [(GapClass::Nondurable, nondurable), (GapClass::SemiDurable, semi_durable), (GapClass::Durable, durable)];
    put_family(
        encoder,
        "whimbrel_lost",
        help,
        "class",
        counts.into_iter().map(|(class, count)| (class.name(), count)),
    )?;
    // Client ids that are equal after shortening are added up.
    let mut clients = BTreeMap::<String, u64>::new();
    for (client, gaps) in gappy {
        *clients.entry(label(client)).or_default() += gaps;
    }
    let help = "Gaps of the clients that have most, those of best effort not counted, at most 16, by client id";
    put_family(encoder, "whimbrel_client_gaps", help, "client", clients.into_iter())
}
