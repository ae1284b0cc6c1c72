//! The live screen: a map of the vehicles, rates, delays and the checker's verdict.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::canvas::{Canvas, Line as Stroke, Points};
use ratatui::widgets::{Block, BorderType, Paragraph, Row, Sparkline, Table, Wrap};

use super::{Titles, alarms, clock, faults, freight, grouped, millis, regions, roaming};
use crate::fleet::board::{Phase, ROLES, Role, Seats, Second, Sighting, Snapshot};
use crate::fleet::fence::Fence;
use crate::fleet::geo::Place;
use crate::fleet::selection::{Kind, Watch};

/// The number of places shown as streets, where vehicles were; beyond it the oldest are forgotten.
const MAX_STREET_POINTS: usize = 20_000;
/// Below this speed a vehicle stands, m/s.
const STANDING: f32 = 1.0;
/// Above this speed it has a free road, m/s.
const FREE: f32 = 8.0;
/// Dots of a braille character in each direction.
const DOTS: (f64, f64) = (2.0, 4.0);
/// A map with this many columns has room for vehicles as whole characters.
const ROOMY: u16 = 70;
/// The room for labels before sparklines.
const LABELS: u16 = 20;
/// A side with this many rows has room for each watcher by content.
const TALL: u16 = 34;
/// The names of watchers of fences and of speeds.
const KINDS: [&str; 2] = ["in fences", "by speed"];

/// The screen, and its state between frames.
pub struct Screen {
    titles: Titles,
    area: Extent,
    /// Outlines of fences.
    outlines: Vec<Vec<(f64, f64)>>,
    streets: VecDeque<(f64, f64)>,
    last: Vec<Option<Sighting>>,
}

/// The part of the world on the map: its middle, and metres from there to its edges.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    middle: Place,
    east: f64,
    north: f64,
}

impl Extent {
    /// The extent of all but the outermost hundredth of these places on each side.
    pub fn of(places: impl Iterator<Item = Place>) -> Extent {
        let (mut lats, mut lons): (Vec<f64>, Vec<f64>) = places.map(|place| (place.lat, place.lon)).unzip();
        let bounds = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            let cut = values.len() / 100;
            let low = values.get(cut).copied().unwrap_or_default();
            (low, values.get(values.len().saturating_sub(cut + 1)).copied().unwrap_or_default())
        };
        let ((south, north), (west, east)) = (bounds(&mut lats), bounds(&mut lons));
        let middle = Place { lat: (south + north) / 2.0, lon: (west + east) / 2.0 };
        let half = |a: Place, b: Place| (a.distance(b) / 2.0).max(100.0) * 1.05;
        Extent {
            middle,
            east: half(Place { lon: west, ..middle }, Place { lon: east, ..middle }),
            north: half(Place { lat: south, ..middle }, Place { lat: north, ..middle }),
        }
    }

    /// The place as metres east and north of the middle.
    fn project(&self, place: Place) -> (f64, f64) {
        let east = self.middle.distance(Place { lat: self.middle.lat, ..place });
        let north = self.middle.distance(Place { lon: self.middle.lon, ..place });
        (east.copysign(place.lon - self.middle.lon), north.copysign(place.lat - self.middle.lat))
    }

    /// Half of the metres that a map of this many characters shows in each direction, at the same
    /// scale in both.
    fn fit(&self, area: Rect) -> (f64, f64) {
        let (width, height) = (f64::from(area.width.max(1)) * DOTS.0, f64::from(area.height.max(1)) * DOTS.1);
        let scale = (self.east / width).max(self.north / height);
        (scale * width, scale * height)
    }
}

impl Screen {
    /// A screen that shows this part of the world with these fences.
    pub fn new(titles: Titles, area: Extent, fences: &[Fence]) -> Screen {
        let outlines = fences.iter().flat_map(|fence| fence.shape.outlines());
        let project = |outline: Vec<Place>| outline.into_iter().map(|place| area.project(place)).collect();
        let outlines = outlines.map(project).collect();
        Screen { titles, area, outlines, streets: VecDeque::new(), last: Vec::new() }
    }

