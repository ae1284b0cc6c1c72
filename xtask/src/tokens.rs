//! Whether the Rust files of the working tree have the same tokens as those of a revision.
//!
//! `cargo xtask tokens REVISION` proves that a commit that rewrites comments changes no code.
//! [`sequence::of`] defines the tokens that count. A file that was added or removed is a
//! difference; a file that git regards as renamed is compared under its new name, and reported.
//! Files that are not Rust are not compared, and are reported if they differ.

pub mod sequence;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::sequence::{Difference, Sequence};
use crate::git::git_text;

/// The result of comparing a working tree with a revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of Rust files in both, with or without differences in their text.
    pub compared: usize,
    /// The number of these whose text differs.
    pub differ_in_text: usize,
    /// Each file whose tokens differ, or that was added or removed.
    pub differences: Vec<String>,
    /// Files that are no difference, but need a review: renames, files that are not Rust, doc
    /// comments that a macro may read.
    pub notes: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for difference in &self.differences {
            writeln!(f, "{difference}")?;
        }
        let Outcome { compared, differ_in_text, .. } = self;
        let differences = self.differences.len();
        write!(
            f,
            "tokens: {compared} Rust files compared, {differ_in_text} differ in text, {differences} differ in code"
        )
    }
}

/// Compares the Rust files at or below `paths` (all files if it is empty) of the working tree at
/// `root` with those of `revision`.
///
/// # Errors
/// When git cannot be run or does not know the revision or a path, or a file cannot be read or is
/// not Rust.
pub fn run(root: &Path, revision: &str, paths: &[String]) -> Result<Outcome> {
    let commit =
        git_text(root, &["rev-parse", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")], &[])?;
    let commit = commit.trim();
    let mut outcome = Outcome::default();
    let mut same = rust_files(&git_text(root, &["ls-files", "-z"], paths)?);
    let changes = changes(root, commit, paths)?;
    let nothing = same == 0 && changes.is_empty();
    if nothing && !paths.is_empty() && git_text(root, &["ls-tree", "-r", "--name-only", commit], paths)?.is_empty() {
        bail!("there is no file at {}, now or then", paths.join(" "));
    }
    for change in changes {
        let is_rust = |path: &Option<String>| path.as_deref().is_some_and(|path| path.ends_with(".rs"));
        if is_rust(&change.now) {
            same -= usize::from(change.tracked);
        }
        if is_rust(&change.now) || is_rust(&change.then) {
            look_at(root, commit, &change, &mut outcome)?;
        } else {
            let path = change.now.or(change.then).unwrap_or_default();
            outcome.notes.push(format!("{path} differs and is not Rust; it is not compared"));
        }
    }
    outcome.compared += same;
    Ok(outcome)
}

/// A file that differs: its path in the revision and in the working tree.
struct Change {
    then: Option<String>,
    now: Option<String>,
    /// Whether the file of the working tree is tracked by git.
    tracked: bool,
}

fn look_at(root: &Path, commit: &str, change: &Change, outcome: &mut Outcome) -> Result<()> {
    match (&change.then, &change.now) {
        (Some(then), Some(now)) => {
            let old = git_text(root, &["show", &format!("{commit}:{then}")], &[])?;
            let new = std::fs::read_to_string(root.join(now)).with_context(|| format!("cannot read {now}"))?;
            outcome.compared += 1;
            outcome.differ_in_text += usize::from(old != new);
            if then != now {
                outcome.notes.push(format!("{now} was {then}"));
            }
            let old = sequence::of(&old).with_context(|| format!("{then} of {commit} does not parse"))?;
            let new = sequence::of(&new).with_context(|| format!("{now} does not parse"))?;
            compare(now, &old, &new, outcome);
        }
        (Some(then), None) => outcome.differences.push(format!("{then}: was removed")),
        (None, Some(now)) => outcome.differences.push(format!("{now}: was added")),
        (None, None) => {}
    }
    Ok(())
}

fn compare(path: &str, old: &Sequence, new: &Sequence, outcome: &mut Outcome) {
    if let Some(Difference { line, old, old_line, new }) = old.first_difference(new) {
        outcome.differences.push(format!("{path}:{line}: {new} stands where {old} stood (then line {old_line})"));
    }
    if old.read_docs != new.read_docs {
        let message = format!("{path}: doc comments differ that a macro may read (help texts, schemas, metrics)");
        outcome.notes.push(message);
    }
}

fn changes(root: &Path, commit: &str, paths: &[String]) -> Result<Vec<Change>> {
    let listing = git_text(root, &["diff", "--name-status", "--no-ext-diff", "-M", "-z", commit], paths)?;
    let mut changes = Vec::new();
    let mut fields = listing.split_terminator('\0').map(str::to_owned);
    while let Some(status) = fields.next() {
        let first = fields.next();
        let (then, now) = match status.as_bytes().first() {
            Some(b'A') => (None, first),
            Some(b'D') => (first, None),
            Some(b'R' | b'C') => (first, fields.next()),
            _ => (first.clone(), first),
        };
        changes.push(Change { then, now, tracked: true });
    }
    // Untracked files.
    let others = git_text(root, &["ls-files", "-z", "--others", "--exclude-standard"], paths)?;
    let others = others.split_terminator('\0').map(str::to_owned);
    changes.extend(others.map(|path| Change { then: None, now: Some(path), tracked: false }));
    Ok(changes)
}

fn rust_files(listing: &str) -> usize {
    listing.split_terminator('\0').filter(|path| path.ends_with(".rs")).count()
}
