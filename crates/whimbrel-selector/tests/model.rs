//! Random selectors against a second evaluator, which follows the rules word by word and knows no
//! canonical form: neither the parser's rewriting nor the index may change what a selector means.

use std::cmp::Ordering;

use proptest::prelude::*;
use whimbrel_selector::{Datum, MatchIndex, Selector, Subject, TopicFilter, TopicName};

#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i64),
    Double(f64),
}

/// What a value can be taken for; nothing at all for objects and arrays.
#[derive(Clone, Debug, Default)]
struct Known {
    number: Option<Number>,
    boolean: Option<bool>,
    text: Option<String>,
}

/// `None` is NULL.
type Value = Option<Known>;

#[derive(Clone, Debug)]
enum Operand {
    Field(usize),
    Integer(i64),
    Double(f64),
    Text(String),
    Boolean(bool),
    Sign(char, Box<Operand>),
    Binary(char, Box<Operand>, Box<Operand>),
}

#[derive(Clone, Debug)]
enum Condition {
    Constant(bool),
    Bare(usize),
    Compare(&'static str, Operand, Operand),
    Between(bool, Operand, Operand, Operand),
    In(usize, bool, Vec<String>),
    Like(usize, bool, &'static str, &'static str),
    IsNull(usize, bool),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Same(bool, Box<Condition>, Box<Condition>),
}

const FIELDS: [&str; 6] = ["a", "b", "\"c\"", "json('$.x')", "json('$.y[0]')", "JMSReplyTo"];

fn write_operand(operand: &Operand) -> String {
    match operand {
        Operand::Field(field) => FIELDS[*field].to_owned(),
        Operand::Integer(value) => value.to_string(),
        Operand::Double(value) => format!("{value:?}"),
        Operand::Text(text) => format!("'{text}'"),
        Operand::Boolean(value) => value.to_string(),
        Operand::Sign(sign, inner) => format!("{sign}({})", write_operand(inner)),
        Operand::Binary(op, left, right) => format!("({} {op} {})", write_operand(left), write_operand(right)),
    }
}

fn write(condition: &Condition) -> String {
    let not = |not: bool| if not { " NOT" } else { "" };
    let all = |parts: &[Condition], op: &str| {
        parts.iter().map(|part| format!("({})", write(part))).collect::<Vec<_>>().join(op)
    };
    match condition {
        Condition::Constant(value) => value.to_string(),
        Condition::Bare(field) => FIELDS[*field].to_owned(),
        Condition::Compare(op, left, right) => format!("{} {op} {}", write_operand(left), write_operand(right)),
        Condition::Between(negated, x, low, high) => {
            let [x, low, high] = [x, low, high].map(write_operand);
            format!("{x}{} BETWEEN {low} AND {high}", not(*negated))
        }
        Condition::In(field, negated, list) => {
            format!("{}{} IN ('{}')", FIELDS[*field], not(*negated), list.join("', '"))
        }
        Condition::Like(field, negated, pattern, _) => format!("{}{} LIKE '{pattern}'", FIELDS[*field], not(*negated)),
        Condition::IsNull(field, negated) => format!("{} IS{} NULL", FIELDS[*field], not(*negated)),
        Condition::Not(inner) => format!("NOT ({})", write(inner)),
        Condition::And(parts) => all(parts, " AND "),
        Condition::Or(parts) => all(parts, " OR "),
        Condition::Same(unequal, left, right) => {
            // A second NOT makes a condition even of a bare field or a literal.
            let op = if *unequal { "<>" } else { "=" };
            format!("(NOT NOT ({})) {op} (NOT NOT ({}))", write(left), write(right))
        }
    }
}

fn double(number: Number) -> f64 {
    match number {
        Number::Integer(value) => value as f64,
        Number::Double(value) => value,
    }
}

fn order(left: Number, right: Number) -> Ordering {
    match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => left.cmp(&right),
        (Number::Integer(left), Number::Double(right)) => {
            if right.abs() > 1e30 {
                return if right > 0.0 { Ordering::Less } else { Ordering::Greater };
            }
            let floor = right.floor();
            i128::from(left).cmp(&(floor as i128)).then(if right > floor { Ordering::Less } else { Ordering::Equal })
        }
        (Number::Double(_), Number::Integer(_)) => order(right, left).reverse(),
        (Number::Double(left), Number::Double(right)) => left.partial_cmp(&right).expect("no NaN"),
    }
}

