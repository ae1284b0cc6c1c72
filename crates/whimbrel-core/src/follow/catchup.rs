//! Catching up: a subscription that lags reads the cache, in turns, until it stands where the consolidated stream does.

use core::ops::ControlFlow;

use whimbrel_event::{EventId, Packed, Qos, Tick, Time};
use whimbrel_selector::SharedFilter;

use super::{Gap, GapReason, Gaps, Lag, Positions, Track, notice};
use crate::api::Output;
use crate::broker::Core;
use crate::cache::Item;
use crate::copies::Copies;
use crate::route::Router;
use crate::session::{Publication, Sessions};

/// Slots of the cache that are looked at, and gaps that are told, before others have their turn.
pub(crate) const CATCH_UP_SLICE: usize = 1024;

/// Bytes of events that are looked at before others have their turn: selectors may read payloads.
const CATCH_UP_WEIGHT: usize = 256 << 10;

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
    /// A session's client takes more: what waits for it goes on, and whoever catches up; first one, then the other, and the next time
    /// the other way round.
    pub(crate) fn go_on(&mut self, now: Time, index: u32, out: &mut impl Output) {
        let session = self.sessions.get_mut(index);
        // While something of a former connection is to be sent again, what catches up has to wait for that.
        let ready = session.takes_tracked(Qos::AtMostOnce);
        let follow = &mut session.follow;
        let catches_up = !follow.lagging.is_empty() && !follow.catching_up;
        let first = catches_up && ready && follow.catches_up_first;
        follow.catches_up_first = !first;
        if first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
        self.sessions.pump(index, now, out);
        self.take_shared(now, index, out);
        if catches_up && !first {
            self.catch_up(now, index, &mut { CATCH_UP_SLICE }, out);
        }
    }

    /// Lets the lagging subscriptions of a session go on, as far as its client takes what they find and the turn allows.
    pub(crate) fn catch_up(&mut self, now: Time, index: u32, budget: &mut usize, out: &mut impl Output) {
        while self.sessions.get(index).takes_tracked(Qos::AtMostOnce) {
            let Some(&id) = self.sessions.get(index).follow.lagging.front() else { return };
            let turn = self.catch_up_one(now, id, budget, out);
            let follow = &mut self.sessions.get_mut(index).follow;
            follow.lagging.pop_front();
            match turn {
                Turn::CaughtUp => {}
                // Others of the session would find the window as it is now.
                Turn::Blocked => return follow.lagging.push_back(id),
                Turn::Over => {
                    follow.lagging.push_back(id);
                    if !core::mem::replace(&mut follow.catching_up, true) {
                        self.catching_up.push_back(index);
                    }
                    return;
                }
            }
        }
    }

    /// Gives sessions that catch up their turns: as much work as a slice, and as was accepted since the last time.
    pub(crate) fn continue_catching_up(&mut self, now: Time, out: &mut impl Output) {
        let accepted = self.serial - core::mem::replace(&mut self.caught_up_to, self.serial);
        let mut budget = CATCH_UP_SLICE + accepted as usize;
        while budget > 0
            && let Some(index) = self.catching_up.pop_front()
        {
            // The session may have ended, and another may have its number.
            if self.sessions.take_turn(index) {
                let slice = budget.min(CATCH_UP_SLICE);
                let mut left = slice;
                self.catch_up(now, index, &mut left, out);
                budget -= (slice - left).max(1);
            }
        }
    }

    fn catch_up_one(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut impl Output) -> Turn {
        let Core { tracks, router, cache, copies, sessions, streams, serial, division, .. } = self;
        let last = *serial;
        let track = tracks.get_mut(id);
        if track.division != *division {
            let text = &router.get(track.subscription).text;
            let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
            (track.division, track.partitions) = (*division, cache.candidates(filter, None));
        }
        let mut lag = track.lag.take().expect("a track that lags");
        let lost = if lag.slow { GapReason::Slow } else { GapReason::Overwritten };
        for (pubend, _) in streams.positions() {
            let to = cache.incomplete(&track.partitions, pubend);
            if to > lag.forgiven.get(pubend) {
                let from = lag.positions.get(pubend);
                let is_older = streams.is_before_this_process(pubend, from);
                lag.gaps.add(Gap { pubend, from, to, reason: if is_older { GapReason::Lost } else { lost } });
            }
        }
        let (from, partitions) = (lag.next, track.partitions);
        let mut reader = Reader { now, track, lag: &mut lag, router, copies, sessions, blocked: false, weight: 0, out };
        let next = cache.read(from, &partitions, *budget, |item| match item {
            Item::Hole { pubend, from, to } => {
                let from = Tick(from.0 - 1).max(reader.lag.positions.get(pubend));
                reader.lag.gaps.add(Gap { pubend, from, to, reason: lost });
                ControlFlow::Continue(())
            }
            Item::Event { serial, event } => reader.look_at(serial, event),
        });
        let weighty = reader.weight >= CATCH_UP_WEIGHT;
        // Whoever had a turn has used something of it.
        *budget = budget.saturating_sub(next.looked_at.max(1));
        let (mut blocked, mut caught_up) = (reader.blocked, false);
        if !blocked {
            reader.lag.next = next.serial;
            if weighty {
                *budget = 0;
            }
            if next.exhausted {
                reader.lag.next = last + 1;
                (blocked, caught_up) = reader.tell_rest(budget);
            }
        }
        if caught_up {
            tracks.get_mut(id).ahead = streams.ahead_of(&lag.positions);
            tracks.set_live(id);
            return Turn::CaughtUp;
        }
        tracks.get_mut(id).lag = Some(lag);
        if blocked { Turn::Blocked } else { Turn::Over }
    }

    /// Makes a live subscription lag from the end of the consolidated stream on; if there is an event there that it has not had,
    /// `missed`, from before that.
    pub(crate) fn fall_behind(&mut self, id: u32, missed: Option<EventId>, slow: bool) {
        let track = self.tracks.get(id);
        let (mut positions, mut next) = (self.ahead_positions(&track.ahead), self.serial + 1);
        if let Some(id) = missed {
            next = self.serial;
            positions.set(id.pubend, Tick(id.tick.0 - 1));
        }
        let (session, (gaps, forgiven)) = (track.session, <(Gaps, Positions)>::default());
        self.sessions.stats.fell_behind += u64::from(slow);
        self.tracks.set_lag(id, Box::new(Lag { next, positions, gaps, forgiven, slow }));
        self.sessions.get_mut(session).follow.lagging.push_back(id);
    }
}

