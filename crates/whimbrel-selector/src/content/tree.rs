//! R-trees: find the boxes that contain a point.
//!
//! After A. Guttman, "R-trees: a dynamic index structure for spatial searching" (SIGMOD 1984), with
//! the split along the axis for which the expected cost of a search is smallest. All trees of one
//! dimension share an arena.

use crate::store::Slab;

/// Boxes in a block. Sixteen are compared in about as many cycles, and splitting them is cheap.
pub(super) const BLOCK: usize = 16;

/// A leaf with fewer boxes is merged into a sibling that has room.
const SPARSE: usize = BLOCK / 4;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// A box: low and high end of each axis, both included.
pub(super) type Bounds<const D: usize> = [(f64, f64); D];

/// Data that a leaf has beside each box, checked before any other memory is read.
pub(super) trait Note: Copy {
    /// The note of an unused place.
    const EMPTY: Self;
}

#[derive(Debug)]
struct Block<const D: usize, N> {
    low: [[f64; BLOCK]; D],
    high: [[f64; BLOCK]; D],
    /// Clauses in leaves, otherwise blocks.
    ids: [u32; BLOCK],
    notes: [N; BLOCK],
    len: u8,
    /// Height above the leaves, which have 0.
    height: u8,
    parent: u32,
}

impl<const D: usize, N: Note> Block<D, N> {
    fn new(height: u8, parent: u32) -> Self {
        Block {
            low: [[f64::INFINITY; BLOCK]; D],
            high: [[f64::NEG_INFINITY; BLOCK]; D],
            ids: [NONE; BLOCK],
            notes: [N::EMPTY; BLOCK],
            len: 0,
            height,
            parent,
        }
    }

    fn bounds(&self, place: usize) -> Bounds<D> {
        core::array::from_fn(|axis| (self.low[axis][place], self.high[axis][place]))
    }

    fn set(&mut self, place: usize, bounds: &Bounds<D>) {
        for (axis, (low, high)) in bounds.iter().enumerate() {
            (self.low[axis][place], self.high[axis][place]) = (*low, *high);
        }
    }

    fn push(&mut self, bounds: &Bounds<D>, id: u32, note: N) {
        let place = usize::from(self.len);
        self.set(place, bounds);
        (self.ids[place], self.notes[place]) = (id, note);
        self.len += 1;
    }

    fn remove(&mut self, place: usize) {
        let last = usize::from(self.len) - 1;
        self.set(place, &self.bounds(last));
        (self.ids[place], self.notes[place]) = (self.ids[last], self.notes[last]);
        self.set(last, &[(f64::INFINITY, f64::NEG_INFINITY); D]);
        (self.ids[last], self.notes[last]) = (NONE, N::EMPTY);
        self.len -= 1;
    }

    fn place_of(&self, id: u32) -> usize {
        self.ids[..usize::from(self.len)].iter().position(|&known| known == id).expect("the block has it")
    }

    fn cover(&self) -> Bounds<D> {
        (0..usize::from(self.len)).fold([(f64::INFINITY, f64::NEG_INFINITY); D], |all, at| join(&all, &self.bounds(at)))
    }

    /// One bit for each box that contains the point.
    #[inline]
    fn containing(&self, point: &[f64; D]) -> u32 {
        let mut inside = [true; BLOCK];
        for ((low, high), at) in self.low.iter().zip(&self.high).zip(point) {
            for ((inside, low), high) in inside.iter_mut().zip(low).zip(high) {
                *inside &= (low <= at) & (at <= high);
            }
        }
        let mut bits = 0;
        for (place, inside) in inside.iter().enumerate() {
            bits |= u32::from(*inside) << place;
        }
        bits
    }
}

fn join<const D: usize>(left: &Bounds<D>, right: &Bounds<D>) -> Bounds<D> {
    core::array::from_fn(|axis| (left[axis].0.min(right[axis].0), left[axis].1.max(right[axis].1)))
}

