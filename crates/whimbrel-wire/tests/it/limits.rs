//! What is refused, and why; each bound from both sides.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::frame_checks::{cut, encoded};
use whimbrel_event::{DomainLabel, Domains, HostId, PubendId, Tick};
use whimbrel_wire::*;

const HOST: u64 = 0x1230;

fn host() -> HostId {
    HostId::new(HOST)
}

/// The frame's bytes survive; returns them without their length.
fn accepted(frame: &Frame<'_>) -> Vec<u8> {
    let bytes = cut(&encoded(frame)).remove(0);
    assert_eq!(Frame::decode(&bytes).as_ref(), Ok(frame));
    bytes
}

/// It is a bug of ours to send it.
fn refused(frame: &Frame<'_>) {
    assert!(catch_unwind(AssertUnwindSafe(|| encoded(frame))).is_err(), "{frame:?}");
}

fn hello(name: &str) -> Hello<'_> {
    Hello {
        major: MAJOR,
        minor: 3,
        deployment: 5,
        host: host(),
        incarnation: 6,
        name,
        time: 7,
        reliable: 4,
        further: 12,
        birth: Tick(8),
        version: "0.2.0",
    }
}

fn link_state() -> LinkStateFrame<'static> {
    LinkStateFrame {
        host: host(),
        incarnation: 1,
        sequence: 2,
        name: "a",
        reliable: 1,
        further: 1,
        birth: Tick(3),
        age_ms: 4,
        addresses: Vec::new(),
        neighbours: Vec::new(),
        previous: Vec::new(),
        domains: Domains::default(),
        protocol: Protocol::UNTOLD,
        later: &[],
    }
}

fn interest<'a>(added: Vec<InterestEntry<'a>>) -> Frame<'a> {
    Frame::Interest(InterestUpdate {
        host: host(),
        incarnation: 1,
        version: 9,
        base: Some(8),
        removed: vec![],
        added,
        age_ms: 7,
    })
}

#[test]
fn a_hello_has_these_bytes() {
    let bytes = accepted(&Frame::Hello(hello("n-1")));
    let wanted = [
        &[1, 1, 3][..],
        &5_u64.to_le_bytes(),
        &HOST.to_le_bytes(),
        &6_u64.to_le_bytes(),
        b"\x03n-1",
        &7_u64.to_le_bytes(),
        &[4, 12],
        &8_u64.to_le_bytes(),
        b"\x050.2.0",
    ];
    assert_eq!(bytes, wanted.concat());
}

#[test]
fn a_hello_may_tell_no_version_and_more_than_is_known() {
    let of_minor_0 = Hello { minor: 0, version: "", ..hello("n-1") };
    let mut bytes = accepted(&Frame::Hello(of_minor_0));
    assert!(bytes.ends_with(&8_u64.to_le_bytes()), "it ends as it did before there were versions");
    bytes.extend_from_slice(b"\x050.2.0");
    assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello(Hello { version: "0.2.0", ..of_minor_0 })));
    bytes.extend_from_slice(b"what a later minor version may tell");
    assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello(Hello { version: "0.2.0", ..of_minor_0 })));
}

#[test]
fn a_version_is_a_text_of_some_length() {
    let longest = "v".repeat(VERSION_BYTES_MAX);
    let mut bytes = accepted(&Frame::Hello(Hello { version: &longest, ..hello("a") }));
    refused(&Frame::Hello(Hello { version: &(longest + "v"), ..hello("a") }));
    *bytes.last_mut().expect("it has some") = 0xff;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("a version")));
    let at = bytes.len() - VERSION_BYTES_MAX - 1;
    bytes[at] += 1;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::TooMany("a version")));
    bytes[at] -= 2;
    bytes.truncate(at + 5);
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Truncated));
}

