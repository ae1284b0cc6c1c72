//! Rings of polygons, in the plane of longitude and latitude.

use core::ops::Range;

use robust::{Coord, orient2d};

use super::FenceWork;
use super::tree::{SegmentTree, Step};

/// Longitude and latitude, in degrees.
pub type Position = [f64; 2];

/// The location of a position with respect to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Inside the ring.
    Inside,
    /// On one of its edges.
    Boundary,
    /// Outside the ring.
    Outside,
}

/// The smallest box around some positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The least longitude and the least latitude.
    pub min: Position,
    /// The greatest ones.
    pub max: Position,
}

impl Extent {
    fn around(positions: &[Position]) -> Extent {
        let mut extent = Extent { min: [f64::INFINITY; 2], max: [f64::NEG_INFINITY; 2] };
        for position in positions {
            for axis in [0, 1] {
                extent.min[axis] = extent.min[axis].min(position[axis]);
                extent.max[axis] = extent.max[axis].max(position[axis]);
            }
        }
        extent
    }
}

/// A closed line of straight edges in the plane of longitude and latitude, as in RFC 7946 (3.1.1).
///
/// The inside follows the even-odd rule: a ray to the east crosses the ring an odd number of times.
/// Edges are tested with exact signs (Shewchuk's adaptive predicates, crate `robust`), so a
/// position counts as on an edge exactly if it is so for the numbers as given.
///
/// The `contains` of the `geo` crate visits all edges. Here a run of consecutive edges whose box
/// does not contain the position is decided by its ends: if all of it lies to the east, it crosses
/// the ray an odd number of times exactly if its end is on the other side of the ray than its
/// beginning. Only runs whose box contains the position are searched: a few for outlines of real
/// places, all of them only for long diagonal zigzags.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    /// The first position is repeated at the end.
    positions: Box<[Position]>,
    tree: SegmentTree<Extent>,
}

impl Ring {
    /// The ring through these positions, at least four, the last equal to the first.
    pub fn new(positions: Vec<Position>) -> Ring {
        let tree = SegmentTree::new(positions.len() - 1, |run| Extent::around(&positions[run.start..=run.end]));
        Ring { positions: positions.into_boxed_slice(), tree }
    }

    /// The box around the ring.
    pub fn extent(&self) -> Extent {
        Extent::around(&self.positions)
    }

    /// The location of `at`.
    pub fn locate(&self, at: Position, work: &mut FenceWork) -> Location {
        let mut odd = false;
        let mut edges = 0;
        let mut decide = |extent: &Extent, run: Range<usize>| {
            if at[1] < extent.min[1] || at[1] > extent.max[1] || at[0] > extent.max[0] {
                Step::Skip
            } else if at[0] < extent.min[0] {
                odd ^= (self.positions[run.start][1] > at[1]) != (self.positions[run.end][1] > at[1]);
                Step::Skip
            } else {
                Step::Descend
            }
        };
        let mut inner_odd = false;
        let mut leaf = |run: Range<usize>| {
            edges += run.len();
            for edge in run {
                match crossing(self.positions[edge], self.positions[edge + 1], at) {
                    Crossing::None => {}
                    Crossing::East => inner_odd = !inner_odd,
                    Crossing::At => return Step::Stop,
                }
            }
            Step::Descend
        };
        let step = self.tree.visit(&mut decide, &mut leaf);
        work.segments += edges;
        match step {
            Step::Stop => Location::Boundary,
            _ if odd != inner_odd => Location::Inside,
            _ => Location::Outside,
        }
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.positions) + self.tree.memory()
    }
}

/// The relation of an edge to the ray from a position to the east.
enum Crossing {
    None,
    /// The edge crosses the ray; an end on the ray counts as below.
    East,
    /// The position is on the edge.
    At,
}

fn crossing(a: Position, b: Position, at: Position) -> Crossing {
    if (a[1] > at[1]) == (b[1] > at[1]) {
        let along = a[1] == at[1] && b[1] == at[1] && (a[0] < at[0]) != (b[0] < at[0]);
        return if along || a == at || b == at { Crossing::At } else { Crossing::None };
    }
    let coord = |position: Position| Coord { x: position[0], y: position[1] };
    let turn = orient2d(coord(a), coord(b), coord(at));
    if turn == 0.0 {
        Crossing::At
    } else if (turn > 0.0) == (b[1] > a[1]) {
        Crossing::East
    } else {
        Crossing::None
    }
}
