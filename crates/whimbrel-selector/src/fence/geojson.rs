//! Shapes from GeoJSON (RFC 7946).
//!
//! Read here and not with the `geojson` crate, whose errors have no place in the document. Only the
//! parts of a fence are checked: types, coordinates, names, sizes. Other members, of which files
//! have many, may have any value.

use core::f64::consts::{FRAC_PI_2, PI};

use super::error::{FenceError, Path};
use super::ring::{Position, Ring};
use super::sphere::{Cap, Corridor, EARTH_RADIUS, angle, vector};
use super::{FENCE_POSITIONS_MAX, Shape};
use crate::json::{Json, Token};

/// The largest radius of a circle, in metres: half the circumference.
const RADIUS_MAX: f64 = PI * EARTH_RADIUS;

/// The largest width of a corridor, in metres: a quarter of the circumference.
const WIDTH_MAX: f64 = FRAC_PI_2 * EARTH_RADIUS;

/// Most nested collections, including the outermost.
const COLLECTIONS_MAX: usize = 16;

/// Most characters of a value that an error shows.
const SHOWN_MAX: usize = 40;

const KINDS: &str = "a Feature, a FeatureCollection or a geometry";

/// Checks that a text is JSON.
pub fn parse(text: &str) -> Result<Json<'_>, FenceError> {
    Json::parse(text.as_bytes()).map_err(|fault| {
        let before = String::from_utf8_lossy(&text.as_bytes()[..fault.at]);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        FenceError {
            fence: None,
            place: format!("line {line}, column {column}"),
            cause: format!("this is no JSON: {} is expected", fault.expected),
            advice: format!("write {KINDS} of GeoJSON (RFC 7946)"),
        }
    })
}

/// The shapes of one fence, and the number of their positions.
pub fn shapes(value: Json<'_>, at: &Path<'_>) -> Result<(Vec<Shape>, usize), FenceError> {
    let mut reader = Reader { shapes: Vec::new(), positions: 0, collections: 0 };
    reader.object(value, at, &Sizes::NONE)?;
    if reader.shapes.is_empty() {
        return Err(at.error(
            "there is no shape in it",
            "give it a Polygon, a Point with a radius or a LineString with a width",
        ));
    }
    Ok((reader.shapes, reader.positions))
}

/// The features of a collection, each with its name: the property `name`, or otherwise its `id`.
pub fn named_features(value: Json<'_>) -> Result<impl Iterator<Item = Named<'_>>, FenceError> {
    let kind = typed(value, &Path::Root)?;
    if kind != "FeatureCollection" {
        let cause = format!("a {kind} does not name its fence");
        return Err(
            Path::Root.error(cause, "give the fence a name, or make it a FeatureCollection of features with names")
        );
    }
    let features = elements(value.get("features"), &FEATURES)?;
    Ok(features.enumerate().map(|(n, feature)| (feature_name(feature, &Path::Element(&FEATURES, n)), feature)))
}

/// The place of the features of a collection.
pub const FEATURES: Path<'static> = Path::Member(&Path::Root, "features");

/// A feature, with the name of its fence.
type Named<'a> = (Result<String, FenceError>, Json<'a>);

fn feature_name(feature: Json<'_>, at: &Path<'_>) -> Result<String, FenceError> {
    let named = feature.get("properties").and_then(|properties| properties.get("name"));
    let name = match named.or_else(|| feature.get("id")) {
        Some(id) if named.is_none() && matches!(id.token(), Token::Number(_)) => Some(id.written()),
        Some(name) => name.text(),
        None => None,
    };
    let missing = || at.error("the feature has no name", "add the property \"name\", a text, or an \"id\"");
    name.map(std::borrow::Cow::into_owned).ok_or_else(missing)
}

/// Sizes that a feature has for its points and lines.
struct Sizes<'a> {
    feature: Option<&'a Path<'a>>,
    radius: Option<Json<'a>>,
    width: Option<Json<'a>>,
}

impl Sizes<'_> {
    const NONE: Sizes<'static> = Sizes { feature: None, radius: None, width: None };

    fn metres(&self, name: &'static str, max: f64, geometry: &str, at: &Path<'_>) -> Result<f64, FenceError> {
        let Some(feature) = self.feature else {
            let advice = format!("put it into a Feature with the property \"{name}\" in metres");
            return Err(at.error(format!("a {geometry} is a fence only with a {name}"), advice));
        };
        let properties = Path::Member(feature, "properties");
        let here = Path::Member(&properties, name);
        let size = if name == "radius" { self.radius } else { self.width };
        let advice = format!("give the {geometry} a \"{name}\" in metres, above 0 and at most {max:.0}");
        match size {
            None => Err(properties.error(format!("a {geometry} is a fence only with a {name}"), advice)),
            Some(size) => match size.number() {
                Some(metres) if metres > 0.0 && metres <= max => Ok(metres),
                _ => Err(here.error(format!("{} is no {name} in metres", shown(size)), advice)),
            },
        }
    }
}

