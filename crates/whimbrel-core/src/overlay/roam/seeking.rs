//! A client connects, and its session may be anywhere: its clerk is asked, then whoever has it. Two
//! round trips, if nothing is lost.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, ClaimKind, Found, LIST_MAX, Move, Where};

use super::giving::FOR_NOBODY;
use super::searches::{Arrival, CLAIMS_MAX, Fetching, Search, SearchStage};
use super::{Due, KnownClaim, hash_of};
use crate::api::{Link, Output, Refusal};
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::overlay::Sender;

/// A question that was not answered is asked again.
pub const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A CONNECT is answered after that long at the latest, unless some broker is so far away that all
/// that is asked takes longer.
pub const SEEK_MAX: Duration = Duration::from_secs(3);

/// Then after so many times the way there: two round trips, each once repeated.
const SEEK_WAYS: u64 = 8;

/// And after this in any case.
pub(super) const SEEK_LONGEST: Duration = Duration::from_secs(10);

/// How often a broker that has just begun looks whether it knows the others.
const YOUNG_LOOK: Duration = Duration::from_millis(20);

impl Overlay {
    /// Whether a session has to be sought before a client can be attached.
    pub(crate) fn has_to_seek(&self, now: Time) -> bool {
        self.has_company(now)
    }

    pub(super) fn search_due(&mut self, number: u64, at: Time) {
        let overlay = self;
        overlay.roam.searches.due.insert((at, number));
        overlay.set_once(at, Due::Seek);
    }
}

impl Broker {
    /// A client has connected; it is attached when its session is here.
    pub(crate) fn seek(&mut self, now: Time, client: &str, arrival: Option<Arrival>, out: &mut dyn Output) {
        let (connected_at, is_young) = (now.as_nanos(), self.overlay.awaits_others(now, &self.streams));
        let searches = &mut self.overlay.roam.searches;
        if let Some(&number) = searches.by_client.get(client) {
            if arrival.is_none() {
                return;
            }
            let search = searches.get_mut(number).expect("it is sought");
            // Nobody knows yet whose it is: who came first is not displaced by somebody else.
            let waiting = search.arrival.as_ref().and_then(Arrival::principal);
            if let Some(arrival) = arrival.as_ref().filter(|arrival| arrival.is_foreign_to(waiting)) {
                return out.refused(arrival.link, Refusal::ConnectedAgain);
            }
            // Each CONNECT has its own time: how long another one has waited is not this one's
            // fault.
            (search.connected_at, search.began) = (connected_at, now);
            // Whoever wanted it before came before this one; if not, it asks again.
            search.successor = None;
            search.is_outdated = !matches!(search.stage, SearchStage::Young);
            if let Some(older) = searches.replace(number, arrival) {
                self.sessions.stats.takeovers_cut += 1;
                out.refused(older.link, Refusal::ConnectedAgain);
            }
            return;
        }
        let number = searches.insert(Search {
            client: client.into(),
            arrival,
            connected_at,
            began: now,
            stage: SearchStage::Young,
            clerk: None,
            claims: Vec::new(),
            heard: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            refused: BTreeSet::new(),
            successor: None,
            is_outdated: false,
            was_unsure: false,
        });
        if is_young {
            return self.overlay.search_due(number, now + YOUNG_LOOK);
        }
        self.overlay.search_due(number, now + ASK_AGAIN);
        self.ask_clerk(now, number, out);
    }

    /// A connection that waits for its session has ended.
    pub(crate) fn stop_seeking(&mut self, now: Time, link: Link) {
        let searches = &mut self.overlay.roam.searches;
        let Some(&number) = searches.by_link.get(&link) else { return };
        searches.replace(number, None);
        // What is on its way here already is taken, and what has come is kept, attached to nobody.
        let resumes = |search: &Search| matches!(search.stage, SearchStage::Fetching(_) | SearchStage::Reviewing(_));
        if !searches.get(number).is_some_and(resumes)
            && let Some(search) = searches.remove(number)
        {
            self.record_claim(now, &search.client);
        }
    }

