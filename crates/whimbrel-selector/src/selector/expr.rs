//! The checked form of a selector: a tree of conditions over operands.

use core::cmp::Ordering;

use super::path::JsonPath;

/// A condition that is true, false or unknown.
///
/// `BETWEEN` is written out as two comparisons, `NOT LIKE`, `NOT IN` and `IS NOT NULL` as
/// [`Condition::Not`] of their opposite.
///
/// In a [`super::Selector`] the tree is in canonical form:
/// - A constant stands alone, at the top; [`Condition::Unknown`] there or in `And` and `Or`. No
///   other condition has a constant value that its literals show, and there is no
///   [`Field::Header`].
/// - A literal side of a comparison is the right one; of two others the left one is the smaller. A
///   literal double that is an integer of 64 bits is written as an integer where it is compared.
/// - Comparisons with `TRUE` are [`Condition::Test`], those with `FALSE` are `=`.
/// - `LIKE` without wildcard and `IN` with one text are `=`.
/// - The operands of `And` and `Or` are sorted and distinct; of the sides of [`Condition::Same`]
///   the left one is the smaller, and neither is a constant, unknown, or [`Condition::Not`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// True or false for every event.
    Constant(bool),
    /// Unknown for every event: the form of comparisons with the NULL headers.
    Unknown,
    /// A field used as a condition: true if its value is the boolean `true`, unknown if it is NULL,
    /// otherwise false.
    Test(Field),
    /// Two values compared. Ordering is defined for numbers, equality for values of one type;
    /// values of different types are neither ordered, equal nor unequal: the comparison is false.
    /// Unknown if a side is NULL.
    Compare {
        /// The comparison.
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
    /// A text matches a pattern. Unknown if NULL, false if not text.
    Like {
        /// The field with the text.
        field: Field,
        /// The pattern.
        pattern: Pattern,
    },
    /// A text is one of several, which are sorted and distinct. Unknown if NULL, false if not text.
    In {
        /// The field with the text.
        field: Field,
        /// The texts; at least one.
        list: Box<[Box<str>]>,
    },
    /// The field is missing or JSON `null`. Never unknown.
    IsNull(Field),
    /// The event's position is in a named fence. Unknown without a position or without such a
    /// fence.
    Within(Box<str>),
    /// The conjunction; at least two operands, none of them `And` itself.
    And(Box<[Condition]>),
    /// The disjunction; at least two operands, none of them `Or` itself.
    Or(Box<[Condition]>),
    /// The negation. Only before leaves that are not constant: it is pushed through `And` and `Or`
    /// (De Morgan's laws hold with three values, too), and [`Condition::Same`] absorbs it.
    Not(Box<Condition>),
}

/// The comparison of two values.
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

    /// True for all comparisons except `=` and `<>`.
    pub const fn is_ordering(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::Unequal)
    }

    /// The comparison's text.
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

/// An expression with a value. At most [`super::OPERATIONS_MAX`] operations deep; operations on
/// literals alone are calculated, except for those that overflow a double.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operand {
    /// A value in the selector's text.
    Literal(Literal),
    /// A value of the event.
    Field(Field),
    /// `-x`; NULL if the operand is not a number.
    Negate(Box<Operand>),
    /// `x op y`; NULL if an operand is not a number, or the result is none (division by zero,
    /// infinity less infinity).
    Arithmetic {
        /// The operation.
        op: Operation,
        /// Left side.
        left: Box<Operand>,
        /// Right side.
        right: Box<Operand>,
    },
}

/// Arithmetic on two numbers. Two integers give an integer, or a double where 64 bits overflow;
/// anything else gives a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, in canonical text `÷`: two integers give an integer if the division leaves no
    /// remainder, otherwise a double.
    Divide,
    /// `/` in canonical text: the division of versions up to 0.2, in which two integers give an
    /// integer, truncated towards zero. Selectors that such a version has stored, or sends, keep
    /// it.
    DivideWhole,
}

impl Operation {
    /// The operation's canonical text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "÷",
            Operation::DivideWhole => "/",
        }
    }
}

/// A value in the selector's text.
#[derive(Clone, Debug)]
pub enum Literal {
    /// An exact number.
    Integer(i64),
    /// An approximate number; finite, and not -0.0. An exact number beyond 64 bits becomes one too.
    Double(f64),
    /// Text.
    Text(Box<str>),
    /// `TRUE` or `FALSE`.
    Boolean(bool),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Literal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An order for the canonical form, not for comparing values: the integer 5 differs from the double
/// 5.0, because calculations with them differ.
impl Ord for Literal {
    fn cmp(&self, other: &Literal) -> Ordering {
        match (self, other) {
            (Literal::Integer(a), Literal::Integer(b)) => a.cmp(b),
            (Literal::Double(a), Literal::Double(b)) => a.total_cmp(b),
            (Literal::Text(a), Literal::Text(b)) => a.cmp(b),
            (Literal::Boolean(a), Literal::Boolean(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Literal {
    fn rank(&self) -> u8 {
        match self {
            Literal::Integer(_) => 0,
            Literal::Double(_) => 1,
            Literal::Text(_) => 2,
            Literal::Boolean(_) => 3,
        }
    }
}

/// The source of a value in an event.
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
    /// `JMSCorrelationID`: the Correlation Data, text; NULL where it is not UTF-8.
    CorrelationId,
    /// `JMSType`: the Content Type, text.
    ContentType,
    /// Another header that the Jakarta Messaging standard names; always NULL.
    Header(Box<str>),
    /// A value in the JSON payload.
    Json(JsonPath),
}

/// A `LIKE` pattern, its escapes resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(pub Box<[Piece]>);

/// A part of a [`Pattern`]. Neighbours are never both [`Piece::Text`], nor both [`Piece::AnyRun`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// This text; not empty.
    Text(Box<str>),
    /// `_`: one character (Unicode scalar value).
    AnyOne,
    /// `%`: any number of characters.
    AnyRun,
}
