//! Subscribers that share a link: the part of it that events get, by the kind of subscription and
//! the size of bodies.

use anyhow::Result;
use indicatif::ProgressBar;
use whimbrel_core::Durability;
use whimbrel_sim::access::Shape;

use super::scenario::{CLASSES, Scenario};
use super::tally::{Outcome, Tally};
use super::{length, play_all};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};
use crate::experiment::report::{Head, Part};
use crate::experiment::{Effort, Plan};
use crate::goal::Goal;

/// See the module's documentation.
pub const PLAN: Plan = Plan { id: "bandwidth", rows: &["narrow-throughput", "wide-loss", "narrow-silent"], measure };

const THROUGHPUT: Head = Head {
    id: "narrow-throughput",
    measure: "throughput at 220 kB/s, semi-durable / nondurable, less the bytes of w-id",
    unit: "ratio",
    paper: None,
    goal: Goal::at_least(0.93),
};

const WIDE: Head = Head {
    id: "wide-loss",
    measure: "events lost, semi-durable, at 10 MB/s and 285.29 events/s",
    unit: "%",
    paper: Some(0.18),
    goal: Goal::at_most(0.18),
};

const SILENT: Head = Head {
    id: "narrow-silent",
    measure: "events lost outside of reported gaps, or delivered twice, on links that are full",
    unit: "events",
    paper: None,
    goal: Goal::at_most(0.0),
};

/// Bytes of bodies in the paper's experiments.
const BODIES: [usize; 4] = [50, 100, 200, 500];

/// How much more is published than the link can carry, as a factor.
const OVERLOAD: f64 = 1.3;

/// Bytes of a packet besides its body and the name of its event, about.
const OVERHEAD: f64 = 25.0;

/// Events received each second, divided by the number of subscribers that want the same event.
fn throughput(tally: &Tally, scenario: &Scenario) -> f64 {
    let fan_out = (scenario.subscribers / CLASSES) as f64;
    tally.delivered as f64 / scenario.length.as_secs_f64() / fan_out
}

fn measure(effort: Effort, bar: &ProgressBar) -> Result<Part> {
    bar.set_length(effort.seeds * (2 * BODIES.len() as u64 + 1));
    let (mut ratios, mut notes, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    let mut curves: [Vec<Point>; 2] = Default::default();
    for body in BODIES {
        let fan_out = 200.0 / CLASSES as f64;
        let rate = OVERLOAD * Shape::NARROW.rate as f64 / fan_out / (body as f64 + OVERHEAD);
        let scenario = |durability| Scenario {
            rate,
            body,
            durability,
            access: Some(Shape::NARROW),
            // Events that the link cannot carry are lost, whatever is cached.
            capacities: [500; CLASSES],
            length: length(effort, 300),
            ..Scenario::default()
        };
        let kinds = [Durability::Nondurable, Durability::SemiDurable].map(scenario);
        let [not_kept, kept] = [play_all(&kinds[0], effort, bar)?, play_all(&kinds[1], effort, bar)?];
        silent.extend(kept.iter().map(Outcome::total).map(|total| (total.silent + total.repeated) as f64));
        let each = |(kept, not): (&Outcome, &Outcome)| {
            let (kept, not) = (kept.total(), not.total());
            let (with, without) = (throughput(&kept, &kinds[1]), throughput(&not, &kinds[0]));
            let less = (kept.bytes - kept.name_bytes) as f64 / kept.bytes as f64;
            (with, without, less, kept)
        };
        let measured: Vec<(f64, f64, f64, Tally)> = kept.iter().zip(&not_kept).map(each).collect();
        let (with, without, less, tally) = &measured[0];
        let per_packet = |bytes: u64| bytes as f64 / tally.packets as f64;
        notes.push(format!(
            "bandwidth: body {body}: {without:.1} events/s nondurable, {with:.1} semi-durable (ratio {:.3}); {:.1} bytes a packet, {:.1} of them w-id",
            with / without,
            per_packet(tally.bytes),
            per_packet(tally.name_bytes),
        ));
        if body == BODIES[0] {
            ratios.extend(measured.iter().map(|(with, without, less, _)| with / without / less));
        }
        assert!(*less > 0.0, "packets are more than the names of events");
        curves[0].push(Point::new(body as f64, measured[0].1));
        curves[1].push(Point::new(body as f64, measured[0].0));
    }
    let wide = Scenario { access: Some(Shape::WIDE), length: length(effort, 600), ..Scenario::default() };
    let wide: Vec<f64> = play_all(&wide, effort, bar)?.iter().map(|outcome| outcome.total().loss()).collect();
    let [nondurable, semi_durable] = curves;
    let curve = |name: &str, colour, points| Curve { name: name.to_owned(), colour, style: Style::Joined, points };
    let chart = Chart {
        file: "bandwidth-body".to_owned(),
        title: "Subscriber throughput against body size where 220 kB/s are the bottleneck".to_owned(),
        x: Axis::linear("body, bytes"),
        y: Axis::linear("events/s by subscriber throughput"),
        curves: vec![curve("nondurable", 1, nondurable), curve("semi-durable", 0, semi_durable)],
    };
    Ok(Part { rows: vec![THROUGHPUT.row(&ratios), WIDE.row(&wide), SILENT.worst(&silent)], notes, charts: vec![chart] })
}
