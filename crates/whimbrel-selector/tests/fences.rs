//! Fences: exact cases, what is refused, and how much is looked at.

mod common;

use common::{circle, containing, contains, corridor, fences, polygon};
use whimbrel_selector::{FENCE_NAME_MAX, FENCES_MAX, FenceError, FencesBuilder};

fn refusal(geojson: &str) -> FenceError {
    FencesBuilder::new().insert_geojson("depot", geojson).expect_err("this is no fence")
}

const SQUARE: &str = r#"{"type":"Polygon","coordinates":[[[20,50],[22,50],[22,52],[20,52],[20,50]]]}"#;
const WITH_HOLES: &str = r#"{"type":"Polygon","coordinates":[
    [[0,0],[10,0],[10,10],[0,10],[0,0]], [[4,4],[6,4],[6,6],[4,6],[4,4]], [[5,5],[8,5],[8,8],[5,8],[5,5]]]}"#;

#[test]
fn a_polygon_contains_its_inside_and_its_boundary() {
    for (lat, lon) in [(51.0, 21.0), (50.0, 20.0), (52.0, 22.0), (50.0, 21.0), (52.0, 20.5), (51.3, 20.0), (51.3, 22.0)]
    {
        assert!(contains(SQUARE, lat, lon), "{lat} {lon}");
    }
    for (lat, lon) in [(49.999, 21.0), (52.001, 21.0), (51.0, 19.999), (51.0, 22.001), (50.0, 19.9), (52.0, 22.1)] {
        assert!(!contains(SQUARE, lat, lon), "{lat} {lon}");
    }
}

#[test]
fn what_is_no_position_is_in_no_fence() {
    let everywhere = r#"{"type":"Polygon","coordinates":[[[-180,-90],[180,-90],[180,90],[-180,90],[-180,-90]]]}"#;
    assert!(contains(everywhere, 12.0, 34.0));
    for (lat, lon) in [(f64::NAN, 0.0), (0.0, f64::NAN), (90.1, 0.0), (0.0, -180.1), (f64::INFINITY, 0.0)] {
        assert!(!contains(everywhere, lat, lon), "{lat} {lon}");
    }
}

#[test]
fn holes_take_away_their_inside_but_not_their_boundary() {
    for (lat, lon) in [(2.0, 2.0), (4.0, 4.5), (6.0, 4.0), (9.0, 9.0)] {
        assert!(contains(WITH_HOLES, lat, lon), "{lat} {lon}");
    }
    // Within one hole, within the other, and within both.
    for (lat, lon) in [(4.5, 4.5), (7.0, 7.0), (5.5, 5.5)] {
        assert!(!contains(WITH_HOLES, lat, lon), "{lat} {lon}");
    }
}

#[test]
fn a_hole_concerns_its_own_polygon_only() {
    let island = r#"{"type":"MultiPolygon","coordinates":[
        [[[0,0],[10,0],[10,10],[0,10],[0,0]], [[2,2],[8,2],[8,8],[2,8],[2,2]]],
        [[[4,4],[6,4],[6,6],[4,6],[4,4]]]]}"#;
    assert!(contains(island, 5.0, 5.0));
    assert!(!contains(island, 3.0, 3.0));
    assert!(contains(island, 1.0, 1.0));
}

#[test]
fn a_ring_that_crosses_itself_follows_the_even_odd_rule() {
    // A pentagram: its middle is wound around twice.
    let star: Vec<[f64; 2]> = (0..=5)
        .map(|n| {
            let turn = f64::from(n % 5) * 144_f64.to_radians();
            [10.0 * turn.sin(), 10.0 * turn.cos()]
        })
        .collect();
    let star = polygon(&[star]);
    assert!(!contains(&star, 0.0, 0.0));
    assert!(contains(&star, 8.0, 0.0));
}

