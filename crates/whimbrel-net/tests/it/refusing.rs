//! Links that are refused, and what is said on them: the others are unharmed.

use whimbrel_event::{DomainLabel, HostId, Tick};
use whimbrel_net::link::peers::{HELLO_WITHIN, LINKS_MAX};
use whimbrel_net::{Channel, HangUp, NetStats, PeerLink};
use whimbrel_wire::{FRAME_BYTES_MAX, Frame, Goodbye, Hello, LinkStateFrame, MAJOR, MINOR, MessageFrame, Protocol};

use crate::fabric::node::{Change, KIND_ECHO, Setup, host_of};
use crate::fabric::{Fabric, START};
use crate::scenarios::{MILLI, SECOND};

/// The node that strangers call.
const CALLED: usize = 1;

/// A host that is none of the fabric.
const STRANGER: HostId = HostId::new(0xFA_0000);

/// Three nodes in a line, of which the last one wants `a`.
fn world() -> Fabric {
    let mut fabric = Fabric::line(3, MILLI);
    fabric.subscribe(2, "a");
    fabric.run(SECOND);
    fabric
}

/// Events still go through the called node, and no link between nodes was hung up.
fn assert_unharmed(fabric: &mut Fabric) {
    fabric.publish_topic(0, "a");
    fabric.run(SECOND);
    assert_eq!(fabric.check(), Ok(()));
    assert!(fabric.is_complete() && fabric.wires().all(|(_, _, is_up)| is_up));
}

fn hello() -> Hello<'static> {
    Hello {
        major: MAJOR,
        minor: MINOR,
        deployment: 7,
        host: STRANGER,
        incarnation: START.as_nanos(),
        name: "stranger",
        time: START.as_nanos(),
        reliable: 1,
        further: 1,
        birth: Tick(START.as_nanos()),
        version: "",
    }
}

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn stats(fabric: &Fabric) -> &NetStats {
    fabric.node(CALLED).net.stats()
}

/// The reason for which the called node has hung up a link.
fn why(fabric: &Fabric, link: PeerLink) -> Option<HangUp> {
    let of_it = |(hung_up, why): &(PeerLink, HangUp)| (*hung_up == link).then_some(*why);
    fabric.hung_up(CALLED).iter().rev().find_map(of_it)
}

/// A stranger with that hello calls; its certificate has that name. Returns why it is hung up.
fn refused(hello: Hello<'_>, certified: &str) -> Option<HangUp> {
    let mut fabric = world();
    let link = fabric.stranger(CALLED, Some(certified));
    fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::Hello(hello)));
    let why = why(&fabric, link);
    let counts = stats(&fabric).hang_ups;
    assert!(HangUp::ALL.iter().all(|reason| counts[*reason as usize] == u64::from(why == Some(*reason))));
    assert_eq!(stats(&fabric).frames_invalid, 0);
    assert_unharmed(&mut fabric);
    why
}

#[test]
fn a_hello_is_refused_for_what_is_wrong_with_it() {
    assert_eq!(refused(hello(), "stranger"), None);
    assert_eq!(refused(Hello { major: MAJOR + 1, ..hello() }, "stranger"), Some(HangUp::OtherVersion));
    assert_eq!(refused(Hello { minor: MINOR + 9, ..hello() }, "stranger"), None);
    assert_eq!(refused(Hello { deployment: 8, ..hello() }, "stranger"), Some(HangUp::OtherDeployment));
    assert_eq!(refused(hello(), "mallory"), Some(HangUp::ForgedName));
    assert_eq!(refused(Hello { host: host_of(CALLED), ..hello() }, "stranger"), Some(HangUp::Itself));
    assert_eq!(refused(Hello { name: "b1", ..hello() }, "b1"), Some(HangUp::NameTaken), "its own");
    assert_eq!(refused(Hello { name: "b0", ..hello() }, "b0"), Some(HangUp::NameTaken), "of a reachable one");
}

