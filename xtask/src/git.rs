//! What git knows of the project.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The output of a git command in `root`, restricted to these paths, or to none in particular.
pub fn git(root: &Path, arguments: &[&str], paths: &[String]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root);
    if !paths.is_empty() {
        command.arg("--").args(paths);
    }
    let answer = command.output().context("git cannot be run; it tells which files and commits there are")?;
    if !answer.status.success() {
        bail!("git {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&answer.stderr).trim());
    }
    Ok(answer.stdout)
}

/// As [`git`], as text.
pub fn git_text(root: &Path, arguments: &[&str], paths: &[String]) -> Result<String> {
    let answer = git(root, arguments, paths)?;
    String::from_utf8(answer).with_context(|| format!("git {}: its answer is not UTF-8", arguments.join(" ")))
}
