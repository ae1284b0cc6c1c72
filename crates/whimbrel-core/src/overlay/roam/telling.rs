//! What this broker has of sessions is told to their clerks, in pages, each of which is told again
//! until it was taken. Where a session is, and for which attachment of its client, is also written.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Claim, ClaimKind, Claims, PageTaken, SessionClaims};

use super::leaders::{Leaders, Turnover};
use super::map::Map;
use super::settling::SETTLE_EVERY;
use super::{Attachment, Beginning, GivenSession, KnownClaim, hash_of, settling};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::{Due, Sender};
use crate::store::{AttachmentRecord, Key, MapValue};

/// Clerks are told of changes so soon: many go together.
const TELL_EVERY: Duration = Duration::from_millis(10);

/// A page that was not taken is told again after so long, or twice the way there and back if that
/// is longer.
const TELL_AGAIN: Duration = Duration::from_millis(250);

/// Clients of whom one page tells.
const PAGE_CLIENTS: usize = 128;

/// Bytes of the client ids in one page.
const PAGE_BYTES: usize = 256 << 10;

/// Sessions, copies and entries of the directory that are looked at in one go when the brokers have
/// changed.
const WALK_SLICE: usize = 4096;

/// What a clerk is to be told.
#[derive(Debug, Default)]
struct Pages {
    dirty: BTreeSet<Box<str>>,
    open: Option<Page>,
    /// For which brokers it has taken everything.
    complete: u64,
}

/// What was told and not taken. It is told again as the same page, so that it counts whichever of
/// the answers comes: with a number of its own each time, a clerk whose answers took longer than it
/// is waited for them was told for ever.
#[derive(Debug)]
struct Page {
    number: u64,
    at: Time,
    /// Whom it is about.
    clients: Vec<Box<str>>,
    /// With it everything has been told, for these brokers; 0: not everything.
    map: u64,
}

/// Whom the brokers' change concerns is looked up bit by bit.
#[derive(Debug)]
struct DirectoryWalk {
    turnover: Turnover,
    session: u32,
    /// The last copy that was looked at, and the last entry of the directory; `None`: through.
    copy: Option<Box<str>>,
    entry: Option<Box<str>>,
    /// The last session that has ended.
    ended: Option<Box<str>>,
}

/// What clerks are told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    to: BTreeMap<HostId, Pages>,
    walk: Option<DirectoryWalk>,
    /// Who led for those who were looked at the last time.
    leaders: Leaders,
    pages: u64,
}

impl Telling {
    /// Pages are numbered from here: an answer to one of a former life of this broker is none to
    /// one of this.
    pub(super) fn number_from(&mut self, incarnation: u64) {
        self.pages = self.pages.max(incarnation);
    }

    /// Whether it is known whom the brokers' last change concerns.
    pub(super) fn has_walked(&self) -> bool {
        self.walk.is_none()
    }

    /// There are other brokers than before: from those, everything is looked at.
    pub(super) fn begin_walk(&mut self, old: Map, map: &Map) {
        // If that had not come to its end, nobody knows what was told.
        let old = if self.walk.is_some() { Map::default() } else { old };
        let turnover = Turnover::new(old, map, core::mem::take(&mut self.leaders));
        let begin: Option<Box<str>> = Some("".into());
        self.walk =
            Some(DirectoryWalk { turnover, session: 0, copy: begin.clone(), entry: begin.clone(), ended: begin });
    }
}

impl Broker {
    /// What this broker has of a client's session has changed: its clerk is told.
    pub(super) fn record_claim(&mut self, now: Time, client: &str) {
        if !self.overlay.is_open() {
            return;
        }
        let clerk = self.overlay.roam.map.clerk(hash_of(client)).map(|(clerk, _)| clerk);
        self.record_claim_of(now, client, clerk);
    }

    /// The same, if it is known who that is.
    fn record_claim_of(&mut self, now: Time, client: &str, clerk: Option<HostId>) {
        let overlay = &mut self.overlay;
        let roam = &mut overlay.roam;
        match clerk {
            Some(clerk) if clerk != overlay.net.host() => {
                roam.telling.to.entry(clerk).or_default().dirty.insert(client.into());
                overlay.set_once(now + TELL_EVERY, Due::Tell);
            }
            Some(own) if roam.map.len() > 1 => {
                // It is its own clerk, and looks at what others have when it has time.
                roam.telling.to.entry(own).or_default().dirty.insert(client.into());
                overlay.set_once(now + TELL_EVERY, Due::Tell);
            }
            _ => {}
        }
    }

