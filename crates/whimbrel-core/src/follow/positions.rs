//! Positions in several streams.

use whimbrel_event::{PubendId, Tick};

/// Per pubend a tick, ascending by pubend. A pubend that is not in it stands at its birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positions {
    entries: Vec<(PubendId, Tick)>,
}

impl Positions {
    /// None.
    pub(crate) const fn new() -> Self {
        Positions { entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, pubend: PubendId) -> Tick {
        match self.entries.binary_search_by_key(&pubend, |entry| entry.0) {
            Ok(at) => self.entries[at].1,
            Err(_) => Tick(0),
        }
    }

    /// Whether that pubend is in it.
    pub(crate) fn has(&self, pubend: PubendId) -> bool {
        self.entries.binary_search_by_key(&pubend, |entry| entry.0).is_ok()
    }

    pub(crate) fn set(&mut self, pubend: PubendId, tick: Tick) {
        match self.entries.binary_search_by_key(&pubend, |entry| entry.0) {
            Ok(at) => self.entries[at].1 = tick,
            Err(at) => self.entries.insert(at, (pubend, tick)),
        }
    }

    /// Moves a position forward, unless it is there already or beyond.
    pub(crate) fn advance(&mut self, pubend: PubendId, tick: Tick) {
        match self.entries.binary_search_by_key(&pubend, |entry| entry.0) {
            Ok(at) => self.entries[at].1 = self.entries[at].1.max(tick),
            Err(at) => self.entries.insert(at, (pubend, tick)),
        }
    }

    pub(crate) fn remove(&mut self, pubend: PubendId) {
        self.retain(|other| other != pubend);
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(PubendId) -> bool) {
        self.entries.retain(|entry| is_kept(entry.0));
    }

    /// Forgets what is not ahead of `others`.
    pub(crate) fn retain_above(&mut self, others: &Positions) {
        self.entries.retain(|(pubend, tick)| *tick > others.get(*pubend));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.entries.iter().copied()
    }
}

impl FromIterator<(PubendId, Tick)> for Positions {
    fn from_iter<I: IntoIterator<Item = (PubendId, Tick)>>(all: I) -> Self {
        let mut entries: Vec<_> = all.into_iter().collect();
        entries.sort_unstable();
        entries.dedup_by_key(|entry| entry.0);
        Positions { entries }
    }
}
