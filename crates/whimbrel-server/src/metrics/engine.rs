//! Metrics of the engine that has the journal, too; without one all are 0.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encoding::{commit_latency, put};
use crate::engine::EngineAccount;

/// Encodes the engine's numbers; `overdue`: how often it did not answer for too long.
pub fn encode(encoder: &mut DescriptorEncoder, engine: &EngineAccount, overdue: u64) -> fmt::Result {
    let EngineAccount { epoch, latency, waiting, behind, lease_failures, chore_failures, servers } = engine;
    let latency = latency.clone().unwrap_or_else(commit_latency);
    let help = "How long the engine took to acknowledge a commit, repeats included";
    put(encoder, "whimbrel_engine_append_seconds", help, &latency)?;
    let help = "How long the commit in flight has waited for the engine";
    put(encoder, "whimbrel_engine_waiting_seconds", help, &ConstGauge::new(waiting.as_secs_f64()))?;
    let help = "Commits that are acknowledged by the disk, or in flight, and that the engine does not have yet";
    put(encoder, "whimbrel_engine_behind_commits", help, &ConstGauge::new(behind.commits))?;
    let help = "Bytes of these";
    put(encoder, "whimbrel_engine_behind_bytes", help, &ConstGauge::new(behind.bytes))?;
    let help = "The epoch in which the broker owns its stream; each start takes the next one";
    put(encoder, "whimbrel_engine_epoch", help, &ConstGauge::new(*epoch))?;
    let help = "How often the engine took longer than its patience, and publishes that must be logged were refused";
    put(encoder, "whimbrel_engine_overdue", help, &ConstCounter::new(overdue))?;
    let help = "Renewals of the broker's lease of its name that failed";
    put(encoder, "whimbrel_engine_lease_failures", help, &ConstCounter::new(*lease_failures))?;
    let help = "Looks whether this process is still the owner, and removals of useless records, that failed";
    put(encoder, "whimbrel_engine_chore_failures", help, &ConstCounter::new(*chore_failures))?;
    let help = "Servers of the engine that may lose what they acknowledge, by their settings or their version";
    put(encoder, "whimbrel_engine_servers_wrong", help, &ConstGauge::new(servers.wrong))?;
    let help = "Monitoring addresses of the engine's servers that told no settings";
    put(encoder, "whimbrel_engine_servers_silent", help, &ConstGauge::new(servers.silent))
}
