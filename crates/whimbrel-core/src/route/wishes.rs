//! What is to be logged for subscriptions that are not there yet, or not any more, or at other brokers.

use whimbrel_selector::{Selector, TopicFilter};

use super::target::WISH_BIT;
use super::{Router, Wish};
use crate::store::DurableNo;

impl Router {
    /// What matches is logged from now on, although nobody gets it, until [`Router::remove_wish`].
    /// Whoever has it is named `by` its number and, if it is a subscription that was there before, its track; one that is ending needs no name.
    pub(crate) fn insert_wish(
        &mut self,
        filter: TopicFilter<'_>,
        selector: Option<&Selector>,
        by: Option<(DurableNo, u32)>,
    ) -> Wish {
        let number = self.free_wishes.pop().unwrap_or_else(|| {
            self.wishes.push(None);
            self.wishes.len() as u32 - 1
        });
        assert!(number < WISH_BIT, "2^29 waiting subscriptions do not fit any memory");
        self.wishes[number as usize] = by;
        Wish { number, spot: self.put(filter, selector, number | WISH_BIT) }
    }

    pub(crate) fn remove_wish(&mut self, filter: TopicFilter<'_>, wish: Wish) {
        self.take(filter, wish.spot, wish.number | WISH_BIT);
        self.free_wishes.push(wish.number);
    }

    /// Who has a wish, unless it is ending.
    pub(crate) fn wisher(&self, wish: u32) -> Option<(DurableNo, u32)> {
        self.wishes[wish as usize]
    }
}
