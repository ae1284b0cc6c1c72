//! `cargo xtask COMMAND`: the project's own checks and chores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use xtask::traces;

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy                  check layers, purity of the core, budgets, licences and known advisories
  traces take FILE      play simulated worlds and write the digests of what their brokers send
  traces compare FILE   play them and compare with the digests of an earlier version
  help                  print this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["tidy"] => exit(tidy(&workspace_root()).context("tidy could not look")),
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

/// What the shell is told: 0 if all is well, else 1.
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

/// Prints what was found; true when it was nothing.
fn tidy(root: &Path) -> Result<bool> {
    let report = xtask::tidy::run(root).with_context(|| format!("in {}", root.display()))?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} packages, {} findings", report.files, report.packages, report.findings.len());
    Ok(report.findings.is_empty())
}

fn take_traces(file: &str) -> Result<bool> {
    let worlds = traces::take(&workspace_root(), Path::new(file))?;
    println!("traces: the digests of {worlds} worlds are in {file}");
    Ok(true)
}

/// True when no world differs.
fn compare_traces(file: &str) -> Result<bool> {
    let comparison = traces::compare_with(&workspace_root(), Path::new(file))?;
    println!("{}", comparison.report());
    Ok(comparison.different.is_empty())
}
