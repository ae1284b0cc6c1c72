//! The fate of consoles that lose their signal, by class.

use serde::Serialize;

use super::checker::{Promise, Tally};
use super::view::grouped;

/// The signal of a console.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// No signal.
    None,
    /// A signal, while events that were missed are still being delivered.
    CatchingUp,
    /// A signal, and caught up.
    Live,
}

/// Consoles of one class.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Class {
    /// The signal of each console.
    #[serde(skip)]
    pub signals: Vec<Signal>,
    /// The number of outages.
    pub outages: u32,
    /// The counts of its arrivals.
    #[serde(flatten)]
    pub tally: Tally,
    /// Messages in flight to them.
    #[serde(skip)]
    pub in_flight: u64,
    /// Messages among these that a later one has overtaken.
    #[serde(skip)]
    pub missing: u64,
    /// Messages that were missed without a signal and that are no longer awaited.
    #[serde(skip)]
    pub waived: u64,
}

/// Both classes.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Roaming {
    /// Consoles that continue from their position.
    pub semi_durable: Class,
    /// Consoles that miss events while they are away.
    pub nondurable: Class,
}

impl Class {
    /// Deliveries that were not missed before.
    pub fn live(&self) -> u64 {
        self.tally.delivered - self.tally.recovered
    }

    /// Messages lost without a gap, or that seem to be so far.
    pub fn silent(&self) -> u64 {
        self.tally.lost + self.missing
    }

    /// Messages missed for good, or that seem to be so far.
    pub fn missed(&self) -> u64 {
        self.tally.missed + self.waived
    }

    /// The number of consoles without a signal.
    pub fn away(&self) -> usize {
        self.signals.iter().filter(|signal| **signal == Signal::None).count()
    }
}

impl Roaming {
    /// Whether there are no such consoles.
    pub fn is_empty(&self) -> bool {
        self.semi_durable.signals.is_empty() && self.nondurable.signals.is_empty()
    }

    /// Broken promises.
    pub fn faults(&self) -> u64 {
        self.semi_durable.tally.faults(Promise::SemiDurable) + self.nondurable.tally.faults(Promise::Nondurable)
    }

    /// Broken promises, and messages that seem lost so far.
    pub fn seeming_faults(&self) -> u64 {
        self.faults() + self.semi_durable.missing + self.nondurable.missing
    }

    /// The rows of the summary.
    pub(super) fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for (name, class) in [("semi-durable", &self.semi_durable), ("nondurable", &self.nondurable)] {
            if class.signals.is_empty() {
                continue;
            }
            let (consoles, outages) = (class.signals.len(), grouped(class.outages.into()));
            let delivered = grouped(class.tally.delivered);
            rows.push(format!(
                "{name:<12}{delivered:>12}  to {consoles} consoles that lost their signal {outages} times"
            ));
            let Tally { recovered, reported, lost, missed, duplicated, reordered, altered, foreign, .. } = class.tally;
            let mut row = format!("{:>24}  live, ", grouped(class.live()));
            row += &match name {
                "nondurable" => format!("{} missed without a signal, {lost} lost otherwise", grouped(missed)),
                _ => format!(
                    "{} recovered, {} told as missing, {lost} lost silently",
                    grouped(recovered),
                    grouped(reported)
                ),
            };
            row += &format!(", {duplicated} twice, {reordered} out of order");
            for (count, what) in [(altered, "altered"), (foreign, "not asked for")] {
                if count > 0 {
                    row += &format!(", {count} {what}");
                }
            }
            rows.push(row);
        }
        rows
    }
}
