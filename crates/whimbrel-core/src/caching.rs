//! The cache's division, and the policy that fills it without a subscriber. The partition of an
//! event is found in the same pass as its subscriptions.

use whimbrel_event::{AcceptedEvent, Time};
use whimbrel_selector::{Selector, TopicFilter};

use crate::cache::{Cache, Plan, all_content};
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
    /// Whether its filter is well-formed.
    pub(crate) fn is_valid(&self) -> bool {
        TopicFilter::new(&self.filter).is_ok()
    }

    /// Whether it includes everything that a subscription can match.
    fn covers(&self, wanted: TopicFilter<'_>, selector: Option<&Selector>) -> bool {
        all_content(self.selector.as_ref(), selector) && filter(&self.filter).covers(wanted)
    }
}

impl Division {
    /// Divides the cache anew, as [`crate::Broker::set_cache`].
    pub(crate) fn divide(&mut self, router: &mut Router, cache: &mut Cache, now: Time, plan: Plan) {
        for (number, (old, spot)) in cache.plan().partitions.iter().zip(self.spots.drain(..)).enumerate() {
            router.remove_partition(number as u32, filter(&old.filter), spot);
        }
        for (number, new) in plan.partitions.iter().enumerate() {
            let spot = router.insert_partition(number as u32, filter(&new.filter), new.selector.as_ref());
            self.spots.push(spot);
        }
        let rest = plan.partitions.len();
        cache.reconfigure(plan, now, |event| deal(router, event.unpack()).unwrap_or(rest));
        self.number += 1;
    }
}

/// Whether everything that a subscription can match comes here from other brokers for one of these
/// interests, even without a subscriber.
pub(crate) fn is_buffered(buffer: &[CacheInterest], wanted: TopicFilter<'_>, selector: Option<&Selector>) -> bool {
    buffer.iter().any(|interest| interest.covers(wanted, selector))
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
    let selected =
        groups.and_then(|groups| router.select(&groups, &Content(&event)).iter().filter_map(partition).min());
    plain.into_iter().chain(selected).min()
}
