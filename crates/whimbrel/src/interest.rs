//! `whimbrel interest`: the interests of brokers.

use anyhow::anyhow;
use whimbrel_server::api::answers::{BrokerInterest, Fit, Interests};

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::table::{Cell, Table, Tone, count, is_coloured, name};

/// Entries of each broker that are shown unless a broker is named.
const ENTRIES_SHOWN: usize = 5;

const DETAILS: &str = "\
A broker tells the others what its subscribers want, as topic filters with selectors: its interest. Others send it
only events that are in it. A change makes a new version, which is in force at another broker once that has said so;
a subscriber gets its SUBACK then. Similar entries are merged when there are too many (`interest_max` in [overlay]),
and then some events come that nobody wants: they are counted below.

Examples:
  whimbrel interest --data /var/lib/whimbrel
  whimbrel interest depot-north          all that one broker wants
  whimbrel interest --json | jq '.fit'";

/// Arguments of `whimbrel interest`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Interest {
    #[command(flatten)]
    reach: Reach,
    /// Only what this broker wants, all of it
    broker: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Interest {
    /// Asks the broker and prints the answer.
    pub fn run(&self) -> Result<(), Failure> {
        let (mut brokers, fit, now) = all(&self.reach.find()?)?;
        if let Some(wanted) = &self.broker {
            brokers.retain(|broker| broker.name == *wanted);
            if brokers.is_empty() {
                return Err(anyhow!(
                    "no broker with the name {wanted:?} has told what it wants; `whimbrel topology` shows those that there are"
                )
                .into());
            }
        }
        if self.json {
            return print_json(&serde_json::json!({ "now_ms": now, "fit": fit, "brokers": brokers }));
        }
        let shown = if self.broker.is_some() { usize::MAX } else { ENTRIES_SHOWN };
        failure::print(text(&brokers, fit, shown).as_bytes())
    }
}

/// All interests, that of the answering broker first; how well it fits, and the broker's time.
fn all(control: &Control) -> Result<(Vec<BrokerInterest>, Fit, u64), Failure> {
    let (mut brokers, mut next) = (Vec::new(), Some(0));
    let (mut fit, mut now) = (Fit::default(), 0);
    while let Some(from) = next {
        let page: Interests = control.ask("GET", &format!("/api/v1/interest?after={from}"))?;
        brokers.extend(page.brokers);
        (next, fit, now) = (page.next, page.fit, page.now_ms);
    }
    Ok((brokers, fit, now))
}

fn text(brokers: &[BrokerInterest], fit: Fit, shown: usize) -> String {
    let coloured = is_coloured();
    let mut table = Table::new(&["BROKER", "VERSION>", "ENTRIES>", "STATE"]);
    for broker in brokers {
        let entries = match broker.entries.len() {
            0 => Cell::none(),
            number => number.to_string().into(),
        };
        table.row(vec![name(&broker.name).into(), broker.version.to_string().into(), entries, state(broker)]);
    }
    let mut out = table.text(coloured);
    let mut entries = Table::new(&["BROKER", "WANTS", "OF THESE"]);
    let mut are_any = false;
    for broker in brokers {
        for wanted in broker.entries.iter().take(shown) {
            are_any = true;
            let selector = wanted.selector.as_ref().map_or_else(Cell::none, |text| name(text).into());
            entries.row(vec![name(&broker.name).into(), name(&wanted.filter).into(), selector]);
        }
        if let Some(more) = broker.entries.len().checked_sub(shown).filter(|more| *more > 0) {
            let more = Cell::new(format!("… and {more} more"), Tone::Dim);
            entries.row(vec![name(&broker.name).into(), more, Cell::none()]);
        }
    }
    if are_any {
        out += "\n";
        out += &entries.text(coloured);
    }
    let percent = fit.unwanted as f64 * 100.0 / fit.received.max(1) as f64;
    out + &format!(
        "\n{} came for this broker: {} wanted by nobody here ({percent:.1} %), {} known already; {} told\n",
        count(fit.received, "event of others", "events of others"),
        fit.unwanted,
        fit.repeated,
        count(fit.versions, "version", "versions"),
    )
}

fn state(broker: &BrokerInterest) -> Cell {
    match (broker.own, &broker.unconfirmed[..]) {
        (false, _) if broker.reachable => "in force here".into(),
        (false, _) => Cell::new("in force here, but there is no way to it", Tone::Warn),
        (true, _) if broker.entries.is_empty() => "this broker's own: nothing is wanted".into(),
        (true, []) => "this broker's own: in force everywhere that can be reached".into(),
        (true, late) => {
            let late: Vec<String> = late.iter().map(|late| name(late)).collect();
            Cell::new(format!("this broker's own: not yet in force at {}", late.join(", ")), Tone::Warn)
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::Wanted;

    use super::*;

    fn broker(name: &str, entries: usize) -> BrokerInterest {
        let wanted = |number| Wanted { filter: format!("f{number}"), selector: None };
        BrokerInterest {
            name: name.into(),
            host: "10".into(),
            own: false,
            version: 7,
            reachable: true,
            unconfirmed: Vec::new(),
            entries: (0..entries).map(wanted).collect(),
        }
    }

    #[test]
    fn entries_are_shortened_unless_a_broker_is_named() {
        let all = [BrokerInterest { own: true, ..broker("a", 0) }, broker("b", 7)];
        let fit = Fit { received: 40, unwanted: 1, ..Fit::default() };
        let short = text(&all, fit, ENTRIES_SHOWN);
        assert!(short.contains("… and 2 more") && short.contains("f4") && !short.contains("f5"), "{short}");
        assert!(short.contains("40 events of others came for this broker: 1 wanted by nobody here (2.5 %)"), "{short}");
        let long = text(&all, fit, usize::MAX);
        assert!(long.contains("f6") && !long.contains("more"), "{long}");
    }

    #[test]
    fn who_is_late_or_cannot_be_reached_is_named() {
        let late = BrokerInterest { own: true, unconfirmed: vec!["b".into(), "c".into()], ..broker("a", 1) };
        let far = BrokerInterest { reachable: false, ..broker("d", 1) };
        let text = text(&[late, far], Fit::default(), 5);
        assert!(text.contains("not yet in force at b, c") && text.contains("there is no way to it"), "{text}");
    }
}
