//! Which brokers there are to know of sessions: who is asked for one, and who has a copy of it, by
//! rendezvous hashing (Thaler and Ravishankar, 1998): of all brokers the one with the greatest
//! mixed hash of its name and the client id. So a broker that comes or goes changes that for its
//! own share only.

use whimbrel_event::{HostId, Seeded, split_mix};
use whimbrel_net::topology::BROKERS_MAX;

/// Seeds of hashes that all brokers must agree on.
const NAMES: u64 = 0x6e61_6d65;
const CLIENTS: u64 = 0x636c_6965;

/// One broker that can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MapMember {
    host: HostId,
    /// What it knows it has in memory only: another life of it knows nothing.
    incarnation: u64,
    name: u64,
}

/// The brokers that can be reached, this one included.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    members: Vec<MapMember>,
    /// Of all members, in order.
    names: Vec<u64>,
    hash: u64,
}

/// So many of a set come first for a client: whoever keeps its session, its clerk and its replica
/// are the first of them who may be.
const LEADING: usize = 3;

/// Stands for a place where nobody is; sets are smaller.
const NOBODY: u16 = u16::MAX;

const _: () = assert!(BROKERS_MAX < NOBODY as usize, "places are short");

/// The places of those who come first for one client among the members of a set, in order; behind
/// them [`NOBODY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places([u16; LEADING]);

/// What has become of the members of a set in another one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct MapChange {
    /// Where each of them is now.
    now_at: Vec<u16>,
    /// Where those are that were not there.
    added: Vec<u16>,
}

/// Those of a set who come first for one client, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leading([Option<MapMember>; LEADING]);

impl Leading {
    /// Who knows who has the session of the client, with its life.
    pub(super) fn clerk(&self) -> Option<(HostId, u64)> {
        self.0[0].map(|member| (member.host, member.incarnation))
    }

    /// Who has a copy of what the owner has: not the clerk, if there is somebody else.
    pub(super) fn replica(&self, owner: HostId) -> Option<HostId> {
        let mut others = self.0.iter().flatten().map(|member| member.host).filter(|host| *host != owner);
        let clerk = self.clerk()?.0;
        let first = others.next()?;
        if first == clerk { others.next().or(Some(first)) } else { Some(first) }
    }
}

/// The hash of a client id, for [`Map`].
pub(super) fn hash_of(client: &str) -> u64 {
    Seeded::new(CLIENTS).hash_one(client)
}

fn weight(name: u64, client: u64) -> u64 {
    split_mix(&mut (name ^ client.rotate_left(17)))
}

