//! Named geofences.
//!
//! - **Polygons** are in the plane of longitude and latitude, as in RFC 7946: their edges are
//!   straight there, and a shape across the antimeridian consists of parts. The inside of a ring
//!   follows the even-odd rule, even if the ring crosses itself; a hole removes its inside. Edges
//!   of outlines and of holes belong to the polygon; an outline that reaches a pole contains it.
//! - **Circles** are points with the property `radius`, in metres, on a sphere with the earth's
//!   mean radius.
//! - **Corridors** are lines with the property `width`, in metres: all points within half of it
//!   from the line, with round ends. Their segments are arcs of great circles.
//!
//! An R-tree over the boxes of rings, circles and pieces of corridors finds the candidates.

mod builder;
mod error;
mod geojson;
mod ring;
mod sphere;
mod tree;

use core::cell::OnceCell;
use core::fmt;
use core::ops::Range;
use std::collections::BTreeMap;

use rstar::{AABB, RTree, RTreeObject};
use smallvec::SmallVec;

pub use builder::FencesBuilder;
pub use error::FenceError;
use ring::{Extent, Location, Position, Ring};
use sphere::{Cap, Corridor, Vector};

/// Most fences.
pub const FENCES_MAX: usize = 65_536;

/// Most bytes of a fence's name.
pub const FENCE_NAME_MAX: usize = 256;

/// Most positions of one fence.
pub const FENCE_POSITIONS_MAX: usize = 1 << 20;

/// Most positions of all fences together; they take about 32 bytes each.
pub const FENCES_POSITIONS_MAX: usize = 1 << 22;

/// A part of a fence.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// The outline of a polygon.
    Outline(Ring),
    /// A hole in a polygon; `outline` is the index of the polygon's outline within the fence.
    Hole {
        ring: Ring,
        outline: u32,
    },
    Circle(Cap),
    Corridor(Corridor),
}

impl Shape {
    fn extents(&self) -> SmallVec<[Extent; 2]> {
        match self {
            Shape::Outline(ring) | Shape::Hole { ring, .. } => SmallVec::from_iter([ring.extent()]),
            Shape::Circle(cap) => cap.extents(),
            Shape::Corridor(corridor) => SmallVec::from_vec(corridor.extents()),
        }
    }

    fn memory(&self) -> usize {
        size_of::<Shape>()
            + match self {
                Shape::Outline(ring) | Shape::Hole { ring, .. } => ring.memory(),
                Shape::Circle(_) => 0,
                Shape::Corridor(corridor) => corridor.memory(),
            }
    }
}

/// An entry of the index: a box around the shape with this number, or a piece of it.
#[derive(Clone, Debug)]
struct Entry {
    extent: Extent,
    shape: u32,
}

impl RTreeObject for Entry {
    type Envelope = AABB<Position>;

    fn envelope(&self) -> AABB<Position> {
        AABB::from_corners(self.extent.min, self.extent.max)
    }
}

#[derive(Clone, Debug)]
struct Fence {
    name: Box<str>,
    /// The range of its shapes among all shapes.
    shapes: Range<u32>,
}

/// Named shapes on the surface of the earth, with an index. Made by [`FencesBuilder`], and
/// immutable.
#[derive(Clone, Default)]
pub struct Fences {
    /// Sorted by name.
    fences: Vec<Fence>,
    /// In the order of their fences.
    shapes: Vec<Shape>,
    index: RTree<Entry>,
}

/// The cost of a look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceWork {
    /// Rings, circles and corridors whose box contains the position.
    pub shapes: usize,
    /// Segments of their lines that were tested.
    pub segments: usize,
}

/// The differences between two sets of fences, by name, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FenceChanges<'a> {
    /// New fences.
    pub added: Vec<&'a str>,
    /// Fences with other shapes.
    pub changed: Vec<&'a str>,
    /// Removed fences.
    pub removed: Vec<&'a str>,
}

impl Fences {
    /// An empty set of fences.
    pub fn new() -> Fences {
        Fences::default()
    }

    fn from_shapes(named: BTreeMap<Box<str>, Vec<Shape>>) -> Fences {
        let (mut fences, mut shapes) = (Vec::with_capacity(named.len()), Vec::new());
        for (name, own) in named {
            let first = shapes.len() as u32;
            shapes.extend(own);
            fences.push(Fence { name, shapes: first..shapes.len() as u32 });
        }
        let entries = |(shape, number): (&Shape, u32)| {
            shape.extents().into_iter().map(move |extent| Entry { extent, shape: number })
        };
        let index = RTree::bulk_load(shapes.iter().zip(0..).flat_map(entries).collect());
        Fences { fences, shapes, index }
    }

    /// Whether there is a fence of that name.
    pub fn contains_name(&self, name: &str) -> bool {
        self.fences.binary_search_by(|fence| (*fence.name).cmp(name)).is_ok()
    }

