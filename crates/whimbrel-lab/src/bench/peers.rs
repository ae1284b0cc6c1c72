//! The compared brokers: how each is started, and which protocol it speaks.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::link::Link;
use super::process;
use super::target::Target;
use super::transport::Transport;
use super::wire::{Protocol, QoS};

/// How long a broker may take until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two attempts to connect to a broker that starts.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// The default interval at which nats-server syncs.
const NATS_SYNC: &str = "2m";

/// A broker together with the protocol it is spoken to with: a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Peer {
    /// This project's broker, MQTT.
    Whimbrel,
    /// Eclipse Mosquitto, MQTT.
    Mosquitto,
    /// nats-server with its own protocol, without JetStream (QoS 0).
    Nats,
    /// nats-server with MQTT (QoS 1).
    NatsMqtt,
    /// nats-server with JetStream in memory (QoS 1).
    JetStream,
    /// rumqttd, MQTT.
    Rumqttd,
}

impl Peer {
    /// All columns, in the order of the table.
    pub const ALL: [Peer; 6] =
        [Peer::Whimbrel, Peer::Mosquitto, Peer::Nats, Peer::NatsMqtt, Peer::JetStream, Peer::Rumqttd];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Whimbrel => "whimbrel",
            Peer::Mosquitto => "mosquitto",
            Peer::Nats => "nats",
            Peer::NatsMqtt => "nats MQTT",
            Peer::JetStream => "JetStream",
            Peer::Rumqttd => "rumqttd",
        }
    }

    /// Whether it takes part in cases with this quality of service.
    pub fn speaks(self, qos: QoS) -> bool {
        match self {
            Peer::Nats => qos == QoS::AtMostOnce,
            Peer::NatsMqtt | Peer::JetStream => qos == QoS::AtLeastOnce,
            Peer::Whimbrel | Peer::Mosquitto | Peer::Rumqttd => true,
        }
    }

    fn protocol(self) -> Protocol {
        match self {
            Peer::Nats | Peer::JetStream => Protocol::Nats,
            Peer::Whimbrel | Peer::Mosquitto | Peer::NatsMqtt | Peer::Rumqttd => Protocol::Mqtt311,
        }
    }
}

/// The places of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This project's binary.
    pub whimbrel: PathBuf,
    /// The folder that `bench/install-peers.sh` fills.
    pub peers: PathBuf,
}

impl Programs {
    /// The program of `peer`.
    ///
    /// # Errors
    /// When it does not exist; the message tells the remedy.
    pub fn find(&self, peer: Peer) -> Result<PathBuf> {
        let candidates = match peer {
            Peer::Whimbrel => vec![self.whimbrel.clone()],
            Peer::Mosquitto => {
                ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/usr/bin/mosquitto"].map(PathBuf::from).to_vec()
            }
            Peer::Nats | Peer::NatsMqtt | Peer::JetStream => vec![self.peers.join("nats-server")],
            Peer::Rumqttd => vec![self.peers.join("bin/rumqttd")],
        };
        let advice = match peer {
            Peer::Whimbrel => "build it with `cargo build --release` or name it with --whimbrel",
            _ => "run bench/install-peers.sh",
        };
        let found = candidates.iter().find(|path| path.is_file());
        let found = found.with_context(|| format!("{} is not there: {advice}", candidates[0].display()))?;
        found.canonicalize().with_context(|| format!("resolving {}", found.display()))
    }

