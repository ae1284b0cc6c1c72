//! The links between brokers over time: what each broker can have heard of, and how long that
//! takes.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_event::Time;

use crate::overlay::line::Edge;
use crate::overlay::net::Fabric;

/// Brokers that have been linked this long, directly or over others, have told each other what they
/// know: map, interests and first copies each take one way, and what is written one group commit.
pub(super) const TOLD: Duration = Duration::from_secs(1);

/// How long CONNECT may wait for other brokers, if none is far away.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// That limit as a multiple of the way to the farthest broker; the greater one counts.
const CONNECT_WAYS: u32 = 8;

/// Added to it: the owner gives the session away, and it is written; with a margin.
const CONNECT_MORE: Duration = Duration::from_millis(1_500);

/// The upper bound of the sum.
const CONNECT_LONGEST: Duration = Duration::from_millis(10_500);

/// A connection: its number, and for each of its ends: that node, the other node, and the least
/// delay between them.
type Link = (usize, [(usize, usize, Duration); 2]);

/// The links between brokers from a moment on.
#[derive(Debug)]
struct State {
    began: Time,
    /// The part of each node: nodes of the same part are linked, directly or over others.
    parts: Vec<usize>,
    links: Vec<Link>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Web {
    states: Vec<State>,
}

impl Web {
    /// Inspects the connections that there are.
    pub(super) fn look(&mut self, net: &Fabric) {
        self.look_at(net, Edge::is_linked);
    }

    /// As [`Self::look`], of the connections whose two brokers can hear each other: neither stands
    /// still.
    pub(super) fn look_at_heard(&mut self, net: &Fabric) {
        let goes_on = |node: usize| net.nodes[node].still.is_none();
        self.look_at(net, |edge| edge.is_linked() && goes_on(edge.ends.0) && goes_on(edge.ends.1));
    }

    fn look_at(&mut self, net: &Fabric, is_linked: impl Fn(&Edge) -> bool) {
        // Over a former process nobody is sure to hear another.
        let is_former = |edge: &Edge| [edge.ends.0, edge.ends.1].iter().any(|node| net.machine_of(*node) != *node);
        let is_linked = |edge: &Edge| is_linked(edge) && !is_former(edge);
        let linked = || net.edges.iter().enumerate().filter(|(_, edge)| is_linked(edge));
        let is_known = |last: &State| last.links.iter().map(|(edge, _)| *edge).eq(linked().map(|(edge, _)| edge));
        if self.states.last().is_some_and(is_known) {
            return;
        }
        let mut parts: Vec<usize> = (0..net.nodes.len()).collect();
        let mut links = Vec::new();
        for (number, edge) in linked() {
            let (near, far) = edge.ends;
            let [there, back] = edge.shape.profiles.map(|profile| profile.delay);
            links.push((number, [(near, far, there), (far, near, back)]));
            let (one, other) = (parts[near], parts[far]);
            parts.iter_mut().filter(|part| **part == other).for_each(|part| *part = one);
        }
        self.states.push(State { began: net.now, parts, links });
    }

    /// Whether at some moment between two one node had no way to another.
    pub(super) fn were_apart(&self, one: usize, other: usize, (from, to): (Time, Time)) -> bool {
        self.spans(from, to).any(|(_, _, State { parts, .. })| parts.get(one) != parts.get(other))
    }

    /// Whether by `now` a node has heard what another one knew at `since`, or could ask one that
    /// has; messages need their time. A connection that was cut for a while does not count at once
    /// when the cut has ended.
    pub(super) fn has_heard(&self, there: (usize, Time), (here, now): (usize, Time)) -> bool {
        self.who_knows(there, now).get(here).copied().unwrap_or(false)
    }

    /// The nodes that know at `until` what one knew at `since`, if a node knows after it was linked
    /// for [`TOLD`] with one that does.
    fn who_knows(&self, (there, since): (usize, Time), until: Time) -> Vec<bool> {
        let nodes = self.states.last().map_or(0, |last| last.parts.len());
        let mut knows: Vec<bool> = (0..nodes).map(|node| node == there).collect();
        // Since when each node is linked with one that knows.
        let mut linked: Vec<Option<Time>> = vec![None; nodes];
        for (began, ended, State { parts, .. }) in self.spans(since, until) {
            for node in 0..parts.len() {
                let is_linked = (0..parts.len()).any(|other| knows[other] && parts[other] == parts[node]);
                linked[node] = if is_linked { linked[node].or(Some(began)) } else { None };
            }
            for node in 0..parts.len() {
                knows[node] |= linked[node].is_some_and(|from| ended.since(from) >= TOLD);
            }
        }
        knows
    }

