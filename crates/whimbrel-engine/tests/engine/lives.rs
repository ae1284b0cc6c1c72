//! Lives of a broker: it works until it ends at any request to the engine or operation of the disk,
//! and is started again from the stream, with its disk, an older one, or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::{RequestFate, TwinEngine};
use whimbrel_engine::{Acknowledgement, Engine, Replicated, StartError, StartReport};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{Log, OpenError, Stepped, Ticket};

use crate::common::{Model, SMALL, Work, fates, look};

type Started = Result<(Replicated<Arc<Twin>, Arc<TwinEngine>>, StartReport), StartError>;

/// How a broker is started on a disk.
pub type Start = dyn Fn(Arc<Twin>, Arc<TwinEngine>, u64, Acknowledgement) -> Started;

/// What the stream must hold, one of these, and the disk as the end of a life left it.
pub struct Story {
    pub engine: Arc<TwinEngine>,
    disk: Twin,
    possible: Vec<BTreeMap<u64, Model>>,
    acknowledgement: Acknowledgement,
    life: u64,
    /// Lives that ended while they started, and that did not.
    pub ended: u64,
    pub started: u64,
}

/// Of `one_of` requests one is lost, arrives late or is not answered; at `end_at` the sender ends.
fn weather(rng: &mut fastrand::Rng, one_of: u32, end_at: u64) -> impl FnMut() -> RequestFate + Send + use<> {
    let mut rng = rng.fork();
    let mut requests = 0;
    move || {
        requests += 1;
        if requests > end_at {
            return if rng.bool() { RequestFate::EndBefore } else { RequestFate::EndAfter };
        }
        if rng.u32(0..one_of) > 0 {
            return RequestFate::Answered;
        }
        [RequestFate::RequestLost, RequestFate::AnswerLost, RequestFate::Late][rng.usize(0..3)]
    }
}

impl Story {
    pub fn new(rng: &mut fastrand::Rng) -> Story {
        Story {
            engine: Arc::new(TwinEngine::new()),
            disk: Twin::new(),
            possible: vec![BTreeMap::new()],
            acknowledgement: if rng.bool() { Acknowledgement::Both } else { Acknowledgement::Engine },
            life: 0,
            ended: 0,
            started: 0,
        }
    }

    /// The disk of the next life: that of the last one, or a new one.
    fn next_disk(&mut self, rng: &mut fastrand::Rng) -> Arc<Twin> {
        let old = std::mem::take(&mut self.disk);
        Arc::new(if rng.u32(0..3) == 0 { Twin::new() } else { old })
    }

    /// Lives once: starts, compares, and works until the end. Tells what is wrong.
    pub fn live(&mut self, start: &Start, rng: &mut fastrand::Rng) -> Result<(), String> {
        self.life += 1;
        let disk = self.next_disk(rng);
        let records = self.engine.records().len() as u64;
        let end_at = if rng.u32(0..4) == 0 { rng.u64(0..records + 8) } else { u64::MAX };
        self.engine.set_fates(weather(rng, 4_000, end_at));
        if rng.u32(0..8) == 0 {
            disk.fail_from(disk.operations() + rng.u64(0..2 * records + 60));
        }
        let outcome = self.work(start, &disk, rng);
        self.disk = disk.crashed(fates(rng));
        outcome
    }

    fn work(&mut self, start: &Start, disk: &Arc<Twin>, rng: &mut fastrand::Rng) -> Result<(), String> {
        let started = start(Arc::clone(disk), Arc::clone(&self.engine), self.life, self.acknowledgement);
        let storage = match started {
            Ok((storage, _)) => storage,
            // The broker ends, or there is no answer, while it starts: it is started again.
            Err(StartError::Engine(_) | StartError::Disk(_)) => {
                self.ended += 1;
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let end_at = rng.u64(0..400);
        self.engine.set_fates(weather(rng, 12, end_at));
        let (log, report) = match Log::open(&storage, SMALL, 7) {
            Ok(opened) => opened,
            Err(OpenError::Storage(_)) => {
                self.ended += 1;
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if !report.damages.is_empty() {
            return Err(format!("damaged: {:?}", report.damages));
        }
        self.started += 1;
        let mut work = Work::new(Stepped::new(log, &storage));
        let base = look(&work.journal);
        if !self.possible.contains(&base) {
            return Err("the journal has not what was committed".into());
        }
        for _ in 0..2_000 {
            work.step(rng);
            if rng.u32(0..50) == 0 {
                // It is tried again at the next turn.
                let _ = storage.cut();
            }
            if work.journal.log.poisoned().is_some() {
                break;
            }
        }
        let (sure, most) = (work.journal.log.committed(), work.journal.log.accepted());
        self.possible = (sure.0..=most.0).map(|ticket| work.model(&base, Ticket(ticket))).collect();
        Ok(())
    }
}

pub fn started(disk: Arc<Twin>, engine: Arc<TwinEngine>, owner: u64, ack: Acknowledgement) -> Started {
    Replicated::start(disk, engine, owner, ack)
}

/// The first seed and life in which something is wrong.
pub fn first_wrong(seeds: u64, start: &Start) -> Option<String> {
    let (mut ended, mut begun) = (0, 0);
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story = Story::new(&mut rng);
        for life in 0..8 {
            if let Err(wrong) = story.live(start, &mut rng) {
                return Some(format!("seed {seed}, life {life}: {wrong}"));
            }
        }
        // When all is well it starts.
        story.engine.heal();
        let disk = story.next_disk(&mut rng).crashed(|| Fate::Old);
        let started = start(Arc::new(disk), Arc::clone(&story.engine), 9, story.acknowledgement);
        if let Err(error) = started {
            return Some(format!("seed {seed}: {error}"));
        }
        (ended, begun) = (ended + story.ended, begun + story.started);
    }
    assert!(ended > seeds && begun > 4 * seeds, "of {} starts {ended} ended, and {begun} did not", 8 * seeds);
    None
}

#[test]
fn a_broker_has_what_it_acknowledged_whatever_became_of_its_disk() {
    assert_eq!(first_wrong(300, &started), None);
}

#[test]
fn the_stream_holds_no_more_than_what_is_of_use() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (engine, disk) = (Arc::new(TwinEngine::new()), Arc::new(Twin::new()));
    let (storage, _) =
        Replicated::start(disk, Arc::clone(&engine), 1, Acknowledgement::Engine).expect("it is answered");
    let (log, _) = Log::open(&storage, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &storage));
    for _ in 0..60_000 {
        work.step(&mut rng);
    }
    let before = engine.records().len();
    while storage.cut().expect("it is answered") {}
    let (after, segments) = (engine.records().len(), work.journal.log.files());
    let appended = engine.records().last().expect("there are some").0;
    assert!(appended > 5_000 && before > 2 * after, "{after} of {appended} records for {segments} files");
    assert_eq!(storage.cut(), Ok(false), "nothing is left to remove");
}

/// The records of the stream begin with that of the epoch, so that its reader finds the first one.
#[test]
fn an_empty_stream_is_taken_once() {
    let engine = Arc::new(TwinEngine::new());
    let (_, report) = started(Arc::new(Twin::new()), Arc::clone(&engine), 1, Acknowledgement::Both).expect("started");
    assert_eq!(report, StartReport { epoch: 1, ..StartReport::default() });
    assert_eq!(engine.epoch().expect("it is answered").map(|found| found.number), Some(1));
}
