//! Broker processes of this program, alone or linked with each other, that can be killed and
//! started again with their data on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::bench::load::own_program;
use crate::bench::process::{self, CpuClock};
use crate::bench::target::Target;
use crate::bench::transport::Transport;
use crate::bench::wire::Protocol;

/// How long the broker may take to answer a request for its metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of probes of how long the disk takes to make a few bytes durable.
const PROBES: usize = 101;

/// How long links may take to come up.
const LINKED_WITHIN: Duration = Duration::from_secs(20);

/// The pause between two checks of the links.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How a broker is started.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Its name in the overlay.
    pub name: String,
    /// The core that it is bound to.
    pub core: usize,
    /// The core that the calling thread is bound to afterwards.
    pub own_core: usize,
    /// The overlay addresses of the brokers that it links with.
    pub peers: Vec<SocketAddr>,
    /// Settings as in its configuration file.
    pub settings: String,
    /// Whether it has a data directory on a disk.
    pub has_data: bool,
}

/// See the module's documentation. The process ends, and its data are removed, when this is
/// dropped.
pub struct Broker {
    child: Child,
    folder: TempDir,
    setup: Setup,
    http: SocketAddr,
    /// The target of its clients.
    pub target: Target,
    /// The address for other brokers.
    pub overlay: SocketAddr,
}

/// The addresses at which a process listens.
struct Addresses {
    mqtt: SocketAddr,
    http: SocketAddr,
    overlay: SocketAddr,
}

impl Broker {
    /// Starts a broker with a fresh folder in the system's temporary directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(setup: Setup) -> Result<Broker> {
        let folder = TempDir::with_prefix("whimbrel-lab-").context("making a data directory")?;
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let (child, Addresses { mqtt, http, overlay }) = launch(&folder, &setup, [free, free])?;
        let target = Target { address: mqtt, protocol: Protocol::Mqtt5, transport: Transport::Tcp };
        Ok(Broker { child, folder, setup, http, target, overlay })
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the broker")?;
        self.child.wait().context("waiting for the broker's end")?;
        Ok(())
    }

    /// Starts it again with its data, at the same addresses; returns how long it took until it was
    /// ready.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let (child, addresses) = launch(&self.folder, &self.setup, [self.target.address, self.overlay])?;
        (self.child, self.http) = (child, addresses.http);
        Ok(begin.elapsed())
    }

    /// The clock of its CPU time.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> Result<CpuClock> {
        CpuClock::of(self.child.id())
    }

    /// Its metrics that have no labels, by name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self) -> Result<HashMap<String, f64>> {
        let mut stream = TcpStream::connect_timeout(&self.http, METRICS_TIMEOUT).context("asking for metrics")?;
        stream.set_read_timeout(Some(METRICS_TIMEOUT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context("reading metrics")?;
        let read = |line: &str| -> Option<(String, f64)> {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(read).collect())
    }

    /// One of its metrics.
    ///
    /// # Errors
    /// When it does not answer, or has no such metric.
    pub fn metric(&self, name: &str) -> Result<f64> {
        self.metrics()?.get(name).copied().with_context(|| format!("the broker does not tell {name}"))
    }

    /// Waits until a number of its links is up.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn await_links(&self, links: usize) -> Result<()> {
        let limit = Instant::now() + LINKED_WITHIN;
        while self.metric("whimbrel_links")? < links as f64 {
            ensure!(Instant::now() < limit, "{} has not {links} links after {LINKED_WITHIN:?}", self.setup.name);
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// The median time to make half a kilobyte durable where its data are.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn commit_time(&self) -> Result<Duration> {
        let mut file = File::create(self.folder.path().join("probe")).context("making a file to probe the disk")?;
        let mut times = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let begin = Instant::now();
            file.write_all(&[7; 512]).and_then(|()| file.sync_data()).context("probing the disk")?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        Ok(times[PROBES / 2])
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process that listens at these addresses for clients and for brokers.
fn launch(folder: &TempDir, setup: &Setup, [mqtt, overlay]: [SocketAddr; 2]) -> Result<(Child, Addresses)> {
    let mut command = Command::new(own_program());
    command.args(["serve", "--dev", "--name", &setup.name, "--listen-http", "127.0.0.1:0"]);
    command.args([format!("--listen-mqtt={mqtt}"), format!("--listen-overlay={overlay}")]);
    command.args(["tls", "ws", "wss"].map(|listener| format!("--listen-{listener}=off")));
    command.args(setup.peers.iter().map(|peer| format!("--peer={peer}")));
    // The links are exactly those that are asked for: brokers do not link with others that they
    // learn of.
    command.arg("--overlay-links=0");
    if setup.has_data {
        command.arg("--data").arg(folder.path().join("data"));
    }
    if !setup.settings.is_empty() {
        let path = folder.path().join("whimbrel.toml");
        std::fs::write(&path, &setup.settings).with_context(|| format!("writing {}", path.display()))?;
        command.arg("--config").arg(path);
    }
    let log_path = folder.path().join("log");
    let log = File::options().create(true).append(true).open(&log_path).context("making a log file")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // A child inherits the affinity of the thread that starts it.
    process::pin_thread(setup.core)?;
    let spawned = command.spawn().context("starting the broker");
    process::pin_thread(setup.own_core)?;
    let mut child = spawned?;
    let stdout = child.stdout.take().context("its output is not connected")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("reading the ready line")?;
    let ready: serde_json::Value = match serde_json::from_str(&line) {
        Ok(ready) => ready,
        Err(_) => {
            // It has reported why, and ends or has ended.
            let _ = child.kill();
            let _ = child.wait();
            bail!("no ready line: {}", std::fs::read_to_string(log_path).unwrap_or_default())
        }
    };
    let address = |name: &str| -> Result<SocketAddr> {
        let text = ready[name].as_str().with_context(|| format!("no {name} listener in {line}"))?;
        text.parse().with_context(|| format!("{text} is no address"))
    };
    Ok((child, Addresses { mqtt: address("mqtt")?, http: address("http")?, overlay: address("overlay")? }))
}
