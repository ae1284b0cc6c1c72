//! Entries that all brokers share: the greatest version of each key counts.

use whimbrel_event::{PubendId, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader, length_bytes};
use crate::{FRAME_BYTES_MAX, Invalid, LIST_MAX, REGISTRY_RANGES, TOPIC_BYTES_MAX};

/// A part of the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry<'a> {
    /// At most [`LIST_MAX`].
    pub entries: Vec<RegistryEntry<'a>>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryEntry<'a> {
    /// The entry's key, at most [`TOPIC_BYTES_MAX`] bytes.
    pub key: &'a str,
    /// The greatest version of a key counts.
    pub version: (Tick, PubendId),
    /// `None`: it was removed. Bounded by the frame.
    pub value: Option<&'a [u8]>,
    /// Age of this version, ms; grows on the way.
    pub age_ms: u64,
}

impl<'a> RegistryEntry<'a> {
    /// Number of bytes that it takes in a frame; more entries than fit into one are sent in
    /// several.
    pub fn encoded_len(&self) -> usize {
        let value = self.value.map_or(1, |value| length_bytes(value.len() + 1) + value.len());
        length_bytes(self.key.len()) + self.key.len() + 16 + value + length_bytes(self.age_ms as usize)
    }

    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let key = input.text(TOPIC_BYTES_MAX, "a key")?;
        let version = (input.tick()?, PubendId(input.u64()?));
        let age_ms = input.varint()?;
        let value = input.maybe_bytes(FRAME_BYTES_MAX, "a value")?;
        Ok(RegistryEntry { key, version, value, age_ms })
    }

    fn put(&self, out: &mut Vec<u8>) {
        let (tick, pubend) = self.version;
        out.put_bytes(self.key.as_bytes(), TOPIC_BYTES_MAX, "a key");
        out.put_u64(tick.0);
        out.put_u64(pubend.0);
        out.put_varint(self.age_ms);
        out.put_maybe_bytes(self.value, FRAME_BYTES_MAX, "a value");
    }
}

impl<'a> Body<'a> for Registry<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Registry { entries: input.list(LIST_MAX, "entries", RegistryEntry::read)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_list(&self.entries, LIST_MAX, "entries", |out, entry| entry.put(out));
    }
}

/// What a frame says of one replicated map, by its number at all brokers.
///
/// Map 0, the retained messages, has frames without a number instead: brokers before 1.2 would
/// ignore it, and take another map for the retained messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfMap<B> {
    /// The map, not 0.
    pub map: u8,
    /// What is said of it.
    pub body: B,
}

impl<'a, B: Body<'a>> Body<'a> for OfMap<B> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let map = input.byte()?;
        if map == 0 { Err(Invalid::Range("a number of a map")) } else { Ok(OfMap { map, body: B::read(input)? }) }
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.map != 0, "map 0 has frames of its own");
        out.push(self.map);
        self.body.put(out);
    }
}

/// Hashes of the entries: keys are divided into [`REGISTRY_RANGES`] ranges by their hash. Two
/// brokers have different entries in the ranges whose hashes differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryDigest {
    /// Numbers of ranges, and the hash of the entries in each; at most [`REGISTRY_RANGES`].
    pub ranges: Vec<(u16, u64)>,
}

fn read_range(input: &mut Reader<'_>) -> Result<u16, Invalid> {
    let index: u16 = input.small("a range of keys")?;
    if usize::from(index) < REGISTRY_RANGES { Ok(index) } else { Err(Invalid::Range("a range of keys")) }
}

fn put_range(index: u16, out: &mut Vec<u8>) {
    assert!(usize::from(index) < REGISTRY_RANGES, "there is no range {index} of keys");
    out.put_varint(u64::from(index));
}

impl Body<'_> for RegistryDigest {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let range = |input: &mut Reader<'_>| Ok((read_range(input)?, input.u64()?));
        Ok(RegistryDigest { ranges: input.list(REGISTRY_RANGES, "ranges of keys", range)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_list(&self.ranges, REGISTRY_RANGES, "ranges of keys", |out, (index, hash)| {
            put_range(*index, out);
            out.put_u64(*hash);
        });
    }
}

/// Asks for all entries in some ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryAsk {
    /// Numbers of ranges; at most [`REGISTRY_RANGES`].
    pub ranges: Vec<u16>,
}

impl Body<'_> for RegistryAsk {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(RegistryAsk { ranges: input.list(REGISTRY_RANGES, "ranges of keys", read_range)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_list(&self.ranges, REGISTRY_RANGES, "ranges of keys", |out, index| put_range(*index, out));
    }
}
