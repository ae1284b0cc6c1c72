//! Paths and words that deterministic crates must not name.

use super::Finding;
use super::rust::{RustFile, Word, path_at};
use super::tables::{IMPURE_MACROS, IMPURE_PATHS, IMPURE_WORDS};
use super::uses::{Uses, is_within};

/// Checks one source of a pure crate, except its tests.
pub fn check(source: &RustFile) -> Vec<Finding> {
    let uses = Uses::of(source);
    let mut findings: Vec<Finding> =
        uses.paths.iter().filter_map(|(line, path)| check_path(source, *line, path)).collect();
    findings.extend(uses.globs.iter().filter_map(|(line, module)| check_glob(source, *line, module)));
    findings.extend(check_words(source));
    findings.sort();
    findings.dedup();
    findings
}

fn check_path(source: &RustFile, line: usize, path: &str) -> Option<Finding> {
    let (banned, reason) = IMPURE_PATHS.iter().find(|(banned, _)| is_within(path, banned))?;
    Some(Finding::new(source.place(line), "purity", format!("`{banned}`: {reason}")))
}

fn check_glob(source: &RustFile, line: usize, module: &str) -> Option<Finding> {
    let hides = |path: &str| path.starts_with(&format!("{module}::"));
    IMPURE_PATHS.iter().any(|(path, _)| hides(path)).then(|| {
        let message = format!("`{module}::*` may bring in what is banned; name what is used");
        Finding::new(source.place(line), "purity", message)
    })
}

/// Checks single words, and the macros that are called.
fn check_words(source: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut position = 0;
    while let Some((word, line)) = source.words.get(position) {
        let (Word::Name(_), false) = (word, source.is_test_line(*line)) else {
            position += 1;
            continue;
        };
        let (path, length) = path_at(&source.words[position..]);
        findings.extend(path.iter().filter_map(|name| check_word(source, *line, name)));
        let called = source.words.get(position + length).is_some_and(|(next, _)| *next == Word::Sign('!'));
        let last = path.last().map_or("", String::as_str);
        if called && IMPURE_MACROS.contains(&last) {
            let message = format!("`{last}!`: output belongs to the drivers");
            findings.push(Finding::new(source.place(*line), "purity", message));
        }
        position += length;
    }
    findings
}

fn check_word(source: &RustFile, line: usize, name: &str) -> Option<Finding> {
    let (word, reason) = IMPURE_WORDS.iter().find(|(word, _)| *word == name)?;
    Some(Finding::new(source.place(line), "purity", format!("`{word}`: {reason}")))
}
