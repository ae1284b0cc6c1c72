//! What was given away, or belongs to somebody else by now, stays until it is safe there: until the streams that it stands in have told the interest there to
//! be in force, and a deputy has a copy. Whoever has it asks again and again.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{Claim, ClaimKind, Message, Sessions, Took};

use super::seeking::ASK_AGAIN;
use super::{Due, Given, Known, Roam, hash_of};
use crate::api::Output;
use crate::broker::Core;
use crate::overlay::confirm::has_confirmed;
use crate::overlay::letters::Sender;
use crate::route::NO_TRACK;

/// How often it is asked whether sessions that were given away are safe.
pub const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// After so many questions in vain the clerk is asked as well, which may know of somebody else.
const ASK_CLERK_AFTER: u32 = 3;

/// So often others are told that nothing needs to be kept for a broker that has ended: letters may be lost.
const TOOK_TIMES: u32 = 10;

/// Sessions of which one letter asks.
const SETTLE_PAGE: usize = 128;

/// Sessions of which is asked at a time; the others have their turn later.
const SETTLE_MAX: usize = 4096;

/// Sessions of a broker that has ended which are taken over at a time.
const ORPHANS_MAX: usize = 64;

impl Core {
    /// Sessions whose keeper has ended, and of which there are copies here, are sought: perhaps somebody has a later state.
    pub(super) fn seek_orphans(&mut self, now: Time, out: &mut dyn Output) {
        while let Some(overlay) = self.overlay.as_deref_mut()
            && !overlay.roam.orphans.is_empty()
        {
            if overlay.roam.searches.len() >= ORPHANS_MAX {
                return overlay.set_once(now + ASK_AGAIN, Due::Seek);
            }
            if let Some(client) = overlay.roam.orphans.pop_front() {
                self.seek(now, &client, None, out);
            }
        }
    }

