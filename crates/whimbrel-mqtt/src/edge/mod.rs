//! The MQTT broker without IO: connections, and the core behind them.

mod acknowledge;
mod api;
mod clients;
mod conn;
mod connect;
mod endings;
mod fault;
mod following;
mod form;
mod guard;
mod inbound;
mod leave;
mod outbound;
mod overlay;
mod passing;
mod receive;
mod recent;
mod refusals;
mod refuse;
mod reply;
mod review;
mod silence;
mod store;
mod subscribe;
mod sys;
mod timing;

use std::collections::BTreeSet;

use whimbrel_access::Principal;
use whimbrel_core::cache::{PartitionGauges, Plan};
use whimbrel_core::store::{Disk, LogState, RestoreError, Restoring};
use whimbrel_core::{Broker, Input as CoreInput, Link};
use whimbrel_event::{AttributesBuf, Seeded, Time};
use whimbrel_selector::Expensive;

pub use api::{ConnId, Credentials, Decision, Identity, Input, Output, Reason, TurnedAway, Unidentified};
pub use clients::{ClientInfo, Traffic};
pub use conn::Origin;
use conn::{Conn, State};
use endings::Endings;
use guard::Guard;
use leave::Leave;
use outbound::{Outbound, Templates};
use receive::counted;
pub use refuse::RefusedPublishes;
use timing::Timing;

use crate::codec::ReasonCode;
use crate::config::{ANSWERS_MAX, Config};
use crate::stats::Stats;

/// Used output buffers that are kept for reuse.
const SPENT_MAX: usize = 256;

/// A larger buffer, in bytes, is freed.
const SPENT_BYTES_MAX: usize = 256 << 10;

/// A whole MQTT broker as a deterministic state machine: it is fed inputs, and its outputs are to
/// be carried out.
#[derive(Debug)]
pub struct MqttBroker {
    core: Broker,
    edge: Edge,
}

/// The broker without its core.
#[derive(Debug)]
pub(crate) struct Edge {
    config: Config,
    /// Boxed, so that growing moves pointers only.
    #[expect(clippy::vec_box, reason = "growing must not copy all connections, nor take memory for twice as many")]
    conns: Vec<Box<Conn>>,
    /// Connections with output of the current step.
    dirty: Vec<u32>,
    spent: Vec<Vec<u8>>,
    templates: Templates,
    hasher: Seeded,
    /// The topic name that was checked last: the next PUBLISH often has the same. Empty: none.
    last_topic: String,
    /// PUBLISH packets without properties are read and passed on by a shorter way.
    has_plain_way: bool,
    /// Attributes of the event being published.
    attributes: AttributesBuf,
    /// The broker's additions to the event being delivered.
    appended: AttributesBuf,
    /// The time at which each connection has been silent for too long.
    silence: BTreeSet<(Time, u32)>,
    started: Time,
    sys_at: Option<Time>,
    assigned: Assigned,
    /// Set while the broker disconnects its clients before it ends.
    leave: Option<Leave>,
    /// Bytes of the incomplete packets that are larger than [`crate::config::PARTIAL_FREE`].
    partial_bytes: usize,
    greeting: Greeting,
    admitted: Admitted,
    guard: Guard,
    endings: Endings,
    timing: Timing,
    stats: Stats,
}

/// Connections that waited for their sessions, and got them in the current step.
#[derive(Debug, Default)]
struct Admitted {
    /// Connections whose packets, sent meanwhile, are to be handled now.
    conns: Vec<u32>,
    /// Connections whose sessions are claimed already; the claims wait until this is done.
    superseded: Vec<u32>,
}

/// Generator of client ids for clients without one.
#[derive(Debug)]
struct Assigned {
    seed: u64,
    count: u64,
}

/// Contents, beside success, of the CONNACK that the core is about to allow.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    keep_alive: Option<u16>,
    expiry: Option<u32>,
    response_information: Option<String>,
    assigned: Option<String>,
    /// The client id of the CONNECT, in case the core refuses it.
    client_id: Box<str>,
}

impl MqttBroker {
    /// A broker without connections. `seed` is its only source of randomness, `now` its start time.
    pub fn new(config: Config, seed: u64, now: Time) -> MqttBroker {
        let core = Broker::new(config.core.clone(), seed, now);
        MqttBroker::around(core, config, seed, now)
    }

