//! What is read from the log: parts of streams, asked for once for all who want them, and kept for a while.

use std::collections::VecDeque;

use whimbrel_event::{Event, EventId, Packed, PubendId, Tick};

use super::{EVENT_FORMAT, EVENT_HEAD, StreamName};

/// Bytes of records that one read brings, about.
pub(crate) const FETCH_BYTES: usize = 256 << 10;

/// Reads that are open at a time.
pub(crate) const FETCHES_MAX: usize = 16;

/// Bytes of events that were read and are kept for others who lag at the same place.
const SLICES_BYTES: usize = 16 << 20;

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
    /// How far the stream was read: what is wanted up to here is in `records`. Below what was asked if there is more.
    pub upto: Tick,
    /// A range, without its first tick, of which the records cannot be read.
    pub lost: Option<(Tick, Tick)>,
}

/// A part of a stream that was read.
#[derive(Debug)]
pub(crate) struct Slice {
    own: usize,
    after: Tick,
    pub(crate) upto: Tick,
    pub(crate) events: Vec<Event>,
    pub(crate) lost: Option<(Tick, Tick)>,
    bytes: usize,
}

#[derive(Debug)]
struct Asked {
    fetch: Fetch,
    own: usize,
    is_taken: bool,
    /// Who waits for it.
    sessions: Vec<u32>,
}

/// Reads that are open, and what was read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    asked: Vec<Asked>,
    /// Oldest first.
    slices: VecDeque<Slice>,
    bytes: usize,
    last: u32,
    /// Sessions that found no place for a read.
    waiting: VecDeque<u32>,
}

impl Reads {
    /// What was read of a stream behind a tick.
    pub(crate) fn slice(&self, own: usize, after: Tick) -> Option<&Slice> {
        self.slices.iter().rev().find(|slice| slice.own == own && slice.after <= after && after < slice.upto)
    }

    /// Has a part of a stream read for a session, which has its turn to catch up when it has been.
    pub(crate) fn ask(&mut self, session: u32, own: usize, after: Tick, upto: Tick) {
        let is_same = |asked: &&mut Asked| asked.own == own && asked.fetch.after == after;
        if let Some(asked) = self.asked.iter_mut().find(is_same) {
            if !asked.sessions.contains(&session) {
                asked.sessions.push(session);
            }
            return;
        }
        if self.asked.len() >= FETCHES_MAX {
            if !self.waiting.contains(&session) {
                self.waiting.push_back(session);
            }
            return;
        }
        self.last = self.last.wrapping_add(1);
        let stream = StreamName::Events(own as u8);
        let fetch = Fetch { number: self.last, stream, after, upto, bytes: FETCH_BYTES };
        self.asked.push(Asked { fetch, own, is_taken: false, sessions: vec![session] });
    }

    /// The next part that is to be read, once.
    pub(crate) fn take(&mut self) -> Option<Fetch> {
        let asked = self.asked.iter_mut().find(|asked| !asked.is_taken)?;
        asked.is_taken = true;
        Some(asked.fetch)
    }

    /// Keeps what was read of a stream of `pubend`; tells the sessions that have waited for it, or for a place.
    ///
    /// # Panics
    /// When it was not asked for.
    pub(crate) fn keep(&mut self, fetched: &Fetched<'_>, pubend: PubendId) -> Vec<u32> {
        let at = self.asked.iter().position(|asked| asked.fetch.number == fetched.number).expect("it was asked for");
        let Asked { fetch, own, mut sessions, .. } = self.asked.remove(at);
        assert!(fetched.upto > fetch.after, "a read brings something or silence");
        let mut lost = fetched.lost;
        let mut events = Vec::with_capacity(fetched.records.len());
        for (tick, body) in fetched.records {
            match event(pubend, *tick, body) {
                Some(event) => events.push(event),
                None => {
                    // Written in a form that is not known here.
                    let (from, to) = lost.unwrap_or((Tick(tick.0 - 1), *tick));
                    lost = Some((from.min(Tick(tick.0 - 1)), to.max(*tick)));
                }
            }
        }
        let bytes = size_of::<Slice>() + events.iter().map(Event::weight).sum::<usize>();
        let (after, upto) = (fetch.after, fetched.upto.min(fetch.upto));
        self.bytes += bytes;
        self.slices.push_back(Slice { own, after, upto, events, lost, bytes });
        while self.bytes > SLICES_BYTES && self.slices.len() > 1 {
            self.bytes -= self.slices.pop_front().map_or(0, |slice| slice.bytes);
        }
        sessions.extend(self.waiting.drain(..));
        sessions
    }

    /// The pubend's index of an open read.
    pub(crate) fn own_of(&self, number: u32) -> Option<usize> {
        self.asked.iter().find(|asked| asked.fetch.number == number).map(|asked| asked.own)
    }
}

/// The event of a record; `None` if its form is not known here.
fn event(pubend: PubendId, tick: Tick, body: &[u8]) -> Option<Event> {
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
