//! A link that is offered more events with a deadline than it carries, beside bulk.
//!
//! Publishers at several brokers send over one entry broker, a narrow link and one exit broker to
//! the subscribers: events of three topics with different deadlines, together 120 % of the link's
//! rate, in frames of one size, and events of a topic without a deadline. As all frames with a
//! deadline take the link equally long, the most that any schedule could have in time is known.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::overlay::LinkInfo;
use whimbrel_core::{Link, Profile};
use whimbrel_event::{Event, EventId, PubendId, Reliability, Tick, Time};
use whimbrel_sim::random::Random;

use super::audience::{Audience, NUMBER_BYTES};
use super::runs::play_all;
use super::scene::{Preset, Technique};
use super::stage::{event, plain_wish};
use super::tally::mean;
use crate::bench::report::number;
use crate::cores::costs::Costs;
use crate::cores::wire::{NarrowLink, WayCourse, WayTruth};
use crate::cores::{Ask, Cores, START, Setup};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "overload", rows: &["overload-in-time", "overload-bulk"], measure };

/// The brokers at the ends of the narrow link; those behind them have publishers.
const ENTRY: usize = 0;
const EXIT: usize = 1;

/// Brokers with publishers: a broker has four streams for reliable events with a deadline, and
/// order within a stream binds its events together. All but the first are for the notes.
const SOURCES: usize = 16;
const ALL_SOURCES: [usize; 3] = [4, SOURCES, 64];

/// See [`SOURCES`].
const STREAMS: usize = 4;

/// Publishers at each of them: a publisher is bound to one of the streams by its name.
const PUBLISHERS: usize = 12;

/// The topics, of which the last has no deadline.
const TOPICS: [&str; 4] = ["soon", "later", "late", "bulk"];

/// The index of the topic without a deadline.
const BULK: usize = 3;

/// The deadlines of the other topics.
const DEADLINES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

/// Bytes of an event's body.
const BODY: usize = 1_000;

/// Bytes of a frame with such an event, on the narrow link.
const FRAME: usize = 1_050;

/// The time that a frame takes on the link.
const SLOT: Duration = Duration::from_millis(1);

/// The narrow link: a frame in each slot.
const NARROW: NarrowLink =
    NarrowLink { bytes: FRAME as f64 * 1e9 / SLOT.as_nanos() as f64, queue: Duration::from_millis(100) };

/// The delay of the narrow link, and of those to the sources.
const DELAY: Duration = Duration::from_millis(10);
const SOURCE_DELAY: Duration = Duration::from_millis(1);

/// In each half of a slot an event with a deadline is published with this chance, per thousand:
/// 120 % of the link's rate.
const OFFERED_PERMILLE: u64 = 600;

/// In each half of a slot a bulk event is published with this chance, per thousand.
const BULK_PERMILLE: u64 = 150;

/// When publishers begin, for how long they publish, and how long the rest may take.
const BEGIN: Duration = Duration::from_secs(10);
const LENGTH: Duration = Duration::from_secs(10);
const SHORT_LENGTH: Duration = Duration::from_secs(2);
const DRAIN: Duration = Duration::from_secs(60);

/// The step of the chart.
const BIN: Duration = Duration::from_millis(250);

/// One slot in this many is left to bulk by the schedule with which ours is compared, as the goal
/// for bulk says.
const BULK_ONE_IN: u64 = 20;

/// The link of the first publisher, behind those of the subscribers.
const FIRST_PUBLISHER: u32 = 100;

/// An event that takes one slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct UnitJob {
    /// The first slot in which it may leave.
    from: u64,
    /// The last slot in which it may leave to be in time.
    upto: u64,
}

/// The most jobs that can each have a slot of their own between their two, if some slots are taken:
/// in each slot the one whose last slot is next (Glover, "Maximum matching in a convex bipartite
/// graph", 1967). `jobs` are in the order of their first slots. Returns those that have a slot.
fn most_in_time(jobs: &[UnitJob], is_taken: impl Fn(u64) -> bool) -> Vec<UnitJob> {
    let (mut waiting, mut next, mut done) = (BTreeSet::new(), 0, Vec::new());
    let end = jobs.iter().map(|job| job.upto).max().unwrap_or(0);
    for slot in 0..=end {
        while let Some(job) = jobs.get(next).filter(|job| job.from <= slot) {
            waiting.insert((job.upto, next));
            next += 1;
        }
        while waiting.first().is_some_and(|(upto, _)| *upto < slot) {
            waiting.pop_first();
        }
        if !is_taken(slot) {
            done.extend(waiting.pop_first().map(|(_, at)| jobs[at]));
        }
    }
    done
}

