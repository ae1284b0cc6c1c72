//! The overlay, which connects a broker with others: links, topology, routes, interests, and the
//! path of an event from one broker to the others.
//!
//! The driver reports links as [`crate::Input::Peer`]; the overlay acts on that and on deadlines,
//! and sends through [`crate::Output::peer_bytes`].
//!
//! Links, topology, routes and interests themselves are types of [`whimbrel_net`]; here stands what
//! the broker does with them.
//!
//! - `net`: the state of all that needs no session, log or cursor, and its first methods.
//! - `handshake`, `joining`: links come up and go down; the other end; the first moments of a
//!   broker. `flood`, `registry`: link states, interests and retained messages reach every broker.
//!   `watch`: what follows when the topology has changed.
//! - `destinations`: the interests of other brokers in this broker's streams.
//! - `forward`, `receive`: events are sent, passed on and taken in. `predecessors`: events that
//!   must not be delivered before another one. `quiet`: silence. `repair`, `answer`: holes, and the
//!   brokers that fill them.
//! - `follow`, `retire`: hosts come to be known, end, and are forgotten.
//! - `hold_given`, `hold_received`: how far logs are kept for durable subscriptions elsewhere.
//! - `borrow`, `lend`, `named`, `passing`: parts of logs, read for other brokers.
//! - `messages`: routed messages between brokers that need not be neighbours. `questions`:
//!   operators' questions to all brokers.
//! - `roam`: sessions move to the broker that their client connects to, and are copied to others.
//! - `shares`: shared subscriptions with members at several brokers. `rendezvous`: the broker that
//!   is in charge of one.
//! - `inspect`, `sizes`, `stats`, `traces`: state that can be inspected, and the path of single
//!   events.

mod answer;
mod borrow;
mod destinations;
mod flood;
mod follow;
mod forward;
mod handshake;
mod hold_given;
mod hold_received;
mod inspect;
mod joining;
mod lend;
mod messages;
mod named;
mod net;
mod passing;
mod predecessors;
mod questions;
mod quiet;
mod receive;
mod registry;
mod rendezvous;
mod repair;
mod retire;
mod roam;
mod shares;
mod sizes;
mod stats;
mod traces;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_event::{Deployment, HostId, PubendId, Tick, Time};
pub use whimbrel_net::interest::others::InterestValue;
use whimbrel_net::interest::reduce;
use whimbrel_net::link::peers::Peer;

use crate::api::{HangUp, Output, PeerInput, PeerLink};
use crate::broker::Broker;
use crate::store::DurableNo;
use crate::subscription::Awaiting;

pub use forward::EVENT_BYTES_MAX;
pub(crate) use hold_received::HoldsReceived;
pub use inspect::{InterestInfo, LinkInfo, NeighbourInfo, TopologyInfo};
pub use joining::ALL_OTHERS;
pub(crate) use net::Net;
pub use predecessors::PREDECESSOR_MAX;
pub(crate) use predecessors::Stalled;
pub use questions::{QUESTION_BYTES_MAX, REPLY_BYTES_MAX, REPLY_LITTLE};
pub(crate) use quiet::QUIET_MAX;
pub(crate) use registry::{entry_hash, range_of};
pub use retire::NotForgotten;
pub(crate) use roam::{Arrival, Attachment, Want, said_of};
pub use roam::{COPIES_BYTES_MAX, COPIES_MAX, DIRECTORY_MAX, ENDED_LIFETIME, ENDED_MAX, RoamGauges};
pub(crate) use shares::Brokers;
pub use sizes::OverlaySize;
pub use stats::OverlayStats;
pub use traces::ACCEPTED;
pub(crate) use whimbrel_net::interest::own::is_local;
pub use whimbrel_net::interest::reduce::INTEREST_MAX;
pub use whimbrel_net::link::peers::{
    BEST_EFFORT_HIGH, CONTROL_HIGH, HELLO_WITHIN, LINKS_MAX, LinkCounters, RELIABLE_HIGH, STUCK_AFTER,
    TOPICS_PENDING_MAX, UNSENT_LITTLE,
};

use destinations::Destinations;
use lend::Lending;
use passing::Passing;
use repair::HoleRepair;
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

