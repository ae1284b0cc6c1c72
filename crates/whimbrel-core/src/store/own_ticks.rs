//! Ticks of the own reliable streams: those that may be logged.

use whimbrel_event::{HOST_PUBENDS_MAX, HOST_RELIABLE_MAX, KIND_PUBENDS_MAX, PubendId, Tick};

use super::wire::{ByteReader, MapValue, put_varint};

/// Number of reliable streams of a broker. An index of these streams is the place of a pubend among
/// the reliable ones of its host, see
/// [`PubendId::reliable_place`](whimbrel_event::PubendId::reliable_place).
pub(crate) const OWN: usize = HOST_RELIABLE_MAX as usize;

/// A tick for each of the broker's own reliable streams.
pub(crate) type OwnTicks = [Tick; OWN];

/// The place of an own reliable stream in [`OwnTicks`].
///
/// # Panics
/// When it is a stream of best effort: callers have found that it may be logged.
#[inline]
pub(crate) fn own_place(pubend: PubendId) -> usize {
    usize::from(pubend.reliable_place().expect("only reliable streams are logged"))
}

/// Reads the index of a reliable pubend.
pub(super) fn reliable_index(bytes: &mut ByteReader<'_>) -> Option<u8> {
    bytes.u8().filter(|index| is_reliable_index(*index))
}

/// Whether it is the index of a reliable pubend.
pub(super) fn is_reliable_index(index: u8) -> bool {
    index < HOST_PUBENDS_MAX && PubendId(u64::from(index)).reliable_place().is_some()
}

impl MapValue<'_> for OwnTicks {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        put_ticks(out, self);
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        ticks(bytes)
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (version == 1).then(|| ordinary_ticks(bytes)).flatten()
    }
}

/// Writes the first tick, and each other as its distance from the one before: the streams of a
/// broker mostly stand at nearly the same tick.
pub(crate) fn put_ticks(out: &mut Vec<u8>, ticks: &OwnTicks) {
    let mut before = 0;
    for Tick(tick) in ticks {
        let away = tick.wrapping_sub(before) as i64;
        put_varint(out, (away << 1 ^ away >> 63) as u64);
        before = *tick;
    }
}

/// A reader of ticks in one of the forms in which they were ever written.
pub(crate) type ReadTicks = fn(&mut ByteReader<'_>) -> Option<OwnTicks>;

/// Reads the ticks of all streams.
pub(crate) fn ticks(bytes: &mut ByteReader<'_>) -> Option<OwnTicks> {
    first_ticks(bytes, OWN)
}

/// Reads ticks as brokers without streams of the deadline class wrote them. Those streams, in which
/// there was no event, are taken to stand where the least of the others does.
pub(crate) fn ordinary_ticks(bytes: &mut ByteReader<'_>) -> Option<OwnTicks> {
    let ordinary = usize::from(KIND_PUBENDS_MAX);
    let mut ticks = first_ticks(bytes, ordinary)?;
    let least = ticks[..ordinary].iter().copied().fold(Tick(u64::MAX), Tick::min);
    ticks[ordinary..].fill(least);
    Some(ticks)
}

/// Reads the ticks of the first streams; those of the others are 0.
fn first_ticks(bytes: &mut ByteReader<'_>, count: usize) -> Option<OwnTicks> {
    let mut ticks = [Tick(0); OWN];
    let mut before = 0_u64;
    for tick in &mut ticks[..count] {
        let coded = bytes.varint()?;
        before = before.wrapping_add(coded >> 1 ^ (coded & 1).wrapping_neg());
        *tick = Tick(before);
    }
    Some(ticks)
}

/// A tick for each own reliable stream. Takes 16 bytes while all are equal, as they mostly are for
/// a subscription without events; else [`OWN`] ticks more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactTicks {
    /// The tick of all streams, unless `each` has them.
    common: Tick,
    each: Option<Box<OwnTicks>>,
}

impl From<OwnTicks> for CompactTicks {
    fn from(ticks: OwnTicks) -> CompactTicks {
        let common = ticks[0];
        let is_equal = ticks.iter().all(|tick| *tick == common);
        CompactTicks { common, each: (!is_equal).then(|| Box::new(ticks)) }
    }
}

impl CompactTicks {
    /// The tick of a stream, by its place.
    pub(crate) fn get(&self, own: usize) -> Tick {
        self.each.as_ref().map_or(self.common, |each| each[own])
    }

    /// Sets the tick of a stream.
    pub(crate) fn set(&mut self, own: usize, tick: Tick) {
        match &mut self.each {
            Some(each) => each[own] = tick,
            None if tick == self.common => {}
            None => {
                let mut each = Box::new([self.common; OWN]);
                each[own] = tick;
                self.each = Some(each);
            }
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> OwnTicks {
        self.each.as_ref().map_or([self.common; OWN], |each| **each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ticks_take_no_memory_of_their_own_and_others_are_kept() {
        let mut ticks = CompactTicks::from([Tick(7); OWN]);
        ticks.set(3, Tick(7));
        assert!(ticks.each.is_none());
        ticks.set(3, Tick(9));
        let expected = core::array::from_fn(|own| Tick(if own == 3 { 9 } else { 7 }));
        assert_eq!((ticks.all(), ticks.get(3), ticks.get(4)), (expected, Tick(9), Tick(7)));
        assert_eq!(CompactTicks::from(expected), ticks);
        assert!(size_of::<CompactTicks>() == 16);
    }
}
