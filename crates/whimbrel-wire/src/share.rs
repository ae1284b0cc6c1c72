//! Shared subscriptions with members at several brokers, in messages: which brokers have members,
//! and which events these get.

use whimbrel_event::EventId;

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{HANDED_MAX, Invalid, MESSAGE_BYTES_MAX, SELECTOR_BYTES_MAX, TOPIC_BYTES_MAX};

/// Tells the home of a shared subscription that the sender has members of it; repeated as long as
/// it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members<'a> {
    /// Greater when the message asks for something new; the answer repeats it.
    pub number: u64,
    /// `$share/group/filter`, 1 to [`TOPIC_BYTES_MAX`] bytes. Its grammar is not checked here.
    pub text: &'a str,
    /// The selector of the members, at most [`SELECTOR_BYTES_MAX`] bytes.
    pub selector: Option<&'a str>,
    /// Whether some membership is remembered, so that the home has to remember its position.
    pub lasts: bool,
    /// Whether some member takes events that wait.
    pub is_reliable: bool,
    /// The number of members; 0: there are none any more.
    pub count: u32,
    /// The number of unsettled events that they take, at most [`HANDED_MAX`]; 0: no member is
    /// connected at present.
    pub room: u32,
}

impl<'a> Body<'a> for Members<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (number, text) = (input.varint()?, shared_text(input)?);
        let selector = input.maybe_bytes(SELECTOR_BYTES_MAX, "a selector")?;
        let selector = selector.map(|bytes| crate::bytes::text(bytes, "a selector")).transpose()?;
        let (lasts, is_reliable) = (input.bool("whether members last")?, input.bool("whether members are reliable")?);
        let (count, room) = (input.small("members")?, input.small("room of members")?);
        if room as usize > HANDED_MAX {
            return Err(Invalid::TooMany("room of members"));
        }
        Ok(Members { number, text, selector, lasts, is_reliable, count, room })
    }

    fn put(&self, out: &mut Vec<u8>) {
        assert!(self.room as usize <= HANDED_MAX, "members take at most {HANDED_MAX} events");
        out.put_varint(self.number);
        out.put_bytes(self.text.as_bytes(), TOPIC_BYTES_MAX, "a shared subscription");
        out.put_maybe_bytes(self.selector.map(str::as_bytes), SELECTOR_BYTES_MAX, "a selector");
        out.push(u8::from(self.lasts));
        out.push(u8::from(self.is_reliable));
        out.put_varint(u64::from(self.count));
        out.put_varint(u64::from(self.room));
    }
}

fn shared_text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Invalid> {
    let text = input.text(TOPIC_BYTES_MAX, "a shared subscription")?;
    if text.is_empty() { Err(Invalid::Text("a shared subscription")) } else { Ok(text) }
}

/// The home's answer to members at another broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MembersAnswer {
    /// The members are known; their interest is not yet told to all brokers, or is not yet durable.
    Coming,
    /// The members get all events from now on.
    Taken,
    /// As [`MembersAnswer::Taken`], and the position is remembered.
    Durable,
    /// Other members have another selector.
    OtherSelector,
    /// The sender is not the home.
    NotHome,
}

impl MembersAnswer {
    const ALL: [MembersAnswer; 5] = [
        MembersAnswer::Coming,
        MembersAnswer::Taken,
        MembersAnswer::Durable,
        MembersAnswer::OtherSelector,
        MembersAnswer::NotHome,
    ];
}

/// The answer to [`Members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembersTaken<'a> {
    /// As in [`Members`].
    pub number: u64,
    /// As in [`Members`].
    pub text: &'a str,
    /// The answer.
    pub answer: MembersAnswer,
}

impl<'a> Body<'a> for MembersTaken<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (number, text) = (input.varint()?, shared_text(input)?);
        let answer = MembersAnswer::ALL.get(usize::from(input.byte()?));
        Ok(MembersTaken { number, text, answer: *answer.ok_or(Invalid::Range("an answer to members"))? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_bytes(self.text.as_bytes(), TOPIC_BYTES_MAX, "a shared subscription");
        out.push(self.answer as u8);
    }
}

