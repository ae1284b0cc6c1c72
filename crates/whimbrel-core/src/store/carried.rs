//! The encoding of a session that goes to another broker. It gives streams their full names, so
//! that own and remote ones are alike; times are ages, as the clocks of two brokers differ.
//!
//! The encoding has two parts: one that seldom changes, and one that each acknowledgement changes.
//! A replica's copy is kept up to date by sending the second alone.

use core::time::Duration;

use whimbrel_event::{EventId, Packed, PredecessorsBuf, PubendId, Qos, Tick};

use super::among::LowWatermark;
use super::durable_position::{unzigzag, zigzag};
use super::wire::{ByteReader, duration, put_bytes, put_duration, put_varint};
use crate::cursor::{Gap, GapReason};
use crate::subscription::{CarriedSubscription, qos};

/// The version of the encoding.
const FORM: u8 = 3;

/// The oldest version that is read: it does not say whether a client may have published elsewhere.
const FORM_MIN: u8 = 2;

/// As [`FORM`], for a receiver that knows of the same streams.
const FORM_AMONG: u8 = 4;

/// Most entries of any list; the bytes that are there bound it as well.
const LIST_MAX: u64 = 1 << 20;

/// Most stream positions that a copy of a session leaves unnamed, over all its subscriptions:
/// reading the copy names them.
pub(crate) const NAMED_MAX: usize = 1 << 20;

/// The part of a session that seldom changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Structure<'a> {
    pub(crate) expiry: Duration,
    pub(crate) will: Option<CarriedWill<'a>>,
    pub(crate) subscriptions: Vec<CarriedSubscription<'a>>,
}

/// The will: published if the client does not come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CarriedWill<'a> {
    pub(crate) delay: Duration,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) retain: bool,
    /// The event, packed.
    pub(crate) event: &'a [u8],
}

/// The part of a session that each acknowledgement changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moving {
    /// For how long the client has been away; `None`: it is connected.
    pub(crate) away: Option<Duration>,
    /// The subscriptions' positions, in their order; empty for those without one.
    pub(crate) positions: Vec<CarriedPosition>,
    pub(crate) flights: Vec<CarriedFlight>,
    /// Gaps with a notice in flight, or acknowledged before something older (tag 0): tag, place of
    /// the subscription, gap.
    pub(crate) gaps: Vec<(u16, u32, Gap)>,
    /// Tags of exactly-once publishes that the client has not released, ascending.
    pub(crate) unreleased: Vec<u16>,
    /// The last tag that was used.
    pub(crate) last_tag: u16,
    /// The number of tags, from the next one on, that the client may use for unknown deliveries.
    pub(crate) stale_ids: u16,
    /// The number that the client gave to its last event.
    pub(crate) number: Option<u64>,
    /// The last reliable event that the client published, and its possible predecessors, latest
    /// first.
    pub(crate) lasts: PredecessorsBuf,
    /// The client may have used greater numbers, and published later, at a broker that could not be
    /// asked.
    pub(crate) maybe_repeats: bool,
}

/// The position of a subscription.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CarriedPosition {
    /// Per stream, ascending: after which tick its interest is logged there, if it is; and up to
    /// where it has acknowledged everything.
    pub(crate) streams: Vec<(PubendId, Option<Tick>, Tick)>,
    /// Acknowledged events beyond that.
    pub(crate) beyond: Vec<EventId>,
}

/// A delivery in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CarriedFlight {
    pub(crate) tag: u16,
    pub(crate) qos: Qos,
    /// The client has the event, and has to forget the tag.
    pub(crate) is_received: bool,
    /// The subscription's place and the event, if the delivery can be found again.
    pub(crate) of: Option<(u32, EventId)>,
}

fn put_maybe(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    put_varint(out, number.unwrap_or(0));
}

fn maybe(bytes: &mut ByteReader<'_>) -> Option<Option<u64>> {
    let is_some = flag(bytes)?;
    let number = bytes.varint()?;
    Some(is_some.then_some(number))
}

