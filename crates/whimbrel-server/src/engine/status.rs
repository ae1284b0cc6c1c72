//! What an operator can see of a broker's engine, whether the broker runs or not.

use std::thread;

use serde::Serialize;
use whimbrel_engine::nats::{self, StreamStatus};
use whimbrel_engine::{EngineError, LEASE_RENEWED_EVERY};

use super::monitor::{Monitor, SeenServer};
use super::{EngineOptions, EngineStartError};

/// A broker's engine.
#[derive(Debug, Serialize)]
pub struct EngineStatus {
    /// The broker's name.
    pub broker: String,
    /// Its stream, if it has one.
    pub stream: Option<StreamStatus>,
    /// Whether the owner has renewed its lease while it was looked at.
    pub lives: bool,
    /// The servers, as their monitoring shows them.
    pub servers: Vec<SeenServer>,
}

/// Looks at a broker's engine, for as long as an owner takes to renew its lease. Blocks.
///
/// # Errors
/// The engine is not reached.
pub fn status(options: &EngineOptions) -> Result<EngineStatus, EngineStartError> {
    let failed = |cause: EngineError| EngineStartError::Engine { servers: options.servers.join(", "), cause };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(EngineStartError::System)?;
    let servers = runtime.block_on(Monitor::new(options.monitors.clone()).look());
    let wanted = options.connection();
    let mut stream = nats::look(&wanted).map_err(failed)?;
    let mut lives = false;
    if let Some(first) = &stream
        && first.lease.as_ref().is_some_and(|lease| !lease.released)
    {
        // And a part of it for the answers.
        thread::sleep(LEASE_RENEWED_EVERY + LEASE_RENEWED_EVERY / 2);
        let second = nats::look(&wanted).map_err(failed)?;
        lives = second.as_ref().is_some_and(|second| second.lease_revision > first.lease_revision);
        stream = second;
    }
    Ok(EngineStatus { broker: options.broker.clone(), stream, lives, servers })
}
