//! The summary at the end of a run.

use serde::Serialize;

use super::alarms::AlarmSnapshot;
use super::alarms::judge::{AlarmCounts, InTime};
use super::board::{LineRow, Published, ROLES, Role, Seats, Snapshot};
use super::checker::{Promise, Tally};
use super::crashes::Crashes;
use super::delays::Quantiles;
use super::freight;
use super::freight::ledger::Counts;
use super::regions;
use super::roaming::Roaming;
use super::selection::{Kind, Watch};
use super::trace::Trace;
use super::view::{Titles, clock, grouped, millis, percent};

/// The columns before the continuation of a count in the row above.
const INDENT: usize = 14;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The trace that was replayed.
    pub trace: TraceSummary,
    /// The broker's address, and whose it is.
    pub broker: String,
    /// How long positions were published, s.
    pub seconds: f64,
    /// The counts of vehicles' publishes.
    pub published: Published,
    /// Deliveries to all subscribers.
    pub delivered: u64,
    /// Publications per second.
    pub published_per_second: f64,
    /// Deliveries per second.
    pub delivered_per_second: f64,
    /// The delay from handing a position to its vehicle until its delivery, ms, over all
    /// subscribers.
    pub delay_ms: Quantiles,
    /// Subscribers that may lose nothing (QoS 1).
    pub reliable: Tally,
    /// Subscribers that may lose messages (QoS 0).
    pub best_effort: Tally,
    /// Connections by role.
    pub connections: Connections,
    /// Consoles that lose their signal.
    pub roaming: Roaming,
    /// Watched lines.
    pub lines: Vec<LineRow>,
    /// Watchers by content.
    pub selected: Selected,
    /// The freight desk, if there is one.
    pub freight: Option<freight::Snapshot>,
    /// Alarms, if there are any.
    pub alarms: Option<AlarmSnapshot>,
    /// Gaps of durable subscriptions that own brokers have counted since their last start, as far
    /// as they answer. In none of them something may be lost.
    pub durable_gaps: Option<u64>,
    /// Kills and restarts of brokers.
    pub crashes: Crashes,
    /// The regions, if there are several.
    pub regions: Option<regions::Snapshot>,
    /// Troubles, each with its count.
    pub troubles: Vec<(String, u64)>,
    /// Broken promises: reliable losses, and repeated, reordered, altered and foreign deliveries to
    /// any subscriber.
    pub faults: u64,
}

/// Connections by role.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Connections {
    /// Publishers.
    pub vehicles: Seats,
    /// Subscribers to everything, QoS 1.
    pub consoles: Seats,
    /// Subscribers to one line, or with a selector, QoS 1.
    pub watchers: Seats,
    /// The subscriber to everything, QoS 0.
    pub viewers: Seats,
    /// Consoles that lose their signal and continue from their position.
    pub semi_durable: Seats,
    /// Consoles that lose their signal and the events meanwhile.
    pub nondurable: Seats,
}

/// Watchers by content.
#[derive(Clone, Debug, Serialize)]
pub struct Selected {
    /// All watchers of fences together.
    pub fences: Watch,
    /// All watchers of speeds without a fence together.
    pub speeds: Watch,
    /// Each watcher.
    pub watchers: Vec<Watch>,
}

/// The trace that was replayed.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    /// Its name.
    pub name: String,
    /// The attribution of its data.
    pub attribution: Option<String>,
    /// The number of vehicles.
    pub vehicles: usize,
    /// The number of lines.
    pub lines: usize,
    /// The number of positions.
    pub positions: usize,
    /// Records that could not be read and were left out.
    pub malformed: u64,
    /// The mistakes of the first of them, with their places.
    pub malformed_examples: Vec<String>,
    /// Positions left out because they are of another time than most.
    pub stray: u64,
    /// The first of them.
    pub stray_examples: Vec<String>,
    /// Records left out because they say that they no longer count.
    pub deleted: u64,
    /// Records left out because they repeat a vehicle and a time.
    pub repeats: u64,
    /// The speed of the replay relative to the recording.
    pub speed_up: f64,
    /// The number of times that it was replayed to its end.
    pub laps: u64,
}

