//! Brokers that are restarted, with their disks or without, while reports about them or questions
//! to them are still pending.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Durability, Filter, Input, Link, SubscriptionSpec};
use whimbrel_event::Qos;
use whimbrel_wire::{BrokerMessage, Frame};

use super::common::plain;
use super::lives::part;
use super::moving::{RETURN, exactly};
use super::net::{Net, frame};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Its directory broker and its replica differ for each.
const CLIENTS: [&str; 5] = ["s0", "s1", "s2", "s3", "s4"];

/// A broker is killed, and comes back with its disk.
fn start_again(net: &mut Net, node: usize) {
    net.kill(node);
    net.revive(node, true);
    net.advance(SECOND * 3);
}

/// Silence names the incarnation of the broker that it is for, and not its host.
#[test]
fn brokers_that_begin_at_the_same_moment_have_incarnations_of_their_own() {
    let mut net = Net::mesh(8);
    let incarnation = |net: &Net, node: usize| {
        let host = net.nodes[node].core.host();
        let known = net.nodes[node].core.topology(net.now).into_iter().find(|broker| broker.host == host);
        known.expect("each broker knows itself").incarnation
    };
    let all: BTreeSet<u64> = (0..8).map(|node| incarnation(&net, node)).collect();
    assert_eq!(all.len(), 8);
    let before = incarnation(&net, 3);
    start_again(&mut net, 3);
    assert!(incarnation(&net, 3) > before, "the next life of a host is the later one");
}

