//! Words, numbers, texts and symbols.

use winnow::Parser;
use winnow::combinator::{alt, delimited, opt, repeat};
use winnow::error::EmptyError;
use winnow::token::{one_of, take_while};

use super::error::{Problem, excerpt};
use super::expr::{Comparison, Operation};
use super::number;
use super::parser::Form;

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'a> {
    /// Keyword or identifier.
    Word(&'a str),
    /// `"…"`: always an identifier.
    Quoted(String),
    /// `'…'`
    Text(String),
    /// At most 2^63, which is an integer only after a minus sign.
    Integer(u64),
    /// Finite.
    Double(f64),
    Compare(Comparison),
    Arithmetic(Operation),
    Open,
    Close,
    Comma,
    End,
}

/// A token and its bytes in the text.
#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Token<'_> {
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.kind, Kind::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

const KEYWORDS: [&str; 11] = ["TRUE", "FALSE", "NULL", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"];

/// The keyword equal to `word`, in any case.
pub(super) fn keyword(word: &str) -> Option<&'static str> {
    KEYWORDS.into_iter().find(|keyword| word.eq_ignore_ascii_case(keyword))
}

/// `Character.isJavaIdentifierStart`: letters, letter numbers, currency signs, connectors.
pub(super) fn starts_identifier(c: char) -> bool {
    unicode_ident::is_xid_start(c) || is_currency(c) || is_connector(c)
}

/// `Character.isJavaIdentifierPart`, without the characters that Java ignores in identifiers:
/// invisible characters have to be in quotes.
pub(super) fn continues_identifier(c: char) -> bool {
    unicode_ident::is_xid_continue(c) || is_currency(c) || is_connector(c)
}

/// Unicode category Sc.
fn is_currency(c: char) -> bool {
    matches!(c, '$' | '¢'..='¥' | '\u{58f}' | '\u{60b}' | '\u{7fe}' | '\u{7ff}' | '\u{9f2}' | '\u{9f3}' | '\u{9fb}' | '\u{af1}'
        | '\u{bf9}' | '\u{e3f}' | '\u{17db}' | '\u{20a0}'..='\u{20c0}' | '\u{a838}' | '\u{fdfc}' | '\u{fe69}' | '\u{ff04}'
        | '\u{ffe0}' | '\u{ffe1}' | '\u{ffe5}' | '\u{ffe6}' | '\u{11fdd}'..='\u{11fe0}' | '\u{1e2ff}' | '\u{1ecb0}')
}

/// Unicode category Pc.
fn is_connector(c: char) -> bool {
    matches!(
        c,
        '_' | '\u{203f}' | '\u{2040}' | '\u{2054}' | '\u{fe33}' | '\u{fe34}' | '\u{fe4d}'..='\u{fe4f}' | '\u{ff3f}'
    )
}

/// The blanks of the language: Java's space, tab, form feed and line ends.
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}')
}

