//! Topic filter and selector together: who wants an event.

use std::sync::Arc;

use crate::content::{Expensive, GroupId, SelectorId};
use crate::fence::Fences;
use crate::selector::Selector;
use crate::subject::Subject;
use crate::topic::{TopicFilter, TopicName};

/// Where a subscription stands in a [`MatchIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(Option<SelectorId>);

/// Finds the keys of all subscriptions that want an event: its topic matches their filter, and their selector, if they have one,
/// is true for it.
#[derive(Debug)]
pub struct MatchIndex<K> {
    _k: Vec<K>,
}

impl<K: Copy + Eq> MatchIndex<K> {
    /// An empty index. `seed` keys its hash tables, so that strangers who choose topics and values cannot choose collisions.
    pub fn new(_seed: u64) -> Self {
        todo!()
    }

    /// The fences that `within` refers to, from now on.
    pub fn set_fences(&mut self, _fences: Arc<Fences>) {
        todo!()
    }

    /// The fences that `within` refers to.
    pub fn fences(&self) -> &Arc<Fences> {
        todo!()
    }

    /// Adds `key` under `filter`, for all events or those for which `selector` is true.
    pub fn insert(&mut self, _filter: TopicFilter<'_>, _selector: Option<&Selector>, _key: K) -> (Place, bool) {
        todo!()
    }

    /// Removes `key` from where [`MatchIndex::insert`] put it; false if it is not there.
    pub fn remove(&mut self, _filter: TopicFilter<'_>, _place: Place, _key: K) -> (bool, bool) {
        todo!()
    }

    /// First half of a match, which depends on the topic alone, so that its result may be remembered until a subscription
    /// comes or goes whose filter matches the topic: calls `plain` with each key without selector, and `group` with each group of selectors under
    /// one filter.
    pub fn for_each_candidate(&self, _topic: TopicName<'_>, _plain: impl FnMut(K), _group: impl FnMut(GroupId)) {
        todo!()
    }

    /// Second half of a match: calls `found` with each key in `groups` whose selector is true.
    pub fn for_each_selected(&mut self, _groups: &[GroupId], _subject: &dyn Subject, _found: impl FnMut(K)) {
        todo!()
    }

    /// Both halves: calls `found` with each key that wants the event.
    pub fn for_each_match(&mut self, _topic: TopicName<'_>, _subject: &dyn Subject, _found: impl FnMut(K)) {
        todo!()
    }

    /// Whether the selector at `place`, if any, is true for `subject`; true without selector.
    pub fn is_selected(&self, _place: Place, _subject: &dyn Subject) -> bool {
        todo!()
    }

    /// What the selectors that cost most have cost so far, most expensive first; at most [`crate::EXPENSIVE_MAX`].
    pub fn expensive(&self) -> Vec<Expensive> {
        todo!()
    }

    /// The number of distinct selectors per filter.
    pub fn selectors(&self) -> usize {
        todo!()
    }
}
