//! Chooses the fences of a run from the positions, so that every city has some that matter.

use std::collections::BTreeMap;

use super::fence::{Fence, Shape};
use super::geo::Place;
use super::trace::{Position, Trace};

/// Places are counted in squares of about this many degrees of latitude and longitude.
const CELL: f64 = 0.004;
/// Below this speed a vehicle stands, m/s.
const STANDING: f32 = 1.0;
/// Radius of the depot, m.
const DEPOT: f64 = 400.0;
/// Radius around the busiest stops, m.
const STOP: f64 = 250.0;
/// The number of busiest stops.
const STOPS: usize = 4;
/// The distance between two of them, and to the depot, m.
const APART: f64 = 1_200.0;
/// Width of the corridor, m.
const CORRIDOR: f64 = 160.0;
/// The distance between the places of its path, m.
const STEP: f64 = 200.0;
/// The number of these places, at most.
const WAY: usize = 60;
/// Corners of the centre's outline, and of the hole in it.
const CORNERS: (u32, u32) = (7, 5);
/// The reach of the hole from the centre, as a share of the outline's reach.
const HOLE: f64 = 0.35;
/// The least reach of the centre, m.
const LEAST_REACH: f64 = 600.0;
/// No fences further north or south than this latitude, nor in areas wider than this, degrees:
/// cities do not have polygons there.
const BOUNDS: (f64, f64) = (80.0, 20.0);

/// A depot where most vehicles stand, the city's centre without its innermost part, the
/// surroundings of busy stops, and a corridor along the busiest line. Empty where there can be no
/// city.
pub fn fences(trace: &Trace, busiest: &[u32]) -> Vec<Fence> {
    let places = || trace.positions.iter().map(|position| position.fix.place);
    let lons = places().fold((f64::MAX, f64::MIN), |(low, high), place| (low.min(place.lon), high.max(place.lon)));
    if places().any(|place| place.lat.abs() > BOUNDS.0)
        || lons.1 - lons.0 > BOUNDS.1
        || lons.0 < -179.0
        || lons.1 > 179.0
    {
        return Vec::new();
    }
    let stands = |position: &&Position| position.motion.speed < STANDING;
    let mut busy =
        dense(trace.positions.iter().filter(stands).map(|position| position.fix.place), 1 + STOPS).into_iter();
    let mut fences = Vec::new();
    let circles = |middles: Vec<Place>, radius| Shape::Circles { middles, radius };
    fences.extend(busy.next().map(|place| Fence { name: "depot", shape: circles(vec![place], DEPOT) }));
    fences.push(Fence { name: "centre", shape: centre(places().collect()) });
    let stops: Vec<Place> = busy.collect();
    if !stops.is_empty() {
        fences.push(Fence { name: "stops", shape: circles(stops, STOP) });
    }
    let way = busiest.first().map(|&line| way(trace, line)).unwrap_or_default();
    if way.len() > 1 {
        fences.push(Fence { name: "corridor", shape: Shape::corridor(&way, CORRIDOR) });
    }
    fences
}

/// The middles of the squares with the most places, most first, no two of them near each other.
fn dense(places: impl Iterator<Item = Place>, count: usize) -> Vec<Place> {
    let mut cells: BTreeMap<(i32, i32), (u32, f64, f64)> = BTreeMap::new();
    for place in places {
        let cell = cells.entry(((place.lat / CELL).floor() as i32, (place.lon / CELL).floor() as i32)).or_default();
        *cell = (cell.0 + 1, cell.1 + place.lat, cell.2 + place.lon);
    }
    let mut order: Vec<(u32, f64, f64)> = cells.into_values().collect();
    order.sort_by_key(|cell| std::cmp::Reverse(cell.0));
    let mut found: Vec<Place> = Vec::new();
    for (weight, lat, lon) in order {
        let middle = Place { lat: lat / f64::from(weight), lon: lon / f64::from(weight) };
        if found.len() < count && found.iter().all(|other| other.distance(middle) > APART) {
            found.push(middle);
        }
    }
    found
}

/// A polygon that holds about a third of the places, around their median, with a hole in its
/// middle.
fn centre(places: Vec<Place>) -> Shape {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let lat = median(places.iter().map(|place| place.lat).collect());
    let middle = Place { lat, lon: median(places.iter().map(|place| place.lon).collect()) };
    let mut reaches: Vec<f64> = places.iter().map(|place| middle.distance(*place)).collect();
    reaches.sort_by(f64::total_cmp);
    let reach = reaches[reaches.len() * 2 / 5].max(LEAST_REACH);
    let ring = |corners: u32, reach: f64| {
        let corner = |n: u32| {
            let (sine, cosine) = (std::f64::consts::TAU * f64::from(n) / f64::from(corners)).sin_cos();
            middle.moved(reach * sine, reach * cosine)
        };
        (0..corners).map(corner).collect::<Vec<Place>>()
    };
    Shape::Polygon(vec![ring(CORNERS.0, reach), ring(CORNERS.1, reach * HOLE)])
}

/// The path of the vehicle that reports most often on a line.
fn way(trace: &Trace, line: u32) -> Vec<Place> {
    let mut reports: BTreeMap<u32, u32> = BTreeMap::new();
    let on_line = || trace.positions.iter().filter(|position| position.fix.line == line);
    on_line().for_each(|position| *reports.entry(position.fix.vehicle).or_default() += 1);
    let vehicle = reports.into_iter().max_by_key(|(vehicle, count)| (*count, std::cmp::Reverse(*vehicle)));
    let mut way: Vec<Place> = Vec::new();
    for position in on_line().filter(|position| Some(position.fix.vehicle) == vehicle.map(|(vehicle, _)| vehicle)) {
        let place = position.fix.place;
        if way.len() < WAY && way.last().is_none_or(|last| last.distance(place) >= STEP) {
            way.push(place);
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::city;
    use crate::fleet::fence::Side;

    #[test]
    fn every_city_has_fences_with_positions_on_both_sides_and_few_on_the_border() {
        for seed in 0..5 {
            let trace =
                city::synthesize(seed, 30, city::ATLANTIC).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let fences = fences(&trace, &[0, 1]);
            let names: Vec<&str> = fences.iter().map(|fence| fence.name).collect();
            assert_eq!(names, ["depot", "centre", "stops", "corridor"]);
            for Fence { name, shape } in fences {
                let count = |side| trace.positions.iter().filter(|p| shape.side(p.fix.place) == side).count();
                let (inside, border, outside) = (count(Side::Inside), count(Side::Border), count(Side::Outside));
                assert!(inside > 20 && outside > inside, "seed {seed}: {inside} in {name}, {outside} outside");
                assert!(border * 20 < inside, "seed {seed}: {border} on the border of {name}, {inside} inside");
            }
        }
    }

    #[test]
    fn the_ends_of_the_world_have_no_fences() {
        let mut trace = city::synthesize(1, 3, city::ATLANTIC).expect("the seed gives a city");
        trace.positions[7].fix.place = Place { lat: 0.0, lon: 179.9 };
        assert_eq!(fences(&trace, &[0]), []);
    }
}
