//! The places of clauses: nodes reached by points, then by ranges.

use core::mem::take;

use smallvec::SmallVec;

use whimbrel_event::Seeded;

use super::axis::{FENCE, Kind, Point, Uses};
use super::clause::{Clause, Range};
use super::guard::{DECIDES, Guard, Held};
use super::sight::Sight;
use super::tree::{self, Bounds, Forest};
use crate::facts::FieldId;
use crate::store::{Slab, Table};

/// Clauses in a node's list before further ones go into children.
pub(super) const LIST: usize = 24;

/// The number of clauses with a range in common above which a tree over it pays; for fewer, testing
/// each one is cheaper than a tree.
const TREE: u32 = 48;

/// The number of clauses of a tree with a further range in common above which a tree over both
/// ranges pays.
const TOGETHER: u32 = 64;

/// Axes of its children that a node stores. A node with more is searched with all values of the
/// event instead.
const AXES: usize = 12;

/// Pairs of field and class whose clauses a node counts.
const COUNTED: usize = 256;

/// Most ranges in a path.
pub(super) const DEPTH: usize = 3;

/// An entry of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    clause: u32,
    pub(super) held: Held<2>,
}

/// The clauses with the same path.
#[derive(Debug)]
pub(super) struct Node {
    parent: u32,
    /// The point by which the parent reaches it; with the parent, the key in the table of children.
    point: Point,
    /// One bit for each child's hash.
    pub(super) filter: u64,
    /// The number of clauses here and below.
    population: u32,
    pub(super) list: Vec<Entry>,
    pub(super) more: Option<Box<More>>,
}

/// The state that only nodes with children or ranges have.
#[derive(Debug)]
pub(super) struct More {
    /// Axes of children, unless there are more than [`AXES`].
    pub(super) axes: SmallVec<[(FieldId, Kind); 4]>,
    pub(super) wide: bool,
    /// Children found by values in the payload.
    pub(super) json: u32,
    /// Children found by fences.
    pub(super) fences: u32,
    children: u32,
    /// The fields of the path's ranges, and the root of the tree over them.
    pub(super) dims: SmallVec<[FieldId; DEPTH]>,
    pub(super) root: u32,
    counted: Vec<((FieldId, u8), u32)>,
}

/// The place of a clause.
#[derive(Debug)]
struct Placed {
    node: u32,
    /// The leaf, or the index in the node's list.
    at: u32,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) nodes: Slab<Node>,
    children: Table,
    clauses: Slab<Placed>,
    pub(super) one: Forest<1, Held<2>>,
    pub(super) two: Forest<2, Held<1>>,
    pub(super) three: Forest<3, Held<0>>,
    pub(super) uses: Uses,
    pub(super) sight: Sight,
    hasher: Seeded,
}

/// The bit of a child's hash in its parent's filter.
#[inline]
pub(super) fn filter_bit(hash: u64) -> u64 {
    1 << (hash >> 54 & 63)
}

impl Nodes {
    pub(super) fn new(hasher: Seeded) -> Self {
        Nodes {
            nodes: Slab::new(),
            children: Table::new(),
            clauses: Slab::new(),
            one: Forest::new(),
            two: Forest::new(),
            three: Forest::new(),
            uses: Uses::default(),
            sight: Sight::default(),
            hasher,
        }
    }

    /// A node without parent.
    pub(super) fn insert_root(&mut self) -> u32 {
        self.insert_node(u32::MAX, Point { field: FENCE, kind: Kind::Fence, hash: 0 })
    }

    pub(super) fn remove_root(&mut self, root: u32) {
        let gone = self.nodes.remove(root);
        assert!(gone.population == 0, "an empty node");
    }

    fn insert_node(&mut self, parent: u32, point: Point) -> u32 {
        self.nodes.insert(Node { parent, point, filter: 0, population: 0, list: Vec::new(), more: None })
    }

    /// Compares the axis, too: if hashes of two axes were equal, a child of one would have the
    /// other's ranges. Two points of one axis with equal hashes may share a child.
    #[inline]
    pub(super) fn child(&self, parent: u32, point: Point) -> Option<u32> {
        let same = |&id: &u32| self.nodes[id].point == point && self.nodes[id].parent == parent;
        self.children.find(self.hasher.hash_one((point.hash, parent)), same)
    }

