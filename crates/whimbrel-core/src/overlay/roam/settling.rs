//! A session that was given away, or belongs to another broker by now, stays until it is safe
//! there: until the streams that it stands in have told the interest there to be in force, a
//! replica has a copy, and it is durable there. The broker that keeps it asks again and again.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Claim, ClaimKind, SessionClaims};

use super::{Due, GivenSession, KnownClaim, Want, hash_of, turn};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::overlay::Sender;
use crate::route::NO_CURSOR;
use crate::subscription::has_confirmed;

/// How often it is asked whether sessions that were given away are safe.
pub const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Number of questions in vain after which the clerk is asked as well, which may know of another
/// owner.
const ASK_CLERK_AFTER: u32 = 3;

/// Sessions of which one message asks.
const SETTLE_PAGE: usize = 128;

/// Sessions of which is asked at a time, of those that were given away, of those of which there is
/// a void copy, and of those of each broker that has ended; the others have their turn later.
pub(super) const SETTLE_MAX: usize = 4096;

/// Behind whom the next turn begins, after one in which so many were asked of: from the beginning,
/// if those were all.
pub(super) fn next_turn(asked: usize, last: Option<&str>) -> Box<str> {
    last.filter(|_| asked >= SETTLE_MAX).unwrap_or_default().into()
}

impl Overlay {
    /// Whether a client's session is being sought here.
    fn is_sought(&self, client: &str) -> bool {
        self.roam.searches.of_client(client).is_some()
    }
}

impl Broker {
    /// Asks whether what was given away is safe.
    pub(in crate::overlay) fn ask_settled(&mut self, now: Time, out: &mut dyn Output) {
        self.tell_taken(now, out);
        self.tell_voided(now, out);
        let taken = self.unsafe_taken().into_iter();
        let mut asked: Vec<_> = taken.map(|(client, has_it)| (client, ASK_CLERK_AFTER, Some(has_it))).collect();
        let overlay = &mut self.overlay;
        let (host, roam) = (overlay.net.host(), &mut overlay.roam);
        let given: Vec<Box<str>> =
            turn(&roam.given, &roam.turns.given).map(|(client, _)| client.clone()).take(SETTLE_MAX).collect();
        roam.turns.given = next_turn(given.len(), given.last().map(|client| &**client));
        for client in given {
            let times = roam.given.get_mut(&client).expect("it was just found");
            *times = times.saturating_add(1);
            asked.push((client, *times, None));
        }
        let void = roam.copies.void_ones(&roam.turns.void, SETTLE_MAX);
        roam.turns.void = next_turn(void.len(), void.last().map(|client| &**client));
        asked.extend(void.into_iter().map(|client| (client, ASK_CLERK_AFTER, None)));
        if asked.is_empty() {
            return;
        }
        overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        let map = overlay.roam.map.clone();
        let mut of_host: BTreeMap<HostId, Vec<(Box<str>, KnownClaim)>> = BTreeMap::new();
        for (client, times, has_it) in asked {
            let Some((to, epoch)) = has_it.or_else(|| self.given_to(&client)) else { continue };
            let known = KnownClaim { host: to, kind: ClaimKind::Given, epoch, version: 0, connected_at: 0 };
            let clerk = map.clerk(hash_of(&client)).map(|(clerk, _)| clerk);
            let clerk = clerk.filter(|clerk| times >= ASK_CLERK_AFTER && *clerk != to);
            for whom in [Some(to), clerk].into_iter().flatten().filter(|whom| map.has(*whom)) {
                of_host.entry(whom).or_default().push((client.clone(), known));
            }
        }
        for (whom, all) in of_host {
            for all in all.chunks(SETTLE_PAGE) {
                let claims: Vec<Claim<'_>> = all.iter().map(|(client, known)| known.claim(client)).collect();
                if whom == host {
                    let from = Sender { host, incarnation: 0 };
                    self.on_settle(now, from, &claims, out);
                    continue;
                }
                self.send_to(now, whom, (&BrokerMessage::Settle(SessionClaims { claims }), false), out);
            }
        }
    }

