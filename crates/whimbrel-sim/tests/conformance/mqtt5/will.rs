//! Wills (3.1.2.5, 3.1.3.2).

use whimbrel_mqtt::ConnId;

use crate::wire::{Connect, Props, Publish, Will, disconnect, packet, property};
use crate::world::{World, seconds};

fn world_with_listener() -> (World, ConnId) {
    let mut world = World::new();
    let listener = world.client("listener");
    world.subscribe(listener, "wills/#", 2);
    (world, listener)
}

fn willing() -> Connect {
    Connect::v5("a").will(Will::new("wills/a", "gone"))
}

// covers: MQTT-3.1.2-7, MQTT-3.1.2-8, MQTT-3.1.2-10
#[test]
fn a_will_is_published_once_when_the_network_fails() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&willing());
    assert_eq!(world.messages(listener), []);
    world.fail(conn);
    let will = world.message(listener);
    assert_eq!((will.topic.as_str(), will.text()), ("wills/a", "gone"));
    world.advance(seconds(1000));
    let conn = world.client("a");
    world.fail(conn);
    assert_eq!(world.messages(listener), [], "and not again");
}

// covers: MQTT-3.1.2-8
#[test]
fn a_will_is_published_when_the_server_ends_the_connection() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&willing());
    world.send(conn, packet(0x30, &[]));
    world.assert_disconnected(conn, 0x81);
    assert_eq!(world.payloads(listener), ["gone"]);
}

// covers: MQTT-3.1.2-8, MQTT-3.1.4-3
#[test]
fn a_will_is_published_when_its_session_ends_by_takeover() {
    let (mut world, listener) = world_with_listener();
    world.connect(&willing());
    world.client("a");
    assert_eq!(world.payloads(listener), ["gone"]);
}

// covers: MQTT-3.1.2-14, MQTT-3.1.2-15, MQTT-3.1.2-12
#[test]
fn a_will_has_its_qos_and_is_retained_as_asked() {
    for qos in 0..=2 {
        for retain in [false, true] {
            let (mut world, listener) = world_with_listener();
            let will = Will { retain, ..Will::new("wills/a", "gone").qos(qos) };
            let conn = world.connect(&Connect::v5("a").will(will));
            world.fail(conn);
            let message = world.message(listener);
            assert_eq!((message.qos, message.retain), (qos, false));
            let late = world.client("late");
            world.subscribe(late, "wills/#", 2);
            let kept: Vec<_> = world.messages(late).iter().map(|m| (m.text().to_owned(), m.qos, m.retain)).collect();
            assert_eq!(kept, if retain { vec![("gone".to_owned(), qos, true)] } else { vec![] });
        }
    }
}

// covers: MQTT-3.1.2-15
#[test]
fn an_empty_retained_will_clears_the_topic() {
    let (mut world, listener) = world_with_listener();
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("wills/a", "here").retain());
    let conn = world.connect(&Connect::v5("a").will(Will::new("wills/a", "").retain()));
    world.fail(conn);
    assert_eq!(world.payloads(listener), ["here", ""]);
    let late = world.client("late");
    world.subscribe(late, "wills/a", 0);
    assert_eq!(world.messages(late), []);
}

// covers: MQTT-3.1.3-10, MQTT-3.3.2-18
#[test]
fn a_will_keeps_its_properties_and_their_order() {
    let (mut world, listener) = world_with_listener();
    let user = [("z", "1"), ("a", "2"), ("z", "3"), ("m", "4")];
    let props = Props::new()
        .byte(property::PAYLOAD_FORMAT, 1)
        .u32(property::MESSAGE_EXPIRY, 60)
        .data(property::CONTENT_TYPE, "text/plain")
        .data(property::RESPONSE_TOPIC, "answers")
        .data(property::CORRELATION_DATA, [0, 255]);
    let props = user.iter().fold(props, |props, (name, value)| props.user(name, value));
    let conn = world.connect(&Connect::v5("a").will(Will::new("wills/a", "gone").props(props)));
    world.advance(seconds(1000));
    world.fail(conn);
    let received = world.message(listener).props;
    assert_eq!(received.user(), user);
    assert_eq!(received.number(property::PAYLOAD_FORMAT), Some(1));
    assert_eq!(received.number(property::MESSAGE_EXPIRY), Some(60), "its time begins with its publication");
    assert_eq!(received.text(property::CONTENT_TYPE), Some("text/plain"));
    assert_eq!(received.text(property::RESPONSE_TOPIC), Some("answers"));
    assert_eq!(received.data(property::CORRELATION_DATA), Some(&[0, 255][..]));
    assert!(!received.has(property::WILL_DELAY));
}