    fn child_or_insert(&mut self, parent: u32, point: Point) -> u32 {
        if let Some(child) = self.child(parent, point) {
            return child;
        }
        let child = self.insert_node(parent, point);
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let rehash = |&id: &u32| hasher.hash_one((nodes[id].point.hash, nodes[id].parent));
        self.children.insert(rehash(&child), child, rehash);
        self.uses.add(point.field, point.kind);
        let mut dims: SmallVec<[FieldId; DEPTH]> = SmallVec::new();
        let more = self.nodes[parent].more.get_or_insert_with(|| More::new(SmallVec::new()));
        more.adopt((point.field, point.kind));
        if let Kind::Range(_) = point.kind {
            dims.extend_from_slice(&more.dims);
            dims.push(point.field);
            self.nodes[child].more = Some(More::new(dims));
        }
        self.nodes[parent].filter |= filter_bit(point.hash);
        child
    }

    /// Adds a clause of `selector` (with [`super::guard::SEVERAL`]) under `root`, and returns the
    /// clause's number.
    pub(super) fn insert(&mut self, root: u32, selector: u32, clause: &Clause) -> u32 {
        let mut points: SmallVec<[Point; 3]> = clause.points.clone();
        let mut ranges = self.ranked(&clause.ranges);
        if points.is_empty() && ranges.is_empty() {
            points.extend(clause.present.map(|field| Point::flag(field, Kind::Present, true, &self.hasher)));
        }
        let mut at = root;
        let mut path: SmallVec<[Range; DEPTH]> = SmallVec::new();
        loop {
            self.nodes[at].population += 1;
            let Some(next) = self.next(at, &mut points, &mut ranges, &mut path) else { break };
            at = next;
        }
        let id = self.clauses.insert(Placed { node: at, at: 0 });
        let mut guards = points.iter().map(Guard::point).chain(ranges.iter().map(|(_, range)| Guard::range(range)));
        let mut guard = || guards.by_ref().find(|guard| *guard != Guard::Pass).unwrap_or(Guard::Pass);
        let guards = [guard(), guard()];
        for (field, kind) in guards.iter().filter_map(|guard| guard.axis()) {
            self.uses.add(field, kind);
        }
        if path.is_empty() {
            let list = &mut self.nodes[at].list;
            self.clauses[id].at = list.len() as u32;
            list.push(Entry { clause: id, held: Held { selector, guards } });
        } else {
            // If all ranges are in the box, a hit needs no further test. A box over values in the
            // payload would decide, too, but whether their numbers are doubles is not known.
            let all = ranges.is_empty() && path.iter().all(|range| range.field.is_attribute());
            let selector = if clause.decides && all { selector | DECIDES } else { selector };
            self.insert_box(at, &path, id, Held { selector, guards });
        }
        id
    }

    /// The child to which a clause goes, if it should not stay at `at`; the point or range of that
    /// child is removed from `points` or `ranges`.
    fn next(
        &mut self,
        at: u32,
        points: &mut SmallVec<[Point; 3]>,
        ranges: &mut SmallVec<[(u8, Range); 3]>,
        path: &mut SmallVec<[Range; DEPTH]>,
    ) -> Option<u32> {
        if !path.is_empty() {
            let place = self.worthwhile(at, ranges, 1, TOGETHER).filter(|_| path.len() < DEPTH)?;
            return Some(self.enter(at, ranges.remove(place), path));
        }
        if self.nodes[at].list.len() < LIST {
            return None;
        }
        if !points.is_empty() {
            let population = |point: &Point| self.child(at, *point).map_or(0, |child| self.nodes[child].population);
            // Values in the payload are read later than attributes, and only on demand.
            let rank = |(_, point): &(usize, &Point)| (point.field.is_json(), population(point));
            let (best, _) = points.iter().enumerate().min_by_key(rank)?;
            return Some(self.child_or_insert(at, points.remove(best)));
        }
        let place = self.worthwhile(at, ranges, 0, TREE)?;
        Some(self.enter(at, ranges.remove(place), path))
    }

