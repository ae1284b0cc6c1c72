//! The paths that a source names, resolved through its imports.

use std::collections::BTreeMap;

use syn::visit::Visit;

use super::rust::{RustFile, Word, path_at};

/// What a source names outside its tests, with the lines.
#[derive(Debug, Default)]
pub struct Uses {
    /// Full paths, as far as imports tell them.
    pub paths: Vec<(usize, String)>,
    /// Modules of which everything is imported.
    pub globs: Vec<(usize, String)>,
}

impl Uses {
    /// Reads a source.
    pub fn of(source: &RustFile) -> Uses {
        let mut imports = Imports { source, uses: Uses::default(), names: BTreeMap::new() };
        imports.visit_file(&source.syntax);
        let Imports { mut uses, names, .. } = imports;
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
                uses.paths.push((*line, full));
            }
            position += length;
        }
        uses
    }
}

/// Whether a path is this one, or goes on below it.
pub fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn join(prefix: &str, rest: &[String]) -> String {
    if rest.is_empty() { prefix.to_owned() } else { format!("{prefix}::{}", rest.join("::")) }
}

/// Reads `use` declarations: the paths that they name, and the meaning of the names in the file.
struct Imports<'a> {
    source: &'a RustFile,
    uses: Uses,
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
                if !self.source.is_test_line(line) {
                    self.uses.globs.push((line, prefix.to_owned()));
                }
            }
        }
    }

    fn import(&mut self, line: usize, local: &str, full: String) {
        if self.source.is_test_line(line) {
            return;
        }
        self.uses.paths.push((line, full.clone()));
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
