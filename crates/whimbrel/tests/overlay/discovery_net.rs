//! Brokers that find each other, and clients that find them, by multicast DNS: in a network
//! namespace of its own for each test, so that tests neither hear each other nor send anything to
//! the network of this machine. As the tests of [`crate::net`], only when asked for and as root.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::net::{is_asked_for, run, run_all};

/// For anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(60);

/// A network namespace, with loopback alone at first; it ends with this value.
struct Namespace {
    name: String,
    files: TempDir,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = run(&["ip", "netns", "del", &self.name]);
    }
}

impl Namespace {
    /// The namespace of a test, where there can be one; else it says why not.
    fn make(test: &str) -> Option<Namespace> {
        if !is_asked_for() {
            return None;
        }
        let name = format!("whimbrel-{}-{test}", std::process::id());
        let namespace = Namespace { name, files: tempfile::tempdir().expect("a temporary directory") };
        let name = &*namespace.name;
        let made = run_all(&[&["ip", "netns", "add", name], &["ip", "-n", name, "link", "set", "lo", "up"]]);
        if let Err(error) = made {
            println!("skipped: no network namespaces can be made here (it takes root and ip): {error}");
            return None;
        }
        Some(namespace)
    }

    /// Joins two namespaces by virtual Ethernet, with the addresses 10.214.0.1 and 10.214.0.2.
    fn join(&self, other: &Namespace) -> Result<(), String> {
        let (a, b) = (self.name.as_str(), other.name.as_str());
        run(&["ip", "link", "add", "eth", "netns", a, "type", "veth", "peer", "name", "eth", "netns", b])?;
        for (name, address) in [(a, "10.214.0.1/24"), (b, "10.214.0.2/24")] {
            run_all(&[
                &["ip", "-n", name, "addr", "add", address, "dev", "eth"],
                &["ip", "-n", name, "link", "set", "eth", "up"],
            ])?;
        }
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, env!("CARGO_BIN_EXE_whimbrel")]).args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WHIMBREL_")) {
            command.env_remove(name);
        }
        command.current_dir(self.files.path());
        command
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command runs")
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What a command says on both streams. It is repeated until that `is_right`: a search that is
    /// over too soon on a busy machine has not found everything.
    fn until_says(&self, arguments: &[&str], is_right: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let output = self.ask(arguments);
            let said = text(&output.stdout) + &text(&output.stderr);
            if is_right(&said) {
                return said;
            }
            assert!(began.elapsed() < DEADLINE, "{arguments:?}: {said}");
        }
    }

    /// The brokers that a search finds; it is repeated until these are their names.
    fn finds(&self, arguments: &[&str], names: &[&str]) -> Vec<Value> {
        let found = |said: &str| -> Vec<Value> {
            let answer: Value = serde_json::from_str(said).expect("it is JSON");
            answer["brokers"].as_array().expect("a list").clone()
        };
        let are_right = |said: &str| found(said).iter().map(|broker| &broker["name"]).eq(names);
        found(&self.until_says(&[&["discover", "--json"], arguments].concat(), are_right))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A broker of a namespace.
struct Running<'a> {
    namespace: &'a Namespace,
    name: String,
    process: Child,
    ready: Value,
    _out: BufReader<ChildStdout>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Running<'a> {
    /// A broker on loopback.
    fn start(namespace: &'a Namespace, name: &str, arguments: &[&str]) -> Running<'a> {
        Running::start_at(namespace, "127.0.0.1:0", name, arguments)
    }

    fn start_at(namespace: &'a Namespace, mqtt: &str, name: &str, arguments: &[&str]) -> Running<'a> {
        let log = File::create(namespace.files.path().join(format!("{name}.log"))).expect("a log");
        let socket = format!("{name}.sock");
        let off = ["tls", "ws", "wss", "http"].map(|listener| format!("--listen-{listener}=off"));
        let off: Vec<&str> = off.iter().map(String::as_str).collect();
        let own = ["serve", "--dev", "--name", name, "--listen-mqtt", mqtt, "--control", &socket];
        let alone = ["--overlay-links", "0", "--log-level", "debug"];
        let mut process = namespace
            .command(&[&own[..], &off, &alone, arguments].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let mut out = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        let ready = serde_json::from_str(&line).unwrap_or(Value::Null);
        let broker = Running { namespace, name: name.to_owned(), process, ready, _out: out };
        assert!(broker.ready["mqtt"].is_string(), "{}", broker.log());
        broker
    }

    fn log(&self) -> String {
        let path: PathBuf = self.namespace.files.path().join(format!("{}.log", self.name));
        text(&std::fs::read(path).unwrap_or_default())
    }

    fn status(&self) -> Value {
        let socket = format!("{}.sock", self.name);
        let answer = self.namespace.says(&["status", "--own", "--json", "--control", &socket]);
        serde_json::from_str(&answer).expect("it is JSON")
    }

    /// Waits until its status is so.
    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{what}: {status}\n{}", self.log());
        }
    }

    /// Waits until its log has a text.
    fn until_logged(&self, words: &str) {
        self.until(words, |_| self.log().contains(words));
    }

    /// SIGTERM, and its end.
    fn end(mut self) {
        run(&["kill", "-TERM", &self.process.id().to_string()]).expect("it is asked to end");
        assert!(self.process.wait().expect("it ends").success(), "{}", self.log());
    }
}

fn reaches(brokers: u64) -> impl Fn(&Value) -> bool {
    move |status| status["brokers_reachable"] == brokers
}

const OPEN: [&str; 3] = ["--discover", "--listen-overlay", "127.0.0.1:0"];

#[test]
fn brokers_of_a_deployment_find_each_other_and_clients_find_them() {
    let Some(namespace) = Namespace::make("found") else { return };
    let of = |deployment| [&OPEN[..], &["--deployment", deployment]].concat();
    let north = Running::start(&namespace, "north", &of("city"));
    let harbour = Running::start(&namespace, "harbour", &of("city"));
    let stranger = Running::start(&namespace, "stranger", &of("village"));
    north.until("a link", reaches(2));
    harbour.until("a link", reaches(2));
    // A broker of another deployment is seen, and not dialled.
    north.until_logged("other_deployment");
    stranger.until_logged("other_deployment");
    assert_eq!(stranger.status()["brokers_known"], 1);
    assert_eq!(north.status()["brokers_known"], 2);

    // By deployment and name.
    let found = namespace.finds(&[], &["harbour", "north", "stranger"]);
    assert_eq!(found[1]["address"], north.ready["mqtt"]);
    let row = format!("stranger  {}  village", stranger.ready["mqtt"].as_str().expect("an address"));
    namespace.until_says(&["discover", "--for", "1s", "--deployment", "village"], |said| {
        said.lines().count() == 2 && said.contains(&row)
    });

    // A message that is published at whichever broker is found comes to all of the deployment.
    let publish = ["pub", "-q", "1", "--retain", "--url", "mqtt+discover://city", "fleet/7", "52.2,21.0"];
    namespace.until_says(&publish, |said| said.starts_with("2 brokers were found; harbour of the deployment city"));
    let url = format!("mqtt://{}", north.ready["mqtt"].as_str().expect("an address"));
    assert_eq!(namespace.says(&["sub", "--count", "1", "--within", "30", "--url", &url, "fleet/#"]), "52.2,21.0\n");
    let nowhere = namespace.ask(&["pub", "--url", "mqtt+discover://desert", "fleet/7", "x"]);
    let said = text(&nowhere.stderr);
    assert!(!nowhere.status.success() && said.contains("no broker of the deployment \"desert\" was found"), "{said}");

    // A broker that ends withdraws what it announced; the others dial it no more.
    harbour.end();
    north.until("nothing found", |status| status["peers"].as_array().is_some_and(Vec::is_empty));
    assert!(north.log().contains("announced no more"), "{}", north.log());
    namespace.finds(&["--deployment", "city"], &["north"]);
}

#[test]
fn a_broker_that_comes_back_is_found_again() {
    let Some(namespace) = Namespace::make("again") else { return };
    // The name of `zulu` is the greater one: `alpha` dials. It comes back at other ports.
    let alpha = Running::start(&namespace, "alpha", &OPEN);
    let zulu = Running::start(&namespace, "zulu", &OPEN);
    alpha.until("a link", reaches(2));
    let is_found = |status: &Value| status["peers"].as_array().is_some_and(|peers| !peers.is_empty());
    alpha.until("found", |status| is_found(status) && status["peers"][0]["found"] == true);
    zulu.until("found", |status| is_found(status) && status["peers"][0]["reached"] == true);
    zulu.end();
    alpha.until("no link", reaches(1));
    let zulu = Running::start(&namespace, "zulu", &OPEN);
    alpha.until("a link again", reaches(2));
    zulu.until("a link again", reaches(2));
}

#[test]
fn brokers_on_loopback_do_not_find_each_other_unasked() {
    let Some(namespace) = Namespace::make("unasked") else { return };
    let asked = Running::start(&namespace, "asked", &OPEN);
    let unasked = Running::start(&namespace, "unasked", &["--listen-overlay", "127.0.0.1:0"]);
    namespace.finds(&[], &["asked"]);
    for broker in [&asked, &unasked] {
        assert_eq!(broker.status()["brokers_known"], 1);
    }
}

#[test]
fn brokers_at_private_addresses_find_each_other_unasked() {
    let (Some(here), Some(there)) = (Namespace::make("here"), Namespace::make("there")) else { return };
    here.join(&there).expect("two namespaces can be joined");
    let places = [(&here, "10.214.0.1:0", "a"), (&there, "10.214.0.2:0", "b")];
    let [a, b] = places.map(|(place, at, name)| Running::start_at(place, at, name, &["--listen-overlay", at]));
    a.until("a link", reaches(2));
    b.until("a link", reaches(2));
    let found = here.finds(&[], &["a", "b"]);
    assert_eq!(found[1]["address"], b.ready["mqtt"]);
}

#[test]
fn without_multicast_the_list_of_peers_counts() {
    let Some(namespace) = Namespace::make("taken") else { return };
    // Its own overlay takes the port of multicast DNS.
    let taken = Running::start(&namespace, "taken", &["--discover", "--listen-overlay", "127.0.0.1:5353"]);
    taken.until_logged("no discovery: other brokers are those of the list of peers");
    let peer = Running::start(&namespace, "peer", &["--listen-overlay", "127.0.0.1:0", "--peer", "127.0.0.1:5353"]);
    peer.until("a link", reaches(2));
    assert_eq!(taken.log().matches("no multicast DNS at 127.0.0.1").count(), 1, "{}", taken.log());
    let lost = namespace.ask(&["discover", "--for", "1s"]);
    assert!(!lost.status.success() && text(&lost.stderr).contains("UDP port 5353"), "{}", text(&lost.stderr));
}
