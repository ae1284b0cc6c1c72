//! `whimbrel streams`: what running brokers keep, and for which subscriptions and brokers.

use whimbrel_server::api::answers::{JournalUse, Stream, Streams as Answer};

use crate::control::Reach;
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::system::{self, All};
use crate::table::{Cell, Table, Tone, count, is_coloured, name, paint, size, span};

/// A stream that is held for longer than this, in milliseconds, is highlighted.
const LONG_HOLD: u64 = 60_000;

/// Columns of the retention holds of other brokers.
const OWED: [&str; 5] = ["STREAM", "OWED TO", "ACKNOWLEDGED>", "BEHIND>", "HEARD>"];

const DETAILS: &str = "\
LAST is the last moment that the stream has passed, LOGGED its last event that is in the journal, KEPT the bytes
of its events there, and OLDEST how old they are at most. HELD BY is the subscription that has not acknowledged
for the longest time; when it does, or its session ends (whimbrel sessions drop), they are given up. Below stand the
other brokers for whose durable subscriptions streams are kept: up to when they have ACKNOWLEDGED everything, how far
that is BEHIND if more was logged since, and when they were HEARD of last. Then what each broker's journal has.

Examples:
  whimbrel streams --data /var/lib/whimbrel
  whimbrel streams --own --json | jq '.journal.file_bytes / .journal.max_bytes'";

/// Arguments of `whimbrel streams`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Streams {
    #[command(flatten)]
    reach: Reach,
    /// Only those of the broker that is asked, not of all
    #[arg(long)]
    own: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Streams {
    /// Asks the brokers and prints the answers.
    pub fn run(&self) -> Result<(), Failure> {
        let control = self.reach.find()?;
        let mut columns = vec!["STREAM", "LAST>", "LOGGED>", "KEPT>", "OLDEST>", "HELD BY", "FOR>", "OTHERS>"];
        if self.own {
            let answer: Answer = control.ask("GET", "/api/v1/streams")?;
            if self.json {
                return print_json(&answer);
            }
            let mut table = Table::new(&columns);
            let mut owed = Table::new(&OWED);
            for stream in &answer.streams {
                table.row(row(stream, answer.now_ms));
                owed_rows(stream, answer.now_ms).for_each(|cells| owed.row(cells));
            }
            let text = table.text(is_coloured()) + &owed_text(&owed) + &journal(&answer, "journal");
            return failure::print(text.as_bytes());
        }
        let all: All<Answer> = system::ask(&control, "streams")?;
        if self.json {
            return print_json(&all);
        }
        columns.insert(0, "BROKER");
        let mut table = Table::new(&columns);
        let mut owed = Table::new(&[&["BROKER"], &OWED[..]].concat());
        let mut journals = String::new();
        for (broker, answer) in system::answers(&all) {
            for stream in &answer.streams {
                let mut cells = row(stream, answer.now_ms);
                cells.insert(0, name(broker).into());
                table.row(cells);
                for mut cells in owed_rows(stream, answer.now_ms) {
                    cells.insert(0, name(broker).into());
                    owed.row(cells);
                }
            }
            journals += &journal(answer, &name(broker));
        }
        failure::print((table.text(is_coloured()) + &owed_text(&owed) + &journals + &system::absent(&all)).as_bytes())
    }
}

/// The table of retention holds, below the streams; empty if there are none.
fn owed_text(owed: &Table) -> String {
    if owed.is_empty() { String::new() } else { format!("\n{}", owed.text(is_coloured())) }
}

/// Rows of other brokers' retention holds on a stream.
fn owed_rows(stream: &Stream, now: u64) -> impl Iterator<Item = Vec<Cell>> {
    let ago = move |at: u64| format!("{} ago", span(now.saturating_sub(at)));
    stream.owed.iter().map(move |owed| {
        let gone = if owed.gone { " (will not be back)" } else { "" };
        let tone = |behind: &u64| if *behind >= LONG_HOLD { Tone::Warn } else { Tone::Plain };
        let behind = owed.behind_ms.as_ref();
        vec![
            stream.stream.clone().into(),
            format!("{}{gone}", name(&owed.broker)).into(),
            ago(owed.acknowledged_ms).into(),
            behind.map_or_else(Cell::none, |behind| Cell::new(span(*behind), tone(behind))),
            ago(owed.heard_ms).into(),
        ]
    })
}

