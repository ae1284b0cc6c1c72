//! What a publisher gave its last number to is in doubt while somebody cannot be asked, and stays
//! so wherever its client goes: who was away may have an event that nobody else has heard of. Once
//! all are there again, everybody is asked, and nothing is in doubt any more. Only clients in doubt
//! are answered a round trip later for that.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_event::{HostId, PredecessorsBuf, Time};
use whimbrel_net::link::peers::Peer;
use whimbrel_wire::{AskPublished, BrokerMessage, Published};

use super::searches::{Arrival, SearchStage};
use super::seeking::ASK_AGAIN;
use super::{Attachment, KnownClaim, Want};
use crate::api::{Output, Refusal};
use crate::broker::Broker;
use crate::overlay::Sender;

/// Whoever has not answered by then counts as somebody who cannot be asked: a client waits no
/// longer for that.
const REVIEW_MAX: Duration = Duration::from_secs(1);

/// Others are asked what a client has published there.
#[derive(Debug)]
pub(super) struct Review {
    /// Those have not answered.
    asked: BTreeSet<HostId>,
    /// Nobody else could have anything.
    is_whole: bool,
    since: Time,
    /// What the client's attachment will be, and whether its session has just come.
    place: Attachment,
    has_come: bool,
}

impl Broker {
    /// Whether what is here of a client says that it may have published where nobody could be
    /// asked.
    pub(super) fn has_stale_ids_here(&self, client: &str) -> bool {
        let place = self.sessions.find(client).map(|index| self.sessions.get(index).memory.roam.as_deref());
        let ended = self.overlay.roam.ended.get(client);
        place.flatten().map_or(ended.is_some_and(|ended| ended.maybe_repeats), |place| place.maybe_repeats)
    }

    /// Whether the client may have published at a broker that cannot be asked: one that is cut off
    /// takes whoever comes to it, and nobody here hears of that; and of one that has lost its disk
    /// nobody knows whom it had.
    pub(super) fn is_unsure_of(&self, number: u64) -> bool {
        let overlay = &self.overlay;
        let Some(search) = overlay.roam.searches.get(number) else { return false };
        let is_away = |known: &KnownClaim| !overlay.roam.map.has(known.host);
        // Who has nothing of what it was said to have has forgotten it.
        let is_gone = search.claims.iter().any(is_away) || !search.refused.is_empty();
        // Who has greeted and cannot be asked yet may know of one that is gone.
        let is_news = |peer: &Peer| peer.host().is_some_and(|host| !overlay.roam.map.has(host));
        let may_be_told = overlay.net.lacks_everyone() || overlay.net.neighbours().any(is_news);
        is_gone || may_be_told || self.overlay.is_any_away(&self.streams) || overlay.roam.past.has_lost(self.now)
    }

    /// It is known what there is of a session, and it is here. If somebody could not be asked
    /// before, and has not been since, that is done now.
    pub(super) fn finish_search(
        &mut self,
        now: Time,
        number: u64,
        (place, has_come): (Attachment, bool),
        out: &mut dyn Output,
    ) {
        let is_unsure = self.is_unsure_of(number);
        let asked = if place.maybe_repeats { self.whom_to_review(now, number, is_unsure) } else { BTreeSet::new() };
        if asked.is_empty() {
            return self.end_search(now, number, (place, has_come), out);
        }
        // What has come is written here: without its place it would count as begun after a restart,
        // and beat what others have made of it.
        if let Some(index) = self.searched(number).filter(|_| has_come) {
            self.record_place(now, index);
        }
        let Some(search) = self.search(number) else { return };
        let review = Review { asked, is_whole: !is_unsure, since: now, place, has_come };
        search.stage = SearchStage::Reviewing(Box::new(review));
        self.ask_published(now, number, out);
    }

