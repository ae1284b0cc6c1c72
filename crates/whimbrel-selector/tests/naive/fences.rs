//! Fences that are rectangles, away from the poles.

use std::sync::Arc;

use whimbrel_selector::{Fences, FencesBuilder};

use super::generate::Choices;

#[derive(Debug, Clone, Default)]
pub struct Rectangles(Vec<(&'static str, [f64; 4])>);

/// Names of fences, and one that none has.
pub const NAMES: [&str; 4] = ["centre", "north", "it's ä", "nowhere"];

impl Rectangles {
    /// Any number of them: south, west, north, east from a small grid.
    pub fn some(c: &mut Choices<'_>) -> Rectangles {
        let mut named = Vec::new();
        for name in &NAMES[..3] {
            let (south, west) = (c.one_of(&[-5.0, 0.0, 2.0]), c.one_of(&[-7.0, 0.0, 1.0]));
            if !c.rarely(3) {
                named.push((*name, [south, west, south + c.one_of(&[1.0, 5.0, 50.0]), west + c.one_of(&[0.5, 10.0])]));
            }
        }
        Rectangles(named)
    }

    /// Edges belong to a fence; nobody knows about one that does not exist.
    pub fn contains(&self, name: &str, lat: f64, lon: f64) -> Option<bool> {
        let (_, [south, west, north, east]) = self.0.iter().find(|(known, _)| *known == name)?;
        Some(*south <= lat && lat <= *north && *west <= lon && lon <= *east)
    }

    pub fn build(&self) -> Arc<Fences> {
        let mut builder = FencesBuilder::new();
        for (name, [south, west, north, east]) in &self.0 {
            let ring =
                format!("[[{west},{south}],[{east},{south}],[{east},{north}],[{west},{north}],[{west},{south}]]");
            let polygon = format!("{{\"type\":\"Polygon\",\"coordinates\":[{ring}]}}");
            builder.insert_geojson(name, &polygon).expect("a rectangle is a polygon");
        }
        Arc::new(builder.build())
    }
}
