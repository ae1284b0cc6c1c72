//! Selectors from strangers who want them to be dear: counted in steps and clauses, not in time.

mod naive;

use naive::event::{Event, Given};
use naive::generate::{Choices, common_event};
use naive::operations::Twins;
use whimbrel_selector::{MatchIndex, SELECTOR_MAX, Selector, TopicFilter, TopicName};

fn with(name: &str, value: String) -> Event {
    Event { attributes: vec![(name.to_owned(), Given::Written(value))], ..Event::default() }
}

/// What one event costs.
fn steps(selector: &str, event: &Event) -> u64 {
    let mut index = MatchIndex::new(1);
    let parsed = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    index.insert(TopicFilter::new("#").expect("a filter"), Some(&parsed), 1);
    index.for_each_match(TopicName::new("t").expect("a topic"), event, |_| {});
    assert_eq!(index.cost().evaluations, 1, "the event is looked at: {selector}");
    index.cost().steps
}

/// As many repetitions as fit into a selector with something around them.
fn full(part: &str, around: usize) -> String {
    part.repeat((SELECTOR_MAX - around) / part.len())
}

#[test]
fn like_takes_at_most_pattern_times_text_steps() {
    let size = 60_000;
    let texts = ["a".repeat(size), "ab".repeat(size / 2), "ä".repeat(size / 2), "a".repeat(size - 1) + "b"];
    let patterns = [
        full("%a", 40) + "c",
        full("%a%b", 40) + "c",
        full("_%", 40) + "c",
        full("%_a", 40) + "c",
        format!("%{}c%", full("a", 40)),
        format!("%{}c%", "a".repeat(SELECTOR_MAX / 2)),
        format!("%{}c", full("a_", 40)),
        format!("%{}c%", full("_a", 40)),
        format!("%{}b%", full("_", 40)),
        format!("%{}%b%c", "ä".repeat(SELECTOR_MAX / 4)),
    ];
    for pattern in &patterns {
        for text in &texts {
            let selector = format!("x LIKE '{pattern}'");
            let steps = steps(&selector, &with("x", text.clone()));
            // A step is an operation, a run of 16 bytes, or 64 characters of the pattern at one of
            // the text.
            let bound = (selector.len() * text.len() / 15) as u64;
            assert!(steps <= bound, "{} of {bound} steps: {}", steps, &pattern[..20]);
        }
    }
}

#[test]
fn a_selector_without_like_takes_at_most_a_step_per_byte() {
    for selector in [
        format!("{}x = 2", full("x <> 1 AND ", 10)),
        format!("{}x = 2", full("NOT (x < 1) AND ", 10)),
        format!("x IN ({}'2')", full("'a',", 40)),
        format!("{}x{} = 2", "-(".repeat(32), ")".repeat(32)),
        format!("x = 2{}", full(" OR x + x * x - x / 3 = 1", 10)),
        format!("x{} > 1", " + x".repeat(250)),
        format!("{}x = 2", full("(x = 3 AND x = 2) OR ", 10)),
    ] {
        let event = with("x", "2".to_owned());
        let steps = steps(&selector, &event);
        assert!(steps <= selector.len() as u64, "{steps} steps of {}: {}", selector.len(), &selector[..60]);
    }
}

#[test]
fn nesting_is_bounded_before_it_is_a_danger() {
    for (open, inner, close) in [("(", "x = 1", ")"), ("NOT ", "x = 1", ""), ("NOT (", "x = 1", ")")] {
        for depth in [16, 32] {
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            assert!(Selector::parse(&text).is_ok(), "{text}");
        }
        for depth in [65, 500, 1000] {
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let error = Selector::parse(&text).expect_err(&text).to_string();
            assert!(error.contains("deep"), "{error}");
        }
    }
    for open in ["(", "NOT ", "- ", "+", "x = (", "x + (", "json(", "x IN (", "x BETWEEN "] {
        assert!(Selector::parse(&full(open, 0)).is_err(), "{open}");
    }
}

/// The clauses that a selector becomes. The index and the naive evaluator agree on it.
fn clauses(selector: &str) -> usize {
    let c = &mut Choices::Seeded(selector.len() as u64);
    let mut twins = Twins::new(3);
    twins.insert("t", Some(selector.to_owned()), 1);
    assert_eq!(twins.len(), 1, "refused: {}", &selector[..60]);
    let clauses = twins.clauses();
    for _ in 0..20 {
        twins.agree("t", &common_event(c));
    }
    twins.remove_all(c);
    clauses
}

#[test]
fn clauses_are_in_proportion_to_the_text() {
    let numbered = |part: &dyn Fn(usize) -> String, between: &str| {
        let mut text = part(0);
        for number in 1.. {
            let next = part(number);
            if text.len() + between.len() + next.len() > SELECTOR_MAX {
                break;
            }
            text = text + between + &next;
        }
        text
    };
    let some = |n: usize| format!("x = {n}");
    let cnf = |n: usize| format!("(x < {n} OR y > {n} OR z = {n})");
    let deep = |n: usize| {
        format!("((x < {n} OR y > {n}) AND (z = {n} OR color = 'v{n}') AND (y = {n} OR urgent) OR x > 1{n})")
    };
    let negated = |n: usize| format!("NOT (x < {})", n % 50);
    let fields = |n: usize| format!("NOT (f{n} < 1)");
    let text = |n: usize| format!("'v{n}'");
    for selector in [
        numbered(&some, " OR "),
        numbered(&cnf, " AND "),
        numbered(&cnf, " OR "),
        numbered(&deep, " AND "),
        numbered(&deep, " OR "),
        numbered(&negated, " AND "),
        numbered(&fields, " AND "),
        numbered(&fields, " OR "),
        format!("NOT ({})", &numbered(&cnf, " AND ")[..numbered(&cnf, " AND ").rfind(" AND ").expect("several")]),
        format!("color IN ({})", &numbered(&text, ",")[..8000].trim_end_matches(|c| c != ',').trim_end_matches(',')),
    ] {
        let clauses = clauses(&selector);
        assert!((1..=selector.len() / 4).contains(&clauses), "{clauses} of {}: {}", selector.len(), &selector[..60]);
    }
}
