//! Events as the tests make them.

use whimbrel_selector::{Datum, Subject};

/// The value of an attribute.
#[derive(Debug, Clone)]
pub enum Given {
    /// As MQTT brings it: text that may read as something else, too.
    Written(String),
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(String),
    Other,
}

#[derive(Debug, Clone, Default)]
pub struct Event {
    pub attributes: Vec<(String, Given)>,
    pub payload: Vec<u8>,
    pub importance: Option<u8>,
    pub accepted_ms: Option<i64>,
    pub message_id: Option<String>,
    pub correlation: Option<Vec<u8>>,
    pub content_type: Option<String>,
}

impl Subject for Event {
    fn attributes<'s>(&'s self, visit: &mut dyn FnMut(&'s str, Datum<'s>)) {
        for (name, given) in &self.attributes {
            let datum = match given {
                Given::Written(text) => Datum::written(text),
                Given::Null => Datum::Null,
                Given::Boolean(value) => Datum::Boolean(*value),
                Given::Integer(value) => Datum::Integer(*value),
                Given::Double(value) => Datum::Double(*value),
                Given::Text(text) => Datum::Text(text),
                Given::Other => Datum::Other,
            };
            visit(name, datum);
        }
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn importance(&self) -> Option<u8> {
        self.importance
    }

    fn accepted_ms(&self) -> Option<i64> {
        self.accepted_ms
    }

    fn message_id(&self) -> Option<String> {
        self.message_id.clone()
    }

    fn correlation_id(&self) -> Option<&str> {
        std::str::from_utf8(self.correlation.as_deref()?).ok()
    }

    fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }
}
