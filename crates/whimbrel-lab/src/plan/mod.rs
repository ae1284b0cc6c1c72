//! `whimbrel plan`: which brokers to link, computed from measured round trips.

pub mod disjoint;
pub mod links;
pub mod paths;
mod trips;

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use disjoint::{DISJOINT_MAX, DisjointPlan, HOP_TIME, Lacking, Shortfall};
use links::{Plan, STRETCH};
use trips::Trips;

/// The number of peers that the configuration of a broker may have.
const PEERS_MAX: usize = 64;

/// The deadlines that a topic may have.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

const EXAMPLES: &str = "\
The file has a head line and a line for each pair of brokers: src,dst,rtt_ms. A pair is measured from one end or from both; pairs that
are not there are not linked. What is printed belongs into the brokers' configuration files (docs/operations.md).

Examples:
  whimbrel plan round-trips.csv
  whimbrel plan round-trips.csv --address '{}.example.org:7117'
  whimbrel plan round-trips.csv --broker depot-north
  whimbrel plan round-trips.csv --disjoint '50 ms'";

/// Propose which brokers to link, from measured round trips.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file with the round trips
    file: PathBuf,

    /// How much longer than the direct path a way may be; more needs fewer links
    #[arg(long, default_value_t = STRETCH, value_parser = stretch)]
    stretch: f64,

    /// Link so that between each two brokers there are two ways without a broker or a link in
    /// common, both within this time, as '50 ms': one way, half the round trips and 0.3 ms for each
    /// link; pairs that cannot have them are told
    #[arg(long, value_name = "DEADLINE", value_parser = deadline)]
    disjoint: Option<Duration>,

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

