//! Fences against plain loops that know nothing of indexes.

mod common;

use std::f64::consts::TAU;

use common::{RADIUS, circle, containing, contains, corridor, polygon};
use proptest::prelude::*;
use whimbrel_selector::FencesBuilder;

/// Whether the ring has the position inside, and whether on an edge: in whole numbers, so exactly.
fn exact_ring(ring: &[(i64, i64)], (x, y): (i64, i64)) -> (bool, bool) {
    let (mut inside, mut on_edge) = (false, false);
    for n in 0..ring.len() {
        let ((ax, ay), (bx, by)) = (ring[n], ring[(n + 1) % ring.len()]);
        let cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax);
        let within = x >= ax.min(bx) && x <= ax.max(bx) && y >= ay.min(by) && y <= ay.max(by);
        on_edge |= cross == 0 && within;
        if (ay <= y && by > y && cross > 0) || (by <= y && ay > y && cross < 0) {
            inside = !inside;
        }
    }
    (inside && !on_edge, on_edge)
}

fn haversine([lon_a, lat_a]: [f64; 2], [lon_b, lat_b]: [f64; 2]) -> f64 {
    let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
    let h = half(lat_b - lat_a) + lat_a.to_radians().cos() * lat_b.to_radians().cos() * half(lon_b - lon_a);
    2.0 * RADIUS * h.sqrt().min(1.0).asin()
}

/// The position at a share of the way from `a` to `b` along the great circle.
fn along(a: [f64; 2], b: [f64; 2], share: f64) -> [f64; 2] {
    let unit = |[lon, lat]: [f64; 2]| {
        let (lon, lat) = (lon.to_radians(), lat.to_radians());
        [lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()]
    };
    let (u, v, whole) = (unit(a), unit(b), haversine(a, b) / RADIUS);
    let (from_u, from_v) = (((1.0 - share) * whole).sin(), (share * whole).sin());
    let [x, y, z] = [0, 1, 2].map(|axis| u[axis] * from_u + v[axis] * from_v);
    [y.atan2(x).to_degrees(), z.atan2(x.hypot(y)).to_degrees()]
}

/// The distance to the arc, by narrowing down: along at most a quarter of a circle it has one
/// minimum, within or at an end.
fn distance_to_arc(a: [f64; 2], b: [f64; 2], at: [f64; 2]) -> f64 {
    let distance = |share| haversine(along(a, b, share), at);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..80 {
        let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if distance(left) < distance(right) { high = right } else { low = left }
    }
    distance(low).min(haversine(a, at)).min(haversine(b, at))
}

/// The position in a direction and at a distance.
fn offset([lon, lat]: [f64; 2], distance: f64, bearing: f64) -> [f64; 2] {
    let (d, lat) = (distance / RADIUS, lat.to_radians());
    let sin = (lat.sin() * d.cos() + lat.cos() * d.sin() * bearing.cos()).clamp(-1.0, 1.0);
    let turn = (bearing.sin() * d.sin() * lat.cos()).atan2(d.cos() - lat.sin() * sin);
    let turned = lon + turn.to_degrees();
    let wrapped = if turned > 180.0 {
        turned - 360.0
    } else if turned < -180.0 {
        turned + 360.0
    } else {
        turned
    };
    [wrapped, sin.asin().to_degrees()]
}

fn ring() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((-12..=12_i64, -12..=12_i64), 3..40)
}

/// Quarters of degrees have no rounding.
fn degrees(ring: &[(i64, i64)]) -> Vec<[f64; 2]> {
    ring.iter().chain(ring.first()).map(|(x, y)| [*x as f64 / 4.0, *y as f64 / 4.0]).collect()
}

