//! Puts batches of the core into batches of the journal.

use whimbrel_core::store::{Batch, StreamName, Write};
use whimbrel_journal::{Log, Map, Need, Refused, Ticket};

use super::streams::Streams;

/// Room that a batch of the core needs in a batch of the journal.
///
/// # Errors
/// A stream that the batch writes to is stopped.
pub(super) fn need(batch: &Batch<'_>, log: &Log, streams: &Streams) -> Result<Need, Refused> {
    let mut need = Need::default();
    let record = |need: &mut Need, log: &Log, stream: StreamName, bytes: usize| {
        need.streams += 1;
        need.record(bytes);
        match streams.find(stream) {
            Some(stream) => log.check_stream(stream),
            None => {
                need.changes += 1;
                Ok(())
            }
        }
    };
    for write in batch.writes() {
        match write {
            Write::Event { pubend, event, .. } => {
                let bytes = Write::event_parts(event).iter().map(|part| part.len()).sum();
                record(&mut need, log, StreamName::Events(pubend), bytes)?;
            }
            Write::Record { stream, body, .. } => record(&mut need, log, stream, body.len())?,
            Write::Put { key, value } => need.put(key.len(), value.len()),
            Write::Forget { key } => need.put(key.len(), 0),
            Write::Chop { stream, .. } => need.changes += streams.chops(stream),
            Write::Reserve { .. } => need.changes += 1,
        }
    }
    if need.puts > 0 {
        need.streams += 1;
        log.check_stream(streams.map)?;
    }
    Ok(need)
}

/// Puts a batch of the core into a batch of the journal: all of it, or nothing.
pub(super) fn put(batch: &Batch<'_>, log: &mut Log, streams: &mut Streams, map: &mut Map) -> Result<Ticket, Refused> {
    log.require(need(batch, log, streams)?)?;
    let mut ticket = log.accepted();
    for write in batch.writes() {
        let taken = put_one(write, log, streams, map);
        ticket = taken.expect("what is required before is not refused");
    }
    Ok(ticket)
}

fn put_one(write: Write<'_>, log: &mut Log, streams: &mut Streams, map: &mut Map) -> Result<Ticket, Refused> {
    match write {
        Write::Event { pubend, tick, event } => {
            let stream = streams.take_for(log, StreamName::Events(pubend), tick)?;
            log.append(stream, tick.0, &Write::event_parts(event))
        }
        Write::Record { stream, tick, body } => {
            let stream = streams.take_for(log, stream, tick)?;
            log.append(stream, tick.0, &[body])
        }
        Write::Put { key, value } => map.put(log, key, value),
        Write::Forget { key } => map.remove(log, key),
        Write::Chop { stream, upto } => streams.chop(log, stream, upto),
        Write::Reserve { upto } => log.reserve(streams.ticks, upto.0),
    }
}