    /// Whether messages that need nothing special take shorter ways than all others; they do,
    /// unless a test compares both.
    pub fn set_plain_ways(&mut self, are_used: bool) {
        self.core.set_plain_way(are_used);
        self.edge.has_plain_way = are_used;
    }

    /// A broker that resumes from the state in a log.
    ///
    /// # Errors
    /// When the log's contents are inconsistent.
    pub fn restored(
        config: Config,
        seed: u64,
        now: Time,
        restoring: Restoring,
        log: &LogState,
    ) -> Result<MqttBroker, RestoreError> {
        let core = restoring.finish(config.core.clone(), seed, now, log)?;
        Ok(MqttBroker::around(core, config, seed, now))
    }

    fn around(core: Broker, config: Config, seed: u64, now: Time) -> MqttBroker {
        let sys_at = config.sys_interval.map(|_| now);
        let guard = Guard::new(config.access.clone());
        let edge = Edge {
            config,
            conns: Vec::new(),
            dirty: Vec::new(),
            spent: Vec::new(),
            templates: Templates::default(),
            hasher: Seeded::new(seed ^ 0x5bd1_e995),
            last_topic: String::new(),
            has_plain_way: true,
            attributes: AttributesBuf::new(),
            appended: AttributesBuf::new(),
            silence: BTreeSet::new(),
            started: now,
            sys_at,
            assigned: Assigned { seed, count: 0 },
            leave: None,
            partial_bytes: 0,
            greeting: Greeting::default(),
            admitted: Admitted::default(),
            guard,
            endings: Endings::default(),
            timing: Timing::new(),
            stats: Stats::default(),
        };
        MqttBroker { core, edge }
    }

