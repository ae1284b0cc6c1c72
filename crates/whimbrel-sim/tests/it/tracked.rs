//! Tracked subscriptions in situations that the simulation found.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::{Qos, ReceiveMaximum};
use whimbrel_mqtt::{Config, ConnId};
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Heard, Hello, Message, Said, Wanted};

/// The client of all tests here comes back to its session.
fn subscriber() -> Hello {
    Hello::v5("subscriber").clean_start(false).session_expiry(100)
}

/// Subscribes semi-durably, with notices, and reads the SUBACK.
fn follow(rig: &mut Rig, conn: ConnId) {
    let term = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let terms = vec![term("w-durability", "semi-durable"), term("w-notices", "on")];
    let wanted = vec![Wanted::new("a", Qos::AtLeastOnce)];
    rig.say(conn, &Said::Subscribe { id: 1, identifier: 1, selector: None, terms, wanted });
    assert!(matches!(rig.heard_one(conn), Heard::Suback { codes, .. } if codes == [1]));
}

/// The messages that come after CONNACK.
fn greeted(rig: &mut Rig) -> Vec<Message> {
    let conn = rig.greet(subscriber());
    let mut heard = rig.heard(conn).into_iter();
    assert!(matches!(heard.next(), Some(Heard::Connack { session_present: true, .. })));
    let message = |heard| match heard {
        Heard::Publish(message) => message,
        other => panic!("messages only, not {other:?}"),
    };
    heard.map(message).collect()
}

#[test]
fn what_is_sent_again_has_its_name_though_the_subscription_has_ended() {
    let mut rig = Rig::new(Default::default(), 1);
    let (bus, conn) = (rig.connect(Hello::v5("bus")), rig.connect(subscriber()));
    follow(&mut rig, conn);
    rig.publish(bus, Message::new("a", "1").qos(Qos::AtLeastOnce, 1));
    let first = rig.messages(conn).remove(0);
    rig.say(conn, &Said::Unsubscribe { id: 2, filters: vec!["a".to_owned()] });
    rig.close(conn);
    let again = greeted(&mut rig).remove(0);
    assert!(again.dup);
    assert_eq!(again.user_property("w-id"), first.user_property("w-id"));
}

#[test]
fn what_was_missed_comes_though_what_is_sent_again_is_not_acknowledged() {
    let mut rig = Rig::new(Default::default(), 1);
    let (bus, conn) = (rig.connect(Hello::v5("bus")), rig.connect(subscriber()));
    follow(&mut rig, conn);
    rig.publish(bus, Message::new("a", "1").qos(Qos::AtLeastOnce, 1));
    rig.close(conn);
    rig.publish(bus, Message::new("a", "2").qos(Qos::AtLeastOnce, 2));
    let messages = greeted(&mut rig);
    let texts: Vec<(&str, bool)> = messages.iter().map(|message| (message.text(), message.dup)).collect();
    assert_eq!(texts, [("1", true), ("2", false)]);
}

#[test]
fn a_client_that_takes_nothing_costs_nothing() {
    let mut config = Config::default();
    (config.core.tracked_queue_bytes, config.core.silence_after) = (100, Duration::from_secs(1));
    config.sys_interval = None;
    let mut rig = Rig::new(config, 1);
    let bus = rig.connect(Hello::v5("bus"));
    let conn = rig.connect(subscriber().property(ReceiveMaximum::new(1).expect("in range")));
    follow(&mut rig, conn);
    for id in 1..=3 {
        rig.publish(bus, Message::new("a", vec![b'.'; 200]).qos(Qos::AtLeastOnce, id));
    }
    assert_eq!(rig.messages(conn).len(), 1, "it does not acknowledge, and the rest has to wait");
    rig.advance(Duration::from_secs(1));
    assert_eq!(rig.messages(conn), []);
    let next = rig.next_deadline().expect("silence is looked for");
    assert!(next >= rig.now() + Duration::from_millis(500), "the broker wants to act at {next:?}, now {:?}", rig.now());
}
