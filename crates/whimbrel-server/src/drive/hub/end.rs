//! Ends a hub: clients first, then the journal.

use tokio::time::Instant;
use whimbrel_mqtt::Input;

use super::*;

/// Rounds in which the journal is given what is left at the end, at most; each is the size of a
/// commit.
const CLOSE_ROUNDS: usize = 64;

impl Hub {
    /// Says goodbye to all clients and waits until their connections have ended, at most `limit`.
    /// Returns the number of connections that have not.
    pub async fn drain(&self, limit: Duration) -> usize {
        // The first drain counts. Set before the clients are told, so every goodbye has all of
        // `limit`.
        let _ = self.drained_by.set(Instant::now() + limit);
        // Input already read from clients is handled before.
        self.run(|_, _| {});
        self.run(|machine, now| machine.broker.handle(now, Input::Drain { within: limit }, &mut machine.ports));
        let ended = async {
            loop {
                let notified = self.all_closed.notified();
                if self.connections() == 0 {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(limit, ended).await;
        self.connections()
    }

    /// Writes what the broker still wants written, waits until it is durable, and ends the journal.
    /// Blocks; to be called when no client is left.
    pub fn close(&self) {
        for _ in 0..CLOSE_ROUNDS {
            let mut left = None;
            self.run(|machine, now| {
                machine.hear(now);
                machine.submit(now);
                let journal = machine.store.as_ref().map(|store| (store.journal(), store.accepted()));
                left = journal.map(|(journal, accepted)| (journal, accepted, machine.broker.batch().is_some()));
            });
            let Some((journal, accepted, is_more)) = left else { return };
            if journal.wait(accepted).is_err() || !is_more {
                break;
            }
        }
        let store = self.wait_and_own().machine.store.take();
        match store.map(|store| store.close()) {
            None => {}
            Some(Ok(())) => tracing::info!("journal closed"),
            Some(Err(error)) => tracing::error!(%error, "the journal is closed, but not all of it is on the disk"),
        }
    }
}
