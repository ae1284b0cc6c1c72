//! Whoever connects, by name.

use core::fmt;
use std::sync::Arc;

/// The longest name of a principal, in bytes.
pub const PRINCIPAL_MAX: usize = 256;

/// The name of everyone who does not say who they are. Nobody else can have it.
pub const ANONYMOUS: &str = "anonymous";

/// Who somebody is. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal(Arc<str>);

/// Why a text is no name of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrincipalError {
    /// It has no character.
    Empty,
    /// It has more than [`PRINCIPAL_MAX`] bytes.
    TooLong,
    /// It has a control character.
    Control,
    /// It is [`ANONYMOUS`], which is the name of those who do not say who they are.
    Reserved,
}

impl PrincipalError {
    /// The rule that the text breaks.
    pub const fn why(self) -> &'static str {
        match self {
            PrincipalError::Empty => "a name has at least one character",
            PrincipalError::TooLong => "a name has at most 256 bytes",
            PrincipalError::Control => "a name has no control characters",
            PrincipalError::Reserved => "\"anonymous\" is the name of those who do not say who they are",
        }
    }
}

impl fmt::Display for PrincipalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}

impl core::error::Error for PrincipalError {}

impl Principal {
    /// Somebody who has proved to have this name.
    ///
    /// # Errors
    /// Says why nobody can have it.
    pub fn new(name: &str) -> Result<Principal, PrincipalError> {
        if name.is_empty() {
            Err(PrincipalError::Empty)
        } else if name.len() > PRINCIPAL_MAX {
            Err(PrincipalError::TooLong)
        } else if name.chars().any(char::is_control) {
            Err(PrincipalError::Control)
        } else if name == ANONYMOUS {
            Err(PrincipalError::Reserved)
        } else {
            Ok(Principal(name.into()))
        }
    }

    /// Somebody who has not said who they are.
    pub fn anonymous() -> Principal {
        Principal(ANONYMOUS.into())
    }

    /// Whether they have not said who they are.
    pub fn is_anonymous(&self) -> bool {
        &*self.0 == ANONYMOUS
    }

    /// The name, to be kept.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