    /// Draws a frame.
    pub fn draw(&mut self, frame: &mut Frame<'_>, snapshot: &Snapshot) {
        self.remember(snapshot);
        let whole = frame.area();
        let notice = self.titles.notice.as_deref().unwrap_or_default();
        let notice = Paragraph::new(notice).wrap(Wrap { trim: true }).dim();
        let notice_height = if self.titles.notice.is_some() { lines_of(&self.titles, whole.width) } else { 0 };
        let rows =
            [Constraint::Length(1), Constraint::Min(0), Constraint::Length(notice_height), Constraint::Length(1)];
        let [top, body, bottom, keys] = Layout::vertical(rows).areas(whole);
        let side = if whole.width >= 120 { 58 } else { 40 };
        let [map, side] = Layout::horizontal([Constraint::Min(0), Constraint::Length(side)]).areas(body);
        frame.render_widget(self.top(snapshot, top.width), top);
        self.map(frame, map, snapshot);
        let sums = [Kind::Fence, Kind::Speed].map(|kind| Watch::sum(&snapshot.watches, kind));
        // Where there is no room for their own table, watchers by content share one with the
        // checks.
        let freight = freight::height(snapshot, side);
        let places = regions::height(snapshot, side);
        let (checks, content) = match snapshot.watches.len() as u16 {
            0 => (6, 0),
            each if side.height >= TALL + freight + places => (6, each + 5),
            _ => (8, 0),
        };
        let roaming = roaming::height(snapshot, side);
        let heights = [6, places, checks, freight, roaming, content]
            .map(Constraint::Length)
            .into_iter()
            .chain([Constraint::Min(0)]);
        let [traffic, places, checks, freight, roaming, content, lines] = Layout::vertical(heights).areas(side);
        show_traffic(frame, traffic, snapshot);
        regions::show(frame, places, snapshot);
        show_checks(frame, checks, snapshot, &sums);
        freight::show(frame, freight, snapshot);
        roaming::show(frame, roaming, snapshot);
        show_watches(frame, content, &sums, &snapshot.watches);
        show_lines(frame, lines, snapshot);
        frame.render_widget(notice, bottom);
        frame.render_widget(self.keys(snapshot), keys);
    }

    /// Remembers where vehicles are now, to be shown as streets later.
    fn remember(&mut self, snapshot: &Snapshot) {
        self.last.resize(snapshot.sightings.len(), None);
        for (last, now) in self.last.iter_mut().zip(&snapshot.sightings) {
            let Some(sighting) = now.filter(|now| last.is_none_or(|last| last.place != now.place)) else { continue };
            *last = Some(sighting);
            if self.streets.len() == MAX_STREET_POINTS {
                self.streets.pop_front();
            }
            self.streets.push_back(self.area.project(sighting.place));
        }
    }

    fn top(&self, snapshot: &Snapshot, width: u16) -> Line<'_> {
        let Titles { vehicles, lines, trace, speed_up, .. } = &self.titles;
        let left = format!(" {trace} ");
        let phase = match snapshot.phase {
            Phase::Connecting => "connecting".to_owned(),
            Phase::Running => format!("×{speed_up}  {}", clock(snapshot.elapsed)),
            Phase::Draining => "ending, waiting for the last".to_owned(),
        };
        let right = format!("{vehicles} vehicles  {lines} lines  {phase} ");
        let name = " Whimbrel ";
        let used = name.len() + right.chars().count();
        let room = usize::from(width).saturating_sub(used);
        let left: String = left.chars().take(room).collect();
        let gap = " ".repeat(room.saturating_sub(left.chars().count()));
        Line::from(vec![Span::from(name).black().on_cyan().bold(), Span::from(left).cyan(), gap.into(), right.into()])
    }

    fn map(&self, frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
        let moment =
            jiff::Timestamp::from_millisecond(snapshot.replayed.millis).map(|t| t.strftime("%H:%M:%S UTC").to_string());
        let legend = Line::from(vec![
            " ● ".red(),
            "standing".into(),
            " ● ".yellow(),
            "slow".into(),
            " ● ".green(),
            "moving ".into(),
            if self.outlines.is_empty() { "".into() } else { "─ ".blue() },
            if self.outlines.is_empty() { "" } else { "fence " }.into(),
        ]);
        let block = block(format!(" {} ", moment.unwrap_or_default())).title_bottom(legend);
        let inner = block.inner(area);
        let (east, north) = self.area.fit(inner);
        let mut groups: [(Color, Vec<(f64, f64)>); 3] =
            [(Color::Red, Vec::new()), (Color::Yellow, Vec::new()), (Color::Green, Vec::new())];
        for sighting in snapshot.sightings.iter().flatten() {
            let speed = sighting.motion.speed;
            let group = if speed < STANDING { 0 } else { 1 + usize::from(speed >= FREE) };
            groups[group].1.push(self.area.project(sighting.place));
        }
        let streets: Vec<(f64, f64)> = self.streets.iter().copied().collect();
        // Where there is room, a whole character shows a vehicle better than one of its eight dots.
        let marker = if inner.width >= ROOMY { Marker::Dot } else { Marker::Braille };
        let canvas =
            Canvas::default().block(block).marker(Marker::Braille).x_bounds([-east, east]).y_bounds([-north, north]);
        let canvas = canvas.paint(|context| {
            context.draw(&Points { coords: &streets, color: Color::DarkGray });
            for leg in self.outlines.iter().flat_map(|outline| outline.windows(2)) {
                let ((x1, y1), (x2, y2)) = (leg[0], leg[1]);
                context.draw(&Stroke { x1, y1, x2, y2, color: Color::Blue });
            }
            for (color, coords) in &groups {
                context.layer();
                context.marker(marker);
                context.draw(&Points { coords, color: *color });
            }
        });
        frame.render_widget(canvas, area);
    }

    fn keys(&self, snapshot: &Snapshot) -> Line<'_> {
        if let Some((trouble, count)) = snapshot.troubles.last() {
            return Line::from(format!(" {trouble} ({count} times)")).red();
        }
        let (host, port) = self.titles.address.rsplit_once(':').unwrap_or((&self.titles.address, "1883"));
        let watch = format!("  watch along: mosquitto_sub -h {host} -p {port} -t 'fleet/#'");
        let console = self.titles.console.as_ref().map(|console| format!("  console: {console}")).unwrap_or_default();
        Line::from(vec![" q ".black().on_gray(), " end".into(), console.into(), watch.dim()])
    }
}

