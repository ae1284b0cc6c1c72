//! The handshake of a link: the identity of the other end, and whether it is accepted. Probes of
//! links that are up.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_net::link::estimate::{LINK_DEAD_AFTER, PROBE_EVERY};
use whimbrel_net::link::peers::{HELLO_WITHIN, LINKS_MAX, Peer, PeerIdentity};
use whimbrel_net::{Channel, HangUp, PeerLink};
use whimbrel_wire::{Cutter, Frame, Hello, Invalid, Probe, ProbeEcho, VERSION_BYTES_MAX};

use super::Due;
use super::net::Net;
use crate::api::Output;
use crate::broker::Broker;
use crate::stream::Streams;

/// The part of a version that is told: at most [`VERSION_BYTES_MAX`] bytes.
fn beginning(version: &str) -> &str {
    let mut end = version.len().min(VERSION_BYTES_MAX);
    while !version.is_char_boundary(end) {
        end -= 1;
    }
    &version[..end]
}

/// A difference of clocks above which it is counted; nothing else depends on it.
const CLOCKS_APART: Duration = Duration::from_secs(60);

impl Net {
    /// Registers a new connection and sends the hello.
    pub(super) fn opened(
        &mut self,
        now: Time,
        (link, dialed, name): (PeerLink, bool, Option<&str>),
        out: &mut dyn Output,
    ) {
        if self.peers.len() >= LINKS_MAX {
            self.stats.hang_ups[HangUp::TooMany as usize] += 1;
            return out.peer_hang_up(link, HangUp::TooMany);
        }
        self.peers.insert(Peer::new(now, link, dialed, name));
        let mut frame = core::mem::take(&mut self.traffic.frame);
        frame.clear();
        self.hello(now).encode(&mut frame);
        self.send(now, link, Channel::Control, &frame, out);
        self.traffic.frame = frame;
        self.set_timer(now + HELLO_WITHIN, Due::Probe(link));
    }

    fn hello(&self, now: Time) -> Frame<'_> {
        Frame::Hello(Hello {
            major: whimbrel_wire::MAJOR,
            minor: whimbrel_wire::MINOR,
            deployment: u64::from(self.own_interest.deployment.0),
            host: self.host,
            incarnation: self.incarnation,
            name: &self.config.name,
            time: now.as_nanos(),
            reliable: Streams::RELIABLE,
            best_effort: Streams::BEST_EFFORT,
            birth: self.own_interest.birth,
            version: beginning(&self.config.version),
        })
    }

    /// Checks whether the broker of this hello may be at the other end of the link. Returns another
    /// link to the same broker that is to be closed in favour of this one, if there is one.
    ///
    /// # Errors
    /// The reason for closing this link.
    fn check_hello(&self, link: PeerLink, hello: &Hello<'_>) -> Result<Option<PeerLink>, HangUp> {
        let peer = self.peers.get(link).expect("it has just said hello");
        if peer.who.is_some() {
            return Err(HangUp::Garbage);
        }
        if hello.deployment != u64::from(self.own_interest.deployment.0) {
            return Err(HangUp::OtherDeployment);
        }
        if peer.certified.as_deref().is_some_and(|certified| certified != hello.name) {
            return Err(HangUp::ForgedName);
        }
        if hello.host == self.host {
            return Err(HangUp::Itself);
        }
        let holder = self.topology.by_name(hello.name).filter(|holder| *holder != hello.host);
        let is_taken = holder.is_some_and(|holder| self.routes.is_reachable(holder));
        if *hello.name == *self.config.name || is_taken {
            return Err(HangUp::NameTaken);
        }
        let Some(other) = self.peers.to(hello.host) else { return Ok(None) };
        let known = self.peers.get(other).expect("links that are up are there");
        let before = known.who.as_ref().expect("it is up");
        // Both ends decide alike: of two links that were dialed by different sides, the one dialed
        // by the smaller host stays; of two dialed by one side the later one, as that side would
        // not have dialed again if the first were alive.
        let of_smaller = (self.host < hello.host) == peer.dialed;
        let stays = hello.incarnation > before.incarnation || known.dialed == peer.dialed || of_smaller;
        if stays { Ok(Some(other)) } else { Err(HangUp::Double) }
    }
}

