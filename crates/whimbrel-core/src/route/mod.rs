//! Routing of events: all subscriptions, the index over their filters and selectors, and a cache of
//! the index's answers for topics.

mod changes;
mod durable_interest;
mod target;
mod topics;

use std::sync::Arc;

use hashbrown::HashTable;
use whimbrel_event::{EventId, Packed, Seeded};
use whimbrel_net::interest::own::InterestChange;
use whimbrel_selector::{
    Cost, Expensive, Fences, GroupId, MatchIndex, Selector, SharedFilter, Subject, TopicFilter, TopicName,
};

use target::{BROKER_BIT, GROUP_BIT, INTEREST_BIT, PARTITION_BIT, target};
pub(crate) use target::{DurableInterest, IndexSpot, Subscription, Target, TargetKind};

use crate::content::Content;
use crate::cursor::Verdicts;
use crate::store::DurableNo;
use crate::topic::{LateCause, Profile, Profiles, RankedProfile, TopicDeliveries, TopicPeriod, TopicSettings};

/// No shared subscription.
pub(crate) const NO_GROUP: u32 = u32::MAX;

/// No cursor.
pub(crate) const NO_CURSOR: u32 = u32::MAX;

/// Topics whose route is cached; beyond that each new one replaces another.
const ROUTES_MAX: usize = 65_536;

/// Targets in all cached routes together.
const ROUTE_TARGETS_MAX: usize = 1 << 20;

#[derive(Debug)]
struct Route {
    topic: Box<str>,
    epoch: u64,
    /// Targets without a selector.
    targets: Box<[Target]>,
    /// The groups of selectors to evaluate; `None` if there are none.
    groups: Option<Arc<[GroupId]>>,
    settings: TopicSettings,
    is_durable: bool,
    /// All targets are plain, nothing depends on an event's content, and the topic's settings
    /// change nothing of it.
    is_plain: bool,
}

/// The targets of a topic's events before their content is looked at.
#[derive(Debug)]
pub(crate) struct TopicInterest<'a> {
    /// Targets that want all of them.
    pub(crate) targets: &'a [Target],
    /// The groups of selectors to evaluate with [`Router::select`]; most topics have none.
    pub(crate) groups: Option<&'a Arc<[GroupId]>>,
    /// What the topic's profile says.
    pub(crate) settings: TopicSettings,
    /// One of `targets` is durable.
    pub(crate) is_durable: bool,
}

/// The place of a topic's cached route; valid until another topic is asked for, or a subscription
/// changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteAt(usize);

impl Route {
    fn wanted(&self) -> TopicInterest<'_> {
        let Route { targets, groups, settings, is_durable, .. } = self;
        TopicInterest { targets, groups: groups.as_ref(), settings: *settings, is_durable: *is_durable }
    }

    /// Its count towards [`ROUTE_TARGETS_MAX`].
    fn size(&self) -> usize {
        self.targets.len() + self.groups.as_ref().map_or(0, |groups| groups.len())
    }
}

/// The cached routes.
#[derive(Debug, Default)]
struct TopicRoutes {
    table: HashTable<Route>,
    /// Targets in all routes together.
    targets: usize,
    /// The place in the table whose routes are forgotten next: the hand of a clock.
    hand: usize,
}

impl TopicRoutes {
    /// Forgets routes until one of `size` has room. Forgetting all at once would hold other work
    /// up.
    fn make_room(&mut self, size: usize) {
        while self.table.len() >= ROUTES_MAX || !self.table.is_empty() && self.targets + size > ROUTE_TARGETS_MAX {
            self.hand = (self.hand + 1) % self.table.num_buckets();
            if let Ok(entry) = self.table.get_bucket_entry(self.hand) {
                self.targets -= entry.remove().0.size();
            }
        }
    }
}

/// All subscriptions, and the targets of each topic.
#[derive(Debug)]
pub(crate) struct Router {
    subscriptions: Vec<Option<Subscription>>,
    free: Vec<u32>,
    /// Subscription by (session, text).
    by_text: HashTable<u32>,
    index: MatchIndex<u32>,
    routes: TopicRoutes,
    /// The place of the route that was found last: the next event often has the same topic.
    last: usize,
    /// Grows when a wildcard filter, or the first or last selector under one, is added or removed:
    /// every cached route may be wrong then.
    epoch: u64,
    hasher: Seeded,
    count: usize,
    /// The targets of the last event by its content; kept for its memory.
    selected: Vec<Target>,
    verdicts: Verdicts,
    profiles: Profiles,
    /// The owner of each durable interest.
    interests: Vec<Option<(DurableNo, u32)>>,
    free_interests: Vec<u32>,
    /// Subscriptions that began and ended since [`Router::take_changes`]; `None`: no link
    /// has come up yet, and changes are not recorded.
    changes: Option<Vec<InterestChange>>,
    pub(crate) misses: u64,
}

