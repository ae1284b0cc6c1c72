//! The subjects of commits.

use std::path::Path;

use super::Finding;
use super::tables::LAST_FREE_COMMIT;
use crate::git::git;

/// Columns of a commit's first line.
pub const SUBJECT_COLUMNS: usize = 72;

/// Checks the commits since [`LAST_FREE_COMMIT`], as far as the history is available: a shallow
/// clone has less, or none.
pub fn check(root: &Path) -> Vec<Finding> {
    let range = format!("{LAST_FREE_COMMIT}..HEAD");
    let Ok(log) = git(root, &["log", "--no-merges", "--format=%h%x09%s", &range], &[]) else { return Vec::new() };
    String::from_utf8_lossy(&log)
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(hash, subject)| check_one(hash, subject))
        .collect()
}

/// Checks the first line of one commit.
pub fn check_one(hash: &str, subject: &str) -> Option<Finding> {
    let columns = subject.chars().count();
    if columns > SUBJECT_COLUMNS {
        let message = format!("`{subject}` has {columns} columns, the limit is {SUBJECT_COLUMNS}; say why in the body");
        return Some(Finding::new(hash, "commit-subject", message));
    }
    let message = format!("`{subject}` is not of the form `area: what is different`");
    (!has_area(subject)).then(|| Finding::new(hash, "commit-subject", message))
}

/// Whether the subject begins with the area of the change, in lower case, and has a description.
fn has_area(subject: &str) -> bool {
    let Some((area, what)) = subject.split_once(": ") else { return false };
    let sign = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '/' | '_' | '.');
    let is_name = |name: &str| !name.is_empty() && name.chars().all(sign);
    area.split(", ").all(is_name) && !what.trim().is_empty()
}
