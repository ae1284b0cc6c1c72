//! Events are sent: from this broker's streams to the brokers that want them, and through this
//! broker to others. Silence goes the same ways.
//!
//! An event of an own stream costs one look-up of the tree for its set of destinations, one
//! encoding, and per link one copy and a header of some 8 bytes per destination behind it. An event
//! of another broker that is passed on costs a look at its header and the copy.

mod budget;
mod carrier;
mod copies;
pub(crate) mod nack;
mod relay;
mod repeats;
mod silence;

use core::time::Duration;

use whimbrel_event::{DomainLabel, EventId, HostId, Reliability, Tick, Time};
use whimbrel_wire::{Dest, EventFrame, Part, Repairers, Silence, Subtree, TreeReader, TreeWriter, compact};

use crate::domains::routes_for;
use crate::io::LinkOutput;
use crate::link::queue::{FrameClass, WaitingEvent};
use crate::pace::Routing;
use crate::route::{PathsTo, TopicPaths};
use crate::traces::{TraceStep, Traces};
use crate::transit::Transit;
use crate::{Channel, Net};
use budget::Budgets;
use carrier::put_nodes;
use copies::{COPIES_TAKE_MAX_US, CopiesSeen};
use nack::OpenNacks;

pub(crate) use carrier::{Carrier, tell_hop};
pub use copies::PASSED_MAX;
pub use nack::{HOPS_MAX, MERGE_FOR, OPEN_NACKS_MAX};
pub(crate) use relay::ArrivalMarks;

/// Bytes of the largest event that a broker of an overlay takes, packed: the size of a frame less
/// what a frame adds to its event.
pub const EVENT_BYTES_MAX: usize = whimbrel_wire::FRAME_BYTES_MAX - HEADER_BYTES_MAX;

/// Most bytes that a frame adds to its event: further destinations get the event in another frame.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Buffers for frames, and the state kept of frames that pass.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffers {
    pub(crate) open: OpenNacks,
    pub(crate) transit: Transit,
    pub(crate) traces: Traces,
    copies: CopiesSeen,
    /// The frame that is being encoded.
    pub(crate) frame: Vec<u8>,
    tree: Vec<u8>,
    /// The runs of the repeat that is being encoded.
    runs: Vec<u8>,
    /// The destinations of the event that is being sent.
    hosts: Vec<HostId>,
}

/// An event that is to be sent to several brokers.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// The event.
    pub id: EventId,
    /// Its age since it was accepted, microseconds.
    pub age_us: u64,
    /// The age, milliseconds, at which it should be at its subscribers; positive. `None`: its topic
    /// has no deadline, or it is sent again.
    pub deadline_ms: Option<u32>,
    /// It answers a nack.
    pub answer: bool,
    /// Its topic retains it.
    pub retain: bool,
    /// The brokers that have changed its path because of a link that was down.
    pub repairers: Repairers,
    /// It goes as a datagram over links whose other end knows stamps, where it fits one: it is of
    /// best effort, and has a deadline.
    pub by_datagram: bool,
    /// The paths that it takes from its own broker, if it has a deadline.
    pub paths: TopicPaths,
    /// See [`whimbrel_wire::CopiedEvent::last_us`]; `None`: it has no copies.
    pub last_us: Option<u32>,
    /// In its packed form; at most [`EVENT_BYTES_MAX`].
    pub event: &'a [u8],
}

impl Sending<'_> {
    /// Which brokers may carry it.
    #[inline]
    pub(crate) fn label(&self) -> DomainLabel<'_> {
        compact::label(self.event)
    }

    /// The class of the stream's events.
    fn class(&self) -> FrameClass {
        FrameClass::of_stream(self.id.pubend)
    }

    /// Its parts, kept while it waits for a driver.
    fn waiting(&self, now: Time, tree: &[u8], default_previous: Tick) -> WaitingEvent {
        let Sending { id, age_us, deadline_ms, answer, retain, repairers, last_us, event, .. } = *self;
        let (since, tree, event) = (now, tree.into(), event.into());
        WaitingEvent {
            id,
            age_us,
            since,
            deadline_ms,
            answer,
            retain,
            repairers,
            last_us,
            tree,
            default_previous,
            event,
        }
    }

    fn of_waiting(now: Time, waiting: &WaitingEvent) -> Sending<'_> {
        Sending {
            id: waiting.id,
            age_us: waiting.age_us_at(now),
            deadline_ms: waiting.deadline_ms,
            answer: waiting.answer,
            retain: waiting.retain,
            repairers: waiting.repairers,
            by_datagram: false,
            paths: TopicPaths::One,
            last_us: waiting.last_us,
            event: &waiting.event,
        }
    }

    fn header<'t>(&self, tree: &'t [u8], default_previous: Tick) -> EventFrame<'t> {
        EventFrame {
            pubend: self.id.pubend,
            tick: self.id.tick,
            age_us: self.age_us,
            answer: self.answer,
            retain: self.retain,
            repairers: self.repairers,
            tree,
            default_previous,
            event: &[],
        }
    }
}

