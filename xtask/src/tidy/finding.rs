//! The reports of rules.

use std::fmt;

/// One breach of one rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path below the workspace root, with `:line` if there is one; or the name of a package.
    pub place: String,
    /// The short name of the rule.
    pub rule: &'static str,
    /// The breach, and what to do.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(place: impl Into<String>, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding { place: place.into(), rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: [{}] {}", self.place, self.rule, self.message)
    }
}
