//! Catching up: a subscription that lags reads the cache, in turns, until it stands where the consolidated stream does.

use core::ops::ControlFlow;

use whimbrel_event::{Event, EventId, Qos, Tick, Time};
use whimbrel_selector::{SharedFilter, TopicName};

use super::{Gap, GapReason, Lag, Track, notice};
use crate::api::Output;
use crate::broker::Core;
use crate::cache::{Item, PartitionSet};
use crate::content::Content;
use crate::route::{NO_GROUP, Router};
use crate::session::{Publication, Sessions, Terms};

/// Slots of the cache that are looked at before others have their turn.
pub(crate) const CATCH_UP_SLICE: usize = 256;

/// How far a turn got.
enum Turn {
    /// It is live.
    CaughtUp,
    /// Its client takes no more at the moment.
    Blocked,
    /// Its turn is over.
    Over,
}

impl Core {
    /// Lets the lagging subscriptions of a session go on, as far as its client takes what they find and its turn allows.
    pub(crate) fn catch_up(&mut self, now: Time, index: u32, out: &mut impl Output) {
        let mut budget = CATCH_UP_SLICE;
        for _ in 0..self.sessions.get(index).lagging.len() {
            let session = self.sessions.get(index);
            let id = session.lagging[0];
            if !session.takes_tracked(Qos::AtMostOnce) {
                return;
            }
            let turn = self.catch_up_one(now, id, &mut budget, out);
            let session = self.sessions.get_mut(index);
            session.lagging.remove(0);
            match turn {
                Turn::CaughtUp => {}
                Turn::Blocked => session.lagging.push(id),
                Turn::Over => {
                    session.lagging.push(id);
                    if !session.catching_up {
                        session.catching_up = true;
                        self.catching_up.push_back(index);
                    }
                    return;
                }
            }
        }
    }

    /// Gives the next session its turn to catch up.
    pub(crate) fn continue_catching_up(&mut self, now: Time, out: &mut impl Output) {
        let Some(index) = self.catching_up.pop_front() else { return };
        // The session may have ended, and another may have its number.
        if self.sessions.take_turn(index) {
            self.catch_up(now, index, out);
        }
    }

    fn catch_up_one(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut impl Output) -> Turn {
        let Core { tracks, router, cache, sessions, streams, serial, division, .. } = self;
        let last = *serial;
        let track = tracks.get_mut(id);
        if track.division != *division {
            (track.division, track.partitions) = (*division, PartitionSet::first(cache.plan().count()));
        }
        let mut lag = track.lag.take().expect("a track that lags");
        let lost = if lag.slow { GapReason::Slow } else { GapReason::Overwritten };
        for (pubend, _) in streams.positions() {
            let (from, to) = (lag.positions.get(pubend), cache.incomplete(&track.partitions, pubend));
            lag.gaps.add(Gap { pubend, from, to, reason: lost });
        }
        let mut reader = Reader { now, track, lag: &mut lag, router, sessions, blocked: false, out };
        let (from, partitions) = (reader.lag.next, reader.track.partitions);
        let next = cache.read(from, &partitions, *budget, |item| match item {
            Item::Hole { pubend, from, to } => {
                let from = from.max(reader.lag.positions.get(pubend));
                reader.lag.gaps.add(Gap { pubend, from, to, reason: lost });
                ControlFlow::Continue(())
            }
            Item::Event { serial, event } => reader.look_at(serial, event),
        });
        *budget = budget.saturating_sub(next.looked_at);
        let mut blocked = reader.blocked;
        if !blocked {
            reader.lag.next = next.serial;
            if next.exhausted {
                reader.lag.next = last + 1;
                blocked = !reader.tell_all_gaps();
            }
        }
        let track = tracks.get_mut(id);
        let caught_up = !blocked && next.exhausted;
        if caught_up {
            track.ahead = streams.ahead_of(&lag.positions);
            tracks.set_live(id);
            return Turn::CaughtUp;
        }
        track.lag = Some(lag);
        if blocked { Turn::Blocked } else { Turn::Over }
    }

