//! Checks of the house rules.
//!
//! Everything that is allowed or forbidden by name is in [`tables`]. Each of the other modules has
//! one kind of rule and takes its input as arguments, so that each rule has a test in which it must
//! fail.
//!
//! A Rust item is excused from the size budgets by the comment `tidy: table` and a reason directly
//! above it, a whole file by the same comment on its first line, a wait in a test by `tidy: poll`
//! and a reason. A marker without a reason counts for nothing.
//!
//! Counts with a limit that is not kept everywhere yet are held by [`ratchet`].

pub mod advisories;
pub mod budgets;
pub mod comments;
pub mod commits;
pub mod composition;
pub mod cycles;
pub mod faults;
mod finding;
pub mod hashes;
pub mod layers;
pub mod metadata;
pub mod modules;
pub mod names;
pub mod purity;
pub mod ratchet;
pub mod rust;
pub mod seams;
pub mod signatures;
pub mod supply;
pub mod tables;
pub mod text;
pub mod uses;

use std::path::Path;

use anyhow::{Context, Result};

pub use self::finding::Finding;
use self::metadata::Metadata;
use self::ratchet::Measure;
use self::rust::RustFile;
use crate::git::git;

/// The results of a run over the workspace.
#[derive(Debug)]
pub struct Report {
    /// The findings, sorted by place.
    pub findings: Vec<Finding>,
    /// All counts, within their limits or not.
    pub measures: Vec<Measure>,
    /// The number of files read.
    pub files: usize,
    /// The number of packages in the resolved dependency graph.
    pub packages: usize,
}

/// Checks the workspace at `root`.
///
/// # Errors
/// When `git` or `cargo metadata` cannot be run, a table file does not parse, or a listed file
/// cannot be read.
pub fn run(root: &Path) -> Result<Report> {
    let metadata = Metadata::load(root)?;
    let mut findings = layers::check(&metadata);
    findings.extend(supply::check(&metadata));
    findings.extend(advisories::check_files(root)?);

    let files = read_files(root)?;
    for (path, text) in &files {
        findings.extend(text::check(path, text));
    }
    let sources = parse(&files)?;
    findings.extend(check_rust(&sources));
    findings.extend(commits::check(root));
    let measures = measure(&sources);
    findings.extend(ratchet::check(&ratchet::parse(ratchet::ROWS)?, &measures));
    findings.sort();
    Ok(Report { findings, measures, files: files.len(), packages: metadata.packages.len() })
}

fn parse(files: &[(String, String)]) -> Result<Vec<RustFile>> {
    let mut sources = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        sources.push(RustFile::parse(path, text).with_context(|| format!("{path} does not parse"))?);
    }
    rust::mark_test_files(&mut sources);
    Ok(sources)
}

fn check_rust(sources: &[RustFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        findings.extend(budgets::check(source));
        findings.extend(text::check_rust(source));
        if tables::is_pure(&source.path) {
            findings.extend(purity::check(source));
        }
    }
    findings.extend(hashes::check(sources));
    findings.extend(seams::check(sources));
    findings.extend(tables::check_rows(sources));
    findings
}

fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let rules = [
        composition::measure,
        signatures::measure,
        cycles::measure,
        names::measure,
        comments::measure,
        faults::measure,
    ];
    rules.iter().flat_map(|rule| rule(sources)).collect()
}

/// All text files that are committed or could be (not ignored), as (path below root, contents),
/// sorted.
fn read_files(root: &Path) -> Result<Vec<(String, String)>> {
    let listing = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"], &[])?;
    let mut files = Vec::new();
    for path in String::from_utf8_lossy(&listing).split_terminator('\0') {
        let full = root.join(path);
        // The file is deleted but still in the index.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push((path.to_owned(), text));
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}
