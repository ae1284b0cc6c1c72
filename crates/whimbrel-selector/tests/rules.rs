//! The rules of the selector language: those of Jakarta Messaging 3.1, section 3.8.1, and our own,
//! each with examples.

use std::sync::Arc;

use whimbrel_selector::{Compiled, Datum, FencesBuilder, MatchIndex, Selector, Subject, TopicFilter, TopicName};

/// An event.
struct Event<'a> {
    attributes: &'a [(&'a str, &'a str)],
    payload: &'a str,
}

impl Subject for Event<'_> {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.attributes.iter().for_each(|(name, value)| visit(name, Datum::written(value)));
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }

    fn importance(&self) -> Option<u8> {
        Some(7)
    }

    fn accepted_ms(&self) -> Option<i64> {
        Some(1_700_000_000_000)
    }

    fn message_id(&self) -> Option<String> {
        Some("ID:1".to_owned())
    }

    fn correlation_id(&self) -> Option<&str> {
        Some("order 7")
    }

    fn content_type(&self) -> Option<&str> {
        Some("application/json")
    }
}

fn is_true(selector: &str, event: &Event<'_>) -> bool {
    let selector = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    let mut index = MatchIndex::new(1);
    index.insert(TopicFilter::new("#").expect("a filter"), Some(&selector), ());
    let mut found = false;
    index.for_each_match(TopicName::new("t").expect("a name"), event, |()| found = true);
    found
}

#[test]
fn a_blank_selector_is_true() {
    assert!(is_true(" \t\n", &Event { attributes: &[], payload: "" }));
}

/// What a selector is for an event; `None` is UNKNOWN, which is neither true nor, negated, true.
fn value(selector: &str, attributes: &[(&str, &str)], payload: &str) -> Option<bool> {
    let event = Event { attributes, payload };
    match (is_true(selector, &event), is_true(&format!("NOT ({selector})"), &event)) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
        (true, true) => panic!("{selector} is both true and false"),
    }
}

const T: Option<bool> = Some(true);
const F: Option<bool> = Some(false);
const U: Option<bool> = None;

/// Checks rows of (rule, selector, value) against one event.
fn check(attributes: &[(&str, &str)], payload: &str, rows: &[(&str, &str, Option<bool>)]) {
    for (rule, selector, expected) in rows {
        assert_eq!(value(selector, attributes, payload), *expected, "{rule}: {selector}");
    }
}

const CAR: &[(&str, &str)] = &[
    ("color", "red"),
    ("speed", "80"),
    ("ratio", "0.5"),
    ("urgent", "true"),
    ("idle", "false"),
    ("big", "9223372036854775807"),
];

#[test]
fn three_valued_logic() {
    let mut rows = Vec::new();
    let (t, f, u) = ("speed = 80", "speed = 81", "missing = 1");
    for (left, right, and, or) in [
        (t, t, T, T),
        (t, f, F, T),
        (t, u, U, T),
        (f, t, F, T),
        (f, f, F, F),
        (f, u, F, U),
        (u, t, U, T),
        (u, f, F, U),
        (u, u, U, U),
    ] {
        rows.push((format!("{left} AND {right}"), and));
        rows.push((format!("{left} OR {right}"), or));
        rows.push((format!("NOT (NOT ({left}) OR NOT ({right}))"), and));
        rows.push((format!("NOT (NOT ({left}) AND NOT ({right}))"), or));
        let equal = [left, right].iter().all(|side| *side != u).then_some(left == right);
        rows.push((format!("({left}) = ({right})"), equal));
        rows.push((format!("({left}) <> ({right})"), equal.map(|equal| !equal)));
    }
    for (operand, not) in [(t, F), (f, T), (u, U)] {
        rows.push((format!("NOT {operand}"), not));
        rows.push((format!("NOT NOT {operand}"), not.map(|not| !not)));
    }
    for (selector, expected) in rows {
        assert_eq!(value(&selector, CAR, ""), expected, "{selector}");
    }
    check(
        CAR,
        "",
        &[
            ("a contradiction may be unknown", "missing = 1 AND NOT missing = 1", U),
            ("an alternative may be unknown", "missing = 1 OR NOT missing = 1", U),
            ("nothing is equal to what is missing, not even itself", "missing = missing", U),
        ],
    );
}

