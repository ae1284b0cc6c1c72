//! GeoJSON for tests of fences.
#![allow(dead_code, reason = "each test file uses its part")]

use whimbrel_selector::{Fences, FencesBuilder};

/// The radius of the sphere, metres.
pub const RADIUS: f64 = 6_371_008.8;

pub fn fences(named: &[(&str, &str)]) -> Fences {
    let mut builder = FencesBuilder::new();
    for (name, text) in named {
        builder.insert_geojson(name, text).unwrap_or_else(|error| panic!("{error}"));
    }
    builder.build()
}

pub fn containing(fences: &Fences, lat: f64, lon: f64) -> Vec<&str> {
    let mut names = Vec::new();
    fences.for_each_containing(lat, lon, &mut |name| names.push(name));
    names
}

pub fn contains(geojson: &str, lat: f64, lon: f64) -> bool {
    !containing(&fences(&[("fence", geojson)]), lat, lon).is_empty()
}

pub fn circle(lon: f64, lat: f64, radius: f64) -> String {
    format!(
        r#"{{"type":"Feature","properties":{{"radius":{radius}}},"geometry":{{"type":"Point","coordinates":[{lon},{lat}]}}}}"#
    )
}

pub fn corridor(line: &[[f64; 2]], width: f64) -> String {
    format!(
        r#"{{"type":"Feature","properties":{{"width":{width}}},"geometry":{{"type":"LineString","coordinates":{line:?}}}}}"#
    )
}

pub fn polygon(rings: &[Vec<[f64; 2]>]) -> String {
    format!(r#"{{"type":"Polygon","coordinates":{rings:?}}}"#)
}
