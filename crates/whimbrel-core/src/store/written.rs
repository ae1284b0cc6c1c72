//! A position as it is written: only changed parts, and only differences from a position base.
//!
//! One entry, the head, has the own streams and refers to a base. Each other broker in whose
//! streams the subscription differs from the base has an entry of its own, its *part*. In all other
//! streams the written position is that of the base. It may lie before the real position, but never
//! before anything that the subscription was given or told, up to where it is *marked*. So all that
//! it reads again after a restart is silence.

use std::collections::BTreeMap;

use whimbrel_event::{EventId, HOST_RELIABLE_MAX, HostId, PubendId, Tick};

use super::durable_position::{unzigzag, zigzag};
use super::keys::{BaseNo, DurableNo, Key};
use super::own_ticks::reliable_index;
use super::position::{PositionBases, tick_of};
use super::position_head::PositionHead;
use super::wire::{ByteReader, MapValue, put_varint};
use super::{DurablePosition, RemotePosition};
use crate::broker::Broker;
use crate::cursor::{Common, Cursor, Positions};
use crate::stream::low_watermark_of;

/// A position changes to a base only if at most this many of the base's brokers have logs on which
/// it does not count.
const LACKS_MAX: usize = 16;

/// A position without a base, which has just begun, takes one only if such brokers are at most one
/// in this many of those on whose logs it counts.
const LACKS_PART: usize = 8;

/// A position's entry for the streams of one other broker, by their indices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PositionPart {
    /// After which tick the log counts, and up to where everything is acknowledged; ascending.
    streams: Box<[(u8, Tick, Tick)]>,
    /// Acknowledged events beyond that, ascending.
    beyond: Box<[(u8, Tick)]>,
}

impl PositionPart {
    pub(crate) fn new(streams: Box<[(u8, Tick, Tick)]>, beyond: Box<[(u8, Tick)]>) -> PositionPart {
        PositionPart { streams, beyond }
    }

    fn streams(&self, host: HostId) -> impl Iterator<Item = RemotePosition> {
        let position = move |(index, since, acked): &(u8, Tick, Tick)| RemotePosition {
            pubend: host.pubend(*index),
            since: *since,
            acked: *acked,
        };
        self.streams.iter().map(position)
    }

    fn beyond(&self, host: HostId) -> impl Iterator<Item = EventId> {
        self.beyond.iter().map(move |(index, tick)| EventId { pubend: host.pubend(*index), tick: *tick })
    }
}

impl MapValue<'_> for PositionPart {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.streams.len() as u64);
        let mut before = 0_u64;
        let mut put = |out: &mut Vec<u8>, tick: Tick| {
            put_varint(out, zigzag(tick.0.wrapping_sub(before) as i64));
            before = tick.0;
        };
        for (index, since, acked) in &self.streams {
            out.push(*index);
            put(out, *since);
            put(out, *acked);
        }
        put_varint(out, self.beyond.len() as u64);
        for (index, tick) in &self.beyond {
            out.push(*index);
            put(out, *tick);
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let mut before = 0_u64;
        let mut tick = |bytes: &mut ByteReader<'_>| {
            before = before.wrapping_add(unzigzag(bytes.varint()?) as u64);
            Some(Tick(before))
        };
        let count = bytes.varint().filter(|count| *count <= u64::from(HOST_RELIABLE_MAX))?;
        let streams = (0..count).map(|_| Some((reliable_index(bytes)?, tick(bytes)?, tick(bytes)?)));
        let streams = streams.collect::<Option<Box<[_]>>>()?;
        // Without a bound: none exists for acknowledgements beyond a notice that is not answered.
        let beyond =
            (0..bytes.varint()?).map(|_| Some((reliable_index(bytes)?, tick(bytes)?))).collect::<Option<_>>()?;
        streams.is_sorted_by(|a, b| a.0 < b.0).then_some(PositionPart { streams, beyond })
    }
}

/// The written part of a subscription's position in other brokers' streams.
#[derive(Debug, Default)]
pub(crate) struct WrittenPosition {
    /// The base that the position refers to.
    pub(crate) base: BaseNo,
    watermark: Tick,
    parts: BTreeMap<HostId, PositionPart>,
    /// Up to where the subscription was given something of a stream, or told of a gap: the written
    /// position is never behind that. Without streams in which the base is as far.
    marks: Positions,
}

