//! A broker that has just begun knows of no other: until a neighbour has told it of all that there
//! are, it is not alone but young.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, Time};

use super::Overlay;
use super::confirm::CONFIRM_MAX;
use crate::api::Output;
use crate::broker::Broker;

/// Stands for all brokers that are not named in the answer to a SUBSCRIBE: where too many have not
/// confirmed, or the broker has never been linked with any.
pub const ALL_OTHERS: &str = "*";

/// What a young broker waits for: it holds answers back for [`CONFIRM_MAX`] at most.
#[derive(Debug)]
pub(super) struct Joining {
    since: Time,
    /// Brokers of which a neighbour has the link state; no more than a broker knows at all are
    /// noted.
    lacking: BTreeSet<HostId>,
    /// A neighbour has named all that it knows.
    is_compared: bool,
}

impl Joining {
    pub(super) fn begun(since: Time) -> Joining {
        Joining { since, lacking: BTreeSet::new(), is_compared: false }
    }

    /// A neighbour has link states that are lacking here; `is_last`: and no others.
    pub(super) fn compared(&mut self, lacking: Vec<HostId>, is_last: bool) {
        let room = whimbrel_net::topology::BROKERS_MAX.saturating_sub(self.lacking.len());
        self.lacking.extend(lacking.into_iter().take(room));
        self.is_compared |= is_last;
    }

    /// A link state has come, whatever became of it.
    pub(super) fn on_link_state(&mut self, host: HostId) {
        self.lacking.remove(&host);
    }
}

impl Overlay {
    /// Whether others may come to be known in a moment, so that answers wait.
    pub(super) fn is_young(&self, now: Time) -> bool {
        self.config.expects_peers && self.joining.as_ref().is_some_and(|joining| now.since(joining.since) < CONFIRM_MAX)
    }

    /// Whether it has just begun, and others are about to be known.
    pub(crate) fn knows_no_others(&self) -> bool {
        self.joining.is_some()
    }

    /// What was told when others were known that are forgotten by now counts no more.
    pub(super) fn record_expiry(&mut self) {
        if let Some(joining) = &mut self.joining {
            joining.lacking.clear();
        }
    }

    /// Whether it knows of all brokers of which a neighbour has told, and there is a way to each of
    /// them.
    fn reaches_all_told(&mut self) -> bool {
        if self.joining.as_ref().is_some_and(|joining| !joining.lacking.is_empty()) {
            return false;
        }
        self.routes.update(&self.topology);
        let Overlay { topology, routes, host, .. } = self;
        topology.hosts().all(|other| other == *host || routes.is_reachable(other))
    }

    /// Whether there are others that it has never been linked with, or of which it has only been
    /// told that there are some.
    pub(super) fn lacks_everyone(&self) -> bool {
        let knows_nobody = self.topology.len() < 2;
        let is_waited_for = |joining: &Joining| !joining.is_compared || knows_nobody && !joining.lacking.is_empty();
        self.config.expects_peers && self.joining.as_ref().is_some_and(is_waited_for)
    }
}

impl Broker {
    /// Something is news to a young broker; perhaps it is young no more: it has been told of all
    /// others, and there is a way to each of them.
    pub(super) fn check_joining(&mut self, now: Time, note: impl FnOnce(&mut Joining), out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(joining) = &mut overlay.joining else { return };
        note(joining);
        if !joining.is_compared || overlay.lacks_everyone() {
            return;
        }
        // Ways are looked at only when all have come of whom it was told: each link state that
        // comes is news here.
        if overlay.is_young(now) && !overlay.reaches_all_told() {
            return;
        }
        overlay.joining = None;
        self.confirm_ready(now, out);
    }
}
