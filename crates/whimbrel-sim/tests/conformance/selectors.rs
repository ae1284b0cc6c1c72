//! Selectors on SUBSCRIBE: no part of MQTT, but carried by it.

use whimbrel_mqtt::ConnId;

use crate::wire::property::{REASON_STRING, REQUEST_PROBLEM_INFO};
use crate::wire::{Connect, Packet, Properties, Props, Publish, Subscribe, puback};
use crate::world::World;

const GROUP: &str = "$share/g/t";

/// Subscribes with user properties, and returns the reason codes and properties of SUBACK.
fn ask(world: &mut World, conn: ConnId, filters: &[(&str, u8)], props: Props) -> (Vec<u8>, Properties) {
    match world.ask(conn, Subscribe::new(9, filters).props(props)) {
        Packet::Suback { id: 9, codes, props } => (codes, props),
        other => panic!("SUBACK expected, got {other:?}"),
    }
}

fn selector(text: &str) -> Props {
    Props::new().user("w-selector", text)
}

/// Publishes one message per speed, with the speed as its payload.
fn drive(world: &mut World, publisher: ConnId, speeds: &[&str]) {
    for speed in speeds {
        world.send(publisher, Publish::new("t", speed).props(Props::new().user("speed", speed)));
    }
}

#[test]
fn a_selector_holds_for_all_filters_of_its_subscribe_and_for_no_other() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    let (codes, _) = ask(&mut world, conn, &[("t", 1), ("+", 2)], selector("speed > 50"));
    assert_eq!(codes, [1, 2]);
    let plain = world.client("b");
    world.subscribe(plain, "t", 0);
    drive(&mut world, publisher, &["50", "51", "60"]);
    assert_eq!(world.payloads(conn), ["51", "51", "60", "60"]);
    assert_eq!(world.payloads(plain), ["50", "51", "60"]);
    let message = Publish::new("t", "x").props(Props::new().user("w-mine", "1").user("speed", "70").user("speed", "1"));
    world.send(publisher, message);
    let messages = world.messages(conn);
    let all = [("w-mine", "1"), ("speed", "70"), ("speed", "1")];
    assert_eq!(messages[0].props.user(), all, "user properties are forwarded unaltered");
}

#[test]
fn properties_that_begin_with_w_are_no_attributes() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    ask(&mut world, conn, &[("t", 0)], selector("\"w-importance\" IS NULL AND JMSPriority = 9"));
    world.send(publisher, Publish::new("t", "x").props(Props::new().user("w-importance", "9")));
    assert_eq!(world.payloads(conn), ["x"]);
}

#[test]
fn correlation_data_and_content_type_are_headers_of_jms() {
    use crate::wire::property::{CONTENT_TYPE, CORRELATION_DATA};
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    ask(&mut world, conn, &[("t", 0)], selector("JMSCorrelationID = 'order 7' AND JMSType LIKE '%/json'"));
    let missing = world.client("b");
    ask(&mut world, missing, &[("t", 0)], selector("JMSCorrelationID IS NULL"));
    let publish = |payload: &'static str, correlation: &[u8], kind: &str| {
        let props = Props::new().data(CORRELATION_DATA, correlation).data(CONTENT_TYPE, kind);
        Publish::new("t", payload).props(props)
    };
    for (payload, correlation, kind) in [
        ("both", &b"order 7"[..], "application/json"),
        ("another order", b"order 8", "application/json"),
        ("another type", b"order 7", "text/plain"),
        ("no text", b"\xff\xfe", "application/json"),
    ] {
        world.send(publisher, publish(payload, correlation, kind));
    }
    world.send(publisher, Publish::new("t", "neither"));
    assert_eq!(world.payloads(conn), ["both"]);
    assert_eq!(world.payloads(missing), ["no text", "neither"]);
}

#[test]
fn integers_divide_as_doubles_unless_they_divide_evenly() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    ask(&mut world, conn, &[("t", 0)], selector("speed / 2 = 61.5 OR speed / 2 = 60 OR speed / 10 > 49.9"));
    drive(&mut world, publisher, &["123", "122", "120", "121", "499", "500"]);
    assert_eq!(world.payloads(conn), ["123", "120", "500"]);
}

#[test]
fn what_is_no_selector_is_refused_with_position_and_cause() {
    let mut world = World::new();
    let conn = world.client("a");
    let (codes, props) = ask(&mut world, conn, &[("t", 1), ("u", 0)], selector("speed > 'x' AND"));
    assert_eq!(codes, [0x80, 0x80]);
    let reason = props.text(REASON_STRING).expect("a reason string");
    assert!(reason.starts_with("selector, position ") && reason.len() <= 200, "{reason}");
    let publisher = world.client("publisher");
    drive(&mut world, publisher, &["50"]);
    assert_eq!(world.payloads(conn), [] as [&str; 0], "nothing was subscribed");
}

#[test]
fn the_position_in_a_reason_string_counts_characters() {
    let mut world = World::new();
    let conn = world.client("a");
    let (codes, props) = ask(&mut world, conn, &[("t", 1)], selector("name = 'äöü' AND speed >"));
    assert_eq!(codes, [0x80]);
    let reason = props.text(REASON_STRING).expect("a reason string");
    assert!(reason.starts_with("selector, position 25: "), "{reason}");
}

#[test]
fn a_long_reason_string_is_cut_at_a_character() {
    let mut world = World::new();
    let conn = world.client("a");
    let name = "ä".repeat(300);
    let (codes, props) = ask(&mut world, conn, &[("t", 1)], selector(&format!("{name}('x')")));
    assert_eq!(codes, [0x80]);
    assert!(props.text(REASON_STRING).is_some_and(|reason| reason.len() <= 200));
}

