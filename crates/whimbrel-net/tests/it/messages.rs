//! Messages between nodes that are not neighbours.

use whimbrel_event::DomainLabel;
use whimbrel_net::forward::HOPS_MAX;
use whimbrel_net::link::peers::UNSENT_LITTLE;
use whimbrel_net::rpc::MessageContent;

use crate::fabric::Fabric;
use crate::fabric::node::{KIND_ASK, KIND_ECHO, KIND_EXAMINED, Received, host_of};
use crate::scenarios::{MILLI, SECOND};

/// A message as its receiver, or a node on its way, sees it.
fn message(ends: [usize; 2], kind: u8, hops: u8, body: &[u8]) -> Received {
    Received { from: host_of(ends[0]), to: host_of(ends[1]), kind, hops, body: body.into() }
}

#[test]
fn a_message_goes_over_several_links_and_is_answered() {
    let mut fabric = Fabric::line(6, MILLI);
    fabric.run(SECOND);
    assert!(fabric.message(0, 5, KIND_ASK, b"anyone there?"));
    fabric.run(MILLI * 10);
    assert_eq!(fabric.node(5).told.messages, [message([0, 5], KIND_ASK, 4, b"anyone there?")]);
    assert_eq!(fabric.node(0).told.messages, [message([5, 0], KIND_ECHO, 4, b"anyone there?")]);
    assert!((1..5).all(|number| fabric.node(number).told.messages.is_empty()));
    let stats = fabric.node(0).net.stats();
    assert_eq!((stats.messages_out, stats.messages_in, stats.messages_unsent), (1, 1, 0));
}

#[test]
fn a_message_without_a_path_is_not_sent() {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.run(SECOND);
    fabric.close(1);
    fabric.run(SECOND);
    assert!(!fabric.message(0, 2, KIND_ASK, b""));
    assert_eq!(fabric.node(0).net.stats().messages_unsent, 1);
}

#[test]
fn a_message_goes_over_at_most_so_many_links() {
    let hops = usize::from(HOPS_MAX);
    let mut fabric = Fabric::line(hops + 3, MILLI);
    fabric.run(SECOND * 4);
    assert!(fabric.is_complete());
    for to in [hops + 1, hops + 2] {
        assert!(fabric.message(0, to, KIND_ECHO, b"far"));
    }
    fabric.run(SECOND);
    assert_eq!(fabric.node(hops + 1).told.messages, [message([0, hops + 1], KIND_ECHO, HOPS_MAX, b"far")]);
    assert_eq!(fabric.node(hops + 2).told.messages, []);
}

#[test]
fn an_event_goes_as_deep_as_a_tree_may_be_and_no_deeper() {
    let depth = whimbrel_wire::DEPTH_MAX;
    let mut fabric = Fabric::line(depth + 2, MILLI);
    fabric.run(SECOND * 4);
    fabric.subscribe(depth, "a");
    fabric.subscribe(depth + 1, "a");
    fabric.run(SECOND * 4);
    assert!(fabric.is_complete() && fabric.knows_interests());
    fabric.publish_topic(0, "a");
    fabric.run(SECOND);
    assert_eq!(fabric.check_order(), Ok(()));
    assert_eq!([depth, depth + 1].map(|number| fabric.node(number).told.delivered.len()), [1, 0]);
    assert!(fabric.node(0).net.stats().unreachable > 0, "it is counted");
}

#[test]
fn kinds_that_are_examined_are_given_to_the_composition_on_their_way() {
    let mut fabric = Fabric::line(4, MILLI);
    fabric.run(SECOND);
    fabric.message(0, 3, KIND_EXAMINED, b"one");
    fabric.message(0, 3, KIND_ECHO, b"unexamined");
    fabric.run(MILLI * 10);
    let seen = |fabric: &Fabric| [1, 2].map(|number| fabric.node(number).told.passing.clone());
    let one = |hops| message([0, 3], KIND_EXAMINED, hops, b"one");
    assert_eq!(seen(&fabric), [vec![one(0)], vec![one(1)]]);
    assert_eq!(fabric.node(3).told.messages, [one(2), message([0, 3], KIND_ECHO, 2, b"unexamined")]);
    // A composition may keep it.
    fabric.node_mut(1).passes_messages = false;
    fabric.message(0, 3, KIND_EXAMINED, b"two");
    fabric.run(MILLI * 10);
    assert_eq!(seen(&fabric).map(|seen| seen.len()), [2, 1]);
    assert_eq!(fabric.node(3).told.messages.len(), 2);
}

#[test]
fn a_bulk_message_waits_for_a_link_with_little_unsent() {
    let mut fabric = Fabric::line(2, MILLI);
    fabric.run(SECOND);
    fabric.limit(0, Some(500));
    let body = vec![1; UNSENT_LITTLE + 1];
    let send = |fabric: &mut Fabric| {
        let content = MessageContent { kind: KIND_ECHO, body: &body, is_bulk: true, label: DomainLabel::ANY };
        fabric.act(0, |node, now, side| node.net.send_to(now, host_of(1), content, side))
    };
    assert!(send(&mut fabric));
    assert!(!send(&mut fabric), "it is sent again later");
    fabric.run(MILLI * 50);
    let unsent = |fabric: &Fabric| fabric.node(0).net.neighbours().next().map(|peer| peer.unsent());
    assert!(unsent(&fabric) > Some(UNSENT_LITTLE));
    assert!(send(&mut fabric), "one per interval, also on a link that is never idle");
    assert!(!send(&mut fabric));
    fabric.run(SECOND);
    assert_eq!(unsent(&fabric), Some(0));
    assert!(send(&mut fabric), "there is room");
    fabric.run(SECOND);
    assert_eq!(fabric.node(1).told.messages.len(), 3);
}
