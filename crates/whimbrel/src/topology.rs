//! `whimbrel topology`: the brokers, their links, and the routes from one of them to the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use whimbrel_server::api::answers::{Broker, Link, Neighbour, Said, System, Told, Topology as Answer};

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::graph;
use crate::sessions::print_json;
use crate::system::{self, All};
use crate::table::{Cell, Table, Tone, count, delay, is_coloured, name, paint, size, span};

/// Links of a broker that its row names, at most.
const LINKS_SHOWN: usize = 6;

/// A link with at least this loss, in thousandths, is highlighted.
const MUCH_LOSS: u64 = 50;

/// The loss of a link over which nothing arrives, in thousandths.
const DARK: u64 = 1_000;

/// A clock that is off by more than this, in milliseconds, is highlighted.
const CLOCK_OFF: u64 = 1000;

/// Link states are sent anew every 30 s; one that is older than this, in milliseconds, is
/// highlighted.
const OLD: u64 = 40_000;

const DETAILS: &str = "\
Brokers stand below the one that is before them on the best way from the broker that answers. COST is what that way
costs: the delays of its links, 0.3 ms for each, and more for links that lose. AGE is how old is what is known of a
broker's links, LINKS are these with delay and loss. Below stand the links of each broker, with what went over them
since they are up; STATE is how events with a deadline find the way there (good, slow, lossy or dark), VERSION is that of the neighbour's program, and CLOCK how far its clock is ahead.

Examples:
  whimbrel topology --data /var/lib/whimbrel
  whimbrel topology --svg brokers.svg
  whimbrel topology --own --json | jq '.brokers[] | select(.reachable | not) | .name'";

/// Arguments of `whimbrel topology`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Topology {
    #[command(flatten)]
    reach: Reach,
    /// Only what the broker that is asked sees, and its links
    #[arg(long)]
    own: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Draw it into a file, which is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Topology {
    /// Asks the broker, and prints or draws the answer.
    pub fn run(&self) -> Result<(), Failure> {
        let control = self.reach.find()?;
        let all: All<Answer> = if self.own { own(&control)? } else { system::ask(&control, "topology")? };
        let answer = match all.brokers.first().map(|said| &said.answer) {
            Some(Told::So(answer)) => answer,
            Some(Told::Not(refused)) => return Err(anyhow!("{}", refused.error).into()),
            None => {
                return Err(anyhow!(
                    "the broker that was asked has not answered for itself: is it of another version?"
                )
                .into());
            }
        };
        if let Some(path) = &self.svg {
            fs::write(path, graph::draw(&answer.brokers))
                .with_context(|| format!("cannot write the drawing to {}", path.display()))?;
            if !self.json {
                let words = format!("{} in {}\n", brokers(&answer.brokers), path.display());
                return failure::print(words.as_bytes());
            }
        }
        if self.json {
            return if self.own { print_json(answer) } else { print_json(&all) };
        }
        let mut table = Table::new(&["BROKER", "HOST", "COST>", "AGE>", "LINKS"]);
        for (broker, depth) in in_order(&answer.brokers) {
            table.row(row(broker, depth));
        }
        let coloured = is_coloured();
        let mut out = table.text(coloured);
        out += &paint(&brokers(&answer.brokers), Tone::Dim, coloured);
        out += "\n\n";
        if system::answers(&all).all(|(_, answer)| answer.links.is_empty()) {
            out += "no links: nobody has dialled this broker, and it has reached none of its peers (--peer)\n";
        } else {
            out += &links(system::answers(&all), self.own).text(coloured);
        }
        out += &system::absent(&all);
        failure::print(out.as_bytes())
    }
}

/// The number of brokers, and of those that cannot be reached, as text.
fn brokers(brokers: &[Broker]) -> String {
    let far = brokers.iter().filter(|broker| !broker.reachable && !broker.own).count() as u64;
    let all = count(brokers.len() as u64, "broker", "brokers");
    if far == 0 { all } else { format!("{all}, {far} of them cannot be reached") }
}

/// Brokers as a tree of best routes, each with its depth; unreachable ones at the end.
pub fn in_order(brokers: &[Broker]) -> Vec<(&Broker, usize)> {
    let mut below: BTreeMap<&str, Vec<&Broker>> = BTreeMap::new();
    let (mut stack, mut far) = (Vec::new(), Vec::new());
    for broker in brokers {
        match broker.path.len() {
            _ if broker.own => stack.push((broker, 0)),
            0 | 1 => far.push((broker, 0)),
            hops => below.entry(&broker.path[hops - 2]).or_default().push(broker),
        }
    }
    for all in below.values_mut() {
        // The stack takes the last one first.
        all.sort_by_key(|broker| std::cmp::Reverse((broker.cost_us, &broker.name)));
    }
    let mut order = Vec::with_capacity(brokers.len());
    while let Some((broker, depth)) = stack.pop() {
        order.push((broker, depth));
        stack.extend(below.remove(&*broker.name).unwrap_or_default().into_iter().map(|broker| (broker, depth + 1)));
    }
    order.extend(far);
    order
}

