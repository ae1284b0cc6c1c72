//! What became of an event? Asked of one broker, hop by hop.

use whimbrel_event::{EventId, HostId};

use crate::bytes::{Put, Reader};
use crate::frame::Body;
use crate::{Invalid, TRACE_BYTES_MAX};

/// What does a broker know of an event?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceAsk {
    /// Who is asked.
    pub to: HostId,
    /// How many links it has come over.
    pub hops: u8,
    /// The asking broker's number for the question.
    pub id: u64,
    /// Who asks.
    pub from: HostId,
    /// Of which event.
    pub event: EventId,
}

impl Body<'_> for TraceAsk {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let to = input.host()?;
        let hops = input.byte()?;
        let id = input.varint()?;
        let from = input.host()?;
        Ok(TraceAsk { to, hops, id, from, event: input.event_id()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.to.as_u64());
        out.push(self.hops);
        out.put_varint(self.id);
        out.put_u64(self.from.as_u64());
        out.put_event_id(self.event);
    }
}

/// What a broker knows of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTell<'a> {
    /// Who asked.
    pub to: HostId,
    /// How many links it has come over.
    pub hops: u8,
    /// The asking broker's number for the question.
    pub id: u64,
    /// Who was asked.
    pub host: HostId,
    /// The name of who was asked, see [`crate::is_name`].
    pub name: &'a str,
    /// What it knows, for people; at most [`TRACE_BYTES_MAX`] bytes.
    pub text: &'a str,
}

impl<'a> Body<'a> for TraceTell<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let to = input.host()?;
        let hops = input.byte()?;
        let id = input.varint()?;
        let host = input.host()?;
        let name = input.name()?;
        Ok(TraceTell { to, hops, id, host, name, text: input.text(TRACE_BYTES_MAX, "what is told of an event")? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.to.as_u64());
        out.push(self.hops);
        out.put_varint(self.id);
        out.put_u64(self.host.as_u64());
        out.put_name(self.name);
        out.put_bytes(self.text.as_bytes(), TRACE_BYTES_MAX, "what is told of an event");
    }
}
