//! The machine, its owner at the moment, and the table of connections.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use whimbrel_event::Time;
use whimbrel_mqtt::{Broker, Config, ConnId, Input, Origin, Output, Stats};
use whimbrel_selector::{Expensive, Fences};

use super::clock::Clock;
use super::port::Port;
use super::task;

/// Chunks of input that wait in the inbox at most; whoever brings more waits for the machine itself.
const INBOX_MAX: usize = 256;

/// How long the last bytes to a client may take after the machine has let go of it. While draining: as long as that lasts, if longer.
const LINGER: Duration = Duration::from_secs(5);

thread_local! {
    static TOUCHED: std::cell::Cell<Vec<Arc<Port>>> = const { std::cell::Cell::new(Vec::new()) };
}

/// Input that found the machine taken.
#[derive(Debug)]
enum Waiting {
    Bytes(ConnId, Vec<u8>),
    Drained(ConnId),
    Gone(ConnId, bool),
}

/// The broker and the connections that its output goes to.
#[derive(Debug)]
struct Machine {
    broker: Broker,
    ports: Ports,
}

#[derive(Debug, Default)]
struct Ports {
    slots: Vec<Option<Arc<Port>>>,
    free: Vec<u32>,
    /// Connections that got something since the last flush.
    touched: Vec<Arc<Port>>,
}

impl Ports {
    fn port(&self, conn: ConnId) -> Option<&Arc<Port>> {
        self.slots.get(conn.0 as usize).and_then(Option::as_ref)
    }
}

impl Output for Ports {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        if let Some(port) = self.port(conn).cloned() {
            port.send(bytes);
            self.touched.push(port);
        }
    }

    fn close(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn).cloned() {
            port.close();
            self.touched.push(port);
        }
    }

    fn backlog(&self, conn: ConnId) -> usize {
        self.port(conn).map_or(0, |port| port.backlog())
    }

    fn notify_drained(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.notify_drained();
        }
    }
}

impl Machine {
    fn apply(&mut self, now: Time, waiting: Waiting) {
        match waiting {
            Waiting::Bytes(conn, bytes) => {
                self.broker.handle(now, Input::Bytes { conn, bytes: &bytes }, &mut self.ports);
                super::port::give_back(bytes);
            }
            Waiting::Drained(conn) => self.broker.handle(now, Input::Drained { conn }, &mut self.ports),
            Waiting::Gone(conn, tell) => {
                if tell {
                    self.broker.handle(now, Input::Closed { conn }, &mut self.ports);
                }
                self.ports.slots[conn.0 as usize] = None;
                self.ports.free.push(conn.0);
            }
        }
    }
}

/// Drives one broker: owns it, its clock and its connections.
#[derive(Debug)]
pub struct Hub {
    machine: Mutex<Machine>,
    inbox: Mutex<Vec<Waiting>>,
    /// Length of the inbox, readable without its lock.
    waiting: AtomicUsize,
    clock: Clock,
    connections: AtomicUsize,
    all_closed: Notify,
    /// The deadline that the timer is set to, nanoseconds.
    armed: AtomicU64,
    rearm: Notify,
    /// Until when a drain waits for what is to be written.
    drained_by: OnceLock<Instant>,
}

impl Hub {
    /// A hub for a new broker; `seed` is the broker's randomness. Spawns its timer: call it within a tokio runtime.
    pub fn new(config: Config, seed: u64) -> Arc<Hub> {
        let clock = Clock::start();
        let hub = Arc::new(Hub {
            machine: Mutex::new(Machine { broker: Broker::new(config, seed, clock.now()), ports: Ports::default() }),
            inbox: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            clock,
            connections: AtomicUsize::new(0),
            all_closed: Notify::new(),
            armed: AtomicU64::new(u64::MAX),
            rearm: Notify::new(),
            drained_by: OnceLock::new(),
        });
        tokio::spawn(keep_time(hub.clone()));
        hub.arm(&hub.machine.lock());
        hub
    }

    /// Serves one plain TCP connection in a task of its own.
    pub fn serve_tcp(self: &Arc<Self>, stream: TcpStream) {
        // Without it small packets would wait for the peer's delayed acknowledgement; a failure costs only latency.
        let _ = stream.set_nodelay(true);
        let (read, write) = stream.into_split();
        let (conn, port) = self.open(Some(write), Origin::Tcp);
        tokio::spawn(task::run_tcp(self.clone(), conn, port, read));
    }

