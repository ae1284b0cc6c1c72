//! The main job, `whimbrel demo`: a city's vehicles, one MQTT connection each, tell their positions
//! to dispatch consoles and watchers through a broker, and a checker that knows only what was sent
//! and what arrived judges the broker.

pub mod alarms;
mod args;
pub mod attribution;
pub mod board;
pub mod checker;
pub mod city;
pub mod crashes;
pub mod delays;
pub mod fence;
pub mod freight;
pub mod geo;
pub mod layout;
mod link;
pub mod message;
mod outages;
mod own_broker;
mod own_brokers;
pub mod record;
pub mod regions;
mod replay;
mod roamer;
pub mod roaming;
mod roles;
pub mod schedule;
pub mod selection;
mod snapshot;
pub mod summary;
pub mod trace;
mod vehicle;
pub mod view;

pub use args::Args;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use board::Board;
use geo::Place;
use own_brokers::{Equipment, OwnBrokers};
use record::Recorder;
use regions::{Atlas, Layout};
use selection::Selection;
use summary::Summary;
use trace::Trace;
use view::Titles;
use view::screen::{Extent, Screen};
use view::terminal::LiveView;

/// The seconds between two status lines.
const STATUS_SECONDS: u64 = 5;
/// The events of the busiest line that an own broker keeps: as many as are published in about the
/// mean time without a signal.
const SMALL_CACHE: usize = 12;
/// The files that a run needs besides its connections.
const SPARE_FILES: u64 = 64;

/// Replays positions through a broker until the duration has passed or the user ends the run, shows
/// and checks what happens, and prints a summary.
///
/// # Errors
/// If the trace cannot be read, the broker cannot be started or reached or ends by itself, or the
/// broker broke a promise: a reliable delivery was lost, or any was repeated, reordered or altered.
pub async fn run(args: Args) -> anyhow::Result<Summary> {
    let layout = Layout::load(&args.choice(), Path::new(regions::MEASURED))?;
    let centre = if args.broker.is_none() { layout.place(0) } else { city::ATLANTIC };
    let reading = args.clone();
    let loading = tokio::task::spawn_blocking(move || load(&reading, centre));
    let (trace, notice) = loading.await.context("reading the trace was interrupted")??;
    let lines = busiest_lines(&trace, args.watchers as usize);
    let selection = select(&trace, &args);
    raise_file_limit(trace.vehicles.len() as u64 + subscribers(&args, &selection))?;
    let recorder = args.recording.record.as_deref().map(Recorder::create).transpose()?.map(Arc::new);
    let deadline = alarms::deadline(&layout).filter(|_| args.has_alarms());
    let mut own = match args.broker {
        None => {
            let text = configuration(&trace, &selection, layout.count(), deadline);
            let (data, older) = (args.data.as_deref(), args.ends.roll_from.as_deref());
            let equipment = Equipment { data, older, has_engine: args.ends.engine };
            let of_brokers = OwnBrokers::start(&text, equipment, &layout, args.seed, &recorder);
            Some(of_brokers.await?)
        }
        Some(_) => None,
    };
    let given = || args.broker.iter().cloned().collect();
    let addresses = own.as_ref().map_or_else(given, OwnBrokers::addresses);
    let titles = Titles {
        trace: trace.name.clone(),
        lines: trace.lines.len(),
        vehicles: trace.vehicles.len(),
        speed_up: args.speed_up,
        broker: describe(own.is_some(), &layout, &addresses),
        address: addresses[0].clone(),
        console: own.as_ref().map(OwnBrokers::console),
        notice: join(notice, own.as_ref().and_then(|_| layout.notice())),
    };
    let board = Board::new(trace.clone(), &lines, selection).recorded(recorder.clone());
    let board = Arc::new(board.of_regions(&layout, &addresses, deadline));
    let atlas = Arc::new(Atlas::new(layout.names.clone(), addresses, args.move_every.0, args.seed));
    let (quit, quitting) = watch::channel(false);
    let interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let watching_signals = tokio::spawn(wait_for_either(interrupt, terminate, quit.clone()));
    let is_live = !args.plain && !args.json && std::io::stdout().is_terminal();
    let view = if is_live {
        let extent = Extent::of(trace.positions.iter().map(|position| position.fix.place));
        let screen = Screen::new(titles.clone(), extent, &board.selection.fences);
        Some(LiveView::start(board.clone(), screen, quit).context("cannot use the terminal; try --plain")?)
    } else {
        say(args.json, &view::plain::head(&titles));
        None
    };
    let beating = tokio::spawn(beat(board.clone(), (!is_live).then_some(args.json)));
    let ended = replay::run(&args, board.clone(), &titles, (atlas, own.as_mut()), quitting).await;
    beating.abort();
    watching_signals.abort();
    if let Some(view) = view {
        view.stop().context("cannot give the terminal back")?;
    }
    let mut summary = ended?;
    if let Some(own) = &own {
        summary.durable_gaps = own.durable_gaps().await;
    }
    print(&summary, args.json)?;
    if let Some(own) = own {
        own.stop().await?;
    }
    end_recording(&args, recorder)?;
    match summary.failure() {
        Some(failure) => anyhow::bail!(failure),
        None => Ok(summary),
    }
}

/// Ends the recording, if there is one, and tells where it is and how to read it.
fn end_recording(args: &Args, recorder: Option<Arc<Recorder>>) -> anyhow::Result<()> {
    if let (Some(recorder), Some(dir)) = (recorder, &args.recording.record) {
        recorder.finish()?;
        say(args.json, &format!("recorded in {0}; whimbrel demo --explain {0} reads it", dir.display()));
    }
    Ok(())
}

