//! The broker that the run starts for itself: this same program, as a process of its own, with a data directory. The run kills it now
//! and then, as a machine without power would, and starts it again.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::{NamedTempFile, TempDir};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::board::Board;

/// How long the broker may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long it may take to end; longer than its own drain.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long it stays down after it was killed.
const DOWN: Duration = Duration::from_millis(500);
/// Time between two looks at whether all are served again.
const LOOK: Duration = Duration::from_millis(10);
/// After so long the next kill comes although not all were served.
const SERVED_LIMIT: Duration = Duration::from_secs(60);
/// How many of its last log lines are kept.
const LOG_LINES: usize = 20;

/// A running broker.
pub struct OwnBroker {
    child: Child,
    log: Log,
    /// Its configuration; it looks at it again and again.
    configuration: NamedTempFile,
    data: PathBuf,
    /// What is removed in the end: its data, unless they are somebody else's.
    _fresh: Option<TempDir>,
    /// Where MQTT clients connect: `127.0.0.1:PORT`.
    pub address: String,
}

#[derive(serde::Deserialize)]
struct Ready {
    ready: bool,
    mqtt: Option<String>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl OwnBroker {
    /// Starts the broker with this configuration on free ports and waits until it is ready. Its data are in that directory, or
    /// in a fresh one that is removed in the end.
    pub async fn start(text: &str, data: Option<&Path>) -> anyhow::Result<OwnBroker> {
        let mut configuration =
            NamedTempFile::with_suffix(".toml").context("cannot make the broker's configuration")?;
        configuration.write_all(text.as_bytes()).context("cannot write the broker's configuration")?;
        let fresh = match data {
            Some(_) => None,
            None => Some(TempDir::with_prefix("whimbrel-demo-").context("cannot make the broker's data directory")?),
        };
        let of_fresh = || fresh.as_ref().map(|fresh| fresh.path().to_owned()).unwrap_or_default();
        let data = data.map_or_else(of_fresh, Path::to_owned);
        let log = Log::default();
        let (child, address) = launch(configuration.path(), &data, "127.0.0.1:0", &log).await?;
        Ok(OwnBroker { child, log, configuration, data, _fresh: fresh, address })
    }

    /// Kills the broker without a word (SIGKILL) every now and then, `every` after all were served again on average, and starts it again.
    /// Returns once the run is `calm` and the broker up.
    ///
    /// # Errors
    /// The broker ended by itself, or did not start again.
    pub async fn live(
        &mut self,
        board: &Board,
        every: Option<Duration>,
        seed: u64,
        mut calm: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut random = fastrand::Rng::with_seed(seed);
        loop {
            let pause = every.map(|every| every.mul_f64(0.5 + random.f64()));
            let next = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                error = self.ended() => return Err(error),
                () = next => {}
                _ = calm.wait_for(|calm| *calm) => return Ok(()),
            }
            self.kill_and_start(board).await?;
            self.await_served(board, &mut calm).await?;
        }
    }

    async fn kill_and_start(&mut self, board: &Board) -> anyhow::Result<()> {
        board.crashes.killed(board.now());
        self.child.kill().await.context("cannot kill the broker")?;
        sleep(DOWN).await;
        // The same address: its clients know no other.
        (self.child, _) = launch(self.configuration.path(), &self.data, &self.address, &self.log).await?;
        board.crashes.is_up(board.now());
        Ok(())
    }

    /// Waits until everybody is back and has what was sent before the broker was up again.
    async fn await_served(&mut self, board: &Board, calm: &mut watch::Receiver<bool>) -> anyhow::Result<()> {
        let (up, limit) = (board.now(), Instant::now() + SERVED_LIMIT);
        while Instant::now() < limit && !*calm.borrow() {
            if board.is_served(up) {
                board.crashes.all_served(board.now());
                break;
            }
            tokio::select! {
                error = self.ended() => return Err(error),
                () = sleep(LOOK) => {}
            }
        }
        Ok(())
    }

    /// Waits until the broker ends, which it should not; gives the reason.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("the broker ended while the fleet was running ({status}){}", self.log.tail()),
            Err(error) => anyhow::Error::new(error).context("cannot wait for the broker"),
        }
    }

    /// Asks the broker to end, and waits until it has.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let Some(pid) = pid else { return Ok(()) };
        kill(pid, Signal::SIGTERM).context("cannot ask the broker to end")?;
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

/// Starts a process and waits until it is ready; gives its MQTT address.
async fn launch(configuration: &Path, data: &Path, mqtt: &str, log: &Log) -> anyhow::Result<(Child, String)> {
    let program = std::env::current_exe().context("cannot find this program's own file to start the broker with")?;
    let mut command = Command::new(&program);
    command.args(["serve", "--dev", "--config"]).arg(configuration).arg("--data").arg(data);
    command.args(["--listen-mqtt", mqtt]);
    for listener in ["tls", "ws", "wss", "http", "overlay"] {
        command.args([format!("--listen-{listener}"), "127.0.0.1:0".to_owned()]);
    }
    // In a process group of its own it does not get the terminal's Ctrl-C: the run ends it, after the last delivery.
    command.process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {} as the broker", program.display()))?;
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(log.clone().follow(stderr));
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
    let address = ready.mqtt.filter(|_| ready.ready).context("the broker is ready without an MQTT listener")?;
    // Nothing more is expected there, but a full pipe would stop the broker.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, address))
}

impl Log {
    async fn follow(self, stderr: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == LOG_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    }

    /// The last log lines, to go after an error.
    fn tail(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = kept.iter().map(String::as_str).collect();
        format!("; the last it said:\n  {}", lines.join("\n  "))
    }
}
