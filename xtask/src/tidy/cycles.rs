//! Cycles of files that name each other's items.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Tree;
use super::ratchet::Measure;
use super::rust::RustFile;

/// Most files of a crate in a cycle.
pub const CYCLE_FILES: usize = 8;

/// Counts, for each crate, the files of its largest cycle: files of which each reaches each other
/// one by the items that it names, directly or indirectly.
///
/// An edge is an item that a path names, in an import or in code. A re-export is no edge; a path
/// through it leads to the definition. Calls of methods are not seen.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let files: BTreeMap<&str, &RustFile> =
        sources.iter().filter(|source| source.is_production()).map(|source| (source.path.as_str(), source)).collect();
    let what = "files reach each other by the items that they name; let the lower ones know nothing of the upper";
    let mut largest: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for root in files.values().filter(|source| source.is_root()) {
        let edges = Tree::new(root, &files).edges();
        let cycle = largest_cycle(&edges);
        let known = largest.entry(root.package()).or_default();
        if cycle.len() > known.len() {
            *known = cycle.iter().map(|file| describe(file, &cycle, &edges)).collect();
        }
    }
    let measure = |(package, places)| Measure::of_places("file-cycle", package, what, places).within(CYCLE_FILES);
    largest.into_iter().map(measure).collect()
}

/// A file of a cycle, with the files of the cycle that it names.
fn describe(file: &str, cycle: &[&str], edges: &BTreeSet<(&str, &str)>) -> String {
    let own = |path: &&str| path.split_once("/src/").map_or("", |(_, own)| own).to_owned();
    let named = edges.iter().filter(|(from, to)| *from == file && cycle.contains(to));
    let named: Vec<String> = named.map(|(_, to)| own(to)).collect();
    format!("{file} (names {})", named.join(" "))
}

/// The largest set of which each reaches each, sorted; empty if none reaches itself.
pub fn largest_cycle<'a>(edges: &BTreeSet<(&'a str, &'a str)>) -> Vec<&'a str> {
    let mut forth: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut back: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        forth.entry(from).or_default().push(to);
        back.entry(to).or_default().push(from);
    }
    let mut left: BTreeSet<&'a str> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let mut largest = Vec::new();
    while let Some(first) = left.first().copied() {
        let (after, before) = (reached(first, &forth), reached(first, &back));
        let cycle: Vec<&str> = left.iter().copied().filter(|at| after.contains(at) && before.contains(at)).collect();
        left.retain(|at| *at != first && !cycle.contains(at));
        if cycle.len() > largest.len() {
            largest = cycle;
        }
    }
    largest
}

/// All nodes that are reached in one step or more.
fn reached<'a>(first: &'a str, edges: &BTreeMap<&str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![first];
    while let Some(at) = next.pop() {
        next.extend(edges.get(at).into_iter().flatten().filter(|to| reached.insert(**to)));
    }
    reached
}
