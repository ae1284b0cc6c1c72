//! The run as lines of text.

use std::time::Duration;

use super::{Titles, clock, faults, grouped, millis, percent};
use crate::fleet::board::{self, Phase};
use crate::fleet::regions::{Health, LinkTrouble, Snapshot};
use crate::fleet::selection::{Kind, Watch};

/// The text before the run.
pub fn head(titles: &Titles) -> String {
    let Titles { trace, lines, vehicles, speed_up, broker, .. } = titles;
    let mut text = format!("{vehicles} vehicles on {lines} lines, {trace}, at {speed_up} times their speed; {broker}");
    if let Some(console) = &titles.console {
        text = format!("{text}\nconsole: {console}");
    }
    if let Some(notice) = &titles.notice {
        text = format!("{text}\n{notice}");
    }
    text
}

/// The state of the run in one line.
pub fn status(snapshot: &board::Snapshot) -> String {
    let connected: u32 = snapshot.seats.iter().map(|seats| seats.connected).sum();
    let wanted: u32 = snapshot.seats.iter().map(|seats| seats.wanted).sum();
    if snapshot.phase == Phase::Connecting {
        return format!("connecting: {connected} of {wanted}");
    }
    let (published, delivered) = snapshot.rates;
    let recent = snapshot.recent;
    let mut text = format!(
        "{}  published {published:.0}/s ({})  delivered {delivered:.0}/s ({})  delay ms p50 {} p99 {} max {}  faults {}  \
         connections {connected}/{wanted}",
        clock(snapshot.elapsed),
        grouped(snapshot.published.sent),
        grouped(snapshot.delivered),
        millis(recent.p50),
        millis(recent.p99),
        millis(recent.max),
        faults(snapshot),
    );
    for (name, kind) in [("fences", Kind::Fence), ("speeds", Kind::Speed)] {
        let Watch { watchers, delivered, lost, wrong, .. } = Watch::sum(&snapshot.watches, kind);
        if watchers > 0 {
            text.push_str(&format!("  {name} {}", grouped(delivered)));
        }
        if lost + wrong > 0 {
            text.push_str(&format!(" ({lost} lost, {wrong} wrong)"));
        }
    }
    let roaming = &snapshot.roaming;
    if !roaming.is_empty() {
        let (semi_durable, nondurable) = (&roaming.semi_durable, &roaming.nondurable);
        text.push_str(&format!(
            "  without signal {}  recovered {}  reported {}  silently lost {}  (nondurable: {} missed)",
            semi_durable.away() + nondurable.away(),
            grouped(semi_durable.tally.recovered),
            grouped(semi_durable.tally.reported),
            semi_durable.silent(),
            grouped(nondurable.missed()),
        ));
    }
    if let Some(freight) = &snapshot.freight {
        text.push_str(&format!(
            "  orders {} acknowledged {} lost {} twice {}",
            grouped(freight.sent),
            grouped(freight.accepted),
            freight.lost(),
            freight.total.twice,
        ));
    }
    if let Some(alarms) = &snapshot.alarms {
        text.push_str(&format!(
            "  alarms {} within {} ms (positions {}) lost {}",
            percent(alarms.counts.deliveries.share()),
            alarms.deadline_ms,
            percent(alarms.positions.share()),
            alarms.counts.lost,
        ));
    }
    if let Some((what, count)) = snapshot.crashes.ends() {
        text.push_str(&format!("  {what} {count}"));
    }
    if let Some(regions) = &snapshot.regions {
        text.push_str(&format!("  moves {}  {}", grouped(regions.moves), places(regions)));
    }
    if snapshot.phase == Phase::Draining {
        text.push_str(&format!("  in flight {}", snapshot.in_flight()));
    }
    text
}

/// The clients of each region, the state of brokers and links, and how long recovery took.
fn places(regions: &Snapshot) -> String {
    let seconds = |span: Option<Duration>| span.map(|span| format!(" {:.1} s", span.as_secs_f64())).unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    for region in &regions.regions {
        let mut part = format!("{} {}", region.name, region.total());
        match (region.health, region.ends()) {
            (Health::Down, _) => part += " (down)",
            (Health::Returning, _) => part += " (returning)",
            (Health::Serves, None) => {}
            (Health::Serves, Some((what, count))) => {
                part += &format!(" ({what} {count}, served after{})", seconds(region.worst_served))
            }
        }
        parts.push(part);
    }
    for link in &regions.links {
        let name = format!("{}–{}", link.between[0], link.between[1]);
        if let Some(trouble) = link.trouble {
            parts.push(format!("{name} is {}", trouble.name()));
            continue;
        }
        let counts = LinkTrouble::ALL.map(|trouble| (trouble, link.count(trouble)));
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(trouble, count)| format!("{} {count}", trouble.name())).collect();
        if !counts.is_empty() {
            parts.push(format!("{name} {}", counts.join(" ")));
        }
    }
    parts.join(", ")
}
