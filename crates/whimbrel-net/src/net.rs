//! The network layer as a whole: its state, and what others may ask of it.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_event::{Deployment, Domains, EventId, HostId, Tick, Time};
use whimbrel_wire::PreviousIdentity;

use crate::PeerLink;
use crate::domains::{DomainView, LabelRoutes};
use crate::due::{NetDue, NetTimers};
use crate::fault::NetFaults;
use crate::forward::FrameBuffers;
use crate::interest::others::{Interests, KnownInterest};
use crate::interest::own::{InterestChange, OwnInterest};
use crate::io::LinkOutput;
use crate::link::peers::{Peer, Peers, UNSENT_LITTLE};
use crate::link::queue::FrameClass;
use crate::outbid::GreaterIncarnation;
use crate::pace::{Pace, Routing};
use crate::route::{MapOutages, Routes};
use crate::stats::NetStats;
use crate::topology::Topology;
use crate::topology::joining::Joining;
use crate::topology::watch::{Watch, Watched, beyond_few};
use crate::traces::{TraceNote, TraceStep};

/// The configuration of the network layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The broker's name: 1 to 64 of letters, digits, `.`, `_`, `-`.
    pub name: Box<str>,
    /// The version of the broker's program. Neighbours are told its first
    /// [`whimbrel_wire::VERSION_BYTES_MAX`] bytes.
    pub version: Box<str>,
    /// Addresses where other brokers reach it, `ADDRESS:PORT`, best first; at most 4.
    pub addresses: Vec<Box<str>>,
    /// Most entries of the interest that the broker announces, at least
    /// [`INTEREST_LEAST`](crate::interest::reduce::INTEREST_LEAST).
    pub interest_max: usize,
    /// Links to other brokers are expected: a broker that never had one does not conclude that it
    /// is alone.
    pub expects_peers: bool,
    /// The number of links up to which the broker asks for further ones, to brokers that it learns
    /// of.
    pub links_wanted: usize,
    /// Unsent bytes of the driver on a channel from which on frames wait in front of it, by class;
    /// above [`UNSENT_LITTLE`]. `usize::MAX`: they never wait. On the urgent channel they wait
    /// behind any that is unsent.
    pub release_mark: usize,
    /// The longest time that a broker which has just started counts as young.
    pub young_for: Duration,
    /// Kinds of messages between other brokers that are examined here, see
    /// [`NetEvent::Passing`](crate::NetEvent::Passing).
    pub examined_kinds: &'static [u8],
    /// What links to some brokers cost beside delay and loss, microseconds, by the brokers' names.
    /// Link states tell the first [`whimbrel_wire::SURCHARGES_MAX`] links that have one.
    pub surcharges: BTreeMap<Box<str>, u32>,
    /// The domains that the broker is in, told in its link state.
    pub domains: Domains,
    /// How paths are chosen.
    pub routing: Routing,
    /// How fast links are measured, told of and followed.
    pub pace: Pace,
}

/// The identity under which this broker is known to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Host number; part of the number of each own stream.
    pub host: HostId,
    /// Greater at each start of the host, nanoseconds.
    pub incarnation: u64,
    /// Brokers of another deployment are refused.
    pub deployment: Deployment,
    /// The tick before the first of the own streams.
    pub birth: Tick,
    /// Number of the own streams from index 0 on.
    pub reliable: u8,
    /// Number of the own further streams, see [`whimbrel_wire::Hello`].
    pub further: u8,
}

/// Interval at which wanted links are asked for, and replicated maps compared.
pub(crate) const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// The network layer of a broker.
///
/// The driver gives it what happens on links, see [`Net::begin`], and the moments of its deadlines,
/// see [`Net::next_deadline`]; the composition dispatches the [`NetEvent`](crate::NetEvent)s of
/// each step.
#[derive(Debug)]
pub struct Net {
    /// False in the null form of a lone broker.
    is_open: bool,
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    /// The sequence number of the last own link state.
    pub(crate) sequence: u64,
    pub(crate) greater: GreaterIncarnation,
    /// The ended hosts that the own link state names.
    pub(crate) previous: Vec<PreviousIdentity>,
    pub(crate) joining: Joining,
    /// When the last own link state was announced.
    pub(crate) announced: Time,
    /// When the network layer was opened.
    began: Time,
    /// When this broker was last found to have been at a standstill; zero: never.
    resumed: Time,
    pub(crate) peers: Peers,
    pub(crate) topology: Topology,
    pub(crate) routes: Routes,
    /// Those of what not every broker may carry.
    pub(crate) within: LabelRoutes,
    pub(crate) outages: MapOutages,
    pub(crate) watch: Watch,
    pub(crate) timers: NetTimers,
    /// The number of own changes of links that were flooded.
    pub(crate) flashes: u64,
    pub(crate) own_interest: OwnInterest,
    pub(crate) interests: Interests,
    pub(crate) traffic: FrameBuffers,
    pub(crate) stats: NetStats,
    pub(crate) faults: NetFaults,
}

