//! Everybody has said what it has of a session: which of that is used.

use core::time::Duration;

use whimbrel_event::{HostId, Qos, Time};
use whimbrel_wire::{ClaimKind, MoveAnswer, Moved};

use super::searches::{Arrival, Fetching, Search, SearchStage, is_state};
use super::seeking::ASK_AGAIN;
use super::{Attachment, Beginning, KnownClaim, hash_of};
use crate::api::{Output, Refusal};
use crate::broker::Broker;
use crate::overlay::Sender;
use crate::session::is_foreign;
use crate::store::{Moving, SessionSource, split};

/// Bytes of a session that is fetched.
pub const SESSION_BYTES_MAX: usize = 64 << 20;

/// What is done to get a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    /// That broker is asked for it: for what it has, or for a copy, or what it gave to that one.
    Fetch(HostId, bool, Option<HostId>),
    /// It is here.
    Own,
    /// What was given away from here is used.
    OwnGiven,
    /// The copy here is used.
    OwnCopy,
    /// There is none.
    Begin,
    Refuse,
}

/// The greatest of several states of a session is used: that of the latest attachment, and of these
/// the owner's. A state that was given away names the attachment that it went to.
fn rank(known: &KnownClaim) -> (u64, u8, u64, u64, HostId) {
    // Versions of two owners have nothing to do with each other: as everywhere else, the later
    // attachment is the newer one.
    let (of, kind, version) = match known.kind {
        ClaimKind::Ended => (known.epoch, 4, known.version),
        ClaimKind::Owner | ClaimKind::Passing => (known.epoch, 3, known.version),
        ClaimKind::Given => (known.version, 2, 0),
        ClaimKind::Copy => (known.epoch, 1, known.version),
        ClaimKind::Coming | ClaimKind::Nothing => (known.epoch, 0, known.version),
    };
    let connected_at = if known.went_to().is_some() { 0 } else { known.connected_at };
    (of, kind, connected_at, version, known.host)
}

/// It outlives its client's connection.
fn is_lasting(known: &KnownClaim) -> bool {
    matches!(known.kind, ClaimKind::Owner | ClaimKind::Copy | ClaimKind::Given)
}

/// `is_lonely`: this broker has never been linked with any of those that it is configured for.
/// `is_lost_with`: what a broker had to whom that went cannot be reached, nor can copies.
fn act(
    search: &Search,
    (own, is_lonely): (HostId, bool),
    is_reachable: impl Fn(HostId) -> bool,
    is_lost_with: impl Fn(&KnownClaim, HostId) -> bool,
) -> Act {
    let does_without = search.arrival.as_ref().is_some_and(Arrival::does_without);
    let is_usable = |known: &&KnownClaim| is_reachable(known.host) && !search.refused.contains(&known.host);
    let came_before = |known: &&KnownClaim| {
        known.kind == ClaimKind::Coming
            && known.host != own
            && (known.connected_at, known.host) < (search.connected_at, own)
    };
    if let Some(other) = search.claims.iter().filter(is_usable).find(came_before) {
        return Act::Fetch(other.host, false, None);
    }
    let usable = search.claims.iter().filter(|known| is_state(known)).filter(is_usable);
    let best = usable.clone().max_by_key(|known| rank(known));
    let away = search.claims.iter().filter(|known| is_lasting(known)).filter(|known| !is_reachable(known.host));
    let newest = away.clone().map(|known| known.epoch).max();
    if newest > usable.map(|known| known.epoch).max() && !does_without {
        return Act::Refuse;
    }
    // What was given away is older than a copy of what it became.
    let copy = away.filter(|known| known.kind == ClaimKind::Copy).map(|known| known.epoch).max();
    if copy > best.map(|known| rank(known).0) && !does_without {
        return Act::Refuse;
    }
    // Who has been started again since knows of a publisher's number, and not whether its session
    // went anywhere.
    let is_known = best.is_some_and(|best| best.kind != ClaimKind::Ended || best.connected_at > 0);
    // Who was about to have it may have it by now, and have had no time to say so before it was cut
    // off.
    let was_coming = |known: &KnownClaim| known.kind == ClaimKind::Coming && !is_reachable(known.host);
    let may_be_lost =
        is_lonely || search.forgotten.iter().any(|host| !is_reachable(*host)) || search.claims.iter().any(was_coming);
    if !is_known && may_be_lost && !does_without {
        return Act::Refuse;
    }
    let Some(best) = best else { return Act::Begin };
    let went_to = best.went_to();
    match went_to.filter(|to| *to != own && !search.has_nothing(*to, best.epoch)) {
        // Whoever it went to has something later.
        Some(to) if is_reachable(to) => return Act::Fetch(to, false, None),
        // And cannot be reached, nor can those who could say whether somebody has a copy of that.
        Some(to) if best.kind == ClaimKind::Given && !does_without && (is_lonely || is_lost_with(best, to)) => {
            return Act::Refuse;
        }
        _ => {}
    }
    match best.kind {
        ClaimKind::Ended if best.host == own => Act::Begin,
        ClaimKind::Owner | ClaimKind::Passing if best.host == own => Act::Own,
        ClaimKind::Copy if best.host == own => Act::OwnCopy,
        ClaimKind::Given if best.host == own => Act::OwnGiven,
        kind => Act::Fetch(best.host, matches!(kind, ClaimKind::Copy | ClaimKind::Given), went_to),
    }
}

