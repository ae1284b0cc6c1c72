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

/// The deepest nesting of a selector: parentheses that group, `NOT`, and signs (except those of
/// number literals) each count one. `a AND b AND c` and `a + b + c` are as deep as their operands.
pub const DEPTH_MAX: usize = 64;

/// The most arithmetic operations of which each needs the result of another; `a + b + c` has two.
/// It limits the stack of an evaluation.
pub const OPERATIONS_MAX: usize = 256;

/// The longest canonical text of a selector, bytes. Writing out `BETWEEN` doubles an operand,
/// numbers and blanks may become longer, and `NOT` moves inwards; together that is less than this
/// factor.
pub const CANONICAL_MAX: usize = 16 * SELECTOR_MAX;

/// The deepest nesting of canonical text. Parentheses are added for `NOT BETWEEN`, for `NOT` before
/// `BETWEEN`, and for a field that is compared with a condition.
const CANONICAL_DEPTH_MAX: usize = DEPTH_MAX + 8;

/// Limits of a text that a person has written.
const WRITTEN: Limits = Limits { length: SELECTOR_MAX, depth: DEPTH_MAX, form: Form::Written };

/// Limits of a text that a broker has written.
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
    /// Parses `text`. A blank text matches every event.
    ///
    /// # Errors
    /// The mistake and its place.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        Self::parse_within(text, WRITTEN, None)
    }

    /// Parses `text` and refuses names of fences that are not in `fences`.
    ///
    /// # Errors
    /// The mistake and its place.
    pub fn parse_with(text: &str, fences: &Fences) -> Result<Selector, SelectorError> {
        Self::parse_within(text, WRITTEN, Some(fences))
    }

    /// Parses the canonical text of a selector ([`fmt::Display`]), written by this version or an
    /// earlier one. It may be longer and deeper than the text that a person wrote, up to
    /// [`CANONICAL_MAX`]. It keeps the meaning that it has in all versions up to 0.2: `/` of
    /// integers truncates, and `JMSCorrelationID` and `JMSType` are NULL. Selectors with today's
    /// meaning are written in a form that those versions do not understand.
    ///
    /// # Errors
    /// The mistake and its place.
    pub fn parse_canonical(text: &str) -> Result<Selector, SelectorError> {
        Self::parse_within(text, CANONICAL, None)
    }

    fn parse_within(text: &str, limits: Limits, fences: Option<&Fences>) -> Result<Selector, SelectorError> {
        let parsed = Parser::new(text, limits, fences).and_then(Parser::parse);
        let condition = parsed.map_err(|problem| problem.in_text(text))?;
        Ok(Selector { condition: normal::normalize(condition, false) })
    }

    /// The condition that must be true.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Whether it matches every event, as far as the text alone shows.
    pub fn is_everything(&self) -> bool {
        self.condition == Condition::Constant(true)
    }

    /// The names of the fences in it, sorted and distinct.
    pub fn fences(&self) -> impl Iterator<Item = &str> {
        let mut names = BTreeSet::new();
        normal::for_each_leaf(&self.condition, &mut |leaf| {
            if let Condition::Within(name) = leaf {
                names.insert(&**name);
            }
        });
        names.into_iter()
    }

    /// Whether it has `json()`. `within()` may read the payload, too.
    pub fn uses_json(&self) -> bool {
        normal::any_field(&self.condition, &|field| matches!(field, Field::Json(_)))
    }
}

impl fmt::Display for Selector {
    /// Writes the canonical text: [`Selector::parse_canonical`] makes an equal selector of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}
