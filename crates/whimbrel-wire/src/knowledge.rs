//! Silences and nacks: ticks without events for a destination, and ticks that a broker lacks.

use whimbrel_event::{HOST_PUBENDS_MAX, HostId, PubendId, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{Invalid, PARTS_MAX, RANGES_MAX, TreeReader};

/// To one destination: ranges of ticks of a host's streams without events for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence<'a> {
    /// The host of the streams.
    pub from: HostId,
    /// The tree to the destination as the receiver sees it, for [`TreeReader::target`]. A decoded
    /// frame has a well-formed tree.
    pub target_tree: &'a [u8],
    /// The destination's incarnation; another one ignores the silence.
    pub incarnation: u64,
    /// The version of the destination's interest for which the silence holds.
    pub version: u64,
    /// One for each stream, at most [`PARTS_MAX`].
    pub parts: Vec<Part>,
}

/// The silence of one stream: no event for the destination after `after` up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index of the stream at its host, below [`HOST_PUBENDS_MAX`].
    pub index: u8,
    /// The tick after which the destination's interest, in any version, counts in this stream.
    pub begin: Tick,
    /// The tick after which the version is in force in this stream.
    pub since: Tick,
    /// Where it begins; not after `upto`.
    pub after: Tick,
    /// Where it ends.
    pub upto: Tick,
    /// Whether there may have been events that no broker has any more.
    pub lost: bool,
    /// The tick behind which the stream had no event at all up to `upto`, for any interest; `upto`
    /// where that is not known.
    pub still: Tick,
}

const PART_INDEX: u8 = HOST_PUBENDS_MAX - 1;
const PART_LOST: u8 = HOST_PUBENDS_MAX;

impl Part {
    fn read(input: &mut Reader<'_>, last: &mut Tick) -> Result<Self, Invalid> {
        let first = input.byte()?;
        if first & !(PART_INDEX | PART_LOST) != 0 {
            return Err(Invalid::Form("a stream's silence"));
        }
        let upto = read_distance(input, *last)?;
        let after = Tick(upto.0.checked_sub(input.varint()?).ok_or(Invalid::Range("the begin of a silence"))?);
        let since = read_distance(input, upto)?;
        let begin = read_distance(input, since)?;
        *last = upto;
        Ok(Part { index: first & PART_INDEX, begin, since, after, upto, lost: first & PART_LOST != 0, still: upto })
    }

    fn put(&self, last: &mut Tick, out: &mut Vec<u8>) {
        assert!(self.index < HOST_PUBENDS_MAX, "a host has no pubend {}", self.index);
        out.push(self.index | if self.lost { PART_LOST } else { 0 });
        put_distance(*last, self.upto, out);
        out.put_varint(self.upto.0.checked_sub(self.after.0).expect("a silence ends not before it begins"));
        put_distance(self.upto, self.since, out);
        put_distance(self.since, self.begin, out);
        *last = self.upto;
    }
}

/// A tick, as the distance from another: either may be the greater one.
fn read_distance(input: &mut Reader<'_>, from: Tick) -> Result<Tick, Invalid> {
    Ok(Tick(from.0.wrapping_add(input.zigzag()? as u64)))
}

fn put_distance(from: Tick, to: Tick, out: &mut Vec<u8>) {
    out.put_zigzag(to.0.wrapping_sub(from.0) as i64);
}

impl<'a> Body<'a> for Silence<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let from = input.host()?;
        let incarnation = input.u64()?;
        let version = input.varint()?;
        let tree = input.0;
        TreeReader::read(input, Tick(0), Tick(0))?;
        let target_tree = &tree[..tree.len() - input.0.len()];
        let mut last = Tick(0);
        let mut parts = input.list(PARTS_MAX, "streams", |input| Part::read(input, &mut last))?;
        // Brokers of earlier versions do not send this.
        if !input.0.is_empty() {
            for part in &mut parts {
                let still = part.upto.0.checked_sub(input.varint()?);
                part.still = Tick(still.ok_or(Invalid::Range("the last event before a silence"))?);
            }
        }
        Ok(Silence { from, target_tree, incarnation, version, parts })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.from.as_u64());
        out.put_u64(self.incarnation);
        out.put_varint(self.version);
        out.extend_from_slice(self.target_tree);
        let mut last = Tick(0);
        out.put_list(&self.parts, PARTS_MAX, "streams", |out, part| part.put(&mut last, out));
        // A silence has only one form: one that tells nothing of this is written as in earlier
        // versions.
        if self.parts.iter().any(|part| part.still != part.upto) {
            for part in &self.parts {
                out.put_varint(
                    part.upto.0.checked_sub(part.still.0).expect("a stream is still before its silence ends"),
                );
            }
        }
    }
}

/// Towards the host of a stream: ticks that a broker lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The stream.
    pub pubend: PubendId,
    /// The broker that lacks them.
    pub from: HostId,
    /// The incarnation of that broker.
    pub incarnation: u64,
    /// The number of links that the nack has passed.
    pub hops: u8,
    /// The missing ranges, at most [`RANGES_MAX`].
    pub ranges: Vec<Range>,
}

/// A range of unknown ticks: after `after` up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins; before `upto`.
    pub after: Tick,
    /// Where it ends.
    pub upto: Tick,
    /// Whether there is known to be an event at `upto`.
    pub ends_in_data: bool,
    /// The version of the interest of the broker that lacks it.
    pub version: u64,
}

const ENDS_IN_DATA: u8 = 1;
/// The version differs from that of the range before; for the first range, from 0.
const VERSION: u8 = 1 << 1;

impl Range {
    fn read(input: &mut Reader<'_>, (last, last_version): &mut (Tick, u64)) -> Result<Self, Invalid> {
        let flags = input.byte()?;
        if flags & !(ENDS_IN_DATA | VERSION) != 0 {
            return Err(Invalid::Form("what is missing"));
        }
        let upto = read_distance(input, *last)?;
        let after = upto.0.checked_sub(input.varint()?).filter(|after| *after < upto.0);
        let after = Tick(after.ok_or(Invalid::Range("the begin of what is missing"))?);
        if flags & VERSION != 0 {
            let version = input.varint()?;
            if version == *last_version {
                return Err(Invalid::Form("what is missing"));
            }
            *last_version = version;
        }
        *last = upto;
        Ok(Range { after, upto, ends_in_data: flags & ENDS_IN_DATA != 0, version: *last_version })
    }

    fn put(&self, (last, last_version): &mut (Tick, u64), out: &mut Vec<u8>) {
        assert!(self.after < self.upto, "something is missing");
        let is_other = self.version != *last_version;
        out.push(if self.ends_in_data { ENDS_IN_DATA } else { 0 } | if is_other { VERSION } else { 0 });
        put_distance(*last, self.upto, out);
        out.put_varint(self.upto.0 - self.after.0);
        if is_other {
            out.put_varint(self.version);
        }
        (*last, *last_version) = (self.upto, self.version);
    }
}

impl Body<'_> for Nack {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let pubend = PubendId(input.u64()?);
        let from = input.host()?;
        let incarnation = input.u64()?;
        let hops = input.byte()?;
        let mut last = (Tick(0), 0);
        let ranges = input.list(RANGES_MAX, "ranges", |input| Range::read(input, &mut last))?;
        Ok(Nack { pubend, from, incarnation, hops, ranges })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.pubend.0);
        out.put_u64(self.from.as_u64());
        out.put_u64(self.incarnation);
        out.push(self.hops);
        let mut last = (Tick(0), 0);
        out.put_list(&self.ranges, RANGES_MAX, "ranges", |out, range| range.put(&mut last, out));
    }
}
