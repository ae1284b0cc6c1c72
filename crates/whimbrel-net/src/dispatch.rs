//! The steps of the network layer: an input or a deadline is handled part by part, and each part
//! gives the composition at most one event.
//!
//! What the network layer does after an event was dispatched stands as data in [`Work`], so that no
//! composition can forget it.

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{CopiedEvent, Cutter, Frame, FrameAt, Invalid, LabelledMessage, Registry, StampedEvent};

use crate::due::NetDue;
use crate::event::{NetEvent, NetStep};
use crate::forward::ArrivalMarks;
use crate::io::{Io, LinkOutput};
use crate::link::DatagramContent;
use crate::stats::NetStats;
use crate::topology::LinkState;
use crate::{Channel, HangUp, Net, PeerInput, PeerLink};

/// An input or a deadline that is being handled. Given to [`Net::step`] until that returns
/// [`NetStep::Done`].
#[derive(Debug)]
#[must_use = "an input is handled by `Net::step`"]
pub struct Work<'a> {
    source: Source<'a>,
    then: Option<Then>,
    /// Nothing is left of the source.
    is_over: bool,
}

/// The origin of a piece of work.
#[derive(Debug)]
enum Source<'a> {
    /// Bytes of a stream, cut into frames.
    Stream { link: PeerLink, channel: Channel, cutter: Cutter, chunk: &'a [u8] },
    /// A datagram with an event and a repeat of an earlier one, which is handled first: it is the
    /// earlier one in its stream, too.
    Repeat { link: PeerLink, repeated: Vec<u8>, is_handled: bool, event: &'a [u8] },
    /// Bytes have been sent, so that there is room for more.
    Room(PeerLink),
    /// A deadline that has come.
    Due(Time, NetDue),
    /// Nothing is left.
    Nothing,
}

/// What follows in the network layer after the composition has dispatched an event.
#[derive(Debug)]
pub(crate) enum Then {
    /// The link is up: both ends compare what they know, and the link is probed.
    Compare(PeerLink),
    /// The link state is learned.
    Learn { link: PeerLink, state: Arc<LinkState>, age: Duration },
    /// All neighbours are told; the link state of this host was received.
    Tell(HostId),
    /// All neighbours are told.
    TellAll,
    /// The neighbours are told of changes of a map.
    TellMap(u8),
    /// A neighbour that has told what it knows is told what it lacks.
    Answer(PeerLink),
}

/// What is left to do of a datagram; `None` has come before its link was up. Each datagram is
/// complete in itself: an invalid one does not end the link.
#[inline(never)]
fn source_of_datagram<'a>(
    link: PeerLink,
    bytes: &'a [u8],
    content: Option<Result<DatagramContent, Invalid>>,
    stats: &mut NetStats,
) -> Source<'a> {
    match content {
        Some(Ok(DatagramContent::Event { length, repeated })) => match (&bytes[..length], repeated) {
            (chunk, None) => Source::Stream { link, channel: Channel::Datagram, cutter: Cutter::new(), chunk },
            (event, Some(repeated)) => Source::Repeat { link, repeated, is_handled: false, event },
        },
        Some(Ok(DatagramContent::Handled)) | None => Source::Nothing,
        Some(Err(_)) => {
            stats.frames_invalid += 1;
            Source::Nothing
        }
    }
}

