//! Topics with a deadline: profiles that all brokers have, and streams of their own.

use whimbrel_core::{Broker, Persistence, Profile, RankedProfile, TopicTransport};
use whimbrel_event::{EventId, HostId, StreamClass, Tick};
use whimbrel_wire::{LinkStateFrame, Protocol};

use super::*;

/// A profile with a deadline.
fn alarm(rank: u32, filter: &str) -> RankedProfile {
    let deadline = Some(Duration::from_millis(50));
    RankedProfile { rank, profile: Profile { filter: filter.into(), deadline, ..Profile::default() } }
}

fn make(made: &RankedProfile) -> Input<'_> {
    Input::ChangeProfile { filter: &made.profile.filter, made: Some(made) }
}

/// A publisher at the first broker of a line, and a subscriber of alarms at the last.
fn world(count: usize) -> Net {
    let mut net = Net::line(count);
    net.attach(0, 1, "p");
    net.attach(count - 1, 1, "s");
    net.subscribe(count - 1, 1, plain("alarm/#", Qos::AtLeastOnce));
    net.advance(SECOND);
    net.told(count - 1, 1);
    net
}

/// The ids and payloads of the events that a subscriber has got.
fn got(net: &mut Net, node: usize) -> Vec<(EventId, String)> {
    let told = net.told(node, 1).into_iter();
    told.filter_map(|told| if let Told::Event(got) = told { Some((got.id, got.payload)) } else { None }).collect()
}

fn classes(got: &[(EventId, String)]) -> Vec<(StreamClass, &str)> {
    got.iter().map(|(id, payload)| (id.pubend.class(), &**payload)).collect()
}

/// The broker in the middle hears of a broker that speaks this minor version, from the last one.
fn hear_of(net: &mut Net, sequence: u64, minor: u8) {
    let mut bytes = Vec::new();
    Frame::LinkState(LinkStateFrame {
        host: HostId::new(0xabc0),
        incarnation: 1,
        sequence,
        name: "other",
        reliable: 4,
        further: if minor < 3 { 4 } else { 12 },
        birth: Tick(1),
        age_ms: 0,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        previous: Vec::new(),
        domains: Default::default(),
        protocol: Protocol { minor, features: 0 },
        later: &[],
    })
    .encode(&mut bytes);
    let (_, link) = net.ends(1)[0];
    let (channel, bytes) = (whimbrel_core::Channel::Control, bytes);
    net.input(1, Input::Peer(whimbrel_core::PeerInput::Bytes { link, channel, bytes: &bytes }));
}

#[test]
fn a_profile_that_is_made_is_in_effect_at_all_brokers_and_so_is_its_end() {
    let mut net = world(3);
    net.publish(0, 1, "alarm/1", "before", Qos::AtLeastOnce);
    // Made at another broker than the one that the publisher is at.
    net.input(1, make(&alarm(0, "alarm/#")));
    net.advance(Duration::from_millis(5));
    net.publish(0, 1, "alarm/1", "with", Qos::AtLeastOnce);
    net.advance(SECOND);
    net.input(2, Input::ChangeProfile { filter: "alarm/#", made: None });
    net.advance(Duration::from_millis(5));
    net.publish(0, 1, "alarm/1", "after", Qos::AtLeastOnce);
    net.advance(SECOND);
    let got = got(&mut net, 2);
    let (ordinary, deadline) = (StreamClass::Ordinary, StreamClass::Deadline);
    assert_eq!(classes(&got), [(ordinary, "before"), (deadline, "with"), (ordinary, "after")]);
    for node in 0..3 {
        assert_eq!(net.nodes[node].core.topic_profiles().made("alarm/#"), None, "{node}");
    }
}

