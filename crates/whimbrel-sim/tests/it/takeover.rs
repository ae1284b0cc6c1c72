//! A client closes a connection and opens the next at once: whichever of the two sockets the broker
//! reads first, what lies in the old one comes first.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_core::READ_OUT_MAX;
use whimbrel_mqtt::{Config, ConnId, Origin, READ_OUT_BYTES};
use whimbrel_sim::random::Random;
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Heard, Hello, Message, Said};

fn rig() -> (Rig, ConnId) {
    let mut rig = Rig::new(Config { sys_interval: None, ..Config::default() }, 1);
    let listener = rig.connect(Hello::v5("listener"));
    rig.subscribe(listener, "w/#", Qos::AtLeastOnce);
    (rig, listener)
}

fn hello(is_v5: bool, will: &str) -> Hello {
    let hello = if is_v5 { Hello::v5("x").session_expiry(60) } else { Hello::v311("x") };
    hello.clean_start(false).will(Message::new("w/t", will))
}

/// A connection whose CONNECT has been read, and whose further bytes lie in its socket.
fn held(rig: &mut Rig, hello: Hello) -> ConnId {
    let conn = rig.greet(hello);
    rig.hold(conn);
    conn
}

fn texts(rig: &mut Rig, conn: ConnId) -> Vec<String> {
    rig.messages(conn).iter().map(|message| message.text().to_owned()).collect()
}

fn is_present(rig: &mut Rig, conn: ConnId) -> bool {
    match rig.next(conn) {
        Some(Heard::Connack { code: 0, session_present, .. }) => session_present,
        other => panic!("a CONNACK that accepts, not {other:?}"),
    }
}

fn disconnect(expiry: Option<u32>) -> Said {
    Said::Disconnect { code: 0, expiry }
}

#[test]
fn what_the_old_connection_has_sent_comes_first_whichever_is_read_first() {
    for is_v5 in [false, true] {
        for is_old_first in [true, false] {
            let (mut rig, listener) = rig();
            let old = held(&mut rig, hello(is_v5, "will"));
            rig.publish(old, Message::new("w/p", "last"));
            rig.say(old, &disconnect(None));
            rig.close(old);
            if is_old_first {
                rig.read(old, usize::MAX);
            }
            let new = rig.greet(hello(is_v5, "other"));
            assert!(is_present(&mut rig, new));
            assert_eq!(texts(&mut rig, listener), ["last"], "v5: {is_v5}, the old one first: {is_old_first}");
            assert_eq!(rig.stats().core.takeovers_cut, 0);
        }
    }
}

#[test]
fn a_session_that_its_client_has_ended_is_not_there_for_the_next_connection() {
    let (mut rig, _) = rig();
    let old = held(&mut rig, hello(true, "will"));
    rig.say(old, &disconnect(Some(0)));
    rig.close(old);
    let new = rig.greet(hello(true, "other"));
    assert!(!is_present(&mut rig, new));
}

#[test]
fn a_connection_that_stays_open_is_read_and_then_ended() {
    let (mut rig, listener) = rig();
    let old = held(&mut rig, hello(true, "will"));
    rig.publish(old, Message::new("w/p", "one").qos(Qos::AtLeastOnce, 1));
    let new = rig.greet(hello(true, "other"));
    assert!(is_present(&mut rig, new));
    assert_eq!(texts(&mut rig, listener), ["one", "will"]);
    let heard = rig.heard(old);
    assert!(matches!(heard[1], Heard::Ack { .. }), "PUBACK comes before the end: {heard:?}");
    assert!(matches!(heard[2], Heard::Disconnect { code: 0x8E, .. }), "{heard:?}");
}

#[test]
fn a_socket_that_is_not_read_is_waited_for_no_longer_than_it_may_take() {
    let (mut rig, listener) = rig();
    let old = rig.greet(hello(true, "will"));
    rig.hold_fast(old);
    rig.publish(old, Message::new("w/p", "never read"));
    let new = rig.greet(hello(true, "other"));
    rig.advance(READ_OUT_MAX - Duration::from_millis(1));
    assert_eq!(rig.next(new), None);
    rig.advance(Duration::from_millis(1));
    assert!(is_present(&mut rig, new));
    assert_eq!(texts(&mut rig, listener), ["will"]);
    assert_eq!(rig.stats().core.takeovers_cut, 1);
}

#[test]
fn what_a_connection_sends_while_it_waits_is_not_lost_where_the_old_one_ends_for_a_refused_publish() {
    let (mut rig, listener) = rig();
    let old = rig.greet(hello(false, "will"));
    rig.hold_fast(old);
    let deep = format!("w{}", "/x".repeat(128));
    rig.publish(old, Message::new(&deep, "too deep").qos(Qos::AtLeastOnce, 1));
    let new = rig.greet(hello(false, "other"));
    for text in ["one", "two", "three"] {
        rig.publish(new, Message::new("w/p", text));
    }
    rig.read(old, usize::MAX);
    assert!(is_present(&mut rig, new));
    assert_eq!(texts(&mut rig, listener), ["will", "one", "two", "three"]);
}

#[test]
fn no_more_is_read_of_an_old_socket_than_may_be_at_once() {
    let (mut rig, listener) = rig();
    let old = held(&mut rig, hello(true, "will"));
    for _ in 0..2 {
        rig.publish(old, Message::new("w/p", vec![b'.'; READ_OUT_BYTES * 2 / 3]));
    }
    let new = rig.greet(hello(true, "other"));
    assert!(is_present(&mut rig, new));
    assert_eq!(rig.messages(listener).len(), 2, "the first message and the will");
    assert_eq!(rig.stats().core.takeovers_cut, 1);
}

