//! Publishers that number their events and move while a broker is away that may have accepted more
//! of them: no event is taken for new that a broker has.

use core::time::Duration;

use whimbrel_core::{Channel, Input, Link, PeerInput, Publish, Settlement};
use whimbrel_event::{EventId, Qos};
use whimbrel_wire::{BrokerMessage, Frame, MessageFrame, Reply};

use super::common::{event, plain};
use super::moving::{How, RETURN};
use super::net::{Net, frame};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Sessions that end with their connection, and sessions that move.
const WAYS: [How; 2] = [How { expiry: Duration::ZERO, ..RETURN }, RETURN];

/// Its directory broker and its replica differ for each.
const CLIENTS: [&str; 5] = ["p0", "p1", "p2", "p3", "p4"];

impl Net {
    fn publish_numbered(&mut self, node: usize, number: u64) {
        let payload = number.to_string();
        let event = event("t", &payload, Qos::AtLeastOnce);
        self.input(
            node,
            Input::Publish(Publish { link: Link(9), tag: 7, retain: false, number: Some(number), event: &event }),
        );
        self.advance(MILLI * 20);
    }

    fn arrive(&mut self, node: usize, client: &str, how: How) {
        self.connect_as(node, 9, client, how);
        assert!(self.answer(node, 9).is_some(), "{client} at {node}");
    }

    /// The deliveries that the subscriber gets and settles: each with its mark as a possible
    /// repeat, and its predecessor.
    fn told_of(&mut self) -> Vec<(String, bool, Option<EventId>)> {
        let mut all = Vec::new();
        for _ in 0..100 {
            for got in self.got(2, 1) {
                self.input(2, Input::Settle { link: Link(1), tag: got.tag, by: Settlement::Acknowledged });
                all.push((got.payload, got.maybe_repeat, got.after));
            }
            self.advance(MILLI * 10);
        }
        all
    }

    /// As `told_of`, without predecessors.
    fn marks(&mut self) -> Vec<(String, bool)> {
        self.told_of().into_iter().map(|(payload, is_marked, _)| (payload, is_marked)).collect()
    }
}

/// A publisher's broker is killed when it has logged the second and third event, before the
/// publisher knows. The publisher has gone to another broker, where it publishes the numbers in
/// `elsewhere`, and leaves. A subscriber is at the third broker. Also returns the id of that third
/// event.
fn stranded(client: &str, how: How, elsewhere: &[u64]) -> (Net, EventId) {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(2, 1, "sub"), Some(false));
    net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
    net.arrive(0, client, how);
    net.publish_numbered(0, 1);
    assert_eq!(net.settled(2, 1, SECOND), ["1"]);
    // Before any replica has a copy that counts these.
    net.publish_numbered(0, 2);
    net.publish_numbered(0, 3);
    net.kill(0);
    let got = net.got(2, 1);
    assert_eq!(got.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["2", "3"]);
    got.iter()
        .for_each(|got| net.input(2, Input::Settle { link: Link(1), tag: got.tag, by: Settlement::Acknowledged }));
    net.advance(SECOND);
    net.arrive(1, client, how);
    elsewhere.iter().for_each(|number| net.publish_numbered(1, *number));
    net.leave(1, 9);
    net.advance(SECOND);
    (net, got[1].id)
}

#[test]
fn who_could_not_be_asked_at_one_broker_is_asked_at_the_next() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let (mut net, last) = stranded(client, how, &[]);
        net.revive(0, true);
        net.advance(SECOND);
        net.arrive(2, client, how);
        (2..=4).for_each(|number| net.publish_numbered(2, number));
        let told = net.told_of();
        let [(payload, false, Some(after))] = &told[..] else { panic!("{client}: what it repeats is known: {told:?}") };
        assert_eq!(&**payload, "4");
        assert!(
            after.pubend == last.pubend && after.tick >= last.tick,
            "{client}: {after:?} is what it published last"
        );
        // Nothing is in doubt any more: two round trips, as usual.
        let before = net.now;
        net.arrive(1, client, how);
        assert!(net.now.since(before) <= MILLI * 6, "{client}: {:?}", net.now.since(before));
        net.publish_numbered(1, 5);
        assert_eq!(net.marks(), [("5".into(), false)], "{client}");
    }
}

