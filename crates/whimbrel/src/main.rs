//! The `whimbrel` command.

mod backup;
mod cert;
mod connection;
mod control;
mod discover;
mod engine;
mod failure;
mod follow;
mod forget;
mod graph;
mod help;
mod interest;
mod journal;
mod orders;
mod output;
mod passwd;
mod print;
mod progress;
mod publish;
mod serve;
mod sessions;
mod status;
mod steady;
mod streams;
mod subscribe;
mod system;
mod table;
mod topics;
mod topology;
mod trace;
mod variables;
mod version;
mod ways;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use failure::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  whimbrel serve --dev                                  a broker on this machine
  whimbrel demo                                         a city's buses over a broker of its own
  whimbrel sub 'fleet/#' -v                             what is published under fleet/
  whimbrel pub fleet/7/position 52.23,21.01             publish a message
  whimbrel status --data /var/lib/whimbrel              all brokers at one glance
  whimbrel sessions list --data /var/lib/whimbrel       who is there, who is away, who is behind
  whimbrel topology --data /var/lib/whimbrel            the other brokers, and the ways to them
  whimbrel backup /backup/monday                        of a running broker
  whimbrel bench --target mqtt5://127.0.0.1:1883        what a broker can do, and at which cost

Ports: MQTT 1883, TLS 8883, WebSocket 8083, WebSocket with TLS 8084 (path /mqtt), HTTP 8080, other brokers 7117/udp.
Exit status: 0 success, 1 a failure while running, 2 a wrong command line or configuration,
3 a broker that another process has become.";

/// A publish/subscribe broker for wide-area networks that speaks MQTT.
#[derive(Parser)]
#[command(name = "whimbrel", version = version::SHORT, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the broker.
    Serve(serve::Serve),
    /// Replay a city's buses over a broker, watch them live and check every delivery.
    Demo(whimbrel_lab::fleet::Args),
    /// Publish messages: an argument, lines, or a file.
    Pub(publish::Publish),
    /// Subscribe, and print what comes.
    Sub(subscribe::Subscribe),
    /// Find the brokers in the local network.
    Discover(discover::Discover),
    /// Show all brokers at one glance.
    Status(status::Status),
    /// List, show or end the sessions of running brokers.
    Sessions(sessions::Sessions),
    /// Show what running brokers keep in their journals, and who holds it back.
    Streams(streams::Streams),
    /// Show which brokers there are, how they are linked, and the ways from a running broker to the
    /// others.
    Topology(topology::Topology),
    /// List, make or remove profiles of topics: deadlines, what is logged, rates.
    Topics(topics::Topics),
    /// Show what brokers want of each other.
    Interest(interest::Interest),
    /// Forget a broker that will never come back.
    Forget(forget::Forget),
    /// Ask all brokers what became of an event.
    Trace(trace::Trace),
    /// Copy the journal of a running broker, as it is at one moment.
    Backup(backup::Backup),
    /// Make a data directory of a backup.
    Restore(backup::Restore),
    /// Have a running broker read its configuration again.
    Reload(orders::Reload),
    /// Have a running broker take leave of its clients and end.
    Drain(orders::Drain),
    /// Propose which brokers to link, from measured round trips.
    Plan(whimbrel_lab::plan::Args),
    /// Make certificates by which brokers and clients know each other.
    Cert(cert::Cert),
    /// Give users of a broker passwords, or remove users.
    Passwd(passwd::Passwd),
    /// Show the engine that has the log of a broker.
    Engine(engine::Engine),
    /// Verify the journal of a broker that does not run.
    Journal(journal::Journal),
    /// Measure what a broker costs per message.
    Bench(Box<whimbrel_lab::bench::Args>),
    /// Repeat an experiment of the papers that this broker comes from.
    Lab(whimbrel_lab::catalogue::Args),
    /// Show version, commit and features.
    Version,
    /// Print a completion script for a shell.
    #[command(after_help = "Example: whimbrel completions bash > ~/.local/share/bash-completion/completions/whimbrel")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let pages = help::laid_out(Cli::command(), help::width());
    let unknown = variables::unknown(&pages);
    let cli = Cli::from_arg_matches(&pages.get_matches()).unwrap_or_else(|error| error.exit());
    run(cli.command, unknown).unwrap_or_else(Failure::report)
}

/// Runs a subcommand; `warnings` are about the environment.
fn run(command: Command, warnings: Vec<String>) -> Result<ExitCode, Failure> {
    if !matches!(command, Command::Serve(_)) {
        warnings.iter().for_each(|warning| failure::warn(warning));
    }
    match command {
        Command::Serve(serve) => serve.run(warnings)?,
        Command::Demo(args) => demo(args)?,
        Command::Pub(publish) => publish.run()?,
        Command::Sub(subscribe) => subscribe.run()?,
        Command::Discover(discover) => discover.run()?,
        Command::Status(status) => status.run()?,
        Command::Sessions(sessions) => sessions.run()?,
        Command::Streams(streams) => streams.run()?,
        Command::Topology(topology) => topology.run()?,
        Command::Topics(topics) => topics.run()?,
        Command::Interest(interest) => interest.run()?,
        Command::Forget(forget) => forget.run()?,
        Command::Trace(trace) => trace.run()?,
        Command::Backup(backup) => return backup.run(),
        Command::Restore(restore) => return restore.run(),
        Command::Reload(reload) => reload.run()?,
        Command::Drain(drain) => drain.run()?,
        Command::Plan(args) => failure::print(whimbrel_lab::plan::run(&args)?.as_bytes())?,
        Command::Cert(cert) => cert.run()?,
        Command::Passwd(passwd) => passwd.run()?,
        Command::Engine(engine) => return engine.run(),
        Command::Journal(journal) => return journal.run(),
        Command::Bench(args) => return Ok(whimbrel_lab::bench::run(&args)?),
        Command::Lab(args) => return Ok(whimbrel_lab::catalogue::run(&args)?),
        Command::Version => version::print()?,
        Command::Completions { shell } => completions(shell)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn demo(args: whimbrel_lab::fleet::Args) -> Result<(), Failure> {
    if let Some(dir) = &args.recording.explain {
        let text = whimbrel_lab::fleet::record::explain(dir, args.recording.event.as_deref())?;
        return failure::print(text.as_bytes());
    }
    let runtime = tokio::runtime::Runtime::new().context("cannot start the threads of the demonstration")?;
    runtime.block_on(whimbrel_lab::fleet::run(args))?;
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "whimbrel", &mut script);
    failure::print(&script)
}
