//! The broker, its connections and its journal, as the machine's owner has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use whimbrel_core::{Channel, Delivery, EventStep, HangUp, PeerInput, PeerLink};
use whimbrel_event::{AcceptedEvent, HostId, Time};
use whimbrel_mqtt::{ConnId, Credentials, Decision, Input, MqttBroker, Output, TurnedAway, Unread};

use crate::access::audit::Record;
use crate::access::{Access, Asked};
use crate::logging::Throttle;
use crate::overlay;
use crate::store::Store;
use crate::telemetry::Tracer;

use super::inbox::{self, PIECE, Piece, Source};
use super::port::{self, Port};
use super::post::Bag;

/// After this many inputs while no other input waited, the next is handled whole: output in pieces
/// costs up to a fifth more.
const CALM_INPUTS: u32 = 256;

/// Period in which refusals of connections with the same reason are logged at most once, and
/// refusals of messages at most once.
const LOG_PERIOD: Duration = Duration::from_secs(5);

/// For [`Machine::next_deadline`]: there is no deadline.
pub(super) const NEVER: u64 = u64::MAX;

/// The broker and the connections that its output goes to.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) broker: MqttBroker,
    pub(super) ports: Ports,
    /// Inputs since one had to wait, at most [`CALM_INPUTS`].
    pub(super) calm: u32,
    /// The journal, if there is one.
    pub(super) store: Option<Box<Store>>,
}

/// Connections and links, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ports {
    slots: Vec<Option<Arc<Port>>>,
    free: Vec<u32>,
    /// Connections that have ended; the broker closes them when it has handled what they sent.
    abandoned: BTreeSet<ConnId>,
    /// Connections that got output since the last flush.
    pub(super) touched: Vec<Arc<Port>>,
    /// The links to other brokers, by their numbers.
    links: Vec<Option<Slot>>,
    free_links: Vec<u32>,
    /// Links that got output since the last flush.
    touched_links: Vec<Arc<overlay::Port>>,
    /// Addresses of brokers that are to be dialled, since the last flush.
    dials: Vec<String>,
    /// Questions and answers of other brokers since the last flush.
    bag: Bag,
    /// The broker's questions about clients since the last flush, at most one for each connection.
    pub(super) questions: Vec<Question>,
    /// Throttles of the log of connections that got no session, by reason code.
    turned_away: BTreeMap<u8, Throttle>,
    /// Records refusals.
    pub(super) access: Option<Arc<Access>>,
    /// Throttle of the log of refused messages.
    refusals: Refusals,
    /// Makes traces, if there is a collector.
    pub(super) tracer: Option<Box<Tracer>>,
}

#[derive(Debug)]
struct Refusals(Throttle);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Throttle::new(LOG_PERIOD))
    }
}

/// A question for the identity of a connection's client.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) conn: ConnId,
    /// The broker's name for the question.
    pub(super) ticket: u64,
    pub(super) asked: Asked,
}

/// A link to another broker.
#[derive(Debug)]
struct Slot {
    port: Arc<overlay::Port>,
    /// The core has let go of the link.
    is_hung_up: bool,
}

impl Ports {
    /// Adds a connection and returns its number.
    pub(super) fn admit(&mut self, port: Arc<Port>) -> ConnId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some(port);
        ConnId(id)
    }

    /// Frees the number of a connection that has ended.
    fn free(&mut self, conn: ConnId) {
        if let Some(tracer) = &mut self.tracer {
            tracer.gone(conn);
        }
        self.slots[conn.0 as usize] = None;
        self.free.push(conn.0);
    }

    /// Marks a connection that has ended before the broker has handled all that it sent; the broker
    /// closes it then.
    fn abandon(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.abandon();
        }
        self.abandoned.insert(conn);
    }

    /// Connections with a certificate for which `judge` returns a value, each with that value.
    pub(super) fn with_certificates<T>(&self, judge: impl Fn(&[CertificateDer<'_>]) -> Option<T>) -> Vec<(ConnId, T)> {
        let judged = |port: &Port| port.caller().known.as_ref().and_then(|(_, shown)| judge(shown));
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(port, id)| Some((ConnId(id), judged(port.as_deref()?)?))).collect()
    }

    /// Address of a connection's client; empty if it is not known.
    fn from(&self, conn: ConnId) -> String {
        let address = self.port(conn).and_then(|port| port.caller().address);
        address.map(|address| address.to_string()).unwrap_or_default()
    }

    pub(super) fn port(&self, conn: ConnId) -> Option<&Arc<Port>> {
        self.slots.get(conn.0 as usize).and_then(Option::as_ref)
    }
}

