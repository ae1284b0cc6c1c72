//! Metrics of links to other brokers.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encoding::{put, put_family};
use crate::overlay::{CHANNELS, LinkAccount, OverlayAccount, PeerAccount};

/// Name, help text, and how the number is read.
type Row = (&'static str, &'static str, fn(&LinkAccount) -> u64);

const COUNTERS: [Row; 5] = [
    ("whimbrel_link_sent_packets", "Packets sent over a link", |link| link.packets),
    ("whimbrel_link_lost_packets", "Packets sent over a link and lost", |link| link.lost),
    ("whimbrel_link_dropped_datagrams", "Datagrams that were not sent: too large, or no room", |link| link.dropped),
    ("whimbrel_link_plain_bytes", "Bytes of events that were compressed for a link, before that", |link| link.plain),
    ("whimbrel_link_compressed_bytes", "Bytes that were sent over a link in place of these", |link| link.packed),
];

/// Name, help text, how bytes and pieces of each channel are read, and whether the pieces are
/// meant.
type Flows = (&'static str, &'static str, fn(&LinkAccount) -> [(u64, u64); CHANNELS.len()], bool);

const FLOWS: [Flows; 4] = [
    ("whimbrel_link_sent_bytes", "Bytes given to a link, by channel", |link| link.sent, false),
    ("whimbrel_link_sent_pieces", "Outputs of the broker given to a link, by channel", |link| link.sent, true),
    ("whimbrel_link_received_bytes", "Bytes that came over a link, by channel", |link| link.received, false),
    ("whimbrel_link_received_pieces", "Reads from a link, by channel", |link| link.received, true),
];

/// Encodes metrics of links. Those of a link exist while it is up.
pub fn encode(encoder: &mut DescriptorEncoder, account: &OverlayAccount, peers: &[PeerAccount]) -> fmt::Result {
    let configured = || peers.iter().filter(|peer| !peer.is_found);
    let help = "Peers of the configuration";
    put(encoder, "whimbrel_peers_configured", help, &ConstGauge::new(configured().count() as u64))?;
    let reached = configured().filter(|peer| peer.is_reached).count();
    let help = "Peers of the configuration to whose brokers there is a link";
    put(encoder, "whimbrel_peers_reached", help, &ConstGauge::new(reached as u64))?;
    put(encoder, "whimbrel_links", "Links to other brokers that are up", &ConstGauge::new(account.links.len() as u64))?;
    put(encoder, "whimbrel_links_opened", "Links to other brokers so far", &ConstCounter::new(account.opened))?;
    let help = "Links that were dialled again after one to the same address had ended";
    put(encoder, "whimbrel_link_reconnects", help, &ConstCounter::new(account.redialed))?;
    let help = "Links that came to nothing, by cause";
    put_family(encoder, "whimbrel_link_failures", help, "cause", account.refusals.iter().copied())?;
    let (name, help) = ("whimbrel_link_up", "1 for each link that is up, with the other broker's name and address");
    let mut metric = encoder.encode_descriptor(name, help, None, ConstGauge::new(0u64).metric_type())?;
    for link in &account.links {
        ConstGauge::new(1u64).encode(metric.encode_family(&labels_of(link))?)?;
    }
    let (name, help) = ("whimbrel_link_rtt_seconds", "Round-trip time of a link, smoothed");
    let mut metric = encoder.encode_descriptor(name, help, None, ConstGauge::new(0f64).metric_type())?;
    for link in &account.links {
        ConstGauge::new(link.rtt.as_secs_f64()).encode(metric.encode_family(&labels_of(link))?)?;
    }
    for (name, help, read) in COUNTERS {
        let mut metric = encoder.encode_descriptor(name, help, None, ConstCounter::new(0u64).metric_type())?;
        for link in &account.links {
            ConstCounter::new(read(link)).encode(metric.encode_family(&labels_of(link))?)?;
        }
    }
    for (name, help, read, is_pieces) in FLOWS {
        let mut metric = encoder.encode_descriptor(name, help, None, ConstCounter::new(0u64).metric_type())?;
        for link in &account.links {
            for (channel, (bytes, pieces)) in CHANNELS.into_iter().zip(read(link)) {
                let [peer, address] = labels_of(link);
                let labels = [peer, address, ("channel", channel.to_owned())];
                let value = if is_pieces { pieces } else { bytes };
                ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// Two links between the same brokers differ in their addresses.
fn labels_of(link: &LinkAccount) -> [(&'static str, String); 2] {
    [("peer", link.peer.clone()), ("address", link.address.to_string())]
}
