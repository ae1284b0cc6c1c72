//! Which brokers there were: one that cannot be reached any more may have a session of which nobody
//! here knows.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{HostId, Time};
use whimbrel_net::Pace;

use super::copying::COPY_EVERY;
use super::map::{Leading, Map, hash_of};
use super::seeking::SEEK_MAX;
use super::{ENDED_LIFETIME, GivenSession, STILL};
use crate::overlay::Overlay;
use crate::overlay::Sender;
use crate::stream::Sources;

/// Sets of brokers that are remembered; of more, the oldest is forgotten.
const PAST_MAX: usize = 64;

/// The first life of a broker begins so long after its streams at most.
const FIRST_INCARNATION: Duration = Duration::from_secs(1);

/// When the brokers have been the same for so long, all clerks and replicas know what they have to
/// know.
pub(super) const SETTLED: Duration = Duration::from_secs(20);

/// When a set of brokers has lasted so long, who ranks as replica in it is the replica, and has the
/// copies: until then whoever was it before.
const REPLICAS_CHANGED: Duration = STILL.saturating_add(COPY_EVERY.saturating_mul(4));

/// When one has lasted so long, whoever was in it was alive then, and whoever was its replica has
/// the copies, if that was started again before: one that is silent is noticed later than that it
/// has ended.
fn replicas_told(pace: Pace) -> Duration {
    pace.dead_after().saturating_add(COPY_EVERY.saturating_mul(2))
}

/// A set of brokers that there was.
#[derive(Debug)]
struct Set {
    map: Map,
    lasted: Duration,
    until: Time,
}

/// The sets of brokers before the present one, oldest first.
#[derive(Debug, Default)]
pub(super) struct Past {
    sets: VecDeque<Set>,
    /// When a broker was last found to have ended.
    ended_at: Option<Time>,
    /// When a broker was last heard of in a life that its link state did not tell of yet.
    restarted_at: Option<Time>,
    /// How soon a silent broker is noticed.
    pub(super) pace: Pace,
}

/// Whether a broker of one of those sets cannot be reached now, and has not ended.
fn is_away(map: &Map, host: HostId, now: &Map, has_ended: impl Fn(HostId) -> bool) -> bool {
    !now.has(host) && !now.has_name_of(map, host) && !has_ended(host)
}

/// Whether nobody who is here knows any more what a broker of that set had of a client's session:
/// neither its clerk of then, which was told, nor its replica is there in the same life. In a set
/// that did not last any of them may have been its replica.
fn is_forgotten(set: &Set, owner: HostId, leading: &Leading, (now, is_told): (&Map, impl Fn(HostId) -> bool)) -> bool {
    let map = &set.map;
    let is_lost = |host: HostId| now.incarnation(host) != map.incarnation(host);
    let is_unknown = leading.clerk().is_none_or(|(clerk, _)| is_lost(clerk) || !is_told(clerk));
    is_unknown
        && match set.lasted >= REPLICAS_CHANGED {
            true => leading.replica(owner).is_none_or(is_lost),
            false => map.hosts().filter(|host| *host != owner).any(is_lost),
        }
}