fn row(broker: &Broker, depth: usize) -> Vec<Cell> {
    let is_far = !broker.reachable && !broker.own;
    let shown = match depth {
        0 => name(&broker.name),
        _ => format!("{}└ {}", "  ".repeat(depth - 1), name(&broker.name)),
    };
    let cost = match (broker.own, broker.cost_us) {
        (true, _) => Cell::none(),
        (false, Some(cost)) if broker.reachable => delay(cost).into(),
        _ => Cell::new("no way", Tone::Warn),
    };
    let tone = if broker.age_ms > OLD && !broker.own { Tone::Warn } else { Tone::Plain };
    vec![
        Cell::new(shown, if is_far { Tone::Warn } else { Tone::Plain }),
        Cell::new(&*broker.host, Tone::Dim),
        cost,
        Cell::new(span(broker.age_ms), tone),
        ends(&broker.links),
    ]
}

fn ends(links: &[Neighbour]) -> Cell {
    if links.is_empty() {
        return Cell::none();
    }
    let shown = links.iter().take(LINKS_SHOWN).map(|end| {
        let loss = match end.loss_permille {
            0 => String::new(),
            DARK => " dark".to_owned(),
            permille => format!(" {}", loss(permille)),
        };
        format!("{} {}{loss}", name(&end.name), delay(end.delay_us))
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if links.len() > LINKS_SHOWN {
        text += &format!(" and {} more", links.len() - LINKS_SHOWN);
    }
    text.into()
}

/// A version without the commit that it was built from.
fn release(version: &str) -> Cell {
    version.split(' ').next().filter(|text| !text.is_empty()).map_or_else(Cell::none, |text| name(text).into())
}

fn loss(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

/// The answer of the asked broker alone; its name does not matter.
fn own(control: &Control) -> anyhow::Result<All<Answer>> {
    let said = Said { name: String::new(), answer: Told::So(control.ask("GET", "/api/v1/topology")?) };
    Ok(System { brokers: vec![said], silent: Vec::new(), missed: Vec::new() })
}

/// A table of the brokers' links; with the brokers' names unless they are all of one broker.
fn links<'a>(answers: impl Iterator<Item = (&'a str, &'a Answer)>, own: bool) -> Table {
    let mut columns = vec![
        "LINK",
        "VERSION",
        "DELAY>",
        "LOSS>",
        "STATE",
        "SENT>",
        "RECEIVED>",
        "EVENTS>",
        "BACK>",
        "HELD BACK>",
        "UNSENT>",
        "CLOCK>",
    ];
    if !own {
        columns.insert(0, "BROKER");
    }
    let mut table = Table::new(&columns);
    for (broker, answer) in answers {
        for link in &answer.links {
            let mut cells = cells(link);
            if !own {
                cells.insert(0, name(broker).into());
            }
            table.row(cells);
        }
    }
    table
}

fn cells(link: &Link) -> Vec<Cell> {
    let number = |number: u64| if number == 0 { Cell::none() } else { number.to_string().into() };
    let tone = |is_odd: bool| if is_odd { Tone::Warn } else { Tone::Plain };
    let off = link.clock_ahead_ms.unsigned_abs();
    let sign = if link.clock_ahead_ms < 0 { "-" } else { "+" };
    vec![
        name(&link.peer).into(),
        release(&link.version),
        link.delay_us.map_or_else(Cell::none, |micros| delay(micros).into()),
        Cell::new(loss(link.loss_permille), tone(link.loss_permille >= MUCH_LOSS)),
        if link.condition.is_empty() {
            Cell::none()
        } else {
            Cell::new(&*link.condition, tone(link.condition != "good"))
        },
        size(link.bytes_out).into(),
        size(link.bytes_in).into(),
        number(link.events_out),
        number(link.events_in),
        Cell::new(link.events_held_back.to_string(), tone(link.events_held_back > 0)),
        if link.unsent_bytes == 0 { Cell::none() } else { size(link.unsent_bytes).into() },
        Cell::new(format!("{sign}{}", span(off)), tone(off > CLOCK_OFF)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker at the end of that path.
    fn broker(path: &[&str], cost: u64) -> Broker {
        Broker {
            name: path.last().expect("it has a name").to_string(),
            host: "10".into(),
            incarnation: 1,
            addresses: Vec::new(),
            domains: Vec::new(),
            own: path.len() == 1,
            reachable: true,
            path: path.iter().map(ToString::to_string).collect(),
            cost_us: Some(cost),
            age_ms: 0,
            links: Vec::new(),
        }
    }

    #[test]
    fn brokers_stand_below_the_one_before_them_nearest_first() {
        let far = Broker { path: Vec::new(), reachable: false, own: false, ..broker(&["gone"], 0) };
        let all = [
            broker(&["a", "b", "d"], 9),
            far,
            broker(&["a", "b"], 5),
            broker(&["a", "c"], 3),
            broker(&["a"], 0),
            broker(&["a", "b", "e"], 7),
        ];
        let order: Vec<_> = in_order(&all).into_iter().map(|(broker, depth)| (&*broker.name, depth)).collect();
        assert_eq!(order, [("a", 0), ("c", 1), ("b", 1), ("e", 2), ("d", 2), ("gone", 0)]);
        assert_eq!(brokers(&all), "6 brokers, 1 of them cannot be reached");
    }

    #[test]
    fn many_links_are_counted() {
        let end = |number: usize| Neighbour { name: format!("n{number}"), delay_us: 50, loss_permille: 15 };
        let mut table = Table::new(&["LINKS"]);
        table.row(vec![ends(&(0..8).map(end).collect::<Vec<_>>())]);
        let text = table.text(false);
        assert!(text.contains("n0 50 µs 1.5 %, n1") && text.ends_with("n5 50 µs 1.5 % and 2 more\n"), "{text}");
    }
}
