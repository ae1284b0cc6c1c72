//! The audit: refusals and changes, one line of JSON each.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use serde::Serialize;

/// Lines of each class each second at most; further ones are counted in a line of their own.
/// Strangers can cause any number of refusals, so each class has its own room.
pub const LINES_PER_SECOND: u32 = 100;

/// Lines of each class that wait to be written, at most.
const QUEUE_MAX: usize = 1000;

const SECOND: Duration = Duration::from_secs(1);

/// Destination of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    #[default]
    Nowhere,
    /// To the log.
    Log,
    /// To a file, at its end.
    File(PathBuf),
}

/// One audited event. A field that does not apply is empty and left out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Record<'a> {
    /// The event: `refused`, `signed_in`, `changed`, `reloaded`.
    pub event: &'a str,
    /// The requested action: `connect`, `identify`, `publish`, `subscribe`, `peer`, `observe`,
    /// `administer`, `upgrade`, `reload`.
    pub action: &'a str,
    /// The principal that made the request, as far as it is known.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub principal: &'a str,
    /// The client id.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_id: &'a str,
    /// Topic, filter, path or name that the request is about.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub about: &'a str,
    /// Address from which the request came.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub from: &'a str,
    /// The reason code of MQTT 5, or the status of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The reason.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'a str,
}

#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    #[serde(flatten)]
    record: Record<'a>,
}

#[derive(Serialize)]
struct LeftOut {
    at_ms: u64,
    event: &'static str,
    /// The class of the events left out.
    of: &'static str,
    lines: u64,
}

/// Events that share one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Caused by any peer.
    Refused,
    /// Caused by clients with an account.
    SignedIn,
    /// Caused by operators.
    Changed,
}

impl Class {
    const ALL: [Class; 3] = [Class::Refused, Class::SignedIn, Class::Changed];

    fn of(record: &Record<'_>) -> Class {
        match (record.event, record.action) {
            ("refused", "reload") => Class::Changed,
            ("refused", _) => Class::Refused,
            ("signed_in", _) => Class::SignedIn,
            _ => Class::Changed,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Refused => "refused",
            Class::SignedIn => "signed_in",
            Class::Changed => "changed",
        }
    }
}

/// Use of one class's limit.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Lines in the present second.
    lines: u32,
    /// Lines that wait to be written.
    waiting: usize,
    left_out: u64,
}

