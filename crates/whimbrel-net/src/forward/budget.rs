//! The budget of a link: what an event with a deadline may lose on it beyond its plan, which is its
//! share of the event's margin, margin / links left.
//!
//! The plan is what the links on the event's path cost when the path was chosen. A link that costs
//! more at present, see [`Peer::present_cost_us`](crate::link::peers::Peer), and would use up more
//! than its budget, or on which the event would be late, is passed round if there is a better path
//! from here.

use whimbrel_event::{DomainLabel, HostId, Time};
use whimbrel_wire::{Subtree, TreeReader};

use super::{Carrier, Sending};
use crate::Net;
use crate::domains::routes_for;
use crate::fault::NetFaults;
use crate::link::WaysLeft;
use crate::link::peers::{Peer, Peers};
use crate::link::queue::WaitingEvent;
use crate::link::watch::LinkCondition;
use crate::pace::Routing;
use crate::route::{Routes, cost_us};
use crate::topology::Topology;
use crate::traces::{RerouteCause, TraceStep};

/// Another path has to be better by this part of the present one, per cent, and by [`BETTER_US`].
const BETTER_PERCENT: u64 = 10;

/// See [`BETTER_PERCENT`]; microseconds.
const BETTER_US: u64 = 2_000;

/// The rest of an event's path to one destination, as it was planned.
#[derive(Clone, Copy, Debug)]
struct PlannedPath {
    host: HostId,
    /// The cost of its first link, and of all, microseconds, without surcharges.
    first_us: u64,
    cost_us: u64,
    links: u64,
}

/// The links of this broker, and what is announced of all others, at the moment when an event with
/// a deadline is sent.
pub(super) struct Budgets<'a> {
    now: Time,
    own: HostId,
    routing: Routing,
    peers: &'a Peers,
    topology: &'a Topology,
    routes: &'a mut Routes,
    faults: NetFaults,
}

impl<'a> Budgets<'a> {
    /// The budgets of a broker's links, for events with this label.
    pub(super) fn of(now: Time, net: &'a mut Net, label: DomainLabel<'_>) -> Budgets<'a> {
        let Net { identity, config, peers, topology, routes, within, faults, .. } = net;
        let routes = routes_for(routes, within, label, topology);
        Budgets { now, own: identity.host, routing: config.routing, peers, topology, routes, faults: *faults }
    }

    /// The ports of the own links that an event is not to take to these destinations, although its
    /// paths begin with them.
    pub(super) fn exceeded(mut self, sending: &Sending<'_>, dests: impl Iterator<Item = HostId>) -> Vec<u16> {
        let mut ports = Vec::new();
        if !self.may_reroute(sending) || self.peers.up().all(|peer| !self.is_in_trouble(peer)) {
            return ports;
        }
        for host in dests {
            let ways = self.routes.ways();
            let Some((neighbour, port)) = ways.next_hop(host) else { continue };
            let (Some(cost_us), Some(first_us)) = (ways.time_us(host), ways.time_us(neighbour)) else { continue };
            let planned = PlannedPath { host, first_us, cost_us, links: ways.path(host).len() as u64 - 1 };
            if !ports.contains(&port) && self.is_exceeded(sending, neighbour, planned) {
                ports.push(port);
            }
        }
        ports
    }

    /// Whether an event of another broker is not to take the link that this part of its tree begins
    /// with.
    pub(super) fn is_exceeded_by(&mut self, sending: &Sending<'_>, part: &Subtree<'_>) -> bool {
        let Some(neighbour) = self.peers.neighbour(part.port()) else { return false };
        let link = self.peers.behind(part.port()).and_then(|link| self.peers.get(link));
        if !self.may_reroute(sending) || link.is_none_or(|peer| !self.is_in_trouble(peer)) {
            return false;
        }
        let mut longest: Option<PlannedPath> = None;
        part.destinations(|ports, _| {
            let mut planned = PlannedPath { host: self.own, first_us: 0, cost_us: 0, links: ports.len() as u64 };
            for port in ports {
                let Some(end) = self.topology.end_at(planned.host, *port) else { return };
                (planned.host, planned.cost_us) = (end.host, planned.cost_us + cost_us(end.delay_us, end.loss));
                planned.first_us = if planned.first_us == 0 { planned.cost_us } else { planned.first_us };
            }
            if longest.is_none_or(|longest| planned.cost_us > longest.cost_us) {
                longest = Some(planned);
            }
        });
        longest.is_some_and(|planned| self.is_exceeded(sending, neighbour, planned))
    }

    /// Whether a link may cost more than was planned. Most of the time none does.
    fn is_in_trouble(&self, peer: &Peer) -> bool {
        peer.surplus_us(self.now) > 0 || peer.condition() != LinkCondition::Good
    }

    /// Whether this broker may change the path of an event, which it does once.
    fn may_reroute(&self, sending: &Sending<'_>) -> bool {
        let mut repairers = sending.repairers;
        self.routing == Routing::Reactive && !repairers.as_slice().contains(&self.own) && repairers.push(self.own)
    }

    /// Whether the link to a neighbour uses up more than its budget, or the event is late on it,
    /// and there is a better path.
    fn is_exceeded(&mut self, sending: &Sending<'_>, neighbour: HostId, planned: PlannedPath) -> bool {
        let Some(peer) = self.peers.to(neighbour).and_then(|link| self.peers.get(link)) else { return false };
        let surplus_us = peer.present_cost_us(self.now).saturating_sub(planned.first_us);
        let deadline_us = u64::from(sending.deadline_ms.unwrap_or(0)) * 1_000;
        let margin_us = deadline_us.saturating_sub(sending.age_us.saturating_add(planned.cost_us));
        let links = if fault!(self, BudgetNotSplit) { 1 } else { planned.links };
        if surplus_us.saturating_mul(links) <= margin_us && margin_us > 0 {
            return false;
        }
        self.routes.update(self.topology);
        let other = self.routes.avoiding(sending.repairers.as_slice(), &[neighbour]).time_us(planned.host);
        let present_us = planned.cost_us + surplus_us;
        let better_by_us = BETTER_US + present_us * BETTER_PERCENT / 100;
        other.is_some_and(|cost_us| cost_us + better_by_us < present_us)
    }
}

