//! The compact form of an event: few bytes beside its topic, attributes and payload. Its id is in
//! the frame or message around it, and so is its retain mark.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | from the lowest bit: quality of service (2 bits), reliable; then which of the parts below are there: expiry, deadline, headers, publisher, accepted |
//! | 1 | 4 bits importance; attributes are there; a label is there; 2 bits zero |
//! | varint | bytes of the label of domains, and these |
//! | varint | accepted − tick, zigzag, ns |
//! | 8 | publisher, little endian |
//! | varint | expiry − accepted, zigzag, ns |
//! | varint | deadline, ms |
//! | | headers: a byte of flags (from the lowest bit: whether the payload is text is known, it is text, content type, response topic, correlation, after, may be a repetition); for each of content type, response topic and correlation that is there a varint of its length and its bytes; for after a varint and as many bytes, 16 for each of at most 8 events that its publisher has published before: pubend and tick, little endian |
//! | varint | bytes of the topic |
//! | varint | bytes of the attributes |
//! | | topic, attributes, and the payload, which is the rest |

use whimbrel_event::{
    AcceptedEvent, Attributes, DomainLabel, EventId, EventRef, Headers, IMPORTANCE_MAX, LABEL_BYTES_MAX,
    PREDECESSORS_MAX, Predecessors, Publisher, Qos, Reliability, Time,
};

use crate::bytes::{Put, Reader, text};
use crate::{FRAME_BYTES_MAX, Invalid, TOPIC_BYTES_MAX};

const QOS: u8 = 0b11;
const RELIABLE: u8 = 1 << 2;
const EXPIRES: u8 = 1 << 3;
const DEADLINE: u8 = 1 << 4;
const HEADERS: u8 = 1 << 5;
const PUBLISHER: u8 = 1 << 6;
const ACCEPTED: u8 = 1 << 7;

const IMPORTANCE: u8 = 0b1111;
const ATTRIBUTES: u8 = 1 << 4;
// Programs before 0.2 refuse an event with this flag.
const LABELLED: u8 = 1 << 5;

const TEXT_PAYLOAD_KNOWN: u8 = 1;
const TEXT_PAYLOAD: u8 = 1 << 1;
const CONTENT_TYPE: u8 = 1 << 2;
const RESPONSE_TOPIC: u8 = 1 << 3;
const CORRELATION: u8 = 1 << 4;
const AFTER: u8 = 1 << 5;
const MAYBE_REPEAT: u8 = 1 << 6;

/// Bytes of all predecessors of an event.
const AFTER_BYTES_MAX: usize = 16 * PREDECESSORS_MAX;

/// Appends an event, without its id and its retain mark.
///
/// # Panics
/// When its topic is empty or has more than [`TOPIC_BYTES_MAX`] bytes, or its importance is not 1
/// to [`IMPORTANCE_MAX`].
pub fn write(event: &AcceptedEvent<'_>, out: &mut Vec<u8>) {
    let AcceptedEvent { id, accepted, clock_offset, event } = event;
    let ahead = accepted.as_nanos().wrapping_sub(id.tick.0) as i64;
    let is_known = event.publisher != Publisher::UNKNOWN;
    let attributes = event.attributes.as_bytes();
    let label = event.headers.domains;
    let headers = Headers { retain: false, domains: DomainLabel::ANY, ..event.headers };
    assert!((1..=TOPIC_BYTES_MAX).contains(&event.topic.len()), "an event's topic has 1 to {TOPIC_BYTES_MAX} bytes");
    assert!((1..=IMPORTANCE_MAX).contains(&event.importance), "an event's importance is 1 to {IMPORTANCE_MAX}");
    out.push(flags(event) | bit(HEADERS, !headers.is_empty()) | bit(PUBLISHER, is_known) | bit(ACCEPTED, ahead != 0));
    out.push(event.importance | bit(ATTRIBUTES, !attributes.is_empty()) | bit(LABELLED, !label.is_any()));
    if !label.is_any() {
        out.put_bytes(label.as_str().as_bytes(), LABEL_BYTES_MAX, "a label");
    }
    if ahead != 0 {
        out.put_zigzag(ahead);
    }
    if is_known {
        out.put_u64(event.publisher.to_bits());
    }
    if let Some(expires) = event.expires {
        // Both by the same clock, so that any broker writes the bytes of the event's own broker.
        let accepted = accepted.by_clock_ahead(*clock_offset);
        out.put_zigzag(expires.as_nanos().wrapping_sub(accepted.as_nanos()) as i64);
    }
    if let Some(deadline) = event.deadline_ms {
        out.put_varint(u64::from(deadline));
    }
    if !headers.is_empty() {
        put_headers(&headers, out);
    }
    out.put_varint(event.topic.len() as u64);
    if !attributes.is_empty() {
        out.put_varint(attributes.len() as u64);
    }
    out.extend_from_slice(event.topic.as_bytes());
    out.extend_from_slice(attributes);
    out.extend_from_slice(event.payload);
}

