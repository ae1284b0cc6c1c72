//! The encoding of a position for a broker that knows of the same streams: at one tick in most of
//! them, so that only the others are named.
//!
//! Otherwise a copy of a session would name all streams of all brokers with each acknowledgement,
//! and its replica would store them. The cursor has passed the tick in all streams, and there was
//! no event for it since ([`Broker::is_silent_between`]): a broker that resumes from the copy reads
//! silence at most.
//!
//! [`Broker::is_silent_between`]: crate::broker::Broker

use whimbrel_event::{PubendId, Reliability, Tick};

use super::carried::{CarriedPosition, list, put_tick, tick};
use super::durable_position::{unzigzag, zigzag};
use super::wire::{ByteReader, put_varint};

/// The tick at which a subscription stands in most streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LowWatermark {
    /// Up to where everything is acknowledged.
    pub(crate) at: Tick,
    /// After which tick reliable streams are logged for it; none if they are not.
    pub(crate) since: Option<Tick>,
}

/// Flags of a watermark: there is one; the interest is in no log; the position has no best-effort
/// streams, which have begun since.
const HAS_WATERMARK: u8 = 1;
const NOT_LOGGED: u8 = 2;
const LACKS_BEST_EFFORT: u8 = 4;

impl LowWatermark {
    /// The entry of [`CarriedPosition`] for a stream that stands there, if it has one.
    fn of(self, pubend: PubendId, flags: u8) -> Option<(Option<Tick>, Tick)> {
        match pubend.reliability() {
            Reliability::Reliable => Some((self.since, self.at)),
            Reliability::BestEffort => (flags & LACKS_BEST_EFFORT == 0).then_some((None, self.at)),
        }
    }
}

/// A stream that differs: its place among all streams, and its entry, if any.
type Apart = (usize, Option<(Option<Tick>, Tick)>);

impl CarriedPosition {
    pub(super) fn put_among(
        &self,
        out: &mut Vec<u8>,
        streams: &[PubendId],
        watermark: Option<LowWatermark>,
        is_silent: impl Fn(PubendId, Tick, Tick) -> bool,
    ) {
        let Some(watermark) = watermark else {
            out.push(0);
            return self.put(out);
        };
        let flags = self.flags(watermark, streams);
        out.push(flags);
        let mut positions = self.streams.iter().copied().peekable();
        let (mut apart, mut others): (Vec<Apart>, Vec<_>) = (Vec::new(), Vec::new());
        for (place, pubend) in streams.iter().enumerate() {
            while let Some(other) = positions.next_if(|(known, ..)| known < pubend) {
                others.push(other);
            }
            let of_stream = positions.next_if(|(known, ..)| known == pubend).map(|(_, since, at)| (since, at));
            let is_there = match (watermark.of(*pubend, flags), of_stream) {
                (Some((since, at)), Some((known, tick))) => {
                    known == since && (tick == at || tick > at && is_silent(*pubend, at, tick))
                }
                (known, of_stream) => known == of_stream,
            };
            if !is_there {
                apart.push((place, of_stream));
            }
        }
        others.extend(positions);
        put_varint(out, watermark.at.0);
        if let Some(since) = watermark.since {
            put_varint(out, zigzag(watermark.at.0.wrapping_sub(since.0) as i64));
        }
        put_varint(out, apart.len() as u64);
        let mut before = 0;
        for (place, of_stream) in apart {
            // The lowest bit tells whether the position has the stream.
            put_varint(out, ((place - before) as u64) << 1 | u64::from(of_stream.is_some()));
            if let Some(of_stream) = of_stream {
                put_tick(out, of_stream, watermark.at.0);
            }
            before = place;
        }
        CarriedPosition { streams: others, beyond: self.beyond.clone() }.put(out);
    }

    /// Flags of a watermark, with whether most best-effort streams have no position.
    fn flags(&self, watermark: LowWatermark, streams: &[PubendId]) -> u8 {
        let best_effort = |pubend: &PubendId| pubend.reliability() == Reliability::BestEffort;
        let positions = self.streams.iter().filter(|(pubend, ..)| best_effort(pubend)).count();
        let is_lacking = positions * 2 < streams.iter().filter(|pubend| best_effort(pubend)).count();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        HAS_WATERMARK | flag(watermark.since.is_none(), NOT_LOGGED) | flag(is_lacking, LACKS_BEST_EFFORT)
    }