    /// The version that `peer` reports.
    ///
    /// # Errors
    /// When it cannot be run or reports nothing.
    pub fn version(&self, peer: Peer) -> Result<String> {
        let program = self.find(peer)?;
        let argument = match peer {
            Peer::Mosquitto => "-h",
            Peer::Whimbrel => "version",
            _ => "--version",
        };
        let output = Command::new(&program).arg(argument).output();
        let output = output.with_context(|| format!("running {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        Ok(line.with_context(|| format!("{} {argument} says nothing", program.display()))?.to_owned())
    }
}

/// How a broker is started, beyond its configuration in `bench/peers`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup<'a> {
    /// The core that it is bound to; `None`: it has all.
    pub core: Option<usize>,
    /// The core that the calling thread is bound to; `None`: it has all.
    pub own_core: Option<usize>,
    /// Settings of this project's broker, as in its configuration file.
    pub settings: &'a str,
    /// The directory of its data on a disk: this project's broker logs to it, and nats-server syncs
    /// messages before it answers. `None`: nothing is written to a disk.
    pub disk: Option<&'a Path>,
    /// The journal of this project's broker writes nothing: the floor of what durability costs.
    pub keeps_nothing: bool,
    /// The one way to this project's broker; others are reached over TCP.
    pub transport: Transport,
}

/// A running broker; it ends when this is dropped.
pub struct Running {
    child: Ending,
    folder: ScratchFolder,
    /// The address at which it listens.
    pub target: Target,
}

/// A process that is killed when this is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // The broker holds nothing that would have to be saved; a failure means that it has ended
        // already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts `peer` on free ports, bound to `core` from its first instruction on, and waits until
    /// it serves.
    ///
    /// # Errors
    /// When it cannot be started or does not serve within ten seconds; the message holds the end of
    /// its log.
    pub fn start(peer: Peer, programs: &Programs, core: usize, own_core: usize) -> Result<Running> {
        Running::start_with(peer, programs, Setup { core: Some(core), own_core: Some(own_core), ..Setup::default() })
    }

    /// As [`Running::start`], with the parameters of `setup`.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub fn start_with(peer: Peer, programs: &Programs, setup: Setup<'_>) -> Result<Running> {
        let folder = ScratchFolder::make(setup.disk)?;
        Running::start_in(peer, programs, setup, folder)
    }

    fn start_in(peer: Peer, programs: &Programs, setup: Setup<'_>, folder: ScratchFolder) -> Result<Running> {
        let program = programs.find(peer)?;
        // A child inherits the affinity of the thread that starts it.
        process::bind_thread(setup.core)?;
        let launched = launch(peer, &program, &folder.0, setup);
        process::bind_thread(setup.own_core)?;
        let (child, address) = launched.with_context(|| format!("starting {}", program.display()))?;
        let transport = if peer == Peer::Whimbrel { setup.transport } else { Transport::Tcp };
        let target = Target { address, protocol: peer.protocol(), transport };
        let mut running = Running { child: Ending(child), folder, target };
        running.wait_until_served(peer).with_context(|| format!("{}: {}", program.display(), running.log()))?;
        Ok(running)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Segment files of this project's broker, finished or not; none if its journal is not on a
    /// disk.
    pub fn segment_files(&self) -> usize {
        std::fs::read_dir(self.folder.0.join("data/journal")).map_or(0, |files| files.flatten().count())
    }

    /// Kills it, and starts it again with its data on the disk; `meanwhile` runs in between.
    ///
    /// # Errors
    /// As [`Running::start`], and errors of `meanwhile`.
    pub fn kill_and_start(
        self,
        peer: Peer,
        programs: &Programs,
        setup: Setup<'_>,
        meanwhile: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Running> {
        let Running { child, folder, .. } = self;
        drop(child);
        meanwhile(&folder.0)?;
        Running::start_in(peer, programs, setup, folder)
    }

    fn wait_until_served(&mut self, peer: Peer) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        if peer == Peer::Whimbrel {
            self.target.address = self.ready_address()?;
        }
        loop {
            match Link::open(self.target, "probe") {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => {}
            }
            if let Some(status) = self.child.0.try_wait()? {
                bail!("it ended with {status} instead of serving");
            }
            std::thread::sleep(RETRY_AFTER);
        }
    }

    /// The listener's address in the line `{"ready":true,"mqtt":"ADDR:PORT",...}` that
    /// `whimbrel serve` prints.
    fn ready_address(&mut self) -> Result<SocketAddr> {
        let stdout = self.child.0.stdout.take().context("its output is not connected")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("reading the ready line")?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("the first line is no ready line: {line:?}"))?;
        let listener = self.target.transport.listener();
        let address = ready[listener].as_str().with_context(|| format!("no listener {listener} in {line}"))?;
        address.parse().with_context(|| format!("{address} is no address"))
    }

    /// The last lines of its log.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
        let mut last: Vec<&str> = text.lines().rev().take(5).collect();
        last.reverse();
        if last.is_empty() { "it wrote no log".to_owned() } else { last.join(" | ") }
    }
}