#[test]
fn a_fence_is_the_union_of_its_parts_and_is_found_once() {
    let both = format!(
        r#"{{"type":"FeatureCollection","features":[{}, {}, {{"type":"Feature","properties":null,"geometry":
        {{"type":"GeometryCollection","geometries":[{SQUARE}]}}}}]}}"#,
        circle(21.0, 51.0, 1000.0),
        corridor(&[[20.0, 51.0], [30.0, 51.0]], 1000.0),
    );
    let fences = fences(&[("zone", &both), ("area", SQUARE)]);
    assert_eq!(containing(&fences, 51.0, 21.0), ["area", "zone"]);
    assert_eq!(containing(&fences, 51.0, 30.0), ["zone"]);
    assert_eq!(fences.names().collect::<Vec<_>>(), ["area", "zone"]);
    assert!(fences.contains_name("zone") && !fences.contains_name("zon"));
    assert_eq!(fences.len(), 2);
    assert!(fences.memory() > 500, "{}", fences.memory());
}

#[test]
fn the_antimeridian_is_one_line_with_two_notations() {
    let fiji = r#"{"type":"MultiPolygon","coordinates":[
        [[[177,-20],[180,-20],[180,-15],[177,-15],[177,-20]]], [[[-180,-20],[-178,-20],[-178,-15],[-180,-15],[-180,-20]]]]}"#;
    for (lon, inside) in [(176.9, false), (178.0, true), (180.0, true), (-180.0, true), (-179.0, true), (-177.9, false)]
    {
        assert_eq!(contains(fiji, -17.0, lon), inside, "{lon}");
    }
    let west = r#"{"type":"Polygon","coordinates":[[[177,-20],[180,-20],[180,-15],[177,-15],[177,-20]]]}"#;
    assert!(contains(west, -17.0, -180.0) && !contains(west, -17.0, -179.9));

    // One degree of the equator is 111,195 m.
    let circle = circle(179.5, 0.0, 111_195.0);
    for (lon, inside) in [(178.6, true), (178.4, false), (180.0, true), (-180.0, true), (-179.6, true), (-179.4, false)]
    {
        assert_eq!(contains(&circle, 0.0, lon), inside, "{lon}");
    }
    let corridor = corridor(&[[179.0, 10.0], [-179.0, 10.0]], 20_000.0);
    for (lat, lon, inside) in [(10.0, 180.0, true), (10.05, -179.5, true), (10.2, 180.0, false), (10.0, 0.0, false)] {
        assert_eq!(contains(&corridor, lat, lon), inside, "{lat} {lon}");
    }
}

#[test]
fn poles_are_one_place_at_every_longitude() {
    let cap = r#"{"type":"Polygon","coordinates":[[[-180,80],[0,80],[180,80],[180,90],[-180,90],[-180,80]]]}"#;
    assert!(contains(cap, 90.0, 17.0) && contains(cap, 85.0, -170.0) && !contains(cap, 79.0, 17.0));
    let wedge = r#"{"type":"Polygon","coordinates":[[[10,80],[20,80],[20,90],[10,90],[10,80]]]}"#;
    assert!(contains(wedge, 90.0, -100.0) && !contains(wedge, 89.0, -100.0));
    let around = circle(45.0, 89.5, 111_195.0);
    for (lat, lon, inside) in [(90.0, 0.0, true), (89.6, -135.0, true), (89.4, -135.0, false), (88.6, 45.0, true)] {
        assert_eq!(contains(&around, lat, lon), inside, "{lat} {lon}");
    }
    let over = corridor(&[[0.0, -89.0], [180.0, -89.0]], 20_000.0);
    for (lat, lon, inside) in [(-90.0, 77.0, true), (-89.95, 90.0, true), (-89.8, 90.0, false), (-89.5, 180.0, true)] {
        assert_eq!(contains(&over, lat, lon), inside, "{lat} {lon}");
    }
}

