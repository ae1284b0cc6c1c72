//! A client has connected to another broker, and its session goes there. Here it stays as it was,
//! with its interest and what is held for it, until it is safe there.
//!
//! A broker that wants the session of a client which is connected here waits until what the
//! connection has already sent is handled, see [`crate::session`].

use core::time::Duration;
use std::sync::Arc;

use whimbrel_event::{Event, HostId, Seeded, Time};
use whimbrel_wire::{AskPublished, BrokerMessage, Move, MoveAnswer, Moved};

use super::searches::Successor;
use super::{EndedSession, GivenSession, KnownClaim};
use crate::api::{Kick, Link, Output};
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::overlay::{DomainPlace, Sender};
use crate::session::{Claimant, Session, is_foreign};
use crate::store::{BatchNo, Moving, SessionNo, Wait, join, without_labelled_will};

/// So long has a connection waited for which a session is asked, microseconds, that there is not.
pub(super) const FOR_NOBODY: u64 = u64::MAX;

/// Bytes of a session in one message.
const PART_BYTES: usize = 256 << 10;

/// An answer without a session.
fn bare<'a>(number: u64, answer: MoveAnswer, epoch: u64, body: &'a [u8]) -> Moved<'a> {
    Moved { number, answer, epoch, part: 0, parts: 1, digest: 0, body, principal: "" }
}

/// The principal for which a session is asked, which may not have one of another; `None`: not told.
fn stranger_of<'a>(asked: &Move<'a>) -> Option<&'a str> {
    Some(asked.principal).filter(|principal| !principal.is_empty())
}

/// In how many parts a session goes.
fn parts_of(whole: &[u8]) -> u32 {
    whole.len().div_ceil(PART_BYTES).max(1) as u32
}

impl GivenSession {
    /// It belongs to that broker, under that epoch; no connection has asked for it here, or that is
    /// forgotten.
    pub(super) fn unasked(now: Time, (to, epoch): (HostId, u64), since: Time) -> GivenSession {
        GivenSession { to, epoch, since, went: Some(now), asker: None, is_written: true, body: None }
    }
}

impl Overlay {
    /// Counts a will that does not move with its session, if it does not.
    fn record_stays(&mut self, stays: bool) {
        if stays {
            self.net.domains().record_refusal(DomainPlace::SessionMove);
        }
    }
}

impl Broker {
    /// Another broker asks for a session.
    pub(in crate::overlay) fn on_move(&mut self, now: Time, from: Sender, asked: &Move<'_>, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let host = overlay.net.host();
        let is_for_nobody = asked.waited == FOR_NOBODY;
        let stranger = stranger_of(asked).map(Box::from);
        let (number, least, clean) = (asked.number, asked.least, asked.clean);
        let left = Time::from_nanos(now.as_nanos().saturating_sub(asked.waited.saturating_mul(1000)));
        let successor = Successor { from, number, least, clean, is_for_nobody, stranger, left };
        if let Some(search) = overlay.roam.searches.of_client_mut(asked.client) {
            let is_awaited = search.arrival.is_some();
            if (search.connected_at, host) < (asked.connected_at, from.host) && !(is_awaited && is_for_nobody) {
                // It goes on there once it is here.
                search.successor = Some(successor);
                return;
            }
            if is_awaited && (is_for_nobody || !asked.as_copy) {
                return self.say_gave(now, (from.host, asked.number), (host, 0, 0), out);
            }
        }
        let Some(index) = self.sessions.find(asked.client) else {
            return self.give_without_session(now, from, asked, out);
        };
        let session = self.sessions.get(index);
        let (own, place) = (session.epoch(), session.memory.roam.as_deref());
        // The client has come here since it left there: that question is late, or no client waits
        // for its answer any more.
        let waited = Duration::from_micros(asked.waited);
        if session.is_attached() && place.is_some_and(|place| now.since(place.attached) < waited) {
            return self.say_gave(now, (from.host, asked.number), (host, 0, 0), out);
        }
        let Some(given) = place.and_then(|place| place.given.as_deref()) else {
            return self.give_to(now, asked.client, &successor, out);
        };
        let copy = self.overlay.roam.copies.get(asked.client);
        if asked.as_copy && copy.is_some_and(|copy| copy.epoch > own) {
            // What it became elsewhere is here as well, and later.
            return self.give_without_session(now, from, asked, out);
        }
        let is_same = given.to == from.host && given.asker == Some((from.incarnation, asked.number));
        if is_same {
            if given.is_written {
                self.answer_move(now, index, asked.part, out);
            }
            return;
        }
        let has_copy = asked.as_copy && given.to == from.host;
        if has_copy || asked.asked_of == Some(given.to) {
            if is_foreign(session.memory.principal.as_deref(), successor.stranger.as_deref()) {
                return self.say_foreign(now, (from.host, asked.number), out);
            }
            // A session that begins anew needs only what its client has published.
            if has_copy || asked.clean || !self.overlay.is_copied_and_away(given, &self.streams) {
                out.copy_used(asked.client, now.since(given.since));
                return self.mark_given(now, index, &successor, out);
            }
        }
        let told = (given.to, given.epoch, own);
        self.say_gave(now, (from.host, asked.number), told, out);
    }

