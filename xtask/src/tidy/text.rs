//! Rules about the text of files.

use super::Finding;
use super::rust::{RustFile, Word, has_marker};
use super::tables::UNSAFE_FILES;

// In parts, so that this file itself keeps the rules.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
const UNFINISHED_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const TEMPORARY: &str = concat!("/t", "mp");
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
];
const LOCK_FILES: &[&str] = &["Cargo.lock", "package-lock.json", "go.sum", "requirements.lock"];
/// Third-party files, as published.
const VENDOR: &str = "console/vendor/";
const CODE: &[&str] = &["sh", "py", "js", "mjs", "ts"];
const SLEEPS: &[&str] = &["sleep", "sleep_ms", "sleep_until", "park_timeout"];

/// Checks any text file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if LOCK_FILES.contains(&name) || path.starts_with(VENDOR) {
        return Vec::new();
    }
    let code = is_code(path, name);
    let mut findings = Vec::new();
    let mut previous = "";
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{path}:{}", index + 1);
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
            findings.push(Finding::new(
                place(),
                "unfinished",
                format!("`{word}`: finish it, or write down why it is so"),
            ));
        }
        if let Some(machine) = MACHINE_PATHS.iter().find(|part| names_path(line, part)) {
            findings.push(Finding::new(place(), "machine-path", format!("`{machine}…` exists on one machine only")));
        }
        if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
            findings.push(Finding::new(
                place(),
                "registry",
                format!("`{host}`: leave the choice of registry to the user's set-up"),
            ));
        }
        if code && !is_test_path(path) && names_path(line, TEMPORARY) {
            findings.push(temporary(place()));
        }
        if code && is_test_path(path) && sleeps(line) && !has_marker(line, "poll") && !has_marker(previous, "poll") {
            findings.push(sleeping(place()));
        }
        previous = line;
    }
    findings
}

/// Checks a Rust source.
pub fn check_rust(source: &RustFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(line) = source.mentions_unsafe()
        && !UNSAFE_FILES.iter().any(|(path, _)| *path == source.path)
    {
        let message = "unsafe code in a file that UNSAFE_FILES does not list with a reason";
        findings.push(Finding::new(source.place(line), "unsafe", message));
    }
    let names_pause = source.words.iter().any(|(word, _)| *word == Word::Name("start_paused".into()));
    for (index, (word, line)) in source.words.iter().enumerate() {
        let next = source.words.get(index + 1).map(|(word, _)| word);
        match word {
            Word::Name(name) if next == Some(&Word::Sign('!')) && UNFINISHED_MACROS.contains(&name.as_str()) => {
                findings.push(Finding::new(source.place(*line), "unfinished", format!("`{name}!` must not stay")));
            }
            Word::Name(name) if name == "ignore" && is_attribute(source, index) => {
                findings.push(Finding::new(
                    source.place(*line),
                    "ignored-test",
                    "a test runs or goes; mend it or remove it",
                ));
            }
            Word::Name(name) if next == Some(&Word::Sign('(')) && SLEEPS.contains(&name.as_str()) => {
                let virtual_time = names_pause && !follows(source, index, "thread") && !follows(source, index, "fn");
                if source.is_test_line(*line) && !virtual_time && !is_poll(source, *line) {
                    findings.push(sleeping(source.place(*line)));
                }
            }
            Word::Literal(text) if !source.is_test_line(*line) && names_path(text, TEMPORARY) => {
                findings.push(temporary(source.place(*line)));
            }
            _ => {}
        }
    }
    findings
}

fn is_code(path: &str, name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending
        .map_or(name == "Makefile" || path.starts_with("scripts/") || path.starts_with("tests/"), |e| CODE.contains(&e))
}

fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests")
}

fn temporary(place: String) -> Finding {
    Finding::new(place, "machine-path", format!("`{TEMPORARY}`: ask the system for a temporary directory"))
}

fn sleeping(place: String) -> Finding {
    let message = "a test must not sleep: wait for the condition or use virtual time (between two looks at a condition: \
                   `tidy: poll — what is awaited`)";
    Finding::new(place, "sleeping-test", message)
}

/// Whether the name at `index` is that of an attribute, `#[name`.
fn is_attribute(source: &RustFile, index: usize) -> bool {
    let before = |back: usize| index.checked_sub(back).map(|at| &source.words[at].0);
    before(1) == Some(&Word::Sign('[')) && before(2) == Some(&Word::Sign('#'))
}

/// Whether the name at `index` follows `word`, or `word::`.
fn follows(source: &RustFile, index: usize, word: &str) -> bool {
    let before = |back: usize| index.checked_sub(back).map(|at| &source.words[at].0);
    let named = Word::Name(word.to_owned());
    before(1) == Some(&named) || (before(1) == Some(&Word::PathSeparator) && before(2) == Some(&named))
}

fn is_poll(source: &RustFile, line: usize) -> bool {
    let text = |line: usize| line.checked_sub(1).and_then(|at| source.lines.get(at)).map_or("", String::as_str);
    has_marker(text(line), "poll") || has_marker(text(line.saturating_sub(1)), "poll")
}

/// Whether a line of a script in another language waits for a time.
fn sleeps(line: &str) -> bool {
    let line = line.trim_start();
    ["time.sleep(", "asyncio.sleep(", "setTimeout(", "waitForTimeout("].iter().any(|call| line.contains(call))
        || line.starts_with("sleep ")
        || line.contains("; sleep ")
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let after = &line[at + word.len()..];
        !line[..at].ends_with(part) && !after.starts_with(part)
    })
}

/// Whether the line has an absolute path that begins with `start`.
fn names_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        let inside =
            |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '+' | '#' | '}' | ')' | '$' | '*');
        let after = &line[at + start.len()..];
        !line[..at].ends_with(inside) && (start.ends_with('/') || !after.starts_with(|c: char| c.is_alphanumeric()))
    })
}
