//! The interest of a broker's subscribers in a bounded number of entries, as it is told to others.
//!
//! A [`Reduction`] counts what is wanted: filters, and under each the terms of its selectors, of
//! which one must be true. From that it makes entries that together want at least as much:
//! 1. Terms and filters that others cover are dropped.
//! 2. If more are left than allowed, those under one filter share entries, as disjunctions. That
//!    admits no additional events.
//! 3. If that is not enough, neighbours are joined, first those that are estimated to admit the
//!    least: ranges with the smallest gap between them, texts with the longest common prefix.
//!    Filters beyond the bound are replaced by wider ones in the same order.
//!
//! This is greedy clustering of sorted neighbours; only adjacent terms are ever compared.
//!
//! **When.** As long as no more is wanted than there may be entries, the entries follow each
//! change. Beyond that, a new term goes into the entries as they are (one changes), a removed one
//! stays in them, and all entries are computed anew when more than an eighth of the set (at least
//! [`CHANGES_MIN`]) has changed. So entries may want too much for a while; they never want too
//! little.

mod group;
mod place;
mod plan;
mod term;
mod widen;

use std::collections::BTreeMap;

use whimbrel_selector::{Selector, TopicFilter};

pub use group::{SELECTOR_BYTES_MAX, TERMS_MAX};
pub use widen::{SYSTEM_ROOT_BYTES_MAX, SYSTEM_ROOTS_MAX};

use group::FilterGroup;
use place::place;
use plan::{Spans, fit};
use term::{Names, Term};
use widen::{drop_covered, system_root, tidied};

/// Default bound of the entries that a broker tells others.
pub const INTEREST_MAX: usize = 256;

/// The least bound that may be configured: an entry for each class of filters that cannot be
/// merged, and some room.
pub const INTEREST_LEAST: usize = 32;

/// Fewer changes than this do not cause all entries to be computed anew when not everything fits.
pub const CHANGES_MIN: usize = 64;

/// What is wanted under a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct ReducedEntry {
    /// A well-formed [`TopicFilter`].
    pub filter: Box<str>,
    /// The wanted events of its topics, in at most [`SELECTOR_BYTES_MAX`] bytes; `None`: all.
    pub selector: Option<Selector>,
}

/// An estimate of the traffic: it decides what is merged, and never whether anything is covered.
pub trait TrafficEstimate {
    /// Events per second on the filter's topics, of any publisher. Finite, not negative, and for a
    /// wider filter at least as much as for a narrower one; the choice is poor otherwise.
    fn rate(&self, filter: TopicFilter<'_>) -> f64;
}

/// No estimate: all topics have the same traffic, and each level has 16 values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Even;

impl TrafficEstimate for Even {
    fn rate(&self, filter: TopicFilter<'_>) -> f64 {
        filter.as_str().split('/').map(|level| if matches!(level, "+" | "#") { 1.0 } else { 0.0625 }).product()
    }
}

/// A filter begins with another level with `$` when there are [`SYSTEM_ROOTS_MAX`] already, or with
/// one of more than [`SYSTEM_ROOT_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRoots;

/// The terms wanted under one filter, with the number of subscriptions that want each.
#[derive(Debug, Default)]
struct WantedTerms {
    all: u32,
    terms: BTreeMap<Term, u32>,
}

impl WantedTerms {
    fn is_empty(&self) -> bool {
        self.all == 0 && self.terms.is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.all > 0) + self.terms.len()
    }
}

/// The counted wants of a broker's subscribers, and the entries that represent them. Each distinct
/// filter and each distinct term is kept once, in about 100 bytes beside its text.
#[derive(Debug, Default)]
pub struct Reduction {
    wanted: BTreeMap<Box<str>, WantedTerms>,
    names: Names,
    /// First levels with `$`, and the number of filters that begin with each.
    roots: BTreeMap<Box<str>, usize>,
    /// Number of distinct wants: see [`Reduction::len`].
    len: usize,
    /// Changes since all entries were computed.
    changes: usize,
    /// All entries are to be computed anew.
    is_stale: bool,
    /// What is new since the entries were made, unless all entries are to be computed anyway; at
    /// most as many as the allowed changes.
    fresh: Vec<FilterGroup>,
    bound: usize,
    /// The groups of the entries, sorted.
    groups: Vec<FilterGroup>,
    entries: Vec<ReducedEntry>,
}

impl Reduction {
    /// A reduction in which nothing is wanted.
    pub fn new() -> Reduction {
        Reduction::default()
    }

    /// Number of distinct wants: filters without selector, and terms of selectors under filters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a subscription: it wants the filter's events for which the selector is true. Takes
    /// logarithmic time for each term of the selector.
    ///
    /// # Errors
    /// When the filter begins with one more level with `$` than are allowed; nothing has changed
    /// then.
    pub fn insert(&mut self, filter: TopicFilter<'_>, selector: Option<&Selector>) -> Result<(), TooManyRoots> {
        let filter = tidied(filter.as_str());
        let terms = self.terms(selector);
        if terms.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if !self.wanted.contains_key(filter) {
            if let Some(root) = system_root(filter) {
                let is_new = !self.roots.contains_key(root);
                if is_new && (self.roots.len() == SYSTEM_ROOTS_MAX || root.len() > SYSTEM_ROOT_BYTES_MAX) {
                    return Err(TooManyRoots);
                }
                *self.roots.entry(root.into()).or_default() += 1;
            }
            self.wanted.insert(filter.into(), WantedTerms::default());
        }
        let wanted = self.wanted.get_mut(filter).expect("it is there");
        let before = wanted.len();
        let mut fresh = Vec::new();
        let mut is_fresh = false;
        match terms {
            None => {
                wanted.all += 1;
                is_fresh = wanted.all == 1;
            }
            Some(terms) => {
                for term in terms {
                    let count = wanted.terms.entry(term.clone()).or_default();
                    *count += 1;
                    if *count == 1 {
                        fresh.push(term);
                    }
                }
                is_fresh |= !fresh.is_empty();
            }
        }
        let more = wanted.len() - before;
        self.len += more;
        if is_fresh {
            self.changed(more);
            if !self.is_stale {
                self.fresh.push(FilterGroup { filter: filter.into(), terms: fresh });
            }
        }
        Ok(())
    }