impl WrittenPosition {
    /// Nothing is written.
    pub(crate) const fn new() -> Self {
        WrittenPosition { base: BaseNo(0), watermark: Tick(0), parts: BTreeMap::new(), marks: Positions::new() }
    }

    /// The subscription has had everything of a stream up to `tick`, or was told of what it misses.
    pub(crate) fn mark(&mut self, pubend: PubendId, tick: Tick) {
        self.marks.advance(pubend, tick);
    }

    /// From now on the log of a stream counts, behind `since`; the subscription has had everything
    /// up to `had`. While it refers to no base, all differences are written anyway, and one tick is
    /// enough for all streams.
    pub(crate) fn count(&mut self, pubend: PubendId, since: Tick, had: Tick) {
        match self.base {
            BaseNo(0) => self.watermark = self.watermark.max(since).max(had),
            _ => self.mark(pubend, had),
        }
    }

    /// Up to where the subscription may have been given something of a stream.
    pub(crate) fn given(&self, pubend: PubendId, bases: &PositionBases) -> Tick {
        let of_base = tick_of(bases.ticks(self.base), pubend).unwrap_or_default();
        self.marks.get(pubend).max(of_base).max(self.watermark)
    }

    /// The keys of the parts.
    pub(crate) fn keys(&self, number: DurableNo) -> impl Iterator<Item = Key<'_>> {
        self.parts.keys().map(move |host| Key::Part(number, *host))
    }

    /// The number of parts, and their bytes in memory.
    pub(crate) fn size(&self) -> (usize, usize) {
        let entry = size_of::<(HostId, PositionPart)>();
        let of_part = |part: &PositionPart| size_of_val(&*part.streams) + size_of_val(&*part.beyond) + entry;
        (self.parts.len(), self.parts.values().map(of_part).sum())
    }

    /// Shares storage with the previous subscription's marks where they are equal.
    pub(crate) fn share_with(&mut self, last: &mut Common) {
        self.marks.share_with(last);
    }

    /// Up to where the subscription was given something, by stream.
    pub(crate) fn marks(&self) -> &Positions {
        &self.marks
    }
}

/// A position as read after a restart.
#[derive(Debug, Default)]
pub(crate) struct RestoredPosition {
    pub(crate) durable: DurablePosition,
    pub(crate) written: WrittenPosition,
    /// Digest of the head as written.
    pub(crate) digest: u64,
}

impl RestoredPosition {
    /// Assembles the position; `base`: the ticks of the base that it refers to.
    pub(crate) fn new(head: &PositionHead, parts: BTreeMap<HostId, PositionPart>, base: &[(PubendId, Tick)]) -> Self {
        let is_apart = |host: HostId| parts.contains_key(&host);
        let lacks = |host: HostId| head.lacks.binary_search(&host).is_ok();
        let of_base = base.iter().filter(|(pubend, _)| !is_apart(pubend.host()) && !lacks(pubend.host()));
        let as_base = |(pubend, tick): &(PubendId, Tick)| {
            let (since, acked) = (head.watermark, (*tick).max(head.watermark));
            RemotePosition { pubend: *pubend, since, acked }
        };
        let former = head.remote.iter().filter(|remote| !is_apart(remote.pubend.host())).copied();
        let apart: Vec<_> = former.chain(parts.iter().flat_map(|(host, part)| part.streams(*host))).collect();
        let mut marks: Positions = apart.iter().map(|remote| (remote.pubend, remote.acked)).collect();
        let beyond = head.remote_beyond.iter().filter(|id| !is_apart(id.pubend.host())).copied();
        let beyond = beyond.chain(parts.iter().flat_map(|(host, part)| part.beyond(*host)));
        let mut remote_beyond: Vec<EventId> = beyond.collect();
        remote_beyond.iter().for_each(|id| marks.advance(id.pubend, id.tick));
        let mut remote: Vec<RemotePosition> = of_base.map(as_base).chain(apart.iter().copied()).collect();
        remote.sort_unstable_by_key(|remote| remote.pubend);
        remote_beyond.sort_unstable();
        let durable = DurablePosition { acked: head.acked, beyond: head.beyond.clone(), remote, remote_beyond };
        let watermark = apart.iter().map(|remote| remote.since).fold(head.watermark, Tick::max);
        let watermark = if head.base == BaseNo(0) { watermark } else { head.watermark };
        // An entry of an earlier version is written anew.
        let digest = if head.remote.is_empty() { head.digest() } else { 0 };
        RestoredPosition { durable, written: WrittenPosition { base: head.base, watermark, parts, marks }, digest }
    }
}

