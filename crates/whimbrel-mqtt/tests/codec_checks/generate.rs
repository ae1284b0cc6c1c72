//! Well-formed packets from arbitrary bytes, written field by field without the codec under test.

use whimbrel_mqtt::codec::Version;

/// Decisions taken from a string of bytes; all zero when it is used up, so that shorter strings
/// make simpler packets.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let number = u32::from_be_bytes([0, 0, self.byte(), self.byte()]);
        number as usize % bound
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }
}

pub fn put_variable_integer(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let digit = (value % 128) as u8;
        value /= 128;
        if value == 0 {
            return out.push(digit);
        }
        out.push(digit + 128);
    }
}

fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u16::try_from(bytes.len()).expect("generated fields are short").to_be_bytes());
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_binary(out, text.as_bytes());
}

const TEXTS: [&str; 7] =
    ["", "a", "line", "żółw/łódź", "🚌 12", "\u{1}\u{7f}\u{feff}", "0123456789abcdef0123456789abcdef"];
const TOPICS: [&str; 6] = ["a", "/", "fleet/7/position", "$SYS/x", "łódź/🚌", "a//b"];
const FILTERS: [&str; 6] = ["a", "#", "+/x", "fleet/+/position", "$share/group/a/#", "łódź/#"];

fn text(c: &mut Choices<'_>) -> String {
    if c.byte() > 250 { "long".repeat(c.below(300)) } else { c.one_of(&TEXTS).to_owned() }
}

fn binary(c: &mut Choices<'_>) -> Vec<u8> {
    let len = c.below(20);
    (0..len).map(|_| c.byte()).collect()
}

/// Properties by packet type as the table in section 2.2.2.2 of the specification has them; 0
/// stands for a will.
fn allowed(packet_type: u8) -> &'static [u8] {
    match packet_type {
        0 => &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26],
        1 => &[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27],
        2 => &[0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A],
        3 => &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26],
        4..=7 | 9 | 11 => &[0x1F, 0x26],
        8 => &[0x0B, 0x26],
        10 => &[0x26],
        14 => &[0x11, 0x1C, 0x1F, 0x26],
        15 => &[0x15, 0x16, 0x1F, 0x26],
        _ => &[],
    }
}

fn put_property(c: &mut Choices<'_>, property: u8, out: &mut Vec<u8>) {
    out.push(property);
    match property {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => out.push(u8::from(c.flag())),
        0x02 | 0x11 | 0x18 => out.extend_from_slice(&c.u32().to_be_bytes()),
        0x27 => out.extend_from_slice(&c.u32().max(1).to_be_bytes()),
        0x21 | 0x23 => out.extend_from_slice(&c.u16().max(1).to_be_bytes()),
        0x13 | 0x22 => out.extend_from_slice(&c.u16().to_be_bytes()),
        0x0B => put_variable_integer(out, (c.u32() as usize % 268_435_455) + 1),
        0x09 | 0x16 => put_binary(out, &binary(c)),
        0x08 => put_text(out, c.one_of(&TOPICS)),
        0x26 => {
            put_text(out, &text(c));
            put_text(out, &text(c));
        }
        _ => put_text(out, &text(c)),
    }
}

/// A property section with its length. Repeats what may be repeated; authentication data come with
/// their method.
fn put_properties(c: &mut Choices<'_>, packet_type: u8, out: &mut Vec<u8>) {
    let mut section = Vec::new();
    let list = allowed(packet_type);
    let first = c.below(list.len());
    let mut has_method = packet_type == 15;
    if has_method {
        put_property(c, 0x15, &mut section);
    }
    for i in 0..list.len() {
        let property = list[(first + i) % list.len()];
        let repeats = match property {
            0x26 => c.below(3),
            0x0B if packet_type == 3 => c.below(3),
            0x15 if has_method => 0,
            0x15 | 0x16 if packet_type == 1 => continue,
            0x16 if !has_method => 0,
            _ => usize::from(c.flag()),
        };
        has_method |= property == 0x15 && repeats > 0;
        for _ in 0..repeats {
            put_property(c, property, &mut section);
        }
    }
    if packet_type == 1 && c.flag() {
        put_property(c, 0x16, &mut section);
        put_property(c, 0x15, &mut section);
    }
    put_variable_integer(out, section.len());
    out.extend_from_slice(&section);
}

