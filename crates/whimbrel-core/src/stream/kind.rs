//! Kinds of own streams: those to which the events of a topic go.

use core::time::Duration;

use whimbrel_event::{HOST_RELIABLE_MAX, KIND_PUBENDS_MAX, PubendId, Reliability, Time};

use crate::topic::{Persistence, TopicSettings, TopicTransport};

/// The streams to which the events of a topic go: among those of one kind, a publisher is bound to
/// one. No order holds between events of two kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// The topic has no deadline.
    Ordinary(Reliability),
    /// The topic has a deadline.
    Deadline(Reliability),
    /// The topic has a deadline, and its reliable events are never logged: they have streams in
    /// which no event waits for the disk.
    DeadlineVolatile,
    /// The topic has a deadline, and its best-effort events go by datagrams: these overtake what is
    /// on a QUIC stream, and an event that is overtaken in its stream is not delivered.
    DeadlineDatagram,
}

/// The number of streams of two kinds that share those of one class and reliability.
const HALF: u8 = KIND_PUBENDS_MAX / 2;

/// The index of the first stream whose events go by datagrams; those are the last of a host.
const DATAGRAMS_FROM: u8 = HOST_RELIABLE_MAX + KIND_PUBENDS_MAX + HALF;

impl StreamKind {
    /// The kinds of reliable events.
    pub const RELIABLE: [StreamKind; 3] = [
        StreamKind::Ordinary(Reliability::Reliable),
        StreamKind::Deadline(Reliability::Reliable),
        StreamKind::DeadlineVolatile,
    ];

    /// Whether its events are reliable.
    pub fn is_reliable(self) -> bool {
        match self {
            StreamKind::Ordinary(reliability) | StreamKind::Deadline(reliability) => {
                reliability == Reliability::Reliable
            }
            StreamKind::DeadlineVolatile => true,
            StreamKind::DeadlineDatagram => false,
        }
    }

    /// Whether the events of a stream go by datagrams.
    pub(super) fn goes_by_datagrams(pubend: PubendId) -> bool {
        pubend.index() >= DATAGRAMS_FROM
    }

    /// The index of the stream of this kind to which a publisher with a binding is bound. Half of
    /// the reliable streams of the deadline class are for volatile topics, and half of the others
    /// for topics that go by datagrams.
    #[inline]
    pub(super) fn index(self, binding: u8) -> u8 {
        let place = binding % KIND_PUBENDS_MAX;
        match self {
            StreamKind::Ordinary(Reliability::Reliable) => place,
            StreamKind::Ordinary(Reliability::BestEffort) => KIND_PUBENDS_MAX + place,
            StreamKind::Deadline(Reliability::Reliable) => HOST_RELIABLE_MAX + place % HALF,
            StreamKind::DeadlineVolatile => HOST_RELIABLE_MAX + HALF + place % HALF,
            StreamKind::Deadline(Reliability::BestEffort) => HOST_RELIABLE_MAX + KIND_PUBENDS_MAX + place % HALF,
            StreamKind::DeadlineDatagram => DATAGRAMS_FROM + place % HALF,
        }
    }
}

impl From<Reliability> for StreamKind {
    /// The kind of the events of a topic without a profile.
    fn from(reliability: Reliability) -> StreamKind {
        StreamKind::Ordinary(reliability)
    }
}

/// For this time after the last broker that does not know the streams of the deadline class is gone
/// they are not used: the other brokers' retention holds come to be for these streams, too.
const DEADLINES_SETTLE: Duration = Duration::from_secs(10);

/// Whether the streams of the deadline class are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlineStreams {
    /// They are from this time on; [`Time::MAX`] while a known broker does not know them.
    from: Time,
}

impl DeadlineStreams {
    /// They are used, as no other broker is known.
    pub(crate) const USED: DeadlineStreams = DeadlineStreams { from: Time::ZERO };

    /// Sets whether all known brokers know them. Returns whether that has changed.
    pub(crate) fn set_known(&mut self, now: Time, are_known: bool) -> bool {
        let were_known = self.from < Time::MAX;
        if are_known != were_known {
            self.from = if are_known { now.after(DEADLINES_SETTLE) } else { Time::MAX };
        }
        are_known != were_known
    }

    /// The kind of streams for events of this reliability and of topics with these settings.
    pub(crate) fn kind_of(&self, now: Time, settings: &TopicSettings, reliability: Reliability) -> StreamKind {
        let is_ordinary = !settings.has_deadline() || now < self.from;
        match (is_ordinary, settings.persistence, reliability) {
            (true, ..) => StreamKind::Ordinary(reliability),
            (false, Persistence::Volatile, Reliability::Reliable) => StreamKind::DeadlineVolatile,
            (false, _, Reliability::BestEffort) if settings.transport == TopicTransport::Datagram => {
                StreamKind::DeadlineDatagram
            }
            (false, ..) => StreamKind::Deadline(reliability),
        }
    }
}