/// What a run gives.
#[derive(Clone, Debug)]
struct OverloadOutcome {
    /// Events in time, of the most that could be.
    ratio: f64,
    /// The same if the best schedule sends no bulk.
    without_bulk: f64,
    /// The share of the link's bytes that frames with bulk had, per cent.
    bulk: f64,
    /// The same of the channels of ordinary events, with silence.
    ordinary: f64,
    /// By topic with a deadline: the share that was in time, per cent.
    by_topic: [f64; DEADLINES.len()],
    /// Bytes of a frame on the narrow link, on average.
    frame: f64,
    /// The load that was offered, of the link's rate, per cent.
    offered: f64,
    /// Events that did not arrive.
    lost: usize,
    /// Events that the entry broker did not queue, as too much was waiting.
    held_back: u64,
    /// The share of the narrow link's bytes that had no events, per cent.
    beside: f64,
    /// By [`BIN`] in which events were published: the share that was in time, and the share that
    /// the best schedule has in time; and the share of the link that bulk had then; per cent.
    over_time: Vec<[f64; 3]>,
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OverloadRun {
    sources: usize,
    length: Duration,
    seed: u64,
}

/// The brokers, their clients, and the events so far.
struct OverloadWorld {
    run: OverloadRun,
    net: Cores,
    audience: Audience,
    random: Random,
    body: Vec<u8>,
}

impl OverloadWorld {
    fn new(run: OverloadRun) -> OverloadWorld {
        let OverloadRun { sources, seed, .. } = run;
        let mut net = Cores::new(Costs::FREE, seed << 16);
        let with_deadline = TOPICS.iter().zip(DEADLINES);
        let profile = |(topic, deadline): (&&str, Duration)| Profile {
            filter: (*topic).into(),
            deadline: Some(deadline),
            ..Profile::default()
        };
        let profiles: Vec<Profile> = with_deadline.map(profile).collect();
        for _ in 0..2 + sources {
            let (routing, pace) = (Technique::Reactive.routing(), Preset::Own.pace());
            net.add(Setup { routing, pace, profiles: profiles.clone(), ..Setup::default() });
        }
        let course = |way| WayCourse(vec![(START, way)]);
        let narrow = WayTruth { rate: Some(NARROW), ..WayTruth::steady(DELAY) };
        net.link_over([ENTRY, EXIT], [course(narrow), course(WayTruth::steady(DELAY))]);
        for source in 2..2 + sources {
            net.link_over([source, ENTRY], [(); 2].map(|()| course(WayTruth::steady(SOURCE_DELAY))));
        }
        let audience = Audience::new(START, TOPICS.map(str::to_owned).to_vec(), TOPICS.len());
        let body = vec![b'.'; BODY];
        let mut world = OverloadWorld { run, net, audience, random: Random::new(seed), body };
        world.net.run_until(START + BEGIN / 2, &mut world.audience);
        world.connect();
        world.net.run_until(START + BEGIN, &mut world.audience);
        assert_eq!(world.audience.answered, TOPICS.len(), "brokers that know each other answer at once");
        world
    }

    fn attach(&mut self, node: usize, link: Link) {
        let client = format!("client-{}", link.0);
        let ask = Ask::Attach { link, client, lasting: Duration::ZERO, window: u16::MAX };
        self.net.ask(node, ask, &mut self.audience);
    }

    fn connect(&mut self) {
        for (number, topic) in (0..).zip(TOPICS) {
            self.attach(EXIT, Link(number));
            let wish = Box::new(plain_wish(topic));
            self.net.ask(EXIT, Ask::Subscribe(Link(number), wish), &mut self.audience);
        }
        for publisher in 0..self.run.sources * PUBLISHERS {
            let (node, link) = OverloadWorld::publisher(publisher);
            self.attach(node, link);
        }
    }

    /// The broker of a publisher, and its link.
    fn publisher(publisher: usize) -> (usize, Link) {
        (2 + publisher / PUBLISHERS, Link(FIRST_PUBLISHER + publisher as u32))
    }

