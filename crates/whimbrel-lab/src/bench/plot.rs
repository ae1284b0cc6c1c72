//! Plots: groups of bars on a logarithmic axis.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::measure::Metric;
use super::peers::Peer;
use super::report::{self, Report};
use super::stats::Summary;

const SIZE: (u32, u32) = (1000, 460);

/// The columns between two groups of bars.
const GAP: usize = 1;

/// Colours that are distinguishable with colour-blindness (Okabe and Ito), in the order of
/// [`Peer::ALL`].
const COLOURS: [RGBColor; 6] = [
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0xCC, 0x79, 0xA7),
];

/// A plot.
pub struct Bars<'a> {
    /// The title.
    pub title: &'a str,
    /// The unit of the vertical axis.
    pub unit: &'a str,
    /// The meaning of the colours.
    pub names: &'a [&'a str],
    /// Groups from left to right: the name of each, and its bars, each with its index in `names`.
    pub groups: Vec<(String, Vec<(usize, Summary)>)>,
}

/// Writes `cpu.svg` and `latency.svg`, as far as they have been measured, into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(report: &Report, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let plots: [(&str, &str, &[Metric]); 2] = [
        ("cpu.svg", "Broker CPU per delivered message (lower is better)", &[Metric::BrokerCpu]),
        ("latency.svg", "Latency at 5,000 messages per second (lower is better)", &[Metric::P50, Metric::P99]),
    ];
    for (file, title, metrics) in plots {
        let rows = report.rows.iter().filter(|row| metrics.contains(&row.metric()));
        let groups = rows.map(|row| {
            let of = |(index, peer): (usize, Peer)| Some((index, row.brokers.get(peer.name())?.value?));
            (row.label(), Peer::ALL.into_iter().enumerate().filter_map(of).collect())
        });
        let names = Peer::ALL.map(Peer::name);
        let bars = Bars { title, unit: "µs, logarithmic", names: &names, groups: groups.collect() };
        written.extend(write_bars(bars, folder.join(file))?);
    }
    Ok(written)
}

/// Writes one plot, if there is a bar in it.
///
/// # Errors
/// When the file cannot be written.
pub fn write_bars(mut plot: Bars<'_>, path: PathBuf) -> Result<Option<PathBuf>> {
    plot.groups.retain(|(_, bars)| !bars.is_empty());
    if plot.groups.is_empty() {
        return Ok(None);
    }
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    // The error type of a drawing backend borrows the path; its text is what matters.
    draw(&area, &plot).map_err(|error| anyhow!("drawing {}: {error}", path.display()))?;
    drop(area);
    Ok(Some(path))
}

fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    plot: &Bars<'_>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let bars = bars(&plot.groups);
    let columns = bars.iter().map(|bar| bar.column + 1).max().unwrap_or(1);
    // In halves of a column, so that every middle of a group can have a label; the part on the
    // right is the legend's.
    let width = 2 * (columns + GAP) + columns / 2;
    let low = bars.iter().map(|bar| bar.value.spread[0]).fold(f64::MAX, f64::min) / 2.0;
    let high = bars.iter().map(|bar| bar.value.spread[1]).fold(f64::MIN, f64::max) * 1.5;
    let mut chart = ChartBuilder::on(area)
        .caption(plot.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..width as f64 / 2.0, (low..high).log_scale())?;
    let names = |place: &f64| group_name(&plot.groups, &bars, *place);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(width + 1)
        .axis_style(WHITE)
        .x_label_formatter(&names)
        .y_label_formatter(&|value| report::number(*value))
        .y_desc(plot.unit)
        .light_line_style(WHITE)
        .draw()?;
    for (index, name) in plot.names.iter().enumerate() {
        let own: Vec<&Bar> = bars.iter().filter(|bar| bar.of == index).collect();
        if own.is_empty() {
            continue;
        }
        let colour = COLOURS[index % COLOURS.len()];
        let left = |bar: &Bar| bar.column as f64 + 0.55;
        chart
            .draw_series(
                own.iter().map(|bar| {
                    Rectangle::new([(left(bar), low), (left(bar) + 0.9, bar.value.median)], colour.filled())
                }),
            )?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        chart.draw_series(own.iter().map(|bar| {
            let [min, max] = bar.value.spread;
            PathElement::new(vec![(left(bar) + 0.45, min), (left(bar) + 0.45, max)], BLACK)
        }))?;
    }
    chart.draw_series(bars.iter().map(|bar| {
        let place = (bar.column as f64 + 0.55, bar.value.spread[1] * 1.06);
        let above = TextStyle::from(("sans-serif", 11)).pos(Pos::new(HPos::Left, VPos::Bottom));
        Text::new(report::number(bar.value.median), place, above)
    }))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()
}

/// One figure of a group.
struct Bar {
    row: usize,
    column: usize,
    /// Its index in [`Bars::names`].
    of: usize,
    value: Summary,
}

fn bars(groups: &[(String, Vec<(usize, Summary)>)]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut column = 0;
    for (row, (_, figures)) in groups.iter().enumerate() {
        for (of, value) in figures {
            bars.push(Bar { row, column, of: *of, value: *value });
            column += 1;
        }
        column += GAP;
    }
    bars
}

/// The name of the group whose bars have their middle at `place`, else nothing.
fn group_name(groups: &[(String, Vec<(usize, Summary)>)], bars: &[Bar], place: f64) -> String {
    let middle = |index: usize| {
        let columns = || bars.iter().filter(|bar| bar.row == index).map(|bar| bar.column as f64 + 1.0);
        (columns().fold(f64::MAX, f64::min) + columns().fold(f64::MIN, f64::max)) / 2.0
    };
    let group = (0..groups.len()).find(|index| (middle(*index) - place).abs() < 0.2);
    group.map_or(String::new(), |index| groups[index].0.clone())
}

#[cfg(test)]
mod tests {
    use super::super::report::example;
    use super::*;

    #[test]
    fn only_what_was_measured_is_drawn() {
        let folder = std::env::temp_dir().join(format!("whimbrel-bench-plot-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let written = write(&example(), &folder).expect("plots");
        let text = std::fs::read_to_string(folder.join("cpu.svg")).expect("a plot");
        std::fs::remove_dir_all(&folder).expect("its end");
        assert_eq!(written, [folder.join("cpu.svg")]);
        for wanted in ["A QoS 0 1→1", "whimbrel", "nats"] {
            assert!(text.contains(wanted), "{wanted} is missing");
        }
        assert!(!text.contains("rumqttd"), "rumqttd was not measured");
    }
}
