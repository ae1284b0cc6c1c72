//! Consoles that lose their signal: their signals, recovered events, and the checker's verdict.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::grouped;
use super::screen::block;
use crate::fleet::board::Snapshot;
use crate::fleet::checker::Tally;
use crate::fleet::roaming::{Class, Roaming, Signal};

/// Names before the marks of consoles.
const NAMES: [&str; 2] = ["semi-durable ", "nondurable   "];
/// The room for the label before the curve.
const LABEL: u16 = 18;
/// A side with fewer rows has no room for marks.
pub(super) const LOW: u16 = 30;
/// A panel with this many columns has room for whole words.
pub(super) const WIDE: u16 = 50;

/// The number of rows that are needed on this side.
pub fn height(snapshot: &Snapshot, side: Rect) -> u16 {
    let roaming = &snapshot.roaming;
    if roaming.is_empty() {
        return 0;
    }
    let marks = rows_of(&roaming.semi_durable, side.width) + rows_of(&roaming.nondurable, side.width);
    2 + if side.height < LOW { 2 } else { marks + 4 }
}

/// The number of marks in one row.
fn per_row(width: u16) -> usize {
    usize::from(width.saturating_sub(NAMES[0].len() as u16 + 2)).max(1)
}

fn rows_of(class: &Class, width: u16) -> u16 {
    u16::try_from(class.signals.len().div_ceil(per_row(width))).unwrap_or(u16::MAX)
}

fn count(value: u64, what: &'static str) -> [Span<'static>; 2] {
    [grouped(value).bold(), format!(" {what}  ").dim()]
}

fn fault(value: u64, what: &'static str) -> [Span<'static>; 2] {
    let style = if value == 0 { Style::new().green() } else { Style::new().red() };
    [Span::styled(value.to_string(), style.bold()), format!(" {what}  ").dim()]
}

fn line<const N: usize>(parts: [[Span<'static>; 2]; N]) -> Line<'static> {
    parts.into_iter().flatten().collect()
}

/// Shows both classes.
pub fn show(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let roaming = &snapshot.roaming;
    if roaming.is_empty() || area.height < 3 {
        return;
    }
    let Roaming { semi_durable, nondurable } = roaming;
    let is_low = area.height < height(snapshot, Rect { height: LOW, ..area });
    let is_wide = area.width >= WIDE;
    let away = semi_durable.away() + nondurable.away();
    let title = if is_wide { format!(" {away} without signal ") } else { format!(" {away} away ") };
    let verdict =
        if roaming.seeming_faults() == 0 { " nothing lost silently ".green() } else { " lost silently ".red() };
    let block = block(title).title_top(Line::from(verdict.bold()).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let Tally { recovered, reported, duplicated, reordered, .. } = semi_durable.tally;
    let (recovered, reported) = (count(recovered, "recovered"), count(reported, "reported"));
    let silent = fault(semi_durable.silent(), if is_wide { "lost silently" } else { "silently" });
    let wrong = nondurable.silent() + nondurable.tally.duplicated + nondurable.tally.reordered;
    let wrong = fault(wrong, "wrong");
    if is_low {
        let missed = count(nondurable.missed(), "missed by nondurable");
        frame.render_widget(Paragraph::new(vec![line([recovered, reported, silent]), line([missed, wrong])]), inner);
        return;
    }
    let mut lines = marks(NAMES[0], semi_durable, area.width);
    lines.push(line([count(semi_durable.live(), "live"), recovered, reported]));
    lines.push(line([silent, fault(duplicated, "twice"), fault(reordered, "out of order")]));
    lines.extend(marks(NAMES[1], nondurable, area.width));
    lines.push(line([count(nondurable.live(), "live"), count(nondurable.missed(), "missed"), wrong]));
    let [text, curve] = Layout::vertical([Constraint::Length(lines.len() as u16), Constraint::Max(1)]).areas(inner);
    frame.render_widget(Paragraph::new(lines), text);
    show_recovered(frame, curve, snapshot);
}

/// One mark for each console.
fn marks(name: &'static str, class: &Class, width: u16) -> Vec<Line<'static>> {
    let mark = |signal: &Signal| match signal {
        Signal::None => "○".red(),
        Signal::CatchingUp => "◐".yellow(),
        Signal::Live => "●".green(),
    };
    let row = |(index, signals): (usize, &[Signal])| {
        let name = if index == 0 { name } else { "             " };
        Line::from_iter([name.dim()].into_iter().chain(signals.iter().map(mark)))
    };
    class.signals.chunks(per_row(width)).enumerate().map(row).collect()
}

/// The recovered events, second by second: outages end in bursts.
fn show_recovered(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let [label, curve] = Layout::horizontal([Constraint::Length(LABEL), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::from("recovered/s ".dim()), label);
    let seconds: Vec<u64> = snapshot.seconds.iter().map(|second| second.recovered).collect();
    let shown = &seconds[seconds.len().saturating_sub(usize::from(curve.width))..];
    frame.render_widget(Sparkline::default().data(shown).style(Style::new().yellow()), curve);
}
