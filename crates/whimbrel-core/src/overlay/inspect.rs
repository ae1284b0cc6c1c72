//! Inspection of links, brokers and interests. The path of single events is in `traces`.

use core::time::Duration;

use whimbrel_event::{HostId, LatencyHistogram, Time};
use whimbrel_net::interest::others::InterestValue;
use whimbrel_net::link::peers::LinkCounters;

use super::{Overlay, OverlayStats};
use crate::api::PeerLink;
use crate::broker::Broker;

/// Most brokers that are named as not having the present interest in force.
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
    /// This broker has dialed the link.
    pub dialed: bool,
    /// The link's delay in one direction, microseconds, once it is known.
    pub delay_us: Option<u32>,
    /// The link's loss, thousandths.
    pub loss: u16,
    /// How far the neighbour's clock is ahead, nanoseconds; the transit time of its hello is
    /// included.
    pub ahead: i64,
    /// Unsent bytes, of all channels with more than [`super::UNSENT_LITTLE`].
    pub unsent: usize,
    /// Frames, bytes and events that went over the link.
    pub counters: LinkCounters,
    /// Age of events when they arrived over the link, since their broker accepted them. Events that
    /// were asked for again are not counted.
    pub latency: LatencyHistogram,
    /// The driver's number of the link.
    pub link: PeerLink,
}

/// A broker at the other end of a link, as the broker that announces the link sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The link's delay in one direction, microseconds.
    pub delay_us: u32,
    /// The link's loss, thousandths.
    pub loss: u16,
}

/// A broker of the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The broker's host.
    pub host: HostId,
    /// The host's incarnation.
    pub incarnation: u64,
    /// The addresses that it announces for links, best first.
    pub addresses: Vec<Box<str>>,
    /// The age of its link state.
    pub age: Duration,
    /// The brokers on the best path, from this one to it; empty if there is no path.
    pub path: Vec<Box<str>>,
    /// The cost of that path, microseconds.
    pub cost_us: Option<u64>,
    /// The broker's links.
    pub links: Vec<NeighbourInfo>,
}

/// The interest of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterestInfo {
    /// The broker's name.
    pub name: Box<str>,
    /// The broker's host.
    pub host: HostId,
    /// The version of its interest; of another broker, the version by which this broker's events
    /// are sent to it.
    pub version: u64,
    /// What its subscribers want, as it tells other brokers.
    pub entries: Vec<InterestValue>,
    /// There is a path to the broker.
    pub is_reachable: bool,
    /// Only for this broker's own interest: the brokers that can be reached and have not confirmed
    /// that the version is in force in their streams; at most 64. Empty while there is no interest.
    pub unconfirmed: Vec<Box<str>>,
}

impl Broker {
    /// The counters of the overlay, if there is one.
    pub fn overlay_stats(&self) -> Option<&OverlayStats> {
        self.overlay.as_deref().map(|overlay| &overlay.net.stats)
    }

    /// The name by which other brokers know this one, if there is an overlay.
    pub fn own_name(&self) -> Option<&str> {
        self.overlay.as_deref().map(|overlay| &*overlay.net.config.name)
    }

    /// Whether this broker knows the host, now or in the past; true of its own host.
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
        overlay.net.peers.up().map(info).collect()
    }

    /// The brokers of the overlay, this one included, in the order of their hosts.
    pub fn topology(&self, now: Time) -> Vec<TopologyInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let info = |state: &whimbrel_net::topology::LinkState| TopologyInfo {
            name: state.name.clone(),
            host: state.host,
            incarnation: state.incarnation,
            addresses: state.addresses.clone(),
            age: overlay.net.topology.age(now, state.host).unwrap_or_default(),
            path: overlay.net.routes.path(state.host).into_iter().map(|host| overlay.net.name_of(host)).collect(),
            cost_us: overlay.net.routes.cost_us(state.host),
            links: state
                .neighbours
                .iter()
                .map(|end| NeighbourInfo {
                    name: overlay.net.name_of(end.host),
                    delay_us: end.delay_us,
                    loss: end.loss,
                })
                .collect(),
        };
        overlay.net.topology.states().map(info).collect()
    }

    /// The interests of brokers: first this one's, then those by which its events are sent, in the
    /// order of their hosts. Skips the first `from`, and returns at most `max`.
    pub fn interests(&self, from: usize, max: usize) -> Vec<InterestInfo> {
        let Some(overlay) = self.overlay.as_deref() else { return Vec::new() };
        let own = || InterestInfo {
            name: overlay.net.config.name.clone(),
            host: overlay.net.host,
            version: overlay.net.own_interest.version(),
            entries: overlay.net.own_interest.entries().cloned().collect(),
            is_reachable: true,
            unconfirmed: self.unconfirmed(overlay),
        };
        let others = overlay.destinations.iter().skip(from.saturating_sub(1)).map(|destination| InterestInfo {
            name: overlay.net.name_of(destination.host),
            host: destination.host,
            version: destination.version,
            entries: destination.entries().cloned().collect(),
            is_reachable: overlay.net.routes.is_reachable(destination.host),
            unconfirmed: Vec::new(),
        });
        (from == 0).then(own).into_iter().chain(others).take(max).collect()
    }

    /// Brokers that can be reached and in whose streams the own interest is not yet in force; at
    /// most [`NAMES_MAX`].
    fn unconfirmed(&self, overlay: &Overlay) -> Vec<Box<str>> {
        if overlay.net.own_interest.entries().next().is_none() {
            return Vec::new();
        }
        let version = overlay.net.own_interest.version();
        let is_late = |host: &HostId| {
            let mut streams = self.streams.of_host(*host).peekable();
            let is_told = streams.peek().is_some() && streams.all(|remote| remote.told >= version);
            *host != overlay.net.host && overlay.net.routes.is_reachable(*host) && !is_told
        };
        overlay.net.topology.hosts().filter(is_late).take(NAMES_MAX).map(|host| overlay.net.name_of(host)).collect()
    }
}