    /// Removes a subscription. Takes logarithmic time for each term of the selector.
    ///
    /// # Panics
    /// When there is no such subscription: it was not inserted, or was refused.
    pub fn remove(&mut self, filter: TopicFilter<'_>, selector: Option<&Selector>) {
        let filter = tidied(filter.as_str());
        let terms = self.terms(selector);
        if terms.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let wanted = self.wanted.get_mut(filter).expect("what is removed was inserted");
        let before = wanted.len();
        match terms {
            None => wanted.all = wanted.all.checked_sub(1).expect("what is removed was inserted"),
            Some(terms) => terms.iter().for_each(|term| {
                let count = wanted.terms.get_mut(term).expect("what is removed was inserted");
                *count -= 1;
                if *count == 0 {
                    wanted.terms.remove(term);
                }
            }),
        }
        let less = before - wanted.len();
        if wanted.is_empty() {
            self.wanted.remove(filter);
            self.forget_root(filter);
        }
        self.len -= less;
        if less > 0 {
            self.changed(less);
        }
    }

    fn forget_root(&mut self, filter: &str) {
        let Some(root) = system_root(filter) else { return };
        let count = self.roots.get_mut(root).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.roots.remove(root);
        }
    }

    /// The terms of a selector; `None` for everything.
    fn terms(&mut self, selector: Option<&Selector>) -> Option<Vec<Term>> {
        let selector = selector.filter(|selector| !selector.is_everything())?;
        Some(self.names.terms(selector))
    }

    /// Records that `by` more or fewer distinct things are wanted.
    fn changed(&mut self, by: usize) {
        self.changes += by;
        self.is_stale |= self.len <= self.bound || self.changes > (self.len / 8).max(CHANGES_MIN);
        if self.is_stale {
            self.fresh.clear();
        }
    }

    /// At most `bound` entries, sorted by filter, that together want everything that is wanted; the
    /// same entries if nothing has changed. Takes time for each change in proportion to the
    /// entries, and sometimes n log n in the number of wants; see the module for when.
    ///
    /// # Panics
    /// When the bound is less than [`INTEREST_LEAST`].
    pub fn reduced(&mut self, bound: usize, traffic: &dyn TrafficEstimate) -> &[ReducedEntry] {
        assert!(bound >= INTEREST_LEAST, "at least {INTEREST_LEAST} entries are needed");
        let is_other = bound != self.bound;
        self.bound = bound;
        if is_other || self.is_stale || !self.absorb(traffic) {
            self.compute(traffic);
        }
        &self.entries
    }

    /// Computes all entries anew.
    fn compute(&mut self, traffic: &dyn TrafficEstimate) {
        self.fresh.clear();
        self.names.tidy();
        self.changes = 0;
        self.is_stale = false;
        let mut groups = Vec::with_capacity(self.wanted.len());
        for (filter, wanted) in &self.wanted {
            let terms = if wanted.all > 0 { Vec::new() } else { wanted.terms.keys().cloned().collect() };
            let mut group = FilterGroup { filter: filter.clone(), terms };
            group.simplify(&mut self.names);
            groups.push(group);
        }
        drop_covered(&mut groups, &mut self.names);
        let count: usize = groups.iter().map(FilterGroup::len).sum();
        let groups = if count <= self.bound {
            groups.into_iter().flat_map(singles).collect()
        } else {
            fit(groups, self.bound, &mut self.names, traffic)
        };
        self.tell(groups);
    }

    /// Merges what is new into the entries as they are. Returns false if there is no place for it.
    fn absorb(&mut self, traffic: &dyn TrafficEstimate) -> bool {
        if self.fresh.is_empty() {
            return true;
        }
        let fresh = core::mem::take(&mut self.fresh);
        let mut groups = self.groups.clone();
        let spans = Spans::of(&groups);
        for mut group in fresh {
            group.simplify(&mut self.names);
            for one in singles(group) {
                if !place(&mut groups, one, self.bound, &spans, traffic) {
                    return false;
                }
            }
        }
        self.tell(groups);
        true
    }

    /// Replaces the entries; those that stay are not made again.
    fn tell(&mut self, mut groups: Vec<FilterGroup>) {
        groups.sort_unstable();
        groups.dedup();
        assert!(groups.len() <= self.bound, "the entries fit");
        let mut old = core::mem::take(&mut self.groups).into_iter().zip(core::mem::take(&mut self.entries)).peekable();
        for group in &groups {
            while old.next_if(|(before, _)| before < group).is_some() {}
            let entry = match old.next_if(|(before, _)| before == group) {
                Some((_, entry)) => entry,
                None => ReducedEntry { filter: group.filter.clone(), selector: group.selector() },
            };
            self.entries.push(entry);
        }
        self.groups = groups;
    }
}

/// One group for each term.
fn singles(group: FilterGroup) -> Vec<FilterGroup> {
    if group.wants_all() {
        return vec![group];
    }
    let FilterGroup { filter, terms } = group;
    terms.into_iter().map(|term| FilterGroup { filter: filter.clone(), terms: vec![term] }).collect()
}
