//! Three NATS servers with JetStream, which sync each record before they acknowledge it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_engine::nats::{Nats, NatsOptions};

/// The number of servers.
pub const SERVERS: usize = 3;

/// How long servers may take until they serve.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Servers of one cluster on this machine, which end with it.
pub struct Cluster {
    folder: tempfile::TempDir,
    stores: Vec<PathBuf>,
    program: PathBuf,
    ports: Vec<u16>,
    servers: Vec<Option<Child>>,
}

/// Free ports, all of them different: each is taken until all are known.
fn free_ports(count: usize) -> Vec<u16> {
    let taken: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    taken.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

impl Cluster {
    /// Starts servers; `None`: there is no program.
    pub fn start() -> Option<Cluster> {
        let folder = tempfile::tempdir().expect("a folder");
        let stores = (0..SERVERS).map(|number| folder.path().join(format!("n{number}"))).collect();
        Cluster::start_with(folder, stores)
    }

    /// As [`Cluster::start`]; what each server stores is in a folder of its own, which outlives the
    /// cluster.
    #[allow(dead_code, reason = "the example that measures has no disks of its own")]
    pub fn start_on(stores: Vec<PathBuf>) -> Option<Cluster> {
        Cluster::start_with(tempfile::tempdir().expect("a folder"), stores)
    }

    fn start_with(folder: tempfile::TempDir, stores: Vec<PathBuf>) -> Option<Cluster> {
        let Some(program) = std::env::var_os("NATS_SERVER") else {
            println!("not tested: NATS_SERVER is not set; `make test-engine` sets it");
            return None;
        };
        let mut ports = free_ports(2 * SERVERS);
        let routes = ports.split_off(SERVERS);
        let listed: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        for (number, (port, route)) in ports.iter().zip(&routes).enumerate() {
            let config = format!(
                "listen: 127.0.0.1:{port}\nserver_name: n{number}\nmax_payload: 8MB\n\
                 jetstream {{ store_dir: {:?}, sync_interval: always }}\n\
                 cluster {{ name: engine, listen: 127.0.0.1:{route}, routes: [{}] }}\n",
                stores[number],
                listed.join(", "),
            );
            fs::write(folder.path().join(format!("n{number}.conf")), config).expect("it is written");
        }
        let program = program.into();
        let mut cluster = Cluster { folder, stores, program, ports, servers: (0..SERVERS).map(|_| None).collect() };
        (0..SERVERS).for_each(|number| cluster.run(number));
        Some(cluster)
    }

    /// Starts a server, again if it has been killed.
    pub fn run(&mut self, number: usize) {
        let path = |kind: &str| self.folder.path().join(format!("n{number}.{kind}"));
        let mut server = Command::new(&self.program);
        server.arg("-c").arg(path("conf")).arg("-l").arg(path("log")).stdout(Stdio::null()).stderr(Stdio::null());
        self.servers[number] = Some(server.spawn().expect("the server starts"));
    }

    /// Sends a signal to a server.
    #[allow(dead_code, reason = "the example that measures sends none")]
    pub fn signal(&self, number: usize, signal: &str) {
        let process = self.servers[number].as_ref().expect("it runs").id();
        let sent = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status();
        assert!(sent.expect("kill runs").success(), "the server is there");
    }

    /// Kills a server.
    #[allow(dead_code, reason = "the example that measures kills none")]
    pub fn kill(&mut self, number: usize) {
        let mut server = self.servers[number].take().expect("it runs");
        server.kill().expect("it is killed");
        server.wait().expect("it has ended");
    }

    /// Where a server stores what it has.
    #[allow(dead_code, reason = "the example that measures looks at no files")]
    pub fn store(&self, number: usize) -> &Path {
        &self.stores[number]
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect()
    }

    /// A connection, once a stream with three copies can be made.
    pub fn connect(&self, broker: &str) -> Nats {
        let servers = self.addresses();
        let options =
            NatsOptions { servers, broker: broker.into(), replicas: SERVERS, credentials: None, authorities: None };
        let begun = Instant::now();
        loop {
            match Nats::connect(&options) {
                Ok(nats) => return nats,
                Err(error) => assert!(begun.elapsed() < READY_WITHIN, "{error}"),
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
