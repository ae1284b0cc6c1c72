//! Stale packet ids: tags that a client may still use for deliveries unknown to this broker, as a
//! former owner of the session assigned them and is gone. A client ignores an exactly-once event
//! that comes under such a tag. So it is told to forget the tag, and has to answer, before the tag
//! is assigned.

use std::collections::BTreeSet;

use super::{Inflight, SPAN_MAX, TAGS};

/// About the number of tags that a client is asked to forget at once: 1 KiB.
const ASKED_MAX: u16 = 256;

/// A client is asked to forget more when no more than this number are free.
const FREE_LOW: u16 = 128;

/// Tags that were assigned and are over when a session resumes at another broker, or after a
/// restart, at most: a greater distance is not taken for such.
const OVER_MAX: u32 = 8192;

/// The tags in doubt: the next `left` ones to be assigned.
#[derive(Debug)]
pub(super) struct StaleIds {
    left: u16,
    /// The number of them, from the next one on, that the client does not use.
    free: u16,
    /// Tags that it was asked to forget on this connection, and has not answered.
    asked: BTreeSet<u16>,
    /// The number of tags that it was asked to forget then.
    question: u16,
}

impl Inflight {
    /// After a restart, sets the next tag to the one behind `last`, unless a delivery in flight has
    /// a later one; `stale_ids` tags are in doubt.
    pub(crate) fn resume_as(&mut self, last: u16, stale_ids: u16) {
        let ahead = (u32::from(last) + u32::from(TAGS) - u32::from(self.newest_tag())) % u32::from(TAGS);
        // A greater distance ahead means that `last` lies behind.
        if last != 0 && (self.slots.is_empty() || ahead <= OVER_MAX) {
            self.resume_after(last);
        }
        if stale_ids > 0 {
            self.mark_stale(stale_ids);
        }
    }

    /// Marks the next `left` tags as in doubt, at least 1, at most 65,535.
    pub(crate) fn mark_stale(&mut self, left: u16) {
        self.stale = Some(Box::new(StaleIds { left, free: 0, asked: BTreeSet::new(), question: 0 }));
    }

    /// The number of tags in doubt.
    pub(crate) fn stale_count(&self) -> u16 {
        self.stale.as_deref().map_or(0, |stale| stale.left)
    }

    /// Whether the client certainly does not use the next tag.
    pub(super) fn is_next_free(&self) -> bool {
        self.stale.as_deref().is_none_or(|stale| stale.free > 0)
    }

    /// Forgets unanswered questions of a connection that has ended: they are asked again.
    pub(super) fn forget_asked(&mut self) {
        if let Some(stale) = &mut self.stale {
            stale.asked.clear();
        }
    }

    /// Records that a tag was assigned.
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
        // Tags in flight come last in the round, and are not asked about.
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

    /// The client has forgotten a tag. Returns whether all questions are answered; `None`: it was
    /// not asked.
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