#[test]
fn a_node_of_another_deployment_stays_alone() {
    let other = Setup { deployment: whimbrel_event::Deployment(8), ..Setup::named("other") };
    let mut fabric = world();
    let other = fabric.add(other);
    fabric.link([other, 0], MILLI);
    fabric.run(SECOND);
    let reasons: Vec<HangUp> = [0, other].iter().flat_map(|at| fabric.hung_up(*at)).map(|(_, why)| *why).collect();
    assert_eq!(reasons, [HangUp::OtherDeployment; 2]);
    assert_eq!(fabric.node(other).net.topology().len(), 1);
    assert_eq!(fabric.node(0).net.topology().len(), 3);
}

/// The first link state of a broker without links.
fn link_state(host: HostId, incarnation: u64, name: &str) -> LinkStateFrame<'_> {
    LinkStateFrame {
        host,
        incarnation,
        sequence: 1,
        name,
        reliable: 1,
        further: 1,
        birth: Tick(1),
        age_ms: 0,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        previous: Vec::new(),
        domains: Default::default(),
        protocol: Protocol::OWN,
        later: &[],
    }
}

/// What is wrong in a stream, the channel that it comes on, and whether a good hello precedes it.
fn broken_streams() -> Vec<(&'static str, Vec<u8>, Channel, bool)> {
    let hello = encoded(Frame::Hello(hello()));
    let mut short = vec![4];
    short.extend_from_slice(&hello[1..5]);
    let state = link_state(STRANGER, 1, "stranger");
    let state = encoded(Frame::LinkState(state));
    let mut oversized = Vec::new();
    let mut length = FRAME_BYTES_MAX + 1;
    while length >= 0x80 {
        oversized.push(length as u8 | 0x80);
        length >>= 7;
    }
    oversized.push(length as u8);
    vec![
        ("bytes without a meaning", vec![0x2A; 64], Channel::Control, false),
        ("a frame of a type that no version may add", vec![2, 200, 0], Channel::Reliable, true),
        ("a length that never ends", vec![0xFF; 40], Channel::BestEffort, true),
        ("an empty frame", vec![0], Channel::BestEffort, true),
        ("a frame that is too long", oversized, Channel::Control, true),
        ("a hello that is cut short", short, Channel::Control, false),
        ("another first frame", state.clone(), Channel::Control, false),
        ("a second hello", hello, Channel::Control, true),
        ("a link state between events", state, Channel::Reliable, true),
    ]
}

#[test]
fn a_broken_stream_is_hung_up_and_counted_and_the_rest_of_it_ignored() {
    for (what, bytes, channel, is_after_hello) in broken_streams() {
        let mut fabric = world();
        let link = fabric.stranger(CALLED, None);
        if is_after_hello {
            fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::Hello(hello())));
        }
        let goodbye = encoded(Frame::Goodbye(Goodbye { code: 0, text: "never read" }));
        fabric.bytes(CALLED, link, channel, &[bytes, goodbye].concat());
        assert_eq!(why(&fabric, link), Some(HangUp::Garbage), "{what}");
        assert_eq!(stats(&fabric).frames_invalid, 1, "{what}");
        assert_eq!(stats(&fabric).hang_ups.iter().sum::<u64>(), 1, "{what}");
        assert_unharmed(&mut fabric);
    }
}

#[test]
fn what_is_unknown_or_alone_in_its_datagram_does_not_end_a_link() {
    let mut fabric = world();
    let link = fabric.stranger(CALLED, None);
    fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::Hello(hello())));
    // A type that a later minor version may have.
    fabric.bytes(CALLED, link, Channel::Control, &[3, 127, 1, 2]);
    for datagram in [&[][..], &[0xFF; 40], &[1]] {
        fabric.bytes(CALLED, link, Channel::Datagram, datagram);
    }
    let (own, to) = (host_of(CALLED), host_of(CALLED));
    let (kind, label) = (KIND_ECHO, DomainLabel::ANY);
    let forged = MessageFrame { to, hops: 0, is_bulk: false, from: own, incarnation: 1, kind, label, body: b"" };
    fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::MessageFrame(forged)));
    assert_eq!(why(&fabric, link), None);
    let stats = stats(&fabric);
    assert_eq!((stats.frames_unknown, stats.frames_invalid, stats.messages_refused), (1, 3, 1));
    fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::Goodbye(Goodbye { code: 0, text: "done" })));
    assert_eq!(why(&fabric, link), Some(HangUp::Left));
    assert_unharmed(&mut fabric);
}

