//! Lives of a broker: it works until it ends at any request to the engine or operation of the disk
//! or the mark, and is started again: on its disk, on another one, on none; with any of the three
//! acknowledgements, or without an engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_engine::twin::{RequestFate, TwinEngine};
use whimbrel_engine::{
    Acknowledgement, Engine, RecordNumber, StartOptions, StartReport, StreamStartError, Subject, begin_without_engine,
};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{Log, OpenError, Stepped, Storage, Ticket};

use crate::common::{Done, Model, SMALL, Work, apply, fates, look};
use crate::homes::{MarkTwin, Place, RunningStart, TwinReplicated, of_stream_alone, started};

type Models = BTreeMap<u64, Model>;

/// What a life did, to tell what is left of it.
#[derive(Clone, Default)]
struct PastLife {
    base: Models,
    done: Vec<(Ticket, Done)>,
    /// What was acknowledged, what of that the stream has for sure, and what was accepted.
    sure: u64,
    sent: u64,
    most: u64,
    acknowledgement: Option<Acknowledgement>,
}

impl PastLife {
    /// The tickets up to which what was done gives this.
    fn tickets_like(&self, seen: &Models) -> Vec<u64> {
        let (mut models, mut like, mut done) = (self.base.clone(), Vec::new(), self.done.iter().peekable());
        for ticket in 0..=self.most {
            while let Some((_, next)) = done.next_if(|(at, _)| at.0 <= ticket) {
                apply(&mut models, next);
            }
            if models == *seen {
                like.push(ticket);
            }
        }
        like
    }

    fn has(&self, seen: &Models, from: u64) -> bool {
        self.tickets_like(seen).last().is_some_and(|ticket| *ticket >= from)
    }
}

/// A disk with its mark, and what was done there last.
#[derive(Default)]
struct Home {
    disk: Twin,
    mark: MarkTwin,
    past: PastLife,
    /// What the stream had when a broker elsewhere first went on with it.
    fork: Option<Models>,
    /// Records that were appended behind its mark: from one behind the first number up to the
    /// other.
    appended: (RecordNumber, RecordNumber),
    /// The mark is not that of the disk: what the disk alone has acknowledged may be lost.
    is_doubtful: bool,
}

/// What the stream must hold, and the disks as the ends of lives left them.
struct Story {
    engine: Arc<TwinEngine>,
    homes: [Home; 2],
    /// What was done last by a broker with the stream.
    past: PastLife,
    life: u64,
    told: Told,
}

/// What has happened in all lives.
#[derive(Debug, Default)]
struct Told {
    ended: u64,
    started: u64,
    diverged: u64,
    pushed: u64,
    anew: u64,
    trusted: u64,
    alone: u64,
    imported: u64,
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

/// The number of the newest commit.
fn newest_of(engine: &TwinEngine) -> RecordNumber {
    let records = engine.records();
    let commits = records.iter().filter(|(_, subject)| *subject != Subject::Epoch);
    commits.map(|(number, _)| *number).max().unwrap_or(0)
}

fn last_of(engine: &TwinEngine) -> RecordNumber {
    engine.records().last().map_or(0, |(number, _)| *number)
}

/// Whether none of these records has been removed: what a disk has is told from what it alone has
/// by them.
fn are_all_there(engine: &TwinEngine, (behind, upto): (RecordNumber, RecordNumber)) -> bool {
    let there = engine.records().iter().filter(|(number, _)| *number > behind && *number <= upto).count();
    there as u64 == upto.saturating_sub(behind)
}

/// What became of a start.
enum Outcome {
    Lives(Box<(TwinReplicated, StartReport)>),
    /// It has ended before it began.
    StreamEnd,
}

impl Story {
    fn new() -> Story {
        Story {
            engine: Arc::default(),
            homes: Default::default(),
            past: PastLife::default(),
            life: 0,
            told: Told::default(),
        }
    }

    /// Lives once: starts, compares, and works until the end. Tells what is wrong.
    fn live(&mut self, start: &RunningStart, rng: &mut fastrand::Rng) -> Result<(), String> {
        self.life += 1;
        let at = usize::from(rng.u32(0..4) == 0);
        let mut home = std::mem::take(&mut self.homes[at]);
        self.befall(&mut home, rng);
        let place = self.place(&home, rng);
        let outcome = if rng.u32(0..10) == 0 {
            self.live_alone(&mut home, &place, rng)
        } else {
            self.live_with_engine(start, &mut home, at, &place, rng)
        };
        (home.disk, home.mark) = (place.disk.crashed(fates(rng)), place.mark.crashed(0));
        self.homes[at] = home;
        outcome
    }