impl Carrier<'_> {
    /// Counts an event that does not take the link behind a port, and notes why.
    pub(super) fn record_reroute(&mut self, sending: &Sending<'_>, port: u16) {
        self.stats.repairs += 1;
        let link = self.peers.behind(port).and_then(|link| self.peers.get(link));
        let cause = match link.map(Peer::condition) {
            None => RerouteCause::Down,
            Some(LinkCondition::Dark) => RerouteCause::Dark,
            Some(LinkCondition::Lossy(_)) => RerouteCause::Lossy,
            Some(LinkCondition::Good | LinkCondition::Slow(_)) => RerouteCause::Slow,
        };
        self.stats.reroutes[cause as usize] += u64::from(sending.deadline_ms.is_some());
        if let Some(neighbour) = self.peers.neighbour(port) {
            self.traffic.traces.record(self.now, sending.id, TraceStep::Rerouted(neighbour, cause));
        }
    }
}

/// How long an event takes to its destinations once it leaves over the link to a neighbour, at the
/// present delay of this link, and as the others are announced.
pub(super) fn ways_left(topology: &Topology, peer: &Peer, event: &WaitingEvent) -> WaysLeft {
    let (announced_us, _) = peer.announced();
    let first_us = u64::from(announced_us) + u64::from(peer.surplus_us(event.since));
    let mut ways: Option<WaysLeft> = None;
    let tree = TreeReader::new(&event.tree, event.id.tick, event.default_previous);
    if let (Ok(tree), Some(neighbour)) = (tree, peer.host()) {
        tree.destinations(|ports, _| {
            let (mut host, mut way_us) = (neighbour, first_us);
            for port in ports {
                let Some(end) = topology.end_at(host, *port) else { return };
                (host, way_us) = (end.host, way_us + u64::from(end.delay_us));
            }
            let known = ways.unwrap_or(WaysLeft { nearest_us: way_us, farthest_us: way_us });
            let (nearest_us, farthest_us) = (known.nearest_us.min(way_us), known.farthest_us.max(way_us));
            ways = Some(WaysLeft { nearest_us, farthest_us });
        });
    }
    ways.unwrap_or(WaysLeft { nearest_us: first_us, farthest_us: first_us })
}
