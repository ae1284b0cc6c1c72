//! Threads that hash passwords: hashing takes tens of milliseconds by design, and must not hold up
//! the broker.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// Jobs that wait at most, so that none waits longer than a client may: at 30 ms each and with one
/// thread 4 seconds.
pub const QUEUE_MAX: usize = 128;

/// Threads at most. More would take processors from the delivery of events.
const THREADS_MAX: usize = 4;

/// Nice value of these threads: the delivery of events goes first.
const NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
}

/// A few threads with a bounded queue. When this is dropped, they finish their present job and end.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("waiting", &self.shared.queue.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Starts half as many threads as there are processors, at least one.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> std::io::Result<Workers> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = Workers { shared: Arc::default() };
        for number in 0..(processors / 2).clamp(1, THREADS_MAX) {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("passwords-{number}"));
            thread.spawn(move || work(&shared))?;
        }
        Ok(workers)
    }

    /// Queues a job; `false` if [`QUEUE_MAX`] jobs wait.
    pub(super) fn ask(&self, job: Job) -> bool {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= QUEUE_MAX {
            return false;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.news.notify_one();
        true
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.lock().is_over = true;
        self.shared.news.notify_all();
    }
}

fn work(shared: &Shared) {
    // For this thread alone. If it is not allowed, the delivery of events waits a little more.
    let _ = rustix::process::nice(NICE);
    loop {
        let mut queue = shared.queue.lock();
        let job = loop {
            if queue.is_over {
                return;
            }
            match queue.jobs.pop_front() {
                Some(job) => break job,
                None => shared.news.wait(&mut queue),
            }
        };
        drop(queue);
        job();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_queue_is_bounded() {
        let workers = Workers::start().expect("threads");
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let taken = (0..QUEUE_MAX + THREADS_MAX + 1).filter(|_| {
            let held = held.clone();
            workers.ask(Box::new(move || {
                // It ends when the sender is dropped.
                let _ = held.lock().recv();
            }))
        });
        let taken = taken.count();
        assert!((QUEUE_MAX..=QUEUE_MAX + THREADS_MAX).contains(&taken), "{taken}");
        drop(hold);
        let (done, is_done) = mpsc::channel();
        while !workers.ask(Box::new({
            let done = done.clone();
            move || done.send(()).expect("somebody listens")
        })) {
            std::thread::yield_now();
        }
        is_done.recv().expect("it goes on");
    }
}
