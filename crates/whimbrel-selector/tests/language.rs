//! Canonical text and hostile input.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use whimbrel_selector::{
    CANONICAL_MAX, Condition, DEPTH_MAX, Datum, MatchIndex, OPERATIONS_MAX, SELECTOR_MAX, Selector, SelectorError,
    TopicFilter, TopicName,
};

fn canonical(text: &str) -> String {
    Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

/// Runs `work` on less stack than any thread of a broker has.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(512 * 1024).spawn(work).expect("a thread");
    thread.join().expect("the stack suffices")
}

/// Parses, writes, parses again, compares, copies and drops.
fn exercise(text: &str) -> Result<Selector, SelectorError> {
    let selector = Selector::parse(text)?;
    let written = selector.to_string();
    assert!(written.len() <= CANONICAL_MAX, "{text}");
    assert_eq!(Selector::parse_canonical(&written).as_ref(), Ok(&selector), "{text}\n{written}");
    assert_eq!(Selector::parse_canonical(&written).map(|again| again.to_string()), Ok(written));
    assert_eq!(selector.clone(), selector);
    Ok(selector)
}

#[test]
fn selectors_that_differ_only_in_writing_are_one() {
    for (text, expected) in [
        ("", "TRUE"),
        (" \t\r\n\u{c}", "TRUE"),
        ("true", "TRUE"),
        ("NOT false", "TRUE"),
        ("a AND TRUE", "a"),
        ("a AND FALSE", "FALSE"),
        ("a OR TRUE", "TRUE"),
        ("a OR FALSE", "a"),
        ("a AND NOT a", "a AND NOT a"),
        ("JMSReplyTo = 'x'", "JMSDestination"),
        ("JMSReplyTo IS NULL", "TRUE"),
        ("JMSReplyTo IS NOT NULL", "FALSE"),
        ("JMSExpiration LIKE 'x%' OR JMSReplyTo IN ('a')", "JMSDestination"),
        ("NOT (JMSReplyTo > 5)", "JMSDestination"),
        ("FALSE AND JMSReplyTo", "FALSE"),
        ("a AND JMSReplyTo", "JMSDestination AND a"),
        ("x = 1 / 0", "JMSDestination"),
        ("x / 0.0 > 1", "JMSDestination"),
        ("x + JMSDeliveryMode > 1", "JMSDestination"),
        ("JMSType = 'x'", "header('JMSType') = 'x'"),
        ("header('JMSType') = 'x'", "header('JMSType') = 'x'"),
        ("JMSCorrelationID IS NULL OR JMSType", "header('JMSType') OR header('JMSCorrelationID') IS NULL"),
        ("1 = 1", "TRUE"),
        ("1 = 1.0", "TRUE"),
        ("9007199254740993 = 9007199254740992.0", "FALSE"),
        ("9223372036854775807 < 9223372036854775808", "TRUE"),
        ("'a' <> 'b'", "TRUE"),
        ("TRUE = FALSE", "FALSE"),
        ("b = 1 AND a = 1", "a = 1 AND b = 1"),
        ("a = 1 AND (b = 2 AND (a = 1))", "a = 1 AND b = 2"),
        ("a OR (b OR c)", "a OR b OR c"),
        ("(a OR b) AND c", "c AND (a OR b)"),
        ("a OR b AND c", "a OR b AND c"),
        ("5 < x", "x > 5"),
        ("5 >= x", "x <= 5"),
        ("y < x", "x > y"),
        ("x < 5.0", "x < 5"),
        ("x = 2.5e0", "x = 2.5"),
        ("x BETWEEN 1 AND 2", "x <= 2 AND x >= 1"),
        ("x NOT BETWEEN 1 AND 2", "x < 1 OR x > 2"),
        ("NOT x BETWEEN 1 AND 2", "NOT x <= 2 OR NOT x >= 1"),
        ("3 BETWEEN x AND y", "x <= 3 AND y >= 3"),
        ("NOT (a AND NOT b)", "b OR NOT a"),
        ("NOT NOT a", "a"),
        ("a = TRUE", "a"),
        ("a <> FALSE", "a"),
        ("TRUE <> a", "a = FALSE"),
        ("a = FALSE", "a = FALSE"),
        ("(x > 1) = TRUE", "x > 1"),
        ("(x > 1) = FALSE", "NOT x > 1"),
        ("(x > 1) <> TRUE", "NOT x > 1"),
        ("(x > 1) = JMSReplyTo", "JMSDestination"),
        ("(x > 1) = a", "(a = TRUE) = (x > 1)"),
        ("(NOT a) = b", "(a = TRUE) <> (b = TRUE)"),
        ("(NOT a) = (NOT b)", "(a = TRUE) = (b = TRUE)"),
        ("NOT (within('f') = within('e'))", "within('e') <> within('f')"),
        ("a NOT IN ('y', 'x', 'y')", "a NOT IN ('x', 'y')"),
        ("a IN ('y')", "a = 'y'"),
        ("a NOT IN ('y')", "NOT a = 'y'"),
        ("a LIKE 'y'", "a = 'y'"),
        ("a LIKE ''", "a = ''"),
        ("a LIKE '%_%%x'", "a LIKE '_%x'"),
        ("a LIKE 'x!%y!!%' ESCAPE '!'", "a LIKE 'x\\%y!%' ESCAPE '\\'"),
        ("a LIKE 'x!%' ESCAPE '!'", "a = 'x%'"),
        ("a LIKE 'x\\%'", "a LIKE 'x\\%'"),
        ("a LIKE '''%'", "a LIKE '''%'"),
        ("a IS NOT NULL", "a IS NOT NULL"),
        ("x > 1 + 2 * 3", "x > 7"),
        ("x > 7 / 2", "x > 3.5"),
        ("x > 8 / 2", "x > 4"),
        ("x / 2 > y", "y < x ÷ 2"),
        ("x > 7 / 2.", "x > 3.5"),
        ("x > 9223372036854775807 + 1", "x > 9.223372036854776e18"),
        ("x > -9223372036854775808", "x > -9223372036854775808"),
        ("x > - -9223372036854775808", "x > 9.223372036854776e18"),
        ("x > -(9223372036854775808)", "x > -9223372036854775808"),
        ("x > -9223372036854775808 / -1", "x > 9.223372036854776e18"),
        ("x + -(9223372036854775808) > y", "y < x + -9.223372036854776e18"),
        ("x > 1e308 * 10", "x > 10 * 1e308"),
        ("x + 1.0 > 2", "x + 1.0 > 2"),
        ("x + -0.0 > 2", "x + 0.0 > 2"),
        ("2 * x > 2", "x * 2 > 2"),
        ("b + a > 2", "a + b > 2"),
        ("b - a > 2", "b - a > 2"),
        ("a - (b - c) > 2", "a - (b - c) > 2"),
        ("(a - b) - c > 2", "a - b - c > 2"),
        ("a - b * c > 2", "a - b * c > 2"),
        ("(a - b) * c > 2", "(a - b) * c > 2"),
        ("a / (b * c) > 2", "a ÷ (b * c) > 2"),
        ("-a * b > 2", "-a * b > 2"),
        ("-(a * b) > 2", "-(a * b) > 2"),
        ("- - a > 2", "--a > 2"),
        ("a - -5 > 2", "a - -5 > 2"),
        ("a - - b > 2", "a - -b > 2"),
        ("+a > 2", "a + 0 > 2"),
        ("+a * 2 > 2", "a * 2 > 2"),
        ("+5 < a", "a > 5"),
        ("\"abc\" = 1", "abc = 1"),
        ("\"JMSType\" = 1", "\"JMSType\" = 1"),
        (
            "\"and\" = 1 AND \"a b\" = 1 AND \"\"\"\" = 1 AND \"\" = 1",
            "\"\" = 1 AND \"\"\"\" = 1 AND \"a b\" = 1 AND \"and\" = 1",
        ),
        ("JSON('$[ ''a'' ]') = 1", "json('$.a') = 1"),
        ("json('$[\"it''s\"]') = 'it''s'", "json('$[\"it''s\"]') = 'it''s'"),
        ("WITHIN('it''s')", "within('it''s')"),
        ("json = 1 AND within = 2", "json = 1 AND within = 2"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
        assert_eq!(canonical(expected), expected, "{text}");
    }
}

#[test]
fn what_the_text_alone_tells_can_be_asked() {
    let selector =
        Selector::parse("within('b') AND NOT (within('a') OR a + json('$.x') > 1) OR within('b')").expect("good");
    assert_eq!(selector.fences().collect::<Vec<_>>(), ["a", "b"]);
    assert!(selector.uses_json() && !selector.is_everything());
    let selector = Selector::parse("a = 1").expect("good");
    assert_eq!(selector.fences().count(), 0);
    assert!(!selector.uses_json());
    assert!(Selector::parse("  ").expect("good").is_everything());
    assert!(Selector::parse("a OR 1 = 1").expect("good").is_everything());
}

fn refused(text: &str, cause: &str, offset: usize) {
    let error = exercise(text).expect_err(text);
    assert!(error.cause.contains(cause), "{error}");
    assert_eq!(error.offset, offset, "{error}");
}

#[test]
fn nesting_ends_at_the_limit() {
    on_a_small_stack(|| {
        for (open, counts, close) in [("(", 1, ")"), ("NOT ", 1, ""), ("NOT(", 2, ")"), ("(NOT ", 2, ")")] {
            let nested = |levels: usize| format!("{}a{}", open.repeat(levels), close.repeat(levels));
            assert!(exercise(&nested(DEPTH_MAX / counts)).is_ok(), "{open}");
            refused(&nested(DEPTH_MAX / counts + 1), "64 deep", DEPTH_MAX / counts * open.len());
        }
        let signs = |count: usize| format!("{}a > 1", "- ".repeat(count));
        assert!(exercise(&signs(DEPTH_MAX)).is_ok());
        refused(&signs(DEPTH_MAX + 1), "64 deep", 2 * DEPTH_MAX);
        let deep = |levels: usize| format!("{}-1{} > a", "b - (".repeat(levels), ")".repeat(levels));
        assert!(exercise(&deep(DEPTH_MAX)).is_ok());
        refused(&deep(DEPTH_MAX + 1), "64 deep", 5 * DEPTH_MAX + 4);
    });
}

#[test]
fn the_deepest_forms_of_every_kind_fit_a_small_stack() {
    on_a_small_stack(|| {
        for (open, counts, inner, close) in [
            ("a OR b AND NOT (c IS NULL AND (x > 1) = (", 3, "a OR b", "))"),
            ("a OR b AND (", 1, "a OR b", ")"),
            ("a AND NOT (b OR ", 2, "a OR b", ")"),
            ("NOT (a AND NOT b AND ", 2, "a NOT BETWEEN 1 AND 2", ")"),
            ("a AND (b OR ", 1, "within('f') = c", ")"),
            ("NOT a AND (b OR ", 1, "c AND a NOT BETWEEN 1 AND 2", ")"),
            ("(x > 2) <> (NOT ", 2, "a > 1", ")"),
            ("(x > 2) <> (", 1, "within('f') = c", ")"),
        ] {
            let levels = (DEPTH_MAX - 1) / counts;
            let text = format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
            assert!(exercise(&text).is_ok(), "{open} {:?}", exercise(&text));
        }
        for open in ["a + b * (c - d / -(", "a * (", "a - (", "a / b + (", "-(a * "] {
            let levels = DEPTH_MAX / open.matches(['(', '-']).count();
            let text =
                format!("y BETWEEN {}x{} AND z", open.repeat(levels), ")".repeat(levels * open.matches('(').count()));
            assert!(exercise(&text).is_ok(), "{open} {:?}", exercise(&text));
        }
    });
}

#[test]
fn eight_kilobytes_of_anything_are_answered() {
    on_a_small_stack(|| {
        for part in [
            "(",
            "NOT ",
            "NOT(",
            "-",
            "+",
            "- ",
            "-(",
            "a AND ",
            "a OR ",
            "a + ",
            "a AND NOT (",
            "(a) = ",
            "json(",
            "a IN (",
            "a IN ('",
            "'",
            "\"",
            "a BETWEEN ",
            "1 + ",
            "9",
            "1_",
            "a LIKE '%' ESCAPE ",
            "within('",
            ",",
            ")",
            " ",
            "((a)",
            "a = (b = (",
            "a. ",
            ".",
            "1.",
            "1e",
            "TRUE = (",
            "-1 - ",
            "- - 1 ",
            "json('$",
            "json('$[''",
            "é ",
            "€ ",
            "😀",
            "\u{0}",
            "a = 'x' AND a ",
            "+-",
            "a IN ('x', ",
        ] {
            let text = part.repeat(SELECTOR_MAX / part.len());
            let answer = exercise(&text);
            assert_eq!(answer.is_ok(), matches!(part, " " | "\""), "{part}: {answer:?}");
            assert!(answer.map_or_else(|error| error.cause.len(), |_| 0) < 200, "{part}");
        }
        assert!(exercise(&"''".repeat(SELECTOR_MAX / 2)).is_err());
        assert!(exercise(&"0".repeat(SELECTOR_MAX)).is_err());
        assert!(exercise(&"é".repeat(SELECTOR_MAX / 2)).is_ok());
    });
}

/// Parts until 8 KB are nearly full, and an end.
fn filled(part: impl Fn(usize) -> String, last: &str) -> String {
    let mut text = String::new();
    let mut number = 0;
    while text.len() + 100 < SELECTOR_MAX {
        text.push_str(&part(number));
        number += 1;
    }
    text + last
}

#[test]
fn long_flat_selectors_are_good() {
    on_a_small_stack(|| {
        for (text, many) in [
            (filled(|i| format!("a{i} AND "), "b"), true),
            (filled(|i| format!("a{i}=1 OR "), "b"), true),
            (filled(|i| format!("a{i} OR a{i} IS NULL AND "), "b"), true),
            (filled(|_| "a AND a AND ".to_owned(), "a"), false),
            (filled(|_| "1 + ".to_owned(), "1 = 2"), false),
            (format!("NOT ({})", filled(|i| format!("a{i} AND NOT b{i} OR "), "b")), true),
            (format!("a IN ({})", filled(|i| format!("'{i}',"), "''")), false),
            (filled(|i| format!("a{i}<1./3 OR "), "b"), true),
            (filled(|i| format!("x NOT BETWEEN 1/{i}. AND {i}e9 AND "), "b"), true),
            (filled(|i| format!("(a{i}=1)=(b=1) AND "), "b"), true),
        ] {
            let selector = exercise(&text).unwrap_or_else(|error| panic!("{error}"));
            let parts = match selector.condition() {
                Condition::And(parts) | Condition::Or(parts) => parts.len(),
                _ => 1,
            };
            assert_eq!(parts > 100, many, "{}", &text[..40]);
        }
    });
}

#[test]
fn the_longest_canonical_text_stays_below_its_limit() {
    let sum = |terms: usize| format!("({})", vec!["1/7.*a"; terms].join("+"));
    for text in [
        format!("{} NOT BETWEEN b AND 1/7.", sum(OPERATIONS_MAX - 1)),
        format!("NOT {} BETWEEN b AND 1/7.", sum(OPERATIONS_MAX - 1)),
        format!("NOT ({})", filled(|i| format!("1/7.*a*(1/7.-{i}.)BETWEEN b AND c AND "), "b")),
        format!("NOT({})", filled(|i| format!("a*{i} NOT BETWEEN.1/3 AND.1/7 AND "), "b")),
        format!("{}b", filled(|i| format!("{}/7.<a OR ", -(i as i64)), "")),
        format!("a LIKE '!%{}' ESCAPE '!'", "\\".repeat(8000)),
        format!("json('$[\"{}\"]') = 1", "/".repeat(8000)),
        format!("json('$[''{}'']') = 1", "\"".repeat(8000)),
    ] {
        assert!(exercise(&text).is_ok(), "{}: {:?}", &text[..60], exercise(&text));
    }
}

#[test]
fn a_sum_of_more_operations_than_the_limit_is_refused() {
    on_a_small_stack(|| {
        let sum = |operations: usize| format!("{}a > 1", "a + ".repeat(operations));
        assert!(exercise(&sum(OPERATIONS_MAX)).is_ok());
        refused(&sum(OPERATIONS_MAX + 1), "256", 0);
    });
}

#[test]
fn the_length_is_counted_in_bytes() {
    let text = format!("a = '{}'", "x".repeat(SELECTOR_MAX - 6));
    assert!(exercise(&text).is_ok());
    refused(&format!("{text} "), "at most 8192 bytes", SELECTOR_MAX);
    let error = Selector::parse(&format!("a = 'x{}'", "é".repeat(SELECTOR_MAX))).expect_err("too long");
    assert_eq!((error.offset, error.position), (SELECTOR_MAX, 7 + (SELECTOR_MAX - 6) / 2));
    let error = Selector::parse(&format!("a = '{}'", "é".repeat(SELECTOR_MAX))).expect_err("too long");
    assert_eq!(error.offset, SELECTOR_MAX - 1, "the beginning of a character");
}

#[test]
fn canonical_text_has_limits_of_its_own() {
    let error = Selector::parse_canonical(&" ".repeat(CANONICAL_MAX + 1)).expect_err("too long");
    assert_eq!(error.offset, CANONICAL_MAX);
    assert!(Selector::parse_canonical(&" ".repeat(CANONICAL_MAX)).is_ok());
    for text in
        [format!("a = '{}'", "x".repeat(2 * SELECTOR_MAX + 1)), format!("\"{}\"", "x".repeat(2 * SELECTOR_MAX + 1))]
    {
        let error = Selector::parse_canonical(&text).expect_err("too long");
        assert!(error.cause.contains("longer than a selector may be"), "{error}");
    }
    on_a_small_stack(|| {
        let nested = |levels: usize| format!("{}a{}", "(a OR b AND c = d + e * (".repeat(levels), "))".repeat(levels));
        assert!(Selector::parse_canonical(&nested(DEPTH_MAX)).is_err());
    });
}

fn of(choices: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(choices).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => of(&["a", "b", "speed", "$x", "_y", "größe"]),
        1 => of(&["\"and\"", "\"fuel.level\"", "\"a\"\"b\"", "\"\"", "\"JMSType\"", "\"a\""]),
        1 => of(&["JMSPriority", "JMSTimestamp", "JMSMessageID", "JMSType", "JMSCorrelationID", "JMSReplyTo", "JMSXGroupID"]),
        1 => of(&["json('$')", "json('$.a[0]')", "JSON('$[\"it''s\"]')", "json('$[\"\\u0041\\n\"]')"]),
    ]
}

