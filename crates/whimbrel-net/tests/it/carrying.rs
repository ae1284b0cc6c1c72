//! Events are carried to the nodes that want them.

use core::time::Duration;

use whimbrel_event::{EventId, Reliability};
use whimbrel_net::link::peers::{BEST_EFFORT_HIGH, RELIABLE_HIGH, STUCK_AFTER, UNSENT_LITTLE};
use whimbrel_net::traces::TraceStep;
use whimbrel_net::{Channel, HangUp, Hop};

use crate::fabric::node::{Setup, host_of};
use crate::fabric::{Content, Fabric};
use crate::scenarios::{self, MILLI, SECOND};

const HALF: Duration = Duration::from_micros(500);

/// The ids of the events that a node was delivered.
fn ids(fabric: &Fabric, number: usize) -> Vec<EventId> {
    fabric.node(number).told.delivered.iter().map(|event| event.id).collect()
}

/// How often an event went over a link.
fn sent(fabric: &Fabric, id: EventId) -> usize {
    let is_it = |hop: Hop| matches!(hop, Hop::Sent { .. });
    fabric.ledger.hops.iter().filter(|note| note.id == id && is_it(note.hop)).count()
}

#[test]
fn an_event_reaches_the_nodes_that_want_it_and_no_other() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.subscribe(2, "a/+");
    fabric.run(SECOND);
    assert!(fabric.is_complete() && fabric.knows_interests());
    for reliability in [Reliability::Reliable, Reliability::BestEffort] {
        for topic in ["a/b", "b", "a/c"] {
            fabric.publish(0, Content { topic, payload: b"one", reliability, deadline_ms: None });
        }
    }
    fabric.run(MILLI * 2);
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()));
    assert_eq!([0, 1, 2].map(|number| ids(&fabric, number).len()), [0, 0, 4]);
    let stats = fabric.node(0).net.stats();
    assert_eq!((stats.events_forwarded, stats.destinations), (6, 4));
}

#[test]
fn an_event_goes_once_over_each_link_of_its_tree() {
    //   0 ─ 1 ─ 2 ─ 3      4, 5 and 6 behind 2
    let mut fabric = Fabric::line(4, MILLI * 3);
    for leaf in [4, 5, 6] {
        let number = fabric.add(Setup::named(format!("b{leaf}")));
        fabric.link([2, number], MILLI * 2);
    }
    fabric.run(SECOND);
    for number in [2, 3, 4, 6] {
        fabric.subscribe(number, "news/#");
    }
    fabric.subscribe(5, "sport/#");
    fabric.run(SECOND * 2);
    let id = fabric.publish_topic(0, "news/today");
    fabric.run(SECOND);
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()));
    assert_eq!(sent(&fabric, id), 5, "0–1, 1–2, 2–3, 2–4, 2–6");
    assert_eq!([1, 2, 3, 4, 5, 6].map(|number| ids(&fabric, number).len()), [0, 1, 1, 1, 0, 1]);
    let published = fabric.ledger.published[&id].at;
    let way: Vec<_> = fabric.ledger.way(id, 6).into_iter().map(|(node, at)| (node, at.since(published))).collect();
    assert_eq!(way, [(0, Duration::ZERO), (1, MILLI * 3), (2, MILLI * 6), (6, MILLI * 8)]);
    // The age is the sum of the measured delays.
    assert_eq!(fabric.node(6).told.delivered[0].age_us, 8_000);
    let steps: Vec<TraceStep> = fabric.node(2).net.trace_of(id).map(|note| note.what).collect();
    let to = |number| TraceStep::Sent(host_of(number));
    // In the order in which the links came up.
    assert_eq!(steps, [TraceStep::Came(host_of(1), 6_000), to(4), to(6), to(3), TraceStep::Passed]);
}

