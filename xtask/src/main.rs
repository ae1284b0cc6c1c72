//! `cargo xtask COMMAND`: the project's own checks and chores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use xtask::tidy::{Report, ratchet};

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy                       check layers, purity of the core, budgets, licences and known advisories
  tidy --list RULE           print what a rule counts, and where
  tidy --lower               lower the numbers of what is above its limit and has fallen; none is raised
  tokens REVISION [PATH…]    show that the Rust files have the same tokens as in a revision of git: comments
                             and white space may differ, and last commas of lists
  help                       print this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let (command, rest) = arguments.split_first().map_or(("help", &[][..]), |(first, rest)| (first.as_str(), rest));
    let passed = match command {
        "tidy" => tidy(&root, rest),
        "tokens" => tokens(&root, rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(true)
        }
        other => {
            eprintln!("xtask has no command `{other}`\n\n{HELP}");
            Ok(false)
        }
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{command} could not look: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Prints what was found; true when it was nothing.
fn tidy(root: &Path, arguments: &[String]) -> Result<bool> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let report = xtask::tidy::run(root).with_context(|| format!("in {}", root.display()))?;
    match arguments[..] {
        [] => {}
        ["--lower"] => return lower(root, &report),
        ["--list", rule] => return list(rule, &report),
        _ => bail!("it has no arguments `{}`", arguments.join(" ")),
    }
    for finding in &report.findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} packages, {} findings", report.files, report.packages, report.findings.len());
    Ok(report.findings.is_empty())
}

/// Writes the lower numbers of what has fallen.
fn lower(root: &Path, report: &Report) -> Result<bool> {
    let path = root.join(ratchet::PATH);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", ratchet::PATH))?;
    let lower = ratchet::lower(&text, &report.measures)?;
    let changed = text.lines().filter(|line| !lower.lines().any(|other| other == *line)).count();
    if lower != text {
        std::fs::write(&path, lower).with_context(|| format!("cannot write {}", ratchet::PATH))?;
    }
    println!("tidy: {changed} rows of {} lowered", ratchet::PATH);
    Ok(true)
}

/// Prints what a rule counts, and where.
fn list(rule: &str, report: &Report) -> Result<bool> {
    let mut measures = report.measures.iter().filter(|measure| measure.rule == rule).peekable();
    if measures.peek().is_none() {
        bail!("no rule `{rule}` counts anything");
    }
    for measure in measures {
        println!("{} {}: {} (limit {})", measure.rule, measure.subject, measure.count, measure.limit);
        measure.places.iter().for_each(|place| println!("  {place}"));
    }
    Ok(true)
}

/// Prints what differs; true when it was nothing.
fn tokens(root: &Path, arguments: &[String]) -> Result<bool> {
    let Some((revision, paths)) = arguments.split_first() else { bail!("it needs a revision to compare with") };
    let comparison = xtask::tokens::run(root, revision, paths)?;
    println!("{comparison}");
    Ok(comparison.differences.is_empty())
}
