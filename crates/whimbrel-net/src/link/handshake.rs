//! The handshake of a link: the identity of the other end, and whether it is accepted.

use core::time::Duration;

use whimbrel_event::Time;
use whimbrel_wire::{Frame, Hello, VERSION_BYTES_MAX};

use super::peers::{HELLO_WITHIN, LINKS_MAX, Peer, PeerIdentity};
use super::queue::{FrameClass, LinkQueue};
use super::watch::LinkWatch;
use crate::dispatch::Then;
use crate::due::NetDue;
use crate::event::NetEvent;
use crate::io::{Io, LinkOutput};
use crate::net::REFRESH_EVERY;
use crate::{Config, HangUp, Identity, Net, PeerLink};

/// The part of a version that is told: at most [`VERSION_BYTES_MAX`] bytes.
fn beginning(version: &str) -> &str {
    let mut end = version.len().min(VERSION_BYTES_MAX);
    while !version.is_char_boundary(end) {
        end -= 1;
    }
    &version[..end]
}

/// The hello of this broker.
fn hello<'a>(now: Time, identity: &Identity, config: &'a Config) -> Frame<'a> {
    Frame::Hello(Hello {
        major: whimbrel_wire::MAJOR,
        minor: whimbrel_wire::MINOR,
        deployment: u64::from(identity.deployment.0),
        host: identity.host,
        incarnation: identity.incarnation,
        name: &config.name,
        time: now.as_nanos(),
        reliable: identity.reliable,
        further: identity.further,
        birth: identity.birth,
        version: beginning(&config.version),
    })
}

/// A difference of clocks above which it is counted; nothing else depends on it.
const CLOCKS_APART: Duration = Duration::from_secs(60);

impl Net {
    /// Registers a new connection and sends the hello.
    pub(crate) fn on_opened(
        &mut self,
        now: Time,
        link: PeerLink,
        dialed: bool,
        name: Option<&str>,
        out: &mut dyn LinkOutput,
    ) {
        if self.peers.len() >= LINKS_MAX {
            self.stats.hang_ups[HangUp::TooMany as usize] += 1;
            return out.peer_hang_up(link, HangUp::TooMany);
        }
        let mark = self.config.release_mark;
        let mut peer = Peer::new(now, link, dialed, name, mark);
        (peer.watch, peer.queue) = (LinkWatch::new(self.faults), LinkQueue::new(mark, self.faults));
        self.peers.insert(peer);
        let mut frame = core::mem::take(&mut self.traffic.frame);
        frame.clear();
        hello(now, &self.identity, &self.config).encode(&mut frame);
        self.send(now, link, FrameClass::Control, &frame, out);
        self.traffic.frame = frame;
        self.timers.set(now + HELLO_WITHIN, NetDue::Probe(link));
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
        if hello.deployment != u64::from(self.identity.deployment.0) {
            return Err(HangUp::OtherDeployment);
        }
        if peer.certified.as_deref().is_some_and(|certified| certified != hello.name) {
            return Err(HangUp::ForgedName);
        }
        if hello.host == self.identity.host {
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
        let of_smaller = (self.identity.host < hello.host) == peer.dialed;
        let stays = hello.incarnation > before.incarnation || known.dialed == peer.dialed || of_smaller;
        if stays { Ok(Some(other)) } else { Err(HangUp::Double) }
    }

    /// Handles a hello: the link is up if it is accepted.
    pub(crate) fn on_hello<'w>(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        hello: Hello<'w>,
        then: &mut Option<Then>,
    ) -> Option<NetEvent<'w>> {
        let other = match self.check_hello(link, &hello) {
            Ok(other) => other,
            Err(why) => {
                self.hang_up(io.now, link, why, io.out);
                return None;
            }
        };
        if let Some(other) = other {
            self.hang_up(io.now, other, HangUp::Double, io.out);
        }
        let ahead = i64::try_from(i128::from(hello.time) - i128::from(io.now.as_nanos())).unwrap_or(i64::MAX);
        self.stats.clocks_apart += u64::from(ahead.unsigned_abs() > CLOCKS_APART.as_nanos() as u64);
        let who = PeerIdentity {
            host: hello.host,
            incarnation: hello.incarnation,
            name: hello.name.into(),
            version: hello.version.into(),
            minor: hello.minor,
            ahead,
        };
        let surcharge_us = self.config.surcharges.get(&who.name).copied().unwrap_or(0);
        self.peers.bring_up(link, who);
        if let Some(peer) = self.peers.get_mut(link) {
            peer.surcharge_us = surcharge_us;
        }
        self.stats.links_up += 1;
        self.announce_soon(io.now);
        let was_known = self.topology.get(hello.host).is_some();
        *then = Some(Then::Compare(link));
        Some(NetEvent::LinkUp { link, hello, was_known })
    }

    /// Repeats the own link state if it is old, asks for wanted links, and compares the replicated
    /// maps with all neighbours.
    pub(crate) fn refresh(&mut self, io: &mut Io<'_>) {
        self.timers.set(io.now + REFRESH_EVERY, NetDue::Refresh);
        if io.now.since(self.announced) >= crate::topology::REFRESH_EVERY {
            self.announce_soon(io.now);
        }
        let wanted = self.config.links_wanted.saturating_sub(self.peers.len());
        let mut asked = 0;
        for state in self.topology.states() {
            if asked >= wanted {
                break;
            }
            let is_linked = state.host == self.identity.host || self.peers.to(state.host).is_some();
            // Either end may dial, and of two links one is closed; if one end cannot reach the
            // other, the other may.
            if !is_linked && let Some(address) = state.addresses.first() {
                io.out.peer_dial(&state.name, address);
                asked += 1;
            }
        }
        for link in self.peers.links_up() {
            self.compare_maps(io, link);
        }
    }
}