    /// The names of all fences, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fences.iter().map(|fence| &*fence.name)
    }

    /// The number of fences.
    pub fn len(&self) -> usize {
        self.fences.len()
    }

    /// Whether there is no fence.
    pub fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    /// The approximate memory, bytes.
    pub fn memory(&self) -> usize {
        let names: usize = self.fences.iter().map(|fence| size_of::<Fence>() + fence.name.len()).sum();
        let shapes: usize = self.shapes.iter().map(Shape::memory).sum();
        // A node of the tree has the size of its entry and an envelope; inner nodes are a small
        // part of all nodes.
        names + shapes + self.index.size() * 2 * size_of::<Entry>()
    }

    /// Calls `found` with the name of each fence that contains the position (degrees, WGS 84), each
    /// once, sorted by name. No fence contains a position that is beyond 90 or 180 degrees, or not
    /// finite.
    pub fn for_each_containing<'s>(&'s self, lat: f64, lon: f64, found: &mut dyn FnMut(&'s str)) {
        self.search(lat, lon, found);
    }

    /// The cost of [`Fences::for_each_containing`] at this position.
    pub fn work(&self, lat: f64, lon: f64) -> FenceWork {
        self.search(lat, lon, &mut |_| {})
    }

    fn search<'s>(&'s self, lat: f64, lon: f64, found: &mut dyn FnMut(&'s str)) -> FenceWork {
        let mut work = FenceWork::default();
        if self.is_empty() || !(lat.abs() <= 90.0 && lon.abs() <= 180.0) {
            return work;
        }
        let place = Place::new([lon, lat]);
        let mut hits: SmallVec<[u32; 16]> = SmallVec::new();
        for area in place.areas() {
            hits.extend(self.index.locate_in_envelope_intersecting(&area).map(|entry| entry.shape));
        }
        hits.sort_unstable();
        hits.dedup();
        work.shapes = hits.len();
        let mut rest = &hits[..];
        while let Some(&first) = rest.first() {
            let fence = &self.fences[self.fences.partition_point(|fence| fence.shapes.end <= first)];
            let own;
            (own, rest) = rest.split_at(rest.partition_point(|shape| *shape < fence.shapes.end));
            if self.contains(fence, own, &place, &mut work) {
                found(&fence.name);
            }
        }
        work
    }

    /// Whether one of these shapes of `fence`, without their holes, contains the place.
    fn contains(&self, fence: &Fence, hits: &[u32], place: &Place, work: &mut FenceWork) -> bool {
        // The containing outline, unless one of its holes, which follow it, contains the place too.
        let mut within = None;
        for hit in hits {
            let contains = match &self.shapes[*hit as usize] {
                Shape::Hole { ring, outline } => {
                    if within == Some(fence.shapes.start + outline) && place.is_in_hole(ring, work) {
                        within = None;
                    }
                    continue;
                }
                _ if within.is_some() => true,
                Shape::Outline(ring) => {
                    within = place.is_in_outline(ring, work).then_some(*hit);
                    continue;
                }
                Shape::Circle(cap) => cap.contains(place.vector()),
                Shape::Corridor(corridor) => corridor.contains(place.vector(), work),
            };
            if contains {
                return true;
            }
        }
        within.is_some()
    }

    /// The differences of these fences from `old`.
    pub fn changes_from<'a>(&'a self, old: &'a Fences) -> FenceChanges<'a> {
        let before: BTreeMap<&str, &Fence> = old.fences.iter().map(|fence| (&*fence.name, fence)).collect();
        let mut changes = FenceChanges::default();
        for fence in &self.fences {
            match before.get(&*fence.name) {
                None => changes.added.push(&fence.name),
                Some(was) if self.shapes_of(fence) != old.shapes_of(was) => changes.changed.push(&fence.name),
                Some(_) => {}
            }
        }
        changes.removed = old.names().filter(|name| !self.contains_name(name)).collect();
        changes
    }

    fn shapes_of(&self, fence: &Fence) -> &[Shape] {
        &self.shapes[fence.shapes.start as usize..fence.shapes.end as usize]
    }
}

impl fmt::Debug for Fences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fences").field("fences", &self.fences.len()).field("shapes", &self.shapes.len()).finish()
    }
}

/// A position to look up.
struct Place {
    /// The coordinates: two pairs on the antimeridian.
    positions: SmallVec<[Position; 2]>,
    pole: bool,
    vector: OnceCell<Vector>,
}

impl Place {
    fn new([lon, lat]: Position) -> Place {
        let mut positions = SmallVec::from_iter([[lon, lat]]);
        if lon.abs() == 180.0 {
            positions.push([-lon, lat]);
        }
        Place { positions, pole: lat.abs() == 90.0, vector: OnceCell::new() }
    }

    /// Boxes that contain only the place. A pole has every longitude.
    fn areas(&self) -> SmallVec<[AABB<Position>; 2]> {
        let lat = self.positions[0][1];
        if self.pole {
            return SmallVec::from_iter([AABB::from_corners([-180.0, lat], [180.0, lat])]);
        }
        self.positions.iter().map(|position| AABB::from_point(*position)).collect()
    }

    fn vector(&self) -> Vector {
        *self.vector.get_or_init(|| sphere::vector(self.positions[0]))
    }

    /// A ring whose box reaches a pole has a position there.
    fn is_in_outline(&self, ring: &Ring, work: &mut FenceWork) -> bool {
        self.pole || self.positions.iter().any(|at| ring.locate(*at, work) != Location::Outside)
    }

    /// A pole is inside no ring: the ring would have to extend beyond 90 degrees.
    fn is_in_hole(&self, ring: &Ring, work: &mut FenceWork) -> bool {
        !self.pole && self.positions.iter().any(|at| ring.locate(*at, work) == Location::Inside)
    }
}