#[test]
fn an_event_has_these_bytes() {
    let mut tree = Vec::new();
    let (tick, shared) = (Tick(1000), Tick(900));
    let mut writer = TreeWriter::new(&mut tree, tick, shared);
    writer.root(Some(Dest { tag: 0x0102, previous: shared }), 2);
    writer.child(64, Some(Dest { tag: 3, previous: Tick(800) }), 0);
    writer.child(5, None, 1);
    writer.child(6, Some(Dest { tag: 4, previous: shared }), 0);
    writer.finish();
    assert_eq!(tree, [0x82, 2, 1, 0xff, 1, 3, 0, 200, 1, 0x01, 5, 0x86, 4, 0]);
    let mut repairers = Repairers::NONE;
    assert!(repairers.push(host()));
    let frame = EventFrame {
        pubend: PubendId(0x1237),
        tick,
        age_us: 300,
        answer: true,
        retain: true,
        repairers,
        tree: &tree,
        default_previous: shared,
        event: b"event",
    };
    let bytes = accepted(&Frame::Event(frame));
    let fixed = [&[7, 0b1_1011][..], &0x1237_u64.to_le_bytes(), &1000_u64.to_le_bytes(), &[0xac, 2, 100]];
    assert_eq!(bytes, [&fixed.concat()[..], &HOST.to_le_bytes(), &tree, b"event"].concat());
    let mut header = Vec::new();
    frame.encode_header(5, &mut header);
    assert_eq!([&header[..], b"event"].concat(), encoded(&Frame::Event(frame)));
    // What the neighbours get.
    let passed: Vec<_> = frame
        .routes()
        .unwrap()
        .children()
        .map(|subtree| {
            let mut out = Vec::new();
            subtree.write_root(&mut out);
            out
        })
        .collect();
    assert_eq!(passed, [vec![0xc0, 3, 0, 200, 1], vec![0x01, 0x86, 4, 0]]);
}

#[test]
fn a_hello_of_another_major_version_is_told_from_nonsense() {
    assert_eq!(Frame::decode(&[1, 2, 0]), Err(Invalid::Major(2)));
}

#[test]
fn later_minor_versions_may_add_frames_and_fields() {
    let frame = Frame::Probe(Probe { sequence: 1, sent: 2 });
    let mut bytes = accepted(&frame);
    bytes.extend_from_slice(b"more");
    assert_eq!(Frame::decode(&bytes), Ok(frame));
    assert_eq!(Frame::decode(&[127, 1, 2]), Ok(Frame::Unknown(127)));
    assert_eq!(Frame::decode(&[0]), Ok(Frame::Unknown(0)));
    assert_eq!(Frame::decode(&[128, 1, 2]), Err(Invalid::UnknownType(128)));
    assert_eq!(Frame::decode(&[]), Err(Invalid::Empty));
}

#[test]
fn names_are_short_and_plain() {
    accepted(&Frame::Hello(hello(&"n".repeat(NAME_BYTES_MAX))));
    for name in ["", "a b", "ż", &"n".repeat(NAME_BYTES_MAX + 1)] {
        refused(&Frame::Hello(hello(name)));
    }
    let mut bytes = accepted(&Frame::Hello(hello("name")));
    let at = bytes.windows(4).position(|four| four == b"name").unwrap();
    bytes[at] = b' ';
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("a broker's name")));
    bytes[at] = 0xff;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("a broker's name")));
    bytes[at - 1] = 65;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::TooMany("a broker's name")));
}

#[test]
fn pubends_are_as_many_as_a_host_can_have() {
    refused(&Frame::Hello(Hello { reliable: 5, ..hello("a") }));
    refused(&Frame::Hello(Hello { further: 13, ..hello("a") }));
    let bytes = accepted(&Frame::Hello(Hello { version: "", ..hello("a") }));
    for (at, byte) in [(10, 5), (9, 13)] {
        let mut bytes = bytes.clone();
        let at = bytes.len() - at;
        bytes[at] = byte;
        assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a number of pubends")));
    }
}

#[test]
fn a_host_id_ends_in_zeros() {
    let mut bytes = accepted(&Frame::Hello(hello("a")));
    bytes[11] |= 1;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Form("a host id")));
}

#[test]
fn texts_have_their_bounds() {
    let long = "x".repeat(GOODBYE_BYTES_MAX + 1);
    accepted(&Frame::Goodbye(Goodbye { code: 1, text: &long[..GOODBYE_BYTES_MAX] }));
    refused(&Frame::Goodbye(Goodbye { code: 1, text: &long }));
    // The length 257 as a varint.
    let bytes = [&[2, 1, 0x81, 2][..], &[b'x'; 257]].concat();
    assert_eq!(Frame::decode(&bytes), Err(Invalid::TooMany("a goodbye")));
}

