//! Messages from one broker to another that need not be its neighbour.

use whimbrel_event::{DomainLabel, HostId, JOINED_BYTES_MAX, LABEL_LISTS_MAX};

use crate::body::Body;
use crate::bytes::{Put, Reader, text};
use crate::{
    AskPublished, Claims, Copies, CopiesTaken, Found, Frame, Hand, HandNumbers, HoldGrant, HoldReport, Invalid,
    MESSAGE_BYTES_MAX, Members, MembersTaken, Move, Moved, PageTaken, Published, Question, ReadAsk, ReadTold, Reply,
    SessionClaims, TakenOver, Where,
};

/// A message from one broker to another, passed on by others. It may be lost, repeated or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageFrame<'a> {
    /// The receiver.
    pub to: HostId,
    /// The number of links that it has passed.
    pub hops: u8,
    /// Whether all other traffic goes before it.
    pub is_bulk: bool,
    /// The sender.
    pub from: HostId,
    /// The sender's incarnation.
    pub incarnation: u64,
    /// The kind of its [`BrokerMessage`]; its receiver drops and counts an unknown kind.
    pub kind: u8,
    /// Which brokers may carry it. Only [`LabelledMessage`] tells it.
    pub label: DomainLabel<'a>,
    /// The contents, at most [`MESSAGE_BYTES_MAX`] bytes.
    pub body: &'a [u8],
}

/// A message that not every broker may carry: [`MessageFrame::label`] is told before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelledMessage<'a>(pub MessageFrame<'a>);

impl<'a> Body<'a> for LabelledMessage<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let label = text(input.bytes(JOINED_BYTES_MAX, "a label")?, "a label")?;
        let label = DomainLabel::read(label, LABEL_LISTS_MAX).filter(|label| !label.is_any());
        let label = label.ok_or(Invalid::Text("a label"))?;
        Ok(LabelledMessage(MessageFrame { label, ..MessageFrame::read(input)? }))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.0.label.as_str().as_bytes(), JOINED_BYTES_MAX, "a label");
        self.0.put(out);
    }
}

impl<'a> MessageFrame<'a> {
    /// The frame of the message, which tells its label if it has one.
    pub fn framed(self) -> Frame<'a> {
        if self.label.is_any() { Frame::MessageFrame(self) } else { Frame::LabelledMessage(LabelledMessage(self)) }
    }
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
            label: DomainLabel::ANY,
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
        /// The contents of a message.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum BrokerMessage<'a> {
            $($(#[$doc])* $name($body),)*
            /// A message of a kind that a later minor version knows: the kind and the contents.
            Unknown(u8, &'a [u8]),
        }

        impl<'a> BrokerMessage<'a> {
            /// Reads the contents of a message of that kind. Bytes behind them are ignored, since a
            /// later minor version may have put them there.
            ///
            /// # Errors
            /// When the contents are malformed.
            pub fn decode(kind: u8, body: &'a [u8]) -> Result<BrokerMessage<'a>, Invalid> {
                match kind {
                    $($number => Body::read(&mut Reader(body)).map(BrokerMessage::$name),)*
                    kind => Ok(BrokerMessage::Unknown(kind, body)),
                }
            }

            /// Appends the contents, and returns the message's kind.
            ///
            /// # Panics
            /// When a bound of the contents is broken.
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
    /// Reports what the sender's durable subscriptions need of the receiver's streams.
    1 HoldReport(HoldReport),
    /// Grants what the sender's log keeps for the receiver.
    2 HoldGrant(HoldGrant),
    /// The sender has taken over its copies of an ended owner's sessions.
    3 TakenOver(TakenOver),
    /// Asks for a part of a log.
    8 ReadAsk(ReadAsk<'a>),
    /// A part of a log.
    9 ReadTold(ReadTold<'a>),
    /// Asks which broker has a client's session.
    32 Where(Where<'a>),
    /// The answer to `Where`.
    33 Found(Found<'a>),
    /// Claims: what brokers have of sessions.
    34 Claims(Claims<'a>),
    /// Acknowledges a page of claims.
    35 PageTaken(PageTaken),
    /// Asks the receiver to move a session to the sender.
    36 Move(Move<'a>),
    /// The answer to `Move`.
    37 Moved(Moved<'a>),
    /// Asks whether these sessions are safe at the receiver, so that the sender may drop what it
    /// has of them.
    38 Settle(SessionClaims<'a>),
    /// Tells that these sessions are safe at the sender.
    39 Settled(SessionClaims<'a>),
    /// Another broker has these sessions by now.
    40 Outdated(SessionClaims<'a>),
    /// Copies of sessions.
    41 Copies(Copies<'a>),
    /// Acknowledges copies.
    42 CopiesTaken(CopiesTaken<'a>),
    /// Asks what a client has published last at the receiver.
    43 AskPublished(AskPublished<'a>),
    /// The answer to `AskPublished`.
    44 Published(Published),
    /// The sender has members of a shared subscription.
    64 Members(Members<'a>),
    /// The answer to `Members`.
    65 MembersTaken(MembersTaken<'a>),
    /// An event of a shared subscription for a member.
    66 Hand(Hand<'a>),
    /// Acknowledges events: they need not be handed again.
    67 HandsCame(HandNumbers<'a>),
    /// Tells that events are settled.
    68 Handed(HandNumbers<'a>),
    /// Tells that events have found no member.
    69 Returned(HandNumbers<'a>),
    /// Asks whether the receiver still has events that it received some time ago. It answers what
    /// became of those that it does not have.
    70 HandsLeft(HandNumbers<'a>),
    /// No member at the sender can be sent these events: others may. Not known before 0.2, where a
    /// branch settles them at the second time.
    71 HandsRefused(HandNumbers<'a>),
    /// Asks what the receiver knows of an operator's question to all brokers.
    80 Question(Question<'a>),
    /// The answer to `Question`.
    81 Reply(Reply<'a>),
}
