//! A client names its position again, at a broker where its subscription has been: from some tick
//! on all of its events have come there.

use core::time::Duration;

use whimbrel_core::{Channel, Durability, Filter, Input, Link, Start, SubscriptionSpec};
use whimbrel_event::{CheckpointToken, Qos, Time};
use whimbrel_selector::Selector;
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::{Got, plain};
use super::lives::{part, roaming, story};
use super::net::{Net, frame};

const MILLI: Duration = Duration::from_millis(1);

/// Two brokers; the client `s` has been at the second, which named the subscription's begin there.
/// Its session has ended.
fn was_there() -> (Net, CheckpointToken) {
    let mut net = Net::line(2);
    assert_eq!(net.connect(1, 9, "other"), Some(false));
    net.subscribe(1, 9, plain("b", Qos::AtLeastOnce));
    net.attach(1, 1, "s");
    let start = net.begins(1, 1, roaming(Start::Own));
    net.leave(1, 1);
    net.attach(0, 9, "publisher");
    net.advance(SECOND * 2);
    (net, start)
}

fn stories(net: &mut Net, span: Duration) -> Vec<String> {
    net.advance(span);
    story(&net.got(1, 1))
}

/// Whether a client is told a gap in a stream that covers an event published at a moment.
fn is_told(got: &[Got], stream: &str, published: Time) -> bool {
    let tick = |got: &Got, name: &str| part(&got.payload, name)?.parse::<u64>().ok();
    got.iter().any(|got| {
        let is_gap = got.payload.contains("not-buffered") && got.payload.contains(stream);
        is_gap && tick(got, "from") < Some(published.as_nanos()) && tick(got, "to") >= Some(published.as_nanos())
    })
}

/// The stream of the publisher's events.
fn stream(net: &mut Net) -> String {
    net.publish(0, 9, "b", "first", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.got(1, 9)[0].id.pubend.to_string()
}

#[test]
fn what_has_come_since_its_interest_is_in_force_comes_again_from_the_cache() {
    let (mut net, start) = was_there();
    net.publish(0, 9, "a", "before", Qos::AtLeastOnce);
    assert_eq!(net.connect(1, 1, "s"), Some(false));
    let token = net.begins(1, 1, roaming(Start::Own));
    net.publish(0, 9, "a", "one", Qos::AtLeastOnce);
    assert_eq!(stories(&mut net, SECOND), ["one"]);
    net.leave(1, 1);
    net.publish(0, 9, "a", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.connect(1, 1, "s"), Some(true));
    net.got(1, 1);
    net.subscribe(1, 1, roaming(Start::Token(&token, &[])));
    assert_eq!(stories(&mut net, SECOND), ["one", "two"], "nothing is missing");
    // Earlier events are not in the cache.
    net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
    assert_eq!(stories(&mut net, SECOND), ["gap: not-buffered", "one", "two"]);
}

#[test]
fn where_the_own_interest_is_in_force_from_a_tick_that_has_not_come_the_gap_up_to_there_is_told_again() {
    let (mut net, start) = was_there();
    let stream = stream(&mut net);
    net.drops = Box::new(|from, channel, bytes| {
        from == 0 && channel == Channel::Reliable && matches!(frame(bytes), Some(Frame::Event(_)))
    });
    // An event for the other client is lost on its way, so nothing behind that is passed.
    net.publish(0, 9, "b", "hole", Qos::AtLeastOnce);
    net.advance(MILLI * 50);
    net.publish(0, 9, "a", "before", Qos::AtLeastOnce);
    let published = net.now;
    net.advance(MILLI * 50);
    for is_there in [false, true, true] {
        assert_eq!(net.connect(1, 1, "s"), Some(is_there));
        net.got(1, 1);
        net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
        net.advance(MILLI * 1500);
        let told = net.got(1, 1);
        assert!(is_told(&told, &stream, published), "{published:?} {told:?}");
        net.leave(1, 1);
    }
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.connect(1, 1, "s"), Some(true));
    net.advance(SECOND * 5);
    // Its unacknowledged events.
    net.got(1, 1);
    net.publish(0, 9, "a", "after", Qos::AtLeastOnce);
    assert_eq!(stories(&mut net, SECOND), ["after"]);
}

