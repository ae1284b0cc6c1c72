//! A broker's interest.

use whimbrel_event::HostId;

use crate::body::Body;
use crate::bytes::{Put, Reader, length_bytes};
use crate::{Invalid, LIST_MAX, SELECTOR_BYTES_MAX, TOPIC_BYTES_MAX};

/// A version of a broker's interest: the whole of it, or how it differs from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestUpdate<'a> {
    /// The broker whose interest it is.
    pub host: HostId,
    /// The broker's incarnation.
    pub incarnation: u64,
    /// The version that this update makes.
    pub version: u64,
    /// The version that it builds on, smaller than `version`; `None`: the update is the whole
    /// interest.
    pub base: Option<u64>,
    /// Entries of the base that are removed, at most [`LIST_MAX`].
    pub removed: Vec<u32>,
    /// Added entries, at most [`LIST_MAX`].
    pub added: Vec<InterestEntry<'a>>,
    /// For how long the broker's subscribers have relied on the interest, ms; 0: none is answered
    /// yet. Grows on the way.
    pub age_ms: u64,
}

/// Added to the number of an entry that a replier wants. A broker of an earlier minor version keeps
/// numbers as they come, and passes them on.
pub const REPLIER_NUMBER: u32 = 1 << 31;

/// One entry: events that a broker wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestEntry<'a> {
    /// The number by which an update removes it, with [`REPLIER_NUMBER`] if a replier wants these
    /// events.
    pub id: u32,
    /// The topic filter, 1 to [`TOPIC_BYTES_MAX`] bytes. Its grammar is not checked here.
    pub filter: &'a str,
    /// The selector, at most [`SELECTOR_BYTES_MAX`] bytes; `None`: all events.
    pub selector: Option<&'a str>,
    /// Whether durable subscriptions want these events: then they are logged.
    pub durable: bool,
}

impl<'a> InterestEntry<'a> {
    /// Whether a subscription that answers requests wants these events.
    pub fn is_of_replier(&self) -> bool {
        self.id & REPLIER_NUMBER != 0
    }

    /// Number of bytes that it takes in a frame; more entries than fit into one are sent in
    /// several.
    pub fn encoded_len(&self) -> usize {
        let selector = self.selector.map_or(1, |selector| length_bytes(selector.len() + 1) + selector.len());
        let durable = if self.durable { length_bytes(LIST_MAX) } else { 0 };
        length_bytes(self.id as usize) + length_bytes(self.filter.len()) + self.filter.len() + selector + durable
    }

    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let id = input.small("the number of an interest")?;
        let filter = input.text(TOPIC_BYTES_MAX, "a topic filter")?;
        if filter.is_empty() {
            return Err(Invalid::Text("a topic filter"));
        }
        let selector = input.maybe_bytes(SELECTOR_BYTES_MAX, "a selector")?;
        let selector = selector.map(|bytes| crate::bytes::text(bytes, "a selector")).transpose()?;
        Ok(InterestEntry { id, filter, selector, durable: false })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(!self.filter.is_empty(), "a topic filter is not empty");
        out.put_varint(u64::from(self.id));
        out.put_bytes(self.filter.as_bytes(), TOPIC_BYTES_MAX, "a topic filter");
        out.put_maybe_bytes(self.selector.map(str::as_bytes), SELECTOR_BYTES_MAX, "a selector");
    }
}

impl<'a> Body<'a> for InterestUpdate<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let host = input.host()?;
        let incarnation = input.u64()?;
        let version = input.varint()?;
        let base = match input.varint()? {
            0 => None,
            steps => Some(version.checked_sub(steps).ok_or(Invalid::Range("the base of an interest"))?),
        };
        let removed =
            input.list(LIST_MAX, "interests that are gone", |input| input.small("the number of an interest"))?;
        let mut added = input.list(LIST_MAX, "interests", InterestEntry::read)?;
        let age_ms = input.varint()?;
        let mut next = 0;
        for place in input.list(LIST_MAX, "durable interests", |input| input.small::<usize>("a durable interest"))? {
            // Ascending, as they are written: an update has only one form.
            let entry = added.get_mut(place).filter(|_| place >= next);
            entry.ok_or(Invalid::Range("a durable interest"))?.durable = true;
            next = place + 1;
        }
        Ok(InterestUpdate { host, incarnation, version, base, removed, added, age_ms })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.host.as_u64());
        out.put_u64(self.incarnation);
        out.put_varint(self.version);
        let steps = self.base.map(|base| self.version.checked_sub(base).filter(|steps| *steps > 0));
        out.put_varint(steps.map_or(0, |steps| steps.expect("a base is an earlier version")));
        out.put_list(&self.removed, LIST_MAX, "interests that are gone", |out, id| out.put_varint(u64::from(*id)));
        out.put_list(&self.added, LIST_MAX, "interests", |out, entry| entry.put(out));
        out.put_varint(self.age_ms);
        let durable = self.added.iter().enumerate().filter(|(_, entry)| entry.durable);
        let durable: Vec<usize> = durable.map(|(place, _)| place).collect();
        out.put_list(&durable, LIST_MAX, "durable interests", |out, place| out.put_varint(*place as u64));
    }
}
