//! GPX: each track is a vehicle; its name is the vehicle's name, and its type the line's.

use std::fmt;
use std::path::Path;

use roxmltree::{Document, Node};

use super::TraceError;
use super::build::{Builder, Record};
use super::time;
use crate::fleet::geo::Place;

/// Reads the tracks into `builder`. Errors name `path`.
pub fn read(path: &Path, text: &str, builder: &mut Builder) -> Result<(), TraceError> {
    let syntax = |line: u32, why: String| TraceError::Syntax { place: format!("{}:{line}", path.display()), why };
    let document = Document::parse(text).map_err(|error| syntax(error.pos().row, format!("no valid XML: {error}")))?;
    let root = document.root_element();
    if !root.has_tag_name_local("gpx") {
        return Err(syntax(1, format!("no GPX: the outermost element is <{}>", root.tag_name().name())));
    }
    let tracks = root.children().filter(|node| node.has_tag_name_local("trk"));
    for (index, track) in tracks.enumerate() {
        let unnamed = format!("track-{}", index + 1);
        let vehicle = track.text_of("name").unwrap_or(&unnamed);
        let line = track.text_of("type").unwrap_or_default();
        for point in track.descendants().filter(|node| node.has_tag_name_local("trkpt")) {
            let position = At { path, point };
            match fix(&point) {
                Ok((millis, place)) => builder.add(&Record { vehicle, line, millis, place }, position)?,
                Err(why) => builder.malformed(position, why)?,
            }
        }
    }
    Ok(())
}

fn fix(point: &Node<'_, '_>) -> Result<(i64, Place), String> {
    let degrees = |name: &str| {
        let text = point.attribute(name).ok_or_else(|| format!("a track point without {name}"))?;
        text.trim().parse::<f64>().map_err(|_| format!("{name} {text:?} is no number"))
    };
    let place = Place { lat: degrees("lat")?, lon: degrees("lon")? };
    let time = point.text_of("time").ok_or("a track point without time")?;
    let millis = time::date_and_time(time).ok_or_else(|| format!("the time {time:?} is no date with a time of day"))?;
    Ok((millis, place))
}

/// The place of a point in its file. It is shown for malformed points only, since finding the line
/// means counting lines.
struct At<'a, 'input> {
    path: &'a Path,
    point: Node<'a, 'input>,
}

impl fmt::Display for At<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.point.document().text_pos_at(self.point.range().start).row;
        write!(f, "{}:{line}", self.path.display())
    }
}

/// GPX 1.0, 1.1 and files without a namespace have the same element names; only local names are
/// compared.
trait Local<'a> {
    fn has_tag_name_local(&self, name: &str) -> bool;
    fn text_of(&self, name: &str) -> Option<&'a str>;
}

impl<'a> Local<'a> for Node<'a, '_> {
    fn has_tag_name_local(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }

    fn text_of(&self, name: &str) -> Option<&'a str> {
        let child = self.children().find(|node| node.has_tag_name_local(name))?;
        child.text().map(str::trim).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::trace::Trace;

    fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut builder = Builder::new("walk.gpx");
        read(Path::new("walk.gpx"), text, &mut builder)?;
        builder.build()
    }

    #[test]
    fn tracks_are_vehicles() {
        let trace = parse(
            "<?xml version=\"1.0\"?>
            <gpx version=\"1.1\" xmlns=\"http://www.topografix.com/GPX/1/1\">
              <trk><name>bus 7</name><type>N56</type>
                <trkseg><trkpt lat=\"52.1\" lon=\"21.0\"><time>2024-02-19T15:00:00Z</time></trkpt></trkseg>
                <trkseg><trkpt lat=\"52.2\" lon=\"21.0\"><time>2024-02-19T15:00:10Z</time></trkpt></trkseg>
              </trk>
              <trk><trkseg><trkpt lat=\"52.3\" lon=\"21.0\"><time>2024-02-19T15:00:05.5Z</time></trkpt></trkseg></trk>
            </gpx>",
        );
        let trace = trace.expect("three points");
        assert_eq!(trace.vehicles, ["bus 7", "track-2"]);
        assert_eq!(trace.lines, ["N56", "none"]);
        let millis: Vec<i64> = trace.positions.iter().map(|p| p.fix.millis - 1_708_354_800_000).collect();
        assert_eq!(millis, [0, 5_500, 10_000]);
    }

    #[test]
    fn malformed_points_are_told_with_their_lines() {
        let trace = parse(
            "<gpx><trk><trkseg>
            <trkpt lat=\"52.1\" lon=\"21.0\"/>
            <trkpt lat=\"52.1\"><time>2024-02-19T15:00:00Z</time></trkpt>
            <trkpt lat=\"52.1\" lon=\"east\"><time>2024-02-19T15:00:00Z</time></trkpt>
            <trkpt lat=\"52.1\" lon=\"21.0\"><time>2024-02-19T15:00:00Z</time></trkpt>
            </trkseg></trk></gpx>",
        );
        let malformed = trace.expect("one good point").malformed;
        let expected = [
            "walk.gpx:2: a track point without time",
            "walk.gpx:3: a track point without lon",
            "walk.gpx:4: lon \"east\" is no number",
        ];
        assert_eq!(malformed.examples, expected);
    }

    #[test]
    fn broken_xml_and_other_xml_are_refused_with_the_line() {
        let error = parse("<gpx>\n<trk>\n</gpx>").map(|_| ()).expect_err("not well-formed").to_string();
        assert!(error.starts_with("walk.gpx:3: no valid XML"), "{error}");
        let error = parse("<svg/>").map(|_| ()).expect_err("no GPX").to_string();
        assert_eq!(error, "walk.gpx:1: no GPX: the outermost element is <svg>");
        assert!(matches!(parse("<gpx/>"), Err(TraceError::Empty { .. })));
    }
}
