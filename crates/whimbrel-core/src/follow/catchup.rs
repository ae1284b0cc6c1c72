//! Catching up: a subscription that lags reads the cache, in turns, until it stands where the consolidated stream does.

use core::ops::ControlFlow;

use whimbrel_event::{Event, EventId, HostId, Packed, PredecessorsBuf, PubendId, Qos, Tick, Time};
use whimbrel_selector::SharedFilter;

use super::{Gap, GapReason, Lag, Track};
use crate::api::Output;
use crate::broker::Broker;
use crate::cache::{Item, Next};
use crate::copies::Copies;
use crate::route::Router;
use crate::session::{Publication, Sessions};
use crate::stream::Sources;

/// Slots of the cache that are looked at, and gaps that are told, before others have their turn.
pub(crate) const CATCH_UP_SLICE: usize = 256;

/// Bytes of events that are looked at before others have their turn: selectors may read payloads.
const CATCH_UP_WEIGHT: usize = 64 << 10;

/// How far a turn got.
pub(super) enum Turn {
    /// It is live.
    CaughtUp,
    /// Its client takes no more at the moment.
    Blocked,
    /// Its turn is over.
    Over,
}

impl Broker {
    /// Lets the lagging subscriptions of a session go on, as far as its client takes what they find and the turn allows.
    pub(crate) fn catch_up(&mut self, now: Time, index: u32, budget: &mut usize, out: &mut dyn Output) {
        while self.sessions.get(index).takes_any() {
            let Some(id) = self.next_lagging(index) else { return };
            let turn = self.catch_up_one(now, id, budget, out);
            let follow = &mut self.sessions.get_mut(index).follow;
            follow.lagging.pop_front();
            match turn {
                Turn::CaughtUp => {}
                // Others of the session would find the window as it is now.
                Turn::Blocked => return follow.lagging.push_back(id),
                Turn::Over => {
                    follow.lagging.push_back(id);
                    return self.turn_soon(index);
                }
            }
        }
    }

    fn catch_up_one(&mut self, now: Time, id: u32, budget: &mut usize, out: &mut dyn Output) -> Turn {
        self.tracks.touch(id);
        self.look_at_division(id);
        let replayed = self.replay(now, id, budget, out);
        if let Some(turn) = replayed {
            return turn;
        }
        let mut lag = self.tracks.get_mut(id).lag.take().expect("a track that lags");
        self.note_incomplete(id, &mut lag);
        let Broker { tracks, router, cache, copies, sessions, streams, serial, .. } = self;
        let last = *serial;
        let is_alone = tracks.lagging() == 1;
        let track = tracks.get_mut(id);
        let lost = lag.why_lost();
        let is_durable = track.durable.is_some();
        // What a durable subscription lacks of own streams it has got out of the log.
        let far = track.durable.as_deref().map(|durable| durable.far.since.clone()).unwrap_or_default();
        let of_log = |pubend| {
            is_durable && (streams.own_reliable(pubend).is_some() || far.has(pubend) && !streams.has_ended_in(pubend))
        };
        let (from, partitions) = (lag.next, track.partitions);
        let whose = (streams.logged().host(), is_alone);
        let mut reader = Reader::new(now, whose, (track, &mut lag), (router, copies, sessions, streams), out);
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
            // Its host has ended so long ago that nobody is told of it any more.
            Item::Event { event, .. } if !streams.knows(event.id().pubend) => ControlFlow::Continue(()),
            Item::Event { serial, event } => reader.look_at(serial, event),
        });
        let (blocked, caught_up) = reader.end_turn(&next, (from, last), budget);
        let barred = reader.barred;
        tracks.get_mut(id).lag = Some(lag);
        if let Some((event, after)) = barred {
            self.bar(now, id, event, after);
            return Turn::Over;
        }
        if caught_up && !self.unbar(now, id) {
            let lag = self.tracks.get_mut(id).lag.take().expect("it lags");
            self.set_live(id, &lag);
            return Turn::CaughtUp;
        }
        if blocked { Turn::Blocked } else { Turn::Over }
    }

    /// Adds what the cache has given up for good to what a subscription is to be told.
    fn note_incomplete(&self, id: u32, lag: &mut Lag) {
        let Broker { tracks, cache, streams, .. } = self;
        let track = tracks.get(id);
        // What a durable subscription lacks of own streams it has got out of the log.
        let of_log = |pubend| {
            let is_own = streams.own_reliable(pubend).is_some();
            track.durable.is_some() && (is_own || track.has_far_log(pubend) && !streams.has_ended_in(pubend))
        };
        for (pubend, _) in streams.positions().filter(|(pubend, _)| !of_log(*pubend)) {
            let to = cache.incomplete(&track.partitions, pubend);
            if to > lag.forgiven.get(pubend) {
                let from = lag.positions.get(pubend);
                let is_older = streams.is_before_this_process(pubend, from);
                let reason = if is_older { GapReason::Lost } else { lag.why_lacking(pubend) };
                lag.gaps.add(Gap { pubend, from, to, reason });
            }
        }
    }

    /// A subscription stands where the consolidated stream does, or ahead of it.
    fn set_live(&mut self, id: u32, lag: &Lag) {
        let track = self.tracks.get_mut(id);
        track.ahead = self.streams.ahead_of(&lag.positions);
        if let Some(durable) = &mut track.durable {
            durable.rest();
        }
        let session = track.session;
        self.tracks.set_live(id);
        let Broker { tracks, streams, sessions, .. } = self;
        let (inflight, mut waker) = sessions.inflight_mut(session);
        let far = tracks.durable(id).map(|durable| &durable.far);
        // What it has passed without finding it is gone; streams that are set aside, own ones among them, or not known here yet, are still to be read.
        let is_gone = |event: EventId| {
            let far = far.filter(|_| !streams.has_ended_in(event.pubend));
            far.is_none_or(|far| {
                let has_passed = || streams.followed(event.pubend).is_some_and(|passed| passed >= event.tick);
                !far.aside.has(event.pubend) && (!far.since.has(event.pubend) || has_passed())
            })
        };
        inflight.lose_loading(id, &mut waker, is_gone);
    }

    /// Finds out anew in which partitions a subscription finds what it wants, if the cache was divided anew.
    fn look_at_division(&mut self, id: u32) {
        let track = self.tracks.get_mut(id);
        if track.division != self.division.number {
            let text = &self.router.get(track.subscription).text;
            let filter = SharedFilter::parse(text).expect("checked when it was made").filter;
            (track.division, track.partitions) = (self.division.number, self.cache.candidates(filter, None));
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
        let session = track.session;
        self.tracks.touch(id);
        self.sessions.stats.fell_behind += u64::from(slow);
        self.tracks.get_with_common(id).1.fall_behind(&mut positions);
        self.tracks.set_lag(id, Box::new(Lag { next, slow, ..Lag::at(positions) }));
        self.sessions.get_mut(session).follow.lagging.push_back(id);
    }
}

