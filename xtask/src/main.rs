//! `cargo xtask COMMAND`: the project's own checks and chores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy                       check layers, purity of the core, budgets, licences and known advisories
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
    if let Some(unknown) = arguments.first() {
        bail!("it has no argument `{unknown}`");
    }
    let report = xtask::tidy::run(root).with_context(|| format!("in {}", root.display()))?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} packages, {} findings", report.files, report.packages, report.findings.len());
    Ok(report.findings.is_empty())
}

/// Prints what differs; true when it was nothing.
fn tokens(root: &Path, arguments: &[String]) -> Result<bool> {
    let Some((revision, paths)) = arguments.split_first() else { bail!("it needs a revision to compare with") };
    let report = xtask::tokens::run(root, revision, paths)?;
    println!("{report}");
    Ok(report.differences.is_empty())
}
