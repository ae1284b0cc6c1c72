//! The run as lines of text.

use super::{Titles, clock, faults, grouped, millis};
use crate::fleet::board::{Phase, Snapshot};
use crate::fleet::selection::{Kind, Watch};

/// What is said before the run.
pub fn head(titles: &Titles) -> String {
    let Titles { trace, lines, vehicles, speed_up, broker, .. } = titles;
    let mut text = format!("{vehicles} vehicles on {lines} lines, {trace}, at {speed_up} times their speed; {broker}");
    if let Some(notice) = &titles.notice {
        text = format!("{text}\n{notice}");
    }
    text
}

/// The run at one moment, in one line.
pub fn status(snapshot: &Snapshot) -> String {
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
    if snapshot.crashes.kills > 0 {
        text.push_str(&format!("  kill -9 {}", snapshot.crashes.kills));
    }
    if snapshot.phase == Phase::Draining {
        text.push_str(&format!("  in flight {}", snapshot.in_flight()));
    }
    text
}
