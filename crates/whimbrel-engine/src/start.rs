//! Starting: the stream is taken, what is on the disk and in the stream is looked at, and nothing
//! is written before it is decided what becomes of both.

mod directory;
mod push;
mod rebuild;
mod survey;

use std::collections::BTreeMap;

use whimbrel_journal::{Fault, Storage};

use crate::engine::{Engine, EngineError, RecordNumber};
use crate::fault::EngineFaults;
use crate::mark::{DirectoryMark, MarkContents, MarkState};
use crate::record::Epoch;
use crate::replicated::{Acknowledgement, MarkKeeper, Replicated};
use crate::stream::{EngineLink, OwnedStream, StreamEnd};
use directory::StartScene;
use survey::{Survey, Taken, take};

/// How a broker starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartOptions {
    /// A number that tells this start from all others.
    pub owner: u64,
    /// Who has to have a commit.
    pub acknowledgement: Acknowledgement,
    /// What the directory has and the stream does not is given up, where a start would be refused
    /// for it.
    pub discards_local: bool,
    /// The journal of a directory that has no mark is appended to a stream that has none.
    pub imports: bool,
}

/// What a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartReport {
    /// The epoch that was taken.
    pub epoch: u64,
    /// Records that were read.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records that the replica lacked and another one had.
    pub found_elsewhere: u64,
    /// Records that a former owner had appended after it had lost the stream: none of them can have
    /// been acknowledged.
    pub dropped: u64,
    /// All files were made from the stream.
    pub is_made_anew: bool,
    /// Records by which the stream was given what only the files had.
    pub pushed: u64,
    /// Commits of the files that were given up, as [`StartOptions::discards_local`] allows.
    pub discarded: u64,
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamStartError {
    /// Another start of this broker was quicker.
    #[error("another start of this broker has taken its stream meanwhile")]
    Taken,
    /// The stream has no commit, and the disk has a journal: it would be removed.
    #[error(
        "the stream is empty, and the directory has a journal: to append the journal to the stream, start with an \
         import; to begin anew, remove the directory"
    )]
    Empty,
    /// Nothing says what the journal on the disk has to do with the stream.
    #[error(
        "the stream and the directory have a journal each, and the directory has no mark that says how far they are \
         the same: to give up the journal of the directory and make it from the stream, start with leave to discard \
         it"
    )]
    Unmarked,
    /// The stream is not that of the mark any more.
    #[error(
        "the stream is not the one that the directory was written with: the directory has its records up to \
         {marked}, and the stream ends with {last} or has others; it was made anew, or restored: restore a newer one; \
         or, if the directory has all, delete the stream and start with an import, which gives a new one the journal of the \
         directory; or remove the mark, and start with leave to discard that journal"
    )]
    Remade {
        /// A record that the stream must have had.
        marked: RecordNumber,
        /// Its last one.
        last: RecordNumber,
    },
    /// The disk has commits that may have been acknowledged, and cannot be appended any more.
    #[error(
        "the directory has {commits} commits that the stream does not have, and cannot get any more, since other \
         commits are there: another broker has gone on with the stream, or this one without it; start with leave to \
         discard them to go on with what the stream has"
    )]
    Diverged {
        /// The number of commits that would be lost; those that the stream had, and has removed
        /// since as of no use, are among them.
        commits: u64,
    },
    /// No replica has a record that must be there.
    #[error("record {number} of the stream is missing at all replicas")]
    Missing {
        /// Its number.
        number: RecordNumber,
    },
    /// A record is damaged, or of a later version.
    #[error("record {number} of the stream cannot be read: it is damaged, or of a later version")]
    Unreadable {
        /// Its number.
        number: RecordNumber,
    },
    /// A record continues a segment before its newest record: two owners have written it.
    #[error("record {number} of the stream does not continue its segment")]
    Forked {
        /// Its number.
        number: RecordNumber,
    },
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(EngineError),
    /// The disk or the mark failed.
    #[error("{0}")]
    Disk(#[from] Fault),
}

impl From<EngineError> for StreamStartError {
    fn from(error: EngineError) -> StreamStartError {
        StreamStartError::Engine(error)
    }
}

