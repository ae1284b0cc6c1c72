//! Alarms: what was in time, and what of positions would have been under the same deadline.

use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::percent;
use super::roaming::WIDE;
use crate::fleet::alarms::judge::AlarmCounts;
use crate::fleet::board::Snapshot;

/// The line at the edge of a panel of this width; empty without alarms.
pub fn line(snapshot: &Snapshot, width: u16) -> Line<'static> {
    let Some(alarms) = &snapshot.alarms else { return Line::default() };
    let AlarmCounts { deliveries, lost, .. } = alarms.counts;
    let style = match (lost, deliveries.late) {
        (0, 0) => Style::new().green(),
        (0, _) => Style::new().yellow(),
        _ => Style::new().red(),
    };
    let share = Span::styled(percent(deliveries.share()), style.bold());
    let lost = if lost > 0 { format!(", {lost} lost").red().bold() } else { "".into() };
    let positions = percent(alarms.positions.share()).bold();
    let millis = alarms.deadline_ms;
    if width >= WIDE {
        let (begin, ordinary) = (format!(" in {millis} ms: alarms ").dim(), ", positions ".dim());
        return Line::from(vec![begin, share, lost, ordinary, positions, " ".into()]);
    }
    let begin = format!("{millis} ms: alarms ").dim();
    Line::from(vec![begin, share, lost, " buses ".dim(), positions])
}
