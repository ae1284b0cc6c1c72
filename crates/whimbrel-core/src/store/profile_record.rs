//! The encoding of a profile that was made at a running broker: on disk, and to other brokers.
//!
//! A value is a list of fields: a tag, the length of the field, and the field, a varint. A program
//! skips fields with tags that it does not know.

use core::num::NonZeroU32;
use core::time::Duration;

use whimbrel_event::{IMPORTANCE_MAX, PubendId, Reliability, Tick, Time};
use whimbrel_net::route::{Availability, TopicPaths};
use whimbrel_selector::TopicFilter;

use super::wire::{ByteReader, MapValue, put_bytes, put_varint};
use crate::topic::{DEADLINE_MAX, Persistence, Profile, RankedProfile, TopicRate, TopicTransport};

const RANK: u8 = 1;
const PERSISTENCE: u8 = 2;
const RELIABILITY: u8 = 3;
const DEADLINE_MS: u8 = 4;
const RATE_EVENTS: u8 = 5;
const RATE_BYTES: u8 = 6;
const IMPORTANCE: u8 = 7;
const EXPIRY_MS: u8 = 8;
const PERIOD_MS: u8 = 9;
const TRANSPORT: u8 = 10;
const PATHS: u8 = 11;
const AVAILABILITY_PPM: u8 = 12;

const PERSISTENCES: [Persistence; 3] = [Persistence::Auto, Persistence::Persistent, Persistence::Volatile];
const TRANSPORTS: [TopicTransport; 2] = [TopicTransport::Stream, TopicTransport::Datagram];
const PATHS_KINDS: [TopicPaths; 3] = [TopicPaths::One, TopicPaths::Two, TopicPaths::Targeted];
const RELIABILITIES: [Reliability; 2] = [Reliability::BestEffort, Reliability::Reliable];

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Appends a profile, without its filter.
pub(crate) fn put_profile(rank: u32, profile: &Profile, out: &mut Vec<u8>) {
    let Profile {
        persistence,
        reliability,
        deadline,
        period,
        rate,
        importance,
        expiry,
        transport,
        paths,
        availability,
        filter: _,
    } = profile;
    let mut put = |tag: u8, number: Option<u64>| {
        if let Some(number) = number {
            let mut field = Vec::with_capacity(10);
            put_varint(&mut field, number);
            out.push(tag);
            put_bytes(out, &field);
        }
    };
    let (events, bytes) = match rate {
        Some(TopicRate::Events(events)) => (Some(u64::from(events.get())), None),
        Some(TopicRate::Bytes(bytes)) => (None, Some(u64::from(bytes.get()))),
        None => (None, None),
    };
    let place = PERSISTENCES.iter().position(|known| known == persistence).expect("all are listed");
    put(RANK, Some(u64::from(rank)));
    put(PERSISTENCE, Some(place as u64));
    put(RELIABILITY, reliability.map(|known| u64::from(known == Reliability::Reliable)));
    put(DEADLINE_MS, deadline.map(millis));
    put(RATE_EVENTS, events);
    put(RATE_BYTES, bytes);
    put(IMPORTANCE, importance.map(u64::from));
    put(EXPIRY_MS, expiry.map(millis));
    put(PERIOD_MS, period.map(millis));
    put(TRANSPORT, (*transport == TopicTransport::Datagram).then_some(1));
    let kind = PATHS_KINDS.iter().position(|known| known == paths).unwrap_or(0);
    put(PATHS, (kind > 0).then_some(kind as u64 + 1));
    put(AVAILABILITY_PPM, availability.map(|target| u64::from(target.ppm())));
}

/// Reads the profile of a filter; `None` if it is not valid.
pub(crate) fn read_profile(filter: &str, bytes: &[u8]) -> Option<RankedProfile> {
    TopicFilter::new(filter).ok()?;
    let mut made = RankedProfile { rank: 0, profile: Profile { filter: filter.into(), ..Profile::default() } };
    let profile = &mut made.profile;
    let mut rest = ByteReader(bytes);
    while !rest.0.is_empty() {
        let (tag, mut field) = (rest.u8()?, ByteReader(rest.bytes()?));
        if tag > AVAILABILITY_PPM {
            continue;
        }
        let number = field.varint()?;
        field.end()?;
        let small = || u32::try_from(number).ok();
        let count = || small().and_then(NonZeroU32::new);
        let of = |millis| Some(Duration::from_millis(millis)).filter(|duration| !duration.is_zero());
        match tag {
            RANK => made.rank = small()?,
            PERSISTENCE => profile.persistence = *PERSISTENCES.get(usize::try_from(number).ok()?)?,
            RELIABILITY => profile.reliability = Some(*RELIABILITIES.get(usize::try_from(number).ok()?)?),
            DEADLINE_MS => profile.deadline = Some(of(number).filter(|deadline| *deadline <= DEADLINE_MAX)?),
            RATE_EVENTS => profile.rate = Some(TopicRate::Events(count()?)),
            RATE_BYTES => profile.rate = Some(TopicRate::Bytes(count()?)),
            IMPORTANCE => {
                let importance = u8::try_from(number).ok();
                profile.importance = Some(importance.filter(|known| (1..=IMPORTANCE_MAX).contains(known))?);
            }
            EXPIRY_MS => profile.expiry = Some(of(number)?),
            PERIOD_MS => profile.period = Some(of(number)?),
            TRANSPORT => profile.transport = *TRANSPORTS.get(usize::try_from(number).ok()?)?,
            PATHS => profile.paths = *PATHS_KINDS.get(usize::try_from(number.checked_sub(1)?).ok()?)?,
            AVAILABILITY_PPM => profile.availability = Some(Availability::of_ppm(small()?)?),
            _ => return None,
        }
    }
    Some(made)
}

