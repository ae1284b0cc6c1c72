//! Copies of an event come by two paths, and what came behind a hole waits for the second one.

use whimbrel_core::overlay::NamedPath;
use whimbrel_core::{Broker, Profile, RankedProfile, TopicPaths};
use whimbrel_selector::TopicName;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// The number of the copy of an event that comes over broker 1, which is quicker, or that over
/// broker 2, of the events that are lost.
#[derive(Clone, Copy, PartialEq)]
enum Lost {
    Quick(u64),
    Both(u64),
}

/// A publisher at broker 0, and a subscriber at broker 3: over broker 1 it takes 4 ms, over broker
/// 2 it takes 40. Alarms have a deadline of 80 ms, and two paths.
fn world(qos: Qos, change: fn(&mut Broker)) -> Net {
    let mut net = Net::new(4);
    net.nodes.iter_mut().for_each(|node| change(&mut node.core));
    for (one, other, millis) in [(0, 1, 2), (1, 3, 2), (0, 2, 20), (2, 3, 20)] {
        net.join(one, other, MS * millis);
    }
    net.advance(SECOND * 2);
    net.attach(0, 1, "p");
    net.attach(3, 1, "s");
    let (deadline, paths) = (Some(MS * 80), TopicPaths::Two);
    let profile = Profile { filter: "alarm/#".into(), deadline, paths, ..Profile::default() };
    net.input(0, Input::ChangeProfile { filter: "alarm/#", made: Some(&RankedProfile { rank: 0, profile }) });
    net.advance(SECOND);
    net.subscribe(3, 1, plain("alarm/#", qos));
    net.advance(SECOND);
    // The first one of a stream follows no other one.
    net.publish(0, 1, "alarm/1", "0", qos);
    net.advance(SECOND);
    net.told(3, 1);
    net
}

/// Loses copies of events; they are numbered from 1 on in the order in which a relay sends them.
fn lose(net: &mut Net, lost: Lost) {
    let mut sent = [0_u64; 4];
    net.drops = Box::new(move |from, _, bytes| {
        if !matches!(net::frame(bytes), Some(Frame::CopiedEvent(_))) || from == 0 {
            return false;
        }
        sent[from] += 1;
        lost == Lost::Both(sent[from]) || from == 1 && lost == Lost::Quick(sent[from])
    });
}

/// The payloads that the subscriber was given since.
fn got(net: &mut Net) -> Vec<String> {
    let told = net.told(3, 1).into_iter();
    told.filter_map(|told| if let Told::Event(got) = told { Some(got.payload) } else { None }).collect()
}

fn publish(net: &mut Net, payload: &str, qos: Qos) {
    net.publish(0, 1, "alarm/1", payload, qos);
}

#[test]
fn each_event_is_given_once_and_its_second_copy_is_counted() {
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let mut net = world(qos, |_| {});
        let repeated = |net: &Net| net.nodes[3].core.overlay_stats().expect("it has an overlay").events_repeated;
        let before = repeated(&net);
        for payload in ["1", "2", "3"] {
            publish(&mut net, payload, qos);
            net.advance(MS * 10);
        }
        assert_eq!(got(&mut net), ["1", "2", "3"], "by the quick path");
        net.advance(SECOND);
        assert_eq!((got(&mut net).len(), repeated(&net) - before), (0, 3));
    }
}

/// An event of best effort of which copies are lost, and one 5 ms later.
fn behind_a_hole(lost: Lost) -> Net {
    let mut net = world(Qos::AtMostOnce, |_| {});
    lose(&mut net, lost);
    publish(&mut net, "1", Qos::AtMostOnce);
    net.advance(MS * 5);
    publish(&mut net, "2", Qos::AtMostOnce);
    net
}

#[test]
fn what_came_behind_a_hole_waits_for_the_copy_and_is_given_in_order() {
    let mut net = behind_a_hole(Lost::Quick(1));
    net.advance(MS * 30);
    assert_eq!(got(&mut net), [""; 0], "the second one has been here for 26 ms");
    net.advance(MS * 8);
    assert_eq!(got(&mut net), ["1", "2"], "the copy of the first one is here");
}

#[test]
fn a_hole_is_passed_when_its_copies_should_have_come() {
    let mut net = behind_a_hole(Lost::Both(1));
    net.advance(MS * 35);
    assert_eq!(got(&mut net), [""; 0]);
    net.advance(MS * 10);
    assert_eq!(got(&mut net), ["2"], "40 ms and the work of brokers after it was published, within its deadline");
    let stats = net.nodes[3].core.overlay_stats().expect("it has an overlay");
    assert_eq!(stats.events_held_back, 1);
}

/// Whether the copy of a last event is given, whose first copy was lost.
fn last_is_given(change: fn(&mut Broker)) -> bool {
    let mut net = world(Qos::AtMostOnce, change);
    lose(&mut net, Lost::Quick(1));
    publish(&mut net, "1", Qos::AtMostOnce);
    net.advance(SECOND);
    got(&mut net) == ["1"]
}

#[test]
fn silence_does_not_overtake_copies() {
    assert!(last_is_given(|_| {}));
}