/// How long repeats of an event may be on their path: they are sent up to its deadline.
fn repeats_take(sending: &Sending<'_>) -> Duration {
    let deadline_us = u64::from(sending.deadline_ms.unwrap_or(0)) * 1_000;
    Duration::from_micros(deadline_us.saturating_sub(sending.age_us).min(COPIES_TAKE_MAX_US))
}

/// The destination of silence: a broker, with the incarnation and version of its interest that the
/// silence is for.
#[derive(Clone, Copy, Debug)]
pub struct SilenceTarget {
    /// The broker.
    pub host: HostId,
    /// Its incarnation.
    pub incarnation: u64,
    /// The version of its interest.
    pub version: u64,
    /// Events of best effort go to it: silence of those streams follows them on their channel.
    pub gets_best_effort: bool,
}

/// What decides over which paths an event goes.
#[derive(Clone, Copy, Debug)]
pub struct PlannedEvent<'a> {
    /// Its deadline, microseconds, if it has one.
    pub deadline_us: Option<u64>,
    /// See [`Sending::paths`].
    pub paths: TopicPaths,
    /// Which brokers may carry it.
    pub label: DomainLabel<'a>,
}

/// The deadline, microseconds, of an event that takes several paths; `None`: it takes one.
#[inline]
fn copied_within_us(net: &Net, deadline_us: Option<u64>, paths: TopicPaths) -> Option<u64> {
    let may_copy = net.config.routing != Routing::Direct && !fault!(net, SamePathTwice);
    deadline_us.filter(|_| paths != TopicPaths::One && may_copy)
}

/// The paths from this broker to others, which are in the order of hosts, of such an event if it
/// is published now; as they were computed last.
///
/// # Panics
/// When the hosts are not sorted, or one is there twice.
pub fn planned_paths(net: &mut Net, hosts: &[HostId], event: PlannedEvent<'_>) -> Vec<PathsTo> {
    let PlannedEvent { deadline_us, paths, label } = event;
    let copied_within_us = copied_within_us(net, deadline_us, paths);
    let Net { routes, within, outages, topology, .. } = net;
    let routes = routes_for(routes, within, label, topology);
    routes.planned(hosts, paths, copied_within_us, outages)
}

/// The broker at the end of a path of ports that begins here; none if a part of the path is
/// unknown.
fn host_behind(net: &Net, ports: &[u16]) -> Option<HostId> {
    let (first, rest) = ports.split_first()?;
    let mut host = net.peers.neighbour(*first)?;
    for port in rest {
        let neighbours = &net.topology.get(host)?.neighbours;
        host = neighbours.iter().find(|neighbour| neighbour.port == *port)?.host;
    }
    Some(host)
}

impl Net {
    /// Sends an event of an own stream to the brokers that want it. `dests` is in the order of
    /// hosts. Returns how long it takes until its last copy or repeat, and those of earlier events
    /// of its stream, should be everywhere; zero: it has none.
    pub fn send_own(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        dests: &[(HostId, Dest)],
        out: &mut dyn LinkOutput,
    ) -> Duration {
        self.stats.events_forwarded += 1;
        self.stats.destinations += dests.len() as u64;
        self.dispatch(now, sending, dests, out)
    }

    /// Sends an event again, to one broker that lacked it.
    pub fn send_again(&mut self, now: Time, sending: &Sending<'_>, to: HostId, dest: Dest, out: &mut dyn LinkOutput) {
        self.stats.events_answered += 1;
        self.traffic.traces.record(now, sending.id, TraceStep::Answered);
        self.dispatch(now, sending, &[(to, dest)], out);
    }