#[test]
fn link_states_have_their_bounds() {
    let neighbour = LinkEnd { host: host(), port: u16::MAX, delay_us: u32::MAX, loss: LOSS_MAX, surcharge_us: 0 };
    let state = |addresses: Vec<&'static str>, neighbours| {
        Frame::LinkState(LinkStateFrame { addresses, neighbours, ..link_state() })
    };
    accepted(&state(vec!["1.2.3.4:5"; ADDRESSES_MAX], vec![neighbour; NEIGHBOURS_MAX]));
    refused(&state(vec!["1.2.3.4:5"; ADDRESSES_MAX + 1], vec![]));
    refused(&state(vec![], vec![neighbour; NEIGHBOURS_MAX + 1]));
    refused(&state(vec![], vec![LinkEnd { loss: LOSS_MAX + 1, ..neighbour }]));
    let metered = LinkEnd { surcharge_us: u32::MAX, ..neighbour };
    let state_of =
        |neighbours| Frame::LinkState(LinkStateFrame { neighbours, protocol: Protocol::OWN, ..link_state() });
    accepted(&state_of(vec![metered; SURCHARGES_MAX]));
    refused(&state_of(vec![metered; SURCHARGES_MAX + 1]));
    let ends = vec![neighbour, LinkEnd { surcharge_us: 100, ..neighbour }];
    let mut bytes = accepted(&state_of(ends));
    let end = bytes.len();
    // One surcharge: the place of the link, and the cost.
    assert_eq!(bytes[end - 3..], [1, 1, 100]);
    for (place, cost) in [(2, 100), (1, 0)] {
        bytes[end - 2..].copy_from_slice(&[place, cost]);
        assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a surcharge")), "{place}, {cost}");
    }
    refused(&state(vec![""], vec![]));
    refused(&state(vec!["a b"], vec![]));
    let mut bytes = accepted(&state(vec!["1:5"], vec![neighbour]));
    let end = bytes.len();
    // Behind it there is the number of former hosts.
    assert_eq!(bytes[end - 3..], [0xe8, 7, 0]);
    bytes[end - 3] = 0xe9;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a loss")));
    let at = bytes.windows(3).position(|three| three == b"1:5").unwrap();
    bytes[at] = b'\n';
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("an address")));
}

#[test]
fn a_broker_names_its_domains_behind_its_surcharges() {
    let domains = Domains::of(["us", "eu"]).expect("two names");
    let state = LinkStateFrame { domains, protocol: Protocol { minor: 3, features: 1 }, ..link_state() };
    let untold = accepted(&Frame::LinkState(link_state()));
    let bytes = accepted(&Frame::LinkState(state.clone()));
    let told = [&[3, 1 | 2, 0, 5][..], b"eu,us"].concat();
    assert_eq!(bytes[untold.len()..], told, "there is a list of surcharges, if an empty one");
    accepted(&Frame::LinkState(LinkStateFrame { later: b"more", ..state.clone() }));
    for wrong in [&b"us,eu"[..], b"eu,eu", b"eu;us", b"eu, s", b""] {
        let mut bytes = bytes[..untold.len() + 3].to_vec();
        bytes.push(wrong.len() as u8);
        bytes.extend_from_slice(wrong);
        assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("domains")));
    }
    refused(&Frame::LinkState(LinkStateFrame { protocol: Protocol::UNTOLD, ..state }));
}

#[test]
fn a_labelled_message_names_who_may_carry_it() {
    let (to, label) = (host(), DomainLabel::read("eu,us;us", 2).expect("two lists"));
    let message = MessageFrame { to, hops: 0, is_bulk: true, from: to, incarnation: 1, kind: 9, label, body: b"x" };
    let bytes = accepted(&message.framed());
    assert!(matches!(Frame::decode(&bytes), Ok(Frame::LabelledMessage(LabelledMessage(read))) if read == message));
    let plain = accepted(&MessageFrame { label: DomainLabel::ANY, ..message }.framed());
    assert_eq!((bytes[0], plain[0], bytes.len() - plain.len()), (26, 18, 1 + 8));
    for wrong in [0, 6] {
        let mut bytes = bytes.clone();
        bytes[1] = wrong;
        assert_eq!(Frame::decode(&bytes).map(|_| ()), Err(Invalid::Text("a label")), "{wrong}");
    }
}