/// A client of the second broker subscribes, wants to be told of gaps, and leaves.
fn subscribe_and_leave(net: &mut Net, durability: Durability) {
    assert_eq!(net.connect(1, 1, "sub"), Some(false));
    let spec = SubscriptionSpec { durability, notices: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    net.subscribe(1, 1, Filter { spec, ..plain("t", Qos::AtLeastOnce) });
    net.advance(SECOND * 2);
    net.leave(1, 1);
    net.advance(SECOND);
}

#[test]
fn what_is_lost_is_told_however_often_whoever_is_to_tell_it_is_started_again() {
    for restarts in 0..4 {
        let mut net = Net::mesh(2);
        let lost = net.nodes[0].core.host().pubend(0).to_string();
        subscribe_and_leave(&mut net, Durability::Durable);
        net.kill(0);
        net.revive(0, false);
        net.advance(SECOND * 3);
        (0..restarts).for_each(|_| start_again(&mut net, 1));
        // It is told once, and not again.
        for expected in [1, 0] {
            net.told(1, 1);
            assert_eq!(net.connect(1, 1, "sub"), Some(true));
            let told = net.settled(1, 1, SECOND * 3);
            let is_it = |notice: &&String| notice.contains(&lost) && notice.contains("lost");
            assert_eq!(told.iter().filter(is_it).count(), expected, "after {restarts} restarts: {told:?}");
            start_again(&mut net, 1);
        }
    }
}

/// The streams of that broker begin while the subscriber is away, so the subscription has no
/// position in them.
#[test]
fn what_is_lost_of_a_broker_that_has_come_while_a_client_was_away_is_told() {
    let mut net = Net::mesh(2);
    subscribe_and_leave(&mut net, Durability::SemiDurable);
    net.nodes.push(Net::node(2, 77, net.now));
    let wire = net.join(1, 2, MILLI);
    net.advance(SECOND * 3);
    assert_eq!(net.connect(2, 9, "publisher"), Some(false));
    let streams: Vec<String> = net.nodes[2].core.host().all_reliable().map(|pubend| pubend.to_string()).collect();
    // No other broker receives the next events.
    net.cut(wire);
    net.advance(MILLI * 10);
    let published = net.now.as_nanos();
    net.publish(2, 9, "t", "gone", Qos::AtLeastOnce);
    net.restart(2, 99);
    net.close(wire);
    net.join(1, 2, MILLI);
    net.advance(SECOND * 3);
    assert_eq!(net.connect(1, 1, "sub"), Some(true));
    let told = net.settled(1, 1, SECOND * 3);
    let upto = |notice: &String| part(notice, "to")?.parse::<u64>().ok();
    for stream in streams {
        let mut gaps = told.iter().filter(|notice| notice.contains(&stream) && notice.contains("lost"));
        assert!(gaps.any(|gap| upto(gap) >= Some(published)), "{stream} after {published}: {told:?}");
    }
}

/// A client goes to a broker that knows more of a stream than it has passed, as an event before
/// that was lost on the way: that knowledge was told under the interest before the client came.
/// Then the stream ends.
#[test]
fn what_was_known_where_a_client_comes_says_nothing_of_what_it_wants_when_a_stream_ends() {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(2, 5, "other"), Some(false));
    net.subscribe_durably(2, 5, "e", Qos::AtLeastOnce);
    assert_eq!(net.connect(0, 1, "sub"), Some(false));
    let spec =
        SubscriptionSpec { durability: Durability::Durable, notices: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    net.subscribe(0, 1, Filter { spec, ..plain("#", Qos::AtLeastOnce) });
    assert_eq!(net.connect(1, 9, "publisher"), Some(false));
    net.advance(SECOND * 2);
    // Events for the first broker do not arrive there.
    net.delay([0, 1], SECOND * 60);
    net.drops = Box::new(|from, _, _| from == 1);
    net.publish(1, 9, "e", "lost on the way", Qos::AtLeastOnce);
    net.advance(MILLI);
    net.drops = Box::new(|_, _, _| false);
    net.publish(1, 9, "t", "gone", Qos::AtLeastOnce);
    let published = net.now.as_nanos();
    net.advance(MILLI * 5);
    net.publish(1, 9, "e", "known", Qos::AtLeastOnce);
    net.advance(MILLI);
    net.kill(1);
    assert_eq!(net.connect(2, 1, "sub"), Some(true));
    net.advance(SECOND);
    let streams: Vec<String> = net.nodes[1].core.host().all_reliable().map(|pubend| pubend.to_string()).collect();
    net.revive(1, false);
    net.advance(SECOND * 2);
    let told = net.settled(2, 1, SECOND);
    let tick = |notice: &String, edge: &str| part(notice, edge)?.parse::<u64>().ok();
    let hides = |gap: &String| tick(gap, "from") < Some(published) && tick(gap, "to") >= Some(published);
    assert!(told.iter().any(|told| told == "known"), "what is there it gets: {told:?}");
    for stream in streams {
        let mut gaps = told.iter().filter(|gap| gap.contains(&stream) && gap.contains("lost"));
        assert!(gaps.any(hides), "{stream} at {published}: {told:?}");
    }
}

/// Three brokers. A client has subscribed at the first and left, an event for it was published at
/// the second, and the first is gone.
fn something_is_owed(client: &str) -> Net {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(1, 9, "publisher"), Some(false));
    assert_eq!(net.connect(0, 1, client), Some(false));
    net.subscribe_durably(0, 1, "t", Qos::AtLeastOnce);
    net.leave(0, 1);
    net.advance(SECOND);
    net.publish_all(1, 9, &["one"]);
    net.advance(SECOND);
    net.kill(0);
    net.advance(SECOND);
    net
}

/// After a while the second keeps nothing of the log for it.
fn assert_nothing_is_owed(net: &mut Net, client: &str) {
    net.advance(SECOND * 60);
    let streams = net.nodes[1].core.streams();
    assert!(streams.iter().all(|stream| stream.chopped >= stream.logged), "{client}: {streams:?}");
}

/// Four brokers. A client has subscribed at the first and left, and the first is gone.
fn keeper_is_gone(client: &str) -> Net {
    let mut net = Net::mesh(4);
    assert_eq!(net.connect(0, 1, client), Some(false));
    net.subscribe_durably(0, 1, "t", Qos::AtLeastOnce);
    net.leave(0, 1);
    net.advance(SECOND);
    net.kill(0);
    net.advance(SECOND);
    net
}

