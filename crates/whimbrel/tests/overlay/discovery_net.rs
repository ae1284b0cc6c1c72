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

/// A network namespace with loopback alone; it ends with this value.
struct Loopback {
    name: String,
    files: TempDir,
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = run(&["ip", "netns", "del", &self.name]);
    }
}

impl Loopback {
    /// The namespace of a test, where there can be one; else it says why not.
    fn make(test: &str) -> Option<Loopback> {
        if !is_asked_for() {
            return None;
        }
        let name = format!("whimbrel-{}-{test}", std::process::id());
        let namespace = Loopback { name, files: tempfile::tempdir().expect("a temporary directory") };
        let name = &*namespace.name;
        let made = run_all(&[&["ip", "netns", "add", name], &["ip", "-n", name, "link", "set", "lo", "up"]]);
        if let Err(error) = made {
            println!("skipped: no network namespaces can be made here (it takes root and ip): {error}");
            return None;
        }
        Some(namespace)
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

    /// Names and addresses that a search finds; it is repeated until `is_right`.
    fn finds(&self, arguments: &[&str], is_right: impl Fn(&[String]) -> bool) -> Vec<Value> {
        let arguments = [&["discover", "--json", "--for", "1s"], arguments].concat();
        let began = Instant::now();
        loop {
            let answer: Value = serde_json::from_str(&self.says(&arguments)).expect("it is JSON");
            let found = answer["brokers"].as_array().expect("a list").clone();
            let names: Vec<String> =
                found.iter().map(|broker| broker["name"].as_str().expect("a name").to_owned()).collect();
            if is_right(&names) {
                return found;
            }
            assert!(began.elapsed() < DEADLINE, "{names:?} are found");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A broker of a namespace.
struct Found<'a> {
    namespace: &'a Loopback,
    name: String,
    process: Child,
    ready: Value,
    _out: BufReader<ChildStdout>,
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Found<'a> {
    fn start(namespace: &'a Loopback, name: &str, arguments: &[&str]) -> Found<'a> {
        let log = File::create(namespace.files.path().join(format!("{name}.log"))).expect("a log");
        let socket = format!("{name}.sock");
        let off = ["tls", "ws", "wss", "http"].map(|listener| format!("--listen-{listener}=off"));
        let off: Vec<&str> = off.iter().map(String::as_str).collect();
        let own = ["serve", "--dev", "--name", name, "--listen-mqtt", "127.0.0.1:0", "--control", &socket];
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
        let broker = Found { namespace, name: name.to_owned(), process, ready, _out: out };
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
    let Some(namespace) = Loopback::make("found") else { return };
    let of = |deployment| [&OPEN[..], &["--deployment", deployment]].concat();
    let north = Found::start(&namespace, "north", &of("city"));
    let harbour = Found::start(&namespace, "harbour", &of("city"));
    let stranger = Found::start(&namespace, "stranger", &of("village"));
    north.until("a link", reaches(2));
    harbour.until("a link", reaches(2));
    // A broker of another deployment is seen, and not dialled.
    north.until_logged("other_deployment");
    stranger.until_logged("other_deployment");
    assert_eq!(stranger.status()["brokers_known"], 1);
    assert_eq!(north.status()["brokers_known"], 2);

    let found = namespace.finds(&[], |names| names.len() == 3);
    assert_eq!(found[0]["name"], "harbour", "by deployment and name: {found:?}");
    assert_eq!((&found[1]["name"], &found[1]["address"]), (&north.ready["name"], &north.ready["mqtt"]));
    let table = namespace.says(&["discover", "--for", "1s", "--deployment", "village"]);
    let address = stranger.ready["mqtt"].as_str().expect("an address");
    assert!(table.lines().count() == 2 && table.contains(&format!("stranger  {address}  village")), "{table}");

    // A message that is published at whichever broker is found comes to all of the deployment.
    let publish = ["pub", "-q", "1", "--retain", "--url", "mqtt+discover://city", "fleet/7", "52.2,21.0"];
    let published = namespace.ask(&publish);
    let said = text(&published.stderr);
    assert!(published.status.success() && said.contains("2 brokers were found; harbour"), "{said}");
    let url = format!("mqtt://{}", north.ready["mqtt"].as_str().expect("an address"));
    assert_eq!(namespace.says(&["sub", "--count", "1", "--within", "30", "--url", &url, "fleet/#"]), "52.2,21.0\n");
    let nowhere = namespace.ask(&["pub", "--url", "mqtt+discover://desert", "fleet/7", "x"]);
    let said = text(&nowhere.stderr);
    assert!(!nowhere.status.success() && said.contains("no broker of the deployment \"desert\" was found"), "{said}");

    // A broker that ends withdraws what it announced; the others dial it no more.
    harbour.end();
    north.until("nothing found", |status| status["peers"].as_array().is_some_and(Vec::is_empty));
    assert!(north.log().contains("announced no more"), "{}", north.log());
    namespace.finds(&["--deployment", "city"], |names| names == ["north"]);
}

#[test]
fn a_broker_that_comes_back_is_found_again() {
    let Some(namespace) = Loopback::make("again") else { return };
    // The name of `zulu` is the greater one: `alpha` dials. It comes back at other ports.
    let alpha = Found::start(&namespace, "alpha", &OPEN);
    let zulu = Found::start(&namespace, "zulu", &OPEN);
    alpha.until("a link", reaches(2));
    let is_found = |status: &Value| status["peers"].as_array().is_some_and(|peers| !peers.is_empty());
    alpha.until("found", |status| is_found(status) && status["peers"][0]["found"] == true);
    zulu.until("found", |status| is_found(status) && status["peers"][0]["reached"] == true);
    zulu.end();
    alpha.until("no link", reaches(1));
    let zulu = Found::start(&namespace, "zulu", &OPEN);
    alpha.until("a link again", reaches(2));
    zulu.until("a link again", reaches(2));
}

#[test]
fn brokers_on_loopback_do_not_find_each_other_unasked() {
    let Some(namespace) = Loopback::make("unasked") else { return };
    let asked = Found::start(&namespace, "asked", &OPEN);
    let unasked = Found::start(&namespace, "unasked", &["--listen-overlay", "127.0.0.1:0"]);
    let found = namespace.finds(&[], |names| !names.is_empty());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["name"], "asked");
    for broker in [&asked, &unasked] {
        assert_eq!(broker.status()["brokers_known"], 1);
    }
}

#[test]
fn without_multicast_the_list_of_peers_counts() {
    let Some(namespace) = Loopback::make("taken") else { return };
    // Its own overlay takes the port of multicast DNS.
    let taken = Found::start(&namespace, "taken", &["--discover", "--listen-overlay", "127.0.0.1:5353"]);
    assert!(taken.log().contains("no discovery: other brokers are those of the list of peers"), "{}", taken.log());
    assert_eq!(taken.log().matches("no multicast DNS at 127.0.0.1").count(), 1, "{}", taken.log());
    let peer = Found::start(&namespace, "peer", &["--listen-overlay", "127.0.0.1:0", "--peer", "127.0.0.1:5353"]);
    peer.until("a link", reaches(2));
    let lost = namespace.ask(&["discover", "--for", "1s"]);
    assert!(!lost.status.success() && text(&lost.stderr).contains("UDP port 5353"), "{}", text(&lost.stderr));
}
