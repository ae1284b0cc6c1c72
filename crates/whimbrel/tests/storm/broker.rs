//! The real binary. All that a storm assumes of its command line and configuration stands in this
//! file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// Where it listens, at any free port first. Clients come from 127.0.0.1, so none of them can take
/// the port of a broker that has just been killed.
const ADDRESS: &str = if cfg!(target_os = "linux") { "127.0.0.2:0" } else { "127.0.0.1:0" };

/// Where the broker keeps its journal. That flag, and these settings of the journal, are what the
/// storm assumes.
fn journal(store: &Store) -> (Vec<String>, String) {
    let Store::Data { directory, segment, max_log } = store else { return (Vec::new(), String::new()) };
    let flags = vec!["--data".to_owned(), directory.display().to_string()];
    let mut settings = String::from("[journal]\n");
    settings += &segment.map(|bytes| format!("segment = {bytes}\n")).unwrap_or_default();
    settings += &max_log.map(|bytes| format!("max_log = {bytes}\n")).unwrap_or_default();
    (flags, settings)
}

/// Files of the journal below a data directory, in the order of their names.
pub fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("a directory").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "segment") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Where a broker keeps what it must not lose.
#[derive(Clone, Debug)]
pub enum Store {
    /// Nowhere: without a data directory all ends with the process.
    Memory,
    Data {
        directory: PathBuf,
        /// Bytes of one segment; `None`: the broker's default.
        segment: Option<u32>,
        /// Bound of the journal, bytes.
        max_log: Option<u64>,
    },
}

impl Store {
    pub fn at(directory: &Path) -> Store {
        Store::Data { directory: directory.to_owned(), segment: Some(8 << 20), max_log: None }
    }

    pub fn is_durable(&self) -> bool {
        matches!(self, Store::Data { .. })
    }
}

/// How to start the broker.
#[derive(Debug)]
pub struct Plan {
    store: Store,
    /// A command that the broker is started by, such as `strace`.
    before: Vec<String>,
    /// [`ADDRESS`] until it has been started once.
    address: String,
    files: TempDir,
}

impl Plan {
    pub fn new(store: Store) -> Plan {
        let files = tempfile::tempdir().expect("a temporary directory");
        Plan { store, before: Vec::new(), address: ADDRESS.into(), files }
    }

    pub fn before(mut self, words: &[&str]) -> Plan {
        self.before = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// A place for files of this plan.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn command(&self) -> Command {
        let (flags, settings) = journal(&self.store);
        let config = self.file("whimbrel.toml");
        std::fs::write(&config, settings).expect("written");
        let binary = env!("CARGO_BIN_EXE_whimbrel").to_owned();
        let mut words = self.before.clone();
        words.extend([binary, "serve".into(), "--dev".into(), "--config".into(), config.display().to_string()]);
        words.extend(["tls", "ws", "wss", "http", "overlay"].map(|listener| format!("--listen-{listener}=off")));
        words.extend(["--listen-mqtt".into(), self.address.clone()]);
        words.extend(flags);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WHIMBREL_")) {
            command.env_remove(name);
        }
        command
    }

    /// Starts the broker. Its log goes to a file of the plan, one after the other.
    pub fn spawn(&self) -> Starting {
        let log = File::options().create(true).append(true).open(self.file("log")).expect("a log");
        let mut child =
            Killed(self.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts"));
        let out = child.0.stdout.take().expect("piped");
        Starting { child, out: BufReader::new(out) }
    }

    /// Starts the broker and waits until it is ready; from then on it is always started at the same
    /// address.
    ///
    /// # Errors
    /// It ended instead; these are the last lines of its log.
    pub fn start(&mut self) -> Result<Running, String> {
        let mut starting = self.spawn();
        let mut line = String::new();
        starting.out.read_line(&mut line).expect("text");
        let Ok(ready) = serde_json::from_str::<serde_json::Value>(&line) else {
            starting.child.0.wait().expect("it has ended");
            return Err(self.log());
        };
        self.address = ready["mqtt"].as_str().expect("its address").to_owned();
        Ok(Running { _child: starting.child, _out: starting.out })
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        const END: u64 = 4096;
        let mut file = File::open(self.file("log")).expect("it was started");
        let from = file.metadata().expect("its length").len().saturating_sub(END);
        file.seek(SeekFrom::Start(from)).expect("a place in it");
        let mut text = Vec::new();
        file.read_to_end(&mut text).expect("readable");
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A process that is killed with its test.
#[derive(Debug)]
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker of which the test does not know how far it has come. Dropping it is `kill -9`.
#[derive(Debug)]
pub struct Starting {
    child: Killed,
    out: BufReader<ChildStdout>,
}

/// A broker that is ready. Dropping it is `kill -9`, and waits until it is gone.
#[derive(Debug)]
pub struct Running {
    _child: Killed,
    _out: BufReader<ChildStdout>,
}

/// Writes bytes into the middle of a file.
pub fn overwrite(file: &Path, offset: u64, bytes: &[u8]) {
    let mut file = File::options().write(true).open(file).expect("the file is there");
    file.seek(SeekFrom::Start(offset)).expect("a place in it");
    file.write_all(bytes).expect("written");
}
