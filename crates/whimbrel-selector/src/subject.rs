//! The values of an event as selectors read them.

use whimbrel_event::Value;

/// A value of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Datum<'a> {
    /// Missing, or JSON `null`.
    Null,
    /// A boolean and nothing else.
    Boolean(bool),
    /// An exact number and nothing else.
    Integer(i64),
    /// An approximate number and nothing else; never NaN.
    Double(f64),
    /// Text and nothing else.
    Text(&'a str),
    /// Text that also reads as a boolean and compares as one with booleans.
    BooleanText(bool, &'a str),
    /// Text that also reads as a number and compares as one with numbers.
    IntegerText(i64, &'a str),
    /// Text that also reads as a number and compares as one with numbers; never NaN.
    DoubleText(f64, &'a str),
    /// Text of an attribute that has not been parsed yet: equivalent to the result of
    /// [`Datum::written`], and saves parsing if no selector uses it.
    Unread(&'a str),
    /// Present, but neither boolean, number nor text: a JSON object or array.
    Other,
}

impl<'a> Datum<'a> {
    /// The value of an attribute that was written as text: that text, and also the JSON number or
    /// boolean that it can be parsed as.
    pub fn written(text: &'a str) -> Datum<'a> {
        match Value::of(text) {
            Value::Boolean(value) => Datum::BooleanText(value, text),
            Value::Integer(value) => Datum::IntegerText(value, text),
            Value::Double(value) => Datum::DoubleText(value, text),
            Value::Text(_) => Datum::Text(text),
        }
    }

    /// The same value, parsed.
    pub fn read(self) -> Datum<'a> {
        match self {
            Datum::Unread(text) => Datum::written(text),
            read => read,
        }
    }

    /// The text, if it is one.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Datum::Text(text)
            | Datum::Unread(text)
            | Datum::BooleanText(_, text)
            | Datum::IntegerText(_, text)
            | Datum::DoubleText(_, text) => Some(text),
            Datum::Null | Datum::Boolean(_) | Datum::Integer(_) | Datum::Double(_) | Datum::Other => None,
        }
    }

    /// The boolean, if it is or can be parsed as one.
    pub fn boolean(self) -> Option<bool> {
        match self.read() {
            Datum::Boolean(value) | Datum::BooleanText(value, _) => Some(value),
            _ => None,
        }
    }

    /// The number, if it is or can be parsed as one.
    pub fn number(self) -> Option<Number> {
        match self.read() {
            Datum::Integer(value) | Datum::IntegerText(value, _) => Some(Number::Integer(value)),
            Datum::Double(value) | Datum::DoubleText(value, _) => Some(Number::Double(value)),
            _ => None,
        }
    }
}

/// A number: 64-bit integer or double.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Exact.
    Integer(i64),
    /// Approximate; never NaN, possibly infinite.
    Double(f64),
}

/// An event that selectors can be evaluated for.
pub trait Subject {
    /// Calls `visit` with the name and the value of each attribute, in publishing order. Of
    /// repeated names the first counts.
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>));

    /// The payload, which `json()` reads; parsed only if a selector needs it.
    fn payload(&self) -> &[u8] {
        &[]
    }

    /// `JMSPriority`: the importance.
    fn importance(&self) -> Option<u8> {
        None
    }

    /// `JMSTimestamp`: when the event was accepted, ms since 1970.
    fn accepted_ms(&self) -> Option<i64> {
        None
    }

    /// `JMSMessageID`: the event's id. Called at most once per event, and only if a selector needs
    /// it.
    fn message_id(&self) -> Option<String> {
        None
    }

    /// `JMSCorrelationID`: the Correlation Data, if it is UTF-8. Called each time a selector needs
    /// it: the cost is within that of comparing the text.
    fn correlation_id(&self) -> Option<&str> {
        None
    }

    /// `JMSType`: the Content Type.
    fn content_type(&self) -> Option<&str> {
        None
    }
}

/// A list of attributes is a subject without payload and headers.
impl Subject for [(&str, Datum<'_>)] {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.iter().for_each(|(name, value)| visit(name, *value));
    }
}

/// A list of attributes is a subject without payload and headers.
impl<const N: usize> Subject for [(&str, Datum<'_>); N] {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        self.as_slice().attributes(visit);
    }
}

impl<S: Subject + ?Sized> Subject for &S {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        (**self).attributes(visit);
    }

    fn payload(&self) -> &[u8] {
        (**self).payload()
    }

    fn importance(&self) -> Option<u8> {
        (**self).importance()
    }

    fn accepted_ms(&self) -> Option<i64> {
        (**self).accepted_ms()
    }

    fn message_id(&self) -> Option<String> {
        (**self).message_id()
    }

    fn correlation_id(&self) -> Option<&str> {
        (**self).correlation_id()
    }

    fn content_type(&self) -> Option<&str> {
        (**self).content_type()
    }
}
