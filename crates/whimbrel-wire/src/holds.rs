//! Retention holds: the events that a broker keeps in its log for another broker's durable
//! subscriptions.

use whimbrel_event::{HOST_RELIABLE_MAX, HostId, Tick};

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{Invalid, REPLICAS_MAX};

/// Most streams of a report or grant: the reliable ones of a host.
const STREAMS_MAX: usize = HOST_RELIABLE_MAX as usize;

/// A report on a hold: what the durable subscriptions at the sender still need of the receiver's
/// streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldReport {
    /// Greater with each report of the sender in one incarnation.
    pub seq: u64,
    /// The greatest version of the sender's interest that it knows to be granted: the report says
    /// nothing of events that only a later version wants.
    pub version: u64,
    /// One for each reliable stream of the receiver, by its index.
    pub streams: Vec<HeldStream>,
    /// The brokers that have copies of the sender's sessions, at most [`REPLICAS_MAX`].
    pub replicas: Vec<HostId>,
}

/// The needed part of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldStream {
    /// All ticks behind this one are needed; `None`: none are.
    pub needed: Option<Tick>,
    /// As `needed`, of the subscriptions that are connected and caught up.
    pub connected: Option<Tick>,
}

/// A grant of a hold: what the sender's log keeps for the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldGrant {
    /// The receiver's incarnation whose report this answers, if it answers one.
    pub incarnation: u64,
    /// The number of the [`HoldReport`] that this answers: what it says is durable. 0: none.
    pub seq: u64,
    /// Whether the sender has a log. If not, the other fields are void.
    pub has_log: bool,
    /// The version of the receiver's interest whose durable part is granted.
    pub version: u64,
    /// One for each reliable stream of the sender, by its index.
    pub streams: Vec<GrantedStream>,
}

/// A replica of an ended owner says that it has taken over all its copies of the owner's sessions,
/// also if it had none, and that its holds for them are durable at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The ended owner.
    pub owner: HostId,
}

/// The held part of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedStream {
    /// Events that the version wants were logged after this tick.
    pub since: Tick,
    /// The tick up to which the log was given up.
    pub given_up: Tick,
    /// The tick up to which events that the receiver wanted were given up, as it was silent for too
    /// long or was retired; 0: never.
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
