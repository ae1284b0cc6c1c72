//! The checked form of a selector: a tree of conditions over operands.

use core::fmt;

use super::path::JsonPath;

/// Something that is true, false or unknown.
///
/// `BETWEEN` is written out as two comparisons, `NOT LIKE`, `NOT IN` and `IS NOT NULL` as [`Condition::Not`] of their opposite.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// True or false, whatever the event.
    Constant(bool),
    /// Unknown, whatever the event: what comparisons with the NULL headers become.
    Unknown,
    /// A field used as a condition: true where its value is the boolean `true`, unknown where it is NULL, else false.
    Test(Field),
    /// Two values compared. Ordering is defined for numbers, equality for values of one type; values of different types are
    /// neither ordered, equal nor unequal: the comparison is false. Unknown if a side is NULL.
    Compare {
        /// How.
        op: Comparison,
        /// Left side.
        left: Operand,
        /// Right side.
        right: Operand,
    },
    /// Two conditions compared as values: `=` (or `<>` if `unequal`). Unknown if a side is unknown.
    Same {
        /// Left side.
        left: Box<Condition>,
        /// Right side.
        right: Box<Condition>,
        /// `<>`.
        unequal: bool,
    },
    /// A text looks like a pattern. Unknown if NULL, false if not text.
    Like {
        /// Whose text.
        field: Field,
        /// Like what.
        pattern: Pattern,
    },
    /// A text is one of several, which are sorted and distinct. Unknown if NULL, false if not text.
    In {
        /// Whose text.
        field: Field,
        /// One of these; at least one.
        list: Box<[Box<str>]>,
    },
    /// The field is missing or JSON `null`. Never unknown.
    IsNull(Field),
    /// The event's position is in a named fence. Unknown without a position or without such a fence.
    Within(Box<str>),
    /// All of them; at least two, none of them `And` itself.
    And(Box<[Condition]>),
    /// One of them; at least two, none of them `Or` itself.
    Or(Box<[Condition]>),
    /// True and false exchanged. Stands only before leaves and [`Condition::Same`]: it is pushed through `And` and `Or`.
    Not(Box<Condition>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub const fn mirrored(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::AtMost => Comparison::AtLeast,
            Comparison::Greater => Comparison::Less,
            Comparison::AtLeast => Comparison::AtMost,
            other => other,
        }
    }

    /// True for all but `=` and `<>`.
    pub const fn is_ordering(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::Unequal)
    }

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::Unequal => "<>",
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
        }
    }
}

/// Something with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A value in the selector's text.
    Literal(Literal),
    /// A value of the event.
    Field(Field),
    /// `-x`; NULL if the operand is no number.
    Negate(Box<Operand>),
    /// `x op y`; NULL if an operand is no number, or the result is none (division by zero, infinity less infinity).
    Arithmetic {
        /// Which operation.
        op: Operation,
        /// Left side.
        left: Box<Operand>,
        /// Right side.
        right: Box<Operand>,
    },
}

/// Arithmetic on two numbers. Two integers give an integer (division truncates towards zero), or a double where 64 bits overflow;
/// anything else gives a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
}

impl Operation {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
        }
    }
}

/// A value in the selector's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An exact number.
    Integer(i64),
    /// An approximate number; never NaN. An exact one beyond 64 bits is one too.
    Double(f64),
    /// Text.
    Text(Box<str>),
    /// `TRUE` or `FALSE`.
    Boolean(bool),
}

/// Where in an event a value is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The first attribute of that name.
    Attribute(Box<str>),
    /// `JMSPriority`: the importance, an integer.
    Priority,
    /// `JMSTimestamp`: when the event was accepted, ms since 1970, an integer.
    Timestamp,
    /// `JMSMessageID`: the event's id, text.
    MessageId,
    /// Another header that the Jakarta Messaging standard names; always NULL.
    Header(Box<str>),
    /// A value in the JSON payload.
    Json(JsonPath),
}

impl fmt::Display for Field {
    /// As it is written in a selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Attribute(name) if super::is_plain_identifier(name) => f.write_str(name),
            Field::Attribute(name) => write!(f, "\"{}\"", name.replace('"', "\"\"")),
            Field::Priority => f.write_str("JMSPriority"),
            Field::Timestamp => f.write_str("JMSTimestamp"),
            Field::MessageId => f.write_str("JMSMessageID"),
            Field::Header(name) => f.write_str(name),
            Field::Json(path) => write!(f, "json('{}')", path.to_string().replace('\'', "''")),
        }
    }
}

/// A `LIKE` pattern, its escapes resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(pub Box<[Piece]>);

/// A part of a [`Pattern`]. Neighbours are never both [`Piece::Text`], nor both [`Piece::AnyRun`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// Exactly this; not empty.
    Text(Box<str>),
    /// `_`: one character (Unicode scalar value).
    AnyOne,
    /// `%`: any number of characters.
    AnyRun,
}
