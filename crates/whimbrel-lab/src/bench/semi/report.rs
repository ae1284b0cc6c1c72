//! The figures as a table and as JSON.

use serde::Serialize;

use super::super::report::number;
use super::super::stats::Summary;
use super::{SemiArgs, process};
use crate::goal::{Goal, Op};

/// One figure, perhaps with a goal.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) measure: String,
    pub(super) unit: &'static str,
    /// The papers give no figures for this.
    pub(super) paper: Option<f64>,
    pub(super) ours: Option<f64>,
    pub(super) spread: Option<[f64; 2]>,
    pub(super) interval: Option<[f64; 2]>,
    pub(super) goal: Option<Goal>,
    pub(super) met: Option<bool>,
    /// What else decides, or why there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
}

impl Row {
    /// A figure measured once, without a goal.
    pub(super) fn plain(id: &'static str, measure: impl Into<String>, unit: &'static str, value: f64) -> Row {
        let (paper, spread, interval, goal, met, why) = (None, None, None, None, None, None);
        Row { id, measure: measure.into(), unit, paper, ours: Some(value), spread, interval, goal, met, why }
    }

    /// The median of what was measured several times.
    pub(super) fn median(
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

    /// The same with a bound that it must not exceed.
    pub(super) fn at_most(self, value: f64) -> Row {
        let met = self.ours.map(|ours| ours <= value);
        Row { goal: Some(Goal { op: Op::AtMost, value }), met, ..self }
    }
}

/// A table of the rows.
pub(super) fn table(rows: &[Row]) -> String {
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

/// All of it, with the conditions.
pub(super) fn json(args: &SemiArgs, rows: &[Row]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&serde_json::json!({
        "experiment": "bench semi-durable",
        "driver": "real",
        "seeds": [args.seed],
        "machine": process::machine(),
        "rounds": args.rounds,
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
