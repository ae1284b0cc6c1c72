//! Positions of durable subscriptions: they are computed, not kept, and written relative to a base,
//! which is the position of all streams of other brokers at a moment.
//!
//! A base is never changed. A written position refers to one, and tells only where it differs.
//! References are counted; a base without any is forgotten, unless it is the last, which is for the
//! positions that are written next. So there is at most one more base than positions.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{EventId, HostId, PubendId, Reliability, Tick, Time};

use super::durable_position::{unzigzag, zigzag};
use super::keys::{BaseNo, DurableNo, Key};
use super::position_head::PositionHead;
use super::wire::{ByteReader, MapValue, put_varint};
use super::written::{PositionPart, RestoredPosition};
use super::{Disk, DurablePosition, RemotePosition};
use crate::broker::Broker;
use crate::cursor::{Common, Cursor, Durable, Gap, GapReason, NO_PUBEND, NOTHING, Positions};

/// Most streams of a base that are read.
const STREAMS_MAX: u64 = 1 << 20;

/// A position whose base is at least this many bases old is checked: most likely it may refer to
/// the last one.
const BEHIND_MAX: u64 = 4;

/// Up to this many bases in use, bases are made at the configured interval; each one beyond doubles
/// the interval.
const OFTEN_MAX: u32 = 8;

/// Most doublings of the interval.
const SELDOM_MAX: u32 = 12;

/// Interval of checking whether the last base lacks many streams.
const LACKING_EVERY: Duration = Duration::from_secs(1);

/// Stream positions that are checked in one go, to have subscriptions refer to the last base.
const CHECKS_MAX: usize = 1 << 16;

/// The ticks of a base as they are written, ascending by pubend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PositionBase(pub(crate) Common);

impl MapValue<'_> for PositionBase {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let (mut pubend, mut before) = (0, 0_u64);
        for (stream, tick) in self.0.iter() {
            put_varint(out, stream.0 - pubend);
            put_varint(out, zigzag(tick.0.wrapping_sub(before) as i64));
            (pubend, before) = (stream.0, tick.0);
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let count = bytes.varint().filter(|count| *count <= STREAMS_MAX)?;
        let (mut pubend, mut before) = (0_u64, 0_u64);
        let mut stream = |bytes: &mut ByteReader<'_>| {
            pubend = pubend.checked_add(bytes.varint()?)?;
            before = before.wrapping_add(unzigzag(bytes.varint()?) as u64);
            Some((PubendId(pubend), Tick(before)))
        };
        let ticks = (0..count).map(|_| stream(bytes)).collect::<Option<Common>>()?;
        ticks.is_sorted_by(|a, b| a.0 < b.0).then_some(PositionBase(ticks))
    }
}

/// The tick of a stream in a base, if the base has it.
pub(crate) fn tick_of(base: &[(PubendId, Tick)], pubend: PubendId) -> Option<Tick> {
    let at = base.binary_search_by_key(&pubend, |entry| entry.0).ok()?;
    Some(base[at].1)
}

#[derive(Debug)]
struct Referred {
    ticks: Common,
    /// The number of written positions that refer to it.
    count: usize,
}

/// All bases in use.
#[derive(Debug, Default)]
pub(crate) struct PositionBases {
    of: BTreeMap<BaseNo, Referred>,
    /// The last base, if one was made since the broker began.
    current: BaseNo,
    made_at: Time,
    /// When to check next which streams the last base lacks.
    check_at: Time,
    /// The next subscription to check for an old base, while such a check is under way.
    place: Option<u32>,
}

impl PositionBases {
    /// The last base, which positions that are written now may refer to.
    pub(crate) fn current(&self) -> BaseNo {
        self.current
    }

    /// The ticks of a base, ascending by pubend; empty for an unknown one.
    pub(crate) fn ticks(&self, number: BaseNo) -> &[(PubendId, Tick)] {
        self.of.get(&number).map_or(&[], |base| &base.ticks)
    }

    /// The first base that a position refers to.
    pub(super) fn first(&self) -> BaseNo {
        self.of.iter().find(|(_, base)| base.count > 0).map_or(BaseNo(0), |(number, _)| *number)
    }

    /// The tick of a stream in the last base; 0 if it lacks the stream.
    pub(crate) fn tick_of_current(&self, pubend: PubendId) -> Tick {
        tick_of(self.ticks(self.current), pubend).unwrap_or_default()
    }

    /// The ticks of a base, in shared storage.
    pub(super) fn common(&self, number: BaseNo) -> Option<&Common> {
        self.of.get(&number).map(|base| &base.ticks)
    }

    /// Adds a reference to a base.
    pub(super) fn refer(&mut self, number: BaseNo) {
        if let Some(base) = self.of.get_mut(&number) {
            base.count += 1;
        }
    }

