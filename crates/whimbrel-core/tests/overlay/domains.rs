//! Domains: no frame with the content of a labelled event goes to, or over, a broker outside of its
//! domains. Each place that hands content on has a world in which it would leak there.
//!
//! Events below `eu/` belong to the domain `eu`. The bytes of each frame are searched for a
//! payload.

use whimbrel_core::{
    Accepted, Attach, Broker, Channel, DomainPlace, Durability, Filter, Granted, Input, Link, PeerInput, Profile,
    Publish, Refusal, SubscriptionSpec,
};
use whimbrel_event::Domains;
use whimbrel_wire::LinkStateFrame;

use super::common::will;
use super::moving::RETURN;
use super::net::frame;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// The payload that does not leave.
const MARKED: &str = "this-stays-in-the-domain";

const EU: Domain = "eu";
const US: Domain = "us";
const NONE: Domain = "";

type Domain = &'static str;

fn profile() -> Profile {
    let domains = Domains::of(["eu"]).expect("a valid name");
    Profile { filter: "eu/#".into(), domains, ..Profile::default() }
}

/// Brokers in these domains, with these links of a millisecond, and a publisher at the first.
fn world(domains: &[Domain], links: &[(usize, usize)], change: fn(&mut Broker)) -> Net {
    let mut net = Net::placed(domains, |core| {
        change(core);
        core.set_profiles(vec![profile()]);
    });
    net.marked = MARKED.into();
    for (one, other) in links {
        net.join(*one, *other, MS);
    }
    net.advance(SECOND * 3);
    net.connect(0, 1, "publisher").expect("it is let in");
    net
}

impl Net {
    /// Subscribes a client of its own; returns what was granted.
    fn wants(&mut self, node: usize, filter: Filter<'_>) -> Granted {
        let client = format!("client-{node}");
        self.connect(node, 5, &client).unwrap_or_else(|| panic!("{client} is let in"));
        self.asks(node, filter)
    }

    /// As [`Net::wants`], of the client that is there.
    fn asks(&mut self, node: usize, filter: Filter<'_>) -> Granted {
        self.subscribe(node, 5, filter);
        self.advance(SECOND * 2);
        let told = self.told(node, 5);
        let granted = told.iter().find_map(|told| match told {
            Told::Subscribed(results) => Some(results[0].clone().expect("it is granted")),
            _ => None,
        });
        let events = told.into_iter().filter(|told| matches!(told, Told::Event(_))).collect();
        self.nodes[node].side.edges.told.insert(5, events);
        granted.expect("it is answered")
    }

    fn send(&mut self, topic: &str, payload: &str, qos: Qos) {
        self.publish(0, 1, topic, payload, qos);
    }

    fn send_retained(&mut self, topic: &str, payload: &str) {
        let event = event(topic, payload, Qos::AtLeastOnce);
        self.input(0, Input::Publish(Publish { link: Link(1), tag: 77, retain: true, number: None, event: &event }));
    }

    /// The payloads that the client of a broker was given.
    fn given(&mut self, node: usize) -> Vec<String> {
        self.payloads(node, 5)
    }

    /// Links over which the payload went, with an end outside of `eu`.
    fn leaks(&self) -> Vec<(usize, usize)> {
        let is_outside = |node: usize| !profile().domains.label().admits(&self.domains[node]);
        self.crossings.iter().copied().filter(|(from, to)| is_outside(*from) || is_outside(*to)).collect()
    }

    fn refusals(&self, place: DomainPlace) -> u64 {
        let of =
            |node: &net::Node| node.core.overlay_stats().map_or(0, |stats| stats.net.domain_refusals[place as usize]);
        self.nodes.iter().map(of).sum()
    }
}

fn passing(filter: &str) -> Filter<'_> {
    let plain = plain(filter, Qos::AtLeastOnce);
    let spec = SubscriptionSpec { durability: Durability::Nondurable, ..plain.spec };
    Filter { spec, ..plain }
}

fn durable(filter: &str) -> Filter<'_> {
    let plain = plain(filter, Qos::AtLeastOnce);
    let spec = SubscriptionSpec { durability: Durability::Durable, ..plain.spec };
    Filter { spec, ..plain }
}

