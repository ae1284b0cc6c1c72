//! Streams of other brokers: what is learnt of them is passed on in tick order.

use whimbrel_event::{Event, EventId, PubendId, Reliability, Tick, Time};
use whimbrel_selector::TopicName;

use crate::api::{Output, Segment, Tell};
use crate::broker::Core;
use crate::follow::{CATCH_UP_SLICE, Gap, GapReason};
use crate::session::Publication;
use crate::stream::Passed;

impl Core {
    /// Adds what is known of another broker's stream, and passes on what has no doubt before it. What is of best effort never waits for
    /// what may have been before it.
    pub(crate) fn learn(&mut self, now: Time, segment: &Segment<'_>, out: &mut impl Output) {
        let Segment { pubend, after, upto, what } = *segment;
        let Some(remote) = self.streams.remote(pubend).filter(|_| after < upto) else {
            self.sessions.stats.knowledge_refused += 1;
            return;
        };
        let knowledge = &mut remote.knowledge;
        match what {
            Tell::Data(event) if TopicName::new(event.topic).is_err() => {
                self.sessions.stats.knowledge_refused += 1;
                return;
            }
            Tell::Data(event) => {
                if pubend.reliability() == Reliability::BestEffort {
                    knowledge.silence(knowledge.base(), upto);
                }
                knowledge.silence(after, Tick(upto.0 - 1));
                knowledge.data(Event::keep(EventId { pubend, tick: upto }, now, &event));
            }
            Tell::Silence => knowledge.silence(after, upto),
            Tell::Lost => knowledge.lost(after, upto),
        }
        let mut parts = Vec::new();
        knowledge.advance(|part| parts.push(part));
        for part in parts {
            match part {
                Passed::Data(event) => {
                    self.moved(pubend, event.id().tick);
                    let route = self.router.route(event.topic()).expect("the topic has been checked");
                    self.pass(now, route, &mut Publication::of(&event, 0), false, out);
                }
                Passed::Lost { after, upto } => {
                    self.moved(pubend, upto);
                    self.pass_lost(now, pubend, (after, upto), out);
                }
                Passed::Silence { upto, .. } => self.moved(pubend, upto),
            }
        }
    }

    fn moved(&mut self, pubend: PubendId, upto: Tick) {
        self.streams.remote(pubend).expect("the stream is known").passed = upto;
    }

    /// Everyone who may have wanted something of what is lost is told.
    fn pass_lost(&mut self, now: Time, pubend: PubendId, (after, to): (Tick, Tick), out: &mut impl Output) {
        for id in self.tracks.ids() {
            let track = self.tracks.get_mut(id);
            let from = after.max(track.ahead.get(pubend));
            let session = track.session;
            let lagged = track.lag.is_some();
            if !lagged {
                // So that it is told in order, after whatever waits.
                self.fall_behind(id, None, false);
            }
            let lag = self.tracks.get_mut(id).lag.as_mut().expect("it lags now");
            // One that was live stands before what is lost; where it lags from now on is behind.
            let from = if lagged { from.max(lag.positions.get(pubend)) } else { from };
            lag.gaps.add(Gap { pubend, from, to, reason: GapReason::Lost });
            if self.sessions.is_attached(session) {
                self.catch_up(now, session, &mut { CATCH_UP_SLICE }, out);
            }
        }
    }
}