    /// The disk or the mark is lost, or the mark is an older one.
    fn befall(&self, home: &mut Home, rng: &mut fastrand::Rng) {
        match rng.u32(0..12) {
            0..2 => {
                home.disk = Twin::new();
                home.mark = if rng.bool() { MarkTwin::default() } else { home.mark.crashed(0) };
                (home.past, home.fork, home.is_doubtful) = (PastLife::default(), None, true);
            }
            2 => (home.mark, home.is_doubtful) = (MarkTwin::default(), true),
            3 => {
                let forgets = rng.usize(0..=home.mark.stores().min(4));
                home.mark = home.mark.crashed(forgets);
                home.is_doubtful |= forgets > 0;
            }
            _ => {}
        }
    }

    fn place(&self, home: &Home, rng: &mut fastrand::Rng) -> Place {
        let all = [Acknowledgement::Local, Acknowledgement::Engine, Acknowledgement::Both];
        let acknowledgement = all[rng.usize(0..3)];
        let place = Place::new(&self.engine, self.life, acknowledgement);
        Place {
            disk: Arc::new(home.disk.crashed(|| unreachable!("it was synced"))),
            mark: Arc::new(home.mark.crashed(0)),
            ..place
        }
    }

    /// Works without an engine, on a disk that has all that was acknowledged.
    fn live_alone(&mut self, home: &mut Home, place: &Place, rng: &mut fastrand::Rng) -> Result<(), String> {
        if begin_without_engine(&place.mark).is_err() {
            return Ok(());
        }
        let opened = Log::open(&place.disk, SMALL, 7).ok().filter(|(_, report)| report.damages.is_empty());
        let Some((log, _)) = opened else {
            // Only the engine had all of it, and the mark says now that the disk went on.
            home.is_doubtful = true;
            return Ok(());
        };
        let is_marked = place.mark.stores() > 0;
        let mut work = Work::new(Stepped::new(log, &place.disk));
        let base = look(&work.journal);
        if rng.u32(0..3) == 0 {
            place.disk.fail_from(place.disk.operations() + rng.u64(0..300));
        }
        for _ in 0..rng.u32(0..800) {
            work.step(rng);
        }
        self.told.alone += 1;
        home.past = past_of(work, base, Acknowledgement::Local);
        home.is_doubtful |= !is_marked;
        // What the stream has and this disk has not may refuse the next start, too.
        home.fork = home.fork.take().or_else(|| of_stream_alone(&self.engine).ok());
        Ok(())
    }

    fn live_with_engine(
        &mut self,
        start: &RunningStart,
        home: &mut Home,
        at: usize,
        place: &Place,
        rng: &mut fastrand::Rng,
    ) -> Result<(), String> {
        let alone = of_stream_alone(&self.engine)?;
        if !self.past.has(&alone, self.past.sent) {
            return Err("the stream has not what was committed".into());
        }
        let records = self.engine.records().len() as u64;
        let end_at = if rng.u32(0..4) == 0 { rng.u64(0..records + 30) } else { u64::MAX };
        self.engine.set_fates(weather(rng, 4_000, end_at));
        if rng.u32(0..8) == 0 {
            place.disk.fail_from(place.disk.operations() + rng.u64(0..2 * records + 60));
        }
        if rng.u32(0..8) == 0 {
            place.mark.fail_after(rng.u64(0..4), rng.bool());
        }
        let before = newest_of(&self.engine);
        let (storage, report) = match self.begin(start, home, place, &alone)? {
            Outcome::Lives(begun) => *begun,
            Outcome::StreamEnd => {
                self.told.ended += 1;
                home.appended.1 = last_of(&self.engine);
                // It may have appended all before it ended.
                let local = home.past.acknowledgement == Some(Acknowledgement::Local);
                if local && home.past.has(&of_stream_alone(&self.engine)?, home.past.sure) {
                    home.fork = None;
                    self.past = PastLife { sent: home.past.sure, ..home.past.clone() };
                }
                return Ok(());
            }
        };
        let from_stream = of_stream_alone(&self.engine)?;
        let end_at = rng.u64(0..400);
        self.engine.set_fates(weather(rng, 12, end_at));
        home.appended.0 = storage.standing().last;
        let outcome = self.work(home, place, Begun { storage, report, alone, from_stream }, rng);
        home.appended.1 = last_of(&self.engine);
        if newest_of(&self.engine) > before {
            for other in self.homes.iter_mut().enumerate().filter(|(other, _)| *other != at).map(|(_, home)| home) {
                other.fork.get_or_insert_with(|| home.past.base.clone());
            }
        }
        outcome
    }