#[test]
fn a_connection_that_ends_while_it_waits_for_its_session_is_handled_to_its_end() {
    let (mut rig, listener) = rig();
    let old = rig.greet(hello(true, "will"));
    rig.hold_fast(old);
    rig.publish(old, Message::new("w/p", "never read"));
    // All that this client wants is said at once.
    let new = rig.greet(hello(true, "other"));
    rig.publish(new, Message::new("w/p", "quick"));
    rig.say(new, &disconnect(None));
    rig.close(new);
    let last = rig.greet(hello(true, "last"));
    assert_eq!(texts(&mut rig, listener), Vec::<String>::new());
    rig.advance(READ_OUT_MAX);
    assert_eq!(texts(&mut rig, listener), ["will", "quick"]);
    assert!(is_present(&mut rig, last));
    // One that ends without a word is one that was lost.
    let old = last;
    rig.hold_fast(old);
    rig.publish(old, Message::new("w/p", "never read"));
    let lost = rig.greet(hello(true, "lost"));
    rig.publish(lost, Message::new("w/p", "said"));
    rig.close(lost);
    rig.advance(READ_OUT_MAX);
    assert_eq!(texts(&mut rig, listener), ["last", "said", "lost"]);
    assert_eq!(rig.stats().connections, 1, "of the listener");
}

#[test]
fn a_client_is_not_silent_whose_words_are_unread() {
    let (mut rig, _) = rig();
    let busy = held(&mut rig, Hello::v5("busy").keep_alive(10));
    assert!(!is_present(&mut rig, busy));
    for _ in 0..10 {
        rig.say(busy, &Said::Ping);
        rig.advance(Duration::from_secs(15));
        assert!(!rig.is_closed(busy), "the broker was late, not its client");
    }
    rig.advance(Duration::from_secs(15));
    assert!(rig.is_closed(busy));
    // Nor one whose CONNECT is.
    let quick = rig.open(Origin::Tcp);
    rig.hold(quick);
    rig.say(quick, &Said::Connect(Hello::v5("quick")));
    rig.advance(Config::default().limits.connect_timeout);
    assert!(!is_present(&mut rig, quick));
    assert_eq!(rig.stats().connect_timeouts, 0);
}

#[test]
fn a_broker_that_ends_handles_what_its_clients_have_sent() {
    let (mut rig, listener) = rig();
    let polite = held(&mut rig, hello(true, "will"));
    rig.publish(polite, Message::new("w/p", "last"));
    rig.say(polite, &disconnect(None));
    let stays = held(&mut rig, Hello::v5("y").will(Message::new("w/y", "y")));
    rig.publish(stays, Message::new("w/p", "too").qos(Qos::AtLeastOnce, 1));
    rig.drain_within(Duration::from_secs(5));
    rig.advance(Duration::from_secs(5));
    let heard = rig.heard(listener);
    let texts = heard.iter().filter_map(|heard| match heard {
        Heard::Publish(message) => Some(message.text()),
        _ => None,
    });
    let mut texts: Vec<_> = texts.collect();
    texts.sort_unstable();
    assert!(texts.starts_with(&["last", "too"]), "{texts:?}");
    assert!(!texts.contains(&"will"), "{texts:?}");
    let heard = rig.heard(stays);
    assert!(matches!(heard[1], Heard::Ack { .. }), "PUBACK comes before the end: {heard:?}");
    assert!(matches!(heard[2], Heard::Disconnect { code: 0x8B, .. }), "{heard:?}");
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    /// With DISCONNECT.
    Goodbye,
    /// With DISCONNECT, and so does its session.
    Forget,
    /// Without a word.
    Lost,
    /// By the next connection.
    Stays,
}

/// Connections of one client follow each other, and their sockets are read in any order: all is as
/// if each had been read to its end before the next one began.
#[test]
fn in_whatever_order_sockets_are_read_connections_follow_each_other() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (mut rig, listener) = rig();
        let (mut expected, mut conns, mut is_there) = (Vec::new(), Vec::new(), false);
        for round in 0..6 {
            let is_v5 = random.chance(500);
            let end = *random.pick(&[End::Goodbye, End::Forget, End::Lost, End::Stays]);
            let end = if end == End::Forget && !is_v5 { End::Goodbye } else { end };
            let conn = rig.open(Origin::Tcp);
            rig.say(conn, &Said::Connect(hello(is_v5, &format!("will {round}"))));
            rig.hold(conn);
            conns.push((conn, is_there));
            for number in 0..random.below(4) {
                let text = format!("{round}.{number}");
                rig.publish(conn, Message::new("w/p", text.as_bytes()));
                expected.push(text);
            }
            match end {
                End::Goodbye => rig.say(conn, &disconnect(None)),
                End::Forget => rig.say(conn, &disconnect(Some(0))),
                End::Lost | End::Stays => expected.push(format!("will {round}")),
            }
            if end != End::Stays {
                rig.close(conn);
            }
            is_there = end != End::Forget;
            for _ in 0..random.below(4) {
                let (conn, _) = *random.pick(&conns);
                rig.read(conn, random.between(1, 40) as usize);
            }
        }
        for (conn, _) in &conns {
            rig.read(*conn, usize::MAX);
        }
        // The last one ends, too.
        let last = rig.greet(Hello::v5("x"));
        assert!(!is_present(&mut rig, last));
        assert_eq!(texts(&mut rig, listener), expected, "seed {seed}");
        for (conn, was_there) in conns {
            if !rig.received(conn).is_empty() {
                assert_eq!(is_present(&mut rig, conn), was_there, "seed {seed}");
            }
        }
        assert_eq!(rig.stats().core.takeovers_cut, 0, "seed {seed}");
        assert_eq!(rig.stats().connections, 2, "seed {seed}");
    }
}
