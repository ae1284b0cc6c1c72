//! Copies of other brokers' sessions, and their use: copies are taken as their owners send them,
//! and the sessions of a broker that has ended are taken over by the brokers that have copies.
//! When all are safe, others are told: they need not keep anything for that broker any more.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Time};
use whimbrel_wire::{BrokerMessage, Claim, Copies as Page, CopiesTaken, LIST_MAX, TakenOver};

use super::copies::SessionCopy;
use super::copying::{GONE, MOVING, MOVING_AMONG, WHOLE, WHOLE_AMONG};
use super::seeking::ASK_AGAIN;
use super::settling::{SETTLE_EVERY, SETTLE_MAX, next_turn};
use super::{Due, Roam, turn};
use crate::api::Output;
use crate::broker::Broker;
use crate::overlay::Sender;
use crate::session::shared_text;
use crate::store::{ByteReader, Key};

/// So often others are told that nothing needs to be kept for a broker that has ended: messages may
/// be lost.
const TOOK_TIMES: u32 = 10;

/// So often those are told that could not be reached then.
const TOOK_LATE_TIMES: u32 = 3;

/// So many messages are written to those in a second: after a partition of n brokers each of them
/// may have n/2 to tell.
const TOOK_LATE_MAX: usize = 16;

/// Brokers that have ended, all of whose sessions are safe, of which those who could not be reached
/// are told; of others they learn when what they keep expires.
const TOOK_MAX: usize = 16;

/// Those that nobody could tell of are sought again after [`SETTLE_EVERY`], and each further time
/// after twice as long, and after this at most.
const ORPHAN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Sessions of a broker that has ended which are taken over at a time.
const ORPHANS_MAX: usize = 64;

/// The sessions of a broker that has ended, as far as there were copies here: of some others have
/// taken them over before, and may not have told what they need.
#[derive(Debug)]
struct Adopting {
    owner: HostId,
    /// Those that are not safe yet, each with who else has it, and under which epoch, where there
    /// is no copy here any more that tells.
    clients: BTreeMap<Box<str>, Option<(HostId, u64)>>,
    /// Behind whom it is asked next whether others have made them safe.
    asked: Box<str>,
    /// How often others were told that all are.
    told: u32,
    /// Who could not be reached then, each with how often it was told.
    late: BTreeMap<HostId, u32>,
    since: Time,
    /// When those are sought again that nobody could tell of, and how long after that the next
    /// time.
    again: (Time, Duration),
}

/// What is being taken over.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    taking: Vec<Adopting>,
    /// Clients whose owner has ended, and of whose sessions there are copies here.
    orphans: BTreeSet<Box<str>>,
    /// Which of them was sought last.
    sought: Box<str>,
}

impl Takeover {
    /// Somebody has a session of which there is no copy here any more.
    pub(super) fn record_elsewhere(&mut self, client: &str, has_it: (HostId, u64)) {
        let known = self.taking.iter_mut().filter_map(|one| one.clients.get_mut(client));
        known.for_each(|known| *known = Some(has_it));
    }

    /// Nobody has a session: one that connects would begin anew.
    pub(super) fn record_nobody(&mut self, client: &str) {
        for one in &mut self.taking {
            one.clients.remove(client);
        }
    }

    /// Brokers can be reached that could not be before. Whether somebody has to be told something.
    pub(super) fn record_arrived(&mut self, come: &[HostId]) -> bool {
        for one in self.taking.iter_mut().filter(|one| one.told >= TOOK_TIMES) {
            one.late.extend(come.iter().map(|host| (*host, 0)));
        }
        !self.taking.is_empty() && !come.is_empty()
    }

    /// The next one to be sought: each has its turn.
    fn next_orphan(&mut self) -> Option<Box<str>> {
        use core::ops::Bound::{Excluded, Unbounded};
        let next = self.orphans.range::<str, _>((Excluded(&*self.sought), Unbounded)).next();
        let next = next.or(self.orphans.first())?.clone();
        self.orphans.remove(&next);
        self.sought = next.clone();
        Some(next)
    }

    /// Some of those that could not be reached, each with of whose sessions it is told.
    fn late_ones(&mut self) -> Vec<(HostId, HostId)> {
        let mut told = Vec::new();
        for one in &mut self.taking {
            for (host, times) in one.late.iter_mut().take(TOOK_LATE_MAX - told.len()) {
                *times += 1;
                told.push((*host, one.owner));
            }
            one.late.retain(|_, times| *times < TOOK_LATE_TIMES);
        }
        told
    }

