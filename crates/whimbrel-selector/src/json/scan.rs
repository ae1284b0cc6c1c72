//! The grammar of JSON (RFC 8259) without its values: where each value begins and ends.
//!
//! The structure alone decides whether bytes are JSON: brackets, commas, colons, literals, and the
//! form of numbers. The contents of a text, and the size of a number, concern that value only, and
//! are checked when it is read ([`text`]). A byte order mark is skipped (section 8.1 allows it).
//!
//! There is no recursion: open containers are kept in a list. Each call reads each byte that it
//! passes once.

use std::borrow::Cow;

use memchr::memchr2;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The reason why bytes are not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The offset of the unexpected byte.
    pub(crate) at: usize,
    /// The expected item.
    pub(crate) expected: &'static str,
}

/// The beginning of a value: all of it, or the opening bracket of an array or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Null,
    Boolean(bool),
    /// As written.
    Number(&'a str),
    /// The bytes between its quotes.
    Text(&'a [u8]),
    Array,
    Object,
}

/// The numbers of elements of arrays: those in the value that [`Scanner::measure`] skipped last.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// The offset of each array, ascending, and its number of elements.
    found: Vec<(usize, i64)>,
    /// Open arrays, by their indexes in `found`.
    open: Vec<usize>,
    /// The end of the value.
    end: usize,
}

impl Lengths {
    /// The number of elements of the array whose opening bracket ends at `at`, if it was measured.
    pub(crate) fn get(&self, at: usize) -> Option<i64> {
        let place = self.found.binary_search_by_key(&at, |(opens, _)| *opens).ok()?;
        Some(self.found[place].1)
    }

    fn opens(&mut self, at: usize) {
        self.open.push(self.found.len());
        self.found.push((at, 0));
    }

    fn counts(&mut self) {
        if let Some(&array) = self.open.last() {
            self.found[array].1 += 1;
        }
    }
}