/// One turn of one subscription.
pub(super) struct Reader<'a> {
    pub(super) now: Time,
    pub(super) host: HostId,
    pub(super) track: &'a mut Track,
    pub(super) lag: &'a mut Lag,
    pub(super) router: &'a mut Router,
    pub(super) copies: &'a mut Copies,
    /// Nobody else lags: copies need not be shared.
    pub(super) is_alone: bool,
    pub(super) sessions: &'a mut Sessions,
    pub(super) streams: &'a Sources,
    /// The client takes no more at the moment.
    pub(super) blocked: bool,
    /// Bytes of the events that were looked at.
    pub(super) weight: usize,
    /// The cache has holes in streams that are logged.
    pub(super) has_holes: bool,
    /// An event that comes after one of another stream which has not been passed.
    pub(super) barred: Option<(EventId, PredecessorsBuf)>,
    pub(super) out: &'a mut dyn Output,
}

impl<'a> Reader<'a> {
    /// For a turn of one subscription that lags, at this host, and perhaps alone.
    pub(super) fn new(
        now: Time,
        (host, is_alone): (HostId, bool),
        (track, lag): (&'a mut Track, &'a mut Lag),
        (router, copies, sessions, streams): (&'a mut Router, &'a mut Copies, &'a mut Sessions, &'a Sources),
        out: &'a mut dyn Output,
    ) -> Self {
        let (blocked, weight, has_holes, barred) = (false, 0, false, None);
        Reader {
            now,
            host,
            track,
            lag,
            router,
            copies,
            is_alone,
            sessions,
            streams,
            blocked,
            weight,
            has_holes,
            barred,
            out,
        }
    }
}