impl Broker {
    /// What is done to get the session that is sought.
    fn act_of(&self, number: u64) -> Option<Act> {
        let overlay = &self.overlay;
        let (host, roam) = (overlay.net.host(), &overlay.roam);
        let search = roam.searches.get(number)?;
        let own = self.sessions.find(&search.client).map(|index| self.sessions.get(index));
        let given = own.and_then(|own| own.memory.roam.as_deref()?.given.as_deref());
        let has_ended = |host| self.streams.has_ended(host);
        let is_lost_with = |from: &KnownClaim, owner| {
            from.host == host && given.is_some_and(|given| self.overlay.is_copied_and_away(given, &self.streams))
                || roam.past.is_lost_with(owner, hash_of(&search.client), &roam.map, has_ended)
        };
        Some(act(search, (host, overlay.net.lacks_everyone()), |other| roam.map.has(other), is_lost_with))
    }

    /// Uses what there is, once everybody has been asked.
    pub(super) fn decide(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        if self.ask_who_came_back(now, number, out) {
            return;
        }
        let (is_unsure, is_anothers) = (self.is_unsure_of(number), self.is_anothers(number));
        if let Some(search) = self.search(number) {
            search.was_unsure |= is_unsure;
        }
        let Some(act) = self.act_of(number) else { return };
        let roam = &mut self.overlay.roam;
        let Some(search) = roam.searches.get(number) else { return };
        let client = search.client.clone();
        let has_arrival = search.arrival.is_some();
        match act {
            // It stays here as it is. Who asks another broker is judged there.
            Act::Own | Act::OwnGiven | Act::OwnCopy | Act::Begin if is_anothers => {
                self.refuse_arrival(now, number, Refusal::ForeignSession, out);
            }
            // Nobody waits for it, and there is nothing of it here: it stays where it is.
            Act::Fetch(from, false, _) if search.is_for_nobody() && roam.copies.get(&client).is_none() => {
                let of_its = search.claims.iter().filter(|known| known.host == from && is_state(known));
                if let Some(epoch) = of_its.map(|known| known.epoch).max() {
                    self.record_holder(now, &client, (from, epoch));
                }
                self.refuse_arrival(now, number, Refusal::ConnectedAgain, out);
            }
            Act::Fetch(from, as_copy, asked_of) => {
                let Some(search) = roam.searches.get_mut(number) else { return };
                search.stage =
                    SearchStage::Fetching(Fetching::begin(from, roam.map.incarnation(from), as_copy, asked_of));
                self.fetch_part(now, number, out);
            }
            Act::Own => self.attach_own(now, number, out),
            Act::OwnGiven => {
                if let Some(index) = self.sessions.find(&client) {
                    self.use_given(now, index, out);
                }
                self.attach_own(now, number, out);
            }
            Act::OwnCopy => {
                let Some(copy) = roam.copies.remove(&client) else { return self.begin_session(now, number, out) };
                out.copy_used(&client, now.since(copy.came));
                let epoch = self.next_epoch(now, number);
                let whole = copy.whole();
                self.import_fetched(
                    now,
                    number,
                    (&whole, epoch),
                    (SessionSource::Copy, copy.principal.as_deref()),
                    out,
                );
            }
            // Nobody waits for it: there is nothing to be taken over.
            Act::Begin if !has_arrival => {
                roam.takeover.record_nobody(&client);
                self.refuse_arrival(now, number, Refusal::ConnectedAgain, out);
            }
            Act::Begin => self.begin_session(now, number, out),
            Act::Refuse => self.refuse_arrival(now, number, Refusal::SessionUnreachable, out),
        }
    }