fn calculate(op: char, left: Number, right: Number) -> Option<Number> {
    if let (Number::Integer(left), Number::Integer(right)) = (left, right) {
        let (left, right) = (i128::from(left), i128::from(right));
        let exact = match op {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            _ if right == 0 => return None,
            _ => left / right,
        };
        let is_whole = op != '/' || exact * right == left;
        if let Some(exact) = i64::try_from(exact).ok().filter(|_| is_whole) {
            return Some(Number::Integer(exact));
        }
    }
    let (left, right) = (double(left), double(right));
    let value = match op {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        _ if right == 0.0 => return None,
        _ => left / right,
    };
    (!value.is_nan()).then_some(Number::Double(value))
}

fn number(number: Number) -> Value {
    Some(Known { number: Some(number), ..Known::default() })
}

fn operand(operand: &Operand, fields: &[Value]) -> Value {
    match operand {
        Operand::Field(field) => fields[*field].clone(),
        Operand::Integer(value) => number(Number::Integer(*value)),
        Operand::Double(value) => number(Number::Double(*value)),
        Operand::Text(text) => Some(Known { text: Some(text.clone()), ..Known::default() }),
        Operand::Boolean(value) => Some(Known { boolean: Some(*value), ..Known::default() }),
        Operand::Sign(sign, inner) => {
            let value = self::operand(inner, fields)?.number?;
            number(match (sign, value) {
                ('+', value) => value,
                (_, Number::Integer(value)) => {
                    value.checked_neg().map_or(Number::Double(-(value as f64)), Number::Integer)
                }
                (_, Number::Double(value)) => Number::Double(-value),
            })
        }
        Operand::Binary(op, left, right) => {
            let (left, right) = (self::operand(left, fields)?.number?, self::operand(right, fields)?.number?);
            calculate(*op, left, right).and_then(number)
        }
    }
}

fn compare(op: &str, left: Value, right: Value) -> Option<bool> {
    let (left, right) = (left?, right?);
    if let Some((left, right)) = left.number.zip(right.number) {
        let order = order(left, right);
        return Some(match op {
            "=" => order.is_eq(),
            "<>" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        });
    }
    let equal = match (left.boolean.zip(right.boolean), left.text.zip(right.text)) {
        (Some((left, right)), _) => left == right,
        (None, Some((left, right))) => left == right,
        (None, None) => return Some(false),
    };
    Some(match op {
        "=" => equal,
        "<>" => !equal,
        _ => false,
    })
}

fn not(value: Option<bool>) -> Option<bool> {
    value.map(|value| !value)
}

fn all(values: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let values: Vec<_> = values.into_iter().collect();
    if values.contains(&Some(false)) {
        return Some(false);
    }
    if values.contains(&None) { None } else { Some(true) }
}

