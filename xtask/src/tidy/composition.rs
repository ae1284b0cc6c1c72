//! The size of types: files with an `impl`, and methods.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Finding;
use super::ratchet::Measure;
use super::rust::RustFile;
use super::tables::{COMPOSITIONS, DEREF_TYPES};

/// Most files with an `impl` of the types that compose a crate.
pub const COMPOSITION_FILES: usize = 8;
/// Most methods of one type, including functions without `self`, excluding those of traits.
pub const METHODS: usize = 120;

/// Counts in production files.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let impls: Vec<Impl> = sources.iter().filter(|source| source.is_production()).flat_map(impls_of).collect();
    let mut measures = composition_files(&impls, COMPOSITIONS);
    measures.extend(methods(&impls));
    measures.extend(derefs(&impls, DEREF_TYPES));
    measures
}

/// One `impl` of a production file.
struct Impl<'a> {
    source: &'a RustFile,
    line: usize,
    /// The last name of the type.
    of: String,
    /// The last name of the trait.
    of_trait: Option<String>,
    functions: usize,
}

impl Impl<'_> {
    fn subject(&self) -> String {
        format!("{}::{}", self.source.package(), self.of)
    }

    fn is_deref(&self) -> bool {
        matches!(self.of_trait.as_deref(), Some("Deref" | "DerefMut"))
    }
}

fn impls_of(source: &RustFile) -> Vec<Impl<'_>> {
    let mut impls = Impls { source, found: Vec::new() };
    impls.visit_file(&source.syntax);
    impls.found
}

struct Impls<'a> {
    source: &'a RustFile,
    found: Vec<Impl<'a>>,
}

impl<'ast> Visit<'ast> for Impls<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let line = item.impl_token.span().start().line;
        if self.source.is_test_line(line) {
            return;
        }
        if let syn::Type::Path(of) = &*item.self_ty {
            let last = |path: &syn::Path| path.segments.last().map(|last| last.ident.to_string());
            let is_counted = |item: &&syn::ImplItem| matches!(item, syn::ImplItem::Fn(function) if !self.source.is_test_line(function.span().start().line));
            self.found.push(Impl {
                source: self.source,
                line,
                of: last(&of.path).unwrap_or_default(),
                of_trait: item.trait_.as_ref().and_then(|of_trait| last(&of_trait.0)),
                functions: item.items.iter().filter(is_counted).count(),
            });
        }
        syn::visit::visit_item_impl(self, item);
    }
}

fn composition_files(impls: &[Impl<'_>], compositions: &[(&str, &str)]) -> Vec<Measure> {
    let packages: BTreeSet<&str> = compositions.iter().map(|(package, _)| *package).collect();
    let files_of = |package: &str| -> Vec<String> {
        let composes = |of: &Impl<'_>| compositions.contains(&(of.source.package(), of.of.as_str()));
        let own = impls.iter().filter(|of| of.source.package() == package && composes(of));
        let files: BTreeSet<&str> = own.map(|of| of.source.path.as_str()).collect();
        files.into_iter().map(str::to_owned).collect()
    };
    let what = "files have an `impl` of the type that composes the crate; let a component own what it does";
    let measure = |package| Measure::of_places("composition-files", package, what, files_of(package));
    packages.into_iter().map(|package| measure(package).within(COMPOSITION_FILES)).collect()
}

fn methods(impls: &[Impl<'_>]) -> Vec<Measure> {
    let mut types: BTreeMap<String, Vec<&Impl<'_>>> = BTreeMap::new();
    for of in impls.iter().filter(|of| of.of_trait.is_none()) {
        types.entry(of.subject()).or_default().push(of);
    }
    let measure = |(subject, of): (String, Vec<&Impl<'_>>)| Measure {
        rule: "methods",
        subject,
        limit: METHODS,
        count: of.iter().map(|of| of.functions).sum(),
        what: "methods of one type, over all files; give what belongs together a type of its own",
        places: of.iter().map(|of| format!("{} ({})", of.source.place(of.line), of.functions)).collect(),
    };
    types.into_iter().map(measure).filter(|measure| measure.count > METHODS).collect()
}

fn derefs(impls: &[Impl<'_>], excused: &[(&str, &str, &str)]) -> Vec<Measure> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for of in impls.iter().filter(|of| of.is_deref()) {
        if !excused.iter().any(|(package, name, _)| *package == of.source.package() && *name == of.of) {
            types.entry(of.subject()).or_default().push(of.source.place(of.line));
        }
    }
    let what =
        "`impl Deref` or `DerefMut`, which hide whose field it is; name an accessor, or excuse it in DEREF_TYPES";
    types.into_iter().map(|(subject, places)| Measure::of_places("deref", subject, what, places)).collect()
}

/// Findings about rows of [`DEREF_TYPES`] that no longer apply.
pub fn check_rows(sources: &[RustFile], excused: &[(&str, &str, &str)]) -> Vec<Finding> {
    let production = sources.iter().filter(|source| source.is_production());
    let derefs: Vec<String> = production.flat_map(impls_of).filter(Impl::is_deref).map(|of| of.subject()).collect();
    let stale = excused.iter().filter(|(package, name, _)| !derefs.contains(&format!("{package}::{name}")));
    let message = "DEREF_TYPES lists it, but it has no `impl Deref`; remove the row";
    stale.map(|(package, name, _)| Finding::new(format!("{package}::{name}"), "stale-row", message)).collect()
}
