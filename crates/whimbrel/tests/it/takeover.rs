//! A client closes its connection and connects again at once: what it sent over the old one is
//! handled first, at one broker with several threads, and from one broker to another.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Ends, ready_with, whimbrel};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// Connections one after the other at one broker, for each version of the protocol.
const ROUNDS: u32 = 300;

/// The same from one broker to the other and back.
const MOVES: u32 = 60;

/// A connection whose packets are written and read as bytes.
struct Wire {
    stream: TcpStream,
    is_v5: bool,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128, "one byte of length is enough here");
    [&[first, body.len() as u8][..], body].concat()
}

impl Wire {
    /// Connects with a session that outlives the connection, and the will `w/t`; whether the
    /// session was there.
    fn connect(address: &str, client_id: &str, is_v5: bool) -> (Wire, bool) {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a bound");
        stream.set_nodelay(true).expect("small packets go at once");
        let mut wire = Wire { stream, is_v5 };
        let mut body = text("MQTT");
        body.extend([if is_v5 { 5 } else { 4 }, 0b0000_0100, 0, 0]);
        if is_v5 {
            // Session expiry 60 s.
            body.extend([5, 0x11, 0, 0, 0, 60]);
        }
        body.extend(text(client_id));
        if is_v5 {
            body.push(0);
        }
        body.extend([text("w/t"), text("will")].concat());
        wire.write(&packet(0x10, &body));
        let (first, connack) = wire.read();
        assert_eq!((first, connack[1]), (0x20, 0), "a CONNACK that accepts");
        (wire, connack[0] == 1)
    }

    fn subscribe(&mut self, filter: &str) {
        let mut body = vec![0, 1];
        if self.is_v5 {
            body.push(0);
        }
        body.extend(text(filter));
        body.push(0);
        self.write(&packet(0x82, &body));
        assert_eq!(self.read().0, 0x90, "SUBACK");
    }

    fn publish(&self, topic: &str, payload: &str) -> Vec<u8> {
        let mut body = text(topic);
        if self.is_v5 {
            body.push(0);
        }
        body.extend(payload.as_bytes());
        packet(0x30, &body)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
    }

    /// The next packet: its first byte and its body.
    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).expect("a packet");
        let mut length = usize::from(head[1] & 0x7f);
        if head[1] >= 128 {
            let mut more = [0];
            self.stream.read_exact(&mut more).expect("a packet");
            length += usize::from(more[0]) << 7;
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a packet");
        (head[0], body)
    }

    /// The topic and the payload of the next message.
    fn message(&mut self) -> (String, String) {
        let (first, body) = self.read();
        assert_eq!(first & 0xf0, 0x30, "a message");
        let (topic, rest) = body[2..].split_at(usize::from(body[1]));
        let rest = if self.is_v5 { &rest[1 + usize::from(rest[0])..] } else { rest };
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        (string(topic), string(rest))
    }

    /// The payloads of all messages up to this one; none of them is a will.
    fn payloads_upto(&mut self, last: &str) -> Vec<String> {
        let mut payloads = Vec::new();
        while payloads.last().is_none_or(|payload| payload != last) {
            let (topic, payload) = self.message();
            assert_ne!(topic, "w/t", "the will of a client that has said goodbye, after {payloads:?}");
            payloads.push(payload);
        }
        payloads
    }
}

/// A broker with two threads for its clients.
struct Broker {
    _process: Ends,
    ready: Value,
    _place: TempDir,
}

impl Broker {
    fn start(name: &str, peers: &[&str]) -> Broker {
        let place = tempfile::tempdir().expect("a temporary directory");
        let mut serve = whimbrel(&["serve", "--dev", "--name", name, "--workers", "2", "--overlay-links", "0"]);
        serve.args(["--listen-tls=off", "--listen-ws=off", "--listen-wss=off", "--listen-http=off"]);
        serve.args(["--listen-mqtt", "127.0.0.1:0", "--listen-overlay", "127.0.0.1:0"]);
        for peer in peers {
            serve.args(["--peer", peer]);
        }
        serve.arg("--control").arg(place.path().join("control.sock")).current_dir(place.path());
        let (process, ready) = ready_with(serve);
        Broker { _process: process, ready, _place: place }
    }

