//! Circles and corridors on the sphere: unit vectors instead of degrees, so that neither the
//! antimeridian nor the poles are special cases.

use core::f64::consts::{FRAC_PI_2, PI};

use smallvec::SmallVec;

use super::FenceWork;
use super::ring::{Extent, Position};
use super::tree::{SegmentTree, Step};

/// The mean radius of the earth, in metres (IUGG: (2a + b) / 3 of WGS 84). Compared with the
/// ellipsoid, distances on this sphere are wrong by at most 0.56 %.
pub const EARTH_RADIUS: f64 = 6_371_008.8;

/// Added to each bound of a search, in radians (about 6 µm), so that rounding never excludes a
/// shape that the exact test would find.
const SLACK: f64 = 1e-12;

/// The square of the sine of an angle (about 60 nm) below which a segment is a point: its direction
/// would be determined by rounding errors.
const POINT: f64 = 1e-28;

/// Least number of segments per piece in the index of all fences.
const PIECE: usize = 16;

/// A direction from the centre of the earth.
pub type Vector = [f64; 3];

/// The direction of a position.
pub fn vector([lon, lat]: Position) -> Vector {
    let (sin_lat, cos_lat) = lat.to_radians().sin_cos();
    let (sin_lon, cos_lon) = lon.to_radians().sin_cos();
    [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat]
}

fn position(v: Vector) -> Position {
    [v[1].atan2(v[0]).to_degrees(), v[2].atan2(v[0].hypot(v[1])).to_degrees()]
}

