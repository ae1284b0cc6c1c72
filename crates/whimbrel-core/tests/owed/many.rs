//! Many durable subscriptions among many brokers: common positions are held once.

use core::time::Duration;

use whimbrel_core::{Durability, Filter, Input, Limits, Link, NOTICE_TOPIC, SubscriptionSpec};
use whimbrel_core::{Persistence, Profile};
use whimbrel_event::{CheckpointToken, Qos};

use crate::common::{CLEAN, Got, plain};
use crate::net::Net;
use crate::{PUB, SECOND, SUB, WIDE};

const BROKERS: usize = 16;
const STREAMS: usize = 8 * BROKERS;
const SUBSCRIBERS: u32 = 60;

/// Bytes of a position: its stream and its tick.
const POSITION: usize = 16;

fn client(number: u32) -> (u32, String) {
    (SUB + number, format!("subscriber{number}"))
}

/// Bytes that a broker holds of its subscriptions' positions, and bytes written of them.
fn held(net: &Net, node: usize) -> (usize, usize) {
    let sizes = net.nodes[node].core.overlay_sizes();
    let held = sizes.iter().find(|size| size.what == "positions of subscriptions").expect("it is told").bytes;
    let written = net.nodes[node].disk.map.iter().filter(|(key, _)| b"pqc".contains(&key[0]));
    let written = written.map(|(key, value)| key.len() + value.len()).sum();
    println!("{held} bytes held, {written} written, of {SUBSCRIBERS} subscriptions and {} brokers", net.nodes.len());
    (held, written)
}

/// A publisher at the first broker, subscribers at the last, one after the other.
fn world(limits: Limits) -> Net {
    world_that(BROKERS, SUBSCRIBERS, limits, Asked::Durable)
}

fn world_that(brokers: usize, subscribers: u32, limits: Limits, what: Asked) -> Net {
    let mut net = Net::with(brokers, limits);
    (0..brokers).filter(|_| what == Asked::Volatile).for_each(|node| declare(&mut net, node));
    net.attach(0, PUB, "publisher", CLEAN);
    for number in 0..subscribers {
        let (link, id) = client(number);
        net.attach(brokers - 1, link, &id, WIDE);
        let below = if what == Asked::Volatile { "/#" } else { "" };
        net.subscribe(brokers - 1, link, asked(what, &format!("t/{number}{below}")));
    }
    net
}

/// Each is sent an event.
fn publish(net: &mut Net, what: &str) {
    (0..SUBSCRIBERS).for_each(|number| net.publish(0, PUB, &format!("t/{number}"), what));
    net.advance(SECOND);
}

fn got(net: &mut Net) -> Vec<Vec<String>> {
    (0..SUBSCRIBERS).map(|number| net.payloads(BROKERS - 1, client(number).0)).collect()
}

fn all(what: &[&str]) -> Vec<Vec<String>> {
    vec![what.iter().map(|what| what.to_string()).collect(); SUBSCRIBERS as usize]
}

fn detach(net: &mut Net) {
    (0..SUBSCRIBERS).for_each(|number| net.detach(BROKERS - 1, client(number).0));
    net.advance(SECOND);
}

fn back(net: &mut Net) {
    for number in 0..SUBSCRIBERS {
        let (link, id) = client(number);
        net.attach(BROKERS - 1, link, &id, WIDE);
    }
    net.advance(SECOND * 2);
}

fn revive(net: &mut Net) {
    net.kill(BROKERS - 1);
    net.advance(SECOND);
    net.revive(BROKERS - 1);
    net.join(BROKERS - 2, BROKERS - 1);
    net.advance(SECOND * 3);
}

