//! The driver of the broker's log, on a simulated disk and in virtual time.
//!
//! As any driver of [`whimbrel_core::store`] it takes the broker's batches in order at the end of
//! each turn, puts each as a whole into a batch of the journal, and tells the broker how far they
//! are durable. The disk is a [`Twin`]: sectors that were not synced are lost, or torn, when the
//! world crashes. With a replicated engine a commit is a record of a stream, too, see
//! `engine.rs`; then half of them are made when they begin and told of when they end, so that
//! a process may end before it learns of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_core::store::{Batch, BatchNo, Disk, EVENT_HEAD, Fetch, LogState, StreamName, StreamState, Write};
use whimbrel_event::{HOST_RELIABLE_MAX, Tick, Time};
use whimbrel_journal::twin::{Fate, Twin};
use whimbrel_journal::{
    Fault, Log, Map, MapOptions, Need, Options, Piece, ReadBuffer, Readable, Refused, Storage, Stream, StreamId,
    Ticket, Wanted, WriteStep, perform_chore,
};
use whimbrel_mqtt::MqttBroker;

use crate::engine::LogDisk;
use crate::random::Random;

/// The largest event that is logged, bytes. With a retained copy it fits into a batch.
pub const EVENT_BYTES_MAX: usize = 6 << 10;

/// A log that soon needs another file, and changes its files often.
const OPTIONS: Options = Options { segment_bytes: 128 << 10, batch_bytes: 16 << 10, max_bytes: u64::MAX };

/// Kinds of streams.
const EVENTS: u32 = 1;
const FILTER: u32 = 2;
const MAP: u32 = 3;
const TICKS: u32 = 4;

/// Bytes of one read, at most. Parts are small, so that there are many.
const READ_BYTES: usize = 2 << 10;

/// Characters of the text about a write that is refused, at most.
const WORDS_MAX: usize = 300;

/// After how many of 1,000 commits records are removed that are of no use, if there are some.
const CUTS_PERMILLE: u64 = 300;

/// How long until a full log is inspected again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The journal's stream for a stream name.
fn id_of(name: StreamName) -> StreamId {
    match name {
        StreamName::Events(pubend) => StreamId { kind: EVENTS, id: pubend.into() },
        StreamName::Filter { pubend, shard } => {
            StreamId { kind: FILTER, id: u64::from(pubend) << 16 | u64::from(shard) }
        }
        StreamName::Ticks => StreamId { kind: TICKS, id: 0 },
    }
}

/// How long a commit takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The least time.
    pub least: Duration,
    /// The longest time.
    pub most: Duration,
}

/// A report for the broker.
#[derive(Debug)]
pub(crate) enum News {
    /// See [`whimbrel_mqtt::Input::Committed`].
    Committed(BatchNo),
    /// See [`whimbrel_mqtt::Input::Disk`].
    Disk(Disk),
    /// See [`whimbrel_mqtt::Input::Fetched`].
    Fetched(Slice),
}

/// A part of a stream that was read.
#[derive(Debug)]
pub(crate) struct Slice {
    /// The number of the [`Fetch`].
    pub(crate) number: u32,
    /// Records in the order of their ticks.
    pub(crate) records: Vec<(Tick, Vec<u8>)>,
    /// How far the stream was read.
    pub(crate) upto: Tick,
}

/// A record of an event that is durable: the pubend's index, the tick, and the record.
pub(crate) type Logged = (u8, u64, Vec<u8>);

/// The packed event in a record of a log of events, which begins with the version of its format.
pub(crate) fn packed_of(record: &[u8]) -> Vec<u8> {
    [&[0; EVENT_HEAD], &record[1..]].concat()
}

/// The contents of a log at its opening.
#[derive(Debug)]
pub(crate) struct Found {
    /// The map: keys and values.
    pub(crate) entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Reservation and streams.
    pub(crate) state: LogState,
}

