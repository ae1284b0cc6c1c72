//! Measures the appends of an engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use whimbrel_engine::{Engine, EngineError, RecordNumber, StreamRecord, Subject};
use whimbrel_journal::Slot;

/// The first bound of the histogram, in seconds; each next one is twice as large.
const LATENCY_LEAST: f64 = 0.000_25;

/// Number of the histogram's bounds: the last is 8.192 s.
const LATENCY_BOUNDS: u16 = 16;

/// A histogram of the time that an append takes until the engine has acknowledged it.
pub(crate) fn latency() -> Histogram {
    Histogram::new(exponential_buckets(LATENCY_LEAST, 2.0, LATENCY_BOUNDS))
}

/// What the appends of an engine took.
#[derive(Clone, Debug)]
pub(super) struct Appends {
    latency: Histogram,
    /// Since when a record has been in flight.
    in_flight: Arc<Mutex<Option<Instant>>>,
}

impl Appends {
    pub(super) fn new() -> Appends {
        Appends { latency: latency(), in_flight: Arc::default() }
    }

    /// Times of the appends that were acknowledged, in seconds.
    pub(super) fn latency(&self) -> Histogram {
        self.latency.clone()
    }

    /// How long the record that is in flight has been so.
    pub(super) fn waiting(&self) -> Duration {
        self.in_flight.lock().map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// An engine whose appends are measured: from the first request to the acknowledgement, repeats
/// included.
#[derive(Debug)]
pub(super) struct MeasuredEngine<E> {
    engine: E,
    appends: Appends,
}

impl<E> MeasuredEngine<E> {
    pub(super) fn new(engine: E, appends: Appends) -> MeasuredEngine<E> {
        MeasuredEngine { engine, appends }
    }
}

impl<E: Engine> Engine for MeasuredEngine<E> {
    fn append(
        &self,
        subject: Subject,
        last: RecordNumber,
        record: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<RecordNumber, EngineError> {
        let since = *self.appends.in_flight.lock().get_or_insert_with(Instant::now);
        let outcome = self.engine.append(subject, last, record, meanwhile);
        if !matches!(outcome, Err(EngineError::Unanswered(_))) {
            *self.appends.in_flight.lock() = None;
        }
        if outcome.is_ok() {
            self.appends.latency.observe(since.elapsed().as_secs_f64());
        }
        outcome
    }

    fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
        self.engine.take(newest, record)
    }

    fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
        self.engine.epoch()
    }

    fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.engine.read(from)
    }

    fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
        self.engine.find(number)
    }

    fn last(&self) -> Result<RecordNumber, EngineError> {
        self.engine.last()
    }

    fn cut(&self, slot: Slot, below: RecordNumber) -> Result<bool, EngineError> {
        self.engine.cut(slot, below)
    }

    fn record_bytes_max(&self) -> usize {
        self.engine.record_bytes_max()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::twin::{RequestFate, TwinEngine};

    use super::*;

    #[test]
    fn a_record_waits_from_its_first_request_to_its_acknowledgement() {
        let twin = Arc::new(TwinEngine::new());
        let appends = Appends::new();
        let engine = MeasuredEngine::new(Arc::clone(&twin), appends.clone());
        let append = || engine.append(Subject::Slot(0), 0, b"record", &mut || {});
        assert_eq!(appends.waiting(), Duration::ZERO);
        twin.set_fates(|| RequestFate::RequestLost);
        assert!(matches!(append(), Err(EngineError::Unanswered(_))));
        let since = *appends.in_flight.lock();
        assert!(since.is_some(), "it is still to be appended");
        assert!(append().is_err());
        assert_eq!(*appends.in_flight.lock(), since, "a repeat does not begin anew");
        twin.heal();
        assert_eq!(append(), Ok(1));
        assert_eq!(*appends.in_flight.lock(), None);
        assert_eq!(append(), Err(EngineError::Refused));
        assert_eq!(*appends.in_flight.lock(), None, "what is refused does not wait");
    }
}
