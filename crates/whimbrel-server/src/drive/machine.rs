//! The broker, its connections and its journal, as whoever owns them has them.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_event::Time;
use whimbrel_mqtt::{Broker, ConnId, Input, Output};

use crate::store::Store;

use super::inbox::{self, PIECE, Piece};
use super::port::{self, Port};

/// After so many inputs during which nobody waited, the next is handled whole: output that comes in pieces costs up to a fifth more.
const CALM_INPUTS: u32 = 256;

/// For [`Machine::next_deadline`]: there is none.
pub(super) const NEVER: u64 = u64::MAX;

/// The broker and the connections that its output goes to.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) broker: Broker,
    pub(super) ports: Ports,
    /// Inputs since somebody waited, at most [`CALM_INPUTS`].
    pub(super) calm: u32,
    /// The journal, if there is one.
    pub(super) store: Option<Box<Store>>,
}

/// The connections, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ports {
    slots: Vec<Option<Arc<Port>>>,
    free: Vec<u32>,
    /// Connections that got something since the last flush.
    pub(super) touched: Vec<Arc<Port>>,
}

impl Ports {
    /// A number for a new connection.
    pub(super) fn admit(&mut self, port: Arc<Port>) -> ConnId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some(port);
        ConnId(id)
    }

    pub(super) fn port(&self, conn: ConnId) -> Option<&Arc<Port>> {
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

    fn notify_drained(&mut self, conn: ConnId) {
        if let Some(port) = self.port(conn) {
            port.notify_drained();
        }
    }
}

impl Machine {
    pub(super) fn new(broker: Broker, store: Option<Box<Store>>) -> Machine {
        Machine { broker, ports: Ports::default(), calm: CALM_INPUTS, store }
    }

    pub(super) fn bytes(&mut self, now: Time, conn: ConnId, bytes: &[u8]) {
        self.broker.handle(now, Input::Bytes { conn, bytes }, &mut self.ports);
    }

    /// How many bytes the next input may have without a look at who waits.
    pub(super) fn at_once(&mut self) -> usize {
        if self.calm == CALM_INPUTS {
            return usize::MAX;
        }
        self.calm += 1;
        PIECE
    }

    pub(super) fn apply(&mut self, now: Time, conn: ConnId, input: inbox::Input) {
        match input {
            inbox::Input::Bytes(bytes) => {
                self.bytes(now, conn, &bytes);
                port::give_back(bytes);
            }
            inbox::Input::Drained => self.broker.handle(now, Input::Drained { conn }, &mut self.ports),
            inbox::Input::Gone { tell } => {
                if tell {
                    self.broker.handle(now, Input::Closed { conn }, &mut self.ports);
                }
                self.ports.slots[conn.0 as usize] = None;
                self.ports.free.push(conn.0);
            }
        }
    }

    pub(super) fn apply_piece(&mut self, now: Time, piece: Piece) {
        self.apply(now, piece.conn, piece.input);
        if piece.held
            && let Some(port) = self.ports.port(piece.conn)
        {
            port.wake();
        }
    }

    /// Tells the broker what the journal has told.
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

    /// Gives the journal what the broker wants written.
    pub(super) fn submit(&mut self, now: Time) {
        if let Some(store) = &mut self.store {
            store.submit(&mut self.broker, now, &mut self.ports);
        }
    }

    /// The next deadline, of the broker or of what the journal did not take, in nanoseconds, or [`NEVER`].
    pub(super) fn next_deadline(&self) -> u64 {
        let deadline = self.broker.next_deadline().map_or(NEVER, |(at, _)| at.as_nanos());
        let retry = self.store.as_ref().and_then(|store| store.retry_at());
        retry.map_or(deadline, |at| deadline.min(at.as_nanos()))
    }
}
