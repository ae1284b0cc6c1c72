//! Parser: from tokens to checked conditions.
//!
//! The lexer uses winnow. The grammar above it is written by hand: precedence climbing needs one
//! stack frame where a combinator per level needs eight, which matters for a client's text that is
//! nested 64 deep, and an error about a misplaced word can say what it was taken for.

use super::error::{Problem, excerpt};
use super::expr::{Comparison, Condition, Field, Literal, Operand, Operation, Pattern, Piece};
use super::headers::{header, named};
use super::lexer::{self, Kind, Lexer, Token};
use super::path::JsonPath;
use super::pattern;
use super::value::{self, Value};
use crate::fence::Fences;

/// The form in which a selector is written: parts of the language for people have another meaning
/// in canonical text, that of versions up to 0.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Written by a person.
    Written,
    /// Written by a broker: `/` truncates, and the headers that those versions do not know are
    /// NULL.
    Canonical,
}

/// The longest text and deepest nesting of a selector, and its form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) length: usize,
    pub(super) depth: usize,
    pub(super) form: Form,
}

/// The binding powers of operators; 0 is none.
mod power {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const COMPARE: u8 = 4;
    pub(super) const SUM: u8 = 5;
    pub(super) const PRODUCT: u8 = 6;
    pub(super) const SIGN: u8 = 7;
}

