//! A client's broker is cut off while its session is sought there: the client may be there by then.

use core::time::Duration;

use super::common::Told;
use super::moving::RETURN;
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn who_was_about_to_be_attached_where_nobody_can_ask_is_refused_until_somebody_can() {
    let mut asked = 0;
    for number in 0..12 {
        let client = format!("c{number}");
        let mut net = Net::mesh(3);
        net.connect_as(2, 9, &client, RETURN);
        // The directory broker has the question, and its answer is on its way.
        net.advance(Duration::from_micros(1_500));
        let told = net.nodes[2].side.edges.told.get(&9);
        if told.is_some_and(|told| told.iter().any(|told| matches!(told, Told::Attached { .. }))) {
            // That broker is its own directory broker: no other one has heard of the session.
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
