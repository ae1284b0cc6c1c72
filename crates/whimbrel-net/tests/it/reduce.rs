//! The interest that a broker tells others: never less than its subscribers want, bounded, and
//! little more.

use proptest::prelude::*;
use whimbrel_net::interest::reduce::{
    CHANGES_MIN, Even, INTEREST_LEAST, INTEREST_MAX, ReducedEntry, Reduction, SELECTOR_BYTES_MAX, SYSTEM_ROOTS_MAX,
    TooManyRoots,
};
use whimbrel_selector::{Compiled, Datum, Selector, TopicFilter, TopicName};

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text).expect("a good filter")
}

fn selector(text: &str) -> Option<Selector> {
    (!text.is_empty()).then(|| Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn insert(reduction: &mut Reduction, topics: &str, text: &str) {
    reduction.insert(filter(topics), selector(text).as_ref()).expect("few roots");
}

fn remove(reduction: &mut Reduction, topics: &str, text: &str) {
    reduction.remove(filter(topics), selector(text).as_ref());
}

fn written(entries: &[ReducedEntry]) -> Vec<(String, String)> {
    let text = |entry: &ReducedEntry| entry.selector.as_ref().map_or_else(String::new, Selector::to_string);
    entries.iter().map(|entry| (entry.filter.to_string(), text(entry))).collect()
}

fn reduced(wanted: &[(&str, &str)], bound: usize) -> Vec<(String, String)> {
    let mut reduction = Reduction::new();
    wanted.iter().for_each(|(topics, text)| insert(&mut reduction, topics, text));
    written(reduction.reduced(bound, &Even))
}

fn expect(wanted: &[(&str, &str)], entries: &[(&str, &str)]) {
    let entries: Vec<_> = entries.iter().map(|(topics, text)| (topics.to_string(), text.to_string())).collect();
    assert_eq!(reduced(wanted, INTEREST_LEAST), entries);
}

#[test]
fn what_another_covers_is_dropped() {
    expect(&[("a/b", ""), ("a/+", ""), ("a/+", "x = 1"), ("b", "y = 2")], &[("a/+", ""), ("b", "y = 2")]);
    expect(
        &[("a", "x BETWEEN 1 AND 9"), ("a", "x = 5"), ("+", "x > 7 AND x < 9")],
        &[("+", "x < 9 AND x > 7"), ("a", "x <= 9 AND x >= 1")],
    );
    expect(&[("a/b", "x = 5 AND y = 'k'"), ("a/#", "x > 4")], &[("a/#", "x > 4")]);
    expect(&[("a", "x + 1 > 5"), ("a", "x + 1 > 6")], &[("a", "x + 1 > 5")]);
    expect(
        &[("a", "id IN ('p1', 'p2')"), ("a", "id LIKE 'p%'"), ("a", "id = 'q'")],
        &[("a", "id LIKE 'p%'"), ("a", "id = 'q'")],
    );
    // Equal interests, and empty ones.
    expect(&[("#", ""), ("+/#", ""), ("a", "x > 3 AND x < 2"), ("a", "FALSE")], &[("#", "")]);
    expect(&[("#", ""), ("$s/a", "")], &[("#", ""), ("$s/a", "")]);
}

#[test]
fn what_is_wanted_twice_is_wanted_until_both_are_gone() {
    let mut reduction = Reduction::new();
    for _ in 0..2 {
        insert(&mut reduction, "a", "x = 1 OR x = 2");
        insert(&mut reduction, "a", "");
    }
    assert_eq!((reduction.len(), reduction.reduced(256, &Even).len()), (3, 1));
    remove(&mut reduction, "a", "");
    assert_eq!(written(reduction.reduced(256, &Even)), [("a".into(), "".into())]);
    remove(&mut reduction, "a", "");
    remove(&mut reduction, "a", "x = 1 OR x = 2");
    insert(&mut reduction, "a", "x = 2");
    assert_eq!(reduction.reduced(256, &Even).len(), 2);
    remove(&mut reduction, "a", "x = 2 OR x = 1");
    assert_eq!(written(reduction.reduced(256, &Even)), [("a".into(), "x = 2".into())]);
    remove(&mut reduction, "a", "x = 2");
    assert!(reduction.is_empty() && reduction.reduced(256, &Even).is_empty());
}

#[test]
#[should_panic(expected = "what is removed was inserted")]
fn what_nobody_wanted_is_not_removed() {
    let mut reduction = Reduction::new();
    insert(&mut reduction, "a", "x = 1");
    remove(&mut reduction, "a", "x = 2");
}

#[test]
fn filters_beyond_the_bound_become_wider_ones_of_their_shape() {
    let topics: Vec<String> = (0..400).map(|n| format!("fleet/{n}/pos")).collect();
    let wanted: Vec<(&str, &str)> =
        topics.iter().map(|topic| (&**topic, "")).chain([("$sys/a", ""), ("b/c", "")]).collect();
    let entries = reduced(&wanted, 256);
    assert_eq!(entries.iter().map(|(topics, _)| &**topics).collect::<Vec<_>>(), ["$sys/a", "b/c", "fleet/+/pos"]);
}

#[test]
fn there_are_never_more_entries_than_there_may_be() {
    let mut reduction = Reduction::new();
    for number in 0..3_000 {
        let topics = match number % 4 {
            0 => format!("$root{}/{number}", number / 4 % 16),
            1 => format!("t{number}/x/{number}"),
            2 => format!("{}{number}", "deep/".repeat(number % 100)),
            _ => format!("+/{number}/#"),
        };
        insert(&mut reduction, &topics, &format!("f{number} = {number} AND g{number} = 'x' OR h{number} IS NULL"));
        if number % 97 == 0 {
            assert!(reduction.reduced(INTEREST_LEAST, &Even).len() <= INTEREST_LEAST);
        }
    }
    let entries = reduction.reduced(INTEREST_LEAST, &Even);
    let sizes = entries.iter().filter_map(|entry| entry.selector.as_ref()).map(|selector| selector.to_string().len());
    assert!(sizes.max().unwrap_or(0) <= SELECTOR_BYTES_MAX);
    assert!((SYSTEM_ROOTS_MAX..=INTEREST_LEAST).contains(&entries.len()));
}

#[test]
fn first_levels_that_no_filter_covers_together_are_bounded() {
    let mut reduction = Reduction::new();
    for number in 0..SYSTEM_ROOTS_MAX {
        insert(&mut reduction, &format!("$r{number}/a"), "");
    }
    assert_eq!(reduction.insert(filter("$more"), None), Err(TooManyRoots));
    insert(&mut reduction, "$r3/b", "x = 1");
    remove(&mut reduction, "$r0/a", "");
    assert_eq!(reduction.insert(filter("$more"), None), Ok(()));
}

/// A linear congruence: numbers below `below`, from a seed that failures print.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn a_small_change_changes_few_entries() {
    let mut reduction = Reduction::new();
    let mut draw = Draw(3);
    for _ in 0..5_000 {
        let from = draw.below(1_000_000);
        insert(&mut reduction, "v/+/pos", &format!("x BETWEEN {from} AND {}", from + 20));
    }
    let before = written(reduction.reduced(INTEREST_MAX, &Even));
    assert_eq!(before, written(reduction.reduced(INTEREST_MAX, &Even)));
    let mut last = before;
    for _ in 0..100 {
        let from = draw.below(1_000_000);
        let text = format!("x BETWEEN {from} AND {}", from + 20);
        insert(&mut reduction, "v/+/pos", &text);
        let now = written(reduction.reduced(INTEREST_MAX, &Even));
        let fresh = now.iter().filter(|entry| !last.contains(entry)).count();
        assert!(fresh <= 1, "{fresh} entries changed for {text}");
        last = now;
    }
    // Removed interests are still told for a while, but not for long.
    remove_all(&mut reduction, &mut Draw(3), 4_900);
    let left =
        reduction.reduced(INTEREST_MAX, &Even).iter().map(|entry| entry.selector.as_ref().expect("none wants all"));
    assert!(
        left.map(|selector| selector.to_string().len()).sum::<usize>() < 40 * (reduction_len_bound() + CHANGES_MIN)
    );
}

fn remove_all(reduction: &mut Reduction, draw: &mut Draw, count: usize) {
    for _ in 0..count {
        let from = draw.below(1_000_000);
        remove(reduction, "v/+/pos", &format!("x BETWEEN {from} AND {}", from + 20));
    }
}

/// What is left after [`remove_all`].
const fn reduction_len_bound() -> usize {
    200
}

/// Whether a condition is true for an event.
struct Judge(Vec<(String, Option<Compiled>)>);

impl Judge {
    fn of<'s>(wanted: impl IntoIterator<Item = (&'s str, Option<&'s Selector>)>) -> Judge {
        Judge(wanted.into_iter().map(|(topics, selector)| (topics.to_owned(), selector.map(Compiled::new))).collect())
    }

    fn wants(&mut self, topic: TopicName<'_>, event: &[(&str, Datum<'_>)]) -> bool {
        let mut all = self.0.iter_mut().filter(|(topics, _)| filter(topics).matches(topic));
        all.any(|(_, selector)| selector.as_mut().is_none_or(|selector| selector.value(event) == Some(true)))
    }
}

