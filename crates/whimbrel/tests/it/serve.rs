//! `whimbrel serve` as its users meet it: the started binary.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(30);

/// CONNECT of MQTT 5 with client id "a" and a clean start.
const CONNECT: &[u8] = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a";

fn whimbrel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    // Nothing of the caller's surroundings counts.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WHIMBREL_")) {
        command.env_remove(name);
    }
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn serve() -> Command {
    let mut command = whimbrel();
    command.args(["serve", "--dev"]);
    for listener in ["mqtt", "tls", "ws", "wss", "http", "overlay"] {
        command.args([format!("--listen-{listener}"), "127.0.0.1:0".into()]);
    }
    command
}

/// A started broker. It is killed if the test fails before its end.
struct Broker {
    child: Child,
    stdout: BufReader<ChildStdout>,
    log: Lines<BufReader<ChildStderr>>,
    ready: serde_json::Value,
}

impl Broker {
    fn start(command: &mut Command) -> Broker {
        let mut child = command.spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let log = BufReader::new(child.stderr.take().expect("stderr is a pipe")).lines();
        let mut line = String::new();
        stdout.read_line(&mut line).expect("stdout is text");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in the ready line {line:?}"));
        Broker { child, stdout, log, ready }
    }

    fn connect(&self, listener: &str) -> TcpStream {
        let stream = TcpStream::connect(self.ready[listener].as_str().expect("the listener is open"));
        let stream = stream.expect("the listener accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline can be set");
        stream
    }

    fn client(&self) -> TcpStream {
        let mut client = self.connect("mqtt");
        client.write_all(CONNECT).expect("the connection is open");
        assert_eq!(packet(&mut client).expect("an answer to CONNECT").0, 0x20);
        client
    }

    fn get(&self, path: &str) -> String {
        let mut stream = self.connect("http");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("the connection is open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer in text");
        answer
    }

    /// Waits until the metrics have this line.
    fn metric(&self, line: &str) {
        let start = Instant::now();
        loop {
            let page = self.get("/metrics");
            if page.lines().any(|other| other == line) {
                return;
            }
            assert!(start.elapsed() < DEADLINE, "\"{line}\" is not among the metrics:\n{page}");
        }
    }

    /// Reads the log up to a line that has all of this.
    fn logs(&mut self, words: &[&str]) -> String {
        let mut lines = self.log.by_ref().map(|line| line.expect("the log is text"));
        let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("the log has ended without {words:?}"))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status().expect("kill is there");
        assert!(status.success(), "the broker is there");
    }

    /// Waits for the end: exit code, what is left of stdout and of the log.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut out = String::new();
        self.stdout.read_to_string(&mut out).expect("stdout is text");
        let err = self.log.by_ref().map(|line| line.expect("the log is text") + "\n").collect();
        (self.child.wait().expect("the broker ends").code(), out, err)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It has usually ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One packet with a length below 128: its first byte and its body. `None` at the end of the
/// stream.
fn packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; usize::from(head[1])];
    stream.read_exact(&mut body).ok()?;
    Some((head[0], body))
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn sigterm_drains_and_ends_well() {
    let broker = Broker::start(&mut serve());
    assert_eq!(broker.ready["ready"], true);
    for listener in ["tls", "ws", "wss"] {
        broker.connect(listener);
    }
    let mut client = broker.client();
    assert!(broker.get("/readyz").ends_with("ready\n"));
    broker.signal("TERM");
    let (first, body) = packet(&mut client).expect("a goodbye");
    assert_eq!((first, body[0]), (0xe0, 0x8b), "DISCONNECT, server shutting down");
    assert!(packet(&mut client).is_none());
    drop(client);
    let (code, out, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(out, "", "standard output has the ready line only");
    assert!(err.contains("drained"), "{err}");
}

#[test]
fn sigint_ends_and_sighup_and_sigusr1_do_not() {
    let mut broker = Broker::start(serve().args(["--log-format", "json"]));
    broker.signal("HUP");
    let answer = broker.log.by_ref().map(|line| line.expect("the log is text")).find(|line| line.contains("SIGHUP"));
    let line = answer.expect("a line about SIGHUP before the end of the log");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
    assert!(line["message"].as_str().is_some_and(|message| message.contains("no configuration file")), "{line}");
    broker.signal("USR1");
    let mut log = broker.log.by_ref().map(|line| line.expect("the log is text"));
    assert!(log.any(|line| line.contains("the system's clock is")), "SIGUSR1 is about the clock");
    drop(broker.client());
    broker.signal("INT");
    let (code, _, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
}

/// A client that gets more than its connection can hold, and does not read it.
fn deaf_client(broker: &Broker) -> TcpStream {
    let mut client = broker.client();
    client.write_all(b"\x82\x07\x00\x01\x00\x00\x01b\x00").expect("SUBSCRIBE to b");
    // PUBLISH to b with 1 MiB of body: the remaining length is 4 more.
    let message = [b"\x30\x84\x80\x40\x00\x01b\x00".as_slice(), &[0; 1 << 20]].concat();
    let start = Instant::now();
    loop {
        client.write_all(&message).expect("the broker reads");
        let page = broker.get("/metrics");
        let dropped = page.lines().find_map(|line| line.strip_prefix("whimbrel_dropped_slow_total "));
        // A first drop may come while the system's buffers still grow; 32 come only when nothing
        // moves any more.
        if dropped.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count >= 32) {
            return client;
        }
        assert!(start.elapsed() < DEADLINE, "too little was dropped: {page}");
    }
}

/// What a service manager is told.
struct Manager {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Manager {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(DEADLINE)).expect("a deadline can be set");
        Manager { directory, socket }
    }

    fn next(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a message in time");
        String::from_utf8(message[..length].to_vec()).expect("it is text")
    }

    /// The next that is more than a sign of life.
    fn news(&self) -> String {
        loop {
            let message = self.next();
            if message != "WATCHDOG=1\n" {
                return message;
            }
        }
    }
}