/// A broker has lost its disk, and a session of its former host comes back to it from a copy. The
/// hold for that host is kept until other brokers know the needs of the session, and no longer.
#[test]
fn what_is_owed_to_a_broker_that_has_ended_is_kept_until_its_sessions_are_safe_elsewhere() {
    for client in CLIENTS {
        let mut net = something_is_owed(client);
        net.revive(0, false);
        // No report of its needs is received.
        net.drops = Box::new(|from, _, bytes| {
            let Some(Frame::MessageFrame(message)) = frame(bytes) else { return false };
            from == 0 && matches!(BrokerMessage::decode(message.kind, message.body), Ok(BrokerMessage::HoldReport(_)))
        });
        net.advance(SECOND);
        assert_eq!(net.connect(0, 1, client), Some(true), "{client}");
        net.leave(0, 1);
        net.advance(SECOND * 5);
        net.drops = Box::new(|_, _, _| false);
        net.advance(SECOND * 15);
        assert_eq!(net.connect(0, 1, client), Some(true));
        assert_eq!(net.settled(0, 1, SECOND * 2), ["one"], "{client}");
        assert_nothing_is_owed(&mut net, client);
    }
}

/// Its session has moved to a third broker, and ends there. That broker loses its disk before it
/// has reported that the session is safe.
#[test]
fn nothing_is_owed_for_a_session_that_ended_with_the_broker_that_had_it_last() {
    for client in CLIENTS {
        let mut net = something_is_owed(client);
        assert_eq!(net.connect(2, 1, client), Some(true), "{client}");
        net.advance(SECOND * 2);
        net.drops = Box::new(|_, _, bytes| {
            let Some(Frame::MessageFrame(message)) = frame(bytes) else { return false };
            matches!(BrokerMessage::decode(message.kind, message.body), Ok(BrokerMessage::Settled(_)))
        });
        net.revive(0, false);
        net.advance(MILLI * 200);
        net.input(2, Input::Detach { link: Link(1), publish_will: false, expiry: Some(Duration::ZERO) });
        net.advance(SECOND);
        net.kill(2);
        net.drops = Box::new(|_, _, _| false);
        net.advance(SECOND);
        net.revive(2, false);
        net.advance(SECOND * 5);
        assert_nothing_is_owed(&mut net, client);
    }
}

/// As the test above, where the replica gets no answer for long when it asks for other states of
/// the session.
#[test]
fn what_is_owed_to_a_broker_that_has_ended_is_kept_while_its_sessions_are_sought_in_vain() {
    for client in CLIENTS {
        let mut net = something_is_owed(client);
        net.drops = Box::new(|_, _, bytes| {
            let Some(Frame::MessageFrame(message)) = frame(bytes) else { return false };
            matches!(BrokerMessage::decode(message.kind, message.body), Ok(BrokerMessage::Found(_)))
        });
        net.revive(0, false);
        net.advance(SECOND * 8);
        net.drops = Box::new(|_, _, _| false);
        assert_eq!(net.connect(0, 1, client), Some(true), "{client}");
        assert_eq!(net.settled(0, 1, SECOND * 2), ["one"], "{client}");
        assert_nothing_is_owed(&mut net, client);
    }
}

/// There are copies of its session from when it was at another broker, and they are sought when
/// that broker has ended.
#[test]
fn who_is_attached_elsewhere_stays_so_when_a_former_keeper_ends() {
    for (client, pause) in (0..16).flat_map(|client| [0, 15].map(|pause| (format!("s{client}"), pause))) {
        let mut net = keeper_is_gone(&client);
        assert_eq!(net.connect(1, 1, &client), Some(true), "{client}");
        net.advance(SECOND * pause);
        net.revive(0, false);
        net.advance(SECOND * 15);
        assert!(!net.is_kicked(1, 1), "{client}, which came {pause} s before");
    }
}

