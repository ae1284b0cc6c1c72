//! What is wanted of one filter's topics: everything, or events for which one of some terms is
//! true.

use core::cmp::Reverse;

use whimbrel_selector::{Selector, TopicFilter};

use super::term::{Cut, Names, Term, shared};

/// The most bytes of an entry's selector.
pub const SELECTOR_BYTES_MAX: usize = 2048;

/// The most terms of an entry's selector. The matching index still finds so many ranges by their
/// values, and covering still compares them.
pub const TERMS_MAX: usize = 64;

/// So many of them are given to an entry when all is computed anew, so that there is room for what
/// comes later.
pub(super) const TERMS_AT_FIRST: usize = 48;

/// The bytes that go with [`TERMS_AT_FIRST`].
pub(super) const BYTES_AT_FIRST: usize = SELECTOR_BYTES_MAX / 4 * 3;

/// Of terms that are kept as text, each is compared with so many of those behind it.
const NEIGHBOURS_MAX: usize = 8;

/// Between two terms.
pub(super) const OR: &str = " OR ";

/// A filter and what is wanted under it. Without terms it wants all. Terms are sorted, and none
/// covers another.
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

    /// Entries that it needs if no terms share one.
    pub(super) fn len(&self) -> usize {
        self.terms.len().max(1)
    }

    /// Drops the terms that others cover, and gives up those that no entry has room for.
    pub(super) fn simplify(&mut self, names: &mut Names) {
        if self.wants_all() {
            return;
        }
        self.shorten(names);
        self.terms.sort_unstable();
        drop_covered(&mut self.terms);
        drop_covered_texts(&mut self.terms, names);
    }

    /// Each term is made to fit into an entry.
    fn shorten(&mut self, names: &mut Names) {
        let fits = |term: &Term| term.size() <= BYTES_AT_FIRST;
        if self.terms.iter().all(fits) {
            return;
        }
        let mut short = Vec::with_capacity(self.terms.len());
        for term in core::mem::take(&mut self.terms) {
            match wider(term, names) {
                Some(terms) if terms.iter().all(fits) => short.extend(terms),
                // Everything, which no terms are.
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

    /// Replaces what is kept as text by what of it is simple; without that, everything is wanted.
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

    /// Whether a term is true only where this wants the event. Needs one look for what is simple.
    pub(super) fn covers(&self, term: &Term) -> bool {
        covered_by(&self.terms, term) || self.wants_all()
    }

    /// Whether `other` wants nothing beyond, filters aside.
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

/// Terms that cover one which is too long for an entry.
fn wider(term: Term, names: &mut Names) -> Option<Vec<Term>> {
    if term.size() <= BYTES_AT_FIRST {
        return Some(vec![term]);
    }
    match term {
        Term::Text { field, text, .. } => {
            // Quotes and escapes may double what is left.
            let mut end = text.len().min(BYTES_AT_FIRST / 8);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Some(vec![Term::Text { field, text: text[..end].into(), exact: false }])
        }
        other => names.hull(&other),
    }
}

/// Sorted terms without those that one before covers.
fn drop_covered(terms: &mut Vec<Term>) {
    // Of what covers a term, in this order the last one kept does so too: ranges that are kept end
    // ever later, and between a beginning of a text and that text stands only what begins so.
    terms.dedup_by(|term, before| before.covers(term));
}

fn covered_by(terms: &[Term], term: &Term) -> bool {
    let at = terms.partition_point(|other| other <= term);
    let before = terms[..at].last();
    before.is_some_and(|before| before.covers(term))
}

/// Drops those kept as text of which something covers a simple part, or whose neighbour covers
/// them.
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

/// How much wider two neighbours get if they are joined: of numbers the gap between them as a share
/// of `span`, of texts a sixteenth for each character that they share beyond `common`. `None` if
/// they cannot be.
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

/// Share of all events that a term is thought to let through, if the numbers of its field are
/// spread over `span`.
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