#[test]
fn corridors_have_round_ends_and_bends() {
    // 0.01 degrees of the equator are 1,112 m.
    let bend = corridor(&[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], 2000.0);
    for (lat, lon) in [(0.0, 0.5), (0.0089, 0.5), (0.0, -0.0089), (-0.006, 1.006), (0.5, 1.0089), (1.0089, 1.0)] {
        assert!(contains(&bend, lat, lon), "{lat} {lon}");
    }
    for (lat, lon) in [(0.0091, 0.5), (0.0, -0.0091), (-0.0065, -0.0065), (-0.0065, 1.0065), (1.0091, 1.0), (0.02, 0.5)]
    {
        assert!(!contains(&bend, lat, lon), "{lat} {lon}");
    }
}

#[test]
fn repeated_positions_make_no_difference() {
    let line = corridor(&[[5.0, 5.0], [5.0, 5.0], [5.1, 5.0], [5.1, 5.0]], 100.0);
    assert!(contains(&line, 5.0, 5.05) && !contains(&line, 5.01, 5.05) && !contains(&line, -5.0, 60.0));
    let one_place = corridor(&[[0.0, 90.0], [50.0, 90.0]], 20_000.0);
    assert!(contains(&one_place, 89.95, -7.0) && !contains(&one_place, 89.8, -7.0));
    let ring = r#"{"type":"Polygon","coordinates":[[[0,0],[0,0],[4,0],[4,0],[4,4],[0,0]]]}"#;
    assert!(contains(ring, 1.0, 3.0) && contains(ring, 2.0, 2.0) && !contains(ring, 3.0, 1.0));
    let flat = r#"{"type":"Polygon","coordinates":[[[0,0],[4,4],[2,2],[0,0]]]}"#;
    assert!(contains(flat, 3.0, 3.0) && !contains(flat, 3.0, 3.1));
}

#[test]
fn refusals_name_fence_place_cause_and_advice() {
    let in_feature = r#"{"type":"FeatureCollection","features":[
        {"type":"Feature","properties":{},"geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,95],[0,0]]]}}]}"#;
    assert_eq!(
        refusal(in_feature).to_string(),
        "fence \"depot\": features[0].geometry.coordinates[0][2][1]: the latitude 95 is not within -90 and 90; write [longitude, \
         latitude] in degrees, longitude first"
    );
    let cases = [
        ("{", "line 1, column 2", "this is no JSON: a member's name in quotes is expected"),
        ("{\n \"é\": x}", "line 2, column 7", "this is no JSON: a value is expected"),
        ("[1]", "", "an object is expected, not a list"),
        (r#"{"a":1}"#, "", "the object has no \"type\""),
        (r#"{"type":"Circle","coordinates":[]}"#, "type", "\"Circle\" is no type of GeoJSON"),
        (r#"{"type":"FeatureCollection","features":[]}"#, "", "there is no shape in it"),
        (r#"{"type":"FeatureCollection"}"#, "features", "a list is missing"),
        (r#"{"type":"Feature","geometry":null}"#, "geometry", "the feature has no geometry"),
        (r#"{"type":"Point","coordinates":[1,2]}"#, "", "a Point is a fence only with a radius"),
        (r#"{"type":"Polygon"}"#, "coordinates", "a list is missing"),
        (r#"{"type":"Polygon","coordinates":[]}"#, "coordinates", "a polygon needs at least one ring"),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[0,0]]]}"#,
            "coordinates[0]",
            "a ring needs at least 4 positions",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[2,0],[1,0]]]}"#,
            "coordinates[0][3]",
            "the ring is not closed",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[1],[2,0],[0,0]]]}"#,
            "coordinates[0][1]",
            "a position consists of two",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],"x",[2,0],[0,0]]]}"#,
            "coordinates[0][1]",
            "a list is expected, not a text",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[181,0],[1,1],[2,0],[0,0]]]}"#,
            "coordinates[0][0][0]",
            "the longitude 181",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[170,0],[-170,0],[-170,5],[170,0]]]}"#,
            "coordinates[0][1]",
            "the edge that ends here spans more than 180 degrees",
        ),
        (&circle(0.0, 0.0, 0.0), "properties.radius", "0 is no radius in metres"),
        (&circle(0.0, 0.0, 3e7), "properties.radius", "30000000"),
        (
            r#"{"type":"Feature","properties":{"radius":1e400},"geometry":{"type":"Point","coordinates":[1,2]}}"#,
            "properties.radius",
            "1e400 is no radius in metres",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[0,0],[1,1e400],[2,0],[0,0]]]}"#,
            "coordinates[0][1][1]",
            "the latitude inf is not within",
        ),
        (
            r#"{"type":"Feature","geometry":{"type":"Feature"}}"#,
            "geometry",
            "a feature is no geometry of another feature",
        ),
        (&corridor(&[[0.0, 0.0], [1.0, 0.0]], -5.0), "properties.width", "-5 is no width in metres"),
        (&corridor(&[[0.0, 0.0]], 5.0), "geometry.coordinates", "a line needs at least 2 positions"),
        (&corridor(&[[0.0, 0.0], [1.0, 0.0], [99.0, 0.0]], 5.0), "geometry.coordinates[2]", "longer than a quarter"),
        (r#"{"type":"Feature","geometry":{"type":"LineString","coordinates":[]}}"#, "properties", "only with a width"),
    ];
    for (text, place, cause) in cases {
        let error = refusal(text);
        assert_eq!((error.fence(), error.place()), (Some("depot"), place), "{error}");
        assert!(error.cause().contains(cause), "{error}");
        assert!(!error.advice().is_empty(), "{error}");
    }
}