/// The client comes while they are sought.
#[test]
fn who_comes_as_a_former_keeper_ends_stays() {
    for (client, pause) in (0..16).flat_map(|client| [0, 2, 5, 20, 60].map(|pause| (format!("s{client}"), pause))) {
        let mut net = keeper_is_gone(&client);
        net.delay([1, 2], MILLI * 20);
        net.delay([1, 3], MILLI * 20);
        net.revive(0, false);
        net.advance(MILLI * pause);
        assert_eq!(net.connect(1, 1, &client), Some(true), "{client}, {pause} ms after");
        net.advance(SECOND * 10);
        assert!(!net.is_kicked(1, 1), "{client}, which came {pause} ms after");
    }
}

/// This broker has a copy of the session from an earlier owner, which is sought when that broker
/// ends.
#[test]
fn who_is_connected_gets_what_comes_after_an_earlier_keeper_has_ended() {
    for pause in [1, 20, 100, 300, 600] {
        let mut net = Net::mesh(2);
        assert_eq!(net.connect(0, 1, "sub"), Some(false));
        net.subscribe_durably(0, 1, "t", Qos::ExactlyOnce);
        assert_eq!(net.connect(1, 1, "sub"), Some(true));
        net.advance(MILLI * pause);
        net.kill(0);
        net.revive(0, false);
        net.advance(SECOND * 5);
        assert_eq!(net.connect(1, 9, "publisher"), Some(false));
        net.publish(1, 9, "t", "1", Qos::ExactlyOnce);
        net.advance(SECOND);
        let got: Vec<String> = net.got(1, 1).into_iter().map(|got| got.payload).collect();
        assert_eq!(got, ["1"], "{pause} ms after it came");
    }
}

/// The owner is gone, and the replica is restarted while it is asked for the copy.
#[test]
fn a_copy_that_is_forgotten_while_it_is_asked_for_is_not_taken_for_none() {
    let mut refused = 0;
    for (client, pause) in CLIENTS.iter().flat_map(|client| [20, 250, 450].map(|pause| (*client, pause))) {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(0, 1, client), Some(false));
        net.subscribe_durably(0, 1, "t", Qos::AtLeastOnce);
        net.kill(0);
        net.advance(MILLI * 100);
        net.delay([1, 2], MILLI * 150);
        net.connect_as(2, 1, client, RETURN);
        net.advance(MILLI * pause);
        net.kill_silently(1);
        net.revive(1, true);
        let present = net.answer(2, 1);
        assert_ne!(present, Some(false), "{client} after {pause} ms: its keeper has it");
        refused += usize::from(present.is_none());
    }
    assert!(refused > 0);
}

/// A broker that has lost its disk hears of a broker that is gone from another one, and is
/// restarted before the next broker of that name is there.
#[test]
fn who_has_heard_of_a_broker_that_is_gone_tells_whoever_has_its_name_by_then() {
    let mut net = Net::mesh(3);
    let gone = net.nodes[0].core.host();
    net.kill(0);
    net.kill(2);
    net.advance(SECOND);
    net.revive(2, false);
    net.advance(SECOND * 2);
    assert!(net.nodes[2].core.has_heard_of(gone));
    net.kill(1);
    net.kill(2);
    net.revive(2, true);
    net.advance(SECOND * 2);
    net.revive(0, false);
    net.advance(SECOND * 2);
    net.revive(1, false);
    net.advance(SECOND * 2);
    let heard: Vec<bool> = net.nodes.iter().map(|node| node.core.has_heard_of(gone)).collect();
    assert_eq!(heard, [true; 3], "that it has ended");
}

fn publish_exactly(net: &mut Net, payload: &str) {
    net.publish(0, 9, "t", payload, Qos::ExactlyOnce);
    net.input(0, Input::Release { link: Link(9), tag: 77 });
}

