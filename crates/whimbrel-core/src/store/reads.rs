//! Reads from the own log: each part of a stream is read once for all that want it, and kept for a
//! while.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{Event, EventId, HostId, Packed, PubendId, Tick};

use super::{EVENT_FORMAT, EVENT_HEAD, StreamName};

/// Most bytes of records in one read, about.
pub(crate) const FETCH_BYTES: usize = 256 << 10;

/// Least bytes of records in one read.
pub(crate) const POINT_BYTES: usize = 4 << 10;

/// Most open reads.
pub(crate) const FETCHES_MAX: usize = 16;

/// Most bytes of parts that are kept for other cursors in catch-up at the same place.
const SLICES_BYTES: usize = 16 << 20;

/// Most parts that are kept; each search goes through them.
const SLICES_MAX: usize = 256;

/// Stands for other brokers among the sessions that wait for a read.
pub(crate) const LENDER: u32 = u32::MAX - 1;

/// A part of a stream that is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The number to return with the answer.
    pub number: u32,
    /// The stream to read.
    pub stream: StreamName,
    /// The part begins after this tick.
    pub after: Tick,
    /// The part ends with this tick.
    pub upto: Tick,
    /// About this many bytes of records are wanted, and at least one record.
    pub bytes: usize,
}

/// The answer to a [`Fetch`].
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// The number of the [`Fetch`].
    pub number: u32,
    /// The records, in the order of their ticks.
    pub records: &'a [(Tick, &'a [u8])],
    /// How far the stream was read: all records up to here are in `records`. Less than was asked if
    /// there is more.
    pub upto: Tick,
    /// A range, without its first tick, of which the records cannot be read.
    pub lost: Option<(Tick, Tick)>,
}

/// A part of a stream that was read.
#[derive(Debug)]
pub(crate) struct Slice {
    stream: StreamName,
    after: Tick,
    pub(crate) upto: Tick,
    /// Events, if it is a stream of events.
    pub(crate) events: Vec<Event>,
    /// Records, if it is a stream of filter records.
    pub(crate) records: Vec<(Tick, Box<[u8]>)>,
    pub(crate) lost: Option<(Tick, Tick)>,
    bytes: usize,
}

/// A part of a stream that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedPart {
    pub(crate) stream: StreamName,
    pub(crate) after: Tick,
    pub(crate) upto: Tick,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct OpenRead {
    fetch: Fetch,
    is_taken: bool,
    /// The sessions that wait for it.
    sessions: Vec<u32>,
}

/// Reads that are open, and what was read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    asked: Vec<OpenRead>,
    /// Oldest first.
    slices: VecDeque<Slice>,
    bytes: usize,
    last: u32,
    /// Length of the last large read, in ticks.
    span: u64,
    /// Sessions that wait for a free read, in order.
    waiting: VecDeque<u32>,
    /// The sessions in `waiting`, as a set.
    is_waiting: BTreeSet<u32>,
}

impl OpenRead {
    /// Whether this read serves that part: it begins there, or both are large, and the part begins
    /// less than `span` behind its begin.
    fn serves(&self, part: &WantedPart, span: u64) -> bool {
        let is_large = self.fetch.bytes == FETCH_BYTES && part.bytes == FETCH_BYTES;
        let behind = part.after.0.checked_sub(self.fetch.after.0);
        self.fetch.stream == part.stream && behind.is_some_and(|behind| behind == 0 || is_large && behind < span)
    }
}

impl Reads {
    /// The part of a stream behind a tick, if it was read.
    pub(crate) fn slice(&self, stream: StreamName, after: Tick) -> Option<&Slice> {
        self.slices.iter().rev().find(|slice| slice.stream == stream && slice.after <= after && after < slice.upto)
    }

