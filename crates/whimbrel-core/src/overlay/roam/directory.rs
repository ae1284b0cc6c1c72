//! What a clerk knows: which brokers have what of which client's session. In memory only.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use whimbrel_event::HostId;
use whimbrel_wire::{Claim, ClaimKind};

use crate::overlay::Overlay;
use crate::session::Sessions;

/// Claims that a clerk knows, of all clients together; more are refused, and their brokers are
/// asked themselves.
pub const DIRECTORY_MAX: usize = 1 << 22;

/// Claims of one client.
const OF_CLIENT_MAX: usize = 16;

/// What a broker has of a session whose client is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KnownClaim {
    pub(super) host: HostId,
    pub(super) kind: ClaimKind,
    pub(super) epoch: u64,
    pub(super) version: u64,
    /// Of an attachment: when it began. Of what was given away, or is a copy: to whom it went, 0
    /// for nobody.
    pub(super) connected_at: u64,
}

impl KnownClaim {
    pub(super) fn of(claim: &Claim<'_>) -> KnownClaim {
        let Claim { host, kind, epoch, version, connected_at, .. } = *claim;
        KnownClaim { host, kind, epoch, version, connected_at }
    }

    pub(super) fn claim<'a>(&self, client: &'a str) -> Claim<'a> {
        let KnownClaim { host, kind, epoch, version, connected_at } = *self;
        Claim { host, client, kind, epoch, version, connected_at }
    }

    /// The greater one is the newer attachment.
    pub(super) fn order(&self) -> (u64, u64, HostId) {
        (self.epoch, self.connected_at, self.host)
    }

    /// Who was given what it has.
    pub(super) fn went_to(&self) -> Option<HostId> {
        let is_passed_on = matches!(self.kind, ClaimKind::Given | ClaimKind::Copy) && self.connected_at != 0;
        is_passed_on.then(|| HostId::new(self.connected_at))
    }

    /// A client has, or had, a session there.
    pub(super) fn is_owner(&self) -> bool {
        matches!(self.kind, ClaimKind::Owner | ClaimKind::Passing)
    }
}

/// Claims by client.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entries: BTreeMap<Box<str>, SmallVec<[KnownClaim; 2]>>,
    count: usize,
    /// For which brokers each has told all that it has to tell.
    synced: BTreeMap<HostId, u64>,
    /// Claims that found no room.
    pub(super) refused: u64,
}

impl Directory {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// What is known of a client's session.
    pub(super) fn of(&self, client: &str) -> &[KnownClaim] {
        self.entries.get(client).map_or(&[], |known| known)
    }

    /// A broker has told everything, for these brokers.
    pub(super) fn sync(&mut self, host: HostId, map: u64) {
        self.synced.insert(host, map);
    }

    /// Whether it has told everything at some time, and since then what has changed.
    pub(super) fn has_told(&self, host: HostId) -> bool {
        self.synced.contains_key(&host)
    }

    pub(super) fn is_synced(&self, host: HostId, map: u64) -> bool {
        self.synced.get(&host) == Some(&map)
    }

    /// Takes what brokers have: of each client that occurs, what each broker that occurs had before
    /// is forgotten. Gives those who have something that a newer attachment has made void, with
    /// what that is: host, client, newer.
    pub(super) fn take<'a>(&mut self, claims: &[Claim<'a>]) -> Vec<(HostId, &'a str, KnownClaim)> {
        let mut seen = BTreeSet::new();
        let mut outdated = Vec::new();
        for claim in claims {
            if seen.insert((claim.client, claim.host)) {
                self.drop_of(claim.client, |known| known.host == claim.host);
            }
            if claim.kind != ClaimKind::Nothing {
                self.add(claim);
            }
        }
        let clients: BTreeSet<&str> = seen.into_iter().map(|(client, _)| client).collect();
        for client in clients {
            outdated.extend(self.void_of(client).into_iter().map(|(host, newest)| (host, client, newest)));
        }
        outdated
    }

    /// Who has something of a client's session that a newer attachment has made void, with that.
    pub(super) fn void_of(&self, client: &str) -> Vec<(HostId, KnownClaim)> {
        let all = self.of(client);
        let counts = |known: &&KnownClaim| known.is_owner() || known.kind == ClaimKind::Ended;
        let newest = all.iter().filter(counts).max_by_key(|known| known.order()).copied();
        let Some(newest) = newest else { return Vec::new() };
        let is_void = |known: &&KnownClaim| {
            let is_older = match known.kind {
                ClaimKind::Owner | ClaimKind::Passing => known.order() < newest.order(),
                ClaimKind::Copy if newest.kind == ClaimKind::Ended => known.epoch <= newest.epoch,
                ClaimKind::Copy => known.epoch < newest.epoch,
                ClaimKind::Nothing | ClaimKind::Ended | ClaimKind::Coming | ClaimKind::Given => false,
            };
            is_older && known.host != newest.host
        };
        all.iter().filter(is_void).map(|known| (known.host, newest)).collect()
    }

    fn add(&mut self, claim: &Claim<'_>) {
        if self.count >= DIRECTORY_MAX {
            self.refused += 1;
            return;
        }
        let known = self.entries.entry(claim.client.into()).or_default();
        // Who is only about to have it gives way to who has it.
        if known.len() >= OF_CLIENT_MAX
            && claim.kind != ClaimKind::Coming
            && let Some(at) = known.iter().position(|known| known.kind == ClaimKind::Coming)
        {
            known.remove(at);
            self.count -= 1;
        }
        if known.len() >= OF_CLIENT_MAX {
            self.refused += 1;
            return;
        }
        known.push(KnownClaim::of(claim));
        self.count += 1;
    }

    fn drop_of(&mut self, client: &str, is_dropped: impl Fn(&KnownClaim) -> bool) {
        let Some(known) = self.entries.get_mut(client) else { return };
        let before = known.len();
        known.retain(|known| !is_dropped(known));
        self.count -= before - known.len();
        if known.is_empty() {
            self.entries.remove(client);
        }
    }

    /// A client is about to be attached to a broker: whoever asks next is told so.
    pub(super) fn record_coming(&mut self, client: &str, host: HostId, connected_at: u64) {
        self.drop_of(client, |known| known.host == host && known.kind == ClaimKind::Coming);
        self.add(&Claim { host, client, kind: ClaimKind::Coming, epoch: 0, version: 0, connected_at });
    }

    /// A host has ended: what it had is gone, but for what others have of it.
    pub(super) fn forget_host(&mut self, host: HostId) {
        self.synced.remove(&host);
        let mut count = 0;
        self.entries.retain(|_, known| {
            known.retain(|known| known.host != host);
            count += known.len();
            !known.is_empty()
        });
        self.count = count;
    }

    /// Clients after one, in order.
    pub(super) fn clients_after(&self, after: Option<&str>, most: usize) -> Vec<Box<str>> {
        use core::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<str, _>((from, Bound::Unbounded)).take(most).map(|(client, _)| client.clone()).collect()
    }
}