#[test]
fn nesting_of_collections_is_bounded() {
    let nested = |depth: usize| {
        let open = r#"{"type":"GeometryCollection","geometries":["#;
        [&open.repeat(depth), SQUARE, &"]}".repeat(depth)].concat()
    };
    assert!(contains(&nested(16), 51.0, 21.0));
    assert!(refusal(&nested(17)).cause().contains("nested more than 16 deep"), "{}", refusal(&nested(17)));
    assert!(refusal(&nested(100_000)).cause().contains("nested more than 16 deep"));
}

#[test]
fn members_that_are_no_part_of_a_fence_may_hold_anything() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for odd in ["1e400", r#""\ud83d""#, "\"a\tb\"", &"7".repeat(400), &deep, r#"{"\ud83d":1}"#] {
        let text = format!(
            r#"{{"odd":{odd},"type":"FeatureCollection","features":[{{"type":"Feature","id":"a","odd":{odd},
            "properties":{{"odd":{odd},"radius":1000}},"geometry":{{"odd":{odd},"type":"Point","coordinates":[21,51,{odd}]}}}}]}}"#
        );
        let mut builder = FencesBuilder::new();
        assert_eq!(builder.insert_features(&text).expect("a fence"), ["a"], "{text:.60}");
        assert_eq!(containing(&builder.build(), 51.0, 21.0), ["a"]);
        assert!(contains(&text, 51.0, 21.0));
    }
    let marked = format!("\u{feff}{SQUARE}");
    assert!(contains(&marked, 51.0, 21.0), "a byte order mark is skipped");
}

#[test]
fn every_feature_that_is_refused_is_told() {
    let feature = |n: usize, geometry: &str| format!(r#"{{"type":"Feature","id":"f{n}","geometry":{geometry}}}"#);
    let all = |features: &[String]| format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","));
    let mixed = [
        feature(0, SQUARE),
        feature(1, r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,95],[0,0]]]}"#),
        feature(0, SQUARE),
        r#"{"type":"Feature"}"#.to_owned(),
        feature(4, "null"),
        feature(5, SQUARE),
    ];
    let mut builder = FencesBuilder::new();
    let told: Vec<String> =
        builder.insert_features(&all(&mixed)).expect_err("four").iter().map(|e| e.to_string()).collect();
    for (error, words) in told.iter().zip([
        "fence \"f1\": features[1].geometry.coordinates[0][2][1]: the latitude 95",
        "fence \"f0\": features[2]: features[0] has that name, too",
        "features[3]: the feature has no name",
        "fence \"f4\": features[4].geometry: the feature has no geometry",
    ]) {
        assert!(error.starts_with(words), "{error}");
    }
    assert_eq!(told.len(), 4);
    let bad: Vec<String> = (0..1_000).map(|n| feature(n, "5")).collect();
    let told = builder.insert_features(&all(&bad)).expect_err("all of them");
    assert_eq!(told.len(), 17);
    assert_eq!((told[16].place(), told[16].cause()), ("features", "984 more features are refused"));
    assert!(builder.build().is_empty(), "what is refused adds nothing");
}