    /// The nodes that may know at `until` what one knew at `since`, if it was passed on at once
    /// over each connection, in the shortest time. A node that loses its disk forgets. A node that
    /// is not among them does not know.
    pub(super) fn who_may_know(
        &self,
        (there, since): (usize, Time),
        until: Time,
        losses: &[(Time, usize)],
    ) -> Vec<bool> {
        let nodes = self.states.last().map_or(0, |last| last.parts.len());
        let mut known: Vec<Option<Time>> = (0..nodes).map(|node| (node == there).then_some(since)).collect();
        let mut linked: BTreeMap<usize, Time> = BTreeMap::new();
        for (began, ended, State { links, .. }) in self.spans(since, until) {
            // A node that is started again has no links yet.
            let is_now = |(when, _): &&(Time, usize)| *when > since && (began..=ended).contains(when);
            losses.iter().filter(is_now).for_each(|(_, node)| known[*node] = None);
            let from = |edge: &usize| linked.get(edge).copied().unwrap_or(began);
            linked = links.iter().map(|(edge, _)| (*edge, from(edge))).collect();
            // A way has fewer steps than there are nodes.
            for _ in 1..nodes {
                for (edge, ways) in links {
                    for (near, far, takes) in ways {
                        // A node names itself in its handshake, and says more when it has received
                        // the other's.
                        let back =
                            ways.iter().find(|(from, ..)| from == far).map_or(Duration::ZERO, |(.., back)| *back);
                        let greeted = if *near == there { linked[edge] } else { linked[edge] + back };
                        let said = known[*near].map(|at| at.max(greeted)).filter(|said| *said <= ended);
                        let Some(heard) = said.map(|said| said + *takes) else { continue };
                        known[*far] = Some(known[*far].map_or(heard, |known| known.min(heard)));
                    }
                }
            }
        }
        known.into_iter().map(|at| at.is_some_and(|at| at <= until)).collect()
    }

    /// The nodes with which a node was linked at a moment, itself included.
    pub(super) fn linked_with(&self, here: usize, now: Time) -> impl Iterator<Item = usize> {
        let state = self.states.iter().rev().find(|state| state.began <= now);
        let parts = state.map_or(&[][..], |state| &state.parts);
        (0..parts.len()).filter(move |node| parts[*node] == parts[here])
    }

    /// The states between two moments, each with its part of that time.
    fn spans(&self, since: Time, until: Time) -> impl Iterator<Item = (Time, Time, &State)> {
        self.states.iter().enumerate().filter_map(move |(at, state)| {
            let ended = self.states.get(at + 1).map_or(until, |next| next.began).min(until);
            let began = state.began.max(since);
            (ended >= began).then_some((began, ended, state))
        })
    }
}

/// The delay to the broker that is farthest from a node: over the present connections or over all
/// possible ones, whichever is longer.
fn farthest(net: &Fabric, from: usize) -> Duration {
    let over = |is_used: &dyn Fn(&Edge) -> bool| {
        let mut ways: Vec<Option<Duration>> = vec![None; net.nodes.len()];
        ways[from] = Some(Duration::ZERO);
        // A way has fewer steps than there are nodes.
        for _ in 1..net.nodes.len() {
            for edge in net.edges.iter().filter(|edge| is_used(edge)) {
                let [there, back] = edge.shape.profiles.map(|profile| profile.typical());
                for (near, far, takes) in [(edge.ends.0, edge.ends.1, there), (edge.ends.1, edge.ends.0, back)] {
                    let Some(way) = ways[near].map(|way| way + takes) else { continue };
                    if ways[far].is_none_or(|known| way < known) {
                        ways[far] = Some(way);
                    }
                }
            }
        }
        ways.into_iter().flatten().max().unwrap_or_default()
    };
    over(&|_| true).max(over(&Edge::is_linked))
}

/// The surroundings of the broker at which something happens. They are inspected only when they are
/// needed.
pub(super) struct Reach<'a> {
    pub(super) net: &'a Fabric,
    pub(super) node: usize,
}

impl Reach<'_> {
    /// The number of brokers that cannot be reached from there.
    pub(super) fn missing(&self) -> usize {
        out_of_reach(self.net, self.node)
    }

    /// The time that the broker's clock shows.
    pub(super) fn clock(&self) -> Time {
        self.net.nodes[self.node].clock(self.net.now)
    }

    /// How long CONNECT may wait there.
    pub(super) fn connect_max(&self) -> Duration {
        (CONNECT_MAX.max(farthest(self.net, self.node) * CONNECT_WAYS) + CONNECT_MORE).min(CONNECT_LONGEST)
    }
}

/// The number of brokers that a broker cannot reach now.
fn out_of_reach(net: &Fabric, from: usize) -> usize {
    let mut reached = vec![false; net.nodes.len()];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        if core::mem::replace(&mut reached[node], true) {
            continue;
        }
        let works = net.edges.iter().filter(|edge| !edge.is_cut.contains(&true));
        let ends = works.flat_map(|edge| [edge.ends, (edge.ends.1, edge.ends.0)]);
        open.extend(ends.filter(|(near, far)| *near == node && net.is_up(*far)).map(|(_, far)| far));
    }
    reached[..net.machines()].iter().filter(|reached| !**reached).count()
}
