//! The start of a broker: it knows of no other, and is young until a neighbour has told it of all
//! that there are. A young broker does not conclude that it is alone.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, Time};

use super::net::Net;
use crate::api::Output;
use crate::broker::Broker;
use crate::subscription::CONFIRM_MAX;

/// Stands for all brokers that are not named in the answer to a SUBSCRIBE: where more have not
/// confirmed than are named, or where the broker has never had a link.
pub const ALL_OTHERS: &str = "*";

/// The state of a young broker. It holds answers back, [`CONFIRM_MAX`] at most.
#[derive(Debug)]
pub(super) struct Joining {
    since: Time,
    /// Brokers of which a neighbour has the link state and this broker does not; at most
    /// [`BROKERS_MAX`](whimbrel_net::topology::BROKERS_MAX).
    lacking: BTreeSet<HostId>,
    /// A neighbour has named all brokers that it knows.
    is_compared: bool,
}

impl Joining {
    pub(super) fn begun(since: Time) -> Joining {
        Joining { since, lacking: BTreeSet::new(), is_compared: false }
    }

    /// Records link states that a neighbour has and this broker lacks; `is_last`: the neighbour has
    /// no others.
    pub(super) fn compared(&mut self, lacking: Vec<HostId>, is_last: bool) {
        let room = whimbrel_net::topology::BROKERS_MAX.saturating_sub(self.lacking.len());
        self.lacking.extend(lacking.into_iter().take(room));
        self.is_compared |= is_last;
    }

    /// Records a received link state, also one that was refused.
    pub(super) fn on_link_state(&mut self, host: HostId) {
        self.lacking.remove(&host);
    }
}

impl Net {
    /// Whether other brokers may become known within a moment, so that answers wait.
    pub(crate) fn is_young(&self, now: Time) -> bool {
        self.config.expects_peers && self.joining.as_ref().is_some_and(|joining| now.since(joining.since) < CONFIRM_MAX)
    }

    /// Whether the broker has just started, and does not know the others yet.
    pub(crate) fn knows_no_others(&self) -> bool {
        self.joining.is_some()
    }

    /// Drops the link states that are lacking when brokers expire: some of them may be of brokers
    /// that are forgotten by now.
    pub(super) fn record_expiry(&mut self) {
        if let Some(joining) = &mut self.joining {
            joining.lacking.clear();
        }
    }

    /// Whether all brokers that a neighbour has named are known, and there is a path to each known
    /// broker.
    fn reaches_all_told(&mut self) -> bool {
        if self.joining.as_ref().is_some_and(|joining| !joining.lacking.is_empty()) {
            return false;
        }
        self.routes.update(&self.topology);
        let Net { topology, routes, host, .. } = self;
        topology.hosts().all(|other| other == *host || routes.is_reachable(other))
    }

    /// Whether links are expected, and there has never been one or no broker named over it is
    /// known.
    pub(crate) fn lacks_everyone(&self) -> bool {
        let knows_nobody = self.topology.len() < 2;
        let is_waited_for = |joining: &Joining| !joining.is_compared || knows_nobody && !joining.lacking.is_empty();
        self.config.expects_peers && self.joining.as_ref().is_some_and(is_waited_for)
    }
}

impl Broker {
    /// Records news for a young broker. The broker is no longer young when a neighbour has named
    /// all others and there is a path to each of them.
    pub(super) fn check_joining(&mut self, now: Time, note: impl FnOnce(&mut Joining), out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(joining) = &mut overlay.net.joining else { return };
        note(joining);
        if !joining.is_compared || overlay.net.lacks_everyone() {
            return;
        }
        // Paths are computed only when no link state is lacking: every link state is news here.
        if overlay.net.is_young(now) && !overlay.net.reaches_all_told() {
            return;
        }
        overlay.net.joining = None;
        self.confirm_ready(now, out);
    }
}
