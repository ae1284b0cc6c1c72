//! Sessions that are sought: how far each search is, and who waits for it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, Time};
use whimbrel_wire::ClaimKind;

use super::KnownClaim;
use super::reviewing::Review;
use super::seeking::SEEK_LONGEST;
use crate::api::{Attach, Link, SessionPrincipal, Will};
use crate::overlay::Sender;
use crate::session::{is_foreign, shared_text};

/// Claims of one client that are looked at.
pub(super) const CLAIMS_MAX: usize = 256;

/// Where messages are slow, whoever is asked for a session gets so much longer: it has given it
/// away by then, and what is on its way would be nobody's.
const FETCH_MORE: Duration = Duration::from_secs(1);

/// A client's connection that waits for its session.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) link: Link,
    clean_start: bool,
    expiry: Duration,
    window: u16,
    will: Option<Box<Will>>,
    without_copy: bool,
    principal: Option<SessionPrincipal>,
}

impl Arrival {
    pub(crate) fn of(attach: Attach<'_>) -> Arrival {
        let Attach { link, clean_start, expiry, window, will, without_copy, principal, .. } = attach;
        Arrival { link, clean_start, expiry, window, will, without_copy, principal }
    }

    pub(crate) fn attach(self, client_id: &str) -> Attach<'_> {
        let Arrival { link, clean_start, expiry, window, will, without_copy, principal } = self;
        Attach { link, client_id, clean_start, expiry, window, will, without_copy, principal }
    }

    /// Whose the session is to be.
    pub(crate) fn principal(&self) -> Option<&SessionPrincipal> {
        self.principal.as_ref()
    }

    /// Whether somebody else waits, and whoever has come may not have what is that one's.
    pub(super) fn is_foreign_to(&self, waiting: Option<&SessionPrincipal>) -> bool {
        is_foreign(waiting.map(|waiting| &*waiting.name), self.stranger())
    }

    /// Who has come, if that one may not have what is somebody else's.
    pub(super) fn stranger(&self) -> Option<&str> {
        self.principal().and_then(SessionPrincipal::stranger)
    }

    pub(super) fn is_clean(&self) -> bool {
        self.clean_start
    }

    /// If what there is of its session cannot be had, it says itself where it stands.
    pub(super) fn resumes(&self) -> bool {
        self.without_copy && !self.clean_start
    }

    /// If what there is of its session cannot be had, it begins anew.
    pub(super) fn does_without(&self) -> bool {
        self.clean_start || self.without_copy
    }
}

/// There is something to be used.
pub(super) fn is_state(known: &KnownClaim) -> bool {
    !matches!(known.kind, ClaimKind::Coming | ClaimKind::Nothing)
}

/// How far a search is.
#[derive(Debug)]
pub(super) enum SearchStage {
    /// This broker has just begun, and does not know of the others yet.
    Young,
    /// Brokers are asked what they know; those have not answered.
    Asking(BTreeSet<HostId>),
    /// Somebody is asked for the session.
    Fetching(Fetching),
    /// It is here, or there is none; others are asked what its client has published there.
    Reviewing(Box<Review>),
}

/// Somebody is asked for a session.
#[derive(Debug)]
pub(super) struct Fetching {
    pub(super) from: HostId,
    /// In which of its lives that one has it, as far as was known.
    pub(super) incarnation: Option<u64>,
    pub(super) as_copy: bool,
    /// Whoever that one gave it to has been asked, or cannot be.
    pub(super) asked_of: Option<HostId>,
    /// The part that is asked for.
    pub(super) part: u32,
    pub(super) digest: u64,
    pub(super) body: Vec<u8>,
    /// Whose it is, as the last part has told.
    pub(super) principal: Option<Box<str>>,
}

impl Fetching {
    /// The first part of a session is asked for.
    pub(super) fn begin(from: HostId, incarnation: Option<u64>, as_copy: bool, asked_of: Option<HostId>) -> Fetching {
        Fetching { from, incarnation, as_copy, asked_of, part: 0, digest: 0, body: Vec::new(), principal: None }
    }
}

