//! Events and silence of other brokers: they are passed on to the destinations behind this broker,
//! and given to the composition if this broker is a destination.

use core::time::Duration;

use whimbrel_event::{Reliability, Time};
use whimbrel_wire::{EventFrame, LinkStamp, Silence, Subtree, TreeReader, compact};

use super::{Sending, tell_hop};
use crate::domains::DomainPlace;
use crate::event::NetEvent;
use crate::io::{Hop, Io, LinkOutput};
use crate::route::TopicPaths;
use crate::traces::TraceStep;
use crate::{Channel, Net, PeerLink};

/// What a link's frame says of an event beside the event's own frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArrivalMarks {
    pub(crate) stamp: Option<LinkStamp>,
    /// See [`whimbrel_wire::CopiedEvent::last_us`].
    pub(crate) last_us: Option<u32>,
    /// It is a repeat.
    pub(crate) is_repeat: bool,
}

impl Net {
    /// Handles an event: for this broker, for others behind it, or both.
    pub(crate) fn on_event<'w>(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        channel: Channel,
        frame: EventFrame<'w>,
        marks: ArrivalMarks,
        bytes: &[u8],
    ) -> Option<NetEvent<'w>> {
        let ArrivalMarks { stamp, last_us, is_repeat } = marks;
        let now = io.now;
        let id = frame.id();
        let measured_us = match stamp {
            None => None,
            Some(stamp) if is_repeat => Some(self.carrier(now).record_repeat(link, stamp)?),
            Some(stamp) => Some(self.carrier(now).record_arrival(link, stamp)?),
        };
        let peer = self.peers.get_mut(link)?;
        peer.counters.events_in += 1;
        let from = peer.host().expect("events are read once it has said hello");
        let way_us = measured_us.unwrap_or_else(|| u64::from(peer.estimate.delay_us().unwrap_or(0)));
        let age_us = frame.age_us.saturating_add(way_us);
        if !frame.answer {
            peer.latency.record(Duration::from_micros(age_us));
        }
        let came = if frame.answer { TraceStep::CameAgain(from, age_us) } else { TraceStep::Came(from, age_us) };
        self.traffic.traces.record(now, id, came);
        let tree = frame.routes().ok()?;
        let label = compact::label(frame.event);
        if !label.is_any() && !self.domains().may_carry_here(label) {
            // Its sender has the domains of an earlier life of this broker.
            self.domains().record_refusal(DomainPlace::Relay);
            return None;
        }
        let sending = Sending {
            id,
            age_us,
            deadline_ms: stamp.map(|stamp| stamp.deadline_ms),
            answer: frame.answer,
            retain: frame.retain,
            repairers: frame.repairers,
            by_datagram: channel == Channel::Datagram,
            paths: TopicPaths::One,
            last_us,
            event: frame.event,
        };
        tell_hop(&sending, Hop::Came { from, is_answer: frame.answer }, io.out);
        let is_known = last_us.is_some() && self.traffic.copies.knows(id);
        let mut is_relayed = false;
        for part in tree.children() {
            is_relayed = true;
            if !(is_known && fault!(self, KnownCopyEnds)) {
                self.pass_on(now, &sending, &part, frame.default_previous, io.out);
            }
        }
        if is_relayed {
            self.stats.events_relayed += 1;
            if id.pubend.reliability() == Reliability::Reliable && !is_known {
                self.traffic.transit.keep(id, bytes);
            }
        }
        if frame.answer {
            self.answer_merged(now, &sending, frame.default_previous, io.out);
        }
        let own = tree.own()?;
        Some(NetEvent::Event { frame, own, age_us, last_us })
    }

    /// Handles silence: for this broker, for others behind it, or both.
    pub(crate) fn on_silence<'w>(
        &mut self,
        io: &mut Io<'_>,
        channel: Channel,
        silence: Silence<'w>,
    ) -> Option<NetEvent<'w>> {
        let tree = TreeReader::target(silence.target_tree).ok()?;
        for part in tree.children() {
            self.pass_silence(io.now, channel, &silence, &part, io.out);
        }
        if tree.own().is_none() || silence.incarnation != self.identity.incarnation {
            return None;
        }
        self.stats.silences_in += 1;
        Some(NetEvent::Silence(silence))
    }

    /// Passes silence on to a neighbour.
    fn pass_silence(
        &mut self,
        now: Time,
        channel: Channel,
        silence: &Silence<'_>,
        part: &Subtree<'_>,
        out: &mut dyn LinkOutput,
    ) {
        let Some(link) = self.peers.behind(part.port()) else { return };
        let mut tree = Vec::with_capacity(16);
        part.write_root(&mut tree);
        let silence = Silence { target_tree: &tree, ..silence.clone() };
        self.carrier(now).send_silence(link, silence, |_| channel, out);
    }
}