    /// Removes a reference to a base; returns whether the base is now unused and to be forgotten.
    pub(super) fn let_go(&mut self, number: BaseNo) -> bool {
        let Some(base) = self.of.get_mut(&number) else { return false };
        base.count -= 1;
        let is_over = base.count == 0 && number != self.current;
        if is_over {
            self.of.remove(&number);
        }
        is_over
    }

    /// Removes all unused bases but the last, and returns them.
    pub(super) fn drain_unused(&mut self) -> Vec<BaseNo> {
        let current = self.current;
        let unused = self.of.iter().filter(|(number, base)| base.count == 0 && **number != current);
        let unused: Vec<BaseNo> = unused.map(|(number, _)| *number).collect();
        unused.iter().for_each(|number| drop(self.of.remove(number)));
        unused
    }

    /// The farthest tick of a stream in any base. A base is never behind an earlier one, since
    /// events that a position has passed must not come again. So the last base with the stream is
    /// the farthest, and earlier ones, maybe thousands, need not be searched.
    fn farthest(&self, pubend: PubendId) -> Tick {
        self.of.values().rev().find_map(|base| tick_of(&base.ticks, pubend)).unwrap_or_default()
    }

    fn add(&mut self, now: Time, ticks: Common) -> BaseNo {
        let last = self.of.last_key_value().map_or(BaseNo(0), |(number, _)| *number);
        self.current = BaseNo(last.max(self.current).0 + 1);
        (self.made_at, self.place) = (now, Some(0));
        self.of.insert(self.current, Referred { ticks, count: 0 });
        self.current
    }

    /// The ticks of all bases, in their storage.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Common> {
        self.of.values().map(|base| &base.ticks)
    }

    /// Whether a check for positions with an old base is under way.
    pub(crate) fn looks(&self) -> bool {
        self.place.is_some()
    }
}

impl Broker {
    /// Makes a base if the last one is old, or lacks many of the streams. New streams alone cause
    /// only O(log n) bases.
    pub(super) fn renew_base(&mut self, now: Time) {
        let bases = &mut self.store.bases;
        let seldom = (bases.of.len() as u32).saturating_sub(OFTEN_MAX).min(SELDOM_MAX);
        let every = self.sessions.limits.base_every.saturating_mul(1 << seldom);
        let is_old = bases.current != BaseNo(0) && now.since(bases.made_at) >= every;
        if !is_old && now < bases.check_at {
            return;
        }
        bases.check_at = now.after(LACKING_EVERY);
        let current = self.store.bases.ticks(self.store.bases.current);
        let lacking = self.base_streams().filter(|(pubend, _)| tick_of(current, *pubend).is_none()).count();
        if is_old || lacking * 2 > current.len() {
            self.make_base(now);
        }
    }

    /// The streams that a base has ticks of, with their positions: reliable ones that are followed,
    /// of brokers that have a log.
    fn base_streams(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        let followed = self.streams.remote_positions();
        followed.filter(|(pubend, _)| {
            let host = pubend.host();
            pubend.reliability() == Reliability::Reliable
                && self.streams.begun(*pubend).is_some()
                && !self.streams.has_ended(host)
                && !self.overlay.logs.received.has_no_log(host)
        })
    }

    /// Writes the positions of all other brokers' streams as a new base.
    pub(super) fn make_base(&mut self, now: Time) {
        if self.store.disk != Disk::Open {
            // While the log is full, the write queue is reserved for writes that free space.
            return;
        }
        let bases = &self.store.bases;
        // One tick for all streams beyond it: only events given since then differ from that, and a
        // subscription that has left may stand there as well.
        let watermark = self.streams.low_watermark();
        let tick = |(pubend, tick): (PubendId, Tick)| (pubend, tick.min(watermark).max(bases.farthest(pubend)));
        let ticks: Common = self.base_streams().map(tick).collect();
        if ticks.is_empty() {
            return;
        }
        let number = self.store.bases.add(now, ticks.clone());
        self.store
            .write_queue
            .put(|key| Key::PositionBase(number).put(key), |value| PositionBase(ticks).put_versioned(value));
        for unused in self.store.bases.drain_unused() {
            self.store.write_queue.forget(|key| Key::PositionBase(unused).put(key));
        }
        self.store.write_queue.seal();
    }

