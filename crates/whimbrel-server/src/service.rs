//! What systemd, or whatever else started the broker and speaks its protocol, is told of the life
//! of the service (`sd_notify`).
//!
//! Nothing is sent unless `NOTIFY_SOCKET` names where to.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::drive::Hub;

/// Where to send it.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Signs of life that are sent while one may be missing: half of them may come late.
const BEATS: u32 = 2;

/// The broker serves.
pub(crate) async fn ready() {
    tell(vec![NotifyState::Ready, NotifyState::Status("serving")]).await;
}

/// The broker has begun to end.
pub(crate) async fn stopping() {
    tell(vec![NotifyState::Stopping, NotifyState::Status("draining")]).await;
}

/// The broker begins to read its configuration again; [`ready`] says when it is done.
pub(crate) async fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(vec![NotifyState::Reloading, now]).await,
        // Without the moment it would count as a mistake of the service.
        Err(error) => tracing::warn!(%error, "the service manager is not told of a reload"),
    }
}

/// Gives signs of life as long as somebody awaits them: only while the machine can be owned, and
/// this task has its turn.
pub(crate) async fn live(hub: Arc<Hub>) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| *limit > Duration::ZERO) else { return };
    loop {
        hub.look(|_, _, _| ());
        tell(vec![NotifyState::Watchdog]).await;
        tokio::time::sleep(limit / BEATS).await;
    }
}

/// Sends it on a thread that may wait: the one who is told may be slow to take it.
async fn tell(states: Vec<NotifyState<'static>>) {
    if env::var_os(SOCKET).is_none() {
        return;
    }
    let told = tokio::task::spawn_blocking(move || sd_notify::notify(&states)).await;
    // If the thread is not there, the runtime is ending.
    if let Ok(Err(error)) = told {
        tracing::warn!(%error, "the service manager cannot be told how the broker is: is {SOCKET} right?");
    }
}
