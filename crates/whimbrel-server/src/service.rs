//! Tells systemd, or another service manager with its protocol (`sd_notify`), the state of the
//! service.
//!
//! Nothing is sent unless `NOTIFY_SOCKET` is set.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::drive::Hub;

/// Environment variable with the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Keep-alives sent within the watchdog's limit: half of them may be late.
const BEATS: u32 = 2;

/// Tells that the broker serves.
pub(crate) async fn ready() {
    tell(vec![NotifyState::Ready, NotifyState::Status("serving")]).await;
}

/// Tells that the broker has begun to end.
pub(crate) async fn stopping() {
    tell(vec![NotifyState::Stopping, NotifyState::Status("draining")]).await;
}

/// Tells that the broker reads its configuration again; [`ready`] ends it.
pub(crate) async fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(vec![NotifyState::Reloading, now]).await,
        // Without the time, the message would count as a mistake of the service.
        Err(error) => tracing::warn!(%error, "the service manager is not told of a reload"),
    }
}

/// Sends keep-alives if the manager has a watchdog: only while the machine can be owned, and this
/// task gets its turn.
pub(crate) async fn live(hub: Arc<Hub>) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| *limit > Duration::ZERO) else { return };
    loop {
        hub.look(|_, _, _| ());
        tell(vec![NotifyState::Watchdog]).await;
        tokio::time::sleep(limit / BEATS).await;
    }
}

/// Sends states on a thread that may block: the manager may be slow to read.
async fn tell(states: Vec<NotifyState<'static>>) {
    if env::var_os(SOCKET).is_none() {
        return;
    }
    let told = tokio::task::spawn_blocking(move || sd_notify::notify(&states)).await;
    // Without a result the runtime is ending.
    if let Ok(Err(error)) = told {
        tracing::warn!(%error, "the service manager cannot be told how the broker is: is {SOCKET} right?");
    }
}