    /// Applies one input at the time `now`, which never goes back.
    ///
    /// # Panics
    /// When the driver breaks the contract of [`Input`], for example opens a connection twice.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut impl Output) {
        // Input of one client cannot complete the answers of another.
        let is_of_one = self.edge.leave.is_some()
            && matches!(input, Input::Bytes { .. } | Input::Drained { .. } | Input::ReadOut { .. });
        match input {
            Input::Bytes { conn, bytes } => self.receive(now, conn, bytes, out),
            Input::Drained { conn } => self.drained(now, conn, out),
            Input::Opened { conn, origin } => self.opened(now, conn, origin),
            Input::Closed { conn } => self.closed(now, conn, out),
            Input::ReadOut { conn, is_whole } => self.has_read_out(now, conn, is_whole, out),
            Input::Deadline => self.deadline(now, out),
            Input::Fences(fences) => self.core.set_fences(fences.clone()),
            Input::Cache(plan) => self.core.set_cache(now, plan.clone()),
            Input::Buffer(interests) => self.core.set_buffer(interests.to_vec()),
            Input::Drain { within } => self.drain(now, within, out),
            Input::Committed { upto } => self.core_input(now, CoreInput::Committed { upto }, out),
            Input::Disk(disk) => {
                self.core_input(now, CoreInput::Disk(disk), out);
                if disk == Disk::Open {
                    // There is room for refused publishes: their clients send them again when they
                    // reconnect.
                    self.edge.endings.is_released = true;
                    self.edge.end_due(now);
                }
            }
            Input::Fetched(fetched) => self.core_input(now, CoreInput::Fetched(fetched), out),
            Input::DropSession { client_id } => self.core_input(now, CoreInput::DropSession { client_id }, out),
            Input::ChangeProfile { filter, made } => {
                self.core_input(now, CoreInput::ChangeProfile { filter, made }, out);
            }
            Input::Peer(input) => self.core_input(now, CoreInput::Peer(input), out),
            Input::Certified { conn, principal } => self.edge.certify(conn, principal),
            Input::Identified { conn, ticket, result } => self.identified(now, (conn, ticket), result, out),
            Input::Access(access) => self.set_access(now, access, out),
            Input::Kick { conn } => self.kick(now, conn, out),
            Input::Revoked { conn, why } => self.revoked(now, (conn, why), out),
        }
        if self.edge.is_unfinished() {
            self.finish(now, out);
        }
        if self.edge.leave.as_mut().is_some_and(|leave| !is_of_one || leave.take_read()) {
            self.let_go(now, out);
            self.finish(now, out);
        }
        self.settle_timing();
        self.edge.flush(out);
    }

    /// The time at which [`Input::Deadline`] is wanted, and its reason.
    pub fn next_deadline(&self) -> Option<(Time, Reason)> {
        let silence = self.edge.silence.first().map(|(at, _)| (*at, Reason::Silence));
        let quota = self.edge.guard.throttled.first().map(|(at, _)| (*at, Reason::Quota));
        let refused = self.edge.endings.next().map(|at| (at, Reason::Refused));
        let review = self.edge.guard.review.map(|(_, since)| (since, Reason::Review));
        let sys = self.edge.sys_at.map(|at| (at, Reason::Sys));
        let leave = self.edge.leave.as_ref().and_then(Leave::deadline).map(|at| (at, Reason::Leave));
        let core = self.core.next_deadline().map(|(at, reason)| (at, Reason::Core(reason)));
        [silence, quota, refused, review, sys, leave, core].into_iter().flatten().min()
    }

    /// Counters and gauges at this moment.
    pub fn stats(&self) -> Stats {
        let stats = &self.edge.stats;
        // The edge counts a sent PUBLISH once.
        let packets_out = stats.packets_out + stats.publishes_out;
        Stats { core: self.core.stats(), packets_out, ..stats.clone() }
    }

    /// The core, for inspection.
    pub fn core(&self) -> &Broker {
        &self.core
    }

    /// The most expensive selectors with their cost so far, most expensive first.
    pub fn expensive_selectors(&self) -> Vec<Expensive> {
        self.core.expensive_selectors()
    }

    /// The division of the cache.
    pub fn cache_plan(&self) -> &Plan {
        self.core.cache_plan()
    }

    /// The contents and counters of each partition of the cache, in the order of the plan, the
    /// default partition last.
    pub fn cache_gauges(&self) -> Vec<PartitionGauges> {
        self.core.cache_gauges()
    }

    /// The clients with most gaps, at most 16, those with most first.
    pub fn gappy_clients(&self) -> Vec<(String, u64)> {
        self.core.gappy_clients()
    }

    fn opened(&mut self, now: Time, conn: ConnId, origin: Origin) {
        let edge = &mut self.edge;
        let at = conn.0 as usize;
        while edge.conns.len() <= at {
            let mut gone = Conn::new(now, origin);
            gone.state = State::Gone;
            edge.conns.push(Box::new(gone));
        }
        assert!(edge.conns[at].state == State::Gone, "a driver opens a connection once");
        *edge.conns[at] = Conn::new(now, origin);
        edge.stats.connections_opened[origin as usize] += 1;
        edge.stats.connections += 1;
        edge.watch(conn.0, now.after(edge.config.limits.connect_timeout));
    }

    /// Whether the broker still needs a connection that was reported closed, or has not closed it
    /// itself.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.edge.conns.get(conn.0 as usize).is_some_and(|known| known.state != State::Gone)
    }

    fn drained(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        let Some(known) = self.edge.conns.get_mut(conn.0 as usize) else { return };
        if known.state == State::Attached && core::mem::take(&mut known.full) {
            let input = CoreInput::Writable { link: Link(conn.0) };
            self.core.handle(now, input, &mut Outbound::new(&mut self.edge, out, now));
        }
    }

    fn deadline(&mut self, now: Time, out: &mut impl Output) {
        while let Some(&(at, conn)) = self.edge.silence.first()
            && at <= now
        {
            self.edge.silence.pop_first();
            let known = &mut self.edge.conns[conn as usize];
            known.timer = None;
            let listened = known.rare.as_mut().is_some_and(|rare| core::mem::take(&mut rare.listening));
            self.silent(now, conn, !listened, out);
        }
        self.edge.relax(now, out);
        self.edge.end_due(now);
        self.review(now, out);
        if self.core.next_deadline().is_some_and(|(at, _)| at <= now) {
            self.core.handle(now, CoreInput::Deadline, &mut Outbound::new(&mut self.edge, out, now));
        }
        if self.edge.sys_at.is_some_and(|at| at <= now) {
            self.edge.sys_at = self.edge.config.sys_interval.map(|interval| now.after(interval));
            self.announce(now, out);
        }
    }
}

