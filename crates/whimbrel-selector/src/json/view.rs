//! A document whose grammar has been checked, read on demand.

use std::borrow::Cow;

use super::scan::{Fault, Scanner, Token, text};

/// A value in a JSON document. Only the parts that are read are checked, so that a malformed value
/// does not affect others. Each call takes the time of the bytes of the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a>(&'a [u8]);

impl<'a> Json<'a> {
    /// Checks the grammar of all of `bytes`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Json<'a>, Fault> {
        let mut scanner = Scanner::new(bytes);
        let start = scanner.at();
        scanner.skip()?;
        scanner.finish()?;
        Ok(Json(&bytes[start..]))
    }

    pub(crate) fn token(self) -> Token<'a> {
        Scanner::new(self.0).begin().expect("it was checked")
    }

    /// The member of this name, the last one if there are several; `None` if there is none, or this
    /// is not an object.
    pub(crate) fn get(self, name: &str) -> Option<Json<'a>> {
        let mut scanner = Scanner::new(self.0);
        let (mut found, mut is_first) = (None, true);
        if scanner.begin().ok()? != Token::Object {
            return None;
        }
        while let Some(member) = scanner.member(is_first).expect("it was checked") {
            is_first = false;
            let value = next(&mut scanner, self.0);
            if text(member).is_some_and(|member| member == name) {
                found = Some(value);
            }
        }
        found
    }

    /// The elements of an array; empty if this is not an array.
    pub(crate) fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut scanner = Scanner::new(self.0);
        let is_array = scanner.begin() == Ok(Token::Array);
        let mut is_first = true;
        core::iter::from_fn(move || {
            if !is_array || !scanner.element(is_first).expect("it was checked") {
                return None;
            }
            is_first = false;
            Some(next(&mut scanner, self.0))
        })
    }

    /// The number, infinite if it is beyond a double.
    pub(crate) fn number(self) -> Option<f64> {
        match self.token() {
            Token::Number(written) => written.parse().ok(),
            _ => None,
        }
    }

    /// The text; `None` also for a malformed one, see [`text`].
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self.token() {
            Token::Text(raw) => text(raw),
            _ => None,
        }
    }

    /// The value as written.
    pub(crate) fn written(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.0)
    }
}

/// Reads the value at the scanner's position, and moves past it.
fn next<'a>(scanner: &mut Scanner<'a>, bytes: &'a [u8]) -> Json<'a> {
    let start = scanner.at();
    scanner.skip().expect("it was checked");
    Json(bytes[start..scanner.at()].trim_ascii_start())
}
