//! A broker's log on a replicated engine: the stream of a broker, the disks of the processes that
//! own it one after the other, and what becomes of their requests.
//!
//! Requests that are lost or late are sent again within one moment of the world. An engine that
//! does not answer for a while is the driver's part: it is told of its commits later.

use std::sync::{Arc, Mutex, MutexGuard};

use whimbrel_engine::twin::{RequestFate, TwinEngine};
use whimbrel_engine::{
    Acknowledgement, Commit, CommitId, DirectoryMark, Engine, EngineRecord, Replicated, StartOptions, StreamStartError,
    Subject,
};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Fault, Slot, Storage};

use crate::random::Random;

/// How often a start is tried: each time some of its [`LOST_AT_START`] requests are lost.
const STARTS_MAX: u64 = 16;

/// Requests of all tries of a start that are lost, at most.
const LOST_AT_START: u64 = 12;

/// How many of 1,000 requests of a start are lost, as long as some may be.
const LOST_PERMILLE: u64 = 60;

/// Of the requests of an owner one of this many is lost, late or not answered; 0: none.
const ONE_OF: [u64; 4] = [0, 40, 10, 3];

/// How many of 1,000 records the replica lacks that a start reads.
const HIDDEN_PERMILLE: [u64; 3] = [0, 50, 400];

/// Bytes that a former owner leaves behind its successor's, and where.
const STRAY: [u8; 8 << 10] = [0xff; 8 << 10];

/// A fault that is built into the engines of a world, or none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuiltIn {
    /// The fault.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<whimbrel_engine::EngineMutant>,
}

/// The mark of a disk, which outlives its processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TwinMark(Arc<Mutex<Option<Vec<u8>>>>);

impl TwinMark {
    fn bytes(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.0.lock().expect("no thread panics with it")
    }
}

impl DirectoryMark for TwinMark {
    fn load(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.bytes().clone())
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Fault> {
        *self.bytes() = Some(bytes.to_vec());
        Ok(())
    }
}

/// A disk whose commits are records of a stream, too.
type OnEngine = Replicated<Arc<Twin>, Arc<TwinEngine>>;

/// The stream of a broker, and how its owners reach it.
#[derive(Clone, Debug)]
pub(crate) struct BrokerStream {
    engine: Arc<TwinEngine>,
    acknowledgement: Acknowledgement,
    one_of: u64,
    hidden: u64,
    /// Whether former owners leave records behind their successors'. Then a start finds all epochs:
    /// it does not look for one that the replica lacks in front of such a record.
    may_stray: bool,
    #[cfg_attr(not(feature = "mutants"), expect(dead_code, reason = "there are faults only in mutants"))]
    built_in: BuiltIn,
}

impl BrokerStream {
    /// An empty stream.
    pub(crate) fn draw(random: &mut Random, built_in: BuiltIn) -> BrokerStream {
        let acknowledgement = *random.pick(&[Acknowledgement::Both, Acknowledgement::Engine]);
        let (one_of, hidden) = (*random.pick(&ONE_OF), *random.pick(&HIDDEN_PERMILLE));
        let (engine, may_stray) = (Arc::new(TwinEngine::new()), random.chance(500));
        BrokerStream { engine, acknowledgement, one_of, hidden, may_stray, built_in }
    }

    /// A process takes the stream, and has a disk that is equal to it. `mark` is that of the disk.
    ///
    /// # Panics
    /// When the stream cannot be taken: nothing that happens to it prevents that.
    pub(crate) fn take(&self, twin: Twin, mark: &TwinMark, random: &mut Random) -> LogDisk {
        let known = self.engine.records();
        let may_lack = |subject: Subject| subject != Subject::Epoch || !self.may_stray;
        let hidden = known.iter().filter(|(_, subject)| may_lack(*subject) && random.chance(self.hidden));
        self.engine.hide(hidden.map(|(number, _)| *number).collect::<Vec<_>>());
        let (mut fates, mut left) = (random.fork(), random.below(LOST_AT_START + 1));
        self.engine.set_fates(move || {
            if left == 0 || !fates.chance(LOST_PERMILLE) {
                return RequestFate::Answered;
            }
            left -= 1;
            mishap(&mut fates)
        });
        let twin = Arc::new(twin);
        let mut error = None;
        for _ in 0..STARTS_MAX {
            match self.start(Arc::clone(&twin), mark.clone(), random.next()) {
                Ok((epoch, disk)) => {
                    self.weather(random.fork());
                    return LogDisk { twin, owned: Some(Owned { epoch, disk, stream: self.clone() }) };
                }
                Err(why) => error = Some(why),
            }
        }
        panic!("the stream cannot be taken: {error:?}, {:?}", self.engine);
    }

