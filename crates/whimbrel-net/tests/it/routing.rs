//! What another path has to gain, and paths over the own links only.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Reliability, Time};
use whimbrel_net::link::estimate::{Estimate, PROBE_EVERY};
use whimbrel_net::route::{HOP_COST_US, HeldChanges, Routes};
use whimbrel_net::topology::Topology;
use whimbrel_net::{Pace, Routing};

use crate::fabric::node::{KIND_ASK, KIND_EXAMINED, Setup, host_of};
use crate::fabric::{Content, Fabric, Trouble};
use crate::scenarios::{MILLI, SECOND};
use crate::world::{World, at, end, host, state, topology};

/// Broker 3 behind 1 and behind 2, with these delays of the links to it, microseconds.
fn two_ways(over_1: u32, over_2: u32) -> World {
    World::new(4, &[(0, 1, 10_000), (0, 2, 10_000), (1, 3, over_1), (2, 3, over_2)])
}

fn learn(topology: &mut Topology, world: &World, sequence: u64) {
    for mut state in world.states() {
        state.sequence = sequence;
        if state.host == host(0) {
            topology.announce(at(0), state).expect("it is greater");
        } else {
            topology.learn(at(0), state, Duration::ZERO);
        }
    }
}

#[test]
fn another_way_is_taken_if_it_is_better_by_more_than_the_threshold() {
    let mut topology = topology(two_ways(10_000, 10_000).states());
    let mut routes = Routes::following(host(0), Routing::Best, 20);
    routes.update(&topology);
    assert_eq!(routes.path(host(3)), [0, 1, 3].map(host));
    let cost = |over: u32| Some(u64::from(over) + 10_000 + 2 * HOP_COST_US);
    // The first links of both ways are present paths themselves. The last one over 1 costs 10,300,
    // of which a fifth is 2,060.
    for (sequence, over_2, way, over) in [(2, 7_950, 1, 10_000), (3, 7_930, 2, 7_930), (4, 12_560, 2, 12_560)] {
        learn(&mut topology, &two_ways(10_000, over_2), sequence);
        routes.update(&topology);
        assert_eq!(routes.path(host(3)), [0, way, 3].map(host), "{over_2} µs over 2");
        assert_eq!(routes.cost_us(host(3)), cost(over), "the cost is told as it is");
    }
    learn(&mut topology, &two_ways(10_000, 12_590), 5);
    assert!(routes.update(&topology), "10,300 is less than four fifths of 12,890");
    assert_eq!(routes.path(host(3)), [0, 1, 3].map(host));
}

#[test]
fn a_present_way_is_found_again_among_other_brokers() {
    let mut topology = topology(two_ways(10_000, 9_000).states());
    let mut routes = Routes::following(host(0), Routing::Best, 20);
    routes.update(&topology);
    assert_eq!(routes.path(host(3)), [0, 2, 3].map(host));
    // Broker 1 is gone, so that the indices of all behind it are others; the way over 4 is better
    // by less than the threshold.
    topology.forget(host(1));
    let links = [(0, 2, 10_000), (2, 3, 9_000), (0, 4, 10_000), (4, 3, 8_000)];
    let world = World::new(5, &links);
    for mut state in world.states().into_iter().filter(|state| state.host != host(1)) {
        state.sequence = 2;
        if state.host == host(0) {
            topology.announce(at(0), state).expect("it is greater");
        } else {
            topology.learn(at(0), state, Duration::ZERO);
        }
    }
    routes.update(&topology);
    assert_eq!(routes.path(host(3)), [0, 2, 3].map(host));
}

/// The delay of a link as it is measured: each probe takes up to a fifth less or more.
struct Noisy {
    estimate: Estimate,
    state: u64,
    told_us: u32,
}

impl Noisy {
    fn new(seed: u64) -> Noisy {
        Noisy { estimate: Estimate::new(at(0)), state: seed, told_us: 0 }
    }