/// The greatest number of subscribers' connections.
fn subscribers(args: &Args, selection: &Selection) -> u64 {
    let (semi_durable, nondurable) = args.roaming();
    // A roaming console may have two connections at once, one of them without a signal.
    let connections = args.consoles + args.watchers + 2 * (semi_durable + nondurable);
    u64::from(connections) + selection.conditions.len() as u64
}

/// The trace to replay, and the attribution of its data. A synthetic city lies around `centre`.
fn load(args: &Args, centre: Place) -> anyhow::Result<(Arc<Trace>, Option<String>)> {
    let recording = args.trace.clone().or_else(|| if args.city { None } else { attribution::recording() });
    let Some(path) = recording else {
        let trace = city::synthesize(args.seed, args.vehicles as usize, centre)?;
        return Ok((Arc::new(trace), None));
    };
    let mut trace = Trace::read(Path::new(&path))?;
    trace.keep_busiest(args.vehicles as usize);
    let notice = args.attribution.clone().or_else(|| attribution::notice(&path).map(str::to_owned));
    Ok((Arc::new(trace), notice))
}

/// A description of the brokers' places, and of whose they are.
fn describe(is_own: bool, layout: &Layout, addresses: &[String]) -> String {
    let first = &addresses[0];
    match (is_own, layout.count()) {
        (false, _) => format!("broker at {first}"),
        (true, 1) => format!("own broker at {first}"),
        (true, _) => format!("in {}; {}'s own broker at {first}", layout.names.join(", "), layout.names[0]),
    }
}

fn join(notice: Option<String>, other: Option<&str>) -> Option<String> {
    let notices: Vec<&str> = notice.as_deref().into_iter().chain(other).collect();
    (!notices.is_empty()).then(|| notices.join(" "))
}

/// The configuration of an own broker: the fences, positions that are never logged, and too small a
/// cache for the busiest line, so that there are gaps to be told. With several regions each broker
/// keeps all positions for clients that arrive from another one. Alarms have a profile of their
/// own, if they have a `deadline`.
fn configuration(trace: &Trace, selection: &Selection, regions: usize, deadline: Option<Duration>) -> String {
    let mut text = fence::configuration(&selection.fences);
    if regions > 1 {
        text += &format!("[buffer]\nsubscribe = [\"{}\"]\n", message::all_filter());
    }
    text += &format!("[[topic]]\nfilter = \"{}\"\npersistence = \"volatile\"\n", message::all_filter());
    text += &deadline.map(alarms::configuration).unwrap_or_default();
    for line in busiest_lines(trace, 1) {
        // Strings of JSON are strings of TOML, too.
        let filter = serde_json::Value::from(message::line_filter(&trace.lines[line as usize]));
        text += &format!("[[partition]]\nfilter = {filter}\ncapacity = \"{SMALL_CACHE} events\"\n");
    }
    text
}

/// The conditions to be watched: only an own broker can be told fences; another one may not even
/// know selectors.
fn select(trace: &Trace, args: &Args) -> Selection {
    let is_own = args.broker.is_none();
    if is_own || args.selectors {
        Selection::of(trace, &busiest_lines(trace, trace.lines.len()), is_own)
    } else {
        Selection::default()
    }
}

/// The `count` lines with the most positions, most first.
fn busiest_lines(trace: &Trace, count: usize) -> Vec<u32> {
    let mut positions = vec![0u32; trace.lines.len()];
    for position in &trace.positions {
        positions[position.fix.line as usize] += 1;
    }
    let mut lines: Vec<u32> = (0..trace.lines.len() as u32).collect();
    lines.sort_by_key(|&line| (std::cmp::Reverse(positions[line as usize]), line));
    lines.truncate(count);
    lines
}

/// Raises the soft limit of open files, if the connections need it.
fn raise_file_limit(connections: u64) -> anyhow::Result<()> {
    let needed = connections + SPARE_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot ask for the limit of open files")?;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        anyhow::bail!("{needed} open files are needed and {hard} allowed (ulimit -Hn); ask for fewer vehicles");
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).context("cannot raise the limit of open files")
}

async fn wait_for_either(mut interrupt: Signal, mut terminate: Signal, quit: watch::Sender<bool>) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    quit.send_replace(true);
}

/// Counts the seconds for the board, and prints a status line if there is no live view: on standard
/// error if `status` says so.
async fn beat(board: Arc<Board>, status: Option<bool>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for second in 0u64.. {
        seconds.tick().await;
        board.tick();
        if let Some(on_stderr) = status.filter(|_| second > 0 && second.is_multiple_of(STATUS_SECONDS)) {
            say(on_stderr, &view::plain::status(&board.snapshot()));
        }
    }
}

/// A reader that has gone away does not end the run.
fn say(on_stderr: bool, text: &str) {
    let _gone = if on_stderr { writeln!(std::io::stderr(), "{text}") } else { writeln!(std::io::stdout(), "{text}") };
}

fn print(summary: &Summary, as_json: bool) -> anyhow::Result<()> {
    let text = if as_json { serde_json::to_string_pretty(summary)? } else { summary.text() };
    say(false, &text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_have_a_topic_profile_where_they_have_a_deadline() {
        let trace = city::synthesize(1, 2, city::ATLANTIC).expect("a city");
        let of = |deadline| configuration(&trace, &Selection::default(), 3, deadline);
        assert!(!of(None).contains("alarm"), "{}", of(None));
        let text = of(Some(Duration::from_millis(90)));
        assert!(text.contains(&alarms::configuration(Duration::from_millis(90))), "{text}");
        assert!(text.find("[[topic]]") < text.find("[[partition]]"), "{text}");
    }
}
