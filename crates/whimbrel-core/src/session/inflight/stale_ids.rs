//! Tags that a client may still mean for deliveries that its broker knows nothing of: whoever had
//! the session before gave them, and is gone. A client ignores an event that comes under such a tag
//! at exactly once, so it is told to forget the tag, and has answered, before the tag is given.

use std::collections::BTreeSet;

use super::{Inflight, SPAN_MAX, TAGS};

/// About so many tags a client is asked at once: 1 KiB.
const ASKED_MAX: u16 = 256;

/// It is asked about more when no more than so many are free.
const FREE_LOW: u16 = 128;

/// Tags that were given and are over when a session goes on elsewhere, or after a restart: more are
/// not taken for such.
const OVER_MAX: u32 = 8192;

/// Which tags are in doubt: so many, beginning with the next one that is given.
#[derive(Debug)]
pub(super) struct StaleIds {
    left: u16,
    /// So many of them, beginning with the next one, the client does not mean.
    free: u16,
    /// What it was asked on this connection, and has not answered.
    asked: BTreeSet<u16>,
    /// How many tags that question had.
    question: u16,
}

impl Inflight {
    /// After a restart the next tag lies behind `last`, unless something is on its way with a later
    /// one; so many are in doubt.
    pub(crate) fn resume_as(&mut self, last: u16, stale_ids: u16) {
        let ahead = (u32::from(last) + u32::from(TAGS) - u32::from(self.newest_tag())) % u32::from(TAGS);
        // What lies farther off lies behind.
        if last != 0 && (self.slots.is_empty() || ahead <= OVER_MAX) {
            self.resume_after(last);
        }
        if stale_ids > 0 {
            self.mark_stale(stale_ids);
        }
    }

    /// The client may mean the next `left` tags, of which there is one at least; there are 65,535.
    pub(crate) fn mark_stale(&mut self, left: u16) {
        self.stale = Some(Box::new(StaleIds { left, free: 0, asked: BTreeSet::new(), question: 0 }));
    }

    /// How many tags are in doubt.
    pub(crate) fn stale_count(&self) -> u16 {
        self.stale.as_deref().map_or(0, |stale| stale.left)
    }

    /// Whether the client is sure not to mean the next tag.
    pub(super) fn is_next_free(&self) -> bool {
        self.stale.as_deref().is_none_or(|stale| stale.free > 0)
    }

    /// A connection has ended: what was not answered there is asked again.
    pub(super) fn forget_asked(&mut self) {
        if let Some(stale) = &mut self.stale {
            stale.asked.clear();
        }
    }

    /// A tag was given.
    pub(super) fn record_given(&mut self) {
        let Some(stale) = &mut self.stale else { return };
        debug_assert!(stale.free > 0, "only a tag that is free is given");
        (stale.left, stale.free) = (stale.left - 1, stale.free.saturating_sub(1));
        if stale.left == 0 {
            self.stale = None;
        }
    }

    /// The tags that the client is to be told to forget now. It answers each with
    /// [`Inflight::forgotten`].
    pub(crate) fn ask_to_forget(&mut self) -> Vec<u16> {
        let newest = self.newest_tag();
        // Tags that are on their way come last in the round, and are not asked about.
        let room = SPAN_MAX.saturating_sub(self.slots.len()) as u16;
        let Some(stale) = self.stale.as_deref_mut() else { return Vec::new() };
        if !stale.asked.is_empty() || stale.free > FREE_LOW {
            return Vec::new();
        }
        stale.question = (stale.left - stale.free).min(ASKED_MAX).min(room.saturating_sub(stale.free));
        let first = u32::from(newest) + u32::from(stale.free);
        let tags = (first..first + u32::from(stale.question)).map(|before| (before % u32::from(TAGS)) as u16 + 1);
        stale.asked = tags.clone().collect();
        tags.collect()
    }

    /// The client has answered that it has forgotten a tag. Whether that was all it was asked;
    /// `None`: it was not asked.
    pub(crate) fn forgotten(&mut self, tag: u16) -> Option<bool> {
        let stale = self.stale.as_deref_mut()?;
        if !stale.asked.remove(&tag) {
            return None;
        }
        let is_all = stale.asked.is_empty();
        if is_all {
            stale.free += stale.question;
        }
        Some(is_all)
    }
}