#[test]
fn a_link_state_tells_what_its_broker_speaks_and_keeps_what_a_later_one_adds() {
    let protocol = Protocol { minor: 2, features: 0x81 };
    let state = LinkStateFrame { protocol, ..link_state() };
    let untold = accepted(&Frame::LinkState(link_state()));
    let mut bytes = accepted(&Frame::LinkState(state.clone()));
    assert_eq!(bytes[untold.len()..], [2, 0x81, 1], "the version and the features stand at the end");
    bytes.extend_from_slice(b"more");
    let later = LinkStateFrame { later: b"more", ..state.clone() };
    assert_eq!(Frame::decode(&bytes), Ok(Frame::LinkState(later.clone())));
    assert_eq!(accepted(&Frame::LinkState(later)), bytes, "it is passed on as it came");
    bytes.truncate(untold.len() + 1);
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Truncated));
    // Earlier versions do not tell theirs.
    bytes[untold.len()] = 1;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a minor version")));
    refused(&Frame::LinkState(LinkStateFrame { protocol: Protocol { minor: 1, features: 1 }, ..link_state() }));
    refused(&Frame::LinkState(LinkStateFrame { later: b"more", ..link_state() }));
    let long = [7; LATER_BYTES_MAX + 1];
    let mut bytes = accepted(&Frame::LinkState(LinkStateFrame { later: &long[1..], ..state.clone() }));
    refused(&Frame::LinkState(LinkStateFrame { later: &long, ..state }));
    bytes.push(7);
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("the fields of a later version")));
}

#[test]
fn what_two_brokers_speak_is_the_less_of_both() {
    let (one, other) = (Protocol { minor: 3, features: 0b110 }, Protocol { minor: 2, features: 0b011 });
    assert_eq!(one.common(other), Protocol { minor: 2, features: 0b010 });
    assert_eq!(one.common(Protocol::UNTOLD), Protocol::UNTOLD);
}

#[test]
fn lists_have_their_bounds_and_nothing_is_allocated_for_what_is_not_there() {
    let ask = |count| Frame::Ask(Ask { interests: vec![host(); count], link_states: vec![] });
    accepted(&ask(LIST_MAX));
    refused(&ask(LIST_MAX + 1));
    // 4097, then 4096 entries that are not there.
    assert_eq!(Frame::decode(&[6, 0x81, 0x20]), Err(Invalid::TooMany("interests")));
    assert_eq!(Frame::decode(&[6, 0x80, 0x20, 0]), Err(Invalid::Truncated));
    let digest = |ranges| Frame::RegistryDigest(RegistryDigest { ranges });
    accepted(&digest(vec![(255, 1); REGISTRY_RANGES]));
    refused(&digest(vec![(255, 1); REGISTRY_RANGES + 1]));
    refused(&digest(vec![(256, 1)]));
    assert_eq!(Frame::decode(&[14, 1, 0x80, 2]), Err(Invalid::Range("a range of keys")));
    assert_eq!(Frame::decode(&[4, 2, 0, 0]), Err(Invalid::Form("whether more follows")));
}

/// A frame whose last lists are empty announces one entry more than allowed, in the list before
/// `behind` others; then as many as are allowed.
fn too_many(frame: &Frame<'_>, behind: usize, max: usize, what: &'static str) {
    let bytes = accepted(frame);
    let (before, after) = bytes.split_at(bytes.len() - behind - 1);
    assert_eq!(after, vec![0; behind + 1]);
    let with_count = |count: usize| {
        // A varint of three bytes is long enough for each.
        let long = [count as u8 | 0x80, (count >> 7) as u8 | 0x80, (count >> 14) as u8];
        let short = [count as u8 | 0x80, (count >> 7) as u8];
        let count = if count < 128 {
            &[count as u8][..]
        } else if count < 1 << 14 {
            &short[..]
        } else {
            &long[..]
        };
        [before, count, &after[1..]].concat()
    };
    assert_eq!(Frame::decode(&with_count(max + 1)), Err(Invalid::TooMany(what)), "{frame:?}");
    assert_eq!(Frame::decode(&with_count(max)), Err(Invalid::Truncated), "{frame:?}");
}

