//! The modules of one crate, and the file that defines an item named by a path.
//!
//! Names are resolved as far as paths show: through imports, re-exports and globs, to the module
//! that defines the item. Methods and the output of macros are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::rust::RustFile;

/// Steps after which the resolution of a name through imports ends.
const STEPS_MAX: usize = 32;

/// A module's number within its tree.
type Id = usize;

/// The modules below one root file.
pub struct Tree<'a> {
    modules: Vec<Module<'a>>,
}

/// A module: a file, or a part of one.
struct Module<'a> {
    /// The file of the module.
    source: &'a RustFile,
    /// The range of its lines in the file, from 1; lines of modules within it belong to these.
    lines: RangeInclusive<usize>,
    parent: Option<Id>,
    children: BTreeMap<String, Id>,
    items: BTreeSet<String>,
    /// Imports by their local name, and whether each is for this module only.
    imports: BTreeMap<String, Import>,
    /// Glob imports.
    globs: Vec<Import>,
    /// Lines of imports.
    import_lines: Vec<RangeInclusive<usize>>,
}

struct Import {
    path: Vec<String>,
    is_private: bool,
}

/// The target of a path.
enum Target {
    Module(Id),
    /// An item that this module defines, or an item in it that cannot be seen.
    Item(Id),
}

impl<'a> Tree<'a> {
    /// The modules that the root file declares, at any depth, except tests.
    pub fn new(root: &'a RustFile, files: &BTreeMap<&str, &'a RustFile>) -> Tree<'a> {
        let mut tree = Tree { modules: Vec::new() };
        let folder = root.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        tree.add(Module::of_file(root, None), &root.syntax.items, folder, files);
        tree
    }

    /// Adds a module with its contents; its children's files are in `folder`.
    fn add(
        &mut self,
        mut module: Module<'a>,
        items: &'a [syn::Item],
        folder: &str,
        files: &BTreeMap<&str, &'a RustFile>,
    ) -> Id {
        let id = self.modules.len();
        let source = module.source;
        items.iter().for_each(|item| module.visit_item(item));
        self.modules.push(module);
        for item in items {
            let syn::Item::Mod(declared) = item else { continue };
            if source.is_test_line(declared.span().start().line) {
                continue;
            }
            let name = declared.ident.to_string();
            let below = format!("{folder}/{name}");
            let child = match &declared.content {
                Some((_, items)) => {
                    let lines = declared.span().start().line..=declared.span().end().line;
                    Some((Module::new(source, lines, Some(id)), &items[..]))
                }
                None => {
                    let places = [format!("{below}.rs"), format!("{below}/mod.rs")];
                    let file = places.iter().find_map(|place| files.get(place.as_str())).copied();
                    file.map(|file| (Module::of_file(file, Some(id)), &file.syntax.items[..]))
                }
            };
            if let Some((child, items)) = child {
                let child = self.add(child, items, &below, files);
                self.modules[id].children.insert(name, child);
            }
        }
        id
    }

    /// The pairs of files of which the first names an item that the second defines.
    pub fn edges(&self) -> BTreeSet<(&'a str, &'a str)> {
        let mut edges = BTreeSet::new();
        for (id, module) in self.modules.iter().enumerate() {
            let own = module.imports.values().filter(|import| import.is_private).map(|import| import.path.clone());
            let paths = own.chain(self.paths(id));
            for path in paths {
                if let Some(Target::Item(to)) = self.resolve(id, &path, STEPS_MAX) {
                    edges.insert((module.source.path.as_str(), self.modules[to].source.path.as_str()));
                }
            }
            for glob in module.globs.iter().filter(|glob| glob.is_private) {
                if let Some(Target::Module(to) | Target::Item(to)) = self.resolve(id, &glob.path, STEPS_MAX) {
                    edges.insert((module.source.path.as_str(), self.modules[to].source.path.as_str()));
                }
            }
        }
        edges.retain(|(from, to)| from != to);
        edges
    }

    /// The paths in the module's code, except imports and tests. A single name counts if it cannot
    /// be a variable.
    fn paths(&self, id: Id) -> Vec<Vec<String>> {
        let module = &self.modules[id];
        let children = module.children.values().map(|child| &self.modules[*child]);
        let within: Vec<&Module<'_>> = children.filter(|child| child.source.path == module.source.path).collect();
        let is_own = |line: &usize| {
            module.lines.contains(line)
                && !module.import_lines.iter().any(|lines| lines.contains(line))
                && !module.source.is_test_line(*line)
                && !within.iter().any(|child| child.lines.contains(line))
        };
        let paths = module.source.paths();
        let is_path = |path: &Vec<String>, called: bool| {
            path.len() > 1 || called || path[0].starts_with(|c: char| c.is_uppercase())
        };
        let own = paths.into_iter().filter(|(path, line, called)| is_own(line) && is_path(path, *called));
        own.map(|(path, ..)| path).collect()
    }

    fn resolve(&self, from: Id, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.look_up(from, name, !rest.is_empty(), steps)?,
        };
        while let (Target::Module(id), Some((name, after))) = (&at, rest.split_first()) {
            rest = after;
            at = match name.as_str() {
                "super" => Target::Module(self.modules[*id].parent?),
                "self" => Target::Module(*id),
                name => self.look_up(*id, name, !rest.is_empty(), steps).unwrap_or(Target::Item(*id)),
            };
        }
        Some(at)
    }

    /// The target of a name in a module; if the path continues after it, the name is not that of a
    /// function.
    fn look_up(&self, id: Id, name: &str, goes_on: bool, steps: usize) -> Option<Target> {
        let module = &self.modules[id];
        let item = module.items.contains(name).then_some(Target::Item(id));
        let child = module.children.get(name).map(|child| Target::Module(*child));
        let own = if goes_on { child.or(item) } else { item.or(child) };
        if own.is_some() {
            return own;
        }
        if let Some(import) = module.imports.get(name) {
            return self.resolve(id, &import.path, steps);
        }
        let in_glob = |glob: &Import| match self.resolve(id, &glob.path, steps)? {
            Target::Module(from) => self.look_up(from, name, goes_on, steps.checked_sub(1)?),
            Target::Item(_) => None,
        };
        module.globs.iter().find_map(in_glob)
    }
}