fn flag(bytes: &mut ByteReader<'_>) -> Option<bool> {
    match bytes.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

pub(super) fn list<'a, T>(
    bytes: &mut ByteReader<'a>,
    mut one: impl FnMut(&mut ByteReader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let count = bytes.varint().filter(|count| *count <= LIST_MAX)?;
    (0..count).map(|_| one(bytes)).collect()
}

fn put_id(out: &mut Vec<u8>, id: EventId) {
    put_varint(out, id.pubend.0);
    put_varint(out, id.tick.0);
}

fn id(bytes: &mut ByteReader<'_>) -> Option<EventId> {
    Some(EventId { pubend: PubendId(bytes.varint()?), tick: Tick(bytes.varint()?) })
}

impl<'a> Structure<'a> {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.push(FORM);
        put_duration(out, self.expiry);
        out.push(u8::from(self.will.is_some()));
        if let Some(will) = &self.will {
            put_duration(out, will.delay);
            out.push(u8::from(will.retain) | u8::from(will.lifetime.is_some()) << 1);
            put_duration(out, will.lifetime.unwrap_or_default());
            put_bytes(out, will.event);
        }
        put_varint(out, self.subscriptions.len() as u64);
        self.subscriptions.iter().for_each(|subscription| subscription.put(out));
    }

    /// Reads what [`Structure::put`] has written; `None` if it is not valid.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let bytes = &mut ByteReader(bytes);
        bytes.u8().filter(|form| (FORM_MIN..=FORM).contains(form))?;
        let expiry = duration(bytes)?;
        let will = if flag(bytes)? {
            let (delay, flags) = (duration(bytes)?, bytes.u8()?);
            let lifetime = Some(duration(bytes)?).filter(|_| flags & 2 != 0);
            Some(CarriedWill { delay, lifetime, retain: flags & 1 != 0, event: bytes.bytes()? })
        } else {
            None
        };
        let subscriptions = list(bytes, CarriedSubscription::read)?;
        bytes.end()?;
        Some(Structure { expiry, will, subscriptions })
    }
}

/// Writes an acknowledged tick relative to `before`, and after which tick the stream is logged, if
/// it is.
pub(super) fn put_tick(out: &mut Vec<u8>, (since, acked): (Option<Tick>, Tick), before: u64) {
    put_varint(out, zigzag(acked.0.wrapping_sub(before) as i64));
    // An interest may be logged only from beyond the acknowledged tick on.
    put_varint(out, since.map_or(0, |since| zigzag(acked.0.wrapping_sub(since.0) as i64).saturating_add(1)));
}

pub(super) fn tick(bytes: &mut ByteReader<'_>, before: u64) -> Option<(Option<Tick>, Tick)> {
    let acked = before.wrapping_add(unzigzag(bytes.varint()?) as u64);
    let away = bytes.varint()?.checked_sub(1);
    Some((away.map(|away| Tick(acked.wrapping_sub(unzigzag(away) as u64))), Tick(acked)))
}

impl CarriedPosition {
    /// Up to where everything of a stream is acknowledged, if the position has the stream.
    pub(crate) fn at(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.streams.binary_search_by_key(&pubend, |(known, ..)| *known).ok()?;
        Some(self.streams[at].2)
    }

    /// Compact, because streams of one broker mostly stand at nearly the same tick.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.streams.len() as u64);
        let (mut pubend, mut before) = (0_u64, 0_u64);
        for (stream, since, acked) in &self.streams {
            put_varint(out, stream.0.wrapping_sub(pubend));
            put_tick(out, (*since, *acked), before);
            (pubend, before) = (stream.0, acked.0);
        }
        put_varint(out, self.beyond.len() as u64);
        self.beyond.iter().for_each(|id| put_id(out, *id));
    }

    pub(super) fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let (mut pubend, mut before) = (0_u64, 0_u64);
        let streams = list(bytes, |bytes| {
            pubend = pubend.wrapping_add(bytes.varint()?);
            let (since, acked) = tick(bytes, before)?;
            before = acked.0;
            Some((PubendId(pubend), since, acked))
        })?;
        if !streams.is_sorted_by(|a, b| a.0 < b.0) {
            return None;
        }
        Some(CarriedPosition { streams, beyond: list(bytes, id)? })
    }
}

impl CarriedFlight {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.push(self.qos as u8 | u8::from(self.is_received) << 2 | u8::from(self.of.is_some()) << 3);
        if let Some((subscription, id)) = self.of {
            put_varint(out, subscription.into());
            put_id(out, id);
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let (tag, flags) = (bytes.u16().filter(|tag| *tag > 0)?, bytes.u8()?);
        let of = if flags & 8 != 0 { Some((bytes.small()?, id(bytes)?)) } else { None };
        Some(CarriedFlight { tag, qos: qos(flags & 3)?, is_received: flags & 4 != 0, of })
    }
}

