//! The position of a durable subscription; and its deliveries in flight, as they are written.
//! Version 1 of these knew of own streams only, and can be read.

use std::borrow::Cow;

use whimbrel_event::{EventId, HostId, PubendId, Tick};

use super::keys::DurableNo;
use super::own_ticks::{OwnTicks, is_reliable_index};
use super::wire::{ByteReader, MapValue, put_varint};
use crate::cursor::{NOTHING, RemoteLogs};

/// The position of a durable subscription.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DurablePosition {
    /// Up to where everything in the own streams is acknowledged.
    pub(crate) acked: OwnTicks,
    /// Acknowledged events beyond that: index of the pubend and tick, ascending.
    pub(crate) beyond: Vec<(u8, Tick)>,
    /// Positions in other brokers' reliable streams whose log counts for the subscription;
    /// ascending by pubend.
    pub(crate) remote: Vec<RemotePosition>,
    /// Acknowledged events beyond these, ascending.
    pub(crate) remote_beyond: Vec<EventId>,
}

/// The position of a durable subscription in a stream of another broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RemotePosition {
    pub(crate) pubend: PubendId,
    /// Matching events after this tick were logged there.
    pub(crate) since: Tick,
    /// Up to where everything is acknowledged, or gaps were told.
    pub(crate) acked: Tick,
}

impl DurablePosition {
    /// All events acknowledged beyond the position; `host` has the own streams.
    pub(crate) fn all_beyond(&self, host: HostId) -> Vec<EventId> {
        let own = self.beyond.iter().map(|(own, tick)| EventId { pubend: host.pubend(*own), tick: *tick });
        own.chain(self.remote_beyond.iter().copied()).collect()
    }

    /// Up to where everything of another broker's stream is acknowledged, if its log counts for the
    /// subscription.
    pub(crate) fn remote(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.remote.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        Some(self.remote[at].acked)
    }

    /// The position without streams of which it is unknown since when the log counts: after a
    /// restart a gap is told for those.
    pub(super) fn counted(&self, remote: &RemoteLogs) -> Cow<'_, DurablePosition> {
        if remote.unsure.is_empty() {
            return Cow::Borrowed(self);
        }
        let from = |stood: &RemotePosition| RemotePosition {
            since: stood.since.max(remote.unsure.get(stood.pubend)),
            ..*stood
        };
        let known = self.remote.iter().map(from).filter(|stood| stood.since != NOTHING);
        Cow::Owned(DurablePosition { remote: known.collect(), ..self.clone() })
    }

    /// Moves the position in another broker's stream back to `tick`, if it has one beyond.
    pub(crate) fn step_back(&mut self, pubend: PubendId, tick: Tick) {
        if let Ok(at) = self.remote.binary_search_by_key(&pubend, |remote| remote.pubend) {
            let acked = &mut self.remote[at].acked;
            *acked = tick.min(*acked);
        }
    }
}

/// Reads the positions and events beyond in other brokers' streams, as version 2 had them in one
/// entry.
pub(super) fn read_remote_positions(bytes: &mut ByteReader<'_>) -> Option<(Vec<RemotePosition>, Vec<EventId>)> {
    let (mut remote, mut beyond) = (Vec::new(), Vec::new());
    let (mut pubend, mut since) = (0_u64, 0_u64);
    for _ in 0..bytes.varint()? {
        pubend = pubend.checked_add(bytes.varint()?)?;
        since = since.wrapping_add(unzigzag(bytes.varint()?) as u64);
        let acked = Tick(since.wrapping_add(unzigzag(bytes.varint()?) as u64));
        remote.push(RemotePosition { pubend: PubendId(pubend), since: Tick(since), acked });
    }
    let mut last = EventId { pubend: PubendId(0), tick: Tick(0) };
    for _ in 0..bytes.varint()? {
        let pubend = PubendId(last.pubend.0.checked_add(bytes.varint()?)?);
        let tick = bytes.varint()?;
        let before = if pubend == last.pubend { last.tick.0 } else { 0 };
        last = EventId { pubend, tick: Tick(before.checked_add(tick)?) };
        beyond.push(last);
    }
    remote.is_sorted_by(|a, b| a.pubend < b.pubend).then_some((remote, beyond))
}

/// Encodes a signed number so that small ones are short.
pub(super) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(super) fn unzigzag(coded: u64) -> i64 {
    (coded >> 1 ^ (coded & 1).wrapping_neg()) as i64
}

/// The stream of an event in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlightStream {
    /// An own reliable stream, by the index of its pubend.
    Own(u8),
    /// Another broker's stream, whose log counts for the subscription.
    Other(PubendId),
}

impl FlightStream {
    /// The pubend; `host` has the own streams.
    pub(crate) fn pubend(self, host: HostId) -> PubendId {
        match self {
            FlightStream::Own(own) => host.pubend(own),
            FlightStream::Other(pubend) => pubend,
        }
    }
}