#[test]
fn a_profile_reaches_a_broker_that_was_cut_off_and_the_later_one_stays() {
    let mut net = world(3);
    let profile_at =
        |net: &Net, node: usize| net.nodes[node].core.topic_profiles().made("alarm/#").map(|made| made.rank);
    net.close(1);
    net.input(0, make(&alarm(3, "alarm/#")));
    net.advance(SECOND);
    net.input(2, make(&alarm(7, "alarm/#")));
    net.advance(SECOND);
    assert_eq!([0, 1, 2].map(|node| profile_at(&net, node)), [Some(3), Some(3), Some(7)]);
    net.join(1, 2, Duration::from_millis(1));
    net.advance(SECOND * 10);
    assert_eq!([0, 1, 2].map(|node| profile_at(&net, node)), [Some(7); 3]);
}

#[test]
fn a_topic_stays_ordered_when_its_profile_changes() {
    let mut net = world(3);
    let lost = Rc::new(RefCell::new(true));
    let drops = Rc::clone(&lost);
    // The ordinary event is lost on its way, and asked for again; the one after it arrives.
    net.drops = Box::new(move |from, _, bytes| {
        let is_it =
            |frame: Frame<'_>| matches!(frame, Frame::Event(event) if event.pubend.class() == StreamClass::Ordinary);
        *drops.borrow() && from == 0 && net::frame(bytes).is_some_and(is_it)
    });
    net.publish(0, 1, "alarm/1", "first", Qos::AtLeastOnce);
    net.input(0, make(&alarm(0, "alarm/#")));
    net.publish(0, 1, "alarm/1", "second", Qos::AtLeastOnce);
    net.advance(Duration::from_millis(20));
    assert_eq!(got(&mut net, 2), [], "the second waits for the first");
    *lost.borrow_mut() = false;
    net.advance(SECOND * 2);
    let got = got(&mut net, 2);
    assert_eq!(classes(&got), [(StreamClass::Ordinary, "first"), (StreamClass::Deadline, "second")]);
    assert_eq!(net.nodes[2].core.overlay_stats().expect("it is open").order_breaks, 0);
}

/// The number of frames with an event, with a stamped one, and of reports, that node 0 and node 1
/// have sent.
fn count_frames(net: &mut Net) -> Rc<RefCell<[u32; 3]>> {
    let count = Rc::new(RefCell::new([0; 3]));
    let counted = Rc::clone(&count);
    net.drops = Box::new(move |_, _, bytes| {
        let [plain, stamped, reports] = &mut *counted.borrow_mut();
        match net::frame(bytes) {
            Some(Frame::Event(_)) => *plain += 1,
            Some(Frame::DeadlineEvent(_)) => *stamped += 1,
            Some(Frame::LinkReport(_)) => *reports += 1,
            _ => {}
        }
        false
    });
    count
}

