//! The dependencies of the project: licences, and forbidden packages.

use super::Finding;
use super::metadata::{Metadata, Package};
use super::tables::{CRYPTO_PROVIDER, FORBIDDEN_PACKAGES, LICENCES};

/// Checks every package of the resolved graph.
pub fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings: Vec<Finding> = metadata.packages.iter().filter_map(check_licence).collect();
    for (name, reason) in FORBIDDEN_PACKAGES {
        for package in metadata.packages.iter().filter(|package| package.name == *name) {
            let user = user_of(metadata, &package.id).unwrap_or("the workspace");
            let message = format!("must not be in the graph ({reason}); {user} brings it in");
            findings.push(Finding::new(package_label(package), "forbidden-package", message));
        }
    }
    let providers: Vec<&Package> = metadata.packages.iter().filter(|p| p.name == CRYPTO_PROVIDER).collect();
    if providers.len() != 1 {
        let message = format!("must be in the graph exactly once, but is {} times", providers.len());
        findings.push(Finding::new(CRYPTO_PROVIDER, "crypto-provider", message));
    }
    findings
}

fn check_licence(package: &Package) -> Option<Finding> {
    let Some(expression) = package.license.as_deref() else {
        return Some(Finding::new(package_label(package), "licence", "states no SPDX licence expression"));
    };
    // Old packages separate alternatives with a slash and use identifiers that have been renamed
    // since.
    let mode = spdx::ParseMode { allow_slash_as_or_operator: true, allow_deprecated: true, ..spdx::ParseMode::STRICT };
    let message = match spdx::Expression::parse_mode(expression, mode) {
        Ok(parsed) if parsed.evaluate(|requirement| LICENCES.contains(&requirement.to_string().as_str())) => {
            return None;
        }
        Ok(_) => format!("comes under `{expression}`, which the table of licences does not allow"),
        Err(error) => format!("its licence `{expression}` does not parse: {}", error.reason),
    };
    Some(Finding::new(package_label(package), "licence", message))
}

fn package_label(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn user_of<'a>(metadata: &'a Metadata, id: &str) -> Option<&'a str> {
    let node = metadata.resolve.nodes.iter().find(|node| node.deps.iter().any(|d| d.pkg == id))?;
    metadata.package(&node.id).map(|package| package.name.as_str())
}
