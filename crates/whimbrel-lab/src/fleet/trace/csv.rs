//! CSV: a header that names the columns in any order, one fix per row.

use std::io::Read;
use std::path::Path;

use csv::StringRecord;

use super::TraceError;
use super::build::{Builder, Record};
use crate::fleet::geo::Place;

/// Numbers above this are milliseconds; as seconds they would be in the year 5138.
const SECONDS_LIMIT: f64 = 1e11;

/// Names under which each column is known, lower case.
const VEHICLE: &[&str] = &["object_id", "vehicle", "vehicle_id", "vehicle_number", "id"];
const TIME: &[&str] = &["unix_time_s", "time", "timestamp", "datetime"];
const LAT: &[&str] = &["latitude_deg", "latitude", "lat"];
const LON: &[&str] = &["longitude_deg", "longitude", "lon", "lng"];
const LINE: &[&str] = &["line", "lines", "route", "route_id"];

struct Columns {
    vehicle: usize,
    time: usize,
    lat: usize,
    lon: usize,
    line: Option<usize>,
}

/// Reads rows into `builder`. `path` is what errors name.
pub fn read(path: &Path, input: impl Read, builder: &mut Builder) -> Result<(), TraceError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(input);
    let columns = match reader.headers() {
        Ok(headers) => Columns::find(headers).map_err(|why| TraceError::Syntax { place: place(path, 1), why })?,
        Err(error) => return Err(failure(path, error)),
    };
    let mut row = StringRecord::new();
    loop {
        match reader.read_record(&mut row) {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let line = row.position().map_or(0, csv::Position::line);
                let at = format_args!("{}:{line}", path.display());
                match columns.record(&row) {
                    Ok(record) => builder.add(&record, at)?,
                    Err(why) => builder.malformed(at, why)?,
                }
            }
            Err(error) => match error.kind() {
                csv::ErrorKind::Utf8 { pos, .. } => {
                    let line = pos.as_ref().map_or(0, csv::Position::line);
                    builder.malformed(place(path, line), "not UTF-8")?;
                }
                _ => return Err(failure(path, error)),
            },
        }
    }
}

fn place(path: &Path, line: u64) -> String {
    format!("{}:{line}", path.display())
}

fn failure(path: &Path, error: csv::Error) -> TraceError {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => TraceError::Unreadable { path: path.to_owned(), source },
        csv::ErrorKind::Utf8 { .. } => TraceError::Syntax { place: place(path, 1), why: "not UTF-8".to_owned() },
        other => TraceError::Syntax { place: path.display().to_string(), why: format!("{other:?}") },
    }
}

impl Columns {
    fn find(headers: &StringRecord) -> Result<Columns, String> {
        let find = |names: &[&str]| {
            // A byte-order mark is part of the first name.
            let same = |header: &str| names.contains(&header.trim_start_matches('\u{feff}').to_lowercase().as_str());
            headers.iter().position(same)
        };
        let need = |what: &str, names: &[&str]| {
            let found: Vec<&str> = headers.iter().collect();
            find(names).ok_or_else(|| {
                let (names, found) = (names.join(", "), found.join(", "));
                format!("no column for the {what} (one of {names}) in the header: {found}")
            })
        };
        Ok(Columns {
            vehicle: need("vehicle", VEHICLE)?,
            time: need("time", TIME)?,
            lat: need("latitude", LAT)?,
            lon: need("longitude", LON)?,
            line: find(LINE),
        })
    }

    fn record<'a>(&self, row: &'a StringRecord) -> Result<Record<'a>, String> {
        let field =
            |column: usize, what: &str| row.get(column).ok_or_else(|| format!("the row ends before the {what}"));
        let degrees = |column: usize, what: &str| {
            let text = field(column, what)?;
            text.parse::<f64>().map_err(|_| format!("the {what} {text:?} is no number"))
        };
        let time = field(self.time, "time")?;
        Ok(Record {
            vehicle: field(self.vehicle, "vehicle")?,
            line: self.line.and_then(|column| row.get(column)).unwrap_or_default(),
            millis: millis(time).ok_or_else(|| format!("the time {time:?} is neither Unix time nor RFC 3339"))?,
            place: Place { lat: degrees(self.lat, "latitude")?, lon: degrees(self.lon, "longitude")? },
        })
    }
}

/// Unix seconds or milliseconds, or RFC 3339, as ms since the Unix epoch.
pub fn millis(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(number) if !number.is_finite() || number < 0.0 => None,
        Ok(number) if number > SECONDS_LIMIT => Some(number as i64),
        Ok(number) => Some((number * 1000.0).round() as i64),
        Err(_) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::trace::Trace;

    fn parse(text: &[u8]) -> Result<Trace, TraceError> {
        let mut builder = Builder::new("buses.csv");
        read(Path::new("buses.csv"), text, &mut builder)?;
        builder.build()
    }

    #[test]
    fn columns_may_come_in_any_order_and_under_usual_names() {
        let text = b"Lon,route_id,LAT,timestamp,vehicle_id,extra\n21.5,N56,52.25,2024-02-19T16:00:00+01:00,bus7,x\n";
        let trace = parse(text).expect("one good row");
        let fix = trace.positions[0].fix;
        assert_eq!((fix.place, fix.millis), (Place { lat: 52.25, lon: 21.5 }, 1_708_354_800_000));
        assert_eq!((&*trace.vehicles[0], &*trace.lines[0]), ("bus7", "N56"));
    }

    #[test]
    fn times_are_seconds_or_milliseconds_or_rfc_3339() {
        assert_eq!(millis("1708354800"), Some(1_708_354_800_000));
        assert_eq!(millis("1708354800.25"), Some(1_708_354_800_250));
        assert_eq!(millis("1708354800250"), Some(1_708_354_800_250));
        assert_eq!(millis("2024-02-19T15:00:00Z"), Some(1_708_354_800_000));
        for nonsense in ["", "noon", "-5", "NaN", "inf", "2024-02-30T00:00:00Z"] {
            assert_eq!(millis(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn malformed_rows_are_left_out_and_told_with_their_lines() {
        let text = b"object_id,unix_time_s,latitude_deg,longitude_deg,line\n\
            a,1,52.0,21.0,7\nb,1,north,21.0,7\nc,1,52.0\n\xff,1,52.0,21.0,7\nd,then,52.0,21.0,7\ne,2,52.0,21.0,7\n";
        let trace = parse(text).expect("two good rows");
        assert_eq!(trace.vehicles, ["a", "e"]);
        assert_eq!(trace.malformed.count, 4);
        let expected = [
            "buses.csv:3: the latitude \"north\" is no number",
            "buses.csv:4: the row ends before the longitude",
            "buses.csv:5: not UTF-8",
        ];
        assert_eq!(trace.malformed.examples, expected);
    }

    #[test]
    fn a_missing_column_is_named() {
        let error = parse(b"vehicle,time,lat\na,1,52\n").map(|_| ()).expect_err("no longitude").to_string();
        assert!(error.starts_with("buses.csv:1: no column for the longitude (one of longitude_deg"), "{error}");
        assert!(error.ends_with("in the header: vehicle, time, lat"), "{error}");
    }

    #[test]
    fn an_empty_file_and_a_lone_header_are_errors() {
        assert!(parse(b"").is_err());
        assert!(matches!(parse(b"vehicle,time,lat,lon\n"), Err(TraceError::Empty { .. })));
    }
}