impl Moving {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.put_as(out, FORM, |out, position, _| position.put(out));
    }

    /// As [`Moving::put`], for a receiver that knows of these streams alone. `watermark` gives, by
    /// a subscription's place, the tick at which, and since when, it stands in most streams;
    /// `is_silent` whether a stream at another tick may be given that tick as well.
    pub(crate) fn put_among(
        &self,
        out: &mut Vec<u8>,
        streams: &[PubendId],
        watermark: impl Fn(usize) -> Option<LowWatermark>,
        is_silent: impl Fn(usize, PubendId, Tick, Tick) -> bool,
    ) {
        self.put_as(out, FORM_AMONG, |out, position, at| {
            position.put_among(out, streams, watermark(at), |pubend, watermark, tick| {
                is_silent(at, pubend, watermark, tick)
            });
        });
    }

    fn put_as(&self, out: &mut Vec<u8>, form: u8, put_position: impl Fn(&mut Vec<u8>, &CarriedPosition, usize)) {
        out.push(form);
        put_maybe(out, self.away.map(|away| u64::try_from(away.as_millis()).unwrap_or(u64::MAX)));
        put_varint(out, self.positions.len() as u64);
        self.positions.iter().enumerate().for_each(|(at, position)| put_position(out, position, at));
        put_varint(out, self.flights.len() as u64);
        self.flights.iter().for_each(|flight| flight.put(out));
        put_varint(out, self.gaps.len() as u64);
        for (tag, ordinal, Gap { pubend, from, to, reason }) in &self.gaps {
            out.extend_from_slice(&tag.to_le_bytes());
            put_varint(out, (*ordinal).into());
            put_id(out, EventId { pubend: *pubend, tick: *from });
            put_varint(out, to.0);
            // Earlier versions know no reason for best effort; others derive it from the stream.
            let known = if *reason == GapReason::BestEffort { GapReason::NotBuffered } else { *reason };
            out.push(known.index() as u8);
        }
        put_varint(out, self.unreleased.len() as u64);
        self.unreleased.iter().for_each(|tag| out.extend_from_slice(&tag.to_le_bytes()));
        out.extend_from_slice(&self.last_tag.to_le_bytes());
        out.extend_from_slice(&self.stale_ids.to_le_bytes());
        put_maybe(out, self.number);
        put_varint(out, self.lasts.iter().count() as u64);
        self.lasts.iter().for_each(|id| put_id(out, id));
        out.push(u8::from(self.maybe_repeats));
    }

    /// Reads what [`Moving::put`] has written; `None` if it is not valid.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let form = bytes.first().filter(|form| (FORM_MIN..=FORM).contains(form))?;
        Moving::read_as(bytes, *form, CarriedPosition::read)
    }

    /// Reads what [`Moving::put_among`] has written, for the same streams; `None` if it is not
    /// valid.
    pub(crate) fn read_among(bytes: &[u8], streams: &[PubendId]) -> Option<Self> {
        bytes.first().filter(|form| **form == FORM_AMONG)?;
        let mut left = NAMED_MAX;
        Moving::read_as(bytes, FORM_AMONG, |bytes| {
            left = left.checked_sub(streams.len())?;
            CarriedPosition::read_among(bytes, streams)
        })
    }

    fn read_as(
        bytes: &[u8],
        form: u8,
        position: impl FnMut(&mut ByteReader<'_>) -> Option<CarriedPosition>,
    ) -> Option<Self> {
        let bytes = &mut ByteReader(&bytes[1..]);
        let away = maybe(bytes)?.map(Duration::from_millis);
        let (positions, flights) = (list(bytes, position)?, list(bytes, CarriedFlight::read)?);
        let gap = |bytes: &mut ByteReader<'_>| {
            let tag = bytes.u16()?;
            let (ordinal, EventId { pubend, tick: from }) = (bytes.small()?, id(bytes)?);
            let (to, reason) = (Tick(bytes.varint()?), *GapReason::ALL.get(usize::from(bytes.u8()?))?);
            Some((tag, ordinal, Gap { pubend, from, to, reason: reason.in_stream(pubend) }))
        };
        let gaps = list(bytes, gap)?;
        let (unreleased, last_tag, stale_ids) = (list(bytes, ByteReader::u16)?, bytes.u16()?, bytes.u16()?);
        let number = maybe(bytes)?;
        // Earlier versions wrote at most one.
        let lasts = list(bytes, id)?.into_iter().collect();
        let maybe_repeats = if form < FORM { true } else { flag(bytes)? };
        bytes.end()?;
        Some(Moving { away, positions, flights, gaps, unreleased, last_tag, stale_ids, number, lasts, maybe_repeats })
    }
}

