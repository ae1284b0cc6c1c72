//! Typed attributes: key/value pairs beside the payload.

use core::fmt;

/// The longest name or value of an attribute, bytes.
pub const ATTRIBUTE_TEXT_MAX: usize = u16::MAX as usize;

/// The attributes of an event, in publishing order, in one contiguous run of bytes:
/// for each, name length (u16, big endian), name, value length (u16, big endian), value; all UTF-8.
///
/// Values are text as the publisher wrote it; [`Value::of`] tells what else they compare as.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes<'a>(&'a [u8]);

/// A value as selectors see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Text that reads as a JSON boolean.
    Boolean(bool),
    /// Text that reads as a JSON number without fraction or exponent, within 64 bits.
    Integer(i64),
    /// Text that reads as any other JSON number.
    Double(f64),
    /// Everything else.
    Text(&'a str),
}

impl<'a> Value<'a> {
    /// The type that `text` also compares as, besides text.
    pub fn of(text: &'a str) -> Value<'a> {
        match text.as_bytes() {
            b"true" => Value::Boolean(true),
            b"false" => Value::Boolean(false),
            bytes if is_json_number(bytes) => match text.parse::<i64>() {
                Ok(integer) => Value::Integer(integer),
                Err(_) => text.parse::<f64>().map_or(Value::Text(text), Value::Double),
            },
            _ => Value::Text(text),
        }
    }
}

/// RFC 8259, section 6.
fn is_json_number(bytes: &[u8]) -> bool {
    let digits = |b: &[u8]| b.iter().take_while(|c| c.is_ascii_digit()).count();
    let mut rest = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let integer = digits(rest);
    if integer == 0 || (integer > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[integer..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let n = digits(fraction);
        if n == 0 {
            return false;
        }
        rest = &fraction[n..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

impl<'a> Attributes<'a> {
    /// No attributes.
    pub const EMPTY: Attributes<'static> = Attributes(&[]);

    /// Attributes from bytes that [`AttributesBuf`] produced.
    ///
    /// # Errors
    /// When the bytes are not in the form described at [`Attributes`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, InvalidAttributes> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = take_text(rest).and_then(|(_, r)| take_text(r)).ok_or(InvalidAttributes)?.1;
        }
        Ok(Attributes(bytes))
    }

    /// Attributes from bytes that were checked before.
    pub(crate) fn kept(bytes: &'a [u8]) -> Self {
        Attributes(bytes)
    }

    /// The bytes, in the form described at [`Attributes`].
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All pairs in publishing order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (name, r) = take_text(rest)?;
            let (value, r) = take_text(r)?;
            rest = r;
            Some((name, value))
        })
    }

    /// The bytes of each pair, in the form described at [`Attributes`], to be passed on unchanged.
    pub fn pairs(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let name = 2 + usize::from(u16::from_be_bytes(*rest.first_chunk()?));
            let value = 2 + usize::from(u16::from_be_bytes(*rest.get(name..)?.first_chunk()?));
            let (pair, behind) = rest.split_at_checked(name + value)?;
            rest = behind;
            Some(pair)
        })
    }

    /// The value of the first attribute of that name.
    pub fn get(self, name: &str) -> Option<&'a str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Bytes that are not attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAttributes;

impl fmt::Display for InvalidAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not a run of length-prefixed UTF-8 names and values")
    }
}

impl core::error::Error for InvalidAttributes {}

fn take_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*length) as usize)?;
    Some((core::str::from_utf8(text).ok()?, rest))
}

/// Builds [`Attributes`].
#[derive(Clone, Default, Debug)]
pub struct AttributesBuf(Vec<u8>);

impl AttributesBuf {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        AttributesBuf(Vec::new())
    }

    /// Appends a pair.
    ///
    /// # Panics
    /// When name or value are longer than [`ATTRIBUTE_TEXT_MAX`]; code that reads them from outside
    /// checks first.
    pub fn push(&mut self, name: &str, value: &str) {
        for text in [name, value] {
            let length = u16::try_from(text.len()).expect("attribute text is at most 65,535 bytes");
            self.0.extend_from_slice(&length.to_be_bytes());
            self.0.extend_from_slice(text.as_bytes());
        }
    }

    /// The pairs so far.
    pub fn as_attributes(&self) -> Attributes<'_> {
        Attributes(&self.0)
    }

    /// Forgets all pairs and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_repeated_names_counts() {
        let mut list = AttributesBuf::new();
        list.push("fuel", "7");
        list.push("fuel", "8");
        list.push("", "");
        let list = list.as_attributes();
        assert_eq!(list.get("fuel"), Some("7"));
        assert_eq!(list.get(""), Some(""));
        assert_eq!(list.get("none"), None);
        assert_eq!(list.iter().count(), 3);
        let pairs: Vec<&[u8]> = list.pairs().collect();
        assert_eq!(pairs, [&b"\0\x04fuel\0\x017"[..], b"\0\x04fuel\0\x018", b"\0\0\0\0"]);
        assert_eq!(Attributes::from_bytes(list.as_bytes()), Ok(list));
    }

    #[test]
    fn torn_bytes_are_refused() {
        for bytes in [&[0u8][..], &[0, 1], &[0, 1, b'a'], &[0, 1, b'a', 0, 2, b'x'], &[0, 1, 0xff, 0, 0]] {
            assert_eq!(Attributes::from_bytes(bytes), Err(InvalidAttributes));
        }
    }

    #[test]
    fn text_compares_as_what_json_would_read() {
        assert_eq!(Value::of("true"), Value::Boolean(true));
        assert_eq!(Value::of("-12"), Value::Integer(-12));
        assert_eq!(Value::of("9223372036854775808"), Value::Double(9_223_372_036_854_775_808.0));
        assert_eq!(Value::of("1.5e3"), Value::Double(1500.0));
        for text in ["", "-", "01", "1.", ".5", "+1", "1e", "0x1", "NaN", "inf", "True", " 1", "1 "] {
            assert_eq!(Value::of(text), Value::Text(text), "{text}");
        }
    }
}
