//! Patterns of names and client ids in rules: `*` stands for any characters, `%u` for the
//! principal.

use core::fmt;

use crate::Principal;

/// The longest pattern, in bytes.
pub const PATTERN_MAX: usize = 512;

/// Why a text is not a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatternError {
    /// The text has no character.
    Empty,
    /// The text has more than [`PATTERN_MAX`] bytes.
    TooLong,
    /// The text contains `%u` where there is no principal yet.
    NoPrincipal,
}

impl PatternError {
    /// The rule that the text breaks.
    pub const fn why(self) -> &'static str {
        match self {
            PatternError::Empty => "a pattern has at least one character; * stands for any name",
            PatternError::TooLong => "a pattern has at most 512 bytes",
            PatternError::NoPrincipal => "%u stands for the principal, and cannot be part of its own name",
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}

impl core::error::Error for PatternError {}

/// A text in which `*` stands for any characters, or none, and `%u` for a principal's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: Box<str>,
    has_principal: bool,
}

/// The mark that stands for the principal.
pub(crate) const PRINCIPAL_MARK: &str = "%u";

/// Whether a name can be one level of a topic.
pub(crate) fn is_level(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '+', '#'])
}

impl Pattern {
    /// A pattern of principals' names.
    ///
    /// # Errors
    /// Why the text is not a pattern of names.
    pub fn of_principals(text: &str) -> Result<Pattern, PatternError> {
        let pattern = Pattern::of_client_ids(text)?;
        if pattern.has_principal { Err(PatternError::NoPrincipal) } else { Ok(pattern) }
    }

    /// A pattern of client ids, in which `%u` stands for the principal.
    ///
    /// # Errors
    /// Why the text is not a pattern of client ids.
    pub fn of_client_ids(text: &str) -> Result<Pattern, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > PATTERN_MAX {
            return Err(PatternError::TooLong);
        }
        Ok(Pattern { text: text.into(), has_principal: text.contains(PRINCIPAL_MARK) })
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names a principal. An anonymous principal has to be named as such: no `*` matches
    /// it.
    pub fn names(&self, principal: &Principal) -> bool {
        if principal.is_anonymous() { &*self.text == crate::ANONYMOUS } else { self.matches(principal.name()) }
    }

    /// Whether it matches a client id of a principal.
    pub fn allows(&self, principal: &Principal, client_id: &str) -> bool {
        if !self.has_principal {
            return self.matches(client_id);
        }
        // The name may contain characters with a meaning: each piece between stars is compared
        // literally.
        is_level(principal.name())
            && between_stars(
                client_id,
                self.text.split('*').map(|piece| piece.replace(PRINCIPAL_MARK, principal.name())),
            )
    }

    /// Whether it matches a name, `%u` standing for itself.
    pub(crate) fn matches(&self, name: &str) -> bool {
        between_stars(name, self.text.split('*'))
    }
}

/// Whether `name` is these pieces with anything between them.
fn between_stars<P: AsRef<str>>(name: &str, pieces: impl Iterator<Item = P>) -> bool {
    let mut pieces = pieces.peekable();
    let Some(first) = pieces.next() else { return name.is_empty() };
    let Some(mut rest) = name.strip_prefix(first.as_ref()) else { return false };
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    // Taking the first occurrence of each piece leaves most for the pieces behind it.
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece.as_ref());
        }
        let Some(at) = rest.find(piece.as_ref()) else { return false };
        rest = &rest[at + piece.as_ref().len()..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::of_client_ids(pattern).expect("a pattern").matches(name)
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "bus", true),
            ("bus", "bus", true),
            ("bus", "bus-7", false),
            ("bus-*", "bus-", true),
            ("bus-*", "bus", false),
            ("*-7", "bus-7", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("*b*", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} against {name}");
        }
    }

    #[test]
    fn the_principal_stands_for_itself_and_nothing_else() {
        let allows = |pattern: &str, name: &str, client_id: &str| {
            let principal = Principal::new(name).expect("a name");
            Pattern::of_client_ids(pattern).expect("a pattern").allows(&principal, client_id)
        };
        assert!(allows("%u", "bus-7", "bus-7") && !allows("%u", "bus-7", "bus-8"));
        assert!(allows("%u-*", "bus-7", "bus-7-a") && !allows("%u-*", "bus-7", "bus-70"));
        assert!(!allows("%u", "*", "bus-7") && allows("%u", "*", "*"), "a star in a name is a character");
        for name in ["a/b", "+", "#"] {
            assert!(!allows("%u", name, name), "{name}");
        }
    }

    #[test]
    fn only_their_own_name_means_those_without_one() {
        let names = |text: &str| Pattern::of_principals(text).expect("a pattern").names(&Principal::anonymous());
        assert!(names("anonymous") && !names("*") && !names("anon*"));
    }
}
