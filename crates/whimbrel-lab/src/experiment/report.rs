//! The result of an experiment: rows with goals, as a table and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Effort;
use super::chart::Chart;
use crate::bench::process;
use crate::bench::report::number;
use crate::goal::{Goal, Op};

/// The description of a row.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Its name.
    pub id: &'static str,
    /// A description of the measured quantity.
    pub measure: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The paper's figure, if it gives one.
    pub paper: Option<f64>,
    /// The goal for our figure.
    pub goal: Goal,
}

impl Head {
    /// A row whose figure is the median of `samples`, which are not empty.
    pub fn row(self, samples: &[f64]) -> Row {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        self.with((low + high) / 2.0, samples)
    }

    /// A row whose figure is the mean of `samples`, which are not empty.
    pub fn mean(self, samples: &[f64]) -> Row {
        self.with(samples.iter().sum::<f64>() / samples.len() as f64, samples)
    }

    /// A row whose figure is the largest of `samples`, for things that must never happen.
    pub fn worst(self, samples: &[f64]) -> Row {
        self.with(samples.iter().copied().fold(f64::MIN, f64::max), samples)
    }

    fn with(self, ours: f64, samples: &[f64]) -> Row {
        assert!(samples.iter().all(|sample| sample.is_finite()), "{} has figures: {samples:?}", self.id);
        let spread = [f64::min, f64::max].map(|pick| samples.iter().copied().reduce(pick).expect("there are samples"));
        let met = (self.goal.op != Op::Shown).then(|| self.goal.is_met([ours; 2]));
        Row { ours: Some(ours), spread: Some(spread), met, ..self.empty() }
    }

    /// A row that cannot be measured here, with the reason.
    pub fn unmeasured(self, why: &str) -> Row {
        Row { why: Some(why.to_owned()), ..self.empty() }
    }

    fn empty(self) -> Row {
        Row {
            id: self.id.to_owned(),
            measure: self.measure.to_owned(),
            unit: self.unit.to_owned(),
            paper: self.paper,
            ours: None,
            spread: None,
            floor: None,
            goal: self.goal,
            met: None,
            why: None,
        }
    }
}

/// The columns of a terminal that the table is made for.
const WIDTH: usize = 80;

/// The indentation of a row's measure below its figures.
const INDENT: &str = "    ";

/// Adds words as indented lines of at most [`WIDTH`] columns.
fn fill(words: &str, text: &mut String) {
    let mut column = 0;
    for word in words.split(' ') {
        let length = word.chars().count() + 1;
        if column > 0 && column + length > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.push_str(INDENT);
            column = INDENT.len() - 1;
        } else {
            text.push(' ');
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

/// One figure with its goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// A description of the measured quantity.
    pub measure: String,
    /// Unit of the figures.
    pub unit: String,
    /// The paper's figure, if it gives one.
    pub paper: Option<f64>,
    /// Our figure.
    pub ours: Option<f64>,
    /// The smallest and the largest over the seeds.
    pub spread: Option<[f64; 2]>,
    /// The best figure that any system could reach in this run, in the row's unit; absent where
    /// none is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// The goal.
    pub goal: Goal,
    /// Whether the goal was met; absent if there is none, or it could not be measured.
    pub met: Option<bool>,
    /// Why it was not met, or could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Row {
    /// Adds the limiting factor, if its goal was missed.
    pub fn limited_by(mut self, why: &str) -> Row {
        if self.met == Some(false) {
            self.why = Some(why.to_owned());
        }
        self
    }

    /// Sets the floor.
    pub fn beside(self, floor: f64) -> Row {
        Row { floor: Some(floor), ..self }
    }

    /// The figures as one line of at most [`WIDTH`] columns unless the spread is long, and the
    /// measure indented below them.
    fn lines(&self) -> String {
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), number);
        let spread = self.spread.map_or(String::new(), |[low, high]| format!("({} to {})", number(low), number(high)));
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        };
        let [paper, ours, floor] = [self.paper, self.ours, self.floor].map(figure);
        let (goal, Row { id, measure, unit, .. }) = (self.goal.to_string(), self);
        let mut text = format!("{id:<21} {paper:>6} {ours:>8} {floor:>8} {goal:<9} {met:<3} {spread}\n");
        fill(&format!("{measure}, {unit}"), &mut text);
        text
    }
}

/// The result of one plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its rows.
    pub rows: Vec<Row>,
    /// Further observations, one line each.
    pub notes: Vec<String>,
    /// Its charts.
    pub charts: Vec<Chart>,
}