/// The share of `view` that a box covers: the probability that a point is in it.
fn share<const D: usize>(bounds: &Bounds<D>, view: &Bounds<D>) -> f64 {
    /// The share of a box without extent on an axis, so that the other axes still count.
    const THIN: f64 = 1e-4;
    let mut share = 1.0;
    for (bounds, view) in bounds.iter().zip(view) {
        let seen = bounds.1.min(view.1) - bounds.0.max(view.0);
        let whole = view.1 - view.0;
        share *= if whole > 0.0 { (seen / whole).max(0.0) + THIN } else { 1.0 };
    }
    share
}

/// R-trees over boxes with `D` axes.
#[derive(Debug)]
pub(super) struct Forest<const D: usize, N> {
    blocks: Slab<Block<D, N>, 6>,
}

impl<const D: usize, N: Note> Forest<D, N> {
    pub(super) const fn new() -> Self {
        Forest { blocks: Slab::new() }
    }

    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a box to the tree at `root` ([`NONE`] if it is empty). `view` is the box in which
    /// points are expected; it influences the speed of the tree, not its results. `moved` is called
    /// with the leaf of each clause that was added or moved.
    pub(super) fn insert(
        &mut self,
        root: &mut u32,
        view: &Bounds<D>,
        (bounds, id, note): (&Bounds<D>, u32, N),
        moved: &mut impl FnMut(u32, u32),
    ) {
        if *root == NONE {
            *root = self.blocks.insert(Block::new(0, NONE));
        }
        let mut at = *root;
        while self.blocks[at].height > 0 {
            let place = self.choose(at, bounds, view);
            let block = &mut self.blocks[at];
            let grown = join(&block.bounds(place), bounds);
            block.set(place, &grown);
            at = block.ids[place];
        }
        let (mut bounds, mut id, mut note) = (*bounds, id, note);
        moved(id, at);
        loop {
            if usize::from(self.blocks[at].len) < BLOCK {
                self.blocks[at].push(&bounds, id, note);
                return;
            }
            let new = self.split(at, view, (&bounds, id, note), moved);
            let parent = self.blocks[at].parent;
            let (left, right) = (self.blocks[at].cover(), self.blocks[new].cover());
            if parent == NONE {
                let mut top = Block::new(self.blocks[at].height + 1, NONE);
                top.push(&left, at, N::EMPTY);
                top.push(&right, new, N::EMPTY);
                let top = self.blocks.insert(top);
                (self.blocks[at].parent, self.blocks[new].parent) = (top, top);
                *root = top;
                return;
            }
            let place = self.blocks[parent].place_of(at);
            self.blocks[parent].set(place, &left);
            self.blocks[new].parent = parent;
            (at, bounds, id, note) = (parent, right, new, N::EMPTY);
        }
    }

    /// The child whose share grows least by `bounds`; among equals the smallest.
    fn choose(&self, at: u32, bounds: &Bounds<D>, view: &Bounds<D>) -> usize {
        let block = &self.blocks[at];
        let mut best = (f64::INFINITY, f64::INFINITY, 0);
        for place in 0..usize::from(block.len) {
            let known = block.bounds(place);
            let before = share(&known, view);
            let growth = share(&join(&known, bounds), view) - before;
            if (growth, before) < (best.0, best.1) {
                best = (growth, before, place);
            }
        }
        best.2
    }

    /// Splits a full block and one more box; returns the new block, whose parent is to be set.
    fn split(
        &mut self,
        at: u32,
        view: &Bounds<D>,
        (bounds, id, note): (&Bounds<D>, u32, N),
        moved: &mut impl FnMut(u32, u32),
    ) -> u32 {
        let block = &self.blocks[at];
        let (height, parent) = (block.height, block.parent);
        let mut all: [(Bounds<D>, u32, N); BLOCK + 1] = core::array::from_fn(|place| match place {
            BLOCK => (*bounds, id, note),
            place => (block.bounds(place), block.ids[place], block.notes[place]),
        });
        let mut best = (f64::INFINITY, 0, BLOCK / 2);
        for axis in 0..D {
            sort(&mut all, axis, view);
            let (cost, size) = cheapest_cut(&all, view);
            if cost < best.0 {
                best = (cost, axis, size);
            }
        }
        let (_, axis, size) = best;
        sort(&mut all, axis, view);
        let (mut stay, mut go) = (Block::new(height, parent), Block::new(height, NONE));
        all[..size].iter().for_each(|(bounds, id, note)| stay.push(bounds, *id, *note));
        all[size..].iter().for_each(|(bounds, id, note)| go.push(bounds, *id, *note));
        self.blocks[at] = stay;
        let new = self.blocks.insert(go);
        for (number, (_, id, _)) in all.iter().enumerate() {
            let owner = if number < size { at } else { new };
            if height == 0 {
                moved(*id, owner);
            } else {
                self.blocks[*id].parent = owner;
            }
        }
        new
    }

