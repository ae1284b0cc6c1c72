//! The clients that were told of most gaps.

use super::{Session, Sessions, shown};
use crate::cursor::GapReason;
use crate::stats::GapClass;

/// The number of clients that are named for their gaps.
pub(super) const GAPPY_MAX: usize = 16;

/// Enters a session among those with most gaps, if it is one of them.
fn record_gappy(gappy: &mut Vec<(Box<str>, u64)>, session: &Session) {
    if let Some(known) = gappy.iter_mut().find(|known| known.0 == session.client_id) {
        known.1 = session.gaps;
    } else if gappy.len() < GAPPY_MAX {
        gappy.push((session.client_id.clone(), session.gaps));
    } else if let Some(least) = gappy.iter_mut().min_by_key(|known| known.1).filter(|least| least.1 < session.gaps) {
        *least = (session.client_id.clone(), session.gaps);
    }
}

impl Sessions {
    /// Counts a gap that a subscription of a session has been told, or would have been.
    pub(crate) fn count_gap(&mut self, index: u32, class: GapClass, reason: GapReason) {
        let Sessions { slots, stats, gappy, gaps, .. } = self;
        stats.count_gap(reason);
        gaps.count(class, reason);
        if reason == GapReason::BestEffort {
            return;
        }
        let session = slots[index as usize].as_mut().expect("a session index in use");
        session.gaps += 1;
        record_gappy(gappy, session);
    }

    /// The clients with most gaps, those of best effort not counted: at most [`GAPPY_MAX`], most
    /// gaps first.
    pub(crate) fn gappy(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.gappy.iter().map(|(client, gaps)| (shown(client).to_owned(), *gaps)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }
}