    /// Serves one connection over any byte stream (TLS, WebSocket) in a task of its own.
    pub fn serve_stream<S>(self: &Arc<Self>, stream: S, origin: Origin)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (conn, port) = self.open(None, origin);
        tokio::spawn(task::run_stream(self.clone(), conn, port, stream));
    }

    /// Open transport connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The broker's counters and gauges at this moment, and what the selectors that cost most have cost.
    pub fn stats(&self) -> (Stats, Vec<Expensive>) {
        let mut stats = (Stats::default(), Vec::new());
        // As its owner: who finds the machine taken counts on the owner to look into the inbox.
        self.run(|machine, _| stats = (machine.broker.stats(), machine.broker.expensive_selectors()));
        stats
    }

    /// The broker's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Steps the broker's clock forward to the system's, if that is ahead.
    pub fn accept_clock(&self) {
        self.clock.accept();
        // What the timer waits for may be due now.
        self.rearm.notify_one();
    }

    /// Replaces the fences that selectors refer to, between two events.
    pub fn set_fences(&self, fences: &Arc<Fences>) {
        self.run(|machine, now| machine.broker.handle(now, Input::Fences(fences), &mut machine.ports));
    }

    /// Says goodbye to all clients and waits until their connections have ended, at most `limit`; returns how many have not.
    pub async fn drain(&self, limit: Duration) -> usize {
        // The first drain counts. Set before the clients are told, so that every goodbye has that long.
        let _ = self.drained_by.set(Instant::now() + limit);
        self.run(|machine, now| machine.broker.handle(now, Input::Drain, &mut machine.ports));
        let ended = async {
            loop {
                let notified = self.all_closed.notified();
                if self.connections() == 0 {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(limit, ended).await;
        self.connections()
    }

    /// Until when the last bytes to a client that the machine has let go of may be written.
    pub(super) fn linger_until(&self) -> Instant {
        let usual = Instant::now() + LINGER;
        self.drained_by.get().map_or(usual, |drained_by| usual.max(*drained_by))
    }

    fn open(&self, direct: Option<tokio::net::tcp::OwnedWriteHalf>, origin: Origin) -> (ConnId, Arc<Port>) {
        let port = Arc::new(Port::new(direct));
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut id = 0;
        self.run(|machine, now| {
            let slots = &mut machine.ports.slots;
            id = machine.ports.free.pop().unwrap_or_else(|| {
                slots.push(None);
                slots.len() as u32 - 1
            });
            machine.ports.slots[id as usize] = Some(port.clone());
            machine.broker.handle(now, Input::Opened { conn: ConnId(id), origin }, &mut machine.ports);
        });
        (ConnId(id), port)
    }

    pub(super) fn bytes(&self, conn: ConnId, bytes: &[u8]) {
        let direct = |machine: &mut Machine, now| {
            machine.broker.handle(now, Input::Bytes { conn, bytes }, &mut machine.ports);
        };
        self.submit(direct, || {
            let mut copy = super::port::fresh();
            copy.extend_from_slice(bytes);
            Waiting::Bytes(conn, copy)
        });
    }

    pub(super) fn drained(&self, conn: ConnId) {
        self.submit(|machine, now| machine.apply(now, Waiting::Drained(conn)), || Waiting::Drained(conn));
    }

    /// The connection's task ends; `tell` the machine unless it knows.
    pub(super) fn gone(&self, conn: ConnId, tell: bool) {
        self.submit(|machine, now| machine.apply(now, Waiting::Gone(conn, tell)), || Waiting::Gone(conn, tell));
        if self.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_closed.notify_waiters();
        }
    }

    /// Runs the machine with an input, or leaves the input to its present owner.
    fn submit(&self, direct: impl FnOnce(&mut Machine, Time), later: impl FnOnce() -> Waiting) {
        if let Some(machine) = self.machine.try_lock() {
            return self.own(machine, direct);
        }
        let mut inbox = self.inbox.lock();
        if inbox.len() >= INBOX_MAX {
            drop(inbox);
            return self.run(direct);
        }
        inbox.push(later());
        self.waiting.store(inbox.len(), Ordering::SeqCst);
        drop(inbox);
        // The owner may have looked into the inbox for the last time just before.
        if let Some(machine) = self.machine.try_lock() {
            self.own(machine, |_, _| {});
        }
    }

    /// Runs the machine with an input, waiting for it if need be.
    fn run(&self, input: impl FnOnce(&mut Machine, Time)) {
        self.own(self.machine.lock(), input);
    }

    /// As owner of the machine: first what came before, then `input`, then what came meanwhile; writes after letting go.
    fn own<'a>(&'a self, mut machine: MutexGuard<'a, Machine>, input: impl FnOnce(&mut Machine, Time)) {
        let mut input = Some(input);
        loop {
            let now = self.clock.now();
            self.empty_inbox(&mut machine, now);
            if let Some(input) = input.take() {
                input(&mut machine, now);
            }
            self.arm(&machine);
            // The thread's list is empty here; it goes to the machine for its memory.
            let mut touched = TOUCHED.take();
            std::mem::swap(&mut touched, &mut machine.ports.touched);
            drop(machine);
            for port in touched.drain(..) {
                port.flush();
            }
            TOUCHED.set(touched);
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            match self.machine.try_lock() {
                Some(again) => machine = again,
                None => return,
            }
        }
    }

    fn empty_inbox(&self, machine: &mut Machine, now: Time) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut inbox = self.inbox.lock();
        let waiting = std::mem::take(&mut *inbox);
        self.waiting.store(0, Ordering::SeqCst);
        drop(inbox);
        for input in waiting {
            machine.apply(now, input);
        }
    }

    /// Sets the timer if the machine's next deadline is earlier than what it is set to.
    fn arm(&self, machine: &Machine) {
        let next = machine.broker.next_deadline().map_or(u64::MAX, |(at, _)| at.as_nanos());
        if next < self.armed.load(Ordering::Relaxed) {
            self.armed.store(next, Ordering::Relaxed);
            self.rearm.notify_one();
        }
    }

    /// Waits for the deadline that is armed, or for an earlier one to be armed.
    async fn await_deadline(&self) {
        let rearmed = self.rearm.notified();
        let at = self.armed.load(Ordering::Relaxed);
        if at == u64::MAX {
            return rearmed.await;
        }
        let at = Time::from_nanos(at);
        tokio::select! {
            () = rearmed => {}
            () = tokio::time::sleep_until(self.clock.instant(at)) => {
                if self.clock.now() >= at {
                    self.armed.store(u64::MAX, Ordering::Relaxed);
                    self.run(|machine, now| machine.broker.handle(now, Input::Deadline, &mut machine.ports));
                }
            }
        }
    }
}

/// Calls the broker at its deadlines, as long as the runtime lives.
async fn keep_time(hub: Arc<Hub>) {
    loop {
        hub.await_deadline().await;
    }
}
