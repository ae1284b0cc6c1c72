//! Paths and words that deterministic crates must not name.

use std::collections::BTreeMap;

use syn::visit::Visit;

use super::Finding;
use super::rust::{RustFile, Word, path_at};
use super::tables::{IMPURE_MACROS, IMPURE_PATHS, IMPURE_WORDS};

/// Checks one source of a pure crate, except its tests.
pub fn check(source: &RustFile) -> Vec<Finding> {
    let mut imports = Imports { source, findings: Vec::new(), names: BTreeMap::new() };
    imports.visit_file(&source.syntax);
    let Imports { mut findings, names, .. } = imports;
    let mut position = 0;
    while let Some((word, line)) = source.words.get(position) {
        let Word::Name(first) = word else {
            position += 1;
            continue;
        };
        let (path, length) = path_at(&source.words[position..]);
        if !source.is_test_line(*line) {
            let full = match names.get(first) {
                Some(meant) => join(meant, path.get(1..).unwrap_or_default()),
                None => path.join("::"),
            };
            findings.extend(check_path(source, *line, &full));
            findings.extend(path.iter().filter_map(|name| check_word(source, *line, name)));
            let called = source.words.get(position + length).is_some_and(|(next, _)| *next == Word::Sign('!'));
            let last = path.last().map_or("", String::as_str);
            if called && IMPURE_MACROS.contains(&last) {
                findings.push(Finding::new(
                    source.place(*line),
                    "purity",
                    format!("`{last}!`: output belongs to the drivers"),
                ));
            }
        }
        position += length;
    }
    findings.sort();
    findings.dedup();
    findings
}

fn join(prefix: &str, rest: &[String]) -> String {
    if rest.is_empty() { prefix.to_owned() } else { format!("{prefix}::{}", rest.join("::")) }
}

fn check_path(source: &RustFile, line: usize, path: &str) -> Option<Finding> {
    let hit = |banned: &&(&str, &str)| {
        path.strip_prefix(banned.0).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let (banned, reason) = IMPURE_PATHS.iter().find(hit)?;
    Some(Finding::new(source.place(line), "purity", format!("`{banned}`: {reason}")))
}

fn check_word(source: &RustFile, line: usize, name: &str) -> Option<Finding> {
    let (word, reason) = IMPURE_WORDS.iter().find(|(word, _)| *word == name)?;
    Some(Finding::new(source.place(line), "purity", format!("`{word}`: {reason}")))
}

/// Reads `use` declarations: the paths that they name, and the meaning of the names in the file.
struct Imports<'a> {
    source: &'a RustFile,
    findings: Vec<Finding>,
    names: BTreeMap<String, String>,
}

impl Imports<'_> {
    fn tree(&mut self, tree: &syn::UseTree, prefix: &str) {
        let under = |name: &syn::Ident| if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") };
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &under(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, prefix)),
            syn::UseTree::Name(name) => {
                let itself = name.ident == "self";
                let full = if itself { prefix.to_owned() } else { under(&name.ident) };
                let local = full.rsplit("::").next().unwrap_or_default().to_owned();
                self.import(name.ident.span().start().line, &local, full);
            }
            syn::UseTree::Rename(rename) => {
                let full = if rename.ident == "self" { prefix.to_owned() } else { under(&rename.ident) };
                self.import(rename.ident.span().start().line, &rename.rename.to_string(), full);
            }
            syn::UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                let hides = |path: &str| path.starts_with(&format!("{prefix}::"));
                if !self.source.is_test_line(line) && IMPURE_PATHS.iter().any(|(path, _)| hides(path)) {
                    let message = format!("`{prefix}::*` may bring in what is banned; name what is used");
                    self.findings.push(Finding::new(self.source.place(line), "purity", message));
                }
            }
        }
    }

    fn import(&mut self, line: usize, local: &str, full: String) {
        if self.source.is_test_line(line) {
            return;
        }
        self.findings.extend(check_path(self.source, line, &full));
        self.names.insert(local.to_owned(), full);
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, "");
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        if let Some((_, name)) = &item.rename {
            self.names.insert(name.to_string(), item.ident.to_string());
        }
    }
}
