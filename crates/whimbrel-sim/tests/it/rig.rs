//! The rig moves a broker through virtual time.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_mqtt::{HIGH_WATER, Origin};
use whimbrel_sim::rig::Rig;
use whimbrel_sim::speech::{Hello, Message};

#[test]
fn a_message_goes_from_one_client_to_another() {
    let mut rig = Rig::new(Default::default(), 1);
    let console = rig.connect(Hello::v5("console"));
    let bus = rig.connect(Hello::v311("bus"));
    rig.subscribe(console, "fleet/+/position", Qos::AtLeastOnce);
    rig.publish(bus, Message::new("fleet/7/position", "60.17,24.94").qos(Qos::AtLeastOnce, 9));
    let messages = rig.messages(console);
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0].text(), messages[0].qos), ("60.17,24.94", Qos::AtLeastOnce));
    assert_eq!(rig.heard(bus).len(), 1, "PUBACK");
}

#[test]
fn deadlines_come_when_they_are_due() {
    let mut rig = Rig::new(Default::default(), 1);
    let silent = rig.connect(Hello::v5("silent").keep_alive(10));
    rig.advance(Duration::from_millis(14_999));
    assert!(!rig.is_closed(silent));
    rig.advance(Duration::from_millis(2));
    assert!(rig.is_closed(silent));
}

#[test]
fn a_client_that_does_not_read_builds_a_backlog_and_gets_the_rest_later() {
    let mut rig = Rig::new(Default::default(), 1);
    let slow = rig.connect(Hello::v5("slow"));
    rig.subscribe(slow, "a", Qos::AtLeastOnce);
    let bus = rig.connect(Hello::v5("bus"));
    rig.stall(slow);
    let count = 2 * HIGH_WATER / 1000;
    for id in 0..count {
        rig.publish(bus, Message::new("a", vec![b'.'; 1000]).qos(Qos::AtLeastOnce, id as u16 + 1));
    }
    let waiting = rig.backlog(slow);
    assert!((HIGH_WATER..HIGH_WATER + 5000).contains(&waiting), "{waiting} bytes wait");
    assert!(rig.received(slow).len() < 100, "nothing but CONNACK and SUBACK came");
    rig.unstall(slow);
    assert_eq!(rig.messages(slow).len(), count);
}

#[test]
fn a_silent_stranger_is_closed() {
    let mut rig = Rig::new(Default::default(), 1);
    let stranger = rig.open(Origin::Ws);
    rig.advance(Duration::from_secs(11));
    assert!(rig.is_closed(stranger));
    assert!(rig.received(stranger).is_empty());
}