/// The last packets of a client are still in its socket, with its DISCONNECT, when its next broker
/// asks.
#[test]
fn what_is_read_when_the_next_broker_has_asked_is_known_there() {
    let anew = How { clean_start: true, expiry: Duration::ZERO, ..RETURN };
    for (client, how) in CLIENTS.iter().flat_map(|client| [WAYS[0], WAYS[1], anew].map(|how| (*client, how))) {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(2, 1, "sub"), Some(false));
        net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
        net.arrive(0, client, how);
        net.publish_numbered(0, 1);
        assert_eq!(net.marks(), [("1".into(), false)], "{client}");
        net.nodes[0].side.reads_late = true;
        net.connect_as(1, 9, client, how);
        net.advance(MILLI * 20);
        assert!(net.told(1, 9).is_empty(), "{client}: it waits for what the other broker has not read");
        net.publish_numbered(0, 2);
        net.leave(0, 9);
        assert!(net.answer(1, 9).is_some(), "{client}");
        (2..=3).for_each(|number| net.publish_numbered(1, number));
        assert_eq!(net.marks(), [("2".into(), false), ("3".into(), false)], "{client}, {:?}", how.expiry);
    }
}

/// A broker that has lost its disk has a handshake with another one, which knows the former host of
/// its name and has not been able to tell.
#[test]
fn who_is_only_just_met_may_know_of_one_that_is_gone() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = Net::mesh(3);
        net.arrive(2, client, how);
        net.publish_numbered(2, 1);
        (0..3).for_each(|node| net.kill(node));
        net.revive(0, false);
        net.revive(2, false);
        assert_eq!(net.connect(2, 1, "sub"), Some(false));
        net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
        net.revive(1, true);
        // Nothing but its handshake has arrived.
        net.advance(MILLI);
        net.arrive(2, client, how);
        net.publish_numbered(2, 1);
        assert_eq!(net.marks(), [("1".into(), true)], "{client}");
    }
}

/// The greater epoch does not prove that it was the only one: each side of a partition has events
/// that the other one lacks.
#[test]
fn what_was_published_on_both_sides_of_a_cut_comes_before_what_follows() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(2, 1, "sub"), Some(false));
        net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
        net.arrive(0, client, how);
        net.publish_numbered(0, 1);
        [1, 2].into_iter().for_each(|other| net.part([0, other]));
        net.publish_numbered(0, 2);
        net.advance(SECOND * 3);
        net.arrive(1, client, how);
        net.publish_numbered(1, 3);
        assert_eq!(net.marks(), [("1".into(), false), ("3".into(), true)], "{client}");
        net.drops = Box::new(|from, channel, bytes| {
            from == 0 && channel == Channel::Reliable && matches!(frame(bytes), Some(Frame::Event(_)))
        });
        net.link_all(0);
        net.advance(SECOND);
        net.arrive(1, client, how);
        net.publish_numbered(1, 4);
        assert_eq!(net.marks(), [], "{client}: it waits for what the other side had");
        net.drops = Box::new(|_, _, _| false);
        assert_eq!(net.marks(), [("2".into(), false), ("4".into(), false)], "{client}");
    }
}

/// The broker that has more of a publisher's events comes back while that one's session, or the
/// place where it ended, is fetched from another broker.
#[test]
fn who_comes_back_while_a_session_is_fetched_elsewhere_is_asked_all_the_same() {
    let cases = CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how)));
    let cases = cases.flat_map(|(client, how)| [50, 350, 650].map(|pause| (client, how, MILLI * pause)));
    for (client, how, pause) in cases {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(2, 1, "sub"), Some(false));
        net.subscribe_durably(2, 1, "t", Qos::AtLeastOnce);
        net.arrive(2, client, how);
        net.publish_numbered(2, 1);
        net.leave(2, 9);
        net.arrive(0, client, how);
        [2, 3].into_iter().for_each(|number| net.publish_numbered(0, number));
        net.kill(0);
        let before: Vec<String> = net.marks().into_iter().map(|(payload, _)| payload).collect();
        assert_eq!(before, ["1", "2", "3"], "{client}");
        // The fetch takes longer than the other broker needs to be there.
        net.delay([1, 2], MILLI * 300);
        net.connect_as(1, 9, client, how);
        net.advance(pause);
        net.revive(0, true);
        if net.answer(1, 9).is_some() {
            (2..=4).for_each(|number| net.publish_numbered(1, number));
            let marks = net.marks();
            let [known @ .., (last, _)] = &marks[..] else { panic!("{client}: nothing comes") };
            assert_eq!(&**last, "4", "{client}: {marks:?}");
            assert!(known.iter().all(|(_, is_marked)| *is_marked), "{client} after {pause:?}: {marks:?}");
        }
    }
}

/// A lost broker cannot be asked which events it had accepted, and a broker that knows of the loss
/// may have been restarted since.
#[test]
fn whoever_is_started_again_knows_that_a_broker_has_lost_what_publishers_had_said_there() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let (mut net, _) = stranded(client, how, &[]);
        net.revive(0, false);
        net.advance(SECOND * 2);
        net.kill(1);
        net.revive(1, true);
        net.advance(SECOND * 3);
        net.arrive(1, client, how);
        (2..=3).for_each(|number| net.publish_numbered(1, number));
        let again = net.marks();
        assert_eq!(again, [("2".into(), true), ("3".into(), true)], "{client}");
    }
}

