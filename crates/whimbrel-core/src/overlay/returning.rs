//! A subscription begins at a place that was named, or has come from another broker: until its own
//! interest is in force from here, what comes of other brokers' streams comes for others' sake.

use whimbrel_event::{PubendId, Tick};
use whimbrel_selector::TopicFilter;

use super::confirm::{RETURNED_MAX, Returned};
use crate::api::{Filter, Start};
use crate::broker::Broker;
use crate::cursor::InForce;
use crate::route::NO_CURSOR;

impl Broker {
    /// If a subscription names where it begins, what comes before its interest is in force is a
    /// gap, unless it comes here anyway: then it has come whichever version of the own interest is
    /// in force.
    pub(crate) fn await_interest(
        &mut self,
        asked: &Filter<'_>,
        filter: TopicFilter<'_>,
        (subscription, cursor): (u32, u32),
    ) {
        if !matches!(asked.following.start, Start::Own) {
            self.await_in_force(asked, filter, (subscription, cursor));
        }
    }

    /// The same of a subscription that there is. If it wants something `other` than before, it is
    /// as one that comes back, and so if it `begins` at a place before it is known since when its
    /// interest is in force.
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
        // Of brokers that are not there, what came since is asked for when they are; what their
        // logs have from before that is read then.
        let is_there = |pubend: PubendId| overlay.topology.get(pubend.host()).is_some();
        let waits = |pubend| is_there(pubend) || of_cursor.has_remote_log(pubend);
        let streams: Vec<(PubendId, Tick)> =
            self.streams.remote_positions().filter(|(pubend, _)| waits(*pubend)).collect();
        of_cursor.wait_for(streams.into_iter());
        self.await_unsettled(subscription, cursor);
    }

    /// A subscription waits for brokers until they say that they know of it; not for those that
    /// have ended.
    fn await_unsettled(&mut self, subscription: u32, cursor: u32) {
        self.settle_ended(cursor);
        if let Some(overlay) = self.overlay.as_deref_mut().filter(|_| !self.cursors.get(cursor).unsettled.is_empty()) {
            overlay.waiting.returned.push(Returned { subscription, cursor, version: None });
        }
    }

    /// A subscription has come from another broker: until its interest is in force from here, what
    /// comes of other brokers' streams comes for others' sake. What lies between where it stands
    /// and that is read in their logs.
    pub(crate) fn await_interest_of(&mut self, subscription: u32, cursor: u32) {
        let of_cursor = self.cursors.get_mut(cursor);
        if self.overlay.is_none() || of_cursor.catch_up.is_none() || !of_cursor.keeps {
            return;
        }
        of_cursor.wait_for(self.streams.remote_positions());
        self.await_unsettled(subscription, cursor);
    }
}
