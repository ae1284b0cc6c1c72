//! Shortest paths, against a naive search for them.

use proptest::prelude::*;
use whimbrel_event::HostId;
use whimbrel_net::route::{DARK_COST_US, DETOURS_MAX, HOP_COST_US, Routes, Ways, cost_us};
use whimbrel_net::topology::LinkState;

use crate::world::{Claim, World, end, host, port, routes, some_of, state, topology, world};

const BROKERS: u64 = 9;

/// Far more than any path costs.
const FAR: u64 = 1 << 50;

/// The cost of a link by the claim of its worse end; both ends must name it.
fn link(world: &World, from: u64, to: u64) -> u64 {
    let find = |from, to| world.claims.iter().find(|claim| (claim.from, claim.to) == (from, to));
    match (find(from, to), find(to, from)) {
        (Some(one), Some(other)) => cost_of(one).max(cost_of(other)),
        _ => FAR,
    }
}

fn cost_of(Claim { delay_us, loss, .. }: &Claim) -> u64 {
    let dark = if *loss == 1_000 { 10_000_000 } else { 0 };
    let (delay, loss) = (u64::from(*delay_us), u64::from(*loss).min(999));
    delay + 300 + delay * loss / (1_000 - loss) + dark
}

/// All costs after Floyd, "Algorithm 97: Shortest Path" (1962).
fn floyd(world: &World) -> Vec<Vec<u64>> {
    let all = 0..world.brokers;
    let row = |from| all.clone().map(|to| if from == to { 0 } else { link(world, from, to) }).collect();
    let mut costs: Vec<Vec<u64>> = all.clone().map(row).collect();
    for over in 0..world.brokers as usize {
        for from in 0..world.brokers as usize {
            for to in 0..world.brokers as usize {
                costs[from][to] = costs[from][to].min(costs[from][over] + costs[over][to]);
            }
        }
    }
    costs
}

/// The path from broker 0 that has the smallest last broker but one among the shortest, and so on.
fn naive_path(world: &World, costs: &[Vec<u64>], to: u64) -> Vec<HostId> {
    let mut path = vec![host(to)];
    let mut at = to;
    while at != 0 {
        let is_before = |before: &u64| costs[0][*before as usize] + link(world, *before, at) == costs[0][at as usize];
        at = (0..world.brokers).filter(|before| *before != at).find(is_before).expect("it is reached");
        path.push(host(at));
    }
    path.reverse();
    path
}

fn check(world: &World, ways: Ways<'_>) -> Result<(), TestCaseError> {
    let costs = floyd(world);
    for to in 0..world.brokers {
        let cost = costs[0][to as usize];
        if cost >= FAR {
            prop_assert_eq!((ways.cost_us(host(to)), ways.next_hop(host(to))), (None, None));
            prop_assert_eq!(ways.path(host(to)), []);
            continue;
        }
        prop_assert_eq!(ways.cost_us(host(to)), Some(cost));
        let path = naive_path(world, &costs, to);
        let first = path.get(1).map(|first| (*first, port(0, (first.as_u64() >> 8) - 1)));
        prop_assert_eq!(ways.next_hop(host(to)), first);
        prop_assert_eq!(ways.path(host(to)), path);
    }
    Ok(())
}