impl Overlay {
    /// What this broker has of a client's session.
    pub(super) fn own_claims(&self, client: &str, sessions: &Sessions) -> Vec<KnownClaim> {
        if !self.is_open() {
            return Vec::new();
        }
        let (roam, host) = (&self.roam, self.net.host());
        let mut claims = Vec::new();
        let mut add =
            |kind, epoch, version, connected_at| claims.push(KnownClaim { host, kind, epoch, version, connected_at });
        let session = sessions.find(client).map(|index| sessions.get(index));
        let place = session.and_then(|session| Some((session, session.memory.roam.as_deref()?)));
        if let Some((session, place)) = place {
            let version = place.copied.version;
            let (kind, epoch, version) = match &place.given {
                Some(given) => (ClaimKind::Given, given.epoch, place.epoch),
                None if session.is_persistent() => (ClaimKind::Owner, place.epoch, version),
                None => (ClaimKind::Passing, place.epoch, version),
            };
            let connected_at = place.given.as_deref().map_or(place.connected_at, |given| given.to.as_u64());
            add(kind, epoch, version, connected_at);
        } else if let Some(ended) = roam.ended.get(client) {
            add(ClaimKind::Ended, ended.epoch, 0, ended.connected_at);
        }
        if let Some(copy) = roam.copies.get(client) {
            add(ClaimKind::Copy, copy.epoch, copy.version, copy.given.map_or(0, HostId::as_u64));
        }
        if let Some(search) = roam.searches.of_client(client) {
            add(ClaimKind::Coming, 0, 0, search.connected_at);
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(host: u64, kind: ClaimKind, epoch: u64) -> Claim<'static> {
        Claim { host: HostId::new(host << 8), client: "c", kind, epoch, version: 0, connected_at: 5 }
    }

    #[test]
    fn a_broker_says_all_that_it_has_of_a_client_at_once() {
        let mut directory = Directory::default();
        directory.take(&[claim(1, ClaimKind::Owner, 1), claim(2, ClaimKind::Copy, 1)]);
        directory.record_coming("c", HostId::new(3 << 8), 9);
        assert_eq!(directory.of("c").len(), 3);
        directory.take(&[claim(1, ClaimKind::Given, 2), claim(1, ClaimKind::Copy, 2)]);
        assert_eq!((directory.of("c").len(), directory.len()), (4, 4));
        directory.take(&[
            claim(3, ClaimKind::Owner, 2),
            claim(1, ClaimKind::Nothing, 0),
            claim(2, ClaimKind::Nothing, 0),
        ]);
        let left: Vec<_> = directory.of("c").iter().map(|known| known.kind).collect();
        assert_eq!((left, directory.len()), (vec![ClaimKind::Owner], 1));
        directory.forget_host(HostId::new(3 << 8));
        assert_eq!((directory.len(), directory.of("c").len()), (0, 0));
    }

    #[test]
    fn who_is_older_is_named() {
        let mut directory = Directory::default();
        assert_eq!(directory.take(&[claim(1, ClaimKind::Owner, 4), claim(2, ClaimKind::Copy, 4)]), []);
        let outdated = directory.take(&[claim(3, ClaimKind::Owner, 5), claim(4, ClaimKind::Copy, 5)]);
        let newer = KnownClaim::of(&claim(3, ClaimKind::Owner, 5));
        assert_eq!(outdated, [1, 2].map(|host| (HostId::new(host << 8), "c", newer)));
    }
}
