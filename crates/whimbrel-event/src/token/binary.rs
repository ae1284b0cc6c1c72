//! Checkpoint tokens as bytes.
//!
//! | field | bytes |
//! |---|---|
//! | version of this layout: 1 | 1 |
//! | check of all that follows | 1 |
//! | deployment | 4 |
//! | version of the registry of streams; 0: the hosts are listed | varint |
//! | common tick | 8 |
//! | number of hosts | varint |
//! | each host, in ascending order: its number, | 8 |
//! | its pubends from index 0 on (upper half) and from index 4 on (lower half) | 1 |
//! | number of exceptions | varint |
//! | each exception, in ascending order: place of the host in the list * 16 + index, | varint |
//! | common tick - position, modulo 2^64, as a signed number in zigzag | varint |
//!
//! Numbers of fixed length are big-endian; a varint has seven bits per byte, least significant
//! first, and no byte more than it needs. So there is one way to write a token.
//!
//! With more hosts or streams than [`FEW_HOSTS`] and [`FEW_PUBENDS`], layout 2 is shorter where
//! most streams of a host have one position, as they do when the host has told all of them at once.
//! Each host then has one more field, and the exceptions are relative to that:
//!
//! | field | bytes |
//! |---|---|
//! | common tick - place of the host, as above: where most of its pubends stand, of several such that of the first | varint |
//!
//! There are at most [`EXCEPTIONS_MAX`] of those. If there were more, hosts are written as if all
//! of their streams were at the least of their positions, first the hosts whose positions lie
//! closest together: events between may be repeated.

use super::{CheckpointToken, Covered, Deployment, InvalidToken};
use crate::{HOST_PUBENDS_MAX, HostId, PubendId, Tick};

/// The layout of tokens with few hosts.
pub(super) const VERSION: u8 = 1;

/// The layout of tokens with many hosts or streams.
pub(super) const MANY: u8 = 2;

/// Bounds of the first layout: with as many exceptions the text is still short enough.
const FEW_HOSTS: usize = 1_024;
const FEW_PUBENDS: usize = 3_072;

/// Most exceptions in the second layout: streams with another position than most of their host's.
pub(super) const EXCEPTIONS_MAX: usize = 1_500;

/// Where the part begins that the check byte covers.
const CHECKED: usize = 2;

pub(super) fn encode(token: &CheckpointToken) -> Vec<u8> {
    if token.hosts.len() > FEW_HOSTS || token.pubends > FEW_PUBENDS { encode_many(token) } else { encode_few(token) }
}

/// The positions of the streams of one host.
struct Place {
    host: HostId,
    covered: Covered,
    most: Tick,
    others: Vec<(PubendId, Tick)>,
    /// The least position, and its distance from the greatest.
    least: Tick,
    apart: u64,
}

impl Place {
    fn of(token: &CheckpointToken, host: HostId, covered: Covered) -> Place {
        let position = |pubend: PubendId| token.exceptions.get(&pubend).copied().unwrap_or(token.common);
        let all: Vec<(PubendId, Tick)> =
            covered.indices().map(|index| (host.pubend(index), position(host.pubend(index)))).collect();
        let times = |tick: Tick| all.iter().filter(|(_, other)| *other == tick).count();
        // Of several that occur equally often the first one counts.
        let most = all.iter().rev().map(|(_, tick)| *tick).max_by_key(|tick| times(*tick)).unwrap_or(token.common);
        let ticks = || all.iter().map(|(_, tick)| tick.0);
        let (least, greatest) = (ticks().min().unwrap_or(0), ticks().max().unwrap_or(0));
        let others = all.iter().filter(|(_, tick)| *tick != most).copied().collect();
        Place { host, covered, most, others, least: Tick(least), apart: greatest - least }
    }
}

fn encode_many(token: &CheckpointToken) -> Vec<u8> {
    let mut places: Vec<Place> = token.hosts.iter().map(|(host, covered)| Place::of(token, *host, *covered)).collect();
    let mut exceptions: usize = places.iter().map(|place| place.others.len()).sum();
    if exceptions > EXCEPTIONS_MAX {
        places.sort_by_key(|place| (place.apart, place.host));
        for place in places.iter_mut().filter(|place| !place.others.is_empty()) {
            exceptions -= place.others.len();
            (place.most, place.others) = (place.least, Vec::new());
            if exceptions <= EXCEPTIONS_MAX {
                break;
            }
        }
        places.sort_by_key(|place| place.host);
    }
    let mut bytes = head(MANY, token);
    for place in &places {
        bytes.extend(place.host.as_u64().to_be_bytes());
        bytes.push(place.covered.reliable << 4 | place.covered.further);
        put_varint(&mut bytes, zigzag(token.common.0.wrapping_sub(place.most.0) as i64));
    }
    put_varint(&mut bytes, exceptions as u64);
    for (number, place) in (0..).zip(&places) {
        for (pubend, tick) in &place.others {
            put_varint(&mut bytes, number * u64::from(HOST_PUBENDS_MAX) + u64::from(pubend.index()));
            put_varint(&mut bytes, zigzag(place.most.0.wrapping_sub(tick.0) as i64));
        }
    }
    bytes[1] = check(&bytes[CHECKED..]);
    bytes
}