    /// Those that others have been told of often enough: the last ones stay, until whatever is kept
    /// for them expires.
    fn forget_told(&mut self, now: Time, most: Duration) {
        self.taking.retain(|one| now.since(one.since) < most);
        let is_told = |one: &Adopting| one.told >= TOOK_TIMES;
        let mut spare = self.taking.iter().filter(|one| is_told(one)).count().saturating_sub(TOOK_MAX);
        self.taking.retain(|one| {
            let is_spare = is_told(one) && spare > 0;
            spare -= usize::from(is_spare);
            !is_spare
        });
    }
}

/// How a session stands of which a broker that has ended was the owner.
enum Outlook {
    /// It needs nothing that others keep for that one.
    Safe,
    /// It is sought, or somebody has not said yet what it needs.
    Unsafe,
    /// Nobody could say who has it, if somebody does.
    Orphan,
}

impl Broker {
    /// A broker has ended: what it told of its sessions means nothing any more, and those of which
    /// there are copies here are taken over.
    pub(in crate::overlay) fn adopt_from(&mut self, now: Time, host: HostId) {
        let overlay = &mut self.overlay;
        let roam = &mut overlay.roam;
        roam.directory.forget_host(host);
        let has_forgotten = roam.forgotten.remove(&host);
        let of_host: Vec<Box<str>> = roam.copies.of_owner(host).collect();
        let is_gone = |host: HostId| self.streams.has_ended(host);
        let is_orphan = |client: &str| roam.copies.get(client).is_some_and(|copy| copy.holder(is_gone).is_none());
        roam.takeover.orphans.extend(of_host.iter().filter(|client| is_orphan(client)).cloned());
        if !has_forgotten {
            let clients =
                of_host.into_iter().chain(roam.copies.formerly_of(host)).map(|client| (client, None)).collect();
            let (asked, told, late, again) = (Box::default(), 0, BTreeMap::new(), (now, SETTLE_EVERY));
            roam.takeover.taking.push(Adopting { owner: host, clients, asked, told, late, since: now, again });
        }
        overlay.set_once(now, Due::Seek);
        overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        if overlay.roam.known.remove(&host).is_some() && self.has_log() {
            self.store.write_queue.forget(|key| Key::Known(host).put(key));
            self.store.write_queue.seal();
        }
    }

    /// Sessions whose owner has ended, and of which there are copies here, are sought: perhaps
    /// somebody has a later state.
    pub(super) fn seek_orphans(&mut self, now: Time, out: &mut dyn Output) {
        while !self.overlay.roam.takeover.orphans.is_empty() {
            let overlay = &mut self.overlay;
            if overlay.roam.searches.len() >= ORPHANS_MAX {
                return overlay.set_once(now + ASK_AGAIN, Due::Seek);
            }
            if let Some(client) = overlay.roam.takeover.next_orphan() {
                self.seek(now, &client, None, out);
            }
        }
    }

    /// Whoever was asked for the session of a broker that has ended has it, or has ended it, under
    /// that epoch: the copy here is of no use, and goes when it is safe there.
    pub(super) fn record_holder(&mut self, now: Time, client: &str, has_it: (HostId, u64)) {
        let overlay = &mut self.overlay;
        overlay.roam.takeover.record_elsewhere(client, has_it);
        if let Some(copy) = overlay.roam.copies.get_mut(client).filter(|copy| copy.epoch <= has_it.1) {
            copy.void = Some(has_it);
            overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        }
    }

