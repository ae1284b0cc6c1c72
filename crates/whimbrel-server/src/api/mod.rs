//! The API: questions and orders to a running broker over HTTP, on the control socket and on the
//! HTTP listener. `routes` is the table of all of it.
//!
//! Both have the same handlers. They differ in their [`access::Authorizer`].

pub mod access;
pub mod answers;
mod backup;
mod history;
mod openapi;
mod orders;
mod overlay;
pub mod percent;
mod routes;
mod sessions;
mod status;
pub(crate) use status::lost;
mod streams;
mod system;
mod topics;
mod trace;
mod traced;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, watch};
use whimbrel_core::store::BatchNo;
use whimbrel_event::{Tick, Time};

use crate::config::location::Location;
use crate::drive::Hub;
use crate::fences::Keeper;
use crate::server::Phase;
use access::Authorizer;

/// Time until an answer begins. More than any wait of a handler.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for a batch to become durable.
const DURABLE_WAIT: Duration = Duration::from_secs(10);

/// Period between two looks whether a batch is durable.
const DURABLE_LOOK: Duration = Duration::from_millis(5);

/// Facts about the server that do not change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) deployment: String,
    pub(crate) dev: bool,
    pub(crate) listeners: answers::Listeners,
    pub(crate) place: Option<Location>,
    /// When the server began, milliseconds since the Unix epoch.
    pub(crate) started_ms: u64,
}

/// State of the handlers.
#[derive(Debug)]
struct Shared {
    hub: Arc<Hub>,
    about: About,
    phase: watch::Receiver<Phase>,
    fences: Arc<Keeper>,
    ring: Arc<history::Ring>,
    /// Notified when a drain is asked for.
    drain: Arc<Notify>,
    /// Permit of the one backup at a time.
    backups: Arc<Semaphore>,
    /// Permits of the questions to all brokers.
    asking: Semaphore,
}

/// The API of one server.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    shared: Arc<Shared>,
}

impl Api {
    pub(crate) fn new(hub: Arc<Hub>, about: About, phase: watch::Receiver<Phase>, fences: Arc<Keeper>) -> Api {
        let shared = Shared {
            hub,
            about,
            phase,
            fences,
            ring: Arc::default(),
            drain: Arc::default(),
            backups: Arc::new(Semaphore::new(1)),
            asking: Semaphore::new(system::ASKING_MAX),
        };
        Api { shared: Arc::new(shared) }
    }

    /// All routes, for the requests that `authorizer` lets in.
    pub(crate) fn router(&self, authorizer: &Arc<dyn Authorizer>) -> Router {
        routes::router(self.shared.clone(), authorizer)
    }

    /// Takes the samples of `/history`, and answers other brokers, until the task is dropped.
    pub(crate) fn run(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.shared.clone();
        let questions = shared.hub.questions();
        async move {
            let samples = history::watch(shared.hub.clone(), shared.ring.clone());
            tokio::join!(samples, system::answer_others(shared.clone(), questions));
        }
    }

    /// Notified when a drain is asked for.
    pub(crate) fn drain(&self) -> Arc<Notify> {
        self.shared.drain.clone()
    }
}

/// Waits until a batch is durable; false if it is not within [`DURABLE_WAIT`].
async fn is_durable_soon(hub: &Hub, batch: BatchNo) -> bool {
    let is_durable = || hub.look(|broker, _, _| broker.core().is_durable(batch));
    let waited = tokio::time::timeout(DURABLE_WAIT, async {
        while !is_durable() {
            tokio::time::sleep(DURABLE_LOOK).await;
        }
    });
    waited.await.is_ok()
}

fn json(status: StatusCode, answer: &impl Serialize) -> Response {
    let body = serde_json::to_string(answer).expect("answers are JSON") + "\n";
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
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

/// Age of a position, milliseconds.
fn age(now: Time, tick: Tick) -> u64 {
    u64::try_from(now.since(moment(tick)).as_millis()).unwrap_or(u64::MAX)
}
