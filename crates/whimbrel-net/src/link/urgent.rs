//! Urgent events that wait for a link: those that can still be in time leave first, the least slack
//! first, and behind them the others.
//!
//! The slack of all events shrinks alike, so they are sorted by the moment up to which an event has
//! to leave, which stays the same. Events of one stream leave in the order of their ticks: a stream
//! has the least slack of its events, so one that is in a hurry takes those before it along. A
//! stream whose first event is late is late itself until that one has left: its receivers get what
//! is behind it no sooner. So too many events make some streams late, not all of them. Of those
//! that are late the one leaves first of which the fewest events wait: it is in time again the
//! soonest. What has no deadline (silence, answers to nacks) does not count for this.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{EventId, PubendId, Tick, Time};

use super::queue::{Waiting, WaitingEvent};
use crate::fault::NetFaults;

/// An event counts as in time only if this much of its deadline is left over: with too many events
/// each leaves at the last moment, and the least error would make all of them late.
const GUARD: Duration = Duration::from_millis(1);

/// A part of the deadline that is to be left over beside [`GUARD`]: one in this many.
const GUARD_ONE_IN: u64 = 16;

/// How long an event takes from here to its destinations, microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaysLeft {
    /// To the nearest destination.
    pub(crate) nearest_us: u64,
    /// To the farthest destination.
    pub(crate) farthest_us: u64,
}

impl WaysLeft {
    /// The moments up to which an event has to leave to be in time, [`GUARD`] included, at its
    /// farthest and at its nearest destination; none for an event without a deadline, or that is
    /// late already.
    fn moments(self, event: &WaitingEvent) -> [Option<Time>; 2] {
        let left_us = event.deadline_ms.and_then(|deadline| {
            let deadline_us = u64::from(deadline) * 1_000;
            deadline_us.checked_sub(deadline_us / GUARD_ONE_IN + GUARD.as_micros() as u64)
        });
        [self.farthest_us, self.nearest_us].map(|way_us| {
            let slack_us = left_us?.checked_sub(event.age_us.saturating_add(way_us))?;
            Some(event.since + Duration::from_micros(slack_us))
        })
    }
}

/// The place of an event in its stream: its tick, and a number that is greater for a later arrival.
type TickPlace = (Tick, u64);

/// The place of a stream among the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UrgentTurn {
    /// An event of it can be in time if it leaves up to this moment, and no other sooner.
    InTime(Time),
    /// No event of it can be in time, or its first one is late: the number of its entries, and that
    /// of the first arrival. The stream with the fewest can be in time again the soonest.
    Late(usize, u64),
}

/// One that waits.
#[derive(Debug)]
struct UrgentEntry {
    waiting: Waiting,
    /// The moments up to which it has to leave, see [`WaysLeft::moments`].
    moments: [Option<Time>; 2],
    has_deadline: bool,
}

/// What waits of one stream.
#[derive(Debug)]
struct StreamQueue {
    entries: BTreeMap<TickPlace, UrgentEntry>,
    /// Those with a deadline, and the last moment of each; none: it was late when it came.
    deadlines: BTreeMap<TickPlace, Option<Time>>,
    /// The moments of all of them that were not past when they were last looked at.
    moments: BTreeSet<(Time, TickPlace)>,
    turn: UrgentTurn,
}

impl StreamQueue {
    fn new() -> StreamQueue {
        let (entries, deadlines, moments) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        StreamQueue { entries, deadlines, moments, turn: UrgentTurn::Late(0, u64::MAX) }
    }

    fn insert(&mut self, place: TickPlace, entry: UrgentEntry) {
        let moments = entry.moments.into_iter().flatten();
        self.moments.extend(moments.clone().map(|moment| (moment, place)));
        if entry.has_deadline {
            self.deadlines.insert(place, moments.max());
        }
        self.entries.insert(place, entry);
    }

    fn pop(&mut self) -> Option<UrgentEntry> {
        let (place, entry) = self.entries.pop_first()?;
        self.deadlines.remove(&place);
        for moment in entry.moments.into_iter().flatten() {
            self.moments.remove(&(moment, place));
        }
        Some(entry)
    }

