//! `whimbrel status`: all brokers at a glance.

use whimbrel_server::api::answers::{History, Said, Status as Answer, System, Told};

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::system::{All, absent, answers};
use crate::table::{Cell, Table, Tone, count, is_coloured, name, size, span};

/// Time over which rates are taken, milliseconds.
const RATE_OVER: u64 = 10_000;

const DETAILS: &str = "\
Any broker can be asked: it asks the others. EVENTS/S are those that were published at that broker in the last 10 s, its
own under $SYS included, DELIVERED/S those that its clients got; LOST is what subscribers did not get since its start, or may not have got:
`whimbrel status --json` has it by kind. REACHES tells to how many of the brokers that it knows it has a way.

Examples:
  whimbrel status --data /var/lib/whimbrel
  whimbrel status --api http://depot-3:8080 --user ops --password-file ops.password
  whimbrel status --json | jq '.brokers[].answer.counters'";

/// Arguments of `whimbrel status`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Status {
    #[command(flatten)]
    reach: Reach,
    /// Only the broker that is asked, not all
    #[arg(long)]
    own: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Asks the brokers and prints the answers.
    pub fn run(&self) -> Result<(), Failure> {
        let control = self.reach.find()?;
        if self.own && self.json {
            return print_json(&control.ask::<Answer>("GET", "/api/v1/status")?);
        }
        let all: All<Answer> = if self.own { own(&control)? } else { control.ask("GET", "/api/v1/system/status")? };
        if self.json {
            return print_json(&all);
        }
        let since = answers(&all).map(|(_, status)| status.now_ms).min().unwrap_or(0).saturating_sub(RATE_OVER);
        let only = match all.brokers.first() {
            Some(said) if self.own => format!("&broker={}", said.name),
            _ => String::new(),
        };
        let histories: All<History> = control.ask("GET", &format!("/api/v1/system/history?after_ms={since}{only}"))?;
        failure::print(text(&all, &histories, is_coloured()).as_bytes())
    }
}

/// The answer of the asked broker alone.
fn own(control: &Control) -> anyhow::Result<All<Answer>> {
    let status: Answer = control.ask("GET", "/api/v1/status")?;
    let said = Said { name: status.name.clone(), answer: Told::So(status) };
    Ok(System { brokers: vec![said], silent: Vec::new(), missed: Vec::new() })
}

fn text(all: &All<Answer>, histories: &All<History>, coloured: bool) -> String {
    let columns = [
        "BROKER",
        "VERSION",
        "PHASE",
        "UP>",
        "CLIENTS>",
        "SESSIONS>",
        "EVENTS/S>",
        "DELIVERED/S>",
        "LOST>",
        "MEMORY>",
        "REACHES>",
    ];
    let mut table = Table::new(&columns);
    for (broker, status) in answers(all) {
        let history = answers(histories).find(|(other, _)| *other == broker).map(|(_, history)| history);
        table.row(row(broker, status, history));
    }
    for broker in all.silent.iter().chain(&all.missed) {
        let state = Cell::new(if all.silent.contains(broker) { "silent" } else { "no way" }, Tone::Warn);
        table.row(vec![Cell::new(name(broker), Tone::Warn), Cell::none(), state]);
    }
    let unheard = all.silent.len() + all.missed.len();
    let brokers = all.brokers.len() + unheard;
    // The numbers of brokers that have not answered are not known, so the sums are no totals.
    let of = match unheard {
        0 => String::new(),
        _ => format!(" at the {} that answered", all.brokers.len()),
    };
    let sum = |number: fn(&Answer) -> u64| answers(all).map(|(_, status)| number(status)).sum();
    let foot = format!(
        "{}, {}, {}{of}\n",
        count(brokers as u64, "broker", "brokers"),
        count(sum(|status| status.connections), "client", "clients"),
        count(sum(|status| status.sessions), "session", "sessions"),
    );
    table.text(coloured) + &foot + &unreached(all) + &absent(all)
}

