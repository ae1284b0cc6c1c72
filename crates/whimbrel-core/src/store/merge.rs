//! Two states of one session meet: each client was at both brokers while these could not reach each other. What it has acknowledged at either counts.

use super::carried::CarriedStand;
use crate::broker::Broker;
use crate::route::NO_CURSOR;

/// Where the subscriptions of a session stood, by topic filter.
pub(crate) type Stands = Vec<(Box<str>, CarriedStand)>;

impl Broker {
    /// Where the durable subscriptions of a session stand.
    pub(crate) fn stands_of(&self, index: u32) -> Stands {
        let known = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id));
        let durable = known.filter(|known| known.cursor != NO_CURSOR && self.cursors.durable(known.cursor).is_some());
        durable.map(|known| (known.text.clone(), self.told_stand(index, known.cursor))).collect()
    }

    /// Where a subscription stands, before each gap whose notice its client has not acknowledged: notices do not go along, so these gaps are told again.
    fn told_stand(&self, index: u32, cursor: u32) -> CarriedStand {
        let mut stand = self.carried_stand(index, cursor);
        for gap in self.sessions.get(index).inflight.unanswered_gaps(cursor) {
            let of_gap = stand.streams.iter_mut().filter(|(pubend, ..)| *pubend == gap.pubend);
            of_gap.for_each(|(_, _, acked)| *acked = (*acked).min(gap.from));
        }
        stand
    }

    /// A session that has just come here goes on from the farther of where it stands and where it stood here.
    pub(crate) fn merge_stands(&mut self, index: u32, stood: &Stands) {
        for (text, stand) in stood {
            let Some(cursor) = self.router.cursor_of(index, text) else { continue };
            if self.cursors.durable(cursor).is_some() && !self.cursors.get(cursor).by_token {
                self.merge_stand(cursor, stand);
                self.write_position(cursor);
            }
        }
    }

    fn merge_stand(&mut self, cursor: u32, stand: &CarriedStand) {
        let streams = &self.streams;
        let began = streams.own.positions();
        let of_track = self.cursors.get_mut(cursor);
        let mut catch_up = of_track.catch_up.take().expect("whose client is not there lags");
        for (pubend, since, acked) in &stand.streams {
            let own = streams.own_reliable(*pubend);
            let acked = own.map_or(*acked, |own| (*acked).min(began[own]));
            catch_up.positions.advance(*pubend, acked);
            catch_up.gaps.passed(*pubend, acked);
            of_track.record_read(*pubend, acked);
            of_track.mark(*pubend, acked);
            let durable = of_track.durable.as_deref_mut().expect("it is durable");
            match (own, since) {
                (Some(own), Some(since)) => durable.start[own] = durable.start[own].min(*since),
                (None, Some(since)) if durable.remote.since.has(*pubend) => {
                    let known = durable.remote.since.get(*pubend);
                    durable.remote.since.set(*pubend, known.min(*since));
                }
                _ => {}
            }
        }
        let durable = of_track.durable.as_deref_mut().expect("it is durable");
        let news = stand.beyond.iter().filter(|id| !durable.beyond.contains(id)).copied();
        let news: Vec<_> = news.collect();
        durable.beyond.extend(news.iter().copied());
        news.into_iter().for_each(|id| of_track.mark(id.pubend, id.tick));
        catch_up.next = self.first_after(&catch_up.positions);
        self.cursors.get_mut(cursor).catch_up = Some(catch_up);
        self.cursors.touch(cursor);
    }
}
