//! Values in JSON payloads: the wanted ones are picked while the payload is read, once.

use core::fmt;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use whimbrel_event::Seeded;

use crate::selector::Step;
use crate::store::{Slab, Table};
use crate::subject::Datum;

const ROOT: u32 = 0;

/// Payloads in which array elements are counted from the end, bytes: such elements are held until the end is seen, which takes many times their
/// length. In longer ones these elements are NULL.
const FROM_END_MAX: usize = 1 << 20;

/// One step of a wanted path. Paths with a common beginning share its steps.
#[derive(Debug)]
struct Node {
    parent: u32,
    step: Step,
    /// How often the path that ends here is in use.
    uses: u32,
    children: u32,
    /// Children that count from the end of an array, by how far.
    from_end: BTreeSet<usize>,
}

/// The paths that selectors use: a tree whose edges are in one hash table.
#[derive(Debug)]
pub(crate) struct JsonFields {
    nodes: Slab<Node>,
    table: Table,
    hasher: Seeded,
    position: (u32, u32),
}

impl JsonFields {
    pub(crate) fn new(seed: u64) -> Self {
        let mut nodes = Slab::new();
        let root = Node { parent: ROOT, step: Step::Index(0), uses: 1, children: 0, from_end: BTreeSet::new() };
        assert!(nodes.insert(root) == ROOT, "the first place");
        let hasher = Seeded::new(seed);
        let mut fields = JsonFields { nodes, table: Table::new(), hasher, position: (0, 0) };
        let mut member = |name: &str| fields.retain(&[Step::Member(name.into())]);
        fields.position = (member("lat"), member("lon"));
        fields
    }

    /// The top-level members `lat` and `lon`, which are in use always.
    pub(crate) fn position(&self) -> (u32, u32) {
        self.position
    }

    /// The number of a path, which is in use once more.
    pub(crate) fn retain(&mut self, steps: &[Step]) -> u32 {
        let mut at = ROOT;
        for step in steps {
            at = self.child(at, step).unwrap_or_else(|| self.insert(at, step));
        }
        self.nodes[at].uses += 1;
        at
    }

    fn insert(&mut self, parent: u32, step: &Step) -> u32 {
        let node = Node { parent, step: step.clone(), uses: 0, children: 0, from_end: BTreeSet::new() };
        let id = self.nodes.insert(node);
        self.nodes[parent].children += 1;
        if let Some(distance) = from_end(step) {
            self.nodes[parent].from_end.insert(distance);
        }
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        self.table.insert(hash(hasher, parent, step), id, |&id| hash(hasher, nodes[id].parent, &nodes[id].step));
        id
    }

    /// The number of a path in use.
    pub(crate) fn find(&self, steps: &[Step]) -> Option<u32> {
        steps.iter().try_fold(ROOT, |at, step| self.child(at, step))
    }

    /// The path is in use once less.
    pub(crate) fn release(&mut self, id: u32) {
        self.nodes[id].uses -= 1;
        let mut at = id;
        while at != ROOT && self.nodes[at].uses == 0 && self.nodes[at].children == 0 {
            let (nodes, hasher) = (&self.nodes, &self.hasher);
            let key = hash(hasher, nodes[at].parent, &nodes[at].step);
            self.table.remove(key, at, |&id| hash(hasher, nodes[id].parent, &nodes[id].step));
            let Node { parent, step, .. } = self.nodes.remove(at);
            self.nodes[parent].children -= 1;
            if let Some(distance) = from_end(&step) {
                self.nodes[parent].from_end.remove(&distance);
            }
            at = parent;
        }
    }

    fn child(&self, parent: u32, step: &Step) -> Option<u32> {
        if self.nodes[parent].children == 0 {
            return None;
        }
        let same = |&id: &u32| self.nodes[id].parent == parent && self.nodes[id].step == *step;
        self.table.find(hash(&self.hasher, parent, step), same)
    }

    fn member(&self, parent: u32, name: &str) -> Option<u32> {
        if self.nodes[parent].children == 0 {
            return None;
        }
        let same = |&id: &u32| {
            let node = &self.nodes[id];
            node.parent == parent && matches!(&node.step, Step::Member(known) if **known == *name)
        };
        self.table.find(self.hasher.hash_one((parent, name)), same)
    }
}

/// How far from the end of an array a step is, if it counts from there; 1 is the last element.
fn from_end(step: &Step) -> Option<usize> {
    match step {
        Step::Index(index @ ..0) => Some(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
        _ => None,
    }
}

fn hash(hasher: &Seeded, parent: u32, step: &Step) -> u64 {
    match step {
        Step::Member(name) => hasher.hash_one((parent, &**name)),
        Step::Index(index) => hasher.hash_one((parent, *index)),
    }
}

/// A value that is kept: JSON `null` is not.
#[derive(Debug)]
enum Kept {
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Box<str>),
    Other,
    /// It was in a member that came again; the last one counts.
    Replaced,
}

/// The wanted values of one payload.
#[derive(Debug, Default)]
pub(crate) struct JsonFacts {
    /// By field, each once.
    values: Vec<(u32, Kept)>,
}

