//! Named fences of the run, and the checker's own judgement of which side of them a place is on.
//!
//! The arithmetic here is deliberately plainer than a broker's: great-circle distances by the
//! haversine formula, crossings of a ray for polygons, and a plane for corridors, whose legs are
//! short enough for that. Next to a border, where it cannot be trusted, it says so.

use std::fmt::Write;

use serde_json::{Value, json};

use super::geo::{EARTH_RADIUS, Place};

/// Within this distance of a border both answers are right, m. The plane's error is a tenth of it.
pub const TOLERANCE: f64 = 1.0;
/// The longest leg of a corridor, m: up to it the plane and the great circle agree within some
/// centimetres.
const LEG: f64 = 500.0;
/// Corners of a circle as it is drawn.
const CORNERS: u32 = 24;

/// An area with a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Fence {
    /// The name, in lower-case letters.
    pub name: &'static str,
    /// Where it is.
    pub shape: Shape,
}

/// The shape of a fence.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Everything within `radius` metres of one of some places.
    Circles {
        /// The centres.
        middles: Vec<Place>,
        /// The radius, metres.
        radius: f64,
    },
    /// The inside of the first ring without the inside of the others; the first place of a ring is
    /// not repeated at its end.
    Polygon(Vec<Vec<Place>>),
    /// Everything within half of `width` metres of a path of at least two places.
    Corridor {
        /// The path, in short legs: see [`Shape::corridor`].
        way: Vec<Place>,
        /// The width, metres.
        width: f64,
    },
}

/// The side of a border.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The place belongs to the fence.
    Inside,
    /// The place does not belong to it.
    Outside,
    /// The place is too close to the border to tell.
    Border,
}

impl Shape {
    /// A corridor along a path, whose legs may be of any length; they are cut into pieces of at
    /// most 500 m.
    pub fn corridor(way: &[Place], width: f64) -> Shape {
        let mut short = Vec::new();
        for leg in way.windows(2) {
            let pieces = (leg[0].distance(leg[1]) / LEG).ceil().max(1.0);
            short.extend((0..pieces as u32).map(|piece| leg[0].between(leg[1], f64::from(piece) / pieces)));
        }
        short.extend(way.last());
        Shape::Corridor { way: short, width }
    }

    /// The side of the border on which a place is.
    pub fn side(&self, place: Place) -> Side {
        match self {
            Shape::Circles { middles, radius } => {
                let nearest = middles.iter().map(|middle| middle.great_circle(place)).fold(f64::INFINITY, f64::min);
                Side::of(radius - nearest)
            }
            Shape::Corridor { way, width } => Side::of(width / 2.0 - to_nearest_leg(way.windows(2), place)),
            Shape::Polygon(rings) => {
                let edges = || rings.iter().flat_map(|ring| edges(ring));
                let crossings = edges().filter(|[from, to]| is_crossed(*from, *to, place)).count();
                let depth = to_nearest_leg(edges(), place);
                Side::of(if crossings % 2 == 1 { depth } else { -depth })
            }
        }
    }

    /// The shape as a GeoJSON object.
    pub fn geojson(&self) -> Value {
        let position = |place: &Place| json!([place.lon, place.lat]);
        let feature = |geometry: Value, properties: Value| json!({ "type": "Feature", "properties": properties, "geometry": geometry });
        match self {
            Shape::Circles { middles, radius } => {
                let coordinates: Vec<Value> = middles.iter().map(position).collect();
                feature(json!({ "type": "MultiPoint", "coordinates": coordinates }), json!({ "radius": radius }))
            }
            Shape::Corridor { way, width } => {
                let coordinates: Vec<Value> = way.iter().map(position).collect();
                feature(json!({ "type": "LineString", "coordinates": coordinates }), json!({ "width": width }))
            }
            Shape::Polygon(rings) => {
                let closed = |ring: &Vec<Place>| ring.iter().chain(ring.first()).map(position).collect();
                let coordinates: Vec<Value> = rings.iter().map(closed).collect();
                json!({ "type": "Polygon", "coordinates": coordinates })
            }
        }
    }

    /// The lines that draw the shape.
    pub fn outlines(&self) -> Vec<Vec<Place>> {
        match self {
            Shape::Circles { middles, radius } => {
                let corner = |middle: &Place, n: u32| {
                    let (sine, cosine) = (std::f64::consts::TAU * f64::from(n) / f64::from(CORNERS)).sin_cos();
                    middle.moved(radius * sine, radius * cosine)
                };
                middles.iter().map(|middle| (0..=CORNERS).map(|n| corner(middle, n)).collect()).collect()
            }
            Shape::Corridor { way, .. } => vec![way.clone()],
            Shape::Polygon(rings) => {
                rings.iter().map(|ring| ring.iter().chain(ring.first()).copied().collect()).collect()
            }
        }
    }
}

impl Side {
    /// The side at a depth inside the border, m; negative outside.
    fn of(depth: f64) -> Side {
        match depth {
            _ if depth.abs() <= TOLERANCE => Side::Border,
            _ if depth > 0.0 => Side::Inside,
            _ => Side::Outside,
        }
    }
}

