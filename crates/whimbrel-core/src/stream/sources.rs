//! All streams that a broker passes on: its own, and those of other brokers, as far as it is told
//! of them.

use std::collections::BTreeMap;

use whimbrel_event::{
    CheckpointToken, Deployment, EventId, HOST_PUBENDS_MAX, HOST_RELIABLE_MAX, HostId, KIND_PUBENDS_MAX, PubendId,
    StreamClass, Tick, Time,
};

use super::ended_hosts::{EndedHosts, drop_named};
use super::kind::DeadlineStreams;
use super::remote_stream::RemoteStream;
use super::stream_set::StreamSet;
use super::{StreamKind, Streams};
use crate::cursor::{Gap, GapReason, Positions};
use crate::store::LostParts;
use crate::stream::Stalled;
use whimbrel_wire::PreviousIdentity;

/// Other hosts that a broker follows; a token covers them all, and the broker's own, of which there
/// are two after its log has failed.
pub const HOSTS_MAX: usize = CheckpointToken::HOSTS_MAX - 2;

/// Ended hosts that are still followed as far as they were, so that their cached events are found.
pub const ENDED_MAX: usize = 16;

/// A broker with streams that are known here.
#[derive(Clone, Debug)]
struct Host {
    /// The numbers of its streams, as in [`CheckpointToken::cover`].
    reliable: u8,
    further: u8,
    /// Its name, if that was told.
    name: Box<str>,
    /// Another host has taken over its name.
    has_ended: bool,
}

/// The consolidated stream's sources.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) own: Streams,
    /// The own streams until the log failed: the fate of their last events is not known before a
    /// restart.
    retired: Option<(Streams, Tick)>,
    /// An event that has waited, and is published now.
    #[cfg(test)]
    pub(crate) held: Option<EventId>,
    /// The tick of the own streams' begin.
    birth: Tick,
    hosts: BTreeMap<HostId, Host>,
    /// By their names, in the order in which they became known or ended.
    by_name: BTreeMap<Box<str>, Vec<HostId>>,
    /// Ended hosts among them, in the order of their ends.
    ended: Vec<HostId>,
    /// Ended hosts that are not followed.
    ended_hosts: EndedHosts,
    /// Ascending by pubend, so that those of one host are neighbours.
    pub(super) remotes: Vec<RemoteStream>,
    /// The set of known streams; `None`: it has changed since it was computed.
    pub(super) stream_set: Option<StreamSet>,
    /// Streams that wait for events of other streams.
    pub(crate) stalled: BTreeMap<PubendId, Stalled>,
    /// Sessions whose clients have published at another broker before, and whose events here wait
    /// for those.
    pub(crate) early: Vec<u32>,
    /// Those waiting events are being accepted.
    pub(crate) is_accepting: bool,
    /// Whether events of topics with a deadline go to streams of their class.
    pub(crate) deadlines: DeadlineStreams,
}

impl Sources {
    pub(crate) fn new(seed: u64, floor: Tick, now: Time) -> Self {
        let mut own = Streams::new(seed, floor);
        let before = Time::from_nanos(now.as_nanos().saturating_sub(1));
        let birth = own.close(before).max(floor);
        Sources::with(own, birth)
    }

    /// Sources of a host that was here before: the begin of its streams, and the last tick of each
    /// that it can have used or named.
    pub(crate) fn restored(host: HostId, birth: Tick, last: [Tick; Streams::COUNT]) -> Self {
        Sources::with(Streams::restored(host, last.map(|last| last.max(birth))), birth)
    }

    fn with(own: Streams, birth: Tick) -> Self {
        Sources {
            own,
            retired: None,
            #[cfg(test)]
            held: None,
            birth,
            hosts: BTreeMap::new(),
            by_name: BTreeMap::new(),
            ended: Vec::new(),
            ended_hosts: EndedHosts::default(),
            remotes: Vec::new(),
            stream_set: None,
            stalled: BTreeMap::new(),
            early: Vec::new(),
            is_accepting: false,
            deadlines: DeadlineStreams::USED,
        }
    }

