//! The entries of the log's map: one for each thing that has to survive a restart.
//!
//! A key begins with a letter for its kind, a value with the version of its form. All versions that
//! were ever written can be read. A letter or version that is not known here was written by a newer
//! broker, and is refused.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{HostId, Tick, Time};

use super::wire::{ByteReader, MapValue, duration, put_bytes, put_duration, put_varint};

/// The number of a persistent session. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct SessionNo(pub(crate) u64);

/// The number of a durable subscription. Never used twice. The last 2^16 are brokers' numbers, see
/// [`super::numbers::HoldNo`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct DurableNo(pub(crate) u32);

/// The number of a position base, from 1 on; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct BaseNo(pub(crate) u64);

/// The key of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Key<'a> {
    /// The broker itself; [`Own`].
    Own,
    /// A persistent session, by client id; [`SessionRecord`].
    Session(&'a str),
    /// A subscription of a persistent session, by its text;
    /// [`crate::subscription::SubscriptionRecord`].
    Subscription(SessionNo, &'a str),
    /// The position of a durable subscription; [`super::position_head::PositionHead`].
    Position(DurableNo),
    /// Its position in another broker's streams, where that differs from the base;
    /// [`super::written::PositionPart`].
    Part(DurableNo, HostId),
    /// Where all other brokers' streams stood at a moment; [`super::position::PositionBase`].
    PositionBase(BaseNo),
    /// A delivery with its tag, at [`ExactlyOnce`](whimbrel_event::Qos::ExactlyOnce);
    /// [`super::Flight`].
    InFlight(SessionNo, u16),
    /// A publish that its client has not released; the value is empty.
    Unreleased(SessionNo, u16),
    /// The will of a connection; [`LastWill`].
    Will(SessionNo),
    /// A topic's retained message: the event, packed.
    Retained(&'a str),
    /// The last number that a publisher gave to an event, by client id; [`super::Numbered`].
    Number(&'a str),
    /// Up to where a stream was given up before it was acknowledged, by its index; a [`Tick`].
    Early(u8),
    /// After which ticks logged events have filter records; [`super::OwnTicks`].
    Filtered,
    /// The attachment of its client that a session is for, and whether it was given away;
    /// [`super::AttachmentRecord`].
    Placed(SessionNo),
    /// Up to where filter records do not name an imported durable subscription;
    /// [`super::OwnTicks`].
    Unnamed(DurableNo),
    /// Another broker that is or was known; [`super::KnownBrokerRecord`].
    Known(HostId),
    /// Parts of a stream that are lost since the broker was restored from a copy, by its index;
    /// [`super::copied::LostParts`].
    Lost(u8),
    /// One entry of another broker's durable interest, by its number;
    /// [`super::HeldInterestRecord`].
    HeldInterest(HostId, u32),
    /// The retention hold of another broker; [`super::HoldRecord`].
    Hold(HostId),
    /// A host that has ended; [`super::EndedHostRecord`].
    Ended(HostId),
    /// A profile of topics that was made at a running broker, by its filter;
    /// [`super::ProfileRecord`].
    Profile(&'a str),
}

impl<'a> Key<'a> {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Key::Own => out.push(b'h'),
            Key::Session(client_id) => text(out, b's', client_id),
            Key::Subscription(session, filter) => {
                out.push(b'd');
                out.extend_from_slice(&session.0.to_le_bytes());
                out.extend_from_slice(filter.as_bytes());
            }
            Key::Position(durable) => {
                out.push(b'p');
                out.extend_from_slice(&durable.0.to_le_bytes());
            }
            Key::Part(durable, host) => {
                out.push(b'q');
                out.extend_from_slice(&durable.0.to_le_bytes());
                out.extend_from_slice(&host.as_u64().to_le_bytes());
            }
            Key::PositionBase(number) => {
                out.push(b'c');
                out.extend_from_slice(&number.0.to_le_bytes());
            }
            Key::InFlight(session, tag) => tagged(out, b'i', *session, *tag),
            Key::Unreleased(session, tag) => tagged(out, b'u', *session, *tag),
            Key::Will(session) => {
                out.push(b'w');
                out.extend_from_slice(&session.0.to_le_bytes());
            }
            Key::Placed(session) => {
                out.push(b'a');
                out.extend_from_slice(&session.0.to_le_bytes());
            }
            Key::Unnamed(durable) => {
                out.push(b'y');
                out.extend_from_slice(&durable.0.to_le_bytes());
            }
            Key::Known(host) => {
                out.push(b'b');
                out.extend_from_slice(&host.as_u64().to_le_bytes());
            }
            Key::Retained(topic) => text(out, b'r', topic),
            Key::Number(client_id) => text(out, b'n', client_id),
            Key::Filtered => out.push(b'f'),
            Key::Early(pubend) => out.extend_from_slice(&[b'e', *pubend]),
            Key::Lost(pubend) => out.extend_from_slice(&[b'l', *pubend]),
            Key::HeldInterest(host, number) => {
                of_host(out, b'o', *host);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Key::Hold(host) => of_host(out, b'k', *host),
            Key::Ended(host) => of_host(out, b'x', *host),
            Key::Profile(filter) => text(out, b't', filter),
        }
    }

    /// Reads a key; `None` if its kind or form is not known here.
    pub(crate) fn read(key: &'a [u8]) -> Option<Self> {
        let mut bytes = ByteReader(key);
        let read = match bytes.u8()? {
            b'h' => Key::Own,
            b's' => Key::Session(bytes.rest()?),
            b'd' => Key::Subscription(SessionNo(bytes.u64()?), bytes.rest()?),
            b'p' => Key::Position(DurableNo(bytes.u32()?)),
            b'q' => Key::Part(DurableNo(bytes.u32()?), HostId::new(bytes.u64()?)),
            b'c' => Key::PositionBase(BaseNo(bytes.u64()?)),
            b'i' => Key::InFlight(SessionNo(bytes.u64()?), bytes.u16()?),
            b'u' => Key::Unreleased(SessionNo(bytes.u64()?), bytes.u16()?),
            b'w' => Key::Will(SessionNo(bytes.u64()?)),
            b'a' => Key::Placed(SessionNo(bytes.u64()?)),
            b'y' => Key::Unnamed(DurableNo(bytes.u32()?)),
            b'b' => Key::Known(HostId::new(bytes.u64()?)),
            b'r' => Key::Retained(bytes.rest()?),
            b'n' => Key::Number(bytes.rest()?),
            b'e' => Key::Early(bytes.u8()?),
            b'f' => Key::Filtered,
            b'l' => Key::Lost(bytes.u8()?),
            b'o' => Key::HeldInterest(HostId::new(bytes.u64()?), bytes.u32()?),
            b'k' => Key::Hold(HostId::new(bytes.u64()?)),
            b'x' => Key::Ended(HostId::new(bytes.u64()?)),
            b't' => Key::Profile(bytes.rest()?),
            _ => return None,
        };
        bytes.end()?;
        Some(read)
    }
}

fn text(out: &mut Vec<u8>, letter: u8, text: &str) {
    out.push(letter);
    out.extend_from_slice(text.as_bytes());
}

fn of_host(out: &mut Vec<u8>, letter: u8, host: HostId) {
    out.push(letter);
    out.extend_from_slice(&host.as_u64().to_le_bytes());
}

fn tagged(out: &mut Vec<u8>, letter: u8, session: SessionNo, tag: u16) {
    out.push(letter);
    out.extend_from_slice(&session.0.to_le_bytes());
    out.extend_from_slice(&tag.to_le_bytes());
}

/// The broker's own record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Own {
    pub(crate) host: HostId,
    /// The tick after which its streams began.
    pub(crate) birth: Tick,
    /// Greater than the number of any session so far.
    pub(crate) next_session: SessionNo,
    /// Greater than the number of any durable subscription so far.
    pub(crate) next_durable: DurableNo,
}

impl MapValue<'_> for Own {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.host.as_u64());
        put_varint(out, self.birth.0);
        put_varint(out, self.next_session.0);
        put_varint(out, self.next_durable.0.into());
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let (host, birth) = (HostId::new(bytes.varint()?), Tick(bytes.varint()?));
        let (next_session, next_durable) = (SessionNo(bytes.varint()?), DurableNo(bytes.small()?));
        Some(Own { host, birth, next_session, next_durable })
    }
}

