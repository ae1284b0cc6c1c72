//! Canonical text.

use core::fmt::{self, Write};

use super::expr::{Comparison, Condition, Field, Literal, Operand, Operation, Pattern};
use super::headers;
use super::lexer;
use super::pattern;

/// Whether `name` without quotes means the attribute of that name.
fn is_plain_identifier(name: &str) -> bool {
    name.starts_with(lexer::starts_identifier)
        && name.chars().all(lexer::continues_identifier)
        && lexer::keyword(name).is_none()
        && matches!(headers::named(name), Field::Attribute(_))
}

impl fmt::Display for Field {
    /// Writes the field in a selector's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Attribute(name) if is_plain_identifier(name) => f.write_str(name),
            Field::Attribute(name) => write_quoted(f, '"', name),
            Field::Priority => f.write_str("JMSPriority"),
            Field::Timestamp => f.write_str("JMSTimestamp"),
            Field::MessageId => f.write_str("JMSMessageID"),
            // Versions up to 0.2 read the bare names as NULL, and do not understand these: they let
            // everything through then, where the bare name would let nothing through.
            Field::CorrelationId => f.write_str("header('JMSCorrelationID')"),
            Field::ContentType => f.write_str("header('JMSType')"),
            Field::Header(name) => f.write_str(name),
            Field::Json(path) => {
                f.write_str("json(")?;
                write_quoted(f, '\'', &path.to_string())?;
                f.write_char(')')
            }
        }
    }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, quote: char, content: &str) -> fmt::Result {
    f.write_char(quote)?;
    for c in content.chars() {
        if c == quote {
            f.write_char(quote)?;
        }
        f.write_char(c)?;
    }
    f.write_char(quote)
}

impl fmt::Display for Condition {
    /// Writes the condition in a selector's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Constant(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
            // The language has no word for unknown; this header is always NULL.
            Condition::Unknown => f.write_str("JMSDestination"),
            Condition::Test(field) => field.fmt(f),
            Condition::Compare { op, left, right } => write!(f, "{left} {} {right}", op.as_str()),
            Condition::Same { left, right, unequal } => {
                write_side(f, left)?;
                let op = if *unequal { Comparison::Unequal } else { Comparison::Equal };
                write!(f, " {} ", op.as_str())?;
                write_side(f, right)
            }
            Condition::Like { field, pattern } => write_like(f, field, pattern, ""),
            Condition::In { field, list } => write_in(f, field, list, ""),
            Condition::IsNull(field) => write!(f, "{field} IS NULL"),
            Condition::Within(name) => {
                f.write_str("within(")?;
                write_quoted(f, '\'', name)?;
                f.write_char(')')
            }
            Condition::And(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    f.write_str(if number == 0 { "" } else { " AND " })?;
                    if matches!(part, Condition::Or(_)) { write!(f, "({part})")? } else { part.fmt(f)? }
                }
                Ok(())
            }
            Condition::Or(parts) => {
                for (number, part) in parts.iter().enumerate() {
                    f.write_str(if number == 0 { "" } else { " OR " })?;
                    part.fmt(f)?;
                }
                Ok(())
            }
            Condition::Not(inner) => match &**inner {
                Condition::Like { field, pattern } => write_like(f, field, pattern, " NOT"),
                Condition::In { field, list } => write_in(f, field, list, " NOT"),
                Condition::IsNull(field) => write!(f, "{field} IS NOT NULL"),
                Condition::And(_) | Condition::Or(_) => write!(f, "NOT ({inner})"),
                other => write!(f, "NOT {other}"),
            },
        }
    }
}

/// Writes a side of a comparison of conditions. A bare field would be read as its value, not as a
/// condition.
fn write_side(f: &mut fmt::Formatter<'_>, side: &Condition) -> fmt::Result {
    match side {
        Condition::Test(field) => write!(f, "({field} = TRUE)"),
        Condition::Within(_) | Condition::Constant(_) => write!(f, "{side}"),
        _ => write!(f, "({side})"),
    }
}

fn write_in(f: &mut fmt::Formatter<'_>, field: &Field, list: &[Box<str>], not: &str) -> fmt::Result {
    write!(f, "{field}{not} IN (")?;
    for (number, text) in list.iter().enumerate() {
        f.write_str(if number == 0 { "" } else { ", " })?;
        write_quoted(f, '\'', text)?;
    }
    f.write_char(')')
}

fn write_like(f: &mut fmt::Formatter<'_>, field: &Field, pattern: &Pattern, not: &str) -> fmt::Result {
    let (written, escapes) = pattern::write(pattern);
    write!(f, "{field}{not} LIKE ")?;
    write_quoted(f, '\'', &written)?;
    f.write_str(if escapes { " ESCAPE '\\'" } else { "" })
}

impl fmt::Display for Operand {
    /// Writes the operand in a selector's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Literal(literal) => literal.fmt(f),
            Operand::Field(field) => field.fmt(f),
            Operand::Negate(inner) => {
                f.write_char('-')?;
                write_operand(f, inner, binding(inner) < binding(self))
            }
            Operand::Arithmetic { op, left, right } => {
                write_operand(f, left, binding(left) < binding(self))?;
                write!(f, " {} ", op.as_str())?;
                write_operand(f, right, binding(right) <= binding(self))
            }
        }
    }
}

fn write_operand(f: &mut fmt::Formatter<'_>, operand: &Operand, parentheses: bool) -> fmt::Result {
    if parentheses { write!(f, "({operand})") } else { write!(f, "{operand}") }
}

/// The precedence of an operand.
fn binding(operand: &Operand) -> u8 {
    match operand {
        Operand::Arithmetic { op: Operation::Add | Operation::Subtract, .. } => 0,
        Operand::Arithmetic { .. } => 1,
        Operand::Negate(_) => 2,
        Operand::Literal(_) | Operand::Field(_) => 3,
    }
}

impl fmt::Display for Literal {
    /// Writes the literal in a selector's form; a double in the fewest digits that identify it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Integer(value) => value.fmt(f),
            Literal::Double(value) => {
                let (plain, scientific) = (format!("{value:?}"), format!("{value:e}"));
                f.write_str(if scientific.len() < plain.len() { &scientific } else { &plain })
            }
            Literal::Text(text) => write_quoted(f, '\'', text),
            Literal::Boolean(value) => f.write_str(if *value { "TRUE" } else { "FALSE" }),
        }
    }
}
