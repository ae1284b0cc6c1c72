//! Link states and interests reach every broker by flooding: each broker passes on what is new to
//! it. Only the newest state of each host counts, so the backlog of a neighbour is a set of hosts,
//! and a slow link gets fewer updates instead of ever later ones.

#[cfg(test)]
mod tests;

use core::time::Duration;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{Ask, Digest, Frame, InterestEntry, InterestUpdate, Protocol, SURCHARGES_MAX};

use crate::dispatch::Then;
use crate::due::NetDue;
use crate::event::NetEvent;
use crate::interest::others::{InterestOutcome, InterestValue};
use crate::interest::own::EVERY_BROKER;
use crate::io::{Io, LinkOutput};
use crate::link::peers::{Peer, PeerBacklog};
use crate::link::queue::FrameClass;
use crate::pace::ANNOUNCE_EVERY;
use crate::topology::{Learned, LinkState, Neighbour};
use crate::{Channel, Net, PeerLink};

/// Most entries of one digest frame.
const DIGEST_ENTRIES: usize = 1_024;

fn wire_entry<'a>((id, entry): (&u32, &'a InterestValue)) -> InterestEntry<'a> {
    InterestEntry { id: *id, filter: &entry.filter, selector: entry.selector.as_deref(), durable: entry.durable }
}

impl Net {
    /// Schedules an announcement of the own link state, [`ANNOUNCE_EVERY`] after the last one at
    /// the earliest.
    pub fn announce_soon(&mut self, now: Time) {
        self.timers.set_once(now.max(self.announced + ANNOUNCE_EVERY), NetDue::Announce);
    }

    fn own_state(&self) -> LinkState {
        let neighbour = |peer: &Peer| {
            let (delay_us, loss) = peer.announced();
            let host = peer.host().expect("the link is up");
            Neighbour { host, port: peer.port, delay_us, loss, surcharge_us: peer.surcharge_us }
        };
        let mut neighbours: Vec<Neighbour> = self.peers.up().map(neighbour).collect();
        // Links may have one name until link states tell who has it, and a frame has room for few.
        let metered = neighbours.iter_mut().filter(|end| end.surcharge_us > 0);
        metered.skip(SURCHARGES_MAX).for_each(|end| end.surcharge_us = 0);
        LinkState {
            host: self.identity.host,
            incarnation: self.identity.incarnation,
            sequence: self.sequence,
            name: self.config.name.clone(),
            reliable: self.identity.reliable,
            further: self.identity.further,
            birth: self.identity.birth,
            addresses: self.config.addresses.clone(),
            neighbours,
            previous: self.previous.clone(),
            domains: self.config.domains.clone(),
            protocol: Protocol::OWN,
            later: Box::default(),
        }
    }

    /// Encodes the interest of a broker as a frame: only the change if the other end has its base.
    fn put_interest(&self, now: Time, host: HostId, has: Option<(u64, u64)>, frame: &mut Vec<u8>) {
        let Some(known) = self.interests.of.get(&host) else { return };
        let delta = known.delta.as_ref().filter(|delta| has == Some((known.incarnation, delta.base)));
        let (base, removed, added) = match delta {
            Some(delta) => {
                let added = delta.added.iter().map(|(id, entry)| wire_entry((id, entry))).collect();
                (Some(delta.base), delta.removed.clone(), added)
            }
            None => (None, Vec::new(), known.entries.iter().map(wire_entry).collect()),
        };
        let (incarnation, version) = (known.incarnation, known.version);
        let age = if host == self.identity.host { self.own_interest.age(now) } else { known.age_at(now) };
        let age_ms = age.as_millis() as u64;
        Frame::Interest(InterestUpdate { host, incarnation, version, base, removed, added, age_ms }).encode(frame);
    }

    /// Changes the backlog of all neighbours, except one.
    pub(crate) fn record_for_all(&mut self, but: Option<PeerLink>, note: impl Fn(&mut PeerBacklog)) {
        for link in self.peers.links_up() {
            if Some(link) != but {
                note(&mut self.peers.get_mut(link).expect("it is up").pending);
            }
        }
    }