#[cfg(feature = "mutants")]
#[test]
fn silence_that_overtakes_copies_is_noticed() {
    assert!(!last_is_given(|core| core.build_in(whimbrel_core::Mutant::SilenceBeforeCopies)));
}

/// The number of nacks that are sent for an event whose first copy was lost.
fn nacks(change: fn(&mut Broker)) -> u64 {
    let mut net = world(Qos::AtLeastOnce, change);
    let sent = |net: &Net| net.nodes[3].core.overlay_stats().expect("it has an overlay").nacks_out;
    let before = sent(&net);
    lose(&mut net, Lost::Quick(1));
    publish(&mut net, "1", Qos::AtLeastOnce);
    net.advance(MS * 15);
    publish(&mut net, "2", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(got(&mut net), ["1", "2"]);
    sent(&net) - before
}

#[test]
fn a_hole_is_not_asked_for_while_its_copy_is_on_its_way() {
    assert_eq!(nacks(|_| {}), 0);
}

#[cfg(feature = "mutants")]
#[test]
fn a_hole_that_is_asked_for_too_early_is_noticed() {
    assert!(nacks(|core| core.build_in(whimbrel_core::Mutant::NoCopyGrace)) > 0);
}

#[test]
fn one_path_is_taken_where_profiles_ask_for_no_more() {
    let mut net = world(Qos::AtLeastOnce, |_| {});
    net.input(0, Input::ChangeProfile { filter: "alarm/#", made: None });
    net.advance(SECOND);
    let sent = Rc::new(RefCell::new(0));
    let counted = Rc::clone(&sent);
    net.drops = Box::new(move |from, _, bytes| {
        let is_event =
            matches!(net::frame(bytes), Some(Frame::Event(_) | Frame::DeadlineEvent(_) | Frame::CopiedEvent(_)));
        *counted.borrow_mut() += u64::from(is_event && from == 0);
        false
    });
    publish(&mut net, "1", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!((got(&mut net), *sent.borrow()), (vec!["1".to_owned()], 1));
}

/// The plan for a topic at broker 0: brokers of each path, its time in milliseconds, and whether
/// that is within the deadline.
fn planned(net: &mut Net, topic: &str) -> Vec<Vec<(String, u64, Option<bool>)>> {
    let topic = TopicName::new(topic).expect("it is a topic");
    let plan = net.nodes[0].core.planned_paths(topic).expect("it has an overlay");
    let path = |path: &NamedPath| (path.brokers.join(" "), path.time_us / 1_000, path.is_in_time);
    plan.brokers.iter().map(|to| to.paths.iter().map(path).collect()).collect()
}

#[test]
fn the_paths_of_a_topic_are_told_before_anything_is_published() {
    let mut net = world(Qos::AtMostOnce, |_| {});
    let pair = [("b0 b1 b3".to_owned(), 4, Some(true)), ("b0 b2 b3".to_owned(), 40, Some(true))];
    assert_eq!(planned(&mut net, "alarm/never"), [pair]);
    assert_eq!(planned(&mut net, "other/1"), [[]; 0], "nobody wants it");
    // Without a deadline there is one path, and with a shorter one the second path is late.
    for (millis, expected) in [
        (None, vec![("b0 b1 b3", 4, None)]),
        (Some(30), vec![("b0 b1 b3", 4, Some(true)), ("b0 b2 b3", 40, Some(false))]),
    ] {
        let deadline = millis.map(|millis| MS * millis);
        let paths = if millis.is_some() { TopicPaths::Two } else { TopicPaths::One };
        let profile = Profile { filter: "alarm/#".into(), deadline, paths, ..Profile::default() };
        net.input(0, Input::ChangeProfile { filter: "alarm/#", made: Some(&RankedProfile { rank: 0, profile }) });
        net.advance(SECOND);
        let known: Vec<_> = planned(&mut net, "alarm/1").concat();
        let known: Vec<_> = known.iter().map(|(path, millis, in_time)| (&**path, *millis, *in_time)).collect();
        assert_eq!(known, expected);
    }
}

#[test]
fn a_trace_tells_both_copies_where_they_came_and_the_plan() {
    let mut net = world(Qos::AtMostOnce, |_| {});
    publish(&mut net, "1", Qos::AtMostOnce);
    net.advance(SECOND);
    let id = net.told(3, 1).into_iter().find_map(|told| if let Told::Event(got) = told { Some(got.id) } else { None });
    let id = id.expect("it has come");
    let trace = net.nodes[3].core.trace(id);
    let steps: Vec<_> = trace.steps.iter().map(|step| (step.name(), step.peer.as_deref(), step.age_us())).collect();
    let (quick, slow) = (("came", Some("b1"), Some(4_000)), ("came", Some("b2"), Some(40_000)));
    assert_eq!(steps, [quick, ("taken", None, None), slow]);
    assert_eq!(trace.steps[2].after, MS * 36);
    let plan = net.nodes[0].core.trace(id).plan.expect("it has it");
    assert_eq!((&*plan.topic, plan.deadline, plan.paths), ("alarm/1", Some(MS * 80), TopicPaths::Two));
    assert_eq!((plan.brokers.len(), plan.brokers[0].paths.len(), plan.more), (1, 2, 0));
    assert_eq!(plan.lines()[1], "for b3, which wants alarm/#; 2 ways");
}
