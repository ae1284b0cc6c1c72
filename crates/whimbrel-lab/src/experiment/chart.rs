//! Charts of measured points and computed curves.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bench::report::number;

const SIZE: (u32, u32) = (860, 500);

/// Colours that are distinguishable with colour-blindness (Okabe and Ito, then Tol).
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x99, 0x99, 0x33),
];

/// On a logarithmic axis, values below this count as zero.
pub const LEAST: f64 = 1e-4;

/// A chart, and the file that it is written to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The name of the file, without its extension.
    pub file: String,
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity and unit.
    pub label: String,
    /// Whether it is logarithmic: values below [`LEAST`] are left out.
    pub logarithmic: bool,
}

impl Axis {
    /// A linear axis from zero.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), logarithmic: false }
    }

    /// A logarithmic axis.
    pub fn logarithmic(label: &str) -> Axis {
        Axis { label: label.to_owned(), logarithmic: true }
    }

    fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value < LEAST => f64::NAN,
            true => value.log10(),
            false => value,
        }
    }

    fn value(&self, place: f64) -> f64 {
        if self.logarithmic { 10_f64.powf(place) } else { place }
    }

    /// The range of values, with a margin.
    fn range(&self, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let start = if self.logarithmic { (f64::MAX, f64::MIN) } else { (0.0, f64::MIN) };
        let places = values.map(|value| self.place(value)).filter(|place| place.is_finite());
        let (low, high) = places.fold(start, |(low, high), place| (low.min(place), high.max(place)));
        if low >= high {
            return if self.logarithmic { low.min(0.0) - 1.0..low.max(0.0) + 1.0 } else { 0.0..1.0 };
        }
        let room = (high - low) * 0.05;
        if self.logarithmic { low - room..high + room } else { low..high + room }
    }
}

/// The style of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Style {
    /// A line without marks: computed.
    Line,
    /// A dashed line: computed, for another case.
    Dashes,
    /// Marks with their spread: measured.
    Marks,
    /// Marks joined by a line: measured, without a computed curve.
    Joined,
}

/// A set of points of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The name in the legend; empty: none.
    pub name: String,
    /// The index of its colour; related curves have the same one.
    pub colour: usize,
    /// The style.
    pub style: Style,
    /// The points, from left to right.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The horizontal value.
    pub x: f64,
    /// The vertical value.
    pub y: f64,
    /// The smallest and the largest of the values whose median `y` is.
    pub spread: Option<[f64; 2]>,
}

impl Point {
    /// A computed point.
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, spread: None }
    }
}

impl Chart {
    /// Writes the chart as SVG into `folder`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}.svg", self.file));
        let area = SVGBackend::new(&path, SIZE).into_drawing_area();
        // The error type of a drawing backend borrows the path; its text is what matters.
        self.draw(&area).map_err(|error| anyhow!("drawing {}: {error}", path.display()))
    }

    /// The legend's place: on the right, where it covers less.
    fn legend(&self) -> SeriesLabelPosition {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let places =
            || points().map(|point| (self.x.place(point.x), self.y.place(point.y))).filter(|at| at.1.is_finite());
        let (across, up) = (self.x.range(points().map(|point| point.x)), self.y.range(points().map(|point| point.y)));
        let middle = |range: &std::ops::Range<f64>| (range.start + range.end) / 2.0;
        let high = places().filter(|at| at.0 > middle(&across)).map(|at| at.1 > middle(&up));
        let (high, low) =
            high.fold((0, 0), |(high, low), is_high| (high + u32::from(is_high), low + u32::from(!is_high)));
        if high > low { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight }
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let heights = points().flat_map(|point| [point.y].into_iter().chain(point.spread.into_iter().flatten()));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 19))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(68)
            .build_cartesian_2d(self.x.range(points().map(|point| point.x)), self.y.range(heights))?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_label_formatter(&|place| number(self.x.value(*place)))
            .y_label_formatter(&|place| number(self.y.value(*place)))
            .draw()?;
        for curve in &self.curves {
            let colour = COLOURS[curve.colour % COLOURS.len()];
            let placed = || {
                let place = |point: &Point| (self.x.place(point.x), self.y.place(point.y));
                curve.points.iter().map(place).filter(|(x, y)| x.is_finite() && y.is_finite())
            };
            let marks = matches!(curve.style, Style::Marks | Style::Joined);
            let named = match curve.style {
                Style::Marks => chart.draw_series(placed().map(|at| Circle::new(at, 4, colour.filled())))?,
                Style::Dashes => chart.draw_series(DashedLineSeries::new(placed(), 6, 4, colour.stroke_width(2)))?,
                Style::Line | Style::Joined => chart.draw_series(LineSeries::new(placed(), colour.stroke_width(2)))?,
            };
            if !curve.name.is_empty() {
                named.label(&curve.name).legend(move |(x, y)| match marks {
                    true => Circle::new((x + 9, y), 4, colour.filled()).into_dyn(),
                    false => PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)).into_dyn(),
                });
            }
            if curve.style == Style::Joined {
                chart.draw_series(placed().map(|at| Circle::new(at, 4, colour.filled())))?;
            }
            chart.draw_series(curve.points.iter().filter_map(|point| {
                let ends = point.spread?.map(|y| (self.x.place(point.x), self.y.place(y)));
                let drawn = ends.iter().all(|(x, y)| x.is_finite() && y.is_finite());
                drawn.then(|| PathElement::new(ends.to_vec(), colour.stroke_width(1)))
            }))?;
        }
        chart
            .configure_series_labels()
            .position(self.legend())
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_without_a_place_are_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let curve = |name: &str, style| Curve {
            name: name.to_owned(),
            colour: 12,
            style,
            points: vec![
                Point { x: 1.0, y: 0.0, spread: None },
                Point { x: 2.0, y: 0.5, spread: Some([0.0, 1.0]) },
                Point { x: 3.0, y: 5.0, spread: Some([4.0, 7.0]) },
            ],
        };
        let curves = [Style::Line, Style::Dashes, Style::Marks, Style::Joined];
        let chart = Chart {
            file: "test".to_owned(),
            title: "a title".to_owned(),
            x: Axis::linear("time"),
            y: Axis::logarithmic("loss"),
            curves: curves.map(|style| curve(&format!("{style:?}"), style)).to_vec(),
        };
        chart.write(folder.path()).expect("a chart");
        let text = std::fs::read_to_string(folder.path().join("test.svg")).expect("a file");
        for wanted in ["a title", "loss", "Dashes", "Joined"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn axes_hold_all_that_is_finite() {
        let values = || [0.01, 10.0, 0.0].into_iter();
        let logarithmic = Axis::logarithmic("").range(values());
        assert!(logarithmic.contains(&-2.0) && logarithmic.contains(&1.0));
        let linear = Axis::linear("").range(values());
        assert!(linear.contains(&0.0) && linear.contains(&10.0));
        for axis in [Axis::linear(""), Axis::logarithmic("")] {
            for values in [&[][..], &[1.0], &[0.0]] {
                let range = axis.range(values.iter().copied());
                assert!(range.start < range.end && (range.end - range.start).is_finite(), "{values:?}: {range:?}");
            }
        }
    }
}
