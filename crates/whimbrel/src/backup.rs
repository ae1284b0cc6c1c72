//! `whimbrel backup` and `whimbrel restore`.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::{Context, anyhow, bail};
use whimbrel_server::api::answers::{BackupFile, Finished, Manifest};
use whimbrel_server::store::JOURNAL;
use whimbrel_server::store::check::{Checked, guard, journal_in};

use crate::control::{Answer, Reach};
use crate::failure::{self, Failure, tell};
use crate::sessions::print_json;
use crate::table::{count, moment, size};
use crate::{journal, progress, version};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Bytes of the line that describes a backup, at most.
const MANIFEST_MAX: u64 = 64 << 20;

/// Bytes of a file in a backup, at most.
const FILE_MAX: u64 = 1 << 30;

/// Ending of the names of a journal's files.
const SEGMENT: &str = ".segment";

/// Suffix of a directory that is being made: it gets its name when it is complete.
const UNFINISHED: &str = ".unfinished";

const BACKUP_DETAILS: &str = "\
The backup is the journal as it was at one moment: whatever a publisher was told is accepted before that is in it.
The broker goes on meanwhile, and gives nothing of it back until the backup is done, so it needs room for what is
published in the meantime. What was copied is checked before the backup gets its name; until then it is called
DEST.unfinished, and the next backup with this name replaces it.

Examples:
  whimbrel backup /backup/monday --data /var/lib/whimbrel
  whimbrel restore /backup/monday --data /var/lib/whimbrel";

const RESTORE_DETAILS: &str = "\
The backup is checked first, and the copy afterwards. The broker that starts with it goes on as it was when the
backup was made, and knows that it is behind: whatever came after that is told as a gap to whoever has not had it,
and sessions are told to their clients as new, once, so that these forget what was under way. The broker that the
backup is from must not run any more. SRC may also be a copy of the data directory of a broker that was stopped.

Examples:
  whimbrel restore /backup/monday --data /var/lib/whimbrel";