#[test]
fn a_service_manager_is_told_of_the_start_reloads_life_and_the_end() {
    let manager = Manager::new();
    let mut command = serve();
    command.env("NOTIFY_SOCKET", manager.directory.path().join("notify")).env("WATCHDOG_USEC", "100000");
    let broker = Broker::start(&mut command);
    assert!(manager.next().starts_with("READY=1\n"));
    assert!(broker.get("/readyz").ends_with("ready\n"));
    for _ in 0..3 {
        assert_eq!(manager.next(), "WATCHDOG=1\n");
    }
    broker.signal("HUP");
    let reloading = manager.news();
    let moment = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.trim_end().parse().ok());
    assert!(moment.is_some_and(|moment: u64| moment > 0), "{reloading}");
    assert!(manager.news().starts_with("READY=1\n"), "there is nothing to read, and whoever waits is told");
    broker.signal("TERM");
    assert!(manager.news().starts_with("STOPPING=1\n"));
    let (code, _, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_service_manager_that_is_gone_is_a_warning() {
    let mut command = serve();
    command.env("NOTIFY_SOCKET", "/nowhere/notify");
    let mut broker = Broker::start(&mut command);
    broker.logs(&["WARN", "NOTIFY_SOCKET"]);
    drop(broker.client());
}

#[test]
fn a_broker_that_is_refused_says_why_and_what_to_do() {
    let named = |name: &str, deployment: &str, peer: Option<&Broker>| {
        let mut command = serve();
        command.args(["--name", name, "--deployment", deployment]);
        if let Some(peer) = peer {
            command.args(["--peer", peer.ready["overlay"].as_str().expect("the overlay is open")]);
        }
        Broker::start(&mut command)
    };
    let north = named("north", "city", None);
    let mut second = named("north", "city", Some(&north));
    second.logs(&["WARN", "another broker has its name", "give each broker a --name of its own"]);
    let mut foreign = named("south", "harbour", Some(&north));
    foreign.logs(&["WARN", "it belongs to another deployment", "give both brokers the same --deployment"]);
}

#[test]
fn a_broker_whose_certificate_is_refused_says_why_and_what_to_do() {
    let place = tempfile::tempdir().expect("a directory");
    let run = |words: &str| {
        let mut command = whimbrel();
        command.current_dir(place.path()).args(words.split(' '));
        let (code, _, err) = text(&command.output().expect("the binary starts"));
        assert_eq!(code, Some(0), "{words}: {err}");
    };
    let broker = |name: &str, authority: &str, peer: Option<&Broker>| {
        run(&format!("cert ca --out {authority} --deployment city"));
        run(&format!("cert broker --ca {authority} --name {name} --out {authority}"));
        let mut command = whimbrel();
        command.current_dir(place.path()).args(["serve", "--listen-http", "off", "--listen-wss", "off"]);
        command.args(["--listen-tls", "127.0.0.1:0", "--listen-overlay", "127.0.0.1:0"]);
        command.args(["--tls-ca", &format!("{authority}/ca.pem")]);
        command.args(["--tls-cert", &format!("{authority}/broker-{name}.pem")]);
        command.args(["--tls-key", &format!("{authority}/broker-{name}.key")]);
        if let Some(peer) = peer {
            command.args(["--peer", peer.ready["overlay"].as_str().expect("the overlay is open")]);
        }
        Broker::start(&mut command)
    };
    let mut north = broker("north", "a", None);
    let mut south = broker("south", "b", Some(&north));
    let why = "the certificate is not of this deployment's authority";
    // The one that dials judges first, so it is the other one that is refused.
    south.logs(&["WARN", "another broker is refused", why]);
    north.logs(&["WARN", "another broker refuses this one", why, "give both brokers certificates of one authority"]);
}

#[test]
fn draining_is_bounded() {
    let broker = Broker::start(serve().args(["--drain-timeout", "50ms"]));
    let _client = deaf_client(&broker);
    broker.signal("TERM");
    let (code, _, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("connections are cut"), "{err}");
}

#[test]
fn a_second_signal_ends_draining() {
    let broker = Broker::start(serve().args(["--drain-timeout", "1h"]));
    let _client = deaf_client(&broker);
    broker.signal("TERM");
    let start = Instant::now();
    while !broker.get("/readyz").ends_with("draining\n") {
        assert!(start.elapsed() < DEADLINE, "it does not drain");
    }
    let mqtt = broker.ready["mqtt"].as_str().expect("an address");
    while TcpStream::connect(mqtt).is_ok() {
        assert!(start.elapsed() < DEADLINE, "it goes on accepting");
    }
    broker.signal("TERM");
    let (code, _, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("second signal"), "{err}");
}

#[test]
fn the_file_limit_is_raised_and_kept() {
    let mut command = Command::new("sh");
    let script = "ulimit -Sn 100 && ulimit -Hn 138 && exec \"$0\" serve --dev --listen-mqtt 127.0.0.1:0 --listen-http 127.0.0.1:0 \
                  --listen-tls off --listen-ws off --listen-wss off --listen-overlay off";
    command.args(["-c", script, env!("CARGO_BIN_EXE_whimbrel")]).current_dir(std::env::temp_dir());
    let broker = Broker::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(broker.ready.get("tls"), None);
    broker.metric("process_max_fds 138");
    broker.metric("whimbrel_connections_max 10");
    let kept: Vec<TcpStream> = (0..10).map(|_| broker.connect("mqtt")).collect();
    broker.metric("whimbrel_connections 10");
    for _ in 0..5 {
        let mut refused = broker.connect("mqtt");
        assert!(packet(&mut refused).is_none());
    }
    broker.metric("whimbrel_listener_failures_total{listener=\"mqtt\",cause=\"connection_limit\"} 5");
    drop(kept);
    broker.metric("whimbrel_connections 0");
    broker.client();
    broker.signal("TERM");
    let (code, _, err) = broker.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("files=138") && err.contains("limits.max_connections is reached"), "{err}");
}