impl From<StreamEnd> for StreamStartError {
    fn from(ended: StreamEnd) -> StreamStartError {
        match ended {
            StreamEnd::Taken => StreamStartError::Taken,
            StreamEnd::Shorter | StreamEnd::Gone => StreamStartError::Engine(EngineError::Failed(ended.to_string())),
            StreamEnd::Unanswered => StreamStartError::Engine(EngineError::Unanswered(ended.to_string())),
            StreamEnd::Engine(error) => StreamStartError::Engine(error),
            StreamEnd::Disk(fault) => StreamStartError::Disk(fault),
        }
    }
}

/// What becomes of the disk and the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartPlan {
    /// All files are made from the stream.
    Anew,
    /// The files get what the stream has behind the mark, and keep nothing else.
    Equalize,
    /// The files get what the stream has behind the mark, then the stream what only the files have.
    Push,
}

impl<S: Storage, E: Engine> Replicated<S, E> {
    /// Takes the stream, so that what its former owner appends from now on is refused, and makes
    /// the disk and the stream equal.
    ///
    /// # Errors
    /// See [`StreamStartError`]. It may be tried again, whatever the error; nothing has been
    /// written to the disk, and only the epoch to the stream, unless the disk, the mark or the
    /// engine failed.
    pub fn start(
        disk: S,
        engine: E,
        mark: impl DirectoryMark + Send + 'static,
        options: StartOptions,
    ) -> Result<(Replicated<S, E>, StartReport), StreamStartError> {
        let keeper = MarkKeeper::new(Box::new(mark));
        Self::start_with(disk, EngineLink::new(engine, EngineFaults::default()), keeper, options)
    }

    /// As [`Replicated::start`], with a fault.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "mutants")]
    pub fn start_mutant(
        disk: S,
        engine: E,
        mark: impl DirectoryMark + Send + 'static,
        options: StartOptions,
        mutant: crate::EngineMutant,
    ) -> Result<(Replicated<S, E>, StartReport), StreamStartError> {
        let keeper = MarkKeeper::new(Box::new(mark));
        Self::start_with(disk, EngineLink::new(engine, EngineFaults::of(mutant)), keeper, options)
    }

    fn start_with(
        disk: S,
        link: EngineLink<E>,
        mut keeper: MarkKeeper,
        options: StartOptions,
    ) -> Result<(Replicated<S, E>, StartReport), StreamStartError> {
        let mut found = StartScene::look(&disk, &link, keeper.load()?)?;
        let taken = take(&found, options.owner);
        let taken = if options.imports && matches!(taken, Err(StreamStartError::Remade { .. })) && found.is_whole() {
            // The directory's own stream is gone, and its mark tells nothing of this one.
            drop(taken);
            found.mark = None;
            take(&found, options.owner)?
        } else {
            taken?
        };
        let (stream, report) = RunningStart { found: &found, options, keeper: &mut keeper }.run(taken)?;
        keeper.store(&stream.mark(&link, options.acknowledgement))?;
        Ok((Replicated::new(disk, link, keeper, stream, options.acknowledgement)?, report))
    }
}

/// A start that has taken the stream.
struct RunningStart<'a, 'k, S, E> {
    found: &'a StartScene<'a, S, E>,
    options: StartOptions,
    keeper: &'k mut MarkKeeper,
}