    /// Whether a stream or a publish waits for an event of another stream.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.stalled.is_empty() || !self.early.is_empty()
    }

    /// Assigns an id to the next event of a publisher with a binding.
    pub(crate) fn assign(&mut self, binding: u8, kind: StreamKind, now: Time) -> EventId {
        #[cfg(test)]
        if let Some(held) = self.held.take() {
            return held;
        }
        self.own.assign(binding, kind, now)
    }

    /// The place of an own reliable pubend among these; only these are logged.
    pub(crate) fn own_reliable(&self, pubend: PubendId) -> Option<usize> {
        pubend.reliable_place().filter(|_| pubend.host() == self.logged().host()).map(usize::from)
    }

    /// The own streams whose reliable ones are logged.
    pub(crate) fn logged(&self) -> &Streams {
        self.retired.as_ref().map_or(&self.own, |(streams, _)| streams)
    }

    /// The log has failed: the own streams stay as they are, and later events go to new ones that
    /// end with the process.
    pub(crate) fn retire(&mut self, seed: u64, now: Time) {
        let fresh = Sources::new(seed, Tick(0), now);
        self.retired = Some((core::mem::replace(&mut self.own, fresh.own), self.birth));
        self.birth = fresh.birth;
        self.stream_set = None;
    }

    /// Adds another broker's streams, which began at `birth`; of a host that is known, those that
    /// it did not have before. `false` if there are none, or a bound is reached.
    pub(crate) fn add_host(&mut self, id: HostId, (reliable, further): (u8, u8), birth: Tick, is_held: bool) -> bool {
        let known = self.hosts.get(&id);
        let had = known.map_or((0, 0), |host| (host.reliable, host.further));
        let (reliable, further) = (reliable.max(had.0), further.max(had.1));
        if id == self.own.host() || (reliable, further) == had {
            return false;
        }
        let is_full = known.is_none() && self.hosts.len() >= HOSTS_MAX;
        let room = CheckpointToken::PUBENDS_MAX - 2 * Streams::COUNT;
        if is_full || self.remotes.len() + usize::from(reliable) + usize::from(further) > room {
            return false;
        }
        let mut token = CheckpointToken::new(Deployment::named(""), birth);
        token.cover(id, reliable, further).expect("one host fits into a token");
        let of_host = self.range_of(id);
        let at = of_host.start;
        let mut streams: Vec<RemoteStream> = self.remotes.drain(of_host).collect();
        // A host that is known had no event in its new streams before it was here last.
        let passed = streams.iter().map(|known| known.passed).min();
        let birth = passed.map_or(birth, |passed| passed.max(birth));
        for (pubend, _) in token.pubends() {
            if let Err(place) = streams.binary_search_by_key(&pubend, |known| known.pubend) {
                streams.insert(place, RemoteStream::new(pubend, birth, is_held));
            }
        }
        self.remotes.splice(at..at, streams);
        let fresh = Host { reliable, further, name: "".into(), has_ended: false };
        let host = self.hosts.entry(id).or_insert(fresh);
        (host.reliable, host.further) = (reliable, further);
        self.stream_set = None;
        true
    }

    /// Follows the streams of a host under a name; it has not ended.
    pub(crate) fn name_host(&mut self, id: HostId, name: &str) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        if core::mem::take(&mut host.has_ended) {
            self.ended.retain(|ended| *ended != id);
            self.stream_set = None;
        }
        if *host.name != *name {
            drop_named(&mut self.by_name, &host.name, id);
            host.name = name.into();
            self.by_name.entry(name.into()).or_default().push(id);
        }
    }

    /// The name of a followed host, if that was told.
    pub(crate) fn name_of(&self, id: HostId) -> Option<&str> {
        let host = self.hosts.get(&id)?;
        Some(&*host.name).filter(|name| !name.is_empty())
    }

    /// The hosts of a name that are followed or have ended, in the order in which they became
    /// known; whether each has ended.
    pub(crate) fn of_name(&self, name: &str) -> impl Iterator<Item = (PreviousIdentity, bool)> {
        let followed = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let ended_hosts = self.ended_of(name).map(|previous| (previous, true));
        ended_hosts.chain(followed.iter().map(|id| (self.previous_identity(*id), self.hosts[id].has_ended)))
    }

    /// The ended hosts of a name that are not followed.
    pub(crate) fn ended_of(&self, name: &str) -> impl Iterator<Item = PreviousIdentity> {
        self.ended_hosts.of_name(name)
    }

    /// The identity that a followed host leaves behind if it ends.
    fn previous_identity(&self, id: HostId) -> PreviousIdentity {
        let Host { reliable, further, .. } = self.hosts[&id];
        let known = self.of_host(id).fold((Tick(0), Tick(0)), |at, remote| (remote.birth, at.1.max(remote.passed)));
        PreviousIdentity { host: id, reliable, further, birth: known.0, upto: known.1 }
    }

    /// Records that a host has ended; `false` if it had before, or is not known.
    pub(crate) fn end_host(&mut self, id: HostId) -> bool {
        let Some(host) = self.hosts.get_mut(&id).filter(|host| !host.has_ended) else { return false };
        host.has_ended = true;
        self.stream_set = None;
        // Hosts that end later are behind it.
        self.ended.push(id);
        if let Some(named) = self.by_name.get_mut(&host.name) {
            named.retain(|known| *known != id);
            named.push(id);
        }
        true
    }

    /// Whether a host has ended.
    pub(crate) fn has_ended(&self, id: HostId) -> bool {
        self.hosts.get(&id).is_some_and(|host| host.has_ended) || self.ended_at(id).is_some()
    }

    /// Whether the host of a stream has ended.
    pub(crate) fn has_ended_in(&self, pubend: PubendId) -> bool {
        self.has_ended(pubend.host())
    }

    /// The hosts that have ended and are still followed.
    pub(crate) fn ended(&self) -> impl Iterator<Item = HostId> {
        self.ended.iter().copied()
    }

    /// Records a host that has ended, and is not followed (any more): it is not to be taken for a
    /// new one.
    pub(crate) fn record_ended(&mut self, ended: PreviousIdentity, name: &str) {
        self.ended_hosts.record(ended, name);
    }

    /// The greatest tick up to which streams of an ended host lasted, of those that are not
    /// followed any more.
    pub(crate) fn last_end(&self) -> Option<Tick> {
        self.ended_hosts.last_end()
    }

    /// The tick up to which the streams of an ended host lasted that is not followed any more.
    pub(crate) fn ended_at(&self, id: HostId) -> Option<Tick> {
        self.ended_hosts.upto(id)
    }

    /// The host that ended first, if more than [`ENDED_MAX`] ended hosts are followed.
    pub(crate) fn one_ended_too_many(&self) -> Option<HostId> {
        (self.ended.len() > ENDED_MAX).then(|| self.ended[0])
    }

    /// Ends following an ended host.
    pub(crate) fn forget_ended(&mut self, id: HostId) {
        if !self.hosts.contains_key(&id) {
            return;
        }
        let ended = self.previous_identity(id);
        let Some(Host { name, .. }) = self.hosts.remove(&id) else { return };
        drop_named(&mut self.by_name, &name, id);
        self.ended.retain(|known| *known != id);
        let of_host = self.range_of(id);
        self.remotes.drain(of_host);
        self.stalled.retain(|pubend, _| pubend.host() != id);
        self.record_ended(ended, &name);
    }

    /// The lost parts of other brokers' streams, for each that has any.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (PubendId, &LostParts)> {
        self.remotes.iter().filter(|remote| !remote.lost.is_empty()).map(|remote| (remote.pubend, &remote.lost))
    }

    pub(crate) fn remote(&mut self, pubend: PubendId) -> Option<&mut RemoteStream> {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        Some(&mut self.remotes[at])
    }

    /// All pubends with the tick up to which the consolidated stream has passed them; no event at
    /// or below it will be passed any more.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        let retired = self.retired.iter().flat_map(|(streams, _)| streams.pubends());
        self.own.pubends().chain(retired).chain(self.remotes.iter().map(|remote| (remote.pubend, remote.passed)))
    }

    /// As [`Sources::positions`], for a reader that is ahead of some streams.
    pub(crate) fn ahead_positions(&self, ahead: &Positions) -> Positions {
        let mut positions: Positions = self.positions().collect();
        for (pubend, tick) in ahead.iter() {
            positions.advance(pubend, tick);
        }
        positions
    }

    /// The part of a gap that is not known to have had no event; `None`: nothing is left. An
    /// assumed position is told in any case.
    pub(crate) fn possible(&self, gap: Gap) -> Option<Gap> {
        let at = self.remotes.binary_search_by_key(&gap.pubend, |remote| remote.pubend);
        let remote = at.ok().map(|at| &self.remotes[at]).filter(|_| gap.reason != GapReason::Assumed);
        let Some(remote) = remote else { return Some(gap) };
        remote.without_still(gap.from, gap.to).map(|(from, to)| Gap { from, to, ..gap })
    }

    /// The tick up to which a followed or own stream was passed.
    pub(crate) fn followed(&self, pubend: PubendId) -> Option<Tick> {
        let remote = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok();
        remote.map(|at| self.remotes[at].passed).or_else(|| self.own.position(pubend))
    }

    /// Whether an event, or the silence in its place, is still to come.
    pub(crate) fn lacks(&self, id: EventId) -> bool {
        self.followed(id.pubend).is_some_and(|passed| passed < id.tick)
    }

    /// All pubends with the tick after which they began.
    pub(crate) fn births(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        let own = self.own.pubends().map(|(pubend, _)| (pubend, self.birth));
        let retired =
            self.retired.iter().flat_map(|(streams, birth)| streams.pubends().map(|(pubend, _)| (pubend, *birth)));
        own.chain(retired).chain(self.remotes.iter().map(|remote| (remote.pubend, remote.birth)))
    }

    /// Whether an event of another broker has not been passed yet, and will be, as that broker
    /// knows this version of the own interest.
    pub(crate) fn is_to_come(&self, id: EventId, version: u64) -> bool {
        let at = self.remotes.binary_search_by_key(&id.pubend, |remote| remote.pubend);
        at.is_ok_and(|at| self.remotes[at].told >= version.max(1) && self.remotes[at].passed < id.tick)
    }

    /// The passed tick of another broker's stream, once it is known from where on that is followed.
    pub(crate) fn begun(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        let remote = &self.remotes[at];
        (remote.told > 0 && !remote.is_held).then_some(remote.passed)
    }

    /// The tick up to which the consolidated stream has passed another broker's stream; 0 if it is
    /// not known here.
    pub(crate) fn passed(&self, pubend: PubendId) -> Tick {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend);
        at.map_or(Tick(0), |at| self.remotes[at].passed)
    }

    /// The tick of each own stream's begin.
    pub(crate) fn births_own(&self) -> [Tick; Streams::COUNT] {
        [self.birth; Streams::COUNT]
    }

    /// The tick of the own streams' begin.
    pub(crate) fn birth(&self) -> Tick {
        self.birth
    }

    /// Follows a host that has become known, or has come back, from version `least` of the own
    /// interest on.
    pub(crate) fn follow_from(&mut self, host: HostId, least: u64) {
        let of_host = self.range_of(host);
        self.remotes[of_host].iter_mut().for_each(|remote| remote.least = remote.least.max(least));
    }

    /// The followed reliable streams of a host, in the order of their places.
    pub(crate) fn reliable_of(&self, host: HostId) -> impl Iterator<Item = PubendId> {
        self.of_host(host).map(|remote| remote.pubend).filter(|pubend| pubend.reliable_place().is_some())
    }

    /// The followed streams of a host.
    pub(crate) fn of_host(&self, host: HostId) -> impl Iterator<Item = &RemoteStream> {
        self.remotes[self.range_of(host)].iter()
    }

    /// The places of a host's streams. This is asked for each broker whenever a subscription waits
    /// for all of them.
    fn range_of(&self, host: HostId) -> core::ops::Range<usize> {
        let from = self.remotes.partition_point(|remote| remote.pubend < host.pubend(0));
        let count = self.remotes[from..].iter().take_while(|remote| remote.pubend.host() == host).count();
        from..from + count
    }

    /// The pubends of other brokers with the tick up to which the consolidated stream has passed
    /// them.
    pub(crate) fn remote_positions(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.remotes.iter().map(|remote| (remote.pubend, remote.passed))
    }

    /// As [`Sources::remote_positions`], each also with the tick after which the version of the own
    /// interest that its broker has reported is in force.
    pub(crate) fn remote_reaches(&self) -> impl Iterator<Item = (PubendId, Tick, Tick)> + '_ {
        self.remotes.iter().map(|remote| (remote.pubend, remote.passed, remote.since))
    }

    /// The tick after which a version of the own interest is in force in all streams. Brokers that
    /// are away, and have not reported that they know it, are asked for events after the passed
    /// ones when they are back. Costs a look at each stream.
    pub(crate) fn in_force(&self, version: u64) -> Tick {
        let of = |remote: &RemoteStream| if remote.told >= version { remote.since } else { remote.passed };
        self.remotes.iter().map(of).max().unwrap_or_default()
    }

    /// The number of followed streams of other brokers, and the bytes that they take without
    /// waiting events, about.
    pub(crate) fn size(&self) -> (usize, usize) {
        let hosts = self.hosts.len() * (size_of::<Host>() + 2 * size_of::<HostId>());
        (self.remotes.len(), hosts + self.remotes.len() * size_of::<RemoteStream>())
    }

    pub(crate) fn knows(&self, pubend: PubendId) -> bool {
        self.own.position(pubend).is_some()
            || self.logged().position(pubend).is_some()
            || self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).is_ok()
    }

    /// The last tick of an own stream that a client can name: that of an event that has passed, or
    /// one that a token has named.
    pub(crate) fn closed(&self, pubend: PubendId) -> Option<Tick> {
        self.own.closed(pubend).or_else(|| self.logged().closed(pubend))
    }

    /// Declares silence on all own streams up to the tick that is returned, except on those in
    /// which events wait.
    pub(crate) fn close(&mut self, now: Time) -> Tick {
        self.own.close(now)
    }

    /// The tick up to which no own stream has an event to come, at most the clock's tick.
    pub(crate) fn silent(&self, now: Time) -> Tick {
        self.own.pubends().map(|(_, passed)| passed).fold(Tick(now.as_nanos()), Tick::min)
    }

    /// Whether an own stream may have had an event after `tick` before this process began.
    pub(crate) fn is_before_this_process(&self, pubend: PubendId, tick: Tick) -> bool {
        let began = self.own.began(pubend).or_else(|| self.logged().began(pubend));
        began.is_some_and(|began| tick < began)
    }

    /// A token that covers all hosts, all at `common`.
    pub(crate) fn token(&self, deployment: Deployment, common: Tick) -> CheckpointToken {
        let mut token = CheckpointToken::new(deployment, common);
        let own = (self.own.host(), Streams::FIRST, Streams::FURTHER);
        let others = self.hosts.iter().map(|(id, host)| (*id, host.reliable, host.further));
        let retired = self.retired.iter().map(|(streams, _)| (streams.host(), Streams::FIRST, Streams::FURTHER));
        for (host, reliable, further) in core::iter::once(own).chain(retired).chain(others) {
            token.cover(host, reliable, further).expect("hosts are bounded below what a token takes");
        }
        token
    }

    /// The positions of a token in all streams that it names, and see [`Sources::position_in`].
    pub(crate) fn positions_in(&self, token: &CheckpointToken) -> Positions {
        let mut positions: Positions = token.pubends().collect();
        for (host, _, _) in token.hosts().filter(|(_, _, further)| *further <= KIND_PUBENDS_MAX) {
            for pubend in (HOST_RELIABLE_MAX..HOST_PUBENDS_MAX).map(|index| host.pubend(index)) {
                if let Some(tick) = self.position_in(token, pubend) {
                    positions.set(pubend, tick);
                }
            }
        }
        positions
    }

    /// The position of a token in a stream. A known stream of the deadline class of a host of which
    /// the token names none stands where the least of the others does: it had no event before that.
    pub(crate) fn position_in(&self, token: &CheckpointToken, pubend: PubendId) -> Option<Tick> {
        let of_host = |index: u8| token.position(pubend.host().pubend(index));
        let is_of_class = pubend.class() == StreamClass::Deadline;
        let is_later = || is_of_class && of_host(HOST_RELIABLE_MAX).is_none() && self.knows(pubend);
        let least = || (0..HOST_RELIABLE_MAX).filter_map(of_host).min().filter(|_| is_later());
        token.position(pubend).or_else(least)
    }

    /// `tick`, or the last one before it that a token can name in that stream.
    pub(crate) fn nameable(&self, pubend: PubendId, tick: Tick) -> Tick {
        self.closed(pubend).map_or(tick, |closed| tick.min(closed))
    }

    /// The positions that lie ahead of the consolidated stream, or in streams that are not known
    /// yet. In an own stream that is so while an event waits that a client does not want, because
    /// it asked for events after a later moment.
    pub(crate) fn ahead_of(&self, positions: &Positions) -> Positions {
        let passed: Positions = self.positions().collect();
        positions.iter().filter(|(pubend, tick)| *tick > passed.get(*pubend)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1_000);

    fn sources() -> Sources {
        Sources::new(3, Tick(0), NOW)
    }

    fn host(number: u64) -> HostId {
        HostId::new((number + 1) << 8)
    }

    #[test]
    fn a_host_is_taken_notice_of_once_and_the_own_one_never() {
        let mut sources = sources();
        let own = sources.own.host();
        assert!(!sources.add_host(own, (1, 1), Tick(5), false));
        assert!(sources.add_host(host(0), (1, 1), Tick(5), false));
        assert!(!sources.add_host(host(0), (1, 1), Tick(5), false));
        assert!(sources.add_host(host(1), (4, 12), Tick(6), false));
        assert_eq!(sources.remote_positions().count(), 18);
        let pubend = host(1).pubend(15);
        assert_eq!(sources.remote(pubend).map(|remote| (remote.birth, remote.passed)), Some((Tick(6), Tick(6))));
    }

    #[test]
    fn there_are_no_more_hosts_than_a_token_takes() {
        let mut sources = sources();
        for number in 0..HOSTS_MAX as u64 {
            assert!(sources.add_host(host(number), (1, 1), Tick(0), false), "host {number}");
        }
        assert!(!sources.add_host(host(HOSTS_MAX as u64), (1, 0), Tick(0), false));
        sources.retire(4, NOW);
        assert_eq!(sources.token(Deployment::named(""), Tick(7)).hosts().count(), CheckpointToken::HOSTS_MAX);
    }

    #[test]
    fn there_are_no_more_streams_than_a_token_takes() {
        let mut sources = sources();
        // The room beside the own streams, and those that take their place when the log fails.
        let room = CheckpointToken::PUBENDS_MAX - 2 * Streams::COUNT;
        let hosts = room as u64 / 16;
        for number in 0..hosts {
            assert!(sources.add_host(host(number), (4, 12), Tick(0), false), "host {number}");
        }
        let left = (room % 16) as u8;
        assert!(!sources.add_host(host(hosts), (0, left + 1), Tick(0), false));
        assert!(left == 0 || sources.add_host(host(hosts), (0, left), Tick(0), false));
        assert!(!sources.add_host(host(hosts + 1), (1, 0), Tick(0), false));
        sources.retire(4, NOW);
        assert_eq!(sources.token(Deployment::named(""), Tick(7)).pubends().count(), CheckpointToken::PUBENDS_MAX);
    }

    #[test]
    fn own_retired_and_remote_streams_are_known_and_no_others() {
        let mut sources = sources();
        let before = sources.own.host().pubend(0);
        sources.retire(4, NOW);
        let own = sources.own.host().pubend(0);
        assert_ne!(own, before);
        sources.add_host(host(0), (1, 0), Tick(5), false);
        for (pubend, known) in [(own, true), (before, true), (host(0).pubend(0), true)] {
            assert_eq!(sources.knows(pubend), known, "{pubend}");
        }
        assert!(!sources.knows(host(0).pubend(1)) && !sources.knows(host(1).pubend(0)));
    }

    #[test]
    fn what_came_before_the_last_tick_of_an_earlier_process_is_before_this_one() {
        let sources = Sources::restored(host(0), Tick(5), [Tick(10); Streams::COUNT]);
        let pubend = host(0).pubend(0);
        assert_eq!([9, 10, 11].map(|tick| sources.is_before_this_process(pubend, Tick(tick))), [true, false, false]);
        assert!(!sources.is_before_this_process(host(1).pubend(0), Tick(0)), "it is of another broker");
    }

    #[test]
    fn of_a_gap_what_was_still_is_left_out() {
        let mut sources = sources();
        sources.add_host(host(0), (1, 0), Tick(5), false);
        let pubend = host(0).pubend(0);
        let left = |sources: &Sources, from, to| {
            let gap = Gap { pubend, from: Tick(from), to: Tick(to), reason: GapReason::NotBuffered };
            sources.possible(gap).map(|gap| (gap.from.0, gap.to.0))
        };
        assert_eq!(left(&sources, 10, 20), Some((10, 20)), "nothing is known");
        let still = |sources: &mut Sources, from, to| {
            sources.remote(pubend).expect("it is known").record_still((Tick(from), Tick(to)));
        };
        still(&mut sources, 10, 20);
        for (gap, expected) in [
            ((10, 20), None),
            ((12, 18), None),
            ((9, 20), Some((9, 10))),
            ((9, 15), Some((9, 10))),
            ((15, 22), Some((20, 22))),
            ((10, 21), Some((20, 21))),
            ((9, 21), Some((9, 21))),
            ((1, 10), Some((1, 10))),
            ((20, 30), Some((20, 30))),
        ] {
            assert_eq!(left(&sources, gap.0, gap.1), expected, "{gap:?}");
        }
        // An empty or smaller range changes nothing; one that touches the known range extends it.
        still(&mut sources, 30, 30);
        still(&mut sources, 12, 18);
        still(&mut sources, 20, 25);
        assert_eq!((left(&sources, 10, 25), left(&sources, 10, 26)), (None, Some((25, 26))));
        // An event lies in between.
        still(&mut sources, 27, 40);
        assert_eq!([left(&sources, 10, 25), left(&sources, 26, 40)], [Some((10, 25)), Some((26, 27))]);
        let assumed = Gap { pubend, from: Tick(28), to: Tick(30), reason: GapReason::Assumed };
        assert_eq!(sources.possible(assumed), Some(assumed), "that it was assumed is told");
    }

    #[test]
    fn a_position_is_ahead_only_beyond_what_has_passed() {
        let mut sources = sources();
        sources.add_host(host(0), (2, 0), Tick(50), false);
        let [a, b] = [0, 1].map(|index| host(0).pubend(index));
        let positions: Positions = [(a, Tick(50)), (b, Tick(51))].into_iter().collect();
        let ahead = sources.ahead_of(&positions);
        assert_eq!((ahead.get(a), ahead.get(b)), (Tick(0), Tick(51)));
    }
}
