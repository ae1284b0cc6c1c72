//! Two brokers under one name: the one that started first acknowledges nothing more.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::TwinEngine;
use whimbrel_engine::{
    Acknowledgement, Commit, CommitId, Engine, EngineError, Epoch, RecordNumber, Replicated, StreamRecord,
    StreamStartError, Subject,
};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, Stepped, Ticket};

use crate::common::{SMALL, Work, look};
use crate::homes::{MarkTwin, Place, RunningStart, started};

/// A former owner goes on to work while its successor does; tells what is wrong.
pub fn go_on_after_a_successor(start: &RunningStart, seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let engine = Arc::new(TwinEngine::new());
    let begin = |owner| start(Place::new(&engine, owner, Acknowledgement::Both)).map_err(|error| error.to_string());
    let open = |storage: &_| Log::open(storage, SMALL, 7).map_err(|error| error.to_string());
    let (former, _) = begin(1)?;
    let mut old = Work::new(Stepped::new(open(&former)?.0, &former));
    for _ in 0..rng.u32(0..300) {
        old.step(&mut rng);
    }
    let (successor, _) = begin(2)?;
    let mut new = Work::new(Stepped::new(open(&successor)?.0, &successor));
    let base = look(&new.journal);
    let (sure, most) = (old.journal.log.committed(), old.journal.log.accepted());
    let possible = |ticket| old.model(&BTreeMap::new(), Ticket(ticket)) == base;
    if !(sure.0..=most.0).any(possible) {
        return Err("the successor has not what was committed".into());
    }
    for _ in 0..300 {
        (if rng.bool() { &mut old } else { &mut new }).step(&mut rng);
    }
    if old.journal.log.committed() != sure {
        return Err("the former owner has acknowledged something".into());
    }
    new.journal.settle();
    if let Some(fault) = new.journal.log.poisoned() {
        return Err(format!("the successor has ended: {fault}"));
    }
    let committed = new.model(&base, new.journal.log.committed());
    let (third, report) = begin(3)?;
    if report.dropped > 0 {
        return Err("the former owner has appended something".into());
    }
    let (log, _) = open(&third)?;
    if look(&Stepped::new(log, &third)) != committed {
        return Err("what the successor committed is not there".into());
    }
    Ok(())
}

#[test]
fn a_former_owner_acknowledges_nothing_more_and_harms_nothing() {
    for seed in 0..100 {
        assert_eq!(go_on_after_a_successor(&started, seed), Ok(()), "seed {seed}");
    }
}

#[test]
fn the_former_owner_is_told_why_it_ends() {
    let engine = Arc::new(TwinEngine::new());
    let start = |owner| started(Place::new(&engine, owner, Acknowledgement::Engine)).expect("started");
    let (former, _) = start(1);
    let (log, _) = Log::open(&former, SMALL, 7).expect("the journal opens");
    let mut work = Work::new(Stepped::new(log, &former));
    let (_, report) = start(2);
    assert_eq!(report.epoch, 4);
    work.append(1, 1, 10);
    work.journal.settle();
    let fault = work.journal.log.poisoned().expect("its next commit is refused").to_string();
    assert_eq!(fault, "another broker has taken this broker's stream");
}

/// A record of a former owner stands behind its successor's; tells what is wrong.
pub fn a_former_owner_has_appended(start: &RunningStart) -> Result<(), String> {
    let engine = Arc::new(TwinEngine::new());
    let begin = |owner| start(Place::new(&engine, owner, Acknowledgement::Engine)).map_err(|error| error.to_string());
    let (former, _) = begin(1)?;
    Log::open(&former, SMALL, 7).map_err(|error| error.to_string())?;
    begin(2)?;
    // It would overwrite the header and the first frame of the segment.
    let (slot, file_bytes) = (0, u64::from(SMALL.segment_bytes));
    let newest = engine.records().into_iter().rev().find(|(_, subject)| *subject == Subject::Slot(slot));
    let (before, _) = newest.ok_or("the journal has written nothing")?;
    let id = CommitId { epoch: 2, number: 99 };
    let parts = vec![(0, &[0xff; 8192][..])];
    let commit =
        Commit { id, has_more: false, slot, segment: 1, file_bytes, before, others: Vec::new(), parts }.encode();
    let last = engine.records().last().expect("there are some").0;
    engine.append(Subject::Slot(slot), last, &commit, &mut || {}).map_err(|error| error.to_string())?;
    let (third, report) = begin(3)?;
    let opened = Log::open(&third, SMALL, 7).map_err(|error| error.to_string())?.1;
    if opened.damages.is_empty() && report.dropped == 1 { Ok(()) } else { Err(format!("{report:?} {opened:?}")) }
}

#[test]
fn what_a_former_owner_has_appended_behind_its_successor_is_dropped() {
    assert_eq!(a_former_owner_has_appended(&started), Ok(()));
}

#[test]
fn of_two_starts_at_once_one_is_refused() {
    let engine = TwinEngine::new();
    let epoch = Epoch { epoch: 1, owner: 9 }.encode();
    // The other start takes the epoch after this one has looked for it.
    struct Between<'a>(&'a TwinEngine, &'a [u8]);
    impl Engine for Between<'_> {
        fn append(
            &self,
            subject: Subject,
            last: RecordNumber,
            record: &[u8],
            meanwhile: &mut dyn FnMut(),
        ) -> Result<RecordNumber, EngineError> {
            self.0.append(subject, last, record, meanwhile)
        }

        fn take(&self, newest: RecordNumber, record: &[u8]) -> Result<RecordNumber, EngineError> {
            self.0.take(0, self.1).expect("the stream is empty");
            self.0.take(newest, record)
        }

        fn epoch(&self) -> Result<Option<StreamRecord>, EngineError> {
            self.0.epoch()
        }

        fn read(&self, from: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
            self.0.read(from)
        }

        fn find(&self, number: RecordNumber) -> Result<Option<StreamRecord>, EngineError> {
            self.0.find(number)
        }

        fn record_bytes_max(&self) -> usize {
            self.0.record_bytes_max()
        }

        fn last(&self) -> Result<RecordNumber, EngineError> {
            self.0.last()
        }

        fn cut(&self, slot: u32, below: RecordNumber) -> Result<bool, EngineError> {
            self.0.cut(slot, below)
        }
    }
    let options = Place::new(&Arc::default(), 1, Acknowledgement::Both).options;
    let mark = Arc::new(MarkTwin::default());
    let start = Replicated::start(Arc::new(Twin::new()), Between(&engine, &epoch), mark, options);
    assert_eq!(start.map(|_| ()), Err(StreamStartError::Taken));
}