/// The difference between a position and what is written of it.
#[derive(Debug, Default)]
pub(crate) struct PositionChange {
    head: PositionHead,
    digest: u64,
    parts: Vec<(HostId, PositionPart)>,
    /// Brokers whose parts are not needed any more.
    gone: Vec<HostId>,
}

/// A position under one base.
struct UnderBase<'a> {
    base: &'a [(PubendId, Tick)],
    number: BaseNo,
    watermark: Tick,
    /// Brokers for which the position needs parts, ascending.
    parts: Vec<HostId>,
    lacks: Vec<HostId>,
}

impl UnderBase<'_> {
    fn cost(&self) -> usize {
        self.parts.len() + self.lacks.len()
    }
}

/// A position in the streams of one other broker.
struct OfHost<'a> {
    host: HostId,
    streams: &'a [RemotePosition],
    beyond: &'a [EventId],
}

fn by_host(position: &DurablePosition) -> impl Iterator<Item = OfHost<'_>> {
    position.remote.chunk_by(|a, b| a.pubend.host() == b.pubend.host()).map(|streams| {
        let host = streams[0].pubend.host();
        let first = position.remote_beyond.partition_point(|id| id.pubend < host.pubend(0));
        let count = position.remote_beyond[first..].iter().take_while(|id| id.pubend.host() == host).count();
        OfHost { host, streams, beyond: &position.remote_beyond[first..first + count] }
    })
}

impl OfHost<'_> {
    /// Whether all streams may be written as at the base, and none is before `watermark`.
    fn fits(&self, base: &[(PubendId, Tick)], watermark: Tick, marks: &Positions) -> bool {
        let first = base.partition_point(|(pubend, _)| *pubend < self.host.pubend(0));
        let of_base = base[first..].iter().take_while(|(pubend, _)| pubend.host() == self.host);
        let fits = |remote: &RemotePosition, (pubend, tick): &(PubendId, Tick)| {
            let at = watermark.max(*tick);
            remote.pubend == *pubend && remote.since <= watermark && at <= remote.acked && marks.get(*pubend) <= at
        };
        self.beyond.is_empty()
            && of_base.clone().count() == self.streams.len()
            && self.streams.iter().zip(of_base).all(|(remote, known)| fits(remote, known))
    }

    /// Whether the written part still holds: behind `least` only where the subscription is.
    fn is_told_by(&self, part: &PositionPart, least: impl Fn(PubendId) -> Tick, marks: &Positions) -> bool {
        let tells = |(remote, known): (&RemotePosition, RemotePosition)| {
            let is_near = known.acked <= remote.acked
                && known.acked >= remote.acked.min(least(remote.pubend))
                && marks.get(remote.pubend) <= known.acked;
            remote.pubend == known.pubend
                && (is_near || known.acked == remote.acked)
                && (known.since <= remote.since || known.since <= known.acked)
        };
        part.streams.len() == self.streams.len()
            && self.streams.iter().zip(part.streams(self.host)).all(tells)
            && part.beyond(self.host).eq(self.beyond.iter().copied())
    }

    /// Its part, as it is written.
    fn part(&self) -> PositionPart {
        let streams = self.streams.iter().map(|remote| (remote.pubend.index(), remote.since, remote.acked));
        PositionPart::new(streams.collect(), self.beyond.iter().map(|id| (id.pubend.index(), id.tick)).collect())
    }
}