/// A write in progress.
#[derive(Debug)]
struct Flight {
    done_at: Time,
    step: WriteStep,
    outcome: Result<(), Fault>,
    /// Whether `outcome` is that of the sync, too.
    is_synced: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Driver {
    storage: LogDisk,
    log: Log,
    map: Map,
    streams: BTreeMap<StreamName, Stream>,
    /// Batches that were submitted and are not durable, each with the ticket of its last operation.
    tickets: VecDeque<(Ticket, BatchNo)>,
    disk: Disk,
    flight: Option<Flight>,
    /// Reads in progress, each with its end.
    fetches: VecDeque<(Time, Fetch)>,
    pace: Pace,
    random: Random,
    /// Whether the next sync fails.
    fails: bool,
    /// Until when the engine does not answer.
    silent_until: Time,
    look_at: Time,
    /// The last tick of each stream of events that [`Driver::logged`] returned.
    shown: [u64; HOST_RELIABLE_MAX as usize],
    buffer: Vec<u8>,
    reading: ReadBuffer,
}

impl Driver {
    /// Opens the log on a disk, or creates one.
    ///
    /// # Panics
    /// When that is not possible: nothing that a crash does to a disk prevents it.
    pub(crate) fn open(storage: LogDisk, pace: Pace, mut random: Random) -> (Driver, Found) {
        let (mut log, report) = Log::open(&storage, OPTIONS, random.next()).expect("a log survives crashes");
        assert!(report.damages.is_empty(), "a crash damages nothing that was durable: {:?}", report.damages);
        let events = (0..HOST_RELIABLE_MAX).map(StreamName::Events);
        let names: Vec<StreamName> = events.chain([StreamName::Ticks]).collect();
        let mut streams = BTreeMap::new();
        let filters = log.streams().filter(|(id, _)| id.kind == FILTER);
        for (id, stream) in filters {
            streams.insert(StreamName::Filter { pubend: (id.id >> 16) as u8, shard: id.id as u16 }, stream);
        }
        for name in names {
            let (stream, _) = log.open_stream(id_of(name)).expect("a log that was just opened has room");
            streams.insert(name, stream);
        }
        let (stream, _) = log.open_stream(StreamId { kind: MAP, id: 0 }).expect("a log that was just opened has room");
        let mut reading = ReadBuffer::default();
        let mut entries = Vec::new();
        let options = MapOptions { seed: random.next().into(), clean_min: 32 << 10 };
        let map = Map::restore(&(&log, &storage), stream, options, &mut reading, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
        });
        let map = map.expect("a map survives crashes");
        let known = |name| log.info(streams[&name]).map_or((0, 0, 0), |info| (info.last, info.chopped, info.reserved));
        let events = std::array::from_fn(|at| {
            let (last, chopped, _) = known(StreamName::Events(at as u8));
            StreamState { last: Tick(last), chopped: Tick(chopped) }
        });
        let found = Found { entries, state: LogState { reserved: Tick(known(StreamName::Ticks).2), events } };
        let (tickets, buffer) = (VecDeque::new(), Vec::new());
        let (disk, flight, fails, look_at) = (Disk::Open, None, false, Time::ZERO);
        let shown = [0; HOST_RELIABLE_MAX as usize];
        let driver = Driver {
            storage,
            log,
            map,
            streams,
            tickets,
            disk,
            flight,
            fetches: VecDeque::new(),
            pace,
            random,
            fails,
            silent_until: Time::ZERO,
            look_at,
            shown,
            buffer,
            reading,
        };
        (driver, found)
    }

    /// The machine stops; returns the disk's state afterwards. Each sector that was written and not
    /// synced is as before, as written, or torn.
    pub(crate) fn crash(mut self) -> Twin {
        let weights = *self.random.pick(&[[1, 0, 0], [0, 1, 0], [1, 1, 1], [4, 4, 1]]);
        let mut fates = self.random.fork();
        let fates = || [Fate::Old, Fate::New, Fate::Garbage][fates.weighted(&weights)];
        let twin = self.storage.twin().crashed(fates);
        twin.set_room(None);
        twin
    }

    /// The state of the disk: which writes the log takes.
    pub(crate) fn disk(&self) -> Disk {
        self.disk
    }

    /// What the log is kept on.
    pub(crate) fn storage(&self) -> &LogDisk {
        &self.storage
    }

    /// Whether another process has taken the log, as far as the engine answers.
    pub(crate) fn is_taken(&self, now: Time) -> Option<bool> {
        if now < self.silent_until { None } else { self.storage.is_taken() }
    }

    /// The engine does not answer until a moment: commits wait, and nothing else.
    /// Returns until when it does not, after all.
    pub(crate) fn silence(&mut self, until: Time) -> Time {
        self.silent_until = self.silent_until.max(until);
        let takes = self.takes();
        if let Some(flight) = &mut self.flight {
            flight.done_at = flight.done_at.max(until + takes);
        }
        self.silent_until
    }

    /// Sets whether the next sync fails.
    pub(crate) fn fail(&mut self, fails: bool) {
        self.fails = fails;
    }

    /// Sets whether the disk lacks room for another file.
    pub(crate) fn fill(&mut self, full: bool) {
        let slots = self.storage.slots().expect("the twin lists its files");
        let used = slots.iter().map(|(_, bytes)| bytes).sum();
        self.storage.twin().set_room(full.then_some(used));
    }