/// The client keeps the position, and has left before it confirmed that it knows of the gap.
#[test]
fn a_gap_that_was_not_acknowledged_is_told_again_to_who_begins_where_it_stood() {
    let (mut net, start) = was_there();
    net.publish(0, 9, "a", "before", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.connect(1, 1, "s"), Some(false));
    let by_token = |start| {
        let roaming = roaming(start);
        Filter { spec: SubscriptionSpec { by_token: true, ..roaming.spec }, ..roaming }
    };
    net.subscribe(1, 1, by_token(Start::Token(&start, &[])));
    net.advance(SECOND);
    net.leave(1, 1);
    net.publish(0, 9, "a", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.got(1, 1);
    assert_eq!(net.connect(1, 1, "s"), Some(true));
    net.subscribe(1, 1, by_token(Start::Own));
    assert_eq!(stories(&mut net, SECOND), ["gap: not-buffered", "one"]);
}

/// Under its former selector the new events did not match, so they are not in the cache.
#[test]
fn what_only_another_selector_wants_is_a_gap_before_it_is_in_force() {
    for by_token in [false, true] {
        let (mut net, _) = was_there();
        let stream = stream(&mut net);
        let [low, high] = ["JMSPriority < 5", "JMSPriority >= 5"].map(|text| Selector::parse(text).expect("it is one"));
        let selected = |start, selector| {
            let roaming = roaming(start);
            let spec = SubscriptionSpec { by_token, ..roaming.spec };
            Filter { selector: Some(selector), spec, ..roaming }
        };
        assert_eq!(net.connect(1, 1, "s"), Some(false));
        let token = net.begins(1, 1, selected(Start::Own, &low));
        net.publish_as(0, 9, "high", 9);
        let published = net.now;
        net.advance(MILLI * 10);
        net.publish_as(0, 9, "low", 1);
        assert_eq!(stories(&mut net, SECOND), ["low"]);
        net.subscribe(1, 1, selected(Start::Token(&token, &[]), &high));
        net.advance(SECOND);
        let told = net.got(1, 1);
        assert!(is_told(&told, &stream, published), "{published:?} {told:?}");
        // Its client has not acknowledged that.
        net.leave(1, 1);
        assert_eq!(net.connect(1, 1, "s"), Some(true));
        net.publish_as(0, 9, "higher", 9);
        net.subscribe(1, 1, selected(Start::Own, &high));
        net.advance(SECOND);
        let told = net.got(1, 1);
        assert!(is_told(&told, &stream, published), "by token: {by_token}, {published:?} {told:?}");
        assert_eq!(story(&told).last().map(String::as_str), Some("higher"));
    }
}

/// A subscription that begins with new events has missed nothing, however often its connection is
/// lost.
#[test]
fn who_has_begun_with_what_comes_is_told_no_gap_when_it_goes_on_where_it_stood() {
    for durability in [Durability::SemiDurable, Durability::Durable] {
        let mut net = Net::mesh(2);
        assert_eq!(net.connect(0, 9, "publisher"), Some(false));
        assert_eq!(net.connect(1, 1, "s"), Some(false));
        let plain = plain("a", Qos::AtLeastOnce);
        let spec = SubscriptionSpec { durability, notices: true, by_token: true, ..plain.spec };
        let filter = Filter { spec, wants_token: true, ..plain };
        net.subscribe(1, 1, filter);
        net.advance(SECOND);
        for number in 0..3 {
            net.got(1, 1);
            net.leave(1, 1);
            net.publish(0, 9, "a", "one", Qos::AtLeastOnce);
            net.publish(0, 9, "a", "two", Qos::AtMostOnce);
            net.advance(SECOND);
            assert_eq!(net.connect(1, 1, "s"), Some(true));
            net.subscribe(1, 1, filter);
            net.advance(SECOND);
            let got = net.got(1, 1);
            assert!(got.iter().any(|got| got.payload == "one"), "{number}: {got:?}");
            assert!(!got.iter().any(|got| got.payload.contains("not-buffered")), "{durability:?} {number}: {got:?}");
        }
    }
}

/// Another subscription to the same filter, asked for before the first one was confirmed, is not in
/// force since the first one's confirmation.
#[test]
fn what_is_asked_for_again_before_it_is_confirmed_counts_from_when_that_is() {
    let (mut net, start) = was_there();
    let stream = stream(&mut net);
    net.delay([0, 1], MILLI * 100);
    assert_eq!(net.connect(1, 1, "s"), Some(false));
    let high = Selector::parse("JMSPriority >= 5").expect("it is one");
    net.subscribe(1, 1, Filter { selector: Some(&high), ..roaming(Start::Own) });
    net.advance(MILLI * 150);
    net.input(1, Input::Unsubscribe { link: Link(1), tag: 3, filters: &["a"] });
    net.subscribe(1, 1, roaming(Start::Own));
    net.advance(MILLI * 60);
    net.publish_as(0, 9, "low", 1);
    let published = net.now;
    net.advance(SECOND * 2);
    assert_eq!(story(&net.got(1, 1)), Vec::<String>::new(), "its broker has not heard of it yet");
    net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
    net.advance(SECOND);
    let told = net.got(1, 1);
    assert!(is_told(&told, &stream, published), "{published:?} {told:?}");
}