    /// Tells clerks what they are to be told.
    pub(in crate::overlay) fn tell_claims(&mut self, now: Time, out: &mut dyn Output) {
        let has_walked = self.walk(now);
        self.tell_own(now, out);
        let overlay = &mut self.overlay;
        let host = overlay.net.host();
        let roam = &mut overlay.roam;
        let others: Vec<HostId> = roam.map.hosts().filter(|other| *other != host).collect();
        // Whoever cannot be reached is told when it can.
        roam.telling.to.retain(|host, _| roam.map.has(*host));
        let mut is_all_told = true;
        for to in others {
            is_all_told &= self.tell_page(now, to, has_walked, out);
        }
        let overlay = &mut self.overlay;
        if !has_walked {
            overlay.set_once(now, Due::Tell);
        } else if !is_all_told {
            overlay.set_once(now + TELL_AGAIN, Due::Tell);
        }
    }

    /// This broker is the clerk of some of its own sessions.
    fn tell_own(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let host = overlay.net.host();
        let Some(pages) = overlay.roam.telling.to.remove(&host) else { return };
        for client in pages.dirty {
            let claims = self.overlay.own_claims(&client, &self.sessions);
            let nothing = KnownClaim { host, kind: ClaimKind::Nothing, epoch: 0, version: 0, connected_at: 0 };
            let claims: Vec<Claim<'_>> = [nothing].iter().chain(&claims).map(|known| known.claim(&client)).collect();
            self.file(now, &claims, out);
        }
    }

    /// Tells a clerk the next page; whether it has been told everything.
    fn tell_page(&mut self, now: Time, to: HostId, has_walked: bool, out: &mut dyn Output) -> bool {
        let overlay = &mut self.overlay;
        let map = overlay.roam.map.hash();
        let patience = overlay.net.answered_within(to, TELL_AGAIN);
        let pages = overlay.roam.telling.to.entry(to).or_default();
        match pages.open.take() {
            Some(page) if now.since(page.at) < patience => {
                pages.open = Some(page);
                return false;
            }
            Some(mut page) if page.map == 0 || page.map == map => {
                if !pages.dirty.is_empty() {
                    // There is more by now: with this page, it is not everything.
                    page.map = 0;
                }
                self.send_page(now, to, page, out);
                return false;
            }
            // There are other brokers by now.
            Some(page) => pages.dirty.extend(page.clients),
            None => {}
        }
        let (mut clients, mut bytes) = (Vec::new(), 0);
        while clients.len() < PAGE_CLIENTS
            && bytes < PAGE_BYTES
            && let Some(client) = pages.dirty.pop_first()
        {
            bytes += client.len();
            clients.push(client);
        }
        let is_last = has_walked && pages.dirty.is_empty();
        if clients.is_empty() && (!is_last || pages.complete == map) {
            return is_last;
        }
        let telling = &mut overlay.roam.telling;
        telling.pages += 1;
        let page = Page { number: telling.pages, at: now, clients, map: if is_last { map } else { 0 } };
        self.send_page(now, to, page, out);
        false
    }

    /// Tells a page, the first time or again: what is known of its clients now.
    fn send_page(&mut self, now: Time, to: HostId, page: Page, out: &mut dyn Output) {
        let mut known = Vec::new();
        for client in &page.clients {
            known.extend(self.claims_to_tell(client).into_iter().map(|known| (client, known)));
        }
        let claims = known.iter().map(|(client, known)| known.claim(client)).collect();
        let told = BrokerMessage::Claims(Claims { page: page.number, map: page.map, claims });
        self.send_to(now, to, (&told, false), out);
        self.overlay.roam.telling.to.entry(to).or_default().open = Some(Page { at: now, ..page });
    }

    /// What a new clerk is told of a client: what this broker has, and what it knows of those that
    /// cannot tell it.
    fn claims_to_tell(&self, client: &str) -> Vec<KnownClaim> {
        let overlay = &self.overlay;
        let (host, roam) = (overlay.net.host(), &overlay.roam);
        let mut claims = self.overlay.own_claims(client, &self.sessions);
        if claims.is_empty() {
            claims.push(KnownClaim { host, kind: ClaimKind::Nothing, epoch: 0, version: 0, connected_at: 0 });
        }
        claims.extend(roam.directory.of(client).iter().filter(|known| !roam.map.has(known.host)));
        claims
    }

