//! The broker's log on a replicated engine: the connection, the checks of its servers, and what an
//! owner does all the time. `whimbrel-engine` has the stream itself.

mod held_lease;
mod keeper;
mod mark;
mod monitor;
mod process;
mod start;
mod status;

use std::path::PathBuf;
use std::time::Duration;

use whimbrel_engine::Acknowledgement;
pub use whimbrel_engine::StartReport;
use whimbrel_engine::nats::NatsOptions;
pub use whimbrel_engine::nats::StreamStatus;

pub use keeper::EngineEnd;
pub(crate) use keeper::{EngineAccount, EngineKeeper};
pub(crate) use mark::MarkFile;
pub(crate) use monitor::{Monitor, MonitorAccount};
pub use monitor::{SeenServer, SeenSettings, ServersError};
pub use start::EngineStartError;
pub(crate) use start::{EngineHome, start};
pub use status::{EngineStatus, status};

/// Copies of a broker's stream.
pub const REPLICAS: usize = 3;

/// How long a start tries to reach an engine that does not answer: longer than the servers take to
/// choose a leader.
const REACHED_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two tries to reach the engine.
const TRIES_EVERY: Duration = Duration::from_millis(500);

/// The engine of a broker, and how it is used.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The broker's name, which names the stream.
    pub broker: String,
    /// Addresses of the servers, such as `nats://10.0.0.1:4222`.
    pub servers: Vec<String>,
    /// What has to have a commit before it counts.
    pub acknowledgement: Acknowledgement,
    /// How long a commit may take before publishes are refused.
    pub patience: Duration,
    /// Monitoring addresses of the servers, such as `http://10.0.0.1:8222`.
    pub monitors: Vec<String>,
    /// File with the broker's credentials.
    pub credentials: Option<PathBuf>,
    /// File with the authorities that vouch for the servers.
    pub authorities: Option<PathBuf>,
    /// The name is taken from a broker that lives.
    pub takes: bool,
    /// What becomes of a journal that only the directory has.
    pub adoption: Adoption,
}

/// What a start does with a journal of which only the directory has a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adoption {
    /// It is refused, if it cannot tell that the stream is to get it.
    #[default]
    Refuse,
    /// An empty stream gets it.
    Import,
    /// It is given up for what the stream has.
    Discard,
}

impl EngineOptions {
    /// How the engine is reached.
    fn connection(&self) -> NatsOptions {
        NatsOptions {
            servers: self.servers.clone(),
            broker: self.broker.clone(),
            replicas: REPLICAS,
            credentials: self.credentials.clone(),
            authorities: self.authorities.clone(),
        }
    }
}
