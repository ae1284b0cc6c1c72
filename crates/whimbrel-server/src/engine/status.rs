//! What an operator can see of a broker's engine, whether the broker runs or not.

use std::thread;

use serde::Serialize;
use whimbrel_engine::nats::{self, StreamStatus};
use whimbrel_engine::{EngineError, LEASE_RENEWED_EVERY};

use super::monitor::{Monitor, SeenServer, SeenSettings};
use super::{EngineOptions, EngineStartError};

/// A broker's engine.
#[derive(Debug, Serialize)]
pub struct EngineStatus {
    /// The broker's name.
    pub broker: String,
    /// Its stream, if it has one, and the servers can tell.
    pub stream: Option<StreamStatus>,
    /// Why the servers cannot tell.
    pub unknown: Option<String>,
    /// Whether the owner has renewed its lease while it was looked at.
    pub lives: bool,
    /// Whether a leader may have told of the stream that has just lost the other servers: for some
    /// seconds it goes on as if it had them.
    pub maybe_old: bool,
    /// The servers, as their monitoring shows them.
    pub servers: Vec<SeenServer>,
}

impl EngineStatus {
    /// Whether there is nothing that an operator should look after: the stream is there, its copies
    /// are whole, and all servers tell settings that are good. The broker need not run.
    pub fn is_in_order(&self) -> bool {
        let is_good = |server: &SeenServer| matches!(&server.seen, SeenSettings::Settings { wrong: None, .. });
        let is_whole =
            |stream: &StreamStatus| stream.replicas.iter().all(|replica| replica.is_current && !replica.is_away);
        self.stream.as_ref().is_some_and(is_whole) && self.servers.iter().all(is_good)
    }
}

/// Looks at a broker's engine, for as long as an owner takes to renew its lease. Blocks.
///
/// # Errors
/// The system gives no thread, or the options name no servers that could be asked.
pub fn status(options: &EngineOptions) -> Result<EngineStatus, EngineStartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(EngineStartError::System)?;
    let (stream, unknown, lives) = match look_twice(options) {
        Ok((stream, lives)) => (stream, None, lives),
        Err(EngineError::Unanswered(why)) => (None, Some(why), false),
        Err(cause) => return Err(EngineStartError::Engine { servers: options.servers.join(", "), cause }),
    };
    let servers = runtime.block_on(Monitor::new(options.monitors.clone()).look());
    let is_silent = |server: &&SeenServer| matches!(server.seen, SeenSettings::Silent { .. });
    let silent = servers.iter().filter(is_silent).count();
    // A lease is renewed by most servers alone.
    let maybe_old = stream.is_some() && !lives && silent * 2 > servers.len();
    Ok(EngineStatus { broker: options.broker.clone(), stream, unknown, lives, maybe_old, servers })
}

/// The stream, and whether its owner has renewed its lease meanwhile.
fn look_twice(options: &EngineOptions) -> Result<(Option<StreamStatus>, bool), EngineError> {
    let wanted = options.connection();
    let Some(first) = nats::look(&wanted)? else { return Ok((None, false)) };
    if first.lease.held.as_ref().is_none_or(|lease| lease.released) {
        return Ok((Some(first), false));
    }
    // And a part of it for the answers.
    thread::sleep(LEASE_RENEWED_EVERY + LEASE_RENEWED_EVERY / 2);
    let second = nats::look(&wanted)?;
    let lives = second.as_ref().is_some_and(|second| second.lease.revision > first.lease.revision);
    Ok((second, lives))
}
