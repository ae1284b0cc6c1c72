//! The mark beside a directory: up to which record of the stream its files are known to be whole.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | `WJM1` |
//! | 1 | 0: the files are whole; 1: a start was changing them; 2: a start without an engine |
//! | 1 | whose acknowledgement counted: 0 the engine's, 1 both, 2 the disk's |
//! | 8, 8, 8 | epoch, its owner, and the number of its record |
//! | 8 | newest record that the files have |
//! | 4 | segments; each 4, 8, 8, 8: slot, number, bytes of the file, newest record |
//! | | and 4: ranges of bytes that the stream has; each 8, 8: begin, end |
//! | 4 | slots with useless records; each 4, 8: slot, below which record; 0: the next to begin |
//! | 4 | CRC-32 of all before it |

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_journal::{Fault, Slot};

use crate::engine::RecordNumber;
use crate::ranges::Ranges;
use crate::record::{Epoch, Fields, MalformedRecord, sealed, unsealed};
use crate::replicated::Acknowledgement;

const MAGIC: [u8; 4] = *b"WJM1";

/// A place beside a directory for a few kilobytes. A crash leaves what it has, or what is being
/// stored.
pub trait DirectoryMark {
    /// What was stored last, if anything was.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load(&self) -> Result<Option<Vec<u8>>, Fault>;

    /// Stores these bytes durably, instead of those before.
    ///
    /// # Errors
    /// When it cannot be done: either may be there then.
    fn store(&self, bytes: &[u8]) -> Result<(), Fault>;
}

/// A shared mark, of any kind.
impl<M: DirectoryMark + ?Sized> DirectoryMark for Arc<M> {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        (**self).load()
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Fault> {
        (**self).store(bytes)
    }
}

/// Tells the mark of a directory that its journal is opened without an engine. To be called before
/// it is: a later start with the engine appends to the stream what was logged meanwhile, or is
/// refused. Returns whether the directory has been used with an engine.
///
/// # Errors
/// When the mark cannot be read, understood or stored, or says that a start had begun to make the
/// directory equal to its stream, and did not end.
pub fn begin_without_engine(mark: &impl DirectoryMark) -> Result<bool, Fault> {
    let Some(bytes) = mark.load()? else { return Ok(false) };
    let found = MarkContents::decode(&bytes).map_err(|_| {
        Fault::Failed(
            "the mark of its engine (engine.mark) is damaged, or of a later version: start it with its engine, in that \
             version; or remove the mark, and what is logged from then on is this directory's alone"
                .into(),
        )
    })?;
    match found.state {
        MarkState::Alone => Ok(true),
        MarkState::Whole => {
            mark.store(&MarkContents { state: MarkState::Alone, ..found }.encode())?;
            Ok(true)
        }
        MarkState::Changing => Err(Fault::Failed(
            "the directory is not whole: a start with its engine had begun to change it, and did not end; start it \
             with its engine, or remove the directory and its mark"
                .into(),
        )),
    }
}

/// What has become of the files since a mark was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkState {
    /// They have what the mark says, and what its owner logged after it.
    Whole,
    /// A start makes them equal to the stream.
    Changing,
    /// A journal without an engine has written to them.
    Alone,
}

/// A segment, as far as the stream has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamSegment {
    pub(crate) number: u64,
    /// Bytes of its file.
    pub(crate) file_bytes: u64,
    /// Its newest record.
    pub(crate) newest: RecordNumber,
    /// The bytes of the file that its records have.
    pub(crate) covered: Ranges,
}

/// The bytes of a segment's summary.
pub(crate) const SUMMARY: std::ops::Range<u64> = whimbrel_journal::SECTOR as u64..whimbrel_journal::HEAD as u64;

impl StreamSegment {
    /// Whether the stream has its summary: the journal adds nothing to it then.
    pub(crate) fn is_sealed(&self) -> bool {
        self.covered.has(SUMMARY)
    }
}

