//! Brokers that end in good order, one after the other: the brokers that resume their sessions have
//! all of their knowledge.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Input, Link};
use whimbrel_event::Qos;

use super::moving::{RETURN, exactly};
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// As in the server.
const HAND_OVER: Duration = Duration::from_secs(5);

/// A client has had events, and has settled them within the last moment. Then its broker ends, and
/// the client goes elsewhere at once, while the broker's disk takes `stall`: the record that the
/// session was given away is not durable, and not told.
fn leaves(client: &str, pause: Duration, stall: Duration) {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(0, 9, "publisher"), Some(false));
    assert_eq!(net.connect(1, 1, client), Some(false));
    net.subscribe_durably(1, 1, "t", Qos::ExactlyOnce);
    net.advance(SECOND);
    let (mut known, mut sent) = (BTreeSet::new(), 0_u32);
    let mut publish = |net: &mut Net| {
        for _ in 0..5 {
            net.publish(0, 9, "t", &sent.to_string(), Qos::ExactlyOnce);
            net.input(0, Input::Release { link: Link(9), tag: 77 });
            sent += 1;
        }
    };
    publish(&mut net);
    let mut had = exactly(&mut net, &mut known, (1, 1), MILLI * 60);
    net.nodes[1].stalls_until = net.now.after(stall);
    net.leave(1, 1);
    net.connect_as(2, 5, client, RETURN);
    net.advance(pause);
    net.end(1, HAND_OVER);
    publish(&mut net);
    let (mut link, mut answer) = (5, net.answer(2, 5));
    while answer.is_none() && link < 15 {
        link += 1;
        net.advance(SECOND);
        // If its disk took longer than the others wait, the client is refused until the broker is
        // back.
        if net.nodes[1].is_dead && stall > HAND_OVER {
            net.revive(1, true);
        }
        answer = net.connect(2, link, client);
    }
    assert_eq!(answer, Some(true), "{client} {pause:?} {stall:?}");
    had.extend(exactly(&mut net, &mut known, (2, link), SECOND * 3));
    let numbers: Vec<u32> =
        had.iter().map(|payload| payload.parse().expect("publishers number what they send")).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>(), "{client} {pause:?} {stall:?}");
}

#[test]
fn what_a_broker_knew_as_it_ended_is_known_to_whoever_goes_on() {
    for number in 0..6 {
        for pause in 0..8 {
            for stall in [0, 20, 200, 2_000, 20_000] {
                leaves(&format!("client-{number}"), MILLI * pause, MILLI * stall);
            }
        }
    }
}
