//! The rules of checkpoint tokens.

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_event::{CheckpointToken, Deployment, EventId, HostId, InvalidToken, PubendId, Tick, TokenFull};

const MINUTE: u64 = 60_000_000_000;
/// In November 2026.
const NOW: u64 = 1_795_000_000_000_000_000;

fn host(number: u64) -> HostId {
    HostId::new(number << 4)
}

fn covering(common: u64, hosts: &[HostId]) -> CheckpointToken {
    let mut token = CheckpointToken::new(Deployment::named("harbour"), Tick(common));
    for &host in hosts {
        token.cover(host, 4, 4).unwrap();
    }
    token
}

/// One of a few ticks, so that some are equal, or any.
fn tick() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, NOW - MINUTE..NOW + MINUTE, any::<u64>(), Just(u64::MAX)]
}

fn token() -> impl Strategy<Value = CheckpointToken> {
    let hosts = vec((any::<u64>(), 0..=4u8, 0..=12u8), 0..6);
    (any::<u32>(), tick(), hosts, vec((any::<prop::sample::Index>(), tick()), 0..8)).prop_map(
        |(deployment, common, hosts, exceptions)| {
            let mut token = CheckpointToken::new(Deployment(deployment), Tick(common));
            for (host, reliable, further) in hosts {
                if reliable + further > 0 {
                    token.cover(HostId::new(host), reliable, further).unwrap();
                }
            }
            let pubends: Vec<PubendId> = token.pubends().map(|(pubend, _)| pubend).collect();
            for (place, tick) in exceptions.into_iter().filter(|_| !pubends.is_empty()) {
                token.set(*place.get(&pubends), Tick(tick));
            }
            token
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_survives_print_and_parse(token in token()) {
        prop_assert_eq!(token.to_string().parse(), Ok(token));
    }

    #[test]
    fn equal_tokens_print_equally_in_whatever_order_they_were_made(token in token()) {
        let mut other = CheckpointToken::new(token.deployment(), token.common());
        let hosts: Vec<_> = token.hosts().collect();
        for &(host, reliable, further) in hosts.iter().rev() {
            other.cover(host, reliable, further).unwrap();
        }
        let pubends: Vec<_> = token.pubends().collect();
        for &(pubend, tick) in pubends.iter().rev() {
            other.set(pubend, Tick(tick.0.wrapping_add(1)));
            other.set(pubend, tick);
        }
        prop_assert_eq!(&other, &token);
        prop_assert_eq!(other.to_string(), token.to_string());
    }

    #[test]
    fn no_single_altered_character_is_taken(token in token(), place: prop::sample::Index, character in "[A-Za-z0-9_-]") {
        let text = token.to_string();
        let at = place.index(text.len());
        let altered = format!("{}{character}{}", &text[..at], &text[at + 1..]);
        prop_assume!(altered != text);
        prop_assert!(altered.parse::<CheckpointToken>().is_err());
    }

    #[test]
    fn no_part_of_a_token_is_a_token(token in token()) {
        let text = token.to_string();
        for end in 0..text.len() {
            let part = text[..end].parse::<CheckpointToken>();
            prop_assert!(matches!(part, Err(InvalidToken::Truncated | InvalidToken::Altered)), "{:?}", part);
        }
    }

    #[test]
    fn garbage_is_refused(text in "\\PC{0,80}") {
        // It takes the right version and the right check byte to be no garbage.
        prop_assume!(!text.starts_with('A'));
        prop_assert!(text.parse::<CheckpointToken>().is_err());
    }

    #[test]
    fn positions_only_advance_and_only_where_an_event_was(
        token in token(), hosts in vec(any::<u64>(), 1..3), events in vec((any::<prop::sample::Index>(), tick()), 1..20),
    ) {
        let all: Vec<u64> = token.hosts().map(|(host, ..)| host.as_u64()).chain(hosts).collect();
        let mut advanced = token.clone();
        let mut model: std::collections::BTreeMap<PubendId, Tick> = token.pubends().collect();
        for (place, tick) in events {
            let host = HostId::new(all[place.index(all.len())]);
            let pubend = host.pubend((tick % 16) as u8);
            advanced.advance(EventId { pubend, tick: Tick(tick) }).unwrap();
            let position = model.entry(pubend).or_default();
            *position = (*position).max(Tick(tick));
        }
        for (pubend, position) in advanced.pubends() {
            // Not covered, or at its birth: a reader begins at the same place.
            prop_assert_eq!(position, model.remove(&pubend).unwrap_or_default());
        }
        prop_assert!(model.is_empty());
        prop_assert_eq!(advanced.to_string().parse(), Ok(advanced));
    }
}

#[test]
fn a_token_of_one_host_is_short() {
    let own = HostId::new(u64::MAX);
    for minutes in [0, 1, 17] {
        let mut token = CheckpointToken::new(Deployment::named("harbour"), Tick(NOW));
        token.cover(own, 4, 0).unwrap();
        for (index, sign) in [(0, 1), (1, -1), (3, 1)] {
            token.set(own.pubend(index), Tick(NOW.strict_add_signed(sign * (minutes * MINUTE) as i64)));
        }
        let text = token.to_string();
        assert!(text.len() <= 64, "{} characters with positions {minutes} minutes off", text.len());
    }
    assert_eq!(covering(NOW, &[own]).to_string().len(), 35);
}

#[test]
fn the_largest_token_fits_a_string_of_mqtt() {
    let mut token = CheckpointToken::new(Deployment(u32::MAX), Tick(1 << 63));
    for number in 0..CheckpointToken::HOSTS_MAX as u64 {
        token.cover(host(number), 4, 12).expect("there is room");
    }
    for pubend in token.pubends().map(|(pubend, _)| pubend).collect::<Vec<_>>() {
        token.set(pubend, Tick(0));
    }
    assert_eq!(token.pubends().count(), CheckpointToken::PUBENDS_MAX);
    let text = token.to_string();
    assert!(text.len() <= CheckpointToken::TEXT_MAX, "{}", text.len());
    assert_eq!(text.parse(), Ok(token.clone()));
    // As many exceptions as may be, each as long as can be.
    let pubends: Vec<PubendId> = token.pubends().map(|(pubend, _)| pubend).collect();
    for pubend in pubends.iter().step_by(16).take(CheckpointToken::EXCEPTIONS_MAX) {
        token.set(*pubend, Tick(1 << 63 | 1));
    }
    let text = token.to_string();
    assert!(text.len() <= CheckpointToken::TEXT_MAX, "{}", text.len());
    assert_eq!(text.parse(), Ok(token.clone()));
    // And more: what is read never lies ahead.
    for (number, pubend) in (0..).zip(&pubends) {
        token.set(*pubend, Tick(u64::MAX - (number * number) % 1_000_003));
    }
    let text = token.to_string();
    assert!(text.len() <= CheckpointToken::TEXT_MAX, "{}", text.len());
    let read: CheckpointToken = text.parse().unwrap();
    assert_eq!(read.hosts().collect::<Vec<_>>(), token.hosts().collect::<Vec<_>>());
    assert!(pubends.iter().all(|pubend| read.position(*pubend) <= token.position(*pubend)));
    let exact = pubends.iter().filter(|pubend| read.position(**pubend) == token.position(**pubend)).count();
    assert!(exact >= CheckpointToken::EXCEPTIONS_MAX, "{exact} positions are as they were");
    assert_eq!(read.to_string(), text);
}

#[test]
fn a_thousand_hosts_fit_with_the_places_of_each() {
    let mut token = CheckpointToken::new(Deployment(5), Tick(NOW));
    for number in 0..1_000 {
        token.cover(host(number), 4, 4).unwrap();
        for index in 0..8 {
            token.set(host(number).pubend(index), Tick(NOW - number * MINUTE / 1_000));
        }
    }
    token.set(host(500).pubend(2), Tick(NOW - 1));
    let text = token.to_string();
    assert!(text.len() < 21_000, "{}", text.len());
    assert_eq!(text.parse(), Ok(token));
    for end in (0..text.len()).step_by(97) {
        let part = text[..end].parse::<CheckpointToken>();
        assert!(matches!(part, Err(InvalidToken::Truncated | InvalidToken::Altered)), "{part:?}");
    }
}

#[test]
fn a_full_token_covers_no_more() {
    let mut hosts = CheckpointToken::new(Deployment(1), Tick(5));
    for number in 0..CheckpointToken::HOSTS_MAX as u64 {
        hosts.cover(host(number), 1, 0).unwrap();
    }
    let mut pubends = CheckpointToken::new(Deployment(1), Tick(5));
    for number in 0..CheckpointToken::PUBENDS_MAX as u64 / 16 {
        pubends.cover(host(number), 4, 12).unwrap();
    }
    for full in [hosts, pubends] {
        let mut token = full.clone();
        assert_eq!(token.cover(host(5_000), 1, 0), Err(TokenFull));
        assert_eq!(token.advance(EventId { pubend: host(5_000).pubend(0), tick: Tick(9) }), Err(TokenFull));
        assert_eq!(token, full);
        token.cover(host(7), 1, 0).unwrap();
        token.advance(EventId { pubend: host(7).pubend(0), tick: Tick(9) }).unwrap();
        assert_eq!(token.position(host(7).pubend(0)), Some(Tick(9)));
    }
}

#[test]
fn what_a_token_does_not_cover_has_no_position() {
    let mut token = CheckpointToken::new(Deployment(1), Tick(50));
    token.cover(host(1), 2, 1).unwrap();
    let covered: Vec<_> = (0..16).filter(|&index| token.position(host(1).pubend(index)).is_some()).collect();
    assert_eq!(covered, [0, 1, 4]);
    assert_eq!(token.position(host(2).pubend(0)), None);
}

#[test]
fn a_position_at_the_common_tick_is_no_exception() {
    let mut token = covering(50, &[host(1)]);
    let text = token.to_string();
    token.set(host(1).pubend(2), Tick(40));
    assert!(token.to_string().len() > text.len());
    token.set(host(1).pubend(2), Tick(50));
    assert_eq!(token.to_string(), text);
}

#[test]
fn covering_fewer_pubends_forgets_their_exceptions() {
    let mut token = covering(50, &[host(1), host(2)]);
    for pubend in [host(1).pubend(3), host(1).pubend(0), host(2).pubend(3)] {
        token.set(pubend, Tick(40));
    }
    token.cover(host(1), 2, 0).unwrap();
    assert_eq!(token.to_string().parse(), Ok(token.clone()));
    token.cover(host(1), 4, 0).unwrap();
    let positions = [host(1).pubend(3), host(1).pubend(0), host(2).pubend(3)].map(|p| token.position(p));
    assert_eq!(positions, [Some(Tick(50)), Some(Tick(40)), Some(Tick(40))]);
}

#[test]
fn the_other_streams_of_a_host_that_is_met_first_stay_at_their_birth() {
    let mut token = covering(50, &[]);
    token.advance(EventId { pubend: host(1).pubend(2), tick: Tick(70) }).unwrap();
    token.advance(EventId { pubend: host(1).pubend(2), tick: Tick(60) }).unwrap();
    let positions: Vec<_> = (0..5).map(|index| token.position(host(1).pubend(index))).collect();
    assert_eq!(positions, [Some(Tick(0)), Some(Tick(0)), Some(Tick(70)), None, None]);
}

#[test]
#[should_panic(expected = "does not cover")]
fn setting_a_position_that_is_not_covered_is_a_bug() {
    covering(50, &[host(1)]).set(host(2).pubend(0), Tick(1));
}

#[test]
fn an_error_says_what_is_wrong() {
    let text = covering(50, &[host(1)]).to_string();
    let cases = [
        (String::new(), InvalidToken::Truncated),
        ("AQ".to_owned(), InvalidToken::Truncated),
        (text[..text.len() / 2].to_owned(), InvalidToken::Truncated),
        (format!("{text}="), InvalidToken::NotBase64(text.len())),
        (format!(" {text}"), InvalidToken::NotBase64(0)),
        (format!("Aw{}", &text[2..]), InvalidToken::UnknownVersion(3)),
        (format!("{text}AAAA"), InvalidToken::Altered),
        ("A".repeat(CheckpointToken::TEXT_MAX + 1), InvalidToken::TooLong),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<CheckpointToken>(), Err(error), "{text:.80}");
    }
}

#[test]
fn a_deployments_hash_never_changes() {
    // Of the test vectors that come with FNV.
    assert_eq!(Deployment::named(""), Deployment(0x811c_9dc5));
    assert_eq!(Deployment::named("a"), Deployment(0xe40c_292c));
    assert_eq!(Deployment::named("foobar"), Deployment(0xbf9c_f968));
    assert_eq!(Deployment(0xa).to_string(), "0000000a");
}