fn subtract(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// The square of the straight distance through the sphere: it grows with the angle, and is precise
/// for small ones.
fn chord2(a: Vector, b: Vector) -> f64 {
    let difference = subtract(a, b);
    dot(difference, difference)
}

/// [`chord2`] of directions that are `angle` apart; infinite from half a turn on.
fn chord2_of(angle: f64) -> f64 {
    if angle >= PI {
        return f64::INFINITY;
    }
    let half = (angle / 2.0).sin();
    4.0 * half * half
}

/// The angle between two directions.
pub fn angle(a: Vector, b: Vector) -> f64 {
    angle_of(chord2(a, b))
}

fn angle_of(chord2: f64) -> f64 {
    2.0 * (chord2.sqrt() / 2.0).min(1.0).asin()
}

/// All directions within an angle of the centre.
#[derive(Clone, Debug, PartialEq)]
pub struct Cap {
    centre: Vector,
    angle: f64,
    reach: f64,
}

impl Cap {
    /// The circle around a position with this radius in metres.
    pub fn new(centre: Position, radius: f64) -> Cap {
        let angle = radius / EARTH_RADIUS;
        Cap { centre: vector(centre), angle, reach: chord2_of(angle) }
    }

    /// Whether `at` is in the circle.
    pub fn contains(&self, at: Vector) -> bool {
        chord2(self.centre, at) <= self.reach
    }

    /// Boxes that cover the circle, divided at the antimeridian.
    pub fn extents(&self) -> SmallVec<[Extent; 2]> {
        let angle = self.angle + SLACK;
        let [lon, lat] = position(self.centre);
        let (south, north) = ((lat - angle.to_degrees()).max(-90.0), (lat + angle.to_degrees()).min(90.0));
        let span = |west: f64, east: f64| Extent { min: [west, south], max: [east, north] };
        if lat.to_radians().abs() + angle + SLACK >= FRAC_PI_2 {
            return SmallVec::from_iter([span(-180.0, 180.0)]);
        }
        // The meridians that touch the circle.
        let half = ((angle.sin() / lat.to_radians().cos()).min(1.0).asin() + SLACK).to_degrees();
        let (west, east) = (lon - half, lon + half);
        if west < -180.0 {
            SmallVec::from_iter([span(-180.0, east), span(west + 360.0, 180.0)])
        } else if east > 180.0 {
            SmallVec::from_iter([span(west, 180.0), span(-180.0, east - 360.0)])
        } else {
            SmallVec::from_iter([span(west, east)])
        }
    }

    /// A cap around all these directions. It also contains the arcs between them if it is smaller
    /// than a hemisphere.
    fn around(vectors: &[Vector], margin: f64) -> Cap {
        let sum = vectors.iter().fold([0.0; 3], |sum, v| [sum[0] + v[0], sum[1] + v[1], sum[2] + v[2]]);
        let length = dot(sum, sum).sqrt();
        let centre = if length > 1e-6 { sum.map(|part| part / length) } else { vectors[0] };
        let widest = angle_of(vectors.iter().map(|v| chord2(centre, *v)).fold(0.0, f64::max));
        let angle = if widest < FRAC_PI_2 - SLACK { widest + margin + SLACK } else { PI };
        Cap { centre, angle, reach: chord2_of(angle) }
    }
}

/// All points within a distance of a line, whose segments are arcs of great circles: the shortest
/// way between their ends, also across the antimeridian and past the poles. The ends and the bends
/// of the line are round.
///
/// RFC 7946 means segments that are straight in longitude and latitude. A segment of length L
/// departs from its arc by at most about L² · tan |φ| / 7.3 R, φ being its latitude furthest from
/// the equator: 0.3 m for 3.2 km at 52° north, 275 m for 100 km. (At bearing α the curvatures
/// differ by tan φ · sin α · (1 + cos² α) / R, at most 1.09 tan φ / R, and an arc with curvature k
/// over L has a height of k L² / 8.)
#[derive(Clone, Debug, PartialEq)]
pub struct Corridor {
    vectors: Box<[Vector]>,
    tree: SegmentTree<Cap>,
    /// Half the width, as an angle, as the square of a chord and as a sine.
    half: f64,
    half_chord2: f64,
    half_sin: f64,
}

impl Corridor {
    /// The corridor along these positions, at least two, each at most a quarter of the
    /// circumference from the next; `width` in metres.
    pub fn new(line: &[Position], width: f64) -> Corridor {
        let half = width / 2.0 / EARTH_RADIUS;
        let vectors: Box<[Vector]> = line.iter().copied().map(vector).collect();
        let tree = SegmentTree::new(vectors.len() - 1, |run| Cap::around(&vectors[run.start..=run.end], half));
        Corridor { vectors, tree, half, half_chord2: chord2_of(half), half_sin: half.sin() }
    }

    /// Whether `at` is in the corridor.
    pub fn contains(&self, at: Vector, work: &mut FenceWork) -> bool {
        let mut decide = |cap: &Cap, _| if cap.contains(at) { Step::Descend } else { Step::Skip };
        let mut leaf = |run: core::ops::Range<usize>| {
            work.segments += run.len();
            let mut segments = self.vectors[run.start..=run.end].windows(2);
            if segments.any(|ends| self.is_near(ends[0], ends[1], at)) { Step::Stop } else { Step::Descend }
        };
        self.tree.visit(&mut decide, &mut leaf) == Step::Stop
    }

    /// Whether `at` is at most half the width from the arc between `a` and `b`.
    fn is_near(&self, a: Vector, b: Vector, at: Vector) -> bool {
        if chord2(a, at) <= self.half_chord2 || chord2(b, at) <= self.half_chord2 {
            return true;
        }
        // With differences instead of the vectors themselves, short arcs keep their precision.
        let normal = cross(a, subtract(b, a));
        let length2 = dot(normal, normal);
        if length2 < POINT {
            return false;
        }
        let (from_a, from_b) = (subtract(at, a), subtract(at, b));
        let between = dot(cross(normal, a), from_a) >= 0.0 && dot(cross(b, normal), from_b) >= 0.0;
        between && dot(normal, from_a).abs() <= self.half_sin * length2.sqrt()
    }

    /// Boxes that cover pieces of the corridor.
    pub fn extents(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut decide = |cap: &Cap, run: core::ops::Range<usize>| {
            // Pieces much shorter than the width would all be found together.
            if run.len() > PIECE && cap.angle > 2.0 * self.half {
                return Step::Descend;
            }
            extents.extend(cap.extents());
            Step::Skip
        };
        self.tree.visit(&mut decide, &mut |_| Step::Descend);
        extents
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.vectors) + self.tree.memory()
    }
}
