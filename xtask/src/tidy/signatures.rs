//! The parameters of functions.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::ratchet::Measure;
use super::rust::RustFile;

/// Counts the parameters of functions in production files, except private ones, whose type is a
/// tuple or a reference to one.
///
/// A tuple within another type (a slice, an iterator) does not count, nor does a parameter of a
/// closure, nor one in an `impl` of a trait, because the trait determines it.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    let mut packages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        let mut tuples = Tuples { source, places: packages.entry(source.package()).or_default() };
        tuples.visit_file(&source.syntax);
    }
    let what =
        "parameters are tuples, whose parts have no names where they are given; name a struct, or take them one by one";
    packages
        .into_iter()
        .filter(|(_, places)| !places.is_empty())
        .map(|(package, places)| Measure::of_places("tuple-parameters", package, what, places))
        .collect()
}

struct Tuples<'a> {
    source: &'a RustFile,
    places: &'a mut Vec<String>,
}

impl Tuples<'_> {
    fn function(&mut self, signature: &syn::Signature) {
        for input in &signature.inputs {
            let syn::FnArg::Typed(parameter) = input else { continue };
            let line = parameter.span().start().line;
            if is_tuple(&parameter.ty) && !self.source.is_test_line(line) {
                self.places.push(self.source.place(line));
            }
        }
    }
}

fn is_tuple(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        syn::Type::Paren(inner) => is_tuple(&inner.elem),
        syn::Type::Group(inner) => is_tuple(&inner.elem),
        _ => false,
    }
}

fn is_private(visibility: &syn::Visibility) -> bool {
    match visibility {
        syn::Visibility::Inherited => true,
        syn::Visibility::Restricted(restricted) => restricted.path.is_ident("self"),
        syn::Visibility::Public(_) => false,
    }
}

impl<'ast> Visit<'ast> for Tuples<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_private(&item.vis) {
            self.function(&item.sig);
        }
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        // In an `impl` of a trait the visibility is inherited.
        if !is_private(&item.vis) {
            self.function(&item.sig);
        }
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig);
        syn::visit::visit_trait_item_fn(self, item);
    }
}
