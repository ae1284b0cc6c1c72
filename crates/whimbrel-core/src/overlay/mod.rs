//! What a broker does with other brokers. How they reach each other is the network layer's,
//! [`whimbrel_net`]: the driver reports links as [`crate::Input::Peer`], and this module dispatches
//! the events of the network layer.
//!
//! - `due`: the purposes of deadlines. `watch`: what follows when the topology or the own
//!   subscriptions have changed.
//! - `registry`: retained messages are the same at every broker.
//! - `follow`, `retire`: hosts come to be known, end, and are forgotten.
//! - `hold_given`, `hold_received`: how far logs are kept for durable subscriptions elsewhere.
//! - `borrow`, `lend`, `passing`: parts of logs, read for other brokers.
//! - `messages`: messages of other brokers to this one, operators' questions among them.
//! - `roam`: sessions move to the broker that their client connects to, and are copied to others.
//! - `shares`: shared subscriptions with members at several brokers. `rendezvous`: the broker that
//!   is in charge of one.
//! - `inspect`, `stats`: state that can be inspected, and the path of single events.

mod borrow;
mod due;
mod follow;
mod hold_given;
mod hold_received;
mod inspect;
mod lend;
mod messages;
mod passing;
mod registry;
mod rendezvous;
mod retire;
mod roam;
mod shares;
mod stats;
mod watch;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_event::{HostId, PubendId, Time};
use whimbrel_net::deadlines::Deadlines;
use whimbrel_net::interest::reduce;
use whimbrel_net::{Config, Identity, Io, Net, NetEvent, NetStep, Work};
use whimbrel_wire::{BrokerMessage, PreviousIdentity};

use crate::api::{HangUp, Output, PeerInput};
use crate::broker::Broker;
use crate::fault::Faults;
use crate::store::DurableNo;
pub use crate::stream::PREDECESSOR_MAX;
use crate::stream::{Destinations, Holes, OwnEvents, Streams};
use crate::subscription::{Awaiting, CONFIRM_MAX};

pub use crate::subscription::ALL_OTHERS;
pub use inspect::{ACCEPTED, InterestInfo, LinkInfo, NeighbourInfo, OverlaySize, TopologyInfo};
pub use messages::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX, REPLY_LITTLE};
pub use retire::NotForgotten;
pub(crate) use roam::{Arrival, Attachment, Want, said_of};
pub use roam::{COPIES_BYTES_MAX, COPIES_MAX, DIRECTORY_MAX, ENDED_LIFETIME, ENDED_MAX, RoamGauges};
pub(crate) use shares::Brokers;
pub use stats::OverlayStats;
pub use whimbrel_net::NetStats;
pub use whimbrel_net::forward::EVENT_BYTES_MAX;
pub use whimbrel_net::interest::others::InterestValue;
pub(crate) use whimbrel_net::interest::own::is_local;
pub use whimbrel_net::interest::reduce::INTEREST_MAX;
pub use whimbrel_net::link::peers::{
    BEST_EFFORT_HIGH, CONTROL_HIGH, HELLO_WITHIN, LINKS_MAX, LinkCounters, RELIABLE_HIGH, STUCK_AFTER, UNSENT_LITTLE,
};
pub use whimbrel_net::registry::KEYS_PENDING_MAX;

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
    /// Most entries of the interest that the broker announces, at least [`reduce::INTEREST_LEAST`];
    /// usually [`reduce::INTEREST_MAX`].
    pub interest_max: usize,
    /// Links to other brokers are expected: until the first one has been up, the broker names
    /// [`ALL_OTHERS`] in the answer to a SUBSCRIBE.
    pub expects_peers: bool,
    /// The number of links up to which the broker asks for further ones, to brokers that it learns
    /// of.
    pub links_wanted: usize,
    /// Sessions move to the broker that their client connects to, and are copied to other brokers;
    /// a shared subscription has one home among all brokers. All brokers must have the same value.
    pub moves_sessions: bool,
}

/// Most deadlines that are met before other inputs have their turn.
const DUE_SLICE: usize = 256;