#[test]
fn an_incomplete_frame_is_waited_for_until_the_link_is_silent() {
    let mut fabric = world();
    let hello = encoded(Frame::Hello(hello()));
    let link = fabric.stranger(CALLED, None);
    fabric.bytes(CALLED, link, Channel::Control, &hello[..hello.len() - 1]);
    fabric.run(HELLO_WITHIN - MILLI);
    assert_eq!(why(&fabric, link), None);
    fabric.run(MILLI);
    assert_eq!(why(&fabric, link), Some(HangUp::Silent));
    let link = fabric.stranger(CALLED, None);
    for byte in &hello {
        assert_eq!(fabric.node(CALLED).net.stats().links_up, 2);
        fabric.bytes(CALLED, link, Channel::Control, core::slice::from_ref(byte));
    }
    assert_eq!(stats(&fabric).links_up, 3, "it is complete");
    assert_unharmed(&mut fabric);
}

#[test]
fn there_are_at_most_so_many_links() {
    let mut fabric = world();
    let links: Vec<PeerLink> = (2..=LINKS_MAX).map(|_| fabric.stranger(CALLED, None)).collect();
    assert_eq!(fabric.hung_up(CALLED), [(*links.last().expect("there are some"), HangUp::TooMany)]);
    assert_eq!(stats(&fabric).hang_ups[HangUp::TooMany as usize], 1);
    assert_unharmed(&mut fabric);
}

#[test]
fn of_two_links_to_one_node_one_stays() {
    for dialers in [[0, 1], [1, 0]] {
        let mut fabric = world();
        fabric.link(dialers, MILLI);
        fabric.run(SECOND);
        let of = |number: usize| fabric.node(number).net.neighbours().filter(|peer| peer.host().is_some()).count();
        assert_eq!([of(0), of(1)], [1, 2]);
        assert_eq!(fabric.wires().filter(|(.., is_up)| *is_up).count(), 2, "dialed by {}", dialers[0]);
        fabric.publish_topic(0, "a");
        fabric.run(SECOND);
        assert_eq!(fabric.check(), Ok(()));
    }
}

#[test]
fn a_neighbour_of_an_earlier_version_is_told_of_the_first_map_only() {
    for (minor, pending) in [(1, [1, 0]), (2, [1, 1])] {
        let mut fabric = world();
        let link = fabric.stranger(CALLED, None);
        fabric.bytes(CALLED, link, Channel::Control, &encoded(Frame::Hello(Hello { minor, ..hello() })));
        for map in [0, 1] {
            fabric.change(CALLED, Change { map, key: "k", value: Some("v") });
        }
        // The stranger has told no versions, so that its entries wait.
        let peer = fabric.node(CALLED).net.neighbours().find(|peer| peer.link == link).expect("it is up");
        assert_eq!([0, 1].map(|map| peer.pending.maps[map].len()), pending, "minor {minor}");
        assert_unharmed(&mut fabric);
    }
}

#[test]
fn a_node_outbids_what_others_say_of_it() {
    let mut fabric = world();
    fabric.subscribe(CALLED, "b");
    fabric.run(SECOND);
    let before = fabric.node(CALLED).net.incarnation();
    let link = fabric.stranger(0, None);
    let forged = link_state(host_of(CALLED), before + 5, "b1");
    let bytes = [encoded(Frame::Hello(hello())), encoded(Frame::LinkState(forged))].concat();
    fabric.bytes(0, link, Channel::Control, &bytes);
    fabric.run(SECOND);
    assert_eq!(fabric.node(CALLED).net.incarnation(), before + 6);
    assert_eq!(stats(&fabric).outbid, 1);
    assert!(fabric.is_complete() && fabric.knows_interests());
    fabric.publish_topic(2, "b");
    assert_unharmed(&mut fabric);
}