#[test]
fn a_reason_string_that_is_too_large_or_unwelcome_is_left_out() {
    let mut world = World::new();
    for connect in [
        Connect::v5("small").maximum_packet_size(40),
        Connect::v5("silent").props(Props::new().byte(REQUEST_PROBLEM_INFO, 0)),
    ] {
        let conn = world.start(&connect);
        world.packets(conn);
        let (codes, props) = ask(&mut world, conn, &[("t", 1)], selector("speed >"));
        assert_eq!((codes, props), (vec![0x80], Properties::default()));
        world.assert_undisturbed(conn);
    }
}

#[test]
fn unknown_fences_are_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    let (codes, props) = ask(&mut world, conn, &[("t", 1)], selector("within('centre')"));
    assert_eq!(codes, [0x80]);
    let reason = props.text(REASON_STRING).expect("a reason string");
    assert!(reason.starts_with("selector, position 8: ") && reason.contains("fence"), "{reason}");
}

#[test]
fn a_refused_selector_leaves_the_subscription_as_it_was() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    ask(&mut world, conn, &[("t", 0)], selector("speed > 50"));
    let (codes, _) = ask(&mut world, conn, &[("t", 0)], selector("speed >< 10"));
    assert_eq!(codes, [0x80]);
    drive(&mut world, publisher, &["5", "60"]);
    assert_eq!(world.payloads(conn), ["60"]);
}

#[test]
fn two_selectors_in_one_subscribe_are_refused() {
    let mut world = World::new();
    let conn = world.client("a");
    let (codes, props) = ask(&mut world, conn, &[("t", 0)], selector("a = 1").user("w-selector", "a = 1"));
    assert_eq!(codes, [0x80]);
    assert!(props.text(REASON_STRING).is_some_and(|reason| reason.contains("more than once")), "{props:?}");
}

#[test]
fn a_blank_selector_is_none() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    for blank in ["", " ", "\t \n"] {
        let (codes, _) = ask(&mut world, conn, &[("t", 0)], selector(blank));
        assert_eq!(codes, [0]);
        drive(&mut world, publisher, &["1"]);
        assert_eq!(world.payloads(conn), ["1"], "{blank:?}");
    }
}

#[test]
fn another_property_that_cannot_be_read_is_still_refused_beside_a_selector() {
    let mut world = World::new();
    let conn = world.client("a");
    let (codes, props) = ask(&mut world, conn, &[("t", 0)], selector("a = 1").user("w-replier", "yes"));
    assert_eq!(codes, [0x83]);
    assert!(props.text(REASON_STRING).is_some_and(|reason| reason.starts_with("w-replier")), "{props:?}");
    let (codes, _) = ask(&mut world, conn, &[("t", 0)], selector("a = 1").user("w-durability", "nondurable"));
    assert_eq!(codes, [0]);
}

#[test]
fn members_of_a_shared_subscription_have_one_selector() {
    let mut world = World::new();
    let (first, second) = (world.client("a"), world.client("b"));
    assert_eq!(ask(&mut world, first, &[(GROUP, 1)], selector("speed > 50")).0, [1]);
    let (codes, props) = ask(&mut world, second, &[("u", 1), (GROUP, 1)], selector("speed > 60"));
    assert_eq!(codes, [1, 0x83], "the other filter is granted");
    assert!(props.text(REASON_STRING).is_some_and(|reason| reason.contains("selector")), "{props:?}");
    assert_eq!(ask(&mut world, second, &[(GROUP, 1)], Props::new()).0, [0x83], "none is another one");
    assert_eq!(ask(&mut world, second, &[(GROUP, 1)], selector("speed>50")).0, [1]);
    let publisher = world.client("publisher");
    drive(&mut world, publisher, &["10", "60", "70"]);
    assert_eq!((world.payloads(first).len(), world.payloads(second).len()), (1, 1));
}

#[test]
fn retained_messages_pass_the_selector_too() {
    let mut world = World::new();
    let (conn, publisher) = (world.client("a"), world.client("publisher"));
    for (topic, speed) in [("r/1", "10"), ("r/2", "60")] {
        world.send(publisher, Publish::new(topic, speed).retain().props(Props::new().user("speed", speed)));
    }
    world.send(conn, Subscribe::new(9, &[("r/+", 0)]).props(selector("speed > 50")));
    let packets = world.packets(conn);
    assert!(matches!(&packets[..], [Packet::Suback { .. }, Packet::Publish(m)] if m.text() == "60"), "{packets:?}");
}

#[test]
fn clients_of_3_1_1_get_everything_and_their_messages_have_no_attributes() {
    let mut world = World::new();
    let (old, new) = (world.connect(&Connect::v311("old")), world.client("new"));
    world.subscribe(old, "t", 1);
    ask(&mut world, new, &[("t", 1)], selector("speed IS NULL OR json('$.speed') > 50"));
    drive(&mut world, new, &["60"]);
    assert_eq!((world.payloads(old), world.payloads(new)), (vec!["60".to_owned()], vec![]));
    world.send(old, Publish::new("t", "{}").qos(1, 3));
    let own = world.packets(old);
    assert_eq!(own.len(), 2, "PUBACK and the message");
    let got = world.message(new);
    assert_eq!((got.text(), got.qos), ("{}", 1));
    world.send(new, puback(got.id));
}