    /// Sends an event to these brokers over the best paths from here. `dests` is in the order of
    /// host ids. Returns as [`Net::send_own`].
    pub(crate) fn dispatch(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        dests: &[(HostId, Dest)],
        out: &mut dyn LinkOutput,
    ) -> Duration {
        self.routes.update(&self.topology);
        let deadline_us = sending.deadline_ms.map(|deadline_ms| u64::from(deadline_ms) * 1_000);
        let copied_within_us = copied_within_us(self, deadline_us, sending.paths);
        let avoided = match deadline_us {
            Some(_) if copied_within_us.is_none() => {
                Budgets::of(now, self, sending.label()).exceeded(sending, dests.iter().map(|(host, _)| *host))
            }
            _ => Vec::new(),
        };
        let mut hosts = core::mem::take(&mut self.traffic.hosts);
        hosts.clear();
        hosts.extend(dests.iter().map(|(host, _)| *host));
        let own = self.identity.host;
        let Net { routes, within, outages, peers, topology, traffic, timers, stats, faults, .. } = self;
        let routes = routes_for(routes, within, sending.label(), topology);
        let mut carrier = Carrier { now, peers, topology, traffic, timers, stats, faults: *faults };
        let mut last_us = None;
        let (broken, copies_take) = match copied_within_us {
            Some(deadline_us) => {
                let (broken, take_us) = carrier.send_copies(
                    sending,
                    routes.copies(&hosts, sending.paths, deadline_us, outages),
                    dests,
                    out,
                );
                last_us = u32::try_from(take_us).ok();
                (broken, Duration::from_micros(take_us.saturating_sub(sending.age_us)))
            }
            None => {
                let is_behind = deadline_us.is_some() && sending.id.pubend.host() == own;
                let earlier_us = if is_behind { carrier.traffic.copies.earlier_us(sending.id) } else { 0 };
                let found = routes.trees(&hosts);
                let behind;
                let sending = if earlier_us > 0 {
                    last_us = u32::try_from(earlier_us).ok();
                    behind = Sending { last_us, ..*sending };
                    &behind
                } else {
                    sending
                };
                (carrier.send_trees(sending, found, dests, &avoided, out), Duration::ZERO)
            }
        };
        let take = if sending.by_datagram { copies_take.max(repeats_take(sending)) } else { copies_take };
        self.traffic.hosts = hosts;
        for (port, below) in broken {
            self.repair(now, &Sending { last_us, ..*sending }, port, below, out);
        }
        take
    }

    /// Passes an event on to one neighbour, along its part of the tree; a copy, unless this part
    /// was passed on before.
    pub(crate) fn pass_on(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        part: &Subtree<'_>,
        default: Tick,
        out: &mut dyn LinkOutput,
    ) {
        // An answer, or an event whose path was changed, may follow one that is lost.
        let is_copy = sending.last_us.is_some() && !sending.answer && sending.repairers.as_slice().is_empty();
        let passed = is_copy.then(|| self.traffic.copies.part(sending.id, default, part));
        if passed.is_some_and(|passed| self.traffic.copies.has_passed(&passed)) {
            self.stats.copies_joined += 1;
            if let Some(neighbour) = self.peers.neighbour(part.port()) {
                self.traffic.traces.record(now, sending.id, TraceStep::Joined(neighbour));
            }
            return;
        }
        let is_outside = {
            let label = sending.label();
            !label.is_any() && self.domains().leads_outside(label, part.port())
        };
        let is_rerouted = is_outside
            || (sending.deadline_ms.is_some() && Budgets::of(now, self, sending.label()).is_exceeded_by(sending, part));
        if let Some(link) = self.peers.behind(part.port()).filter(|_| !is_rerouted) {
            let mut tree = core::mem::take(&mut self.traffic.tree);
            tree.clear();
            part.write_root(&mut tree);
            let is_sent = self.carrier(now).send_event(link, sending, &tree, default, out);
            self.traffic.tree = tree;
            if let Some(passed) = passed.filter(|_| is_sent) {
                self.traffic.copies.record_passed(passed);
            }
            return;
        }
        let mut below = Vec::new();
        part.destinations(|ports, dest| {
            if let Some(host) = host_behind(self, ports) {
                below.push((host, dest));
            }
        });
        self.repair(now, sending, part.port(), below, out);
    }