    /// Whether what there is here of a session is somebody else's than of whoever waits for it.
    fn is_anothers(&self, number: u64) -> bool {
        let overlay = &self.overlay;
        let Some(search) = overlay.roam.searches.get(number) else { return false };
        let stranger = search.arrival.as_ref().and_then(Arrival::stranger);
        let here = self.sessions.find(&search.client).map(|index| self.sessions.get(index));
        let copy = overlay.roam.copies.get(&search.client);
        is_foreign(here.and_then(|session| session.memory.principal.as_deref()), stranger)
            || is_foreign(copy.and_then(|copy| copy.principal.as_deref()), stranger)
    }

    /// The epoch of an attachment: greater than all that are known, and than all that were before
    /// it, whoever has forgotten them.
    fn next_epoch(&mut self, now: Time, number: u64) -> u64 {
        let now_ms = now.as_nanos() / 1_000_000;
        self.search(number).map_or(now_ms, |search| search.next_epoch(now_ms))
    }

    /// Whether a client's session is here, and has not gone to anybody.
    pub(super) fn is_kept_here(&self, client: &str) -> bool {
        let place = self.sessions.find(client).map(|index| self.sessions.get(index).memory.roam.as_deref());
        place.flatten().is_some_and(|place| place.given.is_none())
    }

    /// The client's session is here.
    pub(super) fn attach_own(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let epoch = self.next_epoch(now, number);
        let Some(search) = self.search(number) else { return };
        let (client, is_decided) = (search.client.clone(), search.is_decided());
        let mut place = Attachment::new(now, epoch, 0);
        // Who was asked last has not answered.
        place.maybe_repeats = !is_decided || self.has_stale_ids_here(&client);
        self.finish_search(now, number, (place, false), out);
    }

    /// The client has no session, or wants none that there is.
    pub(super) fn begin_session(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let epoch = self.next_epoch(now, number);
        let Some(search) = self.search(number) else { return };
        let (client, is_decided) = (search.client.clone(), search.is_decided());
        let may_repeat = self.has_stale_ids_here(&client);
        self.discard_given(now, &client, out);
        let mut place = Attachment::new(now, epoch, 0);
        let overlay = &self.overlay;
        // It may have published nothing here since it was somewhere else.
        let ended = overlay.roam.ended.get(&client);
        place.after = ended.map(|ended| ended.lasts.elsewhere(overlay.net.host())).unwrap_or_default();
        // Who was asked last has not answered.
        place.maybe_repeats = !is_decided || may_repeat;
        if self.resumes_without(number) {
            place.beginning = Beginning::Anew;
        }
        self.finish_search(now, number, (place, false), out);
    }

    /// Whether a client wants to go on without what is kept of its session, and somebody may have
    /// that who cannot be reached.
    fn resumes_without(&self, number: u64) -> bool {
        let overlay = &self.overlay;
        let Some(search) = overlay.roam.searches.get(number) else { return false };
        let is_away = |known: &KnownClaim| is_lasting(known) && !overlay.roam.map.has(known.host);
        let is_there = search.claims.iter().any(is_away)
            || search.forgotten.iter().any(|host| !overlay.roam.map.has(*host))
            || overlay.net.lacks_everyone();
        is_there && search.arrival.as_ref().is_some_and(Arrival::resumes)
    }

    /// What was given away from here is void.
    fn discard_given(&mut self, now: Time, client: &str, out: &mut dyn Output) {
        let found = self.sessions.find(client);
        let is_given = |index: &u32| {
            let place = self.sessions.get(*index).memory.roam.as_deref();
            place.is_some_and(|place| place.given.is_some())
        };
        if let Some(index) = found.filter(is_given) {
            self.discard(now, index, out);
        }
    }

    /// What was given away from here goes on, as whoever has a later state of it cannot be reached.
    fn use_given(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        if let Some(place) = session.memory.roam.as_deref_mut() {
            let given = place.given.take();
            place.maybe_repeats = true;
            out.copy_used(&session.client_id, given.map_or(Duration::ZERO, |given| now.since(given.since)));
        }
        self.mark_stale_ids(index);
        self.overlay.stats.sessions_from_copies += 1;
    }

    /// The session of the client that is sought.
    pub(super) fn searched(&self, number: u64) -> Option<u32> {
        let search = self.overlay.roam.searches.get(number)?;
        self.sessions.find(&search.client)
    }

    /// Somebody may have given its client tags of whom nothing is heard, at exactly once.
    pub(super) fn mark_stale_ids(&mut self, index: u32) {
        if fault!(self, TagsTrusted) {
            return;
        }
        let session = self.sessions.get(index);
        let mut subscriptions = session.subscriptions.iter().map(|id| self.router.get(*id).spec.qos);
        let is_exact = session.shares().is_none()
            && (subscriptions.any(|qos| qos == Qos::ExactlyOnce) || !session.inflight.exactly_once().is_empty());
        if is_exact {
            self.sessions.get_mut(index).inflight.mark_stale(u16::MAX);
        }
    }

