//! Arguments of `whimbrel demo`.

use std::path::PathBuf;
use std::time::Duration;

use super::freight::Habits;
use super::regions::Choice;

/// The port of `--broker mqtt://HOST`.
const MQTT_PORT: u16 = 1883;

/// The default numbers of consoles that lose their signal: semi-durable and nondurable ones.
const ROAMING: (u32, u32) = (30, 10);

/// A city's buses over a broker: real or made-up positions, replayed by one MQTT connection per
/// vehicle and checked at every subscriber.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Without --trace it replays ../shared/data/mobility/warsaw_buses_1h_500.csv.zst if that is there, else a synthetic city.
Without --broker it starts brokers of its own in three regions, with fences in the city, and watches them and speeds by selector. Links between regions take as long as was measured \
(../shared/data/latency, if that is there), or as follows from the distance. Clients go from region to region; brokers have data directories and are killed (kill -9) now and then, or a link is cut: a freight desk checks that no order is lost. \
It ends with status 1 if an order was lost or came twice, or a QoS 1 delivery was lost without a word, repeated or out of order.
A recording is read with what is wrong in it: rows, points or entities that cannot be read, and positions more than 30 days from the rest (receivers without the date), are left out, counted, and the first ones shown in the summary; if they are more than half, it is refused. \
In CSV the best-named column that reads as what it should be is taken, fields may be separated by comma, semicolon, tab or |, and times without a zone are UTC.
Consoles that roam lose their signal as in the mobility model of Farooq, Majumdar and Parsons: for 12 s on average, 7 % of the time, both \
of the recording's time.

Examples:
  whimbrel demo                                         until q or Ctrl-C
  whimbrel demo --speed-up 60 --duration 1m --plain     an hour in a minute, in plain lines
  whimbrel demo --regions warsaw,london,new-york        somewhere else; --regions 1: a single broker
  whimbrel demo --engine                                brokers are killed with their disks
  whimbrel demo --roll --kill-every 5s                  a rolling restart instead of crashes
  whimbrel demo --trace vehicles.pb --vehicles 200      GTFS-realtime, the 200 busiest vehicles
  whimbrel demo --city --seed 7 --broker mqtt://127.0.0.1:1883
  whimbrel demo --duration 1m --record run              a run that can be read when it has failed
  whimbrel demo --explain run --event clerk-3/17        what became of the 17th order of clerk 3")]
pub struct Args {
    /// Positions to replay: CSV, GPX or GTFS-realtime (a file, or a directory of *.pb), also
    /// compressed with zstd
    #[arg(long, value_name = "FILE", conflicts_with = "city")]
    pub trace: Option<PathBuf>,
    /// Replay a synthetic city even if there is a recording
    #[arg(long)]
    pub city: bool,
    /// The synthetic city, and nothing else, depends on it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many times faster than recorded
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = speed_up)]
    pub speed_up: f64,
    /// How many vehicles; of a recording those with the most positions
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub vehicles: u32,
    /// Dispatch consoles: subscribers to everything, QoS 1
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub consoles: u32,
    /// Watchers of one line each, QoS 1, on the busiest lines
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=500))]
    pub watchers: u32,
    /// Consoles that lose their signal now and then and then get what they missed: semi-durable
    /// subscribers to a line, or a part of the city [default: 30 with an own broker, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub roaming: Option<u32>,
    /// Consoles that lose their signal and what they miss with it, for comparison: nondurable
    /// subscribers [default: 10 with an own broker, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub forgetful: Option<u32>,
    /// Orders per second at the freight desk, which an own broker must not lose; 0: no freight desk
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub orders: u32,
    /// Regions with a broker each, linked as if they were so far apart: a number, or names as
    /// warsaw,frankfurt,stockholm; 1: a single broker [default: 3 with own brokers]
    #[arg(long, visible_alias = "brokers", value_name = "N|NAMES", conflicts_with = "broker")]
    pub regions: Option<Choice>,
    /// How long a client stays in its region on average before it goes to another one for a while,
    /// or never
    #[arg(long, value_name = "DURATION", default_value = "45s", value_parser = every)]
    pub move_every: Every,
    /// What becomes of own brokers meanwhile.
    #[command(flatten)]
    pub ends: Ends,
    /// What is kept of the run, to be read afterwards.
    #[command(flatten)]
    pub recording: Recording,
    /// The own brokers' data directory [default: a fresh one that is removed in the end]
    #[arg(long, value_name = "DIR", conflicts_with = "broker")]
    pub data: Option<PathBuf>,
    /// How long to publish, as 30s or 5m; without it until q, Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub duration: Option<Duration>,
    /// A broker that is already running, mqtt://HOST or mqtt://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = address)]
    pub broker: Option<String>,
    /// Watch speeds by selector also at that broker; fences are watched only at an own one
    #[arg(long, requires = "broker")]
    pub selectors: bool,
    /// What to say of the source of --trace, wherever its data is shown
    #[arg(long, value_name = "TEXT", requires = "trace")]
    pub attribution: Option<String>,
    /// Status lines instead of the live view, which needs a terminal
    #[arg(long)]
    pub plain: bool,
    /// Print the summary as one JSON object on standard output, status lines on standard error
    #[arg(long)]
    pub json: bool,
}

/// What is kept of a run, to be read afterwards.
#[derive(clap::Args, Clone, Debug)]
pub struct Recording {
    /// Record what each client sends and gets, what own brokers write to their log (at level debug)
    /// and what is done to them: in that directory, in place of a recording that is there; of long
    /// runs the last 256 MiB at least
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Run nothing; print what the recording in that directory tells of the faults of its run, or
    /// of an --event
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    pub explain: Option<PathBuf>,
    /// The event to explain, as brokers name it (PUBEND:TICK) or as its publisher does (clerk-3/17)
    #[arg(long, value_name = "EVENT", requires = "explain")]
    pub event: Option<String>,
}

