//! CSV: a header that names the columns in any order, one fix per row.
//!
//! A name alone does not decide which column is meant. Of the columns with one of the usual names,
//! the best-named one is taken that can be read as the wanted type in at least half of the first
//! rows.

use std::io::{self, BufRead, Cursor, Read};
use std::path::Path;

use csv::{Reader, StringRecord};

use super::TraceError;
use super::build::{Builder, Record};
use super::time;
use crate::fleet::geo::Place;

/// The usual names of each column, the best first: letters and digits only, lower case.
const VEHICLE: &[&str] = &[
    "vehicleid",
    "vehicle",
    "vehiclenumber",
    "vehicleref",
    "vehicleno",
    "busid",
    "objectid",
    "deviceid",
    "device",
    "unitid",
    "trackerid",
    "imei",
    "name",
    "id",
];
const TIME: &[&str] = &[
    "unixtimes",
    "timestamp",
    "datetime",
    "recordedat",
    "recordedattime",
    "gpstime",
    "fixtime",
    "timeutc",
    "utctime",
    "time",
    "date",
];
const DATE: &[&str] = &["date", "day", "dateutc", "utcdate"];
const TIME_OF_DAY: &[&str] = &["time", "timeofday", "timeutc", "utctime", "hour"];
const LAT: &[&str] = &["latitudedeg", "latitude", "lat", "gpslat", "gpslatitude"];
const LON: &[&str] = &["longitudedeg", "longitude", "lon", "lng", "long", "gpslon", "gpslongitude"];
const LINE: &[&str] = &["routeid", "line", "lines", "lineid", "route", "lineref", "routeshortname"];

/// Characters that may stand between fields.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The number of rows by which columns are chosen.
const SAMPLE: usize = 200;

/// The longest header, bytes.
const HEADER_MAX: u64 = 64 << 10;

/// The columns of a row's time.
#[derive(Clone, Copy, PartialEq, Debug)]
enum TimeAt {
    One(usize),
    /// A date, and a time of day.
    Two(usize, usize),
}

/// The columns of the wanted values.
#[derive(PartialEq, Debug)]
struct Columns {
    vehicle: usize,
    time: TimeAt,
    lat: usize,
    lon: usize,
    line: Option<usize>,
}

/// A row, or `None` if it is not UTF-8, and the line where it begins.
type Row = (u64, Option<StringRecord>);

/// Reads rows into `builder`. Errors name `path`.
pub fn read(path: &Path, mut input: impl BufRead, builder: &mut Builder) -> Result<(), TraceError> {
    let unreadable = |source| TraceError::Unreadable { path: path.to_owned(), source };
    let mut header = first_line(&mut input).map_err(unreadable)?;
    let named = separator_line(&header);
    if named.is_some() {
        header = first_line(&mut input).map_err(unreadable)?;
    }
    let skipped = u64::from(named.is_some());
    let separator = named.unwrap_or_else(|| separator(&header));
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(separator)
        .from_reader(Cursor::new(header).chain(input));
    let headers = match reader.headers() {
        Ok(headers) => headers.clone(),
        Err(error) => return Err(failure(path, error)),
    };
    let mut sample: Vec<Row> = Vec::new();
    while sample.len() < SAMPLE
        && let Some(row) = next(&mut reader, path)?
    {
        sample.push(row);
    }
    let columns = Columns::choose(&headers, &sample)
        .map_err(|why| TraceError::Syntax { place: format!("{}:{}", path.display(), 1 + skipped), why })?;
    let mut take = |(line, row): Row| {
        let at = format_args!("{}:{}", path.display(), line + skipped);
        let Some(row) = row else { return builder.malformed(at, "not UTF-8") };
        match columns.record(&headers, &row) {
            Ok(record) => builder.add(&record, at),
            Err(why) => builder.malformed(at, why),
        }
    };
    sample.into_iter().try_for_each(&mut take)?;
    while let Some(row) = next(&mut reader, path)? {
        take(row)?;
    }
    Ok(())
}