#[test]
fn around_a_link_that_is_down_and_again_what_was_lost_on_it() {
    // 0 ─ 1 ─ 2 ─ 3, and from 2 over 4 to 3.
    let mut fabric = Fabric::of(5);
    for pair in [[0, 1], [1, 2]] {
        fabric.link(pair, MILLI);
    }
    let direct = fabric.link([2, 3], MILLI);
    for pair in [[2, 4], [4, 3]] {
        fabric.link(pair, MILLI * 5);
    }
    fabric.run(SECOND);
    fabric.subscribe(3, "a");
    fabric.run(SECOND * 2);
    let first = fabric.publish_topic(0, "a");
    fabric.run(MILLI * 10);
    let lost = fabric.publish_topic(0, "a");
    fabric.run(MILLI);
    let repaired = fabric.publish_topic(0, "a");
    fabric.run(MILLI + HALF);
    fabric.close(direct);
    fabric.run(MILLI * 15);
    assert_eq!(ids(&fabric, 3), [first], "the third one waits for the second");
    let way = |id| fabric.ledger.way(id, 3).into_iter().map(|(node, _)| node).collect::<Vec<_>>();
    assert_eq!(way(repaired), [0, 1, 2, 4, 3]);
    assert_eq!(way(lost), [0; 0]);
    fabric.run(MILLI * 150);
    assert_eq!(ids(&fabric, 3), [first, lost, repaired]);
    assert_eq!(fabric.check(), Ok(()));
    let of = |number: usize| fabric.node(number).net.stats();
    assert_eq!([0, 1, 2, 4].map(|number| of(number).repairs), [0, 0, 1, 0]);
    assert_eq!([0, 1, 2, 4].map(|number| of(number).events_answered), [0, 0, 1, 0], "from transit");
    assert_eq!([0, 1, 2, 4].map(|number| of(number).nacks_in), [0, 0, 1, 1]);
    let answers = fabric.node(3).told.delivered.iter().map(|event| event.is_answer);
    assert_eq!(answers.collect::<Vec<_>>(), [false, true, false]);
    // Later events take the other path from the beginning.
    let later = fabric.publish_topic(0, "a");
    fabric.run(SECOND);
    assert_eq!(fabric.ledger.way(later, 3).len(), 5);
    assert_eq!(fabric.node(2).net.stats().repairs, 1);
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()));
}

#[test]
fn worlds_in_which_something_fails_come_right_again() {
    assert_eq!(scenarios::interest_from_afar(|_| {}), Ok(()));
    assert_eq!(scenarios::failure_behind_a_relay(|_| {}), Ok(()));
    assert_eq!(scenarios::failure_before_a_relay(|_| {}), Ok(()));
    assert_eq!(scenarios::isolation(|_| {}), Ok(()));
    assert_eq!(scenarios::change_while_away(|_| {}), Ok(()));
}

#[test]
fn events_of_a_time_without_a_path_arrive_when_there_is_one() {
    let mut fabric = Fabric::line(4, MILLI);
    fabric.run(SECOND);
    for number in 0..4 {
        fabric.subscribe(number, "a");
    }
    fabric.run(SECOND);
    fabric.cut(1);
    for _ in 0..50 {
        for number in 0..4 {
            fabric.publish_topic(number, "a");
        }
        fabric.run(MILLI * 100);
    }
    assert!(fabric.check().is_err(), "there are two halves");
    assert_eq!(fabric.check_order(), Ok(()));
    fabric.heal(1);
    fabric.run(SECOND * 2);
    assert_eq!(fabric.check(), Ok(()));
    assert!((0..4).all(|number| ids(&fabric, number).len() == 150 && fabric.node(number).lost() == 0));
}