impl Broker {
    /// The writes that make the written position `position`.
    pub(super) fn change_of(&self, id: u32, position: &DurablePosition) -> PositionChange {
        let cursor = self.cursors.get(id);
        let durable = cursor.durable.as_deref().expect("a durable subscription");
        let counted = position.counted(&durable.remote);
        let (position, written) = (&*counted, &durable.remote.written);
        let marks = if fault!(self, Unmarked) { &Positions::new() } else { &written.marks };
        let left_at = self.left_at(cursor, position);
        let under = self.base_for(cursor, position, marks, left_at);
        let (mut parts, mut gone) = (Vec::new(), Vec::new());
        let current = self.store.bases.ticks(self.store.bases.current());
        // A subscription in catch-up need not be as far as the last base is.
        let newest = if cursor.catch_up.is_none() && !cursor.by_token { current } else { under.base };
        let former = self.store.bases.ticks(written.base);
        let watermark = left_at.unwrap_or_default().max(written.watermark);
        let mut apart = under.parts.iter().peekable();
        for of in by_host(position).filter(|of| apart.next_if_eq(&&of.host).is_some()) {
            let has_ended = self.streams.has_ended(of.host);
            // Nor behind the base that it leaves, or its watermark: up to there nothing is marked.
            let of_bases = |pubend| tick_of(newest, pubend).max(tick_of(former, pubend));
            let least = |pubend| of_bases(pubend).unwrap_or_default().max(watermark);
            let least = |pubend| if has_ended { Tick(u64::MAX) } else { least(pubend) };
            if !written.parts.get(&of.host).is_some_and(|part| of.is_told_by(part, least, marks)) {
                parts.push((of.host, of.part()));
            }
        }
        gone.extend(written.parts.keys().filter(|host| under.parts.binary_search(host).is_err()));
        let UnderBase { number: base, watermark, lacks, .. } = under;
        let (acked, beyond) = (position.acked, position.beyond.clone());
        let head = PositionHead { acked, beyond, base, watermark, lacks, ..PositionHead::default() };
        PositionChange { digest: head.digest(), head, parts, gone }
    }

