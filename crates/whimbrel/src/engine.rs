//! `whimbrel engine`: shows the replicated engine of a broker, and gives it a journal.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Subcommand, value_parser};

use whimbrel_server::config::schema::{KEYS, Key};
use whimbrel_server::config::{Override, Problem, journal_place};
use whimbrel_server::engine::{Adoption, EngineStatus, SeenServer, SeenSettings, StartReport, StreamStatus, status};
use whimbrel_server::store::{Opening, import};

use crate::failure::{self, Failure};
use crate::serve::{argument, overrides};
use crate::sessions::print_json;
use crate::table::{Cell, Table, Tone, count, is_coloured, name, paint, size};

const EXAMPLES: &str = "\
It looks for some seconds whether the owner of the name lives; `lives` is false, too, when its lease cannot be read. The broker need not
run. The exit status is 1 if the stream is not there or not known, a copy is not whole, or a server's settings are wrong or not told.

Examples:
  whimbrel engine status --name north --engine nats://10.0.0.1:4222,nats://10.0.0.2:4222,nats://10.0.0.3:4222
  whimbrel engine status --config /etc/whimbrel/whimbrel.toml --json | jq .lives";

const IMPORT_EXAMPLES: &str = "\
Afterwards the directory and the stream are equal, and the broker starts with either. A stream that has something is not
overwritten. What an interrupted import has appended counts for nothing: begin it again.

Examples:
  whimbrel engine import --name north --data /var/lib/whimbrel --engine nats://10.0.0.1:4222,nats://10.0.0.2:4222,nats://10.0.0.3:4222
  whimbrel engine import --config /etc/whimbrel/whimbrel.toml --discard-local     the stream is right, the directory is not";

/// Arguments of `whimbrel engine`.
#[derive(clap::Args)]
pub struct Engine {
    #[command(subcommand)]
    command: EngineCommand,
}

#[derive(Subcommand)]
enum EngineCommand {
    /// Show a broker's stream, who owns it, and the servers.
    #[command(after_help = EXAMPLES)]
    Status {
        #[command(flatten)]
        place: EnginePlace,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Give an empty stream the journal of a data directory; the broker must not run.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import {
        #[command(flatten)]
        place: EnginePlace,
        /// Give up what only the directory has, and make it from the stream
        #[arg(long)]
        discard_local: bool,
    },
}

/// The engine of a broker: options of `whimbrel serve`, or its configuration.
struct EnginePlace {
    config: Option<PathBuf>,
    overrides: Vec<Override>,
}

/// The settings that say which engine, and which broker.
fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| key.section == "engine" || matches!(&*key.path(), "name" | "data"))
}

impl clap::Args for EnginePlace {
    fn augment_args(command: clap::Command) -> clap::Command {
        let config = Arg::new("config").long("config").env("WHIMBREL_CONFIG").value_name("FILE");
        let config = config.help("Configuration file [default: whimbrel.toml, if there is one here]");
        command.arg(config.value_parser(value_parser!(PathBuf))).args(keys().filter_map(argument))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        EnginePlace::augment_args(command)
    }
}