#[test]
fn each_list_and_text_of_others_has_its_bound() {
    let state = Frame::LinkState(link_state());
    too_many(&state, 2, ADDRESSES_MAX, "addresses");
    too_many(&state, 1, NEIGHBOURS_MAX, "neighbours");
    too_many(&state, 0, PREVIOUS_IDENTITIES_MAX, "former hosts");
    too_many(
        &Frame::PreviousIdentities(PreviousIdentities { to: host(), hops: 0, hosts: Vec::new() }),
        0,
        PREVIOUS_IDENTITIES_MAX,
        "former hosts",
    );
    let to = host();
    let message = MessageFrame {
        to,
        hops: 0,
        is_bulk: false,
        from: to,
        incarnation: 1,
        kind: 2,
        label: DomainLabel::ANY,
        body: &[],
    };
    too_many(&Frame::MessageFrame(message), 0, MESSAGE_BYTES_MAX, "a letter");
    let digest = Frame::Digest(Digest::default());
    too_many(&digest, 1, LIST_MAX, "link states");
    too_many(&digest, 0, LIST_MAX, "interests");
    let ask = Frame::Ask(Ask::default());
    too_many(&ask, 1, LIST_MAX, "interests");
    too_many(&ask, 0, LIST_MAX, "link states");
    let Frame::Interest(update) = interest(vec![]) else { unreachable!("an interest") };
    // The age behind its lists is 0, too.
    let update = Frame::Interest(InterestUpdate { age_ms: 0, ..update });
    too_many(&update, 3, LIST_MAX, "interests that are gone");
    too_many(&update, 2, LIST_MAX, "interests");
    too_many(&Frame::Registry(Registry::default()), 0, LIST_MAX, "entries");
    too_many(&Frame::RegistryDigest(RegistryDigest::default()), 0, REGISTRY_RANGES, "ranges of keys");
    too_many(&Frame::RegistryAsk(RegistryAsk::default()), 0, REGISTRY_RANGES, "ranges of keys");
    let nack = Nack { pubend: PubendId(1), from: host(), incarnation: 2, hops: 3, ranges: vec![] };
    too_many(&Frame::Nack(nack), 0, RANGES_MAX, "ranges");
    let target_tree = &[0x80, 0, 0];
    let silence = Silence { from: host(), target_tree, incarnation: 1, version: 2, parts: vec![] };
    too_many(&Frame::Silence(silence), 0, PARTS_MAX, "streams");
    too_many(&Frame::Goodbye(Goodbye { code: 0, text: "" }), 0, GOODBYE_BYTES_MAX, "a goodbye");
}

#[test]
fn what_is_sent_has_the_bounds_of_what_is_read() {
    let digest = |link_states, interests| Frame::Digest(Digest { link_states, interests, more: false });
    let many = vec![(host(), 1, 2); LIST_MAX + 1];
    accepted(&digest(many[1..].to_vec(), many[1..].to_vec()));
    refused(&digest(many.clone(), vec![]));
    refused(&digest(vec![], many));
    let many = vec![host(); LIST_MAX + 1];
    refused(&Frame::Ask(Ask { interests: vec![], link_states: many }));
    let entry = RegistryEntry { key: "", version: (Tick(1), PubendId(2)), value: None, age_ms: 0 };
    accepted(&Frame::Registry(Registry { entries: vec![entry; LIST_MAX] }));
    refused(&Frame::Registry(Registry { entries: vec![entry; LIST_MAX + 1] }));
    let Frame::Interest(update) = interest(vec![]) else { unreachable!("an interest") };
    accepted(&Frame::Interest(InterestUpdate { removed: vec![1; LIST_MAX], ..update.clone() }));
    refused(&Frame::Interest(InterestUpdate { removed: vec![1; LIST_MAX + 1], ..update }));
    accepted(&Frame::RegistryAsk(RegistryAsk { ranges: vec![255; REGISTRY_RANGES] }));
    refused(&Frame::RegistryAsk(RegistryAsk { ranges: vec![255; REGISTRY_RANGES + 1] }));
    let key = "k".repeat(TOPIC_BYTES_MAX + 1);
    accepted(&Frame::Registry(Registry { entries: vec![RegistryEntry { key: &key[1..], ..entry }] }));
    refused(&Frame::Registry(Registry { entries: vec![RegistryEntry { key: &key, ..entry }] }));
    let address: String = "9".repeat(ADDRESS_BYTES_MAX + 1);
    accepted(&Frame::LinkState(LinkStateFrame { addresses: vec![&address[1..]], ..link_state() }));
    refused(&Frame::LinkState(LinkStateFrame { addresses: vec![&address], ..link_state() }));
    let previous = PreviousIdentity { host: host(), reliable: 4, further: 4, birth: Tick(1), upto: Tick(2) };
    accepted(&Frame::PreviousIdentities(PreviousIdentities {
        to: host(),
        hops: 1,
        hosts: vec![previous; PREVIOUS_IDENTITIES_MAX],
    }));
    refused(&Frame::PreviousIdentities(PreviousIdentities {
        to: host(),
        hops: 1,
        hosts: vec![previous; PREVIOUS_IDENTITIES_MAX + 1],
    }));
    refused(&Frame::LinkState(LinkStateFrame {
        previous: vec![previous; PREVIOUS_IDENTITIES_MAX + 1],
        ..link_state()
    }));
}

