//! `whimbrel trace`: the path of an event.

use anyhow::anyhow;
use whimbrel_server::api::answers::{Trace as Answer, Traced};
use whimbrel_server::api::percent;

use crate::control::Reach;
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::system::unheard;
use crate::table::{Cell, Table, Tone, delay, is_coloured, name};
use crate::ways;

const DETAILS: &str = "\
All brokers are asked what they know of the event, and those that know something are shown in the order of its way.
Times are each broker's own, counted from the first thing that it knows of the event: clocks of brokers differ. The
broker that accepted it tells for which brokers it was, and why, as long as it has the event in its cache. Brokers
remember their last 16,384 notes, which is some seconds where much is published.

Of an event of a topic with several paths, and of one that has not gone as it was planned, each way follows: the
time that it takes by the plan of now, the age of the event at each broker, which copy was first, and where others ended.

An event's id is the property w-id of a delivery; `whimbrel sub --json` prints it.

Examples:
  whimbrel trace c37cc497bf3d2300:1795000000123456789 --data /var/lib/whimbrel
  whimbrel trace c37cc497bf3d2300:1795000000123456789 --json | jq '.brokers[].broker'";

/// Arguments of `whimbrel trace`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Trace {
    #[command(flatten)]
    reach: Reach,
    /// The event's id: `<stream>:<tick>`
    event: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Trace {
    /// Asks the broker and prints the answer.
    pub fn run(&self) -> Result<(), Failure> {
        let target = format!("/api/v1/trace/{}", percent::encode(&self.event));
        let answer: Answer = self.reach.find()?.ask("GET", &target)?;
        if self.json {
            return print_json(&answer);
        }
        if answer.brokers.is_empty() {
            let others = others(&answer);
            return Err(anyhow!(
                "nothing is known of {}: no broker has it in its cache, or remembers that it passed{}{}",
                answer.event,
                if others.is_empty() { "" } else { "\n" },
                others.trim_end()
            )
            .into());
        }
        let mut out = table(&answer.brokers).text(is_coloured());
        out += &ways::text(&answer, is_coloured());
        out += &others(&answer);
        failure::print(out.as_bytes())
    }
}

fn table(brokers: &[Traced]) -> Table {
    let mut table = Table::new(&["BROKER", "AFTER>", "WHAT"]);
    for traced in brokers {
        for (at, note) in traced.notes.iter().enumerate() {
            let broker = if at == 0 { name(&traced.broker) } else { String::new() };
            let after = note.after_us.map_or_else(|| Cell::from(""), |micros| format!("+{}", delay(micros)).into());
            let tone = if note.what.starts_with("not sent") || note.what.starts_with("no way") {
                Tone::Warn
            } else {
                Tone::Plain
            };
            table.row(vec![broker.into(), after, Cell::new(plain(&note.what), tone)]);
        }
    }
    table
}

/// A line from another broker, with control characters escaped for the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// Brokers without notes, and why.
fn others(answer: &Answer) -> String {
    let ignorant: Vec<String> = answer.ignorant.iter().map(|broker| name(broker)).collect();
    let known = if answer.brokers.is_empty() || ignorant.is_empty() {
        String::new()
    } else {
        format!("knows nothing of it: {}\n", ignorant.join(", "))
    };
    known + &unheard(&answer.silent, &answer.missed)
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::Noted;

    use super::*;

    #[test]
    fn a_broker_is_named_once_and_the_silent_are_named() {
        let note = |after_us, what: &str| Noted { after_us, what: what.into(), ..Noted::default() };
        let notes = vec![note(Some(0), "came from a"), note(Some(180), "sent to c\u{1b}"), note(None, "for c")];
        let text = table(&[Traced { broker: "b".into(), notes, plan: None }]).text(false);
        let expected = "BROKER    AFTER  WHAT\n\
                        b         +0 µs  came from a\n        \
                                +0.2 ms  sent to c\\u{1b}\n                 \
                                         for c\n";
        assert_eq!(text, expected);
        let answer = Answer {
            event: "1:2".into(),
            brokers: Vec::new(),
            destinations: Vec::new(),
            deadline_ms: None,
            setting: None,
            ignorant: vec!["x".into()],
            silent: vec!["y".into()],
            missed: vec!["z".into()],
        };
        let words = others(&answer);
        assert_eq!(words, "has not answered within 2 s: y\ncould not be asked, as there is no way or no room: z\n");
    }
}
