//! An SHB is killed and keeps only its log; its subscribers then all return at once.
//!
//! As in the paper, forty subscribers return together only when the SHB itself has caught up. Two
//! other groups are watched meanwhile: as many at the same SHB, which return as soon as it is up,
//! and as many at another SHB.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::CORES;
use super::crowd::Crowd;
use super::rates::progress_chart;
use super::subscriber::{Counts, Keeper};
use super::topology::Topology;
use crate::bench::process;
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "crash",
    rows: &["catch-up-of-all", "others-undisturbed", "elsewhere-undisturbed", "crash-wrong", "extra-load", "restart"],
    measure,
};

const CATCH_UP: Head = Head {
    id: "catch-up-of-all",
    measure: "time until all 40 had caught up that came back at once after the SHB's crash",
    unit: "s",
    paper: Some(116.0),
    goal: Goal::at_most(5.0),
};

const OTHERS: Head = Head {
    id: "others-undisturbed",
    measure: "latency of 40 others at this SHB while these catch up, 99th percentile",
    unit: "ms",
    paper: None,
    goal: Goal::at_most(50.0),
};

const ELSEWHERE: Head = Head {
    id: "elsewhere-undisturbed",
    measure: "latency of 40 at another SHB while these catch up, 99th percentile",
    unit: "ms",
    paper: None,
    goal: Goal::at_most(50.0),
};

