//! Fences all over a city, and positions in it.

use std::f64::consts::{PI, TAU};
use std::fmt::Write;
use std::sync::Arc;

use fastrand::Rng;
use whimbrel_selector::{Fences, FencesBuilder};

/// How many.
pub const ZONES: usize = 1_000;

/// South-west corner of the city, and its size; degrees of latitude and longitude.
const CORNER: [f64; 2] = [52.3, 13.1];
const SIZE: [f64; 2] = [0.4, 0.6];

/// How much shorter a degree of longitude is there.
const NARROWER: f64 = 0.61;

/// Polygons that cover about `share` of the city each.
pub fn zones(share: f64, rng: &mut Rng) -> Arc<Fences> {
    let radius = (share * SIZE[0] * SIZE[1] * NARROWER / PI).sqrt();
    let mut builder = FencesBuilder::new();
    for number in 0..ZONES {
        let centre = point(rng);
        let corners = rng.usize(6..=20);
        let mut text = String::from(r#"{"type":"Polygon","coordinates":[["#);
        let first = rng.f64() + 0.5;
        for corner in 0..=corners {
            let turn = TAU * (corner % corners) as f64 / corners as f64;
            let reach = radius * if corner % corners == 0 { first } else { 0.7 + rng.f64() * 0.6 };
            let (lat, lon) = (centre[0] + reach * turn.sin(), centre[1] + reach * turn.cos() / NARROWER);
            write!(text, "{}[{lon:.6},{lat:.6}]", if corner == 0 { "" } else { "," }).expect("memory suffices");
        }
        text.push_str("]]}");
        builder.insert_geojson(&name(number), &text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    Arc::new(builder.build())
}

pub fn name(number: usize) -> String {
    format!("zone-{number:04}")
}

/// Latitude and longitude, degrees.
pub fn point(rng: &mut Rng) -> [f64; 2] {
    [CORNER[0] + SIZE[0] * rng.f64(), CORNER[1] + SIZE[1] * rng.f64()]
}