#[test]
fn running_out_of_files_is_counted_and_survived() {
    let mut command = Command::new("sh");
    let script = "ulimit -n 24 && exec \"$0\" serve --dev --workers 1 --listen-mqtt 127.0.0.1:0 --listen-http 127.0.0.1:0 \
                  --listen-tls off --listen-ws off --listen-wss off --listen-overlay off";
    command.args(["-c", script, env!("CARGO_BIN_EXE_whimbrel")]).current_dir(std::env::temp_dir());
    let broker = Broker::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    // Idle HTTP connections take what files there are.
    let hogs: Vec<TcpStream> = (0..24).map(|_| broker.connect("http")).collect();
    let mut refused = broker.connect("mqtt");
    assert!(packet(&mut refused).is_none());
    drop(hogs);
    broker.metric("whimbrel_listener_failures_total{listener=\"mqtt\",cause=\"file_limit\"} 1");
    broker.client();
}

/// An option that loses data is not found by chance: it is in no help, needs `--dev` with its
/// meaning, and touches no journal.
#[test]
fn nothing_is_kept_only_where_that_is_asked_for_and_nothing_was_kept() {
    let serve = |arguments: &[&str]| {
        let mut command = whimbrel();
        let command = command.args(["serve", "--listen-mqtt", "127.0.0.1:0"]).args(arguments);
        let listeners = ["tls", "ws", "wss", "http", "overlay"].map(|listener| format!("--listen-{listener}=off"));
        command.args(listeners).output().expect("the binary starts")
    };
    let help = whimbrel().args(["serve", "--help"]).output().expect("the binary starts");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("keep-nothing"));
    let directory = tempfile::tempdir().expect("a folder");
    let data = directory.path().to_str().expect("a name in UTF-8");
    for missing in [&["--keep-nothing"][..], &["--keep-nothing", "--dev"], &["--keep-nothing", "--data", data]] {
        let refused = serve(missing);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("required"), "{missing:?}: {said}");
    }
    std::fs::create_dir(directory.path().join("journal")).expect("a folder");
    let refused = serve(&["--keep-nothing", "--dev", "--data", data]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("there is a journal in"), "{said}");
}

