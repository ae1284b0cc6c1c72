//! The wanted events of one filter's topics: all of them, or those for which one of some terms is
//! true.

use core::cmp::Reverse;

use whimbrel_selector::{Selector, TopicFilter};

use super::term::{Cut, Names, Term, shared};

/// The most bytes of an entry's selector.
pub const SELECTOR_BYTES_MAX: usize = 2048;

/// The most terms of an entry's selector. The matching index still finds this many ranges by their
/// values, and covering still compares them.
pub const TERMS_MAX: usize = 64;

/// The number of terms that an entry is given when all entries are computed anew, so that there is
/// room for later ones.
pub(super) const TERMS_AT_FIRST: usize = 48;

/// The bytes that go with [`TERMS_AT_FIRST`].
pub(super) const BYTES_AT_FIRST: usize = SELECTOR_BYTES_MAX / 4 * 3;

/// A term that is kept as text is compared with this many of the terms behind it.
const NEIGHBOURS_MAX: usize = 8;

/// Between two terms.
pub(super) const OR: &str = " OR ";

/// A filter and what is wanted under it. Without terms it wants all events. Terms are sorted, and
/// none covers another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FilterGroup {
    pub(super) filter: Box<str>,
    pub(super) terms: Vec<Term>,
}

impl FilterGroup {
    pub(super) fn filter(&self) -> TopicFilter<'_> {
        TopicFilter::new(&self.filter).expect("filters are made of filters")
    }

    pub(super) fn wants_all(&self) -> bool {
        self.terms.is_empty()
    }

    /// Number of entries that it needs if no terms share one.
    pub(super) fn len(&self) -> usize {
        self.terms.len().max(1)
    }

    /// Drops the terms that others cover, and widens those that are too long for an entry.
    pub(super) fn simplify(&mut self, names: &mut Names) {
        if self.wants_all() {
            return;
        }
        self.shorten(names);
        self.terms.sort_unstable();
        drop_covered(&mut self.terms);
        drop_covered_texts(&mut self.terms, names);
    }

    /// Makes each term fit into an entry.
    fn shorten(&mut self, names: &mut Names) {
        let fits = |term: &Term| term.size() <= BYTES_AT_FIRST;
        if self.terms.iter().all(fits) {
            return;
        }
        let mut short = Vec::with_capacity(self.terms.len());
        for term in core::mem::take(&mut self.terms) {
            match wider(term, names) {
                Some(terms) if terms.iter().all(fits) => short.extend(terms),
                // A term without a shorter one: everything is wanted, so there are no terms.
                _ => return,
            }
        }
        self.terms = short;
    }

    /// Joins ranges that touch.
    pub(super) fn join(&mut self) {
        let mut joined: Vec<Term> = Vec::with_capacity(self.terms.len());
        for term in self.terms.drain(..) {
            match joined.last_mut() {
                Some(last) if last.touches(&term) => *last = last.joined(&term).expect("they are about one field"),
                _ => joined.push(term),
            }
        }
        self.terms = joined;
    }

    /// Replaces each term that is kept as text by the narrowest of its simple parts; if a term has
    /// none, everything is wanted.
    pub(super) fn coarsen(&mut self, names: &mut Names) {
        let mut simple = Vec::with_capacity(self.terms.len());
        for term in core::mem::take(&mut self.terms) {
            match names.hull(&term) {
                Some(terms) => simple.extend(terms),
                None if matches!(term, Term::Other(_)) => return,
                None => simple.push(term),
            }
        }
        self.terms = simple;
        self.simplify(names);
        self.join();
    }

    /// Whether a term is true only where this group wants the event. Takes one binary search.
    pub(super) fn covers(&self, term: &Term) -> bool {
        covered_by(&self.terms, term) || self.wants_all()
    }

    /// Whether `other` wants nothing more, apart from filters.
    pub(super) fn covers_all(&self, other: &FilterGroup) -> bool {
        self.wants_all() || (!other.wants_all() && other.terms.iter().all(|term| self.covers(term)))
    }

    /// Bytes of the selector's text.
    pub(super) fn size(&self) -> usize {
        self.terms.iter().map(|term| term.size() + OR.len()).sum()
    }

    /// Whether an entry has room for it.
    pub(super) fn fits(&self) -> bool {
        self.terms.len() <= TERMS_MAX && self.size() <= SELECTOR_BYTES_MAX
    }

    /// The selector; `None` if all is wanted.
    pub(super) fn selector(&self) -> Option<Selector> {
        if self.wants_all() {
            return None;
        }
        let texts: Vec<String> = self.terms.iter().map(Term::text).collect();
        let selector = Selector::parse_canonical(&texts.join(OR)).expect("a disjunction of canonical texts");
        (!selector.is_everything()).then_some(selector)
    }
}

