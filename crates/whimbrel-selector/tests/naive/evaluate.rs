//! Three-valued evaluation, straight down the tree.

use core::cmp::Ordering;

use super::event::{Event, Given};
use super::json::Json;
use super::parse::{Field, Node, Step, Wild};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Integer(i64),
    Double(f64),
}

/// What a value is, which may be several things at a time.
#[derive(Debug, Clone, Default)]
struct Value {
    null: bool,
    number: Option<Number>,
    boolean: Option<bool>,
    text: Option<String>,
}

impl Value {
    fn null() -> Value {
        Value { null: true, ..Value::default() }
    }

    fn number(number: Number) -> Value {
        Value { number: Some(number), ..Value::default() }
    }

    fn integer(value: i64) -> Value {
        Value::number(Number::Integer(value))
    }

    fn boolean(value: bool) -> Value {
        Value { boolean: Some(value), ..Value::default() }
    }

    fn text(text: &str) -> Value {
        Value { text: Some(text.to_owned()), ..Value::default() }
    }

    fn written(text: &str) -> Value {
        let boolean = match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        Value { number: written_number(text), boolean, ..Value::text(text) }
    }
}

/// RFC 8259: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
fn written_number(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let signless = |text: &str| digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    if !digits(whole) || leading_zero || !fraction.is_none_or(digits) || !exponent.is_none_or(signless) {
        return None;
    }
    if fraction.is_none()
        && exponent.is_none()
        && let Ok(integer) = text.parse::<i64>()
    {
        return Some(Number::Integer(integer));
    }
    Some(Number::Double(text.parse().expect("a JSON number reads as a double")))
}

/// An event with its payload read, and the fences: whether a fence, if it is known, contains a
/// position.
pub struct World<'w> {
    event: &'w Event,
    json: Option<Json>,
    fences: &'w dyn Fn(&str, f64, f64) -> Option<bool>,
}