#[test]
fn those_who_have_caught_up_or_left_together_take_little_each() {
    let mut net = world(Limits::default());
    // The bytes if each had a list of its own.
    let alone = SUBSCRIBERS as usize * STREAMS * POSITION;
    for what in ["a", "b"] {
        publish(&mut net, what);
        assert_eq!(got(&mut net), all(&[what]));
        net.advance(SECOND * 70);
    }
    let (live, _) = held(&net, BROKERS - 1);
    assert!(live < alone * 3 / 5, "{live} of {alone}");
    detach(&mut net);
    let (away, _) = held(&net, BROKERS - 1);
    assert!(away < alone * 4 / 5, "{away} of {alone}");
    publish(&mut net, "c");
    revive(&mut net);
    let (restored, _) = held(&net, BROKERS - 1);
    // Best-effort streams have begun anew for each, and its holds are not known yet.
    assert!(restored < alone, "{restored} of {alone}");
    back(&mut net);
    assert_eq!(got(&mut net), all(&["c"]));
    publish(&mut net, "d");
    assert_eq!(got(&mut net), all(&["d"]));
    net.advance(SECOND * 3);
    let (again, _) = held(&net, BROKERS - 1);
    assert!(again < alone * 3 / 5, "{again} of {alone}");
    net.advance(SECOND * 12);
    assert_eq!(net.nodes[0].disk.events(), 0, "nobody holds anything");
}

/// Some topics are in no log.
fn declare(net: &mut Net, node: usize) {
    let filter = "t/+/lost".into();
    net.nodes[node].core.set_profiles(vec![Profile {
        filter,
        persistence: Persistence::Volatile,
        ..Profile::default()
    }]);
}

/// The kind of subscription.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asked {
    Durable,
    /// Some of its topics are in no log.
    Volatile,
    SemiDurable,
    /// The client keeps the position, and acknowledges it.
    ByToken,
    /// Logs are released at this age.
    GivenUp,
}

fn asked(what: Asked, topic: &str) -> Filter<'_> {
    let durable = plain(topic, Qos::AtLeastOnce);
    let spec = match what {
        Asked::SemiDurable => SubscriptionSpec { durability: Durability::SemiDurable, ..durable.spec },
        Asked::ByToken => SubscriptionSpec { by_token: true, notices: true, ..durable.spec },
        _ => durable.spec,
    };
    Filter { spec, wants_token: what == Asked::ByToken, ..durable }
}

