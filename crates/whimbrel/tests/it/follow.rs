//! `whimbrel sub` with a position: what is missed comes later, whatever ends in between.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout, Command, Stdio};

use crate::common::{Ends, broker, broker_at, run, text, whimbrel};
use tempfile::TempDir;
use whimbrel_client::{CheckpointStore, CheckpointToken, Deployment, EventId, FileStore, HostId, Position, Tick};

/// A subscriber in the background that keeps its position in a file.
struct Follower {
    process: Ends,
    output: Lines<BufReader<ChildStdout>>,
    says: Lines<BufReader<ChildStderr>>,
}

impl Follower {
    /// Starts it, and waits until it has subscribed.
    fn start(url: &str, file: &str, more: &[&str]) -> Follower {
        let arguments = [&["sub", "--url", url, "-q", "1", "--token-file", file, "t"], more].concat();
        let child = whimbrel(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut process = Ends(child.expect("it starts"));
        let output = BufReader::new(process.0.stdout.take().expect("piped")).lines();
        let says = BufReader::new(process.0.stderr.take().expect("piped")).lines();
        let mut follower = Follower { process, output, says };
        follower.hear("the position ");
        follower
    }

    /// Waits until it says something with this in it.
    fn hear(&mut self, part: &str) -> String {
        let mut before = String::new();
        loop {
            let line = self.says.next().unwrap_or_else(|| panic!("{part:?} was never said, but {before}"));
            let line = line.expect("text");
            if line.contains(part) {
                return line;
            }
            before += &line;
            before += "; ";
        }
    }

    fn line(&mut self) -> String {
        self.output.next().expect("it goes on").expect("text")
    }

    /// Kills it, and gives what it had printed besides.
    fn kill(mut self) -> Vec<String> {
        self.process.0.kill().expect("killed");
        self.process.0.wait().expect("waited for");
        self.output.map(|line| line.expect("text")).collect()
    }
}

fn publish(url: &str, numbers: std::ops::Range<u32>) {
    let lines: String = numbers.map(|n| format!("{n}\n")).collect();
    let mut publish = whimbrel(&["pub", "--url", url, "-q", "1", "t", "-"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = directory.path().join("lines");
    fs::write(&input, lines).expect("written");
    let output = publish.stdin(fs::File::open(&input).expect("opened")).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn file() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path: PathBuf = directory.path().join("t.token");
    let path = path.to_str().expect("UTF-8").to_owned();
    (directory, path)
}

fn numbers(output: &str) -> Vec<u32> {
    output.lines().map(|line| line.parse().expect("a number")).collect()
}

#[test]
fn whoever_comes_back_gets_what_was_published_in_between_and_nothing_twice() {
    let (_broker, url) = broker();
    let (_directory, file) = file();
    let first = Follower::start(&url, &file, &["--count", "3"]);
    publish(&url, 0..3);
    assert_eq!(first.output.map(|line| line.expect("text")).collect::<Vec<_>>(), ["0", "1", "2"]);
    publish(&url, 3..8);
    let arguments = ["sub", "--url", &url, "-q", "1", "--token-file", &file, "t"];
    let output = run(&[&arguments[..], &["--count", "2"]].concat());
    assert_eq!(numbers(&text(&output.stdout)), [3, 4], "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("2 messages, 0 gaps, 0 interruptions"), "{}", text(&output.stderr));
    // What was read ahead and not printed comes now.
    let output = run(&[&arguments[..], &["--count", "3"]].concat());
    assert_eq!(numbers(&text(&output.stdout)), [5, 6, 7]);
    let output = run(&[&arguments[..], &["--count", "1", "--within", "1"]].concat());
    assert!(!output.status.success() && output.stdout.is_empty(), "nothing is left");
}

#[test]
fn control_c_saves_what_was_printed() {
    let (_broker, url) = broker();
    let (_directory, file) = file();
    let mut first = Follower::start(&url, &file, &[]);
    publish(&url, 0..2);
    assert_eq!((first.line(), first.line()), ("0".to_owned(), "1".to_owned()));
    let pid = first.process.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    assert!(first.process.0.wait().expect("it ends").success());
    first.hear("2 messages, 0 gaps");
    publish(&url, 2..4);
    let output = run(&["sub", "--url", &url, "-q", "1", "--token-file", &file, "t", "--count", "2"]);
    assert_eq!(numbers(&text(&output.stdout)), [2, 3]);
}

#[test]
fn whoever_is_killed_between_messages_misses_nothing_and_repeats_only_what_it_had_not_saved() {
    const ROUNDS: u32 = 4;
    const EACH: u32 = 40;
    let (_broker, url) = broker();
    let (_directory, file) = file();
    let event = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let number: u32 = value["payload"].as_str().expect("text").parse().expect("a number");
        (number, value["id"].as_str().expect("an id").parse::<EventId>().expect("an id"))
    };
    // Up to here everything was printed.
    let mut next = 0;
    for round in 0..ROUNDS {
        let mut follower = Follower::start(&url, &file, &["--json"]);
        publish(&url, round * EACH..(round + 1) * EACH);
        let mut lines: Vec<String> = (0..=round * 7).map(|_| follower.line()).collect();
        lines.extend(follower.kill());
        // A line may have been cut off in the middle; it counts as not printed.
        let whole = lines.iter().filter(|line| line.ends_with('}'));
        let printed: Vec<(u32, EventId)> = whole.map(|line| event(line)).collect();
        let first = printed[0].0;
        assert!(first <= next, "round {round}: {next} to {first} are missing");
        assert!(printed.iter().map(|(number, _)| *number).eq(first..first + printed.len() as u32), "{printed:?}");
        next = first + printed.len() as u32;
        let saved = FileStore::new(&file).load().expect("whole").expect("there");
        let is_unsaved = |id: &EventId| saved.of(id.pubend).is_none_or(|at| id.tick > at);
        let unsaved = printed.iter().filter(|(_, id)| is_unsaved(id)).count() as u32;
        // The next one begins exactly after what was saved.
        let expected = next - unsaved..(round + 1) * EACH;
        let count = expected.len().max(1).to_string();
        let begin = ["sub", "--url", &url, "-q", "1", "--json", "--from", &saved.to_string(), "t"];
        let again = run(&[&begin[..], &["--count", &count, "--within", "1"]].concat());
        let came: Vec<u32> = text(&again.stdout).lines().map(|line| event(line).0).collect();
        assert!(came.iter().copied().eq(expected.clone()), "round {round}: {came:?} where {expected:?} were to come");
        next -= unsaved;
    }
}

#[test]
fn it_survives_the_broker_and_tells_what_went_with_it() {
    let (broker, url) = broker();
    let (_directory, file) = file();
    let mut follower = Follower::start(&url, &file, &["--count", "2"]);
    publish(&url, 0..1);
    assert_eq!(follower.line(), "0");
    drop(broker);
    follower.hear("no connection: ");
    let (_broker, _) = broker_at(url.trim_start_matches("mqtt://"));
    follower.hear("connected again");
    let gap = follower.hear("missed: ");
    assert!(gap.contains("lost: the broker that had it has ended"), "{gap}");
    publish(&url, 1..2);
    assert_eq!(follower.line(), "1");
    let account = follower.hear("2 messages, ");
    assert!(account.contains(" gaps, ") && account.contains("the position is in"), "{account}");
    assert!(follower.process.0.wait().expect("it ends").success());
}

#[test]
fn it_begins_where_it_is_told() {
    let (_broker, url) = broker();
    publish(&url, 0..3);
    let from = |start: &str, count: &str| {
        let output = run(&["sub", "--url", &url, "-q", "1", "--from", start, "--count", count, "--within", "5", "t"]);
        numbers(&text(&output.stdout))
    };
    assert_eq!(from("earliest", "3"), [0, 1, 2]);
    assert_eq!(from("2026-01-01T00:00:00Z", "3"), [0, 1, 2]);
    let wrong = run(&["sub", "--url", &url, "--from", "yesterday", "t"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn a_position_that_the_broker_does_not_take_is_explained() {
    let (_broker, url) = broker();
    let (_directory, file) = file();
    let mut token = CheckpointToken::new(Deployment::named("elsewhere"), Tick(1));
    token.cover(HostId::new(0x10), 4, 4).expect("one host");
    FileStore::new(&file).save(&Position::at(token)).expect("saved");
    let refused = run(&["sub", "--url", &url, "--token-file", &file, "t"]);
    let says = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{says}");
    assert!(says.contains("does not go on from the position in") && says.contains("another deployment"), "{says}");
    assert!(says.contains("delete") && says.contains("to begin now") && says.contains(&file), "{says}");
    fs::write(&file, "whimbrel position 1\nAAAA").expect("written");
    let damaged = run(&["sub", "--url", "mqtt://127.0.0.1:1", "--token-file", &file, "t"]);
    let says = text(&damaged.stderr);
    assert_eq!(damaged.status.code(), Some(1), "{says}");
    assert!(says.contains("damaged") && says.contains("delete it to begin now"), "{says}");
}

#[test]
fn a_position_in_a_file_is_not_taken_for_a_durable_subscription() {
    let (_directory, file) = file();
    let refused = run(&["sub", "--url", "mqtt://127.0.0.1:1", "--durability", "durable", "--token-file", &file, "t"]);
    let says = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{says}");
    assert!(says.contains("semi-durable") && says.contains("--session SECONDS"), "{says}");
}

#[test]
fn a_reader_that_goes_away_loses_nothing() {
    let (_broker, url) = broker();
    let (_directory, file) = file();
    let mut first = Follower::start(&url, &file, &[]);
    publish(&url, 0..1);
    assert_eq!(first.line(), "0");
    drop(first.output);
    publish(&url, 1..2);
    assert!(first.process.0.wait().expect("it ends").success());
    let mut rest = String::new();
    first.says.for_each(|line| rest += &line.expect("text"));
    let mut output = whimbrel(&["sub", "--url", &url, "-q", "1", "--token-file", &file, "t", "--count", "1"]);
    let mut child = Ends(output.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts"));
    let mut printed = String::new();
    child.0.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
    assert_eq!(printed, "1\n", "{rest}");
}