/// The fields with which both layouts begin.
fn head(version: u8, token: &CheckpointToken) -> Vec<u8> {
    let mut bytes = vec![version, 0];
    bytes.extend(token.deployment.0.to_be_bytes());
    put_varint(&mut bytes, 0);
    bytes.extend(token.common.0.to_be_bytes());
    put_varint(&mut bytes, token.hosts.len() as u64);
    bytes
}

fn encode_few(token: &CheckpointToken) -> Vec<u8> {
    let mut bytes = head(VERSION, token);
    for (host, covered) in &token.hosts {
        bytes.extend(host.as_u64().to_be_bytes());
        bytes.push(covered.reliable << 4 | covered.further);
    }
    put_varint(&mut bytes, token.exceptions.len() as u64);
    let mut hosts = token.hosts.keys().enumerate().peekable();
    for (pubend, tick) in &token.exceptions {
        while hosts.next_if(|(_, host)| **host < pubend.host()).is_some() {}
        let (place, _) = hosts.peek().expect("exceptions are of covered pubends");
        put_varint(&mut bytes, *place as u64 * u64::from(HOST_PUBENDS_MAX) + u64::from(pubend.index()));
        put_varint(&mut bytes, zigzag(token.common.0.wrapping_sub(tick.0) as i64));
    }
    bytes[1] = check(&bytes[CHECKED..]);
    bytes
}

/// Reads a token. For a damaged text the error is the likelier one: too short for what it
/// announces, or altered.
pub(super) fn decode(bytes: &[u8]) -> Result<CheckpointToken, InvalidToken> {
    match bytes {
        [] | [VERSION | MANY] => Err(InvalidToken::Truncated),
        [version @ (VERSION | MANY), check_byte, checked @ ..] => {
            match read(&mut Reader(checked), *version == MANY) {
                Err(InvalidToken::Truncated) => Err(InvalidToken::Truncated),
                _ if *check_byte != check(checked) => Err(InvalidToken::Altered),
                // The position that most streams of a host have, and the layout of a token, follow
                // from its positions.
                Ok(token) if *version == MANY && encode(&token) != bytes => Err(InvalidToken::Malformed),
                token => token,
            }
        }
        [version, ..] => Err(InvalidToken::UnknownVersion(*version)),
    }
}

fn read(input: &mut Reader<'_>, is_many: bool) -> Result<CheckpointToken, InvalidToken> {
    let deployment = Deployment(u32::from_be_bytes(input.array()?));
    if input.varint()? != 0 {
        return Err(InvalidToken::UnknownRegistry);
    }
    let mut token = CheckpointToken::new(deployment, Tick(input.u64()?));
    let count = input.varint()?;
    // The list is in ascending order and each entry took nine bytes: it is as long as the token's
    // own, and no longer than the input.
    let mut hosts: Vec<(HostId, Tick)> = Vec::new();
    for _ in 0..count {
        let (host, covered) = read_host(input, &mut token)?;
        let mut place = token.common;
        if is_many {
            place = Tick(token.common.0.wrapping_sub(unzigzag(input.varint()?) as u64));
            covered.indices().for_each(|index| token.set(host.pubend(index), place));
        }
        hosts.push((host, place));
    }
    let exceptions = input.varint()?;
    let mut last = None;
    for _ in 0..exceptions {
        last = Some(read_exception(input, &hosts, (&mut token, last))?);
    }
    if input.0.is_empty() { Ok(token) } else { Err(InvalidToken::Malformed) }
}

fn read_host(input: &mut Reader<'_>, token: &mut CheckpointToken) -> Result<(HostId, Covered), InvalidToken> {
    let number = input.u64()?;
    let [counts] = input.array()?;
    let host = HostId::new(number);
    let covered = Covered { reliable: counts >> 4, further: counts & 15 };
    let ascending = token.hosts.last_key_value().is_none_or(|(last, _)| *last < host);
    if host.as_u64() != number || !covered.is_possible() || !ascending {
        return Err(InvalidToken::Malformed);
    }
    token.put(host, covered).map_err(|_| InvalidToken::Malformed)?;
    Ok((host, covered))
}