impl<'a> Module<'a> {
    fn of_file(source: &'a RustFile, parent: Option<Id>) -> Module<'a> {
        Module::new(source, 1..=source.lines.len(), parent)
    }

    fn new(source: &'a RustFile, lines: RangeInclusive<usize>, parent: Option<Id>) -> Module<'a> {
        Module {
            source,
            lines,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            import_lines: Vec::new(),
        }
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &[String], is_private: bool) {
        let under = |name: &syn::Ident| match name.to_string().as_str() {
            "self" if !prefix.is_empty() => prefix.to_vec(),
            name => [prefix, &[name.to_owned()]].concat(),
        };
        match tree {
            syn::UseTree::Path(path) => self.import(&path.tree, &under(&path.ident), is_private),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix, is_private)),
            syn::UseTree::Name(name) => self.call(under(&name.ident), None, is_private),
            syn::UseTree::Rename(rename) => self.call(under(&rename.ident), Some(&rename.rename), is_private),
            syn::UseTree::Glob(_) => self.globs.push(Import { path: prefix.to_vec(), is_private }),
        }
    }

    fn call(&mut self, path: Vec<String>, name: Option<&syn::Ident>, is_private: bool) {
        let name = name.map(ToString::to_string).or_else(|| path.last().cloned()).unwrap_or_default();
        // `use x;` of a crate would lead to itself.
        if path.len() > 1 || path.first() != Some(&name) {
            self.imports.insert(name, Import { path, is_private });
        }
    }
}

impl<'ast> Visit<'ast> for Module<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if self.source.is_test_line(item.span().start().line) {
            return;
        }
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            // A nested module is a module of its own.
            syn::Item::Mod(_) => return,
            _ => None,
        };
        self.items.extend(name.map(ToString::to_string));
        // Finds imports within functions.
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if self.source.is_test_line(item.span().start().line) {
            return;
        }
        self.import_lines.push(item.span().start().line..=item.span().end().line);
        let is_private = matches!(item.vis, syn::Visibility::Inherited);
        self.import(&item.tree, &[], is_private);
    }
}