impl Ports {
    /// Adds a link and returns its number.
    pub(super) fn admit_link(&mut self, port: Arc<overlay::Port>) -> PeerLink {
        let id = self.free_links.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() as u32 - 1
        });
        self.links[id as usize] = Some(Slot { port, is_hung_up: false });
        PeerLink(id)
    }

    /// Numbers that no link has.
    #[cfg(test)]
    pub(super) fn free_links(&self) -> &[u32] {
        &self.free_links
    }

    /// Records the name that the broker at the other end of a link has told.
    pub(super) fn name_link(&self, link: PeerLink, name: &str) {
        if let Some(slot) = self.link(link) {
            slot.port.name_peer(name);
        }
    }

    fn link(&self, link: PeerLink) -> Option<&Slot> {
        self.links.get(link.0 as usize).and_then(Option::as_ref)
    }

    /// A link that the core has not let go of; its output goes out at the next flush.
    fn touch(&mut self, link: PeerLink) -> Option<&mut Slot> {
        let slot = self.links.get_mut(link.0 as usize)?.as_mut().filter(|slot| !slot.is_hung_up)?;
        if !self.touched_links.last().is_some_and(|last| Arc::ptr_eq(last, &slot.port)) {
            self.touched_links.push(slot.port.clone());
        }
        Some(slot)
    }

    /// Links with output, and addresses to dial, since the last call.
    pub(super) fn take_links(&mut self) -> (Vec<Arc<overlay::Port>>, Vec<String>) {
        (std::mem::take(&mut self.touched_links), std::mem::take(&mut self.dials))
    }

    /// Questions and answers of other brokers since the last call.
    pub(super) fn take_bag(&mut self) -> Bag {
        std::mem::take(&mut self.bag)
    }

    /// All links that the core has not let go of.
    pub(super) fn open_links(&self) -> Vec<Arc<overlay::Port>> {
        let open = self.links.iter().flatten().filter(|slot| !slot.is_hung_up);
        open.map(|slot| slot.port.clone()).collect()
    }

    /// Frees the number of a link whose task has ended. Returns whether the core is still to be
    /// told.
    fn end_link(&mut self, link: PeerLink) -> bool {
        let slot = self.links[link.0 as usize].take().expect("a link ends once");
        self.free_links.push(link.0);
        !slot.is_hung_up
    }

    /// Wakes the task of a connection or a link.
    pub(super) fn wake(&self, source: Source) {
        match source {
            Source::Conn(conn) => self.port(conn).into_iter().for_each(|port| port.wake()),
            Source::Link(link) => self.link(link).into_iter().for_each(|slot| slot.port.wake()),
        }
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
        if self.abandoned.remove(&conn) {
            return self.free(conn);
        }
        if let Some(port) = self.port(conn).cloned() {
            port.close();
            self.touched.push(port);
        }
    }

    fn read_out(&mut self, conn: ConnId) -> Unread {
        // An abandoned connection has no task: nothing more is read.
        let Some(port) = self.port(conn).filter(|_| !self.abandoned.contains(&conn)) else { return Unread::Nothing };
        port.ask_to_read_out();
        Unread::Coming
    }

    fn backlog(&self, conn: ConnId) -> usize {
        self.port(conn).map_or(0, |port| port.backlog())
    }

    fn hold(&mut self, conn: ConnId, span: Duration) {
        if let Some(port) = self.port(conn) {
            port.hold(span);
        }
    }

    fn pause(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.pause();
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.resume();
        }
    }

    fn identify(&mut self, conn: ConnId, ticket: u64, credentials: Credentials<'_>) {
        let (user, client_id) = (credentials.user_name.map(ToOwned::to_owned), Some(credentials.client_id.to_owned()));
        let asked =
            Asked { user, password: credentials.password.to_vec(), is_bearer: false, from: self.from(conn), client_id };
        self.questions.push(Question { conn, ticket, asked });
    }

    fn turned_away(&mut self, conn: ConnId, refusal: &TurnedAway<'_>) {
        let TurnedAway { client_id, code, why } = *refusal;
        let throttle = self.turned_away.entry(code).or_insert_with(|| Throttle::new(LOG_PERIOD));
        if let Some(more) = throttle.pass(Instant::now()) {
            let (from, code) = (self.from(conn), format!("0x{code:02x}"));
            tracing::warn!(from, client_id, code, why, more, "a client is not let in");
        }
    }

    fn refused(&mut self, conn: ConnId, decision: &Decision<'_>) {
        let Some(access) = &self.access else { return };
        let from = self.from(conn);
        let Decision { action, principal, client_id, about, code, why } = *decision;
        if action == "publish"
            && let Some(more) = self.refusals.0.pass(Instant::now())
        {
            tracing::warn!(%from, client_id, topic = about, code, more, "a message was refused: {why}");
        }
        let code = Some(code.into());
        let event = "refused";
        access.audit().note(&Record { event, action, principal, client_id, about, from: &from, code, why });
    }

    fn notify_drained(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.notify_drained();
        }
    }

    fn peer_bytes(&mut self, link: PeerLink, channel: Channel, bytes: &[u8]) -> usize {
        self.touch(link).map_or(0, |slot| slot.port.send(channel, bytes))
    }

    fn peer_hang_up(&mut self, link: PeerLink, why: HangUp) {
        if let Some(slot) = self.touch(link) {
            slot.port.hang_up(why);
            slot.is_hung_up = true;
        }
    }

    fn peer_dial(&mut self, _name: &str, address: &str) {
        if self.dials.len() < overlay::LINKS_MAX {
            self.dials.push(address.to_owned());
        }
    }

    fn wants_steps(&self) -> bool {
        self.tracer.is_some()
    }

    fn step(&mut self, now: Time, event: &AcceptedEvent<'_>, step: EventStep) {
        if let Some(tracer) = &mut self.tracer {
            tracer.step(now, event, step);
        }
    }

    fn delivered(&mut self, now: Time, conn: ConnId, delivery: &Delivery<'_>) {
        if let Some(tracer) = &mut self.tracer {
            tracer.delivered(now, conn, delivery);
        }
    }

    fn settled(&mut self, now: Time, conn: ConnId, tag: u16, is_refused: bool) {
        if let Some(tracer) = &mut self.tracer {
            tracer.settled(now, conn, tag, is_refused);
        }
    }

    fn copy_used(&mut self, client: &str, age: Duration) {
        tracing::debug!(client, age_ms = age.as_millis() as u64, "a session goes on from a copy");
    }

    fn asked(&mut self, from: HostId, number: u64, question: &str) {
        Bag::put(&mut self.bag.asked, from, number, question);
    }

    fn answered(&mut self, from: HostId, number: u64, answer: &str) {
        Bag::put(&mut self.bag.answered, from, number, answer);
    }
}

