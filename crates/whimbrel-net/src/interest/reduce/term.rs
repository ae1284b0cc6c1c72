//! Selectors as terms of which one must be true: terms about one field can be sorted, compared and
//! joined.

use core::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use whimbrel_selector::{Comparison, Condition, Field, Literal, Number, Operand, Pattern, Piece, Selector};

/// A number, ordered by its exact value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact(Number);

impl PartialEq for Exact {
    fn eq(&self, other: &Exact) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Exact {}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Exact) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Exact {
    fn cmp(&self, other: &Exact) -> Ordering {
        self.0.order(other.0)
    }
}

/// A place between numbers: an end of a range without the question of whether it is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    /// Before all numbers.
    Start,
    /// Before (`false`) or behind (`true`) a number.
    At(Exact, bool),
    /// Behind all numbers.
    End,
}

impl Cut {
    /// The nearest double of the number at the cut; `None` at an end.
    pub(super) fn double(self) -> Option<f64> {
        match self {
            Cut::At(Exact(Number::Integer(value)), _) => Some(value as f64),
            Cut::At(Exact(Number::Double(value)), _) => Some(value),
            Cut::Start | Cut::End => None,
        }
    }
}

/// A condition on events. In the order of terms those about one field are together, and a term that
/// covers another is before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Term {
    /// The field is a number between two cuts.
    Range { field: Arc<Field>, low: Cut, high: Reverse<Cut> },
    /// The field is this text, or (not `exact`) one that begins with it.
    Text { field: Arc<Field>, text: Box<str>, exact: bool },
    /// A condition, as its canonical text; never a disjunction.
    Other(Box<str>),
}

impl Term {
    /// Whether `other` is true only where this is.
    pub(super) fn covers(&self, other: &Term) -> bool {
        match (self, other) {
            (Term::Range { field, low, high }, Term::Range { field: of, low: from, high: to }) => {
                field == of && low <= from && high.0 >= to.0
            }
            (Term::Text { field, text, exact }, Term::Text { field: of, text: longer, exact: only }) => {
                field == of && if *exact { *only && text == longer } else { longer.starts_with(&**text) }
            }
            (one, two) => one == two,
        }
    }

    /// The least term about the same field that covers both; `None` if they are not about one
    /// field.
    pub(super) fn joined(&self, other: &Term) -> Option<Term> {
        if self.covers(other) {
            return Some(self.clone());
        }
        match (self, other) {
            (Term::Range { field, low, high }, Term::Range { field: of, low: from, high: to }) if field == of => {
                let high = Reverse(high.0.max(to.0));
                Some(Term::Range { field: field.clone(), low: *low.min(from), high })
            }
            (Term::Text { field, text, .. }, Term::Text { field: of, text: other, .. }) if field == of => {
                let text = text[..shared(text, other)].into();
                Some(Term::Text { field: field.clone(), text, exact: false })
            }
            _ => None,
        }
    }

    /// Whether a range and one that does not begin before it have no number between them, so that
    /// joining them costs nothing.
    pub(super) fn touches(&self, next: &Term) -> bool {
        match (self, next) {
            (Term::Range { field, high, .. }, Term::Range { field: of, low, .. }) => field == of && *low <= high.0,
            _ => self.covers(next),
        }
    }

    /// Bytes of its text.
    pub(super) fn size(&self) -> usize {
        match self {
            Term::Other(text) => text.len(),
            _ => self.condition().map_or(0, |condition| condition.to_string().len()),
        }
    }

    /// Bytes that it takes in a disjunction, alone and joined.
    pub(super) fn sizes(&self) -> TermSizes {
        let alone = self.size() + BETWEEN_BYTES;
        match self {
            Term::Range { field, low, high } => {
                let bytes = |condition: Condition| condition.to_string().len() + BETWEEN_BYTES;
                let (as_first, as_last) =
                    (bytes(range(field, *low, Cut::End)), bytes(range(field, Cut::Start, high.0)));
                TermSizes { alone, as_first, as_last }
            }
            // The common prefix of the first and the last is no longer than either, but may need
            // escapes.
            _ => TermSizes { alone, as_first: 2 * alone + LIKE_BYTES, as_last: 0 },
        }
    }