impl Summary {
    /// The summary of a run that ended as `end` shows; `connections` are those while it ran.
    pub fn new(trace: &Trace, titles: &Titles, end: Snapshot, connections: [Seats; ROLES.len()]) -> Summary {
        let seconds = end.elapsed.as_secs_f64();
        let (reliable, best_effort) = (end.reliable.0, end.best_effort.0);
        let trace = TraceSummary {
            name: trace.name.clone(),
            attribution: titles.notice.clone(),
            vehicles: trace.vehicles.len(),
            lines: trace.lines.len(),
            positions: trace.positions.len(),
            malformed: trace.malformed.count,
            malformed_examples: trace.malformed.examples.clone(),
            stray: trace.stray.count,
            stray_examples: trace.stray.examples.clone(),
            deleted: trace.deleted,
            repeats: trace.repeats,
            speed_up: titles.speed_up,
            laps: end.replayed.laps,
        };
        let of = |role| {
            let index = ROLES.iter().position(|other| *other == role);
            index.map(|index| connections[index]).unwrap_or_default()
        };
        Summary {
            trace,
            broker: titles.broker.clone(),
            seconds,
            published: end.published,
            delivered: end.delivered,
            published_per_second: end.published.sent as f64 / seconds.max(f64::MIN_POSITIVE),
            delivered_per_second: end.delivered as f64 / seconds.max(f64::MIN_POSITIVE),
            delay_ms: end.overall,
            reliable,
            best_effort,
            connections: Connections {
                vehicles: of(Role::Vehicle),
                consoles: of(Role::Console),
                watchers: of(Role::Watcher),
                viewers: of(Role::Viewer),
                semi_durable: of(Role::SemiDurable),
                nondurable: of(Role::Nondurable),
            },
            lines: end.lines,
            selected: Selected {
                fences: Watch::sum(&end.watches, Kind::Fence),
                speeds: Watch::sum(&end.watches, Kind::Speed),
                watchers: end.watches,
            },
            troubles: end.troubles,
            faults: reliable.faults(Promise::Reliable)
                + best_effort.faults(Promise::BestEffort)
                + end.roaming.faults()
                + end.freight.as_ref().map_or(0, |freight| freight.total.faults())
                + end.alarms.map_or(0, |alarms| alarms.counts.faults()),
            roaming: end.roaming,
            freight: end.freight,
            alarms: end.alarms,
            durable_gaps: None,
            crashes: end.crashes,
            regions: end.regions,
        }
    }

    /// Why the run has failed; `None` if it has not.
    pub fn failure(&self) -> Option<String> {
        let Roaming { semi_durable, nondurable } = &self.roaming;
        let lasting = [&self.reliable, &semi_durable.tally, &nondurable.tally];
        let all = || lasting.into_iter().chain([&self.best_effort]);
        let sum = |count: fn(&Tally) -> u64| all().map(count).sum::<u64>();
        let kinds = [
            (lasting.iter().map(|tally| tally.lost).sum(), "lost"),
            (sum(|tally| tally.duplicated), "repeated"),
            (sum(|tally| tally.reordered), "out of order"),
            (sum(|tally| tally.altered), "altered"),
            (sum(|tally| tally.foreign), "not asked for"),
        ];
        let list = |kinds: &[(u64, &str)]| -> Option<String> {
            let broken = kinds.iter().filter(|(count, _)| *count > 0);
            let broken: Vec<String> = broken.map(|(count, kind)| format!("{count} {kind}")).collect();
            (!broken.is_empty()).then(|| broken.join(", "))
        };
        let deliveries = list(&kinds).map(|list| format!("; deliveries: {list}")).unwrap_or_default();
        let orders = self.freight.as_ref().and_then(|freight| {
            let Counts { lost, twice, reordered, altered, foreign, gaps, .. } = freight.total;
            list(&[
                (lost, "lost"),
                (twice, "twice"),
                (reordered, "out of order"),
                (altered, "altered"),
                (foreign, "not asked for"),
                (gaps, "gaps"),
            ])
        });
        let orders = orders.map(|list| format!("; orders: {list}")).unwrap_or_default();
        let alarms = self
            .alarms
            .and_then(|AlarmSnapshot { counts, .. }| list(&[(counts.lost, "lost"), (counts.foreign, "not asked for")]));
        let alarms = alarms.map(|list| format!("; alarms: {list}")).unwrap_or_default();
        let counted = self.durable_gaps.filter(|gaps| *gaps > 0);
        let counted = counted.map(|gaps| format!("; counted by brokers: {gaps} gaps of durable subscriptions"));
        let counted = counted.unwrap_or_default();
        let broken = [deliveries, orders, alarms, counted].concat();
        if !broken.is_empty() {
            return Some(format!("the broker broke its promises{broken}"));
        }
        (self.reliable.delivered == 0).then(|| "nothing was delivered, so nothing was checked".to_owned())
    }

