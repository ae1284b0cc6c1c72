//! What a broker does with other brokers. How they reach each other is the network layer's,
//! [`whimbrel_net`]: the driver reports links as [`crate::Input::Peer`], and this module dispatches
//! the events of the network layer.
//!
//! - `drive`: inputs, deadlines, events of the network layer and messages of other brokers are
//!   dispatched, also what follows when the topology or the own subscriptions have changed. `due`:
//!   the purposes of deadlines.
//! - `retained`: retained messages are the same at every broker. `profiles`: so are the profiles of
//!   topics that were made at running brokers.
//! - `follow`: hosts come to be known, end, are retired and forgotten.
//! - `hold_given`, `hold_received`: how far logs are kept for durable subscriptions elsewhere.
//! - `borrow`, `lend`, `passing`: parts of logs, read for other brokers.
//! - `roam`: sessions move to the broker that their client connects to, and are copied to others.
//! - `shares`: shared subscriptions with members at several brokers. `rendezvous`: the broker that
//!   is in charge of one.
//! - `inspect`, `stats`: state that can be inspected, and the path of single events.

mod borrow;
mod drive;
mod due;
mod follow;
mod hold_given;
mod hold_received;
mod inspect;
mod lend;
mod passing;
mod profiles;
mod rendezvous;
mod retained;
mod roam;
mod shares;
mod stats;
mod traced;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_event::{Domains, HostId, PubendId, Time};
use whimbrel_net::deadlines::Deadlines;
use whimbrel_net::{Config, Net};
use whimbrel_wire::{BrokerMessage, PreviousIdentity};

use crate::fault::Faults;
use crate::store::DurableNo;
pub use crate::stream::PREDECESSOR_MAX;
use crate::stream::{Destinations, Holes};
use crate::subscription::{Awaiting, CONFIRM_MAX};

pub use crate::subscription::ALL_OTHERS;
pub(crate) use drive::Sender;
pub use follow::NotForgotten;
pub use inspect::{InterestInfo, LinkInfo, NeighbourInfo, OverlaySize, REPLY_LITTLE, TopologyInfo};
pub(crate) use profiles::ProfileMap;
pub(crate) use roam::{Arrival, Attachment, Want, said_of};
pub use roam::{COPIES_BYTES_MAX, COPIES_MAX, DIRECTORY_MAX, ENDED_LIFETIME, ENDED_MAX, RoamGauges};
pub(crate) use shares::Brokers;
pub use stats::OverlayStats;
pub use traced::{
    ACCEPTED, BrokerPlan, DirectLink, EventTrace, NamedPath, PLAN_BYTES_MAX, PathsPlan, STEPS_MAX, TracedStep,
};
pub use whimbrel_net::NetStats;
pub use whimbrel_net::domains::DomainPlace;
pub use whimbrel_net::forward::EVENT_BYTES_MAX;
pub use whimbrel_net::interest::others::InterestValue;
pub(crate) use whimbrel_net::interest::own::is_local;
pub use whimbrel_net::interest::reduce::INTEREST_MAX;
pub use whimbrel_net::link::peers::{
    BEST_EFFORT_HIGH, CONTROL_HIGH, HELLO_WITHIN, LINKS_MAX, LinkCounters, RELIABLE_HIGH, STUCK_AFTER, UNSENT_LITTLE,
};
pub use whimbrel_net::link::queue::{FrameClass, Occupancy};
pub use whimbrel_net::link::share::Share;
pub use whimbrel_net::link::watch::LinkCondition;
pub use whimbrel_net::registry::KEYS_PENDING_MAX;
pub use whimbrel_net::route::DARK_COST_US;
pub use whimbrel_net::traces::RerouteCause;
pub use whimbrel_net::{Pace, Routing};
pub use whimbrel_wire::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX};

pub(crate) use due::Due;
use due::rank_of;
pub(crate) use hold_received::HoldsReceived;
use lend::Lending;
use passing::Passing;
use roam::Roam;

/// The configuration of a broker in the overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayConfig {
    /// The broker's name: 1 to 64 of letters, digits, `.`, `_`, `-`.
    pub name: Box<str>,
    /// The version of the broker's program. Neighbours are told its first
    /// [`whimbrel_wire::VERSION_BYTES_MAX`] bytes.
    pub version: Box<str>,
    /// Addresses where other brokers reach it, `ADDRESS:PORT`, best first; at most 4.
    pub addresses: Vec<Box<str>>,
    /// Most entries of the interest that the broker announces, at least
    /// [`INTEREST_LEAST`](whimbrel_net::interest::reduce::INTEREST_LEAST); usually
    /// [`INTEREST_MAX`].
    pub interest_max: usize,
    /// Links to other brokers are expected: until the first one has been up, the broker names
    /// [`ALL_OTHERS`] in the answer to a SUBSCRIBE.
    pub expects_peers: bool,
    /// The number of links up to which the broker asks for further ones, to brokers that it learns
    /// of.
    pub links_wanted: usize,
    /// What links to some brokers cost beside delay and loss, microseconds, by the brokers' names:
    /// a path that is longer by up to that is taken instead. At most
    /// [`crate::SURCHARGES_MAX`].
    pub surcharges: BTreeMap<Box<str>, u32>,
    /// The domains that the broker is in.
    pub domains: Domains,
    /// How paths are chosen.
    pub routing: Routing,
    /// How fast links are measured, told of and followed; best the same at all brokers.
    pub pace: Pace,
    /// Sessions move to the broker that their client connects to, and are copied to other brokers;
    /// a shared subscription has one home among all brokers. All brokers must have the same value.
    pub moves_sessions: bool,
}