    /// The base under which a position takes least: the last one, if allowed; its own; or none.
    fn base_for(&self, cursor: &Cursor, at: &DurablePosition, marks: &Positions, left: Option<Tick>) -> UnderBase<'_> {
        let durable = cursor.durable.as_deref().expect("a durable subscription");
        let bases = &self.store.bases;
        let (current, own) = (bases.current(), durable.remote.written.base);
        // Never backwards: the marks before the watermark were dropped.
        let watermark = durable.remote.since.common_tick().unwrap_or_default().max(durable.remote.written.watermark);
        let watermark = watermark.max(left.unwrap_or_default());
        let none = self.under(BaseNo(0), Tick(0), at, marks);
        if at.remote.is_empty() {
            return none;
        }
        let mut last = self.under(current, watermark, at, marks);
        if current != own {
            // Brokers that are new in this base count from a later tick on.
            let is_told = |of: &&RemotePosition| tick_of(last.base, of.pubend).is_some_and(|tick| of.since <= tick);
            let raised = at.remote.iter().filter(is_told).map(|of| of.since).fold(watermark, Tick::max);
            let raised = self.under(current, raised, at, marks);
            if raised.cost() < last.cost() {
                last = raised;
            }
        }
        let may_change = match own {
            BaseNo(0) => last.lacks.len() * LACKS_PART <= none.parts.len(),
            _ => last.lacks.len() <= LACKS_MAX,
        };
        let last = Some(last).filter(|_| current != BaseNo(0) && may_change);
        // A cursor in catch-up, or with its position at the client, may stay so for long.
        let may_stay = own != BaseNo(0) && own != current && (cursor.catch_up.is_some() || cursor.by_token);
        let other = if may_stay { self.under(own, watermark, at, marks) } else { none };
        let best = match last {
            Some(last) if last.cost() < other.cost() || may_stay && last.cost() == other.cost() => last,
            _ => other,
        };
        // At a watermark beyond its base, the first base serves as well; those between can go.
        let is_beyond = || bases.ticks(own).iter().all(|(_, tick)| *tick <= watermark);
        if left.is_none() || best.number == BaseNo(0) || !is_beyond() {
            return best;
        }
        let first = self.under(bases.first(), watermark, at, marks);
        if first.number != BaseNo(0) && first.cost() <= best.cost() { first } else { best }
    }

    /// The low watermark of a subscription whose client has left, if logs that it has passed may be
    /// given up: it must not be told a gap there, also not after a restart.
    fn left_at(&self, cursor: &Cursor, position: &DurablePosition) -> Option<Tick> {
        let is_gone = !cursor.by_token && cursor.catch_up.is_some() && !self.sessions.is_attached(cursor.session);
        let is_given_up = self.sessions.limits.max_retain.is_some();
        (is_gone && is_given_up).then(|| low_watermark_of(position.remote.iter().map(|remote| remote.acked)))
    }

    /// The parts and lacks that a position has under a base.
    fn under(&self, number: BaseNo, watermark: Tick, position: &DurablePosition, marks: &Positions) -> UnderBase<'_> {
        let base = self.store.bases.ticks(number);
        let apart = by_host(position).filter(|of| self.streams.has_ended(of.host) || !of.fits(base, watermark, marks));
        let parts: Vec<HostId> = apart.map(|of| of.host).collect();
        let mut lacks: Vec<HostId> = base.iter().map(|(pubend, _)| pubend.host()).collect();
        lacks.dedup();
        let counts = |host: &HostId| position.remote.binary_search_by_key(&host.pubend(0), |at| at.pubend).is_ok();
        lacks.retain(|host| !counts(host));
        UnderBase { base, number, watermark, parts, lacks }
    }

    /// Whether anything of `position` is still to be written.
    pub(super) fn is_unwritten(&self, id: u32, position: &DurablePosition) -> bool {
        let PositionChange { digest, parts, gone, .. } = self.change_of(id, position);
        let durable = self.cursors.durable(id).expect("a durable subscription");
        digest != durable.written || !parts.is_empty() || !gone.is_empty()
    }

    /// Writes changed parts, then the head, which refers to a base; then forgets the rest.
    pub(super) fn write_changed(&mut self, id: u32, position: &DurablePosition) {
        let PositionChange { head, digest, parts, gone } = self.change_of(id, position);
        let Broker { store, cursors, .. } = self;
        let durable = cursors.durable_mut(id).expect("a durable subscription");
        let number = durable.number;
        for (host, part) in parts {
            store.write_queue.put(|key| Key::Part(number, host).put(key), |value| part.put_versioned(value));
            store.write_queue.seal_large();
            durable.remote.written.parts.insert(host, part);
        }
        if digest != core::mem::replace(&mut durable.written, digest) {
            store.write_queue.put(|key| Key::Position(number).put(key), |value| head.put_versioned(value));
            if durable.remote.written.watermark < head.watermark {
                durable.remote.written.watermark = head.watermark;
            }
        }
        for host in gone {
            store.write_queue.forget(|key| Key::Part(number, host).put(key));
            durable.remote.written.parts.remove(&host);
        }
        if head.base != durable.remote.written.base {
            self.change_base(id, &head);
        }
    }

    /// Changes the base of a position; streams in which the new base is behind stay marked.
    fn change_base(&mut self, id: u32, head: &PositionHead) {
        let Broker { store, cursors, .. } = self;
        let written = &mut cursors.durable_mut(id).expect("a durable subscription").remote.written;
        let (before, former_watermark) = (core::mem::replace(&mut written.base, head.base), written.watermark);
        written.watermark = former_watermark.max(head.watermark);
        let (base, former) = (store.bases.ticks(head.base), store.bases.ticks(before));
        let WrittenPosition { marks, watermark, .. } = written;
        let is_behind = |pubend, mark: Tick| tick_of(base, pubend).is_none_or(|tick| tick.max(*watermark) < mark);
        for (pubend, tick) in former.iter().filter(|(pubend, tick)| is_behind(*pubend, former_watermark.max(*tick))) {
            marks.advance(*pubend, former_watermark.max(*tick));
        }
        let left: Vec<_> = marks.iter().filter(|(pubend, mark)| is_behind(*pubend, *mark)).collect();
        *marks = left.into_iter().collect();
        store.bases.refer(head.base);
        self.let_go_of_base(before);
    }

    /// Forgets all entries of a position.
    pub(crate) fn forget_position(&mut self, number: DurableNo, written: &WrittenPosition) {
        self.store.write_queue.forget(|key| Key::Position(number).put(key));
        written.keys(number).for_each(|key| self.store.write_queue.forget(|bytes| key.put(bytes)));
        self.let_go_of_base(written.base);
    }
}
