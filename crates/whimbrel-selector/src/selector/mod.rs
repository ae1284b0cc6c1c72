//! Selectors: conditions on events, in the language of Jakarta Messaging 3.1 with `json()` and `within()`.

mod error;
mod expr;
mod path;

pub use error::SelectorError;
pub use expr::{Comparison, Condition, Field, Literal, Operand, Operation, Pattern, Piece};
pub use path::{JsonPath, Step};

use crate::fence::Fences;

/// The longest selector, bytes.
pub const SELECTOR_MAX: usize = 8 * 1024;

/// How deep a selector may be nested.
pub const DEPTH_MAX: usize = 64;

/// A condition on events, checked and in canonical form. Selectors that differ only in writing are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    condition: Condition,
}

impl Selector {
    /// Parses `text`. A blank text matches everything.
    pub fn parse(_text: &str) -> Result<Selector, SelectorError> {
        todo!()
    }

    /// Parses `text` and refuses names of fences that `fences` does not have.
    pub fn parse_with(_text: &str, _fences: &Fences) -> Result<Selector, SelectorError> {
        todo!()
    }

    /// What must be true.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }
}

/// Whether `name` may stand in a selector without quotes and means the attribute of that name.
pub(crate) fn is_plain_identifier(_name: &str) -> bool {
    todo!()
}

impl core::fmt::Display for Selector {
    fn fmt(&self, _f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        todo!()
    }
}