    /// Sends an event that departed over a link, and may be lost there, once more around that link.
    pub(crate) fn detour(&mut self, now: Time, port: u16, event: &WaitingEvent, out: &mut dyn LinkOutput) {
        let Ok(tree) = TreeReader::new(&event.tree, event.id.tick, event.default_previous) else { return };
        let mut below = Vec::new();
        tree.destinations(|ports, dest| {
            let ports: Vec<u16> = [port].into_iter().chain(ports.iter().copied()).collect();
            below.extend(host_behind(self, &ports).map(|host| (host, dest)));
        });
        self.stats.detours += 1;
        self.repair(now, &Sending::of_waiting(now, event), port, below, out);
    }

    /// Sends an event around a link that is down. Gives it up if this broker has repaired its path
    /// before, or [`Repairers`] is full. With [`Routing::Direct`] there is no other way.
    fn repair(
        &mut self,
        now: Time,
        sending: &Sending<'_>,
        port: u16,
        mut below: Vec<(HostId, Dest)>,
        out: &mut dyn LinkOutput,
    ) {
        if self.config.routing == Routing::Direct {
            self.stats.unreachable += below.len() as u64;
            self.traffic.traces.record(now, sending.id, TraceStep::GivenUp);
            return;
        }
        let sending =
            if fault!(self, RepairLoop) { &Sending { repairers: Repairers::NONE, ..*sending } } else { sending };
        // A part of a tree lists destinations in the order of their paths.
        below.sort_unstable_by_key(|(host, _)| *host);
        below.dedup_by_key(|(host, _)| *host);
        let mut repairers = sending.repairers;
        if below.is_empty() || repairers.as_slice().contains(&self.identity.host) || !repairers.push(self.identity.host)
        {
            self.stats.repairs_given_up += 1;
            self.traffic.traces.record(now, sending.id, TraceStep::GivenUp);
            return;
        }
        let dead: Vec<HostId> = self.peers.neighbour(port).into_iter().collect();
        self.carrier(now).record_reroute(sending, port);
        let hosts: Vec<HostId> = below.iter().map(|(host, _)| *host).collect();
        self.routes.update(&self.topology);
        let label = if fault!(self, DetourLeavesDomain) { DomainLabel::ANY } else { sending.label() };
        let Net { routes, within, topology, .. } = self;
        let routes = routes_for(routes, within, label, topology);
        let found = routes.avoiding(sending.repairers.as_slice(), &dead).trees(&hosts);
        let sending = Sending { repairers, ..*sending };
        let broken = self.carrier(now).send_trees(&sending, &found, &below, &[], out);
        // A second link is down that the topology does not show yet: that part is left to the nack.
        self.stats.repairs_given_up += broken.len() as u64;
    }

    /// Sends parts of a silence to a broker over the best path.
    pub fn send_silence(&mut self, now: Time, to: SilenceTarget, parts: Vec<Part>, out: &mut dyn LinkOutput) {
        self.routes.update(&self.topology);
        let trees = self.routes.trees(&[to.host]);
        let Some(tree) = trees.trees.first() else { return };
        let way = &tree.nodes[1..];
        let port = way[0].port;
        let mut bytes = Vec::with_capacity(16);
        let end = Dest { tag: 0, previous: Tick(0) };
        put_nodes(TreeWriter::new(&mut bytes, Tick(0), Tick(0)), way, |_| end);
        let Some(link) = self.peers.behind(port) else { return };
        let (from, incarnation, version) = (self.identity.host, to.incarnation, to.version);
        // Without best-effort events one frame has the parts of those streams, too.
        let channel_of = |part: &Part| match from.pubend(part.index).reliability() {
            Reliability::BestEffort if to.gets_best_effort => Channel::BestEffort,
            _ => Channel::Reliable,
        };
        let silence = Silence { from, target_tree: &bytes, incarnation, version, parts };
        self.stats.silences_out += self.carrier(now).send_silence(link, silence, channel_of, out);
    }

    /// Borrows what sending takes, beside the rest of the network layer.
    pub(crate) fn carrier(&mut self, now: Time) -> Carrier<'_> {
        let Net { peers, topology, traffic, timers, stats, faults, .. } = self;
        Carrier { now, peers, topology, traffic, timers, stats, faults: *faults }
    }
}