#[derive(Debug, Default)]
struct State {
    place: Place,
    /// When the present second began.
    second: Option<Instant>,
    rooms: [Room; Class::ALL.len()],
    left_out_in_all: u64,
    queue: Vec<String>,
    /// The destination is to be opened anew.
    is_moved: bool,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

/// Records decisions, at a bounded rate; a thread writes them.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Audit {
    /// Starts an audit with this destination.
    ///
    /// # Errors
    /// The file cannot be opened, or the system gives no thread.
    pub fn start(place: Place) -> io::Result<Audit> {
        open(&place)?;
        let state = State { place, is_moved: true, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), news: Condvar::new() });
        let writing = shared.clone();
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || write(&writing))?;
        Ok(Audit { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Changes the destination. A file is opened anew even if it is the same, as it may have been
    /// moved away.
    ///
    /// # Errors
    /// The file cannot be opened; the destination stays.
    pub fn reopen(&self, place: Place) -> io::Result<()> {
        open(&place)?;
        let mut state = self.shared.state.lock();
        (state.place, state.is_moved) = (place, true);
        Ok(())
    }

    /// Writes a record, unless its class has no room.
    pub fn note(&self, record: &Record<'_>) {
        let mut state = self.shared.state.lock();
        if state.place == Place::Nowhere {
            return;
        }
        if !state.takes(Class::of(record), Instant::now()) {
            // The writer looks again when the second is over.
            self.shared.news.notify_one();
            return;
        }
        let line = serde_json::to_string(&Line { at_ms: now_ms(), record: *record });
        state.queue.push(line.expect("texts and numbers are JSON"));
        drop(state);
        self.shared.news.notify_one();
    }

    /// Number of lines left out so far.
    pub fn left_out_in_all(&self) -> u64 {
        self.shared.state.lock().left_out_in_all
    }
}

impl State {
    /// Whether there is room for one more line of that class. Counts it either way.
    fn takes(&mut self, class: Class, now: Instant) -> bool {
        if self.second.is_none_or(|second| now.duration_since(second) >= SECOND) {
            self.second = Some(now);
            self.rooms.iter_mut().for_each(|room| room.lines = 0);
        }
        let room = &mut self.rooms[class as usize];
        let has_room = room.lines < LINES_PER_SECOND && room.waiting < QUEUE_MAX;
        if has_room {
            (room.lines, room.waiting) = (room.lines + 1, room.waiting + 1);
        } else {
            room.left_out += 1;
            self.left_out_in_all += 1;
        }
        has_room
    }

    /// Number of lines left out of each class since the last call.
    fn take_left_out(&mut self) -> [u64; Class::ALL.len()] {
        self.rooms.each_mut().map(|room| std::mem::take(&mut room.left_out))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.news.notify_all();
        if let Some(writer) = self.writer.lock().take() {
            // All recorded lines are to be in the file; the result of a thread that panicked is not
            // needed.
            let _ = writer.join();
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn open(place: &Place) -> io::Result<Option<File>> {
    let Place::File(path) = place else { return Ok(None) };
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Some)
}

fn write(shared: &Shared) {
    let (mut file, mut is_log) = (None, false);
    loop {
        let mut state = shared.state.lock();
        if state.queue.is_empty() && !state.is_over && !state.is_moved {
            // Lines left out are reported even if no line follows.
            if state.rooms.iter().any(|room| room.left_out > 0) {
                shared.news.wait_for(&mut state, SECOND);
            } else {
                shared.news.wait(&mut state);
            }
        }
        let (is_over, lines) = (state.is_over, std::mem::take(&mut state.queue));
        state.rooms.iter_mut().for_each(|room| room.waiting = 0);
        let is_quiet = state.second.is_none_or(|second| second.elapsed() >= SECOND);
        let left_out = if is_quiet || is_over { state.take_left_out() } else { Default::default() };
        let place = std::mem::take(&mut state.is_moved).then(|| state.place.clone());
        drop(state);
        if let Some(place) = place {
            is_log = place == Place::Log;
            file = open(&place).unwrap_or_default();
        }
        let left_out = Class::ALL.into_iter().zip(left_out).filter(|(_, lines)| *lines > 0).map(|(class, lines)| {
            let line = LeftOut { at_ms: now_ms(), event: "left_out", of: class.name(), lines };
            serde_json::to_string(&line).expect("texts and numbers are JSON")
        });
        for line in lines.into_iter().chain(left_out) {
            if is_log {
                tracing::info!(audit = line);
            } else if let Some(file) = &mut file
                && let Err(error) = file.write_all((line + "\n").as_bytes())
            {
                tracing::error!(%error, "the audit cannot be written");
            }
        }
        if is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit");
        let audit = Audit::start(Place::File(path.clone())).expect("the file can be opened");
        let many = u64::from(LINES_PER_SECOND) * 3;
        for _ in 0..many {
            audit.note(&Record { event: "refused", action: "publish", about: "a\"b", ..Record::default() });
        }
        let left_out = audit.left_out_in_all();
        drop(audit);
        let text = std::fs::read_to_string(&path).expect("it was written");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let refused = lines.iter().filter(|line| line["event"] == "refused").count() as u64;
        let told: u64 = lines.iter().filter_map(|line| line["lines"].as_u64()).sum();
        assert!(refused >= u64::from(LINES_PER_SECOND) && left_out > 0);
        assert_eq!((refused + told, told), (many, left_out));
        assert!(lines[0]["about"] == "a\"b" && lines[0].get("principal").is_none());
    }

    #[test]
    fn strangers_leave_room_for_what_operators_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit");
        let audit = Audit::start(Place::File(path.clone())).expect("the file can be opened");
        for _ in 0..LINES_PER_SECOND * 3 {
            audit.note(&Record { event: "refused", action: "identify", ..Record::default() });
        }
        for event in ["changed", "reloaded", "signed_in"] {
            audit.note(&Record { event, action: "administer", ..Record::default() });
        }
        audit.note(&Record { event: "refused", action: "reload", ..Record::default() });
        drop(audit);
        let text = std::fs::read_to_string(&path).expect("it was written");
        for event in ["changed", "reloaded", "signed_in"] {
            assert!(text.contains(&format!("\"event\":\"{event}\"")), "{event} is not in {text}");
        }
        assert!(text.contains("\"action\":\"reload\"") && text.contains("\"of\":\"refused\""), "{text}");
    }
}