fn anywhere() -> impl Strategy<Value = [f64; 2]> {
    let lon = prop_oneof![-180.0..=180.0, 179.0..=180.0, -180.0..=-179.0, Just(180.0), Just(-180.0)];
    let lat = prop_oneof![-90.0..=90.0, 89.0..=90.0, -90.0..=-89.0, Just(90.0), Just(-90.0)];
    (lon, lat).prop_map(|(lon, lat)| [lon, lat])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn polygons_agree_with_a_plain_loop(
        polygons in prop::collection::vec(prop::collection::vec(ring(), 1..4), 1..5),
    ) {
        let mut builder = FencesBuilder::new();
        for (n, rings) in polygons.iter().enumerate() {
            let rings: Vec<Vec<[f64; 2]>> = rings.iter().map(|ring| degrees(ring)).collect();
            builder.insert_geojson(&n.to_string(), &polygon(&rings)).expect("a polygon");
        }
        let fences = builder.build();
        for (x, y) in (-13..=13).flat_map(|x| (-13..=13).map(move |y| (x, y))) {
            let mut expected = Vec::new();
            for (n, rings) in polygons.iter().enumerate() {
                let (inside, on_edge) = exact_ring(&rings[0], (x, y));
                if (inside || on_edge) && !rings[1..].iter().any(|hole| exact_ring(hole, (x, y)).0) {
                    expected.push(n.to_string());
                }
            }
            prop_assert_eq!(containing(&fences, y as f64 / 4.0, x as f64 / 4.0), expected, "{} {}", x, y);
        }
    }

    #[test]
    fn circles_agree_with_haversine(
        centre in anywhere(),
        radius in prop_oneof![1.0..1e4_f64, 1e4..2e7_f64],
        share in 0.0..2.0_f64,
        bearing in 0.0..TAU,
        elsewhere in anywhere(),
    ) {
        for at in [offset(centre, radius * share, bearing), elsewhere] {
            let distance = haversine(centre, at);
            // Haversine itself loses digits towards the other side of the earth.
            if (distance - radius).abs() > 1e-6 + radius * 1e-6 {
                prop_assert_eq!(contains(&circle(centre[0], centre[1], radius), at[1], at[0]), distance < radius, "{:?}", at);
            }
        }
    }

    #[test]
    fn corridors_agree_with_the_distance_to_arcs(
        first in anywhere(),
        turns in prop::collection::vec((1.0..2e5_f64, 0.0..TAU), 1..30),
        width in prop_oneof![1.0..1e3_f64, 1e3..1e6_f64],
        vertex in any::<prop::sample::Index>(),
        share in 0.0..1.5_f64,
        bearing in 0.0..TAU,
        elsewhere in anywhere(),
    ) {
        let mut line = vec![first];
        for (distance, bearing) in turns {
            line.push(offset(*line.last().expect("the first"), distance, bearing));
        }
        let segment = vertex.index(line.len() - 1);
        let on_it = along(line[segment], line[segment + 1], share / 1.5);
        for at in [offset(on_it, width * share, bearing), elsewhere] {
            let distances = line.windows(2).map(|ends| distance_to_arc(ends[0], ends[1], at));
            let distance = distances.fold(f64::INFINITY, f64::min);
            if (distance - width / 2.0).abs() > 0.01 + width * 1e-6 {
                prop_assert_eq!(contains(&corridor(&line, width), at[1], at[0]), distance < width / 2.0, "{:?}", at);
            }
        }
    }

    /// The documented bound on how far an arc is from a segment that is straight in longitude and
    /// latitude.
    #[test]
    fn arcs_are_near_straight_segments(
        lon in -170.0..170.0_f64, lat in -75.0..75.0_f64, length in 100.0..1e5_f64, bearing in 0.0..TAU, share in 0.0..=1.0_f64,
    ) {
        let (a, b) = ([lon, lat], offset([lon, lat], length, bearing));
        let steepest = a[1].abs().max(b[1].abs()).to_radians().tan();
        let bound = length * length * steepest / (7.3 * RADIUS);
        let at = [a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share];
        prop_assert!(contains(&corridor(&[a, b], 2.0 * bound * 1.01 + 0.001), at[1], at[0]));
    }
}

#[test]
fn the_bound_on_arcs_is_not_loose() {
    let (a, b) = ([20.0, 52.0], [21.46, 52.0]);
    let length = haversine(a, b);
    let bound = length * length * 52_f64.to_radians().tan() / (8.0 * RADIUS);
    assert!((99e3..101e3).contains(&length) && (240.0..255.0).contains(&bound), "{length} {bound}");
    assert!(!contains(&corridor(&[a, b], 2.0 * bound * 0.98), 52.0, 20.73));
    assert!(contains(&corridor(&[a, b], 2.0 * bound * 1.02), 52.0, 20.73));
}
