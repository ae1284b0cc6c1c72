//! Notices of events that do not come: by their deadline, or for the period of their topic.

use whimbrel_core::{Durability, NOTICE_TOPIC, Profile, RankedProfile, SubscriptionSpec};

use super::lives::part;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// A subscription with notices.
fn told_of<'a>(filter: &'a str, selector: Option<&'a Selector>) -> Filter<'a> {
    let plain = plain(filter, Qos::AtLeastOnce);
    let durability = Durability::Nondurable;
    let spec = SubscriptionSpec { durability, notices: true, named: true, ..plain.spec };
    Filter { spec, selector, wants_token: true, ..plain }
}

/// Two brokers, `delay` apart, a publisher at the first and a client at the second; alarms have a
/// deadline of 50 ms, and a period of a second.
fn world(delay: Duration) -> Net {
    let mut net = Net::new(2);
    net.join(0, 1, delay);
    net.advance(SECOND * 2);
    net.attach(0, 1, "p");
    net.attach(1, 1, "s");
    let (deadline, period) = (Some(MS * 50), Some(SECOND));
    let profile = Profile { filter: "alarm/#".into(), deadline, period, ..Profile::default() };
    net.input(0, Input::ChangeProfile { filter: "alarm/#", made: Some(&RankedProfile { rank: 0, profile }) });
    net.advance(SECOND);
    net
}

/// As [`world`], but the second broker has a log and a publisher, and the client a durable
/// subscription to alarms.
fn logged_world() -> Net {
    let mut net = world(MS);
    net.replace(1, Duration::ZERO);
    net.join(0, 1, MS);
    net.advance(SECOND * 3);
    net.attach(1, 1, "s");
    net.attach(1, 2, "p");
    begin(
        &mut net,
        Filter {
            spec: SubscriptionSpec { durability: Durability::Durable, ..told_of("alarm/#", None).spec },
            ..told_of("alarm/#", None)
        },
    );
    net
}

/// Subscribes, and waits until events come.
fn begin(net: &mut Net, filter: Filter<'_>) {
    net.subscribe(1, 1, filter);
    net.advance(MS * 500);
    net.told(1, 1);
}

/// What the client has been given since: events by their payloads, and the kinds of notices with
/// what they name. Silence is left out.
fn story(net: &mut Net) -> Vec<String> {
    let told = net.told(1, 1).into_iter();
    let got = told.filter_map(|told| if let Told::Event(got) = told { Some(got) } else { None });
    let line = |got: common::Got| {
        if got.topic != NOTICE_TOPIC {
            return Some(got.payload);
        }
        let kind = part(&got.payload, "kind").expect("each notice has a kind");
        let what = part(&got.payload, "topic").or(part(&got.payload, "filter")).unwrap_or("?");
        (kind != "silence").then(|| format!("{kind} {what}"))
    };
    got.filter_map(line).collect()
}

/// Loses the first alarm that the first broker sends, and all answers to nacks until the switch is
/// off.
fn lose_first(net: &mut Net) -> Rc<RefCell<bool>> {
    let is_lossy = Rc::new(RefCell::new(true));
    let (loses, mut is_first) = (Rc::clone(&is_lossy), true);
    net.drops = Box::new(move |from, _, bytes| {
        let event = match net::frame(bytes) {
            Some(Frame::DeadlineEvent(stamped)) => Some(stamped.frame),
            Some(Frame::Event(event)) => Some(event),
            _ => None,
        };
        let is_lost =
            |event: whimbrel_wire::EventFrame<'_>| core::mem::take(&mut is_first) || *loses.borrow() && event.answer;
        event.filter(|_| from == 0).is_some_and(is_lost)
    });
    is_lossy
}

#[test]
fn a_known_event_that_does_not_come_is_overdue_by_its_deadline_and_so_is_one_that_waits_for_it() {
    let mut net = world(MS);
    begin(&mut net, told_of("alarm/#", None));
    let loses = lose_first(&mut net);
    net.publish(0, 1, "alarm/1", "one", Qos::AtLeastOnce);
    net.advance(MS * 20);
    net.publish(0, 1, "alarm/2", "two", Qos::AtLeastOnce);
    net.advance(MS * 29);
    assert_eq!(story(&mut net), [""; 0], "49 ms after the first");
    net.advance(MS * 3);
    assert_eq!(story(&mut net), ["overdue ?"], "the first is known by its successor alone");
    net.advance(MS * 20);
    assert_eq!(story(&mut net), ["overdue alarm/2"]);
    *loses.borrow_mut() = false;
    net.advance(MS * 800);
    assert_eq!(story(&mut net), ["one", "two"], "each was told once, and comes late");
    assert_eq!(net.nodes[1].core.stats().notices_overdue, 2);
}