/// Makes tokens of a text, one at a time, so that the leftmost error is reported.
pub(super) struct Lexer<'a> {
    text: &'a str,
    rest: &'a str,
    form: Form,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str, form: Form) -> Lexer<'a> {
        Lexer { text, rest: text, form }
    }

    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// The next token; [`Kind::End`] at the end, also when called again.
    pub(super) fn next(&mut self) -> Result<Token<'a>, Problem> {
        self.rest = self.rest.trim_start_matches(is_blank);
        let start = self.offset();
        let Some(first) = self.rest.chars().next() else {
            return Ok(Token { kind: Kind::End, start, end: start });
        };
        let kind = match first {
            '\'' => Kind::Text(self.quoted('\'')?),
            '"' => Kind::Quoted(self.quoted('"')?),
            '0'..='9' => self.number()?,
            '.' if self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            c if starts_identifier(c) => self.word()?,
            c => self.symbol(c)?,
        };
        let end = self.offset();
        match kind {
            Kind::Word(word) if keyword(word).is_some() => {}
            Kind::Word(_) | Kind::Quoted(_) => self.refuse_dot(start)?,
            _ => {}
        }
        Ok(Token { kind, start, end })
    }

    fn quoted(&mut self, quote: char) -> Result<String, Problem> {
        let start = self.offset();
        let inside = take_while::<_, &str, EmptyError>(1.., move |c| c != quote);
        let doubled = (quote, quote).take().map(|pair: &str| &pair[..1]);
        let content = repeat(0.., alt((inside, doubled))).fold(String::new, |mut content, part| {
            content.push_str(part);
            content
        });
        let what = if quote == '"' { "name" } else { "text" };
        let content = delimited(quote, content, quote).parse_next(&mut self.rest).map_err(|EmptyError| {
            Problem::new(start, self.text.len(), format!("the {what} that begins here has no closing {quote}"))
        })?;
        // Canonical text may be long as a whole, but of its literals only a pattern gets longer
        // when it is written, and at most twice as long.
        if content.len() > 2 * super::SELECTOR_MAX {
            return Err(Problem::new(start, self.offset(), format!("this {what} is longer than a selector may be")));
        }
        Ok(content)
    }

    fn word(&mut self) -> Result<Kind<'a>, Problem> {
        take_while::<_, &str, EmptyError>(1.., continues_identifier)
            .parse_next(&mut self.rest)
            .map(Kind::Word)
            .map_err(|EmptyError| self.unexpected(self.offset(), 1))
    }

    /// Takes all characters that may belong to a number; an error unless they are one as a whole.
    fn number(&mut self) -> Result<Kind<'a>, Problem> {
        let start = self.offset();
        let hexadecimal = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let exponent = if hexadecimal { ['p', 'P'] } else { ['e', 'E'] };
        let signed = (one_of(exponent), one_of(['+', '-'])).void();
        let other = one_of(|c: char| c == '.' || continues_identifier(c)).void();
        let mut run = repeat::<_, _, (), _, _>(1.., alt((signed, other))).take();
        let run: &str = run.parse_next(&mut self.rest).map_err(|EmptyError: EmptyError| self.unexpected(start, 1))?;
        number::parse(run).map_err(|cause| Problem::new(start, start + run.len(), cause))
    }

    fn symbol(&mut self, first: char) -> Result<Kind<'a>, Problem> {
        let start = self.offset();
        for (wrong, cause) in [
            ("==", "equality is written ="),
            ("=>", "\"at least\" is written >="),
            ("=<", "\"at most\" is written <="),
            ("!=", "inequality is written <>"),
            ("!", "negation is written NOT"),
            ("&&", "the conjunction is written AND"),
            ("||", "the disjunction is written OR"),
            ("%", "there is no remainder operator; % has a meaning only in LIKE patterns"),
            (".", "a dot belongs into a number, or into a name in double quotes"),
        ] {
            if self.rest.starts_with(wrong) {
                return Err(Problem::new(start, start + wrong.len(), cause));
            }
        }
        let compare = alt((
            "<>".value(Comparison::Unequal),
            "<=".value(Comparison::AtMost),
            ">=".value(Comparison::AtLeast),
            "<".value(Comparison::Less),
            ">".value(Comparison::Greater),
            "=".value(Comparison::Equal),
        ));
        let arithmetic = alt((
            '+'.value(Operation::Add),
            '-'.value(Operation::Subtract),
            '*'.value(Operation::Multiply),
            '÷'.value(Operation::Divide),
            '/'.value(match self.form {
                Form::Written => Operation::Divide,
                Form::Canonical => Operation::DivideWhole,
            }),
        ));
        alt((
            compare.map(Kind::Compare),
            arithmetic.map(Kind::Arithmetic),
            '('.value(Kind::Open),
            ')'.value(Kind::Close),
            ','.value(Kind::Comma),
        ))
        .parse_next(&mut self.rest)
        .map_err(|EmptyError| self.unexpected(start, first.len_utf8()))
    }

    fn unexpected(&self, start: usize, length: usize) -> Problem {
        let found = &self.text[start..start + length];
        let cause = match found {
            "‘" | "’" | "`" | "´" => format!("{found} is no quote here; text is written in straight quotes: '"),
            "“" | "”" | "„" => format!("{found} is no quote here; names are written in straight quotes: \""),
            _ => format!("the character {:?} has no meaning outside quotes", found.chars().next().unwrap_or_default()),
        };
        Problem::new(start, start + length, cause)
    }

    /// Refuses a dot after a name: `fleet.speed` would otherwise be three tokens with a confusing
    /// error.
    fn refuse_dot(&mut self, start: usize) -> Result<(), Problem> {
        let name = |c: char| c == '.' || continues_identifier(c);
        let before = self.offset();
        let tail: Option<&str> =
            opt(('.', take_while::<_, &str, EmptyError>(0.., name)).take()).parse_next(&mut self.rest).unwrap_or(None);
        let Some(tail) = tail else { return Ok(()) };
        let end = before + tail.len();
        let whole = format!("{}{tail}", self.text[start..before].trim_matches('"'));
        let cause =
            format!("a name with a dot is written in double quotes: \"{}\"", excerpt(whole.trim_end_matches('.')));
        Err(Problem::new(start, end, cause))
    }
}
