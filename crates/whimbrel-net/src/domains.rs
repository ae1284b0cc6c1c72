//! Domains: which brokers may carry an event.
//!
//! An event has a label, see [`DomainLabel`], from the broker that accepts it on, wherever it is
//! sent or kept; so each place that hands content on needs nothing but the content and the domains
//! that brokers tell in their link states. [`Net::may_carry`](crate::Net::may_carry) is that question, and
//! [`DomainPlace`] has all places that ask it. What may go over allowed brokers only takes paths in
//! the part of the topology that these are ([`LabelRoutes`]).

use whimbrel_event::{DomainLabel, HostId};

use crate::pace::Routing;
use crate::route::Routes;
use crate::topology::Topology;

/// Most labels for which paths are remembered; the oldest is replaced first.
pub const LABELS_MAX: usize = 16;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// A place that hands the content of events on, and asks [`Net::may_carry`](crate::Net::may_carry) before.
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
    (routes, within): (&'a mut Routes, &'a mut LabelRoutes),
    label: DomainLabel<'_>,
    topology: &Topology,
) -> &'a mut Routes {
    if label.is_any() { routes } else { within.of(label, topology) }
}