/// The entry of a profile in the log's map, by its filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProfileRecord<'a> {
    pub(crate) version: (Tick, PubendId),
    /// The profile, see [`put_profile`]; `None`: it was removed.
    pub(crate) value: Option<&'a [u8]>,
    /// When a removed one is forgotten.
    pub(crate) until: Time,
}

impl<'a> MapValue<'a> for ProfileRecord<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.version.0.0);
        put_varint(out, self.version.1.0);
        put_varint(out, self.until.as_nanos());
        out.push(u8::from(self.value.is_some()));
        put_bytes(out, self.value.unwrap_or_default());
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        let version = (Tick(bytes.varint()?), PubendId(bytes.varint()?));
        let until = Time::from_nanos(bytes.varint()?);
        let (is_some, value) = (bytes.u8()? == 1, bytes.bytes()?);
        Some(ProfileRecord { version, value: is_some.then_some(value), until })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_profile()(
            rank: u32, persistence in 0_usize..3, reliability in proptest::option::of(0_usize..2),
            deadline in proptest::option::of(1_u64..=3_600_000), rate in proptest::option::of((any::<bool>(), 1_u32..)),
            importance in proptest::option::of(1_u8..=10), expiry in proptest::option::of(1_u64..1 << 40),
            period in proptest::option::of(1_u64..1 << 40), transport in 0_usize..2, paths in 0_usize..3, ppm in proptest::option::of(Availability::RANGE_PPM),
        ) -> RankedProfile {
            let rate = rate.map(|(of_events, count)| {
                let count = NonZeroU32::new(count).expect("not zero");
                if of_events { TopicRate::Events(count) } else { TopicRate::Bytes(count) }
            });
            RankedProfile { rank, profile: Profile {
                filter: "a/+/#".into(), persistence: PERSISTENCES[persistence],
                reliability: reliability.map(|known| RELIABILITIES[known]),
                deadline: deadline.map(Duration::from_millis), rate, importance, expiry: expiry.map(Duration::from_millis),
                period: period.map(Duration::from_millis), transport: TRANSPORTS[transport],
                paths: PATHS_KINDS[paths], availability: ppm.and_then(Availability::of_ppm),
            } }
        }
    }

    proptest! {
        #[test]
        fn a_profile_comes_back_also_with_fields_of_a_later_version(made in any_profile(), later: Vec<u8>) {
            let mut bytes = Vec::new();
            put_profile(made.rank, &made.profile, &mut bytes);
            bytes.push(200);
            put_bytes(&mut bytes, &later);
            prop_assert_eq!(read_profile("a/+/#", &bytes), Some(made));
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
            let _ = (read_profile("a", &bytes), ProfileRecord::read_versioned(&bytes));
        }

        #[test]
        fn a_record_comes_back(tick: u64, pubend: u64, until: u64, value in proptest::option::of(any::<Vec<u8>>())) {
            let (version, until) = ((Tick(tick), PubendId(pubend)), Time::from_nanos(until));
            let record = ProfileRecord { version, value: value.as_deref(), until };
            let mut bytes = Vec::new();
            record.put_versioned(&mut bytes);
            prop_assert_eq!(ProfileRecord::read_versioned(&bytes), Some(record));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let field = |tag: u8, number: u8| read_profile("a", &[tag, 1, number]);
        for (tag, number) in [
            (PERSISTENCE, 3),
            (RELIABILITY, 2),
            (DEADLINE_MS, 0),
            (RATE_EVENTS, 0),
            (IMPORTANCE, 11),
            (PERIOD_MS, 0),
            (TRANSPORT, 2),
            (PATHS, 0),
            (PATHS, 4),
            (AVAILABILITY_PPM, 9),
        ] {
            assert_eq!(field(tag, number), None, "{tag}");
        }
        assert_eq!((read_profile("a/#/b", &[]), read_profile("a", &[IMPORTANCE, 2, 5, 5])), (None, None));
        assert!(read_profile("a", &[]).is_some());
    }
}
