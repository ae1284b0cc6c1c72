//! The MQTT broker without IO: connections, and the core behind them.

mod acknowledge;
mod api;
mod conn;
mod following;
mod inbound;
mod outbound;
mod recent;
mod reply;
mod store;
mod subscribe;
mod sys;

use std::collections::BTreeSet;

use whimbrel_core::cache::{PartitionGauges, Plan};
use whimbrel_core::store::{LogState, RestoreError, Restoring};
use whimbrel_core::{Core, Input as CoreInput, Link, OverlayConfig};
use whimbrel_event::{AttributesBuf, Seeded, Time};
use whimbrel_selector::Expensive;

pub use api::{ConnId, Input, Output, Reason};
pub use conn::Origin;
use conn::{Conn, State};
use outbound::{Outbound, Templates};

use crate::codec::{Frame, ReasonCode, frame};
use crate::config::{ANSWERS_MAX, Config, PARTIAL_FREE};
use crate::stats::Stats;

/// Spent output buffers kept for reuse.
const SPENT_MAX: usize = 256;

/// A larger buffer is given back to the allocator.
const SPENT_BYTES_MAX: usize = 256 << 10;

/// A whole MQTT broker as a deterministic state machine: feed it what happens, do what it says.
#[derive(Debug)]
pub struct Broker {
    core: Core,
    edge: Edge,
}

/// All of the broker but its core.
#[derive(Debug)]
pub(crate) struct Edge {
    config: Config,
    /// Boxed, so that growing moves pointers only.
    #[expect(clippy::vec_box, reason = "growing must not copy all connections, nor take memory for twice as many")]
    conns: Vec<Box<Conn>>,
    /// Connections with output of the present step.
    dirty: Vec<u32>,
    spent: Vec<Vec<u8>>,
    templates: Templates,
    hasher: Seeded,
    /// Attributes of the event being published.
    attributes: AttributesBuf,
    /// What the broker adds to the event being delivered.
    appended: AttributesBuf,
    /// When which connection has been silent for too long.
    silence: BTreeSet<(Time, u32)>,
    started: Time,
    sys_at: Option<Time>,
    assigned_ids: u64,
    seed: u64,
    draining: bool,
    /// Bytes of the incomplete packets that are larger than [`PARTIAL_FREE`].
    partial_bytes: usize,
    greeting: Greeting,
    /// Connections that the present step has to end, and why.
    condemned: Vec<(u32, ReasonCode, &'static str)>,
    stats: Stats,
}

/// What the CONNACK that the core is about to allow tells beside success.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    keep_alive: Option<u16>,
    expiry: Option<u32>,
    response_information: Option<String>,
    assigned: Option<String>,
}

impl Broker {
    /// A broker without connections. `seed` is its only source of randomness, `now` its first moment.
    pub fn new(config: Config, seed: u64, now: Time) -> Broker {
        let core = Core::new(config.core.clone(), seed, now);
        Broker::around(core, config, seed, now)
    }

    /// The same that goes on where a log says.
    ///
    /// # Errors
    /// When what was written makes no sense.
    pub fn restored(
        config: Config,
        seed: u64,
        now: Time,
        restoring: Restoring,
        log: &LogState,
    ) -> Result<Broker, RestoreError> {
        let core = restoring.finish(config.core.clone(), seed, now, log)?;
        Ok(Broker::around(core, config, seed, now))
    }

    fn around(core: Core, config: Config, seed: u64, now: Time) -> Broker {
        let sys_at = config.sys_interval.map(|_| now);
        let edge = Edge {
            config,
            conns: Vec::new(),
            dirty: Vec::new(),
            spent: Vec::new(),
            templates: Templates::default(),
            hasher: Seeded::new(seed ^ 0x5bd1_e995),
            attributes: AttributesBuf::new(),
            appended: AttributesBuf::new(),
            silence: BTreeSet::new(),
            started: now,
            sys_at,
            assigned_ids: 0,
            seed,
            draining: false,
            partial_bytes: 0,
            greeting: Greeting::default(),
            condemned: Vec::new(),
            stats: Stats::default(),
        };
        Broker { core, edge }
    }

