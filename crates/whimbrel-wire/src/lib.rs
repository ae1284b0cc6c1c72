//! The frames that brokers exchange, encoded and decoded, and their limits. The bytes are described
//! in `docs/wire-protocol.md`.
//!
//! [`Cutter`] finds the frames in a stream, [`Frame::decode`] reads one, [`Frame::encode`] writes
//! one. Contents are borrowed from the bytes. The meaning of a frame is the core's matter. An error
//! of another broker is an [`Invalid`]; an error of this one is a panic.

mod body;
mod bytes;
pub mod compact;
mod cutter;
mod event;
mod frame;
mod holds;
mod interest;
mod invalid;
mod knowledge;
mod limits;
mod link;
mod message;
mod question;
mod read;
mod registry;
mod repeat;
mod roam;
mod share;
mod topology;
mod tree;
mod watch;

pub use cutter::{Cutter, FrameAt};
pub use event::{EventFrame, Repairers};
pub use frame::Frame;
pub use holds::{GrantedStream, HeldStream, HoldGrant, HoldReport, TakenOver};
pub use interest::{InterestEntry, InterestUpdate, REPLIER_NUMBER};
pub use invalid::Invalid;
pub use knowledge::{Nack, Part, Range, Silence};
pub use limits::{
    ADDRESS_BYTES_MAX, ADDRESSES_MAX, CLAIMS_MAX, CLIENT_ID_BYTES_MAX, DEPTH_MAX, FRAME_BYTES_MAX, GOODBYE_BYTES_MAX,
    HANDED_MAX, LATER_BYTES_MAX, LIST_MAX, LOSS_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, NEIGHBOURS_MAX, NODES_MAX,
    PARTS_MAX, PREVIOUS_IDENTITIES_MAX, PRINCIPAL_BYTES_MAX, QUESTION_BYTES_MAX, RANGES_MAX, READ_ENTRIES_MAX,
    READ_EVENTS_MAX, READ_LOST_MAX, REGISTRY_RANGES, REPAIRERS_MAX, REPEATED_BYTES_MAX, REPLICAS_MAX, REPLY_BYTES_MAX,
    SELECTOR_BYTES_MAX, SURCHARGES_MAX, TOPIC_BYTES_MAX, VERSION_BYTES_MAX,
};
pub use link::{Goodbye, Hello, Probe, ProbeEcho};
pub use message::{BrokerMessage, LabelledMessage, MessageFrame};
pub use question::{Question, Reply};
pub use read::{ReadAsk, ReadTold};
pub use registry::{OfMap, Registry, RegistryAsk, RegistryDigest, RegistryEntry};
pub use repeat::Repeat;
pub use roam::{
    AskPublished, Claim, ClaimKind, Claims, Copies, CopiesTaken, Found, Move, MoveAnswer, Moved, PageTaken, Published,
    SessionClaims, Where,
};
pub use share::{Hand, HandNumbers, Members, MembersAnswer, MembersTaken};
pub use topology::{Ask, Digest, HostVersion, LinkEnd, LinkStateFrame, PreviousIdentities, PreviousIdentity, Protocol};
pub use tree::{Dest, Subtree, TreeReader, TreeWriter};
pub use watch::{CopiedEvent, Flash, LinkReport, LinkStamp, StampedEvent};

/// The major version of the protocol. Brokers of different major versions do not link.
pub const MAJOR: u8 = 1;

/// The minor version of the protocol. A minor version may add frames of types below 128, and fields
/// at the end of frames whose contents have an end.
///
/// 1: a hello has the version of the sender's program; a broker that takes copies of sessions tells
///    which streams it knows; a session is sent with the name of its principal, and is given to no
///    other principal.
///
/// 2: a link state tells the protocol of its broker, and is passed on with the fields behind it; a
///    number in an interest may have the mark [`REPLIER_NUMBER`]; there may be replicated maps
///    beside the retained messages.
///
/// 3: a broker has pubends of the deadline class, so that a host has sixteen pubends, eight of them
///    reliable; reports and grants of holds are for all reliable ones that the receiver knows. The
///    links that events with a deadline cross are watched, see [`LinkStamp`], [`LinkReport`] and
///    [`Flash`].
///
/// 4: a datagram with an event may have a [`Repeat`] of the event before behind it.
pub const MINOR: u8 = 4;

/// The optional parts of the protocol that are spoken here, a bit for each: none yet.
pub const FEATURES: u64 = 0;

/// Whether a broker can have this name: 1 to [`NAME_BYTES_MAX`] letters and digits of ASCII, `.`,
/// `_` and `-`.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}