fn judge(entries: &[ReducedEntry]) -> Judge {
    Judge::of(entries.iter().map(|entry| (&*entry.filter, entry.selector.as_ref())))
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "", "$s"])
}

fn topics() -> impl Strategy<Value = String> {
    let one = prop_oneof![6 => level(), 2 => Just("+")];
    (prop::collection::vec(one, 1..4), prop::bool::weighted(0.2)).prop_map(|(levels, is_open)| {
        let text = levels.join("/");
        let text = if is_open { format!("{text}/#") } else { text };
        if text.is_empty() { "#".to_owned() } else { text }
    })
}

fn leaf() -> impl Strategy<Value = String> {
    let field = || prop::sample::select(vec!["x", "y"]);
    let op = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
    let text = || prop::sample::select(vec!["a", "ab", "abc", "abd", "b", "%_", "it''s", "7"]);
    prop_oneof![
        (field(), 0..40, 0..9).prop_map(|(field, from, more)| format!("{field} BETWEEN {from} AND {}", from + more)),
        (field(), op, -4..44).prop_map(|(field, op, limit)| format!("{field} {op} {limit}")),
        (field(), 0..80).prop_map(|(field, half)| format!("{field} > {}.5", half)),
        (field(), text()).prop_map(|(field, text)| format!("{field} = '{text}'")),
        (field(), text(), text()).prop_map(|(field, one, two)| format!("{field} IN ('{one}', '{two}')")),
        (field(), text()).prop_map(|(field, text)| format!("{field} LIKE '{text}%'")),
        (field(), text()).prop_map(|(field, text)| format!("{field} LIKE '%{text}'")),
        field().prop_map(|field| format!("{field} IS NULL")),
        (field(), field(), 0..60).prop_map(|(one, two, sum)| format!("{one} + {two} < {sum}")),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just(String::new()),
        6 => leaf(),
        2 => leaf().prop_map(|leaf| format!("NOT ({leaf})")),
        4 => (leaf(), leaf()).prop_map(|(one, two)| format!("{one} AND {two}")),
        2 => (leaf(), leaf()).prop_map(|(one, two)| format!("{one} OR {two}")),
        2 => (leaf(), leaf(), leaf()).prop_map(|(one, two, three)| format!("({one} OR {two}) AND {three}")),
    ]
}

