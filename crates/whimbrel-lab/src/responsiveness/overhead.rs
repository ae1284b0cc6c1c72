//! Experiment (d): what the overlay sends beside the events' bodies.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;

use super::runs::play_all;
use super::scene::{BROKERS, Contender, LINKS, PAIRS, Preset, Technique};
use super::stage::{AreaWorld, BEGIN, BODY, Play};
use super::tally::mean;
use super::truth::Truth;
use crate::bench::report::number;
use crate::cores::START;
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan {
    id: "overhead",
    rows: &["d-control-qos-paper", "d-control-mp-paper", "d-control-dp-paper", "d-rest", "d-busy", "d-crossings-mp"],
    measure,
};

/// The sizes of bodies, bytes: the paper has three sizes and does not say which.
const SIZES: [usize; 3] = [BODY, 1_000, 4_000];

/// The paper's length of a run, and that of a quick one.
const LENGTH: Duration = Duration::from_secs(300);
const QUICK_LENGTH: Duration = Duration::from_secs(30);

/// Bytes that QUIC puts around a frame at most, if each has a packet of its own: a short header
/// with an 8-byte connection id and a 2-byte packet number, the tag, and the frame's own header.
pub const QUIC_BYTES: f64 = 30.0;

/// Bytes per second of all brokers together.
#[derive(Clone, Copy, Debug, Default)]
struct SplitTraffic {
    /// Frames that carry no event.
    control: f64,
    /// The same, with QUIC around each frame.
    control_in_quic: f64,
    /// Frames with events, without bodies.
    header: f64,
    /// Bodies.
    payload: f64,
    /// Events, counted on each link that they cross.
    crossings: f64,
}

/// A part of the traffic.
type TrafficPart = fn(&SplitTraffic) -> f64;

/// What all brokers have sent since the beginning, by their own counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentSums {
    /// Bytes of all frames.
    pub bytes: u64,
    /// All frames.
    pub frames: u64,
    /// Events, counted on each link that they cross.
    pub events: u64,
    /// Bytes of frames with events.
    pub event_bytes: u64,
}

/// See [`SentSums`].
pub fn sent(world: &AreaWorld) -> SentSums {
    let mut sum = SentSums::default();
    for node in 0..world.area.brokers {
        let core = world.core(node);
        for link in core.links() {
            sum.bytes += link.counters.bytes_out;
            sum.frames += link.counters.frames_out;
            sum.events += link.counters.events_out;
        }
        let net = core.overlay_stats().expect("it has an overlay").net;
        sum.event_bytes += net.header_bytes + net.event_bytes;
    }
    sum
}

/// A run over links that do not change; `size`: bytes of a body, 0: nothing is published.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OverheadRun {
    contender: Contender,
    size: usize,
    seed: u64,
    length: Duration,
}

impl OverheadRun {
    fn play(&self) -> SplitTraffic {
        let OverheadRun { contender, size, seed, length } = *self;
        let truth = Truth::mesh();
        let play = Play { body: size, publishes: size > 0, ..Play::new(contender, &truth, seed) };
        let mut world = AreaWorld::new(&play);
        let from = START + BEGIN + contender.preset.warm_up();
        world.run_until(from);
        let before = sent(&world);
        world.run_until(from + length);
        let after = sent(&world);
        let per_second = |count: fn(&SentSums) -> u64| (count(&after) - count(&before)) as f64 / length.as_secs_f64();
        let (bytes, frames) = (per_second(|sent| sent.bytes), per_second(|sent| sent.frames));
        let (events, event_bytes) = (per_second(|sent| sent.events), per_second(|sent| sent.event_bytes));
        let (control, payload) = (bytes - event_bytes, events * size as f64);
        SplitTraffic {
            control,
            control_in_quic: control + QUIC_BYTES * (frames - events),
            header: event_bytes - payload,
            payload,
            crossings: events,
        }
    }
}

/// All runs, with what they sent.
struct OverheadRuns {
    jobs: Vec<OverheadRun>,
    all: Vec<SplitTraffic>,
}

impl OverheadRuns {
    /// By seed: a part of the traffic, kB/s, divided by a number of those that it is counted for.
    fn of(&self, contender: Contender, size: usize, part: TrafficPart, divided_by: usize) -> Vec<f64> {
        let is_it = |job: &OverheadRun| job.contender == contender && job.size == size;
        let of_it = self.jobs.iter().zip(&self.all).filter(|(job, _)| is_it(job));
        of_it.map(|(_, traffic)| part(traffic) / 1e3 / divided_by as f64).collect()
    }