/// One turn of one subscription.
struct Reader<'a, O> {
    now: Time,
    track: &'a mut Track,
    lag: &'a mut Lag,
    router: &'a mut Router,
    copies: &'a mut Copies,
    sessions: &'a mut Sessions,
    blocked: bool,
    /// Bytes of the events that were looked at.
    weight: usize,
    out: &'a mut O,
}

impl<O: Output> Reader<'_, O> {
    fn look_at(&mut self, serial: u64, packed: Packed<'_>) -> ControlFlow<()> {
        let EventId { pubend, tick } = packed.id();
        if self.lag.positions.get(pubend) >= tick {
            return ControlFlow::Continue(());
        }
        if self.wants(serial, packed) {
            let qos = packed.qos().min(self.track.qos);
            let told = match self.lag.gaps.before(pubend, tick) {
                Some(gap) => self.tell(gap),
                None => true,
            };
            if !told || !self.sessions.get(self.track.session).takes_tracked(qos) {
                (self.lag.next, self.blocked) = (serial, true);
                return ControlFlow::Break(());
            }
            let terms = self.track.terms(packed.qos(), false);
            let mut publication = Publication::of_packed(packed, serial);
            if qos > Qos::AtMostOnce && self.sessions.get(self.track.session).is_persistent() {
                publication.kept = Some(self.copies.of(serial, packed));
            }
            let taken = self.sessions.offer_tracked(self.track.session, &mut publication, terms, self.out);
            assert!(taken, "it was asked whether it takes the event");
            self.sessions.stats.deliveries_recovered += 1;
            self.track.told_at = self.now;
            self.lag.gaps.passed(pubend, tick);
        }
        self.lag.positions.set(pubend, tick);
        self.weight += packed.as_bytes().len();
        if self.weight >= CATCH_UP_WEIGHT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn wants(&mut self, serial: u64, event: Packed<'_>) -> bool {
        let comes = !event.is_expired(self.now) && !self.track.is_own(event.publisher());
        comes && self.router.wants_cached(self.track.subscription, serial, event)
    }

    /// Tells a gap; `false` if the client takes no more at the moment.
    fn tell(&mut self, gap: Gap) -> bool {
        if self.track.notices {
            let qos = Qos::AtLeastOnce.min(self.track.qos);
            if !self.sessions.get(self.track.session).takes_tracked(qos) {
                return false;
            }
            let terms = self.track.terms(qos, false);
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

    /// Tells the gaps that are left. Whether the client takes no more at the moment, and whether all have been told.
    fn tell_rest(&mut self, budget: &mut usize) -> (bool, bool) {
        while let Some(gap) = self.lag.gaps.first() {
            if *budget == 0 {
                return (false, false);
            }
            *budget -= 1;
            if !self.tell(gap) {
                return (true, false);
            }
        }
        (false, true)
    }
}
