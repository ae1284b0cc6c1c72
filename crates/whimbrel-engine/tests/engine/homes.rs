//! Where a broker lives: a disk with a mark beside it; and how it is started there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use whimbrel_engine::twin::TwinEngine;
use whimbrel_engine::{Acknowledgement, DirectoryMark, Replicated, StartOptions, StartReport, StreamStartError};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Fault, Log, Stepped};

use crate::common::{Model, SMALL, look};

pub type TwinReplicated = Replicated<Arc<Twin>, Arc<TwinEngine>>;
pub type Started = Result<(TwinReplicated, StartReport), StreamStartError>;

/// How a broker is started.
pub type RunningStart = dyn Fn(Place) -> Started;

/// A mark in memory, which fails from some store on.
#[derive(Debug, Default)]
pub struct MarkTwin(Mutex<MarkState>);

#[derive(Debug, Default)]
struct MarkState {
    stored: Vec<Vec<u8>>,
    stores: u64,
    /// The store from which on all fail; whether that one has been done nevertheless.
    fail_from: Option<(u64, bool)>,
}

impl MarkTwin {
    /// Makes a store and all later ones fail, counted from now.
    pub fn fail_after(&self, stores: u64, is_done: bool) {
        let mut state = self.0.lock().expect("no test has failed");
        state.fail_from = Some((state.stores + stores, is_done));
    }

    /// The mark after the end of its broker; `forgets` is how many of the last stores it loses.
    pub fn crashed(&self, forgets: usize) -> MarkTwin {
        let stored = self.0.lock().expect("no test has failed").stored.clone();
        let kept = stored.len().saturating_sub(forgets);
        MarkTwin(Mutex::new(MarkState { stored: stored[..kept].to_vec(), stores: 0, fail_from: None }))
    }

    /// How often something was stored.
    pub fn stores(&self) -> usize {
        self.0.lock().expect("no test has failed").stored.len()
    }
}

impl DirectoryMark for MarkTwin {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.0.lock().expect("no test has failed").stored.last().cloned())
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Fault> {
        let mut state = self.0.lock().expect("no test has failed");
        let number = state.stores;
        state.stores += 1;
        match state.fail_from {
            Some((from, is_done)) if number >= from => {
                if is_done && number == from {
                    state.stored.push(bytes.to_vec());
                }
                Err(Fault::Failed("the mark is gone".into()))
            }
            _ => {
                state.stored.push(bytes.to_vec());
                Ok(())
            }
        }
    }
}

/// What a broker is started with.
pub struct Place {
    pub disk: Arc<Twin>,
    pub engine: Arc<TwinEngine>,
    pub mark: Arc<MarkTwin>,
    pub options: StartOptions,
}

impl Place {
    /// A place with a new disk.
    pub fn new(engine: &Arc<TwinEngine>, owner: u64, acknowledgement: Acknowledgement) -> Place {
        let options = StartOptions { owner, acknowledgement, discards_local: false, imports: false };
        Place { disk: Arc::default(), engine: Arc::clone(engine), mark: Arc::default(), options }
    }

    /// The same disk and mark, for another start.
    pub fn again(&self, owner: u64) -> Place {
        let options = StartOptions { owner, ..self.options };
        let Place { disk, engine, mark, .. } = self;
        Place { disk: Arc::clone(disk), engine: Arc::clone(engine), mark: Arc::clone(mark), options }
    }

    /// The same place after the end of its broker: writes that were not synced are lost.
    pub fn crashed(&self, owner: u64, fates: impl FnMut() -> whimbrel_journal::twin::Fate) -> Place {
        let disk = Arc::new(self.disk.crashed(fates));
        Place { disk, mark: Arc::new(self.mark.crashed(0)), ..self.again(owner) }
    }
}

pub fn started(place: Place) -> Started {
    let Place { disk, engine, mark, options } = place;
    Replicated::start(disk, engine, mark, options)
}

/// What a journal on a new disk has that is made from the stream.
pub fn of_stream_alone(engine: &TwinEngine) -> Result<BTreeMap<u64, Model>, String> {
    of_stream_alone_by(&started, engine)
}

/// As [`of_stream_alone`], by a start of some kind.
pub fn of_stream_alone_by(start: &RunningStart, engine: &TwinEngine) -> Result<BTreeMap<u64, Model>, String> {
    let engine = Arc::new(engine.copied());
    let (storage, _) =
        start(Place::new(&engine, u64::MAX, Acknowledgement::Both)).map_err(|error| error.to_string())?;
    let (log, report) = Log::open(&storage, SMALL, 7).map_err(|error| error.to_string())?;
    if !report.damages.is_empty() {
        return Err(format!("the stream alone is damaged: {:?}", report.damages));
    }
    Ok(look(&Stepped::new(log, &storage)))
}
