//! All profiles of a broker, and an index that finds the one of a topic.
//!
//! The profiles of the configuration come first, in their order. Those that were made at a running
//! broker follow, by rank and then by filter.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Domains, EventId};
use whimbrel_selector::{FilterIndex, TopicFilter, TopicName};

use super::profile::{Persistence, Profile, TopicSettings};
use super::punctuality::{LateArrivals, LateCause, Punctuality, TopicDeliveries};

/// Most profiles of the configuration, and most that are made at running brokers.
pub const PROFILES_MAX: usize = 16_384;

/// The order of profiles: of those that match a topic the least counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ProfileOrder {
    /// One of the configuration, by its place there.
    Configured(usize),
    /// One that was made, by its rank and filter.
    Made(u32, Box<str>),
}

/// A profile that was made at a running broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankedProfile {
    /// Of the profiles that match a topic the one with the least rank counts, of several such the
    /// one with the least filter.
    pub rank: u32,
    /// The profile.
    pub profile: Profile,
}

/// A profile as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedProfile {
    /// Its rank, if it was made at a running broker.
    pub rank: Option<u32>,
    /// The profile.
    pub profile: Profile,
    /// Whether deliveries of its topics were in time, since it is in effect at this broker.
    pub punctuality: Punctuality,
}

/// A period in which a subscription expects an event of a profile's topics.
#[derive(Debug)]
pub(crate) struct TopicPeriod {
    /// The profile's place, as [`TopicSettings::period_of`].
    pub(crate) profile: u32,
    /// The narrower of the subscription's filter and the profile's.
    pub(crate) filter: Box<str>,
    /// The longest time without an event that is accepted.
    pub(crate) period: Duration,
}

#[derive(Debug)]
struct IndexedProfile {
    order: ProfileOrder,
    profile: Profile,
    punctuality: Punctuality,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Profiles {
    slots: Vec<Option<IndexedProfile>>,
    free: Vec<u32>,
    by_order: BTreeMap<ProfileOrder, u32>,
    index: FilterIndex<u32>,
    /// The rank of each profile that was made, by its filter.
    made: BTreeMap<Box<str>, u32>,
    /// The number of profiles whose events are never logged.
    volatile: usize,
    /// The number of profiles with a period.
    with_period: usize,
    /// The number of profiles with a deadline.
    with_deadline: usize,
    /// The number of profiles with domains.
    with_domains: usize,
    late_arrivals: LateArrivals,
}

impl Profiles {
    /// No profiles. `seed` keys the index.
    pub(crate) fn new(seed: u64) -> Self {
        Profiles {
            slots: Vec::new(),
            free: Vec::new(),
            by_order: BTreeMap::new(),
            index: FilterIndex::new(seed),
            made: BTreeMap::new(),
            volatile: 0,
            with_period: 0,
            with_deadline: 0,
            with_domains: 0,
            late_arrivals: LateArrivals::default(),
        }
    }

    /// Replaces the profiles of the configuration.
    ///
    /// # Panics
    /// When a filter is not valid: the reader of the configuration checks them.
    pub(crate) fn configure(&mut self, profiles: Vec<Profile>) {
        let is_configured = |order: &&ProfileOrder| matches!(order, ProfileOrder::Configured(_));
        let known: Vec<ProfileOrder> = self.by_order.keys().filter(is_configured).cloned().collect();
        known.iter().for_each(|order| self.remove(order));
        for (place, profile) in profiles.into_iter().enumerate() {
            self.insert(ProfileOrder::Configured(place), profile);
        }
    }

    /// Adds a profile that was made, in place of one with the same filter.
    ///
    /// # Panics
    /// When its filter is not valid: callers have checked it.
    pub(crate) fn make(&mut self, made: RankedProfile) {
        let RankedProfile { rank, profile } = made;
        self.unmake(&profile.filter);
        self.made.insert(profile.filter.clone(), rank);
        self.insert(ProfileOrder::Made(rank, profile.filter.clone()), profile);
    }

