//! Rules against what they are to mean, written apart from them.

use proptest::prelude::*;
use whimbrel_access::{Action, Actions, Denied, Principal, Rule, RuleFault, RuleNo, Rules};
use whimbrel_selector::{TopicFilter, TopicName};

fn named(name: &str) -> Principal {
    Principal::new(name).expect("a name")
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn rule(principals: &[&str], actions: &[Action], topics: &[&str]) -> Rule {
    Rule {
        principals: texts(principals),
        actions: Actions::of(actions.iter().copied()),
        topics: texts(topics),
        ..Rule::default()
    }
}

fn rules(rules: &[Rule]) -> Rules {
    Rules::new(rules).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn whatever_is_asked_the_default_is_no() {
    for all in [Rules::default(), rules(&[rule(&["somebody-else"], &Action::ALL, &["#"])])] {
        for principal in [named("bus-7"), Principal::anonymous()] {
            let grants = all.grants(&principal, "bus-7");
            for action in Action::ALL {
                assert_eq!(all.may(&principal, action), Err(Denied::NoRule), "{action}");
                // Whoever adds an action says here what its default is.
                match action {
                    Action::Publish => assert_eq!(grants.publish("a", 1, None), Err(Denied::NoRule)),
                    Action::Subscribe => assert_eq!(grants.subscribe("a"), Err(Denied::NoRule)),
                    Action::Peer | Action::Administer | Action::Observe => {}
                }
            }
            assert_eq!(all.connect(&principal, "bus-7"), Err(Denied::NoRule));
        }
    }
}

#[test]
fn brokers_may_link_until_a_rule_is_about_that() {
    assert_eq!(Rules::default().peer(&named("north")), Ok(RuleNo::EVERYTHING));
    let some = rules(&[rule(&["north", "depot-*"], &[Action::Peer], &[])]);
    assert_eq!(some.peer(&named("depot-4")), Ok(RuleNo(1)));
    assert_eq!(some.peer(&named("south")), Err(Denied::NoRule));
}

#[test]
fn nobody_without_a_name_is_meant_by_a_star() {
    let all = rules(&[rule(&["*"], &[Action::Publish, Action::Observe], &["#"])]);
    let anonymous = Principal::anonymous();
    assert!(all.connect(&named("bus"), "x").is_ok() && all.connect(&anonymous, "x").is_err());
    assert!(
        all.may(&anonymous, Action::Observe).is_err() && all.grants(&anonymous, "x").publish("a", 1, None).is_err()
    );
    let all = rules(&[rule(&["anonymous"], &[Action::Subscribe], &["news/#"])]);
    assert!(all.connect(&anonymous, "x").is_ok() && all.grants(&anonymous, "x").subscribe("news/+").is_ok());
}

#[test]
fn marks_stand_for_one_level_whole() {
    let topics = ["fleet/%u/#", "by-id/%c/+", "%u"];
    let all = rules(&[rule(&["*"], &[Action::Publish, Action::Subscribe], &topics)]);
    let grants = all.grants(&named("bus-7"), "c1");
    assert!(grants.publish("fleet/bus-7/position", 5, None).is_ok() && grants.publish("by-id/c1/x", 5, None).is_ok());
    assert!(grants.publish("fleet/bus-8/position", 5, None).is_err() && grants.publish("fleet/%u/x", 5, None).is_err());
    assert!(grants.subscribe("fleet/bus-7/#").is_ok() && grants.subscribe("fleet/+/#").is_err());
    for name in ["a/b", "+", "#", "bus/", "x#"] {
        let grants = all.grants(&named(name), name);
        for topic in [format!("fleet/{name}/x"), "fleet/a/x".into(), "fleet/bus/x".into(), name.into()] {
            assert!(grants.publish(&topic, 5, None).is_err(), "{name} publishes to {topic}");
            assert!(grants.subscribe(&topic).is_err(), "{name} subscribes to {topic}");
        }
    }
    let grants = all.grants(&named("$SYS"), "$SYS");
    assert!(grants.publish("$SYS", 5, None).is_err() && grants.publish("fleet/$SYS/x", 5, None).is_ok());
}

#[test]
fn client_ids_decide_who_may_connect_and_take_over() {
    let by_name = Rule { client_ids: Some(texts(&["%u", "%u-*"])), ..rule(&["bus-*"], &[Action::Publish], &["a"]) };
    let all = rules(&[rule(&["tram"], &[Action::Publish], &["a"]), by_name]);
    let admission = all.connect(&named("bus-7"), "bus-7-tablet").expect("its own");
    assert_eq!((admission.rule, admission.takes_over), (RuleNo(2), Some(RuleNo(2))));
    assert_eq!(all.connect(&named("bus-7"), "bus-8"), Err(Denied::ClientId));
    assert!(all.grants(&named("bus-7"), "bus-8").publish("a", 1, None).is_err());
    let admission = all.connect(&named("tram"), "bus-8").expect("any client id");
    assert_eq!(admission.takes_over, None, "but nobody else's session");
}

#[test]
fn importance_and_deadline_are_bounded_by_the_most_generous_rule() {
    let low = Rule { max_importance: 3, ..rule(&["*"], &[Action::Publish], &["a/#"]) };
    let late = Rule { max_importance: 7, min_deadline_ms: 500, ..rule(&["*"], &[Action::Publish], &["a/b"]) };
    let grants = rules(&[low, late]).grants(&named("x"), "x");
    assert_eq!(grants.publish("a/b", 3, Some(1)), Ok(RuleNo(1)));
    assert_eq!(grants.publish("a/b", 7, Some(500)), Ok(RuleNo(2)));
    assert_eq!(grants.publish("a/b", 7, None), Ok(RuleNo(2)));
    assert_eq!(grants.publish("a/b", 8, None), Err(Denied::Importance { max: 7 }));
    assert_eq!(grants.publish("a/c", 4, None), Err(Denied::Importance { max: 3 }));
}

#[test]
fn shared_subscriptions_are_judged_by_what_they_match() {
    let grants = rules(&[rule(&["*"], &[Action::Subscribe], &["jobs/#"])]).grants(&named("x"), "x");
    assert!(grants.subscribe("$share/g/jobs/+").is_ok());
    assert!(grants.subscribe("$share/g/#").is_err() && grants.subscribe("$share/jobs/a").is_err());
    assert!(grants.subscribe("$share/jobs").is_err() && grants.subscribe("jobs/#/x").is_err());
}

#[test]
fn system_topics_are_not_meant_by_wildcards() {
    let grants = rules(&[rule(&["*"], &[Action::Subscribe, Action::Publish], &["#", "+/x"])]).grants(&named("x"), "x");
    assert!(grants.subscribe("#").is_ok());
    for topic in ["$SYS/x", "$SYS/#", "$SYS", "$share/g/$SYS/#"] {
        assert!(grants.subscribe(topic).is_err(), "{topic}");
        assert!(grants.publish(topic, 1, None).is_err(), "{topic}");
    }
    let grants = rules(&[rule(&["*"], &[Action::Subscribe], &["$SYS/#"])]).grants(&named("x"), "x");
    assert!(grants.subscribe("$SYS/broker/#").is_ok() && grants.receives("$SYS/broker") && !grants.receives("a"));
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let of = |rule: Rule| Rules::new(&[Rule::default(), rule][1..]).expect_err("it is wrong").fault;
    let publish = [Action::Publish];
    assert_eq!(of(rule(&[], &publish, &["a"])), RuleFault::Nobody);
    assert_eq!(of(rule(&["a"], &[], &["a"])), RuleFault::Nothing);
    assert_eq!(of(rule(&["a"], &publish, &[])), RuleFault::NoTopics);
    assert_eq!(of(rule(&["a"], &[Action::Peer], &["a"])), RuleFault::NotOfClients);
    assert!(matches!(of(rule(&["%u"], &publish, &["a"])), RuleFault::Principal(..)));
    assert!(matches!(of(rule(&["a"], &publish, &["a/#/b"])), RuleFault::Topic(..)));
    assert!(matches!(of(rule(&["a"], &publish, &["$share/g/b"])), RuleFault::Share(..)));
    assert!(matches!(of(rule(&["a"], &publish, &["bus-%u/x"])), RuleFault::PartOfLevel(..)));
    assert_eq!(of(Rule { max_importance: 0, ..rule(&["a"], &publish, &["a"]) }), RuleFault::Importance(0));
}

/// A level of a filter; few words, so that filters often meet.
fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["a", "b", "$s", "", "+", "%u", "%c"][..])
}