/// A world without some brokers' links, and without those from broker 0 to others.
fn without(world: &World, avoided: &[HostId], dead: &[HostId]) -> World {
    let stays = |claim: &&Claim| {
        let is_avoided = [claim.from, claim.to].iter().any(|end| *end != 0 && avoided.contains(&host(*end)));
        let is_dead = claim.from == 0 && dead.contains(&host(claim.to));
        !is_avoided && !is_dead
    };
    World { brokers: world.brokers, claims: world.claims.iter().filter(stays).copied().collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn paths_are_shortest_and_ties_go_to_the_smallest_host(world in world(BROKERS, 30)) {
        check(&world, world.routes().ways())?;
    }

    #[test]
    fn a_detour_is_the_path_without_what_is_avoided(
        world in world(BROKERS, 30),
        avoided in some_of(BROKERS),
        dead in some_of(BROKERS),
    ) {
        let mut routes = world.routes();
        check(&without(&world, &avoided, &dead), routes.avoiding(&avoided, &dead))?;
        check(&world, routes.avoiding(&[], &[]))?;
    }
}

#[test]
fn a_link_costs_its_delay_a_hop_and_repetitions() {
    let cost = cost_us;
    assert_eq!(cost(0, 0), HOP_COST_US);
    assert_eq!(cost(10_000, 0), 10_300);
    assert_eq!(cost(10_000, 500), 20_300);
    assert_eq!(cost(10_000, 999), 10_000_300);
    assert_eq!(cost(10_000, 1_000), cost(10_000, 999) + DARK_COST_US, "what is always lost");
    assert_eq!(cost(10_000, u16::MAX), cost(10_000, 1_000));
    assert_eq!(cost(u32::MAX, 1_000), u64::from(u32::MAX) * 1_000 + 300 + DARK_COST_US);
}

#[test]
fn a_shorter_way_with_more_hops_is_taken_only_if_it_saves_more_than_they_cost() {
    let path = |direct| World::new(3, &[(0, 1, direct), (0, 2, 1_000), (2, 1, 1_000)]).routes().path(host(1));
    assert_eq!(path(2_299), [host(0), host(1)]);
    assert_eq!(path(2_301), [host(0), host(2), host(1)]);
}

#[test]
fn a_new_topology_counts_from_the_next_update_on() {
    let world = World::new(3, &[(0, 1, 1_000), (0, 2, 1_000), (2, 1, 1_000)]);
    let mut known = world.topology();
    let mut routes = routes(&known);
    assert!(!routes.update(&known), "nothing is new");
    let mut learn = |sequence, neighbours| {
        known.learn(crate::world::at(0), state(1, 1, sequence, neighbours), core::time::Duration::ZERO);
        let told = (routes.next_hop(host(1)), routes.update(&known), routes.next_hop(host(1)));
        (told, routes.cost_us(host(1)))
    };
    let (direct, over) = (Some((host(1), port(0, 1))), Some((host(2), port(0, 2))));
    let back = || vec![end(1, 0, 9_000, 0), end(1, 2, 9_000, 0)];
    assert_eq!(learn(2, vec![end(1, 2, 1_000, 0)]), ((direct, true, over), Some(2_600)));
    assert_eq!(learn(3, back()), ((over, true, direct), Some(9_300)), "the worse end counts");
    // The cost has changed, but no way from here.
    assert_eq!(learn(4, vec![end(1, 0, 1_000, 0), end(1, 2, 9_000, 0)]), ((direct, false, direct), Some(1_300)));
}

#[test]
fn before_the_own_broker_is_announced_nobody_is_reached() {
    let own = host(0);
    let states: Vec<LinkState> = World::new(3, &[(0, 1, 5), (1, 2, 5)]).states();
    let mut routes = Routes::new(own);
    assert_eq!((routes.next_hop(host(1)), routes.path(own)), (None, vec![]));
    routes.update(&topology(states.into_iter().skip(1)));
    assert_eq!((routes.next_hop(host(1)), routes.path(own)), (None, vec![]));
    assert_eq!(routes.trees(&[own, host(1)]).unreachable, [0, 1]);
}

#[test]
fn more_detours_than_are_remembered_are_right_as_well() {
    let brokers = 3 + DETOURS_MAX as u64;
    let links: Vec<(u64, u64, u32)> = (1..brokers).map(|to| (0, to, 1_000)).collect();
    let mut routes = World::new(brokers, &links).routes();
    for round in 0..2 {
        for avoided in 1..brokers {
            let ways = routes.avoiding(&[host(avoided)], &[]);
            let reached: Vec<u64> = (1..brokers).filter(|to| ways.cost_us(host(*to)).is_none()).collect();
            assert_eq!(reached, [avoided], "round {round}");
        }
    }
}

#[test]
fn detours_are_forgotten_with_the_topology() {
    let world = World::new(4, &[(0, 1, 1_000), (0, 2, 1_000), (1, 3, 1_000), (2, 3, 5_000)]);
    let mut known = world.topology();
    let mut routes = routes(&known);
    assert!(routes.avoiding(&[host(1)], &[]).cost_us(host(3)).is_some());
    known.learn(crate::world::at(0), state(3, 1, 2, vec![end(3, 1, 1_000, 0)]), core::time::Duration::ZERO);
    routes.update(&known);
    assert_eq!(routes.avoiding(&[host(1)], &[]).cost_us(host(3)), None);
}