    /// A search begins anew for another connection than that for which others were asked: it has
    /// another number, so what is still on its way does not count for it.
    pub(super) fn ask_anew(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let Some(mut search) = overlay.roam.searches.remove(number) else { return };
        search.is_outdated = false;
        let number = overlay.roam.searches.insert(search);
        self.overlay.search_due(number, now + ASK_AGAIN);
        self.ask_clerk(now, number, out);
    }

    /// Asks who has a session.
    pub(super) fn ask_clerk(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let (host, roam) = (overlay.net.host(), &mut overlay.roam);
        let Some(search) = roam.searches.get_mut(number) else { return };
        let clerk = roam.map.clerk(hash_of(&search.client)).map_or(host, |(clerk, _)| clerk);
        (search.stage, search.clerk) = (SearchStage::Asking(BTreeSet::from([clerk])), Some(clerk));
        (search.claims, search.heard, search.refused) = Default::default();
        search.was_unsure = false;
        let (client, connected_at) = (search.client.clone(), search.connected_at);
        let own: Vec<KnownClaim> = self.overlay.own_claims(&client, &self.sessions);
        let away = self.overlay.may_be_away(&client, &self.streams);
        let Some(search) = self.search(number) else { return };
        search.forgotten = away;
        search.take(host, own.into_iter());
        if clerk == host {
            let question = Where { number, client: &client, connected_at };
            let found = self.query_directory(host, &question);
            return self.found(now, (host, host), &found, out);
        }
        self.ask(now, number, clerk, out);
    }

    pub(super) fn search(&mut self, number: u64) -> Option<&mut Search> {
        self.overlay.roam.searches.get_mut(number)
    }

    /// Asks a broker what it knows.
    fn ask(&mut self, now: Time, number: u64, whom: HostId, out: &mut dyn Output) {
        let Some(search) = self.search(number) else { return };
        let (client, connected_at) = (search.client.clone(), search.connected_at);
        self.send_to(now, whom, (&BrokerMessage::Where(Where { number, client: &client, connected_at }), false), out);
    }