    /// The condition as a selector has it; `None` for a term that is kept as text.
    pub(super) fn condition(&self) -> Option<Condition> {
        match self {
            Term::Range { field, low, high } => Some(range(field, *low, high.0)),
            Term::Text { field, text, exact: true } => {
                Some(compare(field, Comparison::Equal, Literal::Text(text.clone())))
            }
            Term::Text { field, text, exact: false } => {
                let begin = (!text.is_empty()).then(|| Piece::Text(text.clone()));
                let pattern = Pattern(begin.into_iter().chain([Piece::AnyRun]).collect());
                Some(Condition::Like { field: Field::clone(field), pattern })
            }
            Term::Other(_) => None,
        }
    }

    /// Its text, to stand in a disjunction.
    pub(super) fn text(&self) -> String {
        match self {
            Term::Other(text) => text.to_string(),
            _ => self.condition().map_or_else(String::new, |condition| condition.to_string()),
        }
    }
}

/// Bytes of the separator between two conditions, at most.
const BETWEEN_BYTES: usize = " AND ".len();

/// Bytes that a pattern takes beside its prefix, at most.
const LIKE_BYTES: usize = " LIKE '%' ESCAPE '\\'".len();

/// Bytes that a term takes in an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct TermSizes {
    /// If it is not joined with others.
    pub(super) alone: usize,
    /// The part of the first of several joined terms; together with the part of the last a bound
    /// for the joined term.
    pub(super) as_first: usize,
    /// The part of the last of several joined terms.
    pub(super) as_last: usize,
}