    /// The child for a range.
    fn enter(&mut self, at: u32, (class, range): (u8, Range), path: &mut SmallVec<[Range; DEPTH]>) -> u32 {
        path.push(range);
        self.child_or_insert(at, Point::range(range.field, class, &self.hasher))
    }

    /// Ranges with their classes, most selective first; equal ones by field, so that equal
    /// selectors have equal paths.
    fn ranked(&mut self, ranges: &[Range]) -> SmallVec<[(u8, Range); 3]> {
        let mut ranked: SmallVec<[(u8, Range); 3]> = SmallVec::new();
        for range in ranges {
            let class = match sight_of(range.field) {
                Some(place) => {
                    self.sight.note(place, range.low, false);
                    self.sight.note(place, range.high, false);
                    self.sight.class(place, range.low, range.high)
                }
                None => 1,
            };
            ranked.push((class, *range));
        }
        ranked.sort_unstable_by_key(|(class, range)| (core::cmp::Reverse(*class), range.field));
        ranked
    }

    /// Counts the ranges of a node's clauses beyond its path, and finds one of at least class
    /// `least` that more than `enough` share.
    fn worthwhile(&mut self, at: u32, ranges: &[(u8, Range)], least: u8, enough: u32) -> Option<usize> {
        if ranges.is_empty() {
            return None;
        }
        let more = self.nodes[at].more.get_or_insert_with(|| More::new(SmallVec::new()));
        let mut best = None;
        for (place, (class, range)) in ranges.iter().enumerate().filter(|(_, (class, _))| *class >= least) {
            let key = (range.field, *class);
            let count = match more.counted.binary_search_by_key(&key, |(known, _)| *known) {
                Ok(known) => {
                    let count = &mut more.counted[known].1;
                    *count = count.saturating_add(1);
                    *count
                }
                Err(new) if more.counted.len() < COUNTED => {
                    more.counted.insert(new, (key, 1));
                    1
                }
                Err(_) => more.count_instead(key),
            };
            if count > enough && best.is_none() {
                best = Some(place);
            }
        }
        best
    }

    fn insert_box(&mut self, at: u32, path: &[Range], id: u32, held: Held<2>) {
        let Nodes { nodes, clauses, one, two, three, sight, .. } = self;
        let root = &mut nodes[at].more.as_mut().expect("a node with ranges in its path").root;
        let view = |field| sight_of(field).map_or((0.0, 0.0), |place| sight.view(place));
        let mut moved = |clause: u32, leaf: u32| clauses[clause].at = leaf;
        let Held { selector, guards } = held;
        match path.len() {
            1 => one.insert(root, &axes(path, view).1, (&axes(path, view).0, id, held), &mut moved),
            2 => {
                let held = Held { selector, guards: [guards[0]] };
                two.insert(root, &axes(path, view).1, (&axes(path, view).0, id, held), &mut moved);
            }
            _ => {
                let held = Held { selector, guards: [] };
                three.insert(root, &axes(path, view).1, (&axes(path, view).0, id, held), &mut moved);
            }
        }
    }

    /// Removes a clause, and nodes that it leaves empty.
    pub(super) fn remove(&mut self, id: u32) {
        let Placed { node, at, .. } = self.clauses.remove(id);
        let Nodes { nodes, clauses, one, two, three, uses, .. } = self;
        let here = &mut nodes[node];
        let mut release = |guards: &[Guard]| {
            guards.iter().filter_map(|guard| guard.axis()).for_each(|(field, kind)| uses.remove(field, kind));
        };
        let mut moved = |clause: u32, leaf: u32| clauses[clause].at = leaf;
        match here.more.as_mut().map_or(0, |more| more.dims.len()) {
            0 => {
                let gone = here.list.swap_remove(at as usize);
                release(&gone.held.guards);
                if let Some(entry) = here.list.get(at as usize) {
                    moved(entry.clause, at);
                }
                if here.list.len() * 4 < here.list.capacity() {
                    here.list.shrink_to(here.list.len() * 2);
                }
            }
            dims => {
                let root = &mut here.more.as_mut().expect("it has dimensions").root;
                match dims {
                    1 => release(&one.remove(root, at, id, &mut moved).guards),
                    2 => release(&two.remove(root, at, id, &mut moved).guards),
                    _ => release(&three.remove(root, at, id, &mut moved).guards),
                }
            }
        }
        self.leave(node);
    }