fn bit(flag: u8, is_set: bool) -> u8 {
    if is_set { flag } else { 0 }
}

fn flags(event: &EventRef<'_>) -> u8 {
    event.qos as u8
        | bit(RELIABLE, event.reliability == Reliability::Reliable)
        | bit(EXPIRES, event.expires.is_some())
        | bit(DEADLINE, event.deadline_ms.is_some())
}

fn put_headers(headers: &Headers<'_>, out: &mut Vec<u8>) {
    let parts = [
        (CONTENT_TYPE, headers.content_type.map(str::as_bytes)),
        (RESPONSE_TOPIC, headers.response_topic.map(str::as_bytes)),
        (CORRELATION, headers.correlation),
    ];
    let text =
        bit(TEXT_PAYLOAD_KNOWN, headers.text_payload.is_some()) | bit(TEXT_PAYLOAD, headers.text_payload == Some(true));
    let text = text | bit(AFTER, !headers.after.is_empty()) | bit(MAYBE_REPEAT, headers.maybe_repeat);
    out.push(parts.iter().fold(text, |flags, (flag, part)| flags | bit(*flag, part.is_some())));
    for part in parts.iter().filter_map(|(_, part)| *part) {
        out.put_bytes(part, FRAME_BYTES_MAX, "a header");
    }
    if !headers.after.is_empty() {
        out.put_bytes(headers.after.as_bytes(), AFTER_BYTES_MAX, "predecessors");
    }
}

/// Which brokers may carry an event: the rest of it is not read. Of bytes that are no event it says
/// nothing.
#[inline]
pub fn label(bytes: &[u8]) -> DomainLabel<'_> {
    match bytes {
        [_, second, rest @ ..] if second & LABELLED != 0 => read_label(&mut Reader(rest)).unwrap_or(UNREADABLE),
        _ => DomainLabel::ANY,
    }
}

/// The label of an event with a label that is not valid: its name is that of no domain.
const UNREADABLE: DomainLabel<'static> = DomainLabel::NOBODY;

fn read_label<'a>(input: &mut Reader<'a>) -> Result<DomainLabel<'a>, Invalid> {
    let label = text(input.bytes(LABEL_BYTES_MAX, "a label")?, "a label")?;
    DomainLabel::read(label, 1).filter(|label| !label.is_any()).ok_or(Invalid::Text("a label"))
}

/// Reads an event with the id that its frame gives it, without a retain mark. The grammar of its
/// topic is not checked.
///
/// # Errors
/// When the bytes are not what [`write()`] could have written.
pub fn read(bytes: &[u8], id: EventId) -> Result<AcceptedEvent<'_>, Invalid> {
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(Invalid::TooLong);
    }
    let mut input = Reader(bytes);
    let [flags, second] = input.array()?;
    let importance = second & IMPORTANCE;
    if second & !(IMPORTANCE | ATTRIBUTES | LABELLED) != 0 {
        return Err(Invalid::Form("flags of an event"));
    }
    if !(1..=IMPORTANCE_MAX).contains(&importance) {
        return Err(Invalid::Range("an importance"));
    }
    let has = |flag: u8| flags & flag != 0;
    let domains = if second & LABELLED != 0 { read_label(&mut input)? } else { DomainLabel::ANY };
    let accepted = if has(ACCEPTED) { read_accepted(&mut input, id)? } else { Time::from_nanos(id.tick.0) };
    let publisher = if has(PUBLISHER) { read_publisher(&mut input)? } else { Publisher::UNKNOWN };
    let expires = if has(EXPIRES) { Some(read_time(&mut input, accepted.as_nanos())?) } else { None };
    let deadline_ms = if has(DEADLINE) { Some(input.small("a deadline")?) } else { None };
    let headers = if has(HEADERS) { read_headers(&mut input)? } else { Headers::EMPTY };
    let (topic, attributes) = read_topic_and_attributes(&mut input, second & ATTRIBUTES != 0)?;
    let event = EventRef {
        topic,
        attributes,
        payload: input.0,
        headers: Headers { domains, ..headers },
        qos: read_qos(flags)?,
        reliability: if has(RELIABLE) { Reliability::Reliable } else { Reliability::BestEffort },
        importance,
        expires,
        deadline_ms,
        publisher,
    };
    Ok(AcceptedEvent { id, accepted, clock_offset: 0, event })
}

