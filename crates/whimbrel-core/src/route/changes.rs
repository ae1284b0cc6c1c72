//! Changes of subscriptions, for the interest that other brokers are told.

use whimbrel_net::interest::own::AddedInterest;
use whimbrel_net::interest::own::InterestChange;
use whimbrel_selector::{Selector, SharedFilter, TopicFilter};

use super::Router;
use super::target::{GROUP_BIT, IndexSpot, MARKS, PARTITION_BIT};
use crate::caching::CacheInterest;
use crate::store::DurableNo;
use crate::subscription::{SubscriptionSpec, remembered};

/// Marks former selectors' interests of durable subscriptions, by their numbers, in the changes.
const OLD: u64 = 1 << 32;

impl Router {
    /// Has [`Router::take_changes`] tell the subscriptions that begin and end from now on,
    /// beginning with those that exist: all in the index, the shared ones among them (`groups`).
    pub(crate) fn watch<'a>(&mut self, groups: impl Iterator<Item = (u32, &'a str, IndexSpot)>) {
        let told = |key: u32, text: &str, spot: IndexSpot, spec: Option<&SubscriptionSpec>| {
            let filter = SharedFilter::checked(text).filter.as_str().into();
            let selector = self.index.selector_text(spot.place).map(remembered);
            let durable = spec.is_some_and(SubscriptionSpec::is_durable);
            let replier = spec.is_some_and(|spec| spec.is_replier);
            InterestChange::Added(u64::from(key), AddedInterest { filter, selector, durable, replier })
        };
        let all = (0..).zip(&self.subscriptions);
        let indexed = all.filter_map(|(id, known)| known.as_ref().and_then(|known| Some((id, known, known.spot?))));
        let mut changes: Vec<_> =
            indexed.map(|(id, known, spot)| told(id, &known.text, spot, Some(&known.spec))).collect();
        changes.extend(groups.map(|(id, text, spot)| told(id | GROUP_BIT, text, spot, None)));
        self.changes = Some(changes);
    }

    /// Whether subscriptions that begin and end are told: other brokers are to know of them.
    pub(crate) fn is_watched(&self) -> bool {
        self.changes.is_some()
    }

    /// Keeps the interest under a durable subscription's former selector, until it has got the
    /// events of that.
    pub(crate) fn keep_old_interest(&mut self, number: DurableNo, text: &str, selector: Option<&str>) {
        let Some(changes) = &mut self.changes else { return };
        let filter = SharedFilter::checked(text).filter.as_str().into();
        let selector = selector.map(remembered);
        let wanted = AddedInterest { filter, selector, durable: true, replier: false };
        changes.push(InterestChange::Added(OLD | u64::from(number.0), wanted));
    }

    /// Drops the oldest such interest: the subscription has got its events.
    pub(crate) fn drop_old_interest(&mut self, number: DurableNo, text: &str) {
        let Some(changes) = &mut self.changes else { return };
        let filter = SharedFilter::checked(text).filter.as_str().into();
        changes.push(InterestChange::Removed(OLD | u64::from(number.0), filter));
    }

    /// Whether subscriptions began or ended since [`Router::take_changes`].
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.is_empty())
    }

    /// The subscriptions that began and ended.
    pub(crate) fn take_changes(&mut self) -> Vec<InterestChange> {
        self.changes.as_mut().map_or(Vec::new(), core::mem::take)
    }

    /// Tells a new buffer subscription policy to other brokers, as if it were subscriptions.
    pub(crate) fn record_buffer(&mut self, old: &[CacheInterest], new: &[CacheInterest]) {
        let Some(changes) = &mut self.changes else { return };
        for (number, gone) in (0..).zip(old) {
            changes.push(InterestChange::Removed(u64::from(number | PARTITION_BIT), gone.filter.clone()));
        }
        for (number, wanted) in (0..).zip(new) {
            let (filter, selector) = (wanted.filter.clone(), wanted.selector.clone());
            let wanted = AddedInterest { filter, selector, durable: false, replier: false };
            changes.push(InterestChange::Added(u64::from(number | PARTITION_BIT), wanted));
        }
    }

    /// Records the change of a key, if other brokers are told of it.
    pub(super) fn record_change(
        &mut self,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
        key: u32,
        is_added: bool,
    ) {
        if key & !GROUP_BIT & MARKS != 0 {
            return;
        }
        let spec = self.subscriptions.get(key as usize).and_then(Option::as_ref).map(|known| &known.spec);
        let (durable, replier) = spec.map_or((false, false), |spec| (spec.is_durable(), spec.is_replier));
        let Some(changes) = &mut self.changes else { return };
        let text = filter.as_str().into();
        changes.push(if is_added {
            let selector = selector.cloned();
            InterestChange::Added(u64::from(key), AddedInterest { filter: text, selector, durable, replier })
        } else {
            InterestChange::Removed(u64::from(key), text)
        });
    }
}
