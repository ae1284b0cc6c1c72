//! The error of a text that is not a selector.

use core::fmt;

/// The reason why a text is not a selector, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// The beginning of the cause, bytes from the start of the text.
    pub offset: usize,
    /// Bytes of the cause; 0 at the end of the text.
    pub length: usize,
    /// The beginning for people: characters from the start of the text, from 1 on.
    pub position: usize,
    /// The mistake, the reason, and where it helps the text to write instead; one line, no full
    /// stop.
    pub cause: String,
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selector, position {}: {}", self.position, self.cause)
    }
}

impl core::error::Error for SelectorError {}

/// A cause and its bytes, until the text is available.
#[derive(Debug)]
pub(super) struct Problem {
    start: usize,
    end: usize,
    cause: String,
}

impl Problem {
    pub(super) fn new(start: usize, end: usize, cause: impl Into<String>) -> Problem {
        Problem { start, end, cause: cause.into() }
    }

    /// The error for the author of `text`.
    pub(super) fn in_text(self, text: &str) -> SelectorError {
        let position = text.get(..self.start).map_or(1, |before| before.chars().count() + 1);
        SelectorError { offset: self.start, length: self.end - self.start, position, cause: self.cause }
    }
}

/// A part of the text for a cause: short, and in one line.
pub(super) fn excerpt(part: &str) -> String {
    const LONGEST: usize = 40;
    let mut excerpt: String = part.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if part.chars().nth(LONGEST).is_some() {
        excerpt.push('…');
    }
    excerpt
}