/// The frames (see [`count_frames`]) that an event without a deadline and one with it cost.
fn watching_frames(change: impl Fn(&mut Broker)) -> [[u32; 3]; 2] {
    let mut net = world(2);
    change(&mut net.nodes[0].core);
    net.input(0, make(&alarm(0, "alarm/#")));
    net.subscribe(1, 1, plain("other", Qos::AtLeastOnce));
    net.advance(SECOND * 11);
    let count = count_frames(&mut net);
    net.publish(0, 1, "other", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    let without = count.take();
    net.publish(0, 1, "alarm/1", "two", Qos::AtLeastOnce);
    net.advance(SECOND);
    [without, count.take()]
}

#[test]
fn events_with_a_deadline_watch_the_links_and_no_others_do() {
    let [without, [plain, stamped, reports]] = watching_frames(|_| {});
    assert_eq!((without, plain, stamped), ([1, 0, 0], 0, 1));
    assert!((2..=17).contains(&reports), "{reports} reports");
}

#[cfg(feature = "mutants")]
#[test]
fn events_with_a_deadline_in_ordinary_streams_are_noticed() {
    let [_, frames] = watching_frames(|core| core.build_in(whimbrel_core::Mutant::DeadlineInOrdinaryStream));
    assert_eq!(frames, [1, 0, 0]);
}

#[test]
fn while_a_known_broker_does_not_know_them_the_streams_are_not_used() {
    let mut net = world(3);
    net.input(0, make(&alarm(0, "alarm/#")));
    hear_of(&mut net, 1, 2);
    net.advance(SECOND);
    net.publish(0, 1, "alarm/1", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(classes(&got(&mut net, 2)), [(StreamClass::Ordinary, "one")]);
    hear_of(&mut net, 2, 3);
    net.advance(SECOND * 9);
    net.publish(0, 1, "alarm/1", "two", Qos::AtLeastOnce);
    net.advance(SECOND * 2);
    net.publish(0, 1, "alarm/1", "three", Qos::AtLeastOnce);
    net.advance(SECOND);
    let expected = [(StreamClass::Ordinary, "two"), (StreamClass::Deadline, "three")];
    assert_eq!(classes(&got(&mut net, 2)), expected, "retention holds have had time to be for all streams");
}

#[test]
fn brokers_whose_configurations_differ_are_named() {
    let mut net = Net::line(3);
    let differing = |net: &Net, node: usize| -> Vec<String> {
        net.nodes[node].core.topic_profiles().page(0, 10).differing.iter().map(ToString::to_string).collect()
    };
    let volatile =
        |filter: &str| Profile { filter: filter.into(), persistence: Persistence::Volatile, ..Profile::default() };
    net.advance(SECOND * 6);
    assert_eq!(differing(&net, 0), [""; 0], "none has any");
    [0, 1].into_iter().for_each(|node| net.nodes[node].core.set_profiles(vec![volatile("a"), volatile("b")]));
    net.advance(SECOND * 12);
    assert_eq!([0, 1, 2].map(|node| differing(&net, node)), [vec!["b2"], vec!["b2"], vec!["b0", "b1"]]);
    net.nodes[2].core.set_profiles(vec![volatile("b"), volatile("a")]);
    net.advance(SECOND * 12);
    assert_eq!(differing(&net, 0), ["b2"], "the order matters");
    net.nodes[2].core.set_profiles(vec![volatile("a"), volatile("b")]);
    net.advance(SECOND * 12);
    assert_eq!([0, 1, 2].map(|node| differing(&net, node)), [vec![""; 0], vec![], vec![]]);
}

#[test]
fn best_effort_has_streams_of_the_class_too_and_a_profile_may_say_which_guarantee_holds() {
    let mut net = world(2);
    let of = |filter: &str, reliability| RankedProfile {
        rank: 0,
        profile: Profile { reliability, ..alarm(0, filter).profile },
    };
    net.input(0, make(&of("alarm/as-published", None)));
    net.input(0, make(&of("alarm/reliable", Some(whimbrel_event::Reliability::Reliable))));
    net.input(0, make(&of("alarm/best-effort", Some(whimbrel_event::Reliability::BestEffort))));
    net.publish(0, 1, "alarm/as-published", "1", Qos::AtMostOnce);
    net.publish(0, 1, "alarm/reliable", "2", Qos::AtMostOnce);
    net.publish(0, 1, "alarm/best-effort", "3", Qos::AtLeastOnce);
    net.advance(SECOND);
    let mut indices: Vec<(String, u8)> =
        got(&mut net, 1).into_iter().map(|(id, payload)| (payload, id.pubend.index() / 4)).collect();
    indices.sort();
    assert_eq!(indices, [("1".into(), 3), ("2".into(), 2), ("3".into(), 3)]);
}

/// Alarms that are fast go by datagrams, those that are sure on a stream.
fn make_transports(net: &mut Net) {
    for (filter, transport) in [("alarm/fast", TopicTransport::Datagram), ("alarm/sure", TopicTransport::Stream)] {
        let profile = Profile { transport, ..alarm(0, filter).profile };
        net.input(0, make(&RankedProfile { rank: 0, profile }));
    }
    net.advance(SECOND);
}

/// The channels of the events that each broker sends.
fn channels_of(net: &mut Net) -> Rc<RefCell<Vec<(usize, whimbrel_core::Channel)>>> {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sent);
    net.drops = Box::new(move |from, channel, bytes| {
        if let Some(Frame::DeadlineEvent(stamped)) = net::frame(bytes) {
            seen.borrow_mut().push((from, channel));
            assert!(channel != whimbrel_core::Channel::Datagram || stamped.frame.event.len() < 1_100);
        }
        false
    });
    sent
}

#[test]
fn best_effort_goes_by_datagrams_where_the_profile_says_so_and_an_event_fits_one() {
    use whimbrel_core::Channel::{BestEffort, Datagram, Urgent};
    let mut net = world(3);
    make_transports(&mut net);
    let sent = channels_of(&mut net);
    let large = "x".repeat(1_200);
    for (topic, payload, qos, channel) in [
        ("alarm/fast", "1", Qos::AtMostOnce, Datagram),
        ("alarm/fast", &*large, Qos::AtMostOnce, BestEffort),
        ("alarm/fast", "3", Qos::AtLeastOnce, Urgent),
        ("alarm/sure", "4", Qos::AtMostOnce, BestEffort),
    ] {
        net.publish(0, 1, topic, payload, qos);
        net.advance(SECOND);
        assert_eq!(sent.take(), [(0, channel), (1, channel)], "{topic} {qos:?}, relayed alike");
        assert_eq!(net.payloads(2, 1), [payload]);
    }
}

#[test]
fn a_datagram_that_is_no_event_is_counted_and_ends_nothing() {
    let mut net = world(2);
    let (_, link) = net.ends(0)[1];
    let invalid = |net: &Net| net.nodes[1].core.overlay_stats().expect("it is open").net.frames_invalid;
    let mut bytes = Vec::new();
    Frame::Goodbye(whimbrel_wire::Goodbye { code: 0, text: "" }).encode(&mut bytes);
    // A stamped event that is cut, one of another kind, and one with something behind it.
    for garbage in [&[3, 22, 0, 0][..], &bytes, &[1, 22, 9], &[0], &[]] {
        let before = invalid(&net);
        let (channel, bytes) = (whimbrel_core::Channel::Datagram, garbage);
        net.input(1, Input::Peer(whimbrel_core::PeerInput::Bytes { link, channel, bytes }));
        assert_eq!(invalid(&net), before + 1, "{garbage:?}");
    }
    net.publish(0, 1, "alarm/1", "one", Qos::AtLeastOnce);
    net.advance(SECOND);
    assert_eq!(net.payloads(1, 1), ["one"]);
}

#[test]
fn an_event_on_a_stream_is_not_lost_as_a_datagram_of_another_topic_overtakes_it() {
    let mut net = world(2);
    make_transports(&mut net);
    // What is on a stream takes longer.
    let held = Rc::new(RefCell::new(Vec::new()));
    let holds = Rc::clone(&held);
    net.drops = Box::new(move |from, channel, bytes| {
        let is_held = from == 0 && channel == whimbrel_core::Channel::BestEffort;
        holds.borrow_mut().extend(is_held.then(|| bytes.to_vec()));
        is_held
    });
    net.publish(0, 1, "alarm/sure", "first", Qos::AtMostOnce);
    net.publish(0, 1, "alarm/fast", "second", Qos::AtMostOnce);
    net.advance(Duration::from_millis(5));
    let (_, link) = net.ends(0)[1];
    for bytes in held.take() {
        let (channel, bytes) = (whimbrel_core::Channel::BestEffort, &bytes);
        net.input(1, Input::Peer(whimbrel_core::PeerInput::Bytes { link, channel, bytes }));
    }
    assert_eq!(net.payloads(1, 1), ["second", "first"]);
}
