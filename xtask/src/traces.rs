//! Compares the bytes that brokers send in simulated worlds with those of an earlier version, by
//! digests.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Worlds of a family that are named at most if they differ.
const NAMED: usize = 5;

/// Digests by family and seed.
type Traces = BTreeMap<(String, u64), String>;

/// The result of comparing two lists of digests.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of worlds in both lists.
    pub compared: usize,
    /// The worlds whose digests differ, by family.
    pub different: BTreeMap<String, Vec<u64>>,
}

/// Runs the worlds of all families and writes their digests to a file.
pub fn take(root: &Path, file: &Path) -> Result<usize> {
    let text = play(root)?;
    std::fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(text.lines().count())
}

/// Runs the worlds of all families and compares their digests with those in a file.
pub fn compare_with(root: &Path, file: &Path) -> Result<Comparison> {
    let known = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    compare(&known, &play(root)?)
}

fn play(root: &Path) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = "run --locked --quiet --profile quick --package whimbrel-sim --example traces";
    let output = Command::new(cargo).args(arguments.split(' ')).current_dir(root).output();
    let output = output.context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the worlds could not be played:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("the list of digests is not text")
}

/// Compares two lists of digests. Worlds that only one of them has are ignored; it is an error if
/// there is no common world.
pub fn compare(known: &str, now: &str) -> Result<Comparison> {
    let (known, now) = (parse(known)?, parse(now)?);
    let mut comparison = Comparison::default();
    for ((family, seed), digest) in &known {
        let Some(other) = now.get(&(family.clone(), *seed)) else { continue };
        comparison.compared += 1;
        if digest != other {
            comparison.different.entry(family.clone()).or_default().push(*seed);
        }
    }
    ensure!(comparison.compared > 0, "the two lists have no world in common");
    Ok(comparison)
}

fn parse(text: &str) -> Result<Traces> {
    text.lines().enumerate().map(|(at, line)| parse_line(line).with_context(|| format!("line {}", at + 1))).collect()
}

fn parse_line(line: &str) -> Result<((String, u64), String)> {
    let (family, rest) = line.split_once(' ').context("family, seed, streams and digest are expected")?;
    let (seed, digest) = rest.split_once(' ').context("seed, streams and digest are expected")?;
    Ok(((family.to_owned(), seed.parse().context("the seed is a whole number")?), digest.to_owned()))
}

impl Comparison {
    /// The report: one line for each family that differs, and one for all.
    pub fn report(&self) -> String {
        let mut lines = Vec::new();
        for (family, seeds) in &self.different {
            let named: Vec<String> = seeds.iter().take(NAMED).map(u64::to_string).collect();
            let more = if seeds.len() > NAMED { ", …" } else { "" };
            lines.push(format!("{family}: {} worlds differ, of seeds {}{more}", seeds.len(), named.join(", ")));
        }
        let different: usize = self.different.values().map(Vec::len).sum();
        lines.push(format!("traces: {} worlds compared, {different} differ", self.compared));
        if different > 0 {
            let look = "cargo run --profile quick -p whimbrel-sim --example traces FAMILY SEED";
            lines.push(format!("to see which streams of a world differ, run this with both versions: {look}"));
        }
        lines.join("\n")
    }
}