/// How own brokers end, and how often.
#[derive(clap::Args, Clone, Debug)]
pub struct Ends {
    /// How often an own broker is killed (kill -9) and started again, or a link between regions is
    /// cut, slow or lossy for some seconds, on average, or never
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = every)]
    pub kill_every: Every,
    /// Own brokers end in good order (SIGTERM) and start again one after the other, as often as
    /// they would be killed, and no link goes bad: a rolling restart
    #[arg(long, conflicts_with = "broker")]
    pub roll: bool,
    /// Own brokers keep their logs on an engine, too, three servers of NATS JetStream that the run
    /// starts (nats-server), and lose their data directories when they are killed
    #[arg(long, conflicts_with_all = ["broker", "roll_from"])]
    pub engine: bool,
    /// They begin as that older whimbrel, and each is started again as this one: a rolling upgrade
    #[arg(long, value_name = "PROGRAM", requires = "roll")]
    pub roll_from: Option<PathBuf>,
}

/// A time between events that may not happen at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(pub Option<Duration>);

impl Args {
    /// The freight desk, which needs an own broker: others may have no data directory.
    pub fn freight(&self) -> Option<Habits> {
        (self.broker.is_none() && self.orders > 0).then_some(Habits { rate: self.orders, seed: self.seed })
    }

    /// Whether there are alarms, if there are several regions: only own brokers are told their
    /// deadline, and older programs do not know deadlines.
    pub fn has_alarms(&self) -> bool {
        self.broker.is_none() && self.ends.roll_from.is_none()
    }

    /// The regions, each with a broker; a single one if the broker is not the run's own.
    pub fn choice(&self) -> Choice {
        match self.broker {
            Some(_) => Choice::Count(1),
            None => self.regions.clone().unwrap_or_default(),
        }
    }

    /// The numbers of consoles that lose their signal: semi-durable and nondurable ones.
    pub fn roaming(&self) -> (u32, u32) {
        let usual = |own| if self.broker.is_none() { own } else { 0 };
        (self.roaming.unwrap_or(usual(ROAMING.0)), self.forgetful.unwrap_or(usual(ROAMING.1)))
    }
}

fn speed_up(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.01..=10_000.0).contains(&number) => Ok(number),
        _ => Err("it is a number from 0.01 to 10000".to_owned()),
    }
}

fn every(text: &str) -> Result<Every, String> {
    if text == "never" { Ok(Every(None)) } else { duration(text).map(|span| Every(Some(span))) }
}

fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if span.is_zero() => Err("it has to be longer than nothing".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

/// The `HOST:PORT` of a URL, or of a text that is one itself.
fn address(url: &str) -> Result<String, String> {
    let rest = match url.split_once("://") {
        Some(("mqtt" | "tcp", rest)) => rest.trim_end_matches('/'),
        Some((other, _)) => return Err(format!("{other}:// is not supported; give mqtt://HOST[:PORT]")),
        None => url,
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| format!("{port:?} is no port"))?),
        _ => (rest, MQTT_PORT),
    };
    if host.is_empty() || host.contains(['/', '@', '?']) {
        return Err("give mqtt://HOST[:PORT]".to_owned());
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn everything_has_a_default() {
        let args = Cli::try_parse_from(["demo"]).expect("no argument is needed").args;
        assert_eq!((args.speed_up, args.vehicles, args.duration), (10.0, 500, None));
        assert!(args.has_alarms() && args.freight().is_some() && args.ends.kill_every.0.is_some());
        let args =
            Cli::try_parse_from(["demo", "--broker", "a", "--kill-every", "never"]).expect("both are right").args;
        assert!(!args.has_alarms() && args.freight().is_none() && args.ends.kill_every.0.is_none());
    }

    #[test]
    fn there_are_three_regions_unless_somebody_says_otherwise() {
        let count = |line: &[&str]| {
            let line = ["demo"].iter().chain(line);
            Cli::try_parse_from(line).map(|cli| cli.args.choice().count()).map_err(|error| error.kind())
        };
        assert_eq!([count(&[]), count(&["--broker", "a"])], [Ok(3), Ok(1)]);
        assert_eq!([count(&["--brokers", "1"]), count(&["--regions", "warsaw,paris"])], [Ok(1), Ok(2)]);
        let conflict = count(&["--broker", "a", "--regions", "3"]);
        assert_eq!(conflict, Err(clap::error::ErrorKind::ArgumentConflict));
    }

    #[test]
    fn a_brokers_url_gives_its_address() {
        for (url, expected) in [
            ("mqtt://broker.example", "broker.example:1883"),
            ("mqtt://127.0.0.1:40001/", "127.0.0.1:40001"),
            ("mqtt://[::1]:2883", "[::1]:2883"),
            ("mqtt://[::1]", "[::1]:1883"),
            ("localhost:9", "localhost:9"),
        ] {
            assert_eq!(address(url).as_deref(), Ok(expected), "{url}");
        }
        for url in ["mqtts://a", "mqtt://", "mqtt://a:b", "mqtt://a:70000", "mqtt://user@a"] {
            address(url).expect_err(url);
        }
    }

    #[test]
    fn senseless_numbers_are_refused() {
        for wrong in [
            ["--speed-up", "0"],
            ["--speed-up", "nan"],
            ["--vehicles", "0"],
            ["--duration", "0s"],
            ["--duration", "soon"],
            ["--broker", "http://a"],
            ["--kill-every", "0s"],
            ["--regions", "0"],
            ["--regions", "warsaw,warsaw"],
            ["--move-every", "0s"],
        ] {
            assert!(Cli::try_parse_from(["demo"].into_iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }
}