#[test]
fn interests_have_their_bounds() {
    let (filter, selector) = ("f".repeat(TOPIC_BYTES_MAX + 1), "s".repeat(SELECTOR_BYTES_MAX + 1));
    let entry = InterestEntry {
        id: u32::MAX,
        filter: &filter[..TOPIC_BYTES_MAX],
        selector: Some(&selector[..SELECTOR_BYTES_MAX]),
        durable: true,
    };
    accepted(&interest(vec![entry]));
    refused(&interest(vec![InterestEntry { filter: &filter, ..entry }]));
    refused(&interest(vec![InterestEntry { filter: "", ..entry }]));
    refused(&interest(vec![InterestEntry { selector: Some(&selector), ..entry }]));
    let small = InterestEntry { id: 1, filter: "a", selector: None, durable: false };
    let mut bytes = accepted(&interest(vec![small]));
    let end = bytes.len();
    assert_eq!(bytes[end - 5..], [1, b'a', 0, 7, 0]);
    bytes[end - 5] = 0;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Text("a topic filter")));
    accepted(&interest(vec![small; LIST_MAX]));
    let mut bytes = accepted(&interest(vec![InterestEntry { durable: true, ..small }]));
    let end = bytes.len();
    assert_eq!(bytes[end - 3..], [7, 1, 0]);
    bytes[end - 1] = 1;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("a durable interest")));
    refused(&interest(vec![small; LIST_MAX + 1]));
    let Frame::Interest(update) = interest(vec![]) else { unreachable!("an interest") };
    refused(&Frame::Interest(InterestUpdate { base: Some(9), ..update.clone() }));
    let mut bytes = accepted(&Frame::Interest(InterestUpdate { base: Some(0), ..update }));
    assert_eq!(bytes[17..], [9, 9, 0, 0, 7, 0]);
    bytes[18] = 10;
    assert_eq!(Frame::decode(&bytes), Err(Invalid::Range("the base of an interest")));
}

#[test]
fn entries_tell_how_long_they_are() {
    let text = "x".repeat(300);
    for len in [1, 127, 128, 300] {
        let (text, bytes) = (&text[..len], &text.as_bytes()[..len]);
        for (selector, value) in [(None, None), (Some(text), Some(bytes)), (Some(""), Some(&b""[..]))] {
            let entry = InterestEntry { id: len as u32, filter: text, selector, durable: false };
            let grown = accepted(&interest(vec![entry])).len() - accepted(&interest(vec![])).len();
            assert_eq!(entry.encoded_len(), grown);
            let entry = RegistryEntry { key: text, version: (Tick(1), PubendId(2)), value, age_ms: len as u64 };
            let entries = |entries| accepted(&Frame::Registry(Registry { entries })).len();
            assert_eq!(entry.encoded_len(), entries(vec![entry]) - entries(vec![]));
        }
    }
}