    /// An event of a topic is published: bulk by the first publisher, others by one that is drawn.
    fn publish(&mut self, now: Time, topic: usize) {
        let drawn = self.random.below((self.run.sources * PUBLISHERS) as u64) as usize;
        let drawn = if topic == BULK { 0 } else { drawn };
        let (node, link) = OverloadWorld::publisher(drawn);
        let sent = &mut self.audience.sent[topic];
        self.body[..NUMBER_BYTES].copy_from_slice(&(sent.len() as u64).to_le_bytes());
        sent.push(now);
        let deadline = DEADLINES.get(topic).copied();
        let reliability = if topic == BULK { Reliability::BestEffort } else { Reliability::Reliable };
        let event = event(TOPICS[topic], reliability, deadline, &self.body);
        let event = Event::keep(EventId { pubend: PubendId(0), tick: Tick(0) }, now, &event);
        self.net.ask(node, Ask::Publish(link, 1, event), &mut self.audience);
    }

    /// Publishes for a time, and waits for the rest. Returns the bytes of the channels of ordinary
    /// events that had left over the narrow link before that.
    fn run(&mut self) -> u64 {
        let (from, length) = (START + BEGIN, self.run.length);
        let halves = (2 * length.as_nanos() / SLOT.as_nanos()) as u32;
        for half in 0..halves {
            let now = from + SLOT * half / 2;
            self.net.run_until(now, &mut self.audience);
            if self.random.chance(OFFERED_PERMILLE) {
                let topic = self.random.below(DEADLINES.len() as u64) as usize;
                self.publish(now, topic);
            }
            if self.random.chance(BULK_PERMILLE) {
                self.publish(now, BULK);
            }
        }
        let [_, _, reliable, best_effort] = self.net.served(ENTRY, EXIT);
        self.net.run_until(from + length + DRAIN, &mut self.audience);
        reliable + best_effort
    }

    fn entry_links(&self) -> impl Iterator<Item = LinkInfo> {
        self.net.core(ENTRY).links().into_iter()
    }

    /// Bytes of frames with events that the entry broker has sent. All go over the narrow link.
    fn event_bytes(&self) -> u64 {
        let net = self.net.core(ENTRY).overlay_stats().expect("it has an overlay").net;
        net.header_bytes + net.event_bytes
    }

    /// Bytes of a frame with an event on the narrow link, on average.
    fn frame(&self) -> f64 {
        let events: u64 = self.entry_links().map(|link| link.counters.events_out).sum();
        self.event_bytes() as f64 / events as f64
    }

    /// See [`OverloadOutcome::beside`].
    fn beside(&self) -> f64 {
        let exit = self.net.core(EXIT).host();
        let narrow = self.entry_links().find(|link| link.host == exit).expect("they are linked");
        let bytes = narrow.counters.bytes_out;
        100.0 * (bytes - self.event_bytes()) as f64 / bytes as f64
    }

    /// See [`OverloadOutcome::over_time`].
    fn over_time(&self, best: &[UnitJob]) -> Vec<[f64; 3]> {
        let bins = (self.run.length.as_nanos() / BIN.as_nanos()) as usize;
        let (mut all, mut sums) = (vec![0.0; bins], vec![[0.0; 3]; bins]);
        for (topic, deadline) in DEADLINES.into_iter().enumerate() {
            for (at, latency) in self.audience.sent[topic].iter().zip(self.latencies(topic)) {
                let bin = (at.since(START + BEGIN).as_nanos() / BIN.as_nanos()) as usize;
                all[bin] += 1.0;
                sums[bin][0] += if latency.is_some_and(|latency| latency <= deadline) { 100.0 } else { 0.0 };
            }
        }
        let in_bin = (BIN.as_nanos() / SLOT.as_nanos()) as u64;
        best.iter().for_each(|job| sums[((job.from / in_bin) as usize).min(bins - 1)][1] += 100.0);
        for at in self.audience.came[BULK].iter().filter(|at| **at < Time::MAX) {
            let bin = (at.since(START + BEGIN).as_nanos() / BIN.as_nanos()) as usize;
            sums.iter_mut().skip(bin).take(1).for_each(|counts| counts[2] += self.frame() * 100.0);
        }
        let of_link = NARROW.bytes * BIN.as_secs_f64();
        let shares = |([ours, best, bulk], all): (&[f64; 3], f64)| [ours / all, best / all, bulk / of_link];
        sums.iter().zip(all).map(shares).collect()
    }

    /// The latency of each event of a topic, if it arrived.
    fn latencies(&self, topic: usize) -> impl Iterator<Item = Option<Duration>> {
        let sent = self.audience.sent[topic].iter().enumerate();
        sent.map(move |(number, at)| Some(self.audience.arrival(topic, number)?.since(*at)))
    }