    /// The summary as text.
    pub fn text(&self) -> String {
        let Published { sent, confirmed, unconfirmed, held_back, .. } = self.published;
        let delay = self.delay_ms;
        let TraceSummary { name, vehicles, lines, speed_up, laps, .. } = &self.trace;
        let span = clock(std::time::Duration::from_secs_f64(self.seconds));
        let mut rows = vec![
            format!("{vehicles} vehicles on {lines} lines, {name}, at {speed_up} times their speed, for {span}"),
            format!(
                "published   {:>12}  {:>8.0}/s  confirmed {}",
                grouped(sent),
                self.published_per_second,
                grouped(confirmed)
            ),
            format!("delivered   {:>12}  {:>8.0}/s", grouped(self.delivered), self.delivered_per_second),
            format!(
                "delay ms    p50 {}  p99 {}  p99.9 {}  max {}",
                millis(delay.p50),
                millis(delay.p99),
                millis(delay.p999),
                millis(delay.max)
            ),
            tally("QoS 1", &self.reliable),
            tally("QoS 0", &self.best_effort),
        ];
        rows.extend(self.roaming.rows());
        rows.extend(self.selected.rows());
        rows.extend(self.freight.iter().flat_map(freight::Snapshot::rows));
        rows.extend(self.alarms.iter().map(alarms_row));
        rows.extend(self.crashes.row());
        rows.extend(self.regions.iter().flat_map(regions::Snapshot::rows));
        for (count, what) in [
            (unconfirmed, "not confirmed by the broker"),
            (held_back, "held back, since their vehicle still waited for the broker"),
            (*laps, "times replayed to the end"),
        ] {
            if count > 0 {
                rows.push(format!("{:>24}  {what}", grouped(count)));
            }
        }
        rows.extend(self.trace.left_out());
        rows.extend(self.troubles.iter().map(|(trouble, count)| format!("{:>24}  times: {trouble}", grouped(*count))));
        rows.extend(self.trace.attribution.clone());
        rows.extend(self.meanings());
        rows.join("\n")
    }

    /// Explanations of numbers that are easily misread, for those that are present.
    fn meanings(&self) -> Vec<String> {
        let classes =
            [&self.reliable, &self.best_effort, &self.roaming.semi_durable.tally, &self.roaming.nondurable.tally];
        let tallied = |count: fn(&Tally) -> u64| classes.iter().any(|tally| count(tally) > 0);
        let watched =
            |count: fn(&Watch) -> u64| [&self.selected.fences, &self.selected.speeds].iter().any(|sum| count(sum) > 0);
        let meanings = [
            (
                tallied(|tally| tally.reported) || watched(|watch| watch.reported),
                "told as missing: the broker could not deliver and said so to the subscriber, as it promises; lost: nothing was said",
            ),
            (
                self.best_effort.lost > 0,
                "lost at QoS 0: what was under way when a connection or a broker went; QoS 0 promises no more",
            ),
            (
                self.roaming.nondurable.tally.missed > 0,
                "missed: sent while a nondurable console had no signal; it promises no more",
            ),
            (
                tallied(|tally| tally.redelivered),
                "sent again: marked by the broker as a possible repeat, since it does not know what a broken connection brought",
            ),
            (
                tallied(|tally| tally.excused) || watched(|watch| watch.excused) || self.published.unconfirmed > 0,
                "not confirmed: its publisher was never told that the broker has it, so nothing was promised",
            ),
        ];
        meanings.into_iter().filter(|(is_there, _)| *is_there).map(|(_, meaning)| meaning.to_owned()).collect()
    }
}

