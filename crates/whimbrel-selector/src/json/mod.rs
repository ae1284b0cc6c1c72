//! JSON payloads: the paths that selectors use, and reading their values.

mod pick;
mod scan;
mod view;

use whimbrel_event::Seeded;

pub(crate) use pick::JsonFacts;
pub(crate) use scan::Token;
pub(crate) use view::Json;

use crate::selector::Step;
use crate::store::{Slab, Table};

const ROOT: u32 = 0;

/// One step of a used path. Paths with a common beginning share its steps.
#[derive(Debug)]
struct Node {
    parent: u32,
    step: Step,
    /// Number of uses of the path that ends here.
    uses: u32,
    children: u32,
    /// Number of children that count from the end of an array.
    from_end: u32,
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
        let root = Node { parent: ROOT, step: Step::Index(0), uses: 1, children: 0, from_end: 0 };
        assert!(nodes.insert(root) == ROOT, "the first place");
        let hasher = Seeded::new(seed);
        let mut fields = JsonFields { nodes, table: Table::new(), hasher, position: (0, 0) };
        let mut member = |name: &str| fields.retain(&[Step::Member(name.into())]);
        fields.position = (member("lat"), member("lon"));
        fields
    }

    /// The top-level members `lat` and `lon`, which are always in use.
    pub(crate) fn position(&self) -> (u32, u32) {
        self.position
    }

    /// The number of a path, with one more use.
    pub(crate) fn retain(&mut self, steps: &[Step]) -> u32 {
        let mut at = ROOT;
        for step in steps {
            at = self.child(at, step).unwrap_or_else(|| self.insert(at, step));
        }
        self.nodes[at].uses += 1;
        at
    }

    fn insert(&mut self, parent: u32, step: &Step) -> u32 {
        let node = Node { parent, step: step.clone(), uses: 0, children: 0, from_end: 0 };
        let id = self.nodes.insert(node);
        self.nodes[parent].children += 1;
        self.nodes[parent].from_end += u32::from(is_from_end(step));
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        self.table.insert(hash(hasher, parent, step), id, |&id| hash(hasher, nodes[id].parent, &nodes[id].step));
        id
    }

    /// The number of a path in use.
    pub(crate) fn find(&self, steps: &[Step]) -> Option<u32> {
        steps.iter().try_fold(ROOT, |at, step| self.child(at, step))
    }

    /// Ends one use of a path.
    pub(crate) fn release(&mut self, id: u32) {
        self.nodes[id].uses -= 1;
        let mut at = id;
        while at != ROOT && self.nodes[at].uses == 0 && self.nodes[at].children == 0 {
            let (nodes, hasher) = (&self.nodes, &self.hasher);
            let key = hash(hasher, nodes[at].parent, &nodes[at].step);
            self.table.remove(key, at, |&id| hash(hasher, nodes[id].parent, &nodes[id].step));
            let Node { parent, step, .. } = self.nodes.remove(at);
            self.nodes[parent].children -= 1;
            self.nodes[parent].from_end -= u32::from(is_from_end(&step));
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

    /// The node of an array's element, by its index from the start or, if negative, from the end.
    fn element(&self, parent: u32, index: i64) -> Option<u32> {
        self.child(parent, &Step::Index(index))
    }

    /// Whether a selector uses the value of the path that ends here.
    fn is_wanted(&self, node: u32) -> bool {
        self.nodes[node].uses > 0
    }

    fn has_children(&self, node: u32) -> bool {
        self.nodes[node].children > 0
    }

    fn counts_from_end(&self, node: u32) -> bool {
        self.nodes[node].from_end > 0
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

fn is_from_end(step: &Step) -> bool {
    matches!(step, Step::Index(..0))
}

fn hash(hasher: &Seeded, parent: u32, step: &Step) -> u64 {
    match step {
        Step::Member(name) => hasher.hash_one((parent, &**name)),
        Step::Index(index) => hasher.hash_one((parent, *index)),
    }
}
