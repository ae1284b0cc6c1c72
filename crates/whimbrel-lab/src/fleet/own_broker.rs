//! A broker that the run starts itself: this program, or an older one, as a process with a data
//! directory.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::geo::Place;
use super::record::Recorder;

/// How long the broker may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to end; longer than its drain time.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to answer with its metrics.
const METRICS_LIMIT: Duration = Duration::from_secs(2);
/// The number of its last log lines that are kept.
const LOG_LINES: usize = 20;
/// Any free port of this machine.
const ANY: &str = "127.0.0.1:0";
/// The HTTP address that the documentation names.
const HTTP: &str = "127.0.0.1:8080";
const WS: &str = "127.0.0.1:8083";
/// The metric for the number of links that are up.
const LINKS: &str = "whimbrel_links ";
/// The metric for the number of gaps in which durable subscriptions may have lost something.
const DURABLE_GAPS: &str = "whimbrel_lost_total{class=\"durable\"} ";

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its name in the overlay; `None` if it is alone.
    pub name: Option<String>,
    /// The path of its configuration, which it reloads when the file changes.
    pub configuration: PathBuf,
    /// Its place.
    pub place: Place,
    /// Its data directory.
    pub data: PathBuf,
    /// The overlay addresses of the brokers that it links with.
    pub peers: Vec<SocketAddr>,
    /// Whether it takes the documented ports for HTTP and WebSocket, if they are free.
    pub is_first: bool,
    /// The older program that it is started as; `None`: this one.
    pub older: Option<PathBuf>,
    /// The options by which it keeps its log on an engine, if it does.
    pub engine: Option<[String; 2]>,
    /// The recording of its output.
    pub recorder: Option<Arc<Recorder>>,
}

/// A running broker, or one that was killed.
pub struct OwnBroker {
    child: Child,
    log: Log,
    start: Start,
    addresses: Addresses,
}

/// The addresses at which it listens.
#[derive(Clone, Debug)]
struct Addresses {
    mqtt: String,
    http: String,
    ws: String,
    overlay: String,
}

#[derive(serde::Deserialize)]
struct Ready {
    ready: bool,
    mqtt: Option<String>,
    http: Option<String>,
    ws: Option<String>,
    overlay: Option<String>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl OwnBroker {
    /// Starts the broker and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or ends or hangs before it is ready.
    pub async fn start(start: Start) -> Result<OwnBroker> {
        let (log, any) = (Log::default(), || ANY.to_owned());
        let mut wanted = Addresses { mqtt: any(), http: any(), ws: any(), overlay: any() };
        if start.is_first {
            (wanted.http, wanted.ws) = (if_free(HTTP), if_free(WS));
        }
        let (child, addresses) = launch_somewhere(&start, wanted, &log).await?;
        Ok(OwnBroker { child, log, start, addresses })
    }

    /// The address for MQTT clients: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.addresses.mqtt
    }

    /// Its name in the overlay, or `broker`.
    pub fn name(&self) -> &str {
        self.start.name()
    }

    /// The URL of its console.
    pub fn console(&self) -> String {
        format!("http://{}/", self.addresses.http)
    }

    /// The address for other brokers.
    ///
    /// # Errors
    /// Only if the broker has told something that is not an address.
    pub fn overlay(&self) -> Result<SocketAddr> {
        let overlay = &self.addresses.overlay;
        overlay.parse().with_context(|| format!("the broker listens for others at {overlay}, which is no address"))
    }

    /// Ends it in good order, and starts it again as this program, at the same addresses.
    ///
    /// # Errors
    /// When it does not end in good order, or does not start.
    pub async fn restart(&mut self) -> Result<()> {
        self.ask_to_stop()?;
        self.await_end().await?;
        self.start.older = None;
        self.start_again().await
    }

    /// Whether it keeps its log on an engine.
    pub fn has_engine(&self) -> bool {
        self.start.engine.is_some()
    }

    /// Kills it (SIGKILL); if it keeps its log on an engine, its data are removed.
    ///
    /// # Errors
    /// When it cannot be killed, or its data not removed.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill the broker")?;
        if self.has_engine() {
            let data = &self.start.data;
            std::fs::remove_dir_all(data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        Ok(())
    }

    /// Starts it again with its data, at the same addresses: its clients know no others.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&mut self) -> Result<()> {
        (self.child, self.addresses) = launch_somewhere(&self.start, self.addresses.clone(), &self.log).await?;
        Ok(())
    }

    /// The error to report if the broker has ended by itself.
    pub fn has_ended(&mut self) -> Option<anyhow::Error> {
        let ended = |status: ExitStatus| {
            anyhow::anyhow!("the broker ended while the fleet was running ({status}){}", self.log.tail())
        };
        match self.child.try_wait() {
            Ok(status) => status.map(ended),
            Err(error) => Some(anyhow::Error::new(error).context("cannot look after the broker")),
        }
    }

    /// The number of its links that are up; `None` if it does not answer.
    pub async fn links(&self) -> Option<usize> {
        self.metric(LINKS).await.map(|links| links as usize)
    }

    /// Gaps of durable subscriptions in which something may be lost, since its start; `None` if it
    /// does not answer.
    pub async fn durable_gaps(&self) -> Option<u64> {
        self.metric(DURABLE_GAPS).await.map(|gaps| gaps as u64)
    }