    /// Applies one input at the moment `now`, which never goes backwards.
    ///
    /// # Panics
    /// When the driver breaks the contract of [`Input`], for instance opens a connection twice.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut impl Output) {
        match input {
            Input::Bytes { conn, bytes } => self.receive(now, conn, bytes, out),
            Input::Drained { conn } => self.drained(now, conn, out),
            Input::Opened { conn, origin } => self.opened(now, conn, origin),
            Input::Closed { conn } => self.closed(now, conn, out),
            Input::Deadline => self.deadline(now, out),
            Input::Fences(fences) => self.core.set_fences(fences.clone()),
            Input::Cache(plan) => self.core.set_cache(now, plan.clone()),
            Input::Buffer(interests) => self.core.set_buffer(interests.to_vec()),
            Input::Drain => self.drain(now, out),
            Input::Committed { upto } => self.core_input(now, CoreInput::Committed { upto }, out),
            Input::Disk(disk) => self.core_input(now, CoreInput::Disk(disk), out),
            Input::Fetched(fetched) => self.core_input(now, CoreInput::Fetched(fetched), out),
            Input::DropSession { client_id } => self.core_input(now, CoreInput::DropSession { client_id }, out),
            Input::Peer(input) => self.core_input(now, CoreInput::Peer(input), out),
        }
        while let Some((conn, reason, cause)) = self.edge.condemned.pop() {
            self.end(now, conn, reason, cause, out);
        }
        self.edge.flush(out);
    }

    /// Builds a fault into the core.
    #[cfg(feature = "mutants")]
    pub fn build_in(&mut self, mutant: whimbrel_core::Mutant) {
        self.core.build_in(mutant);
    }

    /// From now on the broker is one of many; see [`Core::open_overlay`].
    ///
    /// # Panics
    /// When it is one already, or its name is none.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        self.core.open_overlay(now, config);
    }

    /// When [`Input::Deadline`] is wanted, and why.
    pub fn next_deadline(&self) -> Option<(Time, Reason)> {
        let silence = self.edge.silence.first().map(|(at, _)| (*at, Reason::Silence));
        let sys = self.edge.sys_at.map(|at| (at, Reason::Sys));
        let core = self.core.next_deadline().map(|(at, reason)| (at, Reason::Core(reason)));
        [silence, sys, core].into_iter().flatten().min()
    }

    /// Counters and gauges at this moment.
    pub fn stats(&self) -> Stats {
        Stats { core: self.core.stats(), ..self.edge.stats.clone() }
    }

    /// The core, to be looked at.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// What the selectors that cost most have cost so far, most expensive first.
    pub fn expensive_selectors(&self) -> Vec<Expensive> {
        self.core.expensive_selectors()
    }

    /// How the cache is divided.
    pub fn cache_plan(&self) -> &Plan {
        self.core.cache_plan()
    }

    /// What each partition of the cache holds and did, in the order of the plan, the default one last.
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
            let mut gone = Conn::new(now);
            gone.state = State::Gone;
            edge.conns.push(Box::new(gone));
        }
        assert!(edge.conns[at].state == State::Gone, "a driver opens a connection once");
        *edge.conns[at] = Conn::new(now);
        edge.stats.connections_opened[origin as usize] += 1;
        edge.stats.connections += 1;
        edge.watch(conn.0, now.after(edge.config.limits.connect_timeout));
    }

    fn closed(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        let Some(known) = self.edge.conns.get(conn.0 as usize) else { return };
        match known.state {
            State::Gone => return,
            State::ExpectConnect => {}
            State::Attached => self.detach(now, conn.0, true, None, out),
        }
        self.edge.stats.connections_lost += 1;
        self.edge.forget(conn.0);
    }

    /// Tells the core that a connection has ended.
    fn detach(
        &mut self,
        now: Time,
        conn: u32,
        publish_will: bool,
        expiry: Option<core::time::Duration>,
        out: &mut impl Output,
    ) {
        // The core must not be told anything of this link while it lets go.
        self.edge.conns[conn as usize].state = State::Gone;
        self.edge.stats.connections_accepted -= 1;
        let input = CoreInput::Detach { link: Link(conn), publish_will, expiry };
        self.core.handle(now, input, &mut Outbound { edge: &mut self.edge, driver: out, now });
    }

    fn drained(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        let Some(known) = self.edge.conns.get_mut(conn.0 as usize) else { return };
        if known.state == State::Attached && core::mem::take(&mut known.full) {
            let input = CoreInput::Writable { link: Link(conn.0) };
            self.core.handle(now, input, &mut Outbound { edge: &mut self.edge, driver: out, now });
        }
    }

    fn deadline(&mut self, now: Time, out: &mut impl Output) {
        while let Some(&(at, conn)) = self.edge.silence.first()
            && at <= now
        {
            self.edge.silence.pop_first();
            self.edge.conns[conn as usize].timer = None;
            self.silent(now, conn, out);
        }
        if self.core.next_deadline().is_some_and(|(at, _)| at <= now) {
            self.core.handle(now, CoreInput::Deadline, &mut Outbound { edge: &mut self.edge, driver: out, now });
        }
        if self.edge.sys_at.is_some_and(|at| at <= now) {
            self.edge.sys_at = self.edge.config.sys_interval.map(|interval| now.after(interval));
            self.announce(now, out);
        }
    }

    /// A connection's timer has come: it has been silent for too long, or has said something since the timer was set.
    fn silent(&mut self, now: Time, conn: u32, out: &mut impl Output) {
        let known = &self.edge.conns[conn as usize];
        match known.state {
            State::Gone => {}
            State::ExpectConnect => {
                self.edge.stats.connect_timeouts += 1;
                self.end(now, conn, ReasonCode::MAXIMUM_CONNECT_TIME, "no CONNECT in time", out);
            }
            State::Attached if known.patience.is_zero() => {}
            State::Attached => {
                let heard = if known.is_paused() { now } else { known.last_heard };
                let due = heard.after(known.patience);
                if due > now {
                    self.edge.watch(conn, due);
                } else {
                    self.edge.stats.keep_alive_timeouts += 1;
                    self.end(now, conn, ReasonCode::KEEP_ALIVE_TIMEOUT, "nothing came within the keep-alive", out);
                }
            }
        }
    }

    fn drain(&mut self, now: Time, out: &mut impl Output) {
        self.edge.draining = true;
        for conn in 0..self.edge.conns.len() as u32 {
            if self.edge.conns[conn as usize].state != State::Gone {
                self.end(now, conn, ReasonCode::SERVER_SHUTTING_DOWN, "the broker is shutting down", out);
            }
        }
    }

    /// Ends a connection for a reason: tells the client where the protocol allows, and closes. Its will is published.
    fn end(&mut self, now: Time, conn: u32, reason: ReasonCode, cause: &str, out: &mut impl Output) {
        match self.edge.conns[conn as usize].state {
            State::Gone => {}
            State::ExpectConnect => self.edge.refuse(conn, reason, cause, out),
            State::Attached => {
                self.edge.say_goodbye(conn, reason, cause, out);
                self.detach(now, conn, true, None, out);
                self.edge.forget(conn);
            }
        }
    }

    fn receive(&mut self, now: Time, conn: ConnId, bytes: &[u8], out: &mut impl Output) {
        let id = conn.0;
        let Some(known) = self.edge.conns.get_mut(id as usize) else { return };
        if known.state == State::Gone {
            return;
        }
        known.last_heard = now;
        self.edge.stats.bytes_in += bytes.len() as u64;
        if known.unread > ANSWERS_MAX {
            let cause = "the client does not read the answers to what it sends";
            return self.end(now, id, ReasonCode::QUOTA_EXCEEDED, cause, out);
        }
        let mut partial = self.edge.take_partial(id);
        let mut rest = bytes;
        if !partial.is_empty() {
            rest = self.complete(now, id, &mut partial, rest, out);
        }
        while !rest.is_empty() && self.edge.conns[id as usize].state != State::Gone {
            match frame(rest, self.edge.config.limits.max_packet_size as usize) {
                Ok(Some(Frame { first_byte, body, len })) => {
                    self.packet(now, id, first_byte, body, out);
                    rest = &rest[len..];
                }
                Ok(None) if self.edge.conns[id as usize].state == State::ExpectConnect && rest[0] >> 4 != 1 => {
                    // Another protocol: its first bytes seldom make a whole packet, and waiting for the rest is in vain.
                    self.end(now, id, ReasonCode::PROTOCOL_ERROR, "the first packet is not CONNECT", out);
                }
                Ok(None) => {
                    partial.extend_from_slice(rest);
                    break;
                }
                Err(error) => self.end(now, id, error.reason, error.cause, out),
            }
        }
        if self.edge.conns[id as usize].state != State::Gone {
            self.edge.partial_bytes += counted(&partial);
            self.edge.conns[id as usize].partial = partial;
            self.bound_partials(now, out);
        }
    }

    /// Ends connections, those with the largest incomplete packets first, until the bound over all of them holds.
    #[inline]
    fn bound_partials(&mut self, now: Time, out: &mut impl Output) {
        while self.edge.partial_bytes > self.edge.config.limits.partial_bytes {
            let sizes = self.edge.conns.iter().zip(0_u32..).map(|(conn, id)| (conn.partial.capacity(), id));
            let Some((_, largest)) = sizes.max() else { return };
            let cause = "the broker holds as much of incomplete packets as it may: try again later";
            self.end(now, largest, ReasonCode::QUOTA_EXCEEDED, cause, out);
        }
    }

    /// Adds as much of `bytes` to an incomplete packet as it lacks, and handles it if that completes it; returns what is left.
    fn complete<'a>(
        &mut self,
        now: Time,
        id: u32,
        partial: &mut Vec<u8>,
        bytes: &'a [u8],
        out: &mut impl Output,
    ) -> &'a [u8] {
        let mut rest = bytes;
        loop {
            match frame(partial, self.edge.config.limits.max_packet_size as usize) {
                Ok(Some(Frame { first_byte, body, .. })) => {
                    self.packet(now, id, first_byte, body, out);
                    *partial = Vec::new();
                    return rest;
                }
                Ok(None) if rest.is_empty() => return rest,
                Ok(None) => {
                    let lacking = lacking(partial).min(rest.len());
                    partial.extend_from_slice(&rest[..lacking]);
                    rest = &rest[lacking..];
                }
                Err(error) => {
                    self.end(now, id, error.reason, error.cause, out);
                    return &[];
                }
            }
        }
    }
}