#[test]
fn precedence_and_parentheses() {
    check(
        CAR,
        "",
        &[
            ("AND binds closer than OR", "TRUE OR TRUE AND FALSE", T),
            ("parentheses come first", "(TRUE OR TRUE) AND FALSE", F),
            ("NOT binds closer than AND", "NOT FALSE AND FALSE", F),
            ("comparison binds closer than NOT", "NOT speed = 81", T),
            ("* binds closer than +", "speed = 20 + 20 * 3", T),
            ("parentheses in arithmetic", "speed = (20 + 20) * 2", T),
            ("- goes from left to right", "speed = 100 - 10 - 10", T),
            ("/ goes from left to right", "speed = 320 / 2 / 2", T),
            ("/ and * bind alike", "speed = 40 / 4 * 8", T),
            ("a sign binds closest", "-speed + 1 = -79", T),
            ("a sign binds closer than *", "- 2 * speed = -160", T),
            ("BETWEEN takes sums", "speed BETWEEN 70 + 5 AND 80 - 0 AND TRUE", T),
            ("BETWEEN keeps its own AND", "speed BETWEEN 90 AND 100 OR TRUE", T),
        ],
    );
}

#[test]
fn case_and_white_space() {
    check(
        CAR,
        "",
        &[
            ("keywords in any case", "speed bEtWeEn 1 aNd 100 And nOt color is NOT null", F),
            ("identifiers have case", "Color = 'red'", U),
            ("text has case", "color = 'Red'", F),
            ("literals TRUE and FALSE in any case", "tRuE AND NOT fAlSe", T),
            ("white space is blank, tab, form feed and line ends", "speed\t=\n80\r\nAND\u{c}color = 'red'", T),
            ("white space may be left out", "(speed=80)AND(color='red')OR\"x\"<>1", T),
            ("white space in text counts", "color = ' red'", F),
        ]
        .map(|(rule, selector, expected)| {
            (rule, if rule.contains("left out") { "speed=80 AND(color='red')OR\"x\"<>1" } else { selector }, expected)
        }),
    );
}

#[test]
fn text_comparison() {
    check(
        CAR,
        "",
        &[
            ("equal", "color = 'red'", T),
            ("unequal", "color <> 'blue'", T),
            ("a literal may stand first", "'red' = color", T),
            ("two fields", "color = speed", F),
            ("what reads as a number is also text", "speed = '80'", T),
            ("as text 80 is not 80.0", "speed = '80.0'", F),
            ("what reads as a boolean is also text", "urgent = 'true'", T),
            ("null is unknown", "missing <> 'x'", U),
        ],
    );
    check(
        &[("a", "it's"), ("b", "")],
        "",
        &[
            ("a quote is doubled", "a = 'it''s'", T),
            ("text may be empty", "b = ''", T),
            ("an empty text is not missing", "b IS NULL", F),
        ],
    );
}

#[test]
fn number_comparison() {
    check(
        CAR,
        "",
        &[
            ("equal", "speed = 80", T),
            ("integer and double", "speed = 80.0", T),
            ("as numbers 80 is 8e1", "speed = 8e1", T),
            ("less", "speed < 80.5", T),
            ("at most", "speed <= 79", F),
            ("greater", "ratio > 0.25", T),
            ("at least", "ratio >= 0.5", T),
            ("unequal", "speed <> 81", T),
            ("mirrored", "79 < speed", T),
            ("exact beyond 2^53", "big = 9223372036854775806", F),
            ("exact against doubles", "big < 9223372036854775808", T),
            ("values of different types are not equal", "color = 5", F),
            ("values of different types are not unequal", "color <> 5", F),
            ("values of different types are not ordered", "color < 5", F),
            ("so the negation is true", "NOT (color < 5)", T),
            ("text of fields is not ordered", "color < color", F),
            ("null is unknown", "missing < 5", U),
            ("null is unknown on either side", "speed > missing", U),
        ],
    );
    check(
        &[("x", "1e400"), ("y", "-1e400")],
        "",
        &[
            ("what is too large for a double is infinite", "x > 1.7976931348623157e308", T),
            ("infinity equals itself", "x = x", T),
            ("infinity has a sign", "y < x", T),
            ("infinity less infinity is null", "x - x = 0", U),
        ],
    );
}