    /// Takes the broker's batches, as far as the log has room for them, and lets the disk begin.
    /// Returns a report that the broker must be given before it continues.
    pub(crate) fn submit(&mut self, now: Time, broker: &mut MqttBroker) -> Option<News> {
        while let Some(fetch) = broker.fetch() {
            let takes = self.takes();
            self.fetches.push_back((now + takes, fetch));
        }
        while let Some(batch) = broker.batch().filter(|_| self.disk != Disk::Poisoned) {
            match self.log.require(need_of(&batch, &self.streams)) {
                Ok(()) => {
                    self.write(&batch);
                    let batch = broker.submitted();
                    self.tickets.push_back((self.log.accepted(), batch));
                }
                Err(Refused::Full) if self.disk == Disk::Open => {
                    self.disk = Disk::Full;
                    self.look_at = now + LOOK_EVERY;
                    return Some(News::Disk(self.disk));
                }
                Err(Refused::Full) => {
                    assert!(!batch.has_event(), "a broker that was told so writes no events to a full log");
                    break;
                }
                Err(Refused::Busy) => break,
                Err(refused) => {
                    let writes: Vec<String> =
                        batch.writes().map(|write| format!("{write:?}").chars().take(WORDS_MAX).collect()).collect();
                    panic!("a batch is refused: {refused}: {writes:?}");
                }
            }
        }
        self.map.clean(&mut self.log);
        self.begin(now);
        None
    }

    /// Puts a broker's batch that has room into the journal's batch.
    fn write(&mut self, batch: &Batch<'_>) {
        let Driver { log, map, streams, .. } = self;
        for write in batch.writes() {
            let outcome = match write {
                Write::Event { pubend, tick, event } => {
                    let stream = stream_of(streams, log, StreamName::Events(pubend));
                    log.append(stream, tick.0, &Write::event_parts(event))
                }
                Write::Record { stream: name, tick, body } => {
                    let stream = stream_of(streams, log, name);
                    log.append(stream, tick.0, &[body])
                }
                Write::Put { key, value } => map.put(log, key, value),
                Write::Forget { key } => map.remove(log, key),
                Write::Chop { stream: name, upto } => {
                    let mut whole = filters_of(streams, name).chain(streams.get(&name).copied());
                    whole.try_fold(log.accepted(), |_, stream| log.chop(stream, upto.0))
                }
                Write::Reserve { upto } => {
                    let stream = stream_of(streams, log, StreamName::Ticks);
                    log.reserve(stream, upto.0)
                }
            };
            outcome.unwrap_or_else(|refused| panic!("{write:?} was required, and is refused: {refused}"));
        }
    }

    /// Starts the disk's next step, unless the disk is busy.
    fn begin(&mut self, now: Time) {
        while let Some(chore) = self.log.next_chore() {
            self.log.chore_done(perform_chore(&self.storage, chore));
        }
        if self.flight.is_none()
            && let Some(step) = self.log.next_write()
        {
            // Bytes written now are torn if the world crashes before the sync.
            let mut parts = step.encode(&mut self.buffer).into_iter().filter(|(_, range)| !range.is_empty());
            let outcome =
                parts.try_for_each(|(offset, range)| self.storage.write(step.slot(), offset, &self.buffer[range]));
            let is_synced = self.storage.is_on_engine() && self.random.chance(500);
            let outcome = if is_synced { outcome.and_then(|()| self.storage.sync(step.slot())) } else { outcome };
            let done_at = now.max(self.silent_until) + self.takes();
            self.flight = Some(Flight { done_at, step, outcome, is_synced });
        }
    }

    /// How long the disk takes for one step.
    fn takes(&mut self) -> Duration {
        let Pace { least, most } = self.pace;
        Duration::from_nanos(self.random.between(least.as_nanos() as u64, most.as_nanos() as u64))
    }

    /// Reads a part of a stream that the broker has asked for; perhaps an empty one.
    fn read(&mut self, fetch: Fetch) -> Slice {
        let Fetch { number, stream, after, upto, bytes } = fetch;
        let mut slice = Slice { number, records: Vec::new(), upto };
        let Some(stream) = self.streams.get(&stream) else { return slice };
        let wanted = Wanted { from: after.0 + 1, to: upto.0, budget: bytes.min(READ_BYTES) };
        let read = (&self.log, &self.storage).read(*stream, wanted, &mut self.reading, &mut |tick, record| {
            slice.records.push((Tick(tick), record.to_vec()));
        });
        let next = read.expect("the twin gives what it holds");
        slice.upto = next.map_or(upto, |next| Tick(next - 1));
        slice
    }

