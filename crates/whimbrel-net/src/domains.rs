//! Domains: which brokers may carry an event.
//!
//! An event has a label, see [`DomainLabel`], from the broker that accepts it on, wherever it is
//! sent or kept; so each place that hands content on needs nothing but the content and the domains
//! that brokers tell in their link states. [`DomainView::may_carry`] is that question, and
//! [`DomainPlace`] has all places that ask it. What may go over allowed brokers only takes paths in
//! the part of the topology that these are (`LabelRoutes`).

use whimbrel_event::{DomainLabel, Domains, HostId};
use whimbrel_wire::compact;

use crate::pace::Routing;
use crate::route::Routes;
use crate::topology::Topology;
use crate::{Net, PeerLink};

/// Most labels for which paths are remembered; the oldest is replaced first.
pub const LABELS_MAX: usize = 16;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// A place that hands the content of events on, and asks [`DomainView::may_carry`] before.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum DomainPlace {
            $($(#[$doc])* $name,)*
        }

        impl DomainPlace {
            /// All places.
            pub const ALL: &'static [DomainPlace] = &[$(DomainPlace::$name,)*];

            /// Its name in metrics and logs.
            pub fn name(self) -> &'static str {
                match self {
                    $(DomainPlace::$name => $text,)*
                }
            }
        }
    };
}

places! {
    /// An event is published at a broker that may not carry it, and is refused.
    Publish "publish",
    /// A broker wants an own event that it may not carry: to it, the event is silence.
    Destination "destination",
    /// A broker may carry an event, but there is no path to it over brokers that may.
    Route "route",
    /// A broker on the path of an event that passes may not carry it, by what is known here: the
    /// path is changed.
    Relay "relay",
    /// The neighbour to which an event, or its detour, is about to be written may not carry it.
    Link "link",
    /// A broker asks again for an event that it may not carry, or that has no path.
    Nack "nack",
    /// A broker reads a log, and may not carry an event in it.
    LogRead "log_read",
    /// A relay has an answer with events that the asker may not carry.
    KeptRead "kept_read",
    /// The message with the content has no path over brokers that may carry it.
    Message "message",
    /// A session is copied to a broker that may not carry its will: the copy has none.
    SessionCopy "session_copy",
    /// A session that moves has a will which not every broker may carry: it stays behind.
    SessionMove "session_move",
    /// A neighbour may not carry a retained message: it is told only that there is one.
    Retained "retained",
    /// A broker with members of a shared subscription may not carry an event of it.
    SharedMember "shared_member",
    /// A subscription may match events that its broker, or the home of its group, may not carry.
    Subscribe "subscribe",
}

/// By place, how often content was not handed on.
pub type DomainRefusals = [u64; DomainPlace::ALL.len()];

/// Whether a broker may carry what has this label: the one rule of domains.
#[inline]
pub(crate) fn may_carry(topology: &Topology, label: DomainLabel<'_>, host: HostId) -> bool {
    label.is_any() || topology.get(host).is_some_and(|state| label.admits(&state.domains))
}

/// What the brokers that are known may carry, by the domains that they tell.
#[derive(Debug)]
pub struct DomainView<'a> {
    pub(crate) net: &'a mut Net,
}