    /// Takes the next part of a neighbour's backlog and encodes it. Returns whether there was one;
    /// the frame stays empty if the neighbour has it already.
    fn put_next(&mut self, now: Time, link: PeerLink, frame: &mut Vec<u8>) -> bool {
        let own = self.identity.host;
        let Some(peer) = self.peers.get_mut(link) else { return false };
        if peer.who.is_none() || !peer.has_room(Channel::Control) {
            return false;
        }
        let pending = &mut peer.pending;
        if pending.states.remove(&own) {
            self.topology.put_state(now, own, frame);
            return true;
        }
        if !pending.is_compared {
            return false;
        }
        if let Some(host) = pending.states.pop_first() {
            self.topology.put_state(now, host, frame);
            return true;
        }
        if let Some(host) = pending.interests.pop_first() {
            let version = self.interests.version_of(host);
            let peer = self.peers.get_mut(link).expect("it was there");
            let has = peer.pending.has.get(&host).copied();
            if let Some(version) = version.filter(|version| Some(*version) > has) {
                peer.pending.has.insert(host, version);
                self.put_interest(now, host, has, frame);
            }
            return true;
        }
        false
    }

    /// Sends a neighbour as much of its backlog as there is room for.
    pub(crate) fn pump(&mut self, io: &mut Io<'_>, link: PeerLink) {
        let mut frame = core::mem::take(&mut self.traffic.frame);
        loop {
            frame.clear();
            if !self.put_next(io.now, link, &mut frame) {
                break;
            }
            if !frame.is_empty() {
                self.send(io.now, link, FrameClass::Control, &frame, io.out);
            }
        }
        self.traffic.frame = frame;
        for map in 0..io.maps.len() {
            self.pump_map(io, link, map as u8);
        }
    }

    pub(crate) fn pump_all(&mut self, io: &mut Io<'_>) {
        for link in self.peers.links_up() {
            self.pump(io, link);
        }
    }

    /// Announces the own link state.
    pub(crate) fn announce(&mut self, io: &mut Io<'_>) {
        self.sequence += 1;
        self.announced = io.now;
        let state = self.own_state();
        if self.topology.announce(io.now, state).is_err() {
            // The name is held by another broker, which was here first. Brokers that are asked for
            // a link refuse it for that reason, too.
            self.stats.names_refused += 1;
            return;
        }
        let host = self.identity.host;
        self.record_for_all(None, |pending| {
            pending.states.insert(host);
        });
        self.pump_all(io);
    }

    /// Sends the digest of link states and interests when a link has come up. Both ends do so; then
    /// each knows what the other lacks.
    pub(crate) fn compare(&mut self, io: &mut Io<'_>, link: PeerLink) {
        let states: Vec<_> = self.topology.digest().collect();
        let interests: Vec<_> =
            self.interests.of.iter().map(|(host, known)| (*host, known.incarnation, known.version)).collect();
        let parts = states.len().max(interests.len()).div_ceil(DIGEST_ENTRIES).max(1);
        let part = |list: &[(HostId, u64, u64)], number: usize| {
            list.chunks(DIGEST_ENTRIES).nth(number).map_or(Vec::new(), <[_]>::to_vec)
        };
        // The composition may have hung it up.
        let Some(peer) = self.peers.get_mut(link) else { return };
        peer.pending.states = states.iter().map(|(host, ..)| *host).collect();
        peer.pending.interests = interests.iter().map(|(host, ..)| *host).collect();
        for number in 0..parts {
            let digest = Digest {
                link_states: part(&states, number),
                interests: part(&interests, number),
                more: number + 1 < parts,
            };
            let mut frame = Vec::new();
            Frame::Digest(digest).encode(&mut frame);
            self.send(io.now, link, FrameClass::Control, &frame, io.out);
        }
    }