impl<'a, S: Storage, E: Engine> RunningStart<'a, '_, S, E> {
    fn run(mut self, taken: Taken<'a, S, E>) -> Result<(OwnedStream, StartReport), StreamStartError> {
        let Taken { epoch, mut survey } = taken;
        let (plan, discarded) = self.decide(&survey)?;
        if plan == StartPlan::Anew && survey.mark.is_some() {
            survey = Survey::whole(self.found, survey.taken)?;
        }
        let epoch = Epoch { epoch, owner: self.options.owner };
        let report = StartReport { is_made_anew: plan == StartPlan::Anew, discarded, ..survey.report };
        let link = self.found.link;
        let last = if fault!(link, ServesBeforeEpoch) { survey.taken - 1 } else { survey.taken };
        let mut stream = OwnedStream::new(epoch, last, survey.seen.segments.clone());
        for (slot, below) in &survey.seen.useless {
            if *below == 0 {
                stream.end_segment(*slot);
            } else {
                link.cuts().insert(*slot, *below);
            }
        }
        let pushed = self.perform(plan, &survey, &mut stream)?;
        let epoch = stream.epoch();
        Ok((stream, StartReport { epoch, pushed, ..report }))
    }

    /// What becomes of disk and stream, and the number of commits of the disk that are given up.
    fn decide(&self, survey: &Survey<'a, S, E>) -> Result<(StartPlan, u64), StreamStartError> {
        let StartOptions { discards_local, imports, .. } = self.options;
        let has_commits = !survey.seen.segments.is_empty();
        let Some(mark) = &self.found.mark else {
            return match (self.found.has_journal(), has_commits) {
                (false, _) => Ok((StartPlan::Anew, 0)),
                (true, false) if imports => Ok((StartPlan::Push, 0)),
                (true, false) => Err(StreamStartError::Empty),
                (true, true) if discards_local => Ok((StartPlan::Anew, self.found.commits_beyond(&BTreeMap::new())?)),
                (true, true) => Err(StreamStartError::Unmarked),
            };
        };
        let is_local = self.found.is_local();
        if mark.state != MarkState::Changing && survey.is_of(mark) {
            // Else the disk may lack what the engine alone has acknowledged.
            let has_acknowledged = mark.acknowledgement != Acknowledgement::Engine || !survey.seen.is_passed;
            let is_followed = mark.state != MarkState::Alone || !survey.seen.differs && has_acknowledged;
            if is_followed && self.is_sound(survey, is_local) && !fault!(self.found.link, TailDropped) {
                return Ok((StartPlan::Push, 0));
            }
        }
        if !has_commits {
            return Err(StreamStartError::Empty);
        }
        if is_local && !fault!(self.found.link, TailDropped) {
            let commits = self.found.commits_beyond(&survey.seen.held)?;
            if commits > 0 && !discards_local {
                return Err(StreamStartError::Diverged { commits });
            }
            if commits > 0 {
                return Ok((StartPlan::Anew, commits));
            }
        }
        Ok((if self.is_equalizable(survey) { StartPlan::Equalize } else { StartPlan::Anew }, 0))
    }

    /// Whether the files are those that the owner of the mark can have left. A file that is gone is
    /// one that it has removed; where the stream has all that was acknowledged, that need not be
    /// believed.
    fn is_sound(&self, survey: &Survey<'a, S, E>, is_local: bool) -> bool {
        let files = &self.found.files;
        survey.mark.is_some()
            && survey.seen.segments.iter().all(|(slot, segment)| match files.get(slot) {
                None => is_local,
                Some(file) if file.number > Some(segment.number) => true,
                Some(file) => {
                    let is_same = file.number == Some(segment.number) || survey.has_begun(*slot, segment.number);
                    is_same && file.bytes == segment.file_bytes
                }
            })
    }

    /// Whether the files have all segments that the mark names and the stream still has.
    fn is_equalizable(&self, survey: &Survey<'a, S, E>) -> bool {
        let files = &self.found.files;
        survey.mark.is_some()
            && survey.seen.segments.iter().all(|(slot, segment)| {
                let is_same = |file: &directory::FoundFile| {
                    file.number == Some(segment.number) && file.bytes == segment.file_bytes
                };
                survey.has_begun(*slot, segment.number) || files.get(slot).is_some_and(is_same)
            })
    }

    /// Makes disk and stream equal; tells how many records that took.
    fn perform(
        &mut self,
        plan: StartPlan,
        survey: &Survey<'a, S, E>,
        stream: &mut OwnedStream,
    ) -> Result<u64, StreamStartError> {
        match plan {
            StartPlan::Anew => {
                // Half of the files would be taken for all of them otherwise.
                let nothing = MarkContents {
                    state: MarkState::Changing,
                    upto: 0,
                    segments: BTreeMap::new(),
                    ..stream.mark(self.found.link, self.options.acknowledgement)
                };
                self.keeper.store(&nothing)?;
                survey.make_anew()?;
                Ok(0)
            }
            StartPlan::Equalize => {
                let mark = survey.mark.expect("a start that has no mark makes all files anew");
                self.keeper.store(&MarkContents { state: MarkState::Changing, ..mark.clone() })?;
                survey.equalize(mark)?;
                Ok(0)
            }
            StartPlan::Push => {
                survey.follow()?;
                let left = survey.left_to_push(stream)?;
                survey.push(&left, stream)
            }
        }
    }
}