/// The purpose of a deadline of the overlay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Due {
    /// A link is probed, and checked for silence and for being stuck.
    Probe(PeerLink),
    /// The own link state is announced.
    Announce,
    /// The own interest is announced.
    Interest,
    /// The destination with this number is told how far streams are silent.
    Quiet(u32),
    /// Holes of a stream are asked for.
    Repair(PubendId),
    /// A stream has waited for the longest time allowed for the predecessor of one of its events.
    Predecessor(PubendId),
    /// Parts of a stream are asked for that are read at the stream's own broker.
    Read(PubendId),
    /// Durable subscriptions have waited for the longest time allowed for predecessors in other
    /// streams.
    Unblock,
    /// Other brokers' questions for parts of the log are answered.
    Lend,
    /// A subscription has waited for the longest time allowed for its confirmation.
    Confirm,
    /// Shared subscriptions with members at several brokers are checked.
    Share,
    /// Other brokers are told the positions of this broker's durable subscriptions in their
    /// streams.
    Report,
    /// The topology has changed, and is checked together with its later changes.
    Watch,
    /// The set of brokers that know of sessions is checked for changes.
    Map,
    /// Brokers that were not heard of for too long are forgotten.
    Expire,
    /// A session is sought, and the next request for it is due.
    Seek,
    /// Other brokers are told where sessions are.
    Tell,
    /// Replicas get copies of sessions.
    Copy,
    /// Other brokers are asked whether sessions that were given away are safe.
    Settle,
    /// The set of brokers has not changed for a while.
    Still,
    /// The survey of retained messages for a link is continued.
    Survey(PeerLink),
    /// The own link state is repeated, wanted links are asked for, retained messages are compared.
    Refresh,
}

/// Interval at which wanted links are asked for, and retained messages compared.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Most deadlines that are met before other inputs have their turn.
const DUE_SLICE: usize = 256;

/// A timer that is at least this late shows that the broker was at a standstill.
const STANDSTILL: Duration = Duration::from_millis(500);

/// The broker's state of the overlay.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) net: Net,
    pub(crate) destinations: Destinations,
    /// Reliable streams with holes.
    repairs: BTreeMap<PubendId, HoleRepair>,
    pub(crate) waiting: Awaiting,
    pub(crate) roam: Roam,
    pub(crate) logs: Logs,
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
    blocked: VecDeque<(Time, (DurableNo, u32))>,
}