fn read_qos(flags: u8) -> Result<Qos, Invalid> {
    match flags & QOS {
        0 => Ok(Qos::AtMostOnce),
        1 => Ok(Qos::AtLeastOnce),
        2 => Ok(Qos::ExactlyOnce),
        _ => Err(Invalid::Range("a quality of service")),
    }
}

/// A time, as its distance from another.
fn read_time(input: &mut Reader<'_>, from: u64) -> Result<Time, Invalid> {
    Ok(Time::from_nanos(from.wrapping_add(input.zigzag()? as u64)))
}

fn read_accepted(input: &mut Reader<'_>, id: EventId) -> Result<Time, Invalid> {
    let accepted = read_time(input, id.tick.0)?;
    if accepted.as_nanos() == id.tick.0 { Err(Invalid::Form("when an event was accepted")) } else { Ok(accepted) }
}

fn read_publisher(input: &mut Reader<'_>) -> Result<Publisher, Invalid> {
    let publisher = Publisher::from_bits(input.u64()?);
    if publisher == Publisher::UNKNOWN { Err(Invalid::Form("a publisher")) } else { Ok(publisher) }
}

fn read_headers<'a>(input: &mut Reader<'a>) -> Result<Headers<'a>, Invalid> {
    const ALL: u8 =
        TEXT_PAYLOAD_KNOWN | TEXT_PAYLOAD | CONTENT_TYPE | RESPONSE_TOPIC | CORRELATION | AFTER | MAYBE_REPEAT;
    let flags = input.byte()?;
    let text_payload = match (flags & TEXT_PAYLOAD_KNOWN != 0, flags & TEXT_PAYLOAD != 0) {
        (true, is_text) => Some(is_text),
        (false, false) => None,
        (false, true) => return Err(Invalid::Form("headers")),
    };
    if flags == 0 || flags & !ALL != 0 {
        return Err(Invalid::Form("headers"));
    }
    let mut part = |flag: u8| {
        if flags & flag == 0 { Ok(None) } else { input.bytes(FRAME_BYTES_MAX, "a header").map(Some) }
    };
    let (content_type, response_topic, correlation) = (part(CONTENT_TYPE)?, part(RESPONSE_TOPIC)?, part(CORRELATION)?);
    let after = if flags & AFTER == 0 { &[][..] } else { input.bytes(AFTER_BYTES_MAX, "predecessors")? };
    let after = Predecessors::from_bytes(after).filter(|after| after.is_empty() == (flags & AFTER == 0));
    Ok(Headers {
        text_payload,
        content_type: content_type.map(|part| text(part, "a content type")).transpose()?,
        response_topic: response_topic.map(|part| text(part, "a response topic")).transpose()?,
        correlation,
        after: after.ok_or(Invalid::Form("predecessors"))?,
        maybe_repeat: flags & MAYBE_REPEAT != 0,
        retain: false,
        domains: DomainLabel::ANY,
    })
}

fn read_topic_and_attributes<'a>(
    input: &mut Reader<'a>,
    has_attributes: bool,
) -> Result<(&'a str, Attributes<'a>), Invalid> {
    let topic_len: usize = input.small("the length of a topic")?;
    let attributes_len: usize = if has_attributes { input.small("the length of attributes")? } else { 0 };
    if has_attributes && attributes_len == 0 {
        return Err(Invalid::Form("attributes"));
    }
    if !(1..=TOPIC_BYTES_MAX).contains(&topic_len) {
        return Err(Invalid::Range("the length of a topic"));
    }
    let topic = text(input.take(topic_len)?, "a topic")?;
    let attributes = Attributes::from_bytes(input.take(attributes_len)?).map_err(|_| Invalid::Form("attributes"))?;
    Ok((topic, attributes))
}
