//! The interface between the network layer and a driver of links to other brokers.

/// The driver's number for a connection to another broker. Numbers are small, and reused after
/// [`PeerInput::Closed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerLink(pub u32);

/// See [`Channel::little`]; of all channels but the urgent one.
pub const UNSENT_LITTLE: usize = 64 << 10;

/// See [`Channel::little`]; of the urgent channel: what its driver has cannot be sorted any more.
const URGENT_LITTLE: usize = 0;

/// A channel of a link. Each stream is ordered for itself; one that is held up does not hold up the
/// others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// A stream that is served first: hellos, link states, interests, nacks.
    Control,
    /// A stream of reliable events that are in a hurry, to neighbours that know it. It begins with
    /// its first bytes.
    Urgent,
    /// A stream of reliable events.
    Reliable,
    /// A stream that is served last: best-effort events.
    BestEffort,
    /// Single messages, delivered whole or not at all: probes.
    Datagram,
}

impl Channel {
    /// All channels, in the order in which they are served.
    pub const ALL: [Channel; 5] =
        [Channel::Control, Channel::Urgent, Channel::Reliable, Channel::BestEffort, Channel::Datagram];

    /// The number of channels that are streams. They stand first in [`Channel::ALL`].
    pub const STREAMS: usize = Channel::ALL.len() - 1;

    /// Unsent bytes up to which the channel counts as empty: drivers report that it has become less
    /// only where it was more.
    pub const fn little(self) -> usize {
        match self {
            Channel::Urgent => URGENT_LITTLE,
            _ => UNSENT_LITTLE,
        }
    }
}

/// The inputs from links to other brokers.
#[derive(Clone, Copy, Debug)]
pub enum PeerInput<'a> {
    /// A connection is open, and both ends have proved their identity.
    Opened {
        /// Its number from now on.
        link: PeerLink,
        /// This broker has dialed it.
        dialed: bool,
        /// The name in the other end's certificate; `None` if certificates prove nothing here.
        name: Option<&'a str>,
    },
    /// The next bytes of a stream, cut anywhere, or one datagram.
    Bytes {
        /// The link.
        link: PeerLink,
        /// The channel.
        channel: Channel,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Fewer bytes than before are unsent on a channel that had many.
    Room {
        /// The link.
        link: PeerLink,
        /// The channel.
        channel: Channel,
        /// The number of bytes that are still unsent.
        unsent: usize,
    },
    /// What the connection counts of its packets, once some time has passed with losses or many
    /// packets.
    Packets {
        /// The link.
        link: PeerLink,
        /// Packets that were sent since the last report.
        sent: u32,
        /// Packets of which it was found since then that they were lost.
        lost: u32,
    },
    /// The connection is closed. Not reported for a connection that the network layer has hung up.
    Closed {
        /// The link.
        link: PeerLink,
    },
}

/// The reason for which the network layer closes a connection to another broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HangUp {
    /// This broker has no overlay.
    NotOpen,
    /// It sent an invalid frame, or one that is not allowed at that point.
    Garbage,
    /// It speaks another version.
    OtherVersion,
    /// It belongs to another deployment.
    OtherDeployment,
    /// The name in its hello is not that of its certificate.
    ForgedName,
    /// Another broker has that name.
    NameTaken,
    /// It is this broker.
    Itself,
    /// There is another link to the same broker.
    Double,
    /// The bound of links is reached.
    TooMany,
    /// Nothing was received from it for too long.
    Silent,
    /// It took no bytes for too long.
    Stuck,
    /// This broker goes on with other streams, as its log has failed.
    Rehosted,
    /// It has said goodbye.
    Left,
}

impl HangUp {
    /// All of them.
    pub const ALL: [HangUp; 13] = [
        HangUp::NotOpen,
        HangUp::Garbage,
        HangUp::OtherVersion,
        HangUp::OtherDeployment,
        HangUp::ForgedName,
        HangUp::NameTaken,
        HangUp::Itself,
        HangUp::Double,
        HangUp::TooMany,
        HangUp::Silent,
        HangUp::Stuck,
        HangUp::Rehosted,
        HangUp::Left,
    ];

    /// In a few words, for a log and the other side.
    pub fn text(self) -> &'static str {
        match self {
            HangUp::NotOpen => "this broker has no overlay",
            HangUp::Garbage => "it sent what is no frame",
            HangUp::OtherVersion => "it speaks another version of the protocol",
            HangUp::OtherDeployment => "it belongs to another deployment",
            HangUp::ForgedName => "the name that it gives itself is not that of its certificate",
            HangUp::NameTaken => "another broker has its name",
            HangUp::Itself => "it is this broker itself",
            HangUp::Double => "there is another link to the same broker",
            HangUp::TooMany => "there are as many links as there may be",
            HangUp::Silent => "nothing came from it for too long",
            HangUp::Stuck => "it takes nothing",
            HangUp::Rehosted => "this broker goes on with other streams, as its log has failed",
            HangUp::Left => "it has said goodbye",
        }
    }

    /// Whether trying again at once could help.
    pub fn is_passing(self) -> bool {
        matches!(
            self,
            HangUp::Double | HangUp::TooMany | HangUp::Silent | HangUp::Stuck | HangUp::Rehosted | HangUp::Left
        )
    }
}