#[test]
fn boolean_comparison() {
    check(
        CAR,
        "",
        &[
            ("a field as a condition", "urgent", T),
            ("a false field", "idle", F),
            ("a field that is no boolean is not true", "color", F),
            ("a missing field is unknown", "missing", U),
            ("equal to TRUE", "urgent = TRUE", T),
            ("equal to FALSE", "idle = FALSE", T),
            ("unequal", "urgent <> FALSE", T),
            ("no boolean equals TRUE", "color = TRUE", F),
            ("no boolean equals FALSE", "color = FALSE", F),
            ("no boolean is unequal to TRUE", "color <> TRUE", F),
            ("no boolean is unequal to FALSE", "color <> FALSE", F),
            ("numbers are no booleans", "speed = TRUE", F),
            ("null is unknown", "missing = FALSE", U),
            ("two boolean fields", "urgent <> idle", T),
            ("booleans are not ordered", "urgent > idle", F),
            ("a condition and a literal", "(speed > 70) = TRUE", T),
            ("a condition and a field", "(speed > 70) = urgent", T),
            ("a condition and a field that is no boolean", "(speed > 70) <> color", T),
            ("a condition and null", "(speed > 70) = missing", U),
            ("conditions compared", "(speed > 70) <> (speed > 90)", T),
        ],
    );
}

#[test]
fn arithmetic() {
    check(
        CAR,
        "",
        &[
            ("addition", "speed + 1 = 81", T),
            ("subtraction", "100 - speed = 20", T),
            ("multiplication", "speed * 2 = 160", T),
            ("integers that divide evenly give an integer", "speed / 5 = 16", T),
            ("an exact one, where doubles are not", "big / 1 = 9223372036854775807", T),
            ("others give a double", "speed / 3 > 26.6 AND speed / 3 < 26.7", T),
            ("which is no integer", "speed / 3 = 26", F),
            ("nor truncated", "-speed / 3 < -26.6", T),
            ("as literals do", "7 / 2 = 3.5 AND 123 / 2 = 61.5 AND 6 / 3 = 2", T),
            ("÷ is the same", "speed ÷ 32 = 2.5", T),
            ("doubles divide to doubles", "speed / 3.2 = 25", T),
            ("mixed is double", "speed + ratio = 80.5", T),
            ("signs", "-speed < -79 AND +speed > 79", T),
            ("double sign", "- -speed = 80", T),
            ("overflow goes on as double", "big + 1 = 9223372036854775808", T),
            ("of a product, too", "big * 2 > 18e18", T),
            ("the least integer negated is a double", "-(-big - 1) = 9223372036854775808", T),
            ("division by zero is null", "speed / 0 = 0", U),
            ("division by zero is null for doubles", "speed / (ratio - 0.5) > 0", U),
            ("null makes null", "missing + 1 = 1", U),
            ("text makes null", "color + 1 = 1", U),
            ("text makes null with a sign, too", "-color < 1", U),
            ("even with a plus", "+color < 1", U),
            ("which is no value to compare with text", "+color = 1 OR TRUE", T),
        ],
    );
}

#[test]
fn between() {
    check(
        CAR,
        "",
        &[
            ("the ends belong to it", "speed BETWEEN 80 AND 80", T),
            ("above", "speed BETWEEN 1 AND 79", F),
            ("nothing is between ends in the wrong order", "speed BETWEEN 90 AND 70", F),
            ("not", "speed NOT BETWEEN 1 AND 79", T),
            ("not, the ends", "speed NOT BETWEEN 80 AND 90", F),
            ("null", "missing BETWEEN 1 AND 2", U),
            ("a null bound", "speed BETWEEN missing AND 100", U),
            ("a null bound does not save it", "speed BETWEEN missing AND 1", F),
            ("not, null", "missing NOT BETWEEN 1 AND 2", U),
            ("no number is between", "color BETWEEN 1 AND 2", F),
            ("nor outside", "color NOT BETWEEN 1 AND 2", F),
            ("but the negation is true", "NOT color BETWEEN 1 AND 2", T),
            ("between fields", "70 BETWEEN ratio AND speed", T),
            ("of arithmetic", "speed * 2 BETWEEN 100 + 60 AND 1e3", T),
        ],
    );
}

#[test]
fn one_of_several_texts() {
    check(
        CAR,
        "",
        &[
            ("in", "color IN ('green', 'red')", T),
            ("not in", "color NOT IN ('green', 'blue')", T),
            ("one", "color IN ('red')", T),
            ("numbers are also text", "speed IN ('80', '81')", T),
            ("null", "missing IN ('a', 'b')", U),
            ("not, null", "missing NOT IN ('a', 'b')", U),
        ],
    );
    check(
        &[],
        "{\"n\": 5, \"o\": {}, \"z\": null}",
        &[
            ("a JSON number is no text", "json('$.n') IN ('5', '6')", F),
            ("so it is not in", "json('$.n') NOT IN ('5', '6')", T),
            ("nor is an object", "json('$.o') IN ('5', '6')", F),
            ("JSON null is null", "json('$.z') IN ('5', '6')", U),
        ],
    );
}