    /// Looks for whom the brokers' change concerns; whether that is done.
    fn walk(&mut self, now: Time) -> bool {
        let overlay = &mut self.overlay;
        let Some(mut walk) = overlay.roam.telling.walk.take() else { return true };
        let mut seen: Vec<Box<str>> = Vec::new();
        let (mut moved, mut alone, places) = (Vec::new(), Vec::new(), self.sessions.places());
        for (index, session) in self.sessions.from(walk.session).take(WALK_SLICE) {
            let Some(session) = session else { continue };
            if session.memory.roam.is_none() {
                alone.push(index);
                continue;
            }
            seen.push(session.client_id.clone());
            moved.push(index);
        }
        walk.session = walk.session.saturating_add(WALK_SLICE as u32).min(places);
        let roam = &overlay.roam;
        let next = |clients: Vec<Box<str>>, seen: &mut Vec<Box<str>>| {
            let last = clients.last().filter(|_| clients.len() == WALK_SLICE).cloned();
            seen.extend(clients);
            last
        };
        if let Some(after) = walk.copy.take() {
            walk.copy = next(roam.copies.clients_after(&after, WALK_SLICE), &mut seen);
        }
        if let Some(after) = walk.entry.take() {
            walk.entry = next(roam.directory.clients_after(Some(&after), WALK_SLICE), &mut seen);
        }
        if let Some(after) = walk.ended.take() {
            let behind = (Bound::Excluded(after), Bound::Unbounded);
            let ended = roam.ended.range::<Box<str>, _>(behind).take(WALK_SLICE);
            walk.ended = next(ended.map(|(client, _)| client.clone()).collect(), &mut seen);
        }
        let lists = [&walk.copy, &walk.entry, &walk.ended];
        let is_through = walk.session >= places && lists.iter().all(|list| list.is_none());
        let map = roam.map.clone();
        let own = overlay.net.host();
        let mut moved = moved.into_iter();
        for client in seen {
            let (before, after) = walk.turnover.look(hash_of(&client), &map);
            let (old, leading) = (&walk.turnover.old, map.at(after));
            let clerk = leading.clerk();
            if old.at(before).clerk() != clerk {
                self.record_claim_of(now, &client, clerk.map(|(clerk, _)| clerk));
            }
            // Those who have a session here come first.
            if let Some(index) = moved.next() {
                self.check_replica(now, index, (old, (map.hash(), leading.replica(own))));
            }
        }
        let telling = &mut self.overlay.roam.telling;
        match is_through {
            true => telling.leaders = walk.turnover.end(),
            false => telling.walk = Some(walk),
        }
        for index in alone {
            // It began when there was no other broker.
            let connected_at = now.as_nanos();
            let place = Attachment::new(now, connected_at / 1_000_000, connected_at);
            self.sessions.get_mut(index).memory.roam = Some(Box::new(place));
            self.record_place(now, index);
        }
        is_through
    }

    /// Other brokers tell what they have.
    pub(in crate::overlay) fn on_claims(&mut self, now: Time, from: Sender, claims: &Claims<'_>, out: &mut dyn Output) {
        let map = &self.overlay.roam.map;
        // Of itself each knows best; of others only those are told of that cannot be asked.
        let is_told = |claim: &&Claim<'_>| claim.host == from.host || !map.has(claim.host);
        let told: Vec<Claim<'_>> = claims.claims.iter().filter(is_told).copied().collect();
        let is_news = told.iter().any(|claim| claim.kind != ClaimKind::Nothing);
        self.file(now, &told, out);
        if is_news {
            self.overlay.record_known(from.host);
        }
        let overlay = &mut self.overlay;
        if claims.map != 0 {
            overlay.roam.directory.sync(from.host, claims.map);
            overlay.roam.forgotten.remove(&from.host);
        }
        self.send_to(now, from.host, (&BrokerMessage::PageTaken(PageTaken { page: claims.page }), false), out);
    }

