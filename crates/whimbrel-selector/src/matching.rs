//! Topic filter and selector together: finds the subscriptions that match an event.

use std::sync::Arc;

use whimbrel_event::Seeded;

use crate::content::{ContentIndex, Cost, GroupId, SelectorId};
use crate::fence::Fences;
use crate::index::FilterIndex;
use crate::selector::Selector;
use crate::store::{Slab, Table};
use crate::subject::Subject;
use crate::topic::{TopicFilter, TopicName};

/// The place of a subscription in a [`MatchIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(Option<SelectorId>);

impl Place {
    /// The number of the selector under its filter, if there is one. Numbers of removed selectors
    /// are reused.
    pub fn selector(self) -> Option<u32> {
        self.0.map(SelectorId::number)
    }
}

/// An expensive selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expensive {
    /// The topic filter.
    pub filter: String,
    /// The selector, in canonical form.
    pub selector: String,
    /// The selector's cost so far.
    pub cost: Cost,
}

/// An entry under a topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under<K> {
    Plain(K),
    Group(GroupId),
}

/// Selectors under one filter.
#[derive(Debug)]
struct Group {
    id: GroupId,
    filter: Box<str>,
    keys: u32,
}

/// Finds the keys of all subscriptions that match an event: its topic matches their filter, and
/// their selector, if they have one, is true for it.
///
/// The same key may be in several places; it is found once for each that matches.
#[derive(Debug)]
pub struct MatchIndex<K> {
    filters: FilterIndex<Under<K>>,
    /// A group has the same number here as in the index over selectors.
    groups: Slab<Group>,
    by_filter: Table,
    content: ContentIndex<K>,
    hasher: Seeded,
}

impl<K: Copy + Ord> MatchIndex<K> {
    /// An empty index. `seed` keys its hash tables, so that clients cannot choose topics and values
    /// that collide.
    pub fn new(seed: u64) -> Self {
        MatchIndex {
            filters: FilterIndex::new(seed),
            groups: Slab::new(),
            by_filter: Table::new(),
            content: ContentIndex::new(seed),
            hasher: Seeded::new(seed),
        }
    }

    /// Sets the fences that `within` refers to.
    pub fn set_fences(&mut self, fences: Arc<Fences>) {
        self.content.set_fences(fences);
    }

    /// The fences that `within` refers to.
    pub fn fences(&self) -> &Arc<Fences> {
        self.content.fences()
    }

    /// Adds `key` under `filter`, for all events or those for which `selector` is true. Returns its
    /// place, and whether it is the first with a selector under this filter: from then on
    /// [`MatchIndex::for_each_candidate`] gives the group.
    pub fn insert(&mut self, filter: TopicFilter<'_>, selector: Option<&Selector>, key: K) -> (Place, bool) {
        let Some(selector) = selector else {
            self.filters.insert(filter, Under::Plain(key));
            return (Place(None), false);
        };
        let known = self.find_group(filter);
        let place = known.unwrap_or_else(|| self.insert_group(filter));
        let group = &mut self.groups[place];
        group.keys += 1;
        let id = group.id;
        (Place(Some(self.content.insert(id, selector, key))), known.is_none())
    }

    fn find_group(&self, filter: TopicFilter<'_>) -> Option<u32> {
        let same = |&place: &u32| *self.groups[place].filter == *filter.as_str();
        self.by_filter.find(self.hasher.hash_one(filter.as_str()), same)
    }

    fn insert_group(&mut self, filter: TopicFilter<'_>) -> u32 {
        let id = self.content.insert_group();
        let place = self.groups.insert(Group { id, filter: filter.as_str().into(), keys: 0 });
        assert!(place == id.place(), "groups come and go here as in the index over selectors");
        let (groups, hasher) = (&self.groups, &self.hasher);
        self.by_filter
            .insert(hasher.hash_one(filter.as_str()), place, |&place| hasher.hash_one(&*groups[place].filter));
        self.filters.insert(filter, Under::Group(id));
        place
    }

    /// Removes `key` from the place that [`MatchIndex::insert`] returned. Returns whether it was
    /// there, and whether it was the last with a selector under this filter: the group is removed
    /// then.
    pub fn remove(&mut self, filter: TopicFilter<'_>, place: Place, key: K) -> (bool, bool) {
        let Some(selector) = place.0 else { return (self.filters.remove(filter, Under::Plain(key)), false) };
        if !self.content.remove(selector, key) {
            return (false, false);
        }
        let place = self.find_group(filter).expect("a selector stands under its filter");
        let group = &mut self.groups[place];
        group.keys -= 1;
        if group.keys > 0 {
            return (true, false);
        }
        let id = group.id;
        let (groups, hasher) = (&self.groups, &self.hasher);
        let rehash = |&place: &u32| hasher.hash_one(&*groups[place].filter);
        self.by_filter.remove(rehash(&place), place, rehash);
        self.groups.remove(place);
        self.content.remove_group(id);
        assert!(self.filters.remove(filter, Under::Group(id)), "every group stands under its filter");
        (true, true)
    }

    /// First half of a match, which depends only on the topic, so that its result may be cached
    /// until a subscription whose filter matches the topic is added or removed: calls `plain` with
    /// each key without selector, and `group` with each group of selectors under one filter.
    pub fn for_each_candidate(&self, topic: TopicName<'_>, mut plain: impl FnMut(K), mut group: impl FnMut(GroupId)) {
        self.filters.for_each_match(topic, |under| match under {
            Under::Plain(key) => plain(key),
            Under::Group(id) => group(id),
        });
    }

    /// Second half of a match: calls `found` with each key in `groups` whose selector is true.
    pub fn for_each_selected(&mut self, groups: &[GroupId], subject: &dyn Subject, found: impl FnMut(K)) {
        self.content.for_each_true(groups, subject, found);
    }

    /// Both halves of a match: calls `found` with each matching key.
    pub fn for_each_match(&mut self, topic: TopicName<'_>, subject: &dyn Subject, mut found: impl FnMut(K)) {
        let mut groups = smallvec::SmallVec::<[GroupId; 8]>::new();
        self.for_each_candidate(topic, &mut found, |group| groups.push(group));
        if !groups.is_empty() {
            self.for_each_selected(&groups, subject, found);
        }
    }

    /// The canonical text of the selector at `place`, if there is one.
    pub fn selector_text(&self, place: Place) -> Option<&str> {
        place.0.map(|selector| self.content.text(selector))
    }

    /// Whether the selector at `place`, if any, is true for `subject`; true without selector.
    pub fn is_selected(&mut self, place: Place, subject: &dyn Subject) -> bool {
        place.0.is_none_or(|selector| self.content.is_true(selector, subject))
    }

    /// The most expensive selectors so far, most expensive first; at most [`crate::EXPENSIVE_MAX`].
    pub fn expensive(&self) -> Vec<Expensive> {
        let name = |(group, selector, cost): (GroupId, &str, Cost)| {
            let filter = &self.groups[group.place()].filter;
            Expensive { filter: filter.to_string(), selector: selector.to_owned(), cost }
        };
        self.content.expensive().into_iter().map(name).collect()
    }

    /// The cost of all selectors so far, including removed ones.
    pub fn cost(&self) -> Cost {
        self.content.total()
    }

    /// The number of distinct selectors per filter, summed over the filters.
    pub fn selectors(&self) -> usize {
        self.content.len()
    }
}
