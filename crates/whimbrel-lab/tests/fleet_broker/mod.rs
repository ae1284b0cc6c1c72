//! The broker's state machine behind a listener of this test, with someone between it and its
//! clients who may drop, repeat, swap or change what it sends, or cut a connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_event::Time;
use whimbrel_mqtt::codec::{self, Packet, Publish, Version};
use whimbrel_mqtt::{Config, ConnId, Input, Limits, MqttBroker, Origin, Output};

const LARGEST: usize = 1 << 20;
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// What becomes of a PUBLISH to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Pass,
    Drop,
    Twice,
    /// After the client's next PUBLISH on the same topic.
    Later,
    /// With another body.
    Alter,
    /// Not at all, and nothing else either: the connection is cut.
    Cut,
    /// Delivered, but the connection is cut before the client's answer is read.
    CutAfter,
}

/// Decides the fate of each PUBLISH by the client's identifier.
pub type Meddler = Box<dyn FnMut(&str, &Publish<'_>) -> Fate + Send>;

enum Incoming {
    Opened(TcpStream),
    Bytes(u32, Vec<u8>),
    Closed(u32),
}

/// Starts the broker; it ends with the task.
pub async fn start(meddler: Meddler) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (incoming, inbox) = mpsc::channel(1_024);
    let accepted = incoming.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if accepted.send(Incoming::Opened(stream)).await.is_err() {
                return;
            }
        }
    });
    Ok((address, tokio::spawn(drive(meddler, inbox, incoming))))
}

async fn drive(meddler: Meddler, mut inbox: mpsc::Receiver<Incoming>, incoming: mpsc::Sender<Incoming>) {
    let start = Instant::now();
    let now = || Time::from_nanos(1_000_000_000) + start.elapsed();
    // Without aliases each PUBLISH can be understood, and left out, alone.
    let limits = Limits { topic_alias_out_maximum: 0, ..Limits::default() };
    let mut broker = MqttBroker::new(Config { limits, sys_interval: None, ..Config::default() }, 1, now());
    let mut clients = Clients { meddler, open: HashMap::new() };
    let mut next = 0;
    loop {
        let nap = broker.next_deadline().map_or(LONGEST_NAP, |(at, _)| at.since(now()).min(LONGEST_NAP));
        match timeout(nap, inbox.recv()).await {
            Err(_) => {}
            Ok(None) => return,
            Ok(Some(Incoming::Opened(stream))) => {
                next += 1;
                clients.open.insert(next, Client::new(stream, next, incoming.clone()));
                broker.handle(now(), Input::Opened { conn: ConnId(next), origin: Origin::Tcp }, &mut clients);
            }
            Ok(Some(Incoming::Bytes(conn, bytes))) => {
                let client = clients.open.get_mut(&conn).filter(|client| !client.cut);
                let Some(client) = client else { continue };
                client.learn_id(&bytes);
                broker.handle(now(), Input::Bytes { conn: ConnId(conn), bytes: &bytes }, &mut clients);
            }
            Ok(Some(Incoming::Closed(conn))) => {
                if clients.open.remove(&conn).is_some() {
                    broker.handle(now(), Input::Closed { conn: ConnId(conn) }, &mut clients);
                }
            }
        }
        if broker.next_deadline().is_some_and(|(at, _)| at <= now()) {
            broker.handle(now(), Input::Deadline, &mut clients);
        }
    }
}

struct Clients {
    meddler: Meddler,
    open: HashMap<u32, Client>,
}

struct Client {
    id: String,
    out: mpsc::UnboundedSender<Vec<u8>>,
    /// A PUBLISH held back, with its topic.
    held: Option<(String, Vec<u8>)>,
    cut: bool,
}

impl Client {
    fn new(stream: TcpStream, conn: u32, incoming: mpsc::Sender<Incoming>) -> Client {
        let (mut read, write) = stream.into_split();
        let (out, queue) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4_096];
            while let Ok(length @ 1..) = read.read(&mut buffer).await {
                if incoming.send(Incoming::Bytes(conn, buffer[..length].to_vec())).await.is_err() {
                    return;
                }
            }
            drop(incoming.send(Incoming::Closed(conn)).await);
        });
        tokio::spawn(write_all(write, queue));
        Client { id: String::new(), out, held: None, cut: false }
    }

    /// The first bytes of a client are its CONNECT, in one piece on loopback.
    fn learn_id(&mut self, bytes: &[u8]) {
        if let Ok(Some(frame)) = codec::frame(bytes, LARGEST)
            && let Ok(Packet::Connect(connect)) = codec::decode(Version::V5, frame.first_byte, frame.body)
        {
            self.id = connect.client_id.to_owned();
        }
    }
}

async fn write_all(mut write: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    // No more bytes, or an empty piece, close the connection.
    while let Some(bytes) = queue.recv().await.filter(|bytes| !bytes.is_empty()) {
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
    drop(write.shutdown().await);
}

impl Output for Clients {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        let Some(client) = self.open.get_mut(&conn.0).filter(|client| !client.cut) else { return };
        let (mut rest, mut sent) = (&bytes[..], Vec::new());
        while let Ok(Some(frame)) = codec::frame(rest, LARGEST) {
            let packet = frame.whole;
            let publish = match codec::decode(Version::V5, frame.first_byte, frame.body) {
                Ok(Packet::Publish(publish)) => Some(publish),
                _ => None,
            };
            let topic = publish.map(|publish| publish.topic.to_owned()).unwrap_or_default();
            let fate = publish.map_or(Fate::Pass, |publish| (self.meddler)(&client.id, &publish));
            match fate {
                Fate::Pass => sent.extend_from_slice(packet),
                Fate::Drop => {}
                Fate::Twice => sent.extend([packet, packet].concat()),
                Fate::Later => client.held = Some((topic.clone(), packet.to_owned())),
                Fate::Alter => {
                    sent.extend_from_slice(packet);
                    let digit = sent.iter().rposition(u8::is_ascii_digit).expect("a body has digits");
                    sent[digit] = if sent[digit] == b'5' { b'6' } else { b'5' };
                }
                Fate::Cut => client.cut = true,
                Fate::CutAfter => {
                    sent.extend_from_slice(packet);
                    client.cut = true;
                }
            }
            if fate == Fate::Pass
                && let Some((_, held)) = client.held.take_if(|(held, _)| *held == topic)
            {
                sent.extend(held);
            }
            rest = &rest[frame.whole.len()..];
            if client.cut {
                break;
            }
        }
        bytes.clear();
        if !sent.is_empty() {
            drop(client.out.send(sent));
        }
        if client.cut {
            drop(client.out.send(Vec::new()));
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.open.remove(&conn.0);
    }

    fn backlog(&self, _: ConnId) -> usize {
        0
    }

    fn notify_drained(&mut self, _: ConnId) {
        unreachable!("there never is a backlog")
    }
}
