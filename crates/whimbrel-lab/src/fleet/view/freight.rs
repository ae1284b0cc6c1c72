//! The freight desk: orders, dispatchers, the checker's verdict, and the broker's state.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::grouped;
use super::roaming::{LOW, WIDE};
use super::screen::block;
use crate::fleet::board;
use crate::fleet::crashes::{Crashes, Health};
use crate::fleet::freight::{DispatcherRow, Presence, Snapshot};

/// The room for the names of dispatchers, without their common prefix.
const NAME: usize = 6;
/// Their common prefix.
const PREFIX: &str = "dispatch-";

/// The number of rows that are needed on this side.
pub fn height(snapshot: &board::Snapshot, side: Rect) -> u16 {
    match &snapshot.freight {
        None => 0,
        Some(_) if side.height < LOW => 4,
        Some(freight) => freight.dispatchers.len() as u16 + 4,
    }
}

/// Shows the desk.
pub fn show(frame: &mut Frame<'_>, area: Rect, snapshot: &board::Snapshot) {
    let Some(freight) = snapshot.freight.as_ref().filter(|_| area.height >= 3) else { return };
    let is_wide = area.width >= WIDE;
    let verdict = format!(" {} lost, {} twice ", freight.lost(), freight.total.twice);
    let other = freight.seeming_faults() - freight.lost() - freight.total.twice;
    let verdict = match (freight.seeming_faults(), other) {
        (0, _) => verdict.green(),
        (_, 0) => verdict.red(),
        _ => format!("{verdict}({other} otherwise wrong) ").red(),
    };
    let title = if is_wide { " Freight desk " } else { " Freight " };
    let block = block(title.to_owned()).title_top(Line::from(verdict.bold()).right_aligned());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut lines = vec![orders(freight, is_wide)];
    if usize::from(inner.height) >= freight.dispatchers.len() + 2 {
        lines.extend(freight.dispatchers.iter().map(|dispatcher| row(dispatcher, is_wide)));
    } else {
        lines[0].extend(freight.dispatchers.iter().map(mark));
    }
    lines.push(health(&snapshot.crashes, is_wide));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn orders(freight: &Snapshot, is_wide: bool) -> Line<'static> {
    let acknowledged = if is_wide { " orders sent  " } else { " sent " };
    Line::from(vec![
        grouped(freight.sent).bold(),
        acknowledged.dim(),
        grouped(freight.accepted).bold(),
        " acknowledged ".dim(),
    ])
}

fn mark(dispatcher: &DispatcherRow) -> Span<'static> {
    match (dispatcher.presence, dispatcher.waiting) {
        (Presence::Away, _) => "○".dim(),
        (Presence::Lost, _) => "○".red(),
        (Presence::There, 0) => "●".green(),
        (Presence::There, _) => "◐".yellow(),
    }
}

fn row(dispatcher: &DispatcherRow, is_wide: bool) -> Line<'static> {
    let name = dispatcher.name.strip_prefix(PREFIX).unwrap_or(&dispatcher.name).to_owned();
    let mut spans = vec![
        mark(dispatcher),
        format!(" {name:<NAME$}").into(),
        format!("{:>9}", grouped(dispatcher.counts.received)).bold(),
        if is_wide { " received  " } else { " got  " }.dim(),
    ];
    let (waits, again) = if is_wide { ("wait for it  ", "sent again  ") } else { ("wait  ", "again") };
    for (count, what) in [(dispatcher.waiting, waits), (dispatcher.counts.repeated, again)] {
        if count > 0 {
            spans.extend([grouped(count).bold(), format!(" {what}").dim()]);
        }
    }
    Line::from(spans)
}

/// The broker's state, now and before.
fn health(crashes: &Crashes, is_wide: bool) -> Line<'static> {
    let ends = crashes.ends().map_or("kill -9 not yet".to_owned(), |(what, count)| format!("{what} ×{count}  "));
    let seconds = |span: std::time::Duration| format!("{:.2} s", span.as_secs_f64());
    let mut spans = vec![ends.into()];
    match (crashes.health, crashes.served, crashes.worst) {
        (Health::Down(_), ..) => spans.push("the broker is down".red().bold()),
        (Health::Returning(_), ..) => spans.push("clients come back".yellow().bold()),
        (Health::Served, Some(served), Some(worst)) => {
            spans.push(if is_wide { "all served again after " } else { "served after " }.dim());
            spans.push(seconds(served).bold());
            spans.push(if is_wide { format!(" (worst {})", seconds(worst)).dim() } else { "".into() });
        }
        (Health::Served, ..) => {}
    }
    Line::from(spans)
}
