//! Paths into JSON payloads: the singular queries of RFC 9535.

use core::fmt::{self, Write};

/// A singular query of RFC 9535: it names at most one value. `$` itself has no steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JsonPath(pub Box<[Step]>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The member of an object.
    Member(Box<str>),
    /// The element of an array; negative counts from its end, -1 is the last.
    Index(i64),
}

/// The greatest index, and with a minus sign the least: the integers that I-JSON (RFC 7493)
/// represents exactly.
const INDEX_MAX: i64 = (1 << 53) - 1;

/// The reason why a text is not a path: its bytes, and the cause.
#[derive(Debug, PartialEq)]
pub(super) struct PathProblem {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) cause: String,
}

impl JsonPath {
    /// Parses a path.
    ///
    /// # Errors
    /// The mistake and its place.
    pub(super) fn parse(text: &str) -> Result<JsonPath, PathProblem> {
        let mut reader = Reader { text, at: 0 };
        if !reader.eat('$') {
            return Err(reader.problem("a JSON path begins with $"));
        }
        let mut steps = Vec::new();
        loop {
            let end = reader.at;
            reader.skip_blank();
            match reader.peek() {
                None if end == reader.at => return Ok(JsonPath(steps.into())),
                None => {
                    let cause = "a JSON path must not end with a blank".to_owned();
                    return Err(PathProblem { start: end, end: text.len(), cause });
                }
                Some('.') => steps.push(reader.shorthand()?),
                Some('[') => steps.push(reader.bracketed()?),
                Some(_) => return Err(reader.problem("in a JSON path, .name, ['name'] or [index] is expected here")),
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn skip_blank(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.at += 1;
        }
    }

    /// A problem with the next character.
    fn problem(&self, cause: &str) -> PathProblem {
        self.problem_since(self.at, cause)
    }

    /// A problem with the text from `start` up to and including the next character.
    fn problem_since(&self, start: usize, cause: &str) -> PathProblem {
        PathProblem { start, end: self.at + self.peek().map_or(0, char::len_utf8), cause: cause.to_owned() }
    }

    fn shorthand(&mut self) -> Result<Step, PathProblem> {
        let dot = self.at;
        self.at += 1;
        let start = self.at;
        match self.peek() {
            Some('.') => return Err(self.problem_since(dot, "a path names at most one value here: .. may name many")),
            Some('*') => return Err(self.problem_since(dot, "a path names at most one value here: * may name many")),
            Some(c) if starts_shorthand(c) => {}
            _ => return Err(self.problem("a name is expected behind the dot; other names are written ['name']")),
        }
        while self.peek().is_some_and(continues_shorthand) {
            self.bump();
        }
        Ok(Step::Member(self.text[start..self.at].into()))
    }

    fn bracketed(&mut self) -> Result<Step, PathProblem> {
        let open = self.at;
        self.at += 1;
        self.skip_blank();
        let step = match self.peek() {
            Some(quote @ ('\'' | '"')) => Step::Member(self.quoted(quote)?.into()),
            Some('-' | '0'..='9') => Step::Index(self.index()?),
            Some('*') => return Err(self.problem("a path names at most one value here: * may name many")),
            Some('?') => return Err(self.problem("a path names at most one value here: a filter may name many")),
            Some(':') => return Err(self.problem("a path names at most one value here: a slice may name many")),
            _ => return Err(self.problem("in brackets, a name in quotes or an index is expected")),
        };
        self.skip_blank();
        match self.peek() {
            Some(']') => {
                self.at += 1;
                Ok(step)
            }
            Some(',') => Err(self.problem("a path names at most one value here: a list may name many")),
            Some(':') => Err(self.problem("a path names at most one value here: a slice may name many")),
            Some(_) => Err(self.problem("] is expected here")),
            None => Err(self.problem_since(open, "this bracket is not closed")),
        }
    }

    fn index(&mut self) -> Result<i64, PathProblem> {
        let start = self.at;
        let negative = self.eat('-');
        let digits = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let end = self.at;
        let refuse = |cause: &str| Err(PathProblem { start, end, cause: cause.to_owned() });
        match &self.text[digits..end] {
            "" => refuse("an index has digits"),
            "0" if negative => refuse("-0 is no index; the last element is -1"),
            text if text.len() > 1 && text.starts_with('0') => refuse("an index has no leading zeros"),
            text => match text.parse::<i64>() {
                Ok(index) if index <= INDEX_MAX => Ok(if negative { -index } else { index }),
                _ => refuse("an index lies between -(2^53 - 1) and 2^53 - 1"),
            },
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, PathProblem> {
        let open = self.at;
        self.at += 1;
        let mut name = String::new();
        loop {
            match self.peek() {
                None => return Err(self.problem_since(open, "this name has no closing quote")),
                Some(c) if c == quote => {
                    self.at += 1;
                    return Ok(name);
                }
                Some('\\') => name.push(self.escaped(quote)?),
                Some(c) if c < ' ' => {
                    return Err(self.problem("control characters are written with a backslash, such as \\n or \\u0007"));
                }
                Some(c) => {
                    name.push(c);
                    self.bump();
                }
            }
        }
    }

    fn escaped(&mut self, quote: char) -> Result<char, PathProblem> {
        let start = self.at;
        self.at += 1;
        let c = match self.peek() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(c @ ('/' | '\\')) => c,
            Some(c) if c == quote => c,
            Some('u') => {
                self.at += 1;
                return self.hexadecimal(start);
            }
            _ => {
                let cause = format!("behind a backslash, one of b f n r t / \\ {quote} or uXXXX is expected");
                return Err(self.problem_since(start, &cause));
            }
        };
        self.at += 1;
        Ok(c)
    }

    /// Parses the rest after `\u`: four digits, or two groups of four for a character beyond
    /// U+FFFF.
    fn hexadecimal(&mut self, start: usize) -> Result<char, PathProblem> {
        let first = self.four_digits(start)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.lone(start));
        }
        if !self.text[self.at..].starts_with("\\u") {
            return Err(self.lone(start));
        }
        self.at += 2;
        let second = self.four_digits(start)?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(self.lone(start));
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(|| self.lone(start))
    }

    fn lone(&self, start: usize) -> PathProblem {
        let cause = "a surrogate counts only in a pair, \\uD800 to \\uDBFF and then \\uDC00 to \\uDFFF".to_owned();
        PathProblem { start, end: self.at, cause }
    }

    fn four_digits(&mut self, start: usize) -> Result<u32, PathProblem> {
        let mut value = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return Err(self.problem_since(start, "four hexadecimal digits are expected behind \\u"));
            };
            value = value * 16 + digit;
            self.at += 1;
        }
        Ok(value)
    }
}

