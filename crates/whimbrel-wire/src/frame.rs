//! Frames: of several kinds, told apart by their type.

use crate::body::{Body, put_frame};
use crate::bytes::Reader;
use crate::{
    Ask, CopiedEvent, Digest, EventFrame, FRAME_BYTES_MAX, Flash, Goodbye, Hello, InterestUpdate, Invalid,
    LabelledMessage, LinkReport, LinkStateFrame, MessageFrame, Nack, OfMap, PreviousIdentities, Probe, ProbeEcho,
    Registry, RegistryAsk, RegistryDigest, Repeat, Silence, StampedEvent,
};

/// The first type that a receiver must know. A frame of a lower unknown type is skipped.
const MUST_BE_KNOWN: u8 = 128;

macro_rules! frames {
    ($($(#[$doc:meta])* $number:literal $name:ident($body:ty),)*) => {
        /// One frame.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Frame<'a> {
            $($(#[$doc])* $name($body),)*
            /// A frame of a type that a later minor version knows: to be skipped and counted.
            Unknown(u8),
        }

        impl<'a> Frame<'a> {
            /// Reads a frame: its type and body, as [`crate::Cutter`] finds it. Bytes behind a body
            /// are ignored, since a later minor version may have put them there.
            ///
            /// # Errors
            /// When the frame is malformed, which ends the link.
            pub fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, Invalid> {
                if bytes.len() > FRAME_BYTES_MAX {
                    return Err(Invalid::TooLong);
                }
                let (&number, body) = bytes.split_first().ok_or(Invalid::Empty)?;
                let input = &mut Reader(body);
                match number {
                    $($number => Body::read(input).map(Frame::$name),)*
                    number if number < MUST_BE_KNOWN => Ok(Frame::Unknown(number)),
                    number => Err(Invalid::UnknownType(number)),
                }
            }

            /// Appends the frame with its length. An unknown one has no body.
            ///
            /// # Panics
            /// When a bound of its contents is broken, or the frame has more than
            /// [`FRAME_BYTES_MAX`] bytes.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Frame::$name(body) => put_frame(out, $number, 0, |out| body.put(out)),)*
                    Frame::Unknown(number) => put_frame(out, *number, 0, |_| ()),
                }
            }
        }
    };
}

frames! {
    /// The first frame on a link, from both sides.
    1 Hello(Hello<'a>),
    /// The last frame on a link.
    2 Goodbye(Goodbye<'a>),
    /// A broker and its neighbours; flooded.
    3 LinkState(LinkStateFrame<'a>),
    /// The versions of the link states and interests that the sender has.
    4 Digest(Digest),
    /// A broker's interest; flooded.
    5 Interest(InterestUpdate<'a>),
    /// The hosts whose link states and interests the sender asks for.
    6 Ask(Ask),
    /// An event in transit.
    7 Event(EventFrame<'a>),
    /// Ranges of ticks without an event for a destination.
    8 Silence(Silence<'a>),
    /// Ranges of ticks that a broker lacks.
    9 Nack(Nack),
    /// Measures the link.
    10 Probe(Probe),
    /// Answers a probe.
    11 ProbeEcho(ProbeEcho),
    /// Entries of the registry.
    12 Registry(Registry<'a>),
    /// Hashes of the sender's registry.
    13 RegistryDigest(RegistryDigest),
    /// The ranges of the registry that the sender asks for.
    14 RegistryAsk(RegistryAsk),
    /// Ended hosts that had the receiver's name before it.
    17 PreviousIdentities(PreviousIdentities),
    /// A message from one broker to another that need not be its neighbour.
    18 MessageFrame(MessageFrame<'a>),
    /// Entries of a replicated map, since 1.2.
    19 MapEntries(OfMap<Registry<'a>>),
    /// Hashes of the sender's part of a replicated map, since 1.2.
    20 MapDigest(OfMap<RegistryDigest>),
    /// The ranges of a replicated map that the sender asks for, since 1.2.
    21 MapAsk(OfMap<RegistryAsk>),
    /// An event with a deadline in transit, since 1.3.
    22 DeadlineEvent(StampedEvent<'a>),
    /// What has arrived of the frames of type 22; a datagram, since 1.3.
    23 LinkReport(LinkReport),
    /// A link that has become better or worse; flooded, since 1.3.
    24 Flash(Flash),
    /// An event with a deadline in transit, of which copies take other paths, since 1.3.
    25 CopiedEvent(CopiedEvent<'a>),
    /// As 18, of a message that not every broker may carry, since 1.3. Brokers to which it goes
    /// have told their domains, so they know it.
    26 LabelledMessage(LabelledMessage<'a>),
    /// The event of the datagram before, behind one of type 22 or 25 in a datagram, since 1.4.
    27 Repeat(Repeat<'a>),
}