/// A timer that is at least this late shows that the broker was at a standstill.
const STANDSTILL: Duration = Duration::from_millis(500);

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
    fn new(net: Net, moves_sessions: bool) -> Overlay {
        let roam = Roam::begun(net.incarnation());
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
        Overlay::new(Net::alone(host), false)
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

/// The number of low bits of an incarnation that come from its host; the others count units of 2^20
/// ns.
const INCARNATION_HOST_BITS: u32 = 20;

/// The incarnation of a process of `host` that begins at the tick `began`. Ticks are never used
/// twice, so it is greater than that of any earlier process of the same host. It also differs from
/// that of a process of another host that starts at the same moment: silence names the incarnation
/// and version of the interest that it is for, not the host, and is passed on by numbers of links,
/// which may have another meaning once a link has gone down.
fn incarnation_of(host: HostId, began: u64) -> u64 {
    // The low four bits of all hosts are zero.
    let of_host = (host.as_u64() >> 4) & ((1 << INCARNATION_HOST_BITS) - 1);
    (((began >> INCARNATION_HOST_BITS) + 1) << INCARNATION_HOST_BITS) | of_host
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
            young_for: CONFIRM_MAX,
            examined_kinds: &[BrokerMessage::READ_ASK, BrokerMessage::READ_TOLD],
        }
    }
}