fn first_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.take(HEADER_MAX).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The separator in a first line `sep=;`, as spreadsheets write it.
fn separator_line(line: &[u8]) -> Option<u8> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii_end();
    match line {
        [b's' | b'S', b'e' | b'E', b'p' | b'P', b'=', separator] => Some(*separator),
        _ => None,
    }
}

/// The separator with which the header has the most known columns, the first of several.
fn separator(header: &[u8]) -> u8 {
    let all = [VEHICLE, TIME, LAT, LON, LINE].concat();
    let known = |separator: &u8| {
        let fields = header.split(|byte| byte == separator);
        fields.filter(|field| all.contains(&&*plain(&String::from_utf8_lossy(field)))).count()
    };
    let most = SEPARATORS.iter().map(known).max().unwrap_or(0);
    SEPARATORS.into_iter().find(|separator| known(separator) == most).unwrap_or(b',')
}

/// The next row, `None` at the end.
fn next(reader: &mut Reader<impl Read>, path: &Path) -> Result<Option<Row>, TraceError> {
    let mut row = StringRecord::new();
    match reader.read_record(&mut row) {
        Ok(false) => Ok(None),
        Ok(true) => Ok(Some((row.position().map_or(0, csv::Position::line), Some(row)))),
        Err(error) => match error.kind() {
            csv::ErrorKind::Utf8 { pos, .. } => Ok(Some((pos.as_ref().map_or(0, csv::Position::line), None))),
            _ => Err(failure(path, error)),
        },
    }
}

fn failure(path: &Path, error: csv::Error) -> TraceError {
    let place = path.display().to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => TraceError::Unreadable { path: path.to_owned(), source },
        csv::ErrorKind::Utf8 { .. } => TraceError::Syntax { place: format!("{place}:1"), why: "not UTF-8".to_owned() },
        other => TraceError::Syntax { place, why: format!("{other:?}") },
    }
}