/// The fences as the configuration of a broker.
pub fn configuration(fences: &[Fence]) -> String {
    let mut text = String::new();
    for Fence { name, shape } in fences {
        let written = write!(text, "[[fence]]\nname = \"{name}\"\ngeojson = '{}'\n\n", shape.geojson());
        written.expect("a text takes everything");
    }
    text
}

fn edges(ring: &[Place]) -> impl Iterator<Item = [Place; 2]> {
    ring.iter().copied().zip(ring.iter().copied().cycle().skip(1)).map(|(from, to)| [from, to])
}

/// Whether an edge crosses the place's latitude east of the place.
fn is_crossed(from: Place, to: Place, place: Place) -> bool {
    if (from.lat > place.lat) == (to.lat > place.lat) {
        return false;
    }
    let share = (place.lat - from.lat) / (to.lat - from.lat);
    from.lon + (to.lon - from.lon) * share > place.lon
}

/// The distance from a place to the nearest of some legs, on the plane at the place, metres.
fn to_nearest_leg(legs: impl Iterator<Item = impl AsRef<[Place]>>, place: Place) -> f64 {
    let north = EARTH_RADIUS.to_radians();
    let east = north * place.lat.to_radians().cos();
    let flat = |other: Place| ((other.lon - place.lon) * east, (other.lat - place.lat) * north);
    let distance = |leg: &[Place]| {
        let ((a, b), (c, d)) = (flat(leg[0]), flat(leg[1]));
        let (along, up) = (c - a, d - b);
        let length = along * along + up * up;
        let share = if length > 0.0 { (-(a * along + b * up) / length).clamp(0.0, 1.0) } else { 0.0 };
        (a + along * share).hypot(b + up * share)
    };
    legs.map(|leg| distance(leg.as_ref())).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARSAW: Place = Place { lat: 52.2297, lon: 21.0122 };

    fn sides(shape: &Shape, places: &[(f64, f64)]) -> Vec<Side> {
        places.iter().map(|(east, north)| shape.side(WARSAW.moved(*east, *north))).collect()
    }

    #[test]
    fn a_circle_has_its_border_at_its_radius() {
        let middles = vec![WARSAW.moved(5_000.0, 0.0), WARSAW];
        let circles = Shape::Circles { middles, radius: 300.0 };
        let places = [(0.0, 0.0), (298.0, 0.0), (0.0, -300.0), (303.0, 0.0), (220.0, 220.0), (5_100.0, 50.0)];
        let expected = [Side::Inside, Side::Inside, Side::Border, Side::Outside, Side::Outside, Side::Inside];
        assert_eq!(sides(&circles, &places), expected);
    }

    #[test]
    fn the_hole_of_a_polygon_is_outside_and_its_border_is_a_border() {
        let square = |half: f64| {
            [(-half, -half), (half, -half), (half, half), (-half, half)].map(|(e, n)| WARSAW.moved(e, n)).to_vec()
        };
        let polygon = Shape::Polygon(vec![square(1_000.0), square(200.0)]);
        let places =
            [(0.0, 0.0), (190.0, 0.0), (200.0, 10.0), (210.0, 0.0), (900.0, -900.0), (1_010.0, 0.0), (0.0, 2e4)];
        let expected =
            [Side::Outside, Side::Outside, Side::Border, Side::Inside, Side::Inside, Side::Outside, Side::Outside];
        assert_eq!(sides(&polygon, &places), expected);
    }

    #[test]
    fn a_corridor_follows_its_way_around_corners_and_has_round_ends() {
        let way = [(0.0, 0.0), (3_000.0, 0.0), (3_000.0, 2_000.0)].map(|(e, n)| WARSAW.moved(e, n));
        let corridor = Shape::corridor(&way, 200.0);
        let places =
            [(1_500.0, 95.0), (1_500.0, 105.0), (3_095.0, 1_000.0), (2_890.0, 1_000.0), (-90.0, 0.0), (-80.0, 80.0)];
        let expected = [Side::Inside, Side::Outside, Side::Inside, Side::Outside, Side::Inside, Side::Outside];
        assert_eq!(sides(&corridor, &places), expected);
        let Shape::Corridor { way, .. } = corridor else { panic!("it was made a corridor") };
        assert!(way.windows(2).all(|leg| leg[0].distance(leg[1]) <= LEG + 1.0), "{way:?}");
    }

    #[test]
    fn the_configuration_names_each_fence_with_closed_rings_and_longitude_first() {
        let ring = vec![Place { lat: 1.0, lon: 2.0 }, Place { lat: 1.0, lon: 3.0 }, Place { lat: 4.0, lon: 3.0 }];
        let text = configuration(&[Fence { name: "centre", shape: Shape::Polygon(vec![ring]) }]);
        let coordinates = "[[[2.0,1.0],[3.0,1.0],[3.0,4.0],[2.0,1.0]]]";
        assert!(text.starts_with("[[fence]]\nname = \"centre\"\ngeojson = '{") && text.contains(coordinates), "{text}");
    }
}