impl<'w> World<'w> {
    pub fn new(event: &'w Event, fences: &'w dyn Fn(&str, f64, f64) -> Option<bool>) -> World<'w> {
        World { event, json: Json::of(&event.payload), fences }
    }

    /// The selector's value for the event.
    pub fn truth(&self, node: &Node) -> Option<bool> {
        match node {
            Node::Boolean(value) => Some(*value),
            Node::Field(field) => {
                let value = self.field(field);
                if value.null { None } else { Some(value.boolean == Some(true)) }
            }
            Node::Not(inner) => self.truth(inner).map(|value| !value),
            Node::And(parts) => {
                let values: Vec<_> = parts.iter().map(|part| self.truth(part)).collect();
                if values.contains(&Some(false)) {
                    Some(false)
                } else if values.contains(&None) {
                    None
                } else {
                    Some(true)
                }
            }
            Node::Or(parts) => {
                let values: Vec<_> = parts.iter().map(|part| self.truth(part)).collect();
                if values.contains(&Some(true)) {
                    Some(true)
                } else if values.contains(&None) {
                    None
                } else {
                    Some(false)
                }
            }
            Node::Compare(op, left, right) if left.is_condition() || right.is_condition() => {
                let (left, right) = (self.truth(left)?, self.truth(right)?);
                Some((left == right) == (*op == "="))
            }
            Node::Compare(op, left, right) => compare(op, &self.value(left), &self.value(right)),
            Node::Between { not, value, low, high } => {
                let (value, low, high) = (self.value(value), self.value(low), self.value(high));
                if *not {
                    let outside = [compare("<", &value, &low), compare(">", &value, &high)];
                    if outside.contains(&Some(true)) {
                        Some(true)
                    } else if outside.contains(&None) {
                        None
                    } else {
                        Some(false)
                    }
                } else {
                    let inside = [compare(">=", &value, &low), compare("<=", &value, &high)];
                    if inside.contains(&Some(false)) {
                        Some(false)
                    } else if inside.contains(&None) {
                        None
                    } else {
                        Some(true)
                    }
                }
            }
            Node::Like { not, field, pattern } => {
                let value = self.field(field);
                if value.null {
                    return None;
                }
                Some(value.text.is_some_and(|text| is_like(&text, pattern)) != *not)
            }
            Node::In { not, field, list } => {
                let value = self.field(field);
                if value.null {
                    return None;
                }
                Some(value.text.is_some_and(|text| list.contains(&text)) != *not)
            }
            Node::IsNull { not, field } => Some(self.field(field).null != *not),
            Node::Within(name) => {
                let (lat, lon) = self.position()?;
                (self.fences)(name, lat, lon)
            }
            other => panic!("no condition: {other:?}"),
        }
    }

    fn value(&self, node: &Node) -> Value {
        match node {
            Node::Integer(value) => Value::integer(*value),
            Node::Double(value) => Value::number(Number::Double(*value)),
            Node::Text(text) => Value::text(text),
            Node::Boolean(value) => Value::boolean(*value),
            Node::Field(field) => self.field(field),
            Node::Plus(inner) => self.value(inner).number.map_or(Value::null(), Value::number),
            Node::Minus(inner) => match self.value(inner).number {
                None => Value::null(),
                Some(Number::Integer(value)) => match i64::try_from(-i128::from(value)) {
                    Ok(value) => Value::integer(value),
                    Err(_) => Value::number(Number::Double(-(value as f64))),
                },
                Some(Number::Double(value)) => Value::number(Number::Double(-value)),
            },
            Node::Arithmetic(op, left, right) => match (self.value(left).number, self.value(right).number) {
                (Some(left), Some(right)) => calculate(*op, left, right),
                _ => Value::null(),
            },
            other => panic!("no operand: {other:?}"),
        }
    }

    fn field(&self, field: &Field) -> Value {
        match field {
            Field::Attribute(name) => self.attribute(name),
            Field::Header(name) => {
                let event = self.event;
                match name.as_str() {
                    "JMSPriority" => event.importance.map_or(Value::null(), |value| Value::integer(value.into())),
                    "JMSTimestamp" => event.accepted_ms.map_or(Value::null(), Value::integer),
                    "JMSMessageID" => event.message_id.as_deref().map_or(Value::null(), Value::text),
                    "JMSType" => event.content_type.as_deref().map_or(Value::null(), Value::text),
                    "JMSCorrelationID" => {
                        let text = event.correlation.clone().and_then(|bytes| String::from_utf8(bytes).ok());
                        text.as_deref().map_or(Value::null(), Value::text)
                    }
                    _ => Value::null(),
                }
            }
            Field::Json(steps) => self.json.as_ref().map_or(Value::null(), |json| pick(json, steps)),
        }
    }

    fn attribute(&self, name: &str) -> Value {
        match self.event.attributes.iter().find(|(known, _)| known == name) {
            None | Some((_, Given::Null)) => Value::null(),
            Some((_, Given::Written(text))) => Value::written(text),
            Some((_, Given::Boolean(value))) => Value::boolean(*value),
            Some((_, Given::Integer(value))) => Value::integer(*value),
            Some((_, Given::Double(value))) => Value::number(Number::Double(*value)),
            Some((_, Given::Text(text))) => Value::text(text),
            Some((_, Given::Other)) => Value::default(),
        }
    }

    fn position(&self) -> Option<(f64, f64)> {
        let (mut lat, mut lon) = (self.attribute("lat"), self.attribute("lon"));
        if lat.null && lon.null {
            let member = |name: &str| {
                let json = self.json.as_ref()?;
                Some(pick(json, &[Step::Name(name.to_owned())]))
            };
            (lat, lon) = (member("lat")?, member("lon")?);
        }
        let double = |value: Value| match value.number? {
            Number::Integer(value) => Some(value as f64),
            Number::Double(value) => Some(value),
        };
        let (lat, lon) = (double(lat)?, double(lon)?);
        (lat.abs() <= 90.0 && lon.abs() <= 180.0).then_some((lat, lon))
    }
}

