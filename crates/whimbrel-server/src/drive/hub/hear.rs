//! Who becomes the machine's owner when the journal has reports and the machine has none.

use tokio::runtime::Handle;

use super::*;

impl Hub {
    /// Has the journal's reports heard as long as the runtime lives: by its writer when that has
    /// time, else by a task. Call it within a tokio runtime, once.
    pub(super) fn listen(self: &Arc<Self>) {
        let Some(signal) = self.signal.clone() else { return };
        // Not a reference that keeps the hub: the journal's threads end with it.
        let (listening, runtime) = (Arc::downgrade(self), Handle::current());
        signal.listen(move || {
            if let Some(hub) = listening.upgrade() {
                let _context = runtime.enter();
                hub.hear(1);
            }
        });
        tokio::spawn(heed(self.clone(), signal));
    }

    /// Becomes the machine's owner for at most so many turns. An owner that is at work takes the
    /// reports when it lets go.
    fn hear(&self, turns: usize) {
        if let Some(owner) = self.try_own() {
            self.finish_within(owner, turns);
        }
    }
}

/// Runs the machine when the journal has reports and the machine has no owner.
async fn heed(hub: Arc<Hub>, signal: Arc<Signal>) {
    loop {
        signal.woken().await;
        if signal.has_news() {
            hub.hear(TURNS_MAX);
        }
    }
}
