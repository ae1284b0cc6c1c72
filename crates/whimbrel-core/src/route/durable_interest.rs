//! Durable interests: what is logged for subscriptions that are not confirmed yet, have ended, or
//! are at other brokers.

use whimbrel_selector::{Selector, TopicFilter};

use super::target::INTEREST_BIT;
use super::{DurableInterest, Router};
use crate::store::DurableNo;

impl Router {
    /// Has matching events logged from now on, without delivery, until [`Router::remove_interest`].
    /// The owner is named `by` its number and, if the subscription existed before, its cursor; one
    /// that is ending needs no name.
    pub(crate) fn insert_interest(
        &mut self,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
        by: Option<(DurableNo, u32)>,
    ) -> DurableInterest {
        let number = self.free_interests.pop().unwrap_or_else(|| {
            self.interests.push(None);
            self.interests.len() as u32 - 1
        });
        assert!(number < INTEREST_BIT, "2^29 waiting subscriptions do not fit any memory");
        self.interests[number as usize] = by;
        DurableInterest { number, spot: self.put(filter, selector, number | INTEREST_BIT) }
    }

    pub(crate) fn remove_interest(&mut self, filter: TopicFilter<'_>, interest: DurableInterest) {
        self.take(filter, interest.spot, interest.number | INTEREST_BIT);
        self.free_interests.push(interest.number);
    }

    /// The owner of a durable interest, unless it is ending.
    pub(crate) fn interest_owner(&self, interest: u32) -> Option<(DurableNo, u32)> {
        self.interests[interest as usize]
    }
}
