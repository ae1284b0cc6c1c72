//! Reads selectors, and tells for a few events which of them match.
//!
//! ```sh
//! cargo run -p whimbrel-selector --example who_wants_it
//! cargo run -p whimbrel-selector --example who_wants_it -- "speed > 50" "within('station')" "line LIKE 'N%"
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use whimbrel_selector::{Datum, Fences, FencesBuilder, MatchIndex, Selector, Subject, TopicFilter, TopicName};

/// What is asked when the command line has no selectors.
const SELECTORS: [&str; 5] = [
    "line IN ('N56', '175') AND speed > 50",
    "NOT speed > 50",
    "\"fuel.level\" * 2 < 1 OR JMSPriority >= 8",
    "json('$.doors.front') = 'open' AND speed > 0",
    "within('station')",
];

const STATION: &str = r#"{"type": "Feature", "properties": {"radius": 250}, "geometry": {"type": "Point", "coordinates": [21.0031, 52.2288]}}"#;

/// An event: attributes as text, a payload, and an importance.
struct Report {
    topic: &'static str,
    attributes: &'static [(&'static str, &'static str)],
    payload: &'static str,
    importance: u8,
}

const REPORTS: [Report; 4] = [
    Report {
        topic: "fleet/7/position",
        attributes: &[("line", "N56"), ("speed", "61.5"), ("fuel.level", "0.75")],
        payload: r#"{"doors": {"front": "open"}}"#,
        importance: 5,
    },
    Report {
        topic: "fleet/8/position",
        attributes: &[("line", "175"), ("speed", "0"), ("lat", "52.2289"), ("lon", "21.0040")],
        payload: r#"{"doors": {"front": "open"}}"#,
        importance: 5,
    },
    Report { topic: "fleet/9/position", attributes: &[("speed", "unknown")], payload: "not JSON", importance: 5 },
    Report { topic: "fleet/9/alarm", attributes: &[], payload: "", importance: 9 },
];

impl Subject for Report {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.attributes.iter().for_each(|(name, text)| visit(name, Datum::written(text)));
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }

    fn importance(&self) -> Option<u8> {
        Some(self.importance)
    }
}

/// Shows the text with a mark below the cause.
fn refuse(text: &str, error: &whimbrel_selector::SelectorError) {
    let mark = "^".repeat(text[error.offset..][..error.length].chars().count().max(1));
    eprintln!("{text}\n{:>width$}{mark} {}", "", error.cause, width = error.position - 1);
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut builder = FencesBuilder::default();
    builder.insert_geojson("station", STATION)?;
    let fences: Arc<Fences> = Arc::new(builder.build());

    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.is_empty() {
        texts = SELECTORS.map(str::to_owned).to_vec();
    }
    // A seed that strangers cannot know, in a program that meets some.
    let mut index = MatchIndex::new(7);
    index.set_fences(fences.clone());
    for (number, text) in texts.iter().enumerate() {
        match Selector::parse_with(text, &fences) {
            Ok(selector) => {
                index.insert(TopicFilter::new("fleet/#")?, Some(&selector), number);
            }
            Err(error) => {
                refuse(text, &error);
                return Ok(ExitCode::from(2));
            }
        }
    }
    for report in &REPORTS {
        println!("{} {:?} {}", report.topic, report.attributes, report.payload);
        index.for_each_match(TopicName::new(report.topic)?, report, |number| println!("    {}", texts[number]));
    }
    Ok(ExitCode::SUCCESS)
}
