//! Deliveries, log writes, requests for events and latencies, with the paper's times and processors
//! that cost nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;

use super::world::{Ground, World};
use crate::cores::costs::Costs;
use crate::durable::chain::HOPS;
use crate::durable::crowd::Absences;
use crate::durable::rates::progress_chart;
use crate::durable::{CLASSES, RATE};
use crate::experiment::report::{Head, Part, Row};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// Subscribers of 4 SHBs leave and return.
pub const ABSENCES: Plan = Plan { id: "absences", rows: &["absences-wrong", "log-writes"], measure: absences };

/// An SHB is killed, and 40 subscribers return at once.
pub const CRASH: Plan = Plan { id: "crash", rows: &["crash-wrong", "extra-load"], measure: crash };

/// Six brokers in a chain.
pub const CHAIN: Plan = Plan { id: "chain", rows: &["latency-5-hops", "chain-wrong"], measure: chain };

const ABSENCES_WRONG: Head = Head {
    id: "absences-wrong",
    measure: "events lost or delivered twice while subscribers of 4 SHBs are away for 5 s every 300 s",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

const LOG_WRITES: Head = Head {
    id: "log-writes",
    measure: "log writes per event, in 5 brokers together",
    unit: "writes",
    paper: Some(1.0),
    goal: Goal::exactly(1.0),
};

const CRASH_WRONG: Head = Head {
    id: "crash-wrong",
    measure: "events lost or delivered twice through an SHB's crash of 25 s and the return of 40 at once",
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

const LATENCY: Head = Head {
    id: "latency-5-hops",
    measure: "median latency over 5 links of 10 ms; goal: these, logging as it was in the same run, and 1 ms per hop",
    unit: "ms",
    paper: Some(50.0),
    goal: Goal::at_most(0.0),
};

const CHAIN_WRONG: Head = Head {
    id: "chain-wrong",
    measure: "events lost or delivered twice over the chain",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// How long events in flight may take to arrive.
const ARRIVE: Duration = Duration::from_secs(20);

/// The time until all subscribers have received an event of every publisher.
const SETTLE: Duration = Duration::from_secs(1);

/// The setup for subscribers that were away: brokers other than their PHB, over links of 5 ms, with
/// commits of 5 ms.
fn ground(seed: u64) -> Ground {
    let millis = Duration::from_millis;
    Ground { costs: Costs::FREE, commit: millis(5), delay: millis(5), rate: RATE, seed }
}

/// Events lost or repeated in the end, when all subscribers are connected and everything has
/// arrived.
fn wrong(world: &mut World) -> u64 {
    let sent = world.sent;
    world.rest(ARRIVE);
    let counts = world.people.counts();
    // A subscriber that lacks the last events has lost them.
    let late = world.people.all.iter().filter(|person| !person.has_all_before(sent)).count() as u64;
    counts.wrong() + late
}

fn absences(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let seconds = Duration::from_secs;
    let (each, absences, span) = match effort.quick {
        true => (4, Absences { period: seconds(6), away: seconds(1) }, seconds(12)),
        false => (22, Absences { period: seconds(300), away: seconds(5) }, seconds(620)),
    };
    bar.set_length(effort.seeds);
    let (mut broken, mut writes, mut part) = (Vec::new(), Vec::new(), Part::default());
    for seed in 1..=effort.seeds {
        let mut world = World::star(4, ground(seed))?;
        world.add_everywhere(each);
        world.run(SETTLE);
        // Everything that was sent by then is committed in the end.
        world.rest(SETTLE);
        let (logged, sent) = (world.logged(5), world.sent);
        world.keep_history();
        world.begin_absences(absences);
        world.run(span);
        world.end_absences();
        broken.push(wrong(&mut world) as f64);
        writes.push((world.logged(5) - logged) as f64 / (world.sent - sent) as f64);
        let times = || world.people.all.iter().flat_map(|person| &person.caught_up);
        let worst = times().max().copied().unwrap_or_default();
        part.notes.push(format!(
            "absences: {} subscribers at 4 SHBs, {} returns caught up within {:.0} ms, of which the links take 10 ms",
            4 * each,
            times().count(),
            worst.as_secs_f64() * 1e3
        ));
        if seed == effort.seeds {
            let title = "Progress while subscribers of 4 SHBs go and come back (virtual)";
            part.charts.push(progress_chart("durable-virtual-disconnections", title, &world.history));
        }
        bar.inc(1);
    }
    part.rows = vec![ABSENCES_WRONG.worst(&broken), LOG_WRITES.worst(&writes)];
    Ok(part)
}

/// The result of a crash.
struct Crashed {
    wrong: u64,
    /// Events that all missed, and events that the PHB sent again before they returned and while
    /// they caught up.
    missed: u64,
    again: [u64; 2],
    caught_up: Duration,
    history: Vec<[f64; 3]>,
}

/// A crash for `down`, and the return of all but some after `away`.
fn crashed(each: usize, [calm, down, away]: [Duration; 3], seed: u64) -> Result<Crashed> {
    const KILLED: usize = 0;
    const SPARED: usize = 1;
    let mut world = World::star(2, ground(seed))?;
    let others = world.add(KILLED, each);
    world.add(SPARED, each);
    let forty = world.add(KILLED, each);
    world.run(SETTLE);
    world.keep_history();
    world.run(calm);
    let (sent, asked) = (world.sent, world.asked_of_phb());
    world.kill(KILLED);
    world.run(down);
    world.net.start(world.shb(KILLED));
    // As real clients do, they return when the broker has its links.
    world.run(SETTLE);
    others.for_each(|index| world.come(index));
    world.run(away - down - SETTLE);
    let (missed, asked_before) = (world.sent - sent, world.asked_of_phb());
    forty.clone().for_each(|index| world.come(index));
    world.run(calm.max(SETTLE));
    let asked_after = world.asked_of_phb();
    let times = world.people.all[forty].iter().flat_map(|person| person.caught_up.last());
    let caught_up = times.max().copied().unwrap_or_default();
    let history = std::mem::take(&mut world.history);
    let again = [asked_before - asked, asked_after - asked_before];
    Ok(Crashed { wrong: wrong(&mut world), missed, again, caught_up, history })
}

fn crash(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let millis = Duration::from_millis;
    let (each, times) = match effort.quick {
        true => (4, [millis(1_000), millis(3_000), millis(5_000)]),
        false => (40, [millis(20_000), millis(25_000), millis(37_550)]),
    };
    bar.set_length(effort.seeds);
    let (mut all, mut part) = (Vec::new(), Part::default());
    for seed in 1..=effort.seeds {
        let outcome = crashed(each, times, seed)?;
        part.notes.push(format!(
            "crash: of {} events missed the PHB sent {} again to the SHB before the {each} came back, and {} while they caught up; that took {:.0} ms",
            outcome.missed,
            outcome.again[0],
            outcome.again[1],
            outcome.caught_up.as_secs_f64() * 1e3
        ));
        all.push(outcome);
        bar.inc(1);
    }
    if let Some(last) = all.last() {
        let title = "Progress through a crash of the SHB and the return of all (virtual)";
        part.charts.push(progress_chart("durable-virtual-crash", title, &last.history));
    }
    let broken: Vec<f64> = all.iter().map(|outcome| outcome.wrong as f64).collect();
    part.rows = vec![CRASH_WRONG.worst(&broken), extra_row(&all)];
    Ok(part)
}

/// With lost events the PHB was asked less than it should have been: then the load says nothing.
fn extra_row(all: &[Crashed]) -> Row {
    let wrong: u64 = all.iter().map(|outcome| outcome.wrong).sum();
    if wrong > 0 {
        return EXTRA
            .unmeasured(&format!("{wrong} events were lost or came twice, so what was sent again tells nothing"));
    }
    EXTRA.worst(&all.iter().map(|outcome| outcome.again[1] as f64 / outcome.missed as f64).collect::<Vec<_>>())
}

fn chain(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let millis = Duration::from_millis;
    let span = Duration::from_secs(if effort.quick { 2 } else { 60 });
    // The paper's 44 ms of logging: an event waits for the commit in progress, and then for its
    // own.
    let delay = millis(10);
    bar.set_length(effort.seeds);
    let (mut latencies, mut goals, mut broken, mut part) = (Vec::new(), Vec::new(), Vec::new(), Part::default());
    for seed in 1..=effort.seeds {
        let mut world = World::chain(HOPS, Ground { commit: millis(29), delay, ..ground(seed) })?;
        world.add(0, CLASSES);
        world.run(SETTLE);
        world.people.latencies.reset();
        world.people.answers.reset();
        world.run(span);
        let median = |latencies: &hdrhistogram::Histogram<u64>| latencies.value_at_quantile(0.5) as f64 / 1e3;
        let (latency, logging) = (median(&world.people.latencies), median(&world.people.answers));
        ensure!(latency > 0.0, "nothing came over the chain");
        let path = HOPS as f64 * delay.as_secs_f64() * 1e3;
        part.notes.push(format!(
            "chain: median latency {latency:.2} ms, of which {logging:.2} ms logging and {path:.0} ms path delay"
        ));
        latencies.push(latency);
        goals.push(logging + path + HOPS as f64);
        broken.push(wrong(&mut world) as f64);
        bar.inc(1);
    }
    goals.sort_by(f64::total_cmp);
    let head = Head { goal: Goal::at_most(goals[goals.len() / 2]), ..LATENCY };
    part.rows = vec![head.row(&latencies), CHAIN_WRONG.worst(&broken)];
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_there_gets_everything_once_over_five_hops_and_on_time() {
        let delay = Duration::from_millis(10);
        let mut world = World::chain(HOPS, Ground { delay, ..ground(3) }).expect("a world");
        world.add(0, CLASSES);
        world.run(SETTLE);
        world.people.latencies.reset();
        world.run(Duration::from_secs(1));
        let latency = world.people.latencies.value_at_quantile(0.5);
        assert!((50_000..60_000).contains(&latency), "{latency} µs over 50 ms of links and a commit of 5 ms");
        assert_eq!(wrong(&mut world), 0);
        assert!(world.people.counts().received > 700, "{:?}", world.people.counts());
    }

    #[test]
    fn what_has_not_arrived_in_the_end_is_wrong() {
        let mut world = World::star(1, ground(3)).expect("a world");
        world.add(0, CLASSES);
        world.run(SETTLE);
        world.kill(0);
        world.run(SETTLE);
        assert_eq!(wrong(&mut world), CLASSES as u64, "nobody has come back");
    }
}