/// Somebody else wants the session that is being sought.
#[derive(Clone, Debug)]
pub(super) struct Successor {
    pub(super) from: Sender,
    pub(super) number: u64,
    pub(super) least: u64,
    pub(super) clean: bool,
    /// Nobody is connected there.
    pub(super) is_for_nobody: bool,
    /// Who is, if that one may not have what is somebody else's.
    pub(super) stranger: Option<Box<str>>,
    /// When its client connected there, by the clock of this broker.
    pub(super) left: Time,
}

/// A session is sought.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) client: Box<str>,
    /// Who waits for it: nobody, if the client has gone, or if the session is to be here because
    /// its owner has ended.
    pub(super) arrival: Option<Arrival>,
    pub(super) connected_at: u64,
    /// Since when that one waits.
    pub(super) began: Time,
    pub(super) stage: SearchStage,
    /// Who was asked first.
    pub(super) clerk: Option<HostId>,
    pub(super) claims: Vec<KnownClaim>,
    /// Who has spoken for itself.
    pub(super) heard: BTreeSet<HostId>,
    /// Who may have it although nobody knows of it, and cannot be asked.
    pub(super) forgotten: BTreeSet<HostId>,
    /// Who has nothing after all.
    pub(super) refused: BTreeSet<HostId>,
    pub(super) successor: Option<Successor>,
    /// Its client has connected again since others were asked, and may have been elsewhere in
    /// between: what they said then does not count for it.
    pub(super) is_outdated: bool,
    /// When it was decided what is used, somebody could not be asked who may have had the client:
    /// that one may be there by now, and may have what nobody else knows.
    pub(super) was_unsure: bool,
}

impl Search {
    /// Nobody is connected for whom it is sought, nor does somebody else want it. Own sessions of
    /// shared subscriptions have no connection.
    pub(super) fn is_for_nobody(&self) -> bool {
        self.arrival.is_none() && self.successor.is_none() && shared_text(&self.client).is_none()
    }

    /// Takes what somebody knows.
    pub(super) fn take(&mut self, from: HostId, claims: impl Iterator<Item = KnownClaim>) {
        self.claims.retain(|known| known.host != from);
        self.heard.insert(from);
        for claim in claims {
            if (claim.host == from || !self.heard.contains(&claim.host)) && self.claims.len() < CLAIMS_MAX {
                self.claims.push(claim);
            }
        }
    }

    /// The epoch of what becomes of the session here: greater than all that are known. An
    /// attachment is also greater than all that were before it, whoever has forgotten them. What is
    /// taken over from a broker that has ended, for nobody's connection, is none: its client may be
    /// attached elsewhere by now, and that is the newer one. Own sessions of shared subscriptions
    /// have no connection: their new home is their attachment.
    pub(super) fn next_epoch(&self, now_ms: u64) -> u64 {
        let known = self.claims.iter().map(|known| known.epoch).max().unwrap_or(0);
        let is_attachment = self.arrival.is_some() || shared_text(&self.client).is_some();
        known.saturating_add(1).max(if is_attachment { now_ms } else { 0 })
    }

    /// How long it goes on at most.
    pub(super) fn most(&self, seek_max: Duration) -> Duration {
        match (&self.stage, &self.arrival) {
            (SearchStage::Fetching(_), Some(_)) => (seek_max + FETCH_MORE).min(SEEK_LONGEST),
            (SearchStage::Fetching(_), None) => SEEK_LONGEST,
            _ => seek_max,
        }
    }

    /// Everybody has answered.
    pub(super) fn is_decided(&self) -> bool {
        matches!(&self.stage, SearchStage::Asking(asked) if asked.is_empty())
    }

    /// Whether somebody has said of itself that it has nothing of that epoch or a later one, nor is
    /// about to.
    pub(super) fn has_nothing(&self, host: HostId, epoch: u64) -> bool {
        let is_its = |known: &KnownClaim| {
            let is_later = !matches!(known.kind, ClaimKind::Nothing | ClaimKind::Copy) && known.epoch >= epoch;
            known.host == host && (is_later || known.kind == ClaimKind::Coming)
        };
        self.refused.contains(&host) || self.heard.contains(&host) && !self.claims.iter().any(is_its)
    }

