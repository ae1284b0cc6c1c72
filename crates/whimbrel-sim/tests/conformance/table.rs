//! The table of conformance statements and the tests that cover them.
//!
//! `WHIMBREL_WRITE_DOCS=1 cargo test -p whimbrel-sim --test conformance table` writes the document.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const STATEMENTS: &str = include_str!("statements.tsv");
/// What the broker does where the standard leaves a choice; a part of the document.
const DECISIONS: &str = include_str!("decisions.md");
const DOCUMENT: &str = "docs/mqtt-conformance.md";
/// As many numbered statements as Appendix B of MQTT 5.0 has.
const COUNT: usize = 251;
/// How deep test sources may lie below a crate.
const DEPTH_MAX: u32 = 8;

struct Statement {
    number: &'static str,
    binds: &'static str,
    summary: &'static str,
    /// Why no test covers it; empty if one must.
    reason: &'static str,
}

/// A test, and the file (from the repository's root) that it is in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    file: String,
    name: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository's root")
}

fn statements() -> Vec<Statement> {
    let lines = STATEMENTS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>().as_slice() {
            [number, binds, summary, reason] => Statement { number, binds, summary, reason },
            fields => panic!("four columns expected, got {fields:?}"),
        })
        .collect()
}

/// The Rust sources below a directory.
fn sources(directory: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    assert!(depth < DEPTH_MAX, "{} lies too deep", directory.display());
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            sources(&path, depth + 1, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The statement numbers in a `// covers:` line.
fn covered(line: &str) -> Option<impl Iterator<Item = &str>> {
    Some(line.trim().strip_prefix("// covers: ")?.split(", "))
}

/// For each statement the tests that say they cover it, from the comments above them in all crates.
fn coverage() -> BTreeMap<String, Vec<Test>> {
    let root = root();
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let path = entry.expect("a readable entry").path();
        for part in ["src", "tests"] {
            if path.join(part).is_dir() {
                sources(&path.join(part), 0, &mut files);
            }
        }
    }
    files.sort();
    let mut coverage: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a readable source");
        let file = path.strip_prefix(&root).expect("below the root").display().to_string();
        let mut open: Vec<&str> = Vec::new();
        let mut is_test = false;
        for line in text.lines() {
            if let Some(numbers) = covered(line) {
                open.extend(numbers);
            } else if line.trim_start().starts_with("#[") {
                is_test |= line.contains("test");
            } else if !open.is_empty() {
                let signature = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
                let name = signature.and_then(|rest| rest.split('(').next());
                let name = name.filter(|_| is_test).unwrap_or_else(|| panic!("{file}: no test follows {open:?}"));
                for number in open.drain(..) {
                    let test = Test { file: file.clone(), name: name.to_owned() };
                    coverage.entry(number.to_owned()).or_default().push(test);
                }
                is_test = false;
            } else {
                is_test = false;
            }
        }
        assert!(open.is_empty(), "{file}: no test follows {open:?}");
    }
    coverage
}

/// What a chapter of the standard's third part is about.
fn heading(section: &str) -> &'static str {
    match section {
        "1.5" => "Data representation",
        "2.1" => "Fixed header",
        "2.2" => "Variable header",
        "3.1" => "CONNECT",
        "3.2" => "CONNACK",
        "3.3" => "PUBLISH",
        "3.4" => "PUBACK",
        "3.5" => "PUBREC",
        "3.6" => "PUBREL",
        "3.7" => "PUBCOMP",
        "3.8" => "SUBSCRIBE",
        "3.9" => "SUBACK",
        "3.10" => "UNSUBSCRIBE",
        "3.11" => "UNSUBACK",
        "3.12" => "PINGREQ",
        "3.14" => "DISCONNECT",
        "3.15" => "AUTH",
        "4.1" => "Session state",
        "4.2" => "Network connections",
        "4.3" => "Quality of service",
        "4.4" => "Delivery retry",
        "4.5" => "Receipt",
        "4.6" => "Order",
        "4.7" => "Topic names and filters",
        "4.8" => "Shared subscriptions",
        "4.9" => "Flow control",
        "4.12" => "Enhanced authentication",
        "4.13" => "Errors",
        "6.0" => "WebSocket",
        other => panic!("section {other} has no heading"),
    }
}

