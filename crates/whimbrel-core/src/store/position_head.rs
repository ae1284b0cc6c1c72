//! A position's entry on disk, beside its parts.

use core::hash::Hash;

use whimbrel_event::{EventId, HostId, PubendId, Tick};

use super::RemotePosition;
use super::durable_position::read_remote_positions;
use super::keys::BaseNo;
use super::own_ticks::{OwnTicks, ReadTicks, ordinary_ticks, own_place, put_ticks, reliable_index, ticks};
use super::wire::{ByteReader, MapValue, put_varint};

/// Largest number of entries in any list that is read.
const LIST_MAX: u64 = 1 << 20;

/// A position's entry, beside its parts.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct PositionHead {
    /// Up to where it has acknowledged everything in the own streams.
    pub(crate) acked: OwnTicks,
    /// Acknowledged events beyond that: index of the pubend and tick, ascending.
    pub(crate) beyond: Vec<(u8, Tick)>,
    /// The base that it refers to; if none, it has parts for all brokers on whose logs it counts.
    pub(crate) base: BaseNo,
    /// Its least tick in streams that stand where the base does; their logs count from here on.
    pub(crate) watermark: Tick,
    /// Brokers in the base without a part on whose logs it does not count, ascending.
    pub(crate) lacks: Vec<HostId>,
    /// Remote positions as earlier versions wrote them, instead of parts.
    pub(crate) remote: Vec<RemotePosition>,
    pub(crate) remote_beyond: Vec<EventId>,
}

impl PositionHead {
    pub(super) fn digest(&self) -> u64 {
        // The seed can be fixed: no peer chooses what is hashed.
        whimbrel_event::Seeded::new(0).hash_one(self)
    }

    /// Reads the part about the own streams, which all versions begin with.
    fn read_own(bytes: &mut ByteReader<'_>, ticks: ReadTicks) -> Option<Self> {
        let acked = ticks(bytes)?;
        let mut last = acked;
        let mut next = |bytes: &mut ByteReader<'_>| {
            let index = reliable_index(bytes)?;
            let last = &mut last[own_place(PubendId(u64::from(index)))];
            last.0 = last.0.checked_add(bytes.varint()?)?;
            Some((index, *last))
        };
        let beyond = (0..bytes.varint()?).map(|_| next(bytes)).collect::<Option<Vec<_>>>()?;
        Some(PositionHead { acked, beyond, ..PositionHead::default() })
    }

    /// Reads the part about the base.
    fn with_base(mut self, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (self.base, self.watermark) = (BaseNo(bytes.varint()?), Tick(bytes.varint()?));
        let count = bytes.varint().filter(|count| *count <= LIST_MAX)?;
        self.lacks = (0..count).map(|_| bytes.varint().map(HostId::new)).collect::<Option<_>>()?;
        self.lacks.is_sorted_by(|a, b| a < b).then_some(self)
    }
}

impl MapValue<'_> for PositionHead {
    const VERSION: u8 = 4;

    fn put(&self, out: &mut Vec<u8>) {
        put_ticks(out, &self.acked);
        put_varint(out, self.beyond.len() as u64);
        let mut last = self.acked;
        for (pubend, tick) in &self.beyond {
            out.push(*pubend);
            let last = &mut last[own_place(PubendId(u64::from(*pubend)))];
            put_varint(out, tick.0 - last.0);
            *last = *tick;
        }
        put_varint(out, self.base.0);
        put_varint(out, self.watermark.0);
        put_varint(out, self.lacks.len() as u64);
        self.lacks.iter().for_each(|host| put_varint(out, host.as_u64()));
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        PositionHead::read_own(bytes, ticks)?.with_base(bytes)
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        if !(1..=3).contains(&version) {
            return None;
        }
        let head = PositionHead::read_own(bytes, ordinary_ticks)?;
        match version {
            // Version 1 knew of own streams only.
            1 => Some(head),
            2 => {
                let (remote, remote_beyond) = read_remote_positions(bytes)?;
                Some(PositionHead { remote, remote_beyond, ..head })
            }
            _ => head.with_base(bytes),
        }
    }
}