    /// Removes a clause's box from its leaf, and returns its note.
    pub(super) fn remove(&mut self, root: &mut u32, leaf: u32, id: u32, moved: &mut impl FnMut(u32, u32)) -> N {
        let place = self.blocks[leaf].place_of(id);
        let note = self.blocks[leaf].notes[place];
        self.blocks[leaf].remove(place);
        self.tighten(root, leaf, moved);
        note
    }

    /// Shrinks the boxes above a block as far as possible, and removes blocks that are not needed.
    fn tighten(&mut self, root: &mut u32, leaf: u32, moved: &mut impl FnMut(u32, u32)) {
        let mut at = leaf;
        loop {
            let parent = self.blocks[at].parent;
            if parent == NONE {
                break;
            }
            let place = self.blocks[parent].place_of(at);
            if usize::from(self.blocks[at].len) < SPARSE && self.give_away(at, parent, moved) {
                self.blocks[parent].remove(place);
                self.blocks.remove(at);
            } else {
                let cover = self.blocks[at].cover();
                if self.blocks[parent].bounds(place) == cover {
                    return;
                }
                self.blocks[parent].set(place, &cover);
            }
            at = parent;
        }
        // A root that is empty, or has a single child, is removed.
        while *root != NONE && self.blocks[*root].len <= 1 {
            let block = &self.blocks[*root];
            let next = if block.len == 0 { NONE } else { block.ids[0] };
            if block.height == 0 && block.len == 1 {
                return;
            }
            self.blocks.remove(*root);
            *root = next;
            if next != NONE {
                self.blocks[next].parent = NONE;
            }
        }
    }

    /// Moves the boxes of a sparse block into a sibling with room; false if there is none. An empty
    /// block needs none.
    fn give_away(&mut self, at: u32, parent: u32, moved: &mut impl FnMut(u32, u32)) -> bool {
        let len = usize::from(self.blocks[at].len);
        if len == 0 {
            return true;
        }
        let siblings = &self.blocks[parent];
        let room = |&sibling: &u32| sibling != at && usize::from(self.blocks[sibling].len) + len <= BLOCK - 2;
        let Some(sibling) = siblings.ids[..usize::from(siblings.len)].iter().copied().find(room) else { return false };
        for place in 0..len {
            let block = &self.blocks[at];
            let (bounds, id, note, height) = (block.bounds(place), block.ids[place], block.notes[place], block.height);
            self.blocks[sibling].push(&bounds, id, note);
            if height == 0 {
                moved(id, sibling);
            } else {
                self.blocks[id].parent = sibling;
            }
        }
        let cover = self.blocks[sibling].cover();
        let place = self.blocks[parent].place_of(sibling);
        self.blocks[parent].set(place, &cover);
        true
    }

    /// Calls `found` with the note of each box that contains the point. The depth of recursion is
    /// the height: fewer than 16 for any memory.
    pub(super) fn visit(&self, root: u32, point: &[f64; D], found: &mut impl FnMut(&N)) {
        if root == NONE {
            return;
        }
        let block = &self.blocks[root];
        let mut bits = block.containing(point);
        while bits != 0 {
            let place = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if block.height == 0 {
                found(&block.notes[place]);
            } else {
                self.visit(block.ids[place], point, found);
            }
        }
    }
}

/// Sorts by the middle of each box along one axis, as far as it lies in `view`, then by clause, so
/// that the order of equal boxes is determined.
fn sort<const D: usize, N>(all: &mut [(Bounds<D>, u32, N)], axis: usize, view: &Bounds<D>) {
    let (from, to) = view[axis];
    let middle = |bounds: &Bounds<D>| bounds[axis].0.max(from).min(to) + bounds[axis].1.min(to).max(from);
    all.sort_unstable_by(|left, right| middle(&left.0).total_cmp(&middle(&right.0)).then(left.1.cmp(&right.1)));
}