fn value() -> impl Strategy<Value = Option<String>> {
    let text = prop::sample::select(vec!["a", "ab", "abc", "abd", "abx", "b", "%_", "%_x", "it's", "7"]);
    prop_oneof![
        1 => Just(None),
        4 => (-5_i32..45).prop_map(|value| Some(value.to_string())),
        2 => (0..90).prop_map(|half| Some(format!("{}.25", half))),
        3 => text.prop_map(|text| Some(text.to_owned())),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    wanted: Vec<(String, String)>,
    /// The number of insertions after which the entries are asked for, and the number after which
    /// each time something is removed.
    steps: (usize, usize),
    events: Vec<(String, Option<String>, Option<String>)>,
}

fn case() -> impl Strategy<Value = Case> {
    let topic = prop::collection::vec(level(), 1..5).prop_map(|levels| levels.join("/"));
    let topic = topic.prop_map(|text| if text.is_empty() { "a".to_owned() } else { text });
    let wanted = prop::collection::vec((topics(), condition()), 1..250);
    let events = prop::collection::vec((topic, value(), value()), 60);
    (wanted, 1_usize..40, 2_usize..9, events).prop_map(|(wanted, ask, gone, events)| Case {
        wanted,
        steps: (ask, gone),
        events,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Everything wanted at any moment is wanted by an entry, too; the entries stay within their
    /// bound and depend on nothing else.
    #[test]
    fn whatever_is_wanted_is_told(case in case()) {
        let (mut one, mut two) = (Reduction::new(), Reduction::new());
        let (ask, gone) = case.steps;
        let mut left = Vec::new();
        for (number, (topics, text)) in case.wanted.iter().enumerate() {
            insert(&mut one, topics, text);
            insert(&mut two, topics, text);
            left.push((topics.clone(), selector(text)));
            if number % gone == gone - 1 {
                let (topics, selector) = left.swap_remove(number * 7 % left.len());
                one.remove(filter(&topics), selector.as_ref());
                two.remove(filter(&topics), selector.as_ref());
            }
            if number % ask != 0 && number + 1 < case.wanted.len() {
                continue;
            }
            let entries = one.reduced(INTEREST_LEAST, &Even).to_vec();
            prop_assert!(entries.len() <= INTEREST_LEAST);
            prop_assert_eq!(&entries, two.reduced(INTEREST_LEAST, &Even));
            let mut wanted = Judge::of(left.iter().map(|(topics, selector)| (&**topics, selector.as_ref())));
            let mut told = judge(&entries);
            for (topic, x, y) in &case.events {
                let event: Vec<(&str, Datum<'_>)> = [("x", x.as_deref()), ("y", y.as_deref())]
                    .into_iter().filter_map(|(name, value)| Some((name, Datum::written(value?)))).collect();
                let topic = TopicName::new(topic).expect("a good name");
                prop_assert!(!wanted.wants(topic, &event) || told.wants(topic, &event), "{:?} {:?} is not wanted by {:?}", topic, event, written(&entries));
            }
        }
    }
}
