//! Names processes, so that a start on the same machine sees at once that its former owner has
//! ended, and need not wait for its lease.
//!
//! `BOOT/NAMESPACE/NUMBER/START`: the random number of the system's start, the namespace in which
//! processes are numbered, the number, and when the process was started.

use std::fs;

use rustix::io::Errno;
use rustix::process::test_kill_process;

/// The name of this process; empty where the system does not tell.
pub(super) fn own() -> String {
    name_of(std::process::id()).unwrap_or_default()
}

/// Whether a process is known to have ended: it ran on this machine, since the system was started,
/// in this namespace, and is not there. A process that cannot be judged is not.
pub(super) fn is_dead(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let [boot, namespace, number, _] = parts[..] else { return false };
    let (Some(here), Ok(number)) = (here(), number.parse::<u32>()) else { return false };
    if [boot, namespace] != [&*here.boot, &*here.namespace] {
        return false;
    }
    // One that may not be signalled is there; `/proc` may hide it.
    let process = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw);
    let is_there = process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH));
    // A process of this number that was started at another time is another one.
    !is_there || name_of(number).is_some_and(|other| other != name)
}

struct Here {
    boot: String,
    namespace: String,
}

fn here() -> Option<Here> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned();
    Some(Here { boot, namespace })
}

fn name_of(number: u32) -> Option<String> {
    /// Fields of `/proc/N/stat` behind the name, before the time of the start.
    const BEFORE_START: usize = 19;
    let Here { boot, namespace } = here()?;
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name may have blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let start = fields.split_whitespace().nth(BEFORE_START)?;
    Some(format!("{boot}/{namespace}/{number}/{start}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_machine_that_is_not_there_is_dead() {
        let own = own();
        assert!(!is_dead(&own), "{own}");
        let (rest, start) = own.rsplit_once('/').expect("it has four parts");
        let start: u64 = start.parse().expect("a number");
        assert!(is_dead(&format!("{rest}/{}", start + 1)), "another process of this number");
        let (machine, _) = rest.rsplit_once('/').expect("it has four parts");
        // Greater than any number that the system gives.
        assert!(is_dead(&format!("{machine}/{}/1", u32::MAX)));
        assert!(!is_dead(&format!("another-boot{}", &own[1..])), "another machine");
        for unknown in ["", "a/b/c/d", "////"] {
            assert!(!is_dead(unknown), "{unknown:?}");
        }
    }
}
