//! How a server ends: in good order, or because it cannot log any more.

use std::time::Duration;

use super::{Phase, Server};
use crate::engine::EngineEnd;

/// Time that a broker which cannot log any more waits for its clients to be told.
const ABANDON_LIMIT: Duration = Duration::from_secs(1);

/// Time that a broker which ends waits for its engine to take the last commits.
const ENGINE_LIMIT: Duration = Duration::from_secs(5);

/// Time after that in which it ends what it does at the engine, and releases its name.
const RELEASE_LIMIT: Duration = Duration::from_secs(15);

/// Time that a broker that ends waits for others to take what they need to go on without it.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(5);

impl Server {
    /// Accepts no more connections, tells clients to go, and waits until that is written, at most
    /// `limit`.
    pub async fn drain(mut self, limit: Duration) {
        self.phase.send_replace(Phase::Draining);
        if let Some(discovery) = self.discovery.take() {
            discovery.end().await;
        }
        while self.doors.join_next().await.is_some() {}
        let connections = self.hub.connections();
        tracing::info!(connections, limit = ?limit, "draining");
        let left = self.hub.drain(limit).await;
        if left > 0 {
            tracing::warn!(left, "connections are cut: they did not read what was sent to them in time");
        }
        if !self.hub.hand_over(HAND_OVER_LIMIT).await {
            tracing::warn!(limit = ?HAND_OVER_LIMIT, "other brokers do not have all that they need to go on without this one");
        }
        self.hub.close_overlay().await;
        if let Some(traces) = &self.traces {
            traces.flush().await;
        }
        self.close().await;
    }

    /// Ends a broker that cannot log any more: clients are told to go, links are closed, and
    /// nothing is handed over.
    pub(super) async fn abandon(mut self) {
        self.phase.send_replace(Phase::Draining);
        if let Some(discovery) = self.discovery.take() {
            discovery.end().await;
        }
        self.hub.drain(ABANDON_LIMIT).await;
        self.hub.close_overlay().await;
        self.close().await;
    }

    /// Why the broker cannot go on; waits until it cannot.
    pub(super) async fn failure(&self) -> EngineEnd {
        match &self.keeper {
            Some(keeper) => keeper.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Closes the journal.
    async fn close(mut self) {
        self.http.shutdown().await;
        let (hub, keeper) = (self.hub.clone(), self.keeper.take());
        // Data that is not written in time is as after a crash.
        let mut closing = tokio::task::spawn_blocking(move || hub.close());
        let outcome = match &keeper {
            None => closing.await,
            Some(keeper) => match tokio::time::timeout(ENGINE_LIMIT, &mut closing).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    keeper.stop_waiting();
                    closing.await
                }
            },
        };
        if outcome.is_err() {
            tracing::error!("the journal could not be closed");
        }
        if let Some(keeper) = keeper {
            let ending = tokio::task::spawn_blocking(move || keeper.end());
            if tokio::time::timeout(RELEASE_LIMIT, ending).await.is_err() {
                tracing::warn!(
                    limit = ?RELEASE_LIMIT,
                    "the engine does not answer: the next start of this broker looks for some seconds whether this one lives"
                );
            }
        }
    }
}