/// A shared subscription to all below `eu` whose home is the first broker.
fn share(domains: &[Domain], links: &[(usize, usize)]) -> String {
    let mut net = world(domains, links, |_| {});
    let mut texts = (0..20).map(|number| format!("$share/group-{number}/eu/#"));
    net.wants(0, plain("first", Qos::AtLeastOnce));
    let is_home = |text: &String| {
        net.asks(0, plain(text, Qos::AtLeastOnce));
        net.nodes[0].core.shared_home(text)
    };
    texts.find(is_home).expect("each broker is the home of some")
}

/// The last link state that a broker has sent, without its length.
fn last_state(net: &mut Net, node: usize) -> Vec<u8> {
    let last: Rc<RefCell<Vec<u8>>> = Rc::default();
    let (seen, host) = (Rc::clone(&last), net.nodes[node].core.host());
    net.drops = Box::new(move |from, _, bytes| {
        if from == node && matches!(frame(bytes), Some(Frame::LinkState(state)) if state.host == host) {
            *seen.borrow_mut() = bytes.to_vec();
        }
        false
    });
    net.advance(SECOND * 40);
    net.drops = Box::new(|_, _, _| false);
    last.take()
}

/// A client with a will of the domain connects to the first broker.
fn connect_with_will(net: &mut Net, client_id: &str) {
    let attach = Attach {
        link: Link(7),
        client_id,
        clean_start: false,
        expiry: RETURN.expiry,
        window: 200,
        will: Some(Box::new(will("eu/x", MARKED, SECOND * 3600))),
        without_copy: false,
        principal: None,
    };
    net.input(0, Input::Attach(attach));
    assert_eq!(net.answer(0, 7), Some(false));
}

/// Durable subscribers at two brokers were away, and have read the log of the first one, as far as
/// there was a path.
fn after_reading_a_log(change: fn(&mut Broker)) -> Net {
    let mut net = world(&[EU, US, EU], &[(0, 1), (1, 2)], change);
    for node in [1, 2] {
        net.wants(node, durable("#"));
        net.leave(node, 5);
    }
    net.advance(SECOND);
    net.close_all(1);
    for number in 0..3 {
        net.send("y", &format!("open {number}"), Qos::AtLeastOnce);
        net.send("eu/x", MARKED, Qos::AtLeastOnce);
        net.advance(MS * 10);
    }
    for node in [1, 2] {
        net.renew(node, |core| {
            change(core);
            core.set_profiles(vec![profile()]);
        });
    }
    net.join(0, 1, MS);
    net.join(1, 2, MS);
    net.advance(SECOND * 3);
    for node in [1, 2] {
        assert_eq!(net.connect(node, 5, &format!("client-{node}")), Some(true));
    }
    net.advance(SECOND * 10);
    net
}

/// A session with a will was copied to the only other broker.
fn after_copying_a_session(change: fn(&mut Broker)) -> Net {
    let mut net = world(&[EU, US], &[(0, 1)], change);
    connect_with_will(&mut net, "with-will");
    net.advance(SECOND * 2);
    net
}

/// The third broker can be reached from both others.
fn after_retaining(change: fn(&mut Broker)) -> Net {
    let mut net = world(&[EU, US, EU], &[(0, 1), (1, 2), (0, 2)], change);
    net.send_retained("eu/kept", "old");
    net.send_retained("eu/kept", MARKED);
    net.send_retained("kept", "open");
    net.advance(SECOND * 20);
    net
}

/// The link that an event was to take is gone, and the way round it leaves the domain.
fn after_a_detour(change: fn(&mut Broker)) -> Net {
    let mut net = world(&[EU, US, EU], &[(0, 2), (0, 1), (1, 2)], change);
    net.wants(2, plain("#", Qos::AtLeastOnce));
    net.close(0);
    net.send("eu/x", MARKED, Qos::AtLeastOnce);
    net.advance(SECOND * 3);
    net
}