/// Starts the process; returns the address at which it will listen, except for this project's
/// broker, which prints it.
fn launch(peer: Peer, program: &Path, folder: &Path, setup: Setup<'_>) -> Result<(Child, SocketAddr)> {
    let Setup { settings, disk, keeps_nothing, transport, .. } = setup;
    let [port, other_port] = free_ports()?;
    let mut command = Command::new(program);
    let (file, template) = match peer {
        Peer::Whimbrel => ("", ""),
        Peer::Mosquitto => ("mosquitto.conf", include_str!("../../../../bench/peers/mosquitto.conf")),
        Peer::Rumqttd => ("rumqttd.toml", include_str!("../../../../bench/peers/rumqttd.toml")),
        Peer::Nats | Peer::NatsMqtt | Peer::JetStream => {
            ("nats-server.conf", include_str!("../../../../bench/peers/nats-server.conf"))
        }
    };
    if peer == Peer::Whimbrel {
        command.args(["serve", "--dev"]);
        if !settings.is_empty() {
            let path = folder.join("whimbrel.toml");
            std::fs::write(&path, settings).with_context(|| format!("writing {}", path.display()))?;
            command.arg("--config").arg(path);
        }
        if disk.is_some() {
            command.arg("--data").arg(folder.join("data"));
        }
        if keeps_nothing {
            command.arg("--keep-nothing");
        }
        for listener in ["mqtt", "tls", "ws", "wss", "http", "overlay"] {
            let address = if listener == transport.listener() { "127.0.0.1:0" } else { "off" };
            command.args([format!("--listen-{listener}"), address.to_owned()]);
        }
        command.stdout(Stdio::piped());
    } else {
        let (nats_port, mqtt_port) = if peer == Peer::NatsMqtt { (other_port, port) } else { (port, other_port) };
        let text = template
            .replace("@PORT@", &nats_port.to_string())
            .replace("@MQTT_PORT@", &mqtt_port.to_string())
            .replace("@SYNC@", if disk.is_some() { "always" } else { NATS_SYNC })
            .replace("@DIR@", &folder.display().to_string());
        let path = folder.join(file);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        command.arg("-c").arg(path).stdout(File::create(folder.join("output"))?);
    }
    let log = File::create(folder.join("log")).context("making a log file")?;
    let child = command.current_dir(folder).stdin(Stdio::null()).stderr(log).spawn()?;
    Ok((child, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
}

/// Two ports that are free now.
fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

/// A folder for one broker's configuration, log and data; removed when this is dropped. Without a
/// given disk it is in memory where possible.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn make(disk: Option<&Path>) -> Result<ScratchFolder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let parent = match disk {
            // Brokers run in the folder: the path must mean the same there.
            Some(disk) => disk.canonicalize().with_context(|| format!("looking for {}", disk.display()))?,
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("whimbrel-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(ScratchFolder(folder))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A remaining folder does no harm to the measurement.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_told_with_what_to_do() {
        let programs = Programs { whimbrel: PathBuf::from("no/whimbrel"), peers: PathBuf::from("no/peers") };
        let told = |peer| format!("{:#}", programs.find(peer).expect_err("nothing is there"));
        assert!(told(Peer::Whimbrel).contains("cargo build --release"));
        assert!(told(Peer::Nats).contains("install-peers.sh"));
    }

    #[test]
    fn a_program_that_ends_at_once_is_told_with_its_log_and_leaves_nothing_behind() {
        let folder = ScratchFolder::make(None).expect("a folder");
        let program = folder.0.join("nats-server");
        std::fs::write(&program, "#!/bin/sh\necho 'bad configuration' >&2\nexit 3\n").expect("a script");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, executable).expect("executable");
        let programs = Programs { whimbrel: PathBuf::new(), peers: folder.0.clone() };
        let Err(error) = Running::start(Peer::Nats, &programs, 0, 0) else { panic!("it cannot serve") };
        let text = format!("{error:#}");
        assert!(text.contains("bad configuration") && text.contains("exit status: 3"), "{text}");
        let path = folder.0.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn every_quality_of_service_has_peers() {
        let at = |qos| Peer::ALL.into_iter().filter(|peer| peer.speaks(qos)).count();
        assert_eq!((at(QoS::AtMostOnce), at(QoS::AtLeastOnce)), (4, 5));
    }
}