    /// Tells others that all is safe which was here of the sessions of a broker that has ended: they need not keep anything for that one.
    fn tell_taken(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut().filter(|overlay| !overlay.roam.taking.is_empty()) else {
            return;
        };
        let host = overlay.host;
        overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        let mut taking = core::mem::take(&mut overlay.roam.taking);
        for one in &mut taking {
            one.clients.retain(|client| !self.is_taken_over(client));
            if !one.clients.is_empty() {
                continue;
            }
            one.told += 1;
            let keeper = one.keeper;
            let others: Vec<HostId> =
                self.overlay.as_deref().map_or(Vec::new(), |overlay| overlay.roam.map.hosts().collect());
            for other in others.into_iter().filter(|other| *other != host) {
                self.write_to(now, other, (&Message::Took(Took { keeper }), false), out);
            }
            self.took(now, keeper, host);
        }
        taking.retain(|one| one.told < TOOK_TIMES);
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.roam.taking.append(&mut taking);
        }
    }

    /// Whether nothing of a client's session is to be done here: it is safe, or so somebody else says who has it. Until that one's own holds are known
    /// to others, what they keep for the broker that has ended is all that is held for it.
    fn is_taken_over(&self, client: &str) -> bool {
        let Some(overlay) = self.overlay.as_deref() else { return true };
        if overlay.roam.searches.of_client(client).is_some()
            || overlay.roam.orphans.iter().any(|other| **other == *client)
        {
            return false;
        }
        let Some(index) = self.sessions.find(client) else { return self.unsafe_elsewhere(client).is_none() };
        let place = self.sessions.get(index).memory.roam.as_deref();
        place.is_none_or(|place| place.given.is_none()) && self.is_settled(index)
    }

    /// Clients whose sessions others have taken over from brokers that have ended, and who have not said that these are safe.
    fn unsafe_taken(&self) -> Vec<(Box<str>, u32)> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let clients = overlay.roam.taking.iter().flat_map(|one| &one.clients);
        let elsewhere = clients.filter(|client| self.unsafe_elsewhere(client).is_some());
        elsewhere.take(SETTLE_MAX).map(|client| (client.clone(), 0)).collect()
    }

    /// Who has a session of which there is a copy here, and under which epoch. That one has not said that it is safe.
    fn unsafe_elsewhere(&self, client: &str) -> Option<(HostId, u64)> {
        let copy = self.overlay.as_deref()?.roam.copies.get(client)?;
        let has_it = copy.void.unwrap_or((copy.keeper, copy.epoch));
        Some(has_it).filter(|(host, _)| !self.streams.has_ended(*host))
    }

    /// Asks whether what was given away is safe.
    pub(in crate::overlay) fn ask_settled(&mut self, now: Time, out: &mut dyn Output) {
        self.tell_taken(now, out);
        self.tell_voided(now, out);
        let mut asked = self.unsafe_taken();
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let (host, roam) = (overlay.host, &mut overlay.roam);
        for (client, times) in roam.given.iter_mut().take(SETTLE_MAX) {
            *times = times.saturating_add(1);
            asked.push((client.clone(), *times));
        }
        for client in roam.copies.void_ones(SETTLE_MAX) {
            asked.push((client, ASK_CLERK_AFTER));
        }
        if asked.is_empty() {
            return;
        }
        overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        let map = overlay.roam.map.clone();
        let mut of_host: BTreeMap<HostId, Vec<(Box<str>, Known)>> = BTreeMap::new();
        for (client, times) in asked {
            let has_it = self.given_to(&client).or_else(|| self.unsafe_elsewhere(&client));
            let Some((to, epoch)) = has_it else { continue };
            let known = Known { host: to, kind: ClaimKind::Given, epoch, version: 0, moment: 0 };
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
                    self.settle_came(now, from, &claims, out);
                    continue;
                }
                self.write_to(now, whom, (&Message::Settle(Sessions { claims }), false), out);
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
        let overlay = self.overlay.as_deref()?;
        overlay.roam.copies.get(client)?.void
    }

    /// Somebody asks whether sessions are safe here.
    pub(super) fn settle_came(&mut self, now: Time, from: Sender, asked: &[Claim<'_>], out: &mut dyn Output) {
        let (mut settled, mut outdated) = (Vec::new(), Vec::new());
        for claim in asked {
            match self.is_safe(claim) {
                Ok(true) => settled.push(*claim),
                Ok(false) => {}
                Err(newer) => outdated.push(newer.claim(claim.client)),
            }
        }
        let host = self.overlay.as_deref().map(|overlay| overlay.host);
        if host == Some(from.host) {
            self.settled_came(now, &settled, out);
            return self.outdated_came(now, &outdated, out);
        }
        if !settled.is_empty() {
            self.write_to(now, from.host, (&Message::Settled(Sessions { claims: settled }), false), out);
        }
        if !outdated.is_empty() {
            self.write_to(now, from.host, (&Message::Outdated(Sessions { claims: outdated }), false), out);
        }
    }

    /// Whether a session of at least that epoch is safe.
    ///
    /// # Errors
    /// Somebody else has it by now.
    fn is_safe(&self, claim: &Claim<'_>) -> Result<bool, Known> {
        let Some(overlay) = self.overlay.as_deref() else { return Ok(false) };
        let host = overlay.host;
        if let Some(index) = self.sessions.find(claim.client)
            && let Some(place) = self.sessions.get(index).memory.roam.as_deref()
        {
            if let Some(given) = place.given.as_deref() {
                let newer =
                    Known { host: given.to, kind: ClaimKind::Keeper, epoch: given.epoch, version: 0, moment: 0 };
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
        let has_ended = |known: &Known| known.kind == ClaimKind::Ended && known.epoch >= claim.epoch;
        if known.clone().any(has_ended) {
            return Ok(true);
        }
        let newest = known.filter(|known| known.is_keeper()).max_by_key(|known| known.order());
        match newest
            .filter(|newest| newest.epoch > claim.epoch || newest.host != claim.host && newest.epoch == claim.epoch)
        {
            Some(newest) => Err(*newest),
            None => Ok(false),
        }
    }

    /// Whether nothing of a session that has come here would be missed where it came from: every broker whose streams it stands in, reachable or not, has told
    /// the interest to be in force that has it, and a deputy has the whole.
    pub(crate) fn is_settled(&self, index: u32) -> bool {
        #[cfg(feature = "mutants")]
        if self.has(crate::Mutant::SettledAtOnce) {
            return true;
        }
        let (session, Some(overlay)) = (self.sessions.get(index), self.overlay.as_deref()) else { return true };
        let Some(place) = session.memory.roam.as_deref() else { return false };
        let deputy = self.ranked_deputy(index);
        if session.is_persistent() && deputy.is_some() && place.deputy().is_none() {
            return false;
        }
        let Some(version) = place.settling else { return true };
        let tracks = session.subscriptions.iter().map(|id| self.router.get(*id).track);
        let durable = tracks.filter(|track| *track != NO_TRACK).filter_map(|track| self.tracks.durable(track));
        let mut hosts: Vec<HostId> = durable
            .flat_map(|durable| durable.far.since.iter().map(|(pubend, _)| pubend.host()))
            .chain(overlay.roam.map.hosts())
            .filter(|host| *host != overlay.host && !self.streams.has_ended(*host))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let has_durable = session.subscriptions.iter().any(|id| self.router.get(*id).is_durable);
        let is_in_force = |host: HostId| {
            let claims = &overlay.logs.claims;
            let is_owed = claims.is_owed(host, version) && claims.is_held(host, place.came);
            has_confirmed(&self.streams, host, version) && (!has_durable || is_owed)
        };
        version > 0 && hosts.into_iter().all(is_in_force)
    }

    /// The own interest has a version that has all sessions which have come.
    pub(in crate::overlay) fn name_roaming(&mut self, version: u64) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        for client in core::mem::take(&mut overlay.roam.unnamed) {
            let Some(index) = self.sessions.find(&client) else { continue };
            if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                place.settling = place.settling.map(|known| if known == 0 { version } else { known });
            }
        }
    }

    /// Sessions that were given away are safe: they go.
    pub(super) fn settled_came(&mut self, now: Time, settled: &[Claim<'_>], out: &mut dyn Output) {
        for claim in settled {
            self.note_taken_over(claim);
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
                self.discard(now, index, out);
                continue;
            }
            if let Some(overlay) = self.overlay.as_deref_mut() {
                overlay.roam.copies.remove(claim.client);
            }
            self.note_claim(now, claim.client);
        }
    }

    /// A session is safe where it is by now: whoever had it and has ended does not need anything for it.
    fn note_taken_over(&mut self, claim: &Claim<'_>) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Roam { copies, taking, .. } = &mut overlay.roam;
        if copies.get(claim.client).is_some_and(|copy| copy.void.is_none() && copy.epoch <= claim.epoch) {
            taking.iter_mut().for_each(|one| one.clients.retain(|client| **client != *claim.client));
        }
    }

    /// Others have sessions by now: of what is here nobody gets anything any more, and it goes when it is safe there.
    pub(super) fn outdated_came(&mut self, now: Time, newer: &[Claim<'_>], out: &mut dyn Output) {
        #[cfg(feature = "mutants")]
        let newer = if self.has(crate::Mutant::NewerIgnored) { &[] } else { newer };
        for claim in newer {
            let known = Known::of(claim);
            let Some(overlay) = self.overlay.as_deref_mut() else { return };
            let host = overlay.host;
            if let Some(copy) = overlay.roam.copies.get_mut(claim.client)
                && (copy.epoch < claim.epoch || copy.epoch == claim.epoch && claim.kind == ClaimKind::Ended)
                && claim.host != host
            {
                copy.void = Some((claim.host, claim.epoch));
                overlay.set_once(now + SETTLE_EVERY, Due::Settle);
            }
            let Some(index) = self.sessions.find(claim.client) else { continue };
            let Some(place) = self.sessions.get(index).memory.roam.as_deref() else { continue };
            let own = Known { host, kind: ClaimKind::Keeper, epoch: place.epoch, version: 0, moment: place.moment };
            let is_given_since = place.given.as_deref().is_some_and(|given| given.epoch >= claim.epoch);
            if own.order() >= known.order() || claim.host == host || is_given_since {
                continue;
            }
            if let Some(overlay) = self.overlay.as_deref_mut() {
                overlay.stats.sessions_outdated += 1;
            }
            self.let_go_of_client(now, index, out);
            // It may have ended with its connection.
            let Some(index) = self.sessions.find(claim.client) else { continue };
            if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                let (to, epoch) = (claim.host, claim.epoch);
                let since = place.given.as_deref().map_or(now, |given| given.since);
                place.given = Some(Box::new(Given { to, epoch, since, asker: None, is_written: true, body: None }));
            }
            self.note_place(now, index);
        }
    }
}
