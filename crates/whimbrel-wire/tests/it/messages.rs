//! What messages say: there and back, and arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_event::{EventId, HostId, PubendId, Tick};
use whimbrel_wire::*;

fn again(message: &BrokerMessage<'_>) {
    let mut body = Vec::new();
    let kind = message.encode(&mut body);
    assert_eq!(BrokerMessage::decode(kind, &body).as_ref(), Ok(message));
    for end in 0..body.len() {
        assert_ne!(BrokerMessage::decode(kind, &body[..end]).as_ref(), Ok(message), "cut at {end}");
    }
}

const KINDS: [ClaimKind; 7] = [
    ClaimKind::Nothing,
    ClaimKind::Ended,
    ClaimKind::Coming,
    ClaimKind::Given,
    ClaimKind::Copy,
    ClaimKind::Passing,
    ClaimKind::Owner,
];

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(kind: u8, body in vec(any::<u8>(), 0..200)) {
        if let Ok(message) = BrokerMessage::decode(kind, &body) {
            let mut written = Vec::new();
            prop_assert_eq!(message.encode(&mut written), kind);
            prop_assert_eq!(BrokerMessage::decode(kind, &written), Ok(message));
        }
    }

    #[test]
    fn what_is_said_of_sessions_survives_the_way(
        client in "[a-z]{1,20}", number: u64, epoch: u64, version: u64, connected_at: u64, host: u64, kind in 0_usize..7,
        flags in any::<[bool; 3]>(), part: u32, parts: u32, digest: u64, body in vec(any::<u8>(), 1..60), answer in 0_usize..5,
        principal in "[a-z]{0,9}",
    ) {
        let host = HostId::new(host);
        let claim = Claim { host, client: &client, kind: KINDS[kind], epoch, version, connected_at };
        let claims = vec![claim, Claim { client: "b", ..claim }];
        let answers = [MoveAnswer::Nothing, MoveAnswer::Given, MoveAnswer::Ended, MoveAnswer::GaveTo { to: host, of: version }, MoveAnswer::Foreign];
        again(&BrokerMessage::Where(Where { number, client: &client, connected_at }));
        again(&BrokerMessage::Found(Found { number, claims: claims.clone(), map: digest, unsynced: vec![host], forgotten: vec![host, host] }));
        again(&BrokerMessage::Claims(Claims { page: number, map: digest, claims: claims.clone() }));
        again(&BrokerMessage::PageTaken(PageTaken { page: number }));
        let [clean, as_copy, is_asked] = flags;
        let asked_of = Some(host).filter(|host| is_asked && host.as_u64() != 0);
        again(&BrokerMessage::Move(Move {
            number, client: &client, least: epoch, connected_at, clean, waited: version, as_copy, asked_of, part, principal: &principal,
        }));
        again(&BrokerMessage::Moved(Moved { number, answer: answers[answer], epoch, part, parts, digest, body: &body, principal: &principal }));
        again(&BrokerMessage::Outdated(SessionClaims { claims }));
        again(&BrokerMessage::AskPublished(AskPublished { number, client: &client, epoch, waited: version }));
        let last = EventId { pubend: PubendId(digest), tick: Tick(version) };
        let older = EventId { pubend: PubendId(digest ^ 1), tick: Tick(epoch) };
        for (numbered, lasts) in [(Some(epoch), vec![last]), (None, vec![last, older]), (Some(epoch), vec![]), (None, vec![])] {
            again(&BrokerMessage::Published(Published { number, numbered, lasts: lasts.into_iter().collect() }));
        }
        let principals = if principal.is_empty() { vec![] } else { vec![(part, principal.as_str()), (parts, "b")] };
        again(&BrokerMessage::Copies(Copies { page: number, body: &body, principals }));
        for streams in [0, number] {
            again(&BrokerMessage::CopiesTaken(CopiesTaken { page: number, lacking: vec![&client, "x"], streams }));
        }
    }
}
