//! An engine with the failures of real ones: requests and answers are lost or late, replicas lack
//! records, and it is out of reach from some moment on.
//!
//! Deterministic: the caller chooses the failures.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_journal::Slot;

use crate::engine::{CUT_RECORDS_MAX, Engine, EngineError, RecordNumber, StreamRecord, Subject};

/// Most bytes of a record, unless it is set.
const RECORD_BYTES_MAX: usize = 8 << 20;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFate {
    /// It is answered.
    Answered,
    /// It never arrives.
    RequestLost,
    /// It is done, and its answer is lost.
    AnswerLost,
    /// It arrives before the next request, and its answer is lost.
    Late,
    /// It never arrives, as its sender ends: all further requests fail.
    EndBefore,
    /// It is done, and its sender ends: all further requests fail.
    EndAfter,
}

/// The twin of an engine.
#[derive(Debug, Default)]
pub struct TwinEngine {
    state: Mutex<TwinStream>,
}

struct TwinStream {
    records: BTreeMap<RecordNumber, (Subject, Vec<u8>)>,
    last: RecordNumber,
    /// Records that the replica lacks which is asked first.
    hidden: BTreeSet<RecordNumber>,
    /// Requests that have not arrived yet.
    late: Vec<TwinRequest>,
    fates: Option<Box<dyn FnMut() -> RequestFate + Send>>,
    has_ended: bool,
    record_bytes_max: usize,
}

impl Default for TwinStream {
    fn default() -> TwinStream {
        TwinStream {
            records: BTreeMap::new(),
            last: 0,
            hidden: BTreeSet::new(),
            late: Vec::new(),
            fates: None,
            has_ended: false,
            record_bytes_max: RECORD_BYTES_MAX,
        }
    }
}

/// A request to append.
#[derive(Clone)]
struct TwinRequest {
    subject: Subject,
    /// The record that must be the last one: of its subject, or of all.
    behind: RecordNumber,
    record: Vec<u8>,
}

impl fmt::Debug for TwinStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records up to {}", self.records.len(), self.last)
    }
}

impl TwinEngine {
    /// An empty stream.
    pub fn new() -> TwinEngine {
        TwinEngine::default()
    }

    /// Chooses what becomes of each request from now on; a sender that had ended has begun again.
    pub fn set_fates(&self, fates: impl FnMut() -> RequestFate + Send + 'static) {
        let mut state = self.state();
        state.fates = Some(Box::new(fates));
        state.has_ended = false;
    }

    /// All requests are answered from now on.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.fates, state.has_ended) = (None, false);
    }

    /// Bounds the bytes of a record.
    pub fn set_record_bytes_max(&self, bytes: usize) {
        self.state().record_bytes_max = bytes;
    }

    /// The replica that is asked first lacks these records.
    pub fn hide(&self, numbers: impl IntoIterator<Item = RecordNumber>) {
        self.state().hidden = numbers.into_iter().collect();
    }

    /// All replicas lose a record.
    pub fn lose(&self, number: RecordNumber) {
        self.state().records.remove(&number);
    }

    /// The stream is empty again, and its numbers begin with 1.
    pub fn make_anew(&self) {
        let mut state = self.state();
        state.records.clear();
        state.last = 0;
    }

    /// An engine with the same records, and requests that have not arrived.
    #[must_use]
    pub fn copied(&self) -> TwinEngine {
        let state = self.state();
        let TwinStream { records, last, late, .. } = &*state;
        let (records, late) = (records.clone(), late.clone());
        TwinEngine { state: Mutex::new(TwinStream { records, last: *last, late, ..TwinStream::default() }) }
    }

    /// The numbers of all records, with their subjects.
    pub fn records(&self) -> Vec<(RecordNumber, Subject)> {
        self.state().records.iter().map(|(number, (subject, _))| (*number, *subject)).collect()
    }

    fn state(&self) -> MutexGuard<'_, TwinStream> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request<T>(&self, work: impl FnOnce(&mut TwinStream) -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut state = self.state();
        let lost = || EngineError::Unanswered("there was no answer".into());
        match state.arrive()? {
            RequestFate::Answered => work(&mut state),
            RequestFate::RequestLost | RequestFate::Late => Err(lost()),
            RequestFate::AnswerLost => work(&mut state).and(Err(lost())),
            RequestFate::EndBefore => state.end(),
            RequestFate::EndAfter => work(&mut state).and(state.end()),
        }
    }
}

