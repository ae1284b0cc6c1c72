//! The records of a broker's stream. Numbers are little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `WJR1` |
//! | 1 | 0: an owner takes an epoch; 1: a commit; 2: a commit that counts with the next one only |
//! | 8 | epoch |
//! | 8 | of an epoch: its owner; of a commit: its number since the epoch |
//! | | of a commit: |
//! | 4 | slot |
//! | 8 | number of the segment in it |
//! | 8 | bytes of the file |
//! | 8 | number of the record before it of this segment, 0 if it begins the segment |
//! | 4 | if it begins a segment: other segments; each 4, 8, 8: slot, number, newest record |
//! | 2 | parts, and for each 8 of its offset in the file, 4 of its length, and its bytes |
//! | | then: |
//! | 4 | CRC-32 of all before it |

use std::ops::Range;

use whimbrel_journal::Slot;

use crate::engine::RecordNumber;

const MAGIC: [u8; 4] = *b"WJR1";
const EPOCH: u8 = 0;
const COMMIT: u8 = 1;
const COMMIT_PART: u8 = 2;
const SUM_BYTES: usize = 4;

/// Bytes of a commit beside its parts and other segments, of one of these, and of a part beside
/// what was written.
pub(crate) const COMMIT_BYTES: usize = 59;
pub(crate) const OTHER_BYTES: usize = 20;
pub(crate) const PART_BYTES: usize = 12;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineRecord<'a> {
    /// An owner takes the stream.
    Epoch(Epoch),
    /// Bytes of a segment file.
    Commit(Commit<'a>),
}

/// The beginning of an ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Its number. A start takes the next even one; and the odd one behind it when it has appended
    /// what only its disk had, which counts by that.
    pub epoch: u64,
    /// A number of the owner, chosen by it.
    pub owner: u64,
}

/// The name of a commit; no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitId {
    /// The epoch of its owner.
    pub epoch: u64,
    /// Its number since the epoch: 1, 2, 3, …
    pub number: u64,
}

/// What the journal wrote to a segment file between two syncs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit<'a> {
    /// Its name.
    pub id: CommitId,
    /// It counts only if it is followed by one of its epoch that has no more, or by the next, odd,
    /// epoch: see [`Epoch`].
    pub has_more: bool,
    /// The file.
    pub slot: Slot,
    /// The number of the segment that the file holds.
    pub segment: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The record before it of this segment; 0 if it begins the segment.
    pub before: RecordNumber,
    /// Of a commit that begins a segment: all other segments of the journal, so that no record of
    /// theirs can be missed. Records of other segments are of no use from now on.
    pub others: Vec<OtherSegment>,
    /// Offsets, and the bytes that were written there.
    pub parts: Vec<(u64, &'a [u8])>,
}

/// A segment, as a commit to another one tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherSegment {
    /// Its file.
    pub slot: Slot,
    /// Its number.
    pub segment: u64,
    /// Its newest record.
    pub newest: RecordNumber,
}

/// Bytes that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no record of a journal, or of a later version")]
pub struct MalformedRecord;

impl Epoch {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        sealed(head(EPOCH, self.epoch, self.owner))
    }
}