impl Machine {
    pub(super) fn new(broker: MqttBroker, store: Option<Box<Store>>) -> Machine {
        Machine { broker, ports: Ports::default(), calm: CALM_INPUTS, store }
    }

    pub(super) fn bytes(&mut self, now: Time, source: Source, channel: Option<Channel>, bytes: &[u8]) {
        match (source, channel) {
            (Source::Conn(conn), _) => self.broker.handle(now, Input::Bytes { conn, bytes }, &mut self.ports),
            (Source::Link(link), Some(channel)) => self.peer(now, link, PeerInput::Bytes { link, channel, bytes }),
            (Source::Link(_), None) => unreachable!("what comes over a link comes in a channel"),
        }
    }

    /// Gives the core an input of a link, unless the core has let go of it.
    pub(super) fn peer(&mut self, now: Time, link: PeerLink, input: PeerInput<'_>) {
        if self.ports.link(link).is_some_and(|slot| !slot.is_hung_up) {
            self.broker.handle(now, Input::Peer(input), &mut self.ports);
        }
    }

    /// Bytes that the next input may have before the owner looks whether other input waits.
    pub(super) fn at_once(&mut self) -> usize {
        if self.calm == CALM_INPUTS {
            return usize::MAX;
        }
        self.calm += 1;
        PIECE
    }

