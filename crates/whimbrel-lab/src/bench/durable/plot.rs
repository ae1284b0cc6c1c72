//! Plots of the figures.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::super::plot::{Bars, write_bars};
use super::Row;

/// Parts of the measurement that are drawn: file, title, and unit of the axis.
const PLOTS: [(&str, &str, &str, &str); 3] = [
    (
        "publish",
        "publish.svg",
        "Durable publishing, events of 418 bytes (higher is better)",
        "messages per second, logarithmic",
    ),
    (
        "backlog",
        "backlog.svg",
        "100,000 messages for a session that is away (higher is better)",
        "messages per second, logarithmic",
    ),
    ("delivery", "delivery.svg", "Broker CPU per delivery at QoS 1 (lower is better)", "µs, logarithmic"),
];

/// Writes the plots of the figures into `folder`.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(rows: &[Row], folder: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (id, file, title, unit) in PLOTS {
        let (mut names, mut groups): (Vec<&str>, Vec<(String, Vec<_>)>) = Default::default();
        for row in rows.iter().filter(|row| row.id == id) {
            let Some(((group, name), summary)) = row.bar.as_ref().zip(row.summary()) else { continue };
            let place = names.iter().position(|known| known == name).unwrap_or(names.len());
            if place == names.len() {
                names.push(name);
            }
            match groups.iter_mut().find(|(known, _)| known == group) {
                Some((_, bars)) => bars.push((place, summary)),
                None => groups.push((group.clone(), vec![(place, summary)])),
            }
        }
        written.extend(write_bars(Bars { title, unit, names: &names, groups }, folder.join(file))?);
    }
    Ok(written)
}
