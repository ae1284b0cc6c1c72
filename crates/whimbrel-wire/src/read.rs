//! Parts of a broker's log that another broker asks for, in messages.

use whimbrel_event::{PubendId, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{
    Invalid, MESSAGE_BYTES_MAX, READ_ENTRIES_MAX, READ_EVENTS_MAX, READ_LOST_MAX, SELECTOR_BYTES_MAX, TOPIC_BYTES_MAX,
};

/// Asks for the logged events of a part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAsk<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// The stream.
    pub pubend: PubendId,
    /// The part begins behind this tick.
    pub after: Tick,
    /// The last tick of the part, not before `after`.
    pub upto: Tick,
    /// Whether all ranges that are not logged any more are to be told as given up: wanted events of
    /// them may not have been acknowledged.
    pub is_strict: bool,
    /// Whether it may be answered with an earlier answer to another broker: the log is held for the
    /// asking broker.
    pub may_be_kept: bool,
    /// The wanted events, at most [`READ_ENTRIES_MAX`] entries: topic filter, 1 to
    /// [`TOPIC_BYTES_MAX`] bytes, and selector, at most [`SELECTOR_BYTES_MAX`]. Their grammar is
    /// not checked here.
    pub entries: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Body<'a> for ReadAsk<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let number = input.varint()?;
        let (pubend, after) = (PubendId(input.u64()?), input.tick()?);
        let upto = Tick(after.0.checked_add(input.varint()?).ok_or(Invalid::Range("the end of a part"))?);
        let is_strict = input.bool("whether all is to be told that is gone")?;
        let may_be_kept = input.bool("whether others may answer")?;
        let entries = input.list(READ_ENTRIES_MAX, "wanted events", |input| {
            let filter = input.text(TOPIC_BYTES_MAX, "a topic filter")?;
            if filter.is_empty() {
                return Err(Invalid::Text("a topic filter"));
            }
            let selector = input.maybe_bytes(SELECTOR_BYTES_MAX, "a selector")?;
            Ok((filter, selector.map(|bytes| crate::bytes::text(bytes, "a selector")).transpose()?))
        })?;
        Ok(ReadAsk { number, pubend, after, upto, is_strict, may_be_kept, entries })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_u64(self.pubend.0);
        out.put_u64(self.after.0);
        out.put_varint(self.upto.0.checked_sub(self.after.0).expect("a part ends not before it begins"));
        out.extend([u8::from(self.is_strict), u8::from(self.may_be_kept)]);
        out.put_list(&self.entries, READ_ENTRIES_MAX, "wanted events", |out, (filter, selector)| {
            assert!(!filter.is_empty(), "a topic filter is not empty");
            out.put_bytes(filter.as_bytes(), TOPIC_BYTES_MAX, "a topic filter");
            out.put_maybe_bytes(selector.map(str::as_bytes), SELECTOR_BYTES_MAX, "a selector");
        });
    }
}

/// The logged events of a part of a stream: these, and between them none that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTold<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// The sender's clock, nanoseconds: the ages of the events are relative to it.
    pub now: u64,
    /// The stream was read up to here, from where was asked.
    pub upto: Tick,
    /// Wanted events up to here may have been given up early; 0: none.
    pub released: Tick,
    /// Ranges that cannot be read, each without its first tick, at most [`READ_LOST_MAX`].
    pub lost: Vec<(Tick, Tick)>,
    /// Ticks and events in the form of [`crate::compact`], at most [`READ_EVENTS_MAX`].
    pub events: Vec<(Tick, &'a [u8])>,
    /// The ticks of the events that have the retain mark, ascending; brokers before 0.2 send none.
    pub retained: Vec<Tick>,
}

impl<'a> Body<'a> for ReadTold<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (number, now) = (input.varint()?, input.u64()?);
        let (upto, released) = (input.tick()?, input.tick()?);
        let lost = input.list(READ_LOST_MAX, "lost ranges", |input| Ok((input.tick()?, input.tick()?)))?;
        let mut last = 0_u64;
        let events = input.list(READ_EVENTS_MAX, "events", |input| {
            last = last.checked_add(input.varint()?).ok_or(Invalid::Range("the tick of an event"))?;
            Ok((Tick(last), input.bytes(MESSAGE_BYTES_MAX, "an event")?))
        })?;
        // The list is absent if no event has the mark.
        let retained = if input.0.is_empty() { Vec::new() } else { read_ticks(input)? };
        Ok(ReadTold { number, now, upto, released, lost, events, retained })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_u64(self.now);
        out.put_u64(self.upto.0);
        out.put_u64(self.released.0);
        out.put_list(&self.lost, READ_LOST_MAX, "lost ranges", |out, (after, upto)| {
            out.put_u64(after.0);
            out.put_u64(upto.0);
        });
        let mut last = 0;
        out.put_list(&self.events, READ_EVENTS_MAX, "events", |out, (tick, event)| {
            out.put_varint(tick.0.checked_sub(last).expect("events are told in the order of their ticks"));
            out.put_bytes(event, MESSAGE_BYTES_MAX, "an event");
            last = tick.0;
        });
        if !self.retained.is_empty() {
            let mut last = 0;
            out.put_list(&self.retained, READ_EVENTS_MAX, "retain marks", |out, tick| {
                out.put_varint(tick.0.checked_sub(last).expect("marks are told in the order of their ticks"));
                last = tick.0;
            });
        }
    }
}

/// Ascending ticks, each as its distance from the one before.
fn read_ticks(input: &mut Reader<'_>) -> Result<Vec<Tick>, Invalid> {
    let mut last = 0_u64;
    let ticks = input.list(READ_EVENTS_MAX, "retain marks", |input| {
        last = last.checked_add(input.varint()?).ok_or(Invalid::Range("the tick of an event"))?;
        Ok(Tick(last))
    })?;
    if ticks.is_empty() { Err(Invalid::Form("retain marks")) } else { Ok(ticks) }
}
