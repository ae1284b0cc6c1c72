//! Counts that may only fall.
//!
//! A count has a limit. A count that is above it today is in `ratchet.tsv` with its number, one row
//! for each rule and subject: a count above the number is a finding, and so is a lower one, until
//! the row has the lower number. `cargo xtask tidy --lower` writes the lower numbers, never a
//! higher one.

use anyhow::{Context, Result, bail};

use super::Finding;

/// The path of the rows, below the workspace root.
pub const PATH: &str = "xtask/src/tidy/ratchet.tsv";

/// The rows at the time of this program's build.
pub const ROWS: &str = include_str!("ratchet.tsv");

/// Counted places that a finding names at most.
const PLACES_SHOWN: usize = 10;

/// A count of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The short name of the rule.
    pub rule: &'static str,
    /// The scope of the count: a crate, a type, a name.
    pub subject: String,
    /// The count that is allowed without a row.
    pub limit: usize,
    /// The count.
    pub count: usize,
    /// The text after the number: what is counted, and what to do instead.
    pub what: &'static str,
    /// The counted places: `path:line`, or names.
    pub places: Vec<String>,
}

impl Measure {
    /// A count of places.
    pub(crate) fn of_places(
        rule: &'static str,
        subject: impl Into<String>,
        what: &'static str,
        places: Vec<String>,
    ) -> Measure {
        Measure { rule, subject: subject.into(), limit: 0, count: places.len(), what, places }
    }

    /// The measure with a limit other than 0.
    pub(crate) fn within(self, limit: usize) -> Measure {
        Measure { limit, ..self }
    }
}

/// A number above the limit that is accepted until it falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The rule.
    pub rule: String,
    /// The scope of the count.
    pub subject: String,
    /// The accepted number.
    pub number: usize,
}

/// Parses rows: rule, subject and number, with tabs between; `#` begins a comment.
///
/// # Errors
/// When a line is not of that form, or two have the same rule and subject.
pub fn parse(text: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let row = parse_row(line).with_context(|| format!("{PATH}:{}", index + 1))?;
        if rows.iter().any(|other| other.rule == row.rule && other.subject == row.subject) {
            bail!("{PATH}:{}: there are two rows for {} of {}", index + 1, row.rule, row.subject);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn is_row(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

fn parse_row(line: &str) -> Result<Row> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [rule, subject, number] = fields[..] else { bail!("it is not rule, subject and number with tabs between") };
    let number = number.parse().with_context(|| format!("`{number}` is no number"))?;
    Ok(Row { rule: rule.to_owned(), subject: subject.to_owned(), number })
}

/// Compares measures with the rows. A row without a measure is within its limit.
pub fn check(rows: &[Row], measures: &[Measure]) -> Vec<Finding> {
    let over = measures.iter().filter_map(|measure| check_measure(rows, measure));
    let fallen = rows.iter().filter_map(|row| check_row(row, measures));
    over.chain(fallen).collect()
}

fn check_measure(rows: &[Row], measure: &Measure) -> Option<Finding> {
    let row = rows.iter().find(|row| row.rule == measure.rule && row.subject == measure.subject);
    let allowed = row.map_or(measure.limit, |row| row.number);
    let Measure { rule, subject, count, what, places, .. } = measure;
    let shown = places[..places.len().min(PLACES_SHOWN)].join(", ");
    let more = match places.len().saturating_sub(PLACES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more (cargo xtask tidy --list {rule})"),
    };
    let message = format!("{count} {what}; there may be {allowed}: {shown}{more}");
    (*count > allowed).then(|| Finding::new(subject, rule, message))
}

fn check_row(row: &Row, measures: &[Measure]) -> Option<Finding> {
    let measure = measures.iter().find(|measure| row.rule == measure.rule && row.subject == measure.subject);
    let to = lowered(row, measures);
    let Row { rule, subject, number } = row;
    let is = measure.map_or("within the limit".to_owned(), |measure| measure.count.to_string());
    let fix = to.map_or("remove the row".to_owned(), |to| format!("lower the number to {to}"));
    let message = format!("{rule} of {subject} is {is}, the row says {number}; {fix} (cargo xtask tidy --lower)");
    (to != Some(*number)).then(|| Finding::new(PATH, "ratchet", message))
}

/// The new number of the row, at most its present one; `None` if the subject is within its limit.
fn lowered(row: &Row, measures: &[Measure]) -> Option<usize> {
    let measure = measures.iter().find(|measure| row.rule == measure.rule && row.subject == measure.subject)?;
    (measure.count > measure.limit).then(|| row.number.min(measure.count))
}

/// The text of the rows with numbers lowered to the measures, and without the rows that are within
/// their limits.
///
/// # Errors
/// As [`parse`].
pub fn lower(text: &str, measures: &[Measure]) -> Result<String> {
    parse(text)?;
    let mut lower = String::new();
    for line in text.lines() {
        if !is_row(line) {
            lower.push_str(line);
        } else {
            let row = parse_row(line)?;
            let Some(number) = lowered(&row, measures) else { continue };
            lower.push_str(&format!("{}\t{}\t{number}", row.rule, row.subject));
        }
        lower.push('\n');
    }
    Ok(lower)
}