    /// Subtracts one clause at `at` and above, and removes empty nodes.
    fn leave(&mut self, mut at: u32) {
        loop {
            let node = &mut self.nodes[at];
            node.population -= 1;
            let (parent, population) = (node.parent, node.population);
            if parent == u32::MAX {
                return;
            }
            if population == 0 {
                let (nodes, hasher) = (&self.nodes, &self.hasher);
                let rehash = |&id: &u32| hasher.hash_one((nodes[id].point.hash, nodes[id].parent));
                self.children.remove(rehash(&at), at, rehash);
                let Point { field, kind, .. } = self.nodes.remove(at).point;
                self.uses.remove(field, kind);
                if let Some(place) = sight_of(field).filter(|_| self.uses.of(field).is_none()) {
                    self.sight.forget(place);
                }
                let above = &mut self.nodes[parent];
                if above.more.as_mut().expect("it had a child").leave((field, kind)) {
                    above.filter = 0;
                    let more = take(&mut above.more).expect("just seen");
                    above.more = Some(more).filter(|more| !more.dims.is_empty());
                }
            }
            at = parent;
        }
    }
}

/// The index under which a field's numbers are recorded; headers have none.
pub(super) fn sight_of(field: FieldId) -> Option<usize> {
    if field.is_attribute() {
        Some(field.0 as usize * 2)
    } else if field.is_json() {
        Some(field.json_index() as usize * 2 + 1)
    } else {
        None
    }
}

/// The box of a path of ranges, and the box in which points are expected.
fn axes<const D: usize>(path: &[Range], view: impl Fn(FieldId) -> (f64, f64)) -> (Bounds<D>, Bounds<D>) {
    (
        core::array::from_fn(|axis| (path[axis].low, path[axis].high)),
        core::array::from_fn(|axis| view(path[axis].field)),
    )
}

impl More {
    fn new(dims: SmallVec<[FieldId; DEPTH]>) -> Box<More> {
        Box::new(More {
            axes: SmallVec::new(),
            wide: false,
            json: 0,
            fences: 0,
            children: 0,
            dims,
            root: tree::NONE,
            counted: Vec::new(),
        })
    }

    fn adopt(&mut self, axis: (FieldId, Kind)) {
        self.children += 1;
        self.json += u32::from(axis.0.is_json());
        self.fences += u32::from(axis.0 == FENCE);
        if !self.wide && !self.axes.contains(&axis) {
            if self.axes.len() == AXES {
                (self.wide, self.axes) = (true, SmallVec::new());
            } else {
                self.axes.push(axis);
            }
        }
    }

    /// Counts a key in place of the one with the smallest count, which it inherits, so that
    /// frequent keys stay in the list. After A. Metwally, D. Agrawal and A. El Abbadi, "Efficient
    /// computation of frequent and top-k elements in data streams" (ICDT 2005).
    fn count_instead(&mut self, key: (FieldId, u8)) -> u32 {
        let (least, _) =
            self.counted.iter().enumerate().min_by_key(|(_, (_, count))| *count).expect("the list is full");
        let (_, count) = self.counted.remove(least);
        let place = self.counted.partition_point(|(known, _)| *known < key);
        self.counted.insert(place, (key, count.saturating_add(1)));
        // The inherited count is not the key's own.
        1
    }

    /// Removes a child; true if it was the last.
    fn leave(&mut self, axis: (FieldId, Kind)) -> bool {
        self.children -= 1;
        self.json -= u32::from(axis.0.is_json());
        self.fences -= u32::from(axis.0 == FENCE);
        if self.children == 0 {
            (self.wide, self.axes) = (false, SmallVec::new());
        }
        self.children == 0
    }
}
