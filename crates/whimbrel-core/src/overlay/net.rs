//! The network layer of the broker: links, topology, routes, and the interest of all brokers. It is
//! complete without the broker's sessions, logs and cursors.

use whimbrel_event::{Deployment, EventId, HostId, Tick, Time};
use whimbrel_net::deadlines::Deadlines;
use whimbrel_net::interest::others::Interests;
use whimbrel_net::interest::own::OwnInterest;
use whimbrel_net::link::peers::Peers;
use whimbrel_net::route::Routes;
use whimbrel_net::topology::Topology;
use whimbrel_net::transit::Transit;
use whimbrel_net::{Channel, PeerLink};
use whimbrel_wire::PreviousIdentity;

use super::joining::Joining;
use super::repair::OpenNacks;
use super::stats::OverlayStats;
use super::traces::Traces;
use super::watch::Watch;
use super::{Due, OverlayConfig, REFRESH_EVERY};
use crate::api::Output;
use crate::fault::Faults;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) config: OverlayConfig,
    pub(crate) host: HostId,
    /// Greater at each start of the host.
    pub(crate) incarnation: u64,
    /// The sequence number of the last own link state.
    pub(super) sequence: u64,
    /// The previous hosts of this broker's name.
    pub(super) previous: Vec<PreviousIdentity>,
    /// Present while the broker has just started and does not know all other brokers.
    pub(super) joining: Option<Joining>,
    /// When the last own link state was announced.
    pub(super) announced: Time,
    pub(crate) peers: Peers,
    pub(crate) topology: Topology,
    pub(crate) routes: Routes,
    pub(crate) watch: Watch,
    pub(super) timers: Deadlines<Due>,
    pub(crate) own_interest: OwnInterest,
    pub(super) interests: Interests,
    pub(super) traffic: FrameBuffers,
    pub(crate) stats: OverlayStats,
    pub(super) faults: Faults,
}

/// Buffers for frames, and the state kept of frames that pass.
#[derive(Debug, Default)]
pub(super) struct FrameBuffers {
    pub(super) open: OpenNacks,
    pub(super) transit: Transit,
    pub(super) traces: Traces,
    /// The event that is being sent, in its packed form.
    pub(super) event: Vec<u8>,
    /// The frame that is being encoded.
    pub(super) frame: Vec<u8>,
    pub(super) tree: Vec<u8>,
    /// The destinations of the event that is being sent.
    pub(super) hosts: Vec<HostId>,
}

impl Net {
    /// Without links. `birth`: the tick before the first of the own streams.
    pub(super) fn new(
        now: Time,
        host: HostId,
        incarnation: u64,
        deployment: Deployment,
        birth: Tick,
        config: OverlayConfig,
    ) -> Net {
        let mut timers = Deadlines::default();
        timers.insert(now, Due::Announce);
        timers.insert(now + REFRESH_EVERY, Due::Refresh);
        Net {
            host,
            incarnation,
            sequence: 0,
            previous: Vec::new(),
            joining: Some(Joining::begun(now)),
            announced: Time::ZERO,
            peers: Peers::new(incarnation),
            topology: Topology::new(host),
            routes: Routes::new(host),
            watch: Watch::default(),
            timers,
            own_interest: OwnInterest::new(host, incarnation, deployment, birth),
            interests: Interests::default(),
            traffic: FrameBuffers::default(),
            stats: OverlayStats::default(),
            config,
            faults: Faults::default(),
        }
    }

    pub(crate) fn set_timer(&mut self, at: Time, due: Due) {
        self.timers.insert(at, due);
    }

    /// Sets a timer unless an earlier one for the same purpose is set; a later one is replaced.
    pub(super) fn set_once(&mut self, at: Time, due: Due) {
        let known = self.timers.first_of(due);
        if known.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = known {
            self.timers.remove(known, due);
        }
        self.set_timer(at, due);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| at)
    }

    /// Sends a frame to a neighbour; nothing if the link is gone.
    pub(super) fn send(&mut self, now: Time, link: PeerLink, channel: Channel, frame: &[u8], out: &mut dyn Output) {
        self.carrier(now).send(link, channel, frame, out);
    }

    /// Whether there is a path to a broker.
    pub(crate) fn is_reachable(&mut self, host: HostId) -> bool {
        self.routes.update(&self.topology);
        self.routes.is_reachable(host)
    }

    /// Whether an event is in a stream of this broker.
    pub(super) fn is_own(&self, id: EventId) -> bool {
        id.pubend.host() == self.host
    }

    /// The name of a broker, or its host number if the name is not known.
    pub(super) fn name_of(&self, host: HostId) -> Box<str> {
        self.topology.get(host).map_or_else(|| host.to_string().into(), |state| state.name.clone())
    }
}