/// The number of rows that the notice needs, with some room for words that do not fit.
fn lines_of(titles: &Titles, width: u16) -> u16 {
    let length = titles.notice.as_deref().unwrap_or_default().chars().count();
    let width = usize::from(width.max(1));
    u16::try_from((length + 10 * (length / width)).div_ceil(width)).unwrap_or(u16::MAX)
}

pub(super) fn block(title: String) -> Block<'static> {
    Block::bordered().border_type(BorderType::Rounded).border_style(Style::new().dim()).title(title)
}

fn show_traffic(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let block = block(" Traffic ".to_owned()).title_bottom(alarms::line(snapshot, area.width).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows: [Rect; 4] = Layout::vertical([Constraint::Length(1); 4]).areas(inner);
    let (published, delivered) = snapshot.rates;
    let seconds = |value: fn(&Second) -> u64| snapshot.seconds.iter().map(value).collect::<Vec<u64>>();
    let curves = [
        ("published", published, seconds(|second| second.published)),
        ("delivered", delivered, seconds(|second| second.delivered)),
    ];
    for ((name, rate, seconds), row) in curves.into_iter().zip(rows) {
        let [label, curve] = Layout::horizontal([Constraint::Length(LABELS), Constraint::Min(0)]).areas(row);
        frame.render_widget(Line::from(vec![format!("{name} ").dim(), per_second(rate).bold()]), label);
        let shown = &seconds[seconds.len().saturating_sub(usize::from(curve.width))..];
        let headroom = shown.iter().max().map_or(1, |peak| peak + peak / 4);
        frame.render_widget(Sparkline::default().data(shown).max(headroom).style(Style::new().cyan()), curve);
    }
    let (recent, overall) = (snapshot.recent, snapshot.overall);
    let delay = vec![
        "delay ms  ".dim(),
        format!("p50 {} ", millis(recent.p50)).bold(),
        format!("p99 {} ", millis(recent.p99)).bold(),
        format!("max {}", millis(overall.max)).into(),
    ];
    frame.render_widget(Line::from(delay), rows[2]);
    frame.render_widget(connections(&snapshot.seats), rows[3]);
}

fn per_second(rate: f64) -> String {
    format!("{:>7}/s ", grouped(rate.round() as u64))
}

fn connections(seats: &[Seats; ROLES.len()]) -> Line<'static> {
    let mut spans = vec![];
    for (role, seats) in ROLES.into_iter().zip(seats) {
        let name = match role {
            Role::Vehicle => "buses",
            Role::Console => "consoles",
            Role::Watcher => "watchers",
            Role::Viewer => "map",
            // They are shown elsewhere.
            Role::SemiDurable | Role::Nondurable => continue,
        };
        let Seats { connected, wanted, .. } = *seats;
        let count = if connected == wanted { connected.to_string() } else { format!("{connected}/{wanted}") };
        spans.push(if connected == wanted { count.bold() } else { count.yellow() });
        spans.push(format!(" {name} ").dim());
    }
    Line::from(spans)
}

