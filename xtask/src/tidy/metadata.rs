//! What `cargo metadata` says of the workspace and of everything it is built from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The resolved dependency graph, all platforms together.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Every package in the graph, the workspace's own among them.
    pub packages: Vec<Package>,
    /// Ids of the workspace's own packages.
    pub workspace_members: Vec<String>,
    /// Who uses whom.
    pub resolve: Resolve,
}

/// A package.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Unique in the graph.
    pub id: String,
    /// Name in its manifest.
    pub name: String,
    /// Version in its manifest.
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    /// File with the licence, given instead of an expression.
    pub license_file: Option<String>,
    /// One line about it.
    pub description: Option<String>,
    /// Its `Cargo.toml`.
    pub manifest_path: String,
}

/// The resolved graph.
#[derive(Debug, Deserialize)]
pub struct Resolve {
    /// One per package.
    pub nodes: Vec<Node>,
}

/// A package and what it uses.
#[derive(Debug, Deserialize)]
pub struct Node {
    /// The package's id.
    pub id: String,
    /// What it uses.
    pub deps: Vec<Dependency>,
}

/// One edge of the graph.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The id of the package used.
    pub pkg: String,
    /// In which ways it is used.
    pub dep_kinds: Vec<DependencyKind>,
}

/// How a package is used.
#[derive(Debug, Deserialize)]
pub struct DependencyKind {
    /// Nothing for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
}

impl Dependency {
    /// Whether it becomes part of the package itself, not only of its tests or its build.
    pub fn is_normal(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }

    /// Whether only tests, examples and benchmarks use it.
    pub fn is_dev_only(&self) -> bool {
        self.dep_kinds.iter().all(|kind| kind.kind.as_deref() == Some("dev"))
    }
}

impl Metadata {
    /// Asks cargo about the workspace at `root`, with the lock file as it is.
    ///
    /// # Errors
    /// When cargo cannot be run, the lock file is not up to date, or the answer cannot be read.
    pub fn load(root: &Path) -> Result<Metadata> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let answer = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root)
            .output()
            .context("cargo cannot be run")?;
        if !answer.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&answer.stderr).trim());
        }
        Metadata::parse(&answer.stdout)
    }

    /// Reads the answer of `cargo metadata`.
    ///
    /// # Errors
    /// When it is not such an answer.
    pub fn parse(json: &[u8]) -> Result<Metadata> {
        serde_json::from_slice(json).context("cargo metadata printed something unexpected")
    }

    /// The workspace's own packages.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The package with this id.
    pub fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// What the package with this id uses.
    pub fn dependencies(&self, id: &str) -> &[Dependency] {
        self.resolve.nodes.iter().find(|node| node.id == id).map_or(&[], |node| &node.deps)
    }

    /// The packages that `id` reaches through normal dependencies: name, and the way from `id` to
    /// it.
    pub fn reached(&self, id: &str) -> BTreeMap<String, String> {
        let mut ways = BTreeMap::new();
        let mut seen = BTreeSet::from([id]);
        let mut open = vec![(id, String::new())];
        while let Some((from, way)) = open.pop() {
            for dependency in self.dependencies(from).iter().filter(|d| d.is_normal()) {
                let Some(package) = self.package(&dependency.pkg) else { continue };
                if seen.insert(&package.id) {
                    let way = if way.is_empty() { package.name.clone() } else { format!("{way} -> {}", package.name) };
                    ways.insert(package.name.clone(), way.clone());
                    open.push((&package.id, way));
                }
            }
        }
        ways
    }
}
