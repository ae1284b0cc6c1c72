//! What a broker owes another: of which events it keeps its log for that one's durable
//! subscriptions.

use whimbrel_event::{HOST_RELIABLE_MAX, HostId, Tick};

use crate::bytes::{Put, Reader};
use crate::frame::Body;
use crate::{Invalid, REPLICAS_MAX};

/// Most streams of which these speak: the reliable ones of a host.
const STREAMS_MAX: usize = HOST_RELIABLE_MAX as usize;

/// What the durable subscriptions at the sender still need of the receiver's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldReport {
    /// Greater with each that the sender writes in one life.
    pub seq: u64,
    /// The greatest version of the sender's interest of which it knows that it is owed: of what
    /// came with a later one this says nothing.
    pub version: u64,
    /// One for each reliable stream of the receiver, by its index.
    pub streams: Vec<HeldStream>,
    /// Who has copies of the sender's sessions, at most [`REPLICAS_MAX`].
    pub replicas: Vec<HostId>,
}

/// What is needed of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldStream {
    /// All behind this tick; `None`: nothing.
    pub needed: Option<Tick>,
    /// The same for those who are there and live.
    pub connected: Option<Tick>,
}

/// What the sender owes the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldGrant {
    /// The life of the receiver in which it wrote what this answers, if that is anything.
    pub incarnation: u64,
    /// The number of the [`HoldReport`] that this answers: what it says is durable. 0: none.
    pub seq: u64,
    /// Whether the sender logs anything at all. If not, nothing of the rest counts.
    pub has_log: bool,
    /// The version of the receiver's interest of which all that is durable is owed.
    pub version: u64,
    /// One for each reliable stream of the sender, by its index.
    pub streams: Vec<GrantedStream>,
}

/// A replica of an owner that has ended says that it has taken over all copies that it had of that
/// one's sessions, also if it had none, and that what it holds for them is durable at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// Whose sessions they were.
    pub owner: HostId,
}

/// From where on a stream is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedStream {
    /// What the version wants was logged after this tick.
    pub since: Tick,
    /// Up to here the log has been given up.
    pub given_up: Tick,
    /// Up to here what the receiver wanted was given up as it was silent for too long, or was
    /// retired; 0: it never was.
    pub forfeited: Tick,
}

impl Body<'_> for HoldReport {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(HoldReport {
            seq: input.varint()?,
            version: input.varint()?,
            streams: input.list(STREAMS_MAX, "reliable streams", |input| {
                Ok(HeldStream { needed: read_maybe(input)?, connected: read_maybe(input)? })
            })?,
            replicas: input.list(REPLICAS_MAX, "deputies", Reader::host)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.seq);
        out.put_varint(self.version);
        out.put_list(&self.streams, STREAMS_MAX, "reliable streams", |out, held| {
            put_maybe(held.needed, out);
            put_maybe(held.connected, out);
        });
        out.put_list(&self.replicas, REPLICAS_MAX, "deputies", |out, host| out.put_u64(host.as_u64()));
    }
}

impl Body<'_> for HoldGrant {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(HoldGrant {
            incarnation: input.u64()?,
            seq: input.varint()?,
            has_log: input.bool("whether there is a log")?,
            version: input.varint()?,
            streams: input.list(STREAMS_MAX, "reliable streams", |input| {
                Ok(GrantedStream { since: input.tick()?, given_up: input.tick()?, forfeited: input.tick()? })
            })?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.incarnation);
        out.put_varint(self.seq);
        out.push(u8::from(self.has_log));
        out.put_varint(self.version);
        out.put_list(&self.streams, STREAMS_MAX, "reliable streams", |out, stream| {
            [stream.since, stream.given_up, stream.forfeited].into_iter().for_each(|tick| out.put_u64(tick.0));
        });
    }
}

impl Body<'_> for TakenOver {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(TakenOver { owner: input.host()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.owner.as_u64());
    }
}

fn read_maybe(input: &mut Reader<'_>) -> Result<Option<Tick>, Invalid> {
    input.bool("whether anything is needed")?.then(|| input.tick()).transpose()
}

fn put_maybe(tick: Option<Tick>, out: &mut Vec<u8>) {
    out.push(u8::from(tick.is_some()));
    if let Some(tick) = tick {
        out.put_u64(tick.0);
    }
}
