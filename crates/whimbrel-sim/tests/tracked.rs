//! Tracked subscriptions in situations that the simulation found.

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_mqtt::ConnId;
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Heard, Hello, Message, Said, Wanted};

/// The client of all tests here comes back to its session.
fn subscriber() -> Hello {
    Hello::v5("subscriber").clean_start(false).session_expiry(100)
}

/// Subscribes semi-durably and reads the SUBACK.
fn follow(rig: &mut Rig, conn: ConnId) {
    let terms = vec![("w-durability".to_owned(), "semi-durable".to_owned())];
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