fn reason(c: &mut Choices<'_>, packet_type: u8) -> u8 {
    let codes: &[u8] = match packet_type {
        2 => &[0, 0x80, 0x81, 0x84, 0x87, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9D, 0x9F],
        4 | 5 => &[0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
        6 | 7 => &[0, 0x92],
        9 => &[0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
        11 => &[0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91],
        14 => &[0, 4, 0x80, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x9B, 0x9C, 0x9F, 0xA0, 0xA2],
        _ => &[0, 0x18, 0x19],
    };
    c.one_of(codes)
}

fn connect(c: &mut Choices<'_>, version: Version) -> Vec<u8> {
    let mut body = b"\0\x04MQTT".to_vec();
    body.push(version.level());
    let (will, user_name, clean) = (c.flag(), c.flag(), c.flag());
    let password = c.flag() && (user_name || version == Version::V5);
    let will_bits = if will { 0x04 | (c.below(3) as u8) << 3 | u8::from(c.flag()) << 5 } else { 0 };
    body.push(u8::from(user_name) << 7 | u8::from(password) << 6 | will_bits | u8::from(clean) << 1);
    body.extend_from_slice(&c.u16().to_be_bytes());
    if version == Version::V5 {
        put_properties(c, 1, &mut body);
    }
    put_text(&mut body, &text(c));
    if will {
        if version == Version::V5 {
            put_properties(c, 0, &mut body);
        }
        put_text(&mut body, c.one_of(&TOPICS));
        put_binary(&mut body, &binary(c));
    }
    if user_name {
        put_text(&mut body, &text(c));
    }
    if password {
        put_binary(&mut body, &binary(c));
    }
    body
}

fn publish(c: &mut Choices<'_>, version: Version, flags: u8) -> Vec<u8> {
    let mut body = Vec::new();
    put_text(&mut body, c.one_of(&TOPICS));
    if flags & 0b110 != 0 {
        body.extend_from_slice(&c.u16().max(1).to_be_bytes());
    }
    if version == Version::V5 {
        put_properties(c, 3, &mut body);
    }
    body.extend_from_slice(&binary(c));
    body
}

fn codes_ack(c: &mut Choices<'_>, version: Version, packet_type: u8, body: &mut Vec<u8>) {
    if version == Version::V4 && packet_type == 11 {
        return;
    }
    for _ in 0..=c.below(4) {
        body.push(match version {
            Version::V4 => c.one_of(&[0, 1, 2, 0x80]),
            Version::V5 => reason(c, packet_type),
        });
    }
}

fn filters(c: &mut Choices<'_>, version: Version, packet_type: u8, body: &mut Vec<u8>) {
    for _ in 0..=c.below(4) {
        let filter = c.one_of(&FILTERS);
        put_text(body, filter);
        if packet_type == 8 {
            let qos = c.below(3) as u8;
            let no_local = c.flag() && !filter.starts_with("$share");
            let options = u8::from(no_local) << 2 | u8::from(c.flag()) << 3 | (c.below(3) as u8) << 4;
            body.push(if version == Version::V5 { qos | options } else { qos });
        }
    }
}

/// What follows the first fields of an answer in MQTT 5: nothing, a code, or a code and properties.
fn optional_reason(c: &mut Choices<'_>, packet_type: u8, body: &mut Vec<u8>) {
    let form = c.below(3);
    if form > 0 {
        body.push(reason(c, packet_type));
    }
    if form > 1 {
        put_properties(c, packet_type, body);
    }
}

/// A whole well-formed packet.
pub fn packet(c: &mut Choices<'_>) -> (Version, Vec<u8>) {
    let version = if c.flag() { Version::V5 } else { Version::V4 };
    let types = if version == Version::V5 { 15 } else { 14 };
    // Half of them are PUBLISH.
    let packet_type = if c.flag() { 3 } else { c.below(types) as u8 + 1 };
    let flags = match packet_type {
        3 => {
            let qos = c.below(3) as u8;
            let dup = c.flag() && qos > 0;
            u8::from(dup) << 3 | qos << 1 | u8::from(c.flag())
        }
        6 | 8 | 10 => 2,
        _ => 0,
    };
    let mut body = Vec::new();
    if matches!(packet_type, 4..=11) {
        body.extend_from_slice(&c.u16().max(1).to_be_bytes());
    }
    match (packet_type, version) {
        (1, _) => body = connect(c, version),
        (2, Version::V4) => body = if c.flag() { vec![1, 0] } else { vec![0, c.below(6) as u8] },
        (2, Version::V5) => {
            let code = reason(c, 2);
            body = vec![u8::from(code == 0 && c.flag()), code];
            put_properties(c, 2, &mut body);
        }
        (3, _) => body = publish(c, version, flags),
        (4..=7 | 14, Version::V5) => optional_reason(c, packet_type, &mut body),
        (8..=11, _) => {
            if version == Version::V5 {
                put_properties(c, packet_type, &mut body);
            }
            match packet_type {
                8 | 10 => filters(c, version, packet_type, &mut body),
                _ => codes_ack(c, version, packet_type, &mut body),
            }
        }
        (15, _) if c.flag() => {
            body.push(reason(c, 15));
            put_properties(c, 15, &mut body);
        }
        _ => {}
    }
    let mut packet = vec![packet_type << 4 | flags];
    put_variable_integer(&mut packet, body.len());
    packet.extend_from_slice(&body);
    (version, packet)
}

/// A packet with a few of its bytes changed, inserted, removed, or its end cut off; its length is
/// kept right half of the time.
pub fn mutated_packet(c: &mut Choices<'_>) -> (Version, Vec<u8>) {
    let changes = c.below(4) + 1;
    let mend_length = c.flag();
    let mut positions = Vec::new();
    for _ in 0..changes {
        positions.push((c.byte() % 4, c.u16(), c.byte()));
    }
    let (version, mut bytes) = packet(c);
    for (kind, at, value) in positions {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(at) % bytes.len();
        match kind {
            0 => bytes[at] = value,
            1 => bytes.insert(at, value),
            2 => drop(bytes.remove(at)),
            _ => bytes[at] ^= 1 << (value & 7),
        }
    }
    if mend_length && bytes.len() >= 2 && bytes.len() < 130 {
        bytes[1] = (bytes.len() - 2) as u8;
    }
    (version, bytes)
}
