//! The same few made-up fixes in every format give the same trace.

use std::path::{Path, PathBuf};

use whimbrel_lab::fleet::trace::{Trace, TraceError};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(path: &Path) -> Trace {
    Trace::read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Time, vehicle, line, degrees, speed and heading of each position.
fn told(trace: &Trace) -> Vec<(i64, &str, &str, String, String)> {
    let tell = |position: &whimbrel_lab::fleet::trace::Position| {
        let (fix, motion) = (position.fix, position.motion);
        let place = format!("{:.5} {:.5}", fix.place.lat, fix.place.lon);
        let motion = format!("{:.1} m/s {:.0}°", motion.speed, motion.heading);
        let (vehicle, line) = (&*trace.vehicles[fix.vehicle as usize], &*trace.lines[fix.line as usize]);
        (fix.millis - 1_700_000_000_000, vehicle, line, place, motion)
    };
    trace.positions.iter().map(tell).collect()
}

#[test]
fn every_format_gives_the_same_trace() {
    let expected = [
        (0, "tram-1", "N56", "52.00000 21.00000", "0.0 m/s 0°"),
        (0, "tram-2", "7", "52.01000 21.01000", "0.0 m/s 0°"),
        (10_000, "tram-1", "N56", "52.00090 21.00000", "10.0 m/s 0°"),
        (20_000, "tram-2", "7", "52.01000 21.01146", "5.0 m/s 90°"),
    ];
    let expected = expected.map(|(at, vehicle, line, place, motion)| (at, vehicle, line, place.into(), motion.into()));
    for (name, repeats) in [("buses.csv", 0), ("buses.csv.zst", 0), ("walks.gpx", 0), ("feeds.pb", 1), ("snapshots", 1)]
    {
        let trace = read(&sample(name));
        assert_eq!(told(&trace), expected, "{name}");
        assert_eq!((trace.malformed.count, trace.repeats), (1, repeats), "{name}");
        assert!(trace.malformed.examples[0].contains(name), "{name}: {:?}", trace.malformed);
    }
}

#[test]
fn content_tells_the_format_where_the_name_does_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["buses.csv", "buses.csv.zst", "walks.gpx", "feeds.pb"] {
        let path = directory.path().join(name.replace('.', "-"));
        std::fs::copy(sample(name), &path).expect("the sample is copied");
        assert_eq!(told(&read(&path)), told(&read(&sample(name))), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = Trace::read(&directory.path().join("no.csv")).map(|_| ()).expect_err("there is no such file");
    assert!(missing.to_string().contains("no.csv"), "{missing}");
    let empty = Trace::read(directory.path()).map(|_| ()).expect_err("nothing is there");
    assert!(empty.to_string().contains("no GTFS-realtime files"), "{empty}");
    let cut = directory.path().join("cut.csv.zst");
    let whole = std::fs::read(sample("buses.csv.zst")).expect("the sample is read");
    std::fs::write(&cut, &whole[..whole.len() - 9]).expect("the file is written");
    let broken = Trace::read(&cut).map(|_| ()).expect_err("the file is cut off");
    assert!(matches!(broken, TraceError::Unreadable { .. }) && broken.to_string().contains("cut.csv.zst"), "{broken}");
}

#[test]
fn the_wrong_file_is_refused_early() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("weather.csv");
    let rows: String = (0..1_000).map(|day| format!("station,{day},warm,cold\n")).collect();
    std::fs::write(&path, format!("id,time,lat,lon\n{rows}")).expect("the file is written");
    let error = Trace::read(&path).map(|_| ()).expect_err("there are no positions").to_string();
    assert!(error.contains("1000 of the first 1000 records are malformed"), "{error}");
    let first = "weather.csv:2: the latitude \"warm\" in column 3 (lat) is no number of degrees";
    assert!(error.contains(first), "{error}");
}

/// A time without a zone, a name in the declared encoding.
const LATIN: &[u8] = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><gpx><trk><name>Stra\xdfe</name><trkseg>\
    <trkpt lat=\"52.1\" lon=\"21\"><time>2024-02-19T15:00:00</time></trkpt></trkseg></trk></gpx>";

#[test]
fn gpx_is_read_in_the_encoding_that_it_declares() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let utf_16 = |text: &str| -> Vec<u8> { text.encode_utf16().chain([0x0a]).flat_map(u16::to_le_bytes).collect() };
    let text: String = LATIN.iter().map(|&byte| char::from(byte)).collect();
    for (name, bytes) in [
        ("latin.gpx", LATIN.to_vec()),
        ("wide.gpx", [b"\xff\xfe".to_vec(), utf_16(&text)].concat()),
        ("marked.gpx", format!("\u{feff}{}", text.replace("ISO-8859-1", "UTF-8")).into_bytes()),
        ("wide", [b"\xff\xfe".to_vec(), utf_16(&text)].concat()),
        (
            "wide.csv",
            [b"\xff\xfe".to_vec(), utf_16("vehicle\ttime\tlat\tlon\nStra\u{df}e\t1708354800\t52.1\t21")].concat(),
        ),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("the file is written");
        let trace = read(&path);
        assert_eq!((&*trace.vehicles[0], trace.positions[0].fix.millis), ("Stra\u{df}e", 1_708_354_800_000), "{name}");
    }
}

#[test]
fn packed_files_are_refused_with_what_unpacks_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, bytes, program) in [
        ("a.csv.gz", &b"\x1f\x8b\x08\0"[..], "gunzip"),
        ("a.csv", b"\x1f\x8b\x08\0", "gunzip"),
        ("feed.pb", b"PK\x03\x04\0", "unzip"),
        ("a.gpx", b"BZh91", "bunzip2"),
        ("a.csv.xz", b"\xfd7zXZ\0", "unxz"),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("the file is written");
        let error = Trace::read(&path).map(|_| ()).expect_err("it is packed").to_string();
        assert!(error.contains(name) && error.ends_with(&format!("unpack it first, with {program}")), "{error}");
    }
}

#[test]
fn one_file_that_is_no_feed_costs_no_others() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["a.pb", "b.pb", "c.pb"] {
        std::fs::copy(sample("snapshots").join(name), directory.path().join(name)).expect("the sample is copied");
    }
    std::fs::write(directory.path().join("bb.pb"), "404 Not Found").expect("the file is written");
    std::fs::write(directory.path().join("bc.pb"), "").expect("the file is written");
    let (trace, whole) = (read(directory.path()), read(&sample("snapshots")));
    assert_eq!(told(&trace), told(&whole));
    assert_eq!(trace.malformed.count, whole.malformed.count + 2, "{:?}", trace.malformed);
}

#[test]
fn the_busiest_vehicles_can_be_kept() {
    let mut trace = read(&sample("snapshots"));
    trace.keep_busiest(1);
    assert_eq!((&trace.vehicles[..], &trace.lines[..]), (&["tram-1".to_owned()][..], &["N56".to_owned()][..]));
    assert_eq!(trace.positions.iter().map(|position| position.fix.vehicle).collect::<Vec<_>>(), [0, 0]);
}