/// A persistent session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) number: SessionNo,
    /// For how long it outlives its connection.
    pub(crate) expiry: Duration,
    /// When its client left; `None`: it is connected.
    pub(crate) left: Option<Time>,
    /// The last tag used by then: its client may still use earlier ones, also those of another
    /// broker.
    pub(crate) last_tag: u16,
    /// The number of tags, from the next one on, that its client may use for unknown deliveries.
    pub(crate) stale_ids: u16,
    /// The principal that it belongs to, if known.
    pub(crate) principal: Option<Arc<str>>,
}

impl MapValue<'_> for SessionRecord {
    const VERSION: u8 = 4;

    // Without a principal in the version before: 0.1.0 reads that, too.
    fn put_versioned(&self, out: &mut Vec<u8>) {
        out.push(if self.principal.is_some() { Self::VERSION } else { 3 });
        self.put(out);
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number.0);
        put_duration(out, self.expiry);
        put_varint(out, self.left.map_or(0, Time::as_nanos));
        out.extend_from_slice(&self.last_tag.to_le_bytes());
        out.extend_from_slice(&self.stale_ids.to_le_bytes());
        if let Some(principal) = &self.principal {
            put_bytes(out, principal.as_bytes());
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        let kept = Self::read_older(3, bytes)?;
        Some(SessionRecord { principal: Some(Arc::from(bytes.text()?)), ..kept })
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        (1..=3).contains(&version).then_some(())?;
        let (number, expiry) = (SessionNo(bytes.varint()?), duration(bytes)?);
        let left = Some(bytes.varint()?).filter(|left| *left > 0).map(Time::from_nanos);
        let last_tag = if version >= 2 { bytes.u16()? } else { 0 };
        let stale_ids = if version >= 3 { bytes.u16()? } else { 0 };
        Some(SessionRecord { number, expiry, left, last_tag, stale_ids, principal: None })
    }
}

