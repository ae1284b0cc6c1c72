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

/// Samples of one kind.
pub struct SampleSet {
    /// The name in the legend.
    pub name: String,
    /// The index of its colour.
    pub colour: usize,
    /// The style.
    pub style: Style,
    /// The samples, in any order.
    pub samples: Vec<f64>,
}

/// The cumulative distributions of some samples.
pub fn cumulative(file: &str, title: &str, x: Axis, sets: Vec<SampleSet>) -> Chart {
    let curve = |set: SampleSet| {
        let SampleSet { name, colour, style, mut samples } = set;
        samples.sort_by(f64::total_cmp);
        let whole = samples.len() as f64;
        let points =
            (1..).zip(samples).map(|(number, sample): (u32, _)| Point::new(sample, 100.0 * f64::from(number) / whole));
        Curve { name, colour, style, points: points.collect() }
    };
    Chart {
        file: file.to_owned(),
        title: title.to_owned(),
        x,
        y: Axis::linear("trials, %"),
        curves: sets.into_iter().map(curve).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cumulative_distribution_rises_to_all_samples() {
        let (name, samples) = ("one".to_owned(), vec![3.0, 1.0, 2.0, 4.0]);
        let set = SampleSet { name, colour: 0, style: Style::Line, samples };
        let chart = cumulative("file", "title", Axis::linear("x"), vec![set]);
        let points: Vec<_> = chart.curves[0].points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(1.0, 25.0), (2.0, 50.0), (3.0, 75.0), (4.0, 100.0)]);
    }
}
