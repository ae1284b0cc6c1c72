//! The machine, its present owner, and the table of connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use whimbrel_core::store::BatchNo;
use whimbrel_core::{Channel, Profile};
use whimbrel_event::{Domains, Time};
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin};
use whimbrel_selector::Fences;

use crate::access::Access;
use crate::config::partition::Division;
use crate::identity::trust::Trust;
use crate::overlay::{Counts, Overlay};
use crate::store::{Signal, Store};
use crate::telemetry::Tracer;

use super::account::Account;
use super::brake::Brake;
use super::clock::Clock;
use super::inbox::{self, Full, Inbox, Line, Source};
use super::machine::{Machine, NEVER};
use super::port::{Caller, Port};
use super::post::Post;
use super::task;
use identity::Answers;

/// Turns that an owner takes after its own input before it hands over to the timer's task. It has
/// its own connection to serve, and with one thread nothing is read meanwhile.
const TURNS_MAX: usize = 4;

/// Bytes of long inputs after which an owner writes the output. Well below
/// [`whimbrel_mqtt::HIGH_WATER`], so no subscriber counts as slow for bytes not yet tried to be
/// written.
const TURN_BYTES: usize = 128 << 10;

/// For [`Hub::armed`]: the deadline has come.
const AT_ONCE: u64 = 0;

/// Time for the last bytes to a client after the machine has let go of it; while draining, the
/// drain's time if that is longer.
const LINGER: Duration = Duration::from_secs(5);

thread_local! {
    static TOUCHED: std::cell::Cell<Vec<Arc<Port>>> = const { std::cell::Cell::new(Vec::new()) };
}

/// The machine, locked by this thread, and the time of its inputs.
struct Owner<'a> {
    machine: MutexGuard<'a, Machine>,
    now: Time,
}

/// Drives one broker: holds it, its clock and its connections.
#[derive(Debug)]
pub struct Hub {
    machine: Mutex<Machine>,
    inbox: Mutex<Inbox>,
    /// Pieces in the inbox, readable without its lock.
    waiting: AtomicUsize,
    /// The inbox's first round, readable without its lock.
    front: AtomicU64,
    clock: Clock,
    connections: AtomicUsize,
    all_closed: Notify,
    /// The timer's deadline, nanoseconds.
    armed: AtomicU64,
    rearm: Notify,
    /// When a drain stops waiting for output to be written.
    drained_by: OnceLock<Instant>,
    /// Reports of the journal's threads, if there is a journal.
    signal: Option<Arc<Signal>>,
    brake: Brake,
    /// Counters of links to other brokers.
    links: Arc<Counts>,
    /// The links, once there is an overlay.
    overlay: Mutex<Option<Arc<Overlay>>>,
    /// Questions and answers between brokers, for operators.
    post: Arc<Post>,
    /// Source of clients' identities.
    access: OnceLock<Arc<Access>>,
    /// The believed certificates, if there is an authority.
    trust: OnceLock<Arc<Trust>>,
    answers: Arc<Answers>,
}

impl Hub {
    /// A hub for a new broker without a journal. `seed` seeds the broker's randomness. Spawns its
    /// timer: call it within a tokio runtime.
    pub fn new(config: Config, seed: u64) -> Arc<Hub> {
        let clock = Clock::start();
        Hub::around(MqttBroker::new(config, seed, clock.now()), None, clock)
    }

    /// A hub for a broker that was restored from a journal. Spawns its timer: call it within a
    /// tokio runtime.
    pub fn with_store(broker: MqttBroker, store: Store, clock: Clock) -> Arc<Hub> {
        let hub = Hub::around(broker, Some(Box::new(store)), clock);
        hub.listen();
        hub
    }

    fn around(broker: MqttBroker, store: Option<Box<Store>>, clock: Clock) -> Arc<Hub> {
        let signal = store.as_ref().map(|store| store.signal().clone());
        let first_question = clock.now().as_nanos();
        let hub = Arc::new(Hub {
            machine: Mutex::new(Machine::new(broker, store)),
            inbox: Mutex::default(),
            waiting: AtomicUsize::new(0),
            front: AtomicU64::new(0),
            clock,
            connections: AtomicUsize::new(0),
            all_closed: Notify::new(),
            armed: AtomicU64::new(NEVER),
            rearm: Notify::new(),
            drained_by: OnceLock::new(),
            signal,
            brake: Brake::default(),
            links: Arc::default(),
            overlay: Mutex::default(),
            post: Arc::new(Post::new(first_question)),
            access: OnceLock::new(),
            trust: OnceLock::new(),
            answers: Arc::default(),
        });
        tokio::spawn(keep_time(hub.clone()));
        hub.arm(hub.machine.lock().next_deadline());
        hub
    }