#[test]
fn patterns() {
    for (pattern, texts, others) in [
        ("'12%3'", &["123", "12993"][..], &["1234", "23"][..]),
        ("'l_se'", &["lose", "löse"], &["loose", "lse"]),
        ("'\\_%' ESCAPE '\\'", &["_foo", "_"], &["bar"]),
        ("'%'", &["", "a", "grün"], &[]),
        ("'_'", &["a", "ü", "€", "😀"], &["", "ab"]),
        ("'%a%b%'", &["ab", "xaxbx"], &["ba"]),
        ("'a%a'", &["aa", "aba"], &["a"]),
        ("'_%_'", &["ab", "abc"], &["a"]),
        ("'a!%!_!!' ESCAPE '!'", &["a%_!"], &["abc!", "a%_"]),
        ("'it''s%'", &["it's", "it's so"], &["its"]),
        ("''", &[""], &["a"]),
        ("'5%'", &["5", "5.5"], &["4"]),
        ("'a.c'", &["a.c"], &["abc"]),
        ("'A%'", &["Abc"], &["abc"]),
    ] {
        for (text, expected) in texts.iter().map(|text| (text, T)).chain(others.iter().map(|text| (text, F))) {
            assert_eq!(value(&format!("x LIKE {pattern}"), &[("x", text)], ""), expected, "{text:?} LIKE {pattern}");
            let opposite = expected.map(|value| !value);
            assert_eq!(
                value(&format!("x NOT LIKE {pattern}"), &[("x", text)], ""),
                opposite,
                "{text:?} NOT LIKE {pattern}"
            );
        }
    }
    check(
        &[],
        "{\"n\": 5}",
        &[
            ("null", "x LIKE 'a%'", U),
            ("not, null", "x NOT LIKE 'a%'", U),
            ("without wildcard, null", "x LIKE 'a'", U),
            ("a JSON number is no text", "json('$.n') LIKE '%'", F),
            ("not even without wildcard", "json('$.n') LIKE '5'", F),
            ("so it is not like it", "json('$.n') NOT LIKE '5'", T),
        ],
    );
}

#[test]
fn missing_values() {
    check(
        CAR,
        "{\"a\": null}",
        &[
            ("missing", "missing IS NULL", T),
            ("there", "color IS NULL", F),
            ("not missing", "color IS NOT NULL", T),
            ("not there", "missing IS NOT NULL", F),
            ("JSON null", "json('$.a') IS NULL", T),
            ("nothing there", "json('$.b') IS NULL", T),
            ("is never unknown", "(missing IS NULL) = TRUE", T),
        ],
    );
}

#[test]
fn headers() {
    check(
        &[("JMSPriority", "1"), ("JMSType", "x"), ("JMSXGroupID", "g"), ("JMS_Vendor", "v")],
        "",
        &[
            ("the priority is the importance", "JMSPriority = 7", T),
            ("a number and no text", "JMSPriority = '7'", F),
            ("the time stamp is a number", "JMSTimestamp > 1600000000000", T),
            ("the id is text", "JMSMessageID LIKE 'ID:%'", T),
            ("the correlation id is the correlation data", "JMSCorrelationID = 'order 7'", T),
            ("which are text", "JMSCorrelationID LIKE 'order _' AND JMSCorrelationID IN ('order 7', 'x')", T),
            ("the type is the content type", "JMSType = 'application/json' AND JMSType IS NOT NULL", T),
            ("as brokers write it", "header('JMSType') <> 'text/plain'", T),
            ("text is no condition", "JMSType", F),
            ("other headers are null", "JMSReplyTo IS NULL AND JMSExpiration IS NULL AND JMSDeliveryMode IS NULL", T),
            ("and unknown in comparisons", "JMSReplyTo = 'x'", U),
            ("as a condition, too", "JMSRedelivered", U),
            ("and in arithmetic", "JMSExpiration + 1 > 0", U),
            ("and in LIKE", "JMSReplyTo LIKE '%'", U),
            ("and in IN", "JMSDestination IN ('a')", U),
            ("and in BETWEEN", "JMSDeliveryTime BETWEEN 1 AND 2", U),
            ("JMSX properties are attributes", "JMSXGroupID = 'g'", T),
            ("JMS_ properties are attributes", "JMS_Vendor = 'v'", T),
            ("names in quotes are attributes", "\"JMSType\" = 'x' AND \"JMSPriority\" = 1", T),
            ("headers have case", "jmspriority = 7", U),
        ],
    );
}

