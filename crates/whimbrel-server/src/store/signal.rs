//! Reports of the journal's threads to the machine's owner.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use whimbrel_journal::{Progress, Ticket};

use super::read::Answer;

/// For [`Signal::awaited`]: no commit is awaited.
const NONE: u64 = u64::MAX;

/// Reports of the journal. The machine's owner takes them after each turn, as it looks into the
/// inbox. If the machine has no owner, a task is woken that becomes one.
#[derive(Debug)]
pub struct Signal {
    /// The ticket up to which all operations are durable.
    committed: AtomicU64,
    /// The ticket that is awaited.
    awaited: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<String>>,
    answered: AtomicBool,
    answers: Mutex<Vec<Answer>>,
    wake: Notify,
}

impl Default for Signal {
    fn default() -> Self {
        Signal {
            committed: AtomicU64::new(0),
            awaited: AtomicU64::new(NONE),
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
            answered: AtomicBool::new(false),
            answers: Mutex::default(),
            wake: Notify::new(),
        }
    }
}

impl Signal {
    /// Records a report. Called by the journal's writer, between two writes.
    pub(super) fn tell(&self, progress: Progress) {
        match progress {
            Progress::Committed(ticket) => self.committed(ticket),
            Progress::Poisoned(fault) => {
                *self.failure.lock() = Some(fault.to_string());
                self.has_failed.store(true, Ordering::SeqCst);
            }
        }
        if self.has_news() {
            self.wake.notify_one();
        }
    }

    /// Records that all operations up to this ticket are durable.
    pub(super) fn committed(&self, ticket: Ticket) {
        self.committed.fetch_max(ticket.0, Ordering::SeqCst);
    }

    /// Records the result of a read. Called by the reading thread.
    pub(super) fn answer(&self, answer: Answer) {
        self.answers.lock().push(answer);
        self.answered.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Whether there are reports for the machine's owner.
    pub fn has_news(&self) -> bool {
        self.committed.load(Ordering::SeqCst) >= self.awaited.load(Ordering::SeqCst)
            || self.has_failed.load(Ordering::SeqCst)
            || self.answered.load(Ordering::SeqCst)
    }

    /// Waits until there may be reports. There may be none: an owner may have taken them already.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The ticket up to which all operations are durable.
    pub(super) fn upto(&self) -> Ticket {
        Ticket(self.committed.load(Ordering::SeqCst))
    }

    /// Makes it a report that this ticket is durable.
    pub(super) fn await_ticket(&self, ticket: Option<Ticket>) {
        self.awaited.store(ticket.map_or(NONE, |ticket| ticket.0), Ordering::SeqCst);
    }

    /// Drops all reports: the journal has ended.
    pub(super) fn silence(&self) {
        self.await_ticket(None);
        self.has_failed.store(false, Ordering::SeqCst);
        self.answered.store(false, Ordering::SeqCst);
    }

    /// Why the journal has failed; told once.
    pub(super) fn take_failure(&self) -> Option<String> {
        let failed = self.has_failed.load(Ordering::SeqCst) && self.has_failed.swap(false, Ordering::SeqCst);
        failed.then(|| self.failure.lock().take()).flatten()
    }

    /// Results of reads since the last call.
    pub(super) fn take_answers(&self) -> Vec<Answer> {
        if !self.answered.load(Ordering::SeqCst) {
            return Vec::new();
        }
        // Before the list is taken: a later result is a new report.
        self.answered.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.answers.lock())
    }
}