fn number() -> impl Strategy<Value = String> {
    let finite = any::<f64>().prop_filter("finite", |n| n.is_finite());
    prop_oneof![
        (-20_i64..20).prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        finite.clone().prop_map(|n| format!("{n:?}")),
        finite.prop_map(|n| format!("{n:e}")),
        (-20_i32..20).prop_map(|n| format!("{:?}", f64::from(n) / 4.0)),
        of(&[
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "1e308",
            "0x1F",
            "0b11L",
            "017",
            "5f",
            "-0.0"
        ]),
    ]
}

fn text() -> impl Strategy<Value = String> {
    of(&["''", "'a'", "'it''s'", "'%'", "'a_%b'", "'5'", "'TRUE'", "'\\'", "'grün'"])
}

/// Arithmetic, at most a few levels deep.
fn operand() -> impl Strategy<Value = String> {
    prop_oneof![3 => name(), 2 => number()].prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            (inner.clone(), of(&["+", "-", "*", "/", " - "]), inner.clone())
                .prop_map(|(a, op, b)| format!("{a}{op}{b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("- {a}")),
            inner.prop_map(|a| format!("+{a}")),
        ]
    })
}

fn condition() -> impl Strategy<Value = String> {
    let equality = of(&["=", "<>"]);
    let not = of(&["", " NOT"]);
    let leaf = prop_oneof![
        4 => (operand(), of(&["=", "<>", "<", "<=", ">", ">="]), operand()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        2 => (name(), equality.clone(), prop_oneof![text(), of(&["true", "FALSE"])]).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        1 => (operand(), not.clone(), operand(), operand()).prop_map(|(x, not, a, b)| format!("{x}{not} BETWEEN {a} AND {b}")),
        1 => (name(), not.clone(), prop::collection::vec(text(), 1..4)).prop_map(|(x, not, l)| format!("{x}{not} IN ({})", l.join(","))),
        1 => (name(), not.clone(), text()).prop_map(|(x, not, p)| format!("{x}{not} LIKE {p}")),
        1 => (name(), not.clone()).prop_map(|(x, not)| format!("{x}{not} LIKE '%!_a\\!!%__%' ESCAPE '!'")),
        1 => (name(), not).prop_map(|(x, not)| format!("{x} IS{not} NULL")),
        1 => of(&["within('harbour')", "TRUE", "FALSE"]),
        1 => name(),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        let side = prop_oneof![
            4 => inner.clone().prop_map(|c| format!("({c})")),
            1 => of(&["TRUE", "a", "within('f')"]),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|c| c.join(" AND ")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|c| c.join(" OR ")),
            inner.clone().prop_map(|c| format!("({c})")),
            inner.clone().prop_map(|c| format!("NOT ({c})")),
            inner.prop_map(|c| format!("NOT {c}")),
            (side.clone(), equality.clone(), side).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        ]
    })
}

