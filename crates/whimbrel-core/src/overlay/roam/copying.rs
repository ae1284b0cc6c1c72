//! What has changed of sessions goes to their replicas: four times a second, and at once where it
//! must not be lost.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use whimbrel_event::{DomainLabel, Event, HostId, Time};
use whimbrel_wire::{BrokerMessage, Copies as Page, CopiesTaken, LIST_MAX, REPLICAS_MAX};

use super::map::Map;
use super::{Due, STILL, hash_of};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Overlay;
use crate::overlay::{DomainPlace, Sender};
use crate::store::{NAMED_MAX, put_bytes, put_varint};
use crate::stream::StreamSet;

/// How often what moves is copied.
pub const COPY_EVERY: Duration = Duration::from_millis(250);

/// What seldom changes is copied so soon.
pub(super) const SOON: Duration = Duration::from_millis(2);

/// A page that was not taken is made anew after so long, or twice the way there and back if that is
/// longer.
const COPY_AGAIN: Duration = Duration::from_millis(500);

/// Bytes after which a page of copies is sent.
const PAGE_BYTES: usize = 64 << 10;

/// Sessions of which one message tells: it names those that are lacking.
const PAGE_SESSIONS: usize = LIST_MAX;

/// A session that alone is larger is not copied, and counted.
const COPY_BYTES_MAX: usize = 768 << 10;

/// Sessions that are copied before others have their turn.
const COPY_SLICE: usize = 8192;

/// Pages that are on their way at a time.
const PAGES_MAX: usize = 64;

pub(super) const WHOLE: u8 = 1;
pub(super) const MOVING: u8 = 2;
pub(super) const GONE: u8 = 3;
/// As [`WHOLE`] and [`MOVING`], for somebody who knows of the same streams, which are not named.
pub(super) const WHOLE_AMONG: u8 = 4;
pub(super) const MOVING_AMONG: u8 = 5;

/// A page on its way: about which sessions, in which state.
#[derive(Debug)]
struct OpenPage {
    to: HostId,
    at: Time,
    /// Place, epoch and version.
    sessions: Vec<(u32, u64, u64)>,
    gone: Vec<Box<str>>,
    has_whole: bool,
}

/// What is copied, and to whom.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// Places of sessions that have changed.
    changed: VecDeque<u32>,
    /// Copies that are to be given up, by who has them.
    gone: BTreeMap<HostId, BTreeSet<Box<str>>>,
    open: BTreeMap<u64, OpenPage>,
    pages: u64,
    due: Option<Time>,
    /// Whoever was sent copies in this life.
    replicas: BTreeSet<HostId>,
    /// Which streams those know of who have taken copies, as they told last.
    among: BTreeMap<HostId, u64>,
    /// Kept for their memory.
    structure: Vec<u8>,
    moving: Vec<u8>,
}

impl Copying {
    /// Pages are numbered from here, as of [`super::telling::Telling::number_from`].
    pub(super) fn number_from(&mut self, incarnation: u64) {
        self.pages = self.pages.max(incarnation);
    }

    /// A replica need not keep a copy any longer.
    pub(super) fn forget_at(&mut self, replica: HostId, client: &str) {
        self.gone.entry(replica).or_default().insert(client.into());
        self.due = None;
    }
}

/// Whom a page of copies is for, and the label of what is in it.
type PageKey = (HostId, Box<str>);

/// A page in the making.
#[derive(Debug, Default)]
struct PageInMaking {
    body: Vec<u8>,
    /// Whose some of the sessions are, by the places of their copies, and bytes of these names.
    principals: Vec<(u32, Arc<str>)>,
    principal_bytes: usize,
    sessions: Vec<(u32, u64, u64)>,
    gone: Vec<Box<str>>,
    has_whole: bool,
}

impl PageInMaking {
    /// Copies in it.
    fn count(&self) -> usize {
        self.sessions.len() + self.gone.len()
    }
}

impl Overlay {
    fn has_page_left(&self) -> bool {
        self.roam.copying.open.len() < PAGES_MAX
    }
}