/// The position of a subscription, by the last notice of silence.
fn place(got: &[Got]) -> CheckpointToken {
    let silence = got.iter().rev().find(|got| got.payload.contains("silence")).expect("silence is told");
    let (_, token) = silence.payload.split_once(r#""token":""#).expect("with where it stands");
    token.split('"').next().expect("a text").parse().expect("a token")
}

/// Bytes that each further subscription takes whose client has left, each at another moment; and
/// those after a restart of the broker.
fn away_each(brokers: usize, what: Asked) -> [usize; 2] {
    let limits = match what {
        Asked::GivenUp => Limits { max_retain: Some(SECOND * 3_600), ..Limits::default() },
        _ => Limits::default(),
    };
    let sizes = [20, 60].map(|subscribers| {
        let mut net = world_that(brokers, subscribers, limits.clone(), what);
        net.advance(SECOND * 100);
        let at = brokers - 1;
        for number in 0..subscribers {
            let (link, id) = client(number);
            net.publish(0, PUB, &format!("t/{number}"), "a");
            net.advance(Duration::from_millis(700));
            let mut got = net.got(at, link);
            if what == Asked::ByToken {
                net.advance(SECOND * 31);
                let silence = net.got(at, link);
                let token = &place(&silence);
                let acknowledge =
                    Input::Acknowledge { link: Link(link), tag: 9, qos: Qos::AtLeastOnce, identifier: 0, token };
                net.input(at, acknowledge);
            }
            got.retain(|got| got.topic != NOTICE_TOPIC);
            assert_eq!(got.iter().map(|got| &*got.payload).collect::<Vec<_>>(), ["a"], "{id}");
            net.advance(Duration::from_millis(700));
            net.detach(at, link);
        }
        net.advance(SECOND * 3);
        let away = held(&net, at).0;
        net.kill(at);
        net.advance(SECOND);
        net.revive(at);
        if what == Asked::Volatile {
            declare(&mut net, at);
        }
        net.join(at - 1, at);
        net.advance(SECOND * 3);
        [away, held(&net, at).0]
    });
    [0, 1].map(|when| (sizes[1][when] - sizes[0][when]) / 40)
}

#[test]
fn who_has_left_takes_no_more_among_more_brokers() {
    for what in [Asked::Durable, Asked::Volatile, Asked::SemiDurable, Asked::ByToken, Asked::GivenUp] {
        let sizes = [8, 16, 32].map(|brokers| away_each(brokers, what));
        println!("{what:?}: {sizes:?} bytes for each among 8, 16 and 32 brokers, and after a restart");
        // A list of its own would take 8,192 among 32.
        assert!(sizes.as_flattened().iter().all(|each| *each < 2_700), "{what:?}: {sizes:?}");
    }
}

#[test]
fn bases_do_not_heap_up_for_those_who_leave_one_after_the_other() {
    // One is made each quarter of it.
    let mut net = world(Limits { max_retain: Some(SECOND * 60), ..Limits::default() });
    net.advance(SECOND * 100);
    for number in 0..SUBSCRIBERS {
        net.publish(0, PUB, &format!("t/{number}"), "a");
        net.advance(SECOND * 3);
        assert_eq!(net.payloads(BROKERS - 1, client(number).0), ["a"]);
        net.advance(SECOND * 3);
        net.detach(BROKERS - 1, client(number).0);
    }
    net.advance(SECOND * 20);
    let bases = entries(&net, b'c');
    println!("{bases} bases");
    assert!((1..=4).contains(&bases), "{bases} bases in 380 s");
}

/// The number of the map's entries of a kind.
fn entries(net: &Net, message: u8) -> usize {
    net.nodes[BROKERS - 1].disk.map.keys().filter(|key| key[0] == message).count()
}

#[test]
fn what_is_written_is_what_differs_from_where_all_streams_stand() {
    let mut net = world(Limits { base_every: SECOND * 10, ..Limits::default() });
    for (at, what) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        publish(&mut net, what);
        assert_eq!(got(&mut net), all(&[what]));
        net.advance(SECOND * 9);
        let (_, written) = held(&net, BROKERS - 1);
        let (parts, bases) = (entries(&net, b'q'), entries(&net, b'c'));
        println!("{parts} parts, {bases} bases");
        // The broker whose stream had an event, once the others have reported since it began.
        assert!(at < 3 || parts <= SUBSCRIBERS as usize * 2, "{parts} parts");
        assert!(at < 3 || written < SUBSCRIBERS as usize * 160, "{written} bytes");
        assert!((1..=2).contains(&bases), "{bases} bases");
    }
    detach(&mut net);
    let (_, away) = held(&net, BROKERS - 1);
    assert!(away < SUBSCRIBERS as usize * 160, "{away} bytes");
    publish(&mut net, "g");
    revive(&mut net);
    assert!((1..=3).contains(&entries(&net, b'c')), "what is referred to is kept");
    back(&mut net);
    assert_eq!(got(&mut net), all(&["g"]));
    detach(&mut net);
    for number in 0..SUBSCRIBERS {
        let (link, id) = client(number);
        net.attach(BROKERS - 1, link, &id, CLEAN);
    }
    net.advance(SECOND * 3);
    assert_eq!((entries(&net, b'p'), entries(&net, b'q')), (0, 0));
    assert!(entries(&net, b'c') <= 1, "one for those who come");
}

#[test]
fn whoever_dies_at_whatever_moment_gets_everything_once() {
    let spans = [0, 5, 9, 12, 40, 900, 2_500].into_iter();
    for (span, every) in spans.flat_map(|span| [(span, 20), (span, 700), (span, 300_000)]) {
        let mut net = world(Limits { base_every: Duration::from_millis(every), ..Limits::default() });
        publish(&mut net, "a");
        assert_eq!(got(&mut net), all(&["a"]));
        net.advance(Duration::from_millis(span));
        publish(&mut net, "b");
        assert_eq!(got(&mut net), all(&["b"]));
        net.advance(Duration::from_millis(30 + span));
        publish(&mut net, "c");
        revive(&mut net);
        publish(&mut net, "d");
        back(&mut net);
        let again = got(&mut net);
        // Deliveries on the broken link come again, and no others.
        assert_eq!(again, all(&["c", "d"]), "after {span} ms, bases each {every} ms");
    }
}

#[test]
fn where_logs_are_given_up_early_nobody_who_was_there_is_told_of_it() {
    let mut net = world(Limits { max_retain: Some(SECOND * 20), ..Limits::default() });
    publish(&mut net, "a");
    assert_eq!(got(&mut net), all(&["a"]));
    net.advance(SECOND * 50);
    publish(&mut net, "b");
    assert_eq!(got(&mut net), all(&["b"]));
    net.advance(SECOND);
    revive(&mut net);
    back(&mut net);
    publish(&mut net, "c");
    assert_eq!(got(&mut net), all(&["c"]));
}