/// A column's name in normal form: letters and digits, lower case.
fn plain(header: &str) -> String {
    header.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Degrees, with a decimal point or comma.
fn degrees(text: &str) -> Option<f64> {
    let number = text.strip_suffix('\u{b0}').unwrap_or(text);
    number.parse().ok().or_else(|| number.replacen(',', ".", 1).parse().ok()).filter(|number: &f64| number.is_finite())
}

/// The columns with one of these names, the best name first.
fn named(headers: &StringRecord, names: &[&str]) -> Vec<usize> {
    let plain: Vec<String> = headers.iter().map(plain).collect();
    let mut found = Vec::new();
    for name in names {
        found.extend(plain.iter().enumerate().filter(|(_, header)| *header == name).map(|(column, _)| column));
    }
    found
}

/// The first of `candidates` that can be read in at least half of the rows, else the one that can
/// be read in the most.
fn best<T: Copy>(candidates: &[T], sample: &[Row], reads: impl Fn(T, &StringRecord) -> bool) -> Option<T> {
    let rows = || sample.iter().filter_map(|(_, row)| row.as_ref());
    let half = rows().count().div_ceil(2);
    let score = |candidate: T| rows().filter(|row| reads(candidate, row)).count();
    let scored: Vec<(T, usize)> = candidates.iter().map(|&candidate| (candidate, score(candidate))).collect();
    let most = scored.iter().map(|(_, score)| *score).max().unwrap_or(0);
    scored.iter().find(|(_, score)| *score >= half.min(most)).map(|(candidate, _)| *candidate)
}

impl Columns {
    fn choose(headers: &StringRecord, sample: &[Row]) -> Result<Columns, String> {
        let is_there = |column: usize, row: &StringRecord| row.get(column).is_some_and(|cell| !cell.is_empty());
        let is_degrees = |column: usize, row: &StringRecord| row.get(column).and_then(degrees).is_some();
        let need = |what: &str, names: &[&str]| {
            let found: Vec<&str> = headers.iter().map(|header| header.trim_start_matches('\u{feff}')).collect();
            let (names, found) = (names.join(", "), found.join(", "));
            format!("no column for the {what} (one of {names}) in the header: {found}")
        };
        let pairs = |&date: &usize| named(headers, TIME_OF_DAY).into_iter().map(move |time| TimeAt::Two(date, time));
        let mut times: Vec<TimeAt> = named(headers, TIME).into_iter().map(TimeAt::One).collect();
        times.extend(named(headers, DATE).iter().flat_map(pairs).filter(|time| match time {
            TimeAt::Two(date, time) => date != time,
            TimeAt::One(_) => true,
        }));
        let is_time =
            |at: TimeAt, row: &StringRecord| time_in(at, row).is_some_and(|cell| time::millis(&cell).is_some());
        Ok(Columns {
            vehicle: best(&named(headers, VEHICLE), sample, is_there).ok_or_else(|| need("vehicle", VEHICLE))?,
            time: best(&times, sample, is_time).ok_or_else(|| need("time", TIME))?,
            lat: best(&named(headers, LAT), sample, is_degrees).ok_or_else(|| need("latitude", LAT))?,
            lon: best(&named(headers, LON), sample, is_degrees).ok_or_else(|| need("longitude", LON))?,
            line: best(&named(headers, LINE), sample, is_there),
        })
    }

    fn record<'a>(&self, headers: &StringRecord, row: &'a StringRecord) -> Result<Record<'a>, String> {
        let here = |column: usize| format!("in column {} ({})", column + 1, headers.get(column).unwrap_or_default());
        let field = |column: usize, what: &str| {
            row.get(column).ok_or_else(|| format!("the row ends before the {what} {}", here(column)))
        };
        let place = |column: usize, what: &str| {
            let text = field(column, what)?;
            let number = degrees(text);
            number.ok_or_else(|| format!("the {what} {text:?} {} is no number of degrees", here(column)))
        };
        let column = match self.time {
            TimeAt::One(column) | TimeAt::Two(column, _) => column,
        };
        field(column, "time")?;
        let time = time_in(self.time, row).unwrap_or_default();
        let no_time =
            || format!("the time {time:?} {} is neither Unix time nor a date with a time of day", here(column));
        Ok(Record {
            vehicle: field(self.vehicle, "vehicle")?,
            line: self.line.and_then(|column| row.get(column)).unwrap_or_default(),
            millis: time::millis(&time).ok_or_else(no_time)?,
            place: Place { lat: place(self.lat, "latitude")?, lon: place(self.lon, "longitude")? },
        })
    }
}

