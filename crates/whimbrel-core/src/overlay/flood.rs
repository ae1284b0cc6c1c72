//! Link states and interests reach every broker by flooding: each broker passes on what is new to
//! it. Only the newest state of each host counts, so the backlog of a neighbour is a set of hosts,
//! and a slow link gets fewer updates instead of ever later ones.

use core::time::Duration;

use whimbrel_event::{HostId, Time};
use whimbrel_net::interest::others::{Delta, InterestOutcome, InterestValue};
use whimbrel_net::interest::own::EVERY_BROKER;
use whimbrel_net::link::peers::{CONTROL_HIGH, PeerBacklog};
use whimbrel_net::topology::{Learned, LinkState, Neighbour};
use whimbrel_net::{Channel, PeerLink};
use whimbrel_wire::{
    Ask, Digest, Frame, InterestEntry, InterestUpdate, LinkEnd as WireNeighbour, PreviousIdentity, Protocol,
};

use super::Due;
use super::net::Net;
use crate::api::Output;
use crate::broker::Broker;
use crate::stream::Streams;

/// Least time between two announcements of the own link state.
pub const ANNOUNCE_EVERY: Duration = Duration::from_millis(100);

/// The delay that is announced for a link before its first probe has come back, microseconds.
const DELAY_UNKNOWN_US: u32 = 1_000;

/// Most entries of one digest frame.
const DIGEST_ENTRIES: usize = 1_024;

fn wire_entry<'a>((id, entry): (&u32, &'a InterestValue)) -> InterestEntry<'a> {
    InterestEntry { id: *id, filter: &entry.filter, selector: entry.selector.as_deref(), durable: entry.durable }
}

impl Net {
    /// Schedules an announcement of the own link state, [`ANNOUNCE_EVERY`] after the last one at
    /// the earliest.
    pub(super) fn announce_soon(&mut self, now: Time) {
        if self.timers.first_of(Due::Announce).is_none() {
            self.set_timer(now.max(self.announced + ANNOUNCE_EVERY), Due::Announce);
        }
    }

    fn own_state(&self, retired: &[PreviousIdentity]) -> LinkState {
        // The values told before, unless they have changed much: each change makes every broker
        // compute its paths anew.
        let neighbour = |peer: &super::Peer| {
            let (delay_us, loss) = peer.estimate.told().unwrap_or((DELAY_UNKNOWN_US, 0));
            Neighbour { host: peer.host().expect("the link is up"), port: peer.port, delay_us, loss }
        };
        LinkState {
            host: self.host,
            incarnation: self.incarnation,
            sequence: self.sequence,
            name: self.config.name.clone(),
            reliable: Streams::RELIABLE,
            best_effort: Streams::BEST_EFFORT,
            birth: self.own_interest.birth,
            addresses: self.config.addresses.clone(),
            neighbours: self.peers.up().map(neighbour).collect(),
            previous: self.told_previous(retired),
            protocol: Protocol::OWN,
            later: Box::default(),
        }
    }

    /// Encodes the link state of a broker as a frame.
    fn put_state(&self, now: Time, host: HostId, frame: &mut Vec<u8>) {
        let Some(state) = self.topology.get(host) else { return };
        let age = self.topology.age(now, host).unwrap_or_default();
        let neighbour =
            |end: &Neighbour| WireNeighbour { host: end.host, port: end.port, delay_us: end.delay_us, loss: end.loss };
        let state = whimbrel_wire::LinkStateFrame {
            host,
            incarnation: state.incarnation,
            sequence: state.sequence,
            name: &state.name,
            reliable: state.reliable,
            best_effort: state.best_effort,
            birth: state.birth,
            age_ms: u32::try_from(age.as_millis()).unwrap_or(u32::MAX),
            addresses: state.addresses.iter().map(|address| &**address).collect(),
            neighbours: state.neighbours.iter().map(neighbour).collect(),
            previous: state.previous.clone(),
            protocol: state.protocol,
            later: &state.later,
        };
        Frame::LinkState(state).encode(frame);
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
        let age = if host == self.host { self.own_interest.age(now) } else { known.age_at(now) };
        let age_ms = age.as_millis() as u64;
        Frame::Interest(InterestUpdate { host, incarnation, version, base, removed, added, age_ms }).encode(frame);
    }