impl Router {
    pub(crate) fn new(seed: u64) -> Self {
        Router {
            subscriptions: Vec::new(),
            free: Vec::new(),
            by_text: HashTable::new(),
            index: MatchIndex::new(seed),
            routes: TopicRoutes::default(),
            last: 0,
            epoch: 0,
            hasher: Seeded::new(seed),
            count: 0,
            selected: Vec::new(),
            verdicts: Verdicts::default(),
            profiles: Profiles::new(seed),
            interests: Vec::new(),
            free_interests: Vec::new(),
            changes: None,
            misses: 0,
        }
    }

    /// The number of subscriptions.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, id: u32) -> &Subscription {
        self.subscriptions[id as usize].as_ref().expect("a subscription id in use")
    }

    /// The cursor of a session's subscription, if it has one.
    pub(crate) fn cursor_of(&self, session: u32, text: &str) -> Option<u32> {
        self.find(session, text).map(|id| self.get(id).cursor).filter(|cursor| *cursor != NO_CURSOR)
    }

    pub(crate) fn find(&self, session: u32, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one((session, text));
        self.by_text
            .find(hash, |&id| {
                let known = self.get(id);
                known.session == session && &*known.text == text
            })
            .copied()
    }

    /// Adds a subscription that [`Router::find`] does not know. It gets no event before
    /// [`Router::place`].
    pub(crate) fn insert(&mut self, subscription: Subscription) -> u32 {
        let hash = self.hasher.hash_one((subscription.session, &*subscription.text));
        let id = match self.free.pop() {
            Some(id) => {
                self.subscriptions[id as usize] = Some(subscription);
                id
            }
            None => {
                self.subscriptions.push(Some(subscription));
                self.subscriptions.len() as u32 - 1
            }
        };
        assert!(id < INTEREST_BIT, "2^29 subscriptions do not fit any memory");
        let (subscriptions, hasher) = (&self.subscriptions, &self.hasher);
        self.by_text.insert_unique(hash, id, |&id| {
            let known = subscriptions[id as usize].as_ref().expect("a subscription id in use");
            hasher.hash_one((known.session, &*known.text))
        });
        self.count += 1;
        id
    }

    /// Puts a new subscription into the index, unless it is a membership in a group.
    pub(crate) fn place(&mut self, id: u32, cursor: u32, filter: TopicFilter<'_>, selector: Option<&Selector>) {
        self.get_mut(id).cursor = cursor;
        if self.get(id).group == NO_GROUP {
            let spot = self.put(filter, selector, id);
            self.get_mut(id).spot = Some(spot);
        }
    }

    fn get_mut(&mut self, id: u32) -> &mut Subscription {
        self.subscriptions[id as usize].as_mut().expect("a subscription id in use")
    }

    /// Replaces the options and the selector of a subscription.
    pub(crate) fn update(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut Subscription),
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
    ) {
        let told = |known: &Subscription| (known.spec.is_durable(), known.spec.is_replier);
        let was_told = told(self.get(id));
        change(self.get_mut(id));
        let Some(old) = self.get(id).spot else { return };
        let new = self.replace(filter, old, selector, id);
        self.get_mut(id).spot = Some(new);
        let stays = selector.is_none() && !old.selective;
        if stays && was_told != told(self.get(id)) {
            // Only the interest that other brokers are told has changed.
            self.record_change(filter, selector, id, true);
            self.record_change(filter, selector, id, false);
        }
    }

    pub(crate) fn remove(&mut self, id: u32, filter: TopicFilter<'_>) -> Subscription {
        let gone = self.subscriptions[id as usize].take().expect("a subscription id in use");
        let hash = self.hasher.hash_one((gone.session, &*gone.text));
        self.by_text.find_entry(hash, |&other| other == id).expect("every subscription is found by text").remove();
        self.free.push(id);
        self.count -= 1;
        if let Some(spot) = gone.spot {
            self.take(filter, spot, id);
        }
        gone
    }

    pub(crate) fn insert_group(
        &mut self,
        group: u32,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
    ) -> IndexSpot {
        assert!(group < INTEREST_BIT, "2^29 shared subscriptions do not fit any memory");
        self.put(filter, selector, group | GROUP_BIT)
    }

    pub(crate) fn update_group(
        &mut self,
        group: u32,
        filter: TopicFilter<'_>,
        old: IndexSpot,
        selector: Option<&Selector>,
    ) -> IndexSpot {
        self.replace(filter, old, selector, group | GROUP_BIT)
    }

    pub(crate) fn remove_group(&mut self, group: u32, filter: TopicFilter<'_>, spot: IndexSpot) {
        self.take(filter, spot, group | GROUP_BIT);
    }

    /// Makes a partition of the cache a target of events.
    pub(crate) fn insert_partition(
        &mut self,
        number: u32,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
    ) -> IndexSpot {
        self.put(filter, selector, number | PARTITION_BIT)
    }

    pub(crate) fn remove_partition(&mut self, number: u32, filter: TopicFilter<'_>, spot: IndexSpot) {
        self.take(filter, spot, number | PARTITION_BIT);
    }

    /// Makes another broker a target of events.
    pub(crate) fn insert_broker(
        &mut self,
        number: u32,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
    ) -> IndexSpot {
        self.put(filter, selector, number | BROKER_BIT)
    }

    pub(crate) fn remove_broker(&mut self, number: u32, filter: TopicFilter<'_>, spot: IndexSpot) {
        self.take(filter, spot, number | BROKER_BIT);
    }

    /// Puts a key into the index. Cached routes have the keys without selector, and the filters
    /// that have any selector: they are forgotten only if one of these is new.
    fn put(&mut self, filter: TopicFilter<'_>, selector: Option<&Selector>, key: u32) -> IndexSpot {
        self.record_change(filter, selector, key, true);
        let (place, group_is_new) = self.index.insert(filter, selector, key);
        if selector.is_none() || group_is_new {
            self.forget_routes(filter);
        }
        IndexSpot { place, selective: selector.is_some() }
    }

    fn take(&mut self, filter: TopicFilter<'_>, spot: IndexSpot, key: u32) {
        self.record_change(filter, None, key, false);
        let selectors = self.index.selectors();
        let (known, group_is_gone) = self.index.remove(filter, spot.place, key);
        if self.index.selectors() < selectors {
            self.verdicts.forget();
        }
        assert!(known, "every subscription is in the index");
        if !spot.selective || group_is_gone {
            self.forget_routes(filter);
        }
    }

    /// Gives a key another selector. The new one is added first, so that the filter is not without
    /// selectors for a moment.
    fn replace(&mut self, filter: TopicFilter<'_>, old: IndexSpot, selector: Option<&Selector>, key: u32) -> IndexSpot {
        if selector.is_none() && !old.selective {
            // Its place stays, but routes also have the options of a target.
            self.forget_routes(filter);
            return old;
        }
        let new = self.put(filter, selector, key);
        self.take(filter, old, key);
        new
    }

    /// The fences that selectors refer to.
    pub(crate) fn fences(&self) -> &Arc<Fences> {
        self.index.fences()
    }

    /// Replaces the fences that selectors refer to. With a fence that is gone, `within` is unknown.
    pub(crate) fn set_fences(&mut self, fences: Arc<Fences>) {
        self.index.set_fences(fences);
        self.verdicts.forget();
    }

    /// The number of distinct selectors per filter.
    pub(crate) fn selectors(&self) -> usize {
        self.index.selectors()
    }

    /// Records an event that was late when it arrived from another broker.
    pub(crate) fn record_late_arrival(&mut self, id: EventId, cause: LateCause) {
        self.profiles.record_late_arrival(id, cause);
    }

    /// Counts deliveries of a topic with a deadline.
    pub(crate) fn record_deliveries(&mut self, deliveries: &TopicDeliveries) {
        self.profiles.record_deliveries(deliveries);
    }

    /// All profiles of topics.
    pub(crate) fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// Replaces the profiles of the configuration.
    pub(crate) fn configure_profiles(&mut self, profiles: Vec<Profile>) {
        self.profiles.configure(profiles);
        self.epoch += 1;
    }

    /// Puts a profile in effect that was made at a running broker.
    pub(crate) fn make_profile(&mut self, made: RankedProfile) {
        self.profiles.make(made);
        self.epoch += 1;
    }

    /// Ends the effect of a profile that was made, if there is one with that filter.
    pub(crate) fn unmake_profile(&mut self, filter: &str) {
        if self.profiles.unmake(filter) {
            self.epoch += 1;
        }
    }

    /// Whether no event under a filter is ever logged.
    pub(crate) fn is_volatile(&self, filter: TopicFilter<'_>) -> bool {
        self.profiles.is_volatile(filter)
    }

    /// Whether some events that a subscription wants may never be logged.
    pub(crate) fn may_be_volatile_for(&self, number: u32) -> bool {
        let filter = SharedFilter::parse(&self.get(number).text).expect("checked when it was made").filter;
        self.may_be_volatile(filter)
    }

    /// The periods in which a subscription expects events, by their topics' profiles.
    pub(crate) fn periods_for(&self, number: u32) -> impl Iterator<Item = TopicPeriod> {
        self.profiles.periods_of(SharedFilter::checked(&self.get(number).text).filter)
    }

    /// Whether some events that a subscription wants may have a deadline by their topic's profile.
    pub(crate) fn may_have_deadline_for(&self, number: u32) -> bool {
        let filter = SharedFilter::checked(&self.get(number).text).filter;
        self.profiles.least_deadline(filter).is_some()
    }

    /// Whether some events under a filter may never be logged.
    pub(crate) fn may_be_volatile(&self, filter: TopicFilter<'_>) -> bool {
        self.profiles.may_be_volatile(filter)
    }

    /// The cost of all selectors so far.
    pub(crate) fn cost(&self) -> Cost {
        self.index.cost()
    }

    /// The cost so far of the most expensive selectors, most expensive first.
    pub(crate) fn expensive(&self) -> Vec<Expensive> {
        self.index.expensive()
    }

    /// Whether the selector at a spot, if any, is true for an event.
    pub(crate) fn is_selected(&mut self, spot: IndexSpot, subject: &dyn Subject) -> bool {
        !spot.selective || self.index.is_selected(spot.place, subject)
    }

    /// Whether a subscription wants a cached event, by filter and selector; `serial` is the event's
    /// number.
    pub(crate) fn wants_cached(&mut self, number: u32, serial: u64, event: Packed<'_>) -> bool {
        let Router { index, subscriptions, verdicts, .. } = self;
        let known = subscriptions[number as usize].as_ref().expect("a subscription id in use");
        let spot = known.spot.expect("tracked subscriptions are in the index");
        verdicts.of(spot.place, serial, || {
            let event = event.unpack();
            let is_under = SharedFilter::checked(&known.text).filter.matches(TopicName::checked(event.event.topic));
            is_under && (!spot.selective || index.is_selected(spot.place, &Content(&event)))
        })
    }

    /// Whether the topic of an event is under a subscription's filter.
    pub(crate) fn is_under(&self, number: u32, event: Packed<'_>) -> bool {
        SharedFilter::checked(&self.get(number).text).filter.matches(TopicName::checked(event.view().topic))
    }

    /// Whether a subscription wants an event.
    pub(crate) fn wants(&mut self, number: u32, event: Packed<'_>) -> bool {
        let spot = self.get(number).spot.expect("tracked subscriptions are in the index");
        self.is_under(number, event) && self.is_selected(spot, &Content(&event.unpack()))
    }

    /// The targets of an event by its content, in an order that depends only on the subscriptions
    /// made and ended so far.
    pub(crate) fn select(&mut self, groups: &[GroupId], subject: &dyn Subject) -> &[Target] {
        let Router { index, subscriptions, selected, .. } = self;
        selected.clear();
        index.for_each_selected(groups, subject, |key| selected.push(target(subscriptions, key)));
        selected
    }

    fn forget_routes(&mut self, filter: TopicFilter<'_>) {
        if filter.has_wildcard() {
            self.epoch += 1;
            return;
        }
        let hash = self.hasher.hash_one(filter.as_str());
        if let Ok(entry) = self.routes.table.find_entry(hash, |route| &*route.topic == filter.as_str()) {
            let (route, _) = entry.remove();
            self.routes.targets -= route.size();
        }
    }
}