impl Reader<'_> {
    /// The turn is over, which looked at the cache from a serial on, of which the last is known, too. Whether the client takes no more, and whether the
    /// end was reached.
    fn end_turn(&mut self, next: &Next, (from, last): (u64, u64), budget: &mut usize) -> (bool, bool) {
        // Whoever had a turn has used something of it.
        *budget = budget.saturating_sub(next.looked_at.max(1));
        if self.blocked || self.barred.is_some() {
            return (self.blocked, false);
        }
        self.lag.next = next.serial;
        if self.weight >= CATCH_UP_WEIGHT {
            *budget = 0;
        }
        if self.has_holes {
            // They are read from the log, and then what is behind them.
            self.lag.next = from;
        } else if next.exhausted {
            self.lag.next = last + 1;
            return self.tell_rest(budget);
        }
        (false, false)
    }

    /// The cache has a hole in a stream that is logged: up to there it is read from the log.
    fn note_hole(&mut self, pubend: PubendId, to: Tick) {
        let durable = self.track.durable.as_deref_mut().expect("a durable subscription");
        if durable.far.aside.has(pubend) || to <= self.lag.positions.get(pubend) {
            return;
        }
        self.has_holes = true;
        if durable.far.since.has(pubend) {
            durable.far.holes.advance(pubend, to);
        } else {
            let hole = &mut durable.holes[usize::from(pubend.index())];
            *hole = to.max(*hole);
        }
    }

    /// Whether something before an event in its stream has to be read from the log first.
    fn lacks(&self, id: EventId) -> bool {
        let durable = self.track.durable.as_deref().expect("a durable subscription");
        let hole = match durable.far.since.has(id.pubend) {
            true => durable.far.holes.get(id.pubend),
            false => durable.holes[usize::from(id.pubend.index())],
        };
        hole > self.lag.positions.get(id.pubend)
    }

    /// Looks at an event out of the log.
    pub(super) fn look_at_logged(&mut self, event: &Event) -> ControlFlow<()> {
        let next = self.lag.next;
        let looked = match self.was_flying(event.id()) {
            Some(tag) => self.fly_again(tag, event.clone()),
            None => self.look(0, event.packed(), Some(event)),
        };
        // The log has no serials.
        self.lag.next = next;
        let EventId { pubend, tick } = event.id();
        if self.lag.positions.get(pubend) >= tick {
            // Else it would be read, and given, once more when the stream is settled.
            self.track.note_read(pubend, tick);
        }
        looked
    }

    /// Whether an event comes after some of other streams that have not been passed; then its stream waits for them.
    fn must_wait(&mut self, event: Packed<'_>) -> bool {
        let missing = self.track.lacks_before(self.lag, event.id(), event.view().headers.after);
        self.barred = (!missing.is_empty()).then(|| (event.id(), missing));
        self.barred.is_some()
    }

    /// Sends an event again that was on its way before the broker was restarted, under its tag.
    fn fly_again(&mut self, tag: u16, event: Event) -> ControlFlow<()> {
        let EventId { pubend, tick } = event.id();
        // It was sent in its place then; its client may have got neither, and other streams are read at their own pace.
        if self.must_wait(event.packed()) {
            return ControlFlow::Break(());
        }
        self.track.mark(pubend, tick);
        let told = self.lag.gaps.before(pubend, tick).is_none_or(|gap| self.tell(gap));
        let session = self.track.session;
        if !told || !self.sessions.get(session).takes_repeated() {
            self.blocked = true;
            return ControlFlow::Break(());
        }
        let retain = event.packed().retain() && self.track.marks.retain_as_published;
        self.sessions.get_mut(session).inflight.loaded(tag, event, retain);
        self.sessions.pump(session, self.now, self.out);
        self.track.silence.told_at = self.now;
        self.lag.gaps.passed(pubend, tick);
        self.lag.positions.set(pubend, tick);
        ControlFlow::Continue(())
    }

    fn look_at(&mut self, serial: u64, packed: Packed<'_>) -> ControlFlow<()> {
        match self.was_flying(packed.id()).filter(|_| !self.track.is_aside(packed.id().pubend)) {
            Some(tag) => {
                let looked = self.fly_again(tag, Event::copied(packed));
                if self.blocked || self.barred.is_some() {
                    self.lag.next = serial;
                }
                looked
            }
            None => self.look(serial, packed, None),
        }
    }

    fn look(&mut self, serial: u64, packed: Packed<'_>, kept: Option<&Event>) -> ControlFlow<()> {
        let EventId { pubend, tick } = packed.id();
        if self.lag.positions.get(pubend) >= tick || self.track.is_aside(pubend) {
            return ControlFlow::Continue(());
        }
        let is_hidden = self.lag.told.hides(packed.id());
        let is_wanted = !is_hidden && self.wants(serial, packed);
        if is_hidden || is_wanted {
            // Read once more, it would come once more.
            self.track.mark(pubend, tick);
        }
        if is_wanted && !self.has_had(packed.id()) {
            if self.must_wait(packed) {
                self.lag.next = serial;
                return ControlFlow::Break(());
            }
            let qos = packed.qos().min(self.track.qos);
            // What comes before it in a log has been read, or is a gap already.
            let gap = if kept.is_none() { self.track.settle(packed.id()) } else { None };
            gap.into_iter().for_each(|gap| self.lag.gaps.add(gap));
            let told = match self.lag.gaps.before(pubend, tick) {
                Some(gap) => self.tell(gap),
                None => true,
            };
            if !told || !self.sessions.get(self.track.session).takes_tracked(qos) {
                (self.lag.next, self.blocked) = (serial, true);
                return ControlFlow::Break(());
            }
            let terms = self.track.terms(packed.qos(), packed.retain());
            let mut publication = Publication::of_packed(packed, serial);
            publication.kept = kept.cloned();
            if kept.is_none() && qos > Qos::AtMostOnce && self.sessions.get(self.track.session).is_persistent() {
                publication.kept =
                    Some(if self.is_alone { Event::copied(packed) } else { self.copies.of(serial, packed) });
            }
            let taken = self.sessions.offer_tracked(self.track.session, &mut publication, terms, self.out);
            assert!(taken, "it was asked whether it takes the event");
            self.sessions.stats.deliveries_recovered += 1;
            self.track.silence.told_at = self.now;
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
        let is_own = event.id().pubend.host() == self.host;
        if let Some(wanted) = self.track.wanted_before(event, is_own) {
            return wanted && self.router.is_under(number, event);
        }
        if serial == 0 { self.router.wants(number, event) } else { self.router.wants_cached(number, serial, event) }
    }
}
