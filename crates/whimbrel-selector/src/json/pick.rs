//! The values of one payload that selectors use.

use core::mem;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use whimbrel_event::Value;

use super::scan::{Fault, Lengths, Scanner, Token, text};
use super::{JsonFields, ROOT};
use crate::subject::Datum;

/// Longest payload, bytes, in which array elements are counted from the end: counting needs the
/// lengths of all arrays in such an array, 16 bytes each. In longer payloads these elements are
/// NULL.
const FROM_END_MAX: usize = 1 << 20;

/// Nodes of the paths that lead to one value: several only where elements are counted from both
/// ends.
type Nodes = SmallVec<[u32; 2]>;

/// A value that is kept; JSON `null`, and malformed texts, are not.
#[derive(Debug)]
enum Kept<'a> {
    /// A value that is, or borrows, bytes of the payload.
    Plain(Datum<'a>),
    /// A text that was written with escapes.
    Escaped(Box<str>),
    /// A value in a member that occurred again; only the last occurrence counts.
    Replaced,
}

/// The values of one payload that selectors use.
#[derive(Debug, Default)]
pub(crate) struct JsonFacts<'a> {
    /// Sorted by field, each once.
    values: Vec<(u32, Kept<'a>)>,
}

impl<'a> JsonFacts<'a> {
    /// Reads `payload`. One that is not JSON has no values.
    ///
    /// Whether a payload is JSON does not depend on the used paths: its grammar is checked to its
    /// end. Values of other paths are not checked. The time is at most the bytes of the payload
    /// times the number of paths that meet in one value, which is 1 unless a path counts elements
    /// from the end; in addition one look-up for each member and element beside a used one.
    /// Containers that are open on the way to used values are kept in a list; there is no
    /// recursion.
    pub(crate) fn of(payload: &'a [u8], fields: &JsonFields) -> JsonFacts<'a> {
        let counts_from_end = payload.len() <= FROM_END_MAX;
        let scanner = Scanner::new(payload);
        let mut walk = Walk { fields, scanner, counts_from_end, lengths: Lengths::default(), values: Vec::new() };
        if walk.document().is_err() {
            return JsonFacts::default();
        }
        let mut values = walk.values;
        values.retain(|(_, value)| !matches!(value, Kept::Replaced));
        values.sort_unstable_by_key(|(field, _)| *field);
        JsonFacts { values }
    }

    pub(crate) fn get(&self, field: u32) -> Datum<'_> {
        match self.values.binary_search_by_key(&field, |(field, _)| *field) {
            Ok(place) => self.values[place].1.datum(),
            Err(_) => Datum::Null,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Datum<'_>)> {
        self.values.iter().map(|(field, value)| (*field, value.datum()))
    }
}

impl Kept<'_> {
    fn datum(&self) -> Datum<'_> {
        match self {
            Kept::Plain(datum) => *datum,
            Kept::Escaped(text) => Datum::Text(text),
            Kept::Replaced => Datum::Null,
        }
    }
}

/// A number by the rule for attributes ([`Value::of`]): infinite if it is beyond a double.
fn number(written: &str) -> Datum<'static> {
    match Value::of(written) {
        Value::Integer(value) => Datum::Integer(value),
        Value::Double(value) => Datum::Double(value),
        Value::Boolean(_) | Value::Text(_) => unreachable!("{written:?} has the form of a number"),
    }
}

/// An open container on the way to used values.
struct Open {
    kind: Kind,
    nodes: Nodes,
    /// The index of the first of its values.
    from: usize,
    is_first: bool,
}

enum Kind {
    /// Used members so far, with the range of their values: a repeated member replaces them.
    Object(BTreeMap<u32, (usize, usize)>),
    Array {
        /// The index of the next element.
        index: i64,
        /// The number of elements, if a path counts from the end.
        length: Option<i64>,
    },
}

