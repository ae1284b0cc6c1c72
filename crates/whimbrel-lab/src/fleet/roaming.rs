//! Consoles that lose their signal and come back: what became of them, by class.

use serde::Serialize;

use super::checker::{Promise, Tally};
use super::view::grouped;

/// Whether a console has a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// It has none.
    None,
    /// It has one, and what it missed is still coming.
    CatchingUp,
    /// It has one, and nothing is left to come but what is new.
    Live,
}

/// Consoles of one class.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Class {
    /// Each of them.
    #[serde(skip)]
    pub signals: Vec<Signal>,
    /// How often one lost its signal.
    pub outages: u32,
    /// What they got.
    #[serde(flatten)]
    pub tally: Tally,
    /// Messages on their way to them.
    #[serde(skip)]
    pub in_flight: u64,
    /// Those of them that a later one has overtaken.
    #[serde(skip)]
    pub missing: u64,
    /// Messages that were missed without a signal and that nobody waits for.
    #[serde(skip)]
    pub waived: u64,
}

/// Both classes.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Roaming {
    /// Those that go on where they were.
    pub semi_durable: Class,
    /// Those that miss what comes while they are away.
    pub nondurable: Class,
}

impl Class {
    /// Deliveries that were not missed before.
    pub fn live(&self) -> u64 {
        self.tally.delivered - self.tally.recovered
    }

    /// Lost without a word, or so it seems so far.
    pub fn silent(&self) -> u64 {
        self.tally.lost + self.missing
    }

    /// Missed for good, or so it seems so far.
    pub fn missed(&self) -> u64 {
        self.tally.missed + self.waived
    }

    /// Consoles that have no signal.
    pub fn away(&self) -> usize {
        self.signals.iter().filter(|signal| **signal == Signal::None).count()
    }
}

impl Roaming {
    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.semi_durable.signals.is_empty() && self.nondurable.signals.is_empty()
    }

    /// Broken promises.
    pub fn faults(&self) -> u64 {
        self.semi_durable.tally.faults(Promise::SemiDurable) + self.nondurable.tally.faults(Promise::Nondurable)
    }

    /// Those, and what seems lost so far.
    pub fn seeming_faults(&self) -> u64 {
        self.faults() + self.semi_durable.missing + self.nondurable.missing
    }

    /// What is said in the end.
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
