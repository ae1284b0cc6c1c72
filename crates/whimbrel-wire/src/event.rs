//! An event in transit, and its routing.

use whimbrel_event::{EventId, HostId, PubendId, Tick};

use crate::body::{Body, EVENT, put_frame};
use crate::bytes::{Put, Reader};
use crate::{Invalid, REPAIRERS_MAX, TreeReader};

const ANSWER: u8 = 1;
const REPAIRERS: u8 = 0b110;
const REPAIRERS_SHIFT: u32 = 1;
const DEFAULT_PREVIOUS: u8 = 1 << 3;
const RETAIN: u8 = 1 << 4;

/// An event in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFrame<'a> {
    /// The event's stream.
    pub pubend: PubendId,
    /// The event's place in it.
    pub tick: Tick,
    /// Time since it was accepted, µs: the sum of its times at each broker and on each link.
    pub age_us: u64,
    /// Whether it answers a nack.
    pub answer: bool,
    /// The retain mark: whether the event becomes its topic's retained message. Brokers before 0.2
    /// leave it out of answers.
    pub retain: bool,
    /// The brokers that have changed its tree.
    pub repairers: Repairers,
    /// The tree of its destinations as the receiver sees it, for [`EventFrame::routes`]. A decoded
    /// frame has a well-formed tree.
    pub tree: &'a [u8],
    /// The previous tick of destinations for which the tree has no other; not after `tick`.
    pub default_previous: Tick,
    /// The event, for [`crate::compact::read`]. A broker that only passes it on does not read it.
    pub event: &'a [u8],
}

impl<'a> EventFrame<'a> {
    /// The event's id.
    pub fn id(&self) -> EventId {
        EventId { pubend: self.pubend, tick: self.tick }
    }

    /// A reader of the tree of a decoded frame, which is not checked again.
    ///
    /// # Errors
    /// When the tree's first node is malformed, which is impossible for a decoded frame.
    pub fn routes(&self) -> Result<TreeReader<'a>, Invalid> {
        TreeReader::checked(self.tree, self.tick, self.default_previous)
    }

    /// Appends the frame, with its length, up to its event. The caller appends the `event_len`
    /// bytes of the event; `event` is not read, so an event that is passed on is not touched.
    ///
    /// # Panics
    /// As [`crate::Frame::encode`].
    pub fn encode_header(&self, event_len: usize, out: &mut Vec<u8>) {
        put_frame(out, EVENT, event_len, |out| self.put_header(out));
    }

    pub(crate) fn put_header(&self, out: &mut Vec<u8>) {
        let before =
            self.tick.0.checked_sub(self.default_previous.0).expect("a previous tick is not after the event's");
        let repairers = self.repairers.as_slice();
        let mut flags = (repairers.len() as u8) << REPAIRERS_SHIFT;
        flags |= if self.answer { ANSWER } else { 0 };
        flags |= if before > 0 { DEFAULT_PREVIOUS } else { 0 };
        flags |= if self.retain { RETAIN } else { 0 };
        out.push(flags);
        out.put_u64(self.pubend.0);
        out.put_u64(self.tick.0);
        out.put_varint(self.age_us);
        if before > 0 {
            out.put_varint(before);
        }
        for host in repairers {
            out.put_u64(host.as_u64());
        }
        out.extend_from_slice(self.tree);
    }
}

impl<'a> Body<'a> for EventFrame<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let flags = input.byte()?;
        if flags & !(ANSWER | REPAIRERS | DEFAULT_PREVIOUS | RETAIN) != 0 {
            return Err(Invalid::Form("flags of an event's frame"));
        }
        let pubend = PubendId(input.u64()?);
        let tick = input.tick()?;
        let age_us = input.varint()?;
        let before = if flags & DEFAULT_PREVIOUS == 0 { 0 } else { input.varint()? };
        if flags & DEFAULT_PREVIOUS != 0 && before == 0 {
            return Err(Invalid::Form("a previous tick"));
        }
        let default_previous = Tick(tick.0.checked_sub(before).ok_or(Invalid::Range("a previous tick"))?);
        let mut repairers = Repairers::NONE;
        for _ in 0..(flags & REPAIRERS) >> REPAIRERS_SHIFT {
            assert!(repairers.push(input.host()?), "two bits count no more than there is room for");
        }
        let tree = input.0;
        TreeReader::read(input, tick, default_previous)?;
        let tree = &tree[..tree.len() - input.0.len()];
        let answer = flags & ANSWER != 0;
        let event = core::mem::take(&mut input.0);
        Ok(EventFrame {
            pubend,
            tick,
            age_us,
            answer,
            retain: flags & RETAIN != 0,
            repairers,
            tree,
            default_previous,
            event,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.put_header(out);
        out.extend_from_slice(self.event);
    }
}

/// The brokers that have changed a frame's tree, at most [`REPAIRERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairers {
    hosts: [HostId; REPAIRERS_MAX],
    count: usize,
}

impl Repairers {
    /// No brokers.
    pub const NONE: Repairers = Repairers { hosts: [HostId::new(0); REPAIRERS_MAX], count: 0 };

    /// Adds a broker; false if there is no room.
    #[must_use]
    pub fn push(&mut self, host: HostId) -> bool {
        let Some(place) = self.hosts.get_mut(self.count) else { return false };
        *place = host;
        self.count += 1;
        true
    }

    /// All of them, in the order of their changes.
    pub fn as_slice(&self) -> &[HostId] {
        &self.hosts[..self.count]
    }
}
