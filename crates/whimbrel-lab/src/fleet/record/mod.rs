//! A recording of a run (`--record DIR`): the packets that each client has sent and received, the
//! brokers' logs and output, the disturbances, and the judges' findings. One line of JSON each,
//! [`Line`], in the order in which they were written: the times of neighbouring lines may be
//! slightly out of order.
//!
//! A recording is bounded: it has two files, [`NOW`] and [`BEFORE`]. When the first is [`FILE_MAX`]
//! bytes long it replaces the second. So at least the last 256 MiB are there: some minutes of the
//! busiest runs.

mod explain;
mod line;
mod packet;

pub use explain::explain;
pub use line::{Line, PacketLine, Way, What};

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use whimbrel_client::{Options, Tap};

use packet::Cut;

/// The file that is being written.
pub const NOW: &str = "run.jsonl";
/// The file before it.
pub const BEFORE: &str = "run.before.jsonl";
/// The size of a file when it is replaced, bytes.
pub const FILE_MAX: u64 = 256 << 20;

/// Writes a recording. All times are counted from its creation.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    dir: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    file_max: u64,
    /// The number of connections that each client has opened.
    connections: HashMap<String, u32>,
    /// Why recording has stopped.
    failure: Option<io::Error>,
}

impl Recorder {
    /// A recording in a directory; an earlier one there is replaced.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be created.
    pub fn create(dir: &Path) -> Result<Recorder> {
        Recorder::bounded(dir, FILE_MAX)
    }

    fn bounded(dir: &Path, file_max: u64) -> Result<Recorder> {
        let make = || {
            fs::create_dir_all(dir)?;
            match fs::remove_file(dir.join(BEFORE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => File::create(dir.join(NOW)),
            }
        };
        let file = make().with_context(|| format!("cannot record in {}", dir.display()))?;
        let (dir, connections) = (dir.to_owned(), HashMap::new());
        let book = Book { dir, file: BufWriter::new(file), bytes: 0, file_max, connections, failure: None };
        Ok(Recorder { start: Instant::now(), book: Mutex::new(book) })
    }

    /// The time from which times are counted.
    pub fn start(&self) -> Instant {
        self.start
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A line is written whole or the recording has failed.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a line of text of a broker, a judge or the run.
    pub fn says(&self, from: &str, text: &str) {
        self.write(Line { at: self.now(), from: from.to_owned(), what: What::Text { says: text.to_owned() } });
    }

    /// Records the next connection of a client.
    pub fn tap(self: &Arc<Self>, client: &str, options: Options) -> Options {
        let connection = {
            let mut book = self.book();
            let count = book.connections.entry(client.to_owned()).or_default();
            *count += 1;
            *count
        };
        options.tap(Arc::new(ClientTap {
            recorder: self.clone(),
            client: client.to_owned(),
            connection,
            cuts: Mutex::default(),
        }))
    }

    /// Writes the rest of the recording.
    ///
    /// # Errors
    /// When a part of the recording could not be written.
    pub fn finish(&self) -> Result<()> {
        let mut book = self.book();
        let flushed = book.file.flush();
        let failure = book.failure.take().or(flushed.err());
        failure.map_or(Ok(()), |error| Err(error).with_context(|| format!("cannot record in {}", book.dir.display())))
    }

    fn now(&self) -> f64 {
        seconds(self.start.elapsed())
    }

    fn write(&self, line: Line) {
        let mut text = serde_json::to_vec(&line).expect("numbers and text can always be written as JSON");
        text.push(b'\n');
        self.book().write(&text);
    }
}

impl Book {
    fn write(&mut self, text: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let written = match self.bytes + text.len() as u64 > self.file_max {
            true => self.turn_page().and_then(|()| self.file.write_all(text)),
            false => self.file.write_all(text),
        };
        self.bytes += text.len() as u64;
        self.failure = written.err();
    }

    fn turn_page(&mut self) -> io::Result<()> {
        self.file.flush()?;
        fs::rename(self.dir.join(NOW), self.dir.join(BEFORE))?;
        self.file = BufWriter::new(File::create(self.dir.join(NOW))?);
        self.bytes = 0;
        Ok(())
    }
}

/// The seconds of a span, to the microsecond.
fn seconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// Records the packets of a connection.
#[derive(Debug)]
struct ClientTap {
    recorder: Arc<Recorder>,
    client: String,
    connection: u32,
    /// The directions: sent, and received.
    cuts: Mutex<[Cut; 2]>,
}

impl ClientTap {
    fn note(&self, way: Way, bytes: &[u8]) {
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        cuts[usize::from(way == Way::Got)].feed(bytes, |packet| {
            let packet = PacketLine { connection: self.connection, way, ..packet };
            self.recorder.write(Line {
                at: self.recorder.now(),
                from: self.client.clone(),
                what: What::Packet(packet),
            });
        });
    }
}

impl Tap for ClientTap {
    fn sent(&self, bytes: &[u8]) {
        self.note(Way::Sent, bytes);
    }

    fn received(&self, bytes: &[u8]) {
        self.note(Way::Got, bytes);
    }
}

impl Drop for ClientTap {
    fn drop(&mut self) {
        self.recorder.says(&self.client, &format!("connection {} is over", self.connection));
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_recording_is_bounded_and_keeps_what_came_last() {
        let dir = TempDir::new().expect("a directory");
        let recorder = Recorder::bounded(dir.path(), 1_000).expect("it can be made");
        for number in 0..100 {
            recorder.says("run", &format!("line {number}"));
        }
        recorder.finish().expect("all could be written");
        let read = |name| fs::read_to_string(dir.path().join(name)).expect("it is there");
        let (before, now) = (read(BEFORE), read(NOW));
        assert!(before.len() <= 1_000 && now.len() <= 1_000 && before.len() + now.len() > 1_000);
        let lines: Vec<Line> =
            before.lines().chain(now.lines()).map(|line| serde_json::from_str(line).expect("a line")).collect();
        let last = lines.last().expect("there are some");
        assert_eq!(last.what, What::Text { says: "line 99".to_owned() });
        assert!(lines.is_sorted_by_key(|line| line.at) && !lines.iter().any(|line| line.from != "run"));
        Recorder::create(dir.path()).expect("another recording").finish().expect("nothing was to be written");
        assert!(!dir.path().join(BEFORE).exists() && read(NOW).is_empty());
    }
}