struct Walk<'w, 'a> {
    fields: &'w JsonFields,
    scanner: Scanner<'a>,
    /// Whether elements may be counted from the end.
    counts_from_end: bool,
    lengths: Lengths,
    values: Vec<(u32, Kept<'a>)>,
}

impl Walk<'_, '_> {
    fn document(&mut self) -> Result<(), Fault> {
        let mut open: Vec<Open> = Vec::new();
        self.value(SmallVec::from_slice(&[ROOT]), &mut open)?;
        while let Some(innermost) = open.last_mut() {
            match self.advance(innermost)? {
                None => {
                    let closed = open.pop().expect("there is an innermost one");
                    self.record(&closed.nodes, closed.from, &mut open);
                }
                Some(nodes) if nodes.is_empty() => self.scanner.skip()?,
                Some(nodes) => self.value(nodes, &mut open)?,
            }
        }
        self.scanner.finish()
    }

    /// Goes to the next member or element; returns the nodes of its paths, `None` at the end.
    fn advance(&mut self, open: &mut Open) -> Result<Option<Nodes>, Fault> {
        let is_first = mem::take(&mut open.is_first);
        match &mut open.kind {
            Kind::Object(seen) => {
                let Some(raw) = self.scanner.member(is_first)? else { return Ok(None) };
                let Some(name) = text(raw) else { return Ok(Some(Nodes::new())) };
                let nodes: Nodes = open.nodes.iter().filter_map(|&node| self.fields.member(node, &name)).collect();
                for node in &nodes {
                    if let Some((from, to)) = seen.remove(node) {
                        self.values[from..to].iter_mut().for_each(|(_, value)| *value = Kept::Replaced);
                    }
                }
                Ok(Some(nodes))
            }
            Kind::Array { index, length } => {
                if !self.scanner.element(is_first)? {
                    return Ok(None);
                }
                let fields = self.fields;
                let places = [Some(*index), length.map(|length| *index - length)];
                *index += 1;
                let nodes = places
                    .into_iter()
                    .flatten()
                    .flat_map(|place| open.nodes.iter().filter_map(move |&node| fields.element(node, place)));
                Ok(Some(nodes.collect()))
            }
        }
    }

    /// Reads the value of these nodes: keeps it where a path ends, opens it where paths continue.
    fn value(&mut self, nodes: Nodes, open: &mut Vec<Open>) -> Result<(), Fault> {
        let from = self.values.len();
        let begun = self.scanner.begin()?;
        for &node in &nodes {
            if self.fields.is_wanted(node) {
                self.keep(node, begun);
            }
        }
        let is_container = matches!(begun, Token::Array | Token::Object);
        if is_container && nodes.iter().any(|&node| self.fields.has_children(node)) {
            let kind = if begun == Token::Object {
                Kind::Object(BTreeMap::new())
            } else {
                let counts = self.counts_from_end && nodes.iter().any(|&node| self.fields.counts_from_end(node));
                let length = if counts { self.scanner.measure(&mut self.lengths)? } else { None };
                Kind::Array { index: 0, length }
            };
            open.push(Open { kind, nodes, from, is_first: true });
            return Ok(());
        }
        self.scanner.skip_rest(begun)?;
        self.record(&nodes, from, open);
        Ok(())
    }

    fn record(&mut self, nodes: &Nodes, from: usize, open: &mut [Open]) {
        let to = self.values.len();
        if to > from
            && let Some(Open { kind: Kind::Object(seen), .. }) = open.last_mut()
        {
            seen.extend(nodes.iter().map(|&node| (node, (from, to))));
        }
    }
}

impl<'a> Walk<'_, 'a> {
    fn keep(&mut self, node: u32, begun: Token<'a>) {
        let kept = match begun {
            Token::Null => return,
            Token::Boolean(value) => Kept::Plain(Datum::Boolean(value)),
            Token::Number(written) => Kept::Plain(number(written)),
            Token::Text(raw) => match text(raw) {
                None => return,
                Some(std::borrow::Cow::Borrowed(text)) => Kept::Plain(Datum::Text(text)),
                Some(std::borrow::Cow::Owned(text)) => Kept::Escaped(text.into()),
            },
            Token::Array | Token::Object => Kept::Plain(Datum::Other),
        };
        self.values.push((node, kept));
    }
}
