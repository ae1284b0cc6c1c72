//! Principals: the names of clients, peers and operators that connect.

use core::fmt;
use std::sync::Arc;

/// The longest name of a principal, in bytes.
pub const PRINCIPAL_MAX: usize = 256;

/// The name of all principals that give no name. No other principal can have it.
pub const ANONYMOUS: &str = "anonymous";

/// The name under which a client, peer or operator connects. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal(Arc<str>);

/// Why a text is not the name of a principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrincipalError {
    /// The name has no character.
    Empty,
    /// The name has more than [`PRINCIPAL_MAX`] bytes.
    TooLong,
    /// The name has a control character.
    Control,
    /// The name is [`ANONYMOUS`], which is that of principals that give none.
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
    /// A principal that has proved to have this name.
    ///
    /// # Errors
    /// Why no principal can have the name.
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

    /// A principal that gives no name.
    pub fn anonymous() -> Principal {
        Principal(ANONYMOUS.into())
    }

    /// Whether the principal gives no name.
    pub fn is_anonymous(&self) -> bool {
        &*self.0 == ANONYMOUS
    }

    /// The name as a shared text.
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