impl JsonFacts {
    /// Reads `payload`. One that is not JSON has no values.
    ///
    /// What is JSON does not depend on what is wanted: what is not wanted is read as carefully.
    pub(crate) fn of(payload: &[u8], fields: &JsonFields) -> JsonFacts {
        let mut values = Vec::new();
        let mut reader = serde_json::Deserializer::from_slice(payload);
        let from_end = payload.len() <= FROM_END_MAX;
        let read = Pick { fields, node: Some(ROOT), from_end, values: &mut values }.deserialize(&mut reader);
        if read.is_err() || reader.end().is_err() {
            return JsonFacts::default();
        }
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

impl Kept {
    fn datum(&self) -> Datum<'_> {
        match self {
            Kept::Boolean(value) => Datum::Boolean(*value),
            Kept::Integer(value) => Datum::Integer(*value),
            Kept::Double(value) => Datum::Double(*value),
            Kept::Text(text) => Datum::Text(text),
            Kept::Other => Datum::Other,
            Kept::Replaced => Datum::Null,
        }
    }
}

/// Reads one value: keeps it if a path ends at `node`, looks into it if paths go on from there.
struct Pick<'p> {
    fields: &'p JsonFields,
    node: Option<u32>,
    /// Elements may be counted from the end.
    from_end: bool,
    values: &'p mut Vec<(u32, Kept)>,
}

impl Pick<'_> {
    fn keep(self, value: impl FnOnce() -> Kept) {
        if let Some(node) = self.node
            && self.fields.nodes[node].uses > 0
        {
            self.values.push((node, value()));
        }
    }

    /// The same for a value that has been read already; `serde_json` bounds its depth.
    fn keep_value(self, value: &Value) {
        let Pick { fields, node, from_end, values } = self;
        let Some(node) = node else { return };
        let mut down = |child: Option<u32>, value| Pick { fields, node: child, from_end, values }.keep_value(value);
        match value {
            Value::Object(members) if fields.nodes[node].children > 0 => {
                members.iter().for_each(|(name, value)| down(fields.member(node, name), value));
            }
            Value::Array(elements) if fields.nodes[node].children > 0 => {
                for (index, value) in elements.iter().enumerate() {
                    down(fields.child(node, &Step::Index(index as i64)), value);
                    down(fields.child(node, &Step::Index(index as i64 - elements.len() as i64)), value);
                }
            }
            _ => {}
        }
        let pick = Pick { fields, node: Some(node), from_end, values };
        match value {
            Value::Null => {}
            Value::Bool(value) => pick.keep(|| Kept::Boolean(*value)),
            Value::Number(number) => pick.keep(|| match number.as_i64() {
                Some(value) => Kept::Integer(value),
                None => Kept::Double(number.as_f64().expect("every number without arbitrary precision is a double")),
            }),
            Value::String(text) => pick.keep(|| Kept::Text(text.as_str().into())),
            Value::Array(_) | Value::Object(_) => pick.keep(|| Kept::Other),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Pick<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Pick<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.keep(|| Kept::Boolean(value));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.keep(|| Kept::Integer(value));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.keep(|| i64::try_from(value).map_or(Kept::Double(value as f64), Kept::Integer));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.keep(|| Kept::Double(value));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.keep(|| Kept::Text(text.into()));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let deeper = self.node.filter(|&node| self.fields.nodes[node].children > 0);
        // Wanted members seen so far, and where their values are: a member that comes again replaces them.
        let mut seen: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
        while let Some(Name(name)) = members.next_key()? {
            let child = deeper.and_then(|node| self.fields.member(node, &name));
            if let Some(child) = child
                && let Some(&(from, to)) = seen.get(&child)
            {
                self.values[from..to].iter_mut().for_each(|(_, value)| *value = Kept::Replaced);
            }
            let from = self.values.len();
            members.next_value_seed(Pick {
                fields: self.fields,
                node: child,
                from_end: self.from_end,
                values: self.values,
            })?;
            if let Some(child) = child {
                seen.insert(child, (from, self.values.len()));
            }
        }
        self.keep(|| Kept::Other);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Pick { fields, node, from_end, values } = self;
        let deeper = node.filter(|&node| fields.nodes[node].children > 0);
        let longest =
            deeper.filter(|_| from_end).and_then(|node| fields.nodes[node].from_end.last().copied()).unwrap_or(0);
        // The last elements, as many as paths may count back.
        let mut last: VecDeque<Value> = VecDeque::new();
        for index in 0_i64.. {
            let child = deeper.and_then(|node| fields.child(node, &Step::Index(index)));
            let pick = Pick { fields, node: child, from_end, values: &mut *values };
            if longest == 0 {
                if elements.next_element_seed(pick)?.is_none() {
                    break;
                }
            } else {
                let Some(value) = elements.next_element::<Value>()? else { break };
                pick.keep_value(&value);
                if last.len() == longest {
                    last.pop_front();
                }
                last.push_back(value);
            }
        }
        for (value, distance) in last.iter().rev().zip(1_i64..) {
            let child = deeper.and_then(|node| fields.child(node, &Step::Index(-distance)));
            Pick { fields, node: child, from_end, values: &mut *values }.keep_value(value);
        }
        Pick { fields, node, from_end, values }.keep(|| Kept::Other);
        Ok(())
    }
}

/// The name of a member, borrowed from the payload where it has no escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member's name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        reader.deserialize_str(Read)
    }
}
