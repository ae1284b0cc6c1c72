//! The dependencies that are allowed between crates.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::metadata::{Metadata, Package};
use super::tables::{DRIVER_PACKAGES, IMPURE_PACKAGES, LAYERS, Layer, OUTSIDE_PACKAGES};

/// Checks the workspace's crates against the table of layers.
pub fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = check_with(metadata, LAYERS);
    findings.extend(check_outside(metadata, OUTSIDE_PACKAGES));
    findings
}

/// Checks the crates that list the packages from outside the workspace which they may use.
pub fn check_outside(metadata: &Metadata, lists: &[(&str, &[&str])]) -> Vec<Finding> {
    let members: BTreeSet<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for (user, allowed) in lists {
        let of_user = metadata.members().filter(|package| package.name == *user);
        let dependencies = of_user.flat_map(|package| metadata.dependencies(&package.id));
        let own = dependencies.filter(|dependency| !dependency.is_dev_only());
        let used: BTreeSet<&str> = own
            .filter_map(|dependency| metadata.package(&dependency.pkg))
            .map(|package| package.name.as_str())
            .collect();
        for name in used.iter().filter(|name| !members.contains(*name) && !allowed.contains(*name)) {
            let message = format!("uses `{name}`; its row of OUTSIDE_PACKAGES does not list it");
            findings.push(Finding::new(*user, "layers", message));
        }
        for name in allowed.iter().filter(|name| !used.contains(*name)) {
            let message = format!("OUTSIDE_PACKAGES lists `{name}`, which it does not use; remove the name");
            findings.push(Finding::new(*user, "stale-row", message));
        }
    }
    findings
}

/// [`check`] against a given table.
pub fn check_with(metadata: &Metadata, layers: &[Layer]) -> Vec<Finding> {
    let members: BTreeSet<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for layer in layers {
        let named = [layer.name].into_iter().chain(layer.uses.iter().copied()).chain(layer.tests_use.iter().copied());
        for name in named.filter(|name| !members.contains(name)) {
            let message = format!("the row of `{}` names `{name}`, which is not in the workspace", layer.name);
            findings.push(Finding::new("xtask/src/tidy/tables.rs", "layers", message));
        }
    }
    for package in metadata.members() {
        findings.extend(check_manifest(package));
        match layers.iter().find(|layer| layer.name == package.name) {
            Some(layer) => {
                findings.extend(check_edges(metadata, package, layer, &members));
                findings.extend(check_reach(metadata, package, layer));
            }
            None => findings.push(Finding::new(
                &package.name,
                "layers",
                "is not in the table of layers; give it a row in xtask/src/tidy/tables.rs",
            )),
        }
    }
    findings
}

fn check_edges(metadata: &Metadata, package: &Package, layer: &Layer, members: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in metadata.dependencies(&package.id) {
        let Some(target) = metadata.package(&dependency.pkg) else { continue };
        let name = target.name.as_str();
        let allowed = layer.uses.contains(&name) || (dependency.is_dev_only() && layer.tests_use.contains(&name));
        if members.contains(name) && !allowed {
            let how = if dependency.is_dev_only() { "its tests use" } else { "uses" };
            let message = format!("{how} `{name}`; the table of layers has no such edge");
            findings.push(Finding::new(&package.name, "layers", message));
        }
    }
    findings
}

fn check_reach(metadata: &Metadata, package: &Package, layer: &Layer) -> Vec<Finding> {
    if !layer.pure {
        return Vec::new();
    }
    let reached = metadata.reached(&package.id);
    let excused = |way: &str| {
        let first = way.split(" -> ").next();
        DRIVER_PACKAGES.iter().any(|(user, used, _)| *user == package.name && first == Some(*used))
    };
    let impure = IMPURE_PACKAGES.iter().filter_map(|name| reached.get(*name)).filter(|way| !excused(way));
    impure
        .map(|way| Finding::new(&package.name, "purity", format!("must stay deterministic, but reaches {way}")))
        .collect()
}

/// Checks that a crate has a description, the licence and the workspace's lints.
fn check_manifest(package: &Package) -> Vec<Finding> {
    let mut findings = Vec::new();
    if package.description.as_deref().is_none_or(|text| text.trim().is_empty()) {
        findings.push(Finding::new(&package.name, "manifest", "has no description"));
    }
    if package.license.as_deref() != Some("Apache-2.0") {
        findings.push(Finding::new(&package.name, "manifest", "has not `license.workspace = true`"));
    }
    let manifest = std::fs::read_to_string(Path::new(&package.manifest_path)).unwrap_or_default();
    if !takes_workspace_lints(&manifest) {
        findings.push(Finding::new(&package.name, "manifest", "has not `[lints] workspace = true`"));
    }
    findings
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let Ok(manifest) = manifest.parse::<toml::Table>() else { return false };
    manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}