    /// The value of the metric whose line begins with `begin`.
    async fn metric(&self, begin: &str) -> Option<f64> {
        let page = timeout(METRICS_LIMIT, metrics(&self.addresses.http)).await.ok()?.ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(begin))?;
        line.trim().parse().ok()
    }

    /// Asks the broker to end.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn ask_to_stop(&self) -> Result<()> {
        match self.child.id().and_then(|id| i32::try_from(id).ok()) {
            Some(pid) => kill(Pid::from_raw(pid), Signal::SIGTERM).context("cannot ask the broker to end"),
            None => Ok(()),
        }
    }

    /// Waits until the broker has ended on request.
    ///
    /// # Errors
    /// When it does not end in time, or not in good order.
    pub async fn stopped(mut self) -> Result<()> {
        self.await_end().await
    }

    async fn await_end(&mut self) -> Result<()> {
        let Ok(status) = timeout(STOP_LIMIT, self.child.wait()).await else {
            self.child.kill().await.context("cannot end the broker")?;
            bail!("the broker did not end within {STOP_LIMIT:?} and was killed{}", self.log.tail());
        };
        let status = status.context("cannot wait for the broker")?;
        if !status.success() {
            bail!("the broker ended with {status}{}", self.log.tail());
        }
        Ok(())
    }
}

/// Returns `address` if it is free, else one with any port.
fn if_free(address: &str) -> String {
    if std::net::TcpListener::bind(address).is_ok() { address.to_owned() } else { ANY.to_owned() }
}

async fn metrics(http: &str) -> Result<String> {
    let mut stream = TcpStream::connect(http).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

/// As [`launch`], with other ports for HTTP and WebSocket if need be: another process may just have
/// taken those, and none of the run's clients uses them.
async fn launch_somewhere(start: &Start, mut wanted: Addresses, log: &Log) -> Result<(Child, Addresses)> {
    match launch(start, &wanted, log).await {
        Err(_) if wanted.http != ANY || wanted.ws != ANY => {
            (wanted.http, wanted.ws) = (ANY.to_owned(), ANY.to_owned());
            launch(start, &wanted, log).await
        }
        launched => launched,
    }
}

/// Starts a process and waits until it is ready; returns the addresses at which it listens.
async fn launch(start: &Start, wanted: &Addresses, log: &Log) -> Result<(Child, Addresses)> {
    let program = match &start.older {
        Some(older) => older.clone(),
        None => std::env::current_exe().context("cannot find this program's own file to start the broker with")?,
    };
    let mut command = Command::new(&program);
    command.args(["serve", "--dev", "--config"]).arg(&start.configuration).arg("--data").arg(&start.data);
    let Addresses { mqtt, http, ws, overlay } = wanted;
    let any = ANY.to_owned();
    for (listener, address) in
        [("mqtt", mqtt), ("http", http), ("ws", ws), ("overlay", overlay), ("tls", &any), ("wss", &any)]
    {
        command.args([format!("--listen-{listener}"), address.clone()]);
    }
    if start.older.is_none() {
        // Older programs do not know places.
        command.args([format!("--place-lat={}", start.place.lat), format!("--place-lon={}", start.place.lon)]);
    }
    if let Some(name) = &start.name {
        // The links are exactly those that are asked for: traffic between regions takes the delay
        // of its link.
        command.args(["--name", name, "--overlay-links=0"]);
        command.args(start.peers.iter().map(|peer| format!("--peer={peer}")));
    }
    command.args(start.engine.iter().flatten());
    if start.recorder.is_some() {
        command.args(["--log-level", "debug"]);
    }
    // In its own process group it does not receive the terminal's Ctrl-C: the run ends it, after
    // the last delivery.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {} as the broker", program.display()))?;
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(log.clone().follow(stderr, start.voice()));
    }
    let Some(stdout) = child.stdout.take() else { bail!("the broker has no standard output") };
    let mut lines = BufReader::new(stdout).lines();
    let line = match timeout(READY_LIMIT, lines.next_line()).await {
        Err(_) => bail!("the broker was not ready within {READY_LIMIT:?}{}", log.tail()),
        Ok(line) => line.context("cannot read what the broker says")?,
    };
    let Some(line) = line else {
        let status = child.wait().await.context("cannot wait for the broker")?;
        bail!("the broker ended before it was ready ({status}){}", log.tail());
    };
    let ready: Ready = serde_json::from_str(&line).with_context(|| format!("the broker's ready line is {line:?}"))?;
    let is = |listener: Option<String>, name: &str| {
        listener.filter(|_| ready.ready).with_context(|| format!("the broker is ready without its {name} listener"))
    };
    let addresses = Addresses {
        mqtt: is(ready.mqtt, "MQTT")?,
        http: is(ready.http, "HTTP")?,
        ws: is(ready.ws, "WebSocket")?,
        overlay: is(ready.overlay, "overlay")?,
    };
    // No more output is expected there, but a full pipe would stop the broker.
    let voice = start.voice();
    voice.says(&line);
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            voice.says(&line);
        }
    });
    Ok((child, addresses))
}

impl Start {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("broker")
    }

    fn voice(&self) -> Voice {
        Voice { name: self.name().to_owned(), recorder: self.recorder.clone() }
    }
}

/// Records a broker's output, if the run is recorded.
struct Voice {
    name: String,
    recorder: Option<Arc<Recorder>>,
}

impl Voice {
    fn says(&self, line: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.says(&self.name, line);
        }
    }
}

impl Log {
    async fn follow(self, stderr: impl AsyncRead + Unpin, voice: Voice) {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            voice.says(&line);
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == LOG_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    }

    /// The last log lines, to be appended to an error.
    fn tail(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = kept.iter().map(String::as_str).collect();
        format!("; the last it said:\n  {}", lines.join("\n  "))
    }
}
