//! Catching up: a subscription that lags reads the cache, in turns, until it stands where the consolidated stream does.

use core::ops::ControlFlow;

use whimbrel_event::{Event, EventId, HostId, Packed, PubendId, Qos, Tick, Time};
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
pub(super) enum Turn {
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
        let ready = session.takes_any();
        let is_loading = session.inflight.has_loading();
        let follow = &mut session.follow;
        let catches_up = (is_loading || !follow.lagging.is_empty()) && !follow.catching_up;
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
        if self.sessions.get(index).inflight.has_loading() {
            if !self.load_flights(index) {
                return;
            }
            self.sessions.pump(index, now, out);
        }
        while self.sessions.get(index).takes_any() {
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
        self.tracks.touch(id);
        self.look_at_division(id);
        let replayed = self.replay(now, id, budget, out);
        if let Some(turn) = replayed {
            return turn;
        }
        let Core { tracks, router, cache, copies, sessions, streams, serial, .. } = self;
        let last = *serial;
        let track = tracks.get_mut(id);
        let mut lag = track.lag.take().expect("a track that lags");
        let lost = if lag.slow { GapReason::Slow } else { GapReason::Overwritten };
        let is_durable = track.durable.is_some();
        // What a durable subscription lacks of own streams it has got out of the log.
        let of_log = |pubend| is_durable && streams.own_reliable(pubend).is_some();
        for (pubend, _) in streams.positions().filter(|(pubend, _)| !of_log(*pubend)) {
            let to = cache.incomplete(&track.partitions, pubend);
            if to > lag.forgiven.get(pubend) {
                let from = lag.positions.get(pubend);
                let is_older = streams.is_before_this_process(pubend, from);
                lag.gaps.add(Gap { pubend, from, to, reason: if is_older { GapReason::Lost } else { lost } });
            }
        }
        let (from, partitions) = (lag.next, track.partitions);
        let (host, lag_mut) = (streams.logged().host(), &mut *lag);
        let (blocked, weight, has_holes) = (false, 0, false);
        let mut reader =
            Reader { now, host, track, lag: lag_mut, router, copies, sessions, blocked, weight, has_holes, out };
        let next = cache.read(from, &partitions, *budget, |item| match item {
            Item::Hole { pubend, to, .. } if of_log(pubend) => {
                reader.note_hole(pubend, to);
                ControlFlow::Continue(())
            }
            Item::Hole { pubend, from, to } => {
                let from = Tick(from.0 - 1).max(reader.lag.positions.get(pubend));
                reader.lag.gaps.add(Gap { pubend, from, to, reason: lost });
                ControlFlow::Continue(())
            }
            Item::Event { event, .. } if of_log(event.id().pubend) && reader.lacks(event.id()) => {
                ControlFlow::Continue(())
            }
            Item::Event { serial, event } => reader.look_at(serial, event),
        });
        let (weighty, has_holes) = (reader.weight >= CATCH_UP_WEIGHT, reader.has_holes);
        // Whoever had a turn has used something of it.
        *budget = budget.saturating_sub(next.looked_at.max(1));
        let (mut blocked, mut caught_up) = (reader.blocked, false);
        if !blocked {
            reader.lag.next = next.serial;
            if weighty {
                *budget = 0;
            }
            if has_holes {
                // They are read from the log, and then what is behind them.
                reader.lag.next = from;
            } else if next.exhausted {
                reader.lag.next = last + 1;
                (blocked, caught_up) = reader.tell_rest(budget);
            }
        }
        if caught_up {
            self.set_live(id, &lag);
            return Turn::CaughtUp;
        }
        tracks.get_mut(id).lag = Some(lag);
        if blocked { Turn::Blocked } else { Turn::Over }
    }

    /// A subscription stands where the consolidated stream does, or ahead of it.
    fn set_live(&mut self, id: u32, lag: &Lag) {
        let track = self.tracks.get_mut(id);
        track.ahead = self.streams.ahead_of(&lag.positions);
        if let Some(durable) = &mut track.durable {
            durable.flying = Vec::new();
        }
        self.tracks.set_live(id);
    }