/// The first broker has the remains of a session that moved to the third, which is out of reach;
/// the second, which may have a copy, was restarted. The set of brokers was unchanged for `calm`
/// before that. Also returns the payloads that the client knows.
fn went_to_one_that_is_gone(count: usize, client: &str, calm: Duration) -> (Net, BTreeSet<u16>) {
    let mut net = Net::mesh(count);
    assert_eq!(net.connect(0, 9, "publisher"), Some(false));
    assert_eq!(net.connect(0, 1, client), Some(false));
    net.subscribe_durably(0, 1, "t", Qos::ExactlyOnce);
    net.advance(calm);
    // The session stays in its former place as well while a broker of a stream that it has a
    // position in is away.
    net.kill(3);
    assert_eq!(net.connect(2, 2, client), Some(true));
    publish_exactly(&mut net, "1");
    let mut known = BTreeSet::new();
    assert_eq!(exactly(&mut net, &mut known, (2, 2), SECOND * 4), ["1"]);
    net.kill_silently(2);
    net.kill(1);
    net.revive(1, true);
    net.advance(SECOND * 4);
    (net, known)
}

/// A session has been at its new broker for long, and the replica is restarted when that broker is
/// gone: the remains at its former broker are old.
#[test]
fn what_was_copied_where_it_went_does_not_go_on_from_where_it_was_before() {
    let mut refused = 0;
    for (client, next) in CLIENTS.iter().flat_map(|client| [0, 1].map(|next| (*client, next))) {
        let (mut net, mut known) = went_to_one_that_is_gone(4, client, Duration::ZERO);
        let present = net.connect(next, 3, client);
        assert_ne!(present, Some(false), "{client} at {next}");
        refused += usize::from(present.is_none());
        let again = exactly(&mut net, &mut known, (next, 3), SECOND);
        assert!(again.is_empty(), "{client} at {next} gets {again:?} again");
        net.revive(2, true);
        net.advance(SECOND * 2);
        assert_eq!(net.connect(next, 4, client), Some(true), "{client} at {next}");
        publish_exactly(&mut net, "2");
        assert_eq!(exactly(&mut net, &mut known, (next, 4), SECOND * 4), ["2"], "{client} at {next}");
    }
    assert!(refused > 0);
}

/// As the test above, at a broker that never had the session: it waits, and the owner comes back
/// meanwhile.
#[test]
fn a_keeper_that_comes_back_while_an_older_state_is_asked_for_is_asked() {
    let mut waited = 0;
    for client in CLIENTS {
        let (mut net, mut known) = went_to_one_that_is_gone(5, client, SECOND * 25);
        net.connect_as(4, 3, client, RETURN);
        net.advance(MILLI * 500);
        net.revive(2, true);
        let link = if let Some(present) = net.answer(4, 3) {
            assert!(present, "{client}");
            waited += 1;
            3
        } else {
            net.advance(SECOND * 4);
            assert_eq!(net.connect(4, 4, client), Some(true), "{client}");
            4
        };
        let again = exactly(&mut net, &mut known, (4, link), SECOND);
        assert!(again.is_empty(), "{client} gets {again:?} again");
    }
    assert!(waited > 0);
}

/// The owner is gone, only the replica knows of the session, and that is restarted, too. The owner
/// comes back while the copy is asked for.
#[test]
fn a_keeper_that_comes_back_while_a_copy_is_asked_for_that_is_gone_is_asked() {
    let mut found = 0;
    for client in (0..16).map(|client| format!("s{client}")) {
        let mut net = Net::mesh(3);
        assert_eq!(net.connect(0, 1, &client), Some(false));
        net.subscribe_durably(0, 1, "t", Qos::AtLeastOnce);
        net.kill(0);
        net.kill(2);
        net.revive(2, true);
        net.advance(SECOND * 4);
        net.kill(1);
        net.revive(1, true);
        net.advance(SECOND);
        net.delay([1, 2], MILLI * 150);
        net.connect_as(2, 1, &client, RETURN);
        net.advance(MILLI * 50);
        net.revive(0, true);
        let present = net.answer(2, 1);
        assert_ne!(present, Some(false), "{client}: its keeper has it");
        found += usize::from(present.is_some());
    }
    assert!(found > 0);
}
