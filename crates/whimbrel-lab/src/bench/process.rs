//! Processes as the kernel accounts for them: CPU time, memory, cores and file limits.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::ClockId;
use nix::unistd::Pid;

/// The CPU-time clock of a process: user and system time of all its threads, those that have ended
/// included, in nanoseconds.
///
/// `/proc/PID/stat` has the same sum in ticks of 10 ms. The `schedstat` files are per thread
/// (`/proc/PID/schedstat` is the main thread's alone), lose the threads that end, and are brought
/// up to date only at scheduler ticks.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// The clock of process `pid`.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> Result<CpuClock> {
        let clock = ClockId::pid_cpu_clock_id(unix_pid(pid)?)
            .with_context(|| format!("no CPU clock of process {pid}: is it running?"))?;
        Ok(CpuClock(clock))
    }

    /// The clock of this process.
    pub fn own() -> CpuClock {
        CpuClock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// CPU time used so far.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn read(self) -> Result<Duration> {
        Ok(self.0.now().context("reading the CPU clock: the process has ended")?.into())
    }
}

/// Binds the calling thread, and threads and processes that it starts later, to one core.
///
/// # Errors
/// When there is no such core.
pub fn pin_thread(core: usize) -> Result<()> {
    bind_thread(Some(core))
}

/// Binds the calling thread, and threads and processes that it starts later, to one core, or to
/// all.
///
/// # Errors
/// When there is no such core.
pub fn bind_thread(core: Option<usize>) -> Result<()> {
    let set = core.map_or(Ok(all()), only)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("binding this thread to core {core:?}"))
}

fn only(core: usize) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(core).with_context(|| format!("core {core} is beyond what the kernel supports"))?;
    Ok(set)
}

/// Resident memory of process `pid` in bytes.
///
/// # Errors
/// When the process has ended.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}: is the process running?"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS: the process has ended")?;
    let kib: u64 =
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("VmRSS is no number: {line}"))?;
    Ok(kib * 1024)
}

/// Binds all threads of process `pid`, and those they start later, to one core.
///
/// # Errors
/// When there is no such core or process.
pub fn pin(pid: u32, core: usize) -> Result<()> {
    let set = only(core)?;
    let threads = format!("/proc/{pid}/task");
    for thread in std::fs::read_dir(&threads).with_context(|| format!("reading {threads}: is the process running?"))? {
        let name = thread?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok()).context("a thread without a number")?;
        let bound = sched_setaffinity(unix_pid(thread)?, &set);
        bound.with_context(|| format!("binding thread {thread} of process {pid} to core {core}"))?;
    }
    Ok(())
}

/// Makes sure that `files` files can be open at once in this process and the children it starts.
///
/// # Errors
/// When the hard limit is below that.
pub fn allow_open_files(files: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
    if soft >= files {
        return Ok(());
    }
    ensure!(hard >= files, "{files} open files are needed and the hard limit is {hard}: raise it (ulimit -Hn {files})");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raising the limit of open files")
}

/// The cores of this process, as found at the first call: a thread that is bound to one sees only
/// that.
fn all() -> CpuSet {
    static ALL: std::sync::OnceLock<CpuSet> = std::sync::OnceLock::new();
    *ALL.get_or_init(|| sched_getaffinity(Pid::from_raw(0)).unwrap_or_default())
}

/// The number of cores of this process.
pub fn cores() -> usize {
    let all = all();
    (0..CpuSet::count()).filter(|core| all.is_set(*core).unwrap_or(false)).count().max(1)
}

/// One line about the machine: processor, cores, kernel.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

/// The kernel's `PID_MAX_LIMIT`. CPU clocks of larger numbers would be those of other processes.
const PID_LIMIT: u32 = 4 * 1024 * 1024;

fn unix_pid(pid: u32) -> Result<Pid> {
    match i32::try_from(pid) {
        Ok(raw) if pid > 0 && pid < PID_LIMIT => Ok(Pid::from_raw(raw)),
        _ => bail!("{pid} is no process id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// utime + stime of /proc/PID/stat, in ticks of 10 ms (USER_HZ is 100 on every Linux this runs
    /// on).
    fn ticks(pid: u32) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("own stat");
        let after_name = stat.rsplit_once(") ").expect("a name in brackets").1;
        after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
    }

    #[test]
    fn the_clock_of_a_process_agrees_with_proc_stat_and_counts_ended_threads() {
        let pid = std::process::id();
        let clock = CpuClock::of(pid).expect("own clock");
        let start = clock.read().expect("running");
        let wanted = Duration::from_millis(200);
        let worker = std::thread::spawn(move || {
            while clock.read().expect("running") - start < wanted {
                std::hint::spin_loop();
            }
        });
        worker.join().expect("the worker ends");
        // Other tests may use CPU time in between, so the figure of /proc must lie between two
        // readings of the clock.
        let before = clock.read().expect("running").as_millis() as u64;
        let stat = ticks(pid) * 10;
        let after = clock.read().expect("running").as_millis() as u64;
        let rounding = 2 * 10;
        assert!(before >= 200, "{before} ms");
        assert!(stat + rounding >= before && stat <= after + rounding, "{before} ms, stat {stat} ms, {after} ms");
    }

    #[test]
    fn a_process_that_does_not_exist_is_told() {
        let never_given = PID_LIMIT - 1;
        assert!(CpuClock::of(never_given).and_then(CpuClock::read).is_err());
        assert!(resident_bytes(never_given).is_err());
        assert!(pin(never_given, 0).is_err());
        for pid in [0, PID_LIMIT, 0x7FFF_FFFF, u32::MAX] {
            assert!(CpuClock::of(pid).is_err(), "{pid}");
        }
    }

    #[test]
    fn memory_of_this_process_is_plausible() {
        let bytes = resident_bytes(std::process::id()).expect("own memory");
        assert!((100_000..10_000_000_000).contains(&bytes), "{bytes}");
    }
}
