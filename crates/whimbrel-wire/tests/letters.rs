//! What letters say comes as it was written, and anything else is an error.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use whimbrel_event::{HostId, Tick};
use whimbrel_wire::{DEPUTIES_MAX, Held, Holds, Message, OwedStream, Owes, Took};

fn again(message: &Message<'_>) {
    let mut body = Vec::new();
    let kind = message.encode(&mut body);
    assert_eq!(Message::decode(kind, &body).as_ref(), Ok(message));
    for end in 0..body.len() {
        assert!(Message::decode(kind, &body[..end]).is_err(), "{end} bytes of {}", body.len());
    }
}

prop_compose! {
    fn any_held()(needed in option::of(any::<u64>()), near in option::of(any::<u64>())) -> Held {
        Held { needed: needed.map(Tick), near: near.map(Tick) }
    }
}

proptest! {
    #[test]
    fn what_is_held_and_owed_comes_as_it_was_written(
        (seq, version, incarnation) in any::<(u64, u64, u64)>(), has_log: bool,
        held in vec(any_held(), 0..=4), owed in vec(any::<(u64, u64)>(), 0..=4), deputies in vec(any::<u64>(), 0..9),
    ) {
        let deputies = deputies.into_iter().map(HostId::new).collect();
        again(&Message::Holds(Holds { seq, version, streams: held, deputies }));
        again(&Message::Took(Took { keeper: HostId::new(incarnation) }));
        let owed = owed.into_iter().map(|(since, given_up)| OwedStream { since: Tick(since), given_up: Tick(given_up) });
        again(&Message::Owes(Owes { incarnation, seq, has_log, version, streams: owed.collect() }));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(kind: u8, body: Vec<u8>) {
        let _ = Message::decode(kind, &body);
    }
}

#[test]
fn lists_have_their_bounds() {
    let held = Held { needed: None, near: None };
    let holds = Holds { seq: 1, version: 2, streams: vec![held; 4], deputies: vec![HostId::new(16); DEPUTIES_MAX] };
    again(&Message::Holds(holds.clone()));
    let mut body = Vec::new();
    Message::Holds(holds).encode(&mut body);
    // One stream more than a host has.
    body[2] = 5;
    assert!(Message::decode(1, &body).is_err());
}