impl Broker {
    /// Handles a hello: the link is up if it is accepted.
    pub(super) fn on_hello(&mut self, now: Time, link: PeerLink, hello: &Hello<'_>, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let other = match overlay.net.check_hello(link, hello) {
            Ok(other) => other,
            Err(why) => return self.hang_up(now, link, why, out),
        };
        if let Some(other) = other {
            self.hang_up(now, other, HangUp::Double, out);
        }
        let Some(overlay) = &mut self.overlay else { return };
        let ahead = i64::try_from(i128::from(hello.time) - i128::from(now.as_nanos())).unwrap_or(i64::MAX);
        overlay.net.stats.clocks_apart += u64::from(ahead.unsigned_abs() > CLOCKS_APART.as_nanos() as u64);
        let who = PeerIdentity {
            host: hello.host,
            incarnation: hello.incarnation,
            name: hello.name.into(),
            version: hello.version.into(),
            ahead,
        };
        overlay.net.peers.bring_up(link, who);
        overlay.net.stats.links_up += 1;
        overlay.net.announce_soon(now);
        let was_there = overlay.net.topology.get(hello.host).is_some();
        self.follow_host(
            now,
            (hello.host, hello.name, was_there),
            ((hello.reliable, hello.best_effort), hello.birth),
            out,
        );
        self.tell_previous(now, link, hello, out);
        self.compare(now, link, out);
        self.probe(now, link, out);
    }

    /// Checks a link for silence and for being stuck, and sends a probe.
    pub(super) fn probe(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        if peer.who.is_none() {
            // A timer of an earlier link with this number may expire first.
            if now.since(peer.opened) < HELLO_WITHIN {
                return;
            }
            return self.hang_up(now, link, HangUp::Silent, out);
        }
        // After a standstill of this broker itself no neighbour was heard; the excuse has a bound.
        let is_excused = overlay.roam.has_stood_still(now, LINK_DEAD_AFTER)
            && now < peer.estimate.silent_at() + LINK_DEAD_AFTER + LINK_DEAD_AFTER;
        if peer.estimate.is_silent(now) && !is_excused {
            return self.hang_up(now, link, HangUp::Silent, out);
        }
        if peer.is_stuck(now) {
            return self.hang_up(now, link, HangUp::Stuck, out);
        }
        let sequence = peer.estimate.sent();
        let mut frame = Vec::with_capacity(16);
        Frame::Probe(Probe { sequence: sequence as u32, sent: now.as_nanos() }).encode(&mut frame);
        overlay.net.send(now, link, Channel::Datagram, &frame, out);
        // Including the timer that waited for the hello: otherwise there would be two probes per
        // interval.
        overlay.net.timers.drop_all(Due::Probe(link));
        overlay.net.set_timer(now + PROBE_EVERY, Due::Probe(link));
    }

    /// Handles a probe or its echo.
    pub(super) fn probed(
        &mut self,
        now: Time,
        link: PeerLink,
        bytes: &[u8],
        out: &mut dyn Output,
    ) -> Result<(), Invalid> {
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        let (mut cutter, mut chunk) = (Cutter::new(), bytes);
        let Some(body) = cutter.next(&mut chunk)? else { return Err(Invalid::Truncated) };
        match Frame::decode(body)? {
            Frame::Probe(Probe { sequence, sent }) => {
                let mut echo = Vec::with_capacity(16);
                Frame::ProbeEcho(ProbeEcho { sequence, sent, held_us: 0 }).encode(&mut echo);
                overlay.net.send(now, link, Channel::Datagram, &echo, out);
            }
            Frame::ProbeEcho(ProbeEcho { sequence, sent, held_us }) => {
                let Some(peer) = overlay.net.peers.get_mut(link) else { return Ok(()) };
                let held = Duration::from_micros(u64::from(held_us));
                // An echo without a probe is counted, and has no other effect.
                if peer.estimate.echo(now, u64::from(sequence), Time::from_nanos(sent), held).is_err() {
                    overlay.net.stats.bad_echoes += 1;
                } else if peer.estimate.news().is_some() {
                    overlay.net.announce_soon(now);
                }
            }
            _ => return Err(Invalid::Form("a datagram")),
        }
        Ok(())
    }

    /// Repeats state that may have been lost, and asks for wanted links.
    pub(super) fn refresh(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        overlay.net.set_timer(now + super::REFRESH_EVERY, Due::Refresh);
        if now.since(overlay.net.announced) >= whimbrel_net::topology::REFRESH_EVERY {
            overlay.net.announce_soon(now);
        }
        let wanted = overlay.net.config.links_wanted.saturating_sub(overlay.net.peers.len());
        let mut asked = 0;
        for state in overlay.net.topology.states() {
            if asked >= wanted {
                break;
            }
            let is_linked = state.host == overlay.net.host || overlay.net.peers.to(state.host).is_some();
            // Either end may dial, and of two links one is closed; if one end cannot reach the
            // other, the other may.
            if !is_linked && let Some(address) = state.addresses.first() {
                out.peer_dial(&state.name, address);
                asked += 1;
            }
        }
        for link in overlay.net.peers.links_up() {
            self.compare_retained(now, link, out);
        }
        self.remind_of_previous(now, out);
        self.expire_holds_given(now);
        self.end_retired(now, out);
    }
}

impl Net {
    /// Sets the timer for the next broker that expires.
    pub(super) fn watch_expiry(&mut self) {
        if let Some(at) = self.topology.next_expiry()
            && self.timers.first_of(Due::Expire).is_none()
        {
            self.set_timer(at, Due::Expire);
        }
    }
}
