//! Payloads read by `json()` against `serde_json`.

use proptest::prelude::*;
use serde_json::{Map, Value};
use whimbrel_selector::{Compiled, Datum, Selector, Subject};

struct Payload<'a>(&'a [u8]);

impl Subject for Payload<'_> {
    fn attributes<'s>(&'s self, _: &mut dyn FnMut(&'s str, Datum<'s>)) {}

    fn payload(&self) -> &[u8] {
        self.0
    }
}

fn value(selector: &str, payload: &[u8]) -> Option<bool> {
    let parsed = Selector::parse(selector).unwrap_or_else(|error| panic!("{selector}: {error}"));
    Compiled::new(&parsed).value(Payload(payload))
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-c]{0,2}", 1 => any::<String>(), 1 => "[\"\\\\/\u{0}-\u{1f}é🚌]{0,6}"]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        any::<f64>().prop_map(|number| serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A path to some value in `root`, and that value: at each step `turns` says where to go, and from
/// which end.
fn descend<'v>(root: &'v Value, turns: &[(usize, bool)]) -> (String, &'v Value) {
    let (mut path, mut at) = ("$".to_owned(), root);
    for (turn, from_end) in turns {
        match at {
            Value::Array(elements) if !elements.is_empty() => {
                let index = turn % elements.len();
                let shown = if *from_end { index as i64 - elements.len() as i64 } else { index as i64 };
                path += &format!("[{shown}]");
                at = &elements[index];
            }
            Value::Object(members) if !members.is_empty() => {
                let (name, value) = members.iter().nth(turn % members.len()).expect("there are more");
                path += &format!("[{}]", serde_json::to_string(name).expect("a text"));
                at = value;
            }
            _ => break,
        }
    }
    (path.replace('\'', "''"), at)
}

/// What must hold of a path whose value is `expected`.
fn check(path: &str, expected: &Value, payload: &[u8]) {
    let is = |condition: String| value(&condition, payload);
    let field = format!("json('{path}')");
    assert_eq!(is(format!("{field} IS NULL")), Some(expected.is_null()), "{path}");
    match expected {
        Value::Null => {}
        Value::Bool(expected) => assert_eq!(is(field), Some(*expected), "{path}"),
        Value::String(expected) => {
            assert_eq!(is(format!("{field} = '{}'", expected.replace('\'', "''"))), Some(true), "{path}");
        }
        Value::Number(expected) => {
            let (sign, number) = match expected.to_string() {
                text if text.starts_with('-') => ("-", text[1..].to_owned()),
                text => ("", text),
            };
            assert_eq!(is(format!("{field} = {sign}{number}")), Some(true), "{path}");
        }
        Value::Array(_) | Value::Object(_) => assert_eq!(is(format!("{field} = 1")), Some(false), "{path}"),
    }
}

proptest! {
    #[test]
    fn well_formed_documents_have_the_same_values(
        document in any_value(),
        pretty: bool,
        turns in prop::collection::vec((0_usize..6, any::<bool>()), 0..6),
    ) {
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
        let text = text.expect("it is written");
        let (path, expected) = descend(&document, &turns);
        prop_assume!(path.len() < 2_000 && expected.as_str().is_none_or(|text| text.len() < 2_000));
        check(&path, expected, text.as_bytes());
    }

    /// Documents with a few bytes changed: what `serde_json` takes for JSON has the same values,
    /// and what cannot be JSON for another reason than what one value holds has none.
    #[test]
    fn damaged_documents_are_json_for_both_or_for_none(
        document in any_value(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"{}[]\",:\\ 0e-.\xff\tn".to_vec())), 1..4),
        turns in prop::collection::vec((0_usize..6, any::<bool>()), 0..4),
    ) {
        let mut bytes = serde_json::to_vec(&document).expect("it is written");
        for (place, byte) in &changes {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(read) => {
                let (path, expected) = descend(&read, &turns);
                prop_assume!(path.len() < 2_000 && expected.as_str().is_none_or(|text| text.len() < 2_000));
                check(&path, expected, &bytes);
            }
            Err(error) => {
                let concerns_one_value = ["control character", "invalid escape", "unicode code point", "surrogate",
                    "number out of range", "recursion limit", "hex escape"];
                let told = error.to_string();
                if !concerns_one_value.iter().any(|cause| told.contains(cause)) {
                    prop_assert_eq!(value("json('$') IS NULL", &bytes), Some(true) , "{}: {:?}", told, String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