    /// When the disk next acts by itself.
    pub(crate) fn next_change(&self) -> Option<Time> {
        let look = (self.disk == Disk::Full).then_some(self.look_at);
        let done = self.flight.as_ref().map(|flight| flight.done_at);
        let read = self.fetches.iter().map(|(at, _)| *at).min();
        [look, done, read].into_iter().flatten().min()
    }

    /// Does what is due by now.
    pub(crate) fn change(&mut self, now: Time) -> Vec<News> {
        let mut news = Vec::new();
        if let Some(flight) = self.flight.take_if(|flight| flight.done_at <= now) {
            news.extend(self.finish(flight));
        }
        for (at, fetch) in std::mem::take(&mut self.fetches) {
            if at <= now {
                news.push(News::Fetched(self.read(fetch)));
            } else {
                self.fetches.push_back((at, fetch));
            }
        }
        if self.disk == Disk::Full && self.look_at <= now {
            self.look_at = now + LOOK_EVERY;
            self.log.retry_space();
        }
        self.begin(now);
        if self.disk == Disk::Full
            && self.log.require(Need { streams: 1, records: 1, bytes: EVENT_BYTES_MAX, ..Need::default() }).is_ok()
        {
            self.disk = Disk::Open;
            news.push(News::Disk(self.disk));
        }
        news
    }

    /// A write is synced, or has failed.
    fn finish(&mut self, flight: Flight) -> Option<News> {
        if std::mem::take(&mut self.fails) {
            let twin = self.storage.twin();
            twin.fail_sync(twin.operations());
        }
        let Flight { step, outcome, is_synced, .. } = flight;
        let outcome = if is_synced { outcome } else { outcome.and_then(|()| self.storage.sync(step.slot())) };
        if self.storage.is_on_engine() && self.random.chance(CUTS_PERMILLE) {
            self.storage.clean();
        }
        let failed = outcome.is_err();
        let committed = self.log.written(step, outcome);
        if failed {
            self.disk = Disk::Poisoned;
            return Some(News::Disk(self.disk));
        }
        if let Some(wanted) = self.map.wanted() {
            let piece = Piece::read(&(&self.log, &self.storage), self.map.stream(), wanted, &mut self.reading);
            self.map.take(piece);
        }
        let done = self.tickets.partition_point(|(ticket, _)| *ticket <= committed);
        self.tickets.drain(..done).next_back().map(|(_, batch)| News::Committed(batch))
    }

    /// Events that became durable since the last call; at first, all of them.
    pub(crate) fn logged(&mut self) -> Vec<Logged> {
        let mut logged = Vec::new();
        for pubend in 0..HOST_RELIABLE_MAX {
            let shown = &mut self.shown[usize::from(pubend)];
            let wanted = Wanted { from: *shown + 1, to: u64::MAX, budget: usize::MAX };
            let stream = self.streams[&StreamName::Events(pubend)];
            let read = (&self.log, &self.storage).read(stream, wanted, &mut self.reading, &mut |tick, record| {
                *shown = tick;
                logged.push((pubend, tick, record.to_vec()));
            });
            read.expect("the twin gives what it holds");
        }
        logged
    }
}

/// The journal's stream of a name, created if it must be.
fn stream_of(streams: &mut BTreeMap<StreamName, Stream>, log: &mut Log, name: StreamName) -> Stream {
    *streams.entry(name).or_insert_with(|| log.open_stream(id_of(name)).expect("its birth was required").0)
}

/// The filter records of a stream of events.
fn filters_of(streams: &BTreeMap<StreamName, Stream>, name: StreamName) -> impl Iterator<Item = Stream> {
    let is_its = move |of: &StreamName| matches!((of, name), (StreamName::Filter { pubend, .. }, StreamName::Events(its)) if *pubend == its);
    streams.iter().filter(move |(of, _)| is_its(of)).map(|(_, stream)| *stream)
}

/// The need of one batch of the broker in the journal's batch.
fn need_of(batch: &Batch<'_>, streams: &BTreeMap<StreamName, Stream>) -> Need {
    let mut need = Need::default();
    for write in batch.writes() {
        match write {
            Write::Event { event, .. } => {
                need.record(Write::event_parts(event).iter().map(|part| part.len()).sum());
                need.streams += 1;
            }
            Write::Record { body, .. } => {
                need.record(body.len());
                need.streams += 1;
                // Its stream may have to be created.
                need.changes += 1;
            }
            Write::Put { key, value } => need.put(key.len(), value.len()),
            Write::Forget { key } => need.put(key.len(), 0),
            Write::Chop { stream, .. } => need.changes += 1 + filters_of(streams, stream).count(),
            Write::Reserve { .. } => need.changes += 1,
        }
    }
    need.streams += usize::from(need.puts > 0);
    need
}