/// The part of a session that seldom changes, without a will that not every broker may carry;
/// `None` if it has none, or cannot be read.
pub(crate) fn without_labelled_will(structure: &[u8]) -> Option<Vec<u8>> {
    let mut read = Structure::read(structure)?;
    let event = Packed::read(read.will.as_ref()?.event)?;
    if event.domains().is_any() {
        return None;
    }
    read.will = None;
    let mut out = Vec::with_capacity(structure.len());
    read.put(&mut out);
    Some(out)
}

/// Joins both parts.
pub(crate) fn join(structure: &[u8], moving: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(structure.len() + moving.len() + 4);
    put_bytes(&mut whole, structure);
    whole.extend_from_slice(moving);
    whole
}

/// The parts that [`join`] has joined; `None` if not valid.
pub(crate) fn split(whole: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut bytes = ByteReader(whole);
    let structure = bytes.bytes()?;
    Some((structure, bytes.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::SubscriptionSpec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_session_survives_the_way(
            text in "[a-z/+#]{1,12}", selector in proptest::option::of("[a-z =]{0,9}"), flags: [bool; 7], identifier: u32,
            ticks in proptest::collection::btree_map(any::<u64>(), (any::<u64>(), proptest::option::of(any::<u32>())), 0..8),
            tags in proptest::collection::btree_set(1_u16.., 0..8), millis in 0_u64..1 << 40, watermark in 0_u8..3,
            event in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let streams: Vec<_> = ticks.iter().map(|(pubend, (tick, away))| {
                (PubendId(*pubend), away.map(|away| Tick(tick.wrapping_add(1 << 31).saturating_sub(away.into()))), Tick(*tick))
            }).collect();
            let upto: Vec<_> = streams.iter().map(|(pubend, _, acked)| (*pubend, *acked)).collect();
            let beyond: Vec<_> = upto.iter().map(|(pubend, tick)| EventId { pubend: *pubend, tick: *tick }).collect();
            let spec = SubscriptionSpec { identifier, ..SubscriptionSpec::new(qos(watermark).unwrap()) };
            let selector = selector.as_deref();
            let subscription = CarriedSubscription { text: &text, spec, reads: flags[6], selector, old: vec![(selector, upto)] };
            let expiry = Duration::from_millis(millis);
            let will = CarriedWill { delay: expiry, lifetime: flags[4].then_some(expiry), retain: flags[5], event: &event };
            let structure = Structure { expiry, will: flags[0].then_some(will), subscriptions: vec![subscription.clone(), subscription] };
            let last = beyond.first().copied();
            let lasts = beyond.iter().copied().collect();
            let flights = tags.iter().map(|tag| CarriedFlight {
                tag: *tag, qos: qos(watermark).unwrap(), is_received: flags[1], of: last.map(|id| (identifier, id)),
            });
            let gaps = streams.iter().map(|(pubend, _, from)| {
                (u16::from(flags[5]), identifier, Gap { pubend: *pubend, from: *from, to: Tick(from.0.saturating_add(millis)), reason: GapReason::Lost.in_stream(*pubend) })
            });
            let gaps = gaps.collect::<Vec<_>>().into_iter();
            let moving = Moving {
                away: flags[2].then_some(expiry), positions: vec![CarriedPosition { streams, beyond }, CarriedPosition::default()],
                flights: flights.collect(), gaps: gaps.collect(), unreleased: tags.into_iter().collect(), last_tag: 7, stale_ids: 9, number: flags[3].then_some(millis), lasts,
                maybe_repeats: flags[4],
            };
            let (mut first, mut second) = (Vec::new(), Vec::new());
            structure.put(&mut first);
            moving.put(&mut second);
            let whole = join(&first, &second);
            let (first, second) = split(&whole).unwrap();
            prop_assert_eq!(Structure::read(first), Some(structure));
            prop_assert_eq!(Moving::read(second), Some(moving));
            for end in 0..second.len() {
                prop_assert_eq!(Moving::read(&second[..end]), None);
            }
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes = [&[FORM], &bytes[..]].concat();
            let _ = (Structure::read(&bytes), Moving::read(&bytes), split(&bytes));
        }
    }
}