    /// Asks for a part of a stream for a session, which resumes catch-up when that part, or one
    /// near it, was read.
    pub(crate) fn ask(&mut self, session: u32, part: WantedPart) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.serves(&part, self.span)) {
            // The session may have been added before, in between other sessions.
            if asked.sessions.last() != Some(&session) {
                asked.sessions.push(session);
            }
            return;
        }
        if self.asked.len() >= FETCHES_MAX {
            if self.is_waiting.insert(session) {
                self.waiting.push_back(session);
            }
            return;
        }
        self.last = self.last.wrapping_add(1);
        let WantedPart { stream, after, upto, bytes } = part;
        let fetch = Fetch { number: self.last, stream, after, upto, bytes };
        self.asked.push(OpenRead { fetch, is_taken: false, sessions: vec![session] });
    }

    /// The next part that is to be read, once.
    pub(crate) fn take(&mut self) -> Option<Fetch> {
        let asked = self.asked.iter_mut().find(|asked| !asked.is_taken)?;
        asked.is_taken = true;
        Some(asked.fetch)
    }

    /// Keeps what was read; `host` has the streams. Returns the sessions that waited for it, and as
    /// many that wait for a free read as there are.
    ///
    /// # Panics
    /// When it was not asked for.
    pub(crate) fn keep(&mut self, fetched: &Fetched<'_>, host: HostId) -> Vec<u32> {
        let at = self.asked.iter().position(|asked| asked.fetch.number == fetched.number).expect("it was asked for");
        let OpenRead { fetch, mut sessions, .. } = self.asked.remove(at);
        assert!(fetched.upto > fetch.after, "a read brings something or silence");
        let (mut lost, mut events) = (fetched.lost, Vec::new());
        let mut records: Vec<(Tick, Box<[u8]>)> = Vec::new();
        let mut bytes = size_of::<Slice>();
        match fetch.stream {
            StreamName::Events(own) => {
                events.reserve_exact(fetched.records.len());
                for (tick, body) in fetched.records {
                    match event_of_record(host.reliable(own), *tick, body) {
                        Some(event) => events.push(event),
                        None => {
                            // Written in a format that is not known here.
                            let (from, to) = lost.unwrap_or((Tick(tick.0 - 1), *tick));
                            lost = Some((from.min(Tick(tick.0 - 1)), to.max(*tick)));
                        }
                    }
                }
                bytes += events.iter().map(Event::weight).sum::<usize>();
            }
            StreamName::Filter { .. } | StreamName::Ticks => {
                records = fetched.records.iter().map(|(tick, body)| (*tick, Box::from(*body))).collect();
                bytes += records.iter().map(|record| size_of_val(record) + record.1.len()).sum::<usize>();
            }
        }
        let (after, upto) = (fetch.after, fetched.upto.min(fetch.upto));
        if fetch.bytes == FETCH_BYTES {
            self.span = upto.0 - after.0;
        }
        self.bytes += bytes;
        self.slices.push_back(Slice { stream: fetch.stream, after, upto, events, records, lost, bytes });
        while (self.bytes > SLICES_BYTES || self.slices.len() > SLICES_MAX) && self.slices.len() > 1 {
            self.bytes -= self.slices.pop_front().map_or(0, |slice| slice.bytes);
        }
        let places = FETCHES_MAX - self.asked.len();
        for session in self.waiting.drain(..places.min(self.waiting.len())) {
            self.is_waiting.remove(&session);
            sessions.push(session);
        }
        sessions
    }

    /// Whether a read is open.
    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.asked.iter().any(|asked| asked.fetch.number == number)
    }
}

/// The event of a record; `None` if its format is not known here.
pub fn event_of_record(pubend: PubendId, tick: Tick, body: &[u8]) -> Option<Event> {
    let (format, rest) = body.split_first()?;
    if *format != EVENT_FORMAT {
        return None;
    }
    let mut packed = Vec::with_capacity(EVENT_HEAD + rest.len());
    packed.extend_from_slice(&pubend.0.to_le_bytes());
    packed.extend_from_slice(&tick.0.to_le_bytes());
    packed.extend_from_slice(rest);
    let event = Event::copied(Packed::read(&packed)?);
    debug_assert_eq!(event.id(), EventId { pubend, tick });
    Some(event)
}