    /// Changes the backlog of all neighbours, except one.
    pub(super) fn record_for_all(&mut self, but: Option<PeerLink>, note: impl Fn(&mut PeerBacklog)) {
        for link in self.peers.links_up() {
            if Some(link) != but {
                note(&mut self.peers.get_mut(link).expect("it is up").pending);
            }
        }
    }

    /// Takes the next part of a neighbour's backlog and encodes it. Returns whether there was one;
    /// the frame stays empty if the neighbour has it already.
    fn put_next(&mut self, now: Time, link: PeerLink, frame: &mut Vec<u8>) -> bool {
        let own = self.host;
        let Some(peer) = self.peers.get_mut(link) else { return false };
        if peer.who.is_none() || peer.unsent[Channel::Control as usize] >= CONTROL_HIGH {
            return false;
        }
        let pending = &mut peer.pending;
        if pending.states.remove(&own) {
            self.put_state(now, own, frame);
            return true;
        }
        if !pending.is_compared {
            return false;
        }
        if let Some(host) = pending.states.pop_first() {
            self.put_state(now, host, frame);
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
}

impl Broker {
    /// Sends a neighbour as much of its backlog as there is room for.
    pub(super) fn pump(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let mut frame = core::mem::take(&mut overlay.net.traffic.frame);
        loop {
            frame.clear();
            if !overlay.net.put_next(now, link, &mut frame) {
                break;
            }
            if !frame.is_empty() {
                overlay.net.send(now, link, Channel::Control, &frame, out);
            }
        }
        overlay.net.traffic.frame = frame;
        self.pump_retained(now, link, out);
    }

    fn pump_all(&mut self, now: Time, out: &mut dyn Output) {
        let links = self.overlay.as_ref().map_or(Vec::new(), |overlay| overlay.net.peers.links_up());
        for link in links {
            self.pump(now, link, out);
        }
    }

    /// Announces the own link state.
    pub(super) fn announce_links(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        overlay.net.sequence += 1;
        overlay.net.announced = now;
        let state = overlay.net.own_state(&self.store.holds_given.retired);
        if overlay.net.topology.announce(now, state).is_err() {
            // The name is held by another broker, which was here first. Brokers that are asked for
            // a link refuse it for that reason, too.
            overlay.net.stats.names_refused += 1;
            return;
        }
        let host = overlay.net.host;
        overlay.net.record_for_all(None, |pending| {
            pending.states.insert(host);
        });
        self.pump_all(now, out);
    }

    /// Sends the digest of link states and interests when a link has come up. Both ends do so; then
    /// each knows what the other lacks.
    pub(super) fn compare(&mut self, now: Time, link: PeerLink, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let states: Vec<_> = overlay.net.topology.digest().collect();
        let interests: Vec<_> =
            overlay.net.interests.of.iter().map(|(host, known)| (*host, known.incarnation, known.version)).collect();
        let parts = states.len().max(interests.len()).div_ceil(DIGEST_ENTRIES).max(1);
        let part = |list: &[(HostId, u64, u64)], number: usize| {
            list.chunks(DIGEST_ENTRIES).nth(number).map_or(Vec::new(), <[_]>::to_vec)
        };
        let peer = overlay.net.peers.get_mut(link).expect("it is up");
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
            overlay.net.send(now, link, Channel::Control, &frame, out);
        }
    }

    /// Handles a neighbour's digest.
    pub(super) fn compared(&mut self, now: Time, link: PeerLink, digest: &Digest, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let Net { peers, topology, .. } = &mut overlay.net;
        let Some(peer) = peers.get_mut(link) else { return };
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
        let known = |host: &HostId| *host == overlay.net.host || overlay.net.topology.get(*host).is_some();
        let lacking: Vec<HostId> =
            digest.link_states.iter().map(|(host, ..)| *host).filter(|host| !known(host)).collect();
        let is_last = !digest.more;
        self.check_joining(now, |joining| joining.compared(lacking, is_last), out);
        self.pump(now, link, out);
        self.compare_retained(now, link, out);
    }

    /// Handles a neighbour's request for interests and link states that it lacks.
    pub(super) fn asked(
        &mut self,
        now: Time,
        link: PeerLink,
        (interests, states): (&[HostId], &[HostId]),
        out: &mut dyn Output,
    ) {
        let Some(overlay) = &mut self.overlay else { return };
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        for host in interests {
            peer.pending.has.remove(host);
            peer.pending.interests.insert(*host);
        }
        peer.pending.states.extend(states);
        self.pump(now, link, out);
    }

    /// Handles a link state.
    pub(super) fn on_link_state(
        &mut self,
        now: Time,
        link: PeerLink,
        state: &whimbrel_wire::LinkStateFrame<'_>,
        out: &mut dyn Output,
    ) {
        let neighbour =
            |end: &WireNeighbour| Neighbour { host: end.host, port: end.port, delay_us: end.delay_us, loss: end.loss };
        let host = state.host;
        let learned = LinkState {
            host,
            incarnation: state.incarnation,
            sequence: state.sequence,
            name: state.name.into(),
            reliable: state.reliable,
            best_effort: state.best_effort,
            birth: state.birth,
            addresses: state.addresses.iter().map(|address| Box::from(*address)).collect(),
            neighbours: state.neighbours.iter().map(neighbour).collect(),
            previous: state.previous.clone(),
            protocol: state.protocol,
            later: state.later.into(),
        };
        self.end_namesakes(now, &learned, out);
        let Some(overlay) = &mut self.overlay else { return };
        let was_there = overlay.net.topology.get(host).is_some();
        match overlay.net.topology.learn(now, learned, Duration::from_millis(u64::from(state.age_ms))) {
            Learned::New => {
                overlay.net.stats.states_learned += 1;
                overlay.net.record_for_all(Some(link), |pending| {
                    pending.states.insert(host);
                });
                overlay.net.watch_expiry();
                self.follow_host(
                    now,
                    (host, state.name, was_there),
                    ((state.reliable, state.best_effort), state.birth),
                    out,
                );
                self.pump_all(now, out);
            }
            Learned::Old => {
                if let Some(peer) = overlay.net.peers.get_mut(link) {
                    peer.pending.states.insert(host);
                }
                self.pump(now, link, out);
            }
            Learned::Same => {}
            Learned::Outbid { incarnation, sequence } => self.outbid(now, incarnation, sequence),
            Learned::Refused(_) => overlay.net.stats.states_refused += 1,
        }
        self.check_joining(now, |joining| joining.on_link_state(host), out);
    }

    /// Another broker has a greater link state of this broker than this one has announced: this
    /// broker announces a still greater one.
    fn outbid(&mut self, now: Time, incarnation: u64, sequence: u64) {
        let Some(overlay) = &mut self.overlay else { return };
        overlay.net.stats.outbid += 1;
        if incarnation == overlay.net.incarnation {
            overlay.net.sequence = overlay.net.sequence.max(sequence);
            return overlay.net.announce_soon(now);
        }
        // Caused by a clock that ran ahead, or by another broker with the same data. What other
        // brokers adopted from this process is void then.
        overlay.net.incarnation = incarnation.saturating_add(1);
        overlay.net.sequence = 0;
        let delta = overlay.net.own_interest.restart(overlay.net.incarnation);
        let version = overlay.net.own_interest.version();
        overlay.net.interests.set_own(overlay.net.host, overlay.net.incarnation, version, delta);
        let host = overlay.net.host;
        overlay.net.record_for_all(None, |pending| {
            pending.interests.insert(host);
        });
        overlay.net.announce_soon(now);
    }

    /// Handles an interest.
    pub(super) fn on_interest(&mut self, now: Time, link: PeerLink, update: &InterestUpdate<'_>, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let host = update.host;
        if host == overlay.net.host {
            return;
        }
        if overlay.net.topology.get(host).is_none() {
            // Without a link state the interest would never be forgotten. The link state precedes
            // it on the same path.
            overlay.net.stats.interests_refused += 1;
            return;
        }
        let Some(peer) = overlay.net.peers.get_mut(link) else { return };
        let has = peer.pending.has.entry(host).or_default();
        *has = (*has).max((update.incarnation, update.version));
        // The age in the update does not include the transit over this link, which varies. Its
        // upper bound is added: an interest may pass for older than it is, as earlier events do no
        // harm, but not for younger.
        let way = peer.way_at_most(now);
        match overlay.net.interests.take(now, way, update) {
            InterestOutcome::News => {
                overlay.net.interests.recent.record(now, EVERY_BROKER * overlay.net.topology.len() as u32);
                overlay.net.stats.interests_learned += 1;
                if !fault!(self, InterestStays) {
                    overlay.net.record_for_all(Some(link), |pending| {
                        pending.interests.insert(host);
                    });
                }
                self.adopt(now, host, out);
                self.pump_all(now, out);
            }
            InterestOutcome::Known => {}
            InterestOutcome::Lacking => {
                let mut frame = Vec::new();
                Frame::Ask(Ask { interests: vec![host], link_states: Vec::new() }).encode(&mut frame);
                overlay.net.send(now, link, Channel::Control, &frame, out);
            }
        }
    }

    /// Tells all neighbours that the own interest has changed.
    pub(super) fn flood_own_interest(&mut self, now: Time, delta: Delta, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        let version = overlay.net.own_interest.version();
        overlay.net.interests.set_own(overlay.net.host, overlay.net.incarnation, version, delta);
        let host = overlay.net.host;
        overlay.net.record_for_all(None, |pending| {
            pending.interests.insert(host);
        });
        self.pump_all(now, out);
    }
}

impl Broker {
    /// Collects which subscriptions were added and removed; other brokers are told soon.
    pub(crate) fn collect_own_interest(&mut self, now: Time) {
        let Some(overlay) = &mut self.overlay else { return };
        let changes = self.router.take_changes();
        if changes.is_empty() {
            return;
        }
        for change in changes {
            overlay.net.own_interest.apply(change);
        }
        overlay.net.tell_interest_soon(now);
    }