/// The will: published when a connection ends without DISCONNECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastWill<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) delay: Duration,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) retain: bool,
    /// The event, packed.
    pub(crate) event: &'a [u8],
}

impl<'a> MapValue<'a> for LastWill<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.client_id.as_bytes());
        put_duration(out, self.delay);
        out.push(u8::from(self.retain) | u8::from(self.lifetime.is_some()) << 1);
        put_duration(out, self.lifetime.unwrap_or_default());
        put_bytes(out, self.event);
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        let (client_id, delay, flags) = (bytes.text()?, duration(bytes)?, bytes.u8()?);
        let lifetime = Some(duration(bytes)?).filter(|_| flags & 2 != 0);
        Some(LastWill { client_id, delay, lifetime, retain: flags & 1 != 0, event: bytes.bytes()? })
    }
}

/// A single tick.
impl MapValue<'_> for Tick {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0);
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        bytes.varint().map(Tick)
    }
}

/// Raw bytes.
impl<'a> MapValue<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn read(bytes: &mut ByteReader<'a>) -> Option<Self> {
        bytes.take(bytes.0.len())
    }
}

pub(crate) fn put_selector(out: &mut Vec<u8>, selector: Option<&str>) {
    out.push(u8::from(selector.is_some()));
    put_bytes(out, selector.unwrap_or_default().as_bytes());
}

pub(crate) fn selector_of<'a>(bytes: &mut ByteReader<'a>) -> Option<Option<&'a str>> {
    let is_some = match bytes.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let text = bytes.text()?;
    Some(is_some.then_some(text))
}

#[cfg(test)]
mod tests {
    use super::super::own_ticks::{OWN, OwnTicks};
    use super::*;
    use crate::store::{AttachmentRecord, Numbered};
    use proptest::prelude::*;

    fn again<'a, V: MapValue<'a>>(value: &V, out: &'a mut Vec<u8>) -> Option<V> {
        value.put_versioned(out);
        V::read_versioned(out)
    }

    prop_compose! {
        fn any_ticks()(ticks in any::<[u64; OWN]>()) -> OwnTicks { ticks.map(Tick) }
    }

