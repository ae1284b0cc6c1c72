//! The output of `cargo metadata`: the workspace and everything it is built from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The resolved dependency graph, all platforms together.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// All packages in the graph, including the workspace's own.
    pub packages: Vec<Package>,
    /// Ids of the workspace's own packages.
    pub workspace_members: Vec<String>,
    /// The edges of the graph.
    pub resolve: Resolve,
}

/// A package.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Identifier, unique in the graph.
    pub id: String,
    /// Name in its manifest.
    pub name: String,
    /// Version in its manifest.
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    /// File with the licence, given instead of an expression.
    pub license_file: Option<String>,
    /// Description in one line.
    pub description: Option<String>,
    /// Path of its `Cargo.toml`.
    pub manifest_path: String,
}

/// The resolved graph.
#[derive(Debug, Deserialize)]
pub struct Resolve {
    /// One node per package.
    pub nodes: Vec<Node>,
}

/// A package and its dependencies.
#[derive(Debug, Deserialize)]
pub struct Node {
    /// The package's id.
    pub id: String,
    /// The package's dependencies.
    pub deps: Vec<Dependency>,
}

/// One edge of the graph.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The id of the package that is depended on.
    pub pkg: String,
    /// The kinds of the dependency.
    pub dep_kinds: Vec<DependencyKind>,
}

/// The kind of a dependency.
#[derive(Debug, Deserialize)]
pub struct DependencyKind {
    /// `None` for a normal dependency, otherwise `dev` or `build`.
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
    /// Runs `cargo metadata` for the workspace at `root`, with the lock file unchanged.
    ///
    /// # Errors
    /// When cargo cannot be run, the lock file is not up to date, or the output cannot be parsed.
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

    /// Parses the output of `cargo metadata`.
    ///
    /// # Errors
    /// When it does not parse.
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

    /// The dependencies of the package with this id.
    pub fn dependencies(&self, id: &str) -> &[Dependency] {
        self.resolve.nodes.iter().find(|node| node.id == id).map_or(&[], |node| &node.deps)
    }

    /// The packages that `id` reaches through normal dependencies, by name, with the path from
    /// `id`.
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