#[test]
fn doubt_stays_through_a_restart() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let (mut net, _) = stranded(client, how, &[2]);
        assert_eq!(net.marks(), [("2".into(), true)], "{client}: nobody could be asked");
        net.kill(1);
        net.revive(0, true);
        net.revive(1, true);
        net.advance(SECOND * 4);
        net.arrive(2, client, how);
        (2..=4).for_each(|number| net.publish_numbered(2, number));
        assert_eq!(net.marks(), [("4".into(), false)], "{client}: what it repeats is known");
    }
}

#[test]
fn as_long_as_a_broker_is_away_what_may_be_a_repeat_is_marked() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let (mut net, _) = stranded(client, how, &[]);
        net.arrive(2, client, how);
        (2..=3).for_each(|number| net.publish_numbered(2, number));
        assert_eq!(net.marks(), [("2".into(), true), ("3".into(), true)], "{client}");
        // A publisher that comes back to the same broker is asked for as well.
        net.leave(2, 9);
        net.revive(0, true);
        net.advance(SECOND);
        net.arrive(2, client, how);
        net.publish_numbered(2, 4);
        assert_eq!(net.marks(), [("4".into(), false)], "{client}");
    }
}

#[test]
fn who_does_not_answer_is_not_waited_for_for_long() {
    let mut marked = 0;
    for client in CLIENTS {
        let (mut net, _) = stranded(client, WAYS[0], &[]);
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
            let marks = net.marks();
            assert!(marks.iter().all(|(_, is_marked)| *is_marked), "{client}: {marks:?}");
            marked += marks.len();
        }
    }
    assert!(marked > 0);
}

#[test]
fn who_was_started_again_may_have_forgotten_what_it_had_not_logged() {
    for (client, how) in CLIENTS.iter().flat_map(|client| WAYS.map(|how| (*client, how))) {
        let mut net = Net::mesh(3);
        // A session that ends with its connection: nothing is logged for it.
        net.connect_as(2, 1, "sub", WAYS[0]);
        assert_eq!(net.answer(2, 1), Some(false));
        net.subscribe(2, 1, plain("t", Qos::AtLeastOnce));
        net.advance(SECOND);
        net.arrive(0, client, how);
        net.publish_numbered(0, 1);
        assert_eq!(net.marks(), [("1".into(), false)], "{client}: nobody was started again yet");
        net.kill(0);
        net.revive(0, true);
        net.advance(SECOND);
        net.arrive(1, client, how);
        net.publish_numbered(1, 2);
        net.leave(1, 9);
        net.arrive(2, client, how);
        net.publish_numbered(2, 3);
        assert_eq!(net.marks(), [("2".into(), true), ("3".into(), true)], "{client}");
        // A publisher that resumes after that long repeats nothing from before.
        net.leave(2, 9);
        net.advance(SECOND * 601);
        net.arrive(1, client, how);
        net.publish_numbered(1, 4);
        assert_eq!(net.marks(), [("4".into(), false)], "{client}");
    }
}

/// An answer of a restarted broker may arrive by another way than its new link state, and before
/// it.
#[test]
fn who_writes_in_a_life_of_which_nobody_was_told_was_started_again() {
    for (is_later, mark) in [(false, false), (true, true)] {
        let mut net = Net::mesh(3);
        net.connect_as(2, 1, "sub", WAYS[0]);
        net.subscribe(2, 1, plain("t", Qos::AtLeastOnce));
        net.advance(SECOND);
        let [one, other] = [0, 1].map(|node: usize| net.nodes[node].core.host());
        let incarnation = net.nodes[1].core.topology(net.now).into_iter().find(|broker| broker.host == one);
        let incarnation = incarnation.expect("it is there").incarnation + u64::from(is_later);
        let (mut body, mut frame) = (Vec::new(), Vec::new());
        let kind = BrokerMessage::Reply(Reply { number: 7, text: "" }).encode(&mut body);
        let (to, from, label) = (other, one, whimbrel_event::DomainLabel::ANY);
        let message = MessageFrame { to, hops: 1, is_bulk: false, from, incarnation, kind, label, body: &body };
        Frame::MessageFrame(message).encode(&mut frame);
        // The third broker has passed it on.
        let (_, link) = net.ends(2).into_iter().find(|(node, _)| *node == 1).expect("both ends have one");
        net.input(1, Input::Peer(PeerInput::Bytes { link, channel: Channel::Control, bytes: &frame }));
        net.arrive(1, "p", WAYS[0]);
        net.publish_numbered(1, 1);
        assert_eq!(net.marks(), [("1".into(), mark)]);
    }
}