#[test]
fn a_link_with_little_room_gets_events_later() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.subscribe(2, "a");
    fabric.run(SECOND);
    fabric.limit(1, Some(20_000));
    let payload = vec![7; 64 << 10];
    let events = 2 * RELIABLE_HIGH / payload.len();
    for number in 0..events {
        for reliability in [Reliability::Reliable, Reliability::BestEffort] {
            fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms: None });
        }
        if number % 16 == 0 {
            fabric.run(MILLI);
        }
    }
    fabric.run(MILLI * 5);
    let peer = |fabric: &Fabric| {
        let peer = fabric.node(1).net.neighbours().find(|peer| peer.host() == Some(host_of(2))).expect("it is up");
        (peer.unsent, peer.counters.events_held_back)
    };
    let (unsent, held_back) = peer(&fabric);
    assert!(held_back > 0);
    for (channel, high) in [(Channel::Reliable, RELIABLE_HIGH), (Channel::BestEffort, BEST_EFFORT_HIGH)] {
        let unsent = unsent[channel as usize];
        assert!((high / 2..high + payload.len() + 100).contains(&unsent), "{channel:?}: {unsent}");
    }
    fabric.run(SECOND * 5);
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()), "all reliable ones");
    // Drivers do not tell of room where little was unsent.
    assert!(peer(&fabric).0.iter().all(|unsent| *unsent < UNSENT_LITTLE));
    let got = ids(&fabric, 2);
    let is_reliable = |id: &&EventId| id.pubend.reliability() == Reliability::Reliable;
    assert_eq!(got.iter().filter(is_reliable).count(), events);
    assert!(got.len() < 2 * events, "of best effort some are dropped");
    assert!(fabric.alive().iter().all(|number| fabric.hung_up(*number).is_empty()));
}

#[test]
fn a_neighbour_that_takes_nothing_is_hung_up() {
    let mut fabric = Fabric::line(2, MILLI);
    fabric.run(SECOND);
    fabric.subscribe(1, "a");
    fabric.run(SECOND);
    fabric.limit(0, Some(0));
    for _ in 0..4 {
        fabric.publish(
            0,
            Content { topic: "a", payload: &[7; 32 << 10], reliability: Reliability::Reliable, deadline_ms: None },
        );
    }
    fabric.run(STUCK_AFTER - SECOND);
    assert_eq!(fabric.hung_up(0), [], "its probes are answered");
    fabric.run(SECOND * 2);
    let why: Vec<HangUp> = fabric.hung_up(0).iter().map(|(_, why)| *why).collect();
    assert_eq!(why, [HangUp::Stuck]);
    assert_eq!(fabric.hung_up(1), []);
    fabric.limit(0, None);
    fabric.heal(0);
    fabric.run(SECOND);
    assert_eq!(fabric.check(), Ok(()));
}

#[test]
fn an_interest_that_ends_and_begins_again() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.subscribe(2, "a");
    fabric.run(SECOND);
    for _ in 0..3 {
        fabric.publish_topic(0, "a");
        fabric.run(SECOND);
        fabric.act(2, |node, now, _| node.unsubscribe(now, "a"));
        fabric.run(SECOND);
        fabric.publish_topic(0, "a");
        fabric.run(SECOND);
        fabric.subscribe(2, "a");
        fabric.subscribe(1, "b");
        fabric.run(SECOND);
    }
    assert_eq!(fabric.check_exact(), Ok(()));
    assert_eq!(fabric.check(), Ok(()));
    assert_eq!(ids(&fabric, 2).len(), 3);
}

#[test]
fn a_node_that_begins_anew_gets_later_events() {
    let mut fabric = Fabric::line(3, MILLI);
    for number in 0..3 {
        fabric.subscribe(number, "a");
    }
    fabric.run(SECOND);
    for restarted in [2, 0, 1] {
        let before = fabric.node(restarted).net.incarnation();
        for number in 0..3 {
            fabric.publish_topic(number, "a");
        }
        fabric.run(HALF);
        fabric.kill(restarted);
        fabric.run(SECOND * 2);
        fabric.revive(restarted);
        fabric.subscribe(restarted, "a");
        fabric.run(SECOND);
        assert!(fabric.is_complete() && fabric.knows_interests());
        let incarnation = fabric.node(restarted).net.incarnation();
        assert!(incarnation > before);
        for number in 0..3 {
            let state = fabric.node(number).net.topology().get(host_of(restarted)).expect("it is known");
            assert_eq!((state.incarnation, &*state.name), (incarnation, fabric.name(restarted)));
            fabric.publish_topic(number, "a");
        }
        fabric.run(SECOND);
        assert_eq!(fabric.check(), Ok(()), "after node {restarted}");
        assert_eq!(fabric.node(restarted).told.joined, 1);
    }
    assert!(fabric.node(1).lost() == 0 && fabric.node(2).lost() > 0, "what node 0 had not sent is told to be lost");
}