    /// Removes a profile that was made; false if there is none with that filter.
    pub(crate) fn unmake(&mut self, filter: &str) -> bool {
        let Some(rank) = self.made.remove(filter) else { return false };
        self.remove(&ProfileOrder::Made(rank, filter.into()));
        true
    }

    fn insert(&mut self, order: ProfileOrder, profile: Profile) {
        let filter = TopicFilter::new(&profile.filter).expect("the filter of a profile has been checked");
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.index.insert(filter, slot);
        self.count(&profile, 1);
        self.by_order.insert(order.clone(), slot);
        let indexed = Some(IndexedProfile { order, profile, punctuality: Punctuality::default() });
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = indexed,
            None => self.slots.push(indexed),
        }
    }

    fn remove(&mut self, order: &ProfileOrder) {
        let Some(slot) = self.by_order.remove(order) else { return };
        let gone = self.slots[slot as usize].take().expect("an ordered profile is in its slot");
        self.index.remove(TopicFilter::checked(&gone.profile.filter), slot);
        self.count(&gone.profile, -1);
        self.free.push(slot);
    }

    /// Counts a profile that comes (1) or goes (-1).
    fn count(&mut self, profile: &Profile, step: isize) {
        let counts = [
            (&mut self.volatile, profile.persistence == Persistence::Volatile),
            (&mut self.with_period, profile.period.is_some()),
            (&mut self.with_deadline, profile.deadline.is_some()),
            (&mut self.with_domains, !profile.domains.is_empty()),
        ];
        for (count, _) in counts.into_iter().filter(|(_, counts)| *counts) {
            *count = count.checked_add_signed(step).expect("each profile that goes has come");
        }
    }

    /// A profile that was made, by its filter.
    pub(crate) fn made(&self, filter: &str) -> Option<RankedProfile> {
        let rank = *self.made.get(filter)?;
        let slot = self.by_order[&ProfileOrder::Made(rank, filter.into())];
        Some(RankedProfile { rank, profile: self.at(slot).profile.clone() })
    }