    /// Says who has a session, under which epoch, and of which one the state is that is left here.
    pub(super) fn say_gave(
        &mut self,
        now: Time,
        (whom, number): (HostId, u64),
        (to, epoch, of): (HostId, u64, u64),
        out: &mut dyn Output,
    ) {
        let told = bare(number, MoveAnswer::GaveTo { to, of }, epoch, &[]);
        self.send_to(now, whom, (&BrokerMessage::Moved(told), false), out);
    }

    /// Says that a session belongs to another principal.
    fn say_foreign(&mut self, now: Time, (whom, number): (HostId, u64), out: &mut dyn Output) {
        let told = bare(number, MoveAnswer::Foreign, 0, &[]);
        self.send_to(now, whom, (&BrokerMessage::Moved(told), false), out);
    }

    /// Another broker asks for a session that is not here: a copy of it is, or it has ended, or
    /// there is nothing.
    fn give_without_session(&mut self, now: Time, from: Sender, asked: &Move<'_>, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let copy = overlay.roam.copies.get_mut(asked.client).filter(|_| asked.as_copy);
        // Also who wants nothing of it may not begin anew in its place.
        if copy.as_ref().is_some_and(|copy| is_foreign(copy.principal.as_deref(), stranger_of(asked))) {
            return self.say_foreign(now, (from.host, asked.number), out);
        }
        if let Some(copy) = copy.filter(|_| !asked.clean) {
            let whom = (from.host, from.incarnation, asked.number);
            let given = copy.given.filter(|_| copy.asker != Some(whom)).map(|given| (given, copy.epoch));
            if let Some((to, epoch)) = given
                && overlay.roam.map.has(to)
                && asked.asked_of != Some(to)
                && copy.asker.is_some_and(|(host, ..)| host != from.host)
            {
                return self.say_gave(now, (from.host, asked.number), (to, epoch.saturating_add(1), 0), out);
            }
            let is_new = copy.asker != Some(whom);
            (copy.given, copy.asker) = (Some(from.host), Some(whom));
            if is_new {
                out.copy_used(asked.client, now.since(copy.came));
            }
            let epoch = copy.epoch.saturating_add(1).max(asked.least);
            let carried = without_labelled_will(&copy.structure);
            let (whole, principal) = (copy.whole_with(carried.as_deref()), copy.principal.clone());
            self.overlay.record_stays(carried.is_some());
            let told = (&whole[..], principal.as_deref().unwrap_or_default());
            return self.send_part(now, (from.host, asked.number), (told, epoch, asked.part), out);
        }
        self.answer_gone(now, (from.host, asked.number), asked.client, out);
    }

    /// With what all is durable that has happened up to now; `None`: it is, or nothing ever will
    /// be.
    fn not_durable(&self) -> Option<BatchNo> {
        let last = self.store.commit_queue.last().max(self.store.write_queue.last());
        Some(last).filter(|last| self.has_log() && *last > self.store.commit_queue.committed())
    }

    /// A session has ended: that is told when all is durable that its client did before.
    fn answer_ended(&mut self, now: Time, whom: (HostId, u64), client: &str, out: &mut dyn Output) {
        match self.not_durable() {
            Some(last) => {
                let (to, number) = whom;
                self.store.commit_queue.push(last, Wait::TellEnded { to, number, client: client.into() });
            }
            None => self.tell_ended(now, whom, client, out),
        }
    }

    /// Tells that a session has ended, and what its client published last.
    pub(crate) fn tell_ended(&mut self, now: Time, (to, number): (HostId, u64), client: &str, out: &mut dyn Output) {
        let ended = self.overlay.roam.ended.get(client).cloned();
        // It may have begun again: the broker that asks will ask again.
        let Some(ended) = ended else { return };
        let committed = self.store.commit_queue.committed();
        let number_given = self.store.publishers.last(client, committed);
        let EndedSession { epoch, lasts, maybe_repeats, .. } = ended;
        let moving = Moving { number: number_given, lasts, maybe_repeats, ..Moving::default() };
        let mut body = Vec::new();
        moving.put(&mut body);
        let told = bare(number, MoveAnswer::Ended, epoch, &body);
        self.send_to(now, to, (&BrokerMessage::Moved(told), false), out);
    }

    /// No broker that waits for a session that was sought here in vain needs to wait any longer.
    pub(super) fn answer_nothing(&mut self, now: Time, (whom, number): (HostId, u64), out: &mut dyn Output) {
        let told = bare(number, MoveAnswer::Nothing, 0, &[]);
        self.send_to(now, whom, (&BrokerMessage::Moved(told), false), out);
    }

