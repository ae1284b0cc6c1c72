//! Two states of a session are merged: its client was at both brokers while these could not reach
//! each other. Acknowledgements at either count.

use super::carried::CarriedPosition;
use crate::broker::Broker;
use crate::route::NO_CURSOR;

/// Positions of a session's subscriptions, by topic filter.
pub(crate) type CarriedPositions = Vec<(Box<str>, CarriedPosition)>;

impl Broker {
    /// The positions of a session's durable subscriptions.
    pub(crate) fn positions_of(&self, index: u32) -> CarriedPositions {
        let known = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id));
        let durable = known.filter(|known| known.cursor != NO_CURSOR && self.cursors.durable(known.cursor).is_some());
        durable.map(|known| (known.text.clone(), self.told_position(index, known.cursor))).collect()
    }

    /// A position, before each gap whose notice is not acknowledged: notices do not go along, so
    /// these gaps are told again.
    fn told_position(&self, index: u32, cursor: u32) -> CarriedPosition {
        let mut position = self.carried_position(index, cursor);
        for gap in self.sessions.get(index).inflight.unanswered_gaps(cursor) {
            let of_gap = position.streams.iter_mut().filter(|(pubend, ..)| *pubend == gap.pubend);
            of_gap.for_each(|(_, _, acked)| *acked = (*acked).min(gap.from));
        }
        position
    }

    /// Sets an imported session's positions to the farther of its own and of those that it had
    /// here.
    pub(crate) fn merge_positions(&mut self, index: u32, stood: &CarriedPositions) {
        for (text, position) in stood {
            let Some(cursor) = self.router.cursor_of(index, text) else { continue };
            if self.cursors.durable(cursor).is_some() && !self.cursors.get(cursor).by_token {
                self.merge_position(cursor, position);
                self.write_position(cursor);
            }
        }
    }

    fn merge_position(&mut self, cursor: u32, position: &CarriedPosition) {
        let streams = &self.streams;
        let began = streams.own.positions();
        let of_cursor = self.cursors.get_mut(cursor);
        let mut catch_up = of_cursor.catch_up.take().expect("whose client is not there lags");
        for (pubend, since, acked) in &position.streams {
            let own = streams.own_reliable(*pubend);
            let acked = own.map_or(*acked, |own| (*acked).min(began[own]));
            catch_up.positions.advance(*pubend, acked);
            catch_up.gaps.passed(*pubend, acked);
            of_cursor.record_read(*pubend, acked);
            of_cursor.mark(*pubend, acked);
            let durable = of_cursor.durable.as_deref_mut().expect("it is durable");
            match (own, since) {
                (Some(own), Some(since)) => durable.start[own] = durable.start[own].min(*since),
                (None, Some(since)) if durable.remote.since.has(*pubend) => {
                    let known = durable.remote.since.get(*pubend);
                    durable.remote.since.set(*pubend, known.min(*since));
                }
                _ => {}
            }
        }
        let durable = of_cursor.durable.as_deref_mut().expect("it is durable");
        let news = position.beyond.iter().filter(|id| !durable.rare.beyond.contains(id)).copied();
        let news: Vec<_> = news.collect();
        durable.rare.beyond.extend(news.iter().copied());
        news.into_iter().for_each(|id| of_cursor.mark(id.pubend, id.tick));
        catch_up.next = self.first_after(&catch_up.positions);
        self.cursors.get_mut(cursor).catch_up = Some(catch_up);
        self.cursors.touch(cursor);
    }
}