    /// To whom what is here of a client's session belongs by now, and under which epoch.
    fn given_to(&self, client: &str) -> Option<(HostId, u64)> {
        let session = self.sessions.find(client).map(|index| self.sessions.get(index));
        let place = session.and_then(|session| session.memory.roam.as_deref());
        if let Some(given) = place.and_then(|place| place.given.as_deref()) {
            return Some((given.to, given.epoch));
        }
        if !self.overlay.is_open() {
            return None;
        }
        self.overlay.roam.copies.get(client)?.void
    }

    /// Another broker asks whether sessions are safe here.
    pub(in crate::overlay) fn on_settle(&mut self, now: Time, from: Sender, asked: &[Claim<'_>], out: &mut dyn Output) {
        let (mut settled, mut outdated) = (Vec::new(), Vec::new());
        for claim in asked {
            match self.is_safe(claim) {
                Ok(true) => settled.push(*claim),
                Ok(false) => {}
                Err(newer) => outdated.push(newer.claim(claim.client)),
            }
        }
        if self.overlay.net.host() == from.host {
            self.on_settled(now, &settled, out);
            return self.on_outdated(now, &outdated, out);
        }
        if !settled.is_empty() {
            self.send_to(now, from.host, (&BrokerMessage::Settled(SessionClaims { claims: settled }), false), out);
        }
        if !outdated.is_empty() {
            self.send_to(now, from.host, (&BrokerMessage::Outdated(SessionClaims { claims: outdated }), false), out);
        }
    }

    /// Whether a session of at least that epoch is safe.
    ///
    /// # Errors
    /// Another broker has it by now.
    fn is_safe(&self, claim: &Claim<'_>) -> Result<bool, KnownClaim> {
        if !self.overlay.is_open() {
            return Ok(false);
        }
        let overlay = &self.overlay;
        let host = overlay.net.host();
        if let Some(index) = self.sessions.find(claim.client)
            && let Some(place) = self.sessions.get(index).memory.roam.as_deref()
        {
            if let Some(given) = place.given.as_deref() {
                let newer = KnownClaim {
                    host: given.to,
                    kind: ClaimKind::Owner,
                    epoch: given.epoch,
                    version: 0,
                    connected_at: 0,
                };
                return if given.epoch > claim.epoch { Err(newer) } else { Ok(false) };
            }
            if place.epoch >= claim.epoch {
                return Ok(self.is_settled(index));
            }
        }
        if overlay.roam.ended.get(claim.client).is_some_and(|ended| ended.epoch >= claim.epoch) {
            return Ok(true);
        }
        let known = overlay.roam.directory.of(claim.client).iter().filter(|known| known.host != host);
        let has_ended = |known: &KnownClaim| known.kind == ClaimKind::Ended && known.epoch >= claim.epoch;
        if known.clone().any(has_ended) {
            return Ok(true);
        }
        let newest = known.filter(|known| known.is_owner()).max_by_key(|known| known.order());
        match newest
            .filter(|newest| newest.epoch > claim.epoch || newest.host != claim.host && newest.epoch == claim.epoch)
        {
            Some(newest) => Err(*newest),
            None => Ok(false),
        }
    }

    /// Whether nothing of a session that has come here would be missed where it came from: it is
    /// durable here, every broker whose streams it stands in, reachable or not, has told the
    /// interest to be in force that has it, and a replica has the whole. A copy alone is not
    /// enough: if this broker is started again without the session, it no longer announces its
    /// interest, and nothing is logged for it until the copy is used.
    pub(crate) fn is_settled(&self, index: u32) -> bool {
        if fault!(self, SettledAtOnce) {
            return true;
        }
        let (session, overlay) = (self.sessions.get(index), &self.overlay);
        if !overlay.is_open() {
            return true;
        }
        let Some(place) = session.memory.roam.as_deref() else { return false };
        let is_durable = place.written <= self.store.commit_queue.committed();
        if self.has_log() && !is_durable {
            return false;
        }
        // What its client will resume is logged for the session that it had elsewhere.
        if place.awaits_resumption() {
            return false;
        }
        let replica = self.ranked_replica(index);
        if session.is_persistent() && replica.is_some() && place.replica().is_none() {
            return false;
        }
        let Some(version) = place.settling else { return true };
        if version == 0 {
            return false;
        }
        // Of a session that was restored: a grant may be for the interest of the process before.
        let version = version.max(overlay.net.own_interest().began());
        let cursors = session.subscriptions.iter().map(|id| self.router.get(*id).cursor);
        let durable = cursors.filter(|cursor| *cursor != NO_CURSOR).filter_map(|cursor| self.cursors.durable(cursor));
        let mut hosts: Vec<HostId> = durable
            .flat_map(|durable| durable.remote.since.iter().map(|(pubend, _)| pubend.host()))
            .chain(overlay.roam.map.hosts())
            .filter(|host| *host != overlay.net.host() && !self.streams.has_ended(*host))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let has_durable = session.subscriptions.iter().any(|id| self.router.get(*id).spec.is_durable());
        let is_in_force = |host: HostId| {
            let claims = &overlay.logs.received;
            let is_granted = claims.is_granted(host, version) && claims.is_held(host, place.came);
            has_confirmed(&self.streams, host, version) && (!has_durable || is_granted)
        };
        hosts.into_iter().all(is_in_force)
    }

    /// The own interest has a version that has all sessions which have come.
    pub(crate) fn name_roaming(&mut self, version: u64) {
        for client in core::mem::take(&mut self.overlay.roam.unnamed) {
            let Some(index) = self.sessions.find(&client) else { continue };
            if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                place.settling = place.settling.map(|known| if known == 0 { version } else { known });
            }
        }
    }