impl Overlay {
    fn new(
        now: Time,
        host: HostId,
        incarnation: u64,
        deployment: Deployment,
        birth: Tick,
        config: OverlayConfig,
    ) -> Overlay {
        Overlay {
            net: Net::new(now, host, incarnation, deployment, birth, config),
            destinations: Destinations::default(),
            repairs: BTreeMap::new(),
            waiting: Awaiting::default(),
            roam: Roam::begun(now, incarnation),
            logs: Logs::default(),
        }
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

impl Broker {
    /// Makes the broker a member of an overlay: from now on it accepts links to others. To be
    /// called once, before the first subscription.
    ///
    /// # Panics
    /// When the overlay is open already, or the configuration is not valid; the reader of the
    /// configuration checks that.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        assert!(self.overlay.is_none(), "an overlay is opened once");
        assert!(whimbrel_wire::is_name(&config.name), "the name of a broker is checked where it is configured");
        assert!(config.interest_max >= reduce::INTEREST_LEAST, "the bound of the interest is checked as well");
        assert!(config.addresses.len() <= whimbrel_wire::ADDRESSES_MAX, "and the number of addresses");
        let incarnation = incarnation_of(self.streams.own.host(), self.streams.own.farthest().0.max(now.as_nanos()));
        let (deployment, birth) = (self.sessions.limits.deployment, self.streams.birth());
        let overlay = Overlay::new(now, self.streams.own.host(), incarnation, deployment, birth, config);
        self.overlay = Some(Box::new(overlay));
        self.router.watch();
        if let Some(overlay) = &mut self.overlay {
            overlay.net.faults = self.faults;
            overlay.net.own_interest.is_restored = self.router.has_changes();
        }
        self.router.record_buffer(&[], &self.buffer);
        if let Some(overlay) = self.overlay.as_deref() {
            self.store.remote_reads.number_from(overlay.net.incarnation);
        }
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
        let Some(overlay) = &mut self.overlay else { return };
        for link in overlay.net.peers.links() {
            self.hang_up(now, link, HangUp::Rehosted, out);
        }
        let Some(overlay) = self.overlay.take() else { return };
        for number in overlay.destinations.numbers() {
            overlay.destinations.get(number).expect("it has a number").leave(&mut self.router, number);
        }
        let host = self.streams.own.host();
        let incarnation = overlay.net.incarnation + 1;
        let Overlay { net: Net { config, own_interest: mut wants, stats, .. }, waiting, .. } = *overlay;
        let birth = self.streams.birth();
        let mut fresh = Overlay::new(now, host, incarnation, wants.deployment, birth, config);
        let delta = wants.rehost(host, incarnation, birth);
        fresh.net.interests.set_own(host, incarnation, wants.version(), delta);
        fresh.net.set_timer(now, Due::Interest);
        (fresh.net.own_interest, fresh.net.stats, fresh.waiting) = (wants, stats, waiting);
        fresh.watch_waiting(now);
        self.overlay = Some(Box::new(fresh));
        self.groups.brokers = Brokers::default();
        self.share_soon(now);
    }

    /// Records a standstill of this broker before anything else is handled after it: conclusions
    /// from other brokers' silence depend on that.
    pub(crate) fn watch_clock(&mut self, now: Time) {
        if fault!(self, StandstillUnnoticed) {
            return;
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if overlay.net.timers.first().is_some_and(|(at, _)| now.since(at) >= STANDSTILL) {
            overlay.roam.record_standstill(now);
        }
    }

    /// Handles what the driver reports of the links to other brokers.
    pub(crate) fn peer_input(&mut self, now: Time, input: PeerInput<'_>, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else {
            if let PeerInput::Opened { link, .. } = input {
                out.peer_hang_up(link, HangUp::NotOpen);
            }
            return;
        };
        overlay.net.look_again_at(now);
        match input {
            PeerInput::Opened { link, dialed, name } => overlay.net.opened(now, (link, dialed, name), out),
            PeerInput::Bytes { link, channel, bytes } => self.peer_bytes(now, (link, channel), bytes, out),
            PeerInput::Room { link, channel, unsent } => {
                if let Some(peer) = overlay.net.peers.get_mut(link) {
                    peer.set_unsent(now, channel, unsent);
                    self.pump(now, link, out);
                }
            }
            PeerInput::Closed { link } => self.let_go(now, link),
        }
        self.check_topology(now, out);
    }

    /// Meets the overlay's deadlines that are due.
    pub(crate) fn meet_overlay(&mut self, now: Time, out: &mut dyn Output) {
        if let Some(overlay) = &mut self.overlay {
            overlay.net.look_again_at(now);
        }
        for _ in 0..DUE_SLICE {
            let Some(overlay) = &mut self.overlay else { return };
            let Some((at, due)) = overlay.net.timers.first().filter(|(at, _)| *at <= now) else { break };
            overlay.net.timers.remove(at, due);
            match due {
                Due::Probe(link) => self.probe(now, link, out),
                Due::Announce => self.announce_links(now, out),
                Due::Interest => self.tell_interest(now, out),
                Due::Quiet(number) => self.tell_quiet(now, number, out),
                Due::Repair(pubend) => self.request_holes(now, pubend, out),
                Due::Predecessor(_) => self.check_stalled(now, out),
                Due::Read(pubend) => self.read_remote(now, pubend, out),
                Due::Unblock => self.unblock_due(now),
                Due::Lend => self.lend(now, out),
                Due::Confirm => self.confirm_overdue(now, out),
                Due::Share => self.check_shares(now, out),
                Due::Report => self.report_holds(now, out),
                Due::Watch => {}
                Due::Map => self.watch_map(now, out),
                Due::Expire => self.expire_brokers(now),
                Due::Seek => self.seek_on(now, out),
                Due::Tell => self.tell_claims(now, out),
                Due::Copy => self.copy_on(now, out),
                Due::Settle => self.ask_settled(now, out),
                Due::Still => self.check_replicas(now),
                Due::Survey(link) => self.survey_retained(now, link, out),
                Due::Refresh => self.refresh(now, out),
            }
        }
        self.check_topology(now, out);
    }

    /// Closes a link for a reason of this side.
    fn hang_up(&mut self, now: Time, link: PeerLink, why: HangUp, out: &mut dyn Output) {
        let Some(overlay) = &mut self.overlay else { return };
        if overlay.net.peers.get(link).is_some() {
            overlay.net.stats.hang_ups[why as usize] += 1;
            out.peer_hang_up(link, why);
            self.let_go(now, link);
        }
    }

    /// Removes a link that is closed.
    fn let_go(&mut self, now: Time, link: PeerLink) {
        let Some(overlay) = &mut self.overlay else { return };
        let Some(peer) = overlay.net.peers.remove(link) else { return };
        if peer.who.is_some() {
            overlay.net.stats.links_lost += 1;
            overlay.net.announce_soon(now);
        }
    }
}