    /// A broker has given the session away: its client is not about to be attached there any more,
    /// as it may have been said to be, and what it still has of it is older than what that became.
    ///
    /// `of`: the epoch of that; 0: it was a copy.
    pub(super) fn record_given(&mut self, by: HostId, (to, epoch): (HostId, u64), of: u64) {
        self.heard.insert(by);
        self.claims.retain(|known| known.host != by || known.kind != ClaimKind::Coming);
        if of > 0 {
            self.claims.retain(|known| known.host != by || known.kind == ClaimKind::Copy);
            self.claims.push(KnownClaim {
                host: by,
                kind: ClaimKind::Given,
                epoch,
                version: of,
                connected_at: to.as_u64(),
            });
        } else {
            // It had a copy, which it still has.
            self.claims.retain(|known| known.host != by);
            let epoch = epoch.saturating_sub(1);
            self.claims.push(KnownClaim {
                host: by,
                kind: ClaimKind::Copy,
                epoch,
                version: 0,
                connected_at: to.as_u64(),
            });
        }
    }

    /// A broker was given the session, as another one says; what is known of it may be news of
    /// later.
    pub(super) fn record_taken(&mut self, by: HostId, epoch: u64) {
        let is_of_itself = |known: &KnownClaim| known.host == by && is_state(known) && known.kind != ClaimKind::Copy;
        if !self.claims.iter().any(|known| is_of_itself(known) && known.epoch >= epoch) {
            self.claims.retain(|known| known.host != by || known.kind == ClaimKind::Copy);
            self.claims.push(KnownClaim { host: by, kind: ClaimKind::Owner, epoch, version: 0, connected_at: 0 });
        }
    }
}

/// All sessions that are sought.
#[derive(Debug, Default)]
pub(super) struct Searches {
    pub(super) all: BTreeMap<u64, Search>,
    pub(super) by_client: BTreeMap<Box<str>, u64>,
    pub(super) by_link: BTreeMap<Link, u64>,
    pub(super) due: BTreeSet<(Time, u64)>,
    last: u64,
}

impl Searches {
    /// Numbers begin here: an answer to one of a former life of this broker is none to one of this.
    pub(super) fn number_from(&mut self, incarnation: u64) {
        self.last = self.last.max(incarnation);
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn of_client(&self, client: &str) -> Option<&Search> {
        self.all.get(self.by_client.get(client)?)
    }

    pub(super) fn of_client_mut(&mut self, client: &str) -> Option<&mut Search> {
        self.all.get_mut(self.by_client.get(client)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Search)> {
        self.all.iter().map(|(number, search)| (*number, search))
    }

    pub(super) fn get(&self, number: u64) -> Option<&Search> {
        self.all.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Search> {
        self.all.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Search> {
        let search = self.all.remove(&number)?;
        self.by_client.remove(&search.client);
        if let Some(arrival) = &search.arrival {
            self.by_link.remove(&arrival.link);
        }
        Some(search)
    }

    /// A search begins; its number.
    pub(super) fn insert(&mut self, search: Search) -> u64 {
        self.last += 1;
        self.by_client.insert(search.client.clone(), self.last);
        if let Some(arrival) = &search.arrival {
            self.by_link.insert(arrival.link, self.last);
        }
        self.all.insert(self.last, search);
        self.last
    }

    /// The connection that has waited is another one now, or none; the one before.
    pub(super) fn replace(&mut self, number: u64, arrival: Option<Arrival>) -> Option<Arrival> {
        let search = self.all.get_mut(&number)?;
        if let Some(arrival) = &arrival {
            self.by_link.insert(arrival.link, number);
        }
        let old = core::mem::replace(&mut search.arrival, arrival);
        if let Some(old) = &old {
            self.by_link.remove(&old.link);
        }
        old
    }
}
