//! Shared subscriptions in situations that the simulation found.

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Heard, Hello, Message, Said, Wanted};

/// What is unacknowledged of a shared subscription that ended is for no other client.
#[test]
fn an_ended_shared_subscription_leaks_nothing_into_the_next() {
    let mut rig = Rig::new(Default::default(), 1);
    let bus = rig.connect(Hello::v5("bus"));
    let old = rig.connect(Hello::v5("old").session_expiry(100));
    rig.subscribe(old, "$share/g/secret/#", Qos::AtLeastOnce);
    rig.publish(bus, Message::new("secret/plan", "not for you").qos(Qos::AtLeastOnce, 1));
    assert_eq!(rig.messages(old).len(), 1, "delivered, and not acknowledged");
    rig.say(old, &Said::Unsubscribe { id: 9, filters: vec!["$share/g/secret/#".into()] });
    assert!(matches!(rig.heard_one(old), Heard::Unsuback { .. }));
    rig.subscribe(old, "$share/g/open/#", Qos::AtLeastOnce);
    let other = rig.connect(Hello::v5("other"));
    rig.subscribe(other, "$share/g/open/#", Qos::AtLeastOnce);
    rig.close(old);
    assert_eq!(rig.messages(other), [], "a topic that it never subscribed to");
}

/// A message keeps its retain mark for members that want it, whichever member had it before.
#[test]
fn work_that_moves_keeps_its_retain_mark() {
    let mut rig = Rig::new(Default::default(), 1);
    let bus = rig.connect(Hello::v5("bus"));
    let plain = rig.connect(Hello::v5("plain").session_expiry(100));
    rig.subscribe(plain, "$share/g/a", Qos::AtLeastOnce);
    rig.publish(bus, Message::new("a", "x").qos(Qos::AtLeastOnce, 1).retain(true));
    assert!(!rig.messages(plain)[0].retain);
    let exact = rig.connect(Hello::v5("exact"));
    let wanted = Wanted { retain_as_published: true, ..Wanted::new("$share/g/a", Qos::AtLeastOnce) };
    assert_eq!(rig.subscribe_all(exact, 0, vec![wanted]), [1]);
    rig.close(plain);
    let messages = rig.messages(exact);
    assert_eq!(messages.len(), 1, "what the other did not acknowledge");
    assert!(messages[0].retain, "published with RETAIN");
}