    /// One try of a start; the epoch that was taken, and the disk.
    fn start(&self, twin: Arc<Twin>, mark: TwinMark, owner: u64) -> Result<(u64, OnEngine), StreamStartError> {
        let engine = Arc::clone(&self.engine);
        #[cfg(feature = "mutants")]
        if let Some(mutant) = self.built_in.mutant {
            let started = Replicated::start_mutant(twin, engine, mark, self.options(owner), mutant);
            return started.map(|(disk, report)| (report.epoch, disk));
        }
        let started = Replicated::start(twin, engine, mark, self.options(owner));
        started.map(|(disk, report)| (report.epoch, disk))
    }

    /// A disk that has lost its mark is made anew, whatever it has.
    fn options(&self, owner: u64) -> StartOptions {
        StartOptions { owner, acknowledgement: self.acknowledgement, discards_local: true, imports: false }
    }

    /// Requests fare as the stream says from now on.
    fn weather(&self, mut fates: Random) {
        let one_of = self.one_of;
        self.engine.set_fates(move || {
            if one_of == 0 || fates.below(one_of) > 0 { RequestFate::Answered } else { mishap(&mut fates) }
        });
    }

    /// A record of the owner of this epoch stands behind the newest one of a slot, though another
    /// one has taken the stream since. Nobody has been told that it is there.
    fn stray(&self, epoch: u64) {
        self.engine.heal();
        let records = self.engine.records();
        let newest = records.iter().rev().find(|(_, subject)| matches!(subject, Subject::Slot(_)));
        let Some((before, subject)) = newest.copied() else { return };
        let found = self.engine.find(before).ok().flatten().expect("it is in the list");
        let Ok(EngineRecord::Commit(commit)) = EngineRecord::decode(&found.bytes) else { return };
        let (id, parts) = (CommitId { epoch, number: u64::MAX }, vec![(0, &STRAY[..])]);
        let record = Commit { id, has_more: false, before, others: Vec::new(), parts, ..commit }.encode();
        let last = records.last().map_or(0, |(number, _)| *number);
        self.engine.append(subject, last, &record, &mut || {}).expect("it is behind the last one");
    }
}

/// What becomes of a request that is not answered.
fn mishap(fates: &mut Random) -> RequestFate {
    *fates.pick(&[RequestFate::RequestLost, RequestFate::AnswerLost, RequestFate::Late])
}

/// The stream while a process owns it.
#[derive(Debug)]
struct Owned {
    epoch: u64,
    disk: OnEngine,
    stream: BrokerStream,
}

/// The disk of a process, perhaps with a stream.
#[derive(Debug)]
pub(crate) struct LogDisk {
    twin: Arc<Twin>,
    owned: Option<Owned>,
}

impl LogDisk {
    /// A disk without a stream.
    pub(crate) fn plain(twin: Twin) -> LogDisk {
        LogDisk { twin: Arc::new(twin), owned: None }
    }

    /// Whether its commits are records of a stream.
    pub(crate) fn is_on_engine(&self) -> bool {
        self.owned.is_some()
    }

    /// The disk itself.
    pub(crate) fn twin(&self) -> &Twin {
        &self.twin
    }

    /// Whether another process has taken the stream; `None`: there is no answer.
    pub(crate) fn is_taken(&self) -> Option<bool> {
        let Owned { epoch, stream, .. } = self.owned.as_ref()?;
        let newest = stream.engine.epoch().ok()?;
        let newest = newest.and_then(|newest| newest.epoch());
        Some(newest.is_some_and(|newest| newest.epoch > *epoch))
    }

    /// Removes some records that are of no use, and marks how far the files are whole.
    pub(crate) fn clean(&self) {
        if let Some(owned) = &self.owned {
            // Without an answer both are tried again later.
            let _ = owned.disk.cut();
            let _ = owned.disk.checkpoint();
        }
    }

    /// A record of this process appears in the stream, behind those of its successor, if the stream
    /// may have such a one; whether it may.
    pub(crate) fn stray(&self, fates: Random) -> bool {
        let Some(Owned { epoch, stream, .. }) = &self.owned else { return false };
        if stream.may_stray {
            stream.stray(*epoch);
            stream.weather(fates);
        }
        stream.may_stray
    }

    fn disk(&self) -> &dyn Storage {
        self.owned.as_ref().map_or(&*self.twin, |owned| &owned.disk)
    }
}

impl Storage for LogDisk {
    fn slots(&self) -> Result<Vec<(Slot, u64)>, Fault> {
        self.disk().slots()
    }

    fn create(&self, slot: Slot, bytes: u64) -> Result<(), Fault> {
        self.disk().create(slot, bytes)
    }

    fn remove(&self, slot: Slot) -> Result<(), Fault> {
        self.disk().remove(slot)
    }

    fn write(&self, slot: Slot, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.disk().write(slot, offset, bytes)
    }

    fn sync(&self, slot: Slot) -> Result<(), Fault> {
        self.disk().sync(slot)
    }

    fn settle(&self, slot: Slot) -> Result<(), Fault> {
        self.disk().settle(slot)
    }

    fn read(&self, slot: Slot, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.disk().read(slot, offset, bytes)
    }

    fn name(&self, slot: Slot) -> String {
        self.disk().name(slot)
    }
}