#[test]
fn a_frame_has_its_bound() {
    let value = vec![0; FRAME_BYTES_MAX];
    let registry = |len| {
        let entry = RegistryEntry { key: "", version: (Tick(1), PubendId(2)), value: Some(&value[..len]), age_ms: 0 };
        Frame::Registry(Registry { entries: vec![entry] })
    };
    // Type, count, key, version, age and the value's length.
    let rest = 1 + 1 + 1 + 16 + 1 + 3;
    assert_eq!(accepted(&registry(FRAME_BYTES_MAX - rest)).len(), FRAME_BYTES_MAX);
    refused(&registry(FRAME_BYTES_MAX - rest + 1));
    assert_eq!(Frame::decode(&vec![0; FRAME_BYTES_MAX + 1]), Err(Invalid::TooLong));
}

#[test]
fn what_is_missing_and_what_is_silent_has_an_extent() {
    let range = Range { after: Tick(5), upto: Tick(6), ends_in_data: true, version: 7 };
    let nack = |ranges| Frame::Nack(Nack { pubend: PubendId(1), from: host(), incarnation: 2, hops: 3, ranges });
    accepted(&nack(vec![range; RANGES_MAX]));
    refused(&nack(vec![range; RANGES_MAX + 1]));
    refused(&nack(vec![Range { after: Tick(6), ..range }]));
    let mut bytes = accepted(&nack(vec![range]));
    let end = bytes.len();
    assert_eq!(bytes[end - 4..], [3, 12, 1, 7]);
    for (at, byte, invalid) in [
        (2, 0, Invalid::Range("the begin of what is missing")),
        (2, 7, Invalid::Range("the begin of what is missing")),
        (1, 0, Invalid::Form("what is missing")),
        (4, 4, Invalid::Form("what is missing")),
    ] {
        let good = core::mem::replace(&mut bytes[end - at], byte);
        assert_eq!(Frame::decode(&bytes), Err(invalid));
        bytes[end - at] = good;
    }
    let (after, upto, still) = (Tick(6), Tick(6), Tick(6));
    let part = Part { index: 15, begin: Tick(8), since: Tick(9), after, upto, lost: true, still };
    let tree = [0x80, 0, 0];
    let silence =
        |parts| Frame::Silence(Silence { from: host(), target_tree: &tree, incarnation: 1, version: 2, parts });
    let bytes = accepted(&silence(vec![part; PARTS_MAX]));
    assert_eq!(bytes[18..26], [0x80, 0, 0, 16, 31, 12, 0, 6]);
    refused(&silence(vec![part; PARTS_MAX + 1]));
    refused(&silence(vec![Part { index: 16, ..part }]));
    refused(&silence(vec![Part { after: Tick(7), ..part }]));
    refused(&silence(vec![Part { still: Tick(7), ..part }]));
}

/// A broker of an earlier version does not say since when a stream had no event, and a broker of
/// such a version ignores that in the silences that it reads.
#[test]
fn a_silence_of_an_earlier_version_says_nothing_of_the_last_event() {
    let part = |still| Part {
        index: 3,
        begin: Tick(8),
        since: Tick(9),
        after: Tick(6),
        upto: Tick(20),
        lost: false,
        still: Tick(still),
    };
    let silence = |parts: Vec<Part>| {
        let silence = Silence { from: host(), target_tree: &[0x80, 0, 0], incarnation: 1, version: 2, parts };
        accepted(&Frame::Silence(silence))
    };
    let parts = |bytes: &[u8]| match Frame::decode(bytes) {
        Ok(Frame::Silence(silence)) => Ok(silence.parts),
        Ok(other) => panic!("{other:?}"),
        Err(invalid) => Err(invalid),
    };
    let bytes = silence(vec![part(7), part(13)]);
    assert_eq!(parts(&bytes), Ok(vec![part(7), part(13)]));
    assert_eq!(parts(&bytes[..bytes.len() - 2]), Ok(vec![part(20), part(20)]));
    assert!(parts(&bytes[..bytes.len() - 1]).is_err(), "one of two is missing");
    let beyond = [&bytes[..bytes.len() - 1], &[21]].concat();
    assert_eq!(parts(&beyond), Err(Invalid::Range("the last event before a silence")));
}
