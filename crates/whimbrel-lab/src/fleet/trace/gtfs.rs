//! GTFS-realtime: the vehicle positions in one or several feed messages.
//!
//! Only the needed fields are described; see gtfs-realtime.proto of the GTFS-realtime reference for
//! the rest. The outer message is parsed by hand, so that one broken entity costs no others, and so
//! that feed messages that were written one after the other without lengths keep their own
//! timestamps.

use std::path::Path;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::TraceError;
use super::build::{Builder, Record};
use super::time;
use crate::fleet::geo::Place;

/// Decimal places of a degree that a 32-bit float can hold.
const DECIMALS: f64 = 1e5;

const FEED_HEADER: u32 = 1;
const FEED_ENTITY: u32 = 2;

#[derive(Clone, PartialEq, Message)]
struct FeedHeader {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(uint64, tag = "3")]
    timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
struct FeedEntity {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bool, tag = "2")]
    is_deleted: bool,
    #[prost(message, optional, tag = "4")]
    vehicle: Option<VehiclePosition>,
}

#[derive(Clone, PartialEq, Message)]
struct VehiclePosition {
    #[prost(message, optional, tag = "1")]
    trip: Option<TripDescriptor>,
    #[prost(message, optional, tag = "2")]
    position: Option<Position>,
    #[prost(uint64, tag = "5")]
    timestamp: u64,
    #[prost(message, optional, tag = "8")]
    vehicle: Option<VehicleDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TripDescriptor {
    #[prost(string, tag = "1")]
    trip_id: String,
    #[prost(string, tag = "5")]
    route_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(float, tag = "1")]
    latitude: f32,
    #[prost(float, tag = "2")]
    longitude: f32,
}

#[derive(Clone, PartialEq, Message)]
struct VehicleDescriptor {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    label: String,
    #[prost(string, tag = "3")]
    license_plate: String,
}

/// Reads the vehicle positions into `builder`. Errors name `path`.
pub fn read(path: &Path, bytes: &[u8], builder: &mut Builder) -> Result<(), TraceError> {
    let syntax = |why: String| TraceError::Syntax { place: path.display().to_string(), why };
    let (fields, cut) = take_apart(bytes).map_err(|why| syntax(format!("no GTFS-realtime feed: {why}")))?;
    let (mut entities, mut fed_at) = (0, 0);
    for field in fields {
        if field.tag == FEED_HEADER {
            fed_at = match FeedHeader::decode(field.bytes) {
                Ok(header) => header.timestamp,
                Err(error) => {
                    let at = format_args!("{}: the header before entity {}", path.display(), entities + 1);
                    builder.malformed(at, error)?;
                    0
                }
            };
            continue;
        }
        entities += 1;
        let at = format_args!("{}: entity {entities}", path.display());
        let entity = match FeedEntity::decode(field.bytes) {
            Ok(entity) => entity,
            Err(error) => {
                builder.malformed(at, error)?;
                continue;
            }
        };
        // Trip updates and alerts have no vehicle position; they are skipped.
        let Some(position) = &entity.vehicle else { continue };
        if entity.is_deleted {
            builder.deleted();
            continue;
        }
        match record(&entity.id, position, fed_at) {
            Ok(record) => builder.add(&record, at)?,
            Err(why) => builder.malformed(at, why)?,
        }
    }
    match cut {
        Some(why) => builder.malformed(format_args!("{}: behind entity {entities}", path.display()), why),
        None => Ok(()),
    }
}

/// A position as a record. A vehicle without a description is identified by its trip, which stays
/// the same from feed to feed, and only without a trip by the entity, which need not stay the same.
fn record<'a>(entity: &'a str, report: &'a VehiclePosition, fed_at: u64) -> Result<Record<'a>, &'static str> {
    let position = report.position.as_ref().ok_or("a vehicle without position")?;
    let stamp = if report.timestamp > 0 { report.timestamp } else { fed_at };
    if stamp == 0 {
        return Err("neither the vehicle nor the feed has a timestamp");
    }
    let millis = time::unix(stamp as f64).ok_or("a timestamp out of range")?;
    let (vehicle, trip) = (report.vehicle.as_ref(), report.trip.as_ref());
    let described = vehicle.map_or([""; 3], |v| [&*v.id, &*v.label, &*v.license_plate]);
    let names = described.into_iter().chain([trip.map_or("", |trip| &*trip.trip_id), entity]);
    let degrees = |value: f32| (f64::from(value) * DECIMALS).round() / DECIMALS;
    Ok(Record {
        vehicle: names.into_iter().find(|name| !name.trim().is_empty()).unwrap_or_default(),
        line: trip.map_or("", |trip| &trip.route_id),
        millis,
        place: Place { lat: degrees(position.latitude), lon: degrees(position.longitude) },
    })
}

/// A header or an entity of a feed message.
struct Field<'a> {
    tag: u32,
    bytes: &'a [u8],
}