    /// Handles a neighbour's digest.
    pub(crate) fn on_digest(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        digest: &Digest,
        then: &mut Option<Then>,
    ) -> Option<NetEvent<'static>> {
        let Net { peers, topology, .. } = self;
        let peer = peers.get_mut(link)?;
        for (host, incarnation, sequence) in &digest.link_states {
            let known = topology.get(*host).map(|state| (state.incarnation, state.sequence));
            if known <= Some((*incarnation, *sequence)) {
                peer.pending.states.remove(host);
            }
        }
        for (host, incarnation, version) in &digest.interests {
            peer.pending.has.insert(*host, (*incarnation, *version));
        }
        peer.pending.is_compared |= !digest.more;
        let known = |host: &HostId| *host == self.identity.host || self.topology.get(*host).is_some();
        let lacking: Vec<HostId> =
            digest.link_states.iter().map(|(host, ..)| *host).filter(|host| !known(host)).collect();
        self.joining.compared(lacking, !digest.more);
        if self.check_joined(io.now) {
            // What the composition does then precedes the answer on the same stream.
            *then = Some(Then::Answer(link));
            return Some(NetEvent::Joined);
        }
        self.answer_digest(io, link);
        None
    }

    /// Tells a neighbour that has sent its digest what it lacks.
    pub(crate) fn answer_digest(&mut self, io: &mut Io<'_>, link: PeerLink) {
        self.pump(io, link);
        self.compare_maps(io, link);
    }

    /// Handles a neighbour's request for interests and link states that it lacks.
    pub(crate) fn on_ask(&mut self, io: &mut Io<'_>, link: PeerLink, ask: &Ask) -> Option<NetEvent<'static>> {
        let peer = self.peers.get_mut(link)?;
        for host in &ask.interests {
            peer.pending.has.remove(host);
            peer.pending.interests.insert(*host);
        }
        peer.pending.states.extend(&ask.link_states);
        self.pump(io, link);
        None
    }

    /// Asks a neighbour for the whole interest of a broker.
    pub fn ask_for_interest(&mut self, now: Time, link: PeerLink, host: HostId, out: &mut dyn LinkOutput) {
        let mut frame = Vec::new();
        Frame::Ask(Ask { interests: vec![host], link_states: Vec::new() }).encode(&mut frame);
        self.send(now, link, FrameClass::Control, &frame, out);
    }

    /// Learns a link state that a neighbour has sent.
    pub(crate) fn learn(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        state: LinkState,
        age: Duration,
        then: &mut Option<Then>,
    ) -> Option<NetEvent<'static>> {
        let host = state.host;
        let was_known = self.topology.get(host).is_some();
        let mut is_outbid = false;
        match self.topology.learn(io.now, state, age) {
            Learned::New => {
                self.stats.states_learned += 1;
                self.record_for_all(Some(link), |pending| {
                    pending.states.insert(host);
                });
                self.watch_expiry();
                *then = Some(Then::Tell(host));
                return Some(NetEvent::BrokerKnown { host, was_known });
            }
            Learned::Old => {
                if let Some(peer) = self.peers.get_mut(link) {
                    peer.pending.states.insert(host);
                }
                self.pump(io, link);
            }
            Learned::Same => {}
            Learned::Outbid { incarnation, .. } if incarnation > self.identity.incarnation => {
                self.stats.outbid += 1;
                is_outbid = self.greater.record(incarnation);
            }
            Learned::Outbid { incarnation, sequence } => {
                self.stats.outbid += 1;
                // Of this incarnation, or of one before it that was heard of first.
                if incarnation == self.identity.incarnation {
                    self.sequence = self.sequence.max(sequence);
                }
                self.announce_soon(io.now);
            }
            Learned::Refused(_) => self.stats.states_refused += 1,
        }
        self.joining.on_link_state(host);
        if is_outbid {
            return Some(NetEvent::Outbid);
        }
        self.check_joined(io.now).then_some(NetEvent::Joined)
    }

    /// Goes on as an incarnation after the greatest that others have heard of, if that is at most
    /// `upto`; else returns that one, see [`NetEvent::Outbid`].
    pub fn outbid(&mut self, now: Time, upto: u64) -> Option<u64> {
        let greater = self.greater.take_upto(upto);
        if let Some(greater) = greater {
            begin_anew(self, now, greater);
        }
        self.greater.get()
    }

    /// Handles an interest.
    pub(crate) fn on_interest(
        &mut self,
        io: &mut Io<'_>,
        link: PeerLink,
        update: &InterestUpdate<'_>,
        then: &mut Option<Then>,
    ) -> Option<NetEvent<'static>> {
        let host = update.host;
        if host == self.identity.host {
            // Told by another broker with the same data, whose link state perhaps went nowhere: no
            // broker would take an interest of this one.
            let own = (self.identity.incarnation, self.own_interest.version());
            let is_greater = (update.incarnation, update.version) > own;
            self.stats.outbid += u64::from(is_greater);
            return (is_greater && self.greater.record(update.incarnation)).then_some(NetEvent::Outbid);
        }
        if self.topology.get(host).is_none() {
            // Without a link state the interest would never be forgotten. The link state precedes
            // it on the same path.
            self.stats.interests_refused += 1;
            return None;
        }
        let peer = self.peers.get_mut(link)?;
        let has = peer.pending.has.entry(host).or_default();
        *has = (*has).max((update.incarnation, update.version));
        // The age in the update does not include the transit over this link, which varies. Its
        // upper bound is added: an interest may pass for older than it is, as earlier events do no
        // harm, but not for younger.
        let way = peer.way_at_most(io.now);
        match self.interests.take(io.now, way, update) {
            InterestOutcome::News => {
                self.interests.recent.record(io.now, EVERY_BROKER * self.topology.len() as u32);
                self.stats.interests_learned += 1;
                if !fault!(self, InterestStays) {
                    self.record_for_all(Some(link), |pending| {
                        pending.interests.insert(host);
                    });
                }
                *then = Some(Then::TellAll);
                return Some(NetEvent::InterestChanged { host });
            }
            InterestOutcome::Known => {}
            InterestOutcome::TooMany => self.stats.interests_refused += 1,
            InterestOutcome::Lacking => self.ask_for_interest(io.now, link, host, io.out),
        }
        None
    }

    /// Announces the own interest to all neighbours, if it has changed. Returns whether it has.
    pub fn tell_interest(&mut self, io: &mut Io<'_>) -> bool {
        let Some(delta) = self.own_interest.renew(io.now, self.config.interest_max) else { return false };
        self.stats.interest_versions += 1;
        let (host, version) = (self.identity.host, self.own_interest.version());
        self.interests.set_own(host, self.identity.incarnation, version, delta);
        self.record_for_all(None, |pending| {
            pending.interests.insert(host);
        });
        self.pump_all(io);
        true
    }

    /// Schedules an announcement of the own interest, as soon as versions may follow each other.
    pub fn tell_interest_soon(&mut self, now: Time) {
        if !self.timers.has(NetDue::Interest) {
            let at = self.own_interest.next_version_at(now, self.topology.len(), &mut self.interests.recent);
            self.timers.set(at, NetDue::Interest);
        }
    }

    /// Removes the brokers that were not heard of for too long from the topology.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<HostId> {
        let gone: Vec<HostId> = self.topology.expire(now);
        self.stats.brokers_expired += gone.len() as u64;
        self.watch_expiry();
        if !gone.is_empty() {
            self.joining.record_expiry();
        }
        gone
    }

    /// Sets the timer for the next broker that expires.
    pub(crate) fn watch_expiry(&mut self) {
        if let Some(at) = self.topology.next_expiry()
            && !self.timers.has(NetDue::Expire)
        {
            self.timers.set(at, NetDue::Expire);
        }
    }

    /// Removes all that is known of a broker.
    pub fn forget(&mut self, host: HostId) {
        self.topology.forget(host);
        self.interests.of.remove(&host);
        self.record_for_all(None, |pending| {
            pending.states.remove(&host);
            pending.interests.remove(&host);
            pending.has.remove(&host);
        });
    }
}

/// Goes on as an incarnation after this one. What other brokers adopted from this process is
/// void then.
fn begin_anew(net: &mut Net, now: Time, incarnation: u64) {
    net.identity.incarnation = incarnation.saturating_add(1);
    net.sequence = 0;
    let delta = net.own_interest.restart(net.identity.incarnation);
    let version = net.own_interest.version();
    let host = net.identity.host;
    net.interests.set_own(host, net.identity.incarnation, version, delta);
    net.record_for_all(None, |pending| {
        pending.interests.insert(host);
    });
    net.announce_soon(now);
}
