//! GTFS-realtime: the vehicle positions in one or several feed messages.
//!
//! Only the fields needed are described; see gtfs-realtime.proto of the GTFS-realtime reference for the rest. The outer
//! message is taken apart by hand, so that one broken entity costs no others, and so that feed messages written one
//! after the other without lengths keep each its own timestamp.

use std::path::Path;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::TraceError;
use super::build::{Builder, Record};
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
}

/// Reads the vehicle positions into `builder`. `path` is what errors name.
pub fn read(path: &Path, bytes: &[u8], builder: &mut Builder) -> Result<(), TraceError> {
    let syntax = |why: String| TraceError::Syntax { place: path.display().to_string(), why };
    let mut entities = 0;
    let plain = fields(bytes).or_else(|why| delimited(bytes).ok_or(why));
    let mut fed_at = 0;
    for field in plain.map_err(|why| syntax(format!("no GTFS-realtime feed: {why}")))? {
        if field.tag == FEED_HEADER {
            let header =
                FeedHeader::decode(field.bytes).map_err(|error| syntax(format!("header of the feed: {error}")))?;
            fed_at = header.timestamp;
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
        // Trip updates and alerts have no vehicle position; they are none of ours.
        let Some(position) = &entity.vehicle else { continue };
        match record(&entity.id, position, fed_at) {
            Ok(record) => builder.add(&record, at)?,
            Err(why) => builder.malformed(at, why)?,
        }
    }
    Ok(())
}

fn record<'a>(entity: &'a str, report: &'a VehiclePosition, fed_at: u64) -> Result<Record<'a>, &'static str> {
    let position = report.position.as_ref().ok_or("a vehicle without position")?;
    let seconds = if report.timestamp > 0 { report.timestamp } else { fed_at };
    if seconds == 0 {
        return Err("neither the vehicle nor the feed has a timestamp");
    }
    let millis = i64::try_from(seconds).ok().and_then(|s| s.checked_mul(1000)).ok_or("a timestamp out of range")?;
    let vehicle = report.vehicle.as_ref();
    let names = [vehicle.map_or("", |v| &v.id), vehicle.map_or("", |v| &v.label), entity];
    let degrees = |value: f32| (f64::from(value) * DECIMALS).round() / DECIMALS;
    Ok(Record {
        vehicle: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        line: report.trip.as_ref().map_or("", |trip| &trip.route_id),
        millis,
        place: Place { lat: degrees(position.latitude), lon: degrees(position.longitude) },
    })
}

/// A header or an entity of a feed message.
struct Field<'a> {
    tag: u32,
    bytes: &'a [u8],
}

/// Takes a feed message, or several without lengths between them, apart.
fn fields(mut bytes: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let mut fields: Vec<Field<'_>> = Vec::new();
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes).map_err(|error| error.to_string())?;
        if matches!(tag, FEED_HEADER | FEED_ENTITY) && wire == WireType::LengthDelimited {
            fields.push(Field { tag, bytes: prefixed(&mut bytes)? });
        } else {
            skip_field(wire, tag, &mut bytes, DecodeContext::default()).map_err(|error| error.to_string())?;
        }
    }
    match fields.first() {
        Some(first) if first.tag == FEED_HEADER => Ok(fields),
        _ => Err("it does not begin with a header".to_owned()),
    }
}

/// Takes feed messages with a length before each apart.
fn delimited(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.append(&mut fields(prefixed(&mut bytes).ok()?).ok()?);
    }
    Some(all)
}

/// Takes a length and so many bytes.
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
        let vehicle = Some(VehicleDescriptor { id: id.to_owned(), label: String::new() });
        let trip = Some(TripDescriptor { route_id: "116".to_owned() });
        FeedEntity { id: "e".to_owned(), vehicle: Some(VehiclePosition { trip, position, timestamp, vehicle }) }
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
        let trip_update = FeedEntity { id: "t".to_owned(), vehicle: None };
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
    fn a_vehicle_without_descriptor_has_its_entitys_name() {
        let mut entity = bus("", 52.1, 1);
        entity.id = "entity-7".to_owned();
        assert_eq!(parse(&feed(1, vec![entity]).encode_to_vec()).expect("one position").vehicles, ["entity-7"]);
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
            }
        }
        let error = parse(b"\x12\x00").map(|_| ()).expect_err("no header").to_string();
        assert_eq!(error, "feed.pb: no GTFS-realtime feed: it does not begin with a header");
    }
}
