//! Threads that hash passwords: it takes tens of milliseconds by design, and nobody else is to wait
//! for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// What waits to be judged at most, so that nobody waits longer than a client may: at 30 ms each
/// and with one thread 4 seconds.
pub const QUEUE_MAX: usize = 128;

/// Threads at most. More would take the processors from delivering.
const THREADS_MAX: usize = 4;

/// How nice they are to other threads: delivering goes first.
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

/// A few threads with a bounded queue. They end with it, once they have done what they are doing.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("waiting", &self.shared.queue.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Half as many threads as there are processors, at least one.
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

    /// Has a job done, unless too many wait.
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
    // Of this thread alone; if it is not allowed, delivering waits a little more.
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
                // It ends when nobody holds it any more.
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