impl Net {
    /// The null form, of a broker that is alone: it has no name and no links, nothing is due, and
    /// it knows no broker. Its composition hangs up links at once, and gives it no input.
    pub fn alone(host: HostId) -> Net {
        let identity =
            Identity { host, incarnation: 0, deployment: Deployment(0), birth: Tick(0), reliable: 0, further: 0 };
        let config = Config {
            name: "".into(),
            version: "".into(),
            addresses: Vec::new(),
            interest_max: 0,
            expects_peers: false,
            links_wanted: 0,
            release_mark: usize::MAX,
            young_for: Duration::ZERO,
            examined_kinds: &[],
            surcharges: BTreeMap::new(),
            domains: Domains::default(),
            routing: Routing::default(),
            pace: Pace::DEFAULT,
        };
        let mut net = Net::new(Time::ZERO, identity, false, config);
        net.is_open = false;
        net.timers = NetTimers::default();
        net.joining.end();
        net
    }

    /// Whether this is not the null form.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Without links. With `is_restored`, the first subscriptions are those of an earlier
    /// incarnation.
    ///
    /// # Panics
    /// When [`Config::release_mark`] is not above [`UNSENT_LITTLE`]: no driver would tell that
    /// there is room.
    pub fn new(now: Time, identity: Identity, is_restored: bool, config: Config) -> Net {
        assert!(config.release_mark > UNSENT_LITTLE, "drivers tell of room where more than that was unsent");
        let Identity { host, incarnation, .. } = identity;
        let mut timers = NetTimers::open();
        timers.set(now, NetDue::Announce);
        timers.set(now + REFRESH_EVERY, NetDue::Refresh);
        Net {
            is_open: true,
            identity,
            sequence: 0,
            greater: GreaterIncarnation::default(),
            previous: Vec::new(),
            joining: Joining::begun(now, config.expects_peers, config.young_for),
            announced: Time::ZERO,
            began: now,
            resumed: Time::ZERO,
            peers: Peers::new(incarnation),
            topology: Topology::new(host),
            routes: Routes::following(host, config.routing, config.pace.threshold_percent),
            within: LabelRoutes::new(host, config.routing, config.pace.threshold_percent),
            outages: MapOutages::default(),
            watch: Watch::new(config.pace.ways_every),
            timers,
            flashes: 0,
            own_interest: OwnInterest::new(host, incarnation, is_restored.then_some(now)),
            interests: Interests::default(),
            traffic: FrameBuffers::default(),
            stats: NetStats::default(),
            config,
            faults: NetFaults::default(),
        }
    }

    /// Goes on under another identity, without links: to other brokers it is another host of the
    /// same name. Configuration, own interest and counters stay.
    #[must_use]
    pub fn rehost(self, now: Time, identity: Identity) -> Net {
        let Net { config, mut own_interest, stats, .. } = self;
        let mut fresh = Net::new(now, identity, false, config);
        let delta = own_interest.rehost(identity.host, identity.incarnation);
        fresh.interests.set_own(identity.host, identity.incarnation, own_interest.version(), delta);
        fresh.timers.set(now, NetDue::Interest);
        (fresh.own_interest, fresh.stats) = (own_interest, stats);
        fresh
    }

    /// The first deadline, with its purpose.
    pub fn next_deadline(&self) -> Option<(Time, NetDue)> {
        self.timers.first()
    }

    /// The number of deadlines.
    pub fn deadlines(&self) -> usize {
        self.timers.len()
    }

    /// Sends a frame to a neighbour; nothing if the link is gone.
    pub fn send(&mut self, now: Time, link: PeerLink, class: FrameClass, frame: &[u8], out: &mut dyn LinkOutput) {
        self.carrier(now).send(link, class, frame, out);
    }

    /// The host number of this broker.
    pub fn host(&self) -> HostId {
        self.identity.host
    }

    /// The incarnation of this broker. It grows if other brokers know a greater one.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// The name of this broker.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The counters.
    pub fn stats(&self) -> &NetStats {
        &self.stats
    }

    /// Counts an event or an entry of a map that the composition cannot read.
    pub fn refuse_event(&mut self) {
        self.stats.frames_invalid += 1;
    }

    /// Counts a message that the composition cannot read or does not know.
    pub fn refuse_message(&mut self) {
        self.stats.messages_refused += 1;
    }

    /// The known brokers and their links.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The paths as they were computed last.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The paths under the present topology; computed anew unless the pause after the last time is
    /// not over.
    pub fn ways(&mut self) -> &Routes {
        self.routes.update(&self.topology);
        &self.routes
    }

    /// Whether there is a path to a broker under the present topology, see [`Net::ways`].
    pub fn is_reachable(&mut self, host: HostId) -> bool {
        self.ways().is_reachable(host)
    }

    /// The links that are up, in the order of the neighbours' hosts.
    pub fn neighbours(&self) -> impl Iterator<Item = &Peer> {
        self.peers.up()
    }

