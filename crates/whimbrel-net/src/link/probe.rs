//! Probes of the links that are up: they measure delay and loss, and notice a link that is silent
//! or stuck.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_wire::{Cutter, Frame, Invalid, Probe, ProbeEcho};

use super::peers::HELLO_WITHIN;
use crate::due::NetDue;
use crate::io::{Io, LinkOutput};
use crate::{Channel, HangUp, Net, PeerLink};

/// What a datagram was.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum DatagramContent {
    /// It is handled.
    Handled,
    /// A whole frame with an event.
    Event {
        /// Bytes of that frame, its length included.
        length: usize,
        /// The frame that is repeated behind it, without its length, unless it has arrived before.
        repeated: Option<Vec<u8>>,
    },
}

impl Net {
    /// Checks a link for silence and for being stuck, and sends a probe.
    pub(crate) fn probe(&mut self, io: &mut Io<'_>, link: PeerLink) {
        let now = io.now;
        let pace = self.config.pace;
        let dead_after = pace.dead_after();
        let has_stood_still = self.has_stood_still(now, dead_after);
        let Some(peer) = self.peers.get_mut(link) else { return };
        if peer.who.is_none() {
            // A timer of an earlier link with this number may expire first.
            if now.since(peer.opened) < HELLO_WITHIN {
                return;
            }
            return self.hang_up(now, link, HangUp::Silent, io.out);
        }
        // After a standstill of this broker itself no neighbour was heard; the excuse has a bound.
        let is_excused = has_stood_still && now < peer.estimate.silent_at(dead_after) + dead_after + dead_after;
        if peer.estimate.is_silent(now, dead_after) && !is_excused {
            return self.hang_up(now, link, HangUp::Silent, io.out);
        }
        if peer.is_stuck(now) || peer.is_overrun() {
            return self.hang_up(now, link, HangUp::Stuck, io.out);
        }
        self.carrier(now).probe(link, io.out);
        // Including the timer that waited for the hello: otherwise there would be two probes per
        // interval.
        self.timers.drop_all(NetDue::Probe(link));
        self.timers.set(now + pace.probe_every, NetDue::Probe(link));
    }

    /// Handles a datagram, unless it is an event: that is left to the caller, as one of a stream.
    pub(crate) fn on_datagram(
        &mut self,
        now: Time,
        link: PeerLink,
        bytes: &[u8],
        out: &mut dyn LinkOutput,
    ) -> Result<DatagramContent, Invalid> {
        let (mut cutter, mut chunk) = (Cutter::new(), bytes);
        let Some(body) = cutter.next(&mut chunk)? else { return Err(Invalid::Truncated) };
        let frame = Frame::decode(body)?;
        if matches!(frame, Frame::DeadlineEvent(_) | Frame::CopiedEvent(_)) {
            let repeated = if chunk.is_empty() { None } else { self.carrier(now).read_repeat(link, body, chunk)? };
            return Ok(DatagramContent::Event { length: bytes.len() - chunk.len(), repeated });
        }
        if let Some(peer) = self.peers.get_mut(link) {
            peer.counters.frames_in += 1;
        }
        match frame {
            Frame::Probe(Probe { sequence, sent }) => {
                if let Some(peer) = self.peers.get_mut(link) {
                    peer.watch.record_probe(now, Time::from_nanos(sent));
                }
                let mut echo = Vec::with_capacity(16);
                Frame::ProbeEcho(ProbeEcho { sequence, sent, held_us: 0 }).encode(&mut echo);
                self.carrier(now).write(link, Channel::Datagram, &echo, out);
            }
            Frame::ProbeEcho(ProbeEcho { sequence, sent, held_us }) => {
                let Some(peer) = self.peers.get_mut(link) else { return Ok(DatagramContent::Handled) };
                let held = Duration::from_micros(u64::from(held_us));
                let sent = Time::from_nanos(sent);
                // An echo without a probe is counted, and has no other effect.
                if peer.estimate.echo(now, u64::from(sequence), sent, held).is_err() {
                    self.stats.bad_echoes += 1;
                    return Ok(DatagramContent::Handled);
                }
                peer.watch.record_echo(now, now.since(sent).saturating_sub(held), &peer.estimate);
                if peer.estimate.news().is_some() {
                    let at = now.max(self.announced + self.config.pace.announce_every);
                    self.timers.set_once(at, NetDue::Announce);
                }
                self.follow_condition(now, link, out);
            }
            Frame::LinkReport(report) => self.on_report(now, link, report, out),
            _ => return Err(Invalid::Form("a datagram")),
        }
        Ok(DatagramContent::Handled)
    }
}