/// Splits the file into feed messages: one, or several, without lengths between them or with a
/// length before each. If the file was cut off, returns what there is, and why it is incomplete.
fn take_apart(bytes: &[u8]) -> Result<(Vec<Field<'_>>, Option<String>), String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    match fields(bytes) {
        (fields, None) => Ok((fields, None)),
        (fields, Some(why)) => match delimited(bytes) {
            Some(all) => Ok((all, None)),
            None if fields.iter().any(|field| field.tag == FEED_ENTITY) && begins_with_header(&fields) => {
                Ok((fields, Some(why)))
            }
            None => Err(why),
        },
    }
}

/// Splits one or several feed messages without lengths into fields; tells why it ended early, if it
/// did.
fn fields(mut bytes: &[u8]) -> (Vec<Field<'_>>, Option<String>) {
    let mut fields: Vec<Field<'_>> = Vec::new();
    while !bytes.is_empty() {
        if let Err(why) = field(&mut bytes, &mut fields) {
            return (fields, Some(why));
        }
    }
    let why = (!begins_with_header(&fields)).then(|| "it does not begin with a header".to_owned());
    (fields, why)
}

fn begins_with_header(fields: &[Field<'_>]) -> bool {
    fields.first().is_some_and(|first| first.tag == FEED_HEADER)
}

fn field<'a>(bytes: &mut &'a [u8], fields: &mut Vec<Field<'a>>) -> Result<(), String> {
    let (tag, wire) = decode_key(bytes).map_err(|error| error.to_string())?;
    if matches!(tag, FEED_HEADER | FEED_ENTITY) && wire == WireType::LengthDelimited {
        fields.push(Field { tag, bytes: prefixed(bytes)? });
        return Ok(());
    }
    skip_field(wire, tag, bytes, DecodeContext::default()).map_err(|error| error.to_string())
}

/// Splits feed messages with a length before each into fields.
fn delimited(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        match fields(prefixed(&mut bytes).ok()?) {
            (mut fields, None) => all.append(&mut fields),
            (_, Some(_)) => return None,
        }
    }
    Some(all)
}

