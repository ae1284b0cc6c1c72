//! What operators see of several brokers.

use core::time::Duration;

use whimbrel_event::{EventId, PubendId, Qos, Tick};

use crate::common::{Told, plain};
use crate::net::Net;

const SECOND: Duration = Duration::from_secs(1);

/// The id of an event that a client has just got.
fn got(net: &mut Net, node: usize, link: u32) -> EventId {
    let told = net.told(node, link);
    let id = told.into_iter().find_map(|told| if let Told::Event(got) = told { Some(got.id) } else { None });
    id.expect("it has come")
}

/// b0 - b1 - b2, and somebody at b2 who has got an event of b0.
fn passed() -> (Net, EventId) {
    let mut net = Net::line(3);
    net.attach(2, 1, "s");
    net.attach(0, 1, "p");
    net.subscribe(2, 1, plain("a/+", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(2, 1);
    net.publish(0, 1, "a/b", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    let id = got(&mut net, 2, 1);
    (net, id)
}

fn texts(name: &str) -> Box<str> {
    name.into()
}

#[test]
fn every_broker_on_the_way_tells_what_became_of_an_event() {
    let (mut net, id) = passed();
    let question = net.ask_trace(1, id);
    assert_eq!((question.asked.len(), question.missed.len()), (2, 0));
    assert_eq!(net.nodes[1].core.trace_answered(question.id), 0);
    net.advance(SECOND);
    let mut answers = net.nodes[1].core.trace_answers(question.id);
    answers.sort();
    let expected = [
        (texts("b0"), texts("0 sent to b1\naccepted here, on a/b\nfor b2, which wants a/+; way b0 > b1 > b2\n")),
        (texts("b2"), texts("0 came from b1\n0 taken for subscriptions here\n")),
    ];
    assert_eq!(answers, expected);
    assert_eq!(net.nodes[1].core.trace(id), "0 came from b0\n0 sent to b2\n");
    let later = net.ask_trace(1, id);
    assert_eq!((net.nodes[1].core.trace_answered(question.id), later.id), (0, question.id + 1), "a question at a time");
}

#[test]
fn who_knows_nothing_says_so_and_who_cannot_be_reached_is_named() {
    let (mut net, id) = passed();
    net.close(1);
    net.advance(SECOND * 3);
    let unknown = EventId { pubend: PubendId(0x70), tick: Tick(7) };
    let question = net.ask_trace(0, unknown);
    assert_eq!((question.asked, question.missed), (vec![texts("b1")], vec![texts("b2")]));
    net.advance(SECOND);
    assert_eq!(net.nodes[0].core.trace_answers(question.id), [(texts("b1"), texts(""))]);
    let text = net.nodes[0].core.trace(id);
    assert!(text.contains("for b2, which wants a/+; way \n"), "{text}");
}

#[test]
fn neighbours_are_named_in_traces_when_their_links_are_gone() {
    let (mut net, id) = passed();
    net.close(0);
    net.advance(SECOND);
    assert!(net.nodes[1].core.links().iter().all(|link| *link.name != *"b0"));
    assert_eq!(net.nodes[1].core.trace(id), "0 came from b0\n0 sent to b2\n");
}

#[test]
fn interests_are_looked_at_in_pages_and_say_who_has_not_confirmed() {
    let (mut net, _) = passed();
    let first = net.nodes[0].core.interests(0, 1);
    assert_eq!((first.len(), &*first[0].name, first[0].entries.len()), (1, "b0", 0));
    net.attach(1, 1, "t");
    net.subscribe(1, 1, plain("c", Qos::AtLeastOnce));
    net.advance(SECOND);
    let others = net.nodes[0].core.interests(1, 10);
    let mut names: Vec<_> = others.iter().map(|info| (&*info.name, info.entries.len(), info.is_reachable)).collect();
    names.sort_unstable();
    assert_eq!(names, [("b1", 1, true), ("b2", 1, true)]);
    let last = net.nodes[0].core.interests(2, 10);
    assert_eq!(last, others[1..]);
    assert_eq!(net.nodes[0].core.interests(3, 10), []);

    let own = |net: &Net| net.nodes[2].core.interests(0, 1).remove(0);
    let before = own(&net);
    assert_eq!(before.unconfirmed, []);
    net.drops = Box::new(|node, _, _| node == 0);
    net.subscribe(2, 1, plain("b", Qos::AtLeastOnce));
    net.advance(Duration::from_millis(500));
    let after = own(&net);
    assert_eq!((after.version, after.entries.len()), (before.version + 1, 2));
    assert_eq!(after.unconfirmed, [texts("b0")]);
}
