//! The index against a list that is searched from end to end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use whimbrel_event::{PubendId, Tick};
use whimbrel_selector::{TopicFilter, TopicName};

use super::{TopicEntry, TopicIndex, VisitOutcome, WalkCursor, WalkEnd};

const SEED: u64 = 7;

fn index(topics: &BTreeSet<String>) -> TopicIndex<u32> {
    let mut index = TopicIndex::new(SEED);
    topics.iter().zip(0..).for_each(|(topic, value)| add(&mut index, topic, value));
    index
}

fn add(index: &mut TopicIndex<u32>, topic: &str, value: u32) {
    index.insert(topic, TopicEntry { version: (Tick(1), PubendId(0)), value });
}

fn naive(topics: &BTreeSet<String>, filter: TopicFilter<'_>) -> Vec<String> {
    let matches = |topic: &&String| filter.matches(TopicName::new(topic).expect("a topic"));
    topics.iter().filter(matches).cloned().collect()
}

/// Walks in turns of `slice` looks; returns the visited topics, in order.
fn walk(index: &TopicIndex<u32>, filter: TopicFilter<'_>, slice: usize) -> Vec<String> {
    let (mut cursor, mut seen) = (WalkCursor::default(), Vec::new());
    loop {
        let over = index.walk(filter, &mut cursor, &mut { slice }, |topic, _| {
            seen.push(topic.to_owned());
            VisitOutcome::Passed(0)
        });
        match over {
            WalkEnd::Over => return seen,
            WalkEnd::Spent => {}
            WalkEnd::Stopped => unreachable!("the visitor passes everything"),
        }
    }
}

/// Few texts, so that filters match, with neighbours of `/` and of each other in the order of
/// bytes, and `$`.
fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b", "ab", "a!", "a-", "a0", "$a", "é", "\u{10ffff}"])
}

