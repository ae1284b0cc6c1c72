//! Reports of the journal's threads to the machine's owner.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use whimbrel_journal::{Progress, Ticket, WriterReport};

use super::read::Answer;

/// For [`Signal::awaited`]: no commit is awaited.
const NONE: u64 = u64::MAX;

/// Most batches not known to be durable with which the journal's writer becomes the machine's
/// owner itself when it has nothing to write: those of a message or two, and of positions that are
/// written beside them. With more, the output of many would delay the next write.
const WRITER_OWNS_MAX: u64 = 4;

/// Reports of the journal. The machine's owner takes them after each turn, as it looks into the
/// inbox. If the machine has no owner, the thread that reports becomes one if it has time, else a
/// task is woken that does.
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
    /// Batches not known to be durable.
    waiting: AtomicU64,
    wake: Notify,
    handler: OnceLock<ReportHandler>,
}

/// Becomes the machine's owner for a turn, unless it has one.
struct ReportHandler(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for ReportHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportHandler")
    }
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
            waiting: AtomicU64::new(0),
            wake: Notify::new(),
            handler: OnceLock::new(),
        }
    }
}

impl Signal {
    /// Records a report. Called by the journal's writer, between two writes.
    pub(super) fn tell(&self, told: WriterReport) {
        match told.progress {
            Progress::Committed(ticket) => self.committed(ticket),
            Progress::Poisoned(fault) => {
                *self.failure.lock() = Some(fault.to_string());
                self.has_failed.store(true, Ordering::SeqCst);
            }
        }
        if !self.has_news() {
            return;
        }
        let has_time = told.is_idle && self.waiting.load(Ordering::SeqCst) <= WRITER_OWNS_MAX;
        match self.handler.get() {
            // An owner that is at work takes the reports when it lets go.
            Some(handler) if has_time => (handler.0)(),
            _ => self.wake.notify_one(),
        }
    }

    /// Has the journal's writer call `handler` when there are reports, few batches wait, and it has
    /// nothing to write. The first call counts.
    pub(crate) fn listen(&self, handler: impl Fn() + Send + Sync + 'static) {
        self.handler.get_or_init(|| ReportHandler(Box::new(handler)));
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

    /// Makes it a report that this ticket is durable; `waiting`: batches not known to be.
    pub(super) fn await_ticket(&self, ticket: Option<Ticket>, waiting: u64) {
        self.waiting.store(waiting, Ordering::SeqCst);
        self.awaited.store(ticket.map_or(NONE, |ticket| ticket.0), Ordering::SeqCst);
    }

    /// Drops all reports: the journal has ended.
    pub(super) fn silence(&self) {
        self.await_ticket(None, 0);
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether the task that waits for reports is woken by a commit of `upto`.
    fn wakes(signal: &Signal, upto: u64, is_idle: bool) -> bool {
        signal.tell(WriterReport { progress: Progress::Committed(Ticket(upto)), is_idle });
        pin!(signal.woken()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_writer_with_time_hears_of_few_submissions_itself_and_wakes_nobody() {
        let (signal, heard) = (Signal::default(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&heard);
        signal.listen(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        signal.await_ticket(Some(Ticket(5)), WRITER_OWNS_MAX);
        assert!(!wakes(&signal, 4, true), "nobody waits for that one");
        assert_eq!(heard.load(Ordering::SeqCst), 0);
        assert!(!wakes(&signal, 5, true));
        assert_eq!(heard.load(Ordering::SeqCst), 1);
        assert!(wakes(&signal, 6, false), "there is something to write");
        signal.await_ticket(Some(Ticket(7)), WRITER_OWNS_MAX + 1);
        assert!(wakes(&signal, 7, true), "many wait");
        assert_eq!(heard.load(Ordering::SeqCst), 1);
    }
}