fn soup() -> impl Strategy<Value = String> {
    let token = of(&[
        "a",
        "b",
        "\"q\"",
        "'t'",
        "'a%'",
        "5",
        "1.5",
        "-",
        "+",
        "*",
        "/",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<",
        ">=",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "LIKE",
        "ESCAPE",
        "'!'",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "json",
        "within",
        "json('$.a')",
        "within('f')",
        "JMSType",
        ".",
        "==",
        "'",
        "\"",
        "é",
        "\u{0}",
    ]);
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.join(" "))
}

/// The place of an error is a part of the text, and its cause one line.
fn check_error(text: &str, error: &SelectorError) {
    let end = error.offset + error.length;
    assert!(text.is_char_boundary(error.offset) && text.is_char_boundary(end), "{text}: {error:?}");
    assert_eq!(text[..error.offset].chars().count() + 1, error.position, "{text}: {error:?}");
    assert!(!error.cause.contains('\n') && !error.cause.ends_with('.') && !error.cause.is_empty(), "{text}: {error:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonical_text_is_the_same_selector(text in condition()) {
        // What the generator makes without regard to types may be refused; what is good must
        // survive.
        if let Err(error) = exercise(&text) {
            check_error(&text, &error);
        }
    }

    #[test]
    fn any_order_of_tokens_is_answered(text in soup()) {
        if let Err(error) = exercise(&text) {
            check_error(&text, &error);
        }
    }

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        if let Err(error) = exercise(&text) {
            check_error(&text, &error);
        }
    }

    #[test]
    fn any_characters_of_the_language_are_answered(text in "[ab'\"().,=<>0-9eExXfL_+*/$ %\n-]{0,40}") {
        if let Err(error) = exercise(&text) {
            check_error(&text, &error);
        }
    }
}