/// The text of a row's time.
fn time_in(at: TimeAt, row: &StringRecord) -> Option<std::borrow::Cow<'_, str>> {
    match at {
        TimeAt::One(column) => row.get(column).map(Into::into),
        TimeAt::Two(date, time) => Some(format!("{} {}", row.get(date)?, row.get(time)?).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::trace::Trace;

    /// The vehicle, ms and degrees of each fix.
    fn told(text: &[u8]) -> Vec<(String, i64, f64, f64)> {
        let trace = parse(text).unwrap_or_else(|error| panic!("{error}"));
        let tell = |p: &crate::fleet::trace::Position| {
            (trace.vehicles[p.fix.vehicle as usize].clone(), p.fix.millis, p.fix.place.lat, p.fix.place.lon)
        };
        trace.positions.iter().map(tell).collect()
    }

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
    fn the_best_named_column_that_reads_is_taken() {
        let fix = ("7".to_owned(), 1_708_354_800_000, 52.25, 21.5);
        for text in [
            "id,vehicle_id,timestamp,lat,lon\n1,7,1708354800,52.25,21.5\n",
            "vehicle,time,timestamp,lat,lon\n7,15:00:00,1708354800,52.25,21.5\n",
            "vehicle,timestamp,time,lat,lon\n7,0x00000000000007D1,2024-02-19 15:00:00,52.25,21.5\n",
            "vehicle,date,time,lat,lon\n7,2024-02-19,15:00:00,52.25,21.5\n",
            "vehicle,Time,Date,lat,lon\n7,15:00:00,2024-02-19,52.25,21.5\n",
            "vehicle,lat,latitude,lon,timestamp\n7,52.25,,21.5,1708354800\n",
            "name,Vehicle ID,Recorded-At,GPS Lat,gpsLon\nbus,7,2024-02-19T15:00:00,52.25,21.5\n",
            "vehicle_id,id,timestamp,lat,lon\n,7,1708354800,52.25,21.5\n",
        ] {
            assert_eq!(told(text.as_bytes()), std::slice::from_ref(&fix), "{text}");
        }
        // A name that can be read in half of the rows is enough; a worse one does not win by a few
        // rows.
        let rows = "id,vehicle,timestamp,lat,lon\n1,a,1,52,21\n2,,2,52,21\n3,a,3,52,21\n4,a,4,52,21\n";
        let trace = parse(rows.as_bytes()).expect("three good rows");
        assert_eq!((&trace.vehicles[..], trace.malformed.count), (&["a".to_owned()][..], 1));
        assert_eq!(trace.malformed.examples, ["buses.csv:3: no name of a vehicle"]);
    }

    #[test]
    fn separators_and_decimal_commas_are_as_spreadsheets_write_them() {
        let fix = ("7".to_owned(), 1_708_354_800_000, 52.25, 21.5);
        for text in [
            "vehicle;timestamp;lat;lon\n7;1708354800;52,25;21,5\n",
            "vehicle\ttimestamp\tlat\tlon\n7\t1708354800\t52.25\t21.5\n",
            "vehicle|timestamp|lat|lon\r\n7|1708354800|52.25\u{b0}|21.5\u{b0}\r\n",
            "sep=;\r\nvehicle;timestamp;lat;lon\r\n7;1708354800;52,25;21,5\r\n",
            "\u{feff}sep=,\nvehicle,timestamp,lat,lon\n7,1708354800,\"52,25\",\"21,5\"\n",
            "\u{feff}\"vehicle\",\"timestamp\",\"lat\",\"lon\"\r\n\"7\",\"1708354800\",\"52.25\",\"21.5\"\r\n",
        ] {
            assert_eq!(told(text.as_bytes()), std::slice::from_ref(&fix), "{text}");
        }
        let told = parse(b"sep=;\nvehicle;timestamp;lat;lon\n7;1;52;21\n7;2;;21\n").expect("a good row").malformed;
        assert_eq!(told.examples, ["buses.csv:4: the latitude \"\" in column 3 (lat) is no number of degrees"]);
    }

    #[test]
    fn malformed_rows_are_left_out_and_told_with_their_lines() {
        let text = b"object_id,unix_time_s,latitude_deg,longitude_deg,line\n\
            a,1,52.0,21.0,7\nb,1,north,21.0,7\nc,1,52.0\n\xff,1,52.0,21.0,7\nd,then,52.0,21.0,7\ne,2,52.0,21.0,7\n";
        let trace = parse(text).expect("two good rows");
        assert_eq!(trace.vehicles, ["a", "e"]);
        assert_eq!(trace.malformed.count, 4);
        let expected = [
            "buses.csv:3: the latitude \"north\" in column 3 (latitude_deg) is no number of degrees",
            "buses.csv:4: the row ends before the longitude in column 4 (longitude_deg)",
            "buses.csv:5: not UTF-8",
        ];
        assert_eq!(trace.malformed.examples, expected);
    }

    #[test]
    fn a_missing_column_is_named() {
        let error = parse(b"vehicle,time,lat\na,1,52\n").map(|_| ()).expect_err("no longitude").to_string();
        assert!(error.starts_with("buses.csv:1: no column for the longitude (one of longitudedeg"), "{error}");
        assert!(error.ends_with("in the header: vehicle, time, lat"), "{error}");
    }

    #[test]
    fn an_empty_file_and_a_lone_header_are_errors() {
        assert!(parse(b"").is_err());
        assert!(matches!(parse(b"vehicle,time,lat,lon\n"), Err(TraceError::Empty { .. })));
    }
}
