//! A vehicle's message: topic, attributes and body.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::trace::{Position, Trace};

/// First level of all topics of the fleet.
pub const ROOT: &str = "fleet";
/// Last level of the topics of positions.
const LEAF: &str = "position";

/// The body of a message, as JSON.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Report {
    /// The vehicle's number for this report: 1, 2, 3, ...
    pub seq: u64,
    /// Latitude, degrees.
    pub lat: f64,
    /// Longitude, degrees.
    pub lon: f64,
    /// The speed, m/s.
    pub speed: f64,
    /// The heading, degrees clockwise from north.
    pub heading: f64,
    /// The time of the recording, RFC 3339.
    pub time: String,
}

/// A message as it is given to the client library.
#[derive(Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// `fleet/<line>/<vehicle>/position`.
    pub topic: String,
    /// The report as JSON.
    pub body: Vec<u8>,
    /// The user properties, in this order: attributes for selectors.
    pub attributes: Vec<(String, String)>,
    /// The speed in the message, m/s: rounded, so not the position's.
    pub speed: f64,
}

impl Outgoing {
    /// The `seq`-th message of the vehicle of `position`.
    pub fn new(trace: &Trace, position: &Position, seq: u64) -> Outgoing {
        let vehicle = &trace.vehicles[position.fix.vehicle as usize];
        let line = &trace.lines[position.fix.line as usize];
        let tenths = |value: f32| (f64::from(value) * 10.0).round() / 10.0;
        let time = jiff::Timestamp::from_millisecond(position.fix.millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let report = Report {
            seq,
            lat: position.fix.place.lat,
            lon: position.fix.place.lon,
            speed: tenths(position.motion.speed),
            heading: tenths(position.motion.heading),
            time: time.to_string(),
        };
        let attribute = |name: &str, value: String| (name.to_owned(), value);
        Outgoing {
            topic: format!("{ROOT}/{line}/{vehicle}/{LEAF}"),
            body: serde_json::to_vec(&report).expect("numbers and text can always be written as JSON"),
            attributes: vec![
                attribute("lat", report.lat.to_string()),
                attribute("lon", report.lon.to_string()),
                attribute("speed", report.speed.to_string()),
                attribute("line", line.clone()),
            ],
            speed: report.speed,
        }
    }

    /// A hash of everything that must arrive unaltered.
    pub fn digest(&self) -> u64 {
        let attributes = self.attributes.iter().map(|(name, value)| (&**name, &**value));
        digest(&self.topic, &self.body, attributes)
    }
}

/// A hash of what arrived, comparable with [`Outgoing::digest`].
pub fn digest<'a>(topic: &str, body: &[u8], attributes: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, body).hash(&mut hasher);
    attributes.for_each(|attribute| attribute.hash(&mut hasher));
    hasher.finish()
}

/// The filter of everything that the fleet publishes.
pub fn all_filter() -> String {
    format!("{ROOT}/#")
}

/// The filter of one line's positions.
pub fn line_filter(line: &str) -> String {
    format!("{ROOT}/{line}/+/{LEAF}")
}

/// The line and vehicle in a topic of the fleet.
pub fn parse_topic(topic: &str) -> Option<(&str, &str)> {
    let mut levels = topic.split('/');
    let found = (levels.next()?, levels.next()?, levels.next()?, levels.next()?);
    match found {
        (ROOT, line, vehicle, LEAF) if levels.next().is_none() => Some((line, vehicle)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::geo::Place;
    use crate::fleet::trace::{Builder, Record};

    fn outgoing(seq: u64) -> Outgoing {
        let mut builder = Builder::new("test");
        for (millis, lat) in [(1_708_354_790_000, 52.19), (1_708_354_800_000, 52.19121)] {
            let place = Place { lat, lon: 21.04572 };
            builder.add(&Record { vehicle: "bus0853", line: "N56", millis, place }, "test").expect("a good record");
        }
        let trace = builder.build().expect("two fixes");
        Outgoing::new(&trace, &trace.positions[1], seq)
    }

    #[test]
    fn a_message_tells_all_of_a_position() {
        let message = outgoing(7);
        assert_eq!(message.topic, "fleet/N56/bus0853/position");
        let body =
            r#"{"seq":7,"lat":52.19121,"lon":21.04572,"speed":13.5,"heading":0.0,"time":"2024-02-19T15:00:00Z"}"#;
        assert_eq!(String::from_utf8_lossy(&message.body), body);
        let names: Vec<&str> = message.attributes.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["lat", "lon", "speed", "line"]);
        assert_eq!(message.attributes[3].1, "N56");
    }

    #[test]
    fn every_difference_changes_the_digest() {
        let sent = outgoing(7);
        assert_eq!(sent.digest(), outgoing(7).digest());
        let mut others = [outgoing(8), sent.clone(), sent.clone(), sent.clone()];
        others[1].topic.push('x');
        others[2].attributes.swap(0, 1);
        others[3].attributes.pop();
        assert!(others.iter().all(|other| other.digest() != sent.digest()));
    }

    #[test]
    fn only_topics_of_positions_are_read() {
        assert_eq!(parse_topic("fleet/N56/bus0853/position"), Some(("N56", "bus0853")));
        for other in ["fleet/N56/bus0853", "fleet/N56/bus0853/position/x", "flet/N56/bus0853/position", "", "////"] {
            assert_eq!(parse_topic(other), None, "{other}");
        }
    }
}