impl TwinStream {
    /// Does what has arrived late, and draws the fate of the next request.
    fn arrive(&mut self) -> Result<RequestFate, EngineError> {
        for request in std::mem::take(&mut self.late) {
            let _ = self.append(&request);
        }
        if self.has_ended {
            return self.end();
        }
        Ok(self.fates.as_mut().map_or(RequestFate::Answered, |fates| fates()))
    }

    fn end<T>(&mut self) -> Result<T, EngineError> {
        self.has_ended = true;
        Err(EngineError::Failed("the broker has ended".into()))
    }

    fn append(&mut self, request: &TwinRequest) -> Result<RecordNumber, EngineError> {
        if request.record.len() > self.record_bytes_max {
            return Err(EngineError::Failed(format!("a record has {} bytes", request.record.len())));
        }
        let last = match request.subject {
            Subject::Epoch => self.newest_epoch(),
            Subject::Slot(_) => self.last,
        };
        if last != request.behind {
            return Err(EngineError::Refused);
        }
        self.last += 1;
        self.records.insert(self.last, (request.subject, request.record.clone()));
        Ok(self.last)
    }

    fn newest_epoch(&self) -> RecordNumber {
        let epochs = self.records.iter().rev().filter(|(_, (subject, _))| *subject == Subject::Epoch);
        epochs.map(|(number, _)| *number).find(|number| !self.hidden.contains(number)).unwrap_or(0)
    }

    fn record(&self, number: RecordNumber) -> Option<StreamRecord> {
        self.records.get(&number).map(|(_, bytes)| StreamRecord { number, bytes: bytes.clone() })
    }

    /// Sends a request to append.
    fn send(&mut self, request: TwinRequest) -> Result<RecordNumber, EngineError> {
        let lost = Err(EngineError::Unanswered("there was no answer".into()));
        match self.arrive()? {
            RequestFate::Answered => self.append(&request),
            RequestFate::RequestLost => lost,
            RequestFate::AnswerLost => self.append(&request).and(lost),
            RequestFate::Late => {
                self.late.push(request);
                lost
            }
            RequestFate::EndBefore => self.end(),
            RequestFate::EndAfter => {
                let _ = self.append(&request);
                self.end()
            }
        }
    }
}

impl Engine for TwinEngine {
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        let answer = self.state().send(TwinRequest { subject, behind: last, record: record.to_vec() });
        meanwhile();
        answer
    }

    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
        self.state().send(TwinRequest { subject: Subject::Epoch, behind: newest, record: record.to_vec() })
    }

    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
        self.request(|state| Ok(state.record(state.newest_epoch())))
    }

    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.request(|state| {
            let TwinStream { records, hidden, .. } = &*state;
            let first = records.range(from..).map(|(number, _)| *number).find(|number| !hidden.contains(number));
            Ok(first.and_then(|number| state.record(number)))
        })
    }

    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.request(|state| Ok(state.record(number)))
    }

    fn record_bytes_max(&self) -> usize {
        self.state().record_bytes_max
    }

    fn last(&self) -> Result<RecordNumber, EngineError> {
        self.request(|state| Ok(state.last))
    }

    fn cut(&self, slot: Slot, below: RecordNumber) -> Result<bool, EngineError> {
        self.request(|state| {
            let of_slot = |(number, (subject, _)): (&RecordNumber, &(Subject, Vec<u8>))| {
                (*subject == Subject::Slot(slot)).then_some(*number)
            };
            let mut useless = state.records.range(..below).filter_map(of_slot);
            let cut: Vec<RecordNumber> = useless.by_ref().take(CUT_RECORDS_MAX).collect();
            let has_more = useless.next().is_some();
            cut.iter().for_each(|number| drop(state.records.remove(number)));
            Ok(has_more)
        })
    }
}
