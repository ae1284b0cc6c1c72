//! Selectors: conditions on events, in the language of Jakarta Messaging 3.1 with `json()` and
//! `within()`.

mod display;
mod error;
mod expr;
mod headers;
mod lexer;
mod normal;
mod number;
mod parser;
mod path;
mod pattern;
mod value;

use core::fmt;
use std::collections::BTreeSet;

pub use error::SelectorError;
pub use expr::{Comparison, Condition, Field, Literal, Operand, Operation, Pattern, Piece};
pub use path::{JsonPath, Step};

use crate::fence::Fences;
use parser::{Form, Limits, Parser};

/// The longest selector, bytes.
pub const SELECTOR_MAX: usize = 8 * 1024;

/// How deep a selector may be nested: parentheses that group, `NOT`, and signs (but for those of
/// number literals) each count one. `a AND b AND c` and `a + b + c` are as deep as their parts.
pub const DEPTH_MAX: usize = 64;

/// The most arithmetic operations of which each needs the result of another, `a + b + c` being two.
/// It bounds the stack that evaluation needs.
pub const OPERATIONS_MAX: usize = 256;

/// The longest canonical text of a selector, bytes. Writing out `BETWEEN` doubles an operand,
/// numbers and blanks may take more room than they were given, and `NOT` moves inwards; together
/// that is less than this factor.
pub const CANONICAL_MAX: usize = 16 * SELECTOR_MAX;

/// How deep canonical text may be nested. It may get deeper by the parentheses of what
/// `NOT BETWEEN` and `NOT` before `BETWEEN` become, and of a field that is compared with a
/// condition.
const CANONICAL_DEPTH_MAX: usize = DEPTH_MAX + 8;

/// What a person writes.
const WRITTEN: Limits = Limits { length: SELECTOR_MAX, depth: DEPTH_MAX, form: Form::Written };

/// What a broker has written.
const CANONICAL: Limits = Limits { length: CANONICAL_MAX, depth: CANONICAL_DEPTH_MAX, form: Form::Canonical };

/// A condition on events, checked and in canonical form. Selectors that differ only in writing are
/// equal.
///
/// ```
/// use whimbrel_selector::Selector;
///
/// let selector = Selector::parse("NOT (speed <= 80 OR 'red' <> color)")?;
/// assert_eq!(selector.to_string(), "NOT color <> 'red' AND NOT speed <= 80");
/// assert_eq!(Selector::parse(&selector.to_string())?, selector);
///
/// let error = Selector::parse("speed > 80 && color = 'red'").unwrap_err();
/// assert_eq!(error.to_string(), "selector, position 12: the conjunction is written AND");
/// # Ok::<(), whimbrel_selector::SelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    condition: Condition,
}

impl Selector {
    /// Parses `text`. A blank text matches everything.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        Self::parse_within(text, WRITTEN, None)
    }

    /// Parses `text` and refuses names of fences that `fences` does not have.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn parse_with(text: &str, fences: &Fences) -> Result<Selector, SelectorError> {
        Self::parse_within(text, WRITTEN, Some(fences))
    }

    /// Parses what a selector was written as ([`fmt::Display`]), by this version or an earlier one.
    /// Such a text may be longer and deeper than what it was made from; the limits here
    /// ([`CANONICAL_MAX`]) let it pass. It keeps the meaning that it had where it was written: `/`
    /// of integers truncates here, as it did for everybody up to version 0.2, and
    /// `JMSCorrelationID` and `JMSType` are NULL. What has the meaning of today is written so that
    /// those versions do not understand it.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn parse_canonical(text: &str) -> Result<Selector, SelectorError> {
        Self::parse_within(text, CANONICAL, None)
    }

    fn parse_within(text: &str, limits: Limits, fences: Option<&Fences>) -> Result<Selector, SelectorError> {
        let parsed = Parser::new(text, limits, fences).and_then(Parser::parse);
        let condition = parsed.map_err(|problem| problem.in_text(text))?;
        Ok(Selector { condition: normal::normalize(condition, false) })
    }

    /// What must be true.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Whether it matches every event, and the text alone shows that.
    pub fn is_everything(&self) -> bool {
        self.condition == Condition::Constant(true)
    }

    /// The names of the fences it refers to, sorted and distinct.
    pub fn fences(&self) -> impl Iterator<Item = &str> {
        let mut names = BTreeSet::new();
        normal::for_each_leaf(&self.condition, &mut |leaf| {
            if let Condition::Within(name) = leaf {
                names.insert(&**name);
            }
        });
        names.into_iter()
    }

    /// Whether `json()` occurs in it. `within()` may look into the payload, too.
    pub fn uses_json(&self) -> bool {
        normal::any_field(&self.condition, &|field| matches!(field, Field::Json(_)))
    }
}

impl fmt::Display for Selector {
    /// Canonical text: [`Selector::parse_canonical`] makes an equal selector of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}