    /// One more probe, of a link that takes `way` once. Returns whether there is news to tell.
    fn probe(&mut self, now: Time, way: Duration) -> bool {
        // Marsaglia, "Xorshift RNGs" (2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let share = 0.8 + 0.4 * (self.state % 10_000) as f64 / 10_000.0;
        let sequence = self.estimate.sent();
        let back = now + 2 * way.mul_f64(share);
        self.estimate.echo(back, sequence, now, Duration::ZERO).expect("it was sent");
        let news = self.estimate.news();
        self.told_us = news.map_or(self.told_us, |(delay_us, _)| delay_us);
        news.is_some()
    }
}

/// How often the way to broker 3 changes in the hour after the first minute, over two equal ways
/// whose links are measured with noise.
fn flaps(threshold_percent: u8, seed: u64) -> u32 {
    let mut links = [1, 2, 3, 4].map(|number| Noisy::new(seed << 8 | number));
    let mut routes = Routes::following(host(0), Routing::Best, threshold_percent);
    let mut topology = Topology::new(host(0));
    let (mut now, mut flaps) = (at(0), 0);
    let minute = 60 * 1_000 / PROBE_EVERY.as_millis() as u64;
    for step in 0..61 * minute {
        now = now + PROBE_EVERY;
        let has_news = links.each_mut().map(|link| link.probe(now, MILLI * 10)).contains(&true);
        if !has_news {
            continue;
        }
        let [to_1, to_2, over_1, over_2] = links.each_ref().map(|link| link.told_us);
        let world = World::new(4, &[(0, 1, to_1), (0, 2, to_2), (1, 3, over_1), (2, 3, over_2)]);
        learn(&mut topology, &world, step + 1);
        let had_way = routes.is_reachable(host(3));
        flaps += u32::from(routes.update(&topology) && had_way && step >= minute);
    }
    flaps
}

#[test]
fn measured_noise_of_a_fifth_does_not_flap_between_equal_ways() {
    let all = |threshold| (1..=20).map(|seed| flaps(threshold, seed)).sum::<u32>();
    let (damped, undamped) = (all(Pace::DEFAULT.threshold_percent), all(0));
    assert!(damped <= 20, "{damped} changes in 20 hours");
    assert!(undamped > 4 * damped, "{damped} changes, and {undamped} without a threshold");
}

/// Routes over the first of two ways, which has become the slower one while changes of costs are
/// held; and that topology.
fn held_over_the_slower_way() -> (Topology, Routes) {
    let mut topology = topology(two_ways(10_000, 20_000).states());
    let mut routes = Routes::following(host(0), Routing::Best, 0);
    routes.update(&topology);
    routes.hold(HeldChanges::Costs);
    learn(&mut topology, &two_ways(30_000, 20_000), 2);
    assert!(!routes.update(&topology));
    (topology, routes)
}

#[test]
fn what_only_costs_less_waits_and_a_link_that_is_gone_does_not() {
    let (mut topology, mut routes) = held_over_the_slower_way();
    assert_eq!(routes.path(host(3)), [0, 1, 3].map(host));
    let mut broken = two_ways(30_000, 20_000);
    broken.claims.retain(|claim| (claim.from, claim.to) != (1, 3));
    learn(&mut topology, &broken, 3);
    assert!(routes.update(&topology));
    assert_eq!(routes.path(host(3)), [0, 2, 3].map(host));
}

#[test]
fn directly_a_neighbour_is_behind_no_other_broker_and_strangers_are_few_links_away() {
    // 1 would be reached faster over 2; 4 is behind 1 and, at less cost and more links, behind 2
    // and 3.
    let links = [(0, 1, 50_000), (0, 2, 1_000), (1, 2, 1_000), (2, 3, 1_000), (3, 4, 1_000), (1, 4, 50_000)];
    let world = World::new(5, &links);
    let mut topology = topology(world.states());
    let mut routes = Routes::following(host(0), Routing::Direct, 10);
    routes.update(&topology);
    assert_eq!(routes.path(host(1)), [0, 1].map(host));
    assert_eq!(routes.cost_us(host(1)), Some(50_300));
    assert_eq!(routes.path(host(3)), [0, 2, 3].map(host));
    assert_eq!(routes.path(host(4)), [0, 1, 4].map(host));
    let mut broken = world.clone();
    broken.claims.retain(|claim| (claim.from, claim.to) != (0, 1));
    learn(&mut topology, &broken, 2);
    routes.update(&topology);
    assert!(!routes.is_reachable(host(1)), "it was a neighbour");
    assert_eq!(routes.path(host(4)), [0, 2, 3, 4].map(host));
    learn(&mut topology, &world, 3);
    routes.update(&topology);
    assert_eq!(routes.path(host(1)), [0, 1].map(host));
}