/// The meaning of coordinates; sizes in metres.
#[derive(Clone, Copy)]
enum Part {
    Circle(f64),
    Corridor(f64),
    Polygon,
}

struct Reader {
    shapes: Vec<Shape>,
    positions: usize,
    /// The number of collections around the value being read.
    collections: usize,
}

impl Reader {
    /// The depth of recursion is at most [`COLLECTIONS_MAX`]: a feature has a geometry, and only
    /// collections have further ones.
    fn object(&mut self, value: Json<'_>, at: &Path<'_>, sizes: &Sizes<'_>) -> Result<(), FenceError> {
        let kind = typed(value, at)?;
        match &*kind {
            "FeatureCollection" => self.collection(value, "features", at, sizes),
            "GeometryCollection" => self.collection(value, "geometries", at, sizes),
            "Feature" => {
                if sizes.feature.is_some() {
                    return Err(at.error("a feature is no geometry of another feature", "see RFC 7946, section 3.2"));
                }
                let properties = value.get("properties");
                let property = |name| properties.and_then(|properties| properties.get(name));
                let sizes = Sizes { feature: Some(at), radius: property("radius"), width: property("width") };
                let here = Path::Member(at, "geometry");
                match value.get("geometry").filter(|geometry| geometry.token() != Token::Null) {
                    None => Err(here.error("the feature has no geometry", "add one, or remove the feature")),
                    Some(geometry) => self.object(geometry, &here, &sizes),
                }
            }
            kind => self.geometry(kind, value.get("coordinates"), at, sizes),
        }
    }

    fn collection(
        &mut self,
        value: Json<'_>,
        member: &'static str,
        at: &Path<'_>,
        sizes: &Sizes<'_>,
    ) -> Result<(), FenceError> {
        if self.collections == COLLECTIONS_MAX {
            let cause = format!("collections are nested more than {COLLECTIONS_MAX} deep");
            return Err(at.error(cause, "put what is in the inner ones into the outer ones"));
        }
        self.collections += 1;
        let here = Path::Member(at, member);
        for (n, part) in elements(value.get(member), &here)?.enumerate() {
            self.object(part, &Path::Element(&here, n), sizes)?;
        }
        self.collections -= 1;
        Ok(())
    }

    fn geometry(
        &mut self,
        kind: &str,
        coordinates: Option<Json<'_>>,
        at: &Path<'_>,
        sizes: &Sizes<'_>,
    ) -> Result<(), FenceError> {
        let here = &Path::Member(at, "coordinates");
        let (single, many) = match kind.strip_prefix("Multi") {
            Some(single) => (single, true),
            None => (kind, false),
        };
        let part = match single {
            "Point" => Part::Circle(sizes.metres("radius", RADIUS_MAX, kind, at)?),
            "LineString" => Part::Corridor(sizes.metres("width", WIDTH_MAX, kind, at)?),
            "Polygon" => Part::Polygon,
            _ => {
                let cause = format!("{kind:?} is no type of GeoJSON");
                return Err(Path::Member(at, "type").error(cause, format!("write {KINDS} (RFC 7946)")));
            }
        };
        if !many {
            return self.part(part, coordinates, here);
        }
        for (n, value) in elements(coordinates, here)?.enumerate() {
            self.part(part, Some(value), &Path::Element(here, n))?;
        }
        Ok(())
    }

    fn part(&mut self, part: Part, value: Option<Json<'_>>, at: &Path<'_>) -> Result<(), FenceError> {
        match part {
            Part::Circle(radius) => self.circle(value, radius, at),
            Part::Corridor(width) => self.corridor(value, width, at),
            Part::Polygon => self.polygon(value, at),
        }
    }

    fn circle(&mut self, value: Option<Json<'_>>, radius: f64, at: &Path<'_>) -> Result<(), FenceError> {
        let centre = self.position(value, at)?;
        self.shapes.push(Shape::Circle(Cap::new(centre, radius)));
        Ok(())
    }

    fn corridor(&mut self, value: Option<Json<'_>>, width: f64, at: &Path<'_>) -> Result<(), FenceError> {
        let line = self.positions(value, at)?;
        if line.len() < 2 {
            return Err(
                at.error(format!("a line needs at least 2 positions and has {}", line.len()), "add the missing ones")
            );
        }
        let long = line.windows(2).position(|ends| angle(vector(ends[0]), vector(ends[1])) > FRAC_PI_2);
        if let Some(n) = long {
            let cause = "the segment that ends here is longer than a quarter of the earth's circumference (10,007 km)";
            return Err(Path::Element(at, n + 1).error(cause, "add positions between its ends"));
        }
        self.shapes.push(Shape::Corridor(Corridor::new(&line, width)));
        Ok(())
    }

