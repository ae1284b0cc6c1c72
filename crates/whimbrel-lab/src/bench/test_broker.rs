//! A minimal broker for tests of the generator: MQTT 3.1.1 over loopback, with faults on demand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::target::Target;
use super::transport::Transport;
use super::wire::Protocol;

/// The broker's fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// Drops every n-th message.
    DropEvery(u64),
    /// Delivers every n-th message twice.
    RepeatEvery(u64),
}

/// The broker's counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Messages it received.
    pub published: u64,
    /// Messages it sent to subscribers.
    pub delivered: u64,
    /// The most messages in one read of one publisher.
    pub most_on_the_way: u64,
}

#[derive(Default)]
struct Shared {
    subscribers: Vec<(Vec<u8>, TcpStream)>,
    seen: Seen,
    connections: Vec<JoinHandle<()>>,
}

/// A running broker.
pub struct TestBroker {
    target: Target,
    shared: Arc<Mutex<Shared>>,
    acceptor: JoinHandle<()>,
}

impl TestBroker {
    /// Starts on a free port.
    pub fn start(fault: Fault) -> TestBroker {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Mutex::new(Shared::default()));
        let state = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepting");
                let mut first = [0];
                if stream.read(&mut first).expect("reading") == 0 {
                    return; // `stop` connects and sends nothing
                }
                let shared = Arc::clone(&state);
                let connection = std::thread::spawn(move || serve(stream, first[0], &shared, fault));
                state.lock().expect("no panic").connections.push(connection);
            }
        });
        TestBroker {
            target: Target { address, protocol: Protocol::Mqtt311, transport: Transport::Tcp },
            shared,
            acceptor,
        }
    }

    /// Its address.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Waits until all clients have gone.
    pub fn stop(self) -> Seen {
        drop(TcpStream::connect(self.target.address).expect("still accepting"));
        self.acceptor.join().expect("the acceptor ends");
        let connections = std::mem::take(&mut self.shared.lock().expect("no panic").connections);
        for connection in connections {
            connection.join().expect("a connection ends");
        }
        self.shared.lock().expect("no panic").seen
    }
}

/// Serves one client until it closes. `first` is its first byte.
fn serve(mut stream: TcpStream, first: u8, shared: &Mutex<Shared>, fault: Fault) {
    let mut bytes = vec![first];
    let mut chunk = vec![0; 65_536];
    loop {
        let Ok(read @ 1..) = stream.read(&mut chunk) else { return };
        bytes.extend_from_slice(&chunk[..read]);
        let mut at = 0;
        let mut answers = Vec::new();
        let mut published = 0;
        while let Some((header, length)) = packet_length(&bytes[at..]) {
            let packet = &bytes[at..at + header + length];
            let rest = &packet[header..];
            at += packet.len();
            match packet[0] >> 4 {
                1 => answers.extend_from_slice(&[0x20, 2, 0, 0]),
                8 => {
                    answers.extend_from_slice(&[0x90, 3, rest[0], rest[1], rest[length - 1]]);
                    let topic = rest[4..length - 1].to_vec();
                    let writer = stream.try_clone().expect("a second handle");
                    shared.lock().expect("no panic").subscribers.push((topic, writer));
                }
                3 => {
                    published += 1;
                    let topic = &rest[2..2 + usize::from(rest[1])];
                    if packet[0] & 0x06 != 0 {
                        answers.extend_from_slice(&[0x40, 2, rest[2 + topic.len()], rest[3 + topic.len()]]);
                    }
                    deliver(packet, topic, shared, fault);
                }
                _ => {}
            }
        }
        bytes.drain(..at);
        let most = &mut shared.lock().expect("no panic").seen.most_on_the_way;
        *most = published.max(*most);
        if stream.write_all(&answers).is_err() {
            return;
        }
    }
}

fn deliver(packet: &[u8], topic: &[u8], shared: &Mutex<Shared>, fault: Fault) {
    let mut shared = shared.lock().expect("no panic");
    shared.seen.published += 1;
    let copies = match fault {
        Fault::DropEvery(n) if shared.seen.published.is_multiple_of(n) => 0,
        Fault::RepeatEvery(n) if shared.seen.published.is_multiple_of(n) => 2,
        _ => 1,
    };
    let Shared { subscribers, seen, .. } = &mut *shared;
    for (wanted, stream) in subscribers {
        for _ in 0..copies {
            if wanted == topic && stream.write_all(packet).is_ok() {
                seen.delivered += 1;
            }
        }
    }
}

/// The lengths of the fixed header and of the rest of the packet at the start of `bytes`, if it is
/// complete.
fn packet_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for index in 0..4 {
        let byte = *bytes.get(1 + index)?;
        length |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let header = 2 + index;
            return (bytes.len() >= header + length).then_some((header, length));
        }
    }
    None
}
