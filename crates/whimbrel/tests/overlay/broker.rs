//! One real broker of several, which can be killed and started again at the same addresses.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{interval, timeout};

/// Everything is cached at every broker, so that a roamer finds it anywhere, and what a test floods
/// the broker with does not take the room.
const SETTINGS: &str = "[buffer]\nsubscribe = [\"load/#\"]\n[overlay]\nlinks = 0\n\
    [log]\nlevel = \"debug\"\n[[topic]]\nfilter = \"alarm/#\"\ndeadline = \"200 ms\"\n[[partition]]\nfilter = \"flood\"\ncapacity = \"1 MB\"\n";

/// What must come comes by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that is killed with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker of a test.
pub struct Broker {
    pub name: String,
    /// A command that it is started by, such as `ip netns exec`.
    pub before: Vec<String>,
    /// `--dev`, or who it is.
    pub identity: Vec<String>,
    pub peers: Vec<String>,
    /// It has a data directory, which survives its process.
    pub has_data: bool,
    /// Where it listens: any free port until it has been started once.
    pub mqtt: SocketAddr,
    pub http: SocketAddr,
    pub overlay: SocketAddr,
    /// Which start of it this is, from 1.
    pub life: u32,
    files: TempDir,
    running: Option<(Killed, BufReader<ChildStdout>)>,
}

impl Broker {
    /// Each broker of a run has a loopback address of its own, on which no client takes
    /// a port.
    pub fn new(number: usize) -> Broker {
        let host = Ipv4Addr::new(127, 0, 0, 10 + number as u8);
        let address = SocketAddr::new(if cfg!(target_os = "linux") { host } else { Ipv4Addr::LOCALHOST }.into(), 0);
        let files = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(files.path().join("whimbrel.toml"), SETTINGS).expect("written");
        let (name, identity) = (format!("b{number}"), vec!["--dev".to_owned()]);
        let (mqtt, http, overlay) = (address, address, address);
        Broker {
            name,
            before: Vec::new(),
            identity,
            peers: Vec::new(),
            has_data: false,
            mqtt,
            http,
            overlay,
            life: 0,
            files,
            running: None,
        }
    }

    /// It listens for clients and for other brokers at these addresses.
    pub fn at(mut self, clients: IpAddr, brokers: IpAddr) -> Broker {
        (self.mqtt, self.http, self.overlay) = ((clients, 0).into(), (clients, 0).into(), (brokers, 0).into());
        self
    }

    /// Its configuration has this as well.
    pub fn configured(self, more: &str) -> Broker {
        let path = self.file("whimbrel.toml");
        let text = std::fs::read_to_string(&path).expect("it is written") + more;
        std::fs::write(path, text).expect("a file");
        self
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.mqtt)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// What is tried, but in its first life what `WHIMBREL_OLD_BIN` names, if it does: its
    /// second start upgrades it.
    fn binary(&self) -> String {
        let old = std::env::var("WHIMBREL_OLD_BIN").ok().filter(|_| self.life == 0);
        old.unwrap_or_else(|| env!("CARGO_BIN_EXE_whimbrel").to_owned())
    }

    fn command(&self) -> Command {
        let mut words = self.before.clone();
        words.extend([self.binary(), "serve".into(), "--name".into(), self.name.clone()]);
        words.extend(["--config".to_owned(), self.file("whimbrel.toml").display().to_string()]);
        words.extend(self.identity.iter().cloned());
        if self.has_data {
            words.extend(["--data".to_owned(), self.file("data").display().to_string()]);
        }
        words.extend(["ws", "wss"].map(|listener| format!("--listen-{listener}=off")));
        if self.identity == ["--dev"] {
            words.extend([format!("--listen-mqtt={}", self.mqtt), "--listen-tls=off".into()]);
        } else {
            words.extend([format!("--listen-tls={}", self.mqtt), "--listen-mqtt=off".into()]);
        }
        words.extend([format!("--listen-http={}", self.http), format!("--listen-overlay={}", self.overlay)]);
        words.extend(self.peers.iter().map(|peer| format!("--peer={peer}")));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WHIMBREL_")) {
            command.env_remove(name);
        }
        // Brokers at private addresses would look for each other. A variable, as an older binary
        // has neither the option nor the key.
        command.env("WHIMBREL_DISCOVER", "off");
        command
    }

    /// Starts it, and waits until it is ready. Its log goes to one file, life after life.
    pub fn start(&mut self) {
        assert!(self.running.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(self.file("log")).expect("a log");
        let child = self.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = Killed(child.expect("it starts"));
        let mut out = BufReader::new(child.0.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("text");
        let ready = serde_json::from_str::<serde_json::Value>(&line).unwrap_or_else(|_| panic!("{}", self.log()));
        let address = |listener: &str| ready[listener].as_str().expect("it listens").parse().expect("an address");
        self.mqtt = address(if self.identity == ["--dev"] { "mqtt" } else { "tls" });
        (self.http, self.overlay) = (address("http"), address("overlay"));
        self.life += 1;
        self.running = Some((child, out));
    }

    /// `kill -9`; it is gone when this returns.
    pub fn kill(&mut self) {
        self.running.take().expect("it runs");
    }

    /// SIGTERM; it has taken leave and ended in good order when this returns.
    pub fn end(&mut self) {
        let (mut child, _out) = self.running.take().expect("it runs");
        let asked = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()), "it is asked to end");
        let status = child.0.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Whether the process of this life is still there.
    pub fn is_alive(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(child, _)| matches!(child.0.try_wait(), Ok(None)))
    }

    /// Bytes of memory that the process has now. Only for one that is not started by another
    /// command.
    #[cfg(target_os = "linux")]
    pub fn memory(&self) -> u64 {
        let (child, _) = self.running.as_ref().expect("it runs");
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).expect("Linux tells");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its resident memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.file("log")).unwrap_or_default()).into_owned()
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.http).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("text");
        page
    }

    /// The page of its metrics.
    pub fn metrics(&self) -> String {
        self.get("/metrics")
    }

    /// What it knows of links, of what others want, and of streams.
    pub fn knowledge(&self) -> String {
        ["topology", "interest", "streams"].map(|what| self.get(&format!("/api/v1/{what}"))).join("\n")
    }

    /// The sum over all lines of a metric whose labels hold `label`.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let page = self.metrics();
        let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
        let of_name = lines.filter(|line| matches!(line.as_bytes().get(name.len()), Some(b'{' | b' ')));
        of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// Waits until `condition` holds of the broker.
pub async fn until(what: &str, broker: &Broker, condition: impl Fn(&Broker) -> bool) {
    let comes = async {
        let mut pace = interval(Duration::from_millis(20));
        while !tokio::task::block_in_place(|| condition(broker)) {
            pace.tick().await;
        }
    };
    if timeout(PATIENCE, comes).await.is_err() {
        panic!("{what} did not come; the log:\n{}", broker.log());
    }
}