fn evaluate(condition: &Condition, fields: &[Value]) -> Option<bool> {
    match condition {
        Condition::Constant(value) => Some(*value),
        Condition::Bare(field) => fields[*field].as_ref().map(|known| known.boolean == Some(true)),
        Condition::Compare(op, left, right) => compare(op, operand(left, fields), operand(right, fields)),
        Condition::Between(negated, x, low, high) => {
            let [x, low, high] = [x, low, high].map(|part| operand(part, fields));
            if *negated {
                not(all([not(compare("<", x.clone(), low)), not(compare(">", x, high))]))
            } else {
                all([compare(">=", x.clone(), low), compare("<=", x, high)])
            }
        }
        Condition::In(field, negated, list) => {
            let known = fields[*field].as_ref()?;
            Some(known.text.as_ref().is_some_and(|text| list.contains(text)) != *negated)
        }
        Condition::Like(field, negated, _, kind) => {
            let known = fields[*field].as_ref()?;
            let like = known.text.as_ref().is_some_and(|text| match *kind {
                "begins with r" => text.starts_with('r'),
                "any" => true,
                "one or more" => !text.is_empty(),
                "is red" => text == "red",
                _ => text.is_empty(),
            });
            Some(like != *negated)
        }
        Condition::IsNull(field, negated) => Some(fields[*field].is_none() != *negated),
        Condition::Not(inner) => not(evaluate(inner, fields)),
        Condition::And(parts) => all(parts.iter().map(|part| evaluate(part, fields))),
        Condition::Or(parts) => not(all(parts.iter().map(|part| not(evaluate(part, fields))))),
        Condition::Same(unequal, left, right) => {
            Some((evaluate(left, fields)? == evaluate(right, fields)?) != *unequal)
        }
    }
}

/// Values as attributes: the text, and what it reads as.
const WRITTEN: [(&str, Option<Number>, Option<bool>); 14] = [
    ("5", Some(Number::Integer(5)), None),
    ("-3", Some(Number::Integer(-3)), None),
    ("0", Some(Number::Integer(0)), None),
    ("5.0", Some(Number::Double(5.0)), None),
    ("2.5", Some(Number::Double(2.5)), None),
    ("-0.0", Some(Number::Double(-0.0)), None),
    ("1e400", Some(Number::Double(f64::INFINITY)), None),
    ("9223372036854775807", Some(Number::Integer(i64::MAX)), None),
    ("-9223372036854775808", Some(Number::Integer(i64::MIN)), None),
    ("red", None, None),
    ("", None, None),
    ("blue", None, None),
    ("true", None, Some(true)),
    ("false", None, Some(false)),
];

/// Values in JSON: their text in the payload, and what they are.
fn json_values() -> Vec<(&'static str, Value)> {
    let known = |number, boolean, text: Option<&str>| Some(Known { number, boolean, text: text.map(str::to_owned) });
    vec![
        ("null", None),
        ("5", known(Some(Number::Integer(5)), None, None)),
        ("-2", known(Some(Number::Integer(-2)), None, None)),
        ("2.5", known(Some(Number::Double(2.5)), None, None)),
        ("9223372036854775807", known(Some(Number::Integer(i64::MAX)), None, None)),
        ("true", known(None, Some(true), None)),
        ("false", known(None, Some(false), None)),
        ("\"red\"", known(None, None, Some("red"))),
        ("\"5\"", known(None, None, Some("5"))),
        ("\"\"", known(None, None, Some(""))),
        ("{}", known(None, None, None)),
    ]
}

#[derive(Clone, Debug)]
struct Event {
    attributes: Vec<(&'static str, &'static str)>,
    payload: String,
    fields: Vec<Value>,
}

impl Subject for Event {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.attributes.iter().for_each(|(name, value)| visit(name, Datum::written(value)));
    }

    fn payload(&self) -> &[u8] {
        self.payload.as_bytes()
    }
}

fn event() -> impl Strategy<Value = Event> {
    let attribute = || prop::option::weighted(0.8, prop::sample::select(WRITTEN.to_vec()));
    let json = || prop::sample::select(json_values());
    (attribute(), attribute(), attribute(), json(), json()).prop_map(|(a, b, c, x, y)| {
        let mut attributes = Vec::new();
        let mut fields = Vec::new();
        for (name, value) in [("a", a), ("b", b), ("c", c)] {
            attributes.extend(value.map(|(text, ..)| (name, text)));
            fields.push(value.map(|(text, number, boolean)| Known { number, boolean, text: Some(text.to_owned()) }));
        }
        let payload = format!("{{\"x\": {}, \"y\": [{}]}}", x.0, y.0);
        fields.extend([x.1, y.1, None]);
        Event { attributes, payload, fields }
    })
}

