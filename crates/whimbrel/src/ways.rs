//! The ways of an event to each broker that wanted it, as text.

use whimbrel_server::api::answers::{Trace, TracedDestination, TracedPath};

use crate::table::{Tone, count, delay, name, paint};

/// Columns of a line, as far as names allow.
const WIDTH: usize = 80;

/// Columns before the brokers of a way.
const INDENT: &str = "     ";

/// The ways of an event, destination by destination; empty if each has come by its only way, which
/// the notes of the brokers tell.
pub fn text(answer: &Trace, coloured: bool) -> String {
    let is_ordinary = |to: &TracedDestination| matches!(&*to.paths, [] | [_]) && to.paths.iter().all(is_first);
    if answer.destinations.iter().all(is_ordinary) {
        return String::new();
    }
    let mut out = String::new();
    for to in &answer.destinations {
        out += &format!("\n{}\n", wrapped(&head(answer, to), ", ", INDENT));
        for (number, path) in (1..).zip(&to.paths) {
            let tone = if is_good(path) { Tone::Plain } else { Tone::Warn };
            out += &format!("  {number}  {}\n", paint(&outcome(path), tone, coloured));
            out += &format!("{INDENT}{}\n", wrapped(&brokers(path), " > ", INDENT));
        }
    }
    out
}

fn is_first(path: &TracedPath) -> bool {
    path.state == "first" && path.planned_us.is_some()
}

fn is_good(path: &TracedPath) -> bool {
    matches!(&*path.state, "first" | "later" | "joined") && path.in_time != Some(false)
}

/// How many ways there are by the plan, and what they have in common.
fn head(answer: &Trace, to: &TracedDestination) -> Vec<String> {
    let planned = to.paths.iter().filter(|path| path.planned_us.is_some());
    let (all, in_time) =
        planned.fold((0, 0), |(all, in_time), path| (all + 1, in_time + usize::from(path.in_time == Some(true))));
    let within = answer.deadline_ms.map(|millis| delay(millis.saturating_mul(1_000)));
    let ways = count(all as u64, "way", "ways");
    let mut parts = match within {
        _ if all == 0 => vec!["no way now".to_owned()],
        None => vec![ways],
        Some(within) if in_time == all => vec![format!("{ways} within {within}")],
        Some(within) => vec![ways, format!("{in_time} of them within {within}")],
    };
    let shared = to.shared_brokers.iter().map(|broker| name(broker));
    let links = to.shared_links.iter().map(|ends| ends.iter().map(|end| name(end)).collect::<Vec<_>>().join(" - "));
    let mut common = shared.chain(links);
    match (all, common.next()) {
        (1, _) if answer.setting.as_deref() != Some("1") => parts.push("there is no other".into()),
        (0 | 1, _) => {}
        (_, None) => parts.push("nothing in common".into()),
        (_, Some(first)) => {
            parts.push(format!("in common: {first}"));
            parts.extend(common);
        }
    }
    if to.taken == Some(false) {
        parts.push("not taken there".into());
    }
    parts[0] = format!("{}: {}", name(&to.broker), parts[0]);
    parts
}

/// What was planned, and what became of it.
fn outcome(path: &TracedPath) -> String {
    let plan = match (path.planned_us, path.in_time) {
        (None, _) => "not planned now".to_owned(),
        (Some(time_us), Some(false)) => format!("planned {}, too late", delay(time_us)),
        (Some(time_us), _) => format!("planned {}", delay(time_us)),
    };
    let at = name(&path.at);
    let age = path.ages_us.last().copied().flatten().map_or(String::new(), |age_us| format!(", {} old", delay(age_us)));
    let became = match &*path.state {
        "first" => format!("came first{age}"),
        "later" => format!("came {} later{age}", delay(path.behind_us.unwrap_or(0))),
        "asked-for" => format!("came when it was asked for{age}"),
        "joined" => format!("ended at {at}, which had passed on another copy"),
        "lost" => format!("no sign of it beyond {at}"),
        "held-back" => format!("held back at {at}, where too much was unsent"),
        "rerouted" => format!("has taken another way from {at}"),
        "not-sent" => format!("not sent this way from {at}"),
        "unknown" => format!("at {at}; brokers beyond have not answered"),
        other => format!("{} at {at}", name(other)),
    };
    format!("{plan}: {became}")
}