    /// Sessions that were given away are safe: they go.
    pub(in crate::overlay) fn on_settled(&mut self, now: Time, settled: &[Claim<'_>], out: &mut dyn Output) {
        for claim in settled {
            self.record_taken_over(claim);
            // Only what went exactly then: it may have come back, and gone again.
            let Some((_, epoch)) = self.given_to(claim.client).filter(|(_, epoch)| *epoch == claim.epoch) else {
                continue;
            };
            let found = self.sessions.find(claim.client);
            let is_it = |index: &u32| {
                let place = self.sessions.get(*index).memory.roam.as_deref();
                place.and_then(|place| place.given.as_deref()).is_some_and(|given| given.epoch == epoch)
            };
            if let Some(index) = found.filter(is_it) {
                // Its client is coming back: what it has acknowledged here counts for what comes.
                if !self.overlay.is_sought(claim.client) {
                    self.discard(now, index, out);
                }
                continue;
            }
            self.overlay.roam.copies.remove(claim.client);
            self.record_claim(now, claim.client);
        }
    }

    /// Other brokers have sessions by now: what is here of them is delivered no more, and it goes
    /// when it is safe there.
    pub(in crate::overlay) fn on_outdated(&mut self, now: Time, newer: &[Claim<'_>], out: &mut dyn Output) {
        let newer = if fault!(self, NewerIgnored) { &[] } else { newer };
        for claim in newer {
            let known = KnownClaim::of(claim);
            let overlay = &mut self.overlay;
            let host = overlay.net.host();
            if claim.host != host {
                overlay.roam.takeover.record_elsewhere(claim.client, (claim.host, claim.epoch));
            }
            if let Some(copy) = overlay.roam.copies.get_mut(claim.client)
                && (copy.epoch < claim.epoch || copy.epoch == claim.epoch && claim.kind == ClaimKind::Ended)
                && claim.host != host
            {
                copy.void = Some((claim.host, claim.epoch));
                overlay.set_once(now + SETTLE_EVERY, Due::Settle);
            }
            let Some(index) = self.sessions.find(claim.client) else { continue };
            let Some(place) = self.sessions.get(index).memory.roam.as_deref() else { continue };
            let own = KnownClaim {
                host,
                kind: ClaimKind::Owner,
                epoch: place.epoch,
                version: 0,
                connected_at: place.connected_at,
            };
            let is_given_since = place.given.as_deref().is_some_and(|given| given.epoch >= claim.epoch);
            if own.order() >= known.order() || claim.host == host || is_given_since {
                continue;
            }
            if self.waits_for_client(now, claim.client, || Want::outdated(claim.client, known), out) {
                continue;
            }
            self.overlay.stats.sessions_outdated += 1;
            self.let_go_of_client(now, index, out);
            // It may have ended with its connection.
            let Some(index) = self.sessions.find(claim.client) else { continue };
            if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                let (to, epoch) = (claim.host, claim.epoch);
                let since = place.given.as_deref().map_or(now, |given| given.since);
                place.given = Some(Box::new(GivenSession::unasked(now, (to, epoch), since)));
            }
            self.record_place(now, index);
        }
    }
}
