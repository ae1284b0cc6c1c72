//! The start of a broker: it knows of no other, and is young until a neighbour has told it of all
//! that there are. A young broker does not conclude that it is alone.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_event::{HostId, Time};

use super::{BROKERS_MAX, Topology};
use crate::route::Routes;

/// Whether a broker that was started knows the others by now.
#[derive(Debug)]
pub(crate) struct Joining {
    since: Time,
    /// Links to other brokers are expected.
    expects_peers: bool,
    /// The longest time for which the broker counts as young.
    young_for: Duration,
    /// The broker knows all that its neighbours have named.
    is_over: bool,
    /// Brokers of which a neighbour has the link state and this broker does not; at most
    /// [`BROKERS_MAX`].
    lacking: BTreeSet<HostId>,
    /// A neighbour has named all brokers that it knows.
    is_compared: bool,
}

impl Joining {
    pub(crate) fn begun(since: Time, expects_peers: bool, young_for: Duration) -> Joining {
        Joining { since, expects_peers, young_for, is_over: false, lacking: BTreeSet::new(), is_compared: false }
    }

    /// Ends joining without any other broker: there is none to be known.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Whether the broker does not know the others yet.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_over
    }

    /// Whether other brokers may become known within a moment.
    pub(crate) fn is_young(&self, now: Time) -> bool {
        self.expects_peers && !self.is_over && now.since(self.since) < self.young_for
    }

    /// Whether links are expected, and there has never been one or no broker named over it is
    /// known.
    pub(crate) fn lacks_everyone(&self, topology: &Topology) -> bool {
        let knows_nobody = topology.len() < 2;
        let is_waited_for = !self.is_compared || knows_nobody && !self.lacking.is_empty();
        self.expects_peers && !self.is_over && is_waited_for
    }

    /// Records link states that a neighbour has and this broker lacks; `is_last`: the neighbour has
    /// no others.
    pub(crate) fn compared(&mut self, lacking: Vec<HostId>, is_last: bool) {
        if self.is_open() {
            let room = BROKERS_MAX.saturating_sub(self.lacking.len());
            self.lacking.extend(lacking.into_iter().take(room));
            self.is_compared |= is_last;
        }
    }

    /// Records a received link state, also one that was refused.
    pub(crate) fn on_link_state(&mut self, host: HostId) {
        self.lacking.remove(&host);
    }

    /// Drops the link states that are lacking when brokers expire: some of them may be of brokers
    /// that are forgotten by now.
    pub(crate) fn record_expiry(&mut self) {
        self.lacking.clear();
    }

    /// Whether the broker knows all others from now on: a neighbour has named them, and there is a
    /// path to each of them, unless the broker has waited for that long enough.
    pub(crate) fn is_done(&mut self, now: Time, topology: &Topology, routes: &mut Routes) -> bool {
        if self.is_over || !self.is_compared || self.lacks_everyone(topology) {
            return false;
        }
        // Paths are computed only when no link state is lacking: every link state is news here.
        if self.is_young(now) && !(self.lacking.is_empty() && reaches_all(topology, routes)) {
            return false;
        }
        self.is_over = true;
        self.lacking = BTreeSet::new();
        true
    }
}

/// Whether there is a path to each known broker.
fn reaches_all(topology: &Topology, routes: &mut Routes) -> bool {
    routes.update(topology);
    topology.hosts().all(|other| other == topology.own() || routes.is_reachable(other))
}
