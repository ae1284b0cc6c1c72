//! The state of alarms for the view.

use serde::Serialize;

use super::judge::{AlarmCounts, AlarmJudge, InTime};
use crate::fleet::delays::Quantiles;

/// Alarms at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AlarmSnapshot {
    /// Their deadline, ms.
    pub deadline_ms: u64,
    /// The counts over all desks.
    #[serde(flatten)]
    pub counts: AlarmCounts,
    /// The latency of alarms between regions, ms.
    pub delay_ms: Quantiles,
    /// Positions that consoles and watchers received from other regions, by the same deadline.
    pub positions: InTime,
}

impl AlarmSnapshot {
    pub(super) fn new(judge: &AlarmJudge) -> AlarmSnapshot {
        AlarmSnapshot {
            deadline_ms: judge.deadline().as_millis() as u64,
            counts: judge.counts(),
            delay_ms: judge.delays(),
            positions: judge.positions(),
        }
    }
}