    /// Makes a live subscription lag from the end of the consolidated stream, as it stood before `next`, on.
    pub(crate) fn fall_behind(&mut self, id: u32, before: Option<EventId>, next: u64, slow: bool) {
        let mut positions = self.streams.positions().collect::<super::Positions>();
        if let Some(id) = before {
            positions.set(id.pubend, Tick(id.tick.0 - 1));
        }
        let track = self.tracks.get(id);
        // What it had before it came here is still behind it.
        for (pubend, tick) in track.ahead.iter() {
            positions.advance(pubend, tick);
        }
        self.sessions.stats.fell_behind += u64::from(slow);
        let (session, lag) = (track.session, Lag { next, positions, gaps: super::Gaps::default(), slow });
        self.tracks.set_lag(id, Box::new(lag));
        self.sessions.get_mut(session).lagging.push(id);
    }
}

/// One turn of one subscription.
struct Reader<'a, O> {
    now: Time,
    track: &'a mut Track,
    lag: &'a mut Lag,
    router: &'a mut Router,
    sessions: &'a mut Sessions,
    blocked: bool,
    out: &'a mut O,
}

impl<O: Output> Reader<'_, O> {
    fn look_at(&mut self, serial: u64, event: &std::sync::Arc<Event>) -> ControlFlow<()> {
        let EventId { pubend, tick } = event.id();
        if self.lag.positions.get(pubend) >= tick {
            return ControlFlow::Continue(());
        }
        if self.wants(event) {
            let qos = event.qos().min(self.track.qos);
            let told = match self.lag.gaps.before(pubend, tick) {
                Some(gap) => self.tell(gap),
                None => true,
            };
            if !told || !self.sessions.get(self.track.session).takes_tracked(qos) {
                (self.lag.next, self.blocked) = (serial, true);
                return ControlFlow::Break(());
            }
            let terms = Terms { retain: false, as_published: false, ..self.track.terms(event.qos(), false) };
            let taken =
                self.sessions.offer_tracked(self.track.session, &mut Publication::of(event, serial), terms, self.out);
            assert!(taken, "it was asked whether it takes the event");
            self.sessions.stats.deliveries_recovered += 1;
            self.track.told_at = self.now;
            self.lag.gaps.passed(pubend, tick);
        }
        self.lag.positions.set(pubend, tick);
        ControlFlow::Continue(())
    }

    fn wants(&mut self, event: &std::sync::Arc<Event>) -> bool {
        if event.is_expired(self.now) || self.track.is_own(event.publisher()) {
            return false;
        }
        let known = self.router.get(self.track.subscription);
        let filter = SharedFilter::parse(&known.text).expect("checked when it was made").filter;
        let name = TopicName::new(event.topic()).expect("checked when it was accepted");
        let spot = known.spot.expect("tracked subscriptions are in the index");
        filter.matches(name) && self.router.is_selected(spot, &Content::of(event))
    }

    /// Tells a gap; `false` if the client takes no more at the moment.
    fn tell(&mut self, gap: Gap) -> bool {
        if self.track.notices {
            let qos = Qos::AtLeastOnce.min(self.track.qos);
            if !self.sessions.get(self.track.session).takes_tracked(qos) {
                return false;
            }
            let terms = Terms { qos, named: false, ..self.track.terms(qos, false) };
            debug_assert!(terms.group == NO_GROUP, "a tracked subscription is not shared");
            let event = notice::gap(&gap, self.now);
            let taken =
                self.sessions.offer_tracked(self.track.session, &mut Publication::of(&event, 0), terms, self.out);
            assert!(taken, "it was asked whether it takes the notice");
            self.track.told_at = self.now;
        }
        self.sessions.count_gap(self.track.session, gap.reason);
        self.lag.gaps.passed(gap.pubend, gap.to);
        self.lag.positions.advance(gap.pubend, gap.to);
        true
    }

    /// Tells all gaps that are left; `false` if the client takes no more at the moment.
    fn tell_all_gaps(&mut self) -> bool {
        while let Some(gap) = self.lag.gaps.first() {
            if !self.tell(gap) {
                return false;
            }
        }
        true
    }
}