/// Takes a length, and that many bytes.
fn prefixed<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = decode_varint(bytes).map_err(|error| error.to_string())?;
    let length = usize::try_from(length).ok().filter(|&length| length <= bytes.len());
    let (taken, rest) = bytes.split_at(length.ok_or("it ends in the middle of a message")?);
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::trace::Trace;

    #[derive(Clone, PartialEq, Message)]
    struct FeedMessage {
        #[prost(message, optional, tag = "1")]
        header: Option<FeedHeader>,
        #[prost(message, repeated, tag = "2")]
        entity: Vec<FeedEntity>,
    }

    fn bus(id: &str, lat: f32, timestamp: u64) -> FeedEntity {
        let position = Some(Position { latitude: lat, longitude: 21.01754 });
        let vehicle = Some(VehicleDescriptor { id: id.to_owned(), ..VehicleDescriptor::default() });
        let trip = Some(TripDescriptor { trip_id: "t1".to_owned(), route_id: "116".to_owned() });
        FeedEntity {
            id: "e".to_owned(),
            is_deleted: false,
            vehicle: Some(VehiclePosition { trip, position, timestamp, vehicle }),
        }
    }

    fn feed(timestamp: u64, entity: Vec<FeedEntity>) -> FeedMessage {
        FeedMessage { header: Some(FeedHeader { version: "2.0".to_owned(), timestamp }), entity }
    }

    fn parse(bytes: &[u8]) -> Result<Trace, TraceError> {
        let mut builder = Builder::new("feed.pb");
        read(Path::new("feed.pb"), bytes, &mut builder)?;
        builder.build()
    }

    #[test]
    fn a_feed_is_read() {
        let trip_update = FeedEntity { id: "t".to_owned(), ..FeedEntity::default() };
        let trace = parse(&feed(100, vec![bus("a", 52.12826, 90), trip_update, bus("b", 52.2, 0)]).encode_to_vec());
        let trace = trace.expect("two positions");
        assert_eq!((&*trace.vehicles, &*trace.lines), (&["a".to_owned(), "b".to_owned()][..], &["116".to_owned()][..]));
        assert_eq!(trace.positions[0].fix.place, Place { lat: 52.12826, lon: 21.01754 });
        assert_eq!(trace.positions.iter().map(|p| p.fix.millis).collect::<Vec<_>>(), [90_000, 100_000]);
        assert_eq!(trace.malformed.count, 0);
    }

    #[test]
    fn feeds_one_after_the_other_keep_their_timestamps() {
        let feeds = [feed(100, vec![bus("a", 52.1, 0)]), feed(110, vec![bus("a", 52.2, 0)])];
        let bare = feeds.iter().flat_map(Message::encode_to_vec).collect::<Vec<u8>>();
        let with_lengths = feeds.iter().flat_map(Message::encode_length_delimited_to_vec).collect::<Vec<u8>>();
        for bytes in [bare, with_lengths] {
            let trace = parse(&bytes).expect("two positions");
            assert_eq!(trace.positions.iter().map(|p| p.fix.millis).collect::<Vec<_>>(), [100_000, 110_000]);
        }
    }

    #[test]
    fn a_vehicle_is_known_by_what_stays_the_same() {
        let name = |change: fn(&mut VehiclePosition)| {
            let mut entity = bus("", 52.1, 1);
            entity.id = "entity-7".to_owned();
            change(entity.vehicle.as_mut().expect("it has one"));
            parse(&feed(1, vec![entity]).encode_to_vec()).expect("one position").vehicles
        };
        assert_eq!(name(|_| {}), ["t1"], "its trip");
        assert_eq!(name(|position| position.vehicle = None), ["t1"]);
        assert_eq!(name(|position| position.trip = None), ["entity-7"], "nothing else is known");
        let plate = |position: &mut VehiclePosition| {
            position.vehicle.as_mut().expect("it has one").license_plate = "WX 12".to_owned();
        };
        assert_eq!(name(plate), ["WX 12"]);
    }

    #[test]
    fn deleted_entities_are_left_out_and_counted() {
        let mut gone = bus("a", 52.1, 100);
        gone.is_deleted = true;
        let trace = parse(&feed(100, vec![gone, bus("b", 52.1, 100)]).encode_to_vec()).expect("one position");
        assert_eq!((&*trace.vehicles, trace.deleted, trace.malformed.count), (&["b".to_owned()][..], 1, 0));
    }

    #[test]
    fn timestamps_in_milliseconds_are_read_as_such() {
        let both = feed(1_708_354_810_000, vec![bus("a", 52.1, 1_708_354_800), bus("a", 52.1, 0)]);
        let trace = parse(&both.encode_to_vec()).expect("two positions");
        let millis: Vec<i64> = trace.positions.iter().map(|p| p.fix.millis).collect();
        assert_eq!(millis, [1_708_354_800_000, 1_708_354_810_000]);
    }

    #[test]
    fn a_broken_header_costs_no_entity_that_has_its_own_time() {
        let mut bytes = feed(100, vec![bus("a", 52.1, 90)]).encode_to_vec();
        bytes.extend([0x0a, 0x02, 0x0a, 0x7f]); // a header whose version claims more bytes than there are
        bytes.extend(&feed(0, vec![bus("b", 52.1, 91), bus("c", 52.1, 0)]).encode_to_vec()[7..]);
        let trace = parse(&bytes).expect("two positions");
        assert_eq!(trace.vehicles, ["a", "b"]);
        assert!(
            trace.malformed.examples[0].starts_with("feed.pb: the header before entity 2: "),
            "{:?}",
            trace.malformed
        );
        assert_eq!(trace.malformed.count, 2);
    }

    #[test]
    fn broken_entities_cost_no_others() {
        let mut bytes = feed(100, vec![bus("a", 52.1, 0)]).encode_to_vec();
        bytes.extend([0x12, 0x02, 0x22, 0x7f]); // an entity whose vehicle claims more bytes than there are
        bytes.extend(feed(0, vec![bus("b", 152.0, 1), bus("c", 52.0, 0), bus("d", 52.0, 1)]).encode_to_vec());
        let trace = parse(&bytes).expect("two positions");
        assert_eq!(trace.vehicles, ["a", "d"]);
        assert_eq!(trace.malformed.count, 3);
        assert!(trace.malformed.examples[0].starts_with("feed.pb: entity 2: "), "{:?}", trace.malformed);
        assert_eq!(trace.malformed.examples[2], "feed.pb: entity 4: neither the vehicle nor the feed has a timestamp");
    }

    #[test]
    fn every_truncation_is_refused_or_shorter() {
        let bytes = feed(100, vec![bus("a", 52.1, 0), bus("b", 52.1, 0)]).encode_to_vec();
        for length in 0..bytes.len() {
            if let Ok(trace) = parse(&bytes[..length]) {
                assert_eq!(trace.vehicles, ["a"], "{length} bytes");
                let is_whole = length == feed(100, vec![bus("a", 52.1, 0)]).encoded_len();
                assert_eq!(trace.malformed.count, u64::from(!is_whole), "{length} bytes: {:?}", trace.malformed);
            }
        }
        let cut = parse(&bytes[..bytes.len() - 1]).expect("the first one is whole").malformed;
        assert_eq!(cut.examples, ["feed.pb: behind entity 1: it ends in the middle of a message"]);
        let error = parse(b"\x12\x00").map(|_| ()).expect_err("no header").to_string();
        assert_eq!(error, "feed.pb: no GTFS-realtime feed: it does not begin with a header");
    }
}
