//! What can be looked at: links, brokers and interests. What became of an event is in `traces`.

use core::time::Duration;

use whimbrel_event::{HostId, LatencyHistogram, Time};
use whimbrel_net::link::peers::LinkCounters;

use super::{Overlay, OverlayStats};
use crate::api::PeerLink;
use crate::broker::Broker;

/// Brokers that are named as not having the present interest in force.
const NAMES_MAX: usize = 64;

/// A link of this broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The neighbour's name.
    pub name: Box<str>,
    /// The neighbour's host.
    pub host: HostId,
    /// The version of the neighbour's program; empty if it has not told it.
    pub version: Box<str>,
    /// This broker has asked for the link.
    pub dialed: bool,
    /// Its delay in one direction, microseconds, once it is known.
    pub delay_us: Option<u32>,
    /// Its loss, in thousandths.
    pub loss: u16,
    /// How far the neighbour's clock is ahead, nanoseconds, the way of its hello included.
    pub ahead: i64,
    /// Unsent bytes, of all ways on which more than [`super::UNSENT_LITTLE`] are.
    pub unsent: usize,
    /// What went over it.
    pub counters: LinkCounters,
    /// How old events were when they came over it, since their broker had accepted them: those that
    /// were asked for again are not counted.
    pub latency: LatencyHistogram,
    /// The driver's name for it.
    pub link: PeerLink,
}

/// A broker, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// Its name.
    pub name: Box<str>,
    /// The delay of the link there, in one direction, microseconds.
    pub delay_us: u32,
    /// Its loss, in thousandths.
    pub loss: u16,
}

/// A broker of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyInfo {
    /// Its name.
    pub name: Box<str>,
    /// Its host.
    pub host: HostId,
    /// Which life of it this is.
    pub incarnation: u64,
    /// Where it says that others reach it, best first.
    pub addresses: Vec<Box<str>>,
    /// How long ago it has told its links.
    pub age: Duration,
    /// The brokers on the best way there, from this one to it; empty if there is no way.
    pub path: Vec<Box<str>>,
    /// What that way costs, microseconds.
    pub cost_us: Option<u64>,
    /// Its links.
    pub links: Vec<NeighbourInfo>,
}

/// What a broker wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestInfo {
    /// Its name.
    pub name: Box<str>,
    /// Its host.
    pub host: HostId,
    /// The version of its interest: of another broker, the one by which this one's events are sent
    /// to it.
    pub version: u64,
    /// Topic filters with selectors.
    pub entries: Vec<(Box<str>, Option<Box<str>>)>,
    /// There is a way to it.
    pub is_reachable: bool,
    /// Of this broker's own interest: those that can be reached and have not told that the version
    /// is in force in their streams; at most 64 are named. None while nothing is wanted.
    pub unconfirmed: Vec<Box<str>>,
}

impl Broker {
    /// What the overlay has counted, if there is one.
    pub fn overlay_stats(&self) -> Option<&OverlayStats> {
        self.overlay.as_deref().map(|overlay| &overlay.stats)
    }

    /// By which name other brokers know this one, if there is an overlay.
    pub fn own_name(&self) -> Option<&str> {
        self.overlay.as_deref().map(|overlay| &*overlay.config.name)
    }

    /// Whether this broker knows that there is a host, or was, itself among them.
    pub fn has_heard_of(&self, host: HostId) -> bool {
        self.streams.knows(host.pubend(0)) || self.streams.has_ended(host)
    }

    /// The links that are up.
    pub fn links(&self) -> Vec<LinkInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let info = |peer: &super::Peer| {
            let who = peer.who.as_ref().expect("it is up");
            LinkInfo {
                name: who.name.clone(),
                host: who.host,
                version: who.version.clone(),
                dialed: peer.dialed,
                delay_us: peer.estimate.delay_us(),
                loss: peer.estimate.loss_permille(),
                ahead: who.ahead,
                unsent: peer.unsent(),
                counters: peer.counters,
                latency: peer.latency,
                link: peer.link,
            }
        };
        overlay.peers.up().map(info).collect()
    }

    /// The brokers of the overlay, this one included, in order of their hosts.
    pub fn topology(&self, now: Time) -> Vec<TopologyInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let info = |state: &whimbrel_net::topology::LinkState| TopologyInfo {
            name: state.name.clone(),
            host: state.host,
            incarnation: state.incarnation,
            addresses: state.addresses.clone(),
            age: overlay.topology.age(now, state.host).unwrap_or_default(),
            path: overlay.routes.path(state.host).into_iter().map(|host| overlay.name_of(host)).collect(),
            cost_us: overlay.routes.cost_us(state.host),
            links: state
                .neighbours
                .iter()
                .map(|end| NeighbourInfo { name: overlay.name_of(end.host), delay_us: end.delay_us, loss: end.loss })
                .collect(),
        };
        overlay.topology.states().map(info).collect()
    }

    /// What brokers want: this one, and then those by whose interest its events are sent, in the
    /// order of their hosts. At most `max` of them, after so many others.
    pub fn interests(&self, from: usize, max: usize) -> Vec<InterestInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let texts =
            |entry: &whimbrel_net::interest::others::InterestValue| (entry.filter.clone(), entry.selector.clone());
        let own = || InterestInfo {
            name: overlay.config.name.clone(),
            host: overlay.host,
            version: overlay.own_interest.version(),
            entries: overlay.own_interest.entries().map(texts).collect(),
            is_reachable: true,
            unconfirmed: self.unconfirmed(overlay),
        };
        let others = overlay.destinations.iter().skip(from.saturating_sub(1)).map(|destination| InterestInfo {
            name: overlay.name_of(destination.host),
            host: destination.host,
            version: destination.version,
            entries: destination.entries().map(texts).collect(),
            is_reachable: overlay.routes.is_reachable(destination.host),
            unconfirmed: Vec::new(),
        });
        (from == 0).then(own).into_iter().chain(others).take(max).collect()
    }

    /// Brokers that can be reached in some of whose streams the own interest is not in force.
    fn unconfirmed(&self, overlay: &Overlay) -> Vec<Box<str>> {
        if overlay.own_interest.entries().next().is_none() {
            return Vec::new();
        }
        let version = overlay.own_interest.version();
        let is_late = |host: &HostId| {
            let mut streams = self.streams.of_host(*host).peekable();
            let is_told = streams.peek().is_some() && streams.all(|remote| remote.told >= version);
            *host != overlay.host && overlay.routes.is_reachable(*host) && !is_told
        };
        overlay.topology.hosts().filter(is_late).take(NAMES_MAX).map(|host| overlay.name_of(host)).collect()
    }
}

impl Overlay {
    /// The name of a broker, or its number if it is not known.
    pub(in crate::overlay) fn name_of(&self, host: HostId) -> Box<str> {
        self.topology.get(host).map_or_else(|| host.to_string().into(), |state| state.name.clone())
    }
}