    /// Its place among the others at this moment. What is past is forgotten.
    fn turn_at(&mut self, now: Time) -> UrgentTurn {
        // Bounded by the moments that were added: each is removed once.
        while self.moments.first().is_some_and(|(moment, _)| *moment < now) {
            self.moments.pop_first();
        }
        let first = self.deadlines.first_key_value().and_then(|(_, last)| *last);
        match self.moments.first() {
            Some((moment, _)) if first.is_some_and(|last| last >= now) => UrgentTurn::InTime(*moment),
            _ => {
                let number = self.entries.first_key_value().map_or(u64::MAX, |((_, number), _)| *number);
                UrgentTurn::Late(self.entries.len(), number)
            }
        }
    }
}

/// See the module. Each operation costs at most a logarithm of the number that waits; what has
/// become late costs as much once more. Bounded by admission, as [`super::queue::LinkQueue`] is.
#[derive(Debug, Default)]
pub(crate) struct UrgentQueue {
    streams: BTreeMap<PubendId, StreamQueue>,
    in_time: BTreeSet<(Time, PubendId)>,
    late: BTreeSet<(usize, u64, PubendId)>,
    len: usize,
    /// The number of the next arrival.
    next: u64,
    faults: NetFaults,
}

impl UrgentQueue {
    pub(crate) fn new(faults: NetFaults) -> UrgentQueue {
        UrgentQueue { faults, ..UrgentQueue::default() }
    }

    /// The number that waits.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether something of a stream waits.
    pub(crate) fn holds(&self, pubend: PubendId) -> bool {
        self.streams.contains_key(&pubend)
    }

    /// Whether a stream is late, and has at least half as many entries as the late stream with the
    /// most.
    pub(crate) fn is_far_behind(&self, pubend: PubendId) -> bool {
        let most = self.late.last().map_or(0, |(len, ..)| *len);
        let stream = self.streams.get(&pubend);
        stream.is_some_and(|stream| matches!(stream.turn, UrgentTurn::Late(len, _) if 2 * len >= most))
    }

    /// Adds an event, which begins to wait now.
    pub(crate) fn push_event(&mut self, event: Box<WaitingEvent>, ways: WaysLeft) {
        let (id, now, has_deadline) = (event.id, event.since, event.deadline_ms.is_some());
        let moments = ways.moments(&event);
        self.push(now, id, UrgentEntry { waiting: Waiting::Event(event), moments, has_deadline });
    }

    /// Adds silence of a stream up to a tick: it leaves behind the events up to there.
    pub(crate) fn push_silence(&mut self, now: Time, upto: EventId, frame: Box<[u8]>) {
        self.push(now, upto, UrgentEntry { waiting: Waiting::Frame(frame), moments: [None; 2], has_deadline: false });
    }

    fn push(&mut self, now: Time, id: EventId, entry: UrgentEntry) {
        let stream = self.streams.entry(id.pubend).or_insert_with(StreamQueue::new);
        stream.insert((id.tick, self.next), entry);
        (self.next, self.len) = (self.next + 1, self.len + 1);
        let turn = stream.turn_at(now);
        self.set_turn(id.pubend, turn);
    }