/// Configured peers that are not reached, and why.
fn unreached(all: &All<Answer>) -> String {
    let mut text = String::new();
    for (broker, status) in answers(all) {
        for peer in status.peers.iter().filter(|peer| !peer.reached) {
            let why = peer.error.as_deref().unwrap_or("it was not tried yet");
            text += &format!("{}: its peer {} is not reached: {}\n", name(broker), name(&peer.address), name(why));
        }
    }
    text
}

fn row(broker: &str, status: &Answer, history: Option<&History>) -> Vec<Cell> {
    let rate = |number: fn(&whimbrel_server::api::answers::Counters) -> u64| {
        let samples = history.map_or(&[][..], |history| &history.samples);
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Cell::none() };
        let millis = last.at_ms.saturating_sub(first.at_ms);
        if millis == 0 {
            return Cell::none();
        }
        let events = number(&last.counters).saturating_sub(number(&first.counters));
        (events * 1000 / millis).to_string().into()
    };
    let lost = &status.counters.lost;
    let lost = lost.nondurable + lost.semi_durable + lost.durable;
    let warn = |is_odd: bool| if is_odd { Tone::Warn } else { Tone::Plain };
    let (reaches, known) = (status.brokers_reachable, status.brokers_known);
    vec![
        name(broker).into(),
        name(status.version.split(' ').next().unwrap_or_default()).into(),
        Cell::new(name(&status.phase), if status.phase == "ready" { Tone::Good } else { Tone::Warn }),
        span(status.now_ms.saturating_sub(status.started_ms)).into(),
        status.connections.to_string().into(),
        status.sessions.to_string().into(),
        rate(|counters| counters.events_accepted),
        rate(|counters| counters.deliveries),
        Cell::new(lost.to_string(), warn(lost > 0)),
        size(status.counters.memory_bytes).into(),
        Cell::new(format!("{reaches} of {known}"), warn(reaches < known)),
    ]
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::{Counters, Listeners, Peer, Sample};

    use super::*;

    #[test]
    fn brokers_stand_in_a_table_with_their_rates_and_those_that_are_not_heard() {
        let status = Answer {
            now_ms: 100_000,
            started_ms: 35_000,
            name: "a".into(),
            version: "0.1.0 (abc)".into(),
            host: "10".into(),
            incarnation: Some(1),
            deployment: "d".into(),
            phase: "ready".into(),
            dev: false,
            listeners: Listeners::default(),
            lat: None,
            lon: None,
            connections: 2,
            sessions: 3,
            subscriptions: 4,
            brokers_reachable: 1,
            brokers_known: 2,
            peers: vec![
                Peer {
                    address: "b:4433".into(),
                    found: false,
                    reached: false,
                    for_ms: 9_000,
                    error: Some("its name does not resolve".into()),
                },
                Peer { address: "c:4433".into(), found: false, reached: true, for_ms: 9_000, error: None },
            ],
            counters: Counters { memory_bytes: 2 << 20, ..Counters::default() },
        };
        let sample = |at_ms, events_accepted| Sample {
            at_ms,
            counters: Counters { events_accepted, ..Counters::default() },
            ..Sample::default()
        };
        let history =
            History { now_ms: 100_000, every_ms: 2000, samples: vec![sample(90_000, 10), sample(98_000, 410)] };
        let said = |answer| vec![Said { name: "a".into(), answer: Told::So(answer) }];
        let all = System { brokers: said(status), silent: vec!["b".into()], missed: Vec::new() };
        let histories = System {
            brokers: vec![Said { name: "a".into(), answer: Told::So(history) }],
            silent: Vec::new(),
            missed: Vec::new(),
        };
        let text = text(&all, &histories, false);
        let expected = "\
BROKER  VERSION  PHASE      UP  CLIENTS  SESSIONS  EVENTS/S  DELIVERED/S  LOST  MEMORY  REACHES
a       0.1.0    ready   1m 5s        2         3        50            0     0   2 MiB   1 of 2
b       -        silent
2 brokers, 2 clients, 3 sessions at the 1 that answered
a: its peer b:4433 is not reached: its name does not resolve
has not answered within 2 s: b
";
        assert_eq!(text, expected);
    }
}
