//! `whimbrel serve`.

use std::path::PathBuf;

use clap::builder::{ArgAction, NonEmptyStringValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, value_parser};
use whimbrel_server::Error;
use whimbrel_server::config::schema::{KEYS, Key};
use whimbrel_server::config::value::Kind;
use whimbrel_server::config::{Config, Given, Override, Problem};
use whimbrel_server::engine::EngineEnd;

use crate::failure::{self, Failure};
use crate::version;

const DETAILS: &str = "\
Each option is also a key of whimbrel.toml (--listen-mqtt is listen_mqtt, --log-level is level in [log])
and a variable. Options prevail over variables, variables over the file, the file over defaults.
[limits] is in the file only; docs/configuration.md lists everything.
When the broker is ready it prints one line of JSON on standard output.
SIGTERM and SIGINT drain and end it; a second one ends it at once. SIGHUP reads fences, partitions, topics,
users, rules and quotas again.
With --engine the log is also on servers of NATS JetStream (docs/engine.md): without --data it is all that is needed.
SIGUSR1 accepts a step of the system's clock that was refused (docs/operations.md).

Examples:
  whimbrel serve --dev                                  all listeners on loopback
  whimbrel serve --dev --listen-mqtt 127.0.0.1:0        any free port; the ready line tells which
  whimbrel serve --dev --listen-mqtt 192.168.1.5:1883   a private network (no authentication!)
  whimbrel serve --dev --listen-ws off --listen-wss off
  whimbrel serve --dev --name south --peer 10.0.0.5:7117 --listen-overlay 10.0.0.6:7117
  whimbrel serve --tls-ca ca.pem --tls-cert broker-north.pem --tls-key broker-north.key      clients show certificates
  whimbrel serve --config /etc/whimbrel.toml --check    is this configuration all right?";

/// Option of a broker that takes its name from one that lives.
const TAKE: &str = "take";

/// Hidden option of a broker that keeps nothing.
const KEEP_NOTHING: &str = "keep-nothing";

/// Arguments of `whimbrel serve`, made from the table of settings.
pub struct Serve {
    config: Option<PathBuf>,
    check: bool,
    /// The name is taken from a broker that lives.
    takes: bool,
    /// For measurements: the journal writes nothing.
    keeps_nothing: bool,
    overrides: Vec<Override>,
}

impl Serve {
    /// Runs the broker until it is told to end; `warnings` are about the environment.
    pub fn run(self, warnings: Vec<String>) -> Result<(), Failure> {
        let mut config = Config::load(self.config.as_deref(), &self.overrides).map_err(Failure::Configuration)?;
        config.warnings.extend(warnings);
        if let Some(data) = &mut config.data {
            data.keeps_nothing = self.keeps_nothing && config.dev;
            if let Some(engine) = &mut data.engine {
                engine.takes = self.takes;
            }
        }
        if self.takes && config.data.as_ref().is_none_or(|data| data.engine.is_none()) {
            let problem =
                Problem::new("--take is given, and the broker has no engine from which a name could be taken");
            return Err(Failure::Configuration(vec![
                problem.help("name the servers of its engine (--engine), or leave it out"),
            ]));
        }
        if self.check {
            for warning in &config.warnings {
                failure::warn(warning);
            }
            return failure::print(b"the configuration is all right\n");
        }
        whimbrel_server::run(&config, version::SHORT, |ready| {
            let line = ready.line() + "\n";
            if let Err(failure) = failure::print(line.as_bytes()) {
                failure.report();
            }
        })
        .map_err(|error| match error {
            Error::Engine(EngineEnd::Taken) => Failure::Replaced,
            error => Failure::Runtime(error.into()),
        })
    }
}

/// The option of a setting, if it has one.
pub fn argument(key: &'static Key) -> Option<Arg> {
    let (flag, variable) = key.flag?;
    let mut help = key.help.to_owned();
    if !key.default.is_empty() {
        help += &format!(" [default: {}]", key.default);
    }
    if let Kind::Choice(words) = key.kind {
        help += &format!(" [one of: {}]", words.join(", "));
    }
    let argument = Arg::new(flag).long(flag).env(variable).hide_env_values(true).value_name(key.placeholder).help(help);
    let argument = argument.value_parser(NonEmptyStringValueParser::new()).hide(key.is_later());
    Some(match key.placeholder {
        "BOOL" => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        "DEGREES" => argument.allow_negative_numbers(true),
        _ if key.is_later() || matches!(key.kind, Kind::Peers) => argument.action(ArgAction::Append),
        _ => argument,
    })
}

/// The settings that were given by options or variables.
pub fn overrides(matches: &ArgMatches, keys: impl Iterator<Item = &'static Key>) -> Vec<Override> {
    let mut overrides = Vec::new();
    for key in keys {
        let Some((flag, _)) = key.flag else { continue };
        let given = match matches.value_source(flag) {
            Some(ValueSource::CommandLine) => Given::Flag,
            Some(ValueSource::EnvVariable) => Given::Variable,
            _ => continue,
        };
        let texts = matches.get_many::<String>(flag).into_iter().flatten();
        overrides.extend(texts.map(|text| Override { key, given, text: text.clone() }));
    }
    overrides
}

impl clap::Args for Serve {
    fn augment_args(command: clap::Command) -> clap::Command {
        let config = Arg::new("config").long("config").env("WHIMBREL_CONFIG").value_name("FILE");
        let config = config.help("Configuration file [default: whimbrel.toml, if there is one here]");
        let check = Arg::new("check").long("check").action(ArgAction::SetTrue);
        // Hidden, and neither a variable nor a key of the file: the option is for measurements.
        let nothing = Arg::new(KEEP_NOTHING).long(KEEP_NOTHING).action(ArgAction::SetTrue).hide(true);
        let nothing = nothing.requires_all(["dev", "data"]);
        let take = Arg::new(TAKE).long(TAKE).action(ArgAction::SetTrue);
        command
            .arg(take.help("Become the broker of this name although another process is: that one ends"))
            .arg(nothing.help("Acknowledge what must be logged, and write none of it: for measurements"))
            .arg(config.value_parser(value_parser!(PathBuf)))
            .arg(check.help("Check the configuration, and start nothing"))
            .args(KEYS.iter().filter_map(argument))
            .after_help(DETAILS)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Serve::augment_args(command)
    }
}

impl clap::FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Serve, clap::Error> {
        let overrides = overrides(matches, KEYS.iter());
        let config = matches.get_one("config").cloned();
        let [check, takes, keeps_nothing] = ["check", TAKE, KEEP_NOTHING].map(|flag| matches.get_flag(flag));
        Ok(Serve { config, check, takes, keeps_nothing, overrides })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Serve::from_arg_matches(matches)?;
        Ok(())
    }
}
