//! A broker to talk to: the real state machine behind a loopback listener, with the least driver
//! that does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use whimbrel_event::Time;
use whimbrel_mqtt::{Config, ConnId, Input, MqttBroker, Origin, Output};

/// Bytes for a connection; empty: close it.
type Outbox = mpsc::UnboundedSender<Vec<u8>>;

#[derive(Default)]
struct Outboxes(HashMap<u32, Outbox>);

impl Output for Outboxes {
    fn send(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        if let Some(outbox) = self.0.get(&conn.0) {
            let _ = outbox.send(std::mem::take(bytes));
        }
    }
    fn close(&mut self, conn: ConnId) {
        if let Some(outbox) = self.0.get(&conn.0) {
            let _ = outbox.send(Vec::new());
        }
    }
    fn backlog(&self, _: ConnId) -> usize {
        0
    }
    fn notify_drained(&mut self, _: ConnId) {}
}

struct Machine {
    broker: MqttBroker,
    outboxes: Outboxes,
    opened: u32,
    start: Instant,
}

impl Machine {
    fn handle(&mut self, input: Input<'_>) {
        let now = Time::from_nanos(1).after(self.start.elapsed());
        self.broker.handle(now, input, &mut self.outboxes);
        // Catching up takes several turns, all of them due at once.
        while self.broker.next_deadline().is_some_and(|(due, _)| due <= now) {
            self.broker.handle(now, Input::Deadline, &mut self.outboxes);
        }
    }
}

/// A broker on a port of its own.
#[derive(Clone)]
pub struct TestBroker {
    machine: Arc<Mutex<Machine>>,
    pub address: SocketAddr,
}

impl TestBroker {
    pub async fn start(config: Config) -> TestBroker {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let broker = MqttBroker::new(config, 1, Time::from_nanos(1));
        let machine = Machine { broker, outboxes: Outboxes::default(), opened: 0, start: Instant::now() };
        let test = TestBroker { machine: Arc::new(Mutex::new(machine)), address };
        let serving = test.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        test
    }

    fn with<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        f(&mut self.machine.lock().expect("the broker does not panic"))
    }

    async fn serve(self, stream: TcpStream) {
        let (mut read, mut write) = stream.into_split();
        let (outbox, mut inbox) = mpsc::unbounded_channel();
        let conn = self.with(|machine| {
            machine.opened += 1;
            let conn = ConnId(machine.opened);
            machine.outboxes.0.insert(conn.0, outbox);
            machine.handle(Input::Opened { conn, origin: Origin::Tcp });
            conn
        });
        let mut chunk = vec![0; 4096];
        loop {
            tokio::select! {
                read = read.read(&mut chunk) => match read {
                    Ok(0) | Err(_) => break self.with(|machine| machine.handle(Input::Closed { conn })),
                    Ok(bytes) => self.with(|machine| machine.handle(Input::Bytes { conn, bytes: &chunk[..bytes] })),
                },
                bytes = inbox.recv() => match bytes {
                    Some(bytes) if !bytes.is_empty() => { let _ = write.write_all(&bytes).await; }
                    _ => break,
                },
            }
        }
        self.with(|machine| machine.outboxes.0.remove(&conn.0));
    }

    /// Cuts all connections without a word, as a broken network does.
    pub fn cut_all(&self) {
        self.with(|machine| {
            for (conn, outbox) in std::mem::take(&mut machine.outboxes.0) {
                machine.handle(Input::Closed { conn: ConnId(conn) });
                let _ = outbox.send(Vec::new());
            }
        });
    }
}
