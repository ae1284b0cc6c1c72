//! `whimbrel plan`: which brokers to link, computed from measured round trips.

pub mod links;
mod trips;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use links::{Plan, STRETCH};
use trips::Trips;

/// The number of peers that the configuration of a broker may have.
const PEERS_MAX: usize = 64;

const EXAMPLES: &str = "\
The file has a head line and a line for each pair of brokers: src,dst,rtt_ms. A pair is measured from one end or from both; pairs that
are not there are not linked. What is printed belongs into the brokers' configuration files (docs/operations.md).

Examples:
  whimbrel plan round-trips.csv
  whimbrel plan round-trips.csv --address '{}.example.org:7117'
  whimbrel plan round-trips.csv --broker depot-north";

/// Propose which brokers to link, from measured round trips.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file with the round trips
    file: PathBuf,

    /// How much longer than the direct path a way may be; more needs fewer links
    #[arg(long, default_value_t = STRETCH, value_parser = stretch)]
    stretch: f64,

    /// Where a broker is reached by others; {} stands for its name
    #[arg(long, default_value = "{}:7117", value_name = "HOST:PORT")]
    address: String,

    /// Print this broker's part only
    #[arg(long, value_name = "NAME")]
    broker: Option<String>,
}

/// Reads a number from 1 to 10.
fn stretch(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1.0..=10.0).contains(number));
    number.ok_or_else(|| "a number from 1 to 10 is needed".to_owned())
}

/// Finds the links; the text to print.
///
/// # Errors
/// When the file cannot be read or is not what it should be, some brokers do not reach others by
/// what was measured, one would have more peers than may be configured, or there is none of the
/// wanted name.
pub fn run(args: &Args) -> Result<String> {
    let trips = Trips::load(&args.file)?;
    let names = &trips.names;
    let plan = Plan::new(names.len(), trips.pairs.clone(), args.stretch);
    if let Some(apart) = (0..names.len()).find(|broker| plan.way(0, *broker).is_none()) {
        bail!("nothing was measured that leads from {} to {}", names[0], names[apart]);
    }
    let wanted = args.broker.as_ref().map(|name| names.binary_search(name));
    ensure!(wanted.is_none_or(|found| found.is_ok()), "{} has no round trips", args.broker.as_deref().unwrap_or(""));
    let mut text = summary(&trips, &plan);
    for broker in 0..names.len() {
        let neighbours = plan.neighbours(broker);
        ensure!(
            neighbours.len() <= PEERS_MAX,
            "{} would have {} peers, {PEERS_MAX} can be configured: measure more pairs that do not lead over it",
            names[broker],
            neighbours.len()
        );
        if wanted.is_none_or(|found| found == Ok(broker)) {
            let peers = neighbours.iter().map(|other| format!("\"{}\"", args.address.replace("{}", &names[*other])));
            let peers = peers.collect::<Vec<String>>().join(", ");
            // With a peer gone it asks others for a link, and with all of them up no other broker.
            let links = neighbours.len();
            write!(text, "\n# {}\n[overlay]\npeers = [{peers}]\nlinks = {links}\n", names[broker])?;
        }
    }
    Ok(text)
}

/// The properties of paths over these links, as a comment.
fn summary(trips: &Trips, plan: &Plan) -> String {
    let ratio = |pair: &links::Pair| {
        let way = plan.way(pair.ends[0], pair.ends[1]).unwrap_or_default().as_secs_f64();
        if pair.delay.is_zero() { 1.0 } else { way / pair.delay.as_secs_f64() }
    };
    let mut ratios: Vec<f64> = trips.pairs.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let part = |of_twenty: usize| ratios[(ratios.len() * of_twenty / 20).min(ratios.len() - 1)];
    let holding = match plan.holding.is_empty() {
        true => "whichever one is gone, the others reach each other".to_owned(),
        false => {
            let names: Vec<&str> = plan.holding.iter().map(|broker| trips.names[*broker].as_str()).collect();
            format!(
                "needed by others to reach each other, as no pair was measured that leads around them: {}",
                names.join(", ")
            )
        }
    };
    format!(
        "# {} brokers, {} links; ways take {:.2} times as long as the direct path at half of all pairs, {:.2} at 95 %, {:.2} at most\n# {holding}\n",
        trips.names.len(),
        plan.links.len(),
        part(10),
        part(19),
        part(20)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(rows: &str, broker: Option<&str>) -> Result<String> {
        let place = tempfile::tempdir()?;
        let file = place.path().join("trips.csv");
        std::fs::write(&file, format!("src,dst,rtt_ms\n{rows}"))?;
        let (address, broker) = ("{}.example.org:7117".to_owned(), broker.map(str::to_owned));
        run(&Args { file, stretch: STRETCH, address, broker })
    }

    const THREE: &str = "north,east,10\neast,south,10\nnorth,south,18\n";

    #[test]
    fn what_is_printed_is_configuration() {
        let text = planned(THREE, None).expect("it is planned");
        let head = "# 3 brokers, 3 links; ways take 1.00 times as long as the direct path at half of all pairs, 1.00 at 95 %, 1.00 at most\n\
                    # whichever one is gone, the others reach each other\n";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(text.matches("[overlay]").count(), 3);
        let north = planned(THREE, Some("north")).expect("it is planned");
        let expected =
            "\n# north\n[overlay]\npeers = [\"east.example.org:7117\", \"south.example.org:7117\"]\nlinks = 2\n";
        assert_eq!(north, format!("{head}{expected}"));
    }

    #[test]
    fn what_cannot_be_planned_says_why() {
        let told = |rows: &str, broker| format!("{:#}", planned(rows, broker).expect_err("it cannot"));
        assert_eq!(told(THREE, Some("west")), "west has no round trips");
        assert_eq!(told("a,b,1\nc,d,1\n", None), "nothing was measured that leads from a to c");
        let star: String = (0..65).map(|number| format!("hub,b{number},1\n")).collect();
        assert!(told(&star, None).starts_with("hub would have 65 peers, 64 can be configured"));
        let line = planned("a,b,1\nb,c,1\n", None).expect("it is planned");
        assert!(line.contains("as no pair was measured that leads around them: b\n"), "{line}");
        assert_eq!([stretch("0.9"), stretch("x")].map(|it| it.is_err()), [true, true]);
        assert_eq!(stretch("2"), Ok(2.0));
    }
}