    proptest! {
        #[test]
        fn keys_come_back_and_differ(text in "[a-z/+#é]{0,20}", session: u32, tag: u16, pubend: u8, host: u64) {
            let durable = DurableNo(session);
            let session = SessionNo(session.into());
            let all = [
                Key::Own, Key::Session(&text), Key::Subscription(session, &text), Key::Position(durable),
                Key::InFlight(session, tag), Key::Unreleased(session, tag), Key::Will(session), Key::Retained(&text),
                Key::Number(&text), Key::Early(pubend), Key::Lost(pubend), Key::Placed(session), Key::Unnamed(durable),
                Key::Known(HostId::new(u64::from(pubend) << 8)), Key::Part(durable, HostId::new(host)), Key::PositionBase(BaseNo(host)),
                Key::HeldInterest(HostId::new(host), durable.0), Key::Hold(HostId::new(host)), Key::Ended(HostId::new(host)),
                Key::Profile(&text),
            ];
            let mut seen = std::collections::BTreeSet::new();
            for key in all {
                let mut out = Vec::new();
                key.put(&mut out);
                prop_assert_eq!(Key::read(&out), Some(key));
                prop_assert!(seen.insert(out), "two keys with the same bytes");
            }
        }

        #[test]
        fn values_come_back(
            start in any_ticks(),
            selector in proptest::option::of("[a-z =]{0,30}"), flags in any::<[bool; 4]>(), identifier: u32,
            far: u32, left: u64, millis in 0..u64::MAX, payload: Vec<u8>,
        ) {
            let selector = selector.as_deref();
            let mut second = Vec::new();
            let own = Own {
                host: HostId::new(left), birth: start[0], next_session: SessionNo(far.into()), next_durable: DurableNo(identifier),
            };
            prop_assert_eq!(again(&own, &mut Vec::new()), Some(own));
            let expiry = if flags[0] { Duration::MAX } else { Duration::from_millis(millis) };
            let left = Some(Time::from_nanos(left)).filter(|left| *left > Time::ZERO);
            let kept = SessionRecord { number: SessionNo(far.into()), expiry, left, last_tag: far as u16, stale_ids: far as u16, principal: flags[0].then(|| Arc::from("bus-7")) };
            prop_assert_eq!(again(&kept, &mut Vec::new()), Some(kept));
            let client_id = selector.unwrap_or_default();
            let lifetime = flags[1].then_some(expiry);
            let will = LastWill { client_id, delay: expiry, lifetime, retain: flags[2], event: &payload };
            prop_assert_eq!(again(&will, &mut second), Some(will));
            let given = flags[0].then_some((HostId::new(left.map_or(0, Time::as_nanos)), millis));
            let after = start.iter().map(|tick| whimbrel_event::EventId { pubend: whimbrel_event::PubendId(tick.0), tick: *tick }).collect();
            let placed = AttachmentRecord { epoch: millis, connected_at: far.into(), given, maybe_repeats: flags[1], after, awaits_resumption: flags[2] };
            prop_assert_eq!(again(&placed, &mut Vec::new()), Some(placed));
            let numbered = Numbered { last: millis, hour: far, epoch: millis, maybe_repeats: flags[2] };
            prop_assert_eq!(again(&numbered, &mut Vec::new()), Some(numbered));
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
            let _ = Key::read(&bytes);
            let _ = (AttachmentRecord::read_versioned(&bytes), Own::read_versioned(&bytes), SessionRecord::read_versioned(&bytes));
            let _ = (LastWill::read_versioned(&bytes), Numbered::read_versioned(&bytes), Tick::read_versioned(&bytes));
        }
    }

    #[test]
    fn the_first_version_of_each_value_can_be_read() {
        let own = Own::read_versioned(&[1, 0x80, 1, 9, 2, 3]).unwrap();
        assert_eq!((own.host, own.birth, own.next_durable), (HostId::new(128), Tick(9), DurableNo(3)));
        let kept = SessionRecord::read_versioned(&[1, 4, 0xe8, 7, 0]).unwrap();
        assert_eq!(
            kept,
            SessionRecord {
                number: SessionNo(4),
                expiry: Duration::from_secs(1),
                left: None,
                last_tag: 0,
                stale_ids: 0,
                principal: None
            }
        );
        let third = SessionRecord::read_versioned(&[3, 4, 0xe8, 7, 0, 9, 0, 2, 0]).unwrap();
        assert_eq!(third, SessionRecord { last_tag: 9, stale_ids: 2, ..kept });
        let after = whimbrel_event::PredecessorsBuf::new();
        let placed = AttachmentRecord {
            epoch: 5,
            connected_at: 6,
            given: Some((HostId::new(128), 7)),
            maybe_repeats: true,
            after,
            awaits_resumption: false,
        };
        assert_eq!(AttachmentRecord::read_versioned(&[1, 5, 6, 1, 0x80, 1, 7]).as_ref(), Some(&placed));
        let second = AttachmentRecord::read_versioned(&[2, 5, 6, 1, 0x80, 1, 7, 0]);
        assert_eq!(second, Some(AttachmentRecord { maybe_repeats: false, ..placed }));
        let numbered = Numbered { last: 5, hour: 6, epoch: 0, maybe_repeats: true };
        assert_eq!(Numbered::read_versioned(&[1, 5, 6]), Some(numbered));
        assert_eq!(Numbered::read_versioned(&[2, 5, 6, 7]), Some(Numbered { epoch: 7, ..numbered }));
        assert_eq!(Numbered::read_versioned(&[4, 5, 6, 7, 0]), None, "a version that is not known");
    }
}