    /// Serves one plain TCP connection in its own task. `address` is the client's, if it is known.
    pub fn serve_tcp(self: &Arc<Self>, stream: TcpStream, address: Option<SocketAddr>) {
        // Without it small packets wait for delayed acknowledgements; a failure costs only latency.
        let _ = stream.set_nodelay(true);
        let caller = Caller { address, ..Caller::default() };
        let (read, write) = stream.into_split();
        let (line, port) = self.open(Some(write), Origin::Tcp, caller);
        tokio::spawn(task::run_tcp(self.clone(), line, port, read));
    }

    /// Serves one connection over any byte stream (TLS, WebSocket) in its own task.
    pub fn serve_stream<S>(self: &Arc<Self>, stream: S, origin: Origin, caller: Caller)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (line, port) = self.open(None, origin, caller);
        self.judge_again(&line, &port);
        tokio::spawn(task::run_stream(self.clone(), line, port, stream));
    }

    /// Open transport connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The broker's numbers at this moment.
    pub fn account(&self) -> Account {
        let mut account = Account::default();
        // As its owner: a thread that finds the machine taken relies on the owner to look into the
        // inbox.
        self.run(|machine, now| {
            account = Account::of(&machine.broker, now);
            for link in &account.links {
                machine.ports.name_link(link.link, &link.name);
            }
            account.latency = machine.store.as_ref().map(|store| store.latency().clone());
            account.store = machine.store.as_ref().map(|store| store.account()).unwrap_or_default();
            account.congested = self.brake.total(now);
        });
        account
    }

    /// The broker's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Steps the broker's clock forward to the system's, if that is ahead.
    pub fn accept_clock(&self) {
        self.clock.accept();
        // The timer's deadline may have come now.
        self.rearm.notify_one();
    }

    /// Replaces the fences that selectors refer to, between two events.
    pub fn set_fences(&self, fences: &Arc<Fences>) {
        self.run(|machine, now| machine.broker.handle(now, Input::Fences(fences), &mut machine.ports));
    }

    /// Sets the partitions of the cache, and the interest that the broker has on its behalf,
    /// between two events.
    pub fn set_division(&self, division: &Division) {
        self.run(|machine, now| {
            machine.broker.handle(now, Input::Cache(&division.plan), &mut machine.ports);
            machine.broker.handle(now, Input::Buffer(&division.buffer), &mut machine.ports);
        });
    }

    /// Traces events from now on.
    pub(crate) fn set_tracer(&self, tracer: Tracer) {
        self.run(|machine, _| machine.ports.tracer = Some(Box::new(tracer)));
    }

    /// Reads the broker and its journal between two turns.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&MqttBroker, Option<&Store>, Time) -> T) -> T {
        let mut seen = None;
        self.run(|machine, now| seen = Some(look(&machine.broker, machine.store.as_deref(), now)));
        seen.expect("it has looked")
    }

    /// Sets the domains of a broker that has no links to others.
    pub fn set_domains(&self, domains: Domains) {
        self.run(|machine, _| machine.broker.set_domains(domains));
    }

    /// Sets the profiles of topics that the configuration has, between two events.
    pub fn set_profiles(&self, profiles: &[Profile]) {
        self.run(|machine, _| machine.broker.set_profiles(profiles.to_vec()));
    }

    /// When the last bytes to a client that the machine has let go of must have been written.
    pub(super) fn linger_until(&self) -> Instant {
        let usual = Instant::now() + LINGER;
        self.drained_by.get().map_or(usual, |drained_by| usual.max(*drained_by))
    }

    fn open(
        &self,
        direct: Option<tokio::net::tcp::OwnedWriteHalf>,
        origin: Origin,
        caller: Caller,
    ) -> (Line, Arc<Port>) {
        let port = Arc::new(Port::new(direct, caller));
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut conn = ConnId(0);
        self.run(|machine, now| {
            conn = machine.ports.admit(port.clone());
            machine.broker.handle(now, Input::Opened { conn, origin }, &mut machine.ports);
            if let Some((principal, _)) = &port.caller().known {
                machine.broker.handle(now, Input::Certified { conn, principal }, &mut machine.ports);
            }
        });
        (Line::new(Source::Conn(conn)), port)
    }

    /// Whether the connection may be read. If not, its task is woken when it may.
    pub(super) fn may_read(&self, line: &mut Line) -> bool {
        line.may_read(self.front.load(Ordering::SeqCst)) && self.brake.lets_read(line.source(), line.parked())
    }

    /// Handles the next bytes of a connection's stream, or of a link's channel.
    pub(super) fn bytes(&self, line: &mut Line, channel: Option<Channel>, bytes: &[u8]) {
        let (mut owner, mut rest) = (self.try_own(), bytes);
        if let Some(owner) = &mut owner
            && !self.brake.is_on()
        {
            let at_once = owner.machine.at_once();
            while !rest.is_empty() && self.is_inbox_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(at_once));
                owner.machine.bytes(owner.now, line.source(), channel, piece);
                rest = behind;
            }
        }
        if !rest.is_empty() {
            let begun = rest.len() < bytes.len();
            owner = self.leave(owner, |inbox| inbox.leave_bytes(line, channel, rest, begun));
        }
        if let Some(owner) = owner {
            self.finish(owner);
        }
    }

    /// Tells the machine that little is left to be written to the connection.
    pub(super) fn drained(&self, line: &mut Line) {
        self.submit(line, || inbox::Input::Drained);
    }

    /// Tells the machine that the bytes it asked to read out have been read: all that the
    /// connection had sent (`is_whole`), or the most that may be.
    pub(super) fn read_out(&self, line: &mut Line, is_whole: bool) {
        self.submit(line, || inbox::Input::ReadOut { is_whole });
    }

    /// Ends the connection; `tell` the machine unless it knows.
    pub(super) fn gone(&self, mut line: Line, tell: bool) {
        self.submit(&mut line, || inbox::Input::Gone { tell });
        if self.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_closed.notify_waiters();
        }
    }

    /// Runs the machine with an input, or leaves the input to its present owner.
    fn submit(&self, line: &mut Line, input: impl Fn() -> inbox::Input) {
        let mut owner = self.try_own();
        match &mut owner {
            Some(owner) if self.is_inbox_empty() => owner.machine.apply(owner.now, line.source(), input()),
            _ => owner = self.leave(owner, |inbox| inbox.leave(line, input())),
        }
        if let Some(owner) = owner {
            self.finish(owner);
        }
    }

    /// For the owner it means that no earlier input of the same connection waits.
    fn is_inbox_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Whether the inbox has input that may be handled now.
    fn has_input(&self) -> bool {
        !self.is_inbox_empty() && !self.brake.is_on()
    }

    /// Whether an owner has work.
    fn has_work(&self) -> bool {
        self.has_input() || self.answers.is_any() || self.signal.as_ref().is_some_and(|signal| signal.has_news())
    }

    /// Leaves input in the inbox once there is room. Makes sure that the machine has an owner: the
    /// caller if it has none.
    fn leave<'a>(
        &'a self,
        mut owner: Option<Owner<'a>>,
        mut put: impl FnMut(&mut Inbox) -> Result<(), Full>,
    ) -> Option<Owner<'a>> {
        loop {
            let mut inbox = self.inbox.lock();
            let left = put(&mut inbox);
            self.waiting.store(inbox.len(), Ordering::SeqCst);
            drop(inbox);
            if left.is_ok() {
                // The owner may have looked into the inbox for the last time just before.
                return owner.or_else(|| self.try_own());
            }
            self.finish(owner.take().unwrap_or_else(|| self.wait_and_own()));
        }
    }

    /// Runs the machine with an input; waits for the lock.
    fn run(&self, input: impl FnOnce(&mut Machine, Time)) {
        let mut owner = self.wait_and_own();
        input(&mut owner.machine, owner.now);
        self.finish(owner);
    }

    fn try_own(&self) -> Option<Owner<'_>> {
        self.machine.try_lock().map(|machine| Owner { machine, now: self.clock.now() })
    }

    fn wait_and_own(&self) -> Owner<'_> {
        let machine = self.machine.lock();
        Owner { machine, now: self.clock.now() }
    }

    /// Takes turns with new input and with deadlines, and between turns lets go of the machine and
    /// writes the output. A thread that finds the machine taken relies on its owner to look into
    /// the inbox after letting go.
    fn finish<'a>(&'a self, owner: Owner<'a>) {
        self.finish_within(owner, TURNS_MAX);
    }

    /// As [`Hub::finish`], with at most `turns_max` turns, at least one.
    fn finish_within<'a>(&'a self, mut owner: Owner<'a>, turns_max: usize) {
        for turn in 1.. {
            self.take_turn(&mut owner);
            let is_due = self.let_go(owner);
            if !is_due && !self.has_work() {
                return;
            }
            if turn == turns_max {
                return self.arm(AT_ONCE);
            }
            // The new owner does the same after letting go.
            let Some(again) = self.try_own() else { return };
            owner = again;
        }
    }

    /// Handles rounds of the inbox up to one with a whole input, whose sender may wait for an
    /// answer; rounds with only parts of long inputs go on, for larger writes. Then meets a
    /// deadline.
    fn take_turn(&self, owner: &mut Owner<'_>) {
        let (machine, now) = (&mut *owner.machine, owner.now);
        machine.hear(now);
        self.tell_answers(machine, now);
        self.set_brake(machine, now);
        let (mut handled, mut has_whole) = (0, false);
        while handled < TURN_BYTES && !has_whole && self.has_input() {
            let mut inbox = self.inbox.lock();
            let round = inbox.take();
            self.waiting.store(inbox.len(), Ordering::SeqCst);
            self.front.store(inbox.front(), Ordering::SeqCst);
            drop(inbox);
            machine.calm = 0;
            for piece in round {
                handled += piece.len();
                has_whole |= piece.whole;
                machine.apply_piece(now, piece);
            }
        }
        machine.meet_deadline(now);
        machine.submit(now);
        self.set_brake(machine, now);
    }

    /// Puts the brake on or lets it go, as the broker is congested or not.
    fn set_brake(&self, machine: &Machine, now: Time) {
        if machine.store.is_none() || machine.broker.is_congested() == self.brake.is_on() {
            return;
        }
        let on = !self.brake.is_on();
        self.inbox.lock().close(on);
        for source in self.brake.set(on, now) {
            machine.ports.wake(source);
        }
    }

    /// Lets go of the machine and writes its output. Returns whether another deadline has come.
    fn let_go(&self, owner: Owner<'_>) -> bool {
        let Owner { mut machine, now } = owner;
        let next = machine.next_deadline();
        let is_due = next <= now.as_nanos();
        if !is_due {
            self.arm(next);
        }
        // The thread's list is empty here; the machine gets it to reuse its memory.
        let mut touched = TOUCHED.take();
        std::mem::swap(&mut touched, &mut machine.ports.touched);
        let (links, dials) = machine.ports.take_links();
        let bag = machine.ports.take_bag();
        let questions = std::mem::take(&mut machine.ports.questions);
        drop(machine);
        if !questions.is_empty() {
            self.ask(questions);
        }
        self.flush_links(links, dials);
        self.post.deliver(bag);
        for port in touched.drain(..) {
            port.flush();
        }
        TOUCHED.set(touched);
        is_due
    }

    /// Moves the timer's deadline to `at`, nanoseconds, if that is earlier.
    fn arm(&self, at: u64) {
        if self.armed.fetch_min(at, Ordering::SeqCst) > at {
            self.rearm.notify_one();
        }
    }

    /// Waits for the armed deadline, or for an earlier one to be armed. Owns the machine if the
    /// deadline has come.
    async fn await_deadline(&self) {
        let rearmed = self.rearm.notified();
        let at = self.armed.load(Ordering::SeqCst);
        if at == NEVER {
            return rearmed.await;
        }
        let at = Time::from_nanos(at);
        if self.clock.now() < at {
            tokio::select! {
                () = rearmed => {}
                () = tokio::time::sleep_until(self.clock.instant(at)) => {}
            }
            return;
        }
        // Work that never ends must leave turns to the other tasks of this thread, and to reading.
        tokio::task::yield_now().await;
        // What is armed from now on is new; what was armed before is seen by the owner.
        self.armed.store(NEVER, Ordering::SeqCst);
        self.finish(self.wait_and_own());
    }
}

/// Calls the broker at its deadlines, as long as the runtime lives.
async fn keep_time(hub: Arc<Hub>) {
    loop {
        hub.await_deadline().await;
    }
}

mod end;
mod hear;
mod identity;
mod links;
mod profiles;
pub(super) mod sessions;

#[cfg(test)]
mod tests;
