//! Reports of the journal while the machine has no owner: the journal's writer, or a task, becomes
//! it.

use tokio::runtime::Handle;

use super::*;

/// Turns that the journal's writer takes as the machine's owner: the disk waits meanwhile.
const WRITER_TURNS: usize = 1;

impl Hub {
    /// Handles the journal's reports as long as the runtime lives: on the writer's thread if that
    /// has nothing to write, else in a task. Call it within a tokio runtime, once.
    pub(super) fn listen(self: &Arc<Self>) {
        let Some(signal) = self.signal.clone() else { return };
        // Not a reference that keeps the hub: the journal's threads end with it.
        let (listening, runtime) = (Arc::downgrade(self), Handle::current());
        signal.listen(move || {
            if let Some(hub) = listening.upgrade() {
                let _context = runtime.enter();
                hub.hear(WRITER_TURNS);
            }
        });
        tokio::spawn(heed(self.clone(), signal));
    }

    /// Becomes the machine's owner for at most `turns_max` turns, unless it has one, which takes
    /// the reports when it lets go.
    fn hear(&self, turns_max: usize) {
        if let Some(owner) = self.try_own() {
            self.finish_within(owner, turns_max);
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
