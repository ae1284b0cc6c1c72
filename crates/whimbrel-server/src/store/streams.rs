//! The streams of the journal, by the core's names for them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use whimbrel_core::store::{HOLDS_SHARD, StreamName};
use whimbrel_event::Tick;
use whimbrel_journal::{Log, Refused, Stream, StreamId, Ticket};

use super::Disk;

/// Reliable pubends of the broker; each has a stream of events.
pub(super) const PUBENDS: usize = whimbrel_core::stream::Streams::RELIABLE as usize;

pub(super) const EVENTS: u32 = 1;
pub(super) const FILTER: u32 = 2;
pub(super) const MAP: StreamId = StreamId { kind: 3, id: 0 };
pub(super) const TICKS: StreamId = StreamId { kind: 4, id: 0 };

fn events(pubend: u8) -> StreamId {
    StreamId { kind: EVENTS, id: u64::from(pubend) }
}

fn filter(pubend: u8, shard: u16) -> StreamId {
    StreamId { kind: FILTER, id: u64::from(pubend) << 16 | u64::from(shard) }
}

/// The streams that always exist, and those of filter records, which are created when needed.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) events: [Stream; PUBENDS],
    pub(super) ticks: Stream,
    pub(super) map: Stream,
    filters: BTreeMap<(u8, u16), Filter>,
}

/// A stream of filter records.
#[derive(Clone, Copy, Debug)]
struct Filter {
    stream: Stream,
    /// The last tick that was appended.
    last: Tick,
}

impl Streams {
    /// Opens the streams of a journal. Missing ones are created, and durable when this returns.
    ///
    /// # Errors
    /// The journal takes nothing.
    pub(super) fn open(journal: &Disk) -> Result<Streams, Refused> {
        let known = journal.streams().into_iter().filter(|(id, _)| id.kind == FILTER);
        let filters = known.map(|(id, stream)| {
            let last = journal.info(stream).map_or(0, |info| info.last);
            (((id.id >> 16) as u8, id.id as u16), Filter { stream, last: Tick(last) })
        });
        let filters = filters.collect();
        let born = |id| -> Result<Stream, Refused> {
            let (stream, ticket) = journal.open_stream(id)?;
            journal.wait(ticket)?;
            Ok(stream)
        };
        let (ticks, map) = (born(TICKS)?, born(MAP)?);
        let mut of_events = [map; PUBENDS];
        for (pubend, stream) in (0..).zip(&mut of_events) {
            *stream = born(events(pubend))?;
        }
        Ok(Streams { events: of_events, ticks, map, filters })
    }

    /// The stream of this name, if it exists.
    pub(super) fn find(&self, name: StreamName) -> Option<Stream> {
        match name {
            StreamName::Events(pubend) => self.events.get(usize::from(pubend)).copied(),
            StreamName::Filter { pubend, shard } => self.filters.get(&(pubend, shard)).map(|filter| filter.stream),
            StreamName::Ticks => Some(self.ticks),
        }
    }

    /// Number of operations that release a part of a stream, with its filter records.
    pub(super) fn chops(&self, name: StreamName) -> usize {
        let StreamName::Events(pubend) = name else { return 1 };
        1 + self.filters.range((pubend, 0)..=(pubend, u16::MAX)).count()
    }

    /// Releases a part of a stream, and with events their filter records. An empty stream of filter
    /// records is removed, unless it is the one with the newest subscriptions, or of other brokers:
    /// numbers of subscriptions are not given twice, and most streams are never needed again.
    ///
    /// # Errors
    /// As [`Log::chop`].
    pub(super) fn chop(&mut self, log: &mut Log, name: StreamName, upto: Tick) -> Result<Ticket, Refused> {
        let Some(stream) = self.find(name) else { return Ok(log.accepted()) };
        let mut ticket = log.chop(stream, upto.0)?;
        let StreamName::Events(pubend) = name else { return Ok(ticket) };
        let newest = self.filters.range((pubend, 0)..(pubend, HOLDS_SHARD)).next_back().map(|(place, _)| *place);
        let mut empty = Vec::new();
        for (place, filter) in self.filters.range((pubend, 0)..=(pubend, u16::MAX)) {
            let is_kept = Some(*place) == newest || place.1 == HOLDS_SHARD;
            ticket = if filter.last <= upto && !is_kept {
                empty.push(*place);
                log.remove(filter.stream)?
            } else {
                log.chop(filter.stream, upto.0)?
            };
        }
        for place in empty {
            self.filters.remove(&place);
        }
        Ok(ticket)
    }

    /// The stream of this name for a record at that tick; created if need be.
    ///
    /// # Errors
    /// As [`Log::open_stream`].
    pub(super) fn take_for(&mut self, log: &mut Log, name: StreamName, tick: Tick) -> Result<Stream, Refused> {
        let StreamName::Filter { pubend, shard } = name else { return self.find(name).ok_or(Refused::Unknown) };
        let filter = match self.filters.entry((pubend, shard)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let (stream, _) = log.open_stream(filter(pubend, shard))?;
                place.insert(Filter { stream, last: tick })
            }
        };
        filter.last = tick;
        Ok(filter.stream)
    }
}