    /// Notes what brokers have, and tells those who have something that is void by now.
    fn file(&mut self, now: Time, claims: &[Claim<'_>], out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let mut of_host: BTreeMap<HostId, Vec<Claim<'_>>> = BTreeMap::new();
        for (whom, client, newer) in overlay.roam.directory.take(claims) {
            of_host.entry(whom).or_default().push(newer.claim(client));
            overlay.roam.voided.insert(client.into());
            overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        }
        self.tell_outdated(now, of_host, out);
    }

    /// Tells again who has something that is void, until it says that it has it no more.
    pub(super) fn tell_voided(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let roam = &mut overlay.roam;
        let own = overlay.net.host();
        let clerk = |client: &str| roam.map.clerk(hash_of(client)).map(|(clerk, _)| clerk);
        let (directory, map) = (&roam.directory, &roam.map);
        roam.voided.retain(|client| clerk(client) == Some(own) && !directory.void_of(client).is_empty());
        let some: Vec<Box<str>> = roam.voided.iter().take(WALK_SLICE).cloned().collect();
        let mut of_host: BTreeMap<HostId, Vec<Claim<'_>>> = BTreeMap::new();
        for client in &some {
            for (whom, newer) in directory.void_of(client).into_iter().filter(|(whom, _)| map.has(*whom)) {
                of_host.entry(whom).or_default().push(newer.claim(client));
            }
        }
        if !some.is_empty() {
            overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        }
        self.tell_outdated(now, of_host, out);
    }

    fn tell_outdated(&mut self, now: Time, of_host: BTreeMap<HostId, Vec<Claim<'_>>>, out: &mut dyn Output) {
        let host = self.overlay.net.host();
        for (whom, claims) in of_host {
            if whom == host {
                self.on_outdated(now, &claims, out);
                continue;
            }
            for claims in claims.chunks(PAGE_CLIENTS) {
                let told = BrokerMessage::Outdated(SessionClaims { claims: claims.to_vec() });
                self.send_to(now, whom, (&told, false), out);
            }
        }
    }

    /// A page was taken.
    pub(in crate::overlay) fn page_taken(&mut self, now: Time, from: Sender, page: u64) {
        let overlay = &mut self.overlay;
        let Some(pages) = overlay.roam.telling.to.get_mut(&from.host) else { return };
        if let Some(taken) = pages.open.take_if(|open| open.number == page) {
            if taken.map != 0 {
                pages.complete = taken.map;
            }
            if !pages.dirty.is_empty() || pages.complete != overlay.roam.map.hash() {
                overlay.set_once(now, Due::Tell);
            }
        }
    }
}

impl Attachment {
    /// As it was written.
    pub(crate) fn restored(now: Time, placed: &AttachmentRecord) -> Attachment {
        let given = placed.given.map(|whom| Box::new(GivenSession::unasked(now, whom, now)));
        let is_given = given.is_some();
        let (settling, maybe_repeats) = ((!is_given).then_some(1), placed.maybe_repeats);
        let after = placed.after.clone();
        let beginning = if placed.awaits_resumption { Beginning::Anew } else { Beginning::Plain };
        let new = Attachment::new(now, placed.epoch, placed.connected_at);
        Attachment { given, settling, maybe_repeats, after, beginning, ..new }
    }

    fn placed(&self) -> AttachmentRecord {
        let given = self.given.as_deref().map(|given| (given.to, given.epoch));
        let (epoch, connected_at, awaits_resumption) = (self.epoch, self.connected_at, self.awaits_resumption());
        let (maybe_repeats, after) = (self.maybe_repeats, self.after.clone());
        AttachmentRecord { epoch, connected_at, given, maybe_repeats, after, awaits_resumption }
    }
}

impl Broker {
    /// A session has another place than before, or is for another attachment: that is written and
    /// told.
    pub(crate) fn record_place(&mut self, now: Time, index: u32) {
        let session = self.sessions.get(index);
        let Some(place) = session.memory.roam.as_deref() else { return };
        let (placed, is_given, client) = (place.placed(), place.given.is_some(), session.client_id.clone());
        let placed = match fault!(self, PredecessorUnwritten) {
            true => AttachmentRecord { after: whimbrel_event::PredecessorsBuf::new(), ..placed },
            false => placed,
        };
        if self.remembers(index) {
            let number = session.memory.number;
            self.store.write_queue.put(|key| Key::Placed(number).put(key), |value| placed.put_versioned(value));
            let written = self.store.write_queue.seal();
            if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                place.written = written;
            }
        }
        let overlay = &mut self.overlay;
        if is_given {
            overlay.roam.given.insert(client.clone(), 0);
            overlay.set_once(now + settling::SETTLE_EVERY, Due::Settle);
        } else {
            overlay.roam.given.remove(&client);
        }
        self.record_changed(now, index, true);
        self.record_claim(now, &client);
    }

    /// What is written of a session's place is forgotten.
    pub(crate) fn forget_place(&mut self, index: u32) {
        let memory = &self.sessions.get(index).memory;
        if memory.roam.is_some() && self.remembers(index) {
            let number = self.sessions.get(index).memory.number;
            self.store.write_queue.forget(|key| Key::Placed(number).put(key));
            self.store.write_queue.seal();
        }
    }
}
