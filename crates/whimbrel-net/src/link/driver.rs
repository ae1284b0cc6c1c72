//! What a driver of links to other brokers tells the core, and is told by it.

/// The driver's name for one connection to another broker. Small numbers, reused after
/// [`PeerInput::Closed`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerLink(pub u32);

/// One of the ways over a link. Streams are in order, each for itself; what one of them holds up
/// does not hold up the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// A stream, to be served first: hellos, link state, interest, nacks.
    Control,
    /// A stream: events that are reliable.
    Reliable,
    /// A stream, to be served last: events of best effort.
    BestEffort,
    /// Each on its own, whole or not at all: probes.
    Datagram,
}

impl Channel {
    /// All of them, in the order in which they are served.
    pub const ALL: [Channel; 4] = [Channel::Control, Channel::Reliable, Channel::BestEffort, Channel::Datagram];
}

/// What happens on the links to other brokers.
#[derive(Clone, Copy, Debug)]
pub enum PeerInput<'a> {
    /// A connection is there, and both ends have proved who they are.
    Opened {
        /// Its name from now on.
        link: PeerLink,
        /// This broker has asked for it.
        dialed: bool,
        /// The name that the other one's certificate gives it; `None` if certificates prove nothing
        /// here.
        name: Option<&'a str>,
    },
    /// The next bytes of a stream, cut anywhere, or one datagram.
    Bytes {
        /// From which link.
        link: PeerLink,
        /// On which way.
        channel: Channel,
        /// What came.
        bytes: &'a [u8],
    },
    /// Less than before is unsent on a way on which much was.
    Room {
        /// Of which link.
        link: PeerLink,
        /// On which way.
        channel: Channel,
        /// How many bytes are still unsent.
        unsent: usize,
    },
    /// The connection is gone. Not told for one that the core has hung up.
    Closed {
        /// Which.
        link: PeerLink,
    },
}

/// Why the core ends a connection to another broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HangUp {
    /// This broker speaks to no others.
    NotOpen,
    /// It sent what is no frame, or a frame that makes no sense where it came.
    Garbage,
    /// It speaks another version.
    OtherVersion,
    /// It belongs to another deployment.
    OtherDeployment,
    /// The name that it gives itself is not that of its certificate.
    ForgedName,
    /// Another broker has that name.
    NameTaken,
    /// It is this broker.
    Itself,
    /// There is another link to the same broker.
    Double,
    /// There are as many links as there may be.
    TooMany,
    /// Nothing came from it for too long.
    Silent,
    /// It did not take what it was sent for too long.
    Stuck,
    /// This broker goes on with other streams: its log has failed.
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