    /// The events with a deadline as jobs on the narrow link, in order. A job's slots are rounded
    /// down, both of them: that changes no schedule of slots, and allows each one that begins
    /// within a slot.
    fn jobs(&self) -> Vec<UnitJob> {
        let slot = |after: Duration| (after.as_nanos() / SLOT.as_nanos()) as u64;
        let of = |topic: usize| {
            let job = move |at: &Time| {
                let published = at.since(START + BEGIN);
                let upto = published + DEADLINES[topic] - DELAY - SLOT;
                UnitJob { from: slot(published + SOURCE_DELAY), upto: slot(upto) }
            };
            self.audience.sent[topic].iter().map(job)
        };
        let mut jobs: Vec<UnitJob> = (0..DEADLINES.len()).flat_map(of).collect();
        jobs.sort_unstable();
        jobs
    }

    fn outcome(&self, ordinary: u64) -> OverloadOutcome {
        let length = self.run.length;
        let slots = (length.as_nanos() / SLOT.as_nanos()) as u64;
        let counts: [_; DEADLINES.len()] = std::array::from_fn(|topic| {
            let is_in_time = |latency: &Option<Duration>| latency.is_some_and(|latency| latency <= DEADLINES[topic]);
            (self.latencies(topic).filter(is_in_time).count(), self.audience.sent[topic].len())
        });
        let in_time: usize = counts.iter().map(|(in_time, _)| in_time).sum();
        let all: usize = counts.iter().map(|(_, all)| all).sum();
        let jobs = self.jobs();
        let best = most_in_time(&jobs, |slot| slot < slots && slot % BULK_ONE_IN == 0);
        let end = START + BEGIN + length;
        let bulk = self.audience.came[BULK].iter().filter(|at| **at <= end).count();
        let of_link = |bytes: f64| 100.0 * bytes / (NARROW.bytes * length.as_secs_f64());
        OverloadOutcome {
            ratio: in_time as f64 / best.len() as f64,
            without_bulk: in_time as f64 / most_in_time(&jobs, |_| false).len() as f64,
            bulk: of_link(bulk as f64 * self.frame()),
            ordinary: of_link(ordinary as f64),
            by_topic: counts.map(|(in_time, all)| 100.0 * in_time as f64 / all as f64),
            frame: self.frame(),
            offered: 100.0 * all as f64 / slots as f64,
            held_back: self.entry_links().map(|link| link.counters.events_held_back).sum(),
            beside: self.beside(),
            over_time: self.over_time(&best),
            lost: (0..DEADLINES.len()).map(|topic| self.latencies(topic).filter(Option::is_none).count()).sum(),
        }
    }
}

/// Plays one run.
fn play(run: &OverloadRun) -> OverloadOutcome {
    let mut world = OverloadWorld::new(*run);
    let ordinary = world.run();
    world.outcome(ordinary)
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let length = if effort.quick { SHORT_LENGTH } else { LENGTH };
    let runs = |sources, length| (1..=effort.seeds).map(move |seed| OverloadRun { sources, length, seed });
    let mut jobs: Vec<OverloadRun> = runs(SOURCES, length).collect();
    jobs.extend(ALL_SOURCES.into_iter().flat_map(|sources| runs(sources, SHORT_LENGTH)));
    let mut runs = play_all(&jobs, bar, play);
    let short = runs.split_off(effort.seeds as usize);
    let by_sources = short.chunks(effort.seeds as usize).zip(ALL_SOURCES).map(|(runs, sources)| {
        let ratios: Vec<f64> = runs.iter().map(|run| run.ratio).collect();
        format!("{} with {} streams", number(mean(&ratios)), sources * STREAMS)
    });
    let by_sources = by_sources.collect::<Vec<String>>().join(", ");
    let of = |part: fn(&OverloadOutcome) -> f64| runs.iter().map(part).collect::<Vec<_>>();
    let in_time = Head {
        id: "overload-in-time",
        measure: "a link at 120 %, three deadlines: events in time, of the most that a schedule with 5 % bulk has",
        unit: "ratio",
        paper: None,
        goal: Goal::at_least(0.95),
    };
    let bulk = Head {
        id: "overload-bulk",
        measure: "a link at 120 %, three deadlines: the part of the link that bulk has",
        unit: "%",
        paper: None,
        goal: Goal::at_least(5.0),
    };
    let by_topic: [String; DEADLINES.len()] = std::array::from_fn(|topic| {
        let in_time: Vec<f64> = runs.iter().map(|run| run.by_topic[topic]).collect();
        format!("{} % within {} ms", number(mean(&in_time)), DEADLINES[topic].as_millis())
    });
    let lost: usize = runs.iter().map(|run| run.lost).sum();
    let notes = vec![
        format!(
            "overload: {} % of the link are offered in {} streams, frames of {} B; {}; {} of the most that a schedule \
             without bulk has; {lost} did not arrive; {} not queued at first, as 1 MiB was waiting; {} % of the link's bytes \
             are without events",
            number(mean(&of(|run| run.offered))),
            SOURCES * STREAMS,
            number(mean(&of(|run| run.frame))),
            by_topic.join(", "),
            number(mean(&of(|run| run.without_bulk))),
            number(mean(&of(|run| run.held_back as f64))),
            number(mean(&of(|run| run.beside))),
        ),
        format!(
            "overload: in the first {} s {} of the most in time; late events are not dropped, and a stream is late \
             until they have left",
            SHORT_LENGTH.as_secs(),
            by_sources,
        ),
        format!(
            "overload-bulk: there is no floor, as a schedule may send no bulk; with silence the channels of ordinary \
             events have {} % of the link",
            number(mean(&of(|run| run.ordinary))),
        ),
    ];
    let rows = vec![in_time.row(&of(|run| run.ratio)).beside(1.0), bulk.row(&of(|run| run.bulk))];
    Ok(Part { rows, notes, charts: vec![chart(&runs[0])] })
}

/// The events in time over time, and those of the best schedule.
fn chart(run: &OverloadOutcome) -> Chart {
    let curve = |colour: usize, name: &str, style| {
        let point =
            |(number, shares): (u32, &[f64; 3])| Point::new((BIN * number + BIN / 2).as_secs_f64(), shares[colour]);
        Curve { name: name.to_owned(), colour, style, points: (0..).zip(&run.over_time).map(point).collect() }
    };
    Chart {
        file: "responsiveness-overload".to_owned(),
        title: "Events in time over a link at 120 %, seed 1".to_owned(),
        x: Axis::linear("published, s"),
        y: Axis::linear("%"),
        curves: vec![
            curve(0, "ours", Style::Joined),
            curve(1, "best schedule with 5 % bulk", Style::Line),
            curve(2, "bulk, % of the link", Style::Line),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most by trying all subsets, whose jobs fit if each has a slot in the order of their last
    /// slots.
    fn naive(jobs: &[UnitJob], is_taken: impl Fn(u64) -> bool) -> usize {
        let fits = |subset: u32| {
            let mut chosen: Vec<UnitJob> =
                (0..jobs.len()).filter(|at| subset & 1 << at != 0).map(|at| jobs[at]).collect();
            let end = chosen.iter().map(|job| job.upto).max().unwrap_or(0);
            for slot in (0..=end).filter(|slot| !is_taken(*slot)) {
                let open = chosen.iter().enumerate().filter(|(_, job)| job.from <= slot);
                if let Some((at, _)) = open.min_by_key(|(_, job)| job.upto) {
                    if chosen[at].upto < slot {
                        return false;
                    }
                    chosen.remove(at);
                }
            }
            chosen.is_empty()
        };
        let fitting = (0..1_u32 << jobs.len()).filter(|subset| fits(*subset));
        fitting.map(|subset| subset.count_ones() as usize).max().unwrap_or(0)
    }

    #[test]
    fn the_greedy_schedule_has_as_many_jobs_in_time_as_any() {
        let mut random = Random::new(3);
        for world in 0..300 {
            let job = |_| {
                let from = random.below(6);
                UnitJob { from, upto: from + random.below(4) }
            };
            let mut jobs: Vec<UnitJob> = (0..8).map(job).collect();
            jobs.sort_unstable();
            let is_taken = |slot: u64| slot % 4 == world % 4;
            assert_eq!(most_in_time(&jobs, is_taken).len(), naive(&jobs, is_taken), "{jobs:?}");
        }
    }

    #[test]
    fn a_short_overload_keeps_most_in_time_and_loses_nothing() {
        let OverloadOutcome { ratio, ordinary, frame, offered, lost, .. } =
            play(&OverloadRun { sources: SOURCES, length: SHORT_LENGTH, seed: 1 });
        assert!((frame - FRAME as f64).abs() < FRAME as f64 / 100.0, "{frame} bytes of a frame");
        assert!((115.0..125.0).contains(&offered), "{offered} % are offered");
        assert!(ratio > 0.8 && ratio <= 1.0 && lost == 0, "{ratio} of the most in time, {lost} lost");
        assert!(ordinary > 4.5, "{ordinary} % of the link are given to ordinary events");
    }
}