    /// Announces the own interest, if it has changed.
    pub(super) fn tell_interest(&mut self, now: Time, out: &mut dyn Output) {
        // Subscriptions that were made in this step, and wait for a version that has them, belong
        // to this version.
        self.collect_own_interest(now);
        let Some(overlay) = &mut self.overlay else { return };
        let bound = overlay.net.config.interest_max;
        if let Some(delta) = overlay.net.own_interest.renew(now, bound) {
            overlay.net.stats.interest_versions += 1;
            overlay.report_soon(now);
            self.flood_own_interest(now, delta, out);
        }
        self.name_version(now, out);
    }
}

impl Net {
    pub(crate) fn tell_interest_soon(&mut self, now: Time) {
        if self.timers.first_of(Due::Interest).is_none() {
            let at = self.own_interest.next_version_at(now, self.topology.len(), &mut self.interests.recent);
            self.set_timer(at, Due::Interest);
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{Deployment, Tick};

    use super::*;
    use crate::overlay::OverlayConfig;
    use whimbrel_net::link::peers::{Peer, PeerIdentity};

    const LINK: PeerLink = PeerLink(0);

    /// The delay and loss that are announced after `times` probes that each took `away` to come
    /// back.
    fn told_after(net: &mut Net, away: Duration, times: u32) -> (u32, u16) {
        for _ in 0..times {
            let estimate = &mut net.peers.get_mut(LINK).expect("it is there").estimate;
            let sent = Time::from_nanos(1 << 60);
            let sequence = estimate.sent();
            estimate.echo(sent + away, sequence, sent, Duration::ZERO).expect("it was asked");
            estimate.news();
        }
        let neighbour = net.own_state(&[]).neighbours[0];
        (neighbour.delay_us, neighbour.loss)
    }

    #[test]
    fn a_link_that_is_hardly_slower_is_told_as_it_was() {
        let now = Time::from_nanos(1 << 60);
        let config = OverlayConfig {
            name: "b0".into(),
            version: "".into(),
            addresses: Vec::new(),
            interest_max: 256,
            expects_peers: true,
            links_wanted: 0,
            moves_sessions: false,
        };
        let mut net = Net::new(now, HostId::new(1 << 8), 1, Deployment(1), Tick(0), config);
        net.peers.insert(Peer::new(now, LINK, true, None));
        let who =
            PeerIdentity { host: HostId::new(2 << 8), incarnation: 1, name: "b1".into(), version: "".into(), ahead: 0 };
        net.peers.bring_up(LINK, who);
        let millis = Duration::from_millis;
        assert_eq!(told_after(&mut net, millis(40), 1), (20_000, 0));
        assert_eq!(told_after(&mut net, millis(43), 20), (20_000, 0));
        let (delay, _) = told_after(&mut net, millis(80), 20);
        assert!(delay > 30_000, "{delay} µs");
    }
}