/// Length of the common prefix of two texts, bytes, in whole characters.
pub(super) fn shared(one: &str, two: &str) -> usize {
    let same = one.chars().zip(two.chars()).take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

fn compare(field: &Field, op: Comparison, limit: Literal) -> Condition {
    Condition::Compare { op, left: Operand::Field(field.clone()), right: Operand::Literal(limit) }
}

fn range(field: &Field, low: Cut, high: Cut) -> Condition {
    let side = |cut: Cut, before: Comparison, behind: Comparison| match cut {
        Cut::At(at, is_behind) => {
            let limit = match at.0 {
                Number::Integer(value) => Literal::Integer(value),
                Number::Double(value) => Literal::Double(value),
            };
            Some(compare(field, if is_behind { behind } else { before }, limit))
        }
        Cut::Start | Cut::End => None,
    };
    if let (Cut::At(from, false), Cut::At(to, true)) = (low, high)
        && from == to
    {
        return side(low, Comparison::Equal, Comparison::Equal).expect("it is at a number");
    }
    let from = side(low, Comparison::AtLeast, Comparison::Greater);
    let to = side(high, Comparison::Less, Comparison::AtMost);
    match (from, to) {
        (Some(from), Some(to)) => Condition::And([from, to].into()),
        (Some(one), None) | (None, Some(one)) => one,
        // No selector asks for this; every number is at most infinite, and this is as wide.
        (None, None) => Condition::Constant(true),
    }
}

/// The fields that terms are about, each kept once.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<Arc<Field>>);

impl Names {
    fn name(&mut self, field: &Field) -> Arc<Field> {
        if let Some(known) = self.0.get(field) {
            return known.clone();
        }
        let new = Arc::new(field.clone());
        self.0.insert(new.clone());
        new
    }

    /// Drops the fields that are not used elsewhere.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|field| Arc::strong_count(field) > 1);
    }

    /// Terms of which one is true if and only if the selector is. Empty for a selector that is
    /// never true. There is no term for everything, so [`Selector::is_everything`] is to be asked
    /// before. At most one term for each two bytes of the selector's text.
    pub(super) fn terms(&mut self, selector: &Selector) -> Vec<Term> {
        let mut found = Vec::new();
        self.add(selector.condition(), &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn add(&mut self, condition: &Condition, found: &mut Vec<Term>) {
        match condition {
            Condition::Or(parts) => parts.iter().for_each(|part| self.add(part, found)),
            Condition::Constant(_) | Condition::Unknown => {}
            leaf => match self.simple(leaf) {
                Some(terms) => found.extend(terms),
                None => found.push(Term::Other(leaf.to_string().into())),
            },
        }
    }

    /// Terms that are equivalent to a condition without OR; `None` if there are none.
    fn simple(&mut self, condition: &Condition) -> Option<Vec<Term>> {
        match condition {
            Condition::Compare { op, left: Operand::Field(field), right: Operand::Literal(Literal::Text(text)) }
                if *op == Comparison::Equal =>
            {
                Some(vec![Term::Text { field: self.name(field), text: text.clone(), exact: true }])
            }
            Condition::In { field, list } => {
                let field = self.name(field);
                let term = |text: &str| Term::Text { field: field.clone(), text: text.into(), exact: true };
                Some(list.iter().map(|text| term(text)).collect())
            }
            Condition::Like { field, pattern } => match &*pattern.0 {
                [Piece::Text(text), Piece::AnyRun] => {
                    Some(vec![Term::Text { field: self.name(field), text: text.clone(), exact: false }])
                }
                _ => None,
            },
            Condition::Compare { .. } => {
                let (field, low, high) = limits(condition)?;
                Some(self.between(field, low, high))
            }
            Condition::And(parts) => {
                let (field, mut low, mut high) = limits(parts.first()?)?;
                for part in parts {
                    let (of, from, to) = limits(part)?;
                    if of != field {
                        return None;
                    }
                    (low, high) = (low.max(from), high.min(to));
                }
                Some(self.between(field, low, high))
            }
            _ => None,
        }
    }

    /// The range between two cuts; empty if no number is between them.
    fn between(&mut self, field: &Field, low: Cut, high: Cut) -> Vec<Term> {
        if low < high { vec![Term::Range { field: self.name(field), low, high: Reverse(high) }] } else { Vec::new() }
    }

    /// Terms of which one is true where `term`, a conjunction that is kept as text, is: the
    /// narrowest of its simple parts.
    pub(super) fn hull(&mut self, term: &Term) -> Option<Vec<Term>> {
        let rank = |terms: &Vec<Term>| terms.iter().map(vagueness).max().unwrap_or(0);
        self.simple_parts(term).into_iter().min_by_key(rank)
    }

    /// For each simple part of a conjunction that is kept as text, terms of which one is true where
    /// the part is.
    pub(super) fn simple_parts(&mut self, term: &Term) -> Vec<Vec<Term>> {
        let Term::Other(text) = term else { return Vec::new() };
        let selector = Selector::parse_canonical(text).expect("it was written by a selector");
        let Condition::And(parts) = selector.condition() else { return Vec::new() };
        parts.iter().enumerate().filter_map(|(at, part)| self.part(part, &parts[at..])).collect()
    }

    /// A part of a conjunction; if it limits a field, together with the limits behind it.
    fn part(&mut self, part: &Condition, rest: &[Condition]) -> Option<Vec<Term>> {
        if let Some((field, mut low, mut high)) = limits(part) {
            for (of, from, to) in rest.iter().filter_map(limits) {
                if of == field {
                    (low, high) = (low.max(from), high.min(to));
                }
            }
            return Some(self.between(field, low, high));
        }
        let Condition::Or(parts) = part else { return self.simple(part) };
        let mut all = Vec::new();
        for part in parts {
            all.extend(self.simple(part)?);
        }
        Some(all)
    }
}

/// How much a term lets through, roughly: 0 is the narrowest.
fn vagueness(term: &Term) -> u8 {
    match term {
        Term::Text { exact: true, .. } => 0,
        Term::Range { low: Cut::At(..), high: Reverse(Cut::At(..)), .. } => 1,
        Term::Text { .. } => 2,
        Term::Range { .. } | Term::Other(_) => 3,
    }
}

/// The field of a comparison with a number, and the cuts between which it must be.
fn limits(condition: &Condition) -> Option<(&Field, Cut, Cut)> {
    let Condition::Compare { op, left: Operand::Field(field), right: Operand::Literal(limit) } = condition else {
        return None;
    };
    let at = match limit {
        Literal::Integer(value) => Exact(Number::Integer(*value)),
        Literal::Double(value) => Exact(Number::Double(*value)),
        Literal::Text(_) | Literal::Boolean(_) => return None,
    };
    let (before, behind) = (Cut::At(at, false), Cut::At(at, true));
    match op {
        Comparison::Equal => Some((field, before, behind)),
        Comparison::Unequal => None,
        Comparison::Less => Some((field, Cut::Start, before)),
        Comparison::AtMost => Some((field, Cut::Start, behind)),
        Comparison::Greater => Some((field, behind, Cut::End)),
        Comparison::AtLeast => Some((field, before, Cut::End)),
    }
}
