//! One thing, one word: a type's name is defined once among crates that may use each other.

use std::collections::BTreeMap;

use syn::visit::Visit;

use super::ratchet::Measure;
use super::rust::RustFile;
use super::tables::{LAYERS, Layer};

/// The definitions of each type name, as (crate, place).
type Definitions<'a> = BTreeMap<String, Vec<(&'a str, String)>>;

/// Counts the names that more than one type has: in each crate, and in each pair of crates of which
/// one may use the other.
pub fn measure(sources: &[RustFile]) -> Vec<Measure> {
    measure_with(sources, LAYERS)
}

/// [`measure`] with a given table of layers.
pub fn measure_with(sources: &[RustFile], layers: &[Layer]) -> Vec<Measure> {
    let mut names = Definitions::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        let mut types = Types { source, names: &mut names };
        types.visit_file(&source.syntax);
    }
    let own = layers.iter().map(|layer| (layer.name.to_owned(), shared_within(&names, layer.name)));
    let pairs = layers.iter().flat_map(|layer| layer.uses.iter().map(|used| (layer.name, *used)));
    let pairs = pairs.map(|(user, used)| (format!("{user} + {used}"), shared_between(&names, user, used)));
    let what = "names are those of more than one type; one thing has one word, and one word names one thing";
    let shared = own.chain(pairs).filter(|(_, places)| !places.is_empty());
    shared.map(|(subject, places)| Measure::of_places("type-names", subject, what, places)).collect()
}

fn shared_within(names: &Definitions<'_>, package: &str) -> Vec<String> {
    let shared = names.iter().filter_map(|(name, all)| {
        let places = places_in(all, package);
        (places.len() > 1).then(|| format!("{name} ({})", places.join(" ")))
    });
    shared.collect()
}

fn shared_between(names: &Definitions<'_>, user: &str, used: &str) -> Vec<String> {
    let shared = names.iter().filter_map(|(name, all)| {
        let (ours, theirs) = (places_in(all, user), places_in(all, used));
        let places = [&ours[..], &theirs[..]].concat().join(" ");
        (!ours.is_empty() && !theirs.is_empty()).then(|| format!("{name} ({places})"))
    });
    shared.collect()
}

fn places_in<'a>(all: &'a [(&str, String)], package: &str) -> Vec<&'a str> {
    all.iter().filter(|(own, _)| *own == package).map(|(_, place)| place.as_str()).collect()
}

struct Types<'a, 'b> {
    source: &'a RustFile,
    names: &'b mut Definitions<'a>,
}

impl Types<'_, '_> {
    fn note(&mut self, name: &syn::Ident) {
        let line = name.span().start().line;
        if !self.source.is_test_line(line) {
            self.names.entry(name.to_string()).or_default().push((self.source.package(), self.source.place(line)));
        }
    }
}

impl<'ast> Visit<'ast> for Types<'_, '_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.note(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.note(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.note(&item.ident);
    }
}