/// The cut of a sorted row of boxes with the smallest expected cost of a search, and that cost.
fn cheapest_cut<const D: usize, N>(all: &[(Bounds<D>, u32, N); BLOCK + 1], view: &Bounds<D>) -> (f64, usize) {
    const LEAST: usize = BLOCK / 4 + 1;
    let mut behind = [0.0; BLOCK + 1];
    let mut cover = [(f64::INFINITY, f64::NEG_INFINITY); D];
    for place in (0..=BLOCK).rev() {
        cover = join(&cover, &all[place].0);
        behind[place] = share(&cover, view) * (BLOCK + 1 - place) as f64;
    }
    let mut best = (f64::INFINITY, BLOCK / 2);
    cover = [(f64::INFINITY, f64::NEG_INFINITY); D];
    for size in 1..=BLOCK {
        cover = join(&cover, &all[size - 1].0);
        let cost = share(&cover, view) * size as f64 + behind[size];
        if (LEAST..=BLOCK + 1 - LEAST).contains(&size) && cost < best.0 {
            best = (cost, size);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Note for u32 {
        const EMPTY: u32 = 0;
    }

    const VIEW: Bounds<2> = [(0.0, 100.0), (0.0, 100.0)];

    fn any_end() -> impl Strategy<Value = f64> {
        prop_oneof![8 => (0..100_i32).prop_map(f64::from), 1 => Just(f64::INFINITY), 1 => Just(f64::NEG_INFINITY)]
    }

    fn any_box() -> impl Strategy<Value = Bounds<2>> {
        [(any_end(), any_end()), (any_end(), any_end())]
            .prop_map(|ends| ends.map(|(one, other)| (one.min(other), one.max(other))))
    }

    fn found(forest: &Forest<2, u32>, root: u32, point: [f64; 2]) -> Vec<u32> {
        let mut ids = Vec::new();
        forest.visit(root, &point, &mut |note| ids.push(*note));
        ids.sort_unstable();
        ids
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_tree_finds_what_looking_at_each_box_finds(
            boxes in proptest::collection::vec((any_box(), any::<bool>()), 1..400),
            points in proptest::collection::vec((any_end(), any_end()), 10),
        ) {
            let mut forest = Forest::<2, u32>::new();
            let mut root = NONE;
            let mut leaves = vec![NONE; boxes.len()];
            let mut kept: Vec<(u32, Bounds<2>)> = Vec::new();
            for (id, (bounds, remove)) in boxes.iter().enumerate() {
                let mut moved = |clause: u32, leaf: u32| leaves[clause as usize] = leaf;
                forest.insert(&mut root, &VIEW, (bounds, id as u32, id as u32), &mut moved);
                kept.push((id as u32, *bounds));
                if *remove && id % 3 > 0 {
                    let (gone, _) = kept.swap_remove(id * 7 % kept.len());
                    let leaf = leaves[gone as usize];
                    let mut moved = |clause: u32, leaf: u32| leaves[clause as usize] = leaf;
                    prop_assert_eq!(forest.remove(&mut root, leaf, gone, &mut moved), gone);
                }
            }
            for (x, y) in points {
                let inside = |(low, high): (f64, f64), at: f64| low <= at && at <= high;
                let of_point = |(_, bounds): &&(u32, Bounds<2>)| inside(bounds[0], x) && inside(bounds[1], y);
                let mut expected: Vec<u32> = kept.iter().filter(of_point).map(|(id, _)| *id).collect();
                expected.sort_unstable();
                prop_assert_eq!(found(&forest, root, [x, y]), expected);
            }
            while let Some((id, _)) = kept.pop() {
                let leaf = leaves[id as usize];
                forest.remove(&mut root, leaf, id, &mut |clause, leaf| leaves[clause as usize] = leaf);
            }
            prop_assert_eq!((root, forest.blocks()), (NONE, 0), "an empty tree has no blocks");
        }
    }
}
