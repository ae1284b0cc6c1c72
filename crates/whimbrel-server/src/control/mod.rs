//! The control socket: what an operator may ask of a running broker, as HTTP over a Unix socket that only its owner can open. The file's
//! permission is the authority.

pub mod answers;
mod backup;
mod overlay;
pub mod percent;
mod sessions;
pub mod socket;
mod streams;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Semaphore};
use whimbrel_core::store::AtomNo;
use whimbrel_event::{Tick, Time};

use crate::drive::Hub;
use crate::http;
use socket::Listening;

/// The socket's name in the data directory.
pub const SOCKET: &str = "control.sock";

/// Connections at once. More wait in the system's queue.
const MAX_CONNECTIONS: usize = 16;

/// How long it is waited for the disk.
const DURABLE_WAIT: Duration = Duration::from_secs(10);

/// How often it is looked whether the disk has it.
const DURABLE_LOOK: Duration = Duration::from_millis(5);

/// Where the control socket is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path.
    pub path: PathBuf,
    /// It is in the data directory, which no other broker uses at the same time.
    pub is_guarded: bool,
}

/// What the answers come from.
#[derive(Debug)]
struct Shared {
    hub: Arc<Hub>,
    name: String,
    version: String,
    /// One backup at a time.
    backups: Arc<Semaphore>,
    /// One trace at a time.
    traces: Mutex<()>,
}

/// Serves until the task is dropped.
pub async fn serve(listening: Listening, hub: Arc<Hub>, name: String, version: String) {
    let listener = listening.listener.try_clone().and_then(tokio::net::UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control socket cannot be served"),
    };
    let shared = Shared { hub, name, version, backups: Arc::new(Semaphore::new(1)), traces: Mutex::default() };
    let routes = Router::new()
        .route("/api/v1/sessions", get(sessions::list))
        .route("/api/v1/sessions/{client_id}", get(sessions::show).delete(sessions::end))
        .route("/api/v1/streams", get(streams::list))
        .route("/api/v1/topology", get(overlay::topology))
        .route("/api/v1/interest", get(overlay::interest))
        .route("/api/v1/brokers/{name}", delete(overlay::forget))
        .route("/api/v1/trace/{event}", get(trace::show))
        .route("/api/v1/backup", post(backup::send))
        .with_state(Arc::new(shared));
    let listener = &listener;
    let accept = move || async move { Ok(listener.accept().await?.0) };
    http::each_connection("control socket", MAX_CONNECTIONS, accept, |stream| answer(stream, routes.clone())).await;
}

async fn answer(stream: UnixStream, routes: Router) {
    // A backup takes as long as it is read; see there.
    if let Err(error) = http::connection(stream, routes).await {
        tracing::debug!(%error, "a connection to the control socket failed");
    }
}

/// Waits until an atom is durable; false if it is not within [`DURABLE_WAIT`].
async fn is_durable_soon(hub: &Hub, atom: AtomNo) -> bool {
    let is_durable = || hub.look(|broker, _, _| broker.core().is_durable(atom));
    let waited = tokio::time::timeout(DURABLE_WAIT, async {
        while !is_durable() {
            tokio::time::sleep(DURABLE_LOOK).await;
        }
    });
    waited.await.is_ok()
}

fn json(status: StatusCode, answer: &impl Serialize) -> Response {
    let body = serde_json::to_string(answer).expect("answers are JSON") + "\n";
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn refuse(status: StatusCode, error: impl Into<String>) -> Response {
    json(status, &answers::Refused { error: error.into() })
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

fn moment(tick: Tick) -> Time {
    Time::from_nanos(tick.0)
}

/// How old a position is.
fn age(now: Time, tick: Tick) -> u64 {
    u64::try_from(now.since(moment(tick)).as_millis()).unwrap_or(u64::MAX)
}
