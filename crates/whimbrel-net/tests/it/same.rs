//! The same input gives the same bytes, wherever streams are cut.

use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_event::Reliability;
use whimbrel_net::Pace;

use crate::fabric::node::{Change, KIND_ASK, Setup};
use crate::fabric::{Content, Cuts, Fabric};
use crate::scenarios::{MILLI, SECOND};

/// Rounds of a busy world.
const ROUNDS: usize = 60;

/// A world with a bit of everything: events, entries, messages, a link with little room, links that
/// fail, and a node that begins anew. Returns it and the digest of all bytes.
fn busy(cuts: Cuts) -> (Fabric, u64) {
    let mut fabric = Fabric::of(7);
    fabric.cut_streams(cuts);
    let pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [1, 4], [2, 6], [6, 5]];
    let wires = pairs.map(|pair| fabric.link(pair, MILLI * (1 + pair[1] as u32)));
    fabric.limit(wires[3], Some(100));
    for number in 0..7 {
        fabric.subscribe(number, ["a/#", "b/+", "+/x"][number % 3]);
    }
    fabric.run(SECOND * 2);
    for round in 0..ROUNDS {
        let number = if round % 7 == 6 && (30..40).contains(&round) { 0 } else { round % 7 };
        let topic = ["a/x", "b/y", "a/b/c", "b/x"][round % 4];
        let reliability = if round % 5 == 0 { Reliability::BestEffort } else { Reliability::Reliable };
        fabric
            .publish(number, Content { topic, payload: &vec![round as u8; round * 9], reliability, deadline_ms: None });
        fabric.put(number, &format!("key/{}", round % 11), (round % 4 > 0).then_some(topic));
        fabric.change((number + 1) % 6, Change { map: 1, key: topic, value: Some("value") });
        fabric.message(number, (number + 3) % 7, KIND_ASK, topic.as_bytes());
        match round {
            20 => fabric.close(wires[1]),
            25 => fabric.cut(wires[6]),
            30 => fabric.kill(6),
            40 => fabric.revive(6),
            41 => fabric.subscribe(6, "a/#"),
            45 => [1, 6].into_iter().for_each(|wire| fabric.heal(wires[wire])),
            _ => {}
        }
        // After node 6 is back, its interest has to be known first.
        fabric.run(if round == 41 { SECOND } else { MILLI * 70 });
    }
    fabric.run(SECOND * 5);
    let digest = fabric.digest();
    (fabric, digest)
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let ((first, first_digest), (again, again_digest)) = (busy(Cuts::Frames), busy(Cuts::Frames));
    assert_eq!(first_digest, again_digest);
    assert!((0..7).all(|number| first.node(number).told.delivered == again.node(number).told.delivered));
    assert_eq!(first.check(), Ok(()));
    assert!(first.has_one_map());
}

#[test]
fn another_input_gives_other_bytes() {
    let digest = |second: &str| {
        let mut fabric = Fabric::new(["b0", second].map(Setup::named));
        fabric.link([0, 1], MILLI);
        fabric.run(SECOND);
        fabric.digest()
    };
    assert_eq!(digest("b1"), digest("b1"));
    assert_ne!(digest("b1"), digest("b2"));
}

#[test]
fn streams_may_be_cut_anywhere() {
    let (whole, digest) = busy(Cuts::Frames);
    for seed in 1..4 {
        let (parts, digest_of_parts) = busy(Cuts::Anywhere(seed));
        for number in 0..7 {
            assert_eq!(parts.node(number).told.delivered, whole.node(number).told.delivered, "node {number}");
            assert_eq!(parts.node(number).told.messages, whole.node(number).told.messages, "node {number}");
        }
        assert_eq!(digest_of_parts, digest, "cut from seed {seed}");
    }
}

/// What happens in a random world.
#[derive(Clone, Copy, Debug)]
enum Act {
    Publish { number: usize, topic: usize },
    Put { number: usize, key: usize },
    Remove { number: usize, key: usize },
    Cut { wire: usize },
    Close { wire: usize },
    Heal { wire: usize },
    Restart { number: usize },
    Pass { millis: u32 },
}

/// A random world: its wires with their delays in milliseconds, the filter of each node, and what
/// happens.
#[derive(Clone, Debug)]
struct Plan {
    wires: Vec<(usize, usize, u32)>,
    filters: Vec<usize>,
    acts: Vec<Act>,
    cuts: Option<u64>,
}

const TOPICS: [&str; 4] = ["a", "a/b", "c", "c/d"];
const FILTERS: [&str; 5] = ["a/#", "a", "+", "c/d", "#"];

