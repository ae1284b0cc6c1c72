//! Two states of one session meet: each client was at both brokers while these could not reach each other. What it has acknowledged at either counts.

use super::carried::CarriedStand;
use crate::broker::Broker;
use crate::route::NO_TRACK;

/// Where the subscriptions of a session stood, by topic filter.
pub(crate) type Stands = Vec<(Box<str>, CarriedStand)>;

impl Broker {
    /// Where the durable subscriptions of a session stand.
    pub(crate) fn stands_of(&self, index: u32) -> Stands {
        let known = self.sessions.get(index).subscriptions.iter().map(|id| self.router.get(*id));
        let durable = known.filter(|known| known.track != NO_TRACK && self.tracks.durable(known.track).is_some());
        durable.map(|known| (known.text.clone(), self.told_stand(index, known.track))).collect()
    }

    /// Where a subscription stands, before each gap whose notice its client has not acknowledged: notices do not go along, so these gaps are told again.
    fn told_stand(&self, index: u32, track: u32) -> CarriedStand {
        let mut stand = self.carried_stand(index, track);
        for gap in self.sessions.get(index).inflight.unanswered_gaps(track) {
            let of_gap = stand.streams.iter_mut().filter(|(pubend, ..)| *pubend == gap.pubend);
            of_gap.for_each(|(_, _, acked)| *acked = (*acked).min(gap.from));
        }
        stand
    }

    /// A session that has just come here goes on from the farther of where it stands and where it stood here.
    pub(crate) fn merge_stands(&mut self, index: u32, stood: &Stands) {
        for (text, stand) in stood {
            let Some(track) = self.router.track_of(index, text) else { continue };
            if self.tracks.durable(track).is_some() && !self.tracks.get(track).by_token {
                self.merge_stand(track, stand);
                self.write_position(track);
            }
        }
    }

    fn merge_stand(&mut self, track: u32, stand: &CarriedStand) {
        let streams = &self.streams;
        let began = streams.own.positions();
        let of_track = self.tracks.get_mut(track);
        let mut lag = of_track.lag.take().expect("whose client is not there lags");
        for (pubend, since, acked) in &stand.streams {
            let own = streams.own_reliable(*pubend);
            let acked = own.map_or(*acked, |own| (*acked).min(began[own]));
            lag.positions.advance(*pubend, acked);
            lag.gaps.passed(*pubend, acked);
            of_track.note_read(*pubend, acked);
            of_track.mark(*pubend, acked);
            let durable = of_track.durable.as_deref_mut().expect("it is durable");
            match (own, since) {
                (Some(own), Some(since)) => durable.start[own] = durable.start[own].min(*since),
                (None, Some(since)) if durable.far.since.has(*pubend) => {
                    let known = durable.far.since.get(*pubend);
                    durable.far.since.set(*pubend, known.min(*since));
                }
                _ => {}
            }
        }
        let durable = of_track.durable.as_deref_mut().expect("it is durable");
        let news = stand.beyond.iter().filter(|id| !durable.beyond.contains(id)).copied();
        let news: Vec<_> = news.collect();
        durable.beyond.extend(news.iter().copied());
        news.into_iter().for_each(|id| of_track.mark(id.pubend, id.tick));
        lag.next = self.first_after(&lag.positions);
        self.tracks.get_mut(track).lag = Some(lag);
        self.tracks.touch(track);
    }
}