impl clap::FromArgMatches for EnginePlace {
    fn from_arg_matches(matches: &ArgMatches) -> Result<EnginePlace, clap::Error> {
        Ok(EnginePlace { config: matches.get_one("config").cloned(), overrides: overrides(matches, keys()) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = EnginePlace::from_arg_matches(matches)?;
        Ok(())
    }
}

impl EnginePlace {
    fn opening(&self) -> Result<Opening, Failure> {
        let opening = journal_place(self.config.as_deref(), &self.overrides).map_err(Failure::Configuration)?;
        opening.filter(|opening| opening.engine.is_some()).ok_or_else(|| {
            let problem = Problem::new("no engine is named");
            Failure::Configuration(vec![
                problem.help("name its servers (--engine), or the broker's configuration (--config)"),
            ])
        })
    }
}

impl Engine {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            EngineCommand::Status { place, json } => {
                let opening = place.opening()?;
                let engine = opening.engine.as_ref().expect("an engine is named");
                let seen = status(engine).map_err(|error| Failure::Runtime(error.into()))?;
                if json { print_json(&seen) } else { failure::print(words(&seen).as_bytes()) }?;
                return Ok(if seen.is_in_order() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            EngineCommand::Import { place, discard_local } => {
                let mut opening = place.opening()?;
                if let Some(engine) = &mut opening.engine {
                    engine.adoption = if discard_local { Adoption::Discard } else { Adoption::Import };
                }
                let report = import(&opening).map_err(|error| Failure::Runtime(error.into()))?;
                failure::print(imported(&opening, &report.unwrap_or_default()).as_bytes())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What an import has done, as text.
fn imported(opening: &Opening, report: &StartReport) -> String {
    let given = match (report.pushed, report.is_made_anew) {
        (0, true) => "the directory was made from the stream".to_owned(),
        (0, false) => "the stream had all that the directory has".to_owned(),
        (pushed, _) => format!("the stream got {}", count(pushed, "record", "records")),
    };
    let lost = match report.discarded {
        0 => String::new(),
        discarded => format!(", {} of the directory given up", count(discarded, "commit", "commits")),
    };
    format!("{}: {given}{lost}; both are equal now\n", opening.directory.display())
}

/// What is seen, as text.
fn words(seen: &EngineStatus) -> String {
    let coloured = is_coloured();
    let mut out = match &seen.stream {
        Some(stream) => stream_words(seen, stream),
        None if seen.unknown.is_some() => {
            let why = seen.unknown.as_deref().unwrap_or_default();
            format!("{}: most servers do not answer, so its stream is not known: {why}\n", name(&seen.broker))
        }
        None => {
            format!("{} has no stream: no broker of this name has been started with this engine\n", name(&seen.broker))
        }
    };
    let mut table = Table::new(&["SERVER", "VERSION", "COPY", "MONITOR", "SETTINGS"]);
    let mut wrongs = String::new();
    for SeenServer { address, seen: told } in &seen.servers {
        let cells = match told {
            SeenSettings::Settings { name: server, version, wrong, .. } => {
                if let Some(wrong) = wrong {
                    wrongs += &paint(&format!("the server at {address} {wrong}\n"), Tone::Warn, coloured);
                }
                let settings =
                    if wrong.is_some() { Cell::new("wrong", Tone::Warn) } else { Cell::new("good", Tone::Good) };
                [name(server).into(), version.clone().into(), copy(seen, server), address.clone().into(), settings]
            }
            SeenSettings::NoJetStream { .. } => {
                wrongs += &paint(&format!("the server at {address} has no JetStream\n"), Tone::Warn, coloured);
                [
                    Cell::none(),
                    Cell::none(),
                    Cell::none(),
                    address.clone().into(),
                    Cell::new("no JetStream", Tone::Warn),
                ]
            }
            SeenSettings::Silent { why } => {
                wrongs += &paint(&format!("{address} does not tell settings: {why}\n"), Tone::Warn, coloured);
                [Cell::none(), Cell::none(), Cell::none(), address.clone().into(), Cell::new("not told", Tone::Warn)]
            }
        };
        table.row(cells.into());
    }
    for replica in seen.stream.iter().flat_map(|stream| &stream.replicas) {
        let is_it =
            |told: &SeenServer| matches!(&told.seen, SeenSettings::Settings { name, .. } if *name == replica.server);
        if !seen.servers.iter().any(is_it) {
            let settings = Cell::new("not told", Tone::Warn);
            let server = name(&replica.server).into();
            table.row([server, Cell::none(), copy(seen, &replica.server), Cell::none(), settings].into());
        }
    }
    out += &table.text(coloured);
    out + &wrongs
}

/// A stream and its owner, as text.
fn stream_words(seen: &EngineStatus, stream: &StreamStatus) -> String {
    let owner = match &stream.lease.held {
        _ if stream.epoch == 0 => "no broker has owned it".to_owned(),
        Some(lease) if lease.released => format!("released by {}", name(&lease.place)),
        Some(lease) if seen.lives => format!("{}, lives", name(&lease.place)),
        Some(lease) => format!("{}, has not renewed its lease", name(&lease.place)),
        None => match &stream.lease.unknown {
            Some(why) => format!("whether its owner lives is not known: {why}"),
            None => "its owner has no lease".to_owned(),
        },
    };
    let records = count(stream.records, "record", "records");
    let (broker, bytes) = (name(&seen.broker), size(stream.bytes));
    let old = if seen.maybe_old { "most servers do not tell their settings: this may be old\n" } else { "" };
    format!(
        "{old}{broker}: {records} in {bytes}, numbers {} to {}\nepoch {}: {owner}\n",
        stream.first, stream.last, stream.epoch
    )
}

/// How a server's copy of the stream is.
fn copy(seen: &EngineStatus, server: &str) -> Cell {
    let replicas = seen.stream.iter().flat_map(|stream| &stream.replicas);
    match replicas.into_iter().find(|replica| replica.server == server) {
        None => Cell::none(),
        Some(replica) if replica.leads => Cell::new("leads", Tone::Good),
        Some(replica) if replica.is_away => Cell::new("away", Tone::Warn),
        Some(replica) if replica.is_current => Cell::new("whole", Tone::Good),
        Some(_) => Cell::new("behind", Tone::Warn),
    }
}
