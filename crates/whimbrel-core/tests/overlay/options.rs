//! Options of subscriptions: each goes along when a session moves, is taken from a copy, or is
//! restored; and what other brokers are told of repliers.

use core::time::Duration;

use whimbrel_core::{Filter, Input, Link, SubscriptionSpec};
use whimbrel_event::Qos;
use whimbrel_selector::Selector;

use super::common::{each_option, plain};
use super::net::Net;

const SECOND: Duration = Duration::from_secs(1);

fn text(at: usize) -> String {
    format!("t/{at}")
}

fn subscribe_each(net: &mut Net, node: usize, link: u32) {
    for (at, spec) in each_option().into_iter().enumerate() {
        net.subscribe(node, link, Filter { spec, ..plain(&text(at), spec.qos) });
    }
    net.advance(SECOND * 3);
}

/// The options of the client's subscriptions, as a broker tells them to its operator.
fn told(net: &Net, node: usize) -> Vec<SubscriptionSpec> {
    let all = net.nodes[node].core.subscriptions("bus", None, 100);
    let of = |at| all.iter().find(|info| *info.filter == *text(at)).expect("it is there").spec;
    (0..all.len()).map(of).collect()
}

#[test]
fn every_option_goes_along_when_a_session_is_given_to_another_broker_and_back() {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(0, 1, "bus"), Some(false));
    subscribe_each(&mut net, 0, 1);
    let asked = told(&net, 0);
    assert_eq!(asked.len(), each_option().len());
    for node in [1, 2, 0] {
        assert_eq!(net.connect(node, 1, "bus"), Some(true));
        net.advance(SECOND * 2);
        assert_eq!(told(&net, node), asked, "at {node}");
    }
}

#[test]
fn every_option_is_in_the_copy_from_which_a_session_goes_on_when_its_broker_is_dead() {
    let mut net = Net::mesh(3);
    assert_eq!(net.connect(0, 1, "bus"), Some(false));
    subscribe_each(&mut net, 0, 1);
    let asked = told(&net, 0);
    net.kill(0);
    net.advance(SECOND * 10);
    assert_eq!(net.connect(1, 1, "bus"), Some(true));
    assert_eq!(told(&net, 1), asked);
}

/// Of each entry that a broker knows of another's interest: filter, whether it is durable, and
/// whether it is a replier's.
fn wanted(net: &Net, at: usize, of: usize) -> Vec<(String, bool, bool)> {
    let host = net.nodes[of].core.host();
    let all = net.nodes[at].core.interests(0, 10);
    let info = all.into_iter().find(|info| info.host == host).expect("it is known");
    let entry =
        |entry: &whimbrel_core::overlay::InterestValue| (entry.filter.to_string(), entry.durable, entry.replier);
    let mut entries: Vec<_> = info.entries.iter().map(entry).collect();
    entries.sort_unstable();
    entries
}

#[test]
fn brokers_tell_each_other_which_events_repliers_want_and_when_none_does_any_more() {
    let mut net = Net::line(3);
    net.attach(0, 1, "plain");
    net.attach(0, 2, "replier");
    let entry = |filter: &str, is_replier| (filter.to_owned(), false, is_replier);
    let replier = SubscriptionSpec { is_replier: true, ..SubscriptionSpec::new(Qos::AtLeastOnce) };
    net.subscribe(0, 1, plain("a", Qos::AtLeastOnce));
    net.subscribe(0, 2, plain("b", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(wanted(&net, 2, 0), [entry("a", false), entry("b", false)]);
    net.subscribe(0, 2, Filter { spec: replier, ..plain("a", Qos::AtLeastOnce) });
    net.subscribe(0, 2, Filter { spec: replier, ..plain("b", Qos::AtLeastOnce) });
    net.advance(SECOND);
    assert_eq!(wanted(&net, 2, 0), [entry("a", true), entry("b", true)], "one replier is enough");
    let selector = Selector::parse("x = 1").expect("a selector");
    net.subscribe(0, 2, Filter { selector: Some(&selector), spec: replier, ..plain("b", Qos::AtLeastOnce) });
    net.subscribe(0, 2, plain("a", Qos::AtLeastOnce));
    net.advance(SECOND);
    assert_eq!(wanted(&net, 2, 0), [entry("a", false), entry("b", true)]);
    net.leave(0, 2);
    net.advance(SECOND);
    assert_eq!(wanted(&net, 2, 0), [entry("a", false)]);
}

/// A broker alone keeps no interest. What the subscriptions made by then want is told as soon as
/// there is another broker: with selectors also of sessions that end with their connection, with
/// those of shared subscriptions, and without those that have ended.
#[test]
fn all_that_is_wanted_by_a_broker_alone_is_told_over_its_first_link() {
    let mut net = Net::new(2);
    net.attach(0, 1, "one");
    net.attach(0, 2, "two");
    let selector = Selector::parse("x = 1").expect("a selector");
    let selective = |filter| Filter { selector: Some(&selector), ..plain(filter, Qos::AtMostOnce) };
    net.subscribe(0, 1, plain("gone", Qos::AtMostOnce));
    net.subscribe(0, 1, selective("selected"));
    net.subscribe(0, 1, plain("plain", Qos::AtLeastOnce));
    let shared: Vec<String> = (10..26).map(|number| format!("s{number}")).collect();
    let texts: Vec<String> = shared.iter().map(|filter| format!("$share/them/{filter}")).collect();
    texts.iter().for_each(|text| net.subscribe(0, 2, selective(text)));
    net.input(0, Input::Unsubscribe { link: Link(1), tag: 9, filters: &["gone"] });
    net.advance(SECOND * 3);
    assert_eq!(wanted(&net, 0, 0), [], "nobody is there to be told");
    net.join(0, 1, Duration::from_millis(1));
    net.advance(SECOND * 3);
    // The home of a shared subscription may be either, and it alone wants its events.
    let all = net.nodes[1].core.interests(0, 10);
    let entry = |entry: &whimbrel_core::overlay::InterestValue| {
        (entry.filter.to_string(), entry.selector.as_deref().unwrap_or("").to_owned())
    };
    let mut told: Vec<_> = all.iter().flat_map(|info| info.entries.iter().map(entry)).collect();
    told.sort_unstable();
    let selected = shared.iter().map(|filter| (&**filter, "x = 1")).chain([("selected", "x = 1")]);
    let expected: Vec<_> = [("plain", "")].into_iter().chain(selected).collect();
    assert!(told.iter().map(|(filter, selector)| (&**filter, &**selector)).eq(expected), "{told:?}");
    assert!(wanted(&net, 1, 0).len() > 2, "the homes of some shared subscriptions are where they were");
    net.attach(1, 3, "three");
    for (topic, wanted) in [("plain", 1), ("selected", 0), ("gone", 0)] {
        net.publish(1, 3, topic, "a", Qos::AtLeastOnce);
        net.advance(SECOND);
        assert_eq!(net.got(0, 1).len(), wanted, "{topic}");
    }
}
