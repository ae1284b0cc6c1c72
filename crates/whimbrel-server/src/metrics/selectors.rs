//! Metrics of the selectors that cost most, by their texts.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use whimbrel_selector::{Cost, Expensive};

/// Characters of a selector or filter in a label, at most; clients choose these texts.
const TEXT_MAX: usize = 120;

/// Name, help text, and how the number is read.
type Row = (&'static str, &'static str, fn(&Cost) -> u64);

const COUNTERS: [Row; 3] = [
    (
        "whimbrel_selector_steps",
        "Steps of evaluating the selectors that cost most, by selector and topic filter",
        |c| c.steps,
    ),
    (
        "whimbrel_selector_evaluations",
        "Events for which the selectors that cost most were evaluated, by selector and topic filter",
        |c| c.evaluations,
    ),
    (
        "whimbrel_selector_matches",
        "Events for which the selectors that cost most were true, by selector and topic filter",
        |c| c.matches,
    ),
];

/// Encodes the costs of the selectors that cost most.
pub fn encode(encoder: &mut DescriptorEncoder, expensive: Vec<Expensive>) -> fmt::Result {
    let rows = labelled(expensive);
    for (name, help, read) in COUNTERS {
        let kind = ConstCounter::new(0_u64).metric_type();
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for ((selector, filter), cost) in &rows {
            let labels = [("selector", selector.as_str()), ("filter", filter.as_str())];
            ConstCounter::new(read(cost)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Costs with the texts of selector and filter as labels; equal texts after shortening are added
/// up.
fn labelled(expensive: Vec<Expensive>) -> BTreeMap<(String, String), Cost> {
    let mut rows = BTreeMap::<_, Cost>::new();
    for Expensive { filter, selector, cost } in expensive {
        let sum = rows.entry((label(&selector), label(&filter))).or_default();
        sum.evaluations += cost.evaluations;
        sum.steps += cost.steps;
        sum.matches += cost.matches;
    }
    rows
}

/// A text as the value of a label: shortened, and escaped for the text format, which the encoder
/// does not do.
pub(super) fn label(text: &str) -> String {
    let mut label = String::new();
    for character in text.chars().take(TEXT_MAX) {
        match character {
            '\\' => label.push_str("\\\\"),
            '"' => label.push_str("\\\""),
            '\n' => label.push_str("\\n"),
            other => label.push(other),
        }
    }
    if text.chars().nth(TEXT_MAX).is_some() {
        label.push('…');
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expensive(selector: &str, steps: u64) -> Expensive {
        Expensive { filter: "a/#".into(), selector: selector.into(), cost: Cost { evaluations: 1, steps, matches: 0 } }
    }

    #[test]
    fn labels_are_escaped_and_shortened_at_a_character() {
        assert_eq!(label("\"a\\b\" = 1\n"), "\\\"a\\\\b\\\" = 1\\n");
        assert_eq!(label(&"ä".repeat(121)), "ä".repeat(120) + "…");
        assert_eq!(label(&"ä".repeat(120)), "ä".repeat(120));
    }

    #[test]
    fn selectors_that_look_the_same_when_shortened_are_one_row() {
        let long = "x = 1 AND ".repeat(20);
        let rows = labelled(vec![expensive(&(long.clone() + "y = 1"), 7), expensive(&(long + "y = 2"), 3)]);
        assert_eq!(rows.into_values().collect::<Vec<_>>(), [Cost { evaluations: 2, steps: 10, matches: 0 }]);
    }
}
