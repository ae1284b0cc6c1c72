//! Publishers that number their events and move while a broker is away that may have accepted more of them: nobody takes one for new that it has.

use core::time::Duration;

use whimbrel_core::{Input, Link, Publish};
use whimbrel_event::{EventId, Packed, Qos};

use super::common::event;
use super::moving::{How, RETURN};
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Sessions that end with their connection, and such that go along.
const WAYS: [How; 2] = [How { expiry: Duration::ZERO, ..RETURN }, RETURN];

/// Its clerk and its deputy are other brokers for each.
const CLIENTS: [&str; 5] = ["p0", "p1", "p2", "p3", "p4"];

impl Net {
    fn publish_numbered(&mut self, node: usize, number: u64) {
        let payload = number.to_string();
        let event = event("t", &payload, Qos::AtLeastOnce);
        self.input(node, Input::Publish(Publish { link: Link(9), tag: 7, retain: false, number: Some(number), event }));
        self.advance(MILLI * 20);
    }

    fn arrive(&mut self, node: usize, client: &str, how: How) {
        self.connect_as(node, 9, client, how);
        assert!(self.answer(node, 9).is_some(), "{client} at {node}");
    }

    /// What is logged at a broker, with what is said of it: whether it may be a repeat, and what it comes after.
    fn logged_at(&self, node: usize) -> Vec<(String, bool, Option<EventId>)> {
        let disk = self.nodes[node].disk.as_ref().expect("it has a log");
        let events = disk.streams.values().flat_map(|stream| stream.values());
        let read = |record: &Vec<u8>| {
            let event = Packed::read(record).expect("it was written").view();
            let payload = String::from_utf8(event.payload.to_vec()).expect("tests publish text");
            (payload, event.headers.maybe_repeat, event.headers.after)
        };
        events.map(read).collect()
    }
}

/// A publisher's broker is killed as it has logged its second and third event, before the publisher knows; that has gone to another one, where it publishes what is said, and leaves.
/// A subscriber is at the third.
fn stranded(client: &str, how: How, elsewhere: &[u64]) -> Net {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(2, 1, "sub"), Some(false));
    net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
    net.arrive(0, client, how);
    net.publish_numbered(0, 1);
    assert_eq!(net.settled(2, 1, SECOND), ["1"]);
    // Before anybody has a copy in which these are counted.
    net.publish_numbered(0, 2);
    net.publish_numbered(0, 3);
    net.kill(0);
    assert_eq!(net.settled(2, 1, SECOND), ["2", "3"]);
    net.arrive(1, client, how);
    elsewhere.iter().for_each(|number| net.publish_numbered(1, *number));
    net.leave(1, 9);
    net.advance(SECOND);
    net
}

#[test]
fn who_could_not_be_asked_at_one_broker_is_asked_at_the_next() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = stranded(client, how, &[]);
        net.revive(0, true);
        net.advance(SECOND);
        net.arrive(2, client, how);
        (2..=4).for_each(|number| net.publish_numbered(2, number));
        assert_eq!(net.settled(2, 1, SECOND), ["4"], "{client}: what it repeats is known");
        let own = net.logged_at(2);
        let [(payload, maybe_repeat, after)] = &own[..] else { panic!("{client}: {own:?}") };
        assert_eq!((&**payload, *maybe_repeat), ("4", false), "{client}");
        let first: Vec<u64> = net.nodes[0]
            .disk
            .iter()
            .flat_map(|disk| disk.streams.values())
            .flat_map(|stream| stream.keys())
            .map(|tick| tick.0)
            .collect();
        assert!(
            after.is_some_and(|after| Some(after.tick.0) >= first.into_iter().max()),
            "{client}: {after:?} is what it published last"
        );
        // Nothing is in doubt any more: two round trips, as ever.
        let before = net.now;
        net.arrive(1, client, how);
        assert!(net.now.since(before) <= MILLI * 6, "{client}: {:?}", net.now.since(before));
        net.publish_numbered(1, 5);
        assert_eq!(
            net.logged_at(1).into_iter().map(|(payload, is, _)| (payload, is)).collect::<Vec<_>>(),
            [("5".into(), false)]
        );
    }
}

#[test]
fn doubt_stays_through_a_restart() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = stranded(client, how, &[2]);
        net.kill(1);
        net.revive(0, true);
        net.revive(1, true);
        net.advance(SECOND * 4);
        assert_eq!(net.settled(2, 1, SECOND), ["2"], "{client}: nobody could be asked");
        net.arrive(2, client, how);
        (2..=4).for_each(|number| net.publish_numbered(2, number));
        assert_eq!(net.settled(2, 1, SECOND), ["4"], "{client}: what it repeats is known");
        let marked: Vec<bool> = [1, 2].iter().flat_map(|node| net.logged_at(*node)).map(|(_, is, _)| is).collect();
        assert_eq!(marked, [true, false], "{client}");
    }
}

#[test]
fn as_long_as_a_broker_is_away_what_may_be_a_repeat_is_marked() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = stranded(client, how, &[]);
        net.arrive(2, client, how);
        (2..=3).for_each(|number| net.publish_numbered(2, number));
        assert_eq!(net.settled(2, 1, SECOND).len(), 2);
        assert!(net.logged_at(2).iter().all(|(_, maybe_repeat, _)| *maybe_repeat), "{client}");
        // Who comes back to the same broker is asked for as well.
        net.leave(2, 9);
        net.revive(0, true);
        net.advance(SECOND);
        net.arrive(2, client, how);
        net.publish_numbered(2, 4);
        let last = net.logged_at(2).into_iter().find(|(payload, ..)| payload == "4");
        assert_eq!(last.map(|(_, maybe_repeat, _)| maybe_repeat), Some(false), "{client}");
    }
}

#[test]
fn who_does_not_answer_is_not_waited_for_for_long() {
    for client in CLIENTS {
        let mut net = stranded(client, WAYS[0], &[]);
        net.revive(0, true);
        net.advance(SECOND);
        // Silent, but not known to be gone.
        net.drops = Box::new(|from, _, _| from == 0);
        let before = net.now;
        net.connect_as(2, 9, client, WAYS[0]);
        let present = net.answer(2, 9);
        assert!(net.now.since(before) < SECOND * 4, "{client}: {:?}", net.now.since(before));
        net.drops = Box::new(|_, _, _| false);
        if present.is_some() {
            net.publish_numbered(2, 3);
            let own = net.logged_at(2);
            assert!(own.iter().all(|(_, maybe_repeat, _)| *maybe_repeat), "{client}: {own:?}");
        }
    }
}