/// An experiment's result.
#[derive(Debug)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// `virtual` or `real`.
    pub driver: &'static str,
    effort: Effort,
    machine: String,
    rows: Vec<Row>,
    notes: Vec<String>,
    /// The charts.
    pub charts: Vec<Chart>,
}

impl Report {
    /// A report without rows.
    pub fn new(experiment: &'static str, driver: &'static str, effort: Effort) -> Report {
        Report {
            experiment,
            driver,
            effort,
            machine: process::machine(),
            rows: Vec::new(),
            notes: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Adds the rows of `part`.
    pub fn add(&mut self, part: Part) {
        let Part { rows, notes, charts } = part;
        self.rows.extend(rows);
        self.notes.extend(notes);
        self.charts.extend(charts);
    }

    /// Whether no goal was missed.
    pub fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    /// The JSON object that every experiment prints.
    pub fn to_json(&self) -> Value {
        json!({
            "experiment": self.experiment,
            "driver": self.driver,
            "seeds": (1..=self.effort.seeds).collect::<Vec<_>>(),
            "machine": self.machine,
            "rows": self.rows,
        })
    }

    /// The table as text.
    pub fn table(&self) -> String {
        let effort = if self.effort.quick { ", short runs: no evidence" } else { "" };
        let mut text = format!("\n{} ({}), {} seeds{effort}\n", self.experiment, self.driver, self.effort.seeds);
        let _ = writeln!(text, "{:<21} {:>6} {:>8} {:>8} {:<9} met (spread)", "row", "paper", "ours", "floor", "goal");
        for row in &self.rows {
            text.push_str(&row.lines());
        }
        for row in &self.rows {
            if let Some(why) = &row.why {
                let _ = writeln!(text, "{}: {why}", row.id);
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head =
        Head { id: "loss", measure: "events lost", unit: "%", paper: Some(7.45), goal: Goal::at_most(5.0) };

    #[test]
    fn the_json_has_the_fields_of_every_experiment() {
        let mut report = Report::new("test", "virtual", Effort { seeds: 2, quick: false, full: false });
        report.add(Part { rows: vec![HEAD.row(&[4.0, 9.0, 5.0]), HEAD.unmeasured("no disk")], ..Part::default() });
        let json = report.to_json();
        assert_eq!(json["seeds"], json!([1, 2]));
        assert!(json["machine"].as_str().is_some_and(|machine| machine.contains("cores")));
        let row = json!({
            "id": "loss", "measure": "events lost", "unit": "%", "paper": 7.45, "ours": 5.0, "spread": [4.0, 9.0],
            "goal": { "op": "<=", "value": 5.0 }, "met": true,
        });
        assert_eq!(json["rows"][0], row);
        assert_eq!((&json["rows"][1]["met"], &json["rows"][1]["why"]), (&Value::Null, &json!("no disk")));
        assert!(report.all_met(), "what could not be measured is not missed");
    }

    #[test]
    fn a_missed_goal_is_told_with_what_limits_it() {
        let mut report = Report::new("test", "virtual", Effort { seeds: 1, quick: false, full: false });
        report.add(Part { rows: vec![HEAD.worst(&[4.0, 6.0]).limited_by("the sun")], ..Part::default() });
        assert!(!report.all_met());
        let table = report.table();
        assert!(table.contains("6.00") && table.contains("NO") && table.contains("loss: the sun"), "{table}");
    }

    #[test]
    fn the_table_has_the_floor_and_fits_a_terminal_of_eighty_columns() {
        let mut report = Report::new("test", "virtual", Effort { seeds: 1, quick: false, full: false });
        let head = Head {
            measure: "events that are lost on their way, of all events that any publisher has published",
            ..HEAD
        };
        report.add(Part { rows: vec![head.worst(&[4.0, 6.0]).beside(0.25)], ..Part::default() });
        assert_eq!(report.to_json()["rows"][0]["floor"], 0.25);
        let table = report.table();
        assert!(table.contains("   0.250 ") && table.contains("\n    published, %\n"), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
    }

    #[test]
    fn even_numbers_of_samples_have_a_median() {
        assert_eq!(HEAD.row(&[4.0, 1.0, 2.0, 3.0]).ours, Some(2.5));
        assert_eq!(HEAD.mean(&[4.0, 1.0, 1.0, 1.0]).ours, Some(1.75));
    }
}
