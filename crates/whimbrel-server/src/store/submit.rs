//! Gives the core's writes to the journal, and tells the core how far they are durable.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use whimbrel_core::store::{BatchNo, Disk as State, EVENT_HEAD, Fetched};
use whimbrel_event::Time;
use whimbrel_journal::{Map, Need, Refused, Ticket};
use whimbrel_mqtt::{ConnId, Input, MqttBroker, Output};

use super::put::{need, put};
use super::read::{Answer, Reader, Slice};
use super::signal::Signal;
use super::streams::Streams;
use super::{Counts, Disk, StoreAccount, Usage};
use crate::drive::Clock;
use crate::logging::Throttle;
use crate::metrics::encoding::commit_latency;

/// Submissions that wait to be durable and are told one by one; more are told with the newest.
const TICKETS_MAX: usize = 4096;

/// Commits that the writes at the start may take.
const FIRST_ROUNDS: usize = 1 << 16;

/// Pause after the journal was busy, unless something is committed before.
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// Pause after the journal was full, unless something is committed before.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Damage is logged at most once in this period.
const DAMAGE_EVERY: Duration = Duration::from_secs(10);

/// Why the journal did not take a batch.
#[derive(Debug)]
struct Stuck {
    refused: Refused,
    has_event: bool,
}

/// The broker's journal, as the owner of the machine uses it.
pub struct Store {
    /// Dropped before the journal, whose last reference the thread of reads must not have: the
    /// journal's writer may be what drops this, and would wait for that thread.
    reader: Reader,
    journal: Arc<Disk>,
    streams: Streams,
    map: Map,
    signal: Arc<Signal>,
    /// The last batch known to be durable.
    durable: BatchNo,
    /// Last ticket, last batch and time of each submission not known to be durable, at most
    /// [`TICKETS_MAX`].
    tickets: VecDeque<(Ticket, BatchNo, Time)>,
    /// Time from a submission until it is durable, seconds.
    latency: Histogram,
    state: State,
    /// It is full because its engine does not answer.
    lacks_engine: bool,
    /// The journal was busy: nothing is submitted before, unless something is committed.
    busy_until: Option<Time>,
    /// The journal is full: when to look for room again, unless something is committed before.
    look_at: Option<Time>,
    /// A piece of the map that is to be cleaned was read.
    has_piece: bool,
    counts: Counts,
    damages: Throttle,
    engine: Option<Reliance>,
}