    /// Takes the next.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Waiting> {
        let pubend = self.next_stream(now)?;
        let stream = self.streams.get_mut(&pubend)?;
        let entry = stream.pop()?;
        self.len -= 1;
        let (is_empty, turn) = (stream.entries.is_empty(), stream.turn_at(now));
        self.set_turn(pubend, turn);
        if is_empty {
            self.streams.remove(&pubend);
            self.late.remove(&(0, u64::MAX, pubend));
        }
        Some(entry.waiting)
    }

    /// The stream whose first leaves next.
    fn next_stream(&mut self, now: Time) -> Option<PubendId> {
        // Bounded by the moments that were added: each turn removes one that is past.
        while let Some((moment, pubend)) = self.in_time.first().copied() {
            if moment >= now {
                let is_inverted = fault!(self, SlackInverted);
                let last = self.in_time.last().filter(|_| is_inverted);
                return Some(last.map_or(pubend, |(_, pubend)| *pubend));
            }
            let turn = self.streams.get_mut(&pubend)?.turn_at(now);
            self.set_turn(pubend, turn);
        }
        self.late.first().map(|(.., pubend)| *pubend)
    }

    /// Moves a stream to its place among the others.
    fn set_turn(&mut self, pubend: PubendId, turn: UrgentTurn) {
        let Some(stream) = self.streams.get_mut(&pubend) else { return };
        match core::mem::replace(&mut stream.turn, turn) {
            UrgentTurn::InTime(moment) => self.in_time.remove(&(moment, pubend)),
            UrgentTurn::Late(len, number) => self.late.remove(&(len, number, pubend)),
        };
        match turn {
            UrgentTurn::InTime(moment) => self.in_time.insert((moment, pubend)),
            UrgentTurn::Late(len, number) => self.late.insert((len, number, pubend)),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_event::{HostId, split_mix};
    use whimbrel_wire::Repairers;

    use super::super::share::Share;
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn pubend(index: u8) -> PubendId {
        HostId::new(1 << 8).pubend(index)
    }

    /// An event that waits since that moment, with an age of 1 ms.
    fn event(index: u8, tick: u64, since: Time, deadline_ms: Option<u32>) -> Box<WaitingEvent> {
        Box::new(WaitingEvent {
            id: EventId { pubend: pubend(index), tick: Tick(tick) },
            age_us: 1_000,
            since,
            deadline_ms,
            answer: false,
            retain: false,
            repairers: Repairers::NONE,
            last_us: None,
            tree: [0].into(),
            default_previous: Tick(0),
            event: [0].into(),
        })
    }

    const NEAR: WaysLeft = WaysLeft { nearest_us: 1_000, farthest_us: 1_000 };

    /// The moment up to which [`event`] has to leave.
    fn moment(since: Time, deadline_ms: u32) -> Option<Time> {
        let guard = GUARD + MILLI * deadline_ms / GUARD_ONE_IN as u32;
        let slack = (MILLI * deadline_ms).checked_sub(guard + MILLI * 2)?;
        Some(since + slack)
    }

    /// Stream and tick of the next; tick 0 for silence.
    fn next(queue: &mut UrgentQueue, now: Time) -> Option<(u8, u64)> {
        Some(match queue.pop(now)? {
            Waiting::Event(event) => (event.id.pubend.index(), event.id.tick.0),
            Waiting::Frame(frame) => (frame[0], 0),
        })
    }

    fn all(queue: &mut UrgentQueue, now: Time) -> Vec<(u8, u64)> {
        let all = core::iter::from_fn(|| next(queue, now)).collect();
        assert_eq!((queue.len(), queue.streams.len(), queue.in_time.len(), queue.late.len()), (0, 0, 0, 0));
        all
    }

    #[test]
    fn the_least_slack_is_first_and_what_is_late_is_last() {
        let mut queue = UrgentQueue::default();
        for (index, deadline_ms) in [(8, Some(100)), (9, Some(5)), (10, Some(50)), (11, None)] {
            queue.push_event(event(index, 1, at(10), deadline_ms), NEAR);
        }
        // Age, way and guard take more than 3 ms of 5.
        assert_eq!(all(&mut queue, at(14)), [(10, 1), (8, 1), (9, 1), (11, 1)]);
    }

    #[test]
    fn an_event_takes_those_before_it_along_and_silence_follows() {
        let mut queue = UrgentQueue::default();
        queue.push_event(event(8, 1, at(0), None), NEAR);
        queue.push_event(event(9, 1, at(0), Some(50)), NEAR);
        queue.push_event(event(8, 2, at(0), Some(20)), NEAR);
        queue.push_silence(at(0), EventId { pubend: pubend(8), tick: Tick(2) }, [8].into());
        queue.push_event(event(8, 3, at(0), Some(500)), NEAR);
        assert!(queue.holds(pubend(8)) && !queue.holds(pubend(10)));
        assert_eq!(all(&mut queue, at(1)), [(8, 1), (8, 2), (9, 1), (8, 0), (8, 3)]);
    }

    #[test]
    fn an_event_is_in_time_as_long_as_it_is_for_the_nearest() {
        let mut queue = UrgentQueue::default();
        let ways = WaysLeft { nearest_us: 1_000, farthest_us: 40_000 };
        queue.push_event(event(8, 1, at(0), Some(50)), ways);
        queue.push_event(event(9, 1, at(0), Some(20)), NEAR);
        queue.push_event(event(10, 1, at(0), Some(70)), NEAR);
        queue.push_event(event(11, 1, at(0), Some(1)), NEAR);
        // For the farthest it is to leave before 9 ms, for the nearest before 45.
        assert_eq!(next(&mut queue, at(10)), Some((9, 1)));
        assert_eq!(all(&mut queue, at(11)), [(8, 1), (10, 1), (11, 1)]);
    }

    #[test]
    fn of_late_streams_the_one_with_the_fewest_is_first_and_those_with_the_most_are_far_behind() {
        let mut queue = UrgentQueue::default();
        for (index, count) in [(8, 4), (9, 1), (10, 2), (11, 1)] {
            (1..=count).for_each(|tick| queue.push_event(event(index, tick, at(0), Some(1)), NEAR));
        }
        queue.push_event(event(12, 1, at(0), Some(50)), NEAR);
        let behind: Vec<u8> = (8..14).filter(|index| queue.is_far_behind(pubend(*index))).collect();
        assert_eq!(behind, [8, 10]);
        let order = all(&mut queue, at(1));
        assert_eq!(order, [(12, 1), (9, 1), (11, 1), (10, 1), (10, 2), (8, 1), (8, 2), (8, 3), (8, 4)]);
    }

    #[test]
    fn a_stream_whose_first_event_is_late_waits_until_that_has_left() {
        let mut queue = UrgentQueue::default();
        queue.push_event(event(8, 1, at(0), Some(10)), NEAR);
        queue.push_event(event(8, 2, at(20), Some(20)), NEAR);
        queue.push_event(event(9, 1, at(20), Some(90)), NEAR);
        assert_eq!(next(&mut queue, at(21)), Some((9, 1)));
        assert_eq!(next(&mut queue, at(21)), Some((8, 1)));
        queue.push_event(event(9, 2, at(20), Some(90)), NEAR);
        assert_eq!(all(&mut queue, at(21)), [(8, 2), (9, 2)]);
    }

    /// The most of these that can begin within their two moments, in milliseconds, if one begins
    /// in each: always the one whose last moment is next, of those that have come (Glover 1967).
    fn most_in_time(jobs: &[(u64, u64)], is_taken: impl Fn(u64) -> bool) -> usize {
        let (mut waiting, mut next, mut done) = (BTreeSet::new(), 0, 0);
        let end = jobs.iter().map(|job| job.1).max().unwrap_or(0);
        for now in 0..=end {
            while let Some((_, last)) = jobs.get(next).filter(|(came, _)| *came <= now) {
                waiting.insert((*last, next));
                next += 1;
            }
            waiting.retain(|(last, _)| *last >= now);
            done += usize::from(!is_taken(now) && waiting.pop_first().is_some());
        }
        done
    }

    /// Events of `streams` streams, with three deadlines, 120 for each 100 that the link sends, one
    /// a millisecond, beside bulk that always waits. Returns those in time, the most that any
    /// schedule has in time which leaves bulk one slot in twenty and keeps no order, and the bulk
    /// that was sent, thousandths.
    fn overload(streams: u64) -> (usize, usize, usize) {
        const SLOTS: u64 = 10_000;
        let (mut queue, mut share, mut seed) = (UrgentQueue::default(), Share::default(), 5);
        let (mut jobs, mut in_time, mut bulk) = (Vec::new(), 0, 0);
        for now in 0..SLOTS {
            for _ in 0..2 {
                let random = split_mix(&mut seed);
                if random % 100 >= 60 {
                    continue;
                }
                let deadline = [30, 60, 120][(random >> 8) as usize % 3];
                let mut event = event(8, now + 1, at(now), Some(deadline));
                event.id.pubend = HostId::new((jobs.len() as u64 % streams + 1) << 8).pubend(8);
                let last = moment(at(now), deadline).expect("it is not late yet").as_nanos() / 1_000_000;
                jobs.push((now, last));
                queue.push_event(event, NEAR);
            }
            if share.due() >= 1_000 {
                share.record_given(1_000);
                bulk += 1;
                continue;
            }
            if let Some(Waiting::Event(event)) = queue.pop(at(now)) {
                let deadline = event.deadline_ms.expect("it has one");
                in_time += usize::from(moment(event.since, deadline) >= Some(at(now)));
                share.record_ahead(1_000);
            }
        }
        (in_time, most_in_time(&jobs, |now| now >= SLOTS || now % 20 == 0), bulk * 1_000 / SLOTS as usize)
    }

    #[test]
    fn of_too_many_events_as_many_as_can_be_are_in_time_and_bulk_is_sent() {
        // With a stream for each event no order has to be kept.
        for (streams, percent) in [(u64::MAX, 95), (64, 90), (16, 80)] {
            let (in_time, at_most, bulk) = overload(streams);
            println!("{streams} streams: {in_time} of {at_most}");
            let text = format!("{streams} streams: {in_time} of {at_most}, {bulk} of 1,000");
            assert!(in_time * 100 >= at_most * percent && bulk >= 50, "{text}");
        }
    }

    /// The same, looked for among all.
    #[derive(Default)]
    struct Naive {
        /// Stream, tick, number, moment; no moment: it has no deadline.
        waiting: Vec<(u8, u64, u64, Option<Time>)>,
        next: u64,
    }

    impl Naive {
        fn push(&mut self, index: u8, tick: u64, moment: Option<Time>) {
            self.waiting.push((index, tick, self.next, moment));
            self.next += 1;
        }

        fn pop(&mut self, now: Time) -> Option<(u8, u64)> {
            let of = |index| self.waiting.iter().filter(move |one| one.0 == index);
            let first = |index| of(index).min_by_key(|one| (one.1, one.2));
            let is_in_time = |index| {
                let with_deadline = of(index).filter(|one| one.3.is_some());
                with_deadline.min_by_key(|one| (one.1, one.2)).is_some_and(|one| one.3 >= Some(now))
            };
            let moments = self.waiting.iter().filter_map(|one| Some((one.3.filter(|moment| *moment >= now)?, one.0)));
            let in_time = moments.filter(|(_, index)| is_in_time(*index)).min().map(|(_, index)| index);
            let late = self.waiting.iter().filter_map(|one| Some((of(one.0).count(), first(one.0)?.2, one.0))).min();
            let number = first(in_time.or(late.map(|(.., index)| index))?)?.2;
            let place = self.waiting.iter().position(|one| one.2 == number)?;
            let (index, tick, ..) = self.waiting.remove(place);
            Some((index, tick))
        }
    }

    proptest! {
        #[test]
        fn it_does_as_a_naive_one(
            steps in prop::collection::vec((8_u8..12, 1_u64..6, prop::option::of(2_u32..30), 0_u64..4, 0_u8..3), 1..200)
        ) {
            let (mut queue, mut naive, mut now) = (UrgentQueue::default(), Naive::default(), at(1));
            for (index, tick, deadline_ms, passes, pops) in steps {
                queue.push_event(event(index, tick, now, deadline_ms), NEAR);
                naive.push(index, tick, deadline_ms.map(|deadline| moment(now, deadline).unwrap_or(Time::ZERO)));
                now = now + MILLI * passes as u32;
                for _ in 0..pops {
                    prop_assert_eq!(next(&mut queue, now), naive.pop(now));
                }
            }
            while let Some(expected) = naive.pop(now) {
                prop_assert_eq!(next(&mut queue, now), Some(expected));
            }
            prop_assert_eq!(all(&mut queue, now), vec![]);
        }
    }
}
