//! A broker and its clients' connections in virtual time, moved by hand: for tests of single
//! behaviours.
//!
//! There is no delay: bytes of a client are handled before [`Rig::send`] returns, and the answers
//! can be read at once. Time stands still until [`Rig::advance`].
//!
//! ```no_run
//! use whimbrel_sim::rig::Rig;
//! use whimbrel_sim::speech::{Hello, Message};
//! use mqtt_protocol_core::mqtt::packet::Qos;
//!
//! let mut rig = Rig::new(Default::default(), 1);
//! let console = rig.connect(Hello::v5("console"));
//! let bus = rig.connect(Hello::v311("bus"));
//! rig.subscribe(console, "fleet/+/position", Qos::AtLeastOnce);
//! rig.publish(bus, Message::new("fleet/7/position", "60.17,24.94"));
//! assert_eq!(rig.messages(console)[0].text(), "60.17,24.94");
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Packet, Qos};
use whimbrel_core::cache::Plan;
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, LOW_WATER, MqttBroker, Origin, Output, READ_OUT_BYTES, Stats, Unread};

use crate::packets::{greeted_version, next_packet};
use crate::plain_ways;
use crate::speech::{Heard, Hello, Message, Said, Wanted};

/// Where the rig's clock starts: 2026-01-01 00:00:00 UTC.
pub const START: Time = Time::from_nanos(1_767_225_600_000_000_000);

/// The version that brokers report in all worlds: no digest depends on the release.
pub(crate) const VERSION: &str = "simulated";

/// The number of times that a broker may be told of deadlines, or of drained connections, at one
/// moment.
const CALLS_AT_ONCE_MAX: u32 = 100_000;

/// A broker with connections to it.
pub struct Rig {
    broker: MqttBroker,
    wires: Wires,
    now: Time,
    next_conn: u32,
}

/// One connection, as the client sees it.
#[derive(Default)]
struct Wire {
    /// The version in the CONNECT that was sent over it.
    version: Option<Version>,
    /// The first bytes sent, until they tell the version.
    greeting: Vec<u8>,
    received: Vec<u8>,
    /// The number of bytes in `received` that were returned as packets.
    decoded: usize,
    /// Bytes accepted from the broker while the client does not read.
    backlog: Vec<u8>,
    stalled: bool,
    /// Whether the broker is to be told when the backlog is low.
    notify: bool,
    /// Whether the broker closes the connection once the backlog is written.
    closing: bool,
    /// Whether either side has closed.
    closed: bool,
    /// Whether the client has closed and the broker has not handled all its bytes: the connection
    /// is closed when it has.
    lingers: bool,
    /// Holds the client's bytes until [`Rig::read`].
    socket: Option<Socket>,
}

/// Bytes that a client has sent and its broker has not read.
#[derive(Default)]
struct Socket {
    unread: Vec<u8>,
    /// Whether the end of the stream follows these bytes.
    ended: bool,
    /// Whether the bytes are not read even if the broker wants them.
    is_stuck: bool,
}

#[derive(Default)]
struct Wires {
    open: BTreeMap<ConnId, Wire>,
    /// Connections that are to be read to their end.
    to_read_out: Vec<ConnId>,
    /// Connections that were sent to during this call of the broker.
    sent: BTreeSet<ConnId>,
}

impl Wires {
    fn of(&mut self, conn: ConnId) -> &mut Wire {
        self.open.get_mut(&conn).expect("the broker speaks of connections that were opened")
    }
}

impl Output for Wires {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        assert!(self.sent.insert(conn), "a second send to {conn:?} in one call of the broker");
        let wire = self.of(conn);
        if wire.lingers {
            return bytes.clear();
        }
        assert!(!wire.closed && !wire.closing, "the broker sends to {conn:?}, which is closed");
        if wire.stalled { wire.backlog.append(bytes) } else { wire.received.append(bytes) }
    }

    fn close(&mut self, conn: ConnId) {
        let wire = self.of(conn);
        if core::mem::take(&mut wire.lingers) {
            return;
        }
        assert!(!wire.closed && !wire.closing, "the broker closes {conn:?}, which is closed");
        wire.closing = true;
        wire.closed = wire.backlog.is_empty();
    }

    fn backlog(&self, conn: ConnId) -> usize {
        self.open[&conn].backlog.len()
    }

    fn notify_drained(&mut self, conn: ConnId) {
        self.of(conn).notify = true;
    }

    fn read_out(&mut self, conn: ConnId) -> Unread {
        let Some(socket) = &self.open[&conn].socket else { return Unread::Nothing };
        if socket.unread.is_empty() && !socket.ended {
            return Unread::Nothing;
        }
        if !socket.is_stuck {
            self.to_read_out.push(conn);
        }
        Unread::Coming
    }
}