/// A position in bytes that may be JSON.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Containers that are being skipped, the innermost last: whether each is an object.
    open: Vec<bool>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Scanner<'a> {
        let at = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        Scanner { bytes, at, open: Vec::new() }
    }

    /// The offset of the next byte.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn fault(&self, expected: &'static str) -> Fault {
        Fault { at: self.at, expected }
    }

    /// The next byte that is not white space, or 0 at the end; it is not consumed.
    fn peek(&mut self) -> u8 {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
        0
    }

    /// Checks that only white space follows.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        self.peek();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.fault("the end of the text")) }
    }

    /// Reads the beginning of a value.
    pub(crate) fn begin(&mut self) -> Result<Token<'a>, Fault> {
        match self.peek() {
            b'"' => self.text().map(Token::Text),
            b'-' | b'0'..=b'9' => self.number().map(Token::Number),
            b'{' => {
                self.at += 1;
                Ok(Token::Object)
            }
            b'[' => {
                self.at += 1;
                Ok(Token::Array)
            }
            b't' => self.literal(b"true", Token::Boolean(true)),
            b'f' => self.literal(b"false", Token::Boolean(false)),
            b'n' => self.literal(b"null", Token::Null),
            _ => Err(self.fault("a value")),
        }
    }

    /// Reads the name of the next member of an object and the colon after it; `None` at its closing
    /// bracket.
    pub(crate) fn member(&mut self, is_first: bool) -> Result<Option<&'a [u8]>, Fault> {
        match self.peek() {
            b'}' => {
                self.at += 1;
                return Ok(None);
            }
            b',' if !is_first => {
                self.at += 1;
                self.peek();
            }
            _ if !is_first => return Err(self.fault("a comma or }")),
            _ => {}
        }
        let name = self.text()?;
        if self.peek() != b':' {
            return Err(self.fault("a colon"));
        }
        self.at += 1;
        Ok(Some(name))
    }

    /// Goes to the next element of an array; false at its closing bracket.
    pub(crate) fn element(&mut self, is_first: bool) -> Result<bool, Fault> {
        match self.peek() {
            b']' => {
                self.at += 1;
                Ok(false)
            }
            b',' if !is_first => {
                self.at += 1;
                Ok(true)
            }
            _ if !is_first => Err(self.fault("a comma or ]")),
            _ => Ok(true),
        }
    }

    /// Skips one value.
    pub(crate) fn skip(&mut self) -> Result<(), Fault> {
        let begun = self.begin()?;
        self.skip_rest(begun)
    }

    /// Skips the rest of a value whose beginning has been read.
    pub(crate) fn skip_rest(&mut self, begun: Token<'_>) -> Result<(), Fault> {
        self.pass(begun, None)
    }

    /// Counts the elements of the array whose opening bracket has been read, and of all arrays in
    /// it, without moving. An array in the value that was measured last is not counted again, so
    /// that all counts together take the time of their bytes.
    pub(crate) fn measure(&mut self, lengths: &mut Lengths) -> Result<Option<i64>, Fault> {
        let opened = self.at;
        if opened >= lengths.end {
            lengths.found.clear();
            lengths.open.clear();
            self.pass(Token::Array, Some(lengths))?;
            lengths.end = self.at;
            self.at = opened;
        }
        Ok(lengths.get(opened))
    }

    fn pass(&mut self, begun: Token<'_>, mut lengths: Option<&mut Lengths>) -> Result<(), Fault> {
        self.open.clear();
        let mut is_first = self.enter(begun, &mut lengths);
        while let Some(&is_object) = self.open.last() {
            let goes_on = if is_object { self.member(is_first)?.is_some() } else { self.element(is_first)? };
            if !goes_on {
                self.open.pop();
                is_first = false;
                if let (false, Some(lengths)) = (is_object, &mut lengths) {
                    lengths.open.pop();
                }
                continue;
            }
            if let (false, Some(lengths)) = (is_object, &mut lengths) {
                lengths.counts();
            }
            let begun = self.begin()?;
            is_first = self.enter(begun, &mut lengths);
        }
        Ok(())
    }

    /// Records that a container is open; false if the value is none.
    fn enter(&mut self, begun: Token<'_>, lengths: &mut Option<&mut Lengths>) -> bool {
        let is_object = match begun {
            Token::Object => true,
            Token::Array => false,
            _ => return false,
        };
        self.open.push(is_object);
        if let (false, Some(lengths)) = (is_object, lengths) {
            lengths.opens(self.at);
        }
        true
    }

    /// Reads a text; returns the bytes between its quotes.
    fn text(&mut self) -> Result<&'a [u8], Fault> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.fault("a member's name in quotes"));
        }
        let start = self.at + 1;
        let mut end = start;
        loop {
            let found = self.bytes.get(end..).and_then(|rest| memchr2(b'"', b'\\', rest));
            let Some(found) = found else {
                self.at = self.bytes.len();
                return Err(self.fault("the quote that ends a text"));
            };
            end += found;
            if self.bytes[end] == b'"' {
                break;
            }
            // An escaped character does not end the text, whichever it is.
            end += 2;
        }
        self.at = end + 1;
        Ok(&self.bytes[start..end])
    }

    fn literal(&mut self, word: &[u8], token: Token<'a>) -> Result<Token<'a>, Fault> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.fault("a value"));
        }
        self.at += word.len();
        Ok(token)
    }

    /// Section 6: `-? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?`
    fn number(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        self.accept(b"-");
        let leading = self.at;
        self.digits()?;
        if self.bytes[leading] == b'0' && self.at > leading + 1 {
            return Err(Fault { at: leading, expected: "a number without leading zeros" });
        }
        if self.accept(b".") {
            self.digits()?;
        }
        if self.accept(b"eE") {
            self.accept(b"+-");
            self.digits()?;
        }
        Ok(core::str::from_utf8(&self.bytes[start..self.at]).expect("digits, signs and points are ASCII"))
    }

    fn accept(&mut self, choices: &[u8]) -> bool {
        let accepted = self.bytes.get(self.at).is_some_and(|byte| choices.contains(byte));
        self.at += usize::from(accepted);
        accepted
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a digit")) } else { Ok(()) }
    }
}

