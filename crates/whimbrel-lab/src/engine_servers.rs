//! Three servers of NATS JetStream on this machine, for runs and tests with an engine.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The number of servers.
pub const SERVERS: usize = 3;

/// Names the program of a server.
pub const PROGRAM_VARIABLE: &str = "NATS_SERVER";

/// Where `bench/install-peers.sh nats` leaves the program.
const INSTALLED: &str = "target/bench-peers/nats-server";

/// The name of the program.
const PROGRAM: &str = "nats-server";

/// The servers of a cluster, which end with it and leave nothing behind.
pub struct EngineServers {
    folder: TempDir,
    program: PathBuf,
    servers: Vec<Server>,
}

struct Server {
    port: u16,
    monitor: u16,
    /// `None` while it is killed.
    process: Option<Child>,
}

/// What a cluster has beside what every cluster has.
#[derive(Clone, Debug, Default)]
pub struct EngineServersOptions {
    /// More lines of each server's configuration.
    pub configuration: String,
    /// In place of `always`, how often servers sync.
    pub sync_interval: Option<String>,
}

/// The program of a server: the one that the environment names, one that is on the path, or the one
/// that was built here.
///
/// # Errors
/// There is none.
pub fn program() -> Result<PathBuf> {
    if let Some(named) = env::var_os(PROGRAM_VARIABLE) {
        return Ok(named.into());
    }
    let on_path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&on_path).map(|folder| folder.join(PROGRAM)).chain([PathBuf::from(INSTALLED)]);
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!("there is no {PROGRAM}: install it, build it with `bench/install-peers.sh nats`, or name it in {PROGRAM_VARIABLE}")
    })
}

/// Free ports, all of them different.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // Each is taken until all are known.
    let mut taken = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
        *port = listener.local_addr().context("a port that is bound has no number")?.port();
        taken.push(listener);
    }
    Ok(ports)
}

impl EngineServers {
    /// Starts the servers; they may need some seconds until they have a leader.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &Path, options: &EngineServersOptions) -> Result<EngineServers> {
        let folder = tempfile::tempdir().context("cannot make a folder for the engine's servers")?;
        let ports = free_ports::<{ 3 * SERVERS }>()?;
        let routes = &ports[..SERVERS];
        let listed: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let mut servers = Vec::new();
        for (number, route) in routes.iter().enumerate() {
            let [port, monitor] = [SERVERS + number, 2 * SERVERS + number].map(|at| ports[at]);
            let server = Server { port, monitor, process: None };
            let sync = options.sync_interval.as_deref().unwrap_or("always");
            let configuration = format!(
                "listen: 127.0.0.1:{}\nhttp: 127.0.0.1:{}\nserver_name: n{number}\nmax_payload: 8MB\n\
                 jetstream {{ store_dir: {:?}, sync_interval: {sync} }}\n\
                 cluster {{ name: engine, listen: 127.0.0.1:{route}, routes: [{}] }}\n{}",
                server.port,
                server.monitor,
                folder.path().join(format!("n{number}")),
                listed.join(", "),
                options.configuration,
            );
            let path = folder.path().join(format!("n{number}.conf"));
            fs::write(&path, configuration).with_context(|| format!("cannot write {}", path.display()))?;
            servers.push(server);
        }
        let mut servers = EngineServers { folder, program: program.to_owned(), servers };
        (0..SERVERS).try_for_each(|number| servers.run(number))?;
        Ok(servers)
    }

    /// Starts a server, again if it has been killed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run(&mut self, number: usize) -> Result<()> {
        let path = |kind: &str| self.folder.path().join(format!("n{number}.{kind}"));
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(path("conf")).arg("-l").arg(path("log")).stdin(Stdio::null());
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = spawned.with_context(|| format!("cannot start {}", self.program.display()))?;
        self.servers[number].process = Some(process);
        Ok(())
    }

    /// Kills a server (SIGKILL).
    ///
    /// # Errors
    /// It does not run, or cannot be killed.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        let Some(mut process) = self.servers[number].process.take() else { bail!("server {number} does not run") };
        process.kill().context("cannot kill a server of the engine")?;
        process.wait().context("cannot wait for a server of the engine")?;
        Ok(())
    }

    /// The number of a server's process, if it runs.
    pub fn process(&self, number: usize) -> Option<u32> {
        self.servers[number].process.as_ref().map(Child::id)
    }

    /// Where a server keeps its data.
    pub fn folder(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("n{number}"))
    }

    /// The options of `whimbrel serve` by which a broker uses these servers.
    pub fn arguments(&self) -> [String; 2] {
        let join = |address: &dyn Fn(&Server) -> String| self.servers.iter().map(address).collect::<Vec<_>>().join(",");
        [
            format!("--engine={}", join(&|server| format!("nats://127.0.0.1:{}", server.port))),
            format!("--engine-monitor={}", join(&|server| format!("http://127.0.0.1:{}", server.monitor))),
        ]
    }
}

impl Drop for EngineServers {
    fn drop(&mut self) {
        for process in self.servers.iter_mut().filter_map(|server| server.process.as_mut()) {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