    /// What is known here of a client's session, for somebody who asks.
    fn query_directory<'a>(&mut self, asker: HostId, question: &Where<'a>) -> Found<'a> {
        let own = self.overlay.own_claims(question.client, &self.sessions);
        let forgotten = self.overlay.may_be_away(question.client, &self.streams).into_iter().take(LIST_MAX).collect();
        let overlay = &self.overlay;
        let clerk = overlay.roam.map.clerk(hash_of(question.client)).map(|(clerk, _)| clerk);
        let is_clerk = clerk == Some(overlay.net.host());
        let knows_strangers = is_clerk && self.overlay.knows_strangers(&self.streams);
        let overlay = &mut self.overlay;
        let (host, roam) = (overlay.net.host(), &mut overlay.roam);
        let known = roam.directory.of(question.client).iter().filter(|known| known.host != host);
        let others = known.filter(|known| known.host != asker || asker == host);
        let claims = others.chain(&own).map(|known| known.claim(question.client)).collect();
        let map = roam.map.hash();
        // Whoever asks looks at these only if it takes this broker for the clerk. If it does and
        // this one does not, they know of different brokers, and it asks all of them anyway: named
        // by each of n that are asked, n names would be n² for each CONNECT among brokers that have
        // just begun.
        let is_synced = |other: HostId| !knows_strangers && roam.directory.is_synced(other, map);
        let is_unsynced = |other: &HostId| *other != host && *other != asker && !is_synced(*other);
        let unsynced = roam.map.hosts().filter(|other| is_clerk && is_unsynced(other)).take(LIST_MAX).collect();
        // Only its clerk is told when that is over: whoever else is asked would remember it for
        // ever.
        if question.connected_at > 0 && asker != host && is_clerk {
            roam.directory.record_coming(question.client, asker, question.connected_at);
        }
        Found { number: question.number, claims, map, unsynced, forgotten }
    }

    /// Somebody asks who has a session.
    pub(in crate::overlay) fn on_where(&mut self, now: Time, from: Sender, question: &Where<'_>, out: &mut dyn Output) {
        let found = self.query_directory(from.host, question);
        self.send_to(now, from.host, (&BrokerMessage::Found(found), false), out);
    }

    /// Somebody answers what it knows.
    pub(in crate::overlay) fn on_found(&mut self, now: Time, from: Sender, found: &Found<'_>, out: &mut dyn Output) {
        let host = self.overlay.net.host();
        self.found(now, (from.host, host), found, out);
    }

    fn found(&mut self, now: Time, (from, host): (HostId, HostId), found: &Found<'_>, out: &mut dyn Output) {
        let roam = &mut self.overlay.roam;
        let clerk = |client: &str| roam.map.clerk(hash_of(client)).map(|(clerk, _)| clerk);
        let Some(search) = roam.searches.get_mut(found.number) else { return };
        let is_clerk = clerk(&search.client) == Some(from);
        let SearchStage::Asking(asked) = &mut search.stage else { return };
        if !asked.remove(&from) {
            return;
        }
        let client = search.client.clone();
        let of_client = found.claims.iter().filter(|claim| claim.client == &*client);
        // Of itself this broker knows best.
        let others = of_client.filter(|claim| claim.host != host).map(KnownClaim::of);
        if from == host {
            search.claims.retain(|known| known.host == host);
            search.claims.extend(others.take(CLAIMS_MAX));
        } else {
            search.take(from, others);
        }
        search.forgotten.extend(&found.forgotten);
        let mut more = Vec::new();
        if is_clerk && let SearchStage::Asking(asked) = &mut search.stage {
            let is_new = |other: &&HostId| **other != host && roam.map.has(**other) && !search.heard.contains(*other);
            more.extend(found.unsynced.iter().filter(is_new).copied());
            // It speaks for others: one of those that it cannot reach yet may have something.
            if found.map != roam.map.hash() {
                more.extend(roam.map.hosts().filter(|other| is_new(&other)));
            }
            // Who was about to be attached somewhere may be there by now.
            let coming = search.claims.iter().filter(|known| known.kind == ClaimKind::Coming).map(|known| known.host);
            more.extend(coming.filter(|host| is_new(&host)));
            more.sort_unstable();
            more.dedup();
            if fault!(self, UnsyncedBelieved) {
                more.clear();
            }
            asked.extend(&more);
        }
        more.into_iter().for_each(|whom| self.ask(now, found.number, whom, out));
        self.resume_search(now, found.number, out);
    }

    /// Goes on if everybody has answered.
    pub(super) fn resume_search(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        if self.search(number).is_some_and(|search| search.is_decided()) {
            self.decide(now, number, out);
        }
    }

    /// Asks who may have it, and could not be asked, and can be by now; whether there is somebody.
    pub(super) fn ask_who_came_back(&mut self, now: Time, number: u64, out: &mut dyn Output) -> bool {
        let overlay = &mut self.overlay;
        let (host, roam) = (overlay.net.host(), &mut overlay.roam);
        let Some(search) = roam.searches.all.get_mut(&number) else { return false };
        let is_new = |other: &&HostId| **other != host && roam.map.has(**other) && !search.heard.contains(*other);
        let come: BTreeSet<HostId> = search.forgotten.iter().filter(is_new).copied().collect();
        if come.is_empty() {
            return false;
        }
        search.stage = SearchStage::Asking(come.clone());
        come.into_iter().for_each(|whom| self.ask(now, number, whom, out));
        true
    }

    /// Who can be reached has changed: somebody else may be the clerk, and nobody waits for those
    /// that cannot answer.
    pub(super) fn check_searches(&mut self, now: Time, out: &mut dyn Output) {
        let roam = &self.overlay.roam;
        let begins_anew = |search: &Search| match &search.stage {
            SearchStage::Young | SearchStage::Reviewing(_) => false,
            SearchStage::Asking(asked) => {
                let clerk = roam.map.clerk(hash_of(&search.client)).map(|(clerk, _)| clerk);
                clerk != search.clerk || asked.iter().any(|host| !roam.map.has(*host))
            }
            SearchStage::Fetching(fetching) => {
                // Whoever has something later, and could not be asked, can be by now.
                let has_come = |whom: HostId| roam.map.has(whom) && !search.refused.contains(&whom);
                roam.map.incarnation(fetching.from) != fetching.incarnation || fetching.asked_of.is_some_and(has_come)
            }
        };
        let all = roam.searches.all.iter().filter(|(_, search)| begins_anew(search));
        let all: Vec<u64> = all.map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.ask_clerk(now, number, out));
        self.check_reviews(now, out);
    }

    /// Asks again, and gives up what has taken too long.
    pub(in crate::overlay) fn seek_on(&mut self, now: Time, out: &mut dyn Output) {
        self.seek_orphans(now, out);
        self.forget_ended(now);
        let seek_max = self.overlay.seek_max();
        loop {
            let is_young = self.overlay.awaits_others(now, &self.streams);
            let overlay = &mut self.overlay;
            let Some(&(at, number)) = overlay.roam.searches.due.first() else { return };
            if at > now {
                return overlay.set_once(at, Due::Seek);
            }
            overlay.roam.searches.due.pop_first();
            let Some(search) = overlay.roam.searches.get(number) else { continue };
            match &search.stage {
                SearchStage::Young if is_young => self.overlay.search_due(number, now + YOUNG_LOOK),
                SearchStage::Young => {
                    self.overlay.search_due(number, now + ASK_AGAIN);
                    self.ask_clerk(now, number, out);
                }
                SearchStage::Reviewing(_) => self.review_on(now, number, out),
                _ if now.since(search.began) >= search.most(seek_max) => self.give_up_seeking(now, number, out),
                SearchStage::Asking(asked) => {
                    let asked: Vec<HostId> = asked.iter().copied().collect();
                    self.overlay.search_due(number, now + ASK_AGAIN);
                    asked.into_iter().for_each(|whom| self.ask(now, number, whom, out));
                }
                SearchStage::Fetching(_) => {
                    self.overlay.search_due(number, now + ASK_AGAIN);
                    self.fetch_part(now, number, out);
                }
            }
        }
    }

    /// Asks for the next part of a session.
    pub(super) fn fetch_part(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let now_ms = now.as_nanos() / 1_000_000;
        let Some(search) = self.search(number) else { return };
        let SearchStage::Fetching(Fetching { from, as_copy, asked_of, part, .. }) = search.stage else { return };
        let least = search.next_epoch(now_ms);
        let clean = search.arrival.as_ref().is_some_and(Arrival::is_clean);
        let (client, connected_at) = (search.client.clone(), search.connected_at);
        let principal = search.arrival.as_ref().and_then(Arrival::stranger).unwrap_or_default().to_owned();
        // Sought for nobody's connection it is left to whoever is attached somewhere.
        let is_for_nobody = search.is_for_nobody();
        let waited = if is_for_nobody { FOR_NOBODY } else { now.since(search.began).as_micros() as u64 };
        let asked = Move {
            number,
            client: &client,
            least,
            connected_at,
            clean,
            waited,
            as_copy,
            asked_of,
            part,
            principal: &principal,
        };
        self.send_to(now, from, (&BrokerMessage::Move(asked), false), out);
    }
}

impl Overlay {
    /// How long a session is sought: where the way to the farthest broker is long, all that is
    /// asked takes longer.
    pub(super) fn seek_max(&mut self) -> Duration {
        self.net.ways();
        let farthest =
            self.net.topology().hosts().filter_map(|host| self.net.routes().time_us(host)).max().unwrap_or(0);
        let ways = Duration::from_micros(farthest.saturating_mul(SEEK_WAYS));
        SEEK_MAX.max(ways).min(SEEK_LONGEST)
    }
}