fn section(number: &str) -> &str {
    let digits = number.strip_prefix("MQTT-").expect("numbers begin with MQTT-");
    let end = digits.match_indices('.').nth(1).expect("numbers have three parts").0;
    &digits[..end]
}

fn document() -> String {
    let coverage = coverage();
    let statements = statements();
    let tested = statements.iter().filter(|statement| coverage.contains_key(statement.number)).count();
    let mut text = format!(
        "<!-- Generated from crates/whimbrel-sim/tests/conformance/statements.tsv and the tests' comments; do not edit. -->\n\
         # MQTT 5.0 conformance\n\n\
         The {} numbered conformance statements of [MQTT 5.0](https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html), \
         each in short and in our own words (the standard's text is what counts), whom it binds, and the tests that cover \
         it: {tested} are covered. The tests of the simulator speak to the broker in bytes, in virtual time; what the broker \
         sends is read by a codec of their own and checked by a foreign one.\n",
        statements.len()
    );
    let mut current = "";
    let mut files: Vec<String> = Vec::new();
    for Statement { number, binds, summary, reason } in &statements {
        if section(number) != current {
            current = section(number);
            write!(
                text,
                "\n## {current} {}\n\n| Statement | Binds | In short | Tests |\n|---|---|---|---|\n",
                heading(current)
            )
            .expect("writing to a string");
        }
        let mut tests = coverage.get(*number).cloned().unwrap_or_default();
        tests.sort();
        let mut cell = Vec::new();
        for Test { file, name } in tests {
            let place = files.iter().position(|known| *known == file).unwrap_or_else(|| {
                files.push(file);
                files.len() - 1
            });
            cell.push(format!("[{name}][{}]", place + 1));
        }
        if cell.is_empty() {
            cell.push(if reason.is_empty() { "for clients only".into() } else { format!("none: {reason}") });
        }
        writeln!(text, "| {number} | {binds} | {summary} | {} |", cell.join("<br>")).expect("writing to a string");
    }
    text.push('\n');
    text.push_str(DECISIONS);
    for (place, file) in files.iter().enumerate() {
        writeln!(text, "[{}]: ../{file}", place + 1).expect("writing to a string");
    }
    text
}

#[test]
fn the_list_is_complete_and_in_order() {
    let statements = statements();
    assert_eq!(statements.len(), COUNT);
    let key = |number: &str| -> Vec<u32> {
        let digits = number.strip_prefix("MQTT-").expect("numbers begin with MQTT-");
        digits.split(['.', '-']).map(|part| part.parse().expect("a number")).collect()
    };
    assert!(statements.is_sorted_by(|a, b| key(a.number) < key(b.number)), "in order, each once");
    for Statement { number, binds, summary, .. } in &statements {
        assert!(["server", "client", "both"].contains(binds), "{number} binds {binds}");
        assert!(!summary.is_empty() && !summary.contains('|'), "{number}");
    }
}

#[test]
fn every_statement_that_binds_a_server_has_a_test() {
    let coverage = coverage();
    let missing: Vec<_> = statements()
        .iter()
        .filter(|statement| statement.binds != "client" && statement.reason.is_empty())
        .filter(|statement| !coverage.contains_key(statement.number))
        .map(|statement| format!("{}: {}", statement.number, statement.summary))
        .collect();
    assert!(missing.is_empty(), "statements without a test:\n{}", missing.join("\n"));
}

#[test]
fn tests_cover_statements_that_exist() {
    let statements = statements();
    for (number, tests) in coverage() {
        let statement = statements.iter().find(|statement| statement.number == number);
        let statement = statement.unwrap_or_else(|| panic!("{}: there is no {number}", tests[0].file));
        assert!(statement.reason.is_empty(), "{number} has a test: the reason why it has none goes");
    }
}

#[test]
fn the_document_is_up_to_date() {
    let path = root().join(DOCUMENT);
    let fresh = document();
    if std::env::var_os("WHIMBREL_WRITE_DOCS").is_some() {
        fs::write(&path, &fresh).expect("the document can be written");
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(fresh.lines()).find(|(old, new)| old != new);
    assert!(
        found == fresh,
        "{DOCUMENT} is out of date, first at {differs:?}; run this test with WHIMBREL_WRITE_DOCS=1"
    );
}