#[test]
fn directly_nothing_is_passed_round_a_link_that_is_down() {
    let setup = |number: usize| Setup { routing: Routing::Direct, ..Setup::named(format!("b{number}")) };
    let mut fabric = Fabric::new((0..3).map(setup));
    let direct = fabric.link([0, 1], MILLI);
    fabric.link([0, 2], MILLI);
    fabric.link([2, 1], MILLI);
    fabric.run(SECOND);
    fabric.subscribe(1, "a");
    fabric.run(SECOND);
    fabric.close(direct);
    let content = Content {
        topic: "a",
        payload: b"one",
        reliability: whimbrel_event::Reliability::BestEffort,
        deadline_ms: None,
    };
    fabric.publish(0, content);
    let stats = fabric.node(0).net.stats();
    assert_eq!((stats.unreachable, stats.repairs), (1, 0), "the topology still has the link");
    fabric.run(SECOND);
    assert!(!fabric.node(0).net.routes().is_reachable(host_of(1)));
    assert!(!fabric.message(0, 1, KIND_ASK, b"?"));
    fabric.publish(0, content);
    assert_eq!(fabric.node(0).net.stats().unreachable, 2);
    assert!(fabric.node(1).told.delivered.is_empty());
    fabric.heal(direct);
    fabric.run(SECOND);
    fabric.publish(0, content);
    fabric.run(SECOND);
    assert_eq!(fabric.node(1).told.delivered.len(), 1);
}

#[test]
fn in_the_papers_pace_a_link_is_dead_after_twenty_seconds_and_measured_every_five() {
    let setup = |number: usize| Setup { pace: Pace::PAPER, ..Setup::named(format!("b{number}")) };
    let mut fabric = Fabric::new((0..2).map(setup));
    fabric.run(SECOND);
    let wire = fabric.link([0, 1], MILLI * 7);
    fabric.run(SECOND);
    let told = |fabric: &Fabric| fabric.node(0).net.topology().get(host_of(0)).expect("own").neighbours[0].delay_us;
    assert_eq!(told(&fabric), 1_000, "a measured delay is told ten seconds after the last link state");
    fabric.run(SECOND * 10);
    assert_eq!(told(&fabric), 7_000);
    fabric.cut(wire);
    fabric.run(SECOND * 15);
    assert!(fabric.hung_up(0).is_empty() && fabric.hung_up(1).is_empty());
    fabric.run(SECOND * 11);
    assert!(fabric.hung_up(0).len() == 1 && fabric.hung_up(1).len() == 1);
}

#[test]
fn messages_do_not_go_in_a_circle_after_both_ways_have_become_slow() {
    // Brokers 0 and 2 measure a long link each, one after the other: for a moment the way over the
    // other one looks better to both, and the threshold keeps it.
    let mut fabric = Fabric::of(3);
    fabric.link([0, 2], MILLI);
    fabric.run(SECOND);
    for pair in [[0, 1], [1, 2]] {
        fabric.link(pair, MILLI * 100);
    }
    fabric.run(SECOND * 10);
    assert!(fabric.is_complete());
    for from in [0, 2] {
        assert!(fabric.message(from, 1, KIND_EXAMINED, b"?"));
    }
    fabric.run(SECOND);
    let told = &fabric.node(1).told.messages;
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told.iter().map(|message| message.hops).max(), told.iter().map(|message| message.hops).min());
}