impl Broker {
    /// Whether others can go on without this broker: replicas have everything of the sessions here
    /// that they are to have, and whoever has asked for one has been answered. Also where there is
    /// nobody else.
    pub fn is_handed_over(&self) -> bool {
        if !self.overlay.is_open() {
            return true;
        }
        let overlay = &self.overlay;
        let Copying { changed, open, gone, .. } = &overlay.roam.copying;
        let is_copied = changed.is_empty() && open.is_empty() && gone.is_empty();
        // When brokers have come or gone, it is looked first for whom other replicas are to have.
        is_copied && overlay.roam.telling.has_walked() && !self.store.commit_queue.has_broker_waits()
    }

    /// Something of a session has changed that its replica has to know.
    pub(crate) fn record_changed(&mut self, now: Time, index: u32, is_structure: bool) {
        let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() else { return };
        let copied = &mut place.copied;
        copied.version += 1;
        if is_structure {
            copied.structure = copied.version;
        }
        if place.given.is_none() {
            self.list_changed(index, now + if is_structure { SOON } else { COPY_EVERY });
        }
    }

    /// A session is to be copied, until then at the latest.
    fn list_changed(&mut self, index: u32, at: Time) {
        let session = self.sessions.get_mut(index);
        // Of one that was begun anew a copy would stand before the session that its client had.
        let is_copied = session.is_persistent() && !session.is_begun_anew();
        let Some(place) = session.memory.roam.as_deref_mut().filter(|_| is_copied) else { return };
        let is_listed = core::mem::replace(&mut place.copied.is_listed, true);
        if !self.overlay.is_open() {
            return;
        }
        let overlay = &mut self.overlay;
        let copying = &mut overlay.roam.copying;
        if !is_listed {
            copying.changed.push_back(index);
        }
        if copying.due.is_none_or(|due| at < due) {
            copying.due = Some(at);
            overlay.set_once(at, Due::Copy);
        }
    }

    /// From where on the logs of others count for a session's subscriptions is known: whoever goes
    /// on from a copy needs that, and SUBACK waits for it.
    pub(crate) fn record_counted(&mut self, index: u32) {
        let now = self.now;
        self.record_changed(now, index, false);
        let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() else { return };
        place.copied.counted = place.copied.version;
        let overlay = &mut self.overlay;
        let (copying, at) = (&mut overlay.roam.copying, now + SOON);
        if copying.due.is_some_and(|due| at < due) {
            copying.due = Some(at);
            overlay.set_once(at, Due::Copy);
        }
    }

    /// A client acknowledged or published something, or tags moved.
    pub(crate) fn record_moved(&mut self, index: u32) {
        if self.overlay.is_open() {
            self.record_changed(self.now, index, false);
        }
    }

    /// Who is to have the copy of a session: whoever has it, as long as brokers come and go.
    fn wanted_replica(&self, now: Time, index: u32) -> Option<HostId> {
        let session = self.sessions.get(index);
        let place = session.memory.roam.as_deref()?;
        let roam = &self.overlay.roam;
        let present = place.copied.taken.or(place.copied.sent).map(|(host, _)| host);
        let stays = present.filter(|host| roam.map.has(*host) && now.since(roam.still_since) < STILL);
        stays.or_else(|| self.ranked_replica(index))
    }

    /// Who is to have it among the present brokers.
    pub(super) fn ranked_replica(&self, index: u32) -> Option<HostId> {
        let session = self.sessions.get(index);
        let place = session.memory.roam.as_deref()?;
        let overlay = &self.overlay;
        let map = &overlay.roam.map;
        let (hash, ranked) = place.copied.ranked;
        if hash == map.hash() { ranked } else { map.replica(hash_of(&session.client_id), overlay.net.host()) }
    }