impl Past {
    /// Without any sets.
    pub(super) fn new(pace: Pace) -> Past {
        Past { pace, ..Past::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The sets that are remembered.
    pub(super) fn maps(&self) -> impl Iterator<Item = &Map> {
        self.sets.iter().map(|set| &set.map)
    }

    /// A broker has ended: nobody can be asked who published there last, and what.
    pub(super) fn record_end(&mut self, now: Time) {
        self.ended_at = Some(now);
    }

    /// Whether one has, while publishers of before may still go on elsewhere.
    pub(super) fn has_lost(&self, now: Time) -> bool {
        self.ended_at.is_some_and(|at| now.since(at) < ENDED_LIFETIME)
    }

    /// There are other brokers from now on than these, who were there for so long.
    pub(super) fn record(&mut self, until: Time, old: Map, lasted: Duration) {
        self.sets.retain(|set| set.map.hash() != old.hash());
        if old.len() < 2 {
            return;
        }
        if self.sets.len() >= PAST_MAX {
            self.sets.pop_front();
        }
        self.sets.push_back(Set { map: old, lasted, until });
    }

    /// The brokers have been the same for [`SETTLED`]: what was before does not count for them any
    /// more, nor for those that have ended, of whose sessions their replicas have told by now.
    pub(super) fn settle(&mut self, present: &Map, has_ended: impl Fn(HostId) -> bool) {
        self.sets.retain(|set| !set.map.hosts().all(|host| present.has(host) || has_ended(host)));
    }

    /// Who was there, cannot be reached now and has not ended: a client may have been attached
    /// there since.
    pub(super) fn away(&self, now: &Map, has_ended: impl Fn(HostId) -> bool) -> bool {
        self.maps().any(|map| map.hosts().any(|host| is_away(map, host, now, &has_ended)))
    }

    /// Who may have the session of a client, whose hash that is, without anybody here knowing of
    /// it: whoever cannot be reached now, if its clerk of then cannot be either, or has been
    /// started anew and has forgotten, and its replica. Of what one had that has ended its replica
    /// has a copy: if that one cannot be reached, it may have the session. `is_told`: whether the
    /// one has told the other, its clerk, all that it has, as far as this broker knows.
    pub(super) fn may_have(
        &self,
        client: u64,
        now: &Map,
        has_ended: impl Fn(HostId) -> bool,
        is_told: impl Fn(HostId, HostId) -> bool,
    ) -> BTreeSet<HostId> {
        let mut found = BTreeSet::new();
        for set in &self.sets {
            let map = &set.map;
            let is_away = |host: HostId| is_away(map, host, now, &has_ended);
            let leading = map.leading(client);
            let holder_of = |owner: HostId| {
                let holder = if is_away(owner) { Some(owner) } else { leading.replica(owner) };
                let holder = holder.filter(|holder| is_away(*holder))?;
                let is_told = |clerk: HostId| is_told(holder, clerk);
                is_forgotten(set, owner, &leading, (now, is_told)).then_some(holder)
            };
            found.extend(map.hosts().filter(|owner| !now.has(*owner)).filter_map(holder_of));
        }
        found
    }

    /// Whether a broker that was given a client's session cannot be reached, and neither can who
    /// would know of its copy, or has it.
    pub(super) fn is_lost_with(
        &self,
        owner: HostId,
        client: u64,
        now: &Map,
        has_ended: impl Fn(HostId) -> bool,
    ) -> bool {
        let with = self.sets.iter().rev().filter(|set| set.map.has(owner));
        let Some(last) = with.clone().next() else { return !now.has(owner) && !has_ended(owner) };
        if !is_away(&last.map, owner, now, has_ended) {
            return false;
        }
        // What it had when those began that did not last, those of before may have.
        let steady =
            with.clone().position(|set| set.lasted >= replicas_told(self.pace)).map_or(usize::MAX, |at| at + 1);
        with.take(steady).any(|set| is_forgotten(set, owner, &set.map.leading(client), (now, |_| true)))
    }
}

impl Overlay {
    /// Somebody has written. The answer of a broker that was started again may come before its new
    /// link state: what that forgot it cannot tell.
    pub(in crate::overlay) fn record_incarnation(&mut self, now: Time, from: Sender) {
        if self.net.topology().get(from.host).is_some_and(|state| state.incarnation < from.incarnation) {
            self.roam.past.restarted_at = Some(now);
        }
    }

    /// Whether something of a host may still come: there is a way to it, or this broker has just
    /// begun, or gone on after a standstill, and may not know of it yet.
    pub(crate) fn may_come_from(&self, now: Time, host: HostId) -> bool {
        // To a lone broker nothing comes, although it has just begun.
        self.is_open() && (self.net.routes().is_reachable(host) || self.net.has_just_begun(now, SEEK_MAX))
    }
}

impl Overlay {
    /// Who may have a client's session without anybody here knowing of it.
    pub(super) fn may_be_away(&self, client: &str, streams: &Sources) -> BTreeSet<HostId> {
        if !self.is_open() {
            return BTreeSet::new();
        }
        let has_ended = |host| streams.has_ended(host);
        let (own, roam) = (self.net.host(), &self.roam);
        // Who has just begun is the clerk of clients of whom it has not heard yet; another clerk
        // says by itself what it was not told.
        let is_told = |owner, clerk| clerk != own || roam.directory.has_told(owner);
        roam.past.may_have(hash_of(client), &roam.map, has_ended, is_told)
    }

    /// Whether whoever was given a session from here cannot be reached, and could be for so long
    /// that its replica had a copy: what is left here is older than that by as much. If nobody says
    /// that there is a copy, whoever had it was started again.
    pub(super) fn is_copied_and_away(&self, given: &GivenSession, streams: &Sources) -> bool {
        if !self.is_open() {
            return false;
        }
        let Past { sets, pace, .. } = &self.roam.past;
        let is_away = |set: &Set| is_away(&set.map, given.to, &self.roam.map, |host| streams.has_ended(host));
        let last = sets.iter().rev().find(|set| set.map.has(given.to));
        let was_copied = |set: &Set| given.went.is_some_and(|went| set.until >= went + replicas_told(*pace));
        last.is_some_and(|last| was_copied(last) && is_away(last))
    }

    /// Whether there are brokers that this one was only told of: what they have, others may know
    /// that have met them.
    pub(super) fn knows_strangers(&self, streams: &Sources) -> bool {
        if !self.is_open() {
            return false;
        }
        let roam = &self.roam;
        let is_met = |host: HostId| roam.map.has(host) || roam.past.maps().any(|map| map.has(host));
        self.net.topology().hosts().any(|host| !is_met(host) && !streams.has_ended(host))
    }

    /// Whether there are brokers that cannot be reached.
    pub(super) fn is_any_away(&self, streams: &Sources) -> bool {
        let has_ended = |host| streams.has_ended(host);
        self.roam.past.away(&self.roam.map, has_ended)
    }

    /// Whether a broker was started again while publishers of before may still go on, here or
    /// elsewhere. What it had not logged it may have passed on and forgotten, with the number that
    /// its publisher gave it.
    pub(crate) fn was_any_restarted(&self, now: Time, streams: &Sources) -> bool {
        if !self.is_open() {
            return false;
        }
        if self.roam.past.restarted_at.is_some_and(|at| now.since(at) < ENDED_LIFETIME) {
            return true;
        }
        let own = (self.net.incarnation(), streams.birth());
        let all = self.net.topology().states().map(|state| (state.incarnation, state.birth)).chain([own]);
        // Lives are named by when they began.
        let is_within =
            |later: u64, earlier: u64, span: Duration| u128::from(later.saturating_sub(earlier)) < span.as_nanos();
        all.into_iter().any(|(incarnation, birth)| {
            is_within(now.as_nanos(), incarnation, ENDED_LIFETIME)
                && !is_within(incarnation, birth.0, FIRST_INCARNATION)
        })
    }

    /// Whether others are about to be known again: this broker has just begun, or gone on after a
    /// standstill, and what it has of sessions may be older than what they have.
    pub(super) fn awaits_others(&self, now: Time, streams: &Sources) -> bool {
        if !self.is_open() {
            return false;
        }
        self.net.is_young(now) || self.net.has_just_begun(now, SEEK_MAX) && self.is_any_away(streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(members: &[(u64, u64)]) -> Map {
        let named: Vec<_> = members
            .iter()
            .map(|(host, incarnation)| (HostId::new(host << 8), *incarnation, format!("b{host}")))
            .collect();
        Map::new(named.iter().map(|(host, incarnation, name)| (*host, *incarnation, &**name)))
    }

    fn unsure(past: &Past, now: &Map) -> usize {
        let unsure = |client: &u32| past.may_have(hash_of(&client.to_string()), now, |_| false, |_, _| true);
        (0..1000_u32).filter(|client| !unsure(client).is_empty()).count()
    }

    #[test]
    fn one_that_is_gone_leaves_no_doubt_and_half_of_them_do() {
        let all = map(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
        let mut past = Past::default();
        past.record(Time::ZERO, all.clone(), SETTLED);
        assert_eq!(unsure(&past, &all), 0);
        assert!(!past.away(&all, |_| false));
        let most = map(&[(1, 1), (2, 2), (3, 1), (4, 1)]);
        assert_eq!([past.away(&most, |_| false), past.away(&most, |_| true)], [true, false]);
        assert_eq!(unsure(&past, &map(&[(1, 1), (2, 1), (3, 1), (4, 1)])), 0);
        let two = unsure(&past, &map(&[(1, 1), (2, 1), (3, 1)]));
        assert!((50..200).contains(&two), "clerk and replica are the two that are gone: {two}");
        let alone = unsure(&past, &map(&[(1, 1)]));
        assert!((500..900).contains(&alone), "all but those whose clerk is there, or would be the replica: {alone}");
        let anew = unsure(&past, &map(&[(1, 1), (2, 2), (3, 2), (4, 1)]));
        assert!((50..300).contains(&anew), "who was started anew has forgotten: {anew}");
    }

    #[test]
    fn a_clerk_that_was_not_told_all_does_not_know() {
        let mut past = Past::default();
        past.record(Time::ZERO, map(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]), SETTLED);
        let now = map(&[(1, 1), (2, 1), (3, 1)]);
        let unsure = |is_told: bool| {
            let found = |client: u32| past.may_have(hash_of(&client.to_string()), &now, |_| false, |_, _| is_told);
            (0..1000_u32).filter(|client| !found(*client).is_empty()).count()
        };
        // Also those of whom only the replica is gone.
        assert!(unsure(true) * 2 < unsure(false), "{} and {}", unsure(true), unsure(false));
    }

    #[test]
    fn what_one_had_that_has_ended_its_deputy_may_have() {
        let mut past = Past::default();
        past.record(Time::ZERO, map(&[(1, 1), (2, 1), (3, 1)]), SETTLED);
        let (gone, replica, now) = (HostId::new(1 << 8), HostId::new(2 << 8), map(&[(3, 1)]));
        let unsure = |is_gone: bool| {
            let has_ended = |host: HostId| is_gone && host == gone;
            let found = |client: u32| past.may_have(hash_of(&client.to_string()), &now, has_ended, |_, _| true);
            (0..1000_u32).filter(|client| found(*client).contains(&replica)).count()
        };
        // Also those whose clerk was the one that has ended, and kept them.
        assert!(unsure(true) * 2 > unsure(false) * 3, "{} and {}", unsure(true), unsure(false));
        past.settle(&map(&[(2, 1), (3, 1)]), |host| host == gone);
        assert!(past.is_empty(), "the replica has told what it has");
    }

    #[test]
    fn what_was_before_counts_until_all_has_been_told() {
        let (all, most) = (map(&[(1, 1), (2, 1), (3, 1)]), map(&[(1, 1)]));
        let mut past = Past::default();
        past.record(Time::ZERO, all.clone(), SETTLED);
        past.settle(&most, |_| false);
        assert!(!past.is_empty(), "there still are two of whom nothing is known");
        past.settle(&map(&[(1, 2), (2, 1), (3, 1), (4, 1)]), |_| false);
        assert!(past.is_empty());
        (1..2 * PAST_MAX as u64)
            .for_each(|incarnation| past.record(Time::ZERO, map(&[(1, incarnation), (2, 1)]), SETTLED));
        assert_eq!(past.sets.len(), PAST_MAX);
    }

    #[test]
    fn whoever_was_deputy_before_may_be_it_in_a_set_that_did_not_last() {
        let (all, now) = (map(&[(1, 1), (2, 1), (3, 1)]), map(&[(1, 1)]));
        let lost = |lasted: Duration| {
            let mut past = Past::default();
            past.record(Time::ZERO, all.clone(), lasted);
            unsure(&past, &now)
        };
        // One of those who are gone may have what the other one had, though this broker ranks as
        // its replica.
        let (steady, brief) = (lost(REPLICAS_CHANGED), lost(REPLICAS_CHANGED - Duration::from_nanos(1)));
        assert!(steady < brief, "{steady} and {brief}");
    }

    #[test]
    fn what_went_to_one_that_had_no_time_to_copy_it_is_lost_with_it() {
        let owner = HostId::new(2 << 8);
        let lost = |past: &Past, now: &Map| {
            let is_lost = |client: &u32| past.is_lost_with(owner, hash_of(&client.to_string()), now, |_| false);
            (0..1000_u32).filter(is_lost).count()
        };
        // The other one was started again, and in that moment the owner was gone.
        let (before, brief, now) =
            (map(&[(1, 1), (2, 1), (3, 1)]), map(&[(1, 1), (2, 1), (3, 2)]), map(&[(1, 1), (3, 2)]));
        let mut past = Past::default();
        past.record(Time::ZERO, before.clone(), SETTLED);
        past.record(Time::ZERO, brief.clone(), Duration::ZERO);
        let gone = lost(&past, &now);
        assert!(gone > 100, "those whose clerk was the owner, and whose replica has begun anew: {gone}");
        let mut past = Past::default();
        past.record(Time::ZERO, before, SETTLED);
        past.record(Time::ZERO, brief, SETTLED);
        assert_eq!(lost(&past, &now), 0, "it had time");
    }

    #[test]
    fn whose_name_another_one_has_by_now_has_ended() {
        let mut past = Past::default();
        past.record(Time::ZERO, map(&[(1, 0), (2, 0), (3, 0)]), SETTLED);
        let named = [(1, "b1"), (7, "b2"), (8, "b3")];
        let now = Map::new(named.iter().map(|(host, name)| (HostId::new(host << 8), 5, *name)));
        assert_eq!(unsure(&past, &now), 0);
        assert!(unsure(&past, &map(&[(1, 5)])) > 500);
    }
}