    /// Starts, and checks that the start is refused if it has to be, and else is not.
    fn begin(
        &mut self,
        start: &RunningStart,
        home: &mut Home,
        place: &Place,
        alone: &Models,
    ) -> Result<Outcome, String> {
        let mut place = place.again(self.life);
        let local = home.past.acknowledgement == Some(Acknowledgement::Local);
        // Where the stream is at a fork, by what was done here.
        let fork = home.fork.as_ref().filter(|_| local && !home.is_doubtful);
        let like = fork.map(|fork| home.past.tickets_like(fork)).unwrap_or_default();
        let must_diverge = fork.is_some() && like.iter().all(|ticket| *ticket < home.past.sure) && home.past.sure > 0;
        for _ in 0..3 {
            let gave_up = place.options.discards_local;
            match start(place.again(self.life)) {
                Ok(begun) => {
                    if must_diverge && !gave_up && fork.is_some_and(|_| !is_there(home, &begun.0)) {
                        return Err(format!(
                            "what the disk had acknowledged is gone, and nothing told of it: {:?}",
                            begun.1
                        ));
                    }
                    if gave_up || place.options.imports {
                        home.is_doubtful |= gave_up;
                    }
                    return Ok(Outcome::Lives(Box::new(begun)));
                }
                Err(StreamStartError::Engine(_) | StreamStartError::Disk(_)) => {
                    // It may have begun to give up what it was allowed to.
                    home.is_doubtful |= gave_up;
                    return Ok(Outcome::StreamEnd);
                }
                Err(StreamStartError::Diverged { commits }) if !gave_up && local => {
                    let fork = home.fork.is_some();
                    let nothing_lost = fork && !like.is_empty() && like.iter().all(|ticket| *ticket >= home.past.sure);
                    let is_exact = are_all_there(&self.engine, home.appended);
                    let is_needless = !fork && !home.is_doubtful || nothing_lost && commits > 1;
                    if commits == 0 || is_exact && is_needless {
                        return Err(format!("a start is refused for {commits} commits, and none would be lost"));
                    }
                    self.told.diverged += 1;
                    place.options.discards_local = true;
                }
                Err(StreamStartError::Diverged { .. }) if !gave_up && home.is_doubtful => {
                    place.options.discards_local = true
                }
                Err(StreamStartError::Unmarked) if !gave_up && place.mark.stores() == 0 => {
                    place.options.discards_local = true
                }
                Err(StreamStartError::Empty) if alone.is_empty() && !place.options.imports => {
                    self.told.imported += 1;
                    place.options.imports = true;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("a start is refused whatever it may do".into())
    }

    fn work(&mut self, home: &mut Home, place: &Place, begun: Begun, rng: &mut fastrand::Rng) -> Result<(), String> {
        let Begun { storage, report, alone, from_stream } = begun;
        let (log, opened) = match Log::open(&storage, SMALL, 7) {
            Ok(opened) => opened,
            Err(OpenError::Storage(_)) => {
                self.told.ended += 1;
                let acknowledgement = Some(place.options.acknowledgement);
                (home.past, home.fork) = (PastLife { base: from_stream, acknowledgement, ..PastLife::default() }, None);
                (self.past, home.is_doubtful) = (home.past.clone(), false);
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if !opened.damages.is_empty() {
            return Err(format!("damaged: {:?}", opened.damages));
        }
        let mut work = Work::new(Stepped::new(log, &storage));
        let base = look(&work.journal);
        if base != from_stream {
            return Err("the directory has not what the stream has".into());
        }
        self.check_base(home, &report, &base, &alone)?;
        self.note(&report);
        let sent = work_until_the_end(&mut work, &storage, rng);
        let past = past_of(work, base, place.options.acknowledgement);
        let local = place.options.acknowledgement == Acknowledgement::Local;
        let sent = if local { sent } else { past.sure };
        home.past = PastLife { sent, ..past };
        (home.fork, home.is_doubtful) = (None, false);
        self.past = home.past.clone();
        Ok(())
    }

    /// Whether a journal has what was acknowledged here and in the stream.
    fn check_base(&self, home: &Home, report: &StartReport, base: &Models, alone: &Models) -> Result<(), String> {
        let local = home.past.acknowledgement == Some(Acknowledgement::Local);
        let must_have = home.past.acknowledgement.is_some() && !home.is_doubtful && home.fork.is_none();
        if must_have && !home.past.has(base, home.past.sure) {
            return Err(format!("the journal has not what was committed; local: {local}, {report:?}"));
        }
        if report.pushed == 0 && alone != base {
            return Err(format!("the journal has not what the stream had; local: {local}, {report:?}"));
        }
        Ok(())
    }

    fn note(&mut self, report: &StartReport) {
        self.told.started += 1;
        self.told.pushed += u64::from(report.pushed > 0);
        self.told.anew += u64::from(report.is_made_anew);
        self.told.trusted += u64::from(!report.is_made_anew && report.pushed == 0);
    }
}

/// A start, what the stream had before it, and has after it.
struct Begun {
    storage: TwinReplicated,
    report: StartReport,
    alone: Models,
    from_stream: Models,
}

/// Whether a journal has what the disk had acknowledged. It is looked at on a copy.
fn is_there(home: &Home, storage: &TwinReplicated) -> bool {
    let copy = Twin::new();
    for (slot, bytes) in storage.slots().expect("they are listed") {
        let mut contents = vec![0; bytes as usize];
        storage.read(slot, 0, &mut contents).expect("it is read");
        copy.create(slot, bytes).expect("it is made");
        copy.write(slot, 0, &contents).expect("it is written");
    }
    let Ok((log, _)) = Log::open(&copy, SMALL, 7) else { return false };
    home.past.has(&look(&Stepped::new(log, &copy)), home.past.sure)
}

fn past_of<S: Storage>(work: Work<'_, S>, base: Models, acknowledgement: Acknowledgement) -> PastLife {
    let (sure, most) = (work.journal.log.committed().0, work.journal.log.accepted().0);
    PastLife { base, done: work.done, sure, sent: 0, most, acknowledgement: Some(acknowledgement) }
}

/// Works, sends, cuts and marks, until the journal has ended or enough is done; tells which ticket
/// the stream has for sure, of those that wait until they are sent.
fn work_until_the_end(work: &mut Work<'_, TwinReplicated>, storage: &TwinReplicated, rng: &mut fastrand::Rng) -> u64 {
    let (mut sent, sends_one_of) = (0, rng.u32(1..60));
    for _ in 0..2_000 {
        work.step(rng);
        // What fails is tried again at the next turn.
        if rng.u32(0..50) == 0 {
            let _ = storage.cut();
        }
        if rng.u32(0..100) == 0 {
            let _ = storage.checkpoint();
        }
        if rng.u32(0..sends_one_of) == 0 && storage.send().is_ok() && storage.standing().behind.commits == 0 {
            sent = work.journal.log.committed().0;
        }
        if work.journal.log.poisoned().is_some() {
            break;
        }
    }
    sent
}

/// The first seed and life in which something is wrong.
pub fn first_wrong(seeds: u64, start: &RunningStart) -> Option<String> {
    let mut all = Told::default();
    for seed in 0..seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story = Story::new();
        story.engine.set_record_bytes_max(if seed % 3 == 0 { 2_000 } else { 1 << 20 });
        for life in 0..8 {
            if let Err(wrong) = story.live(start, &mut rng) {
                return Some(format!("seed {seed}, life {life}: {wrong}"));
            }
        }
        // When all is well it starts.
        story.engine.heal();
        let place = story.place(&story.homes[0], &mut rng);
        let options = StartOptions { discards_local: true, imports: true, ..place.options };
        if let Err(error) = start(Place { options, ..place }) {
            return Some(format!("seed {seed}: {error}"));
        }
        let Told { ended, started, diverged, pushed, anew, trusted, alone, imported } = story.told;
        all.ended += ended;
        all.started += started;
        all.diverged += diverged;
        all.pushed += pushed;
        all.anew += anew;
        all.trusted += trusted;
        all.alone += alone;
        all.imported += imported;
    }
    println!("{all:?}");
    let Told { ended, started, diverged, pushed, anew, trusted, alone, imported } = all;
    assert!(
        ended > seeds && started > 4 * seeds && anew > seeds / 2 && trusted > seeds && alone > seeds / 4,
        "{all:?}"
    );
    assert!(diverged > seeds / 6 && pushed > seeds / 4 && imported > 0, "{all:?}");
    None
}

#[test]
fn a_broker_has_what_it_acknowledged_whatever_became_of_its_disk() {
    assert_eq!(first_wrong(300, &started), None);
}

#[test]
fn the_stream_holds_no_more_than_what_is_of_use() {
    let mut rng = fastrand::Rng::with_seed(1);
    let engine: Arc<TwinEngine> = Arc::default();
    let (storage, _) = started(Place::new(&engine, 1, Acknowledgement::Engine)).expect("it is answered");
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
    let engine: Arc<TwinEngine> = Arc::default();
    let (_, report) = started(Place::new(&engine, 1, Acknowledgement::Both)).expect("started");
    assert_eq!(report, StartReport { epoch: 2, is_made_anew: true, ..StartReport::default() });
    assert_eq!(engine.epoch().expect("it is answered").map(|found| found.number), Some(1));
}
