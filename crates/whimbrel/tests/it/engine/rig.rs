//! Brokers on an engine, and clients of them.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use whimbrel_client::{Client, Event, Events, Message, Options, Publish, QoS, Subscription};
use whimbrel_lab::engine_servers::{EngineServers, EngineServersOptions, PROGRAM_VARIABLE, SERVERS};

use crate::common::{Ends, ready_logging, text, url_of, whimbrel};

/// For anything that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// The servers of an engine; `None`: there is no program.
pub fn servers(options: &EngineServersOptions) -> Option<EngineServers> {
    let Some(program) = std::env::var_os(PROGRAM_VARIABLE) else {
        println!("not tested: {PROGRAM_VARIABLE} is not set; `make test-engine` sets it");
        return None;
    };
    Some(EngineServers::start(Path::new(&program), options).expect("servers start"))
}

/// The command of a broker, with any free ports.
pub fn serve(servers: &EngineServers, name: &str, data: &Path) -> Command {
    serve_at(servers, "127.0.0.1:0", name, data)
}

/// The command of a broker whose clients come to an address.
pub fn serve_at(servers: &EngineServers, address: &str, name: &str, data: &Path) -> Command {
    let mut serve = whimbrel(&["serve", "--dev", "--listen-mqtt", address, "--name", name, "--data"]);
    serve.arg(data).args(["tls", "ws", "wss", "overlay"].map(|listener| format!("--listen-{listener}=off")));
    serve.args(["--listen-http=127.0.0.1:0", "--http-plain"]).args(servers.arguments()).stdin(Stdio::null());
    serve
}

/// A running broker.
pub struct Broker {
    pub process: Ends,
    pub url: String,
    http: String,
}

/// Starts a broker, and waits until it serves.
pub fn broker(command: Command) -> Broker {
    let (process, ready) = ready_logging(command, Stdio::inherit());
    let http = ready["http"].as_str().expect("its address").to_owned();
    Broker { process, url: url_of(&ready), http }
}

impl Broker {
    /// A metric without labels.
    pub async fn metric(&self, name: &str) -> f64 {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(&self.http).await.expect("it serves metrics");
        let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.expect("it is asked");
        let mut page = String::new();
        stream.read_to_string(&mut page).await.expect("it answers");
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().expect("a number")
    }

    /// Sends a signal to its process.
    pub fn signal(&self, signal: &str) {
        send_signal(self.process.0.id(), signal);
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.0.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "it still runs");
            // tidy: poll — the process has ended
            std::thread::park_timeout(LOOK);
        }
    }
}

/// Sends a signal to a process.
pub fn send_signal(process: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status();
    assert!(sent.expect("kill runs").success(), "the process is there");
}

/// Sends a signal to some of the servers.
pub fn signal_servers(servers: &EngineServers, numbers: std::ops::Range<usize>, signal: &str) {
    assert!(numbers.end <= SERVERS);
    numbers.for_each(|number| send_signal(servers.process(number).expect("it runs"), signal));
}

/// What a command that fails says, and its exit status.
pub fn refused(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("it starts");
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.code(), said)
}

/// A client with a session of an hour.
pub async fn client(url: &str, name: &str) -> (Client, Events) {
    let options = Options::new(url).client_id(name).clean_start(false).session_expiry(3600);
    Client::connect(options).await.expect("the broker is there")
}

/// Subscribes to everything below `orders/`.
pub async fn subscribe(client: &Client) {
    let answer = client.subscribe_to(&Subscription::to("orders/#").qos(QoS::ExactlyOnce)).await.expect("granted");
    assert!(answer.reasons.iter().all(|reason| !reason.is_error()), "{answer:?}");
}

/// Publishes orders with these numbers; each is acknowledged when this returns.
pub async fn publish(client: &Client, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let order = Publish::new("orders/new", number.to_string()).qos(QoS::ExactlyOnce);
        let published = client.publish(order).await.expect("acknowledged");
        assert!(!published.reason.is_error(), "{published:?}");
    }
}

/// The next message; `what`: which one it ought to be.
pub async fn message(events: &mut Events, what: &str) -> Message {
    match tokio::time::timeout(DEADLINE, events.next()).await {
        Ok(Some(Event::Message(message))) => message,
        other => panic!("{what} does not come: {other:?}"),
    }
}

/// Expects orders with these numbers, each once and in order.
pub async fn expect(events: &mut Events, numbers: std::ops::Range<u32>) {
    for number in numbers.clone() {
        let message = message(events, &format!("order {number} of {numbers:?}")).await;
        assert_eq!(String::from_utf8_lossy(&message.payload), number.to_string(), "{}", message.topic);
    }
}