impl Broker {
    /// Makes the broker a member of an overlay: from now on it accepts links to others. To be
    /// called once, before the first subscription.
    ///
    /// # Panics
    /// When the overlay is open already, or the configuration is not valid; the reader of the
    /// configuration checks that.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        assert!(!self.overlay.is_open(), "an overlay is opened once");
        assert!(whimbrel_wire::is_name(&config.name), "the name of a broker is checked where it is configured");
        assert!(config.interest_max >= reduce::INTEREST_LEAST, "the bound of the interest is checked as well");
        assert!(config.addresses.len() <= whimbrel_wire::ADDRESSES_MAX, "and the number of addresses");
        let incarnation = incarnation_of(self.streams.own.host(), self.streams.own.farthest().0.max(now.as_nanos()));
        let identity = Identity {
            host: self.streams.own.host(),
            incarnation,
            deployment: self.sessions.limits.deployment,
            birth: self.streams.birth(),
            reliable: Streams::RELIABLE,
            best_effort: Streams::BEST_EFFORT,
        };
        self.router.watch();
        let moves_sessions = config.moves_sessions;
        let net = Net::new(now, identity, self.router.has_changes(), config.of_net());
        let net = self.faults.built_into(net);
        self.overlay = Overlay { faults: self.faults, ..Overlay::new(net, moves_sessions) };
        self.router.record_buffer(&[], &self.buffer);
        self.store.remote_reads.number_from(incarnation);
        self.restore_known();
        self.restore_previous();
        self.restore_publishers(now);
        self.await_all_grants();
        self.collect_own_interest(now);
        self.open_shares(now);
    }

    /// Goes on with new streams after the log has failed: to other brokers it is another host of
    /// the same name. Links are closed, so that neighbours learn of it when they come up again.
    pub(crate) fn rehost(&mut self, now: Time, out: &mut dyn Output) {
        let alone = Overlay::alone(self.streams.own.host());
        let mut overlay = core::mem::replace(&mut self.overlay, alone);
        if !overlay.is_open() {
            return;
        }
        overlay.net.hang_up_all(now, HangUp::Rehosted, out);
        for number in overlay.destinations.numbers() {
            overlay.destinations.get(number).expect("it has a number").leave(&mut self.router, number);
        }
        let identity = Identity {
            host: self.streams.own.host(),
            incarnation: overlay.net.incarnation() + 1,
            deployment: self.sessions.limits.deployment,
            birth: self.streams.birth(),
            reliable: Streams::RELIABLE,
            best_effort: Streams::BEST_EFFORT,
        };
        let Overlay { net, waiting, stats, moves_sessions, .. } = overlay;
        let fresh = Overlay::new(net.rehost(now, identity), moves_sessions);
        let mut fresh = Overlay { waiting, stats, faults: self.faults, ..fresh };
        fresh.watch_waiting(now);
        self.overlay = fresh;
        self.announce_ended();
        self.groups.brokers = Brokers::default();
        self.share_soon(now);
    }

    /// Records a standstill of this broker before anything else is handled after it: conclusions
    /// from other brokers' silence depend on that.
    pub(crate) fn watch_clock(&mut self, now: Time) {
        if fault!(self, StandstillUnnoticed) {
            return;
        }
        let overlay = &mut self.overlay;
        if overlay.next_deadline().is_some_and(|at| now.since(at) >= STANDSTILL) {
            overlay.net.record_standstill(now);
        }
    }

    /// Handles what the driver reports of the links to other brokers.
    pub(crate) fn peer_input(&mut self, now: Time, input: PeerInput<'_>, out: &mut dyn Output) {
        if !self.overlay.is_open() {
            if let PeerInput::Opened { link, .. } = input {
                out.peer_hang_up(link, HangUp::NotOpen);
            }
            return;
        }
        let work = self.overlay.net.begin(now, input, out);
        self.finish(now, work, out);
        self.check_ways(now, out);
    }

    /// Does some work of the network layer to its end, and dispatches its events.
    fn finish(&mut self, now: Time, mut work: Work<'_>, out: &mut dyn Output) {
        loop {
            let Broker { overlay, retained, .. } = self;
            match overlay.net.step(&mut work, &mut Io { now, out: &mut *out, maps: &[&*retained] }) {
                NetStep::Event(event) => self.on_net_event(now, event, out),
                NetStep::More => {}
                NetStep::Done => return,
            }
        }
    }

    /// Dispatches what has happened in the network layer.
    fn on_net_event(&mut self, now: Time, event: NetEvent<'_>, out: &mut dyn Output) {
        match event {
            NetEvent::LinkUp { link, hello, was_known } => {
                let pubends = (hello.reliable, hello.best_effort);
                self.follow_host(now, (hello.host, hello.name, was_known), (pubends, hello.birth), out);
                self.tell_previous(now, link, &hello, out);
            }
            NetEvent::StateOffered(state) => self.end_namesakes(now, state, out),
            NetEvent::BrokerKnown { host, was_known } => self.on_broker_known(now, host, was_known, out),
            NetEvent::Joined => self.confirm_ready(now, out),
            NetEvent::InterestChanged { host } => {
                let Broker { overlay, router, streams, .. } = self;
                if let Some(number) = overlay.adopt(now, host, router, streams) {
                    overlay.tell_quiet(now, number, streams, out);
                    self.hold_for(now, host, out);
                }
            }
            NetEvent::InterestDue => self.tell_interest(now, out),
            NetEvent::Expired(hosts) => hosts.into_iter().for_each(|host| self.forget_broker(host)),
            NetEvent::Refreshed => {
                self.remind_of_previous(now, out);
                self.expire_holds_given(now);
                self.end_retired(now, out);
            }
            NetEvent::Event { frame, own, age_us } => {
                self.on_remote_event(now, (&frame, own), Duration::from_micros(age_us), out);
            }
            NetEvent::Silence(silence) => self.on_silence(now, &silence, out),
            NetEvent::Nack { link, nack } => {
                let Broker { overlay, router, cache, store, streams, .. } = self;
                let mut events = OwnEvents { router, cache, store, streams };
                overlay.answer_nack(now, link, &nack, &mut events, out);
            }
            NetEvent::Entries { map: _, link, registry } => self.on_retained(now, link, &registry),
            NetEvent::PreviousIdentities(previous) => self.on_previous(now, previous, out),
            NetEvent::Message(message) => self.on_message(now, &message, out),
            NetEvent::Passing(message) => self.pass_message(now, &message, out),
        }
    }

    /// Meets the overlay's deadlines that are due.
    pub(crate) fn meet_overlay(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        overlay.net.hold_routes(now);
        for _ in 0..DUE_SLICE {
            let overlay = &mut self.overlay;
            if overlay.is_net_first() {
                let Some(work) = overlay.net.begin_due(now) else { break };
                self.finish(now, work, out);
                continue;
            }
            let Some(due) = overlay.take_due(now) else { break };
            match due {
                Due::Quiet(number) => self.overlay.tell_quiet(now, number, &mut self.streams, out),
                Due::Repair(pubend) => self.overlay.request_holes(now, pubend, &mut self.streams, out),
                Due::Predecessor(_) => self.check_stalled(now, out),
                Due::Read(pubend) => self.read_remote(now, pubend, out),
                Due::Unblock => self.unblock_due(now),
                Due::Lend => self.lend(now, out),
                Due::Confirm => self.confirm_overdue(now, out),
                Due::Share => self.check_shares(now, out),
                Due::Report => self.report_holds(now, out),
                Due::Map => self.watch_map(now, out),
                Due::Seek => self.seek_on(now, out),
                Due::Tell => self.tell_claims(now, out),
                Due::Copy => self.copy_on(now, out),
                Due::Settle => self.ask_settled(now, out),
                Due::Still => self.check_replicas(now),
            }
        }
        self.check_ways(now, out);
    }
}
