//! The cache's division. The partition of an event is found in the same pass as its subscriptions.

use whimbrel_event::{AcceptedEvent, Time};
use whimbrel_selector::{Selector, TopicFilter};

use crate::broker::Broker;
use crate::cache::{PartitionGauges, Plan, all_content};
use crate::content::Content;
use crate::route::{IndexSpot, Router, Target, TargetKind};

/// An interest of the broker itself in other brokers' events, so that these are in the cache when a
/// subscriber returns.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheInterest {
    /// Topics, as a well-formed [`TopicFilter`].
    pub filter: Box<str>,
    /// Which of their events; `None`: all.
    pub selector: Option<Selector>,
}

/// The current division of the cache.
#[derive(Debug, Default)]
pub(crate) struct Division {
    /// The spots of its partitions in the router's index.
    spots: Vec<IndexSpot>,
    /// Grows each time the cache is divided anew.
    pub(crate) number: u64,
}

impl CacheInterest {
    /// Whether it includes everything that a subscription can match.
    fn covers(&self, wanted: TopicFilter<'_>, selector: Option<&Selector>) -> bool {
        all_content(self.selector.as_ref(), selector) && filter(&self.filter).covers(wanted)
    }
}

impl Broker {
    /// Sets the buffer subscription policy: what the broker asks other brokers for, with or without
    /// a subscriber.
    ///
    /// # Panics
    /// When a filter is invalid; configuration checks that.
    pub fn set_buffer(&mut self, interests: Vec<CacheInterest>) {
        assert!(
            interests.iter().all(|one| TopicFilter::new(&one.filter).is_ok()),
            "the filters of a policy are checked"
        );
        self.router.record_buffer(&self.buffer, &interests);
        self.buffer = interests;
        self.collect_own_interest(self.now);
    }

    /// The buffer subscription policy.
    pub fn buffer(&self) -> &[CacheInterest] {
        &self.buffer
    }

    /// Whether everything that a subscription can match comes here from other brokers, even without
    /// a subscriber.
    pub(crate) fn is_buffered(&self, filter: TopicFilter<'_>, selector: Option<&Selector>) -> bool {
        self.buffer.iter().any(|interest| interest.covers(filter, selector))
    }

    /// Divides the cache anew. Its events stay as far as there is room, and what is missing stays
    /// known. Costs a look at every cached event.
    ///
    /// # Panics
    /// When a filter of the plan is invalid, or it has more than [`crate::cache::PARTITIONS_MAX`]
    /// partitions: configuration checks both.
    pub fn set_cache(&mut self, now: Time, plan: Plan) {
        let Broker { router, cache, division, .. } = self;
        for (number, (old, spot)) in cache.plan().partitions.iter().zip(division.spots.drain(..)).enumerate() {
            router.remove_partition(number as u32, filter(&old.filter), spot);
        }
        for (number, new) in plan.partitions.iter().enumerate() {
            let spot = router.insert_partition(number as u32, filter(&new.filter), new.selector.as_ref());
            division.spots.push(spot);
        }
        let rest = plan.partitions.len();
        cache.reconfigure(plan, now, |event| deal(router, event.unpack()).unwrap_or(rest));
        self.division.number += 1;
    }

    /// The current division of the cache.
    pub fn cache_plan(&self) -> &Plan {
        self.cache.plan()
    }

    /// Contents and counters of each partition of the cache, in the order of its plan, the default
    /// one last.
    pub fn cache_gauges(&self) -> Vec<PartitionGauges> {
        self.cache.gauges().collect()
    }
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::new(text).expect("the filters of a plan are checked")
}

/// The first partition whose filter and selector match an event, if one does.
fn deal(router: &mut Router, event: AcceptedEvent<'_>) -> Option<usize> {
    let route = router.route(event.event.topic).expect("the topic of an accepted event is checked");
    let wanted = router.wanted(route);
    let partition = |target: &Target| (target.kind == TargetKind::Partition).then_some(target.to as usize);
    let plain = wanted.targets.iter().filter_map(partition).min();
    let groups = wanted.groups.cloned();
    let selected = groups.and_then(|groups| router.select(&groups, &Content(event)).iter().filter_map(partition).min());
    plain.into_iter().chain(selected).min()
}