fn delayed() -> Connect {
    Connect::v5("a").expiry(100).will(Will::new("wills/a", "gone").delay(20))
}

// covers: MQTT-3.1.2-8
#[test]
fn a_delayed_will_waits_for_its_delay() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&delayed());
    world.fail(conn);
    world.advance(seconds(19));
    assert_eq!(world.messages(listener), []);
    world.advance(seconds(2));
    assert_eq!(world.payloads(listener), ["gone"]);
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-3.1.2-8
#[test]
fn a_delayed_will_is_published_when_its_session_ends_first() {
    let (mut world, listener) = world_with_listener();
    let early = Connect::v5("a").expiry(5).will(Will::new("wills/a", "gone").delay(20));
    let conn = world.connect(&early);
    world.fail(conn);
    world.advance(seconds(6));
    assert_eq!(world.payloads(listener), ["gone"], "with the session's expiry");
    world.advance(seconds(100));
    assert_eq!(world.messages(listener), []);

    let conn = world.connect(&Connect::v5("a").will(Will::new("wills/a", "gone").delay(20)));
    world.fail(conn);
    assert_eq!(world.payloads(listener), ["gone"], "at once without one");
}

// covers: MQTT-3.1.3-9
#[test]
fn a_client_that_is_back_in_time_leaves_no_will() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&delayed());
    world.fail(conn);
    world.advance(seconds(10));
    let conn = world.connect(&Connect::v5("a").expiry(100).resume());
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
    world.leave(conn);
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-3.1.3-9
#[test]
fn a_takeover_within_the_delay_leaves_no_will() {
    let (mut world, listener) = world_with_listener();
    world.connect(&delayed());
    let again = world.connect(&delayed().resume());
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
    world.fail(again);
    world.advance(seconds(30));
    assert_eq!(world.payloads(listener), ["gone"], "the will of the newer connection is in force");
}

// covers: MQTT-3.1.2-8, MQTT-3.1.2-4
#[test]
fn clean_start_ends_the_session_and_so_publishes_its_will() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&delayed());
    world.fail(conn);
    world.advance(seconds(10));
    world.connect(&Connect::v5("a"));
    assert_eq!(world.payloads(listener), ["gone"]);
}

// covers: MQTT-3.1.2-8
#[test]
fn a_disconnect_that_asks_for_the_will_keeps_its_delay() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&delayed());
    world.send(conn, disconnect(0x04, &Props::new()));
    assert!(world.is_closed(conn));
    world.advance(seconds(10));
    assert_eq!(world.messages(listener), []);
    world.advance(seconds(11));
    assert_eq!(world.payloads(listener), ["gone"]);
}

// covers: MQTT-3.1.2-10, MQTT-3.14.4-3
#[test]
fn a_new_connection_without_will_has_none() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&willing());
    world.leave(conn);
    let conn = world.client("a");
    world.fail(conn);
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-3.1.2-7
#[test]
fn the_will_of_a_refused_client_is_not_published() {
    let (mut world, listener) = world_with_listener();
    let refused = willing().props(Props::new().data(property::AUTH_METHOD, "none-such"));
    let conn = world.start(&refused);
    assert!(world.is_closed(conn));
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-3.1.2-8, MQTT-3.1.4-3
#[test]
fn a_takeover_publishes_a_will_without_delay_or_whose_session_ends() {
    let (mut world, listener) = world_with_listener();
    let at_once = Connect::v5("a").expiry(100).will(Will::new("wills/a", "gone"));
    world.connect(&at_once);
    world.connect(&Connect::v5("a").expiry(100).resume());
    assert_eq!(world.payloads(listener), ["gone"], "the connection has ended and there is no delay");
    world.connect(&delayed().resume());
    world.connect(&Connect::v5("a"));
    assert_eq!(world.payloads(listener), ["gone"], "Clean Start has ended the session");
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), []);
}

// covers: MQTT-3.1.2-8, MQTT-3.1.2-5
#[test]
fn the_session_outlives_its_published_will() {
    let (mut world, listener) = world_with_listener();
    let conn = world.connect(&delayed());
    world.subscribe(conn, "t", 1);
    world.fail(conn);
    world.advance(seconds(30));
    assert_eq!(world.payloads(listener), ["gone"]);
    let publisher = world.client("publisher");
    world.send(publisher, Publish::new("t", "x").qos(1, 1));
    let conn = world.connect(&Connect::v5("a").expiry(100).resume());
    assert_eq!(world.payloads(conn), ["x"]);
    world.fail(conn);
    world.advance(seconds(1000));
    assert_eq!(world.messages(listener), [], "the new connection had no will");
}