/// Reads a time from 1 ms to 1 h, as deadlines of topics are.
fn deadline(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if DEADLINES.contains(&span) => Ok(span),
        Ok(_) => Err("1 ms to 1 h is needed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Finds the links; the text to print.
///
/// # Errors
/// When the file cannot be read or is not what it should be, some brokers do not reach others by
/// what was measured, one would have more peers than may be configured, there are more than can be
/// given two ways, or there is none of the wanted name.
pub fn run(args: &Args) -> Result<String> {
    let trips = Trips::load(&args.file)?;
    let names = &trips.names;
    let plan = Plan::new(names.len(), trips.pairs.clone(), args.stretch);
    if let Some(apart) = (0..names.len()).find(|broker| plan.way(0, *broker).is_none()) {
        bail!("nothing was measured that leads from {} to {}", names[0], names[apart]);
    }
    let wanted = args.broker.as_ref().map(|name| names.binary_search(name));
    ensure!(wanted.is_none_or(|found| found.is_ok()), "{} has no round trips", args.broker.as_deref().unwrap_or(""));
    let wanted = wanted.and_then(Result::ok);
    let is_printed = |broker: usize| wanted.is_none_or(|wanted| wanted == broker);
    let (plan, told) = match args.disjoint {
        None => (plan, String::new()),
        Some(deadline) => {
            let most = DISJOINT_MAX;
            ensure!(names.len() <= most, "{} brokers: --disjoint links {most} at most", names.len());
            let disjoint = DisjointPlan::new(&plan, names.len(), &trips.pairs, args.stretch, deadline);
            let told = served(names, &disjoint, deadline, wanted);
            (disjoint.plan, told)
        }
    };
    let mut text = summary(&trips, &plan) + &told;
    for broker in 0..names.len() {
        let neighbours = plan.neighbours(broker);
        ensure!(
            neighbours.len() <= PEERS_MAX,
            "{} would have {} peers, {PEERS_MAX} can be configured: measure more pairs that do not lead over it",
            names[broker],
            neighbours.len()
        );
        if is_printed(broker) {
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

/// How many pairs have two ways in time, and why others cannot have them, as a comment; of a broker
/// that is wanted alone, its own pairs.
fn served(names: &[String], plan: &DisjointPlan, deadline: Duration, wanted: Option<usize>) -> String {
    let all = plan.served + plan.lacking.len();
    let mut text = format!(
        "# pairs of brokers with two ways that have no other broker and no link in common, both within {} ({} ms for each link included): {} of {all}\n",
        humantime::format_duration(deadline),
        millis(HOP_TIME),
        plan.served
    );
    let is_told = |lacking: &&Lacking| wanted.is_none_or(|wanted| lacking.ends.contains(&wanted));
    let told = plan.lacking.iter().filter(is_told).map(|lacking| {
        let [one, other] = lacking.ends.map(|end| names[end].as_str());
        format!("#   {one}, {other}: {}\n", why(lacking.shortfall))
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        let with = wanted.map(|wanted| format!(" with {}", names[wanted])).unwrap_or_default();
        text += &format!("# pairs{with} that cannot have them, whatever measured pairs are linked: {}\n", told.len());
    }
    text + &told.concat()
}

fn why(shortfall: Shortfall) -> String {
    match shortfall {
        Shortfall::OnlyOne => "any two ways have a broker or their link in common".to_owned(),
        Shortfall::FirstLate(time) => format!("the quickest way takes {} ms", millis(time)),
        Shortfall::SecondLate(time) => format!("a second way takes {} ms", millis(time)),
        Shortfall::SecondLateAsFound(time) => {
            format!("a second way takes {} ms, the best that a search among many found", millis(time))
        }
    }
}

/// Milliseconds, rounded up to tenths, so that what is late does not look as if it was not.
fn millis(time: Duration) -> f64 {
    time.as_nanos().div_ceil(100_000) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(rows: &str, broker: Option<&str>) -> Result<String> {
        planned_within(rows, broker, None)
    }

    fn planned_within(rows: &str, broker: Option<&str>, disjoint: Option<&str>) -> Result<String> {
        let place = tempfile::tempdir()?;
        let file = place.path().join("trips.csv");
        std::fs::write(&file, format!("src,dst,rtt_ms\n{rows}"))?;
        let (address, broker) = ("{}.example.org:7117".to_owned(), broker.map(str::to_owned));
        let disjoint = disjoint.map(|text| deadline(text).expect("a deadline"));
        run(&Args { file, stretch: STRETCH, disjoint, address, broker })
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
    #[test]
    fn pairs_without_two_ways_are_told_and_the_others_get_them() {
        // `lone` has one link, and `far` a second way that is late.
        let rows = "north,east,10\neast,south,10\nnorth,south,18\nnorth,far,90\neast,far,84\nlone,north,20\n";
        let text = planned_within(rows, None, Some("50 ms")).expect("it is planned");
        let told = "\
# pairs of brokers with two ways that have no other broker and no link in common, both within 50ms (0.3 ms for each link included): 4 of 10
# pairs that cannot have them, whatever measured pairs are linked: 6
#   east, far: a second way takes 50.6 ms
#   east, lone: any two ways have a broker or their link in common
#   far, lone: the quickest way takes 55.6 ms
#   far, south: a second way takes 54.6 ms
#   lone, north: any two ways have a broker or their link in common
#   lone, south: any two ways have a broker or their link in common

# east
";
        assert!(text.contains(told), "{text}");
        let far = planned_within(rows, Some("far"), Some("50 ms")).expect("it is planned");
        assert!(
            far.contains(
                "# pairs with far that cannot have them, whatever measured pairs are linked: 3\n#   east, far"
            )
        );
        let served = planned_within(THREE, None, Some("1s")).expect("it is planned");
        assert!(served.contains("both within 1s (0.3 ms for each link included): 3 of 3\n\n"), "{served}");
        let many: String = (1..=DISJOINT_MAX).map(|number| format!("hub,b{number},1\n")).collect();
        let error = planned_within(&many, None, Some("1s")).expect_err("there are too many");
        assert_eq!(error.to_string(), "129 brokers: --disjoint links 128 at most");
        assert_eq!(["50", "0.9ms", "2h", "x"].map(|text| deadline(text).is_err()), [true; 4]);
        assert_eq!((millis(Duration::from_nanos(100_000_001)), millis(HOP_TIME)), (100.1, 0.3));
    }
}
