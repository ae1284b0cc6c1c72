//! All streams that a broker passes on: its own, and those of other brokers as far as it is told of them.

use whimbrel_event::{CheckpointToken, Deployment, EventId, HostId, PubendId, Reliability, Tick, Time};

use super::{Consolidated, Knowledge, Streams};
use crate::follow::Positions;

/// Other hosts that a broker takes notice of; a token covers them all.
pub const HOSTS_MAX: usize = CheckpointToken::HOSTS_MAX - 1;

/// A stream of another broker.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) pubend: PubendId,
    birth: Tick,
    /// What the consolidated stream has passed.
    pub(crate) passed: Tick,
    /// What is known beyond that.
    pub(crate) knowledge: Knowledge<Consolidated>,
}

/// A broker whose streams are known here.
#[derive(Clone, Copy, Debug)]
struct Host {
    id: HostId,
    reliable: u8,
    best_effort: u8,
}

/// The consolidated stream's sources.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) own: Streams,
    /// When the own streams began.
    birth: Tick,
    hosts: Vec<Host>,
    /// Ascending by pubend.
    remotes: Vec<Remote>,
}

impl Sources {
    pub(crate) fn new(seed: u64, floor: Tick, now: Time) -> Self {
        let own = Streams::new(seed, floor);
        let birth = floor.max(Tick(now.as_nanos().saturating_sub(1)));
        Sources { own, birth, hosts: Vec::new(), remotes: Vec::new() }
    }

    /// The id of the next event of a publisher with that binding.
    pub(crate) fn accept(&mut self, binding: u8, reliability: Reliability, now: Time) -> EventId {
        self.own.accept(binding, reliability, now)
    }

    /// Takes notice of another broker's streams, which began at `birth`; `false` if it is known, or one too many.
    pub(crate) fn add_host(&mut self, id: HostId, (reliable, best_effort): (u8, u8), birth: Tick) -> bool {
        let known = id == self.own.host() || self.hosts.iter().any(|host| host.id == id);
        let pubends = usize::from(reliable) + usize::from(best_effort);
        let room = CheckpointToken::PUBENDS_MAX - usize::from(Streams::RELIABLE + Streams::BEST_EFFORT);
        if known || self.hosts.len() >= HOSTS_MAX || self.remotes.len() + pubends > room {
            return false;
        }
        let host = Host { id, reliable, best_effort };
        self.hosts.push(host);
        let mut token = CheckpointToken::new(Deployment::named(""), birth);
        token.cover(id, reliable, best_effort).expect("one host fits into a token");
        let of_host = token.pubends().map(|(pubend, _)| pubend);
        self.remotes.extend(of_host.map(|pubend| Remote {
            pubend,
            birth,
            passed: birth,
            knowledge: Knowledge::new(pubend, birth),
        }));
        self.remotes.sort_by_key(|remote| remote.pubend);
        true
    }

    pub(crate) fn remote(&mut self, pubend: PubendId) -> Option<&mut Remote> {
        let at = self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).ok()?;
        Some(&mut self.remotes[at])
    }

    /// All pubends with the tick up to which the consolidated stream has passed them; nothing below it will come any more.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.own.pubends().chain(self.remotes.iter().map(|remote| (remote.pubend, remote.passed)))
    }

    /// All pubends with the tick after which they began.
    pub(crate) fn births(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        let own = self.own.pubends().map(|(pubend, _)| (pubend, self.birth));
        own.chain(self.remotes.iter().map(|remote| (remote.pubend, remote.birth)))
    }

    /// The pubends of other brokers with what the consolidated stream has passed of them.
    pub(crate) fn remote_positions(&self) -> impl Iterator<Item = (PubendId, Tick)> + '_ {
        self.remotes.iter().map(|remote| (remote.pubend, remote.passed))
    }

    pub(crate) fn knows(&self, pubend: PubendId) -> bool {
        self.own.last(pubend).is_some() || self.remotes.binary_search_by_key(&pubend, |remote| remote.pubend).is_ok()
    }

    /// Of an own stream, the last tick that an event can have had, or a token can have named.
    pub(crate) fn closed(&self, pubend: PubendId) -> Option<Tick> {
        self.own.last(pubend)
    }

    /// Declares silence on all own streams up to the tick that is returned.
    pub(crate) fn close(&mut self, now: Time) -> Tick {
        self.own.close(now)
    }

    /// A token that covers all hosts, all at `common`.
    pub(crate) fn token(&self, deployment: Deployment, common: Tick) -> CheckpointToken {
        let mut token = CheckpointToken::new(deployment, common);
        let own = (self.own.host(), Streams::RELIABLE, Streams::BEST_EFFORT);
        let others = self.hosts.iter().map(|host| (host.id, host.reliable, host.best_effort));
        for (host, reliable, best_effort) in core::iter::once(own).chain(others) {
            token.cover(host, reliable, best_effort).expect("hosts are bounded below what a token takes");
        }
        token
    }

    /// Which of these positions lie ahead of what the consolidated stream has passed.
    pub(crate) fn ahead_of(&self, positions: &Positions) -> Positions {
        let ahead = self.remote_positions().filter(|(pubend, passed)| positions.get(*pubend) > *passed);
        ahead.map(|(pubend, _)| (pubend, positions.get(pubend))).collect()
    }
}
