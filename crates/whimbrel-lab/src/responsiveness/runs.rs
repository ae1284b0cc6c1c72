//! Many runs, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;

/// Plays each job once, several at a time; the results are in the order of the jobs, and do not
/// depend on it.
pub fn play_all<J: Sync, T: Send>(jobs: &[J], bar: &ProgressBar, play: impl Fn(&J) -> T + Sync) -> Vec<T> {
    bar.set_length(jobs.len() as u64);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        // Bounded by the jobs: each turn takes another one.
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return };
            *results[at].lock().expect("no player panics with it") = Some(play(job));
            bar.inc(1);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let of = |result: Mutex<Option<T>>| result.into_inner().expect("no player has panicked");
    results.into_iter().map(|result| of(result).expect("each job is played")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let bar = ProgressBar::hidden();
        assert_eq!(play_all(&jobs, &bar, |job| job * job), jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        assert_eq!(bar.position(), 100);
    }
}
