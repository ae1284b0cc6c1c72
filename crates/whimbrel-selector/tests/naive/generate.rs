//! Selectors and events from decisions, out of small pools so that they often have to do with each
//! other.

use super::event::{Event, Given};
use super::fences;

/// Decisions: taken from a string of bytes, all zero when it is used up, or without end from a
/// seed.
pub enum Choices<'a> {
    Bytes(&'a [u8]),
    Seeded(u64),
}

impl Choices<'_> {
    pub fn byte(&mut self) -> u8 {
        match self {
            Choices::Bytes(bytes) => {
                let Some((&first, rest)) = bytes.split_first() else { return 0 };
                *bytes = rest;
                first
            }
            // SplitMix64.
            Choices::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                (z ^ z >> 31) as u8
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let high = if bound > 256 { self.byte() } else { 0 };
        usize::from(u16::from_be_bytes([high, self.byte()])) % bound
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True once in `times`.
    pub fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Names of attributes, as they are written in selectors.
const NAMES: [(&str, &str); 12] = [
    ("a", "a"),
    ("b", "b"),
    ("c", "c"),
    ("speed", "speed"),
    ("größe", "größe"),
    ("fuel.level", "\"fuel.level\""),
    ("and", "\"and\""),
    ("JMSType", "\"JMSType\""),
    ("a \"b\"", "\"a \"\"b\"\"\""),
    ("JMSXGroupID", "JMSXGroupID"),
    ("lat", "lat"),
    ("lon", "\"lon\""),
];

const HEADERS: [&str; 6] = ["JMSPriority", "JMSTimestamp", "JMSMessageID", "JMSType", "JMSCorrelationID", "JMSReplyTo"];

const PATHS: [&str; 12] = [
    "$.a",
    "$['b']",
    "$.list[0]",
    "$.list[-1]",
    "$.list[-2]",
    "$.list[1].a",
    "$.o.a",
    "$[\"a \\\"b\\u00e9\"]",
    "$",
    "$.o",
    "$ .o\n[''] ['a']",
    "$[-1]",
];

/// Numbers that are near each other or at an edge; written alike in selectors, attributes and JSON.
const NUMBERS: [&str; 44] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    "10",
    "100",
    "-1",
    "-2",
    "-5",
    "0.1",
    "0.5",
    "2.5",
    "-2.5",
    "5.0",
    "-0.0",
    "-0",
    "4.999999999999999",
    "5.000000000000001",
    "1e308",
    "-1e308",
    "1e-308",
    "5e-324",
    "1.7976931348623157e308",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "9007199254740993.0",
    "-9007199254740993",
    "9223372036854775807",
    "9223372036854775806",
    "9223372036854775808",
    "9223372036854775809",
    "-9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775809",
    "9.2233720368547758e18",
    "18446744073709551616",
    "1e19",
    "4611686018427387904",
    "3037000500",
    "0.30000000000000004",
    "1e15",
];

/// Ways to write numbers that only selectors have.
const LITERALS: [&str; 18] = [
    "0x1F",
    "0x5",
    "017",
    "0b101",
    "5L",
    "7.",
    ".5",
    "1_000",
    "5d",
    "2.5f",
    "0x1p3",
    "0x.8p1",
    "0x1.8p-1",
    "0xFFFFFFFFFFFFFFFF",
    "0x7FFFFFFFFFFFFFFFL",
    "0777777777777777777777",
    "1E+2",
    "0_5",
];

const WRITTEN: [&str; 8] = ["1e400", "-1e400", "1e-400", "05", "+5", "5.", "0x5", "1E2"];

const TEXTS: [&str; 24] = [
    "red", "blue", "", "true", "false", "5", "5.0", "1", "ä", "€uro", "😀", "a'b", "%", "_", "100%", "ab\\cd", "\"",
    "reddish", "rEd", "aäa", "aaab", "abababab", "1e400", "a_b",
];

/// Long texts that differ late are cut from these, at characters of one to four bytes.
const LONG: [&str; 3] = [
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ä€😀abcä€😀abcä€😀abcä€😀abcä€😀abcä€😀abc",
    "line/łódź/🚌/12345678/line/łódź/🚌/12345678/90",
];

pub fn text(c: &mut Choices<'_>) -> String {
    if c.rarely(3) {
        let long = c.one_of(&LONG);
        let length = c.below(long.chars().count() + 1);
        let mut cut: String = long.chars().take(length).collect();
        if c.rarely(3) {
            cut.push(c.one_of(&['x', 'ä', '€', '😀']));
        }
        cut
    } else {
        c.one_of(&TEXTS).to_owned()
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A field as it is written.
fn field(c: &mut Choices<'_>) -> String {
    match c.below(16) {
        0..10 => c.one_of(&NAMES[..4]).1.to_owned(),
        10 | 11 => c.one_of(&NAMES).1.to_owned(),
        12 => c.one_of(&HEADERS).to_owned(),
        _ => format!("{}({})", c.one_of(&["json", "JSON"]), quoted(c.one_of(&PATHS))),
    }
}

fn number(c: &mut Choices<'_>) -> String {
    match c.below(8) {
        0..4 => c.one_of(&NUMBERS[..16]).to_owned(),
        4..7 => c.one_of(&NUMBERS).to_owned(),
        _ => c.one_of(&LITERALS).to_owned(),
    }
}

/// Arithmetic over one field, such as indexes may be made of.
fn linear(c: &mut Choices<'_>, depth: usize, field: &str) -> String {
    if depth == 0 {
        return field.to_owned();
    }
    let inner = linear(c, depth - 1, field);
    let k = number(c);
    match c.below(9) {
        0 => format!("({inner} + {k})"),
        1 => format!("({inner} - {k})"),
        2 => format!("({inner} * {k})"),
        3 => format!("({inner} / {k})"),
        4 => format!("({k} + {inner})"),
        5 => format!("({k} - {inner})"),
        6 => format!("({k} * {inner})"),
        7 => format!("({k} / {inner})"),
        _ => format!("-{inner}"),
    }
}

fn arithmetic(c: &mut Choices<'_>, depth: usize) -> String {
    match c.below(if depth == 0 { 2 } else { 7 }) {
        0 => field(c),
        1 => number(c),
        2 => format!("-{}", arithmetic(c, depth - 1)),
        3 => format!("(+{})", arithmetic(c, depth - 1)),
        _ => {
            let (left, right) = (arithmetic(c, depth - 1), arithmetic(c, depth - 1));
            let op = c.one_of(&["+", "-", "*", "/"]);
            if c.flag() { format!("({left} {op} {right})") } else { format!("{left}{op} {right}") }
        }
    }
}

fn numeric(c: &mut Choices<'_>) -> String {
    match c.below(8) {
        0..4 => field(c),
        4..7 => {
            let (depth, field) = (1 + c.below(3), field(c));
            linear(c, depth, &field)
        }
        _ => arithmetic(c, 2),
    }
}

fn comparison(c: &mut Choices<'_>) -> &'static str {
    c.one_of(&["=", "<>", "<", "<=", ">", ">="])
}

/// A pattern that was made from a text, so that it often fits.
fn pattern(c: &mut Choices<'_>) -> String {
    let escape = c.one_of(&[None, None, Some('\\'), Some('!'), Some('ä')]);
    let text = text(c);
    let mut pattern = String::new();
    let from = if c.rarely(4) { c.below(text.chars().count() + 1) } else { 0 };
    if from > 0 || c.rarely(6) {
        pattern.push('%');
    }
    let wildness = c.one_of(&[3, 8, 20, 200]);
    for (i, character) in text.chars().enumerate().skip(from) {
        match c.below(wildness) {
            0 if i > 0 => pattern.push('_'),
            1 if i > 0 => pattern.push('%'),
            2 if i > 0 => {
                pattern.push('%');
                break;
            }
            _ if escape == Some(character) || (escape.is_some() && matches!(character, '%' | '_')) => {
                pattern.extend([escape.expect("it is the character or there is one"), character]);
            }
            _ => pattern.push(character),
        }
    }
    if c.flag() {
        pattern.push_str(c.one_of(&["%", "_%", "%_", "%%", "_"]));
    }
    match escape {
        Some(escape) => format!("{} ESCAPE '{escape}'", quoted(&pattern)),
        None => quoted(&pattern),
    }
}

fn list(c: &mut Choices<'_>) -> String {
    let length = 1 + if c.rarely(10) { c.below(40) } else { c.below(4) };
    let texts: Vec<_> = (0..length).map(|_| quoted(&text(c))).collect();
    texts.join(", ")
}

fn leaf(c: &mut Choices<'_>) -> String {
    let not = if c.rarely(4) { "NOT " } else { "" };
    match c.below(26) {
        0..4 => format!("{} {} {}", field(c), comparison(c), number(c)),
        4 => format!("{} {} {}", number(c), comparison(c), numeric(c)),
        5 | 6 => format!("{} {} {}", numeric(c), comparison(c), number(c)),
        7 => format!("{} {} {}", numeric(c), comparison(c), numeric(c)),
        8 => format!("{} {} {}", field(c), comparison(c), field(c)),
        9..12 => format!("{} {} {}", field(c), c.one_of(&["=", "=", "<>"]), quoted(&text(c))),
        12 => format!("{} = {}", quoted(&text(c)), field(c)),
        13 => format!("{} {} {}", field(c), c.one_of(&["=", "<>"]), c.one_of(&["TRUE", "FALSE", "true"])),
        14..16 => format!("{} {not}between {} AND {}", numeric(c), number(c), number(c)),
        16 => format!("{} {not}BETWEEN {} AND {}", numeric(c), numeric(c), numeric(c)),
        17..20 => format!("{} {not}LIKE {}", field(c), pattern(c)),
        20..22 => format!("{} {not}IN ({})", field(c), list(c)),
        22 => format!("{} IS {not}NULL", field(c)),
        23 => field(c),
        24 => c.one_of(&["TRUE", "FALSE"]).to_owned(),
        _ => format!("{}({})", c.one_of(&["within", "Within"]), quoted(c.one_of(&fences::NAMES))),
    }
}

fn condition(c: &mut Choices<'_>, depth: usize) -> String {
    if depth == 0 {
        return leaf(c);
    }
    match c.below(12) {
        0 | 1 => leaf(c),
        2..6 => joined(c, depth, " AND "),
        6..9 => joined(c, depth, " OR "),
        9 | 10 => format!("NOT ({})", condition(c, depth - 1)),
        _ => {
            // Two operands would be compared as values.
            let (left, right) = (condition(c, depth - 1), condition(c, depth - 1));
            format!("(NOT NOT ({left})) {} ({right} AND TRUE)", c.one_of(&["=", "<>"]))
        }
    }
}

fn joined(c: &mut Choices<'_>, depth: usize, word: &str) -> String {
    let parts: Vec<_> = (0..2 + c.below(3))
        .map(|_| {
            let part = condition(c, depth - 1);
            format!("({part})")
        })
        .collect();
    parts.join(word)
}

/// A selector that the language allows.
pub fn selector(c: &mut Choices<'_>) -> String {
    let depth = c.one_of(&[0, 1, 1, 2, 2, 3, 4]);
    condition(c, depth)
}

/// A selector of one of several shapes over the same few fields, as many subscribers have them.
pub fn common_selector(c: &mut Choices<'_>) -> String {
    let low = c.below(1000);
    let high = low + c.one_of(&[0, 5, 20, 100, 1000]);
    let (x, y, z) = (c.below(1000), c.below(1000), c.below(1000));
    let color = c.one_of(&["red", "blue", "green", "ä", "5"]);
    match c.below(20) {
        0..3 => format!("x BETWEEN {low} AND {high}"),
        3..6 => format!("x >= {low} AND x < {high} AND y > {y}"),
        6..9 => format!("x BETWEEN {low} AND {high} AND y BETWEEN {y} AND {}.5 AND z <= {z}", y + 50),
        9 => format!("color = '{color}' AND x > {x}"),
        10 => format!("color IN ('{color}', 'black', 'v{x}')"),
        11 => format!("line LIKE 'ä€😀abc{}%' AND z > {z}", "ä€😀abc".chars().take(c.below(7)).collect::<String>()),
        12 => format!("x = {x} OR y = {y}"),
        13 => format!("NOT (x < {x} OR y > {y})"),
        14 => format!("x * 2 + 1 BETWEEN {low} AND {high} AND color <> 'red'"),
        15 => format!("json('$.x') BETWEEN {low} AND {high} AND y < {y}"),
        16 => format!("urgent AND x / 10 = {}", x / 10),
        17 => format!("z IS NULL AND x < {x}"),
        18 => format!("(x < {x} AND (y < {y} OR color = '{color}') OR z = {z}) AND (x > 5 OR urgent)"),
        _ => format!("JMSPriority = {} AND x BETWEEN {low} AND {high}", 1 + c.below(10)),
    }
}

fn given(c: &mut Choices<'_>) -> Given {
    match c.below(16) {
        0..4 => Given::Written(c.one_of(&NUMBERS[..16]).to_owned()),
        4..7 => Given::Written(c.one_of(&NUMBERS).to_owned()),
        7..11 => Given::Written(text(c)),
        11 => Given::Written(c.one_of(&WRITTEN).to_owned()),
        12 => match c.one_of(&NUMBERS).parse::<i64>() {
            Ok(value) => Given::Integer(value),
            Err(_) => Given::Integer(5),
        },
        13 => Given::Double(c.one_of(&NUMBERS).parse().expect("a number")),
        14 => Given::Text(if c.flag() { text(c) } else { c.one_of(&NUMBERS).to_owned() }),
        _ => match c.below(5) {
            0 => Given::Null,
            1 => Given::Other,
            2 => Given::Double(if c.flag() { f64::INFINITY } else { f64::NEG_INFINITY }),
            _ => Given::Boolean(c.flag()),
        },
    }
}

fn json_text(c: &mut Choices<'_>) -> String {
    let text = text(c);
    if c.rarely(4) {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        return format!("\"{escaped}\"");
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn json(c: &mut Choices<'_>, depth: usize) -> String {
    match c.below(if depth == 0 { 8 } else { 12 }) {
        0..3 => c.one_of(&NUMBERS).to_owned(),
        3..5 => json_text(c),
        5 => c.one_of(&["true", "false"]).to_owned(),
        6 => "null".to_owned(),
        7 => c.one_of(&["1", "5", "10", "\"red\"", "{}", "[]"]).to_owned(),
        8 => array(c, depth),
        _ => object(c, depth),
    }
}

fn array(c: &mut Choices<'_>, depth: usize) -> String {
    let elements: Vec<_> = (0..c.below(4)).map(|_| json(c, depth - 1)).collect();
    format!("[{}]", elements.join(","))
}

/// Members come again now and then.
fn object(c: &mut Choices<'_>, depth: usize) -> String {
    let members: Vec<_> = (0..c.below(7))
        .map(|_| {
            let name = c.one_of(&["a", "b", "list", "o", "", "a \\\"bé", "lat", "lon", "\\u0061", "x"]);
            let value = match name {
                "list" => array(c, depth),
                "o" | "" if depth > 1 => object(c, depth - 1),
                _ => json(c, depth - 1),
            };
            format!("\"{name}\" : {value}")
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Mostly JSON.
pub fn payload(c: &mut Choices<'_>) -> Vec<u8> {
    match c.below(24) {
        0..18 => object(c, 3).into_bytes(),
        18 => json(c, 2).into_bytes(),
        19 => Vec::new(),
        20 => {
            let deep = c.one_of(&[1, 127, 128, 600]);
            format!("{{\"a\":5,\"o\":{}{}}}", "[".repeat(deep), "]".repeat(deep)).into_bytes()
        }
        21 => {
            let odd = c.one_of(&[
                "1e400",
                "-1e400",
                "-0",
                "-0.0",
                "\"\\ud800\"",
                "\"\\ud800\\u0041\"",
                "{\"\\ud800\":1}",
                "[[1,2],[3,[4,\"\\ud800\"]]]",
                "\"\\ud83d\\ude00\"",
                "01",
                "nul",
                "\"\u{1}\"",
                "1]",
                "-",
                "\"\\x\"",
            ]);
            let place = c.one_of(&["unused", "a", "b"]);
            format!("{{\"a\":5,\"{place}\":{odd},\"b\":\"red\"}}").into_bytes()
        }
        _ => {
            let mut bytes = object(c, 2).into_bytes();
            let place = c.below(bytes.len());
            match c.below(4) {
                0 => bytes.truncate(place),
                1 => bytes[place] = c.byte(),
                2 => bytes.insert(place, 0xff),
                _ => bytes.push(c.one_of(b" ,}\nx")),
            }
            bytes
        }
    }
}

/// Inside, outside and on the edge of fences, and of the earth.
fn coordinate(c: &mut Choices<'_>) -> Given {
    let text = c.one_of(&[
        "0",
        "1",
        "2.5",
        "3",
        "-7",
        "-5",
        "5.0000000000000009",
        "80",
        "90",
        "90.1",
        "-180",
        "180.5",
        "5",
        "x",
    ]);
    match text.parse() {
        Ok(double) if c.rarely(4) => Given::Double(double),
        _ => Given::Written(text.to_owned()),
    }
}

pub fn event(c: &mut Choices<'_>) -> Event {
    let mut event = Event::default();
    for _ in 0..c.below(8) {
        let name = if c.rarely(4) { c.one_of(&NAMES).0 } else { c.one_of(&NAMES[..4]).0 };
        event.attributes.push((name.to_owned(), given(c)));
    }
    if c.rarely(3) {
        for name in ["lat", "lon"] {
            if !c.rarely(8) {
                event.attributes.push((name.to_owned(), coordinate(c)));
            }
        }
    }
    if !c.rarely(4) {
        event.payload = payload(c);
    }
    if c.flag() {
        event.importance = Some(1 + c.below(10) as u8);
        event.accepted_ms = Some(c.one_of(&[0, 5, 1_767_225_600_000]));
        event.message_id = Some(text(c));
    }
    if c.flag() {
        event.content_type = Some(text(c));
        event.correlation = Some(if c.rarely(4) { vec![0xff, 0xfe] } else { text(c).into_bytes() });
    }
    event
}

/// An event that [`common_selector`] is about.
pub fn common_event(c: &mut Choices<'_>) -> Event {
    let mut event = Event::default();
    for name in ["x", "y", "z"] {
        if !c.rarely(8) {
            let number = c.below(1000);
            let given = match c.below(8) {
                0 => Given::Integer(number as i64),
                1 => Given::Double(number as f64 + 0.5),
                2 => Given::Written(format!("{number}.25")),
                3 if c.rarely(4) => Given::Written("red".to_owned()),
                _ => Given::Written(number.to_string()),
            };
            event.attributes.push((name.to_owned(), given));
        }
    }
    if c.flag() {
        let color = c.one_of(&["red", "blue", "green", "ä", "5", "black", "v7"]);
        event.attributes.push(("color".to_owned(), Given::Written(color.to_owned())));
    }
    if c.flag() {
        event.attributes.push(("line".to_owned(), Given::Written(LONG[1].chars().take(c.below(20)).collect())));
    }
    if c.flag() {
        event.attributes.push(("urgent".to_owned(), Given::Written(c.one_of(&["true", "false", "5"]).to_owned())));
    }
    if c.flag() {
        event.payload = format!("{{\"x\":{}}}", c.below(1000)).into_bytes();
    }
    event.importance = Some(1 + c.below(10) as u8);
    event
}
