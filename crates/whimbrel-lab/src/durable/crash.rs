//! Forty subscribers are away, the broker is killed in the meantime and has nothing left but its log, and all forty come back at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::broker::Broker;
use super::crowd::Crowd;
use super::rates::progress_chart;
use super::subscriber::Keeper;
use crate::bench::process;
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan =
    Plan { id: "crash", rows: &["catch-up-of-all", "others-undisturbed", "crash-wrong", "restart"], measure };

const CATCH_UP: Head = Head {
    id: "catch-up-of-all",
    measure: "time until all 40 had caught up that came back at once after the broker's crash",
    unit: "s",
    paper: Some(116.0),
    goal: Goal::at_most(5.0),
};

const OTHERS: Head = Head {
    id: "others-undisturbed",
    measure: "latency of the other 40 while these catch up, 99th percentile",
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

const RESTART: Head = Head {
    id: "restart",
    measure: "time from the start of the killed broker until it serves again",
    unit: "s",
    paper: None,
    goal: Goal::at_most(1.0),
};

/// How often sockets are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// Sizes and times of a run.
struct Scale {
    /// Subscribers that are away, and as many that stay.
    each: usize,
    /// Before anything happens.
    calm: Duration,
    /// How long the others are alone until the broker is killed.
    before: Duration,
    /// How long it is down.
    down: Duration,
    /// How long the others are alone again.
    after: Duration,
}

impl Scale {
    fn of(effort: Effort) -> Scale {
        let (second, milli) = (Duration::from_secs, Duration::from_millis);
        match effort {
            Effort { quick: true, .. } => {
                Scale { each: 4, calm: milli(500), before: second(1), down: milli(200), after: milli(200) }
            }
            Effort { full: true, .. } => {
                Scale { each: 40, calm: second(10), before: milli(7_500), down: second(25), after: second(5) }
            }
            Effort { .. } => Scale { each: 40, calm: second(5), before: second(18), down: second(5), after: second(2) },
        }
    }
}

/// What came of it.
struct Outcome {
    /// Seconds until all had caught up, how many events each got for that, and for how long they were away.
    caught_up: f64,
    recovered: u64,
    away: f64,
    /// Latencies of the others, ms.
    latency: [f64; 2],
    wrong: u64,
    /// Seconds.
    restart: f64,
    history: Vec<[f64; 3]>,
}

fn once(scale: &Scale, seed: u64) -> Result<Outcome> {
    let mut broker = Broker::start()?;
    let mut crowd = Crowd::connect(broker.target, Keeper::Client, LOOK, seed)?;
    let (others, forty) = (0..scale.each, scale.each..2 * scale.each);
    crowd.observed = scale.each;
    crowd.add_subscribers(2 * scale.each)?;
    crowd.run(scale.calm / 2)?;
    crowd.latency();
    crowd.keep_history();
    crowd.run(scale.calm)?;
    let latency_before = crowd.latency();
    crowd.leave(forty.clone());
    let left = Instant::now();
    crowd.run(scale.before)?;
    broker.kill()?;
    crowd.lose_all();
    // Nobody is there to send to: what is due waits at the publishers.
    std::thread::sleep(scale.down);
    let restart = broker.start_again()?;
    crowd.publishers_return()?;
    crowd.come(others.clone())?;
    crowd.run(scale.after)?;
    let all_back = crowd.subscribers[others].iter().all(super::subscriber::Subscriber::is_live);
    ensure!(all_back, "those who stayed have not caught up within {:?}", scale.after);
    crowd.latency();
    let had: u64 = crowd.subscribers[forty.clone()].iter().map(|one| one.counts.received).sum();
    let (begin, away) = (Instant::now(), left.elapsed().as_secs_f64());
    crowd.come(forty.clone())?;
    crowd.catch_up()?.context("the subscribers have not caught up")?;
    let caught_up = begin.elapsed().as_secs_f64();
    let latency = [latency_before, crowd.latency()];
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
        latency,
        wrong: counts.lost + counts.repeated,
        restart: restart.as_secs_f64(),
        history,
    })
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let cores = process::cores();
    ensure!(cores >= 2, "broker and generator need a core each, and this machine has {cores}");
    let scale = Scale::of(effort);
    bar.set_length(effort.seeds);
    let (mut notes, mut history) = (Vec::new(), Vec::new());
    let mut samples: [Vec<f64>; 4] = Default::default();
    for seed in 1..=effort.seeds {
        let outcome = once(&scale, seed)?;
        let Outcome { caught_up, recovered, away, latency: [before, during], wrong, restart, .. } = outcome;
        notes.push(format!(
            "crash: {} subscribers away for {away:.1} s got {recovered} events each within {caught_up:.2} s; latency p99 of the others {before:.1} ms \
             before, {during:.1} ms meanwhile",
            scale.each
        ));
        for (samples, value) in samples.iter_mut().zip([caught_up, during, wrong as f64, restart]) {
            samples.push(value);
        }
        history = outcome.history;
        bar.inc(1);
    }
    let [caught_up, during, wrong, restart] = samples;
    Ok(Part {
        rows: vec![CATCH_UP.worst(&caught_up), OTHERS.row(&during), WRONG.worst(&wrong), RESTART.row(&restart)],
        notes,
        charts: vec![progress_chart(
            "durable-crash",
            "Progress through absences, a crash and the return of all",
            &history,
        )],
    })
}