/// The brokers of a way with the event's age at each.
fn brokers(path: &TracedPath) -> Vec<String> {
    let ages = path.ages_us.iter().copied().chain(core::iter::repeat(None));
    let one = |(at, (broker, age_us)): (usize, (&String, Option<u64>))| match age_us {
        Some(age_us) if at > 0 => format!("{} {}", name(broker), delay(age_us)),
        _ => name(broker),
    };
    path.brokers.iter().zip(ages).enumerate().map(one).collect()
}

/// Parts in lines of at most [`WIDTH`] columns, if they are short enough; each but the first begins
/// with `indent`, which is also before the first one.
fn wrapped(parts: &[String], between: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut columns = indent.len();
    for (at, part) in parts.iter().enumerate() {
        let length = part.chars().count() + between.len();
        if at > 0 {
            out += between.trim_end();
            if columns + length > WIDTH {
                out += &format!("\n{indent}");
                columns = indent.len();
            } else {
                out += " ";
            }
        }
        out += part;
        columns += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(brokers: &str, planned_us: Option<u64>, ages_us: &[Option<u64>], state: &str, at: &str) -> TracedPath {
        TracedPath {
            brokers: brokers.split(' ').map(String::from).collect(),
            planned_us,
            in_time: planned_us.map(|time_us| time_us <= 80_000),
            ages_us: ages_us.to_vec(),
            state: state.into(),
            at: at.into(),
            behind_us: (state == "later").then_some(35_900),
        }
    }

    fn answer(paths: Vec<TracedPath>, shared: &str) -> Trace {
        let shared_brokers: Vec<String> = shared.split_whitespace().map(String::from).collect();
        let shared_links = shared_brokers.iter().map(|broker| vec![broker.clone(), "d".into()]).collect();
        let to = TracedDestination { broker: "d".into(), taken: Some(true), paths, shared_brokers, shared_links };
        Trace {
            event: "1:2".into(),
            brokers: Vec::new(),
            destinations: vec![to],
            deadline_ms: Some(80),
            setting: Some("2".into()),
            ignorant: Vec::new(),
            silent: Vec::new(),
            missed: Vec::new(),
        }
    }

    #[test]
    fn two_copies_are_told_with_their_brokers_and_ages() {
        let quick = path("a b d", Some(4_600), &[Some(0), Some(2_100), Some(4_100)], "first", "d");
        let slow = path("a c d", Some(40_600), &[Some(0), Some(20_100), Some(40_000)], "later", "d");
        let expected = "\nd: 2 ways within 80 ms, nothing in common\n  1  planned 4.6 ms: came first, 4.1 ms old\n     \
                        a > b 2.1 ms > d 4.1 ms\n  2  planned 41 ms: came 36 ms later, 40 ms old\n     a > c 20 ms > d 40 ms\n";
        assert_eq!(text(&answer(vec![quick.clone(), slow.clone()], ""), false), expected);
        assert_eq!(text(&answer(vec![quick.clone()], ""), false), "", "the table tells it");
        let lost = path("a c d", Some(90_600), &[Some(0), Some(20_100), None], "lost", "c");
        let said = text(&answer(vec![quick, lost], "c"), true);
        assert!(said.contains("d: 2 ways, 1 of them within 80 ms, in common: c, c - d\n"), "{said}");
        assert!(said.contains("\u{1b}[33mplanned 91 ms, too late: no sign of it beyond c\u{1b}[0m"), "{said}");
        let only = path("a c d", Some(4_600), &[Some(0), None, None], "lost", "a");
        let mut one = answer(vec![only], "");
        assert!(text(&one, false).contains("d: 1 way within 80 ms, there is no other\n"), "two were asked for");
        one.setting = Some("1".into());
        assert!(text(&one, false).contains("d: 1 way within 80 ms\n"));
        let around = path("a e d", None, &[Some(0), Some(20_100), Some(40_000)], "first", "d");
        assert!(text(&answer(vec![around], ""), false).contains("  1  not planned now: came first, 40 ms old\n"));
    }

    #[test]
    fn long_ways_go_on_in_the_next_line() {
        let brokers: Vec<String> = (0..12).map(|at| format!("broker-{at}")).collect();
        let ages: Vec<_> = (0..12).map(|at| Some(at * 1_000)).collect();
        let long = path(&brokers.join(" "), Some(12_000), &ages, "joined", "broker-7");
        let said = text(&answer(vec![long], &brokers[1..11].join(" ")), false);
        assert!(said.lines().all(|line| line.chars().count() <= WIDTH), "{said}");
        assert!(said.contains("ended at broker-7") && said.matches(" >\n").count() == 2, "{said}");
    }
}
