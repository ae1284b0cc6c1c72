//! Small worlds of brokers.

use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_event::{HostId, Tick, Time};
use whimbrel_net::route::Routes;
use whimbrel_net::topology::{Learned, LinkState, Neighbour, Topology};

/// The hosts of worlds, whose ids are in the order of their numbers.
pub fn host(number: u64) -> HostId {
    HostId::new((number + 1) << 8)
}

pub fn at(seconds: u64) -> Time {
    Time::from_nanos((1_000_000 + seconds) * 1_000_000_000)
}

pub fn state(number: u64, incarnation: u64, sequence: u64, neighbours: Vec<Neighbour>) -> LinkState {
    LinkState {
        host: host(number),
        incarnation,
        sequence,
        name: format!("b{number}").into(),
        reliable: 1,
        further: 1,
        birth: Tick(1),
        addresses: vec!["a:1".into()],
        neighbours,
        previous: Vec::new(),
        domains: Default::default(),
        protocol: whimbrel_wire::Protocol::OWN,
        later: Box::default(),
    }
}

/// The port of a broker's link to another one: not in the order of hosts, and not equal at both
/// ends.
pub fn port(of: u64, to: u64) -> u16 {
    const PRIME: u64 = 10_007;
    ((to * 311 + of * 17) % PRIME) as u16
}

pub fn end(of: u64, to: u64, delay_us: u32, loss: u16) -> Neighbour {
    Neighbour { host: host(to), port: port(of, to), delay_us, loss, surcharge_us: 0 }
}

/// One broker's claim about a link.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub from: u64,
    pub to: u64,
    pub delay_us: u32,
    pub loss: u16,
}

/// Brokers and their claims about links, some of which only one end names.
#[derive(Clone, Debug)]
pub struct World {
    pub brokers: u64,
    pub claims: Vec<Claim>,
}

impl World {
    /// Links with the same delay in both directions.
    pub fn new(brokers: u64, links: &[(u64, u64, u32)]) -> World {
        let both = |&(one, other, delay_us): &(u64, u64, u32)| {
            [(one, other), (other, one)].map(|(from, to)| Claim { from, to, delay_us, loss: 0 })
        };
        World { brokers, claims: links.iter().flat_map(both).collect() }
    }

    pub fn states(&self) -> Vec<LinkState> {
        let of = |number| {
            let claims = self.claims.iter().filter(|claim| claim.from == number);
            let ends = claims.map(|claim| end(number, claim.to, claim.delay_us, claim.loss)).collect();
            state(number, 1, 1, ends)
        };
        (0..self.brokers).map(of).collect()
    }

    pub fn topology(&self) -> Topology {
        topology(self.states())
    }

    pub fn routes(&self) -> Routes {
        routes(&self.topology())
    }
}

/// As broker 0 sees it.
pub fn topology(states: impl IntoIterator<Item = LinkState>) -> Topology {
    let mut topology = Topology::new(host(0));
    for state in states {
        if state.host == host(0) {
            topology.announce(at(0), state).expect("a good announcement");
        } else {
            assert_eq!(topology.learn(at(0), state, Duration::ZERO), Learned::New);
        }
    }
    topology
}

pub fn routes(topology: &Topology) -> Routes {
    let mut routes = Routes::new(topology.own());
    assert!(routes.update(topology));
    routes
}

/// Random worlds. Delays are few, so that there are many paths of the same cost.
pub fn world(brokers: u64, links: usize) -> impl Strategy<Value = World> {
    let link = (0..brokers, 0..brokers, [0..4_u32, 0..4], [0..4_usize, 0..4], 0..8_u8);
    vec(link, 0..links).prop_map(move |links| {
        let mut claims: Vec<Claim> = Vec::new();
        for (one, other, delays, losses, sides) in links {
            let is_there = claims.iter().any(|known| (known.from, known.to) == (one, other));
            let is_turned = claims.iter().any(|known| (known.from, known.to) == (other, one));
            if one == other || is_there || is_turned {
                continue;
            }
            let side = |at: usize, from, to| Claim {
                from,
                to,
                delay_us: delays[at] * 300,
                loss: [0, 0, 500, 1_000][losses[at]],
            };
            claims.push(side(0, one, other));
            // One of eight is named by one end only.
            if sides > 0 {
                claims.push(side(1, other, one));
            }
        }
        World { brokers, claims }
    })
}

/// Some of the brokers of a world, in order.
pub fn some_of(brokers: u64) -> impl Strategy<Value = Vec<HostId>> {
    proptest::sample::subsequence((0..brokers).map(host).collect::<Vec<_>>(), 0..=brokers as usize)
}