impl Net {
    /// Begins to handle what the driver reports of a link. Given [`PeerInput::Opened`] or
    /// [`PeerInput::Closed`], and with a datagram, everything is done at once.
    pub fn begin<'a>(&mut self, now: Time, input: PeerInput<'a>, out: &mut dyn LinkOutput) -> Work<'a> {
        self.hold_routes(now);
        let source = match input {
            PeerInput::Opened { link, dialed, name } => {
                self.on_opened(now, link, dialed, name, out);
                Source::Nothing
            }
            PeerInput::Bytes { link, channel, bytes } => self.begin_read(now, link, channel, bytes, out),
            PeerInput::Room { link, channel, unsent } => match self.peers.get_mut(link) {
                Some(peer) => {
                    peer.set_unsent(now, channel, unsent);
                    self.carrier(now).release(link, channel, out);
                    Source::Room(link)
                }
                None => Source::Nothing,
            },
            PeerInput::Packets { link, sent, lost } => {
                if let Some(peer) = self.peers.get_mut(link) {
                    peer.watch.record_packets(now, sent, lost);
                }
                self.follow_condition(now, link, out);
                Source::Nothing
            }
            PeerInput::Closed { link } => {
                self.remove_link(now, link);
                Source::Nothing
            }
        };
        Work { source, then: None, is_over: false }
    }

    /// Begins to handle bytes of a link: those of a stream go through the link's cutter.
    fn begin_read<'a>(
        &mut self,
        now: Time,
        link: PeerLink,
        channel: Channel,
        bytes: &'a [u8],
        out: &mut dyn LinkOutput,
    ) -> Source<'a> {
        let Some(peer) = self.peers.get_mut(link) else { return Source::Nothing };
        peer.counters.bytes_in += bytes.len() as u64;
        peer.estimate.heard(now);
        if channel == Channel::Datagram {
            let is_up = peer.who.is_some();
            let content = is_up.then(|| self.on_datagram(now, link, bytes, out));
            return source_of_datagram(link, bytes, content, &mut self.stats);
        }
        let cutter = core::mem::take(&mut peer.cutters[channel as usize]);
        Source::Stream { link, channel, cutter, chunk: bytes }
    }

    /// Begins to meet the first deadline, if it has come. Several are met one after the other.
    pub fn begin_due(&mut self, now: Time) -> Option<Work<'static>> {
        let (at, due) = self.timers.take(now)?;
        Some(Work { source: Source::Due(at, due), then: None, is_over: false })
    }

    /// Handles the next part of some work. The caller dispatches the event of a step before the
    /// next one, and steps until the work is done.
    pub fn step<'w>(&mut self, work: &'w mut Work<'_>, io: &mut Io<'_>) -> NetStep<'w> {
        if let Some(then) = work.then.take() {
            return step_of(self.resume(io, then, &mut work.then));
        }
        if work.is_over {
            return NetStep::Done;
        }
        if let Source::Stream { .. } = work.source {
            return self.read(work, io);
        }
        if let Source::Repeat { .. } = work.source {
            return self.read_repeat(work, io);
        }
        work.is_over = true;
        match work.source {
            Source::Room(link) => {
                self.pump(io, link);
                NetStep::Done
            }
            Source::Due(at, due) => step_of(self.meet(io, at, due)),
            Source::Stream { .. } | Source::Repeat { .. } | Source::Nothing => NetStep::Done,
        }
    }

    /// Handles the frames of a chunk up to one that gives an event. Events that are only passed on
    /// give none.
    #[inline]
    fn read<'w>(&mut self, work: &'w mut Work<'_>, io: &mut Io<'_>) -> NetStep<'w> {
        let Work { source, then, is_over } = work;
        let Source::Stream { link, channel, cutter, chunk } = source else { return NetStep::Done };
        let (link, channel) = (*link, *channel);
        // Bounded by the bytes of the chunk.
        let length_bytes = loop {
            let invalid = match cutter.find(chunk) {
                Ok(FrameAt::Chunk(frame)) => match self.on_frame(io, (link, channel), frame, then) {
                    Ok(None) if then.is_none() => continue,
                    Ok(event) => return step_of(event),
                    Err(invalid) => Some(invalid),
                },
                Ok(FrameAt::Held { length_bytes }) => break length_bytes,
                Ok(FrameAt::Nowhere) => None,
                Err(invalid) => Some(invalid),
            };
            if channel == Channel::Datagram {
                self.stats.frames_invalid += u64::from(invalid.is_some());
            } else if let Some(invalid) = invalid {
                self.refuse_stream(io, link, invalid);
            } else if let Some(peer) = self.peers.get_mut(link) {
                peer.cutters[channel as usize] = core::mem::take(cutter);
            }
            *is_over = true;
            return NetStep::Done;
        };
        match self.on_frame(io, (link, channel), cutter.held_frame(length_bytes), then) {
            Ok(event) => step_of(event),
            Err(invalid) => {
                // The link is closed, so that the frames behind are ignored.
                self.refuse_stream(io, link, invalid);
                NetStep::More
            }
        }
    }

    /// Handles the repeat of a datagram, and then leaves its event to be read.
    #[cold]
    fn read_repeat<'w>(&mut self, work: &'w mut Work<'_>, io: &mut Io<'_>) -> NetStep<'w> {
        if let Source::Repeat { link, is_handled: true, event: chunk, .. } = work.source {
            work.source = Source::Stream { link, channel: Channel::Datagram, cutter: Cutter::new(), chunk };
            return NetStep::More;
        }
        let Source::Repeat { link, repeated, is_handled, .. } = &mut work.source else { return NetStep::Done };
        *is_handled = true;
        let (StampedEvent { stamp, frame }, last_us) = match Frame::decode(repeated) {
            Ok(Frame::DeadlineEvent(stamped)) => (stamped, None),
            Ok(Frame::CopiedEvent(CopiedEvent { last_us, stamped })) => (stamped, Some(last_us)),
            _ => {
                self.stats.frames_invalid += 1;
                return NetStep::More;
            }
        };
        let marks = ArrivalMarks { stamp: Some(stamp), last_us, is_repeat: true };
        step_of(self.on_event(io, *link, Channel::Datagram, frame, marks, repeated))
    }

    /// Closes a link with an invalid stream. A link of another version is no invalid frame.
    fn refuse_stream(&mut self, io: &mut Io<'_>, link: PeerLink, invalid: Invalid) {
        if self.peers.get(link).is_none() {
            return;
        }
        if matches!(invalid, Invalid::Major(_)) {
            return self.hang_up(io.now, link, HangUp::OtherVersion, io.out);
        }
        self.stats.frames_invalid += 1;
        self.hang_up(io.now, link, HangUp::Garbage, io.out);
    }

    /// Handles one frame. A frame of a link that was closed because of the one before it is
    /// ignored.
    fn on_frame<'w>(
        &mut self,
        io: &mut Io<'_>,
        (link, channel): (PeerLink, Channel),
        bytes: &'w [u8],
        then: &mut Option<Then>,
    ) -> Result<Option<NetEvent<'w>>, Invalid> {
        let Some(peer) = self.peers.get_mut(link) else { return Ok(None) };
        peer.counters.frames_in += 1;
        let frame = Frame::decode(bytes)?;
        let is_control = channel == Channel::Control;
        if peer.who.is_none() {
            return match frame {
                Frame::Hello(hello) if is_control => Ok(self.on_hello(io, link, hello, then)),
                _ if is_control => Err(Invalid::Form("the first frame")),
                // The channels are independent: events may overtake the hello, and are asked for
                // again.
                _ => Ok(None),
            };
        }
        let event = match frame {
            Frame::Event(frame) if !is_control => {
                self.on_event(io, link, channel, frame, ArrivalMarks::default(), bytes)
            }
            Frame::DeadlineEvent(StampedEvent { stamp, frame }) if !is_control => {
                let marks = ArrivalMarks { stamp: Some(stamp), ..ArrivalMarks::default() };
                self.on_event(io, link, channel, frame, marks, bytes)
            }
            Frame::CopiedEvent(CopiedEvent { last_us, stamped: StampedEvent { stamp, frame } }) if !is_control => {
                let marks = ArrivalMarks { stamp: Some(stamp), last_us: Some(last_us), is_repeat: false };
                self.on_event(io, link, channel, frame, marks, bytes)
            }
            Frame::Flash(flash) if is_control => {
                self.on_flash(io, link, flash);
                None
            }
            Frame::Silence(silence) if !is_control => self.on_silence(io, channel, silence),
            Frame::LinkState(state) if is_control => Some(offer_state(link, &state, then)),
            Frame::Interest(update) if is_control => self.on_interest(io, link, &update, then),
            Frame::Digest(digest) if is_control => self.on_digest(io, link, &digest, then),
            Frame::Ask(ask) if is_control => self.on_ask(io, link, &ask),
            Frame::Nack(nack) if is_control => self.on_nack(io, link, nack),
            Frame::Registry(registry) if is_control => on_entries(io, link, 0, registry, then),
            Frame::MapEntries(of) if is_control => on_entries(io, link, of.map, of.body, then),
            Frame::MapDigest(of) if is_control => self.on_map_digest(io, link, of.map, &of.body),
            Frame::MapAsk(of) if is_control => self.on_map_ask(io, link, of.map, &of.body),
            Frame::RegistryDigest(digest) if is_control => self.on_map_digest(io, link, 0, &digest),
            Frame::RegistryAsk(ask) if is_control => self.on_map_ask(io, link, 0, &ask),
            Frame::PreviousIdentities(previous) if is_control => self.on_previous(io, previous),
            Frame::MessageFrame(message) | Frame::LabelledMessage(LabelledMessage(message))
                if is_control || message.is_bulk =>
            {
                self.on_message(io, message)
            }
            Frame::Goodbye(_) => {
                self.hang_up(io.now, link, HangUp::Left, io.out);
                None
            }
            Frame::Unknown(_) => {
                self.stats.frames_unknown += 1;
                None
            }
            _ => return Err(Invalid::Form("a frame where it has no place")),
        };
        Ok(event)
    }

    /// Does what follows after an event was dispatched.
    fn resume(&mut self, io: &mut Io<'_>, then: Then, next: &mut Option<Then>) -> Option<NetEvent<'static>> {
        match then {
            Then::Compare(link) => {
                self.compare(io, link);
                self.probe(io, link);
                None
            }
            Then::Learn { link, state, age } => self.learn(io, link, Arc::unwrap_or_clone(state), age, next),
            Then::Tell(host) => {
                self.pump_all(io);
                self.joining.on_link_state(host);
                self.check_joined(io.now).then_some(NetEvent::Joined)
            }
            Then::TellAll => {
                self.pump_all(io);
                None
            }
            Then::TellMap(map) => {
                self.pump_map_all(io, map);
                None
            }
            Then::Answer(link) => {
                self.answer_digest(io, link);
                None
            }
        }
    }

    /// Meets a deadline that was due at this time.
    fn meet(&mut self, io: &mut Io<'_>, at: Time, due: NetDue) -> Option<NetEvent<'static>> {
        match due {
            NetDue::Probe(link) => self.probe(io, link),
            NetDue::Report(link) => self.carrier(io.now).report(link, io.out),
            NetDue::Judge(link) => self.judge(io, link, at),
            NetDue::Announce => self.announce(io),
            NetDue::Interest => return Some(NetEvent::InterestDue),
            // The topology is checked at the end of each turn.
            NetDue::Watch => {}
            NetDue::Expire => return Some(NetEvent::Expired(self.expire(io.now))),
            NetDue::Survey(link, map) => self.survey(io, link, map),
            NetDue::Refresh => {
                self.refresh(io);
                return Some(NetEvent::Refreshed);
            }
        }
        None
    }

    /// Closes a link for a reason of this side.
    pub(crate) fn hang_up(&mut self, now: Time, link: PeerLink, why: HangUp, out: &mut dyn LinkOutput) {
        if self.peers.get(link).is_some() {
            self.stats.hang_ups[why as usize] += 1;
            out.peer_hang_up(link, why);
            self.remove_link(now, link);
        }
    }

    /// Closes all links for a reason of this side.
    pub fn hang_up_all(&mut self, now: Time, why: HangUp, out: &mut dyn LinkOutput) {
        for link in self.peers.links() {
            self.hang_up(now, link, why, out);
        }
    }

    /// Removes a link that is closed.
    fn remove_link(&mut self, now: Time, link: PeerLink) {
        let Some(peer) = self.peers.remove(link) else { return };
        if peer.who.is_some() {
            self.stats.links_lost += 1;
            self.announce_soon(now);
        }
    }
}

fn step_of(event: Option<NetEvent<'_>>) -> NetStep<'_> {
    event.map_or(NetStep::More, NetStep::Event)
}

/// The event that a neighbour has sent entries of a map; nothing if this broker has no such map.
fn on_entries<'w>(
    io: &Io<'_>,
    link: PeerLink,
    map: u8,
    registry: Registry<'w>,
    then: &mut Option<Then>,
) -> Option<NetEvent<'w>> {
    io.maps.get(usize::from(map))?;
    *then = Some(Then::TellMap(map));
    Some(NetEvent::Entries { map, link, registry })
}

/// The event that a broker announces a link state; the link state is learned afterwards.
fn offer_state(
    link: PeerLink,
    frame: &whimbrel_wire::LinkStateFrame<'_>,
    then: &mut Option<Then>,
) -> NetEvent<'static> {
    let state = Arc::new(LinkState::of_frame(frame));
    let age = Duration::from_millis(u64::from(frame.age_ms));
    *then = Some(Then::Learn { link, state: Arc::clone(&state), age });
    NetEvent::StateOffered(state)
}