    /// Who may know more of what a client has published: while somebody is away nothing but marks
    /// helps, so only those are asked that have had it.
    fn whom_to_review(&mut self, now: Time, number: u64, is_unsure: bool) -> BTreeSet<HostId> {
        let overlay = &mut self.overlay;
        let seek_max = overlay.seek_max();
        let (host, roam) = (overlay.net.host(), &overlay.roam);
        let search = roam.searches.get(number).filter(|search| search.arrival.is_some());
        let Some(search) = search.filter(|search| now.since(search.began) < seek_max) else { return BTreeSet::new() };
        let others = roam.map.hosts().filter(|other| *other != host);
        others.filter(|other| !is_unsure || search.claims.iter().any(|known| known.host == *other)).collect()
    }

    fn ask_published(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let Some(search) = self.search(number) else { return };
        let SearchStage::Reviewing(review) = &search.stage else { return };
        let (client, epoch, asked) = (search.client.clone(), review.place.epoch, review.asked.clone());
        let waited = now.since(search.began).as_micros() as u64;
        for whom in asked {
            let question = AskPublished { number, client: &client, epoch, waited };
            self.send_to(now, whom, (&BrokerMessage::AskPublished(question), false), out);
        }
    }

    /// Asks again, and goes on in doubt if that takes too long.
    pub(super) fn review_on(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let seek_max = self.overlay.seek_max();
        let Some(search) = self.search(number) else { return };
        let waited = now.since(search.began);
        let SearchStage::Reviewing(review) = &mut search.stage else { return };
        if now.since(review.since) >= REVIEW_MAX || waited >= seek_max {
            review.is_whole = false;
            review.asked.clear();
            return self.end_review(now, number, out);
        }
        self.overlay.search_due(number, now + ASK_AGAIN);
        self.ask_published(now, number, out);
    }

    /// Who can be reached has changed.
    pub(super) fn check_reviews(&mut self, now: Time, out: &mut dyn Output) {
        let is_review =
            |(number, stage): (u64, &SearchStage)| matches!(stage, SearchStage::Reviewing(_)).then_some(number);
        let all = self.overlay.roam.searches.iter().map(|(number, search)| (number, &search.stage));
        let all: Vec<u64> = all.filter_map(is_review).collect();
        for number in all {
            let overlay = &mut self.overlay;
            let (searches, map) = (&mut overlay.roam.searches, &overlay.roam.map);
            let Some(SearchStage::Reviewing(review)) = searches.get_mut(number).map(|search| &mut search.stage) else {
                continue;
            };
            let before = review.asked.len();
            review.asked.retain(|host| map.has(*host));
            review.is_whole &= review.asked.len() == before;
            self.end_review(now, number, out);
        }
    }

    /// Goes on if nobody needs to be waited for.
    fn end_review(&mut self, now: Time, number: u64, out: &mut dyn Output) {
        let Some(search) = self.search(number) else { return };
        if !matches!(&search.stage, SearchStage::Reviewing(review) if review.asked.is_empty()) {
            return;
        }
        let SearchStage::Reviewing(review) = core::mem::replace(&mut search.stage, SearchStage::Young) else { return };
        let Review { mut place, has_come, is_whole, .. } = *review;
        (place.maybe_repeats, place.came, place.attached) = (!is_whole, now, now);
        self.end_search(now, number, (place, has_come), out);
    }

