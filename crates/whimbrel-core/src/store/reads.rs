//! What is read from the log: parts of streams, asked for once for all who want them, and kept for
//! a while.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{Event, EventId, HostId, Packed, PubendId, Tick};

use super::{EVENT_FORMAT, EVENT_HEAD, StreamName};

/// Bytes of records that one read brings at most, about.
pub(crate) const FETCH_BYTES: usize = 256 << 10;

/// Bytes of records that one read brings at least.
pub(crate) const POINT_BYTES: usize = 4 << 10;

/// Reads that are open at a time.
pub(crate) const FETCHES_MAX: usize = 16;

/// Bytes of what was read and is kept for others who lag at the same place.
const SLICES_BYTES: usize = 16 << 20;

/// Parts that are kept; each look goes through them.
const SLICES_MAX: usize = 256;

/// Stands for other brokers where sessions wait for what is read.
pub(crate) const LENDER: u32 = u32::MAX - 1;

/// A part of a stream that is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Given back with the answer.
    pub number: u32,
    /// Of which stream.
    pub stream: StreamName,
    /// The part begins after this tick.
    pub after: Tick,
    /// And ends with this one.
    pub upto: Tick,
    /// About so many bytes of records are wanted, and at least one record.
    pub bytes: usize,
}

/// What was read.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// Of the [`Fetch`].
    pub number: u32,
    /// In the order of their ticks.
    pub records: &'a [(Tick, &'a [u8])],
    /// How far the stream was read: what is wanted up to here is in `records`. Below what was asked
    /// if there is more.
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
    /// Of a stream of events.
    pub(crate) events: Vec<Event>,
    /// Of a stream of filter records.
    pub(crate) records: Vec<(Tick, Box<[u8]>)>,
    pub(crate) lost: Option<(Tick, Tick)>,
    bytes: usize,
}

/// A part of a stream that somebody wants.
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
    /// Who waits for it.
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
    /// How much of a stream the last large read has brought, in ticks.
    span: u64,
    /// Sessions that found no place for a read, in order.
    waiting: VecDeque<u32>,
    /// The same.
    is_waiting: BTreeSet<u32>,
}

impl OpenRead {
    /// Whoever wants that part waits for this one, too: it begins there, or is large, and what
    /// begins up to `span` behind it will be in it.
    fn serves(&self, part: &WantedPart, span: u64) -> bool {
        let is_large = self.fetch.bytes == FETCH_BYTES && part.bytes == FETCH_BYTES;
        let behind = part.after.0.checked_sub(self.fetch.after.0);
        self.fetch.stream == part.stream && behind.is_some_and(|behind| behind == 0 || is_large && behind < span)
    }
}

impl Reads {
    /// What was read of a stream behind a tick.
    pub(crate) fn slice(&self, stream: StreamName, after: Tick) -> Option<&Slice> {
        self.slices.iter().rev().find(|slice| slice.stream == stream && slice.after <= after && after < slice.upto)
    }

    /// Has a part of a stream read for a session, which has its turn to catch up when it has been,
    /// or when something near has been.
    pub(crate) fn ask(&mut self, session: u32, part: WantedPart) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.serves(&part, self.span)) {
            // Others may have asked for the session before.
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

    /// Keeps what was read; `host` has the streams. Tells the sessions that have waited for it, and
    /// as many that have waited for a place as there are places.
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
                    match event_of_record(host.pubend(own), *tick, body) {
                        Some(event) => events.push(event),
                        None => {
                            // Written in a form that is not known here.
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

    /// Whether that read is open.
    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.asked.iter().any(|asked| asked.fetch.number == number)
    }
}

/// The event of a record; `None` if its form is not known here.
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
