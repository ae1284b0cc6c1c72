//! What messages say comes as it was written, and anything else is an error.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use whimbrel_event::{HostId, PubendId, Tick};
use whimbrel_wire::{
    BrokerMessage, GrantedStream, HeldStream, HoldGrant, HoldReport, Invalid, QUESTION_BYTES_MAX, Question,
    REPLICAS_MAX, REPLY_BYTES_MAX, ReadAsk, ReadTold, Reply, TakenOver,
};

/// Its kind.
fn again(message: &BrokerMessage<'_>) -> u8 {
    again_beside(message, None)
}

/// The same of a message of which brokers before it wrote only the beginning, which says `earlier`.
fn again_beside(message: &BrokerMessage<'_>, earlier: Option<&BrokerMessage<'_>>) -> u8 {
    let [mut body, mut begin] = [Vec::new(), Vec::new()];
    let kind = message.encode(&mut body);
    assert_eq!(BrokerMessage::decode(kind, &body).as_ref(), Ok(message));
    if let Some(earlier) = earlier {
        earlier.encode(&mut begin);
        assert!(body.starts_with(&begin), "it is the beginning");
    }
    for end in 0..body.len() {
        let read = BrokerMessage::decode(kind, &body[..end]);
        match earlier {
            Some(earlier) if end == begin.len() => assert_eq!(read.as_ref(), Ok(earlier)),
            _ => assert!(read.is_err(), "{end} bytes of {}", body.len()),
        }
    }
    kind
}

prop_compose! {
    fn any_held()(needed in option::of(any::<u64>()), near in option::of(any::<u64>())) -> HeldStream {
        HeldStream { needed: needed.map(Tick), connected: near.map(Tick) }
    }
}

proptest! {
    #[test]
    fn what_is_held_and_owed_comes_as_it_was_written(
        (seq, version, incarnation) in any::<(u64, u64, u64)>(), has_log: bool,
        held in vec(any_held(), 0..=4), owed in vec(any::<[u64; 3]>(), 0..=4), replicas in vec(any::<u64>(), 0..9),
    ) {
        let replicas = replicas.into_iter().map(HostId::new).collect();
        again(&BrokerMessage::HoldReport(HoldReport { seq, version, streams: held, replicas }));
        again(&BrokerMessage::TakenOver(TakenOver { owner: HostId::new(incarnation) }));
        let owed = owed.into_iter().map(|ticks| {
            let [since, given_up, forfeited] = ticks.map(Tick);
            GrantedStream { since, given_up, forfeited }
        });
        again(&BrokerMessage::HoldGrant(HoldGrant { incarnation, seq, has_log, version, streams: owed.collect() }));
    }

    #[test]
    fn questions_for_a_log_and_answers_come_as_they_were_written(
        (number, pubend, now) in any::<(u64, u64, u64)>(), (after, span, released) in any::<(u32, u32, u64)>(), is_strict: bool,
        may_be_kept: bool, entries in vec(("[a-z/+]{1,9}", option::of("[a-z =0-9]{0,9}")), 0..5),
        events in vec((any::<u32>(), vec(any::<u8>(), 0..9)), 0..5), lost in vec(any::<(u64, u64)>(), 0..3),
    ) {
        let (after, upto) = (Tick(after.into()), Tick(u64::from(after) + u64::from(span)));
        let entries: Vec<_> = entries.iter().map(|(filter, selector)| (&**filter, selector.as_deref())).collect();
        let pubend = PubendId(pubend);
        let ask = BrokerMessage::ReadAsk(ReadAsk { number, pubend, after, upto, is_strict, may_be_kept, entries });
        prop_assert_eq!(again(&ask), BrokerMessage::READ_ASK);
        let mut tick = 0;
        let event = |(more, bytes): &'_ (u32, Vec<u8>)| { tick += u64::from(*more); (Tick(tick), bytes.clone()) };
        let events: Vec<_> = events.iter().map(event).collect();
        let events = events.iter().map(|(tick, bytes)| (*tick, &**bytes)).collect();
        let events: Vec<(Tick, &[u8])> = events;
        let retained = events.iter().skip(1).step_by(2).map(|(tick, _)| *tick).collect();
        let lost = lost.into_iter().map(|(after, upto)| (Tick(after), Tick(upto))).collect();
        let told = ReadTold { number, now, upto, released: Tick(released), lost, events, retained };
        let earlier = BrokerMessage::ReadTold(ReadTold { retained: Vec::new(), ..told.clone() });
        prop_assert_eq!(again_beside(&BrokerMessage::ReadTold(told), Some(&earlier)), BrokerMessage::READ_TOLD);
    }

    #[test]
    fn questions_and_replies_come_as_they_were_written(number: u64, text in "\\PC{0,120}") {
        prop_assert_eq!(again(&BrokerMessage::Question(Question { number, text: &text })), 80);
        prop_assert_eq!(again(&BrokerMessage::Reply(Reply { number, text: &text })), 81);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(kind: u8, body: Vec<u8>) {
        let _ = BrokerMessage::decode(kind, &body);
    }
}

#[test]
fn questions_and_replies_have_their_bounds() {
    let text = "x".repeat(REPLY_BYTES_MAX + 1);
    type Form = (u8, usize, &'static str, fn(&str) -> BrokerMessage<'_>);
    let forms: [Form; 2] = [
        (80, QUESTION_BYTES_MAX, "a question", |text| BrokerMessage::Question(Question { number: 0, text })),
        (81, REPLY_BYTES_MAX, "a reply", |text| BrokerMessage::Reply(Reply { number: 0, text })),
    ];
    for (kind, max, what, form) in forms {
        let mut body = Vec::new();
        form(&text[..max]).encode(&mut body);
        assert_eq!(BrokerMessage::decode(kind, &body), Ok(form(&text[..max])));
        let too_long = std::panic::catch_unwind(|| form(&text[..max + 1]).encode(&mut Vec::new()));
        assert!(too_long.is_err(), "{what}");
        let last = body.len() - 1;
        body[last] = 0xff;
        assert_eq!(BrokerMessage::decode(kind, &body), Err(Invalid::Text(what)));
        // Its length is a varint of several bytes, the first of which has room.
        body[1] += 1;
        body.push(b'x');
        assert_eq!(BrokerMessage::decode(kind, &body), Err(Invalid::TooMany(what)));
    }
}

#[test]
fn lists_have_their_bounds() {
    let held = HeldStream { needed: None, connected: None };
    let holds =
        HoldReport { seq: 1, version: 2, streams: vec![held; 4], replicas: vec![HostId::new(16); REPLICAS_MAX] };
    again(&BrokerMessage::HoldReport(holds.clone()));
    let mut body = Vec::new();
    BrokerMessage::HoldReport(holds).encode(&mut body);
    // One stream more than a host has.
    body[2] = 5;
    assert!(BrokerMessage::decode(1, &body).is_err());
}