    /// The client that is connected to a session is told that it is at another broker now.
    pub(super) fn let_go_of_client(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        if self.sessions.get(index).shares().is_some() {
            return self.let_go_of_share(now, index);
        }
        if let Some(link) = self.sessions.get(index).link() {
            self.sessions.stats.takeovers += 1;
            out.kicked(link, Kick::TakenOver);
            self.detach(now, index, true, out);
        }
    }

    /// Gives a session to another broker.
    pub(super) fn give_to(&mut self, now: Time, client: &str, successor: &Successor, out: &mut dyn Output) {
        let whom = (successor.from.host, successor.number);
        // It may have ended while its connection was read out.
        let Some(index) = self.sessions.find(client) else { return self.answer_gone(now, whom, client, out) };
        if is_foreign(self.sessions.get(index).memory.principal.as_deref(), successor.stranger.as_deref()) {
            return self.say_foreign(now, whom, out);
        }
        if successor.is_for_nobody && self.sessions.get(index).is_attached() {
            let host = self.overlay.net.host();
            return self.say_gave(now, whom, (host, 0, 0), out);
        }
        if self.waits_for_client(now, client, || Want::session(client, successor), out) {
            return;
        }
        // The session that its client had before is what it wants there.
        let is_begun_anew = self.sessions.get(index).is_begun_anew();
        self.let_go_of_client(now, index, out);
        if is_begun_anew && !successor.clean {
            return self.answer_nothing(now, whom, out);
        }
        if let Some(index) = self.sessions.find(client) {
            if !successor.clean {
                return self.mark_given(now, index, successor, out);
            }
            self.end(now, index, out);
        }
        self.answer_gone(now, whom, client, out);
    }

    /// Tells a broker that wants a session what has become of it, as it is not here.
    fn answer_gone(&mut self, now: Time, whom: (HostId, u64), client: &str, out: &mut dyn Output) {
        let has_ended = self.overlay.roam.ended.contains_key(client);
        if has_ended {
            self.answer_ended(now, whom, client, out);
        } else {
            self.answer_nothing(now, whom, out);
        }
    }

    /// A session belongs to another broker from now on. It goes when that is durable, and all that
    /// its client did before.
    fn mark_given(&mut self, now: Time, index: u32, successor: &Successor, out: &mut dyn Output) {
        let (to, incarnation) = (successor.from.host, successor.from.incarnation);
        let session = self.sessions.get_mut(index);
        let number = session.memory.number;
        let Some(place) = session.memory.roam.as_deref_mut() else { return };
        let (before, since) = place.given.as_deref().map_or((0, now), |given| (given.epoch, given.since));
        let epoch = place.epoch.max(before).saturating_add(1).max(successor.least);
        let asker = Some((incarnation, successor.number));
        place.given =
            Some(Box::new(GivenSession { to, epoch, since, went: None, asker, is_written: false, body: None }));
        self.record_place(now, index);
        self.overlay.stats.sessions_went += 1;
        match self.not_durable() {
            Some(last) => self.store.commit_queue.push(last, Wait::Gave { session: index, number }),
            None => self.has_given(now, index, number, out),
        }
    }

    /// That a session was given away is durable.
    pub(crate) fn has_given(&mut self, now: Time, index: u32, number: SessionNo, out: &mut dyn Output) {
        if !self.sessions.is_numbered(index, number) {
            return;
        }
        let place = self.sessions.get_mut(index).memory.roam.as_deref_mut();
        let Some(given) = place.and_then(|place| place.given.as_deref_mut()) else { return };
        given.is_written = true;
        self.answer_move(now, index, 0, out);
    }

    /// Sends a part of a session that was given away.
    fn answer_move(&mut self, now: Time, index: u32, part: u32, out: &mut dyn Output) {
        let place = self.sessions.get(index).memory.roam.as_deref();
        let Some(given) = place.and_then(|place| place.given.as_deref()) else { return };
        let (to, epoch) = (given.to, given.epoch);
        let Some((_, number)) = given.asker else { return };
        let whole: Arc<[u8]> = match &given.body {
            Some(body) if part > 0 => body.clone(),
            _ => {
                let (mut structure, mut moving) = (Vec::new(), Vec::new());
                // A client that has come to another broker has a will of that connection.
                let will = self.labelled_will(index);
                let is_free = |will: &&Event| will.packed().domains().is_any();
                let carried = will.as_ref().filter(is_free);
                self.overlay.record_stays(will.is_some() && carried.is_none());
                self.export_structure(index, carried, &mut structure);
                self.export_moving(now, index, &mut moving);
                join(&structure, &moving).into()
            }
        };
        let place = self.sessions.get_mut(index).memory.roam.as_deref_mut();
        if let Some(given) = place.and_then(|place| place.given.as_deref_mut()) {
            given.body = (whole.len() > PART_BYTES).then(|| whole.clone());
            if part + 1 >= parts_of(&whole) {
                given.went.get_or_insert(now);
            }
        }
        let principal = self.sessions.get(index).memory.principal.clone();
        let told = (&whole[..], principal.as_deref().unwrap_or_default());
        self.send_part(now, (to, number), (told, epoch, part), out);
    }