/// An event of a shared subscription for one of the receiver's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand<'a> {
    /// The sender's number for it, by which it is settled; 0: it is not settled.
    pub number: u64,
    /// The shared subscription.
    pub text: &'a str,
    /// The clock of the broker that accepted the event when it is sent, nanoseconds, as far as the
    /// sender knows it: the age of the event is relative to it.
    pub now: u64,
    /// Whether it was published with the retain mark.
    pub retain: bool,
    /// The event's id.
    pub id: EventId,
    /// The event in the form of [`crate::compact`].
    pub event: &'a [u8],
}

impl<'a> Body<'a> for Hand<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Hand {
            number: input.varint()?,
            text: shared_text(input)?,
            now: input.u64()?,
            retain: input.bool("a retain mark")?,
            id: input.event_id()?,
            event: input.bytes(MESSAGE_BYTES_MAX, "an event")?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.put_bytes(self.text.as_bytes(), TOPIC_BYTES_MAX, "a shared subscription");
        out.put_u64(self.now);
        out.push(u8::from(self.retain));
        out.put_event_id(self.id);
        out.put_bytes(self.event, MESSAGE_BYTES_MAX, "an event");
    }
}

/// Numbers of [`Hand`] messages; the message's kind tells what is said of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandNumbers<'a> {
    /// The shared subscription.
    pub text: &'a str,
    /// Ascending, at most [`HANDED_MAX`].
    pub numbers: Vec<u64>,
}

impl<'a> Body<'a> for HandNumbers<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let text = shared_text(input)?;
        let mut last = 0_u64;
        let numbers = input.list(HANDED_MAX, "numbers of events", |input| {
            last = last.checked_add(input.varint()?).ok_or(Invalid::Range("the number of an event"))?;
            Ok(last)
        })?;
        Ok(HandNumbers { text, numbers })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.text.as_bytes(), TOPIC_BYTES_MAX, "a shared subscription");
        let mut last = 0;
        out.put_list(&self.numbers, HANDED_MAX, "numbers of events", |out, number| {
            out.put_varint(number.checked_sub(last).expect("numbers ascend"));
            last = *number;
        });
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{PubendId, Tick};

    use super::*;
    use crate::BrokerMessage;

    fn all() -> Vec<BrokerMessage<'static>> {
        let text = "$share/g/t/#";
        let members = |selector, count, room| {
            BrokerMessage::Members(Members {
                number: 300,
                text,
                selector,
                lasts: true,
                is_reliable: false,
                count,
                room,
            })
        };
        let id = EventId { pubend: PubendId(0x77_0001), tick: Tick(5_000_000_000) };
        let hand = Hand { number: 7, text, now: 9, retain: true, id, event: b"event" };
        let numbers = || HandNumbers { text, numbers: vec![3, 1 << 40, u64::MAX] };
        let mut all = vec![
            members(None, 0, 0),
            members(Some("a = 1"), 70_000, HANDED_MAX as u32),
            BrokerMessage::Hand(hand),
            BrokerMessage::HandsCame(numbers()),
            BrokerMessage::Handed(numbers()),
            BrokerMessage::Returned(numbers()),
            BrokerMessage::HandsRefused(numbers()),
            BrokerMessage::HandsLeft(HandNumbers { text, numbers: Vec::new() }),
        ];
        let answers =
            MembersAnswer::ALL.map(|answer| BrokerMessage::MembersTaken(MembersTaken { number: 0, text, answer }));
        all.extend(answers);
        all
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_refused() {
        for message in all() {
            let mut body = Vec::new();
            let kind = message.encode(&mut body);
            assert_eq!(BrokerMessage::decode(kind, &body), Ok(message));
            for end in 0..body.len() {
                assert!(BrokerMessage::decode(kind, &body[..end]).is_err());
            }
        }
    }

    #[test]
    fn more_than_may_be_is_refused() {
        let mut body = b"\x01t".to_vec();
        body.put_varint(HANDED_MAX as u64 + 1);
        body.resize(HANDED_MAX + 10, 1);
        assert!(matches!(BrokerMessage::decode(67, &body), Err(Invalid::TooMany(_))));
        let mut taken = Vec::new();
        let answer = MembersAnswer::NotHome;
        let kind = BrokerMessage::MembersTaken(MembersTaken { number: 1, text: "t", answer }).encode(&mut taken);
        *taken.last_mut().expect("it has an answer") = 5;
        assert!(matches!(BrokerMessage::decode(kind, &taken), Err(Invalid::Range(_))));
    }
}
