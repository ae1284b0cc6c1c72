//! What a broker tells another that need not be its neighbour.

use whimbrel_event::HostId;

use crate::bytes::{Put, Reader};
use crate::frame::Body;
use crate::{
    AskPublished, Claims, Copies, CopiesTaken, Found, Hand, HandNumbers, HoldGrant, HoldReport, Invalid,
    MESSAGE_BYTES_MAX, Members, MembersTaken, Move, Moved, PageTaken, Published, Question, ReadAsk, ReadTold, Reply,
    SessionClaims, TakenOver, Where,
};

/// A message from one broker to another, over others. It may be lost, come twice, or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFrame<'a> {
    /// For whom.
    pub to: HostId,
    /// How many links it has come over.
    pub hops: u8,
    /// Whether it gives way to everything else.
    pub is_bulk: bool,
    /// Who has written it.
    pub from: HostId,
    /// In which life.
    pub incarnation: u64,
    /// What it is about, [`BrokerMessage`]; one that is not known is dropped and counted by its
    /// receiver.
    pub kind: u8,
    /// What it says, at most [`MESSAGE_BYTES_MAX`] bytes.
    pub body: &'a [u8],
}

impl<'a> Body<'a> for MessageFrame<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(MessageFrame {
            to: input.host()?,
            hops: input.byte()?,
            is_bulk: input.bool("the weight of a letter")?,
            from: input.host()?,
            incarnation: input.u64()?,
            kind: input.byte()?,
            body: input.bytes(MESSAGE_BYTES_MAX, "a letter")?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.to.as_u64());
        out.push(self.hops);
        out.push(u8::from(self.is_bulk));
        out.put_u64(self.from.as_u64());
        out.put_u64(self.incarnation);
        out.push(self.kind);
        out.put_bytes(self.body, MESSAGE_BYTES_MAX, "a letter");
    }
}

macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $name:ident($body:ty),)*) => {
        /// What a message says.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum BrokerMessage<'a> {
            $($(#[$doc])* $name($body),)*
            /// Something that a later minor version knows: its kind and what it says.
            Unknown(u8, &'a [u8]),
        }

        impl<'a> BrokerMessage<'a> {
            /// Reads what a message of that kind says. What follows it is ignored, since a later
            /// minor version may have put it there.
            ///
            /// # Errors
            /// What is wrong with it.
            pub fn decode(kind: u8, body: &'a [u8]) -> Result<BrokerMessage<'a>, Invalid> {
                match kind {
                    $($number => Body::read(&mut Reader(body)).map(BrokerMessage::$name),)*
                    kind => Ok(BrokerMessage::Unknown(kind, body)),
                }
            }

            /// Appends what it says, and gives the message's kind.
            ///
            /// # Panics
            /// When a bound of what is in it is broken.
            pub fn encode(&self, out: &mut Vec<u8>) -> u8 {
                match self {
                    $(BrokerMessage::$name(said) => {
                        said.put(out);
                        $number
                    })*
                    BrokerMessage::Unknown(kind, said) => {
                        out.extend_from_slice(said);
                        *kind
                    }
                }
            }
        }
    };
}

impl BrokerMessage<'_> {
    /// The kind of [`BrokerMessage::ReadAsk`].
    pub const READ_ASK: u8 = 8;

    /// The kind of [`BrokerMessage::ReadTold`].
    pub const READ_TOLD: u8 = 9;
}

messages! {
    /// What the sender's durable subscriptions need of the receiver's streams.
    1 HoldReport(HoldReport),
    /// What the sender keeps for the receiver.
    2 HoldGrant(HoldGrant),
    /// The sender has taken over what it had of an owner's sessions.
    3 TakenOver(TakenOver),
    /// Asks for a part of a log.
    8 ReadAsk(ReadAsk<'a>),
    /// A part of a log.
    9 ReadTold(ReadTold<'a>),
    /// Who has a client's session?
    32 Where(Where<'a>),
    /// The answer to that.
    33 Found(Found<'a>),
    /// What brokers have of sessions.
    34 Claims(Claims<'a>),
    /// That has come.
    35 PageTaken(PageTaken),
    /// A session is to move to the sender.
    36 Move(Move<'a>),
    /// The answer to that.
    37 Moved(Moved<'a>),
    /// Are these safe at the receiver, so that what the sender has of them may go?
    38 Settle(SessionClaims<'a>),
    /// They are.
    39 Settled(SessionClaims<'a>),
    /// Somebody else has these by now.
    40 Outdated(SessionClaims<'a>),
    /// Copies of sessions.
    41 Copies(Copies<'a>),
    /// They have come.
    42 CopiesTaken(CopiesTaken<'a>),
    /// What has a client published last at the receiver?
    43 AskPublished(AskPublished<'a>),
    /// The answer to that.
    44 Published(Published),
    /// The sender has members of a shared subscription.
    64 Members(Members<'a>),
    /// The answer to that.
    65 MembersTaken(MembersTaken<'a>),
    /// An event of a shared subscription for a member.
    66 Hand(Hand<'a>),
    /// These have come, and need not be handed again.
    67 HandsCame(HandNumbers<'a>),
    /// These are settled.
    68 Handed(HandNumbers<'a>),
    /// These have found no member.
    69 Returned(HandNumbers<'a>),
    /// These have come some time ago: does the receiver still have them? It says what has become of
    /// those that it has not.
    70 HandsLeft(HandNumbers<'a>),
    /// No member there can be sent these: others may. Not known before 0.2, where a branch settles
    /// them at the second time.
    71 HandsRefused(HandNumbers<'a>),
    /// What is known at the receiver of something that an operator asks of all brokers?
    80 Question(Question<'a>),
    /// The answer to that.
    81 Reply(Reply<'a>),
}