impl Commit<'_> {
    /// The bytes of the file that it has.
    pub(crate) fn covered(&self) -> impl Iterator<Item = Range<u64>> {
        self.parts.iter().map(|(offset, bytes)| *offset..*offset + bytes.len() as u64)
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When it has more than 65,535 parts: a step of the journal has two.
    pub fn encode(&self) -> Vec<u8> {
        let Commit { id, has_more, slot, segment, file_bytes, before, others, parts } = self;
        let mut out = head(if *has_more { COMMIT_PART } else { COMMIT }, id.epoch, id.number);
        out.extend_from_slice(&slot.to_le_bytes());
        for number in [segment, file_bytes, before] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let count = u32::try_from(others.len()).expect("there are fewer segments than slots");
        out.extend_from_slice(&count.to_le_bytes());
        for OtherSegment { slot, segment, newest } in others {
            out.extend_from_slice(&slot.to_le_bytes());
            out.extend_from_slice(&segment.to_le_bytes());
            out.extend_from_slice(&newest.to_le_bytes());
        }
        let count = u16::try_from(parts.len()).expect("a commit has few parts");
        out.extend_from_slice(&count.to_le_bytes());
        for (offset, bytes) in parts {
            out.extend_from_slice(&offset.to_le_bytes());
            let length = u32::try_from(bytes.len()).expect("a segment is shorter than 4 GiB");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        sealed(out)
    }
}

impl<'a> EngineRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// When it was not written by this version, or not whole.
    pub fn decode(bytes: &'a [u8]) -> Result<EngineRecord<'a>, MalformedRecord> {
        let mut fields = Fields(unsealed(bytes)?);
        if fields.array()? != MAGIC {
            return Err(MalformedRecord);
        }
        let [kind] = fields.array()?;
        let (epoch, number) = (fields.u64()?, fields.u64()?);
        let record = match kind {
            EPOCH => EngineRecord::Epoch(Epoch { epoch, owner: number }),
            COMMIT | COMMIT_PART => {
                let commit = fields.commit(CommitId { epoch, number })?;
                EngineRecord::Commit(Commit { has_more: kind == COMMIT_PART, ..commit })
            }
            _ => return Err(MalformedRecord),
        };
        if fields.0.is_empty() { Ok(record) } else { Err(MalformedRecord) }
    }
}

fn head(kind: u8, epoch: u64, number: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(kind);
    out.extend_from_slice(&epoch.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out
}

/// With a checksum behind it.
pub(crate) fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Without the checksum behind it, if that is right.
pub(crate) fn unsealed(bytes: &[u8]) -> Result<&[u8], MalformedRecord> {
    let (rest, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(MalformedRecord)?;
    if crc32fast::hash(rest).to_le_bytes() == *sum { Ok(rest) } else { Err(MalformedRecord) }
}

/// The bytes of a record that are not read yet.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedRecord> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(MalformedRecord)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedRecord> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were taken"))
    }

    fn u16(&mut self) -> Result<u16, MalformedRecord> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedRecord> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedRecord> {
        self.array().map(u64::from_le_bytes)
    }

    fn commit(&mut self, id: CommitId) -> Result<Commit<'a>, MalformedRecord> {
        let slot = self.u32()?;
        let (segment, file_bytes, before) = (self.u64()?, self.u64()?, self.u64()?);
        let mut others = Vec::new();
        for _ in 0..self.u32()? {
            others.push(OtherSegment { slot: self.u32()?, segment: self.u64()?, newest: self.u64()? });
        }
        let mut parts = Vec::new();
        for _ in 0..self.u16()? {
            let (offset, length) = (self.u64()?, self.u32()?);
            let bytes = self.take(usize::try_from(length).map_err(|_| MalformedRecord)?)?;
            if offset.checked_add(u64::from(length)).is_none_or(|end| end > file_bytes) {
                return Err(MalformedRecord);
            }
            parts.push((offset, bytes));
        }
        Ok(Commit { id, has_more: false, slot, segment, file_bytes, before, others, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> Commit<'static> {
        Commit {
            id: CommitId { epoch: 3, number: 9 },
            has_more: false,
            slot: 7,
            segment: 12,
            file_bytes: 8192,
            before: 40,
            others: vec![
                OtherSegment { slot: 2, segment: 11, newest: 39 },
                OtherSegment { slot: 5, segment: 4, newest: 20 },
            ],
            parts: vec![(0, b"head"), (4096, b"frame"), (8192, b"")],
        }
    }

    #[test]
    fn records_come_back() {
        let bytes = commit().encode();
        assert_eq!(EngineRecord::decode(&bytes), Ok(EngineRecord::Commit(commit())));
        assert_eq!(bytes.len(), COMMIT_BYTES + 2 * OTHER_BYTES + 3 * PART_BYTES + b"headframe".len());
        let part = Commit { has_more: true, ..commit() };
        assert_eq!(EngineRecord::decode(&part.encode()), Ok(EngineRecord::Commit(part.clone())));
        let epoch = Epoch { epoch: 1, owner: u64::MAX };
        assert_eq!(EngineRecord::decode(&epoch.encode()), Ok(EngineRecord::Epoch(epoch)));
    }

    #[test]
    fn other_bytes_are_no_record() {
        let bytes = commit().encode();
        for length in 0..bytes.len() {
            assert_eq!(EngineRecord::decode(&bytes[..length]), Err(MalformedRecord), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_eq!(EngineRecord::decode(&other), Err(MalformedRecord), "byte {at}");
        }
        let beyond = Commit { file_bytes: 4100, ..commit() }.encode();
        assert_eq!(EngineRecord::decode(&beyond), Err(MalformedRecord), "a part beyond the end of its file");
        let mut longer = bytes[..bytes.len() - SUM_BYTES].to_vec();
        longer.push(0);
        assert_eq!(EngineRecord::decode(&sealed(longer)), Err(MalformedRecord), "bytes behind it");
        let mut later = bytes[..bytes.len() - SUM_BYTES].to_vec();
        later[3] = b'2';
        assert_eq!(EngineRecord::decode(&sealed(later)), Err(MalformedRecord), "a later version");
    }
}