fn starts_shorthand(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn continues_shorthand(c: char) -> bool {
    starts_shorthand(c) || c.is_ascii_digit()
}

impl fmt::Display for JsonPath {
    /// Writes the normalized form of RFC 9535, section 2.7, but with `.name` where the name allows
    /// it, and otherwise with double quotes, because a path in a selector is in single ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('$')?;
        for step in &self.0 {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Member(name) if name.starts_with(starts_shorthand) && name.chars().all(continues_shorthand) => {
                    write!(f, ".{name}")?;
                }
                Step::Member(name) => {
                    f.write_str("[\"")?;
                    name.chars().try_for_each(|c| write_escaped(f, c))?;
                    f.write_str("\"]")?;
                }
            }
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' => f.write_str("\\\""),
        '\\' => f.write_str("\\\\"),
        '\u{8}' => f.write_str("\\b"),
        '\u{c}' => f.write_str("\\f"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c)),
        c => f.write_char(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Step {
        Step::Member(name.into())
    }

    #[test]
    fn members_and_indices_are_read() {
        for (text, steps) in [
            ("$", vec![]),
            ("$.a.b_1", vec![member("a"), member("b_1")]),
            ("$.größe", vec![member("größe")]),
            ("$['a b'][\"c'd\"]", vec![member("a b"), member("c'd")]),
            ("$['']", vec![member("")]),
            ("$[0][-1]", vec![Step::Index(0), Step::Index(-1)]),
            ("$[9007199254740991]", vec![Step::Index(INDEX_MAX)]),
            ("$ .a\n[ 'b'\t] [\r1 ]", vec![member("a"), member("b"), Step::Index(1)]),
            (r#"$['\'\\\/\b\f\n\r\t"']"#, vec![member("'\\/\u{8}\u{c}\n\r\t\"")]),
            (r#"$["\"\u0041\ud83D\uDE00\uE000"]"#, vec![member("\"A😀\u{e000}")]),
        ] {
            assert_eq!(JsonPath::parse(text), Ok(JsonPath(steps.into())), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, start, end, cause) in [
            ("", 0, 0, "begins with $"),
            ("a", 0, 1, "begins with $"),
            (" $", 0, 1, "begins with $"),
            ("$ ", 1, 2, "end with a blank"),
            ("$a", 1, 2, "expected here"),
            ("$.", 2, 2, "behind the dot"),
            ("$. a", 2, 3, "behind the dot"),
            ("$.1", 2, 3, "behind the dot"),
            ("$.a-b", 3, 4, "expected here"),
            ("$..a", 1, 3, "may name many"),
            ("$.*", 1, 3, "may name many"),
            ("$[*]", 2, 3, "may name many"),
            ("$[?@.a]", 2, 3, "may name many"),
            ("$[1:2]", 3, 4, "may name many"),
            ("$[:2]", 2, 3, "may name many"),
            ("$[1,2]", 3, 4, "may name many"),
            ("$[]", 2, 3, "in brackets"),
            ("$[a]", 2, 3, "in brackets"),
            ("$[1", 1, 3, "not closed"),
            ("$['a'x]", 5, 6, "] is expected"),
            ("$[-]", 2, 3, "has digits"),
            ("$[-0]", 2, 4, "-0"),
            ("$[01]", 2, 4, "leading zeros"),
            ("$[9007199254740992]", 2, 18, "between"),
            ("$[-9007199254740992]", 2, 19, "between"),
            ("$[99999999999999999999]", 2, 22, "between"),
            ("$['a", 2, 4, "no closing quote"),
            ("$['a\n']", 4, 5, "control characters"),
            (r#"$['\"']"#, 3, 5, "behind a backslash"),
            (r#"$["\'"]"#, 3, 5, "behind a backslash"),
            (r"$['\", 3, 4, "behind a backslash"),
            (r"$['\u12']", 3, 8, "four hexadecimal digits"),
            (r"$['\ud800']", 3, 9, "surrogate"),
            (r"$['\ud800\u0041']", 3, 15, "surrogate"),
            (r"$['\udc00']", 3, 9, "surrogate"),
        ] {
            let problem = JsonPath::parse(text).expect_err(text);
            assert_eq!((problem.start, problem.end), (start, end), "{text}: {}", problem.cause);
            assert!(problem.cause.contains(cause), "{text}: {}", problem.cause);
        }
    }

    #[test]
    fn a_path_is_written_in_one_way() {
        for (text, canonical) in [
            ("$ ['a'] [ 'b c' ]", r#"$.a["b c"]"#),
            (r"$['\u00e9\u0007\n']", "$[\"é\\u0007\\n\"]"),
            (r"$['\\\'']", r#"$["\\'"]"#),
            ("$['1'][\"\"][2]", r#"$["1"][""][2]"#),
        ] {
            let path = JsonPath::parse(text).expect(text);
            assert_eq!(path.to_string(), canonical);
            assert_eq!(JsonPath::parse(canonical), Ok(path));
        }
    }
}