#[test]
fn only_subscriptions_with_notices_that_may_want_an_event_are_told_that_it_is_overdue() {
    let selector = Selector::parse("JMSPriority > 7").unwrap();
    let cases: [(Filter<'_>, &[&str]); 4] = [
        (plain("alarm/#", Qos::AtLeastOnce), &[]),
        (told_of("alarm/#", Some(&selector)), &["overdue ?"]),
        (told_of("alarm/1", None), &["overdue ?"]),
        (told_of("other/#", None), &[]),
    ];
    for (filter, told) in cases {
        let mut net = world(MS);
        begin(&mut net, filter);
        net.attach(1, 2, "another");
        net.subscribe(1, 2, plain("alarm/#", Qos::AtLeastOnce));
        net.advance(MS * 500);
        lose_first(&mut net);
        net.told(1, 1);
        net.publish(0, 1, "alarm/1", "one", Qos::AtLeastOnce);
        net.publish(0, 1, "alarm/2", "two", Qos::AtLeastOnce);
        net.advance(MS * 300);
        assert_eq!(story(&mut net), told, "{}", filter.filter);
    }
}

#[test]
fn what_comes_in_time_is_not_told() {
    let mut net = world(MS * 20);
    begin(&mut net, told_of("alarm/#", None));
    for payload in ["one", "two", "three"] {
        net.publish(0, 1, "alarm/1", payload, Qos::AtLeastOnce);
        net.advance(MS * 100);
    }
    assert_eq!(story(&mut net), ["one", "two", "three"]);
    assert_eq!(net.nodes[1].core.stats().notices_overdue, 0);
}

#[test]
fn an_event_that_waits_for_the_disk_is_overdue_at_its_own_broker() {
    let mut net = logged_world();
    net.nodes[1].stalls_until = net.now.after(MS * 200);
    net.publish(1, 2, "alarm/1", "one", Qos::AtLeastOnce);
    net.advance(MS * 52);
    assert_eq!(story(&mut net), ["overdue alarm/1"]);
    net.advance(SECOND / 2);
    assert_eq!(story(&mut net), ["one"]);
}

#[test]
fn a_period_without_an_event_is_told_once_until_one_comes() {
    let mut net = world(MS);
    begin(&mut net, told_of("alarm/eu/#", None));
    net.advance(MS * 510);
    assert_eq!(story(&mut net), ["stalled alarm/eu/#"], "the narrower filter is named");
    net.advance(SECOND * 5);
    assert_eq!(story(&mut net), [""; 0]);
    net.publish(0, 1, "alarm/eu/1", "one", Qos::AtLeastOnce);
    net.publish(0, 1, "alarm/us/1", "other", Qos::AtLeastOnce);
    for _ in 0..3 {
        net.advance(MS * 900);
        net.publish(0, 1, "alarm/eu/1", "more", Qos::AtLeastOnce);
    }
    net.advance(MS * 950);
    assert_eq!(story(&mut net), ["one", "more", "more", "more"]);
    net.advance(MS * 100);
    assert_eq!(story(&mut net), ["stalled alarm/eu/#"]);
    assert_eq!(net.nodes[1].core.stats().notices_stalled, 2);
}

#[test]
fn only_events_under_the_profile_count_and_a_wider_subscription_is_told_which() {
    let mut net = world(MS);
    begin(&mut net, told_of("#", None));
    net.publish(0, 1, "other", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(story(&mut net), ["one", "stalled alarm/#"]);
    net.input(0, Input::ChangeProfile { filter: "alarm/#", made: None });
    net.publish(0, 1, "alarm/1", "two", Qos::AtLeastOnce);
    net.advance(SECOND * 5);
    assert_eq!(story(&mut net), ["two"], "without the profile nothing is expected");
}

#[test]
fn a_deadline_that_no_path_meets_is_told_in_the_answer() {
    for (delay, told) in [(MS * 20, None), (MS * 80, Some(80))] {
        let mut net = world(delay);
        net.advance(SECOND * 10);
        for (filter, told) in [("alarm/1", told), ("other", None)] {
            net.subscribe(1, 1, told_of(filter, None));
            net.advance(SECOND);
            let answered = net.told(1, 1);
            let granted = answered.iter().find_map(|told| match told {
                Told::Subscribed(results) => results[0].clone().ok(),
                _ => None,
            });
            let best = granted.expect("it is granted").infeasible.map(|best| best.as_millis());
            assert_eq!(best, told, "{filter} over {delay:?}");
        }
    }
}

#[test]
fn a_profile_that_never_counts_expects_nothing() {
    let mut net = world(MS);
    let made = |rank: u32, filter: &str, period: Duration| RankedProfile {
        rank,
        profile: Profile { filter: filter.into(), period: Some(period), ..Profile::default() },
    };
    for (filter, made) in [("fast/#", made(1, "fast/#", SECOND * 3)), ("fast/+", made(2, "fast/+", SECOND))] {
        net.input(0, Input::ChangeProfile { filter, made: Some(&made) });
    }
    net.advance(SECOND);
    begin(&mut net, told_of("fast/1", None));
    for _ in 0..6 {
        net.publish(0, 1, "fast/1", "one", Qos::AtLeastOnce);
        net.advance(SECOND);
    }
    assert_eq!(story(&mut net), ["one"; 6], "the period of the first profile counts alone");
    net.advance(SECOND * 3);
    assert_eq!(story(&mut net), ["stalled fast/1"]);
}

#[test]
fn what_was_told_is_not_told_again_as_another_profile_changes() {
    let mut net = world(MS);
    begin(&mut net, told_of("alarm/#", None));
    net.advance(SECOND);
    assert_eq!(story(&mut net), ["stalled alarm/#"]);
    let other = RankedProfile { rank: 9, profile: Profile { filter: "other".into(), ..Profile::default() } };
    net.input(0, Input::ChangeProfile { filter: "other", made: Some(&other) });
    net.advance(SECOND * 3);
    assert_eq!(story(&mut net), [""; 0]);
}

#[test]
fn events_that_were_passed_are_awaited_no_longer() {
    let mut net = logged_world();
    // More than are awaited at once, all within one deadline.
    for _ in 0..1_200 {
        net.publish(1, 2, "alarm/1", "one", Qos::AtLeastOnce);
    }
    assert_eq!(net.nodes[1].core.stats().overdue_untold, 0);
}
