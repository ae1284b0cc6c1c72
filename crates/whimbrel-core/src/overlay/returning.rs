//! Subscriptions with a start position, or that have moved here from another broker. Until their
//! own interest is in force, events of other brokers' streams arrive only for the sake of other
//! subscriptions.

use whimbrel_event::{PubendId, Tick};
use whimbrel_selector::TopicFilter;

use super::confirm::{RETURNED_MAX, Returned};
use crate::api::{Filter, Start};
use crate::broker::Broker;
use crate::cursor::InForce;
use crate::route::NO_CURSOR;

impl Broker {
    /// Waits for the interest of a new subscription with a start position: events from before it is
    /// in force are a gap. This is not so if they arrive here in any case, under each version of
    /// the own interest.
    pub(crate) fn await_interest(
        &mut self,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
        (subscription, cursor): (u32, u32),
    ) {
        if !matches!(asked.start, Start::Own) {
            self.await_in_force(asked, filter, (subscription, cursor));
        }
    }

    /// Does so for an existing subscription. With an `other` interest than before it is treated
    /// like one that returns; so it is if it `begins` at a given position and it is unknown since
    /// when its interest is in force.
    pub(crate) fn await_interest_again(
        &mut self,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
        (subscription, cursor): (u32, u32),
        (begins, other): (bool, bool),
    ) {
        if cursor == NO_CURSOR {
            return;
        }
        let in_force = &mut self.cursors.get_mut(cursor).began.in_force;
        if other {
            *in_force = InForce::Untold;
        }
        if begins && !matches!(in_force, InForce::After(_)) {
            self.await_in_force(asked, filter, (subscription, cursor));
        }
    }

    fn await_in_force(&mut self, asked: &Filter<'_>, filter: TopicFilter<'_>, (subscription, cursor): (u32, u32)) {
        if fault!(self, ReturnsWithoutGap) {
            return;
        }
        if self.is_buffered(filter, asked.selector) {
            return;
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if cursor == NO_CURSOR || overlay.waiting.returned.len() >= RETURNED_MAX {
            return;
        }
        let of_cursor = self.cursors.get_mut(cursor);
        of_cursor.began.in_force = InForce::Untold;
        if !of_cursor.unsettled.is_empty() {
            overlay.waiting.forget(cursor);
        }
        // For brokers that are not known, later events are asked for when they are; earlier ones
        // are then read from their logs.
        let is_there = |pubend: PubendId| overlay.net.topology.get(pubend.host()).is_some();
        let waits = |pubend| is_there(pubend) || of_cursor.has_remote_log(pubend);
        let streams: Vec<(PubendId, Tick)> =
            self.streams.remote_positions().filter(|(pubend, _)| waits(*pubend)).collect();
        of_cursor.wait_for(streams.into_iter());
        self.await_unsettled(subscription, cursor);
    }

    /// Lets a subscription wait for brokers until they confirm its interest; not for those that
    /// have ended.
    fn await_unsettled(&mut self, subscription: u32, cursor: u32) {
        self.settle_ended(cursor);
        if let Some(overlay) = self.overlay.as_deref_mut().filter(|_| !self.cursors.get(cursor).unsettled.is_empty()) {
            overlay.waiting.returned.push(Returned { subscription, cursor, version: None });
        }
    }

    /// Waits for the interest of a subscription that has moved here. The events between its
    /// position and the start of the interest are read from the other brokers' logs.
    pub(crate) fn await_interest_of(&mut self, subscription: u32, cursor: u32) {
        let of_cursor = self.cursors.get_mut(cursor);
        if self.overlay.is_none() || of_cursor.catch_up.is_none() || !of_cursor.keeps {
            return;
        }
        of_cursor.wait_for(self.streams.remote_positions());
        self.await_unsettled(subscription, cursor);
    }
}