/// Arguments of `whimbrel backup`.
#[derive(clap::Args)]
#[command(after_help = BACKUP_DETAILS)]
pub struct Backup {
    /// Where it is made; nothing may be there yet
    dest: PathBuf,
    #[command(flatten)]
    reach: Reach,
    /// Tell what was made as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `whimbrel restore`.
#[derive(clap::Args)]
#[command(after_help = RESTORE_DETAILS)]
pub struct Restore {
    /// The backup
    src: PathBuf,
    /// The data directory that is made; nothing may be in it yet
    #[arg(long, env = "WHIMBREL_DATA", hide_env_values = true, value_name = "DIR")]
    data: PathBuf,
    /// Restore it although it is damaged
    #[arg(long)]
    damaged: bool,
}

impl Backup {
    /// Makes the backup.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let control = self.reach.find()?;
        check_free(&self.dest)?;
        check_outside(&self.dest)?;
        let answer = control.begin("POST", "/api/v1/backup")?;
        let made = Making::begin(&self.dest)?;
        let manifest = receive(answer, &made)?;
        let checked = journal::check_with_bar(&made.path).context("what was copied cannot be checked")?;
        if !checked.wrong.is_empty() {
            failure::print(journal::words(&checked).as_bytes())?;
            return Err(anyhow!(
                "what was copied is damaged, so there is no backup: the journal of the broker may be, too"
            )
            .into());
        }
        finish(made, &manifest)?;
        let bytes: u64 = manifest.files.iter().map(|file| file.used).sum();
        if self.json {
            let path = self.dest.display().to_string();
            let told = serde_json::json!({
                "path": path, "taken_ms": manifest.taken_ms, "files": manifest.files.len(), "bytes": bytes,
                "records": records(&checked), "entries": checked.entries,
            });
            print_json(&told)?;
        } else {
            let line = format!(
                "{}: {} in {}, {} and {}, as of {}; checked\n",
                self.dest.display(),
                size(bytes),
                count(manifest.files.len() as u64, "file", "files"),
                count(records(&checked), "event", "events"),
                count(checked.entries.unwrap_or(0), "entry", "entries"),
                moment(manifest.taken_ms),
            );
            failure::print(line.as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Restore {
    /// Makes the data directory.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        check_free(&self.data)?;
        check_outside(&self.data)?;
        let checked = match journal::check_with_bar(&self.src) {
            Ok(checked) => checked,
            Err(error) => {
                tell(format_args!("Error: {error}"));
                return Ok(ExitCode::from(2));
            }
        };
        if !checked.wrong.is_empty() && !self.damaged {
            failure::print(journal::words(&checked).as_bytes())?;
            return Err(
                anyhow!("the backup is damaged, and nothing was restored. Take another one, or --damaged").into()
            );
        }
        let _guard = guard(&self.src).map_err(anyhow::Error::new)?;
        let manifest = manifest_of(&self.src)?;
        let made = Making::begin(&self.data)?;
        copy(&checked.path, &made)?;
        let copied = journal::check_with_bar(&made.path).context("the copy cannot be checked")?;
        if copied.wrong.len() != checked.wrong.len() || records(&copied) != records(&checked) {
            return Err(
                anyhow!("the copy is not what the backup is: look after the disk of {}", self.data.display()).into()
            );
        }
        finish(made, &manifest)?;
        let line = format!(
            "{}: {} and {}, as of {}; start the broker as the lost one was, with --data {}\n",
            self.data.display(),
            count(records(&copied), "event", "events"),
            count(copied.entries.unwrap_or(0), "entry", "entries"),
            moment(manifest.taken_ms),
            self.data.display(),
        );
        failure::print(line.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Number of events found by a check.
fn records(checked: &Checked) -> u64 {
    checked.streams.iter().filter(|stream| stream.name.starts_with("events ")).map(|stream| stream.records).sum()
}

/// A directory that is being made under another name. It is removed unless it is completed.
struct Making {
    path: PathBuf,
    becomes: PathBuf,
    is_whole: bool,
}

impl Making {
    fn begin(becomes: &Path) -> anyhow::Result<Making> {
        let becomes = std::path::absolute(becomes).context("there is no such place")?;
        let mut path = OsString::from(&becomes);
        path.push(UNFINISHED);
        let path = PathBuf::from(path);
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}, which was never finished", path.display()))?;
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path.join(JOURNAL));
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Making { path, becomes, is_whole: false })
    }

    fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.is_whole {
            // If it cannot be removed, its name says that it is unfinished.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Gives a completed directory its name, when all of it is on the disk.
fn finish(mut made: Making, manifest: &Manifest) -> anyhow::Result<()> {
    let context = || format!("cannot finish {}", made.becomes.display());
    let at = made.path.join(Manifest::FILE);
    let text = serde_json::to_string_pretty(manifest).context("it cannot be written as JSON")? + "\n";
    let mut file = create(&at).with_context(context)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(context)?;
    sync(&made.journal()).and_then(|()| sync(&made.path)).with_context(context)?;
    if made.becomes.exists() {
        // It is empty, or this fails.
        fs::remove_dir(&made.becomes).with_context(context)?;
    }
    fs::rename(&made.path, &made.becomes).with_context(context)?;
    made.is_whole = true;
    match made.becomes.parent() {
        Some(parent) => sync(parent).with_context(context),
        None => Ok(()),
    }
}

/// Creates a file that only its owner may read, as it has messages.
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn sync(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Checks that the path does not exist or is an empty directory, so that nothing is overwritten.
fn check_free(path: &Path) -> anyhow::Result<()> {
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => bail!("{} is not empty: name a directory that does not exist yet", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot use {}", path.display()))),
    }
}

/// Checks that a path is not within a data directory or a backup: it would be copied, and removed,
/// with that.
fn check_outside(path: &Path) -> anyhow::Result<()> {
    let absolute = std::path::absolute(path).context("there is no such place")?;
    let Some(there) = absolute.ancestors().find_map(|above| fs::canonicalize(above).ok()) else { return Ok(()) };
    for above in there.ancestors() {
        let entries = fs::read_dir(above.join(JOURNAL)).into_iter().flatten().flatten();
        if entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(|name| name.ends_with(SEGMENT))) {
            bail!(
                "{} lies within {}, where a journal is: name a place outside of it, best on another disk",
                path.display(),
                above.display()
            );
        }
    }
    Ok(())
}

/// Receives a backup from the broker.
fn receive(answer: Answer, made: &Making) -> anyhow::Result<Manifest> {
    let mut body = answer.body;
    let broke_off = "the backup broke off: the broker has ended or given it up; its log says why";
    let mut line = String::new();
    body.by_ref().take(MANIFEST_MAX).read_line(&mut line).context(broke_off)?;
    let manifest: Manifest = serde_json::from_str(&line).context("the broker sends something else than a backup")?;
    if manifest.format != Manifest::FORMAT {
        bail!("the backup has form {}, this program knows {}", manifest.format, Manifest::FORMAT);
    }
    let bar = progress::bytes("copying");
    bar.set_length(manifest.files.iter().map(|file| file.used).sum());
    let mut piece = vec![0; PIECE];
    for BackupFile { name, bytes, used } in &manifest.files {
        let is_name = name.ends_with(SEGMENT) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        if !is_name || used > bytes || *bytes > FILE_MAX {
            bail!("the broker sends something else than a backup");
        }
        let path = made.journal().join(name);
        let context = || format!("cannot write {}", path.display());
        let mut file = create(&path).with_context(context)?;
        let mut left = *used;
        while left > 0 {
            let part = &mut piece[..PIECE.min(left as usize)];
            body.read_exact(part).context(broke_off)?;
            file.write_all(part).with_context(context)?;
            left -= part.len() as u64;
            bar.inc(part.len() as u64);
        }
        file.set_len(*bytes).and_then(|()| file.sync_all()).with_context(context)?;
    }
    line.clear();
    body.take(MANIFEST_MAX).read_line(&mut line).context(broke_off)?;
    let is_finished = serde_json::from_str::<Finished>(&line).is_ok_and(|end| end.finished);
    bar.finish_and_clear();
    if is_finished { Ok(manifest) } else { Err(anyhow!(broke_off)) }
}

/// Copies the segment files of a journal that is not in use, as they are: zeros are written, too,
/// so that the broker later writes where the disk already has room.
fn copy(from: &Path, made: &Making) -> anyhow::Result<()> {
    let reading = || format!("cannot read {}", from.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(from).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(SEGMENT)) {
            files.push((entry.path(), entry.file_name(), entry.metadata().with_context(reading)?.len()));
        }
    }
    let bar = progress::bytes("copying");
    bar.set_length(files.iter().map(|(.., bytes)| bytes).sum());
    let mut piece = vec![0; PIECE];
    for (from, name, bytes) in files {
        let to = made.journal().join(name);
        let context = || format!("cannot copy {} to {}", from.display(), to.display());
        let mut source = File::open(&from).with_context(context)?;
        let mut file = create(&to).with_context(context)?;
        let mut left = bytes;
        while left > 0 {
            let part = &mut piece[..PIECE.min(left as usize)];
            source.read_exact(part).and_then(|()| file.write_all(part)).with_context(context)?;
            left -= part.len() as u64;
            bar.inc(part.len() as u64);
        }
        file.sync_all().with_context(context)?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// The manifest of a backup; of a copy of a data directory, one with the time of the last write.
fn manifest_of(src: &Path) -> anyhow::Result<Manifest> {
    let path = src.join(Manifest::FILE);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is not understood", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let journal = journal_in(src);
            let entries = fs::read_dir(&journal).with_context(|| format!("cannot read {}", journal.display()))?;
            let changed = entries.filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok());
            let taken = changed.max().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
            Ok(Manifest {
                format: Manifest::FORMAT,
                name: String::new(),
                version: version::SHORT.to_owned(),
                taken_ms: u64::try_from(taken.as_millis()).unwrap_or(0),
                files: Vec::new(),
            })
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display()))),
    }
}