/// Parses one selector.
pub(super) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    /// The next token.
    token: Token<'a>,
    depth: usize,
    limits: Limits,
    fences: Option<&'a Fences>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, limits: Limits, fences: Option<&'a Fences>) -> Result<Parser<'a>, Problem> {
        if text.len() > limits.length {
            let mut start = limits.length;
            while !text.is_char_boundary(start) {
                start -= 1;
            }
            let cause = format!("a selector has at most {} bytes, this one has {}", limits.length, text.len());
            return Err(Problem::new(start, text.len(), cause));
        }
        let mut lexer = Lexer::new(text, limits.form);
        let token = lexer.next()?;
        Ok(Parser { text, lexer, token, depth: 0, limits, fences })
    }

    /// Parses the whole text as a condition that is not yet in canonical form.
    pub(super) fn parse(mut self) -> Result<Condition, Problem> {
        if self.token.kind == Kind::End {
            return Ok(Condition::Constant(true));
        }
        let value = self.expression(power::OR)?;
        match self.token.kind {
            Kind::End => value.into_condition(),
            Kind::Close => Err(self.unexpected(") has no ( before it")),
            _ => Err(self.unexpected(&format!(
                "an operator such as = or AND, or the end, is expected here, not {}",
                self.found()
            ))),
        }
    }

    fn advance(&mut self) -> Result<Token<'a>, Problem> {
        let next = self.lexer.next()?;
        Ok(core::mem::replace(&mut self.token, next))
    }

    fn eat_keyword(&mut self, keyword: &str) -> Result<bool, Problem> {
        let found = self.token.is_keyword(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// A description of the next token.
    fn found(&self) -> String {
        match &self.token.kind {
            Kind::End => "the end".to_owned(),
            _ => format!("`{}`", excerpt(&self.text[self.token.start..self.token.end])),
        }
    }

    fn unexpected(&self, cause: &str) -> Problem {
        Problem::new(self.token.start, self.token.end, cause)
    }

    fn expected(&self, what: &str) -> Problem {
        self.unexpected(&format!("{what} is expected here, not {}", self.found()))
    }

    /// Enters one level of nesting, which `token` opens.
    fn deeper(&mut self, token: &Token<'_>) -> Result<(), Problem> {
        self.depth += 1;
        if self.depth <= self.limits.depth {
            return Ok(());
        }
        let cause = format!("a selector is nested at most {} deep", self.limits.depth);
        Err(Problem::new(token.start, token.end, cause))
    }

    /// Parses an expression whose operators have at least the binding power `least`.
    fn expression(&mut self, least: u8) -> Result<Value, Problem> {
        let mut left = self.prefix(least)?;
        loop {
            let power = self.power();
            if power == 0 || power < least {
                return Ok(left);
            }
            left = match power {
                power::OR | power::AND => self.chain(left, power)?,
                power::COMPARE => self.predicate(left)?,
                _ => self.arithmetic(left, power)?,
            };
        }
    }

    /// The binding power of the next token if it is an operator between operands.
    fn power(&self) -> u8 {
        match self.token.kind {
            Kind::Compare(_) => power::COMPARE,
            Kind::Arithmetic(Operation::Add | Operation::Subtract) => power::SUM,
            Kind::Arithmetic(_) => power::PRODUCT,
            Kind::Word(word) => match lexer::keyword(word) {
                Some("OR") => power::OR,
                Some("AND") => power::AND,
                Some("NOT" | "BETWEEN" | "IN" | "LIKE" | "IS") => power::COMPARE,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// `left AND … AND …`, or the same with `OR`. Of any length: it is not nested.
    fn chain(&mut self, left: Value, power: u8) -> Result<Value, Problem> {
        let (start, mut end) = (left.start, left.end);
        let mut parts = vec![left.into_condition()?];
        while self.power() == power {
            self.advance()?;
            let next = self.expression(power + 1)?;
            end = next.end;
            parts.push(next.into_condition()?);
        }
        let parts = parts.into();
        let condition = if power == power::AND { Condition::And(parts) } else { Condition::Or(parts) };
        Ok(Value::condition(condition, start, end))
    }

    fn arithmetic(&mut self, left: Value, power: u8) -> Result<Value, Problem> {
        let Kind::Arithmetic(op) = self.advance()?.kind else {
            return Err(self.expected("an arithmetic operator"));
        };
        let right = self.expression(power + 1)?;
        Value::arithmetic(left, op, right)
    }

    /// Parses an expression that begins with the next token and has no operand before it.
    fn prefix(&mut self, least: u8) -> Result<Value, Problem> {
        let (start, end) = (self.token.start, self.token.end);
        match self.token.kind {
            Kind::Open => {
                let token = self.advance()?;
                self.deeper(&token)?;
                let mut inner = self.expression(power::OR)?;
                self.close(start)?;
                self.depth -= 1;
                (inner.start, inner.end) =
                    (start, self.text[..self.token.start].trim_end_matches(lexer::is_blank).len());
                Ok(inner)
            }
            Kind::Arithmetic(op @ (Operation::Add | Operation::Subtract)) => self.sign(op == Operation::Subtract),
            Kind::Word(word) => self.word(word, least),
            Kind::Quoted(_) | Kind::Text(_) | Kind::Integer(_) | Kind::Double(_) => Ok(match self.advance()?.kind {
                Kind::Quoted(name) => Value::field(Field::Attribute(name.into()), start, end),
                Kind::Text(text) => Value::literal(Literal::Text(text.into()), start, end),
                Kind::Integer(value) => Value::literal(integer(value, false), start, end),
                Kind::Double(value) => Value::literal(value::double(value), start, end),
                _ => return Err(self.expected("a value")),
            }),
            _ => Err(self.expected("a name, a value or a condition")),
        }
    }

    /// Parses the `)` for the `(` at `open`.
    fn close(&mut self, open: usize) -> Result<(), Problem> {
        match self.token.kind {
            Kind::Close => self.advance().map(|_| ()),
            Kind::End => Err(Problem::new(open, open + 1, "this ( is not closed")),
            _ => Err(self.expected("an operator or )")),
        }
    }

    /// `+x` and `-x`. The sign of a literal belongs to it and adds no nesting, so that the result
    /// of arithmetic on literals can be written anywhere.
    fn sign(&mut self, negative: bool) -> Result<Value, Problem> {
        let sign = self.advance()?;
        let literal = match self.token.kind {
            Kind::Integer(value) => integer(value, negative),
            Kind::Double(value) => value::double(if negative { -value } else { value }),
            _ => {
                self.deeper(&sign)?;
                let value = self.prefix(power::SIGN)?.signed(negative, sign.start)?;
                self.depth -= 1;
                return Ok(value);
            }
        };
        let end = self.advance()?.end;
        Ok(Value::literal(literal, sign.start, end))
    }

    fn word(&mut self, word: &'a str, least: u8) -> Result<Value, Problem> {
        let (start, end) = (self.token.start, self.token.end);
        match lexer::keyword(word) {
            Some("TRUE" | "FALSE") => {
                self.advance()?;
                let value = word.eq_ignore_ascii_case("TRUE");
                Ok(Value::literal(Literal::Boolean(value), start, end))
            }
            Some("NOT") if least > power::NOT => {
                Err(self.unexpected("NOT and what it negates are written in parentheses here"))
            }
            Some("NOT") => {
                let token = self.advance()?;
                self.deeper(&token)?;
                let inner = self.expression(power::NOT)?;
                self.depth -= 1;
                let end = inner.end;
                Ok(Value::condition(Condition::Not(Box::new(inner.into_condition()?)), start, end))
            }
            Some("NULL") => Err(self.unexpected("NULL is no value; whether something is missing is asked by IS NULL")),
            Some(keyword) => {
                let cause = format!(
                    "{keyword} is a keyword, but a name, a value or a condition is expected here; the name is written \"{word}\""
                );
                Err(self.unexpected(&cause))
            }
            None => {
                self.advance()?;
                if self.token.kind == Kind::Open {
                    return self.function(word, start, end);
                }
                let field = match named(word) {
                    Field::CorrelationId | Field::ContentType if self.limits.form == Form::Canonical => {
                        Field::Header(word.into())
                    }
                    field => field,
                };
                Ok(Value::field(field, start, end))
            }
        }
    }

    fn function(&mut self, name: &str, start: usize, end: usize) -> Result<Value, Problem> {
        let what = match name.to_ascii_lowercase().as_str() {
            "json" => "a JSON path in single quotes",
            "within" => "the name of a fence in single quotes",
            "header" => "the name of a header in single quotes",
            _ => {
                let cause =
                    format!("there is no function {}; there are json('$.path') and within('fence')", excerpt(name));
                return Err(Problem::new(start, end, cause));
            }
        };
        let open = self.token.start;
        self.advance()?;
        let Kind::Text(argument) = self.token.kind.clone() else { return Err(self.expected(what)) };
        let at = (self.token.start, self.token.end);
        self.advance()?;
        let end = self.token.end;
        match self.token.kind {
            Kind::Close => self.advance()?,
            Kind::End => return Err(Problem::new(open, open + 1, "this ( is not closed")),
            _ => return Err(self.expected(")")),
        };
        if name.eq_ignore_ascii_case("json") {
            return Ok(Value::field(Field::Json(self.path(&argument, at.0)?), start, end));
        }
        if name.eq_ignore_ascii_case("header") {
            let cause = "header() is for 'JMSCorrelationID' and 'JMSType'; other names are written alone";
            let field = header(&argument).ok_or_else(|| Problem::new(at.0, at.1, cause))?;
            return Ok(Value::field(field, start, end));
        }
        self.check_fence(&argument, at)?;
        Ok(Value::condition(Condition::Within(argument.into()), start, end))
    }

    /// The path in the literal that begins at `start`.
    fn path(&self, path: &str, start: usize) -> Result<JsonPath, Problem> {
        JsonPath::parse(path).map_err(|problem| {
            // In the literal each quote is doubled.
            let outside = |inside: usize| start + 1 + inside + path[..inside].matches('\'').count();
            Problem::new(outside(problem.start), outside(problem.end), problem.cause)
        })
    }

    fn check_fence(&self, name: &str, (start, end): (usize, usize)) -> Result<(), Problem> {
        let Some(fences) = self.fences else { return Ok(()) };
        if fences.contains_name(name) {
            return Ok(());
        }
        let near = nearest(name, fences);
        let cause = match near {
            Some(known) => format!("there is no fence of this name; there is one named '{}'", excerpt(known)),
            None => "there is no fence of this name".to_owned(),
        };
        Err(Problem::new(start, end, cause))
    }

    /// Parses a comparison, or a predicate in its place, after its first operand.
    fn predicate(&mut self, left: Value) -> Result<Value, Problem> {
        let start = left.start;
        let first = self.advance()?;
        let condition = match first.kind {
            Kind::Compare(op) => self.comparison(op, left)?,
            _ if first.is_keyword("IS") => self.is_null(left)?,
            _ if first.is_keyword("NOT") => {
                let keyword = self.advance_to_negatable()?;
                self.worded(&keyword, left, true)?
            }
            _ => self.worded(&first, left, false)?,
        };
        if self.power() == power::COMPARE {
            let chained = matches!((&first.kind, &self.token.kind), (Kind::Compare(_), Kind::Compare(_)));
            let hint =
                if chained { "a < b < c is written a < b AND b < c" } else { "one of them is written in parentheses" };
            return Err(self.unexpected(&format!("comparisons do not follow each other; {hint}")));
        }
        let end = self.text[..self.token.start].trim_end_matches(lexer::is_blank).len();
        Ok(Value::condition(condition, start, end))
    }

    fn advance_to_negatable(&mut self) -> Result<Token<'a>, Problem> {
        if ["BETWEEN", "IN", "LIKE"].into_iter().any(|keyword| self.token.is_keyword(keyword)) {
            return self.advance();
        }
        Err(self.expected("BETWEEN, IN or LIKE (or AND or OR before NOT)"))
    }

    fn comparison(&mut self, op: Comparison, left: Value) -> Result<Condition, Problem> {
        if self.token.is_keyword("NULL") {
            let hint = if op == Comparison::Unequal { "IS NOT NULL" } else { "IS NULL" };
            let cause = format!("a comparison with NULL is never true; write {hint}");
            return Err(self.unexpected(&cause));
        }
        let right = self.expression(power::SUM)?;
        value::compare(op, left, right)
    }

    fn is_null(&mut self, left: Value) -> Result<Condition, Problem> {
        let negated = self.eat_keyword("NOT")?;
        if !self.eat_keyword("NULL")? {
            return Err(self.expected(if negated { "NULL" } else { "NULL or NOT NULL" }));
        }
        let condition = match left.into_field("IS NULL")? {
            Field::Header(_) => Condition::Constant(true),
            field => Condition::IsNull(field),
        };
        Ok(if negated { Condition::Not(Box::new(condition)) } else { condition })
    }

    /// Parses the rest after `BETWEEN`, `IN` or `LIKE`.
    fn worded(&mut self, keyword: &Token<'a>, left: Value, negated: bool) -> Result<Condition, Problem> {
        if keyword.is_keyword("BETWEEN") {
            return self.between(left, negated);
        }
        let condition = if keyword.is_keyword("IN") {
            self.one_of(left.into_field("IN")?)?
        } else {
            self.like(left.into_field("LIKE")?)?
        };
        Ok(if negated { Condition::Not(Box::new(condition)) } else { condition })
    }

    fn between(&mut self, left: Value, negated: bool) -> Result<Condition, Problem> {
        let low = self.expression(power::SUM)?;
        if !self.eat_keyword("AND")? {
            return Err(self.expected("AND and the upper bound"));
        }
        let high = self.expression(power::SUM)?;
        let (below, above) =
            if negated { (Comparison::Less, Comparison::Greater) } else { (Comparison::AtLeast, Comparison::AtMost) };
        let parts = Box::new([value::compare(below, left.clone(), low)?, value::compare(above, left, high)?]);
        Ok(if negated { Condition::Or(parts) } else { Condition::And(parts) })
    }

    fn one_of(&mut self, field: Field) -> Result<Condition, Problem> {
        let open = self.token.start;
        if self.token.kind != Kind::Open {
            return Err(self.expected("( and a list of texts"));
        }
        let mut list: Vec<Box<str>> = Vec::new();
        loop {
            self.advance()?;
            match &self.token.kind {
                Kind::Text(text) => list.push(text.as_str().into()),
                Kind::Close if list.is_empty() => return Err(self.unexpected("the list of IN has at least one text")),
                Kind::Integer(_) | Kind::Double(_) | Kind::Arithmetic(_) => {
                    return Err(
                        self.unexpected("the list of IN has texts only; numbers are compared by = and joined by OR")
                    );
                }
                _ => return Err(self.expected("a text in single quotes")),
            }
            self.advance()?;
            match self.token.kind {
                Kind::Comma => {}
                Kind::Close => break,
                Kind::End => return Err(Problem::new(open, open + 1, "this ( is not closed")),
                _ => return Err(self.expected(", or )")),
            }
        }
        self.advance()?;
        list.sort_unstable();
        list.dedup();
        Ok(match (field, list) {
            (Field::Header(_), _) => Condition::Unknown,
            (field, mut list) if list.len() == 1 => equals(field, list.remove(0)),
            (field, list) => Condition::In { field, list: list.into() },
        })
    }

    fn like(&mut self, field: Field) -> Result<Condition, Problem> {
        let Kind::Text(pattern) = self.token.kind.clone() else {
            return Err(self.expected("a pattern in single quotes"));
        };
        let start = self.token.start;
        self.advance()?;
        let mut escape = None;
        if self.eat_keyword("ESCAPE")? {
            let Kind::Text(text) = &self.token.kind else {
                return Err(self.expected("the escape character in single quotes"));
            };
            let mut characters = text.chars();
            escape = characters.next();
            if escape.is_none() || characters.next().is_some() {
                return Err(self.unexpected("ESCAPE names exactly one character"));
            }
            self.advance()?;
        }
        let mut pieces = pattern::parse(&pattern, escape, start)?;
        Ok(match (field, pieces.as_mut_slice()) {
            (Field::Header(_), _) => Condition::Unknown,
            (field, []) => equals(field, "".into()),
            (field, [Piece::Text(text)]) => equals(field, core::mem::take(text)),
            (field, _) => Condition::Like { field, pattern: Pattern(pieces.into()) },
        })
    }
}

/// The fence whose name is most similar to `name`, if one is similar enough. Compares names of
/// similar length, and a limited number, because clients may ask repeatedly.
fn nearest<'f>(name: &str, fences: &'f Fences) -> Option<&'f str> {
    const LONGEST: usize = 32;
    const CANDIDATES: usize = 100;
    if name.len() > LONGEST {
        return None;
    }
    let edits = (name.chars().count() / 3).max(1);
    let alike = fences.names().filter(|known| known.len().abs_diff(name.len()) <= edits && known.len() <= LONGEST);
    let measured = alike.take(CANDIDATES).map(|known| (strsim::damerau_levenshtein(known, name), known));
    measured.filter(|(distance, _)| *distance <= edits).min().map(|(_, known)| known)
}

fn equals(field: Field, text: Box<str>) -> Condition {
    let (left, right) = (Operand::Field(field), Operand::Literal(Literal::Text(text)));
    Condition::Compare { op: Comparison::Equal, left, right }
}

/// The literal of a number of at most 2^63.
fn integer(magnitude: u64, negative: bool) -> Literal {
    let signed = if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    let double = || value::double(if negative { -(magnitude as f64) } else { magnitude as f64 });
    signed.map_or_else(double, Literal::Integer)
}
