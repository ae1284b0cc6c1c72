//! What `docs/selectors.md` says is so.

mod common;

use std::sync::Arc;

use common::{circle, fences};
use whimbrel_selector::{Compiled, Datum, MatchIndex, Selector, Subject, TopicFilter, TopicName};

const GUIDE: &str = include_str!("../../../docs/selectors.md");

/// The rows of the table whose first line is `head`, cell by cell.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let lines = GUIDE.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect();
    assert!(!rows.is_empty(), "the guide has no table that begins with {head}");
    rows
}

/// What stands in backticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn value(selector: &str, attributes: &[(&str, Datum<'_>)]) -> Option<bool> {
    let selector = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    Compiled::new(&selector).value(attributes)
}

/// How the guide writes a truth value.
fn word(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

#[test]
fn all_examples_are_selectors() {
    let columns =
        [("| | example | true if |", 1), ("| the index uses | example |", 1), ("| only evaluated | example |", 1)];
    for (head, column) in columns {
        for row in table(head) {
            for example in code(row[column]) {
                assert!(Selector::parse(example).is_ok(), "{example}: {:?}", Selector::parse(example));
            }
        }
    }
    for row in table("| path | |") {
        for example in code(row[0]) {
            assert!(Selector::parse(&format!("{example} = 1")).is_ok(), "{example}");
        }
    }
}

#[test]
fn text_counts_as_the_number_that_it_reads_as() {
    let head = "| user property | `speed = '60'` | `speed = 60` | `speed > 50` | |";
    let selectors: Vec<&str> = code(head).collect();
    for row in table(head) {
        let texts: Vec<Option<&str>> = match row[0] {
            "none" => vec![None],
            cell => code(cell).skip(1).map(Some).collect(),
        };
        for text in texts {
            let written: Vec<_> = text.iter().map(|text| ("speed", Datum::written(text))).collect();
            for (selector, expected) in selectors.iter().zip(&row[1..]) {
                assert_eq!(word(value(selector, &written)), *expected, "{selector} with {text:?}");
            }
        }
    }
}

#[test]
fn conditions_combine_as_in_the_table_of_truth() {
    // An attribute that is true, false or missing.
    let attributes = [("true", Datum::Boolean(true)), ("false", Datum::Boolean(false))];
    for row in table("| a | b | a AND b | a OR b | NOT a |") {
        let [a, b] = [row[0], row[1]];
        let conditions = [format!(r#""{a}" AND "{b}""#), format!(r#""{a}" OR "{b}""#), format!(r#"NOT "{a}""#)];
        for (condition, expected) in conditions.iter().zip(&row[2..]) {
            assert_eq!(word(value(condition, &attributes)), expected.trim_matches('*'), "{condition}");
        }
    }
}

#[test]
fn errors_read_as_in_the_guide() {
    let fences = fences(&[("station", &circle(21.003, 52.229, 250.0))]);
    for row in table("| selector | reason string |") {
        let selector = code(row[0]).next().expect("a selector");
        let error = Selector::parse_with(selector, &fences).expect_err("an error");
        assert_eq!(error.to_string(), row[1]);
    }
}

/// An event that has all names of the guide's examples of cost.
struct Report;

impl Subject for Report {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        let attributes = [
            ("line", "X1"),
            ("axle", "1"),
            ("urgent", "false"),
            ("speed", "0"),
            ("limit", "9"),
            ("wind", "0"),
            ("temp", "20"),
            ("lat", "0"),
            ("lon", "0"),
            ("fuel", "1"),
        ];
        attributes.iter().for_each(|(name, text)| visit(name, Datum::written(text)));
    }

    fn payload(&self) -> &[u8] {
        br#"{"speed": 0}"#
    }
}

/// Selectors of one kind; enough for the index to sort them, and not just look at them one by one.
const MANY: u64 = 4_000;

/// How many of [`MANY`] selectors like this one are evaluated for a [`Report`].
fn evaluations(selector: &str) -> u64 {
    let mut index = MatchIndex::new(1);
    index.set_fences(Arc::new(fences(&[("depot", &circle(21.003, 52.229, 250.0))])));
    for n in 0..MANY {
        // Each is another selector; what makes it so is nothing that the index could use.
        let text = format!("({selector}) AND absent{n} IS NULL");
        let selector = Selector::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        index.insert(TopicFilter::new("#").expect("a filter"), Some(&selector), n);
    }
    index.for_each_match(TopicName::new("t").expect("a name"), &Report, |_| ());
    index.cost().evaluations
}

#[test]
fn the_index_uses_what_the_guide_says_and_no_more() {
    for (head, used) in [("| the index uses | example |", true), ("| only evaluated | example |", false)] {
        for row in table(head) {
            for example in code(row[1].split(": by ").next().expect("an example")) {
                let evaluations = evaluations(example);
                let narrowed = evaluations <= MANY / 4;
                assert_eq!(narrowed, used, "{example}: {evaluations}");
                assert!(used || evaluations == MANY, "{example}: {evaluations}");
            }
        }
    }
}