fn act() -> impl Strategy<Value = Act> {
    (0..15_u8, 0..64_usize, 0..64_usize, 0..2_500_u32).prop_map(|(kind, at, what, millis)| match kind {
        0..=4 => Act::Publish { number: at, topic: what % TOPICS.len() },
        5 => Act::Put { number: at, key: what % TOPICS.len() },
        6 => Act::Remove { number: at, key: what % TOPICS.len() },
        7 => Act::Cut { wire: at },
        8 => Act::Close { wire: at },
        9 | 10 => Act::Heal { wire: at },
        11 => Act::Restart { number: at },
        12 => Act::Pass { millis },
        _ => Act::Pass { millis: millis % 30 },
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    (3..8_usize).prop_flat_map(|nodes| {
        // A tree, and some links more: some of them are double or lead back, and are left out.
        let tree: Vec<_> = (1..nodes).map(|number| (0..number, Just(number), 0..8_u32)).collect();
        let more = vec((0..nodes, 0..nodes, 0..8_u32), 0..nodes);
        let filters = vec(0..FILTERS.len(), nodes);
        (tree, more, filters, vec(act(), 0..60), any::<Option<u64>>()).prop_map(|(tree, more, filters, acts, cuts)| {
            let mut wires: Vec<(usize, usize, u32)> = Vec::new();
            for (one, other, delay) in tree.into_iter().chain(more) {
                let is_it = |known: &&(usize, usize, u32)| {
                    [known.0, known.1].contains(&one) && [known.0, known.1].contains(&other)
                };
                if one != other && wires.iter().find(is_it).is_none() {
                    wires.push((one, other, delay));
                }
            }
            Plan { wires, filters, acts, cuts }
        })
    })
}

/// A node begins anew. What others publish before they know its new interest is not for it.
fn restart(fabric: &mut Fabric, plan: &Plan, number: usize) {
    fabric.kill(number);
    // Incarnations differ by a millisecond at least.
    fabric.run(MILLI * 2);
    fabric.revive(number);
    fabric.subscribe(number, FILTERS[plan.filters[number]]);
}

/// Plays a plan, heals everything in the end, and publishes once more everywhere.
fn play(plan: &Plan, cuts: Cuts, pace: Pace) -> Fabric {
    let nodes = plan.filters.len();
    let setup = |number: usize| Setup { pace, ..Setup::named(format!("b{number}")) };
    let mut fabric = Fabric::new((0..nodes).map(setup));
    fabric.cut_streams(cuts);
    for (one, other, delay) in &plan.wires {
        fabric.link([*one, *other], MILLI * *delay);
    }
    fabric.run(SECOND);
    for (number, filter) in plan.filters.iter().enumerate() {
        fabric.subscribe(number, FILTERS[*filter]);
    }
    fabric.run(SECOND * 2);
    for act in &plan.acts {
        match *act {
            Act::Publish { number, topic } => {
                fabric.publish_topic(number % nodes, TOPICS[topic]);
            }
            Act::Put { number, key } => fabric.put(number % nodes, TOPICS[key], Some("value")),
            Act::Remove { number, key } => fabric.put(number % nodes, TOPICS[key], None),
            Act::Cut { wire } => fabric.cut(wire % plan.wires.len()),
            Act::Close { wire } => fabric.close(wire % plan.wires.len()),
            Act::Heal { wire } => fabric.heal(wire % plan.wires.len()),
            Act::Restart { number } => restart(&mut fabric, plan, number % nodes),
            Act::Pass { millis } => fabric.run(Duration::from_millis(millis.into())),
        }
    }
    for wire in 0..plan.wires.len() {
        fabric.heal(wire);
    }
    fabric.run(SECOND * 10);
    if plan.acts.iter().any(|act| matches!(act, Act::Restart { .. })) {
        fabric.ledger.excuse_all();
    }
    for number in 0..nodes {
        for topic in TOPICS {
            fabric.publish_topic(number, topic);
        }
    }
    fabric.run(SECOND * 2);
    fabric
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn in_any_world_each_event_arrives_once_and_the_map_is_one(plan in plan()) {
        let fabric = play(&plan, plan.cuts.map_or(Cuts::Frames, Cuts::Anywhere), Pace::DEFAULT);
        prop_assert!(fabric.is_complete() && fabric.knows_interests());
        prop_assert_eq!(fabric.check(), Ok(()));
        prop_assert!(fabric.has_one_map());
        let has_restart = plan.acts.iter().any(|act| matches!(act, Act::Restart { .. }));
        prop_assert!(has_restart || fabric.alive().iter().all(|number| fabric.node(*number).lost() == 0));
    }

    #[test]
    fn any_world_is_the_same_however_its_streams_are_cut(plan in plan(), seed in any::<u64>()) {
        // A path that is kept depends on the topologies that were looked at, and link states that
        // arrive together in one part are looked at once.
        let pace = Pace { threshold_percent: 0, ..Pace::DEFAULT };
        let (whole, parts) = (play(&plan, Cuts::Frames, pace), play(&plan, Cuts::Anywhere(seed), pace));
        for number in whole.alive() {
            prop_assert_eq!(&whole.node(number).told.delivered, &parts.node(number).told.delivered);
            prop_assert_eq!(whole.node(number).shelves[0].values(), parts.node(number).shelves[0].values());
        }
        prop_assert_eq!(whole.digest(), parts.digest());
    }
}

#[test]
fn a_broker_that_hears_of_an_earlier_incarnation_first_keeps_its_own() {
    let wires = [(0, 1), (0, 2), (1, 3), (0, 4), (0, 5), (0, 6), (1, 4)].map(|(one, other)| (one, other, 0));
    let restarts = [1, 4, 1].map(|number| Act::Restart { number });
    let mut acts = restarts.to_vec();
    acts.insert(1, Act::Cut { wire: 2 });
    let plan = Plan { wires: wires.to_vec(), filters: vec![0; 7], acts, cuts: None };
    let fabric = play(&plan, Cuts::Frames, Pace::DEFAULT);
    assert!(fabric.is_complete() && fabric.knows_interests());
}
