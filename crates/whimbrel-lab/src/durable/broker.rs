//! A broker process with a data directory that can be killed and started again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::CORES;
use crate::bench::compare::own_program;
use crate::bench::process::{self, CpuClock};
use crate::bench::target::Target;
use crate::bench::wire::Protocol;

/// How long the broker may take to answer a request for its metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the disk is asked to make a few bytes durable, to know what that takes.
const PROBES: usize = 101;

/// See the module's documentation. Ends with this value, and its data with it.
pub struct Broker {
    child: Child,
    folder: TempDir,
    http: SocketAddr,
    /// Where its clients connect.
    pub target: Target,
}

impl Broker {
    /// Starts a broker with a fresh data directory in the system's temporary folder, on a core of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start() -> Result<Broker> {
        let folder = TempDir::with_prefix("whimbrel-lab-").context("making a data directory")?;
        let (child, [mqtt, http]) = launch(folder.path(), "127.0.0.1:0")?;
        Ok(Broker { child, folder, http, target: Target { address: mqtt, protocol: Protocol::Mqtt5 } })
    }

    /// Kills it without a word.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the broker")?;
        self.child.wait().context("waiting for the broker's end")?;
        Ok(())
    }

    /// Starts it again with its data, at the same address; returns how long it took until it was ready.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_again(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let address = self.target.address.to_string();
        (self.child, [_, self.http]) = launch(self.folder.path(), &address)?;
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

    /// What it takes to make half a kilobyte durable where its data are: the median.
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

/// Starts a process; gives its MQTT and HTTP addresses.
fn launch(folder: &Path, mqtt: &str) -> Result<(Child, [SocketAddr; 2])> {
    let mut command = Command::new(own_program());
    command.args(["serve", "--dev", "--listen-mqtt", mqtt, "--listen-http", "127.0.0.1:0", "--data"]);
    command.arg(folder.join("data"));
    command.args(["tls", "ws", "wss", "overlay"].map(|listener| format!("--listen-{listener}=off")));
    let log = File::create(folder.join("log")).context("making a log file")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // A child inherits the affinity of the thread that starts it.
    process::pin_thread(CORES.0)?;
    let spawned = command.spawn().context("starting the broker");
    process::pin_thread(CORES.1)?;
    let mut child = spawned?;
    let stdout = child.stdout.take().context("its output is not connected")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("reading the ready line")?;
    let ready: serde_json::Value = match serde_json::from_str(&line) {
        Ok(ready) => ready,
        Err(_) => bail!("no ready line: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default()),
    };
    let address = |name: &str| -> Result<SocketAddr> {
        let text = ready[name].as_str().with_context(|| format!("no {name} listener in {line}"))?;
        text.parse().with_context(|| format!("{text} is no address"))
    };
    Ok((child, [address("mqtt")?, address("http")?]))
}
