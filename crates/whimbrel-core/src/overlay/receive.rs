//! Frames from neighbours: decoded, checked and dispatched; events and silence are taken in.

use core::time::Duration;

use whimbrel_event::{PubendId, Reliability, Tick, Time};
use whimbrel_wire::{Dest, EventFrame, Frame, Invalid, Silence, TreeReader, compact};

use super::forward::{Sending, tell_step};
use super::net::Net;
use super::traces::TraceStep;
use crate::api::{Channel, EventStep, HangUp, Output, PeerLink};
use crate::broker::Broker;
use crate::remote::Learnt;
use crate::retained::TOMBSTONE_LIFETIME;

impl Broker {
    /// Handles bytes that were received over a link.
    pub(super) fn peer_bytes(
        &mut self,
        now: Time,
        (link, channel): (PeerLink, Channel),
        bytes: &[u8],
        out: &mut dyn Output,
    ) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        peer.counters.bytes_in += bytes.len() as u64;
        peer.estimate.heard(now);
        if channel == Channel::Datagram {
            peer.counters.frames_in += 1;
            let is_up = peer.who.is_some();
            if is_up && self.probed(now, link, bytes, out).is_err() {
                // Each datagram is complete in itself: an invalid one does not end the link.
                self.overlay.as_deref_mut().expect("it was there").net.stats.frames_invalid += 1;
            }
            return;
        }
        let mut cutter = core::mem::take(&mut peer.cutters[channel as usize]);
        let mut chunk = bytes;
        loop {
            match cutter.next(&mut chunk) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(invalid) = self.on_frame(now, (link, channel), frame, out) {
                        if matches!(invalid, Invalid::Major(_)) {
                            return self.hang_up(now, link, HangUp::OtherVersion, out);
                        }
                        return self.is_garbage(now, link, out);
                    }
                }
                Err(_) => return self.is_garbage(now, link, out),
            }
        }
        let overlay = self.overlay.as_deref_mut().expect("it was there");
        if let Some(peer) = overlay.net.peers.get_mut(link) {
            peer.cutters[channel as usize] = cutter;
        }
    }

    /// Counts an invalid frame and closes the link.
    fn is_garbage(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        if let Some(overlay) = &mut self.overlay {
            overlay.net.stats.frames_invalid += 1;
        }
        self.hang_up(now, link, HangUp::Garbage, out);
    }

    /// Handles one frame. A frame of a link that was closed because of the one before it is
    /// ignored.
    fn on_frame(
        &mut self,
        now: Time,
        (link, channel): (PeerLink, Channel),
        bytes: &[u8],
        out: &mut dyn Output,
    ) -> Result<(), Invalid> {
        let overlay = self.overlay.as_deref_mut().expect("it was there");
        let Some(peer) = overlay.net.peers.get_mut(link) else { return Ok(()) };
        peer.counters.frames_in += 1;
        let frame = Frame::decode(bytes)?;
        let is_control = channel == Channel::Control;
        match (&frame, peer.who.is_some()) {
            (Frame::Hello(hello), false) if is_control => {
                self.on_hello(now, link, hello, out);
                return Ok(());
            }
            (_, false) if is_control => return Err(Invalid::Form("the first frame")),
            // The channels are independent: events may overtake the hello, and are asked for again.
            (_, false) => return Ok(()),
            (_, true) => {}
        }
        match frame {
            Frame::Event(event) if !is_control => self.on_event(now, link, &event, bytes, out),
            Frame::Silence(silence) if !is_control => self.on_silence(now, channel, &silence, out),
            Frame::LinkState(state) if is_control => self.on_link_state(now, link, &state, out),
            Frame::Interest(update) if is_control => self.on_interest(now, link, &update, out),
            Frame::Digest(digest) if is_control => self.compared(now, link, &digest, out),
            Frame::Ask(ask) if is_control => self.asked(now, link, (&ask.interests, &ask.link_states), out),
            Frame::Nack(nack) if is_control => self.on_nack(now, link, nack, out),
            Frame::Registry(registry) if is_control => self.on_retained(now, link, &registry, out),
            Frame::RegistryDigest(digest) if is_control => self.retained_compared(now, link, &digest, out),
            Frame::RegistryAsk(ask) if is_control => self.retained_asked(now, link, &ask, out),
            Frame::PreviousIdentities(previous) if is_control => self.on_previous(now, previous, out),
            Frame::MessageFrame(message) if is_control || message.is_bulk => self.on_message(now, &message, out),
            Frame::Goodbye(_) => self.hang_up(now, link, HangUp::Left, out),
            Frame::Unknown(_) => self.overlay.as_deref_mut().expect("it was there").net.stats.frames_unknown += 1,
            _ => return Err(Invalid::Form("a frame where it has no place")),
        }
        Ok(())
    }

    /// Handles an event: for this broker, for others behind it, or both.
    fn on_event(&mut self, now: Time, link: PeerLink, frame: &EventFrame<'_>, bytes: &[u8], out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let id = frame.id();
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        peer.counters.events_in += 1;
        let from = peer.host().expect("events are read once it has said hello");
        let age_us = frame.age_us.saturating_add(u64::from(peer.estimate.delay_us().unwrap_or(0)));
        if !frame.answer {
            peer.latency.record(Duration::from_micros(age_us));
        }
        overlay.net.traffic.traces.record(now, id, TraceStep::Came(from));
        let Ok(tree) = frame.routes() else { return };
        let sending = Sending {
            id,
            age_us,
            answer: frame.answer,
            retain: frame.retain,
            repairers: frame.repairers,
            event: frame.event,
        };
        tell_step(&sending, EventStep::Came { from, is_answer: frame.answer }, out);
        let mut is_relayed = false;
        for part in tree.children() {
            is_relayed = true;
            overlay.net.pass_on(now, &sending, (&part, frame.default_previous), out);
        }
        if is_relayed {
            overlay.net.stats.events_relayed += 1;
            if id.pubend.reliability() == Reliability::Reliable {
                overlay.net.traffic.transit.keep(id, bytes);
            }
        }
        if frame.answer {
            overlay.net.answer_merged(now, &sending, frame.default_previous, out);
        }
        if let Some(own) = tree.own() {
            self.event_for_this(now, (frame, own), Duration::from_micros(age_us), out);
        }
    }

    /// Takes in an event that this broker wants, or wanted under an earlier interest.
    fn event_for_this(
        &mut self,
        now: Time,
        (frame, own): (&EventFrame<'_>, Dest),
        age: Duration,
        out: &mut dyn Output,
    ) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let id = frame.id();
        let Ok(mut event) = compact::read(frame.event, id) else {
            overlay.net.stats.frames_invalid += 1;
            return;
        };
        // Clocks differ: the rest of the event's lifetime counts from here.
        event.event.expires = event.event.expires.map(|expires| {
            let lifetime = expires.since(event.accepted);
            now + lifetime.saturating_sub(age)
        });
        event.event.headers.retain = frame.retain;
        overlay.net.stats.events_received += 1;
        let version = overlay.net.own_interest.version_of(own.tag);
        let Some(remote) = self.streams.remote(id.pubend) else { return };
        // Silence holds if it was told for the present interest: under the version told last, or up
        // to the tick from which that version is in force.
        let is_told = remote.told > 0 && remote.told >= remote.least;
        let is_believed = is_told && (version >= remote.told || id.tick <= remote.since);
        let is_believed = is_believed || fault!(overlay.net, IntervalAcrossVersions) && remote.told > 0;
        let after = if is_believed {
            own.previous
        } else {
            overlay.net.stats.silence_disbelieved += 1;
            Tick(id.tick.0 - 1)
        };
        overlay.net.traffic.traces.record(now, id, TraceStep::Passed);
        // For an event older than the lifetime of tombstones it is unknown whether its retained
        // message was deleted; the registry of retained messages decides.
        let retain = frame.retain && age < TOMBSTONE_LIFETIME;
        let learnt = Learnt::Data { event, retain };
        self.learn_of(now, (id.pubend, after, id.tick), learnt, out);
        if frame.answer {
            self.on_answer(now, id.pubend, frame.event.len(), out);
        }
        self.check_holes(now, id.pubend);
    }

    /// Handles silence: for this broker, for others behind it, or both.
    fn on_silence(&mut self, now: Time, channel: Channel, silence: &Silence<'_>, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Ok(tree) = TreeReader::target(silence.target_tree) else { return };
        for part in tree.children() {
            overlay.net.pass_silence(now, channel, silence, &part, out);
        }
        if tree.own().is_none() || silence.incarnation != overlay.net.incarnation {
            return;
        }
        overlay.net.stats.silences_in += 1;
        for part in &silence.parts {
            let pubend = silence.from.pubend(part.index);
            self.silence_of(now, pubend, (silence.version, part), out);
            self.check_holes(now, pubend);
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.record_told(&self.streams, silence.from);
        }
        self.confirm_ready(now, out);
    }

    /// Takes in the silence of one stream.
    fn silence_of(
        &mut self,
        now: Time,
        pubend: PubendId,
        (version, part): (u64, &whimbrel_wire::Part),
        out: &mut dyn Output,
    ) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let began = overlay.net.own_interest.began();
        let version_now = overlay.net.own_interest.version();
        let Some(remote) = self.streams.remote(pubend) else { return };
        // Holds under any version: it may be older than the interest that was told last.
        remote.record_still((part.still, part.upto));
        // Subscriptions that were answered before the stream's broker was known did not wait for
        // it: the stream counts once its broker knows of them.
        let least = began.max(remote.least);
        let version = if fault!(self, OldVersionBelieved) { version_now } else { version };
        if version > version_now || version < remote.told.max(least) || part.upto < part.after {
            return;
        }
        let mut after = part.after;
        if remote.told < least {
            // There was no interest before, so no subscription misses anything.
            self.begin_stream(now, pubend, part.begin, out);
            // Events up to `part.since` were matched against other versions: they are asked for.
            after = after.max(part.since);
            if fault!(self, FirstSilenceBelieved) {
                after = part.begin;
            }
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        let is_more = remote.told < version;
        (remote.told, remote.since) = (version, part.since);
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.waiting.record_told_more(is_more);
        }
        if after < part.upto {
            let what = if part.lost { Learnt::Lost } else { Learnt::Silence };
            self.learn_of(now, (pubend, after, part.upto), what, out);
        }
    }
}

impl Net {
    /// Passes silence on to a neighbour.
    fn pass_silence(
        &mut self,
        now: Time,
        channel: Channel,
        silence: &Silence<'_>,
        part: &whimbrel_wire::Subtree<'_>,
        out: &mut dyn Output,
    ) {
        let Some(link) = self.peers.behind(part.port()) else { return };
        if !self.peers.get(link).is_some_and(|peer| peer.has_room(channel)) {
            return;
        }
        let mut tree = Vec::with_capacity(16);
        part.write_root(&mut tree);
        let silence = Silence { target_tree: &tree, ..silence.clone() };
        let mut frame = Vec::with_capacity(128);
        Frame::Silence(silence).encode(&mut frame);
        self.send(now, link, channel, &frame, out);
    }
}
