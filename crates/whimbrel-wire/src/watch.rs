//! The frames by which the two ends of a link watch it while events with a deadline flow, and by
//! which all brokers are told of a link that has become better or worse.

use whimbrel_event::HostId;

use crate::body::{Body, COPIED_EVENT, DEADLINE_EVENT, put_frame};
use crate::bytes::{Put, Reader};
use crate::{EventFrame, Invalid, LOSS_MAX};

/// Departure of one frame from the sending end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStamp {
    /// The frame's number among all stamped frames of this direction of the link, modulo 2^16.
    pub sequence: u16,
    /// When the frame was given to the transport: µs of the sender's monotonic clock, modulo 2^32.
    pub departed_us: u32,
    /// The event's deadline: the age, ms, at which it should be at its subscribers; positive.
    pub deadline_ms: u32,
}

/// An event with a deadline in transit: an [`EventFrame`] with the stamp of the link that it
/// crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedEvent<'a> {
    /// The stamp.
    pub stamp: LinkStamp,
    /// The event.
    pub frame: EventFrame<'a>,
}

impl StampedEvent<'_> {
    /// Appends the frame up to its event, as [`EventFrame::encode_header`] does.
    ///
    /// # Panics
    /// As [`crate::Frame::encode`].
    pub fn encode_header(&self, event_len: usize, out: &mut Vec<u8>) {
        put_frame(out, DEADLINE_EVENT, event_len, |out| self.put_header(out));
    }

    fn put_header(&self, out: &mut Vec<u8>) {
        self.stamp.put(out);
        self.frame.put_header(out);
    }
}

/// An event with a deadline in transit of which copies are sent on other paths, all with the same
/// tick and previous ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedEvent<'a> {
    /// The age of the event, µs, at which the last copy of it, or of an earlier event of its
    /// stream, should have arrived at each destination of this frame.
    pub last_us: u32,
    /// The event.
    pub stamped: StampedEvent<'a>,
}

impl CopiedEvent<'_> {
    /// Appends the frame up to its event, as [`EventFrame::encode_header`] does.
    ///
    /// # Panics
    /// As [`crate::Frame::encode`].
    pub fn encode_header(&self, event_len: usize, out: &mut Vec<u8>) {
        put_frame(out, COPIED_EVENT, event_len, |out| {
            out.put_varint(u64::from(self.last_us));
            self.stamped.put_header(out);
        });
    }
}

impl<'a> Body<'a> for CopiedEvent<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let last_us = input.small("the age of a copy")?;
        Ok(CopiedEvent { last_us, stamped: StampedEvent::read(input)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.last_us));
        self.stamped.put(out);
    }
}

impl Body<'_> for LinkStamp {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let sequence = u16::from_le_bytes(input.array()?);
        let departed_us = u32::from_le_bytes(input.array()?);
        let deadline_ms = input.small("a deadline")?;
        if deadline_ms == 0 {
            return Err(Invalid::Range("a deadline"));
        }
        Ok(LinkStamp { sequence, departed_us, deadline_ms })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.deadline_ms > 0, "an event without a deadline has no stamp");
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.departed_us.to_le_bytes());
        out.put_varint(u64::from(self.deadline_ms));
    }
}

impl<'a> Body<'a> for StampedEvent<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(StampedEvent { stamp: LinkStamp::read(input)?, frame: EventFrame::read(input)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.stamp.put(out);
        self.frame.put(out);
    }
}

/// What the receiving end of a link tells the sending one of stamped frames; a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// One greater than in the report before, modulo 2^8.
    pub number: u8,
    /// The greatest sequence that has arrived, see [`LinkStamp::sequence`].
    pub highest: u16,
    /// By how much frames since the last report took longer than the least time of this direction,
    /// µs: the least of these excesses.
    pub excess_us: u32,
    /// Bit k: the frame `highest - k` has not arrived. Bit 0 is not set.
    pub missing: u64,
}

impl Body<'_> for LinkReport {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let number = input.byte()?;
        let highest = u16::from_le_bytes(input.array()?);
        let excess_us = input.small("an excess")?;
        let missing = input.varint()?;
        if missing & 1 != 0 {
            return Err(Invalid::Form("a report"));
        }
        Ok(LinkReport { number, highest, excess_us, missing })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.missing & 1 == 0, "the highest that has arrived is not missing");
        out.push(self.number);
        out.extend_from_slice(&self.highest.to_le_bytes());
        out.put_varint(u64::from(self.excess_us));
        out.put_varint(self.missing);
    }
}

/// A change of one end of a link, flooded to all brokers ahead of all other frames. It holds until
/// a link state of the broker with a greater sequence is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flash {
    /// The broker whose link has changed.
    pub host: HostId,
    /// Its incarnation.
    pub incarnation: u64,
    /// The sequence of its last link state before the change.
    pub sequence: u64,
    /// Greater in each flash of the incarnation; from 1 on.
    pub number: u64,
    /// The neighbour at the other end of the link.
    pub neighbour: HostId,
    /// The delay of one way, µs.
    pub delay_us: u32,
    /// Share of packets that is lost, thousandths; [`LOSS_MAX`]: all.
    pub loss: u16,
}

impl Body<'_> for Flash {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let (host, incarnation, sequence) = (input.host()?, input.u64()?, input.varint()?);
        let (number, neighbour) = (input.varint()?, input.host()?);
        let (delay_us, loss) = (input.small("a delay")?, input.small("a loss")?);
        if loss > LOSS_MAX {
            return Err(Invalid::Range("a loss"));
        }
        if number == 0 || host == neighbour {
            return Err(Invalid::Form("a flash"));
        }
        Ok(Flash { host, incarnation, sequence, number, neighbour, delay_us, loss })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.loss <= LOSS_MAX && self.number > 0 && self.host != self.neighbour, "its maker bounds it");
        out.put_u64(self.host.as_u64());
        out.put_u64(self.incarnation);
        out.put_varint(self.sequence);
        out.put_varint(self.number);
        out.put_u64(self.neighbour.as_u64());
        out.put_varint(u64::from(self.delay_us));
        out.put_varint(u64::from(self.loss));
    }
}