    /// Continues the check of positions with an old base: subscriptions without events do not move,
    /// and would keep that base in use.
    pub(super) fn check_bases(&mut self) {
        let bases = &mut self.store.bases;
        let Some(place) = bases.place else { return };
        let current = bases.current;
        let count = (CHECKS_MAX / bases.ticks(current).len().max(1)).clamp(1, CHECKS_MAX);
        let is_behind = |number: BaseNo| number.0 + BEHIND_MAX <= current.0;
        let part = self.cursors.from(place).take(count);
        let durable = part.filter_map(|(id, cursor)| Some((id, cursor?.durable.as_deref()?)));
        let behind =
            durable.filter(|(_, durable)| !durable.remote.since.is_empty() && is_behind(durable.remote.written.base));
        let behind: Vec<u32> = behind.map(|(id, _)| id).collect();
        let next = place.saturating_add(count as u32);
        self.store.bases.place = Some(next).filter(|next| *next < self.cursors.places());
        behind.into_iter().for_each(|id| self.cursors.touch(id));
    }

    /// The ticks of the last base, or where this broker has passed streams, if that is earlier.
    pub(super) fn base_positions(&self) -> Positions {
        let ticks = self.store.bases.ticks(self.store.bases.current).iter();
        ticks.map(|(pubend, tick)| (*pubend, (*tick).min(self.streams.passed(*pubend)))).collect()
    }

    /// A written position does not refer to a base any more; an unused base is forgotten.
    pub(super) fn let_go_of_base(&mut self, number: BaseNo) {
        if self.store.bases.let_go(number) {
            self.store.write_queue.forget(|key| Key::PositionBase(number).put(key));
        }
    }

    /// Forgets positions of subscriptions that have ended, and unused bases.
    pub(super) fn forget_orphans(&mut self, entries: &AllPositions, numbers: &BTreeMap<DurableNo, u32>) {
        let is_over = |number: &&DurableNo| !numbers.contains_key(number);
        let heads = entries.heads.keys().filter(is_over).map(|number| Key::Position(*number));
        let parts = entries.parts.keys().filter(|(number, _)| is_over(&number)).map(|at| Key::Part(at.0, at.1));
        let unused = self.store.bases.drain_unused().into_iter().map(Key::PositionBase);
        for key in heads.chain(parts).chain(unused) {
            self.store.write_queue.forget(|bytes| key.put(bytes));
            self.store.write_queue.seal_large();
        }
    }
}

/// The head of a position as it was written, which takes a fraction of its memory.
#[derive(Debug)]
struct EncodedHead {
    base: BaseNo,
    /// Parsed once, and valid.
    bytes: Box<[u8]>,
}

/// All entries of positions, as read after a restart.
#[derive(Debug, Default)]
pub(super) struct AllPositions {
    heads: BTreeMap<DurableNo, EncodedHead>,
    pub(super) parts: BTreeMap<(DurableNo, HostId), PositionPart>,
    pub(super) bases: BTreeMap<BaseNo, PositionBase>,
}

impl AllPositions {
    /// The bases, if all are there that positions refer to; else the number of a position without
    /// its base.
    pub(super) fn take_bases(&mut self) -> Result<PositionBases, DurableNo> {
        let lacks = |head: &EncodedHead| head.base != BaseNo(0) && !self.bases.contains_key(&head.base);
        if let Some((number, _)) = self.heads.iter().find(|(_, head)| lacks(head)) {
            return Err(*number);
        }
        let bases = core::mem::take(&mut self.bases).into_iter();
        let of = bases.map(|(number, PositionBase(ticks))| (number, Referred { ticks, count: 0 }));
        Ok(PositionBases { of: of.collect(), ..PositionBases::default() })
    }

    /// Adds a head as it was written; `None` if it cannot be parsed.
    pub(super) fn add_head(&mut self, number: DurableNo, bytes: &[u8]) -> Option<()> {
        let PositionHead { base, .. } = PositionHead::read_versioned(bytes)?;
        self.heads.insert(number, EncodedHead { base, bytes: bytes.into() });
        Some(())
    }

    /// The head of a position, if it was written.
    pub(super) fn head(&self, number: DurableNo) -> Option<PositionHead> {
        let head = self.heads.get(&number)?;
        Some(PositionHead::read_versioned(&head.bytes).expect("it was read before"))
    }

    /// The position of a subscription, if it was written.
    pub(super) fn find(&self, number: DurableNo, bases: &PositionBases) -> Option<RestoredPosition> {
        let head = self.head(number)?;
        let hosts = (number, HostId::new(0))..=(number, HostId::new(u64::MAX));
        let parts = self.parts.range(hosts).map(|((_, host), part)| (*host, part.clone()));
        Some(RestoredPosition::new(&head, parts.collect(), bases.ticks(head.base)))
    }
}

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
        let acked = |own: usize| cursor.acknowledged.get(host.reliable(own as u8)).min(passed[own]);
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
            Some(own) if durable_position.acked[own] < id.tick => {
                durable_position.beyond.push((id.pubend.index(), id.tick))
            }
            None if durable_position.remote(id.pubend).is_some_and(|acked| acked < id.tick) => {
                durable_position.remote_beyond.push(id)
            }
            _ => {}
        }
    }
}