/// The world of a place, after all has happened. What is asserted there is that what may be
/// delivered is.
fn at(place: DomainPlace, change: fn(&mut Broker)) -> Net {
    match place {
        DomainPlace::Publish => {
            let mut net = world(&[US, EU], &[(0, 1)], change);
            net.wants(1, plain("#", Qos::AtLeastOnce));
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.send("eu/x", MARKED, Qos::AtMostOnce);
            net.advance(SECOND);
            let result = Accepted::Refused(Refusal::OutsideDomains);
            assert!(net.told(0, 1).contains(&Told::Accepted { tag: 77, result }));
            assert_eq!(net.given(1), [""; 0]);
            net
        }
        DomainPlace::Destination => {
            let mut net = world(&[EU, US, EU], &[(0, 1), (0, 2)], change);
            for node in [1, 2] {
                net.wants(node, plain("#", Qos::AtLeastOnce));
            }
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
                net.send("eu/x", MARKED, qos);
                net.send("y", "open", qos);
            }
            net.advance(SECOND);
            assert_eq!(net.given(1), ["open"; 2], "the event is silence to it, and holds nothing up");
            assert_eq!(net.given(2), [MARKED, "open", MARKED, "open"]);
            net
        }
        DomainPlace::Route => {
            let mut net = world(&[EU, NONE, EU], &[(0, 1), (1, 2)], change);
            net.wants(2, passing("#"));
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.send("y", "open", Qos::AtLeastOnce);
            net.advance(SECOND * 5);
            assert_eq!(net.given(2), ["open"], "what has no path holds nothing up");
            net.join(0, 2, MS * 20);
            net.advance(SECOND * 2);
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.send("y", "open", Qos::AtLeastOnce);
            net.advance(SECOND * 2);
            assert_eq!(net.given(2), [MARKED, "open"], "over its own link, though the other way is shorter");
            net
        }
        DomainPlace::Relay => {
            // The last but one leaves the domain, and the publisher's broker has not heard of it.
            let mut net = world(&[EU, EU, EU, EU], &[(0, 1), (1, 2), (2, 3)], change);
            net.delay([0, 1], MS * 300);
            net.advance(SECOND * 5);
            net.wants(3, plain("#", Qos::AtLeastOnce));
            net.advance(SECOND * 3);
            net.domains[2] = Domains::of(["us"]).expect("a valid name");
            net.renew(2, |core| core.set_profiles(vec![profile()]));
            net.join(1, 2, MS);
            net.join(2, 3, MS);
            net.advance(MS * 150);
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.advance(SECOND * 5);
            assert_eq!(net.given(3), [""; 0]);
            net
        }
        DomainPlace::Link => {
            // The link has no room for an urgent event, and then its other end is in another
            // domain.
            let mut net = world(&[EU, EU], &[(0, 1)], change);
            let deadline = Some(SECOND);
            net.nodes[0].core.set_profiles(vec![Profile { deadline, ..profile() }]);
            net.wants(1, plain("#", Qos::AtLeastOnce));
            let bytes = last_state(&mut net, 1);
            let Some(Frame::LinkState(state)) = frame(&bytes) else { panic!("a link state") };
            let domains = Domains::of(["us"]).expect("a valid name");
            let later = LinkStateFrame { domains: domains.clone(), sequence: state.sequence + 10, ..state };
            let mut bytes = Vec::new();
            Frame::LinkState(later).encode(&mut bytes);
            let link = net.ends(0)[0].1;
            net.drops = Box::new(|from, _, _| from == 1);
            net.room(0, link, Channel::Urgent, 100_000);
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.domains[1] = domains;
            net.input(0, Input::Peer(PeerInput::Bytes { link, channel: Channel::Control, bytes: &bytes }));
            net.room(0, link, Channel::Urgent, 0);
            net.advance(SECOND * 5);
            net
        }
        DomainPlace::Nack => {
            let mut net = world(&[EU, US], &[(0, 1)], change);
            net.wants(1, passing("#"));
            net.send("y", "before", Qos::AtLeastOnce);
            net.advance(SECOND);
            net.drops = Box::new(|_, channel, _| channel == Channel::Reliable);
            net.send("y", "one", Qos::AtLeastOnce);
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.send("y", "two", Qos::AtLeastOnce);
            net.advance(SECOND);
            net.drops = Box::new(|_, _, _| false);
            net.advance(SECOND * 40);
            assert_eq!(net.given(1), ["before", "one", "two"]);
            net
        }
        DomainPlace::LogRead => {
            let mut net = after_reading_a_log(change);
            assert_eq!(net.given(1), ["open 0", "open 1", "open 2"]);
            let reads = [1, 2].map(|node| net.nodes[node].core.overlay_stats().expect("it has others").reads_out > 0);
            assert_eq!(reads, [true; 2], "the log was asked");
            assert_eq!(net.given(2), ["open 0"], "what follows waits for a path within the domain");
            net.join(0, 2, MS * 20);
            net.advance(SECOND * 5);
            assert_eq!(net.given(2), [MARKED, "open 1", MARKED, "open 2", MARKED]);
            net
        }
        DomainPlace::KeptRead => {
            // The relay in the middle keeps what the third broker has read.
            let mut net = world(&[EU, EU, EU, NONE], &[(0, 1), (1, 2), (1, 3)], change);
            for node in [2, 3] {
                net.wants(node, durable("#"));
                net.leave(node, 5);
            }
            net.advance(SECOND);
            net.close_all(2);
            net.close_all(3);
            for number in 0..3 {
                net.send("eu/x", MARKED, Qos::AtLeastOnce);
                net.send("y", &format!("open {number}"), Qos::AtLeastOnce);
                net.advance(MS * 10);
            }
            for node in [2, 3] {
                net.renew(node, |core| core.set_profiles(vec![profile()]));
                net.join(1, node, MS);
                net.advance(SECOND * 3);
                assert_eq!(net.connect(node, 5, &format!("client-{node}")), Some(true));
                net.advance(SECOND * 3);
            }
            assert_eq!(net.given(2), [MARKED, "open 0", MARKED, "open 1", MARKED, "open 2"]);
            assert_eq!(net.given(3), ["open 0", "open 1", "open 2"]);
            net
        }
        DomainPlace::Message => {
            let mut net = world(&[EU, US, EU], &[(0, 1), (1, 2)], change);
            let text = share(&[EU, US, EU], &[(0, 1), (1, 2)]);
            net.wants(2, plain(&text, Qos::AtLeastOnce));
            net.send("eu/x", MARKED, Qos::AtLeastOnce);
            net.advance(SECOND * 5);
            assert_eq!(net.given(2), [""; 0]);
            net.join(0, 2, MS * 20);
            net.advance(SECOND * 20);
            assert_eq!(net.given(2), [MARKED], "it is handed again until there is a path");
            net
        }
        DomainPlace::SharedMember => {
            let mut net = world(&[EU, US, EU], &[(0, 1), (0, 2)], change);
            let text = share(&[EU, US, EU], &[(0, 1), (0, 2)]);
            for node in [1, 2] {
                net.wants(node, plain(&text, Qos::AtLeastOnce));
            }
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
                for _ in 0..10 {
                    net.send("eu/x", MARKED, qos);
                    net.advance(MS * 5);
                }
            }
            net.advance(SECOND);
            assert_eq!((net.given(1).len(), net.given(2).len()), (0, 20));
            net
        }
        DomainPlace::SessionCopy => {
            let net = after_copying_a_session(change);
            assert!(net.nodes[0].core.is_handed_over(), "the copy was taken");
            net
        }
        DomainPlace::SessionMove => {
            let mut net = world(&[EU, US], &[(0, 1)], change);
            connect_with_will(&mut net, "with-will");
            net.advance(SECOND * 2);
            assert_eq!(net.connect(1, 7, "with-will"), Some(true));
            net.advance(SECOND * 2);
            net
        }
        DomainPlace::Retained => {
            let mut net = after_retaining(change);
            let count: Rc<RefCell<usize>> = Rc::default();
            let seen = Rc::clone(&count);
            net.drops = Box::new(move |_, _, bytes| {
                *seen.borrow_mut() += usize::from(matches!(frame(bytes), Some(Frame::RegistryAsk(_))));
                false
            });
            net.advance(SECOND * 30);
            assert_eq!(*count.borrow(), 0, "what is withheld is no difference");
            for node in [1, 2] {
                net.wants(node, plain("#", Qos::AtLeastOnce));
            }
            let mut given = net.given(2);
            given.sort();
            assert_eq!((net.given(1), given), (vec!["open".to_owned()], vec!["open".to_owned(), MARKED.to_owned()]));
            net
        }
        DomainPlace::Subscribe => {
            let mut net = world(&[EU, US], &[(0, 1)], change);
            net.wants(0, passing("first"));
            net.wants(1, passing("first"));
            let refused = |granted: Granted| granted.refused.map(|domains| domains.as_str().to_owned());
            for (node, filter, told) in [
                (1, "eu/#", Some("eu".to_owned())),
                (1, "#", Some("eu".to_owned())),
                (1, "+", Some("eu".to_owned())),
                (1, "y/+", None),
                (1, "y", None),
                (0, "#", None),
            ] {
                let granted = net.asks(node, plain(filter, Qos::AtLeastOnce));
                assert_eq!(refused(granted), told, "{node} {filter}");
            }
            let mut divided = world(&[EU, US, EU], &[(0, 1), (1, 2)], change);
            let granted = divided.wants(2, plain("eu/#", Qos::AtLeastOnce));
            assert_eq!(refused(granted).as_deref(), Some("eu"), "its events have no way to it");
            divided.join(0, 2, MS * 20);
            divided.advance(SECOND);
            assert_eq!(refused(divided.asks(2, plain("eu/#", Qos::AtLeastOnce))), None);
            net
        }
    }
}