    pub(super) fn apply(&mut self, now: Time, source: Source, input: inbox::Input) {
        match (source, input) {
            (_, inbox::Input::Bytes(channel, bytes)) => {
                self.bytes(now, source, channel, &bytes);
                port::give_back(bytes);
            }
            (Source::Conn(conn), inbox::Input::Drained) => {
                self.broker.handle(now, Input::Drained { conn }, &mut self.ports);
            }
            (Source::Conn(conn), inbox::Input::ReadOut { is_whole }) => {
                self.broker.handle(now, Input::ReadOut { conn, is_whole }, &mut self.ports);
            }
            (Source::Link(link), inbox::Input::Room(channel, unsent)) => {
                self.peer(now, link, PeerInput::Room { link, channel, unsent });
            }
            (Source::Link(link), inbox::Input::Packets(sent, lost)) => {
                self.peer(now, link, PeerInput::Packets { link, sent, lost });
            }
            (Source::Conn(conn), inbox::Input::Gone { tell }) => {
                if tell {
                    self.broker.handle(now, Input::Closed { conn }, &mut self.ports);
                }
                if self.broker.is_open(conn) {
                    self.ports.abandon(conn);
                } else {
                    self.ports.free(conn);
                }
            }
            (Source::Link(link), inbox::Input::Gone { .. }) => {
                if self.ports.end_link(link) {
                    self.broker.handle(now, Input::Peer(PeerInput::Closed { link }), &mut self.ports);
                }
            }
            (Source::Conn(_), inbox::Input::Room(..) | inbox::Input::Packets(..))
            | (Source::Link(_), inbox::Input::Drained | inbox::Input::ReadOut { .. }) => {
                unreachable!("a connection drains and is read out, a link has room and counts packets")
            }
        }
    }

    pub(super) fn apply_piece(&mut self, now: Time, piece: Piece) {
        self.apply(now, piece.source, piece.input);
        if piece.held {
            self.ports.wake(piece.source);
        }
    }

    /// Tells the broker the journal's reports.
    pub(super) fn hear(&mut self, now: Time) {
        if let Some(store) = &mut self.store {
            store.tell(&mut self.broker, now, &mut self.ports);
        }
    }

    pub(super) fn meet_deadline(&mut self, now: Time) {
        if self.broker.next_deadline().is_some_and(|(at, _)| at <= now) {
            self.broker.handle(now, Input::Deadline, &mut self.ports);
        }
    }

    /// Gives the journal the broker's writes.
    pub(super) fn submit(&mut self, now: Time) {
        if let Some(store) = &mut self.store {
            store.submit(&mut self.broker, now, &mut self.ports);
        }
    }

    /// The next deadline in nanoseconds, of the broker or of writes that the journal did not take,
    /// or [`NEVER`].
    pub(super) fn next_deadline(&self) -> u64 {
        let deadline = self.broker.next_deadline().map_or(NEVER, |(at, _)| at.as_nanos());
        let retry = self.store.as_ref().and_then(|store| store.retry_at());
        retry.map_or(deadline, |at| deadline.min(at.as_nanos()))
    }
}