impl Rig {
    /// A fresh broker without connections. All its randomness comes from the seed.
    pub fn new(config: Config, seed: u64) -> Self {
        let broker = plain_ways::set_up(MqttBroker::new(config, seed, START));
        Rig { broker, wires: Wires::default(), now: START, next_conn: 0 }
    }

    /// The present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The broker's own counters.
    pub fn stats(&self) -> Stats {
        self.broker.stats()
    }

    /// Opens a connection; nothing has been sent over it. Connections are never reused, so the
    /// bytes received on a closed one can still be read.
    pub fn open(&mut self, origin: Origin) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.wires.open.insert(conn, Wire::default());
        self.handle(Input::Opened { conn, origin });
        conn
    }

    /// Sends bytes to the broker. Bytes sent over a closed connection are lost.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        let wire = self.wires.of(conn);
        if wire.version.is_none() {
            wire.greeting.extend_from_slice(bytes);
            wire.version = greeted_version(&wire.greeting);
        }
        if wire.closed || wire.closing {
            return;
        }
        match &mut wire.socket {
            Some(socket) => socket.unread.extend_from_slice(bytes),
            None => self.handle(Input::Bytes { conn, bytes }),
        }
    }

    /// Holds a client's bytes in its socket from now on, until [`Rig::read`], or until the broker
    /// wants them.
    pub fn hold(&mut self, conn: ConnId) {
        self.wires.of(conn).socket = Some(Socket::default());
    }

    /// As [`Rig::hold`], but the broker does not get the bytes that it wants.
    pub fn hold_fast(&mut self, conn: ConnId) {
        self.wires.of(conn).socket = Some(Socket { is_stuck: true, ..Socket::default() });
    }

    /// The broker reads at most `most` bytes of a held socket, and the end of the stream if it is
    /// next.
    pub fn read(&mut self, conn: ConnId, most: usize) {
        let wire = self.wires.of(conn);
        let Some(socket) = &mut wire.socket else { return };
        let bytes: Vec<u8> = socket.unread.drain(..most.min(socket.unread.len())).collect();
        let is_end = socket.unread.is_empty() && core::mem::take(&mut socket.ended);
        let is_heard = |wire: &Wire| !wire.closed && !wire.closing;
        if !bytes.is_empty() && is_heard(wire) {
            self.handle(Input::Bytes { conn, bytes: &bytes });
        }
        if is_end && is_heard(self.wires.of(conn)) {
            self.hang_up(conn);
        }
    }

    /// The client's end of a connection is gone, and the broker learns of it.
    fn hang_up(&mut self, conn: ConnId) {
        let wire = self.wires.of(conn);
        (wire.closed, wire.lingers) = (true, true);
        self.handle(Input::Closed { conn });
        self.wires.of(conn).lingers &= self.broker.is_open(conn);
    }

    /// Gives the broker the bytes that it wants of held sockets.
    fn read_out(&mut self) {
        while let Some(conn) = self.wires.to_read_out.pop() {
            self.read(conn, READ_OUT_BYTES);
            let wire = self.wires.of(conn);
            let is_whole = wire.socket.as_ref().is_none_or(|socket| socket.unread.is_empty());
            if !wire.closed && !wire.closing {
                self.handle(Input::ReadOut { conn, is_whole });
            }
        }
    }

    /// Sends bytes one at a time.
    pub fn send_bytewise(&mut self, conn: ConnId, bytes: &[u8]) {
        for byte in bytes {
            self.send(conn, core::slice::from_ref(byte));
        }
    }

    /// Sends a packet in the connection's protocol version.
    pub fn say(&mut self, conn: ConnId, said: &Said) {
        let bytes = match said {
            Said::Connect(hello) => said.encode(hello.version),
            _ => said.encode(self.version(conn)),
        };
        self.send(conn, &bytes);
    }

    /// The protocol version of the CONNECT that was sent; MQTT 5 if there was none or it was
    /// neither.
    pub fn version(&self, conn: ConnId) -> Version {
        self.wires.open[&conn].version.unwrap_or(Version::V5_0)
    }

    /// All bytes that the client has received, from the first on.
    pub fn received(&self, conn: ConnId) -> &[u8] {
        &self.wires.open[&conn].received
    }

    /// The packets received since the last call. An incomplete packet stays for the next call.
    ///
    /// # Panics
    /// When the bytes are not well-formed packets.
    pub fn packets(&mut self, conn: ConnId) -> Vec<Packet> {
        let version = self.version(conn);
        let wire = self.wires.of(conn);
        let mut packets = Vec::new();
        loop {
            match next_packet(version, &wire.received, &mut wire.decoded) {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => return packets,
                Err(malformed) => panic!("the broker sent what is no packet on {conn:?}: {malformed}"),
            }
        }
    }

    /// As [`Rig::packets`], in a form that is the same for both protocol versions.
    pub fn heard(&mut self, conn: ConnId) -> Vec<Heard> {
        self.packets(conn).into_iter().map(Heard::from).collect()
    }

    /// The one packet received since the last call.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub fn heard_one(&mut self, conn: ConnId) -> Heard {
        let mut heard = self.heard(conn);
        assert_eq!(heard.len(), 1, "one packet on {conn:?}: {heard:?}");
        heard.remove(0)
    }

    /// The messages received since the last call.
    ///
    /// # Panics
    /// When something else was received too.
    pub fn messages(&mut self, conn: ConnId) -> Vec<Message> {
        let message = |heard| match heard {
            Heard::Publish(message) => message,
            other => panic!("messages only on {conn:?}, not {other:?}"),
        };
        self.heard(conn).into_iter().map(message).collect()
    }

    /// Whether the connection is closed, by either side. The broker's close takes effect after the
    /// bytes that it sent were read.
    pub fn is_closed(&self, conn: ConnId) -> bool {
        self.wires.open[&conn].closed
    }

    /// The client closes without DISCONNECT: end of stream or reset. Nothing happens if the broker
    /// has closed already.
    pub fn close(&mut self, conn: ConnId) {
        let wire = self.wires.of(conn);
        if wire.closed || wire.closing {
            wire.closed = true;
            return;
        }
        match &mut wire.socket {
            Some(socket) => socket.ended = true,
            None => self.hang_up(conn),
        }
    }

    /// The client stops reading: the broker's bytes wait from now on.
    pub fn stall(&mut self, conn: ConnId) {
        self.wires.of(conn).stalled = true;
    }

    /// Bytes that wait for a client that does not read.
    pub fn backlog(&self, conn: ConnId) -> usize {
        self.wires.backlog(conn)
    }

    /// A stalled client reads up to `count` of the bytes that wait.
    pub fn read_some(&mut self, conn: ConnId, count: usize) {
        let wire = self.wires.of(conn);
        let count = count.min(wire.backlog.len());
        wire.received.extend(wire.backlog.drain(..count));
        self.settle(conn);
    }

    /// The client reads everything that waits, and continues to read.
    pub fn unstall(&mut self, conn: ConnId) {
        self.wires.of(conn).stalled = false;
        self.read_some(conn, usize::MAX);
    }

    /// Moves time forward, and calls the broker at each of its deadlines.
    ///
    /// # Panics
    /// When the broker's deadlines do not move on.
    pub fn advance(&mut self, span: Duration) {
        let until = self.now.after(span);
        let mut at_once = 0;
        while let Some((due, reason)) = self.broker.next_deadline().filter(|(due, _)| *due <= until) {
            at_once = if due > self.now { 0 } else { at_once + 1 };
            assert!(at_once < CALLS_AT_ONCE_MAX, "the deadline {reason:?} of {due:?} stays");
            self.now = self.now.max(due);
            self.handle(Input::Deadline);
        }
        self.now = until;
    }

    /// Divides the cache anew.
    pub fn divide(&mut self, plan: &Plan) {
        self.handle(Input::Cache(plan));
    }

    /// The broker itself, for inspection.
    pub fn broker(&self) -> &MqttBroker {
        &self.broker
    }

    /// When the broker next acts by itself.
    pub fn next_deadline(&self) -> Option<Time> {
        self.broker.next_deadline().map(|(at, _)| at)
    }

    /// The server shuts down at once.
    pub fn drain(&mut self) {
        self.drain_within(Duration::ZERO);
    }

    /// The server shuts down, and its clients have this long to receive what they are owed.
    pub fn drain_within(&mut self, within: Duration) {
        self.handle(Input::Drain { within });
    }

    fn handle(&mut self, input: Input<'_>) {
        self.wires.sent.clear();
        self.broker.handle(self.now, input, &mut self.wires);
        let low = |wire: &Wire| wire.notify && !wire.closing && !wire.closed && wire.backlog.len() <= LOW_WATER;
        let mut rounds = 0;
        while let Some(conn) = self.wires.open.iter().find(|(_, wire)| low(wire)).map(|(conn, _)| *conn) {
            rounds += 1;
            assert!(rounds < CALLS_AT_ONCE_MAX, "the broker keeps waiting for {conn:?}, which has drained");
            self.wires.of(conn).notify = false;
            self.wires.sent.clear();
            self.broker.handle(self.now, Input::Drained { conn }, &mut self.wires);
        }
        self.read_out();
    }

    /// After a client has read: performs the close that waited for it, or tells the broker that the
    /// backlog is low.
    fn settle(&mut self, conn: ConnId) {
        let wire = self.wires.of(conn);
        if wire.closing {
            wire.closed |= wire.backlog.is_empty();
        } else if wire.notify && !wire.closed && wire.backlog.len() <= LOW_WATER {
            wire.notify = false;
            self.handle(Input::Drained { conn });
            if !self.wires.of(conn).stalled {
                self.read_some(conn, usize::MAX);
            }
        }
    }

    /// Opens a connection and sends a CONNECT; the CONNACK waits to be read.
    pub fn greet(&mut self, hello: Hello) -> ConnId {
        let conn = self.open(Origin::Tcp);
        self.say(conn, &Said::Connect(hello));
        conn
    }

    /// Connects and reads the CONNACK.
    ///
    /// # Panics
    /// When the broker refuses, or sends more than CONNACK (a session with waiting messages: use
    /// [`Rig::greet`]).
    pub fn connect(&mut self, hello: Hello) -> ConnId {
        let conn = self.greet(hello);
        match self.heard_one(conn) {
            Heard::Connack { code: 0, .. } => conn,
            other => panic!("a CONNACK that accepts, not {other:?}"),
        }
    }

    /// Subscribes to one filter without options and reads the SUBACK; retained messages wait to be
    /// read.
    ///
    /// # Panics
    /// When the broker does not grant it as asked.
    pub fn subscribe(&mut self, conn: ConnId, filter: &str, qos: Qos) {
        let codes = self.subscribe_all(conn, 0, vec![Wanted::new(filter, qos)]);
        assert_eq!(codes, [qos as u8], "{filter} is granted");
    }

    /// Subscribes with options, reads the SUBACK, and returns its codes. `identifier` 0 is none.
    ///
    /// # Panics
    /// When another packet than the SUBACK comes first.
    pub fn subscribe_all(&mut self, conn: ConnId, identifier: u32, wanted: Vec<Wanted>) -> Vec<u8> {
        let asked = 65_000;
        self.say(conn, &Said::Subscribe { id: asked, identifier, selector: None, terms: vec![], wanted });
        match self.next(conn) {
            Some(Heard::Suback { id, codes, .. }) if id == asked => codes,
            other => panic!("a SUBACK, not {other:?}"),
        }
    }

    /// Publishes; the answer, if any, waits to be read.
    pub fn publish(&mut self, conn: ConnId, message: Message) {
        self.say(conn, &Said::Publish(message));
    }

    /// The next packet, if a complete one is there.
    ///
    /// # Panics
    /// When the bytes are not a well-formed packet.
    pub fn next(&mut self, conn: ConnId) -> Option<Heard> {
        let version = self.version(conn);
        let wire = self.wires.of(conn);
        next_packet(version, &wire.received, &mut wire.decoded)
            .unwrap_or_else(|malformed| panic!("the broker sent what is no packet on {conn:?}: {malformed}"))
            .map(Heard::from)
    }
}