    /// Figure 9, as a chart and as text.
    fn figure(&self) -> (Chart, Vec<String>) {
        let parts: [(&str, TrafficPart); 3] = [
            ("control", |traffic| traffic.control),
            ("header", |traffic| traffic.header),
            ("payload", |traffic| traffic.payload),
        ];
        let (mut notes, mut curves) = (Vec::new(), Vec::new());
        for contender in Contender::all() {
            let mut text = format!("figure 9, kB/s, {}:", contender.name());
            for (name, part) in parts {
                let values = SIZES.map(|size| (size as f64, mean(&self.of(contender, size, part, 1))));
                let shown = values.map(|(size, value)| format!("{} at {size} B", number(value)));
                let _ = write!(text, " {name} {};", shown.join(", "));
                curves.push(Curve {
                    name: format!("{name}, {}", contender.name()),
                    colour: contender.place(),
                    style: Style::Joined,
                    points: values.map(|(size, value)| Point::new(size, value)).to_vec(),
                });
            }
            notes.push(text);
        }
        let chart = Chart {
            file: "responsiveness-figure-9".to_owned(),
            title: "Traffic by size of body".to_owned(),
            x: Axis::linear("body, bytes"),
            y: Axis::logarithmic("kB/s, all brokers"),
            curves,
        };
        (chart, notes)
    }
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    let length = if effort.quick { QUICK_LENGTH } else { LENGTH };
    let mut jobs = Vec::new();
    for contender in Contender::all() {
        for size in SIZES {
            jobs.extend((1..=effort.seeds).map(|seed| OverheadRun { contender, size, seed, length }));
        }
    }
    let own = Contender { version: Technique::Reactive, preset: Preset::Own };
    jobs.extend((1..=effort.seeds).map(|seed| OverheadRun { contender: own, size: 0, seed, length }));
    let all = play_all(&jobs, bar, OverheadRun::play);
    let measured = OverheadRuns { jobs, all };
    let head = |id, measure, paper, goal| Head { id, measure, unit: "kB/s", paper, goal: Goal::at_most(goal) };
    let (control, in_quic): (TrafficPart, TrafficPart) = (|traffic| traffic.control, |traffic| traffic.control_in_quic);
    let paper = |version| measured.of(Contender { version, preset: Preset::Paper }, BODY, control, PAIRS);
    let crossed =
        |version| measured.of(Contender { version, preset: Preset::Own }, BODY, |traffic| traffic.crossings, 1);
    let (single, double) = (crossed(Technique::Reactive), crossed(Technique::Multipath));
    let crossings: Vec<f64> = double.iter().zip(&single).map(|(double, single)| double / single).collect();
    let rows = vec![
        head("d-control-qos-paper", "(d) control per subscriber, BP+QoS, preset paper", Some(1.3), 0.5)
            .mean(&paper(Technique::Reactive)),
        head("d-control-mp-paper", "(d) control per subscriber, BP+QoS+MP, preset paper", Some(4.4), 1.0)
            .mean(&paper(Technique::Multipath)),
        head("d-control-dp-paper", "(d) control per subscriber, DP, preset paper", None, 0.5)
            .mean(&paper(Technique::Direct)),
        head("d-rest", "(d) control per broker at rest, with QUIC around each frame, BP+QoS", None, 5.0)
            .mean(&measured.of(own, 0, in_quic, BROKERS)),
        head("d-busy", "(d) control per direction of a link, events flow, with QUIC, mean, BP+QoS", None, 3.5)
            .mean(&measured.of(own, BODY, in_quic, 2 * LINKS)),
        Head {
            id: "d-crossings-mp",
            measure: "(d) events counted on each link that they cross, BP+QoS+MP against BP+QoS",
            unit: "times",
            paper: Some(2.5),
            goal: Goal::at_most(2.05),
        }
        .mean(&crossings)
        .beside(2.0),
    ];
    let (chart, mut notes) = measured.figure();
    notes.push(
        "d-*: there is no floor, as a router that knows all sends no control; BP+QoS has to measure links in use, \
         and DP, which only keeps them up, is the least that is measured here"
            .to_owned(),
    );
    Ok(Part { rows, notes, charts: vec![chart] })
}