    /// Tells others that all is safe which was here of the sessions of brokers that have ended.
    pub(super) fn tell_taken(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        let is_open = |one: &Adopting| one.told < TOOK_TIMES || !one.late.is_empty();
        if !overlay.roam.takeover.taking.iter().any(is_open) {
            return;
        }
        overlay.set_once(now + SETTLE_EVERY, Due::Settle);
        let (host, map) = (overlay.net.host(), overlay.roam.map.clone());
        let mut taking = core::mem::take(&mut overlay.roam.takeover.taking);
        let mut orphans = Vec::new();
        for one in taking.iter_mut().filter(|one| one.told < TOOK_TIMES) {
            let (is_due, before) = (one.again.0 <= now, orphans.len());
            one.clients.retain(|client, elsewhere| match self.outlook(client, *elsewhere) {
                Outlook::Safe => false,
                Outlook::Unsafe => true,
                Outlook::Orphan => {
                    orphans.extend(is_due.then(|| client.clone()));
                    true
                }
            });
            if orphans.len() > before {
                let pause = one.again.1;
                one.again = (now + pause, (pause * 2).min(ORPHAN_PAUSE_MAX));
            }
            if !one.clients.is_empty() {
                continue;
            }
            one.told += 1;
            for other in map.hosts().filter(|other| *other != host) {
                self.send_to(now, other, (&BrokerMessage::TakenOver(TakenOver { owner: one.owner }), false), out);
            }
            self.on_taken_over(now, one.owner, host);
        }
        let most = self.sessions.limits.session_expiry_max;
        let overlay = &mut self.overlay;
        let takeover = &mut overlay.roam.takeover;
        taking.append(&mut takeover.taking);
        takeover.taking = taking;
        takeover.forget_told(now, most);
        let late = takeover.late_ones();
        if !orphans.is_empty() {
            // Somebody who may have them was not heard in time.
            takeover.orphans.extend(orphans);
            overlay.set_once(now, Due::Seek);
        }
        for (other, owner) in late.into_iter().filter(|(other, _)| map.has(*other)) {
            self.send_to(now, other, (&BrokerMessage::TakenOver(TakenOver { owner }), false), out);
        }
    }

    /// How a client's session stands. Until the own holds of whoever has it are known to others,
    /// what they keep for the broker that has ended is all that is held for it.
    fn outlook(&self, client: &str, elsewhere: Option<(HostId, u64)>) -> Outlook {
        if !self.overlay.is_open() {
            return Outlook::Safe;
        }
        let roam = &self.overlay.roam;
        if roam.searches.of_client(client).is_some() || roam.takeover.orphans.contains(client) {
            return Outlook::Unsafe;
        }
        if let Some(index) = self.sessions.find(client) {
            let place = self.sessions.get(index).memory.roam.as_deref();
            let is_safe = place.is_none_or(|place| place.given.is_none()) && self.is_settled(index);
            return if is_safe { Outlook::Safe } else { Outlook::Unsafe };
        }
        match roam.copies.get(client) {
            Some(copy) if copy.holder(|host| self.streams.has_ended(host)).is_some() => Outlook::Unsafe,
            None if elsewhere.is_some_and(|(host, _)| !self.streams.has_ended(host)) => Outlook::Unsafe,
            None if elsewhere.is_none() => Outlook::Safe,
            // The home of a shared subscription seeks it by itself.
            _ if shared_text(client).is_some() => Outlook::Safe,
            _ => Outlook::Orphan,
        }
    }

    /// Clients whose sessions others have taken over from brokers that have ended, and who have not
    /// said that these are safe; each with who has it, and under which epoch.
    pub(super) fn unsafe_taken(&mut self) -> Vec<(Box<str>, (HostId, u64))> {
        let Broker { overlay, streams, .. } = self;
        let is_gone = |host: HostId| streams.has_ended(host);
        let Roam { takeover, copies, .. } = &mut overlay.roam;
        let mut all = Vec::new();
        for one in &mut takeover.taking {
            let has_it = |client: &str, elsewhere: &Option<(HostId, u64)>| {
                copies.get(client).map_or(*elsewhere, |copy| copy.holder(is_gone))
            };
            let before = all.len();
            let by_others = turn(&one.clients, &one.asked)
                .filter_map(|(client, elsewhere)| Some((client.clone(), has_it(client, elsewhere)?)));
            all.extend(by_others.take(SETTLE_MAX));
            one.asked = next_turn(all.len() - before, all.last().map(|(client, _)| &**client));
        }
        all
    }

    /// A session is safe where it is by now: whoever had it and has ended does not need anything
    /// for it.
    pub(super) fn record_taken_over(&mut self, claim: &Claim<'_>) {
        let Roam { copies, takeover, .. } = &mut self.overlay.roam;
        let of_copy = copies.get(claim.client).map(|copy| copy.void.map_or(copy.epoch, |(_, epoch)| epoch));
        for one in &mut takeover.taking {
            let Some(elsewhere) = one.clients.get(claim.client) else { continue };
            let epoch = of_copy.or(elsewhere.map(|(_, epoch)| epoch));
            if epoch.is_some_and(|epoch| epoch <= claim.epoch) {
                one.clients.remove(claim.client);
            }
        }
    }
}