fn topic() -> impl Strategy<Value = String> {
    // The empty topic is invalid.
    prop::collection::vec(level(), 1..6).prop_map(|levels| levels.join("/")).prop_filter("no topic", |t| !t.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![3 => level(), 2 => Just("+")];
    (prop::collection::vec(level, 0..6), any::<bool>())
        .prop_map(|(mut levels, is_open)| {
            if is_open || levels.is_empty() {
                levels.push("#");
            }
            levels.join("/")
        })
        .prop_filter("no filter", |filter| !filter.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_filter_finds_what_a_look_at_all_topics_finds_and_in_their_order(
        topics in prop::collection::btree_set(topic(), 0..60),
        filters in prop::collection::vec(filter(), 1..6),
        slice in 1_usize..9,
    ) {
        let index = index(&topics);
        for filter in &filters {
            let filter = TopicFilter::new(filter).expect("a filter");
            prop_assert_eq!(walk(&index, filter, slice), naive(&topics, filter), "{:?}", filter);
        }
    }

    /// Between two turns topics are added and removed.
    #[test]
    fn a_walk_passes_each_topic_that_stays_once_whatever_else_changes(
        topics in prop::collection::btree_set(topic(), 0..60),
        changes in prop::collection::vec((topic(), any::<bool>()), 0..60),
        filter in filter(),
        slice in 1_usize..4,
        stops in any::<u64>(),
    ) {
        let filter = TopicFilter::new(&filter).expect("a filter");
        let mut index = index(&topics);
        let (mut present, mut stays) = (topics.clone(), topics.clone());
        let mut ever = topics;
        let (mut cursor, mut seen, mut turn) = (WalkCursor::default(), BTreeMap::<String, u32>::new(), 0_u32);
        let mut changes = changes.into_iter();
        loop {
            // Now and then the visitor does not take a topic: it is visited again.
            let mut stop = (stops & u64::MAX >> 1) >> (turn % 64) & 1 == 1;
            let walk = index.walk(filter, &mut cursor, &mut { slice }, |topic, _| {
                if core::mem::take(&mut stop) {
                    return VisitOutcome::Stop;
                }
                *seen.entry(topic.to_owned()).or_default() += 1;
                VisitOutcome::Passed(0)
            });
            turn += 1;
            if walk == WalkEnd::Over {
                break;
            }
            if let Some((topic, is_added)) = changes.next() {
                if is_added && present.insert(topic.clone()) {
                    add(&mut index, &topic, 0);
                    ever.insert(topic);
                } else if !is_added && present.remove(&topic) {
                    prop_assert!(index.remove(&topic).is_some());
                    stays.remove(&topic);
                }
            }
        }
        prop_assert!(seen.values().all(|times| *times == 1), "a topic is passed twice: {:?}", seen);
        let seen: BTreeSet<String> = seen.into_keys().collect();
        let (least, most): (BTreeSet<String>, BTreeSet<String>) =
            (naive(&stays, filter).into_iter().collect(), naive(&ever, filter).into_iter().collect());
        prop_assert!(least.is_subset(&seen), "{:?} skips {:?}", filter, least.difference(&seen));
        prop_assert!(seen.is_subset(&most));
    }
}

#[test]
fn dollar_topics_empty_levels_and_the_parent_of_a_hash() {
    let topics = ["$SYS/a", "/", "/a", "a", "a!", "a/", "a/b", "a0", "b//c"].map(String::from).into();
    let index = index(&topics);
    let found = |filter| walk(&index, TopicFilter::new(filter).expect("a filter"), 1).join(" ");
    assert_eq!(found("#"), "/ /a a a! a/ a/b a0 b//c");
    assert_eq!(found("a/#"), "a a/ a/b");
    assert_eq!(found("+"), "a a! a0");
    assert_eq!(found("+/+"), "/ /a a/ a/b");
    assert_eq!(found("+/"), "/ a/");
    assert_eq!(found("$SYS/#"), "$SYS/a");
    assert_eq!(found("+/a"), "/a");
    assert_eq!(found("b/+/c"), "b//c");
    assert_eq!(found("b//c"), "b//c");
}

/// The cost of a walk follows from the topics that it finds and the branches that it enters.
#[test]
fn the_cost_of_a_walk_follows_from_what_it_finds() {
    let topics: BTreeSet<String> =
        (0..20_000).map(|i| format!("site/{}/device/{i}/{}", i % 100, ["state", "name"][i % 2])).collect();
    let index = index(&topics);
    let cost = |filter: &str| {
        let (mut budget, mut found) = (1 << 30, 0);
        let filter = TopicFilter::new(filter).expect("a filter");
        let over = index.walk(filter, &mut WalkCursor::default(), &mut budget, |_, _| {
            found += 1;
            VisitOutcome::Passed(0)
        });
        assert_eq!(over, WalkEnd::Over);
        ((1 << 30) - budget, found)
    };
    // A text that no topic has at that depth: no topic is looked at.
    assert_eq!(cost("+/+/device/+/none"), (0, 0));
    assert_eq!(cost("+/+/gateway/#"), (0, 0));
    // One topic: a few looks per level.
    let (looks, found) = cost("site/7/device/107/name");
    assert!(found == 1 && looks <= 2, "{looks} looks");
    let (looks, found) = cost("+/7/device/107/name");
    assert!(found == 1 && looks <= 12, "{looks} looks");
    // One branch of a hundred, and one device in each: topics in the others are not looked at.
    let (looks, found) = cost("+/7/#");
    assert!(found == 200 && looks <= 210, "{looks} looks");
    let (looks, found) = cost("site/+/device/107/name");
    assert!(found == 1 && looks <= 3 * 100 + 10, "{looks} looks");
    // All branches are entered.
    let (looks, found) = cost("+/+/device/+/name");
    assert!(found == 10_000 && looks <= 3 * 20_000, "{looks} looks");
}

#[test]
fn what_is_counted_of_levels_goes_with_the_topics() {
    let mut index = index(&["a/b", "a/c"].map(String::from).into());
    let finds = |index: &TopicIndex<u32>, filter| index.has_levels(TopicFilter::new(filter).expect("a filter"));
    assert!(finds(&index, "a/c") && finds(&index, "+/b") && !finds(&index, "b/+") && !finds(&index, "c/#"));
    index.remove("a/c");
    assert!(!finds(&index, "a/c") && finds(&index, "a/#"));
    index.remove("a/b");
    assert!(!finds(&index, "a/#") && index.levels_known() == 0);
}

/// A turn makes progress with topics of any length, and long ones cost more.
#[test]
fn a_long_topic_costs_more_than_a_turn_and_is_passed() {
    let long = "x".repeat(60_000);
    let topics: BTreeSet<String> = (0..10).map(|i| format!("{long}/{i}")).collect();
    let index = index(&topics);
    assert_eq!(walk(&index, TopicFilter::new("#").expect("a filter"), 3).len(), 10);
    let mut budget = 10_000;
    index.walk(TopicFilter::new("#").expect("a filter"), &mut WalkCursor::default(), &mut budget, |_, _| {
        VisitOutcome::Passed(0)
    });
    assert!(budget < 8_000, "{budget}");
}