fn numeric() -> impl Strategy<Value = Operand> {
    let leaf = prop_oneof![
        6 => (0..FIELDS.len()).prop_map(Operand::Field),
        3 => (-6_i64..6).prop_map(Operand::Integer),
        1 => prop::sample::select(vec![i64::MAX, i64::MIN, i64::MAX - 1]).prop_map(Operand::Integer),
        2 => (-12_i32..12).prop_map(|n| Operand::Double(f64::from(n) / 4.0)),
        1 => prop::sample::select(vec![1e308, -1e308, 9_223_372_036_854_775_808.0, 5e-324]).prop_map(Operand::Double),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (prop::sample::select(vec!['+', '-']), inner.clone()).prop_map(|(sign, x)| Operand::Sign(sign, x.into())),
            (prop::sample::select(vec!['+', '-', '*', '/']), inner.clone(), inner)
                .prop_map(|(op, left, right)| Operand::Binary(op, left.into(), right.into())),
        ]
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let field = 0..FIELDS.len();
    let text = prop::sample::select(vec!["red", "5", "", "true", "blue"]).prop_map(str::to_owned);
    let other = prop_oneof![text.clone().prop_map(Operand::Text), any::<bool>().prop_map(Operand::Boolean)];
    let equality = prop::sample::select(vec!["=", "<>"]);
    let patterns =
        vec![("r%", "begins with r"), ("%%", "any"), ("%_", "one or more"), ("red", "is red"), ("", "empty")];
    let leaf = prop_oneof![
        6 => (prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]), numeric(), numeric())
            .prop_map(|(op, left, right)| Condition::Compare(op, left, right)),
        3 => (equality, field.clone(), other, any::<bool>()).prop_map(|(op, field, other, mirrored)| {
            let (left, right) = (Operand::Field(field), other);
            if mirrored { Condition::Compare(op, right, left) } else { Condition::Compare(op, left, right) }
        }),
        2 => (any::<bool>(), numeric(), numeric(), numeric()).prop_map(|(not, x, low, high)| Condition::Between(not, x, low, high)),
        1 => (field.clone(), any::<bool>(), prop::collection::vec(text, 1..4)).prop_map(|(field, not, list)| Condition::In(field, not, list)),
        1 => (field.clone(), any::<bool>(), prop::sample::select(patterns))
            .prop_map(|(field, not, (pattern, kind))| Condition::Like(field, not, pattern, kind)),
        1 => (field.clone(), any::<bool>()).prop_map(|(field, not)| Condition::IsNull(field, not)),
        2 => field.prop_map(Condition::Bare),
        1 => any::<bool>().prop_map(Condition::Constant),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(Condition::And),
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(Condition::Or),
            2 => inner.clone().prop_map(|part| Condition::Not(part.into())),
            2 => (any::<bool>(), inner.clone(), inner).prop_map(|(unequal, left, right)| Condition::Same(unequal, left.into(), right.into())),
        ]
    })
}

fn is_true(selector: &Selector, event: &Event) -> bool {
    let mut index = MatchIndex::new(1);
    index.insert(TopicFilter::new("#").expect("a filter"), Some(selector), ());
    let mut found = false;
    index.for_each_match(TopicName::new("t").expect("a name"), event, |()| found = true);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_selector_means_what_its_text_says(condition in condition(), event in event()) {
        let text = write(&condition);
        let selector = Selector::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let opposite = Selector::parse(&format!("NOT ({text})")).expect("good without NOT");
        let expected = evaluate(&condition, &event.fields);
        let found = match (is_true(&selector, &event), is_true(&opposite, &event)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
            (true, true) => return Err(TestCaseError::fail(format!("{text} is both true and false"))),
        };
        prop_assert_eq!(found, expected, "{}\n{}", text, selector);
    }
}