    pub(super) fn read_among(bytes: &mut ByteReader<'_>, streams: &[PubendId]) -> Option<Self> {
        let flags = bytes.u8()?;
        if flags == 0 {
            return CarriedPosition::read(bytes);
        }
        if flags & HAS_WATERMARK == 0 || flags > HAS_WATERMARK | NOT_LOGGED | LACKS_BEST_EFFORT {
            return None;
        }
        let at = bytes.varint()?;
        let since = match flags & NOT_LOGGED {
            0 => Some(Tick(at.wrapping_sub(unzigzag(bytes.varint()?) as u64))),
            _ => None,
        };
        let watermark = LowWatermark { at: Tick(at), since };
        let mut place = 0_usize;
        let apart = list(bytes, |bytes| {
            let coded = bytes.varint()?;
            place = place.checked_add(usize::try_from(coded >> 1).ok()?).filter(|place| *place < streams.len())?;
            let of_stream = if coded & 1 == 1 { Some(tick(bytes, at)?) } else { None };
            Some((place, of_stream))
        })?;
        let others = CarriedPosition::read(bytes)?;
        let mut apart = apart.into_iter().peekable();
        let mut all = others.streams;
        for (place, pubend) in streams.iter().enumerate() {
            let of_stream = match apart.next_if(|(known, _)| *known == place) {
                Some((_, of_stream)) => of_stream,
                None => watermark.of(*pubend, flags),
            };
            all.extend(of_stream.map(|(since, at)| (*pubend, since, at)));
        }
        all.sort_unstable_by_key(|(pubend, ..)| *pubend);
        // Each stream at most once, and no place left over.
        let is_sound = apart.next().is_none() && all.is_sorted_by(|a, b| a.0 < b.0);
        is_sound.then_some(CarriedPosition { streams: all, beyond: others.beyond })
    }
}

#[cfg(test)]
mod tests {
    use super::super::carried::Moving;
    use super::*;
    use proptest::prelude::*;
    use whimbrel_event::{EventId, HostId};

    fn pubend(at: u8) -> PubendId {
        HostId::new((u64::from(at / 8) + 1) << 8).pubend(at % 8)
    }

    proptest! {
        #[test]
        fn what_is_told_of_streams_that_both_know_is_where_it_stands_or_before_in_silence(
            known in proptest::collection::btree_set(0_u8..60, 0..40),
            positions in proptest::collection::btree_map(0_u8..60, (proptest::option::of(0_u64..4), 0_u64..6), 0..40),
            (at, since) in (0_u64..4, proptest::option::of(0_u64..4)), silent in any::<[bool; 60]>(),
            has_level in any::<bool>(),
        ) {
            let streams: Vec<PubendId> = known.iter().map(|at| pubend(*at)).collect();
            let all = positions.iter().map(|(at, (since, acked))| (pubend(*at), since.map(|since| Tick(1_000 + since)), Tick(1_000 + acked)));
            let beyond = vec![EventId { pubend: pubend(3), tick: Tick(2_000) }];
            let position = CarriedPosition { streams: all.collect(), beyond };
            let since = since.map(|since| Tick(1_000 + since));
            let watermark = has_level.then_some(LowWatermark { at: Tick(1_000 + at), since });
            let is_silent = |known: PubendId| (0..60).any(|at| pubend(at) == known && silent[usize::from(at)]);
            let moving = Moving { positions: vec![position.clone(), CarriedPosition::default()], ..Moving::default() };
            let mut bytes = Vec::new();
            moving.put_among(&mut bytes, &streams, |at| watermark.filter(|_| at == 0), |_, pubend, _, _| is_silent(pubend));
            prop_assert_eq!(Moving::read(&bytes), None);
            let read = Moving::read_among(&bytes, &streams).unwrap();
            prop_assert_eq!(&read.positions[1], &CarriedPosition::default());
            let read = &read.positions[0];
            prop_assert_eq!(&read.beyond, &position.beyond);
            prop_assert_eq!(read.streams.len(), position.streams.len());
            for ((pubend, since, acked), told) in position.streams.iter().zip(&read.streams) {
                let is_lower = watermark.is_some_and(|watermark| watermark.at < *acked && told.2 == watermark.at && is_silent(*pubend));
                prop_assert_eq!((*pubend, *since), (told.0, told.1));
                prop_assert!(told.2 == *acked || is_lower);
            }
            for end in 0..bytes.len() {
                prop_assert_eq!(Moving::read_among(&bytes[..end], &streams), None);
            }
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let streams: Vec<PubendId> = (0..20).map(pubend).collect();
            for flags in 0..=8 {
                let bytes = [&[4, 0, 0, 1, flags], &bytes[..]].concat();
                let _ = Moving::read_among(&bytes, &streams);
            }
        }
    }

    #[test]
    fn one_that_stands_like_others_takes_no_more_for_more_streams() {
        let size = |count: u8, (since, lacks_best_effort): (Option<Tick>, bool)| {
            let streams: Vec<PubendId> = (0..count).map(pubend).collect();
            let watermark = LowWatermark { at: Tick(1 << 60), since };
            let flags = if lacks_best_effort { LACKS_BEST_EFFORT } else { 0 };
            let of_stream =
                |pubend: &PubendId| watermark.of(*pubend, flags).map(|(since, at)| (*pubend, since, Tick(at.0 + 7)));
            let position =
                CarriedPosition { streams: streams.iter().filter_map(of_stream).collect(), beyond: Vec::new() };
            let mut bytes = Vec::new();
            position.put_among(&mut bytes, &streams, Some(watermark), |_, _, _| true);
            bytes.len()
        };
        for kind in [(Some(Tick(1 << 59)), false), (Some(Tick(1 << 59)), true), (None, false), (None, true)] {
            assert_eq!(size(16, kind), size(240, kind), "{kind:?}");
            assert!(size(240, kind) < 32, "{kind:?}");
        }
    }
}