    /// The same, which is not looked for again as long as these are the brokers.
    fn rank_replica(&mut self, index: u32) {
        let ranked = self.ranked_replica(index);
        let hash = self.overlay.roam.map.hash();
        if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
            place.copied.ranked = (hash, ranked);
        }
    }

    /// The brokers have changed: perhaps somebody else is to have the copy of a session, or whoever
    /// had it has lost it. `ranked` is who is to have it among which.
    pub(super) fn check_replica(&mut self, now: Time, index: u32, (old, ranked): (&Map, (u64, Option<HostId>))) {
        if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
            place.copied.ranked = ranked;
        }
        let wanted = self.wanted_replica(now, index);
        let map = &self.overlay.roam.map;
        let Some(place) = self.sessions.get(index).memory.roam.as_deref() else { return };
        let sent = place.copied.sent.map(|(host, _)| host);
        let is_lost = sent.is_some_and(|host| map.incarnation(host) != old.incarnation(host) && map.has(host));
        if sent != wanted || is_lost {
            if is_lost && let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                (place.copied.sent, place.copied.taken) = (None, None);
            }
            self.record_changed(now, index, false);
        }
    }

    /// Sends copies of what has changed.
    pub(in crate::overlay) fn copy_on(&mut self, now: Time, out: &mut dyn Output) {
        self.check_open(now);
        let overlay = &mut self.overlay;
        overlay.roam.copying.due = None;
        let mut making: BTreeMap<PageKey, PageInMaking> = BTreeMap::new();
        let gone = core::mem::take(&mut overlay.roam.copying.gone);
        for (replica, clients) in gone.into_iter().filter(|(replica, _)| overlay.roam.map.has(*replica)) {
            let page = making.entry((replica, Box::default())).or_default();
            for client in clients {
                put_bytes(&mut page.body, client.as_bytes());
                page.body.push(GONE);
                page.gone.push(client);
            }
        }
        let mut left = COPY_SLICE.min(self.overlay.roam.copying.changed.len());
        while left > 0 && self.overlay.has_page_left() {
            left -= 1;
            let Some(index) = self.overlay.roam.copying.changed.pop_front() else { break };
            if let Some(key) = self.put_copy(now, index, &mut making)
                && let Some(page) = making.get_mut(&key)
                && (page.body.len() + page.principal_bytes >= PAGE_BYTES || page.count() >= PAGE_SESSIONS)
            {
                let page = core::mem::take(page);
                self.send_copies(now, &key, page, out);
            }
        }
        for (key, page) in making.into_iter().filter(|(_, page)| !page.body.is_empty()) {
            self.send_copies(now, &key, page, out);
        }
        let overlay = &mut self.overlay;
        let copying = &mut overlay.roam.copying;
        let again = match (copying.changed.is_empty(), copying.open.is_empty()) {
            (false, _) if left == 0 => Some(now),
            (true, true) => None,
            _ => Some(now + COPY_EVERY),
        };
        if let Some(at) = again {
            copying.due = Some(at);
            overlay.set_once(at, Due::Copy);
        }
    }

    /// Who would have to take over what is here, if this broker ended: its own name among them says
    /// that something would be lost.
    pub(in crate::overlay) fn replicas(&self) -> Vec<HostId> {
        if !self.overlay.is_open() {
            return Vec::new();
        }
        let overlay = &self.overlay;
        let copying = &overlay.roam.copying;
        let is_lacking = copying.open.values().any(|open| open.has_whole);
        let own = is_lacking.then_some(overlay.net.host());
        own.into_iter().chain(copying.replicas.iter().copied()).take(REPLICAS_MAX).collect()
    }

    /// Adds a session that has changed to a page for its replica, which is returned.
    fn put_copy(&mut self, now: Time, index: u32, making: &mut BTreeMap<PageKey, PageInMaking>) -> Option<PageKey> {
        self.sessions.from(index).next().filter(|(_, session)| session.is_some())?;
        self.rank_replica(index);
        let wanted = self.wanted_replica(now, index);
        let place = self.sessions.get_mut(index).memory.roam.as_deref_mut()?;
        // What was given away since is copied, too: if whoever asked for it is not answered any
        // more, that copy is all that others have of it.
        if !core::mem::take(&mut place.copied.is_listed) {
            return None;
        }
        let replica = wanted?;
        let (epoch, copied) = (place.epoch, place.copied);
        let is_whole = copied.sent != Some((replica, copied.structure));
        place.copied.sent = Some((replica, copied.structure));
        let copying = &mut self.overlay.roam.copying;
        let (mut structure, mut moving) =
            (core::mem::take(&mut copying.structure), core::mem::take(&mut copying.moving));
        structure.clear();
        moving.clear();
        let will = if is_whole { self.will_for(index, replica) } else { None };
        let label = will.as_ref().map_or(DomainLabel::ANY, |will| will.packed().domains());
        let label = if fault!(self, SessionCopyLeavesDomain) { DomainLabel::ANY } else { label };
        if is_whole {
            self.export_structure(index, will.as_ref(), &mut structure);
        }
        let known = self.overlay.roam.copying.among.get(&replica).copied();
        let count = self.sessions.get(index).subscriptions.len();
        let is_same =
            |stream_set: &StreamSet| known == Some(stream_set.digest) && count * stream_set.streams.len() <= NAMED_MAX;
        let among = Some(self.streams.stream_set().clone()).filter(is_same);
        match &among {
            Some(stream_set) => self.export_moving_among(now, index, &stream_set.streams, &mut moving),
            None => self.export_moving(now, index, &mut moving),
        }
        let key: PageKey = (replica, label.as_str().into());
        let page = making.entry(key.clone()).or_default();
        let overlay = &mut self.overlay;
        if structure.len() + moving.len() <= COPY_BYTES_MAX {
            put_bytes(&mut page.body, self.sessions.get(index).client_id.as_bytes());
            page.body.push(match (is_whole, &among) {
                (true, None) => WHOLE,
                (false, None) => MOVING,
                (true, Some(_)) => WHOLE_AMONG,
                (false, Some(_)) => MOVING_AMONG,
            });
            if let Some(stream_set) = &among {
                put_varint(&mut page.body, stream_set.digest);
            }
            put_varint(&mut page.body, epoch);
            put_varint(&mut page.body, copied.version);
            put_varint(&mut page.body, copied.structure);
            if is_whole {
                put_bytes(&mut page.body, &structure);
                if let Some(principal) = &self.sessions.get(index).memory.principal {
                    page.principal_bytes += principal.len();
                    page.principals.push((page.count() as u32, principal.clone()));
                }
            }
            put_bytes(&mut page.body, &moving);
            page.sessions.push((index, epoch, copied.version));
            page.has_whole |= is_whole;
            overlay.stats.copies_out += 1;
        } else {
            overlay.stats.copies_too_large += 1;
        }
        (overlay.roam.copying.structure, overlay.roam.copying.moving) = (structure, moving);
        Some(key)
    }

    /// The event of a session's will as its replica may have it, if it may: it can reach the
    /// replica over brokers that may carry it.
    fn will_for(&mut self, index: u32, replica: HostId) -> Option<Event> {
        let will = self.labelled_will(index)?;
        let label = will.packed().domains();
        if label.is_any() || fault!(self, SessionCopyLeavesDomain) || self.overlay.net.domains().reaches(label, replica)
        {
            return Some(will);
        }
        self.overlay.net.domains().record_refusal(DomainPlace::SessionCopy);
        None
    }

    fn send_copies(&mut self, now: Time, (to, label): &PageKey, making: PageInMaking, out: &mut dyn Output) {
        let to = *to;
        let overlay = &mut self.overlay;
        let copying = &mut overlay.roam.copying;
        copying.pages += 1;
        let page = copying.pages;
        overlay.stats.copies_bytes += (making.body.len() + making.principal_bytes) as u64;
        let principals = making.principals.iter().map(|(copy, principal)| (*copy, &**principal)).collect();
        let told = BrokerMessage::Copies(Page { page, body: &making.body, principals });
        let is_sent = self.overlay.send_within(now, to, DomainLabel::checked(label), &told, true, out);
        let overlay = &mut self.overlay;
        let PageInMaking { sessions, gone, has_whole, .. } = making;
        overlay.roam.copying.replicas.insert(to);
        // What had no room is made anew the next time.
        let at = if is_sent { now } else { Time::ZERO };
        overlay.roam.copying.open.insert(page, OpenPage { to, at, sessions, gone, has_whole });
    }

    /// What was not taken is copied anew.
    fn check_open(&mut self, now: Time) {
        let overlay = &mut self.overlay;
        let map = overlay.roam.map.clone();
        let is_late = |open: &OpenPage| now.since(open.at) >= overlay.net.answered_within(open.to, COPY_AGAIN);
        let is_over = |open: &OpenPage| is_late(open) || !map.has(open.to);
        let over: Vec<u64> =
            overlay.roam.copying.open.iter().filter(|(_, open)| is_over(open)).map(|(page, _)| *page).collect();
        for page in over {
            let overlay = &mut self.overlay;
            let Some(open) = overlay.roam.copying.open.remove(&page) else { continue };
            overlay.stats.copies_again += open.sessions.len() as u64;
            // It may be another program by now, that knows of no such copies.
            overlay.roam.copying.among.remove(&open.to);
            if map.has(open.to) {
                overlay.roam.copying.gone.entry(open.to).or_default().extend(open.gone);
            }
            for (index, epoch, _) in open.sessions {
                self.copy_whole(now, index, epoch);
            }
        }
    }

    /// Has a session copied whole, if it still is that one.
    fn copy_whole(&mut self, now: Time, index: u32, epoch: u64) {
        let is_there = self.sessions.from(index).next().is_some_and(|(_, session)| session.is_some());
        let place = is_there.then(|| self.sessions.get_mut(index).memory.roam.as_deref_mut()).flatten();
        if let Some(place) = place.filter(|place| place.epoch == epoch) {
            place.copied.sent = None;
            place.copied.version += 1;
            // Also if it was given away since: see [`Broker::put_copy`].
            self.list_changed(index, now + COPY_EVERY);
        }
    }

    /// A replica has taken copies.
    pub(in crate::overlay) fn copies_taken(
        &mut self,
        now: Time,
        from: Sender,
        taken: &CopiesTaken<'_>,
        out: &mut dyn Output,
    ) {
        let copying = &mut self.overlay.roam.copying;
        if copying.open.get(&taken.page).is_none_or(|open| open.to != from.host) {
            return;
        }
        let Some(open) = copying.open.remove(&taken.page) else { return };
        match taken.streams {
            0 => copying.among.remove(&from.host),
            known => copying.among.insert(from.host, known),
        };
        let lacking: Vec<u32> = taken.lacking.iter().filter_map(|client| self.sessions.find(client)).collect();
        for (index, epoch, version) in open.sessions {
            if lacking.contains(&index) {
                self.copy_whole(now, index, epoch);
                continue;
            }
            let is_there = self.sessions.from(index).next().is_some_and(|(_, session)| session.is_some());
            let session = is_there.then(|| self.sessions.get_mut(index));
            let Some(place) = session.and_then(|session| session.memory.roam.as_deref_mut()) else { continue };
            if place.epoch != epoch || place.copied.sent.is_none_or(|(host, _)| host != from.host) {
                continue;
            }
            let before = place.copied.taken.replace((from.host, version));
            if let Some((old, _)) = before.filter(|(old, _)| *old != from.host) {
                let client = self.sessions.get(index).client_id.clone();
                let overlay = &mut self.overlay;
                overlay.roam.copying.forget_at(old, &client);
                overlay.set_once(now + SOON, Due::Copy);
            }
        }
        self.confirm_ready(now, out);
    }

    /// Whether the replica of a session, if it has one, has what has changed of it up to a version.
    pub(crate) fn is_copied(&self, now: Time, index: u32, version: u64) -> bool {
        let is_there = self.sessions.from(index).next().is_some_and(|(_, session)| session.is_some());
        let place = is_there.then(|| self.sessions.get(index).memory.roam.as_deref()).flatten();
        let session = place.is_some().then(|| self.sessions.get(index));
        let is_kept = session.is_some_and(|session| session.is_persistent() && !session.is_begun_anew());
        let Some(place) = place.filter(|_| is_kept) else { return true };
        let Some(replica) = self.wanted_replica(now, index) else { return true };
        let version = version.max(place.copied.counted);
        place.copied.taken.is_some_and(|(host, taken)| host == replica && taken >= version)
    }

    /// With which version what seldom changes of a session has changed last.
    pub(crate) fn structure_of(&self, index: u32) -> u64 {
        self.sessions.get(index).memory.roam.as_deref().map_or(0, |place| place.copied.structure)
    }
}