    /// Finds out anew in which partitions a subscription finds what it wants, if the cache was divided anew.
    fn look_at_division(&mut self, id: u32) {
        let track = self.tracks.get_mut(id);
        if track.division != self.division {
            let text = &self.router.get(track.subscription).text;
            let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
            (track.division, track.partitions) = (self.division, self.cache.candidates(filter, None));
        }
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
        self.tracks.touch(id);
        self.sessions.stats.fell_behind += u64::from(slow);
        self.tracks.set_lag(id, Box::new(Lag { next, positions, gaps, forgiven, slow }));
        self.sessions.get_mut(session).follow.lagging.push_back(id);
    }
}

/// One turn of one subscription.
pub(super) struct Reader<'a, O> {
    pub(super) now: Time,
    pub(super) host: HostId,
    pub(super) track: &'a mut Track,
    pub(super) lag: &'a mut Lag,
    pub(super) router: &'a mut Router,
    pub(super) copies: &'a mut Copies,
    pub(super) sessions: &'a mut Sessions,
    /// The client takes no more at the moment.
    pub(super) blocked: bool,
    /// Bytes of the events that were looked at.
    pub(super) weight: usize,
    /// The cache has holes in streams that are logged.
    pub(super) has_holes: bool,
    pub(super) out: &'a mut O,
}

impl<O: Output> Reader<'_, O> {
    /// The cache has a hole in a stream that is logged: up to there it is read from the log.
    fn note_hole(&mut self, pubend: PubendId, to: Tick) {
        let durable = self.track.durable.as_deref_mut().expect("a durable subscription");
        if to > self.lag.positions.get(pubend) {
            let hole = &mut durable.holes[usize::from(pubend.index())];
            *hole = to.max(*hole);
            self.has_holes = true;
        }
    }

    /// Whether something before an event in its stream has to be read from the log first.
    fn lacks(&self, id: EventId) -> bool {
        let durable = self.track.durable.as_deref().expect("a durable subscription");
        durable.holes[usize::from(id.pubend.index())] > self.lag.positions.get(id.pubend)
    }

    /// Looks at an event out of the log.
    pub(super) fn look_at_logged(&mut self, event: &Event) -> ControlFlow<()> {
        let next = self.lag.next;
        let looked = self.look(0, event.packed(), Some(event));
        // The log has no serials.
        self.lag.next = next;
        looked
    }

    /// Whether an event was acknowledged, or sent, before the broker was restarted.
    fn has_had(&self, id: EventId) -> bool {
        let durable = self.track.durable.as_deref();
        durable.is_some_and(|durable| durable.beyond.contains(&id) || durable.flying.contains(&id))
    }

    fn look_at(&mut self, serial: u64, packed: Packed<'_>) -> ControlFlow<()> {
        self.look(serial, packed, None)
    }

    fn look(&mut self, serial: u64, packed: Packed<'_>, kept: Option<&Event>) -> ControlFlow<()> {
        let EventId { pubend, tick } = packed.id();
        if self.lag.positions.get(pubend) >= tick {
            return ControlFlow::Continue(());
        }
        if self.wants(serial, packed) && !self.has_had(packed.id()) {
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
            publication.kept = kept.cloned();
            if kept.is_none() && qos > Qos::AtMostOnce && self.sessions.get(self.track.session).is_persistent() {
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
        if event.is_expired(self.now) || self.track.is_own(event.publisher()) {
            return false;
        }
        let number = self.track.subscription;
        if event.id().pubend.host() == self.host
            && let Some(wanted) = self.track.wanted_before(event)
        {
            return wanted && self.router.is_under(number, event);
        }
        if serial == 0 { self.router.wants(number, event) } else { self.router.wants_cached(number, serial, event) }
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