impl TraceSummary {
    /// The records that were left out, and why.
    fn left_out(&self) -> Vec<String> {
        let mut rows = Vec::new();
        let none: &[String] = &[];
        for (count, what, examples) in [
            (self.repeats, "repeated in the recording, left out", none),
            (self.deleted, "deleted by the recording itself, left out", none),
            (
                self.stray,
                "more than 30 days from the rest of the recording, left out; the first:",
                &self.stray_examples[..],
            ),
            (self.malformed, "malformed in the recording, left out; the first:", &self.malformed_examples[..]),
        ] {
            if count > 0 {
                rows.push(format!("{:>24}  {what}", grouped(count)));
                rows.extend(examples.iter().map(|example| format!("{:INDENT$}{example}", "")));
            }
        }
        rows
    }
}

impl Selected {
    fn rows(&self) -> Vec<String> {
        let mut rows = Vec::new();
        for (name, sum) in [("in fences", &self.fences), ("by speed", &self.speeds)] {
            if sum.watchers == 0 {
                continue;
            }
            let Watch { watchers, expected, delivered, lost, wrong, kind, .. } = sum;
            let (delivered, expected) = (grouped(*delivered), grouped(*expected));
            let mut row = format!("{name:<11} {delivered:>12}  of {expected} expected by {watchers} watchers");
            row += &format!(": {lost} lost, {wrong} wrong");
            for (count, what) in [
                (sum.reported, "told as missing"),
                (sum.excused, "not confirmed"),
                (sum.bordering, "on a border, not judged"),
            ] {
                if count > 0 {
                    row += &format!(", {} {what}", grouped(count));
                }
            }
            rows.push(row);
            let each = self.watchers.iter().filter(|watch| watch.kind == *kind);
            rows.extend(each.map(|watch| {
                let fault = match (watch.lost, watch.wrong) {
                    (0, 0) => String::new(),
                    (lost, wrong) => format!("  {lost} lost, {wrong} wrong"),
                };
                format!("{:>24}  {}{fault}", grouped(watch.delivered), watch.selector)
            }));
        }
        rows
    }
}

fn tally(name: &str, tally: &Tally) -> String {
    let Tally {
        expected,
        delivered,
        lost,
        duplicated,
        redelivered,
        reordered,
        altered,
        foreign,
        excused,
        overtaken,
        reported,
        ..
    } = tally;
    let mut text = format!("{name:<11} {:>12}  of {} expected\n", grouped(*delivered), grouped(*expected));
    text += &format!(
        "{:INDENT$}{lost} lost, {duplicated} twice, {reordered} out of order, {altered} altered, {foreign} not asked for",
        ""
    );
    for (count, what) in [
        (*reported, "told as missing"),
        (*redelivered, "sent again after a broken connection"),
        (*overtaken, "overtaken while their broker was out of reach"),
        (*excused, "not confirmed"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

/// The row of alarms.
fn alarms_row(alarms: &AlarmSnapshot) -> String {
    let AlarmCounts { deliveries, lost, unsure, repeated, foreign, .. } = alarms.counts;
    let InTime { in_time, late, while_down } = deliveries;
    let (share, positions) = (percent(deliveries.share()), percent(alarms.positions.share()));
    let arrived = grouped(in_time + late);
    let mut row = format!(
        "alarms      {arrived:>12}  {share} within {} ms (positions: {positions}), {late} late, {lost} lost",
        alarms.deadline_ms
    );
    for (count, what) in [
        (while_down, "while a broker was down"),
        (repeated, "again"),
        (foreign, "not asked for"),
        (unsure, "without an answer and not delivered"),
    ] {
        if count > 0 {
            row += &format!(", {} {what}", grouped(count));
        }
    }
    row
}
