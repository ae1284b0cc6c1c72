//! What a durable subscription has of another broker's stream when brokers end at awkward moments.

use whimbrel_core::{Durability, Filter, Following, Limits, NOTICE_TOPIC};
use whimbrel_event::Qos;

use crate::common::{CLEAN, plain};
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE, back, publish};

#[test]
fn what_is_given_up_while_it_is_being_read_is_told() {
    let limits = Limits { max_retain: Some(SECOND * 20), ..Limits::default() };
    let mut net = Net::with(2, limits);
    net.attach(0, PUB, "publisher", CLEAN);
    net.attach(1, SUB, "subscriber", WIDE);
    let following =
        Following { durability: Durability::Durable, notices: true, ..plain("t/#", Qos::AtLeastOnce).following };
    net.subscribe(1, SUB, Filter { following, ..plain("t/#", Qos::AtLeastOnce) });
    net.detach(1, SUB);
    publish(&mut net, &["a", "b"]);
    net.advance(SECOND);
    net.kill(1);
    net.advance(SECOND * 16);
    net.revive(1);
    net.join(0, 1);
    net.advance(SECOND);
    net.nodes[0].reads_nothing = true;
    back(&mut net, 1);
    net.advance(SECOND);
    net.part(1);
    net.advance(SECOND * 60);
    net.join(0, 1);
    net.advance(SECOND);
    let got = net.got(1, SUB);
    assert!(got.iter().all(|got| !got.payload.contains("released")), "it is being read: {got:?}");
    assert_eq!(net.nodes[0].disk.events(), 0, "it is given up");
    net.nodes[0].reads_nothing = false;
    net.advance(SECOND * 5);
    let got = net.got(1, SUB);
    let released = got.iter().filter(|got| got.topic == NOTICE_TOPIC && got.payload.contains("released"));
    assert_eq!(released.count(), 1, "{got:?}");
}
