//! Tags that a client may still mean for deliveries that its broker knows nothing of: whoever had the session before gave them, and is gone. A
//! client ignores an event that comes under such a tag at exactly once, so it is told to forget the tag, and has answered, before the tag is given.

use std::collections::BTreeSet;

use super::{Inflight, SPAN_MAX, TAGS};

/// About so many tags a client is asked at once: 1 KiB.
const ASKED_MAX: u16 = 256;

/// It is asked about more when no more than so many are free.
const FREE_LOW: u16 = 128;

/// Tags that were given and are over when a session goes on elsewhere, or after a restart: more are not taken for such.
const OVER_MAX: u32 = 8192;

/// Which tags are in doubt: so many, beginning with the next one that is given.
#[derive(Debug)]
pub(super) struct Doubt {
    left: u16,
    /// So many of them, beginning with the next one, the client does not mean.
    free: u16,
    /// What it was asked on this connection, and has not answered.
    asked: BTreeSet<u16>,
    /// How many tags that question had.
    question: u16,
}

impl Inflight {
    /// After a restart the next tag lies behind `last`, unless something is on its way with a later one; so many are in doubt.
    pub(crate) fn go_on_as(&mut self, last: u16, doubted: u16) {
        let ahead = (u32::from(last) + u32::from(TAGS) - u32::from(self.newest_tag())) % u32::from(TAGS);
        // What lies farther off lies behind.
        if last != 0 && (self.slots.is_empty() || ahead <= OVER_MAX) {
            self.go_on_after(last);
        }
        if doubted > 0 {
            self.doubt(doubted);
        }
    }

    /// The client may mean the next `left` tags, of which there is one at least; there are 65,535.
    pub(crate) fn doubt(&mut self, left: u16) {
        self.doubt = Some(Box::new(Doubt { left, free: 0, asked: BTreeSet::new(), question: 0 }));
    }

    /// How many tags are in doubt.
    pub(crate) fn doubted(&self) -> u16 {
        self.doubt.as_deref().map_or(0, |doubt| doubt.left)
    }

    /// Whether the client is sure not to mean the next tag.
    pub(super) fn is_next_free(&self) -> bool {
        self.doubt.as_deref().is_none_or(|doubt| doubt.free > 0)
    }

    /// A connection has ended: what was not answered there is asked again.
    pub(super) fn forget_asked(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.asked.clear();
        }
    }

    /// A tag was given.
    pub(super) fn note_given(&mut self) {
        let Some(doubt) = &mut self.doubt else { return };
        debug_assert!(doubt.free > 0, "only a tag that is free is given");
        (doubt.left, doubt.free) = (doubt.left - 1, doubt.free.saturating_sub(1));
        if doubt.left == 0 {
            self.doubt = None;
        }
    }

    /// The tags that the client is to be told to forget now. It answers each with [`Inflight::forgotten`].
    pub(crate) fn ask_to_forget(&mut self) -> Vec<u16> {
        let newest = self.newest_tag();
        // Tags that are on their way come last in the round, and are not asked about.
        let room = SPAN_MAX.saturating_sub(self.slots.len()) as u16;
        let Some(doubt) = self.doubt.as_deref_mut() else { return Vec::new() };
        if !doubt.asked.is_empty() || doubt.free > FREE_LOW {
            return Vec::new();
        }
        doubt.question = (doubt.left - doubt.free).min(ASKED_MAX).min(room.saturating_sub(doubt.free));
        let first = u32::from(newest) + u32::from(doubt.free);
        let tags = (first..first + u32::from(doubt.question)).map(|before| (before % u32::from(TAGS)) as u16 + 1);
        doubt.asked = tags.clone().collect();
        tags.collect()
    }

    /// The client has answered that it has forgotten a tag. Whether that was all it was asked; `None`: it was not asked.
    pub(crate) fn forgotten(&mut self, tag: u16) -> Option<bool> {
        let doubt = self.doubt.as_deref_mut()?;
        if !doubt.asked.remove(&tag) {
            return None;
        }
        let is_all = doubt.asked.is_empty();
        if is_all {
            doubt.free += doubt.question;
        }
        Some(is_all)
    }
}
