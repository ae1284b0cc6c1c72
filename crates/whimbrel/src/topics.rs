//! `whimbrel topics`: profiles of topics at running brokers.

use whimbrel_server::api::answers::{TopicChanged, TopicProfile, TopicProfiles};
use whimbrel_server::api::percent;

use crate::control::{Control, Reach};
use crate::failure::{self, Failure};
use crate::sessions::print_json;
use crate::table::{Cell, Table, Tone, is_coloured, name, span};

const DETAILS: &str = "\
Of the profiles that match a topic one counts: first those of whimbrel.toml, in their order, then those that were made
here, the least rank first. One that is made is in effect at all brokers, without a restart, and outlives restarts.
IN TIME is the share of deliveries at this broker within the deadline, LATE how many were not: late when they came from
another broker (path), lost and asked for (loss), or after they had come here (wait).

Examples:
  whimbrel topics list --data /var/lib/whimbrel
  whimbrel topics make 'alarm/#' --deadline '50 ms'                    what is late is told, and goes first
  whimbrel topics make 'meter/+/raw' --persistence volatile --rate 100/s
  whimbrel topics remove 'alarm/#'";

/// Arguments of `whimbrel topics`.
#[derive(clap::Args)]
#[command(after_help = DETAILS)]
pub struct Topics {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the profiles in the order in which they count.
    List {
        #[command(flatten)]
        reach: Reach,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a profile, in place of one with the same filter.
    Make(Box<Make>),
    /// Remove a profile that was made.
    Remove {
        #[command(flatten)]
        reach: Reach,
        /// Its topic filter
        filter: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `whimbrel topics make`.
#[derive(clap::Args)]
struct Make {
    #[command(flatten)]
    reach: Reach,
    /// The topics, as a topic filter
    filter: String,
    /// Of those that match a topic the least rank counts [default: 0]
    #[arg(long, value_name = "NUMBER")]
    rank: Option<u32>,
    /// Which events are logged: auto, persistent or volatile
    #[arg(long, value_name = "WHICH")]
    persistence: Option<String>,
    /// The guarantee for events: reliable or best-effort [default: as each is published]
    #[arg(long, value_name = "WHICH")]
    reliability: Option<String>,
    /// From acceptance to the subscriber's edge, such as '50 ms'
    #[arg(long, value_name = "SPAN")]
    deadline: Option<String>,
    /// The longest time without an event that subscribers accept, such as '5 s'
    #[arg(long, value_name = "SPAN")]
    period: Option<String>,
    /// The throughput that each topic may have, such as 100/s or '64 KiB/s'
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// The importance of events that name none, 1 to 10
    #[arg(long, value_name = "NUMBER")]
    importance: Option<String>,
    /// How long events without an expiry of their own are delivered, such as '10 s'
    #[arg(long, value_name = "SPAN")]
    expiry: Option<String>,
    /// How best-effort events go over links: stream or datagram
    #[arg(long, value_name = "WHICH")]
    transport: Option<String>,
    /// The paths of each event to another broker, with a deadline: 1, 2 or targeted
    #[arg(long, value_name = "WHICH")]
    paths: Option<String>,
    /// The share of time in which one of its paths is in order, such as 0.9999, in place of --paths
    #[arg(long, value_name = "SHARE")]
    availability: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Make {
    fn target(&self) -> String {
        let rank = self.rank.map(|rank| rank.to_string());
        let fields = [
            ("rank", &rank),
            ("persistence", &self.persistence),
            ("reliability", &self.reliability),
            ("deadline", &self.deadline),
            ("period", &self.period),
            ("rate", &self.rate),
            ("importance", &self.importance),
            ("expiry", &self.expiry),
            ("transport", &self.transport),
            ("paths", &self.paths),
            ("availability", &self.availability),
        ];
        let given = fields.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let query: Vec<String> = given.map(|(key, value)| format!("{key}={}", percent::encode(value))).collect();
        format!("/api/v1/topics/{}?{}", percent::encode(&self.filter), query.join("&"))
    }
}

impl Topics {
    /// Asks the broker, and prints the answer.
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            Command::List { reach, json } => {
                let all = all(&reach.find()?)?;
                if *json { print_json(&all) } else { failure::print(listed(&all, is_coloured()).as_bytes()) }
            }
            Command::Make(make) => done(&make.reach.find()?.ask("POST", &make.target())?, make.json, "is in effect"),
            Command::Remove { reach, filter, json } => {
                let target = format!("/api/v1/topics/{}", percent::encode(filter));
                done(&reach.find()?.ask("DELETE", &target)?, *json, "is removed")
            }
        }
    }
}

/// All pages of the list.
fn all(control: &Control) -> anyhow::Result<TopicProfiles> {
    let mut all: TopicProfiles = control.ask("GET", "/api/v1/topics")?;
    while let Some(after) = all.next.take() {
        let page: TopicProfiles = control.ask("GET", &format!("/api/v1/topics?after={after}"))?;
        all.profiles.extend(page.profiles);
        all.next = page.next;
    }
    Ok(all)
}

fn done(answer: &TopicChanged, as_json: bool, what: &str) -> Result<(), Failure> {
    if as_json {
        return print_json(answer);
    }
    let durable = if answer.durable { "" } else { "; that is not on the disk yet" };
    failure::print(format!("the profile of {} {what}{durable}\n", name(&answer.profile.filter)).as_bytes())
}

/// The share of deliveries in time.
fn in_time(profile: &TopicProfile) -> Cell {
    let permille = profile.deliveries.as_ref().and_then(|deliveries| deliveries.in_time_permille);
    let tone = if permille.is_some_and(|permille| permille < 1_000) { Tone::Warn } else { Tone::Plain };
    permille.map_or_else(Cell::none, |permille| Cell::new(format!("{}.{} %", permille / 10, permille % 10), tone))
}

/// Late deliveries by their causes.
fn late(profile: &TopicProfile) -> Cell {
    let all = profile.deliveries.iter().flat_map(|deliveries| &deliveries.late);
    let shown: Vec<String> =
        all.filter(|late| late.deliveries > 0).map(|late| format!("{} {}", late.deliveries, late.cause)).collect();
    if shown.is_empty() { Cell::none() } else { shown.join(", ").into() }
}

fn listed(all: &TopicProfiles, is_coloured: bool) -> String {
    let columns = [
        "TOPICS",
        "FROM",
        "DEADLINE>",
        "PATHS>",
        "IN TIME>",
        "LATE",
        "LOGGED",
        "GUARANTEE",
        "PERIOD>",
        "RATE>",
        "IMPORTANCE>",
        "EXPIRY>",
    ];
    let mut table = Table::new(&columns);
    for profile in &all.profiles {
        let text = |value: Option<String>| value.map_or_else(Cell::none, Cell::from);
        let from = profile.rank.map_or_else(|| "whimbrel.toml".to_owned(), |rank| format!("rank {rank}"));
        table.row(vec![
            name(&profile.filter).into(),
            from.into(),
            text(profile.deadline_ms.map(|millis| format!("{millis} ms"))),
            text(paths(profile)),
            in_time(profile),
            late(profile),
            profile.persistence.clone().into(),
            text(profile.reliability.clone()),
            text(profile.period_ms.map(span)),
            text(profile.rate.clone()),
            text(profile.importance.map(|importance| importance.to_string())),
            text(profile.expiry_ms.map(span)),
        ]);
    }
    let mut out = if table.is_empty() {
        "no profiles: all topics have the defaults\n".to_owned()
    } else {
        table.text(is_coloured)
    };
    if !all.differing.is_empty() {
        let names: Vec<String> = all.differing.iter().map(|broker| name(broker).to_string()).collect();
        out += &format!(
            "\nother profiles in whimbrel.toml: {}. What is published at a broker follows that broker's own.\n",
            names.join(", ")
        );
    }
    out
}

/// The paths of a profile's events, unless it is one.
fn paths(profile: &TopicProfile) -> Option<String> {
    match profile.availability_ppm {
        Some(ppm) => Some(format!("for {}", f64::from(ppm) / 1e6)),
        None => (profile.paths != "1").then(|| profile.paths.clone()),
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_server::api::answers::{DeadlineDeliveries, LateCount};

    use super::*;

    fn profile(filter: &str, rank: Option<u32>) -> TopicProfile {
        TopicProfile {
            filter: filter.into(),
            rank,
            persistence: "auto".into(),
            reliability: None,
            deadline_ms: Some(50),
            rate: None,
            importance: None,
            expiry_ms: None,
            period_ms: None,
            transport: "stream".into(),
            paths: "1".into(),
            availability_ppm: None,
            deliveries: None,
        }
    }

    #[test]
    fn deliveries_are_shown_with_their_share_in_time_and_the_causes_of_late_ones() {
        let late = [("path", 3), ("loss", 0), ("wait", 1)]
            .map(|(cause, deliveries)| LateCount { cause: cause.into(), deliveries });
        let deliveries = DeadlineDeliveries {
            in_time_permille: Some(996),
            slack: Vec::new(),
            late: late.into(),
            late_after_absence: 0,
        };
        let profiles = vec![TopicProfile { deliveries: Some(deliveries), ..profile("alarm/#", None) }];
        let text = listed(&TopicProfiles { profiles, differing: Vec::new(), next: None }, false);
        assert!(text.contains("99.6 %") && text.contains("3 path, 1 wait"), "{text}");
    }

    #[test]
    fn profiles_are_listed_with_where_they_come_from_and_whose_differ() {
        let profiles = vec![profile("alarm/#", None), profile("meter/+", Some(7))];
        let text = listed(&TopicProfiles { profiles, differing: vec!["tower".into()], next: None }, false);
        assert!(text.contains("whimbrel.toml") && text.contains("rank 7") && text.contains("50 ms"), "{text}");
        assert!(text.ends_with(
            "other profiles in whimbrel.toml: tower. What is published at a broker follows that broker's own.\n"
        ));
        let none = TopicProfiles { profiles: Vec::new(), differing: Vec::new(), next: None };
        assert_eq!(listed(&none, false), "no profiles: all topics have the defaults\n");
    }
}
