//! `cargo xtask COMMAND`: the project's own checks and chores.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const HELP: &str = "\
usage: cargo xtask COMMAND

  tidy    check layers, purity of the core, budgets, licences and known advisories
  help    print this text";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_else(|| "help".into());
    match command.as_str() {
        "tidy" => match tidy(&workspace_root()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("tidy could not look: {error:#}");
                ExitCode::FAILURE
            }
        },
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        other => {
            eprintln!("xtask has no command `{other}`\n\n{HELP}");
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
