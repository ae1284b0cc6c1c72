//! The streams of the journal by the names that the core has for them.

use std::collections::BTreeMap;

use whimbrel_core::store::StreamName;
use whimbrel_journal::{Log, Refused, Stream, StreamId};

use super::Disk;

/// Reliable pubends of the broker; each has a stream of events.
pub(super) const PUBENDS: usize = whimbrel_core::stream::Streams::RELIABLE as usize;

const EVENTS: u32 = 1;
const FILTER: u32 = 2;
const MAP: StreamId = StreamId { kind: 3, id: 0 };
const TICKS: StreamId = StreamId { kind: 4, id: 0 };

fn events(pubend: u8) -> StreamId {
    StreamId { kind: EVENTS, id: u64::from(pubend) }
}

fn filter(pubend: u8, shard: u16) -> StreamId {
    StreamId { kind: FILTER, id: u64::from(pubend) << 16 | u64::from(shard) }
}

/// Those that are there from the beginning, and those of filter records, which are born when they are needed.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) events: [Stream; PUBENDS],
    pub(super) ticks: Stream,
    pub(super) map: Stream,
    filters: BTreeMap<(u8, u16), Stream>,
}

impl Streams {
    /// The streams of a journal. What is missing is born, and durable when this returns.
    ///
    /// # Errors
    /// When the journal takes nothing.
    pub(super) fn open(journal: &Disk) -> Result<Streams, Refused> {
        let known = journal.streams().into_iter().filter(|(id, _)| id.kind == FILTER);
        let filters = known.map(|(id, stream)| (((id.id >> 16) as u8, id.id as u16), stream)).collect();
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

    /// The stream of this name, if it has been born.
    pub(super) fn find(&self, name: StreamName) -> Option<Stream> {
        match name {
            StreamName::Events(pubend) => self.events.get(usize::from(pubend)).copied(),
            StreamName::Filter { pubend, shard } => self.filters.get(&(pubend, shard)).copied(),
            StreamName::Ticks => Some(self.ticks),
        }
    }

    /// The stream of this name, which is born if it must be.
    ///
    /// # Errors
    /// As [`Log::open_stream`].
    pub(super) fn find_or_bear(&mut self, log: &mut Log, name: StreamName) -> Result<Stream, Refused> {
        if let Some(stream) = self.find(name) {
            return Ok(stream);
        }
        let StreamName::Filter { pubend, shard } = name else { return Err(Refused::Unknown) };
        let (stream, _) = log.open_stream(filter(pubend, shard))?;
        self.filters.insert((pubend, shard), stream);
        Ok(stream)
    }
}