/// The broker's state of the overlay: the network layer, and what the broker keeps of others for
/// its own streams, subscriptions and sessions.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) net: Net,
    moves_sessions: bool,
    timers: Deadlines<Due>,
    pub(crate) destinations: Destinations,
    /// The repair of other brokers' streams.
    pub(crate) holes: Holes,
    /// The ended hosts of this broker's name.
    previous: Vec<PreviousIdentity>,
    /// The earliest time of the next change of the brokers that sessions depend on.
    map_at: Time,
    pub(crate) waiting: Awaiting,
    pub(crate) roam: Roam,
    pub(crate) logs: Logs,
    pub(crate) stats: OverlayStats,
    pub(crate) faults: Faults,
}

/// Reads and retention between this broker's log and the logs of others.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    /// The retention holds that other brokers have granted to this one.
    pub(crate) received: HoldsReceived,
    /// Streams with reads for which a request will be sent.
    reading: BTreeSet<PubendId>,
    lending: Lending,
    passing: Passing,
    /// Durable subscriptions of which streams wait for predecessors in others, and until when, in
    /// the order of that time.
    pub(crate) blocked: VecDeque<(Time, (DurableNo, u32))>,
}

impl Overlay {
    fn new(net: Net, moves_sessions: bool, pace: Pace) -> Overlay {
        let roam = Roam::begun(net.incarnation(), pace);
        Overlay {
            net,
            moves_sessions,
            timers: Deadlines::default(),
            destinations: Destinations::default(),
            holes: Holes::default(),
            previous: Vec::new(),
            map_at: Time::ZERO,
            waiting: Awaiting::default(),
            roam,
            logs: Logs::default(),
            stats: OverlayStats::default(),
            faults: Faults::default(),
        }
    }

    /// The overlay of a lone broker: there are no others, nothing is due, and nothing is told.
    pub(crate) fn alone(host: HostId) -> Overlay {
        Overlay::new(Net::alone(host), false, Pace::DEFAULT)
    }

    /// Whether this broker is one of several, or may be. A lone broker differs on purpose where
    /// this is asked; elsewhere it has nothing to do.
    pub(crate) fn is_open(&self) -> bool {
        self.net.is_open()
    }

    /// Sets a timer; several may have the same purpose.
    pub(crate) fn set_timer(&mut self, at: Time, due: Due) {
        if self.is_open() {
            self.timers.insert(at, due);
        }
    }

    /// Sets a timer unless an earlier one for the same purpose is set; a later one is replaced.
    fn set_once(&mut self, at: Time, due: Due) {
        if self.is_open() {
            self.timers.set_once(at, due);
        }
    }

    /// Removes a timer, if it is set.
    pub(crate) fn cancel_timer(&mut self, at: Time, due: Due) {
        self.timers.remove(at, due);
    }

    /// Removes all timers for a purpose.
    pub(crate) fn cancel_all(&mut self, due: Due) {
        self.timers.drop_all(due);
    }

    /// The first deadline, of the network layer or above it.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let own = self.timers.first().map(|(at, _)| at);
        let of_net = self.net.next_deadline().map(|(at, _)| at);
        [own, of_net].into_iter().flatten().min()
    }

    /// Whether the first deadline is one of the network layer.
    fn is_net_first(&self) -> bool {
        let own = self.timers.first().map(|(at, due)| (at, due.rank()));
        let of_net = self.net.next_deadline().map(|(at, due)| (at, rank_of(due)));
        of_net.is_some_and(|of_net| own.is_none_or(|own| of_net < own))
    }

    /// Takes the first deadline above the network layer, if it has come.
    fn take_due(&mut self, now: Time) -> Option<Due> {
        let (at, due) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(at, due);
        Some(due)
    }
}

impl OverlayConfig {
    /// The part of the network layer.
    fn of_net(self) -> Config {
        Config {
            name: self.name,
            version: self.version,
            addresses: self.addresses,
            interest_max: self.interest_max,
            expects_peers: self.expects_peers,
            links_wanted: self.links_wanted,
            surcharges: self.surcharges,
            domains: self.domains,
            routing: self.routing,
            pace: self.pace,
            // Only urgent events wait in front of the driver, which orders the other classes.
            release_mark: usize::MAX,
            young_for: CONFIRM_MAX,
            examined_kinds: &[BrokerMessage::READ_ASK, BrokerMessage::READ_TOLD],
        }
    }
}
