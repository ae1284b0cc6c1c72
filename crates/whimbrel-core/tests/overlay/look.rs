//! The operators' view of several brokers.

use core::time::Duration;

use whimbrel_core::overlay::{EventTrace, PathsPlan, REPLY_BYTES_MAX, STUCK_AFTER, UNSENT_LITTLE};
use whimbrel_core::{Channel, PeerLink};
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

/// b0 - b1 - b2, and a subscriber at b2 that has got an event of b0.
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

/// What a broker knows of an event, in words: microseconds before what has a moment.
fn told(net: &mut Net, node: usize, id: EventId) -> Vec<String> {
    let EventTrace { steps, plan } = net.nodes[node].core.trace(id);
    let steps = steps.iter().map(|step| format!("{} {}", step.after.as_micros(), step.text()));
    steps.chain(plan.iter().flat_map(PathsPlan::lines)).collect()
}

#[test]
fn every_broker_on_the_way_can_tell_what_became_of_an_event() {
    let (mut net, id) = passed();
    let traces: Vec<_> = (0..3).map(|node| told(&mut net, node, id)).collect();
    let expected: [&[&str]; 3] = [
        &["0 sent to b1", "accepted here, on a/b", "for b2, which wants a/+; way b0 > b1 > b2, 2.6 ms"],
        &["0 came from b0, 1.0 ms old", "0 sent to b2"],
        &["0 came from b1, 2.0 ms old", "0 taken for subscriptions here"],
    ];
    assert_eq!(traces, expected);
    net.close(1);
    net.advance(SECOND * 3);
    assert_eq!(told(&mut net, 0, id)[2], "for b2, which wants a/+; no way");
    let unknown = net.nodes[0].core.trace(EventId { pubend: PubendId(0x70), tick: Tick(7) });
    assert_eq!(unknown, EventTrace::default(), "nothing is known");
}

#[test]
fn questions_go_to_any_broker_that_can_be_reached_and_the_answers_come_back() {
    let (mut net, _) = passed();
    let others = net.nodes[0].core.others();
    let names: Vec<_> = others.iter().map(|(_, name)| &**name).collect();
    assert_eq!(names, ["b1", "b2"]);
    let (far, own) = (others[1].0, net.nodes[0].core.host());
    assert!(net.ask_broker(0, far, (7, "how are you?")));
    net.advance(SECOND);
    assert_eq!(net.nodes[2].side.asked, [(own, 7, "how are you?".to_owned())]);
    assert!(net.nodes[1].side.asked.is_empty(), "whoever passes it on does not look at it");
    // The greatest length, and so in bulk.
    let long = "x".repeat(REPLY_BYTES_MAX);
    assert!(net.answer_broker(2, own, (7, "well")) && net.answer_broker(2, own, (8, &long)));
    net.advance(SECOND);
    assert_eq!(net.nodes[0].side.answered, [(far, 7, "well".to_owned()), (far, 8, long)]);

    net.close(1);
    net.advance(SECOND * 3);
    assert!(!net.ask_broker(0, far, (9, "?")) && net.ask_broker(0, others[0].0, (9, "?")));
    assert_eq!(net.nodes[0].core.others(), others, "it is still known");
}

#[test]
fn neighbours_are_named_in_traces_when_their_links_are_gone() {
    let (mut net, id) = passed();
    net.close(0);
    net.advance(SECOND);
    assert!(net.nodes[1].core.links().iter().all(|link| *link.name != *"b0"));
    assert_eq!(told(&mut net, 1, id), ["0 came from b0, 1.0 ms old", "0 sent to b2"]);
}

#[test]
fn interests_are_looked_at_in_pages_and_say_who_has_not_confirmed() {
    let (mut net, _) = passed();
    let first = net.nodes[0].core.interests(0, 1);
    assert_eq!((first.len(), &*first[0].name, first[0].entries.len()), (1, "b0", 0));
    assert_eq!(first[0].unconfirmed, [], "nothing is wanted");
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

#[test]
fn a_neighbour_is_stuck_if_much_is_unsent_and_not_if_nobody_told_that_little_was_sent() {
    for (unsent, is_stuck) in [(UNSENT_LITTLE, false), (UNSENT_LITTLE + 1, true)] {
        let mut net = Net::new(2);
        // As a driver that reports room only where there was little.
        for link in 0..4 {
            net.nodes[0].side.unsent.insert((PeerLink(link), Channel::Control as usize), unsent);
        }
        net.join(0, 1, Duration::from_millis(1));
        net.advance(SECOND);
        let shown = net.nodes[0].core.links()[0].unsent;
        assert_eq!(shown, if is_stuck { unsent } else { 0 });
        net.advance(STUCK_AFTER * 2);
        assert_eq!(net.nodes[0].core.links().is_empty(), is_stuck, "{unsent}");
    }
}