/// How a journal relies on an engine.
pub(super) struct Reliance {
    /// How long a submission may wait to be durable before publishes are refused.
    pub(super) patience: Duration,
    /// Tells why one waits, if that is known.
    pub(super) trouble: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Is told when the journal has failed.
    pub(super) on_failure: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("state", &self.state).field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Store {
    pub(super) fn new(journal: Arc<Disk>, streams: Streams, map: Map, signal: Arc<Signal>) -> std::io::Result<Store> {
        let reader = Reader::start(Arc::clone(&journal), Arc::clone(&signal))?;
        Ok(Store {
            journal,
            streams,
            map,
            signal,
            durable: BatchNo(0),
            tickets: VecDeque::new(),
            latency: commit_latency(),
            state: State::Open,
            lacks_engine: false,
            busy_until: None,
            look_at: None,
            has_piece: false,
            reader,
            counts: Counts::default(),
            damages: Throttle::new(DAMAGE_EVERY),
            engine: None,
        })
    }

    /// The journal is on an engine. While a submission has waited for longer than its patience,
    /// publishes are refused as by a full log; when the journal fails, `on_failure` is called with
    /// the text of the error, and the broker is about to end.
    pub(super) fn rely_on_engine(&mut self, engine: Reliance) {
        self.engine = Some(engine);
    }

    /// Reports of the journal's threads.
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// When [`Store::submit`] is to be called even without input.
    pub fn retry_at(&self) -> Option<Time> {
        let overdue_at = if self.state == State::Open { self.overdue_at() } else { None };
        self.busy_until.into_iter().chain(self.look_at).chain(overdue_at).min()
    }

    /// When the oldest submission will have waited for the engine for too long.
    fn overdue_at(&self) -> Option<Time> {
        let (engine, (.., since)) = (self.engine.as_ref()?, self.tickets.front()?);
        Some(since.after(engine.patience))
    }

    fn is_overdue(&self, now: Time) -> bool {
        self.overdue_at().is_some_and(|at| at <= now)
    }

    /// The journal's numbers for metrics.
    pub fn account(&self) -> StoreAccount {
        let Counts { full, overdue, busy, damaged, reads } = self.counts;
        let looked = self.journal.submit(|log| {
            let options = log.options();
            let (segment_bytes, max_bytes) = (u64::from(options.segment_bytes), options.max_bytes);
            Ok((log.counters(), log.files(), log.retained_bytes(), (segment_bytes, max_bytes)))
        });
        let (counters, files, retained_bytes, (segment_bytes, max_bytes)) = looked.expect("looking is not refused");
        StoreAccount {
            counters,
            files,
            bytes: files * segment_bytes,
            max_bytes,
            retained_bytes,
            map: self.map.info(),
            is_full: self.state == State::Full && !self.lacks_engine,
            is_poisoned: self.state == State::Poisoned,
            full,
            overdue,
            busy,
            damaged,
            reads,
        }
    }

    /// Time from a submission until it is durable, seconds.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Disk usage of the event streams, and the journal's limit.
    pub fn usage(&self) -> Usage {
        let events = self.streams.events;
        let looked = self.journal.submit(|log| {
            let events = events.map(|stream| log.usage(stream).unwrap_or_default());
            let options = log.options();
            Ok(Usage { events, segment_bytes: u64::from(options.segment_bytes), max_bytes: options.max_bytes })
        });
        looked.expect("looking is not refused")
    }

    /// Tells the broker the reports of the journal's threads.
    pub fn tell(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        if !self.signal.has_news() {
            return;
        }
        self.tell_committed(broker, now, out);
        if let Some(failure) = self.signal.take_failure() {
            self.fail(failure, broker, now, out);
        }
        for answer in self.signal.take_answers() {
            match answer {
                Answer::Fetched(slice) => self.tell_slice(&slice, broker, now, out),
                Answer::Piece(outcome) => {
                    self.map.take(outcome);
                    self.has_piece = true;
                }
            }
        }
    }

    fn tell_committed(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        let committed = self.signal.upto();
        let mut upto = None;
        while let Some((ticket, batch, at)) = self.tickets.front().copied()
            && ticket <= committed
        {
            upto = Some(batch);
            self.durable = batch;
            self.latency.observe(now.since(at).as_secs_f64());
            self.tickets.pop_front();
        }
        // There is room in the next batch, and perhaps room for events.
        self.busy_until = None;
        self.look_at = self.look_at.map(|_| now);
        self.await_commit();
        if let Some(upto) = upto {
            broker.handle(now, Input::Committed { upto }, out);
        }
    }

    /// Asks for a report of the next commit that matters.
    fn await_commit(&self) {
        let is_any = self.busy_until.is_some() || self.look_at.is_some();
        let oldest = || self.tickets.front().map(|(ticket, ..)| *ticket);
        let awaited = if is_any { Some(Ticket(self.signal.upto().0 + 1)) } else { oldest() };
        let waiting = self.tickets.back().map_or(0, |(_, batch, _)| batch.0.saturating_sub(self.durable.0));
        self.signal.await_ticket(awaited, waiting);
    }

    fn tell_slice(&mut self, slice: &Slice, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        self.counts.reads += 1;
        if let Some(damage) = &slice.damage {
            self.note_damage(damage);
        }
        let (records, Slice { number, upto, lost, .. }) = (slice.records(), slice);
        let fetched = Fetched { number: *number, records: &records, upto: *upto, lost: *lost };
        broker.handle(now, Input::Fetched(fetched), out);
    }

    fn note_damage(&mut self, damage: &str) {
        self.counts.damaged += 1;
        if let Some(more) = self.damages.pass(std::time::Instant::now()) {
            tracing::error!(
                damage,
                more,
                "the journal is damaged: what is lost is told as a gap (`whimbrel_journal_damaged`)"
            );
        }
    }

    fn fail(&mut self, failure: String, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        if self.state == State::Poisoned {
            return;
        }
        match &self.engine {
            Some(engine) => (engine.on_failure)(&failure),
            None => tracing::error!(
                failure,
                "the journal has failed: nothing more is logged, and publishes that must be are refused, until the broker is restarted; \
                 look after the disk first"
            ),
        }
        (self.state, self.busy_until, self.look_at) = (State::Poisoned, None, None);
        self.tickets.clear();
        self.await_commit();
        broker.handle(now, Input::Disk(State::Poisoned), out);
    }

    /// Gives the journal the broker's writes, as far as it takes them, and the reading thread its
    /// reads. Called at the end of each turn.
    pub fn submit(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        if self.state == State::Open && self.is_overdue(now) {
            self.lose_patience(broker, now, out);
        }
        let is_time = self.busy_until.is_none_or(|at| at <= now);
        if self.state != State::Poisoned && is_time {
            self.busy_until = None;
            if self.look_at.is_some_and(|at| at <= now) {
                self.look_for_room(broker, now, out);
            }
            broker.flush(now);
            while let Err(stuck) = self.submit_once(broker, now) {
                if self.is_stuck(stuck, broker, now, out) {
                    break;
                }
            }
            if let Some(wanted) = self.map.wanted() {
                self.reader.clean(self.streams.map, wanted);
            }
        }
        while let Some(fetch) = broker.fetch() {
            self.reader.fetch(fetch, self.streams.find(fetch.stream));
        }
    }

    /// Submits what the broker writes before any client connects, and waits until it is durable. It
    /// is little, unless the directory was restored, and may use the room that the journal keeps
    /// for releasing space: a broker with a full journal must start, so that space can be released.
    ///
    /// # Errors
    /// The journal takes nothing even so, or fails.
    pub(super) fn write_first(&mut self, broker: &mut MqttBroker, clock: &Clock) -> Result<(), Refused> {
        let written = self.submit_first(broker, clock);
        self.journal.lend_reserve(false);
        written?;
        self.journal.wait(self.accepted())?;
        self.tell(broker, clock.now(), &mut Nobody);
        Ok(())
    }

    fn submit_first(&mut self, broker: &mut MqttBroker, clock: &Clock) -> Result<(), Refused> {
        for _ in 0..FIRST_ROUNDS {
            let now = clock.now();
            broker.flush(now);
            if self.submit_once(broker, now).is_ok() {
                return Ok(());
            }
            let Some(batch) = broker.batch() else { return Ok(()) };
            let Store { journal, streams, .. } = self;
            let room = || journal.submit_wait(|log| log.require(need(&batch, log, streams)?));
            match room() {
                Err(Refused::Full) => {
                    journal.lend_reserve(true);
                    room()?;
                }
                outcome => outcome?,
            }
        }
        Err(Refused::Full)
    }

    /// Submits under one hold of the journal's lock, so that it is in one commit.
    fn submit_once(&mut self, broker: &mut MqttBroker, now: Time) -> Result<(), Stuck> {
        if broker.batch().is_none() && !self.has_piece {
            return Ok(());
        }
        self.has_piece = false;
        let is_overdue = self.is_overdue(now);
        let Store { journal, streams, map, .. } = self;
        let mut last = None;
        let submitted = journal.submit(|log| {
            let mut outcome = Ok(());
            while let Some(batch) = broker.batch() {
                let room = if is_overdue && batch.has_event() { Err(Refused::Full) } else { Ok(()) };
                match room.and_then(|()| put(&batch, log, streams, map)) {
                    Ok(ticket) => last = Some((ticket, broker.submitted())),
                    Err(refused) => {
                        outcome = Err(Stuck { refused, has_event: batch.has_event() });
                        break;
                    }
                }
            }
            map.clean(log);
            Ok((outcome, log.committed()))
        });
        let (outcome, committed) = submitted.expect("what is refused is told apart");
        self.signal.committed(committed);
        if let Some((ticket, batch)) = last {
            // Submissions that are told together count from the first.
            let is_many = self.tickets.len() == TICKETS_MAX;
            let first = if is_many { self.tickets.pop_back() } else { None };
            self.tickets.push_back((ticket, batch, first.map_or(now, |(.., at)| at)));
            self.await_commit();
        }
        outcome
    }

    /// Reacts to a refusal. Returns whether nothing more can be submitted now.
    fn is_stuck(&mut self, stuck: Stuck, broker: &mut MqttBroker, now: Time, out: &mut impl Output) -> bool {
        let Stuck { refused, has_event } = stuck;
        match refused {
            Refused::Busy => {
                self.counts.busy += 1;
                self.busy_until = Some(now.after(BUSY_RETRY));
                self.await_commit();
                true
            }
            Refused::Full => {
                if self.state == State::Open {
                    self.note_full();
                }
                self.refuse_events(broker, now, out);
                !has_event
            }
            Refused::Stopped(damage) if has_event => {
                self.note_damage(&damage.to_string());
                // None of the waiting events is taken; the next ones of other streams are.
                broker.handle(now, Input::Disk(State::Full), out);
                broker.handle(now, Input::Disk(self.state), out);
                false
            }
            Refused::Stopped(damage) => {
                self.fail(damage.to_string(), broker, now, out);
                true
            }
            Refused::Poisoned(fault) => {
                self.fail(fault.to_string(), broker, now, out);
                true
            }
            Refused::NotIncreasing { .. }
            | Refused::TooLong { .. }
            | Refused::KeyTooLong { .. }
            | Refused::TooManyStreams(_)
            | Refused::Unknown => panic!("the core writes what the journal can take: {refused}"),
        }
    }

    /// The engine has not answered for too long: refuses what the journal has not taken.
    fn lose_patience(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        self.counts.overdue += 1;
        if let Some(Reliance { patience, trouble, .. }) = &self.engine {
            let why = trouble().unwrap_or_else(|| "no answer yet".to_owned());
            tracing::error!(
                ?patience,
                why,
                "the engine does not take commits: publishes that must be logged are refused until it does"
            );
        }
        self.lacks_engine = true;
        self.refuse_events(broker, now, out);
    }

    /// Tells the broker that nothing is logged until there is room again.
    fn refuse_events(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        (self.state, self.look_at) = (State::Full, Some(now.after(FULL_RETRY)));
        self.await_commit();
        broker.handle(now, Input::Disk(State::Full), out);
    }

    fn note_full(&mut self) {
        self.counts.full += 1;
        tracing::error!("the journal is full: publishes that must be logged are refused until subscribers acknowledge");
    }

    /// Looks whether the journal, which was full or waited for its engine, takes events again.
    fn look_for_room(&mut self, broker: &mut MqttBroker, now: Time, out: &mut impl Output) {
        if self.is_overdue(now) {
            self.look_at = Some(now.after(FULL_RETRY));
            return;
        }
        let did_lack_engine = std::mem::take(&mut self.lacks_engine);
        let need = Need { streams: 1, records: 1, bytes: EVENT_HEAD, ..Need::default() };
        match self.journal.submit(|log| log.require(need)) {
            Ok(()) => {
                let why = if did_lack_engine { "the engine takes commits again" } else { "the journal has room again" };
                tracing::info!("{why}: publishes are logged");
                (self.state, self.look_at) = (State::Open, None);
                self.await_commit();
                broker.handle(now, Input::Disk(State::Open), out);
            }
            Err(_) => {
                if did_lack_engine {
                    self.note_full();
                }
                self.look_at = Some(now.after(FULL_RETRY));
            }
        }
    }

    /// The ticket of the last operation that the journal has accepted.
    pub fn accepted(&self) -> Ticket {
        self.journal.submit(|log| Ok(log.accepted())).expect("looking is not refused")
    }

    /// The journal, for waiting outside the machine's lock.
    pub(crate) fn journal(&self) -> Arc<Disk> {
        Arc::clone(&self.journal)
    }

    /// Ends the journal's threads after they have written what was accepted.
    ///
    /// # Errors
    /// Not everything could be written.
    pub fn close(self) -> Result<(), Refused> {
        let Store { journal, reader, signal, .. } = self;
        drop(reader);
        let closed = Arc::try_unwrap(journal).map_or(Ok(()), Disk::close);
        signal.silence();
        closed
    }
}

/// Discards output: at the start there are no connections.
struct Nobody;

impl Output for Nobody {
    fn send(&mut self, _: ConnId, _: &mut Vec<u8>) {}
    fn close(&mut self, _: ConnId) {}
    fn backlog(&self, _: ConnId) -> usize {
        0
    }
    fn notify_drained(&mut self, _: ConnId) {}
}