impl DomainView<'_> {
    /// Whether a broker may carry what has this label: it is in a domain of each of its lists.
    /// A comparison if any broker may.
    #[inline]
    pub fn may_carry(&self, label: DomainLabel<'_>, host: HostId) -> bool {
        if host == self.net.identity.host {
            return label.admits(&self.net.config.domains);
        }
        may_carry(&self.net.topology, label, host)
    }

    /// Whether this broker may carry what has this label.
    pub fn may_carry_here(&self, label: DomainLabel<'_>) -> bool {
        label.admits(&self.net.config.domains)
    }

    /// Whether there is a path to a broker over brokers that may carry what has this label, all
    /// included.
    pub fn reaches(&mut self, label: DomainLabel<'_>, host: HostId) -> bool {
        if label.is_any() {
            return self.net.is_reachable(host);
        }
        let is_own = host == self.net.identity.host;
        let Net { within, topology, .. } = &mut *self.net;
        let is_reached = is_own || within.of(label, topology).is_reachable(host);
        is_reached && self.may_carry(label, host)
    }

    /// Whether some broker that may carry what has this label can be reached over others only.
    pub fn is_divided(&mut self, label: DomainLabel<'_>) -> bool {
        let own = self.net.identity.host;
        let states = self.net.topology.states();
        let admitted = states.filter(|state| state.host != own && label.admits(&state.domains));
        let hosts: Vec<HostId> = admitted.map(|state| state.host).collect();
        hosts.into_iter().any(|host| self.net.is_reachable(host) && !self.reaches(label, host))
    }

    /// The domains that a broker is in, as far as it has told.
    pub fn of(&self, host: HostId) -> Domains {
        if host == self.net.identity.host {
            return self.net.config.domains.clone();
        }
        self.net.topology.get(host).map_or_else(Domains::default, |state| state.domains.clone())
    }

    /// Sets the domains of a broker that is alone: it tells no other of them.
    pub fn set_own(&mut self, domains: Domains) {
        self.net.config.domains = domains;
    }

    /// Whether the nack of a broker may be answered from here with an event.
    pub(crate) fn may_answer(&mut self, event: &[u8], to: HostId) -> bool {
        let label = compact::label(event);
        let is_reached = label.is_any() || self.reaches(label, to);
        if !is_reached {
            self.record_refusal(DomainPlace::Nack);
        }
        is_reached
    }

    /// Whether an event that passes may not go to the neighbour behind a port, with which a part of
    /// its tree begins: its broker has taken the path by another topology.
    pub(crate) fn leads_outside(&mut self, label: DomainLabel<'_>, port: u16) -> bool {
        let neighbour = self.net.peers.neighbour(port);
        let is_outside = neighbour.is_some_and(|host| !may_carry(&self.net.topology, label, host));
        if is_outside {
            self.record_refusal(DomainPlace::Relay);
        }
        is_outside
    }

    /// The link to the next broker on the path to `to` over brokers that may carry what has this
    /// label.
    pub(crate) fn link_towards(&mut self, to: HostId, label: DomainLabel<'_>) -> Option<PeerLink> {
        let Net { routes, within, topology, peers, .. } = &mut *self.net;
        routes.update(topology);
        let (neighbour, _) = routes_for(routes, within, label, topology).next_hop(to)?;
        peers.to(neighbour)
    }

    /// Counts content that was not handed on.
    pub fn record_refusal(&mut self, place: DomainPlace) {
        self.net.stats.domain_refusals[place as usize] += 1;
    }
}

/// Paths over the brokers that may carry what has a label, for the labels that were asked for last.
#[derive(Debug)]
pub(crate) struct LabelRoutes {
    own: HostId,
    routing: Routing,
    threshold_percent: u8,
    all: Vec<Routes>,
    /// The place that is used next for another label.
    oldest: usize,
}

impl LabelRoutes {
    pub(crate) fn new(own: HostId, routing: Routing, threshold_percent: u8) -> LabelRoutes {
        LabelRoutes { own, routing, threshold_percent, all: Vec::new(), oldest: 0 }
    }

    /// The paths for a label under the present topology: no change is held, so none leads over a
    /// broker that has left its domain.
    pub(crate) fn of(&mut self, label: DomainLabel<'_>, topology: &Topology) -> &mut Routes {
        let at = self.all.iter().position(|routes| routes.label() == label).unwrap_or_else(|| self.begin(label));
        let routes = &mut self.all[at];
        routes.update(topology);
        routes
    }

    fn begin(&mut self, label: DomainLabel<'_>) -> usize {
        let routes = Routes::within(self.own, self.routing, self.threshold_percent, label);
        if self.all.len() < LABELS_MAX {
            self.all.push(routes);
            return self.all.len() - 1;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % LABELS_MAX;
        self.all[at] = routes;
        at
    }
}

/// The paths for a label: those over all brokers, which are up to date, if any broker may carry it.
#[inline]
pub(crate) fn routes_for<'a>(
    routes: &'a mut Routes,
    within: &'a mut LabelRoutes,
    label: DomainLabel<'_>,
    topology: &Topology,
) -> &'a mut Routes {
    if label.is_any() { routes } else { within.of(label, topology) }
}