#[test]
fn identifiers() {
    check(
        &[
            ("$a_1", "1"),
            ("größe", "2"),
            ("_", "3"),
            ("fuel.level", "4"),
            ("and", "5"),
            ("a\"b", "6"),
            ("", "7"),
            ("json", "8"),
            ("€", "9"),
        ],
        "",
        &[
            ("letters, digits, $ and _", "$a_1 = 1", T),
            ("letters of any language", "größe = 2", T),
            ("a sole _", "_ = 3", T),
            ("dots in quotes", "\"fuel.level\" = 4", T),
            ("keywords in quotes", "\"and\" = 5", T),
            ("quotes in quotes are doubled", "\"a\"\"b\" = 6", T),
            ("names may be empty", "\"\" = 7", T),
            ("functions are names without parentheses", "json = 8", T),
            ("currency signs", "€ = 9", T),
            ("quotes are not part of a name", "\"_\" = 3", T),
        ],
    );
}

#[test]
fn json() {
    let payload = r#"{"a": {"b": [1, 2.5, "x", true, null, {}]}, "it's": 1, "d": 1, "d": 2, "big": 99999999999999999999, "s": "5", "t": "true"}"#;
    check(
        &[],
        payload,
        &[
            ("members and elements", "json('$.a.b[0]') = 1", T),
            ("in brackets", "json('$[''a''][\"b\"][1]') = 2.5", T),
            ("from the end", "json('$.a.b[-4]') = 'x'", T),
            ("booleans", "json('$.a.b[3]')", T),
            ("objects equal nothing", "json('$.a') = 'x'", F),
            ("objects are not unequal either", "json('$.a') <> 'x'", F),
            ("objects are not null", "json('$.a') IS NULL", F),
            ("the payload itself", "json('$') IS NOT NULL", T),
            ("quotes twice over", "json('$[\"it''s\"]') = 1", T),
            ("escapes", "json('$[\"\\u0061\"].b[0]') = 1", T),
            ("of duplicates the last", "json('$.d') = 2", T),
            ("large integers are doubles", "json('$.big') = 1e20", T),
            ("JSON text is no number", "json('$.s') = 5", F),
            ("and no boolean", "json('$.t')", F),
            ("too far", "json('$.a.b[6]') IS NULL", T),
            ("a member of an array", "json('$.a.b.x') IS NULL", T),
            ("the function in any case", "JSON('$.d') = 2 AND Json ( '$.d' ) = 2", T),
        ],
    );
    check(
        &[],
        "no JSON",
        &[("what is no JSON is null", "json('$') IS NULL", T), ("and unknown", "json('$.a') = 1", U)],
    );
    check(&[], "5", &[("a payload may be a number", "json('$') = 5", T)]);
}

/// What a selector is for a payload of any bytes.
fn payload_value(selector: &str, payload: &[u8]) -> Option<bool> {
    struct Payload<'a>(&'a [u8]);
    impl Subject for Payload<'_> {
        fn attributes<'s>(&'s self, _: &mut dyn FnMut(&'s str, Datum<'s>)) {}

        fn payload(&self) -> &[u8] {
            self.0
        }
    }
    let everywhere = r#"{"type":"Polygon","coordinates":[[[-180,-90],[180,-90],[180,90],[-180,90],[-180,-90]]]}"#;
    let mut fences = FencesBuilder::new();
    fences.insert_geojson("earth", everywhere).expect("a fence");
    let selector = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    Compiled::new(&selector).with_fences(Arc::new(fences.build())).value(Payload(payload))
}