#[test]
fn without_dev_it_refuses() {
    let (code, out, err) = text(&whimbrel().arg("serve").output().expect("the binary starts"));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("does not start without --dev"), "{err}");
}

#[test]
fn variables_and_files_count() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("whimbrel.toml"), "dev = true\nname = \"file\"\n").expect("a file");
    let mut command = whimbrel();
    command.current_dir(directory.path()).args(["serve", "--check"]);
    assert_eq!(
        text(&command.output().expect("the binary starts")).0,
        Some(0),
        "the file in the working directory counts"
    );
    let (code, _, err) = text(&command.env("WHIMBREL_LISTEN_WS", "nowhere").output().expect("the binary starts"));
    assert_eq!(code, Some(2));
    assert!(err.contains("WHIMBREL_LISTEN_WS=nowhere"), "{err}");
    let (code, ..) = text(&command.args(["--listen-ws", "off"]).output().expect("the binary starts"));
    assert_eq!(code, Some(0), "the flag prevails over the variable");
}

#[test]
fn a_check_tells_what_is_allowed_and_probably_not_meant() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("users"), "").expect("a file");
    let file = directory.path().join("whimbrel.toml");
    std::fs::write(&file, "[identity]\npasswords = \"users\"\n").expect("a file");
    let check = whimbrel().args(["serve", "--check", "--config"]).arg(&file).output().expect("the binary starts");
    let (code, out, err) = text(&check);
    assert_eq!((code, out.as_str()), (Some(0), "the configuration is all right\n"));
    assert!(err.contains("warning: there is no [[rule]]"), "{err}");
}

#[test]
fn an_address_in_use_is_a_runtime_failure() {
    let broker = Broker::start(&mut serve());
    let taken = broker.ready["mqtt"].as_str().expect("the listener is open");
    let mut command = whimbrel();
    let (code, out, err) = text(&command.args(["serve", "--dev", "--listen-mqtt", taken]).output().expect("it starts"));
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains(&format!("Error: cannot listen on {taken} (`listen_mqtt`)")), "{err}");
}

#[test]
fn version_and_completions() {
    let (code, out, _) = text(&whimbrel().arg("version").output().expect("the binary starts"));
    assert_eq!(code, Some(0));
    assert!(out.starts_with(&format!("whimbrel {} (", env!("CARGO_PKG_VERSION"))), "{out}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = text(&whimbrel().args(["completions", shell]).output().expect("the binary starts"));
        assert_eq!(code, Some(0));
        assert!(out.contains("listen-mqtt"), "{shell}");
    }
}

/// A subscription whose cache was too small, and one that is promised nothing: what is lost is
/// counted by what was promised.
#[test]
fn losses_are_counted_by_what_was_promised() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (config, position) = (place.path().join("whimbrel.toml"), place.path().join("t.token"));
    std::fs::write(&config, "[[partition]]\nfilter = \"t\"\ncapacity = \"5 events\"\n").expect("a file");
    let broker = Broker::start(serve().arg("--config").arg(&config));
    let url = format!("mqtt://{}", broker.ready["mqtt"].as_str().expect("the listener is open"));
    let read = |count: &str| {
        let mut sub = whimbrel();
        sub.args(["sub", "--url", &url, "-q", "1", "t", "--count", count, "--token-file"]).arg(&position);
        sub.spawn().expect("it starts")
    };
    // One publisher, so one stream.
    let publish = |payloads: &str| {
        let lines = place.path().join("lines");
        std::fs::write(&lines, payloads).expect("a file");
        let mut publish = whimbrel();
        publish.args(["pub", "--url", &url, "-q", "1", "--id", "p", "t", "-"]);
        publish.stdin(std::fs::File::open(&lines).expect("a file"));
        assert!(publish.status().expect("it runs").success());
    };
    let first = read("1");
    broker.metric("whimbrel_subscriptions 1");
    publish("seen\n");
    let Output { status, stdout, .. } = first.wait_with_output().expect("it ends");
    assert!(status.success() && stdout == b"seen\n", "{stdout:?}");
    publish("0\n1\n2\n3\n4\n5\n6\n7\n");
    let Output { status, stdout, stderr } = read("1").wait_with_output().expect("it ends");
    assert!(status.success() && stdout == b"3\n", "{stdout:?}: {}", String::from_utf8_lossy(&stderr));
    let page = broker.get("/metrics");
    for line in [
        "whimbrel_class_gaps_total{class=\"semi_durable\",reason=\"overwritten\"} 1",
        "whimbrel_class_gaps_total{class=\"durable\",reason=\"overwritten\"} 0",
        "whimbrel_lost_total{class=\"semi_durable\"} 1",
        "whimbrel_lost_total{class=\"nondurable\"} 0",
        "whimbrel_lost_total{class=\"durable\"} 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in\n{page}");
    }
}
