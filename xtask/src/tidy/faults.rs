//! The files that contain built-in faults.

use std::collections::{BTreeMap, BTreeSet};

use super::ratchet::Measure;
use super::rust::{RustFile, Word};
use super::tables::FAULT_CRATES;

/// The feature that compiles the faults.
const FEATURE: &str = "\"mutants\"";

/// Counts the production files with conditions on that feature, except those whose task it is.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let mut packages: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_production() && !may_ask(source)) {
        let asks = |words: &[(Word, usize)]| {
            let [(name, line), (sign, _), (feature, _)] = words else { return false };
            *name == Word::Name("feature".into())
                && *sign == Word::Sign('=')
                && *feature == Word::Literal(FEATURE.into())
                && !source.is_test_line(*line)
        };
        if FAULT_CRATES.contains(&source.package()) && source.words.windows(3).any(asks) {
            packages.entry(source.package()).or_default().insert(&source.path);
        }
    }
    let what = "files ask for the feature `mutants`; what a fault needs stands in fault.rs, behind its macro";
    let places = |files: BTreeSet<&str>| files.into_iter().map(str::to_owned).collect();
    let measure = |(package, files)| Measure::of_places("fault-files", package, what, places(files));
    packages.into_iter().map(measure).collect()
}

fn may_ask(source: &RustFile) -> bool {
    let own = source.path.split_once("/src/").map_or("", |(_, own)| own);
    matches!(own, "lib.rs" | "fault.rs") || own.starts_with("fault/")
}