impl Edge {
    /// Records the certificate that a connection has shown.
    fn certify(&mut self, conn: ConnId, principal: &Principal) {
        if let Some(known) = self.conns.get_mut(conn.0 as usize).filter(|known| known.state == State::ExpectConnect) {
            known.rare().certified = Some(principal.clone());
        }
    }

    /// Sets a connection's timer.
    fn watch(&mut self, conn: u32, at: Time) {
        let known = &mut self.conns[conn as usize];
        if let Some(old) = known.timer.replace(at) {
            self.silence.remove(&(old, conn));
        }
        self.silence.insert((at, conn));
    }

    /// Takes an incomplete packet, which is about to grow or to be completed.
    #[inline]
    fn take_partial(&mut self, conn: u32) -> Vec<u8> {
        let partial = core::mem::take(&mut self.conns[conn as usize].partial);
        self.partial_bytes -= counted(&partial);
        partial
    }

    /// Keeps an incomplete packet.
    #[inline]
    fn put_partial(&mut self, conn: u32, partial: Vec<u8>) {
        self.partial_bytes += counted(&partial);
        self.conns[conn as usize].partial = partial;
    }

    /// Releases a connection; its remaining output is sent at the end of the step.
    fn forget(&mut self, conn: u32) {
        drop(self.take_partial(conn));
        self.leave_read(conn);
        let known = &mut self.conns[conn as usize];
        known.state = State::Gone;
        if let Some(rare) = known.rare.take() {
            if let Some(at) = rare.throttled {
                self.guard.throttled.remove(&(at, conn));
            }
            if let Some(at) = rare.ends_at {
                self.endings.later.remove(&(at, conn));
            }
            if rare.ended {
                self.endings.waiting -= 1;
            }
        }
        if let Some(at) = known.timer.take() {
            self.silence.remove(&(at, conn));
        }
        if let Some(who) = known.who.take() {
            self.guard.meter.leave(who.slot, who.subscriptions);
        }
        self.stats.connections -= 1;
    }

    /// Hands the output of the current step to the driver.
    fn flush(&mut self, out: &mut impl Output) {
        self.templates.end_step();
        let mut dirty = core::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let conn = &mut self.conns[id as usize];
            conn.dirty = false;
            if conn.corked && !conn.closing {
                if conn.pending.len() > ANSWERS_MAX {
                    let cause = "the client asks for more while it waits for its session than it may";
                    self.endings.now.push((id, ReasonCode::QUOTA_EXCEEDED, cause));
                }
                continue;
            }
            if core::mem::take(&mut conn.corked) {
                // The connection ends before its output may be sent.
                conn.pending.clear();
            }
            if !conn.pending.is_empty() {
                let mut bytes = core::mem::take(&mut conn.pending);
                self.stats.bytes_out += bytes.len() as u64;
                conn.wire.traffic.bytes_out += bytes.len() as u64;
                conn.wire.unread = if conn.room == 0 { conn.wire.unread + bytes.len() } else { 0 };
                out.send(ConnId(id), &mut bytes);
                bytes.clear();
                if bytes.capacity() > 0 && bytes.capacity() <= SPENT_BYTES_MAX && self.spent.len() < SPENT_MAX {
                    self.spent.push(bytes);
                }
            }
            if core::mem::take(&mut conn.closing) {
                out.close(ConnId(id));
            } else if conn.full {
                out.notify_drained(ConnId(id));
            }
        }
        self.dirty = dirty;
    }

    /// The buffer for a connection's output.
    fn pending(&mut self, conn: u32, driver: &impl Output) -> &mut Vec<u8> {
        let known = &mut self.conns[conn as usize];
        if !known.dirty {
            known.dirty = true;
            known.room = crate::HIGH_WATER.saturating_sub(driver.backlog(ConnId(conn)));
            if known.pending.capacity() == 0
                && let Some(spent) = self.spent.pop()
            {
                known.pending = spent;
            }
            self.dirty.push(conn);
        }
        &mut known.pending
    }
}