#[test]
fn most_random_selectors_are_good() {
    let mut runner = TestRunner::deterministic();
    let good = (0..500).filter(|_| {
        let text = condition().new_tree(&mut runner).expect("a selector").current();
        Selector::parse(&text).is_ok()
    });
    let good = good.count();
    assert!(good > 250, "{good} of 500");
}

/// What versions up to 0.2 have written keeps its meaning: `/` truncates, and headers that they do
/// not know are NULL. What this version writes they do not understand, and take the whole filter
/// instead.
#[test]
fn canonical_text_of_earlier_versions_means_what_it_meant_there() {
    let canonical = |text: &str| Selector::parse_canonical(text).expect("canonical text").to_string();
    assert_eq!(canonical("x > 7 / 2"), "x > 3");
    assert_eq!(canonical("x / 2 > 3"), "x / 2 > 3");
    assert_eq!(canonical("x / 0 > 3"), "JMSDestination");
    assert_eq!(canonical("JMSType AND a"), "JMSDestination AND a");
    assert_eq!(canonical("header('JMSType') = 'x' AND x ÷ 2 > 3"), "header('JMSType') = 'x' AND x ÷ 2 > 3");
    let whole = Selector::parse_canonical("x / 2 = 3").expect("canonical text");
    let divided = Selector::parse("x / 2 = 3").expect("a selector");
    assert!(whole != divided && !whole.covers(&divided) && !divided.covers(&whole));
    let matches = |selector: &Selector, x| {
        let mut index = MatchIndex::new(1);
        index.insert(TopicFilter::new("t").expect("a filter"), Some(selector), ());
        let mut is_found = false;
        let subject = [("x", Datum::Integer(x))];
        index.for_each_match(TopicName::new("t").expect("a name"), &subject, |()| is_found = true);
        is_found
    };
    assert!(matches(&whole, 7) && !matches(&divided, 7) && matches(&whole, 6) && matches(&divided, 6));
    for wrong in ["header('JMSPriority') = 5", "header(JMSType) = 'x'", "header('x') = 'x'"] {
        assert!(Selector::parse(wrong).is_err() && Selector::parse_canonical(wrong).is_err(), "{wrong}");
    }
}
