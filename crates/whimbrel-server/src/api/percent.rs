//! Names in paths and queries: each byte except letters, digits, '-' and '_' is written as %XX.

use std::fmt::Write;
use std::str::FromStr;

/// Encodes a name for a path or a query.
pub fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes everything");
        }
    }
    out
}

/// Decodes the result of [`encode`]; `None` if the text is malformed.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// The value of a field of a query.
pub fn field(query: Option<&str>, name: &str) -> Option<String> {
    let fields = query?.split('&').filter_map(|field| field.split_once('='));
    fields.filter(|(key, _)| *key == name).find_map(|(_, value)| decode(value))
}

/// The numbers in fields of a query; `None` where there is no such field.
///
/// # Errors
/// When one of them is no number.
pub fn numbers<T: FromStr, const N: usize>(query: Option<&str>, names: [&str; N]) -> Result<[Option<T>; N], T::Err> {
    let mut numbers = [const { None }; N];
    for (number, name) in numbers.iter_mut().zip(names) {
        *number = field(query, name).map(|text| text.parse()).transpose()?;
    }
    Ok(numbers)
}

/// Whether a field of a query has a value, even one that cannot be decoded.
pub fn has_value(query: &str, name: &str) -> bool {
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    fields.any(|(key, value)| key == name && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["", "a", "fleet/7", "..", "a b&c=d%", "größe", "\u{1f69a}"] {
            assert_eq!(decode(&encode(name)).as_deref(), Some(name));
            let query = format!("x=1&after={}", encode(name));
            assert_eq!(field(Some(&query), "after").as_deref(), Some(name));
        }
        assert_eq!(decode("%4"), None);
        assert_eq!(decode("%ff"), None, "no text");
        assert_eq!(field(Some("x=1"), "after"), None);
        assert!(has_value("x=1&prefix=%ff", "prefix") && !has_value("x=1&prefix=", "prefix"));
    }
}