/// Terms that cover one that is too long for an entry.
fn wider(term: Term, names: &mut Names) -> Option<Vec<Term>> {
    if term.size() <= BYTES_AT_FIRST {
        return Some(vec![term]);
    }
    match term {
        Term::Text { field, text, .. } => {
            // Quotes and escapes may double the length of the rest.
            let mut end = text.len().min(BYTES_AT_FIRST / 8);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Some(vec![Term::Text { field, text: text[..end].into(), exact: false }])
        }
        other => names.hull(&other),
    }
}

/// Drops each of the sorted terms that an earlier one covers.
fn drop_covered(terms: &mut Vec<Term>) {
    // If a kept term covers a term, the last one kept before it does too: kept ranges have
    // increasing ends, and between a prefix and a text with that prefix only texts with the prefix
    // are sorted.
    terms.dedup_by(|term, before| before.covers(term));
}

fn covered_by(terms: &[Term], term: &Term) -> bool {
    let at = terms.partition_point(|other| other <= term);
    let before = terms[..at].last();
    before.is_some_and(|before| before.covers(term))
}

/// Drops terms that are kept as text if another term covers one of their simple parts, or a
/// neighbour covers them.
fn drop_covered_texts(terms: &mut Vec<Term>, names: &mut Names) {
    let at = terms.partition_point(|term| !matches!(term, Term::Other(_)));
    if at == terms.len() {
        return;
    }
    let mut texts = terms.split_off(at);
    if !terms.is_empty() {
        let is_covered = |part: &Vec<Term>| part.iter().all(|one| covered_by(terms, one));
        texts.retain(|term| !names.simple_parts(term).iter().any(is_covered));
    }
    let parse = |term: &Term| Selector::parse_canonical(&term.text()).expect("a canonical text");
    let selectors: Vec<Selector> = texts.iter().map(parse).collect();
    let mut kept = vec![true; texts.len()];
    for one in 0..texts.len() {
        for two in one + 1..texts.len().min(one + 1 + NEIGHBOURS_MAX) {
            if kept[one] && kept[two] {
                kept[two] = !selectors[one].covers(&selectors[two]);
                kept[one] = !(kept[two] && selectors[two].covers(&selectors[one]));
            }
        }
    }
    let mut kept = kept.into_iter();
    texts.retain(|_| kept.next() == Some(true));
    terms.append(&mut texts);
}

/// How much wider two neighbours become if they are joined: for numbers the gap between them as a
/// share of `span`, for texts a sixteenth for each character that they share beyond `common`.
/// `None` if they cannot be joined.
pub(super) fn gap(one: &Term, two: &Term, span: f64, common: usize) -> Option<f64> {
    match (one, two) {
        (Term::Range { field, high: Reverse(high), .. }, Term::Range { field: of, low, .. }) if field == of => {
            let (from, to) = (high.double()?, low.double()?);
            Some(((to - from) / span).clamp(0.0, 1.0))
        }
        (Term::Text { field, text, .. }, Term::Text { field: of, text: next, .. }) if field == of => {
            let beyond = shared(text, next).saturating_sub(common).min(16);
            Some(0.0625_f64.powi(i32::try_from(beyond).expect("at most 16")))
        }
        _ => None,
    }
}

/// Estimated share of all events for which a term is true, if the numbers of its field are spread
/// over `span`.
pub(super) fn share(term: &Term, span: f64) -> f64 {
    match term {
        Term::Range { low: from @ Cut::At(..), high: Reverse(to @ Cut::At(..)), .. } => {
            let width = to.double().unwrap_or(0.0) - from.double().unwrap_or(0.0);
            ((width + 1.0) / (span + 1.0)).clamp(0.0, 1.0)
        }
        Term::Text { exact: true, .. } => 1.0 / 32.0,
        Term::Range { .. } | Term::Text { .. } | Term::Other(_) => 1.0 / 3.0,
    }
}