#[test]
fn messages_follow_costs_that_events_wait_with() {
    let (topology, mut routes) = held_over_the_slower_way();
    let next = |routes: &Routes| routes.next_hop(host(3)).map(|(next, _)| next);
    assert_eq!((routes.path(host(3)), next(&routes)), ([0, 1, 3].map(host).to_vec(), Some(host(2))));
    routes.hold(HeldChanges::Nothing);
    assert!(routes.update(&topology), "what has waited is followed");
    assert_eq!((routes.path(host(3)), next(&routes)), ([0, 2, 3].map(host).to_vec(), Some(host(2))));
    assert!(!routes.update(&topology));
}

#[test]
fn an_own_state_alone_gives_no_way() {
    let mut routes = Routes::following(host(0), Routing::Direct, 10);
    routes.update(&topology([state(0, 1, 1, vec![end(0, 1, 1_000, 0)])]));
    assert!(routes.is_reachable(host(0)) && !routes.is_reachable(host(1)));
}

/// Nodes 0 and 1 with a link of 10 ms, for which node 0 has this surcharge, and a way of 60 ms over
/// node 2; node 1 wants all of `a`.
fn with_metered_link(surcharge_us: u32) -> Fabric {
    let setup = |number| {
        let surcharges = if number == 0 { [("b1".into(), surcharge_us)].into() } else { BTreeMap::new() };
        Setup { surcharges, routing: Routing::Reactive, ..Setup::named(format!("b{number}")) }
    };
    let mut fabric = Fabric::new((0..3).map(setup));
    for (pair, millis) in [([0, 1], 10), ([0, 2], 30), ([2, 1], 30)] {
        fabric.link(pair, MILLI * millis);
    }
    fabric.run(SECOND * 2);
    fabric.subscribe(1, "a");
    fabric.run(SECOND);
    fabric
}

#[test]
fn a_metered_link_is_taken_if_other_ways_are_longer_by_more_than_it_costs() {
    for (surcharge_us, way) in [(0, [0, 1].as_slice()), (40_000, &[0, 1]), (60_000, &[0, 2, 1])] {
        let fabric = with_metered_link(surcharge_us);
        let hosts: Vec<_> = way.iter().map(|node| host_of(*node)).collect();
        assert_eq!(fabric.node(0).net.routes().path(host_of(1)), hosts, "{surcharge_us} µs");
        // The other end takes it alike, and no longer delay is told.
        let back: Vec<_> = hosts.iter().rev().copied().collect();
        assert_eq!(fabric.node(1).net.routes().path(host_of(0)), back, "{surcharge_us} µs");
        assert_eq!(
            fabric.node(2).net.topology().link(host_of(0), host_of(1)).map(|end| end.delay_us / 1_000),
            Some(10)
        );
    }
}

#[test]
fn events_that_would_be_late_otherwise_take_a_metered_link() {
    let mut fabric = with_metered_link(1_000_000);
    let flow = |fabric: &mut Fabric, times: u32| {
        for number in 0..times {
            let payload = number.to_be_bytes();
            let (reliability, deadline_ms) = (Reliability::Reliable, Some(100));
            fabric.publish(0, Content { topic: "a", payload: &payload, reliability, deadline_ms });
            fabric.run(MILLI * 10);
        }
    };
    let ages = |fabric: &Fabric| -> Vec<u64> {
        fabric.node(1).told.delivered.iter().map(|delivered| delivered.age_us / 1_000).collect()
    };
    flow(&mut fabric, 100);
    assert!(ages(&fabric).iter().all(|age| (60..65).contains(age)), "{:?}", ages(&fabric));
    assert_eq!(fabric.node(0).net.stats().reroutes, [0; 4], "their margin is that of the way's delay");
    fabric.trouble(1, 0, Trouble { more: MILLI * 100, is_silent: false });
    flow(&mut fabric, 300);
    fabric.run(SECOND);
    let last = ages(&fabric).split_off(350);
    assert!(last.len() == 50 && last.iter().all(|age| *age < 15), "{last:?}");
    assert_eq!(fabric.node(0).net.routes().path(host_of(1)), [0, 2, 1].map(host_of), "others stay");
    assert!(fabric.node(0).net.answered_within(host_of(1), MILLI) < SECOND, "a surcharge takes no time");
}