/// What a mark says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MarkContents {
    pub(crate) state: MarkState,
    pub(crate) acknowledgement: Acknowledgement,
    pub(crate) epoch: Epoch,
    /// The record of the epoch.
    pub(crate) taken: RecordNumber,
    /// The files have all records up to this one, as far as they are of use; 0: nothing is known.
    pub(crate) upto: RecordNumber,
    pub(crate) segments: BTreeMap<Slot, StreamSegment>,
    /// Records of these slots below these numbers are of no use; below the record that begins the
    /// next segment where it is 0.
    pub(crate) useless: BTreeMap<Slot, RecordNumber>,
}

impl fmt::Debug for MarkContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} up to {} of {:?}", self.state, self.upto, self.epoch)
    }
}

impl MarkContents {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(match self.state {
            MarkState::Whole => 0,
            MarkState::Changing => 1,
            MarkState::Alone => 2,
        });
        out.push(match self.acknowledgement {
            Acknowledgement::Engine => 0,
            Acknowledgement::Both => 1,
            Acknowledgement::Local => 2,
        });
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        for number in [self.epoch.epoch, self.epoch.owner, self.taken, self.upto] {
            put(&number.to_le_bytes());
        }
        let count = |count: usize| u32::try_from(count).expect("there are fewer than slots").to_le_bytes();
        put(&count(self.segments.len()));
        for (slot, StreamSegment { number, file_bytes, newest, covered }) in &self.segments {
            put(&slot.to_le_bytes());
            for number in [number, file_bytes, newest] {
                put(&number.to_le_bytes());
            }
            put(&count(covered.iter().len()));
            for range in covered.iter() {
                put(&range.start.to_le_bytes());
                put(&range.end.to_le_bytes());
            }
        }
        put(&count(self.useless.len()));
        for (slot, below) in &self.useless {
            put(&slot.to_le_bytes());
            put(&below.to_le_bytes());
        }
        sealed(out)
    }

    /// # Errors
    /// When the bytes are no mark, or of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<MarkContents, MalformedRecord> {
        let mut fields = Fields(unsealed(bytes)?);
        if fields.array()? != MAGIC {
            return Err(MalformedRecord);
        }
        let state = match fields.array()? {
            [0] => MarkState::Whole,
            [1] => MarkState::Changing,
            [2] => MarkState::Alone,
            _ => return Err(MalformedRecord),
        };
        let acknowledgement = match fields.array()? {
            [0] => Acknowledgement::Engine,
            [1] => Acknowledgement::Both,
            [2] => Acknowledgement::Local,
            _ => return Err(MalformedRecord),
        };
        let epoch = Epoch { epoch: fields.u64()?, owner: fields.u64()? };
        let (taken, upto) = (fields.u64()?, fields.u64()?);
        let mut segments = BTreeMap::new();
        for _ in 0..fields.u32()? {
            let slot = fields.u32()?;
            let (number, file_bytes, newest) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let mut covered = Ranges::default();
            for _ in 0..fields.u32()? {
                covered.add(fields.u64()?..fields.u64()?);
            }
            segments.insert(slot, StreamSegment { number, file_bytes, newest, covered });
        }
        let mut useless = BTreeMap::new();
        for _ in 0..fields.u32()? {
            useless.insert(fields.u32()?, fields.u64()?);
        }
        let contents = MarkContents { state, acknowledgement, epoch, taken, upto, segments, useless };
        if fields.0.is_empty() { Ok(contents) } else { Err(MalformedRecord) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_other_bytes_are_none() {
        let covered = [0..512, 4096..9216].into_iter().collect();
        let segment = StreamSegment { number: 9, file_bytes: 65_536, newest: 40, covered };
        let mark = MarkContents {
            state: MarkState::Alone,
            acknowledgement: Acknowledgement::Local,
            epoch: Epoch { epoch: 3, owner: u64::MAX },
            taken: 30,
            upto: 41,
            segments: [(2, segment)].into(),
            useless: [(1, 0), (2, 35)].into(),
        };
        let bytes = mark.encode();
        assert_eq!(MarkContents::decode(&bytes), Ok(mark));
        for at in 0..bytes.len() {
            assert_eq!(MarkContents::decode(&bytes[..at]), Err(MalformedRecord), "{at} bytes");
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(MarkContents::decode(&other), Err(MalformedRecord), "byte {at}");
        }
    }
}