/// A broker's journal as text; `whose` is the broker's name.
fn journal(answer: &Answer, whose: &str) -> String {
    match &answer.journal {
        Some(journal) => words(journal, whose),
        None => format!("\n{whose}  no data directory: nothing is logged\n"),
    }
}

fn row(stream: &Stream, now: u64) -> Vec<Cell> {
    let ago = |at: Option<u64>| at.map_or_else(Cell::none, |at| format!("{} ago", span(now.saturating_sub(at))).into());
    let mut cells = vec![
        stream.stream.clone().into(),
        ago(Some(stream.last_ms)),
        ago(stream.logged_ms),
        if stream.bytes == 0 { Cell::none() } else { size(stream.bytes).into() },
        stream.oldest_ms.map_or_else(Cell::none, |at| span(now.saturating_sub(at)).into()),
    ];
    match &stream.holder {
        None => cells.extend([Cell::none(), Cell::none(), Cell::none()]),
        Some(holder) => {
            let away = if holder.connected { "" } else { " (away)" };
            let tone = if holder.lag_ms >= LONG_HOLD { Tone::Warn } else { Tone::Plain };
            cells.push(format!("{} {}{away}", name(&holder.client_id), name(&holder.filter)).into());
            cells.push(Cell::new(span(holder.lag_ms), tone));
            let others = holder.holders.saturating_sub(1);
            cells.push(if others == 0 { Cell::none() } else { others.to_string().into() });
        }
    }
    cells
}

fn words(journal: &JournalUse, whose: &str) -> String {
    let percent = journal.file_bytes as f64 * 100.0 / journal.max_bytes as f64;
    let (state, tone) = match &journal.state[..] {
        "full" => ("full: publishes that must be logged are refused", Tone::Warn),
        "failed" => ("failed: restart the broker, after a look at its disk", Tone::Warn),
        _ => ("open", Tone::Good),
    };
    let mut out = format!(
        "\n{whose}  {}\n         {} kept; {} of {} on disk, {} of {} that it may have ({percent:.1} %)\n         {} remembered, {}\n",
        paint(state, tone, is_coloured()),
        size(journal.kept_bytes),
        count(journal.segments, "segment", "segments"),
        size(journal.segment_bytes),
        size(journal.file_bytes),
        size(journal.max_bytes),
        count(journal.entries, "entry", "entries"),
        size(journal.entry_bytes),
    );
    if journal.backup {
        out += "         a backup is being made: nothing is given back until it is done\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::Owed;

    use super::*;

    #[test]
    fn other_brokers_are_listed_with_how_far_they_are() {
        let owed = |broker: &str, behind_ms| Owed {
            broker: broker.into(),
            host: "10".into(),
            acknowledged_ms: 40_000,
            behind_ms,
            heard_ms: 99_000,
            gone: broker == "old",
        };
        let (stream, holder) = ("c37cc497bf3d2300".into(), None);
        let owed = vec![owed("tower", Some(60_000)), owed("old", None)];
        let stream =
            Stream { stream, last_ms: 100_000, logged_ms: Some(90_000), bytes: 1, oldest_ms: None, holder, owed };
        let mut table = Table::new(&OWED);
        assert_eq!(owed_text(&table), "");
        owed_rows(&stream, 100_000).for_each(|cells| table.row(cells));
        let text = table.text(false);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
        assert_eq!(
            rows[1].iter().map(|cell| cell.trim()).collect::<Vec<_>>(),
            ["c37cc497bf3d2300", "tower", "1m ago", "1m", "1.0s ago"]
        );
        assert!(rows[2].contains(&"old (will not be back)") && rows[2].iter().any(|cell| cell.trim() == "-"), "{text}");
    }
}