    fn mqtt(&self) -> &str {
        self.ready["mqtt"].as_str().expect("its address")
    }

    fn overlay(&self) -> &str {
        self.ready["overlay"].as_str().expect("its address")
    }
}

#[test]
fn a_client_that_says_goodbye_and_is_back_at_once_has_said_all_of_it() {
    let broker = Broker::start("one", &[]);
    let (mut listener, _) = Wire::connect(broker.mqtt(), "listener", true);
    listener.subscribe("w/#");
    for is_v5 in [false, true] {
        for round in 0..ROUNDS {
            let (mut client, is_present) = Wire::connect(broker.mqtt(), "x", is_v5);
            assert!(is_present || (round, is_v5) == (0, false), "round {round}");
            let last = [client.publish("w/p", &round.to_string()), packet(0xe0, &[])].concat();
            client.write(&last);
        }
        let expected: Vec<String> = (0..ROUNDS).map(|round| round.to_string()).collect();
        assert_eq!(listener.payloads_upto(&(ROUNDS - 1).to_string()), expected);
    }
}

#[test]
fn a_session_that_a_client_ends_is_not_there_when_it_is_back_at_once() {
    let broker = Broker::start("one", &[]);
    for round in 0..ROUNDS {
        let (mut client, is_present) = Wire::connect(broker.mqtt(), "x", true);
        assert!(!is_present, "round {round}");
        // DISCONNECT with session expiry 0.
        client.write(&packet(0xe0, &[0, 5, 0x11, 0, 0, 0, 0]));
    }
}

/// Two linked brokers, and a listener at the first that hears what is published at the second.
fn linked() -> (Broker, Broker, Wire) {
    let one = Broker::start("one", &[]);
    let two = Broker::start("two", &[one.overlay()]);
    let (mut listener, _) = Wire::connect(one.mqtt(), "listener", true);
    listener.subscribe("w/#");
    let (mut probe, _) = Wire::connect(two.mqtt(), "probe", true);
    listener.stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a bound");
    let (begun, probed) = (Instant::now(), probe.publish("w/p", "linked"));
    while listener.stream.peek(&mut [0]).is_err() {
        assert!(begun.elapsed() < DEADLINE, "the brokers are linked");
        probe.write(&probed);
    }
    listener.stream.set_read_timeout(Some(DEADLINE)).expect("a bound");
    probe.write(&[probe.publish("w/p", "begin"), packet(0xe0, &[])].concat());
    listener.payloads_upto("begin");
    (one, two, listener)
}

#[test]
fn a_client_that_says_goodbye_at_one_broker_and_is_at_another_at_once_has_said_all_of_it() {
    let (one, two, mut listener) = linked();
    for round in 0..MOVES {
        let broker = if round % 2 == 0 { &one } else { &two };
        let (mut client, is_present) = Wire::connect(broker.mqtt(), "x", true);
        assert_eq!(is_present, round > 0, "round {round}");
        let last = [client.publish("w/p", &round.to_string()), packet(0xe0, &[])].concat();
        client.write(&last);
    }
    let (mut client, _) = Wire::connect(two.mqtt(), "last", true);
    client.write(&client.publish("w/p", "end"));
    // No order holds between best-effort messages of several brokers.
    let mut awaited: BTreeSet<String> = (0..MOVES).map(|round| round.to_string()).chain(["end".to_owned()]).collect();
    while !awaited.is_empty() {
        let (topic, payload) = listener.message();
        assert_ne!(topic, "w/t", "the will of a client that has said goodbye; {awaited:?} are awaited");
        assert!(awaited.remove(&payload), "{payload} twice");
    }
}

#[test]
fn a_session_that_a_client_ends_at_one_broker_is_not_there_at_another_at_once() {
    let (one, two, _listener) = linked();
    for round in 0..MOVES {
        let broker = if round % 2 == 0 { &one } else { &two };
        let (mut client, is_present) = Wire::connect(broker.mqtt(), "x", true);
        assert!(!is_present, "round {round}");
        client.write(&packet(0xe0, &[0, 5, 0x11, 0, 0, 0, 0]));
    }
}