#[test]
fn a_value_that_cannot_be_represented_costs_no_other() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let digits = "7".repeat(400);
    let (mut latin, mut cut) = (b"\"Stra".to_vec(), b"\"".to_vec());
    latin.extend(b"\xdfe\"");
    cut.extend("🚌".as_bytes()[..2].iter().chain(b"\""));
    let odd: Vec<&[u8]> = vec![
        b"1e400",
        b"-1E+999",
        b"1e-400",
        digits.as_bytes(),
        deep.as_bytes(),
        b"\"\\ud83d\"",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"a\tb\"",
        &latin,
        &cut,
        b"{\"\\ud83d\":1}",
        b"{\"\xff\":{\"lat\":5}}",
    ];
    for odd in &odd {
        for (before, behind) in [
            ("{\"speed\":60,\"lat\":52,\"lon\":21,\"odd\":", "}"),
            ("{\"odd\":", ",\"speed\":60,\"lat\":52,\"lon\":21}"),
            ("{\"list\":[7,8],\"odd\":[{\"x\":", "}],\"speed\":60,\"lat\":52,\"lon\":21}"),
            ("{\"speed\":", ",\"speed\":60,\"lat\":52,\"lon\":21}"),
        ] {
            let payload = [before.as_bytes(), odd, behind.as_bytes()].concat();
            let shown = String::from_utf8_lossy(&payload[..payload.len().min(80)]).into_owned();
            assert_eq!(payload_value("json('$.speed') > 50", &payload), T, "{shown}");
            assert_eq!(payload_value("within('earth')", &payload), T, "{shown}");
        }
        // In an array of which elements are asked for, and before the last one.
        let payload = [b"[1,".as_slice(), odd, b",3]"].concat();
        assert_eq!(payload_value("json('$[0]') = 1 AND json('$[2]') = 3 AND json('$[-1]') = 3", &payload), T);
        assert_eq!(payload_value("json('$[-3]') = 1 AND json('$[-4]') IS NULL", &payload), T);
    }
}

