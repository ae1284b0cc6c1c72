//! The paper's figures.

use super::scene::{ALL_PAIRS, Contender};
use crate::experiment::chart::{Axis, Chart, Curve, Point, Style};

/// The label of an axis of pairs.
fn pairs() -> Axis {
    let names: Vec<String> =
        (1..).zip(ALL_PAIRS).map(|(number, pair): (u32, _)| format!("{number} {}", pair.name)).collect();
    Axis::linear(&names.join("   "))
}

/// A chart with one value for each pair and contender.
pub fn by_pair(file: &str, title: &str, y: Axis, contenders: &[(Contender, Vec<f64>)]) -> Chart {
    let curve = |(contender, values): &(Contender, Vec<f64>)| Curve {
        name: contender.name(),
        colour: contender.place(),
        style: Style::Joined,
        points: (1..).zip(values).map(|(number, value): (u32, _)| Point::new(f64::from(number), *value)).collect(),
    };
    Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        x: pairs(),
        y,
        curves: contenders.iter().map(curve).collect(),
    }
}

/// The cumulative distribution of the latencies of a pair, by contender.
pub fn distribution(file: &str, title: &str, contenders: &[(Contender, &[f64])]) -> Chart {
    let curve = |(contender, bins): &(Contender, &[f64])| {
        let whole: f64 = bins.iter().sum();
        let mut sum = 0.0;
        let point = |(millis, bin): (u32, &f64)| {
            sum += bin;
            Point::new(f64::from(millis), 100.0 * sum / whole)
        };
        let points = (1..).zip(*bins).map(point).collect();
        Curve { name: contender.name(), colour: contender.place(), style: Style::Line, points }
    };
    Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        x: Axis::linear("latency, ms"),
        y: Axis::linear("events, %"),
        curves: contenders.iter().map(curve).collect(),
    }
}

/// Latencies over time, by contender.
pub fn over_time(file: &str, title: &str, contenders: &[(Contender, &[(f64, f64)])]) -> Chart {
    let curve = |(contender, series): &(Contender, &[(f64, f64)])| Curve {
        name: contender.name(),
        colour: contender.place(),
        style: Style::Marks,
        points: series.iter().map(|(seconds, millis)| Point::new(*seconds, *millis)).collect(),
    };
    Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        x: Axis::linear("time, s"),
        y: Axis::linear("latency, ms"),
        curves: contenders.iter().map(curve).collect(),
    }
}