fn show_checks(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, sums: &[Watch; 2]) {
    let (tally, in_flight, missing) = snapshot.reliable;
    let (best_effort, _, skipped) = snapshot.best_effort;
    let count = |name: &'static str, value: u64| {
        let style = if value == 0 { Style::new().green() } else { Style::new().red() };
        vec![Span::styled(value.to_string(), style.bold()), format!(" {name}  ").dim()]
    };
    let verdict = if faults(snapshot) == 0 { " all as promised ".green() } else { " promises broken ".red() };
    let block = block(" QoS 1 ".to_owned()).title_top(Line::from(verdict.bold()).right_aligned());
    let mut first = count("lost", tally.lost + missing);
    first.extend(count("twice", tally.duplicated));
    first.extend(count("out of order", tally.reordered));
    let mut second = count("altered", tally.altered);
    second.extend(count("not asked for", tally.foreign));
    let mut third =
        vec![grouped(tally.delivered).bold(), " delivered  ".dim(), grouped(in_flight).bold(), " on their way  ".dim()];
    if tally.reported > 0 {
        // Volatile messages that were accepted by a broker that was killed before it could deliver
        // them: it has told that.
        third.extend([grouped(tally.reported).bold(), " told missing".dim()]);
    }
    let fourth = vec![
        "QoS 0: ".dim(),
        grouped(best_effort.delivered).bold(),
        " delivered  ".dim(),
        grouped(best_effort.lost + skipped).bold(),
        " lost".dim(),
    ];
    let mut lines: Vec<Line<'_>> = [first, second, third, fourth].map(Line::from).into();
    // Omitted where they have their own table.
    for (name, sum) in KINDS.into_iter().zip(sums) {
        let mut line = vec![format!("{name}: ").dim(), grouped(sum.delivered).bold(), "  ".into()];
        line.extend(count("lost", sum.lost));
        line.extend(count("wrong", sum.wrong));
        lines.push(Line::from(line));
    }
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Watchers by content: both kinds, and each of them if there is room.
fn show_watches(frame: &mut Frame<'_>, area: Rect, sums: &[Watch; 2], watches: &[Watch]) {
    let count = |value: u64, style: Style| Line::from(Span::styled(value.to_string(), style.bold())).right_aligned();
    let fault = |value| count(value, if value == 0 { Style::new().green() } else { Style::new().red() });
    let cells = |name: Line<'static>, watch: &Watch| {
        let delivered = Line::from(grouped(watch.delivered)).right_aligned();
        Row::new(vec![name, delivered, fault(watch.lost), fault(watch.wrong)])
    };
    let sum = |(name, sum): (&str, &Watch)| cells(format!("{name}, {} watchers", sum.watchers).bold().into(), sum);
    let mut rows: Vec<Row<'_>> = KINDS.into_iter().zip(sums).map(sum).collect();
    rows.extend(watches.iter().map(|watch| cells(format!(" {}", watch.selector).into(), watch)));
    let header = ["", "delivered", "lost", "wrong"].map(|name| Line::from(name.dim()).right_aligned());
    let widths = [Constraint::Min(17), Constraint::Length(10), Constraint::Length(5), Constraint::Length(6)];
    let table = Table::new(rows, widths).header(Row::new(header)).column_spacing(0);
    frame.render_widget(table.block(block(" By content ".to_owned())), area);
}

fn show_lines(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let cells = |row: &crate::fleet::board::LineRow| {
        let fault = if row.faults == 0 { row.faults.to_string().green() } else { row.faults.to_string().red() };
        Row::new(vec![
            Line::from(row.name.clone().bold()),
            Line::from(row.vehicles.to_string()).right_aligned(),
            Line::from(format!("{:.1}", row.rate)).right_aligned(),
            Line::from(millis(row.recent.p50)).right_aligned(),
            Line::from(millis(row.recent.p99)).right_aligned(),
            Line::from(fault).right_aligned(),
        ])
    };
    let header = ["line", "buses", "/s", "p50", "p99", "faults"].map(|name| Line::from(name.dim()));
    let header = header.into_iter().enumerate().map(|(i, cell)| if i == 0 { cell } else { cell.right_aligned() });
    let widths = [7, 6, 6, 6, 6, 7].map(Constraint::Length);
    let table = Table::new(snapshot.lines.iter().map(cells), widths).header(Row::new(header)).column_spacing(0);
    frame.render_widget(table.block(block(" Watched lines, delay in ms ".to_owned())), area);
}
