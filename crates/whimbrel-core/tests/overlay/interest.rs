//! A client says again where it begins, at a broker where its subscription has been: from some tick on all that it wants has come there.

use core::time::Duration;

use whimbrel_core::{Channel, Filter, Following, Start};
use whimbrel_event::{CheckpointToken, Qos};
use whimbrel_wire::Frame;

use super::SECOND;
use super::common::{Got, plain};
use super::lives::{roaming, story};
use super::net::{Net, frame};

const MILLI: Duration = Duration::from_millis(1);

/// Two brokers; the client `s` has been at the second, and said where its subscription began there. Its session has ended.
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

/// Up to where a gap is told.
fn upto(notice: &Got) -> Option<u64> {
    notice.payload.split_once(r#""to":""#)?.1.split('"').next()?.parse().ok()
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
    // What came before is not in the cache.
    net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
    assert_eq!(stories(&mut net, SECOND), ["gap: not-buffered", "one", "two"]);
}

#[test]
fn where_the_own_interest_is_in_force_from_a_tick_that_has_not_come_the_gap_up_to_there_is_told_again() {
    let (mut net, start) = was_there();
    net.publish(0, 9, "b", "first", Qos::AtLeastOnce);
    net.advance(SECOND);
    let stream = net.got(1, 9)[0].id.pubend.to_string();
    net.drops = Box::new(|from, channel, bytes| {
        from == 0 && channel == Channel::Reliable && matches!(frame(bytes), Some(Frame::Event(_)))
    });
    // What the other one wants is lost on its way, so nothing behind that is passed.
    net.publish(0, 9, "b", "hole", Qos::AtLeastOnce);
    net.advance(MILLI * 50);
    net.publish(0, 9, "a", "before", Qos::AtLeastOnce);
    let published = net.now.as_nanos();
    net.advance(MILLI * 50);
    for is_there in [false, true, true] {
        assert_eq!(net.connect(1, 1, "s"), Some(is_there));
        net.got(1, 1);
        net.subscribe(1, 1, roaming(Start::Token(&start, &[])));
        net.advance(MILLI * 1500);
        let told = net.got(1, 1);
        let is_gap = |got: &&Got| got.payload.contains(&stream) && got.payload.contains("not-buffered");
        let upto = told.iter().filter(is_gap).filter_map(upto).max();
        assert!(upto >= Some(published), "{upto:?} {published} {told:?}");
        net.leave(1, 1);
    }
    net.drops = Box::new(|_, _, _| false);
    assert_eq!(net.connect(1, 1, "s"), Some(true));
    net.advance(SECOND * 5);
    // What it has not acknowledged.
    net.got(1, 1);
    net.publish(0, 9, "a", "after", Qos::AtLeastOnce);
    assert_eq!(stories(&mut net, SECOND), ["after"]);
}

/// The client keeps the position, and has left before it said that it knows of the gap.
#[test]
fn a_gap_that_was_not_acknowledged_is_told_again_to_who_begins_where_it_stood() {
    let (mut net, start) = was_there();
    net.publish(0, 9, "a", "before", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.connect(1, 1, "s"), Some(false));
    let by_token = |start| {
        let roaming = roaming(start);
        Filter { following: Following { by_token: true, ..roaming.following }, ..roaming }
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
