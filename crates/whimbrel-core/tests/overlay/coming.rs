//! A client's broker is cut off while its session is sought there: it may be there by then.

use core::time::Duration;

use whimbrel_event::Qos;
use whimbrel_wire::Frame;

use super::common::{Told, plain};
use super::is_answered;
use super::moving::RETURN;
use super::net::{Net, frame};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

#[test]
fn who_was_about_to_be_attached_where_nobody_can_ask_is_refused_until_somebody_can() {
    let mut asked = 0;
    for number in 0..12 {
        let client = format!("c{number}");
        let mut net = Net::mesh(3);
        net.connect_as(2, 9, &client, RETURN);
        // Its clerk has the question, and what that answers is on its way.
        net.advance(Duration::from_micros(1_500));
        let told = net.nodes[2].side.edges.told.get(&9);
        if told.is_some_and(|told| told.iter().any(|told| matches!(told, Told::Attached { .. }))) {
            // That broker is its clerk itself: nobody else has heard of it.
            continue;
        }
        asked += 1;
        net.kill(2);
        net.advance(SECOND);
        assert_eq!(net.connect(0, 10, &client), None, "{client}");
        net.revive(2, true);
        net.advance(SECOND * 5);
        assert_eq!(net.connect(0, 11, &client), Some(false), "{client}: that broker says that it has nothing");
    }
    assert!(asked > 3, "{asked} clients of whom another broker is the clerk");
}

/// What it is told of one of them comes late.
#[test]
fn who_was_alone_waits_for_all_of_whom_its_first_neighbour_has_told() {
    let mut net = Net::new(4);
    net.join(1, 2, MILLI);
    net.advance(SECOND * 5);
    net.attach(0, 1, "sub");
    let late = net.nodes[2].core.host();
    net.drops = Box::new(move |from, _, bytes| {
        from == 1 && matches!(frame(bytes), Some(Frame::LinkState(state)) if state.host == late)
    });
    net.join(0, 1, MILLI);
    net.advance(MILLI * 2);
    net.subscribe(0, 1, plain("t", Qos::AtLeastOnce));
    net.advance(MILLI * 500);
    assert!(!is_answered(&net.told(0, 1)), "it has heard that there is one more");
    net.drops = Box::new(|_, _, _| false);
    // It says something new of itself.
    net.join(2, 3, MILLI);
    net.advance(MILLI * 100);
    assert!(is_answered(&net.told(0, 1)));
    assert!(net.nodes[0].side.pending.is_empty(), "{:?}", net.nodes[0].side.pending);
}
