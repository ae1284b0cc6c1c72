//! The wanted values of one payload.

use core::mem;
use std::collections::BTreeMap;

use smallvec::SmallVec;
use whimbrel_event::Value;

use super::scan::{Fault, Lengths, Scanner, Token, text};
use super::{JsonFields, ROOT};
use crate::subject::Datum;

/// Payloads in which array elements are counted from the end, bytes: it takes the lengths of all
/// arrays in such an array, 16 bytes each. In longer payloads these elements are NULL.
const FROM_END_MAX: usize = 1 << 20;

/// Nodes of paths that lead to the same value: several only where elements are counted from both
/// ends.
type Nodes = SmallVec<[u32; 2]>;

/// A value that is kept: JSON `null`, and texts that stand for none, are not.
#[derive(Debug)]
enum Kept<'a> {
    /// It is, or borrows from, what stands in the payload.
    Plain(Datum<'a>),
    /// A text that was written with escapes.
    Escaped(Box<str>),
    /// It was in a member that came again; the last one counts.
    Replaced,
}

/// The wanted values of one payload.
#[derive(Debug, Default)]
pub(crate) struct JsonFacts<'a> {
    /// By field, each once.
    values: Vec<(u32, Kept<'a>)>,
}

impl<'a> JsonFacts<'a> {
    /// Reads `payload`. One that is not JSON has no values.
    ///
    /// What is JSON does not depend on what is wanted: its grammar is checked to its end. Other
    /// values than the wanted ones are not judged. The time is bounded by the bytes of the payload
    /// times the paths that meet in one value, which are 1 where no path counts elements from the
    /// end; besides, by one look-up for each member and element beside a wanted one. Containers
    /// that are open on the way to wanted values are held in a list, nothing recurses.
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

/// A number by the rule for attributes ([`Value::of`]): infinite where it is beyond a double.
fn number(written: &str) -> Datum<'static> {
    match Value::of(written) {
        Value::Integer(value) => Datum::Integer(value),
        Value::Double(value) => Datum::Double(value),
        Value::Boolean(_) | Value::Text(_) => unreachable!("{written:?} has the form of a number"),
    }
}

/// A container that is open, on the way to wanted values.
struct Open {
    kind: Kind,
    nodes: Nodes,
    /// The first of its values.
    from: usize,
    is_first: bool,
}

enum Kind {
    /// Wanted members so far, and where their values are: a member that comes again replaces them.
    Object(BTreeMap<u32, (usize, usize)>),
    Array {
        /// Of the element that comes next.
        index: i64,
        /// How many there are, if a path counts from the end.
        length: Option<i64>,
    },
}

struct Walk<'w, 'a> {
    fields: &'w JsonFields,
    scanner: Scanner<'a>,
    /// Elements may be counted from the end.
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

    /// Goes to the next member or element; gives the nodes that lead to it, `None` at the end.
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

    /// Reads a value to which these nodes lead: keeps it where a path ends, opens it where paths go
    /// on.
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
