//! Which brokers were linked with which: who can have heard of something, and how long that takes.

use std::time::Duration;

use whimbrel_event::Time;

use crate::overlay::line::Edge;
use crate::overlay::net::Net;

/// Brokers that have been linked for so long, over others or directly, have told each other what they know: map, claims and first copies each take a way there,
/// and what is written a group commit.
pub(super) const TOLD: Duration = Duration::from_secs(1);

/// How long CONNECT may wait for other brokers, if none is far away.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// Or so many times the way to the farthest.
const CONNECT_WAYS: u32 = 8;

/// And for who gives its session away, what is written, and a little.
const CONNECT_MORE: Duration = Duration::from_millis(1_500);

/// That is all in any case.
const CONNECT_LONGEST: Duration = Duration::from_millis(10_500);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Web {
    /// From when on each node was linked with which: those that have the same number were.
    states: Vec<(Time, Vec<usize>)>,
}

impl Web {
    /// Looks at the connections that there are.
    pub(super) fn look(&mut self, net: &Net) {
        let mut parts: Vec<usize> = (0..net.nodes.len()).collect();
        for edge in net.edges.iter().filter(|edge| edge.is_linked()) {
            let (one, other) = (parts[edge.ends.0], parts[edge.ends.1]);
            parts.iter_mut().filter(|part| **part == other).for_each(|part| *part = one);
        }
        if self.states.last().is_none_or(|(_, last)| *last != parts) {
            self.states.push((net.now, parts));
        }
    }

    /// Whether a node can have heard by `now` what another one knew at `since`, or is linked with one that can.
    pub(super) fn can_have_heard(&self, there: (usize, Time), (here, now): (usize, Time)) -> bool {
        let Some((_, last)) = self.states.last() else { return false };
        let knows = self.who_knows(there, now, TOLD, &[]);
        (0..last.len()).any(|node| knows[node] && last[node] == last[here])
    }

    /// Which nodes can know at `until` what one knew at `since`, if those hear of it that have been linked for so long with one that knows, and whose disk
    /// is lost has forgotten.
    pub(super) fn who_knows(
        &self,
        (there, since): (usize, Time),
        until: Time,
        told: Duration,
        losses: &[(Time, usize)],
    ) -> Vec<bool> {
        let nodes = self.states.last().map_or(0, |(_, last)| last.len());
        let mut knows: Vec<bool> = (0..nodes).map(|node| node == there).collect();
        // Since when each has been linked with one that knows.
        let mut linked: Vec<Option<Time>> = vec![None; nodes];
        for (at, (began, parts)) in self.states.iter().enumerate() {
            let ended = self.states.get(at + 1).map_or(until, |(next, _)| *next).min(until);
            let began = (*began).max(since);
            if ended < began {
                continue;
            }
            // Who is started again has no links yet.
            let is_now = |(when, _): &&(Time, usize)| *when > since && (began..=ended).contains(when);
            losses.iter().filter(is_now).for_each(|(_, node)| knows[*node] = false);
            for node in 0..parts.len() {
                let is_linked = (0..parts.len()).any(|other| knows[other] && parts[other] == parts[node]);
                linked[node] = if is_linked { linked[node].or(Some(began)) } else { None };
            }
            for node in 0..parts.len() {
                knows[node] |= linked[node].is_some_and(|from| ended.since(from) >= told);
            }
        }
        knows
    }
}

/// How long the way takes to the broker that is the farthest from one, over the connections that there are, or over all that there may be, whichever is longer.
fn farthest(net: &Net, from: usize) -> Duration {
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

/// What there is around the broker at which something happens. Nothing is looked at before somebody wants to know.
pub(super) struct Reach<'a> {
    pub(super) net: &'a Net,
    pub(super) node: usize,
}

impl Reach<'_> {
    /// How many brokers cannot be reached from there.
    pub(super) fn missing(&self) -> usize {
        out_of_reach(self.net, self.node)
    }

    /// What its clock shows.
    pub(super) fn clock(&self) -> Time {
        self.net.nodes[self.node].clock(self.net.now)
    }

    /// How long CONNECT may wait there.
    pub(super) fn connect_max(&self) -> Duration {
        (CONNECT_MAX.max(farthest(self.net, self.node) * CONNECT_WAYS) + CONNECT_MORE).min(CONNECT_LONGEST)
    }
}

/// How many brokers a broker cannot reach at this moment.
fn out_of_reach(net: &Net, from: usize) -> usize {
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
    reached.iter().filter(|reached| !**reached).count()
}