impl Broker {
    /// Copies of another broker's sessions have come.
    pub(in crate::overlay) fn on_copies(&mut self, now: Time, from: Sender, page: &Page<'_>, out: &mut dyn Output) {
        let (mut lacking, mut news) = (Vec::new(), Vec::new());
        let mut bytes = ByteReader(page.body);
        let principals: BTreeMap<u32, &str> =
            page.principals.iter().copied().filter(|(_, principal)| !principal.is_empty()).collect();
        for place in 0_u32.. {
            if bytes.0.is_empty() {
                break;
            }
            let taken = self.take_copy(now, (from.host, principals.get(&place).copied()), &mut bytes);
            let Some((client, is_taken, is_news)) = taken else {
                self.overlay.net.refuse_message();
                return;
            };
            if !is_taken && lacking.len() < LIST_MAX {
                lacking.push(client);
            }
            if is_news {
                news.push(client);
            }
        }
        if !news.is_empty() {
            self.overlay.record_known(from.host);
        }
        news.into_iter().for_each(|client| self.record_claim(now, client));
        let streams = self.streams.stream_set().digest;
        let told = BrokerMessage::CopiesTaken(CopiesTaken { page: page.page, lacking, streams });
        self.send_to(now, from.host, (&told, false), out);
    }

    /// Takes one copy: whose, whether there is one now on which changes can build, and whether its
    /// clerk is to be told.
    fn take_copy<'a>(
        &mut self,
        now: Time,
        (owner, principal): (HostId, Option<&str>),
        bytes: &mut ByteReader<'a>,
    ) -> Option<(&'a str, bool, bool)> {
        let copies = &mut self.overlay.roam.copies;
        let (client, form) = (bytes.text()?, bytes.u8()?);
        if form == GONE {
            let its = copies.get(client).filter(|copy| copy.owner == owner);
            let its = its.map(|copy| copy.void.unwrap_or((owner, copy.epoch)));
            if let Some(has_it) = its {
                copies.remove(client);
                self.overlay.roam.takeover.record_elsewhere(client, has_it);
            }
            return Some((client, true, its.is_some()));
        }
        let of = if matches!(form, WHOLE_AMONG | MOVING_AMONG) { Some(bytes.varint()?) } else { None };
        let stream_set = self.streams.stream_set();
        // Who does not know of the same streams cannot tell what was meant, and says so.
        let is_understood = of.is_none_or(|digest| digest == stream_set.digest);
        let among = of.map(|_| stream_set.streams.clone());
        let (epoch, version, since) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
        if matches!(form, MOVING | MOVING_AMONG) {
            let moving = bytes.bytes()?;
            if !is_understood {
                return Some((client, false, false));
            }
            if fault!(self, CopyStale) {
                return Some((client, true, false));
            }
            let copies = &mut self.overlay.roam.copies;
            let told = (version, moving, among.as_ref());
            return Some((client, copies.change(now, client, (owner, epoch, since), told), false));
        }
        if !matches!(form, WHOLE | WHOLE_AMONG) {
            return None;
        }
        let (structure, moving) = (bytes.bytes()?, bytes.bytes()?);
        if !is_understood {
            return Some((client, false, false));
        }
        let (before, given, asker, void) = (Vec::new(), None, None, None);
        let (structure, moving, principal) = (structure.into(), moving.into(), principal.map(Box::from));
        let copy = SessionCopy {
            owner,
            before,
            epoch,
            version,
            since,
            structure,
            principal,
            moving,
            among,
            came: now,
            given,
            asker,
            void,
        };
        Some((client, true, self.put_whole(client, copy)?))
    }

    /// Takes a whole copy unless there is a later one; whether its clerk is to be told.
    fn put_whole(&mut self, client: &str, mut copy: SessionCopy) -> Option<bool> {
        let overlay = &mut self.overlay;
        let copies = &mut overlay.roam.copies;
        let known = copies.get(client).map(|copy| (copy.epoch, copy.version, copy.owner));
        if known.is_some_and(|(known, before, _)| (known, before) > (copy.epoch, copy.version)) {
            return Some(false);
        }
        copy.before = copies.owners_before(client, copy.owner);
        let is_news = known.is_none_or(|(known, _, before)| (known, before) != (copy.epoch, copy.owner));
        let is_put = copies.put(client, copy);
        overlay.stats.copies_refused += u64::from(!is_put);
        Some(is_put && is_news)
    }
}
