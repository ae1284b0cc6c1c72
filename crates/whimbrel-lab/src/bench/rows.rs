//! Figures that were measured separately, as a table and as JSON.

use serde::Serialize;

use super::process;
use super::report::number;
use super::stats::Summary;
use crate::goal::{Goal, Op};

/// One figure, perhaps with a goal.
#[derive(Clone, Debug, Serialize)]
pub(in crate::bench) struct Row {
    pub(in crate::bench) id: &'static str,
    pub(in crate::bench) measure: String,
    pub(in crate::bench) unit: &'static str,
    /// Always absent: the papers give no figures for this.
    pub(in crate::bench) paper: Option<f64>,
    pub(in crate::bench) ours: Option<f64>,
    pub(in crate::bench) spread: Option<[f64; 2]>,
    pub(in crate::bench) interval: Option<[f64; 2]>,
    pub(in crate::bench) goal: Option<Goal>,
    pub(in crate::bench) met: Option<bool>,
    /// Another deciding reason, or why there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::bench) why: Option<String>,
    /// Its place in the plot: the group, and the meaning of its bar's colour.
    #[serde(skip)]
    pub(in crate::bench) bar: Option<(String, &'static str)>,
}

impl Row {
    /// A figure measured once, without a goal.
    pub(in crate::bench) fn plain(id: &'static str, measure: impl Into<String>, unit: &'static str, value: f64) -> Row {
        let (paper, spread, interval, goal, met, why, bar) = (None, None, None, None, None, None, None);
        Row { id, measure: measure.into(), unit, paper, ours: Some(value), spread, interval, goal, met, why, bar }
    }

    /// The median of several measurements.
    pub(in crate::bench) fn median(
        id: &'static str,
        measure: impl Into<String>,
        unit: &'static str,
        of: &[f64],
        seed: u64,
    ) -> Row {
        let summary = Summary::of(of, seed);
        let row = Row::plain(id, measure, unit, 0.0);
        let (spread, interval) = (summary.map(|s| s.spread), summary.map(|s| s.interval));
        Row { ours: summary.map(|s| s.median), spread, interval, ..row }
    }

    /// The row with a bound that it must not exceed.
    pub(in crate::bench) fn at_most(self, value: f64) -> Row {
        self.judged(Goal::at_most(value))
    }

    /// The row with a bound that it must reach.
    pub(in crate::bench) fn at_least(self, value: f64) -> Row {
        self.judged(Goal::at_least(value))
    }

    /// The row with a place in the plot.
    pub(in crate::bench) fn drawn(self, group: impl Into<String>, name: &'static str) -> Row {
        Row { bar: Some((group.into(), name)), ..self }
    }

    /// The summary of several measurements.
    pub(in crate::bench) fn summary(&self) -> Option<Summary> {
        Some(Summary { median: self.ours?, spread: self.spread?, interval: self.interval? })
    }

    fn judged(self, goal: Goal) -> Row {
        let met = self.ours.map(|ours| goal.is_met([ours; 2]));
        Row { goal: Some(goal), met, ..self }
    }
}

/// A table of the rows.
pub(in crate::bench) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let figure = row.ours.map_or("-".to_owned(), number);
        text += &format!("{:<10} {:<72} {figure:>10} {:<6}", row.id, row.measure, row.unit);
        if let Some([low, high]) = row.interval {
            text += &format!(" [{}, {}]", number(low), number(high));
        }
        if let Some(goal) = row.goal {
            let sign = if goal.op == Op::AtMost { "≤" } else { "≥" };
            let met = row.met.map_or("?", |met| if met { "yes" } else { "NO" });
            text += &format!("  {sign} {}: {met}", number(goal.value));
        }
        if let Some(why) = &row.why {
            text += &format!("  ({why})");
        }
        text.push('\n');
    }
    text
}

/// All rows as JSON, with the conditions.
pub(in crate::bench) fn json(experiment: &str, (seed, rounds): (u64, u32), rows: &[Row]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&serde_json::json!({
        "experiment": experiment,
        "driver": "real",
        "seeds": [seed],
        "machine": process::machine(),
        "rounds": rounds,
        "rows": rows,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_above_its_bound_misses_the_goal_and_the_table_says_so() {
        let missed = Row::median("x", "a ratio", "", &[1.2, 1.1, 1.3], 1).at_most(1.15);
        let met = Row::plain("y", "a time", "s", 1.0).at_most(2.0);
        assert_eq!((missed.ours, missed.met, met.met), (Some(1.2), Some(false), Some(true)));
        let table = table(&[missed, met]);
        assert!(table.contains("≤ 1.15: NO") && table.contains("≤ 2.00: yes"), "{table}");
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let row = Row::median("x", "nothing", "", &[], 1).at_most(1.0);
        assert_eq!((row.ours, row.met), (None, None));
        assert!(table(&[row]).contains('?'));
    }
}