    /// A session has come, whole.
    fn import_fetched(
        &mut self,
        now: Time,
        number: u64,
        (whole, epoch): (&[u8], u64),
        (source, principal): (SessionSource, Option<&str>),
        out: &mut dyn Output,
    ) {
        let Some(search) = self.search(number) else { return };
        let (client, connected_at) = (search.client.clone(), search.connected_at);
        // It takes the place of what was given away from here, and of what is void.
        let mut stood = Vec::new();
        if let Some(index) = self.sessions.find(&client) {
            self.let_go_of_client(now, index, out);
            if let Some(index) = self.sessions.find(&client) {
                stood = self.positions_of(index);
                self.discard(now, index, out);
            }
        }
        let parts = split(whole);
        let index = parts.and_then(|parts| self.import_session(now, &client, parts, (source, principal)));
        let Some((index, (_, moving))) = index.zip(parts) else {
            return self.refuse_arrival(now, number, Refusal::SessionUnreachable, out);
        };
        self.merge_positions(index, &stood);
        let moving = Moving::read(moving).unwrap_or_default();
        let may_repeat = source == SessionSource::Copy || moving.maybe_repeats;
        let mut place = Attachment::new(now, epoch, connected_at);
        (place.settling, place.after, place.maybe_repeats) = (Some(0), moving.lasts, may_repeat);
        self.sessions.get_mut(index).memory.roam = Some(Box::new(place));
        let overlay = &mut self.overlay;
        overlay.stats.sessions_received += 1;
        overlay.stats.sessions_from_copies += u64::from(source == SessionSource::Copy);
        overlay.net.tell_interest_soon(now);
        overlay.roam.copies.remove(&client);
        overlay.roam.name_later(&client);
        let mut place = Attachment::new(now, epoch, connected_at);
        place.maybe_repeats = may_repeat;
        self.finish_search(now, number, (place, true), out);
    }

    /// Nobody has answered in time.
    pub(super) fn give_up_seeking(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let Some(search) = self.search(number) else { return };
        let (client, does_without) =
            (search.client.clone(), search.arrival.as_ref().is_some_and(Arrival::does_without));
        let newest = search.claims.iter().filter(|known| is_state(known)).map(|known| known.epoch).max();
        let own = self.sessions.find(&client).map(|index| self.sessions.get(index).epoch());
        if self.is_kept_here(&client) && newest <= own {
            // Nobody has said that anything later is anywhere else.
            return self.attach_own(now, number, out);
        }
        if does_without {
            if self.is_anothers(number) {
                return self.refuse_arrival(now, number, Refusal::ForeignSession, out);
            }
            return self.begin_session(now, number, out);
        }
        let overlay = &mut self.overlay;
        let is_fetching =
            |search: &Search| matches!(search.stage, SearchStage::Fetching(_)) && search.arrival.is_some();
        if overlay.roam.searches.get(number).is_some_and(is_fetching) {
            // Whoever was asked has given it away by now, perhaps: what is on its way is taken all
            // the same, and whoever connects next goes on with this search.
            overlay.stats.sessions_unreachable += 1;
            if let Some(arrival) = overlay.roam.searches.replace(number, None) {
                out.refused(arrival.link, Refusal::SessionUnreachable);
            }
            return self.overlay.search_due(number, now + ASK_AGAIN);
        }
        self.refuse_arrival(now, number, Refusal::SessionUnreachable, out);
    }

    pub(super) fn refuse_arrival(&mut self, now: Time, number: u64, why: Refusal, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let Some(search) = overlay.roam.searches.remove(number) else { return };
        if why == Refusal::SessionUnreachable && search.arrival.is_some() {
            overlay.stats.sessions_unreachable += 1;
        }
        match search.arrival {
            Some(arrival) => out.refused(arrival.link, why),
            None => self.share_sought(now, &search.client, why == Refusal::ConnectedAgain, out),
        }
        self.record_claim(now, &search.client);
        if let Some(successor) = search.successor {
            self.answer_nothing(now, (successor.from.host, successor.number), out);
        }
    }

