//! A log in memory: commits, one after the other, each of which takes a time and makes durable the
//! writes that waited when it began.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_core::Broker;
use whimbrel_core::store::{BatchNo, Fetch, LogState, Restoring, StreamName, StreamState, Write};
use whimbrel_event::{HOST_RELIABLE_MAX, Tick};

/// One write.
#[derive(Debug)]
enum Kept {
    Record(StreamName, Tick, Vec<u8>),
    Put(Vec<u8>, Vec<u8>),
    Forget(Vec<u8>),
    Chop(StreamName, Tick),
    Reserve(Tick),
}

/// The durable writes, and those that wait for a commit.
#[derive(Debug, Default)]
pub struct Log {
    streams: BTreeMap<StreamName, BTreeMap<Tick, Vec<u8>>>,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    last: BTreeMap<StreamName, Tick>,
    chopped: BTreeMap<StreamName, Tick>,
    reserved: Tick,
    /// The writes that wait for the next commit, and those of the present one.
    waiting: Vec<Kept>,
    newest: BatchNo,
    committing: Option<(BatchNo, Vec<Kept>)>,
    /// The length of a commit, and of a read.
    takes: Duration,
    fetches: VecDeque<Fetch>,
    /// Events that were written.
    pub events: u64,
}

/// The result of a [`Fetch`].
#[derive(Debug)]
pub struct Slice {
    /// The number of the fetch.
    pub number: u32,
    /// The records, in order.
    pub records: Vec<(Tick, Vec<u8>)>,
    /// The tick up to which the stream was read.
    pub upto: Tick,
}

impl Log {
    /// An empty log whose commits and reads take a given time.
    pub fn new(takes: Duration) -> Log {
        Log { takes, ..Log::default() }
    }

    /// The length of a commit, and of a read.
    pub fn takes(&self) -> Duration {
        self.takes
    }

    /// The state with which a core starts.
    pub fn restoring(&self) -> Restoring {
        let mut restoring = Restoring::default();
        for (key, value) in &self.map {
            restoring.entry(key, value).expect("entries that were written can be read");
        }
        restoring
    }

    /// The state of the log.
    pub fn state(&self) -> LogState {
        let mut state = LogState { reserved: self.reserved, ..LogState::default() };
        for (index, events) in (0..HOST_RELIABLE_MAX).zip(&mut state.events) {
            let name = StreamName::Events(index);
            let get = |ticks: &BTreeMap<StreamName, Tick>| ticks.get(&name).copied().unwrap_or_default();
            *events = StreamState { last: get(&self.last), chopped: get(&self.chopped) };
        }
        state
    }

    /// The process has ended: uncommitted writes are lost.
    pub fn crash(&mut self) {
        (self.committing, self.newest) = (None, BatchNo(0));
        self.waiting.clear();
        self.fetches.clear();
    }

    /// Takes a core's writes and reads. Returns whether a commit begins, and how many reads do.
    pub fn take(&mut self, core: &mut Broker) -> (bool, usize) {
        while let Some(batch) = core.batch() {
            let writes = batch.writes().map(|write| match write {
                Write::Event { pubend, tick, event } => {
                    Kept::Record(StreamName::Events(pubend), tick, Write::event_parts(event).concat())
                }
                Write::Record { stream, tick, body } => Kept::Record(stream, tick, body.to_vec()),
                Write::Put { key, value } => Kept::Put(key.to_vec(), value.to_vec()),
                Write::Forget { key } => Kept::Forget(key.to_vec()),
                Write::Chop { stream, upto } => Kept::Chop(stream, upto),
                Write::Reserve { upto } => Kept::Reserve(upto),
            });
            self.waiting.extend(writes);
            self.newest = core.submitted();
        }
        let known = self.fetches.len();
        while let Some(fetch) = core.fetch() {
            self.fetches.push_back(fetch);
        }
        (self.begin(), self.fetches.len() - known)
    }

    /// Begins a commit, if there are writes and no commit is in progress.
    pub fn begin(&mut self) -> bool {
        let begins = self.committing.is_none() && !self.waiting.is_empty();
        if begins {
            self.committing = Some((self.newest, std::mem::take(&mut self.waiting)));
        }
        begins
    }

    /// The commit is done: the last durable batch.
    pub fn committed(&mut self) -> Option<BatchNo> {
        let (upto, writes) = self.committing.take()?;
        writes.into_iter().for_each(|write| self.apply(write));
        Some(upto)
    }

    fn apply(&mut self, write: Kept) {
        match write {
            Kept::Record(stream, tick, body) => {
                self.events += u64::from(matches!(stream, StreamName::Events(_)));
                self.last.insert(stream, tick);
                self.streams.entry(stream).or_default().insert(tick, body);
            }
            Kept::Put(key, value) => drop(self.map.insert(key, value)),
            Kept::Forget(key) => drop(self.map.remove(&key)),
            Kept::Chop(stream, upto) => {
                self.chopped.insert(stream, upto);
                let is_its = |name: &StreamName| match (*name, stream) {
                    (StreamName::Filter { pubend, .. }, StreamName::Events(its)) => pubend == its,
                    _ => *name == stream,
                };
                for (_, records) in self.streams.iter_mut().filter(|(name, _)| is_its(name)) {
                    *records = records.split_off(&Tick(upto.0 + 1));
                }
            }
            Kept::Reserve(upto) => self.reserved = self.reserved.max(upto),
        }
    }

    /// The oldest requested read is done.
    pub fn read(&mut self) -> Option<Slice> {
        let Fetch { number, stream, after, upto, bytes } = self.fetches.pop_front()?;
        let mut slice = Slice { number, records: Vec::new(), upto };
        let Some(records) = self.streams.get(&stream) else { return Some(slice) };
        let mut budget = bytes;
        for (tick, body) in records.range(Tick(after.0 + 1)..=upto) {
            if budget == 0 {
                slice.upto = Tick(tick.0 - 1);
                break;
            }
            budget = budget.saturating_sub(body.len());
            slice.records.push((*tick, body.clone()));
        }
        Some(slice)
    }
}