/// A delivery at [`whimbrel_event::Qos::ExactlyOnce`] that is not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flight {
    /// The client may have the event, with this tag.
    Sent {
        /// The subscription.
        number: DurableNo,
        /// The event's stream.
        whose: FlightStream,
        /// The event's tick.
        tick: Tick,
    },
    /// The client has the event, and has to forget the tag.
    Received {
        /// The subscription.
        number: DurableNo,
        /// The event's stream.
        whose: FlightStream,
        /// The event's tick.
        tick: Tick,
    },
    /// The client may have the event, which is not kept.
    Unkept,
}

/// Stands for the index of an own pubend where another broker's pubend follows.
const OTHER: u8 = u8::MAX;

impl MapValue<'_> for Flight {
    const VERSION: u8 = 2;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Flight::Sent { number, whose, tick } | Flight::Received { number, whose, tick } => {
                let stage = if matches!(self, Flight::Sent { .. }) { 1 } else { 2 };
                match whose {
                    FlightStream::Own(own) => out.extend_from_slice(&[stage, *own]),
                    FlightStream::Other(pubend) => {
                        out.extend_from_slice(&[stage, OTHER]);
                        put_varint(out, pubend.0);
                    }
                }
                put_varint(out, number.0.into());
                put_varint(out, tick.0);
            }
            Flight::Unkept => out.push(3),
        }
    }

    fn read(bytes: &mut ByteReader<'_>) -> Option<Self> {
        match bytes.u8()? {
            stage @ (1 | 2) => {
                let whose = match bytes.u8()? {
                    OTHER => FlightStream::Other(PubendId(bytes.varint()?)),
                    own => FlightStream::Own(Some(own).filter(|own| is_reliable_index(*own))?),
                };
                let (number, tick) = (DurableNo(bytes.small()?), Tick(bytes.varint()?));
                let is_sent = stage == 1;
                let received = Flight::Received { number, whose, tick };
                Some(if is_sent { Flight::Sent { number, whose, tick } } else { received })
            }
            3 => Some(Flight::Unkept),
            _ => None,
        }
    }

    fn read_older(version: u8, bytes: &mut ByteReader<'_>) -> Option<Self> {
        // Version 1 had own streams alone, in the same form.
        let flight = if version == 1 { Flight::read(bytes) } else { None };
        let is_other = |flight: &Flight| {
            matches!(
                flight,
                Flight::Sent { whose: FlightStream::Other(_), .. }
                    | Flight::Received { whose: FlightStream::Other(_), .. }
            )
        };
        flight.filter(|flight| !is_other(flight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::OWN;
    use proptest::prelude::*;

    fn again<'a, V: MapValue<'a>>(value: &V, out: &'a mut Vec<u8>) -> Option<V> {
        value.put_versioned(out);
        V::read_versioned(out)
    }

    proptest! {
        #[test]
        fn flights_come_back(ticks: [u64; 2], number: u32, place in 0..OWN as u8) {
            let own = HostId::new(0).reliable(place).index();
            for whose in [FlightStream::Own(own), FlightStream::Other(PubendId(ticks[0]))] {
                let (number, tick) = (DurableNo(number), Tick(ticks[1]));
                for flight in [Flight::Sent { number, whose, tick }, Flight::Received { number, whose, tick }, Flight::Unkept] {
                    prop_assert_eq!(again(&flight, &mut Vec::new()), Some(flight));
                }
            }
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
            let _ = Flight::read_versioned(&bytes);
        }
    }

    #[test]
    fn the_first_versions_can_be_read() {
        let sent = Flight::Sent { number: DurableNo(7), whose: FlightStream::Own(2), tick: Tick(300) };
        assert_eq!(Flight::read_versioned(&[1, 1, 2, 7, 0xac, 2]), Some(sent));
        assert_eq!(Flight::read_versioned(&[3, 1, 2, 7, 0xac, 2]), None, "a version that is not known");
    }

    #[test]
    fn the_second_versions_can_be_read() {
        let sent = Flight::Sent { number: DurableNo(7), whose: FlightStream::Other(PubendId(0x21)), tick: Tick(300) };
        assert_eq!(Flight::read_versioned(&[2, 1, 255, 0x21, 7, 0xac, 2]), Some(sent));
    }

    #[test]
    fn a_position_may_lie_before_the_log_counts_as_something_may_be_told_still() {
        let pubend = PubendId(0x21);
        let remote = vec![RemotePosition { pubend, since: Tick(10), acked: Tick(15) }];
        let mut position = DurablePosition { remote, ..DurablePosition::default() };
        position.step_back(pubend, Tick(12));
        assert_eq!(position.remote(pubend), Some(Tick(12)));
        position.step_back(pubend, Tick(3));
        assert_eq!((position.remote(pubend), position.remote(PubendId(0x22))), (Some(Tick(3)), None));
    }
}