    /// Whoever was asked for a session answers.
    pub(in crate::overlay) fn on_moved(&mut self, now: Time, from: Sender, moved: &Moved<'_>, out: &mut dyn Output) {
        let host = self.overlay.net.host();
        let Some(search) = self.search(moved.number) else { return };
        let SearchStage::Fetching(fetching) = &mut search.stage else { return };
        if fetching.from != from.host {
            return;
        }
        let as_copy = fetching.as_copy;
        // What it is asked for it had in another life: what it has forgotten says nothing of who
        // may have the session. Its new life is about to be told, and then the search begins anew.
        let has_forgotten = moved.answer == MoveAnswer::Nothing
            && fetching.incarnation.is_some_and(|incarnation| incarnation < from.incarnation);
        if has_forgotten {
            return;
        }
        match moved.answer {
            MoveAnswer::Nothing => {
                search.refused.insert(from.host);
                self.decide(now, moved.number, out);
            }
            // The client is there by now.
            MoveAnswer::GaveTo { to, .. } if to == from.host => {
                if search.is_outdated {
                    // That was asked for an earlier connection.
                    return self.ask_anew(now, moved.number, out);
                }
                let client = search.client.clone();
                let of_its = search.claims.iter().filter(|known| known.host == to && is_state(known));
                if let Some(epoch) = of_its.map(|known| known.epoch).max().filter(|_| search.arrival.is_none()) {
                    self.record_holder(now, &client, (to, epoch));
                }
                self.refuse_arrival(now, moved.number, Refusal::ConnectedAgain, out);
            }
            // That was asked before.
            MoveAnswer::GaveTo { to, .. } if fetching.asked_of == Some(to) => {}
            MoveAnswer::GaveTo { to, of } => {
                search.record_given(from.host, (to, moved.epoch), of);
                // Or this broker had it before it was started again, or has asked for it under
                // another number: what the other one has still is as good as a copy.
                if to != host && !search.refused.contains(&to) {
                    search.record_taken(to, moved.epoch);
                }
                self.decide(now, moved.number, out);
            }
            MoveAnswer::Ended => self.has_ended_there(now, from.host, moved, out),
            MoveAnswer::Given => self.on_part(now, moved, as_copy, out),
            // That was asked for an earlier connection, perhaps of somebody else.
            MoveAnswer::Foreign if search.is_outdated => self.ask_anew(now, moved.number, out),
            MoveAnswer::Foreign => self.refuse_arrival(now, moved.number, Refusal::ForeignSession, out),
        }
    }

    /// The session has ended at its owner: what its client published there is what counts of it.
    fn has_ended_there(&mut self, now: Time, owner: HostId, moved: &Moved<'_>, out: &mut dyn Output) {
        let Some(search) = self.search(moved.number) else { return };
        let moving = Moving::read(moved.body);
        let client = search.client.clone();
        let claim = KnownClaim { host: owner, kind: ClaimKind::Ended, epoch: moved.epoch, version: 0, connected_at: 0 };
        search.claims.push(claim);
        if search.arrival.is_none() {
            self.record_holder(now, &client, (owner, moved.epoch));
        }
        let epoch = self.next_epoch(now, moved.number);
        let mut place = Attachment::new(now, epoch, 0);
        place.maybe_repeats = moving.as_ref().is_none_or(|moving| moving.maybe_repeats);
        if let Some(moving) = moving {
            place.after = moving.lasts;
            if let Some(number) = moving.number {
                self.import_number(now, &client, number);
            }
        }
        self.discard_given(now, &client, out);
        self.finish_search(now, moved.number, (place, false), out);
    }

    /// A part of a session has come.
    fn on_part(&mut self, now: Time, moved: &Moved<'_>, as_copy: bool, out: &mut dyn Output) {
        let Some(search) = self.search(moved.number) else { return };
        let SearchStage::Fetching(fetching) = &mut search.stage else { return };
        if moved.part > 0 && fetching.digest != moved.digest {
            // It has changed there: from the beginning.
            (fetching.part, fetching.body) = (0, Vec::new());
            return self.fetch_part(now, moved.number, out);
        }
        if moved.part != fetching.part || fetching.body.len() + moved.body.len() > SESSION_BYTES_MAX {
            return;
        }
        fetching.digest = moved.digest;
        fetching.body.extend_from_slice(moved.body);
        fetching.principal = Some(moved.principal).filter(|principal| !principal.is_empty()).map(Box::from);
        fetching.part += 1;
        if fetching.part < moved.parts {
            return self.fetch_part(now, moved.number, out);
        }
        let (whole, principal) = (core::mem::take(&mut fetching.body), fetching.principal.take());
        let source = if as_copy { SessionSource::Copy } else { SessionSource::Owner };
        self.import_fetched(now, moved.number, (&whole, moved.epoch), (source, principal.as_deref()), out);
    }
}