#[test]
fn no_place_lets_content_out_of_its_domain() {
    for place in DomainPlace::ALL {
        let net = at(*place, |_| {});
        assert_eq!(net.leaks(), [], "{}", place.name());
        assert!(net.refusals(*place) > 0, "{} has something to refuse", place.name());
    }
}

#[test]
fn a_way_round_a_link_stays_in_the_domain() {
    let net = after_a_detour(|_| {});
    assert_eq!(net.leaks(), []);
}

#[test]
fn content_does_go_to_brokers_of_its_domain() {
    for (place, least) in [(DomainPlace::Destination, 1), (DomainPlace::Retained, 1), (DomainPlace::KeptRead, 2)] {
        let crossings = at(place, |_| {}).crossings.len();
        assert!(crossings >= least, "{}: the marked frames are found", place.name());
    }
    let mut net = world(&[EU, EU], &[(0, 1)], |_| {});
    connect_with_will(&mut net, "with-will");
    net.advance(SECOND * 2);
    assert_eq!(net.crossings.iter().collect::<Vec<_>>(), [&(0, 1)], "the will is in the copy");
}

#[test]
fn a_broker_alone_is_in_its_domains_too() {
    for (domains, is_taken) in [(Domains::default(), false), (profile().domains, true)] {
        let mut rig = common::Rig::new();
        rig.core.set_profiles(vec![profile()]);
        rig.core.set_domains(domains);
        rig.attach(1, "alone", CLEAN);
        assert_eq!(rig.subscribe(1, "#", Qos::AtLeastOnce), Ok(Qos::AtLeastOnce));
        rig.publish(1, "eu/x", MARKED, Qos::AtLeastOnce);
        assert_eq!(rig.payloads(1).len(), usize::from(is_taken));
    }
}