fn pick(json: &Json, steps: &[Step]) -> Value {
    let mut at = json;
    for step in steps {
        let next = match (step, at) {
            (Step::Name(name), _) => at.get(name),
            (Step::Index(index), Json::Array(elements)) => {
                let index = i128::from(*index) + if *index < 0 { elements.len() as i128 } else { 0 };
                usize::try_from(index).ok().and_then(|index| elements.get(index))
            }
            _ => None,
        };
        let Some(next) = next else { return Value::null() };
        at = next;
    }
    match at {
        Json::Null => Value::null(),
        Json::Bool(value) => Value::boolean(*value),
        Json::Text(text) => text.as_deref().map_or(Value::null(), Value::text),
        Json::Number(written) => Value::number(written_number(written).expect("it has the form of a number")),
        Json::Array(_) | Json::Object(_) => Value::default(),
    }
}

/// The order of the exact values. Doubles are cut into sign, whole part and the rest.
fn order(left: Number, right: Number) -> Ordering {
    match (left, right) {
        (Number::Integer(left), Number::Integer(right)) => left.cmp(&right),
        (Number::Double(left), Number::Double(right)) => left.partial_cmp(&right).expect("no NaN"),
        (Number::Integer(_), Number::Double(_)) => order(right, left).reverse(),
        (Number::Double(left), Number::Integer(right)) => {
            if left.abs() > 1e30 {
                return if left > 0.0 { Ordering::Greater } else { Ordering::Less };
            }
            let floor = left.floor();
            match (floor as i128).cmp(&i128::from(right)) {
                Ordering::Equal if left > floor => Ordering::Greater,
                other => other,
            }
        }
    }
}

fn compare(op: &str, left: &Value, right: &Value) -> Option<bool> {
    if left.null || right.null {
        return None;
    }
    if let (Some(left), Some(right)) = (left.number, right.number) {
        let order = order(left, right);
        return Some(match op {
            "=" => order == Ordering::Equal,
            "<>" => order != Ordering::Equal,
            "<" => order == Ordering::Less,
            "<=" => order != Ordering::Greater,
            ">" => order == Ordering::Greater,
            ">=" => order != Ordering::Less,
            _ => panic!("no comparison: {op}"),
        });
    }
    let equal = if left.boolean.is_some() && right.boolean.is_some() {
        left.boolean == right.boolean
    } else if left.text.is_some() && right.text.is_some() {
        left.text == right.text
    } else {
        return Some(false);
    };
    Some(match op {
        "=" => equal,
        "<>" => !equal,
        _ => false,
    })
}

fn calculate(op: char, left: Number, right: Number) -> Value {
    if let (Number::Integer(left), Number::Integer(right)) = (left, right) {
        let (left, right) = (i128::from(left), i128::from(right));
        let exact = match op {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            '/' if right == 0 => return Value::null(),
            _ => left / right,
        };
        let is_whole = op != '/' || exact * right == left;
        if let Some(value) = i64::try_from(exact).ok().filter(|_| is_whole) {
            return Value::integer(value);
        }
    }
    let double = |number| match number {
        Number::Integer(value) => value as f64,
        Number::Double(value) => value,
    };
    let (left, right) = (double(left), double(right));
    let result = match op {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        '/' if right == 0.0 => return Value::null(),
        _ => left / right,
    };
    if result.is_nan() { Value::null() } else { Value::number(Number::Double(result)) }
}

/// `reach[i]` tells whether the pattern so far can end behind the first `i` characters.
pub fn is_like(text: &str, pattern: &[Wild]) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut reach = vec![false; text.len() + 1];
    reach[0] = true;
    for wild in pattern {
        let mut next = vec![false; text.len() + 1];
        for end in 0..=text.len() {
            next[end] = match wild {
                Wild::Run => reach[..=end].contains(&true),
                Wild::One => end > 0 && reach[end - 1],
                Wild::Exactly(c) => end > 0 && reach[end - 1] && text[end - 1] == *c,
            };
        }
        reach = next;
    }
    reach[text.len()]
}