/// A text from the bytes between its quotes. `None` if they are malformed: bytes that are not
/// UTF-8, control characters, an escape that JSON does not have, or half of a surrogate pair (which
/// the grammar allows, section 8.2).
pub(crate) fn text(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.iter().any(|byte| *byte < b' ') {
        return None;
    }
    let has_escapes = raw.contains(&b'\\');
    let raw = core::str::from_utf8(raw).ok()?;
    if !has_escapes {
        return Some(Cow::Borrowed(raw));
    }
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let (c, length) = match escape.as_bytes().first()? {
            b'"' => ('"', 1),
            b'\\' => ('\\', 1),
            b'/' => ('/', 1),
            b'b' => ('\u{8}', 1),
            b'f' => ('\u{c}', 1),
            b'n' => ('\n', 1),
            b'r' => ('\r', 1),
            b't' => ('\t', 1),
            b'u' => unicode(escape)?,
            _ => return None,
        };
        out.push(c);
        rest = &escape[length..];
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

/// The character of `uXXXX` or `uXXXX\uXXXX`, and the number of its bytes.
fn unicode(escape: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = escape.get(from..from + 4)?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { u32::from_str_radix(digits, 16).ok() } else { None }
    };
    let high = unit(1)?;
    if !(0xD800..0xDC00).contains(&high) {
        return Some((char::from_u32(high)?, 5));
    }
    let low = unit(7).filter(|low| escape[5..].starts_with("\\u") && (0xDC00..0xE000).contains(low))?;
    Some((char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?, 11))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8]) -> Result<(), Fault> {
        let mut scanner = Scanner::new(bytes);
        scanner.skip()?;
        scanner.finish()
    }

    #[test]
    fn structure_decides_what_is_json() {
        for good in [
            "null",
            " true ",
            "[]",
            "{}",
            "[[],{}]",
            "{\"a\":[1,-0,0.5,1e400,-1E+9,2e-3]}",
            "\"\\ud83d\"",
            "\"\\x\"",
            "\"\t\"",
            "\u{feff}1",
            "{\"\":{\"\":[]}}",
            "\r\n[ 1 , 2 ]\t",
        ] {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good}");
        }
        assert_eq!(check(b"\"\xff\""), Ok(()));
        assert_eq!(check(&[b"[".repeat(100_000), b"]".repeat(100_000)].concat()), Ok(()));
        assert_eq!(check(&[b"1".repeat(100_000), b"e".to_vec(), b"9".repeat(100_000)].concat()), Ok(()));
    }

    #[test]
    fn anything_else_is_refused_with_its_place() {
        for (bad, at, expected) in [
            ("", 0, "a value"),
            ("[1,]", 3, "a value"),
            ("{\"a\":1,}", 7, "a member's name in quotes"),
            ("{,}", 1, "a member's name in quotes"),
            ("[,1]", 1, "a value"),
            ("{\"a\" 1}", 5, "a colon"),
            ("{\"a\":}", 5, "a value"),
            ("[1 2]", 3, "a comma or ]"),
            ("{\"a\":1]", 6, "a comma or }"),
            ("[1}", 2, "a comma or ]"),
            ("[", 1, "a value"),
            ("[1", 2, "a comma or ]"),
            ("{\"a\":1", 6, "a comma or }"),
            ("{\"a", 3, "the quote that ends a text"),
            ("\"a\\", 3, "the quote that ends a text"),
            ("\"a\\\"", 4, "the quote that ends a text"),
            ("1 x", 2, "the end of the text"),
            ("1\u{0}", 1, "the end of the text"),
            ("01", 0, "a number without leading zeros"),
            ("-", 1, "a digit"),
            ("1.", 2, "a digit"),
            (".5", 0, "a value"),
            ("1e", 2, "a digit"),
            ("+1", 0, "a value"),
            ("NaN", 0, "a value"),
            ("nul", 0, "a value"),
            ("'a'", 0, "a value"),
            ("\u{feff}\u{feff}1", 3, "a value"),
        ] {
            assert_eq!(check(bad.as_bytes()), Err(Fault { at, expected }), "{bad}");
        }
    }

    #[test]
    fn a_text_is_judged_alone() {
        for (raw, expected) in [
            ("", Some("")),
            ("é", Some("é")),
            (r"\u00e9\n\/\\", Some("é\n/\\")),
            (r"\ud83d\ude8c!", Some("🚌!")),
            (r"\u0000", Some("\0")),
            (r"\ud83d", None),
            (r"\ud83d\u0041", None),
            (r"\ude8c", None),
            (r"\ud83dx\ude8c", None),
            (r"\u12", None),
            (r"\u+123", None),
            (r"\u12é", None),
            (r"\x", None),
            ("a\tb", None),
        ] {
            assert_eq!(text(raw.as_bytes()).as_deref(), expected, "{raw}");
        }
        assert_eq!(text(b"\xe9"), None);
    }

    #[test]
    fn arrays_are_measured_once() {
        let bytes = br#"[[1,[2,3,4]],{"a":[5,[]]},[]] [6]"#;
        let (mut scanner, mut lengths) = (Scanner::new(bytes), Lengths::default());
        assert_eq!(scanner.begin(), Ok(Token::Array));
        assert_eq!(scanner.measure(&mut lengths), Ok(Some(3)));
        assert_eq!(scanner.at(), 1);
        let counts: Vec<i64> = lengths.found.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [3, 2, 3, 2, 0, 0]);
        assert_eq!(scanner.element(true), Ok(true));
        assert_eq!(scanner.begin(), Ok(Token::Array));
        assert_eq!(scanner.measure(&mut lengths), Ok(Some(2)), "known already");
        assert_eq!(lengths.found.len(), 6);
    }
}