#[test]
fn a_broker_that_has_left_a_domain_gives_no_retained_message_of_it() {
    let mut rig = common::Rig::new();
    rig.core.set_profiles(vec![profile()]);
    rig.core.set_domains(profile().domains);
    rig.attach(1, "alone", CLEAN);
    rig.publish_as(1, "eu/x", MARKED, Qos::AtLeastOnce, true);
    rig.publish_as(1, "x", "open", Qos::AtLeastOnce, true);
    for (domains, given) in [(profile().domains, &["open", MARKED][..]), (Domains::default(), &["open"])] {
        rig.core.set_domains(domains);
        rig.attach(1, "alone", CLEAN);
        assert_eq!(rig.subscribe(1, "#", Qos::AtLeastOnce), Ok(Qos::AtLeastOnce));
        let mut payloads = rig.payloads(1);
        payloads.sort();
        let mut given = given.to_vec();
        given.sort_unstable();
        assert_eq!(payloads, given);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn what_leaves_its_domain_is_noticed() {
    use whimbrel_core::{Mutant, NetMutant};
    type Change = fn(&mut Broker);
    type Play = fn(Change) -> Net;
    let worlds: [(Play, Change); 4] = [
        (after_a_detour, |core| core.build_in(Mutant::Net(NetMutant::DetourLeavesDomain))),
        (after_retaining, |core| core.build_in(Mutant::Net(NetMutant::RetainLeavesDomain))),
        (after_copying_a_session, |core| core.build_in(Mutant::SessionCopyLeavesDomain)),
        (after_reading_a_log, |core| core.build_in(Mutant::LogReadLeavesDomain)),
    ];
    for (number, (world, mutant)) in worlds.into_iter().enumerate() {
        assert_eq!(world(|_| {}).leaks(), [], "{number}");
        assert!(world(mutant).leaks().contains(&(0, 1)), "mutant {number} is noticed");
    }
}