const WRONG: Head = Head {
    id: "crash-wrong",
    measure: "events lost or delivered twice, through absence and crash",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const EXTRA: Head = Head {
    id: "extra-load",
    measure: "events that the PHB sent again while all 40 caught up, of those that they missed, each counted once",
    unit: "ratio",
    paper: None,
    goal: Goal::at_most(1.2),
};

const RESTART: Head = Head {
    id: "restart",
    measure: "time from the start of the killed SHB until it serves again",
    unit: "s",
    paper: None,
    goal: Goal::at_most(1.0),
};

/// The time between two polls of the sockets.
const LOOK: Duration = Duration::from_millis(1);

/// The SHB that is killed, and the one that is not.
const KILLED: usize = 0;
const SPARED: usize = 1;

/// Sizes and times of a run.
struct Scale {
    /// Subscribers of each of the three groups.
    each: usize,
    /// The time before the crash, and after everything else.
    calm: Duration,
    /// The time for which the SHB is down.
    down: Duration,
    /// The time from the crash to the return of the forty.
    away: Duration,
}

impl Scale {
    fn of(effort: Effort) -> Scale {
        let milli = Duration::from_millis;
        if effort.quick {
            return Scale { each: 4, calm: milli(500), down: milli(700), away: milli(1_500) };
        }
        // The paper's times.
        Scale { each: 40, calm: milli(10_000), down: milli(25_000), away: milli(37_550) }
    }
}

/// The result.
struct Outcome {
    /// The seconds until all had caught up, the events that each received for that, and the seconds
    /// for which they were away.
    caught_up: f64,
    recovered: u64,
    away: f64,
    /// 99th percentiles of latencies, ms: at this SHB and at the other one, before the crash and
    /// meanwhile.
    latency: [[f64; 2]; 2],
    counts: Counts,
    /// Events that were published while the forty were away, and events that the PHB sent again
    /// before they returned and while they caught up.
    missed: u64,
    again: [f64; 2],
    /// The part of a core that the PHB used before, and while the forty caught up.
    phb_busy: [f64; 2],
    /// The time of the restart, seconds.
    restart: f64,
    history: Vec<[f64; 3]>,
}

/// The part of a core that the PHB has used since the last call.
struct Busy {
    clock: process::CpuClock,
    since: (Instant, Duration),
}

impl Busy {
    fn of(topology: &Topology) -> Result<Busy> {
        let clock = topology.phb().cpu()?;
        Ok(Busy { clock, since: (Instant::now(), clock.read()?) })
    }

    fn take(&mut self) -> Result<f64> {
        let now = (Instant::now(), self.clock.read()?);
        let (begin, used) = std::mem::replace(&mut self.since, now);
        Ok((now.1 - used).as_secs_f64() / (now.0 - begin).as_secs_f64())
    }
}

fn once(scale: &Scale, seed: u64) -> Result<Outcome> {
    // Subscribers at the other SHB must not have to share a core with the one that catches up.
    let mut topology = Topology::star_on(&[CORES.0, CORES.1])?;
    let mut crowd = Crowd::connect(&topology, Keeper::Client, LOOK, seed)?;
    let others = crowd.add_subscribers_at(KILLED, scale.each)?;
    let elsewhere = crowd.add_subscribers_at(SPARED, scale.each)?;
    let forty = crowd.add_subscribers_at(KILLED, scale.each)?;
    let groups = [crowd.observe(others.clone())?, crowd.observe(elsewhere)?];
    crowd.settle(scale.calm / 2)?;
    let p99 = |crowd: &mut Crowd| groups.map(|group| crowd.latency(group, 0.99));
    p99(&mut crowd);
    crowd.keep_history();
    let mut busy = Busy::of(&topology)?;
    crowd.run(scale.calm)?;
    let (before, busy_before) = (p99(&mut crowd), busy.take()?);
    let (asked, sent, left) = (topology.asked_of_phb()?, crowd.sent(), Instant::now());
    topology.shb(KILLED).kill()?;
    crowd.lose(KILLED);
    crowd.run(scale.down)?;
    let restart = topology.shb(KILLED).start_again()?;
    topology.shb(KILLED).await_links(1)?;
    crowd.come(others.clone())?;
    crowd.run(scale.away.saturating_sub(left.elapsed()))?;
    // As in the paper, all return when the SHB itself has caught up; that is later than planned if
    // catching up takes longer.
    crowd.catch_up(others)?;
    p99(&mut crowd);
    busy.take()?;
    let asked_before = topology.asked_of_phb()?;
    let had: u64 = crowd.subscribers[forty.clone()].iter().map(|one| one.counts.received).sum();
    let (begin, away, missed) = (Instant::now(), left.elapsed().as_secs_f64(), crowd.sent() - sent);
    crowd.come(forty.clone())?;
    crowd.catch_up(forty.clone())?;
    let caught_up = begin.elapsed().as_secs_f64();
    let (meanwhile, busy_meanwhile, asked_after) = (p99(&mut crowd), busy.take()?, topology.asked_of_phb()?);
    let recovered: u64 = crowd.subscribers[forty].iter().map(|one| one.counts.received).sum::<u64>() - had;
    crowd.run(scale.calm)?;
    let history = crowd.history();
    let arrived = crowd.drain()?;
    ensure!(arrived, "not everything has arrived in the end");
    let counts = crowd.counts();
    Ok(Outcome {
        caught_up,
        recovered: recovered / scale.each as u64,
        away,
        latency: [[before[0], meanwhile[0]], [before[1], meanwhile[1]]],
        counts,
        missed,
        again: [asked_before - asked, asked_after - asked_before],
        phb_busy: [busy_before, busy_meanwhile],
        restart: restart.as_secs_f64(),
        history,
    })
}

impl Outcome {
    fn note(&self, each: usize) -> String {
        let [here, there] = self.latency;
        format!(
            "crash: {each} subscribers away for {:.1} s got {} events each within {:.2} s; latency p99 of others {:.1} ms before, {:.1} ms meanwhile, at \
             another SHB {:.1} ms and {:.1} ms; of {} events missed the PHB sent {:.0} again to the SHB before the {each} came back, and {:.0} while they caught up; it \
             used {:.1} % of a core before, {:.1} % meanwhile; {}",
            self.away,
            self.recovered,
            self.caught_up,
            here[0],
            here[1],
            there[0],
            there[1],
            self.missed,
            self.again[0],
            self.again[1],
            100.0 * self.phb_busy[0],
            100.0 * self.phb_busy[1],
            self.counts.note(),
        )
    }
}

/// With lost events the PHB was asked less than it should have been: then the load says nothing.
fn extra_row(outcomes: &[Outcome]) -> Row {
    let wrong: u64 = outcomes.iter().map(|outcome| outcome.counts.wrong()).sum();
    if wrong > 0 {
        return EXTRA
            .unmeasured(&format!("{wrong} events were lost or came twice, so what was sent again tells nothing"));
    }
    let ratios: Vec<f64> = outcomes.iter().map(|outcome| outcome.again[1] / outcome.missed as f64).collect();
    EXTRA.worst(&ratios)
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "an SHB and the generator need a core each, and this machine has {cores}");
    let scale = Scale::of(effort);
    bar.set_length(effort.seeds);
    let mut outcomes = Vec::new();
    for seed in 1..=effort.seeds {
        outcomes.push(once(&scale, seed)?);
        bar.inc(1);
    }
    let of = |figure: fn(&Outcome) -> f64| -> Vec<f64> { outcomes.iter().map(figure).collect() };
    let chart = outcomes.last().map(|last| {
        progress_chart("durable-crash", "Progress through a crash of the SHB and the return of all", &last.history)
    });
    Ok(Part {
        rows: vec![
            CATCH_UP.worst(&of(|outcome| outcome.caught_up)),
            OTHERS.row(&of(|outcome| outcome.latency[0][1])),
            ELSEWHERE.row(&of(|outcome| outcome.latency[1][1])),
            WRONG.worst(&of(|outcome| outcome.counts.wrong() as f64)),
            extra_row(&outcomes),
            RESTART.row(&of(|outcome| outcome.restart)),
        ],
        notes: outcomes.iter().map(|outcome| outcome.note(scale.each)).collect(),
        charts: chart.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_again_counts_only_if_nothing_was_lost() {
        let outcome = |lost| Outcome {
            caught_up: 1.0,
            recovered: 10,
            away: 2.0,
            latency: [[1.0; 2]; 2],
            counts: Counts { lost, ..Counts::default() },
            missed: 100,
            again: [10.0, 130.0],
            phb_busy: [0.1; 2],
            restart: 0.1,
            history: Vec::new(),
        };
        let row = extra_row(&[outcome(0)]);
        assert_eq!((row.ours, row.met), (Some(1.3), Some(false)));
        let row = extra_row(&[outcome(0), outcome(3)]);
        assert_eq!((row.ours, row.met), (None, None));
        assert!(row.why.is_some_and(|why| why.contains("3 events")));
    }
}