fn filter() -> impl Strategy<Value = String> {
    (prop::collection::vec(level(), 1..5), any::<bool>()).prop_map(|(levels, is_open)| {
        let text = levels.join("/");
        if is_open { if text == "+" { "#".into() } else { format!("{text}/#") } } else { text }
    })
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&["a", "b", "$s", "", "u"][..]), 1..6)
        .prop_map(|levels| levels.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// What may be subscribed to brings nothing but what the rule's filter matches.
    #[test]
    fn covering_covers(of_rule in filter(), asked in filter(), topic in topic()) {
        let Ok(rules) = Rules::new(&[rule(&["*"], &[Action::Subscribe], &[&of_rule])]) else { return Ok(()) };
        let grants = rules.grants(&named("u"), "b");
        let (Ok(asked), Ok(topic)) = (TopicFilter::new(&asked), TopicName::new(&topic)) else { return Ok(()) };
        if grants.subscribe(asked.as_str()).is_ok() && asked.matches(topic) {
            prop_assert!(grants.receives(topic.as_str()), "{of_rule} over {} at {}", asked.as_str(), topic.as_str());
        }
    }

    /// A rule's filter matches as any other does, once the marks are filled in.
    #[test]
    fn rules_match_as_filters_do(of_rule in filter(), topic in topic(), id in "[ab+#/$s]{1,2}") {
        let Ok(rules) = Rules::new(&[rule(&["*"], &[Action::Publish], &[&of_rule])]) else { return Ok(()) };
        let grants = rules.grants(&named("u"), &id);
        let Ok(topic) = TopicName::new(&topic) else { return Ok(()) };
        let marks = |level: &str| -> Option<String> {
            match level {
                "%u" => Some("u".into()),
                "%c" => (!id.contains(['/', '+', '#'])).then(|| id.clone()),
                level => Some(level.into()),
            }
        };
        let filled: Option<Vec<String>> = of_rule.split('/').map(marks).collect();
        let leads_to_system = of_rule.starts_with("%c") && id.starts_with('$');
        let expected = !leads_to_system && filled.is_some_and(|levels| {
            TopicFilter::new(&levels.join("/")).is_ok_and(|filter| filter.matches(topic))
        });
        prop_assert_eq!(grants.publish(topic.as_str(), 5, None).is_ok(), expected, "{} at {}", of_rule, topic.as_str());
    }

    /// More rules never allow less.
    #[test]
    fn rules_only_allow(first in filter(), second in filter(), topic in topic()) {
        let one = rule(&["*"], &[Action::Publish], &[&first]);
        let two = rule(&["*"], &[Action::Publish], &[&second]);
        let (Ok(less), Ok(more)) = (Rules::new(std::slice::from_ref(&one)), Rules::new(&[two, one])) else { return Ok(()) };
        let allowed = |rules: &Rules| rules.grants(&named("u"), "c").publish(&topic, 5, None).is_ok();
        prop_assert!(!allowed(&less) || allowed(&more));
    }
}