    /// All profiles in the order in which they count, those that were made with their ranks.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (Option<u32>, &Profile, &Punctuality)> {
        self.by_order.iter().map(|(order, slot)| {
            let IndexedProfile { profile, punctuality, .. } = self.at(*slot);
            match order {
                ProfileOrder::Made(rank, _) => (Some(*rank), profile, punctuality),
                ProfileOrder::Configured(_) => (None, profile, punctuality),
            }
        })
    }

    /// The number of all profiles.
    pub(crate) fn len(&self) -> usize {
        self.by_order.len()
    }

    /// Records an event that was late when it arrived from another broker.
    pub(crate) fn record_late_arrival(&mut self, id: EventId, cause: LateCause) {
        self.late_arrivals.record(id, cause);
    }

    /// Counts deliveries of a topic for its profile, if it has one. Costs a walk of the index.
    pub(crate) fn record_deliveries(&mut self, deliveries: &TopicDeliveries) {
        let Some(slot) = TopicName::new(&deliveries.topic).ok().and_then(|topic| self.first_of(topic)) else { return };
        let mut counted = deliveries.punctuality;
        for (id, count) in &deliveries.late {
            counted.late[self.late_arrivals.cause_of(*id) as usize] += count;
        }
        self.slots[slot as usize].as_mut().expect("a slot in use").punctuality.add(&counted);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_order.is_empty()
    }

    /// The number of profiles that were made.
    pub(crate) fn made_len(&self) -> usize {
        self.made.len()
    }

    fn at(&self, slot: u32) -> &IndexedProfile {
        self.slots[slot as usize].as_ref().expect("a slot in use")
    }

    /// The settings of a topic. Costs a walk of the index; routes keep them.
    pub(crate) fn of(&self, topic: TopicName<'_>) -> TopicSettings {
        let of = |slot| {
            let profile = &self.at(slot).profile;
            let mut settings = TopicSettings::from(profile);
            settings.period_of = profile.period.map(|_| slot);
            settings.domains_of = Some(slot).filter(|_| !profile.domains.is_empty());
            settings
        };
        self.first_of(topic).map(of).unwrap_or_default()
    }

    /// The periods in which events of topics under a filter are expected, in the order in which
    /// profiles count. Costs a look at each profile if some profile has a period.
    pub(crate) fn periods_of(&self, filter: TopicFilter<'_>) -> impl Iterator<Item = TopicPeriod> {
        self.that_may_count(filter, self.with_period > 0).filter_map(move |slot| {
            let profile = &self.at(slot).profile;
            let of_profile = TopicFilter::checked(&profile.filter);
            let narrower = if of_profile.covers(filter) { filter } else { of_profile };
            Some(TopicPeriod { profile: slot, filter: narrower.as_str().into(), period: profile.period? })
        })
    }

    /// The least deadline of all profiles. Costs as much as [`Profiles::least_deadline`].
    pub(crate) fn least_of_all(&self) -> Option<Duration> {
        self.least_deadline(TopicFilter::checked("#"))
    }

    /// The least deadline that some topics under a filter may have. Costs a look at each profile if
    /// some profile has a deadline.
    pub(crate) fn least_deadline(&self, filter: TopicFilter<'_>) -> Option<Duration> {
        self.that_may_count(filter, self.with_deadline > 0).filter_map(|slot| self.at(slot).profile.deadline).min()
    }

    /// The domains that may carry the events of some topics under a filter, once for each profile
    /// that has some. Costs a look at each profile if some profile has domains.
    pub(crate) fn domains_of(&self, filter: TopicFilter<'_>) -> impl Iterator<Item = &Domains> {
        let open = self.that_may_count(filter, self.with_domains > 0);
        open.map(|slot| &self.at(slot).profile.domains).filter(|domains| !domains.is_empty())
    }

    /// The domains that may carry the events of a topic; `None`: any broker may. Costs a walk of
    /// the index if some profile has domains.
    pub(crate) fn domains_for(&self, topic: TopicName<'_>) -> Option<&Domains> {
        let first = if self.with_domains > 0 { self.first_of(topic) } else { None };
        first.map(|slot| self.domains_at(slot)).filter(|domains| !domains.is_empty())
    }

    /// The domains of the profile at a place, see [`TopicSettings::domains_of`].
    pub(crate) fn domains_at(&self, slot: u32) -> &Domains {
        &self.at(slot).profile.domains
    }

    /// The places of the profiles that may count for some topics under a filter, in their order: up
    /// to the first one that covers it. None unless `any`.
    fn that_may_count(&self, filter: TopicFilter<'_>, any: bool) -> impl Iterator<Item = u32> {
        let mut is_covered = !any;
        let of_profile = |slot: u32| TopicFilter::checked(&self.at(slot).profile.filter);
        let from_first = self.by_order.values().copied();
        let open = from_first.take_while(move |slot| {
            let was_covered = is_covered;
            is_covered |= of_profile(*slot).covers(filter);
            !was_covered
        });
        open.filter(move |slot| of_profile(*slot).intersects(filter))
    }

    /// The slot of the profile that counts for a topic.
    fn first_of(&self, topic: TopicName<'_>) -> Option<u32> {
        let mut first: Option<(&ProfileOrder, u32)> = None;
        self.index.for_each_match(topic, |slot| {
            let order = &self.at(slot).order;
            if first.is_none_or(|(least, _)| order < least) {
                first = Some((order, slot));
            }
        });
        first.map(|(_, slot)| slot)
    }

    /// Whether all topics under a filter are volatile, as far as a single profile tells. Costs a
    /// look at each profile if some profile is volatile.
    pub(crate) fn is_volatile(&self, filter: TopicFilter<'_>) -> bool {
        let touched = self.if_any_is_volatile().find_map(|profile| {
            let of_profile =
                TopicFilter::new(&profile.filter).ok().filter(|of_profile| of_profile.intersects(filter))?;
            Some(profile.persistence == Persistence::Volatile && of_profile.covers(filter))
        });
        touched.unwrap_or(false)
    }

    /// Whether some topics under a filter may be volatile. Costs as much as
    /// [`Profiles::is_volatile`].
    pub(crate) fn may_be_volatile(&self, filter: TopicFilter<'_>) -> bool {
        self.if_any_is_volatile().any(|profile| {
            profile.persistence == Persistence::Volatile
                && TopicFilter::new(&profile.filter).is_ok_and(|of_profile| of_profile.intersects(filter))
        })
    }

    /// All profiles in the order in which they count; none if no profile is volatile.
    fn if_any_is_volatile(&self) -> impl Iterator<Item = &Profile> {
        let few = if self.volatile == 0 { 0 } else { usize::MAX };
        self.by_order.values().take(few).map(|slot| &self.at(*slot).profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(filter: &str, importance: u8) -> Profile {
        Profile { filter: filter.into(), importance: Some(importance), ..Profile::default() }
    }

    fn made(rank: u32, filter: &str, importance: u8) -> RankedProfile {
        RankedProfile { rank, profile: profile(filter, importance) }
    }

    fn found(profiles: &Profiles, topic: &str) -> TopicSettings {
        profiles.of(TopicName::new(topic).expect("a topic"))
    }

    fn of(importance: u8) -> TopicSettings {
        TopicSettings::from(&profile("any", importance))
    }

    #[test]
    fn configured_ones_count_first_then_the_least_rank_then_the_least_filter() {
        let mut profiles = Profiles::new(1);
        profiles.make(made(7, "a/#", 1));
        profiles.make(made(3, "a/+/x", 2));
        profiles.make(made(3, "+/b/x", 3));
        assert_eq!(found(&profiles, "a/b/x"), of(3));
        assert_eq!(found(&profiles, "a/c/x"), of(2));
        assert_eq!(found(&profiles, "a"), of(1));
        assert_eq!(found(&profiles, "b"), TopicSettings::default());
        profiles.configure(vec![profile("a/b/#", 4), profile("a/b/x", 5)]);
        assert_eq!(found(&profiles, "a/b/x"), of(4));
        profiles.configure(vec![profile("a/b/x", 5)]);
        assert_eq!((found(&profiles, "a/b/x"), found(&profiles, "a/b")), (of(5), of(1)));
    }

    #[test]
    fn one_replaces_another_of_the_same_filter_and_is_gone_when_removed() {
        let mut profiles = Profiles::new(1);
        profiles.make(made(7, "a/#", 1));
        profiles.make(made(9, "a/#", 2));
        assert_eq!((profiles.made_len(), found(&profiles, "a/b")), (1, of(2)));
        assert_eq!(profiles.made("a/#"), Some(made(9, "a/#", 2)));
        assert!(profiles.unmake("a/#") && !profiles.unmake("a/#"));
        assert_eq!((profiles.in_order().count(), found(&profiles, "a/b")), (0, TopicSettings::default()));
    }

    #[test]
    fn a_filter_is_volatile_if_the_first_profile_that_it_meets_is_and_covers_it() {
        let volatile = |filter: &str| Profile { persistence: Persistence::Volatile, ..profile(filter, 1) };
        let mut profiles = Profiles::new(1);
        let filter = |text| TopicFilter::new(text).expect("a filter");
        assert!(!profiles.is_volatile(filter("a/b")) && !profiles.may_be_volatile(filter("#")));
        profiles.configure(vec![profile("a/b/c", 1), volatile("a/#")]);
        assert!(profiles.is_volatile(filter("a/x")) && !profiles.is_volatile(filter("a/+/c")));
        assert!(!profiles.is_volatile(filter("#")) && profiles.may_be_volatile(filter("#")));
        assert!(!profiles.may_be_volatile(filter("b/#")));
    }

    #[test]
    fn as_many_as_there_may_be_are_found_by_a_walk_of_the_levels() {
        let mut profiles = Profiles::new(1);
        for number in 0..PROFILES_MAX {
            profiles.make(made(number as u32, &format!("fleet/{number}/#"), (number % 10) as u8 + 1));
        }
        assert_eq!(found(&profiles, "fleet/12345/alarm"), of(6));
        assert_eq!(profiles.made_len(), PROFILES_MAX);
    }
}