    fn send_part(
        &mut self,
        now: Time,
        (to, number): (HostId, u64),
        ((whole, principal), epoch, part): ((&[u8], &str), u64, u32),
        out: &mut dyn Output,
    ) {
        let parts = parts_of(whole);
        let body = whole.chunks(PART_BYTES).nth(part as usize).unwrap_or_default();
        let digest = Seeded::new(0).hash_one(whole);
        let told = Moved { number, answer: MoveAnswer::Given, epoch, part, parts, digest, body, principal };
        self.send_to(now, to, (&BrokerMessage::Moved(told), false), out);
    }
}

/// What another broker wants of a session that is attached here, kept until its connection has been
/// read out.
#[derive(Debug)]
pub(crate) struct Want {
    client: Box<str>,
    kind: WantKind,
}

#[derive(Debug)]
enum WantKind {
    /// The session.
    Session(Successor),
    /// What the client has published here; at the moment `came` its connection there had waited for
    /// `waited` microseconds.
    Published { from: Sender, number: u64, epoch: u64, waited: u64, came: Time },
    /// Its client is attached elsewhere by now.
    Outdated(KnownClaim),
}

impl Want {
    pub(super) fn session(client: &str, successor: &Successor) -> Want {
        Want { client: client.into(), kind: WantKind::Session(successor.clone()) }
    }

    pub(super) fn published(now: Time, from: Sender, asked: &AskPublished<'_>) -> Want {
        let AskPublished { number, client, epoch, waited } = *asked;
        Want { client: client.into(), kind: WantKind::Published { from, number, epoch, waited, came: now } }
    }

    pub(super) fn outdated(client: &str, known: KnownClaim) -> Want {
        Want { client: client.into(), kind: WantKind::Outdated(known) }
    }

    /// Which broker asks for the session, and under which number.
    fn asker(&self) -> Option<(HostId, u64)> {
        match &self.kind {
            WantKind::Session(successor) => Some((successor.from.host, successor.number)),
            WantKind::Published { from, number, .. } => Some((from.host, *number)),
            WantKind::Outdated(_) => None,
        }
    }

    /// Whether it is the same question, asked again.
    pub(crate) fn is_repeat_of(&self, other: &Want) -> bool {
        self.client == other.client && self.asker().is_some() && self.asker() == other.asker()
    }
}

impl Broker {
    /// Keeps what another broker wants if the session's connection is to be read out first; whether
    /// it is.
    pub(super) fn waits_for_client(
        &mut self,
        now: Time,
        client: &str,
        want: impl FnOnce() -> Want,
        out: &mut dyn Output,
    ) -> bool {
        let unread: Option<Link> = self.unread_link(now, client, out);
        if let Some(link) = unread {
            self.claim(link, Claimant::Broker(Box::new(want())), out);
        }
        unread.is_some()
    }

    /// The connection of the session that another broker wants has been read out, or has ended.
    pub(crate) fn resume_want(&mut self, now: Time, want: Want, out: &mut dyn Output) {
        let client = want.client;
        match want.kind {
            WantKind::Session(successor) => self.resume_move(now, &client, &successor, out),
            WantKind::Published { from, number, epoch, waited, came } => {
                let more = now.since(came).as_micros() as u64;
                let waited = waited.saturating_add(more);
                self.on_ask_published(now, from, &AskPublished { number, client: &client, epoch, waited }, out);
            }
            WantKind::Outdated(known) => self.on_outdated(now, &[known.claim(&client)], out),
        }
    }

    /// Gives a session to the broker that wants it, unless a claimant that was served before has
    /// changed whose it is.
    fn resume_move(&mut self, now: Time, client: &str, successor: &Successor, out: &mut dyn Output) {
        let session = self.sessions.find(client).map(|index| self.sessions.get(index));
        if session.is_some_and(Session::is_given) {
            // It asks again, and hears to which broker.
            return;
        }
        let place = session.filter(|session| session.is_attached()).and_then(|session| session.memory.roam.as_deref());
        if place.is_some_and(|place| place.connected_at > successor.left.as_nanos()) {
            // The client has come here since it connected there.
            let host = self.overlay.net.host();
            return self.say_gave(now, (successor.from.host, successor.number), (host, 0, 0), out);
        }
        self.give_to(now, client, successor, out);
    }
}
