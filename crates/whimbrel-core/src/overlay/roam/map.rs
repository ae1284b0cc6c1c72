//! Which brokers there are to know of sessions: who is asked for one, and who has a copy of it, by rendezvous hashing (Thaler and Ravishankar, 1998): of
//! all brokers the one with the greatest mixed hash of its name and the client id. So a broker that comes or goes changes that for its own share only.

use whimbrel_event::{HostId, Seeded};

use crate::stream::split_mix;

/// Seeds of hashes that all brokers must agree on.
const NAMES: u64 = 0x6e61_6d65;
const CLIENTS: u64 = 0x636c_6965;

/// One broker that can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Member {
    host: HostId,
    /// What it knows it has in memory only: another life of it knows nothing.
    incarnation: u64,
    name: u64,
}

/// The brokers that can be reached, this one included.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    members: Vec<Member>,
    hash: u64,
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
        let member = |(host, incarnation, name)| Member { host, incarnation, name: names.hash_one(name) };
        let mut members: Vec<Member> = members.map(member).collect();
        members.sort_unstable_by_key(|member| member.host);
        let all: Vec<(u64, u64)> = members.iter().map(|member| (member.host.as_u64(), member.incarnation)).collect();
        // 0 stands for none.
        let hash = names.hash_one(all).max(1);
        Map { members, hash }
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

    fn member(&self, host: HostId) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&host, |member| member.host).ok()?;
        Some(&self.members[at])
    }

    /// In which of its lives a broker is, if it is one of these; 0: in none that is known.
    pub(super) fn life(&self, host: HostId) -> Option<u64> {
        self.member(host).map(|member| member.incarnation)
    }

    /// Whether one of these has the name that a broker of another set has.
    pub(super) fn has_name_of(&self, other: &Map, host: HostId) -> bool {
        let name = other.member(host).map(|member| member.name);
        self.members.iter().any(|member| Some(member.name) == name)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.members.iter().map(|member| member.host)
    }

    fn first(&self, client: u64, but: &[HostId]) -> Option<Member> {
        let others = self.members.iter().filter(|member| !but.contains(&member.host));
        others.max_by_key(|member| (weight(member.name, client), member.host)).copied()
    }

    /// Who knows who has the session of a client, with its life.
    pub(super) fn clerk(&self, client: u64) -> Option<(HostId, u64)> {
        self.first(client, &[]).map(|member| (member.host, member.incarnation))
    }

    /// Who has a copy of what the keeper has: not the clerk, if there is somebody else.
    pub(super) fn deputy(&self, client: u64, keeper: HostId) -> Option<HostId> {
        let clerk = self.clerk(client)?.0;
        self.first(client, &[clerk, keeper]).or_else(|| self.first(client, &[keeper])).map(|member| member.host)
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
            let deputy = before.deputy(client, gone).unwrap();
            assert!(deputy != gone && deputy != clerk);
        }
        assert_eq!(shares.len(), 5);
        assert!(shares.values().all(|share| (850..1150).contains(share)), "{shares:?}");
    }

    #[test]
    fn the_last_two_stand_in_for_each_other() {
        let (one, other) = (HostId::new(1 << 8), HostId::new(2 << 8));
        for number in 0..20 {
            let client = hash_of(&number.to_string());
            assert_eq!(map(0..2).deputy(client, one), Some(other));
            assert_eq!(map(0..1).deputy(client, one), None);
        }
    }
}
