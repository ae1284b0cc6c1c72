//! A broker that has just begun knows of no other: until a neighbour has told it of all that there are, it is not alone but young.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, Time};

use super::confirm::CONFIRM_MAX;
use crate::api::Output;
use crate::broker::Core;

/// What a young broker waits for, for [`CONFIRM_MAX`] at most.
#[derive(Debug)]
pub(super) struct Joining {
    since: Time,
    /// Brokers of which a neighbour has the link state; no more than a broker knows at all are noted.
    lacking: BTreeSet<HostId>,
    /// A neighbour has named all that it knows.
    is_compared: bool,
}

impl Joining {
    pub(super) fn begun(since: Time) -> Joining {
        Joining { since, lacking: BTreeSet::new(), is_compared: false }
    }

    /// Whether it has been told of all, or has waited for long enough.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.is_compared && self.lacking.is_empty() || now.since(self.since) >= CONFIRM_MAX
    }

    /// A neighbour has link states that are lacking here; `is_last`: and no others.
    pub(super) fn compared(&mut self, lacking: Vec<HostId>, is_last: bool) {
        let room = super::topology::BROKERS_MAX.saturating_sub(self.lacking.len());
        self.lacking.extend(lacking.into_iter().take(room));
        self.is_compared |= is_last;
    }

    /// A link state has come, whatever became of it.
    pub(super) fn came(&mut self, host: HostId) {
        self.lacking.remove(&host);
    }
}

impl Core {
    /// Something is news to a young broker; perhaps it is young no more.
    pub(super) fn look_at_joining(&mut self, now: Time, note: impl FnOnce(&mut Joining), out: &mut impl Output) {
        let Some(joining) = self.overlay.as_deref_mut().and_then(|overlay| overlay.joining.as_mut()) else { return };
        note(joining);
        if joining.is_over(now) {
            self.overlay.as_deref_mut().expect("it was there").joining = None;
            self.confirm_ready(now, out);
        }
    }
}