    fn polygon(&mut self, value: Option<Json<'_>>, at: &Path<'_>) -> Result<(), FenceError> {
        let outline = self.shapes.len() as u32;
        for (n, ring) in elements(value, at)?.enumerate() {
            let ring = self.ring(ring, &Path::Element(at, n))?;
            self.shapes.push(if n == 0 { Shape::Outline(ring) } else { Shape::Hole { ring, outline } });
        }
        if self.shapes.len() as u32 == outline {
            return Err(at.error("a polygon needs at least one ring", "add its outline: a list of positions"));
        }
        Ok(())
    }

    fn ring(&mut self, value: Json<'_>, at: &Path<'_>) -> Result<Ring, FenceError> {
        let positions = self.positions(Some(value), at)?;
        if positions.len() < 4 {
            let cause =
                format!("a ring needs at least 4 positions, the last equal to the first, and has {}", positions.len());
            return Err(at.error(cause, "add the missing ones"));
        }
        if positions.first() != positions.last() {
            let last = positions.len() - 1;
            let cause = "the ring is not closed: its last position differs from its first";
            return Err(Path::Element(at, last).error(cause, "repeat the first position at the end"));
        }
        let wide = positions.windows(2).position(|ends| {
            let span = (ends[0][0] - ends[1][0]).abs();
            span > 180.0 && span < 360.0
        });
        if let Some(n) = wide {
            let cause = "the edge that ends here spans more than 180 degrees of longitude";
            let advice = "cut a shape across the antimeridian in two (RFC 7946, 3.1.9); for an edge around the earth add positions between its ends";
            return Err(Path::Element(at, n + 1).error(cause, advice));
        }
        Ok(Ring::new(positions))
    }

    fn positions(&mut self, value: Option<Json<'_>>, at: &Path<'_>) -> Result<Vec<Position>, FenceError> {
        let list = elements(value, at)?;
        list.enumerate().map(|(n, value)| self.position(Some(value), &Path::Element(at, n))).collect()
    }

    fn position(&mut self, value: Option<Json<'_>>, at: &Path<'_>) -> Result<Position, FenceError> {
        const ORDER: &str = "write [longitude, latitude] in degrees, longitude first";
        self.positions += 1;
        if self.positions > FENCE_POSITIONS_MAX {
            let cause = format!("this fence has more than {FENCE_POSITIONS_MAX} positions");
            return Err(at.error(cause, "simplify its shapes, or divide it into several fences"));
        }
        let mut parts = elements(value, at)?;
        let mut degrees = || parts.next().and_then(Json::number);
        let (Some(lon), Some(lat)) = (degrees(), degrees()) else {
            return Err(at.error("a position consists of two numbers", ORDER));
        };
        if !(-180.0..=180.0).contains(&lon) {
            return Err(Path::Element(at, 0).error(format!("the longitude {lon} is not within -180 and 180"), ORDER));
        }
        if !(-90.0..=90.0).contains(&lat) {
            return Err(Path::Element(at, 1).error(format!("the latitude {lat} is not within -90 and 90"), ORDER));
        }
        Ok([lon, lat])
    }
}

/// The type of an object of GeoJSON.
fn typed<'v>(value: Json<'v>, at: &Path<'_>) -> Result<std::borrow::Cow<'v, str>, FenceError> {
    let advice = || format!("write {KINDS} of GeoJSON (RFC 7946)");
    if value.token() != Token::Object {
        return Err(at.error(format!("an object is expected, not {}", name_of(value)), advice()));
    }
    value.get("type").and_then(Json::text).ok_or_else(|| at.error("the object has no \"type\"", advice()))
}

fn elements<'v>(value: Option<Json<'v>>, at: &Path<'_>) -> Result<impl Iterator<Item = Json<'v>>, FenceError> {
    const SEE: &str = "see RFC 7946, section 3";
    match value {
        Some(list) if list.token() == Token::Array => Ok(list.elements()),
        Some(other) => Err(at.error(format!("a list is expected, not {}", name_of(other)), SEE)),
        None => Err(at.error("a list is missing", SEE)),
    }
}

/// The beginning of a value as it is written.
fn shown(value: Json<'_>) -> String {
    value.written().chars().take(SHOWN_MAX).collect()
}

fn name_of(value: Json<'_>) -> &'static str {
    match value.token() {
        Token::Null => "null",
        Token::Boolean(_) => "a boolean",
        Token::Number(_) => "a number",
        Token::Text(_) => "a text",
        Token::Array => "a list",
        Token::Object => "an object",
    }
}