/// How many bytes an incomplete packet certainly lacks: at least one.
fn lacking(partial: &[u8]) -> usize {
    let mut length = 0_usize;
    for (index, byte) in partial.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return (2 + index + length).saturating_sub(partial.len()).max(1);
        }
    }
    1
}

/// How much of an incomplete packet counts towards the bound over all connections.
fn counted(partial: &Vec<u8>) -> usize {
    if partial.capacity() > PARTIAL_FREE { partial.capacity() } else { 0 }
}

impl Edge {
    /// Sets a connection's timer.
    fn watch(&mut self, conn: u32, at: Time) {
        let known = &mut self.conns[conn as usize];
        if let Some(old) = known.timer.replace(at) {
            self.silence.remove(&(old, conn));
        }
        self.silence.insert((at, conn));
    }

    /// An incomplete packet is about to grow or to be completed.
    #[inline]
    fn take_partial(&mut self, conn: u32) -> Vec<u8> {
        let partial = core::mem::take(&mut self.conns[conn as usize].partial);
        self.partial_bytes -= counted(&partial);
        partial
    }

    /// Lets go of a connection; what it still has to be told goes out at the end of the step.
    fn forget(&mut self, conn: u32) {
        drop(self.take_partial(conn));
        let known = &mut self.conns[conn as usize];
        known.state = State::Gone;
        known.rare = None;
        if let Some(at) = known.timer.take() {
            self.silence.remove(&(at, conn));
        }
        self.stats.connections -= 1;
    }

    /// Hands the output of the present step to the driver.
    fn flush(&mut self, out: &mut impl Output) {
        self.templates.end_step();
        let mut dirty = core::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let conn = &mut self.conns[id as usize];
            conn.dirty = false;
            if conn.corked && !conn.closing {
                if conn.pending.len() > ANSWERS_MAX {
                    let cause = "the client asks for more while it waits for its session than it may";
                    self.condemned.push((id, ReasonCode::QUOTA_EXCEEDED, cause));
                }
                continue;
            }
            if core::mem::take(&mut conn.corked) {
                // It ends before it may be told anything.
                conn.pending.clear();
            }
            if !conn.pending.is_empty() {
                let mut bytes = core::mem::take(&mut conn.pending);
                self.stats.bytes_out += bytes.len() as u64;
                conn.unread = if conn.room == 0 { conn.unread + bytes.len() } else { 0 };
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

    /// Where output for a connection goes.
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
