//! Seeds, as the environment says, and runs of them on all cores.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Failures after which a worker looks for no more, unless `WHIMBREL_FAILURES` says otherwise.
const FAILURES_MAX: u64 = 3;

/// The number that a variable of the environment has, if it is set.
pub fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number, not {text:?}")))
}

/// Plays seeds on all cores; what came of them, by seed.
pub fn play<R: Send>(
    first: u64,
    count: u64,
    run: impl Fn(u64) -> R + Sync,
    is_broken: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let next = AtomicU64::new(first);
    let failures_max = number("WHIMBREL_FAILURES").unwrap_or(FAILURES_MAX);
    let work = || {
        let (mut reports, mut failures) = (Vec::new(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failures == failures_max {
                return reports;
            }
            let report = run(seed);
            failures += u64::from(is_broken(&report));
            reports.push((seed, report));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut reports: Vec<(u64, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a run does not panic")).collect()
    });
    reports.sort_by_key(|(seed, _)| *seed);
    reports.into_iter().map(|(_, report)| report).collect()
}