    /// Whether an event is in a stream of this broker.
    pub fn is_own(&self, id: EventId) -> bool {
        id.pubend.host() == self.identity.host
    }

    /// The name of a broker, or its host number if the name is not known.
    pub fn name_of(&self, host: HostId) -> Box<str> {
        self.topology.get(host).map_or_else(|| host.to_string().into(), |state| state.name.clone())
    }

    /// The own interest.
    pub fn own_interest(&self) -> &OwnInterest {
        &self.own_interest
    }

    /// The interest of a broker, if it is known.
    pub fn interest_of(&self, host: HostId) -> Option<&KnownInterest> {
        self.interests.of.get(&host)
    }

    /// The known interests of all brokers, this one's included, in the order of hosts.
    pub fn interests(&self) -> impl Iterator<Item = &KnownInterest> + Clone {
        self.interests.of.values()
    }

    /// Records that a subscription was added or removed; [`Net::tell_interest`] announces it.
    pub fn want(&mut self, change: InterestChange) {
        self.own_interest.apply(change);
    }

    /// Begins the own interest with subscriptions that were answered before there was another
    /// broker, or not yet. To be called before [`Net::want`] has them.
    pub fn begin_interest(&mut self) {
        self.own_interest.begin();
    }

    /// Records that a subscription was answered. `is_only`: those that were answered before have
    /// ended, and no broker was told of them.
    pub fn record_answered(&mut self, now: Time, is_only: bool) {
        if is_only {
            self.own_interest.forget_answers();
        }
        self.own_interest.record_answered(now);
    }

    /// Sets the ended hosts that the own link state names from now on; at most
    /// [`PREVIOUS_IDENTITIES_MAX`](whimbrel_wire::PREVIOUS_IDENTITIES_MAX).
    pub fn set_previous(&mut self, previous: Vec<PreviousIdentity>) {
        assert!(previous.len() <= whimbrel_wire::PREVIOUS_IDENTITIES_MAX, "its callers bound it");
        self.previous = previous;
    }

    /// Records a standstill of this broker: it was at a standstill until now, so that silence of
    /// others means nothing.
    pub fn record_standstill(&mut self, now: Time) {
        self.resumed = now;
    }

    /// Whether this broker has been at a standstill, and other brokers have had no time to send
    /// anything since.
    pub fn has_stood_still(&self, now: Time, within: Duration) -> bool {
        self.resumed != Time::ZERO && now.since(self.resumed) < within
    }

    /// Whether this broker has just been started, or resumed after a standstill.
    pub fn has_just_begun(&self, now: Time, within: Duration) -> bool {
        now.since(self.began) < within || self.has_stood_still(now, within)
    }

    /// Whether other brokers may become known within a moment, so that answers wait; at most for
    /// [`Config::young_for`].
    pub fn is_young(&self, now: Time) -> bool {
        self.joining.is_young(now)
    }

    /// Whether the broker has just started, and does not know the others yet.
    pub fn knows_no_others(&self) -> bool {
        self.joining.is_open()
    }

    /// Whether links are expected, and there has never been one or no broker named over it is
    /// known.
    pub fn lacks_everyone(&self) -> bool {
        self.joining.lacks_everyone(&self.topology)
    }

    /// Whether a young broker knows all others by now: a neighbour has named them, and there is a
    /// path to each of them. Returns `true` once.
    pub fn check_joined(&mut self, now: Time) -> bool {
        self.joining.is_done(now, &self.topology, &mut self.routes)
    }

    /// Lets paths be computed again if the pause after the last time is over at this moment. Called
    /// before deadlines are met; [`Net::begin`] does so by itself.
    pub fn hold_routes(&mut self, now: Time) {
        self.watch.hold(now, &mut self.routes);
    }

    /// The number of brokers beyond [`FEW_BROKERS`](crate::topology::FEW_BROKERS).
    pub fn many(&self) -> u32 {
        beyond_few(&self.topology)
    }

    /// Computes the paths anew if the topology has changed, at most once per pause. Returns whether
    /// it did: the composition follows then. To be called at the end of each turn.
    pub fn check_ways(&mut self, now: Time) -> bool {
        match self.watch.check(now, &self.topology, &mut self.routes, &mut self.outages) {
            Watched::Same => false,
            Watched::Later(at) => {
                self.timers.set_once(at, NetDue::Watch);
                false
            }
            Watched::Changed => {
                self.stats.ways_computed += 1;
                true
            }
        }
    }

    /// What brokers may carry by their domains.
    pub fn domains(&mut self) -> DomainView<'_> {
        DomainView { net: self }
    }

    /// Records a step of an event for [`Net::trace_of`].
    pub fn record_step(&mut self, now: Time, id: EventId, step: TraceStep) {
        self.traffic.traces.record(now, id, step);
    }

    build_in!();

    /// The recorded steps of an event, oldest first.
    pub fn trace_of(&self, id: EventId) -> impl Iterator<Item = &TraceNote> {
        self.traffic.traces.of(id)
    }
}
