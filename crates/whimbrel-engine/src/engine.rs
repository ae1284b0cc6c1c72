//! The interface to a replicated stream.

use std::sync::Arc;

use whimbrel_journal::Slot;

use crate::record::{EngineRecord, Epoch};

/// The number of a record in its stream: 1, 2, 3, … The numbers of removed records are not given
/// again. 0 means "before everything".
pub type RecordNumber = u64;

/// Most records that one [`Engine::cut`] removes: commits wait for it.
pub const CUT_RECORDS_MAX: usize = 1_000;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Who owns the stream.
    Epoch,
    /// A commit to a segment file.
    Slot(Slot),
}

/// A record of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    /// Its number.
    pub number: RecordNumber,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl StreamRecord {
    /// The epoch that it begins, if it is whole and begins one.
    pub fn epoch(&self) -> Option<Epoch> {
        match EngineRecord::decode(&self.bytes) {
            Ok(EngineRecord::Epoch(epoch)) => Some(epoch),
            _ => None,
        }
    }
}

/// The replicated stream of one broker. All calls block.
///
/// The stream assumes only this: a record whose append was answered with its number survives, and
/// records are in the order of their numbers at all replicas. A replica may lack a record that
/// others have.
pub trait Engine {
    /// Appends a record behind the record `last`, if that is the last one of the stream; returns
    /// its number. `meanwhile` is called once, after the record has been sent, or before an error.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another record is the last one.
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError>;

    /// Appends a record of [`Subject::Epoch`] if the newest one of these still has the number
    /// `newest`, whatever other records follow it.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if another owner was quicker.
    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError>;

    /// The newest record of [`Subject::Epoch`].
    ///
    /// # Errors
    /// If the engine cannot tell.
    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError>;

    /// The first record from this number on that the replica has which is asked.
    ///
    /// # Errors
    /// If the engine cannot tell.
    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError>;

    /// The record of this number, if any replica has it.
    ///
    /// # Errors
    /// If the engine cannot tell.
    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError>;

    /// Most bytes of a record.
    fn record_bytes_max(&self) -> usize;

    /// The number of the last record that the stream ever had, as far as its leader knows.
    ///
    /// # Errors
    /// If the engine cannot tell.
    fn last(&self) -> Result<RecordNumber, EngineError>;

    /// Removes records of a slot below this number, oldest first, at most [`CUT_RECORDS_MAX`];
    /// tells whether there are more.
    ///
    /// # Errors
    /// If the engine cannot do it.
    fn cut(&self, slot: Slot, below: RecordNumber) -> Result<bool, EngineError>;
}

/// Why an engine did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The stream is not as the caller said.
    #[error("another record is the last one")]
    Refused,
    /// There was no answer in time: it may have happened, and may be tried again.
    #[error("{0}")]
    Unanswered(String),
    /// It cannot be done.
    #[error("{0}")]
    Failed(String),
}

/// A shared engine, of any kind.
impl<E: Engine + ?Sized> Engine for Arc<E> {
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        (**self).append(subject, last, record, meanwhile)
    }

    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
        (**self).take(newest, record)
    }

    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
        (**self).epoch()
    }

    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        (**self).read(from)
    }

    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        (**self).find(number)
    }

    fn record_bytes_max(&self) -> usize {
        (**self).record_bytes_max()
    }

    fn last(&self) -> Result<RecordNumber, EngineError> {
        (**self).last()
    }

    fn cut(&self, slot: Slot, below: RecordNumber) -> Result<bool, EngineError> {
        (**self).cut(slot, below)
    }
}