#[test]
fn what_is_asked_for_is_judged_alone() {
    for (rule, payload, selector, expected) in [
        ("a number beyond a double is there", r#"{"a":1e400}"#, "json('$.a') IS NOT NULL", T),
        ("and greater than any other", r#"{"a":1e400}"#, "json('$.a') > 1e308", T),
        ("or smaller", r#"{"a":-1e400}"#, "json('$.a') < -9223372036854775808", T),
        ("it is nowhere on earth", r#"{"lat":1e400,"lon":21}"#, "within('earth')", U),
        ("half a surrogate pair is no text", r#"{"a":"\ud83d"}"#, "json('$.a') IS NULL", T),
        ("a raw tab in a text makes it none", "{\"a\":\"x\ty\"}", "json('$.a') IS NULL", T),
        ("a name that is no text names nothing", r#"{"\ud83d":1}"#, "json('$') IS NOT NULL", T),
        ("the last counts", r#"{"a":1,"a":2}"#, "json('$.a') = 2", T),
        ("also when it is no text", r#"{"a":"x","a":"\ud83d"}"#, "json('$.a') IS NULL", T),
        ("also when it is null", r#"{"a":1,"a":null}"#, "json('$.a') IS NULL", T),
        ("also when written with an escape", r#"{"a":1,"\u0061":3}"#, "json('$.a') = 3", T),
        ("it hides the members of the one before", r#"{"a":{"b":1},"a":{"c":2}}"#, "json('$.a.b') IS NULL", T),
        ("and its elements", r#"{"a":[1,{"b":2}],"a":[3]}"#, "json('$.a[1].b') IS NULL AND json('$.a[-1]') = 3", T),
        ("and those further in", r#"{"a":{"b":{"c":1}},"a":{"b":5}}"#, "json('$.a.b.c') IS NULL", T),
        ("arrays in arrays, from the end", "[[1,2],[3,[4]]]", "json('$[-1][-1][-1]') = 4", T),
        ("from both ends at once", "[[1,2],[3,4]]", "json('$[-2][1]') = 2 AND json('$[0][-2]') = 1", T),
        ("a byte order mark is skipped", "\u{feff}{\"a\":1}", "json('$.a') = 1", T),
    ] {
        assert_eq!(payload_value(selector, payload.as_bytes()), expected, "{rule}: {selector}");
    }
}

#[test]
fn what_is_no_json_has_no_values() {
    for payload in [
        r#"{"a":1,"b":NaN}"#,
        r#"{"a":1,"b":01}"#,
        r#"{"a":1,"b":+1}"#,
        r#"{"a":1,"b":.5}"#,
        r#"{"a":1,"b":tru}"#,
        r#"{"a":1,}"#,
        r#"{"a":1} x"#,
        r#"{"a":1}{"a":1}"#,
        r#"{"a":1"#,
        r#"{"a":1,"b""#,
        r#"{"a":1,"b":["#,
        r#"{"a":1,"b":"x"#,
        r#"{"a":1,"b":[}}"#,
        r#"{"a":1,'b':2}"#,
        r#"{"a":1,b:2}"#,
        r#"{"a":1/**/}"#,
        "{\"a\":1}\0",
    ] {
        assert_eq!(payload_value("json('$.a') IS NULL AND json('$') IS NULL", payload.as_bytes()), T, "{payload}");
    }
}

#[test]
fn the_deepest_payload_needs_no_stack() {
    let work = || {
        let deep = [b"[".repeat(500_000), b"]".repeat(500_000)].concat();
        let path = |step: &str| format!("json('${}') IS NOT NULL", step.repeat(1_500));
        assert_eq!(payload_value(&path("[-1]"), &deep), T);
        assert_eq!(payload_value(&path("[0]"), &deep), T);
        let objects = [b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
        assert_eq!(payload_value(&path(".a"), &objects), T);
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(work).expect("a thread");
    thread.join().expect("the stack suffices");
}

#[test]
fn fences_that_do_not_exist_are_unknown() {
    check(
        &[("lat", "50"), ("lon", "7")],
        "",
        &[("no such fence", "within('nowhere')", U), ("not even outside", "NOT within('nowhere')", U)],
    );
}

#[test]
fn of_repeated_attributes_the_first_counts() {
    check(&[("a", "1"), ("a", "2")], "", &[("the first", "a = 1", T), ("not the second", "a = 2", F)]);
}

#[test]
fn what_is_refused_and_where() {
    for (text, position, length, cause) in [
        // Grammar.
        ("a =", 4, 0, "a name, a value or a condition is expected here, not the end"),
        ("a = 1 b", 7, 1, "expected here, not `b`"),
        ("a AND", 6, 0, "not the end"),
        ("AND a", 1, 3, "AND is a keyword"),
        ("and = 1", 1, 3, "\"and\""),
        ("(a = 1", 1, 1, "not closed"),
        ("((a) AND b", 1, 1, "not closed"),
        ("a = 1)", 6, 1, "has no ("),
        ("()", 2, 1, "expected here"),
        ("a NOT = 1", 7, 1, "BETWEEN, IN or LIKE"),
        ("a NOT b", 7, 1, "BETWEEN, IN or LIKE"),
        ("a = NOT b", 5, 3, "parentheses"),
        ("a < b < c", 7, 1, "a < b AND b < c"),
        ("a = b IS NULL", 7, 2, "parentheses"),
        ("a BETWEEN 1", 12, 0, "AND and the upper bound"),
        ("a BETWEEN 1 OR 2", 13, 2, "AND and the upper bound"),
        ("a IS 5", 6, 1, "NULL or NOT NULL"),
        ("a IS NOT 5", 10, 1, "NULL is expected"),
        ("a IN 'x'", 6, 3, "( and a list"),
        ("a IN ()", 7, 1, "at least one"),
        ("a IN ('x',)", 11, 1, "a text in single quotes"),
        ("a IN ('x' 'y')", 11, 3, ", or )"),
        ("a IN ('x'", 6, 1, "not closed"),
        ("a IN (5)", 7, 1, "texts only"),
        ("a IN (-5)", 7, 1, "texts only"),
        ("a IN (\"x\")", 7, 3, "a text in single quotes"),
        ("a LIKE b", 8, 1, "a pattern in single quotes"),
        ("a LIKE 'b' ESCAPE '!!'", 19, 4, "exactly one"),
        ("a LIKE 'b' ESCAPE ''", 19, 2, "exactly one"),
        ("a LIKE 'b' ESCAPE 5", 19, 1, "the escape character"),
        ("a LIKE 'it''s!x' ESCAPE '!'", 14, 2, "behind the escape"),
        ("a LIKE 'x!' ESCAPE '!'", 10, 1, "behind the escape"),
        // Tokens.
        ("a = 'x", 5, 2, "no closing '"),
        ("a = 'x''", 5, 4, "no closing '"),
        ("\"a = 1", 1, 6, "no closing \""),
        ("a == 1", 3, 2, "written ="),
        ("a != 1", 3, 2, "<>"),
        ("!a", 1, 1, "NOT"),
        ("a && b", 3, 2, "AND"),
        ("a || b", 3, 2, "OR"),
        ("a => 1", 3, 2, ">="),
        ("a =< 1", 3, 2, "<="),
        ("a % 2 = 0", 3, 1, "remainder"),
        ("a = ‘x’", 5, 3, "straight quotes"),
        ("größe = 1 ; b", 11, 1, "no meaning"),
        ("a = 08", 5, 2, "octal"),
        ("a = 5x", 5, 2, "5x is no number"),
        ("a = 1e999", 5, 5, "too large"),
        ("fleet.speed > 1", 1, 11, "\"fleet.speed\""),
        ("\"fleet\".speed > 1", 1, 13, "\"fleet.speed\""),
        // Types.
        ("a < 'x'", 5, 3, "< compares numbers, this is text"),
        ("TRUE > a", 1, 4, "> compares numbers, this is a boolean"),
        ("(a > 1) > 2", 1, 7, "> compares numbers, this is a condition"),
        ("a BETWEEN 'a' AND 'b'", 11, 3, "compares numbers"),
        ("a + 'x' = 1", 5, 3, "+ needs numbers, this is text"),
        ("-TRUE = 1", 2, 4, "- needs numbers"),
        ("(a = 1) + 1 = 2", 1, 7, "this is a condition"),
        ("1 = 'x'", 1, 7, "a number never compares with text"),
        ("TRUE = 1", 1, 8, "a boolean never compares with a number"),
        ("a + 1 = 'x'", 1, 11, "a number never compares with text"),
        ("(a = 1) = 5", 11, 1, "conditions and booleans"),
        ("'x'", 1, 3, "text is no condition"),
        ("a = 1 AND 'x'", 11, 3, "text is no condition"),
        ("5 OR a", 1, 1, "a number is no condition"),
        ("NOT a + 1", 5, 5, "a number is no condition"),
        ("a = NULL", 5, 4, "IS NULL"),
        ("a <> null", 6, 4, "IS NOT NULL"),
        ("NULL = a", 1, 4, "IS NULL"),
        ("5 IS NULL", 1, 1, "before IS NULL"),
        ("a + 1 IS NULL", 1, 5, "before IS NULL"),
        ("'a' LIKE 'a'", 1, 3, "before LIKE"),
        ("TRUE IN ('a')", 1, 4, "before IN"),
        ("within('f') IS NULL", 1, 11, "before IS NULL"),
        // Functions.
        ("upper(a) = 'X'", 1, 5, "no function upper"),
        ("json(a) = 1", 6, 1, "a JSON path in single quotes"),
        ("json() = 1", 6, 1, "a JSON path in single quotes"),
        ("json('$.a' = 1", 12, 1, ") is expected"),
        ("json('$.a'", 5, 1, "not closed"),
        ("json('a') = 1", 7, 1, "begins with $"),
        ("json('') = 1", 7, 0, "begins with $"),
        ("json('$[\"it''s\"].*') = 1", 17, 2, "may name many"),
        ("within(f)", 8, 1, "the name of a fence"),
        ("within('f') + 1 = 2", 1, 11, "this is a condition"),
    ] {
        let error = Selector::parse(text).expect_err(text);
        assert!(error.cause.contains(cause), "{text}: {error}");
        assert_eq!((error.position, error.length), (position, length), "{text}: {error}");
    }
}

#[test]
fn fences_that_do_not_exist_are_refused_where_they_are_known() {
    let mut fences = FencesBuilder::new();
    let circle =
        r#"{"type": "Feature", "properties": {"radius": 100}, "geometry": {"type": "Point", "coordinates": [7, 50]}}"#;
    for name in ["depot", "harbour", "it's"] {
        fences.insert_geojson(name, circle).expect("a circle");
    }
    let fences = fences.build();
    for good in ["within('depot')", "within('it''s') OR within('harbour')", "a = 'harbor'"] {
        assert!(Selector::parse_with(good, &fences).is_ok(), "{good}");
    }
    for (text, position, length, hint) in [
        ("within('harbor')", 8, 8, Some("'harbour'")),
        ("a OR within ( 'Depot' )", 15, 7, Some("'depot'")),
        ("NOT within('elsewhere')", 12, 11, None),
        ("within('')", 8, 2, None),
    ] {
        let error = Selector::parse_with(text, &fences).expect_err(text);
        assert_eq!((error.position, error.length), (position, length), "{error}");
        assert!(error.cause.starts_with("there is no fence of this name"), "{error}");
        assert_eq!(error.cause.contains("there is one named"), hint.is_some(), "{error}");
        assert!(error.cause.ends_with(hint.unwrap_or("name")), "{error}");
        assert!(Selector::parse(text).is_ok());
    }
    let error = Selector::parse_with(&format!("within('{}')", "x".repeat(8000)), &fences).expect_err("no such fence");
    assert_eq!(error.length, 8002);
}
