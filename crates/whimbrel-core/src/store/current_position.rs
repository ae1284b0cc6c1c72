//! Positions of durable subscriptions: they are computed, not kept.

use whimbrel_event::{EventId, Tick};

use super::written::RestoredPosition;
use super::{DurablePosition, RemotePosition};
use crate::broker::Broker;
use crate::cursor::{Cursor, Durable, Gap, GapReason, NO_PUBEND, NOTHING, Positions};

impl Broker {
    /// Up to where a durable subscription has acknowledged everything, and events beyond.
    pub(crate) fn durable_position(&self, id: u32) -> DurablePosition {
        self.position_with(id, false)
    }

    /// The position as it is written. Notices in flight die with this broker. So a gap counts as
    /// told only once its notice is acknowledged: otherwise it would lie before the position, and
    /// never be told.
    pub(super) fn written_position(&self, id: u32) -> DurablePosition {
        self.position_with(id, true)
    }

    fn position_with(&self, id: u32, with_notices: bool) -> DurablePosition {
        let cursor = self.cursors.get(id);
        let durable = cursor.durable.as_deref().expect("a durable subscription");
        if cursor.by_token {
            return self.position_by_token(cursor, durable);
        }
        let untold = cursor.catch_up.as_ref().map(|catch_up| catch_up.untold());
        let mut durable_position =
            DurablePosition { acked: self.streams.logged().positions(), ..DurablePosition::default() };
        durable_position.remote.extend(durable.remote.since.iter().map(|(pubend, since)| {
            let acked = match &untold {
                Some(untold) => untold.get(pubend),
                None => self.streams.passed(pubend).max(cursor.ahead.get(pubend)),
            };
            RemotePosition { pubend, since, acked }
        }));
        let reach = |durable_position: &mut DurablePosition, pubend, tick: Tick| match self.streams.own_reliable(pubend)
        {
            Some(own) => durable_position.acked[own] = durable_position.acked[own].min(tick),
            None => durable_position.step_back(pubend, tick),
        };
        let untold = untold.as_ref().map_or(const { &Positions::new() }, |untold| untold);
        untold.iter().for_each(|(pubend, tick)| reach(&mut durable_position, pubend, tick));
        let detached = durable.remote.detached.iter();
        cursor.unsettled.iter().chain(detached).for_each(|(pubend, tick)| reach(&mut durable_position, pubend, tick));
        let session = self.sessions.get(cursor.session);
        let waiting = session.follow.queue.iter().filter(|entry| entry.cursor == id).map(|entry| entry.event.id());
        let flying = session.inflight.of_cursor(id);
        let open = waiting.chain(flying.clone().filter(|(_, is_settled)| !is_settled).map(|(id, _)| id));
        // Notices are in no stream.
        for id in open.filter(|id| id.pubend != NO_PUBEND) {
            reach(&mut durable_position, id.pubend, Tick(id.tick.0 - 1));
        }
        // Before events beyond are added: those acknowledged behind such a gap do not come again.
        let unanswered = session.inflight.unanswered_gaps(id).filter(|_| with_notices);
        unanswered.for_each(|gap| reach(&mut durable_position, gap.pubend, gap.from));
        let settled = flying.filter(|(_, is_settled)| *is_settled).map(|(id, _)| id);
        for id in durable.rare.beyond.iter().copied().chain(settled) {
            self.add_beyond(&mut durable_position, id);
        }
        durable_position.beyond.sort_unstable();
        durable_position.beyond.dedup();
        durable_position.remote_beyond.sort_unstable();
        durable_position.remote_beyond.dedup();
        durable_position
    }

    fn position_by_token(&self, cursor: &Cursor, durable: &Durable) -> DurablePosition {
        let host = self.streams.logged().host();
        let passed = self.streams.logged().positions();
        let acked = |own: usize| cursor.acknowledged.get(host.pubend(own as u8)).min(passed[own]);
        let remote = durable.remote.since.iter().map(|(pubend, since)| {
            let acked = cursor.acknowledged.get(pubend);
            RemotePosition { pubend, since, acked }
        });
        DurablePosition { acked: core::array::from_fn(acked), remote: remote.collect(), ..DurablePosition::default() }
    }

    /// Restores a durable subscription's position in a stream of another broker; it reads that log
    /// from there. Which events it wants there is unknown.
    pub(super) fn restore_remote(&mut self, id: u32, remote: &RemotePosition) {
        let RemotePosition { pubend, since, acked } = *remote;
        let ended = self.streams.ended_at(pubend.host());
        let cursor = self.cursors.get_mut(id);
        let catch_up = cursor.catch_up.as_mut().expect("who is not there lags");
        if let Some(to) = ended {
            catch_up.gaps.add(Gap { pubend, from: acked, to, reason: GapReason::Lost });
            if acked < to && !cursor.by_token {
                // The position stays there until the gap is told: otherwise another restart before
                // that would forget the gap, and so would an importing broker. A stream without a
                // position is where its gap begins; and streams that have ended are not held.
                let durable = cursor.durable.as_deref_mut().expect("a durable subscription");
                durable.remote.since.set(pubend, since);
            }
            return;
        }
        catch_up.positions.set(pubend, acked);
        if cursor.by_token {
            cursor.acknowledged.set(pubend, acked);
        }
        let durable = cursor.durable.as_deref_mut().expect("a durable subscription");
        durable.remote.since.set(pubend, since);
        durable.remote.newest.set(pubend, NOTHING);
    }

    /// Restores the positions in all other brokers' streams, as written.
    pub(super) fn restore_written(&mut self, id: u32, position: RestoredPosition) {
        let RestoredPosition { durable: durable_position, written, digest } = position;
        durable_position.remote.iter().for_each(|remote| self.restore_remote(id, remote));
        self.store.bases.refer(written.base);
        let base = self.store.bases.common(written.base).cloned();
        let (cursor, common) = self.cursors.get_with_common(id);
        let durable = cursor.durable.as_deref_mut().expect("a durable subscription");
        durable.written = digest;
        if let Some((base, catch_up)) = base.as_ref().zip(cursor.catch_up.as_deref_mut()) {
            catch_up.positions.share(base, None);
        }
        if !durable_position.remote.is_empty() {
            durable.remote.written = written;
            // A former selector counts up to there: earlier events are not matched with the present
            // one.
            let upto: Vec<_> = durable.rare.old.iter().flat_map(|old| old.remote.iter()).collect();
            upto.into_iter().for_each(|(pubend, tick)| durable.remote.written.mark(pubend, tick));
            if durable.rare.old.is_empty() {
                // The logs of hosts that have ended are not read.
                let is_left = |stood: &&RemotePosition| durable.remote.since.has(stood.pubend);
                let left: Vec<RemotePosition> = durable_position.remote.iter().filter(is_left).copied().collect();
                common.align_since(&mut durable.remote, &left);
            }
        }
        self.share_positions(id);
    }

    /// A whole position was set: what other cursors have in common with it is stored once.
    pub(super) fn share_positions(&mut self, id: u32) {
        let (cursor, common) = self.cursors.get_with_common(id);
        common.share(cursor);
    }

    /// Adds an acknowledged event, if it lies beyond the position.
    fn add_beyond(&self, durable_position: &mut DurablePosition, id: EventId) {
        match self.streams.own_reliable(id.pubend) {
            Some(own) if durable_position.acked[own] < id.tick => durable_position.beyond.push((own as u8, id.tick)),
            None if durable_position.remote(id.pubend).is_some_and(|acked| acked < id.tick) => {
                durable_position.remote_beyond.push(id)
            }
            _ => {}
        }
    }
}