impl Map {
    /// Of these brokers: host, incarnation, name.
    pub(super) fn new<'a>(members: impl Iterator<Item = (HostId, u64, &'a str)>) -> Map {
        let names = Seeded::new(NAMES);
        let member = |(host, incarnation, name)| MapMember { host, incarnation, name: names.hash_one(name) };
        let mut members: Vec<MapMember> = members.map(member).collect();
        members.sort_unstable_by_key(|member| member.host);
        let all: Vec<(u64, u64)> = members.iter().map(|member| (member.host.as_u64(), member.incarnation)).collect();
        // 0 stands for none.
        let hash = names.hash_one(all).max(1);
        let mut names: Vec<u64> = members.iter().map(|member| member.name).collect();
        names.sort_unstable();
        Map { members, names, hash }
    }

    /// Says which brokers these are, and in which of their lives.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn has(&self, host: HostId) -> bool {
        self.members.binary_search_by_key(&host, |member| member.host).is_ok()
    }

    fn member(&self, host: HostId) -> Option<&MapMember> {
        let at = self.members.binary_search_by_key(&host, |member| member.host).ok()?;
        Some(&self.members[at])
    }

    /// In which of its lives a broker is, if it is one of these; 0: in none that is known.
    pub(super) fn incarnation(&self, host: HostId) -> Option<u64> {
        self.member(host).map(|member| member.incarnation)
    }

    /// Whether one of these has the name that a broker of another set has.
    pub(super) fn has_name_of(&self, other: &Map, host: HostId) -> bool {
        other.member(host).is_some_and(|member| self.names.binary_search(&member.name).is_ok())
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.members.iter().map(|member| member.host)
    }

    /// What has become of the members of an older set in this one. Another life of a broker has the
    /// same place for each client.
    pub(super) fn since(&self, old: &Map) -> MapChange {
        let place = |old: &MapMember| {
            let at = self.members.binary_search_by_key(&old.host, |member| member.host).ok();
            at.filter(|at| self.members[*at].name == old.name).map_or(NOBODY, |at| at as u16)
        };
        let now_at = old.members.iter().map(place);
        let is_new = |(_, new): &(usize, &MapMember)| old.member(new.host).is_none_or(|old| old.name != new.name);
        let added = self.members.iter().enumerate().filter(is_new).map(|(at, _)| at as u16);
        MapChange { now_at: now_at.collect(), added: added.collect() }
    }

    /// Puts a member among those who lead for a client, if it belongs there.
    fn rank(&self, client: u64, leading: &mut Places, place: u16) {
        let rank =
            |place: u16| self.members.get(usize::from(place)).map(|member| (weight(member.name, client), member.host));
        let mut next = place;
        for place in &mut leading.0 {
            if rank(next) > rank(*place) {
                core::mem::swap(&mut next, place);
            }
        }
    }

    /// Who comes first for a client. Takes a step for each member, so that for many owners of one
    /// client it is asked for once.
    pub(super) fn places(&self, client: u64) -> Places {
        let mut leading: [(Option<(u64, HostId)>, u16); LEADING] = [(None, NOBODY); LEADING];
        for (at, member) in (0..).zip(&self.members) {
            let mut next = (Some((weight(member.name, client), member.host)), at);
            for place in &mut leading {
                if next.0 > place.0 {
                    core::mem::swap(&mut next, place);
                }
            }
        }
        Places(leading.map(|(_, at)| at))
    }

    /// The same, if it is known who came first in an older set: takes a step for each member that
    /// has come since, and as many as there are members only if one of those is not there any more.
    pub(super) fn places_since(&self, client: u64, before: Places, change: &MapChange) -> Places {
        let mut leading = Places([NOBODY; LEADING]);
        for (known, place) in before.0.into_iter().zip(&mut leading.0).take_while(|(known, _)| *known != NOBODY) {
            *place = change.now_at[usize::from(known)];
            if *place == NOBODY {
                return self.places(client);
            }
        }
        change.added.iter().for_each(|added| self.rank(client, &mut leading, *added));
        leading
    }

    /// Who that is.
    pub(super) fn at(&self, places: Places) -> Leading {
        Leading(places.0.map(|place| self.members.get(usize::from(place)).copied()))
    }

    /// Who comes first for a client: see [`Map::places`].
    pub(super) fn leading(&self, client: u64) -> Leading {
        self.at(self.places(client))
    }

    /// Who knows who has the session of a client, with its life.
    pub(super) fn clerk(&self, client: u64) -> Option<(HostId, u64)> {
        self.leading(client).clerk()
    }

    /// Who has a copy of what the owner has: not the clerk, if there is somebody else.
    pub(super) fn replica(&self, client: u64, owner: HostId) -> Option<HostId> {
        self.leading(client).replica(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(numbers: impl Iterator<Item = u64>) -> Map {
        let named: Vec<_> = numbers.map(|number| (HostId::new((number + 1) << 8), format!("b{number}"))).collect();
        Map::new(named.iter().map(|(host, name)| (*host, 1, &**name)))
    }

    #[test]
    fn shares_are_even_and_who_goes_changes_its_own_only() {
        let (before, after) = (map(0..5), map(0..4));
        let gone = HostId::new(5 << 8);
        let mut shares = std::collections::BTreeMap::new();
        for number in 0..5_000 {
            let client = hash_of(&format!("client-{number}"));
            let clerk = before.clerk(client).unwrap().0;
            *shares.entry(clerk).or_insert(0) += 1;
            assert!(clerk == gone || after.clerk(client).unwrap().0 == clerk);
            let replica = before.replica(client, gone).unwrap();
            assert!(replica != gone && replica != clerk);
        }
        assert_eq!(shares.len(), 5);
        assert!(shares.values().all(|share| (850..1150).contains(share)), "{shares:?}");
    }

    #[test]
    fn who_leads_is_whom_each_rank_would_be_looked_for_apart() {
        for size in 0..7 {
            let map = map(0..size);
            let first = |client: u64, but: &[HostId]| {
                let others = map.members.iter().filter(|member| !but.contains(&member.host));
                others.max_by_key(|member| (weight(member.name, client), member.host)).map(|member| member.host)
            };
            for client in (0..200).map(|number| hash_of(&format!("client-{number}"))) {
                assert_eq!(map.clerk(client).map(|(host, _)| host), first(client, &[]));
                for owner in (0..9).map(|number| HostId::new(number << 8)) {
                    let replica = first(client, &[])
                        .and_then(|clerk| first(client, &[clerk, owner]).or_else(|| first(client, &[owner])));
                    assert_eq!(map.replica(client, owner), replica, "{size} brokers");
                }
            }
        }
    }

    #[test]
    fn who_leads_is_found_from_who_led_before() {
        let sets: [&[u64]; 9] =
            [&[], &[1], &[1, 2], &[0, 1, 2, 3], &[2, 3], &[4, 5], &[0, 1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], &[7]];
        let sets = sets.map(|numbers| map(numbers.iter().copied()));
        for (old, new) in sets.iter().flat_map(|old| sets.iter().map(move |new| (old, new))) {
            let change = new.since(old);
            for client in (0..100).map(|number| hash_of(&format!("client-{number}"))) {
                assert_eq!(new.places_since(client, old.places(client), &change), new.places(client));
            }
        }
    }

    #[test]
    fn another_life_leads_and_another_name_does_not() {
        let host = |number: u64| HostId::new(number << 8);
        let old = Map::new([(host(1), 1, "a"), (host(2), 1, "b")].into_iter());
        let new = Map::new([(host(1), 2, "a"), (host(2), 1, "c")].into_iter());
        let change = new.since(&old);
        assert_eq!(change, MapChange { now_at: vec![0, NOBODY], added: vec![1] });
        let client = hash_of("client");
        let places = new.places_since(client, old.places(client), &change);
        assert_eq!(places, new.places(client));
        assert!(new.at(places).0.iter().flatten().any(|member| (member.host, member.incarnation) == (host(1), 2)));
    }

    #[test]
    fn the_last_two_stand_in_for_each_other() {
        let (one, other) = (HostId::new(1 << 8), HostId::new(2 << 8));
        for number in 0..20 {
            let client = hash_of(&number.to_string());
            assert_eq!(map(0..2).replica(client, one), Some(other));
            assert_eq!(map(0..1).replica(client, one), None);
        }
    }
}
