//! `cargo xtask COMMAND`: the project's own checks and tools.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use xtask::tidy::{Report, ratchet};
use xtask::{tokens, traces};

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy                      check layers, purity of the core, budgets, licences and known advisories
  tidy --list RULE          print what a rule counts, and where
  tidy --lower              lower the numbers of what is above its limit and has fallen; none is raised
  tokens REVISION [PATH…]   show that the Rust files have the same tokens as in a revision of git: comments
                            and white space may differ, and last commas of lists
  traces take FILE          play simulated worlds and write the digests of what their brokers send
  traces compare FILE       play them and compare with the digests of an earlier version
  help                      print this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => exit(tidy(&workspace_root()).context("tidy could not look")),
        ["tidy", "--list", rule] => exit(list(&workspace_root(), rule).context("tidy could not look")),
        ["tidy", "--lower"] => exit(lower(&workspace_root()).context("tidy could not look")),
        ["tokens", revision, ref paths @ ..] => exit(compare_tokens(revision, paths)),
        ["traces", "take", file] => exit(take_traces(file)),
        ["traces", "compare", file] => exit(compare_traces(file)),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("xtask has no command `{}`\n\n{HELP}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// The exit status: 0 on success, otherwise 1.
fn exit(is_well: Result<bool>) -> ExitCode {
    match is_well {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Prints the findings; true if there is none.
fn tidy(root: &Path) -> Result<bool> {
    let report = look(root)?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} packages, {} findings", report.files, report.packages, report.findings.len());
    Ok(report.findings.is_empty())
}

fn look(root: &Path) -> Result<Report> {
    xtask::tidy::run(root).with_context(|| format!("in {}", root.display()))
}

/// Writes the lower numbers of counts that have fallen.
fn lower(root: &Path) -> Result<bool> {
    let path = root.join(ratchet::PATH);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", ratchet::PATH))?;
    let lower = ratchet::lower(&text, &look(root)?.measures)?;
    let changed = text.lines().filter(|line| !lower.lines().any(|other| other == *line)).count();
    if lower != text {
        std::fs::write(&path, lower).with_context(|| format!("cannot write {}", ratchet::PATH))?;
    }
    println!("tidy: {changed} rows of {} lowered or removed", ratchet::PATH);
    Ok(true)
}

/// Prints the places that a rule counts.
fn list(root: &Path, rule: &str) -> Result<bool> {
    let report = look(root)?;
    let measures: Vec<_> = report.measures.iter().filter(|measure| measure.rule == rule).collect();
    if measures.is_empty() {
        bail!("no rule `{rule}` counts anything");
    }
    for measure in measures {
        println!("{} {}: {} (limit {})", measure.rule, measure.subject, measure.count, measure.limit);
        measure.places.iter().for_each(|place| println!("  {place}"));
    }
    Ok(true)
}

/// Prints the differences; true if there is none.
fn compare_tokens(revision: &str, paths: &[&str]) -> Result<bool> {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let outcome = tokens::run(&workspace_root(), revision, &paths).context("tokens could not look")?;
    println!("{outcome}");
    Ok(outcome.differences.is_empty())
}

fn take_traces(file: &str) -> Result<bool> {
    let worlds = traces::take(&workspace_root(), Path::new(file))?;
    println!("traces: the digests of {worlds} worlds are in {file}");
    Ok(true)
}

/// Returns true if no world differs.
fn compare_traces(file: &str) -> Result<bool> {
    let comparison = traces::compare_with(&workspace_root(), Path::new(file))?;
    println!("{}", comparison.report());
    Ok(comparison.different.is_empty())
}