#[test]
fn names_are_bounded_and_unique() {
    let mut builder = FencesBuilder::new();
    builder.insert_geojson("a", SQUARE).expect("a fence");
    let long = "x".repeat(FENCE_NAME_MAX + 1);
    for (name, cause) in [("a", "already"), ("", "empty"), (" ", "empty"), ("a\nb", "control"), (&long, "longer")] {
        let error = builder.insert_geojson(name, SQUARE).expect_err("a name that is not taken");
        assert!(error.cause().contains(cause), "{error}");
    }
    builder.insert_geojson(&long[1..], SQUARE).expect("a name of the greatest length");
    assert_eq!(builder.build().len(), 2);
}

#[test]
fn features_name_their_own_fences() {
    let feature = |naming: &str| format!(r#"{{"type":"Feature",{naming},"geometry":{SQUARE}}}"#);
    let all = |features: &[String]| format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","));
    let mut builder = FencesBuilder::new();
    let named =
        [feature(r#""properties":{"name":"b"}"#), feature(r#""id":"a","properties":null"#), feature(r#""id":7"#)];
    assert_eq!(builder.insert_features(&all(&named)).expect("three fences"), ["b", "a", "7"]);

    let again = builder.insert_features(&all(&[feature(r#""id":"c""#), feature(r#""id":"b""#)]));
    assert_eq!(again.expect_err("b is taken")[0].fence(), Some("b"));
    let nameless = builder.insert_features(&all(&[feature(r#""id":"d""#), feature(r#""properties":{"name":5}"#)]));
    assert_eq!(nameless.expect_err("5 is no name")[0].place(), "features[1]");
    let wrong = all(&[r#"{"type":"Feature","id":"e","geometry":{"type":"Polygon","coordinates":[[]]}}"#.into()]);
    let error = &builder.insert_features(&wrong).expect_err("an empty ring")[0];
    assert_eq!((error.fence(), error.place()), (Some("e"), "features[0].geometry.coordinates[0]"));
    assert_eq!(builder.insert_features(SQUARE).expect_err("no collection")[0].fence(), None);
    assert_eq!(builder.build().names().collect::<Vec<_>>(), ["7", "a", "b"], "what is refused adds nothing");
}

#[test]
fn the_number_of_fences_is_bounded() {
    let point = |n| {
        let geometry = r#"{"type":"Point","coordinates":[0,0]}"#;
        format!(r#"{{"type":"Feature","id":{n},"properties":{{"radius":1}},"geometry":{geometry}}}"#)
    };
    let features: Vec<String> = (0..=FENCES_MAX).map(point).collect();
    let all = |features: &[String]| format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","));
    let mut builder = FencesBuilder::new();
    let error = &builder.insert_features(&all(&features)).expect_err("one too many")[0];
    assert!(error.cause().contains("more than 65536 fences"), "{error}");
    builder.insert_features(&all(&features[1..])).expect("as many as there may be");
    assert_eq!(builder.build().len(), FENCES_MAX);
}

#[test]
fn changes_are_told_by_name() {
    let old = fences(&[("gone", SQUARE), ("kept", SQUARE), ("moved", &circle(1.0, 2.0, 3.0))]);
    let new = fences(&[("kept", SQUARE), ("moved", &circle(1.0, 2.0, 3.5)), ("new", SQUARE)]);
    let changes = new.changes_from(&old);
    assert_eq!((changes.added, changes.changed, changes.removed), (vec!["new"], vec!["moved"], vec!["gone"]));
    assert_eq!(new.changes_from(&new), Default::default());
}

#[test]
fn of_many_fences_few_are_looked_at() {
    let mut builder = FencesBuilder::new();
    for n in 0..5000_i32 {
        let (lon, lat) = (f64::from(n % 100) * 0.1, 40.0 + f64::from(n / 100) * 0.1);
        let diamond = [[lon - 0.05, lat], [lon, lat - 0.05], [lon + 0.05, lat], [lon, lat + 0.05], [lon - 0.05, lat]];
        let text = match n % 3 {
            0 => circle(lon, lat, 4000.0),
            1 => corridor(&[[lon - 0.03, lat], [lon, lat + 0.03], [lon + 0.03, lat]], 500.0),
            _ => polygon(&[diamond.to_vec()]),
        };
        builder.insert_geojson(&format!("fence {n:04}"), &text).expect("a fence");
    }
    let fences = builder.build();
    let mut found = 0;
    for n in 0..10_000_i32 {
        let (lat, lon) = (40.0 + f64::from(n / 100) * 0.0502, f64::from(n % 100) * 0.0997);
        let work = fences.work(lat, lon);
        assert!(work.shapes <= 9 && work.segments <= 32, "{work:?} at {lat} {lon}");
        let names = containing(&fences, lat, lon);
        assert!(names.is_sorted());
        found += names.len();
    }
    assert!((2_000..20_000).contains(&found), "{found}");
}

#[test]
fn of_a_long_outline_few_edges_are_looked_at() {
    let point = |n: i32| {
        let turn = (f64::from(n) / 10_000.0) * std::f64::consts::TAU;
        let radius = 5.0 + (turn * 40.0).sin() + 0.2 * (turn * 900.0).cos();
        [20.0 + radius * turn.cos(), 50.0 + radius * turn.sin()]
    };
    let coast: Vec<[f64; 2]> = (0..10_000).chain([0]).map(point).collect();
    // Even-odd by a plain loop over all edges.
    let naive = |x: f64, y: f64| {
        let crosses = |ends: &&[[f64; 2]]| {
            let ([ax, ay], [bx, by]) = (ends[0], ends[1]);
            (ay > y) != (by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax)
        };
        coast.windows(2).filter(crosses).count() % 2 == 1
    };
    let outline = fences(&[("coast", &polygon(std::slice::from_ref(&coast)))]);
    let mut total = 0;
    for n in 0..2000 {
        let (lat, lon) = (43.0 + f64::from(n / 40) * 0.29, 13.0 + f64::from(n % 40) * 0.36);
        let work = outline.work(lat, lon);
        assert!(work.segments <= 200, "{work:?} at {lat} {lon}");
        total += work.segments;
        assert_eq!(!containing(&outline, lat, lon).is_empty(), naive(lon, lat), "{lat} {lon}");
    }
    assert!(total < 2000 * 20, "{total}");
    let road = fences(&[("road", &corridor(&coast, 50.0))]);
    for position in coast.iter().step_by(37) {
        let work = road.work(position[1], position[0]);
        assert!(work.segments <= 200, "{work:?}");
        assert_eq!(containing(&road, position[1], position[0]), ["road"]);
    }
}

#[test]
fn of_many_holes_few_are_looked_at() {
    let mut rings = vec![vec![[0.0, 0.0], [50.0, 0.0], [50.0, 50.0], [0.0, 50.0], [0.0, 0.0]]];
    for n in 0..2500 {
        let (x, y) = (f64::from(n % 50) + 0.25, f64::from(n / 50) + 0.25);
        rings.push(vec![[x, y], [x + 0.5, y], [x + 0.5, y + 0.5], [x, y + 0.5], [x, y]]);
    }
    let fences = fences(&[("sieve", &polygon(&rings))]);
    assert!(containing(&fences, 20.5, 30.5).is_empty());
    assert_eq!(containing(&fences, 20.1, 30.5), ["sieve"]);
    assert!(fences.work(20.5, 30.5).shapes <= 2);
    assert!(format!("{fences:?}").len() < 100, "logs must not show every position");
}
