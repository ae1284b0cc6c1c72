//! Known vulnerabilities of packages in the lock files.
//!
//! The public advisory database is not always available, so the advisories that may concern this
//! project are in `advisories.toml` and are checked on every run. `make audit` checks against the
//! whole database where it can be fetched.

use std::path::Path;

use anyhow::{Context, Result};
use semver::{Version, VersionReq};
use serde::Deserialize;

use super::Finding;

/// Lock files that are checked; the second exists only where fuzz targets do.
const LOCK_FILES: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

/// A known vulnerability of a package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    /// Identifier in the RustSec database.
    pub id: String,
    /// The package concerned.
    pub package: String,
    /// Title of the vulnerability.
    pub title: String,
    /// Versions in which it is fixed.
    #[serde(default)]
    pub patched: Vec<VersionReq>,
    /// Versions that never had it.
    #[serde(default)]
    pub unaffected: Vec<VersionReq>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    advisory: Vec<Advisory>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: Version,
}

/// Checks the lock files below `root` against `advisories.toml`.
///
/// # Errors
/// When a file cannot be read or does not parse.
pub fn check_files(root: &Path) -> Result<Vec<Finding>> {
    let table = std::fs::read_to_string(root.join("advisories.toml")).context("cannot read advisories.toml")?;
    let advisories = parse(&table)?;
    let mut findings = Vec::new();
    for (index, name) in LOCK_FILES.iter().enumerate() {
        let path = root.join(name);
        if index == 0 || path.is_file() {
            let lock = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
            findings.extend(check(&advisories, name, &lock)?);
        }
    }
    Ok(findings)
}

/// Parses `advisories.toml`.
///
/// # Errors
/// When it does not parse.
pub fn parse(table: &str) -> Result<Vec<Advisory>> {
    Ok(toml::from_str::<Table>(table).context("advisories.toml")?.advisory)
}

/// Checks one lock file.
///
/// # Errors
/// When it does not parse.
pub fn check(advisories: &[Advisory], name: &str, lock: &str) -> Result<Vec<Finding>> {
    let lock: Lock = toml::from_str(lock).with_context(|| name.to_owned())?;
    let mut findings = Vec::new();
    for package in &lock.package {
        for advisory in advisories.iter().filter(|a| a.package == package.name && a.concerns(&package.version)) {
            let mended: Vec<String> = advisory.patched.iter().map(ToString::to_string).collect();
            let mended = if mended.is_empty() { "in no version".into() } else { format!("in {}", mended.join(" or ")) };
            let Locked { name: package, version } = package;
            let message = format!("{package} {version} has {}: {}; mended {mended}", advisory.id, advisory.title);
            findings.push(Finding::new(name, "advisory", message));
        }
    }
    Ok(findings)
}

impl Advisory {
    fn concerns(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|fine| fine.matches(version))
    }
}