    /// A search is over: the client is attached, if it still is there.
    fn end_search(&mut self, now: Time, number: u64, (mut place, has_come): (Attachment, bool), out: &mut dyn Output) {
        if self.search(number).is_some_and(|search| search.is_outdated) {
            if let Some(index) = self.searched(number).filter(|_| has_come) {
                self.record_place(now, index);
            }
            return self.ask_anew(now, number, out);
        }
        let is_unsure = self.is_unsure_of(number);
        // Who has come back since may have what was not asked for.
        place.maybe_repeats |= is_unsure || self.search(number).is_some_and(|search| search.was_unsure);
        if let Some(index) = self.searched(number).filter(|index| is_unsure && self.is_to_be_attached(number, *index)) {
            self.mark_stale_ids(index);
        }
        let Some(search) = self.overlay.roam.searches.remove(number) else { return };
        place.connected_at = search.connected_at;
        let client = search.client;
        let here = self.sessions.find(&client).map(|index| self.sessions.get(index));
        let is_foreign = |arrival: &Arrival| here.is_some_and(|session| session.is_foreign_to(arrival.principal()));
        match search.arrival {
            Some(arrival) if !is_foreign(&arrival) => {
                self.admit(now, arrival.attach(&client), (Some(place), has_come), out);
            }
            other => {
                // Whoever gave it away did not know whose it is, or somebody else has connected
                // since.
                if let Some(stranger) = other {
                    out.refused(stranger.link, Refusal::ForeignSession);
                }
                if let Some(index) = self.sessions.find(&client) {
                    if let Some(known) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                        known.maybe_repeats |= place.maybe_repeats;
                    }
                    self.record_place(now, index);
                }
                self.share_sought(now, &client, true, out);
            }
        }
        self.record_claim(now, &client);
        if let Some(successor) = search.successor {
            self.give_to(now, &client, &successor, out);
        }
    }

    /// Whether a session's client is attached anew once that is no longer sought, or nobody is
    /// attached. Who is attached, and whose session was sought because somebody has ended who had
    /// it once, has been here since: each of its tags is known, and nobody would ask it to forget
    /// them.
    fn is_to_be_attached(&self, number: u64, index: u32) -> bool {
        let search = self.overlay.roam.searches.get(number);
        !self.sessions.get(index).is_attached() || search.is_some_and(|search| search.arrival.is_some())
    }

    /// Somebody asks what its client has published here.
    pub(in crate::overlay) fn on_ask_published(
        &mut self,
        now: Time,
        from: Sender,
        asked: &AskPublished<'_>,
        out: &mut dyn Output,
    ) {
        if let Some(index) = self.sessions.find(asked.client) {
            let session = self.sessions.get(index);
            let waited = Duration::from_micros(asked.waited);
            let has_come_since = session.memory.roam.as_deref().is_some_and(|place| now.since(place.attached) < waited);
            // What it still says over an older connection would come behind the answer.
            if session.is_attached() && session.epoch() < asked.epoch && !has_come_since {
                if self.waits_for_client(now, asked.client, || Want::published(now, from, asked), out) {
                    return;
                }
                self.let_go_of_client(now, index, out);
            }
        }
        let (publishers, committed) = (&self.store.publishers, self.store.commit_queue.committed());
        let numbered = publishers.last(asked.client, committed);
        if numbered != publishers.known(asked.client) {
            // It is not durable yet: whoever asks will ask again.
            return;
        }
        let told = Published { number: asked.number, numbered, lasts: self.last_published(asked.client) };
        self.send_to(now, from.host, (&BrokerMessage::Published(told), false), out);
    }

    /// The last event that a client has published here, or another one that came after that; and
    /// what may have to come before it.
    fn last_published(&self, client: &str) -> PredecessorsBuf {
        let place = self.sessions.find(client).and_then(|index| self.sessions.get(index).memory.roam.as_deref());
        let ended = self.overlay.roam.ended.get(client);
        let known = place.map(Attachment::lasts).filter(|lasts| !lasts.is_empty());
        let known = known.or_else(|| ended.map(|ended| ended.lasts.clone())).unwrap_or_default();
        if !known.is_empty() || !self.store.publishers.has_published(client) {
            return known;
        }
        self.streams.own.latest_of(client, &self.streams.own.assigned())
    }

    /// Somebody says what a client has published there.
    pub(in crate::overlay) fn on_published(&mut self, now: Time, from: Sender, told: &Published, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let (host, searches) = (overlay.net.host(), &mut overlay.roam.searches);
        let Some(search) = searches.get_mut(told.number) else { return };
        let SearchStage::Reviewing(review) = &mut search.stage else { return };
        if !review.asked.remove(&from.host) {
            return;
        }
        let client = search.client.clone();
        // Whatever it published there came before what it publishes now, also if its numbers were
        // greater elsewhere: it may have been on both sides of a cut.
        review.place.after = review.place.after.merged(&told.lasts.elsewhere(host));
        if let Some(numbered) = told.numbered
            && self.store.publishers.known(&client).is_none_or(|known| known < numbered)
        {
            self.import_number(now, &client, numbered);
        }
        self.end_review(now, told.number, out);
    }
}
