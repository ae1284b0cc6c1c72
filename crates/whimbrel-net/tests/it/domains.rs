//! Domains: paths, pairs and trees stay within the brokers that may carry what has a label, and are
//! those that these would have alone.

use proptest::prelude::*;
use whimbrel_event::{DomainLabel, Domains, HostId};
use whimbrel_net::Routing;
use whimbrel_net::route::{Availability, MapOutages, Routes, TopicPaths, Tree};
use whimbrel_net::topology::{LinkState, Topology};

use crate::world::{World, host, some_of, topology, world};

const BROKERS: u64 = 9;

/// The domains of brokers, some of which are in several or in none.
const PLACES: [&[&str]; 5] = [&[], &["eu"], &["us"], &["eu", "us"], &["de"]];

const LABELS: [&str; 4] = ["eu", "eu,us", "de;eu", "eu;us"];

fn domains(place: usize) -> Domains {
    Domains::of(PLACES[place].iter().copied()).expect("valid names")
}

fn label(text: &str) -> DomainLabel<'_> {
    DomainLabel::read(text, 2).expect("a label")
}

/// The world's link states, with each broker in its place.
fn placed(world: &World, places: &[usize]) -> Vec<LinkState> {
    let states = world.states().into_iter().zip(places);
    states.map(|(state, place)| LinkState { domains: domains(*place), ..state }).collect()
}

/// The same paths as of a topology that has only the brokers that may carry it.
fn alone(states: &[LinkState], text: &str) -> Topology {
    topology(states.iter().filter(|state| label(text).admits(&state.domains)).cloned())
}

fn within(topology: &Topology, text: &str) -> Routes {
    let mut routes = Routes::within(topology.own(), Routing::Best, 0, label(text));
    routes.update(topology);
    routes
}

/// All brokers on a tree, by the ports of their links.
fn brokers_of(topology: &Topology, tree: &Tree) -> Vec<HostId> {
    let mut all = Vec::new();
    let mut way: Vec<(HostId, u16)> = Vec::new();
    for (place, node) in tree.nodes.iter().enumerate() {
        while place > 0 && way.last().expect("a parent").1 == 0 {
            way.pop();
        }
        let at = match way.last_mut() {
            None => topology.own(),
            Some((parent, left)) => {
                *left -= 1;
                let known = topology.get(*parent).expect("a broker");
                known.neighbours.iter().find(|link| link.port == node.port).expect("a link").host
            }
        };
        all.push(at);
        way.push((at, node.children));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn paths_are_those_of_the_brokers_that_may_carry_it(
        world in world(BROKERS, 30),
        places in proptest::collection::vec(0..PLACES.len(), BROKERS as usize),
        text in 0..LABELS.len(),
        avoided in some_of(BROKERS),
        dead in some_of(BROKERS),
        deadline_us in 1_000_u64..100_000, kind in 0_usize..3,
    ) {
        let text = LABELS[text];
        let states = placed(&world, &places);
        let whole = topology(states.clone());
        let mut routes = within(&whole, text);
        let may_carry = |host: &HostId| {
            whole.get(*host).is_some_and(|state| label(text).admits(&state.domains))
        };
        if !may_carry(&host(0)) {
            for to in 1..BROKERS {
                prop_assert_eq!(routes.next_hop(host(to)), None, "what this broker may not carry goes nowhere");
            }
            return Ok(());
        }
        let few = alone(&states, text);
        let mut other = within(&few, text);
        for to in 0..BROKERS {
            prop_assert_eq!(routes.path(host(to)), other.path(host(to)));
            prop_assert_eq!(routes.next_hop(host(to)), other.next_hop(host(to)));
            prop_assert!(routes.path(host(to)).iter().all(may_carry));
            let detour = routes.avoiding(&avoided, &dead).path(host(to));
            prop_assert_eq!(&detour, &other.avoiding(&avoided, &dead).path(host(to)));
            prop_assert!(detour.iter().all(may_carry));
        }
        let set: Vec<HostId> = (1..BROKERS).map(host).collect();
        let trees = routes.trees(&set).clone();
        prop_assert!(trees.trees.iter().flat_map(|tree| brokers_of(&whole, tree)).all(|host| may_carry(&host)));
        let outside = (0..).zip(&set).filter(|(_, host)| !may_carry(host)).map(|(number, _)| number);
        let mut unreached = outside.filter(|number: &u16| !trees.unreachable.contains(number));
        prop_assert_eq!(unreached.next(), None);
        let (availability, outages) = (Availability::of_ppm(999_999).expect("in the range"), MapOutages::default());
        let paths = [TopicPaths::Two, TopicPaths::Targeted, TopicPaths::Available(availability)][kind];
        let copies = routes.copies(&set, paths, deadline_us, &outages).clone();
        prop_assert!(copies.trees.trees.iter().flat_map(|tree| brokers_of(&whole, tree)).all(|host| may_carry(&host)));
        prop_assert_eq!(&copies.trees, &other.copies(&set, paths, deadline_us, &outages).trees);
    }
}

#[test]
fn a_broker_that_leaves_its_domain_is_on_no_path_any_more() {
    let world = World::new(4, &[(0, 1, 1_000), (1, 3, 1_000), (0, 2, 9_000), (2, 3, 9_000)]);
    let states = placed(&world, &[1; 4]);
    let mut known = topology(states.clone());
    let mut routes = within(&known, "eu");
    assert_eq!(routes.path(host(3)), [host(0), host(1), host(3)]);
    let later = LinkState { domains: domains(2), sequence: 2, ..states[1].clone() };
    known.learn(crate::world::at(0), later, core::time::Duration::ZERO);
    assert!(routes.update(&known), "the links are the same, and the paths are not");
    assert_eq!(routes.path(host(3)), [host(0), host(2), host(3)]);
    assert!(!routes.is_reachable(host(1)));
}