/// Reads one exception, which has to be behind `last`; returns its pubend.
fn read_exception(
    input: &mut Reader<'_>,
    hosts: &[(HostId, Tick)],
    (token, last): (&mut CheckpointToken, Option<PubendId>),
) -> Result<PubendId, InvalidToken> {
    let pubends = u64::from(HOST_PUBENDS_MAX);
    let place = input.varint()?;
    let difference = input.varint()?;
    let known = usize::try_from(place / pubends).ok().and_then(|at| hosts.get(at));
    let (host, from) = known.ok_or(InvalidToken::Malformed)?;
    let pubend = host.pubend((place % pubends) as u8);
    let ascending = last.is_none_or(|last| last < pubend);
    if difference == 0 || !token.covers(pubend) || !ascending {
        return Err(InvalidToken::Malformed);
    }
    token.set(pubend, Tick(from.0.wrapping_sub(unzigzag(difference) as u64)));
    Ok(pubend)
}

/// The rest of the input.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], InvalidToken> {
        let (first, rest) = self.0.split_first_chunk().ok_or(InvalidToken::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u64(&mut self) -> Result<u64, InvalidToken> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<u64, InvalidToken> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            let superfluous = byte == 0 && shift > 0;
            if superfluous || bits << shift >> shift != bits {
                return Err(InvalidToken::Malformed);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(InvalidToken::Malformed)
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Maps small numbers of either sign to small unsigned ones: 0, -1, 1, -2, ... become 0, 1, 2, 3,
/// ...
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// A cyclic redundancy check of 8 bits (polynomial x^8 + x^2 + x + 1), taken from the last bit to
/// the first, so that the check byte, which is before the checked bytes, is at the end of a code
/// word. Then all damage within 8 neighbouring bits is detected, and so is any of a single
/// character of the text. It starts with ones so that zeros at the end count.
fn check(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .rev()
        .fold(0xff, |sum, byte| (0..8).fold(sum ^ byte, |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xe0 } else { sum >> 1 }))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn sealed(checked: &[u8]) -> Vec<u8> {
        [&[VERSION, check(checked)], checked].concat()
    }

    /// A token of one host with two pubends and one exception, up to its exceptions.
    const HEAD: [u8; 23] = [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 100, 1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x11];

    #[test]
    fn the_layout_is_what_the_table_says() {
        let token = decode(&sealed(&[&HEAD[..], &[1, 4, 20]].concat())).unwrap();
        let mut expected = CheckpointToken::new(Deployment(7), Tick(100));
        expected.cover(HostId::new(0x10), 1, 1).unwrap();
        expected.set(HostId::new(0x10).pubend(4), Tick(90));
        assert_eq!(token, expected);
    }

    #[test]
    fn only_the_one_way_to_write_a_token_is_read() {
        let malformed: [(&str, &[u8]); 8] = [
            ("a superfluous byte in a number", &[0x80, 0]),
            ("a number beyond 64 bits", &[1, 4, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]),
            ("an exception that is none", &[1, 4, 0]),
            ("an exception twice", &[2, 4, 20, 4, 20]),
            ("exceptions out of order", &[2, 4, 20, 0, 20]),
            ("a pubend that is not covered", &[1, 5, 20]),
            ("a host that is not listed", &[1, 16, 20]),
            ("something at the end", &[0, 0]),
        ];
        for (what, tail) in malformed {
            assert_eq!(decode(&sealed(&[&HEAD[..], tail].concat())), Err(InvalidToken::Malformed), "{what}");
        }
        for (what, place, byte) in
            [("a pubend as a host", 21, 0x11), ("no pubend", 22, 0), ("five reliable", 22, 0x50), ("13", 22, 0x0d)]
        {
            let mut head = HEAD;
            head[place] = byte;
            assert_eq!(decode(&sealed(&[&head[..], &[0]].concat())), Err(InvalidToken::Malformed), "{what}");
        }
        let twice = [&HEAD[..13], &[2], &HEAD[14..], &HEAD[14..], &[0]].concat();
        assert_eq!(decode(&sealed(&twice)), Err(InvalidToken::Malformed), "a host twice");
    }

    #[test]
    fn a_registry_is_not_known_yet() {
        let mut head = HEAD;
        head[4] = 1;
        assert_eq!(decode(&sealed(&[&head[..], &[0]].concat())), Err(InvalidToken::UnknownRegistry));
    }

    #[test]
    fn announcing_much_costs_nothing() {
        let many = [&HEAD[..13], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]].concat();
        assert_eq!(decode(&sealed(&many)), Err(InvalidToken::Truncated));
        let many = [&HEAD[..], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]].concat();
        assert_eq!(decode(&sealed(&many)), Err(InvalidToken::Truncated));
    }

    #[test]
    fn numbers_of_either_sign_survive_zigzag() {
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_read_is_written_the_same(
            tail in vec(prop_oneof![0..6u8, any::<u8>()], 0..12), counts in any::<u8>(), noise in vec(any::<u8>(), 0..60),
        ) {
            let mut head = HEAD;
            head[22] = counts;
            for checked in [[&head[..], &tail].concat(), noise] {
                let bytes = sealed(&checked);
                if let Ok(token) = decode(&bytes) {
                    prop_assert_eq!(encode(&token), bytes);
                }
            }
        }
    }
}
