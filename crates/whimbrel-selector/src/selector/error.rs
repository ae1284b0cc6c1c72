//! Why a text is no selector, and where.

use core::fmt;

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Where the cause begins, bytes from the start of the text.
    pub offset: usize,
    /// How much of the text is the cause, bytes; 0 at its end.
    pub length: usize,
    /// The same place for people: characters from the start of the text, the first is 1.
    pub position: usize,
    /// What is wrong, why, and where it helps what to write instead; one line, no full stop.
    pub cause: String,
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selector, position {}: {}", self.position, self.cause)
    }
}

impl core::error::Error for SelectorError {}

/// A cause and its bytes, as long as the text itself is at hand.
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

    /// The error for whoever wrote `text`.
    pub(super) fn in_text(self, text: &str) -> SelectorError {
        let position = text.get(..self.start).map_or(1, |before| before.chars().count() + 1);
        SelectorError { offset: self.start, length: self.end - self.start, position, cause: self.cause }
    }
}

/// A part of the text as it may stand in a cause: short, and in one line.
pub(super) fn excerpt(part: &str) -> String {
    const LONGEST: usize = 40;
    let mut excerpt: String = part.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if part.chars().nth(LONGEST).is_some() {
        excerpt.push('…');
    }
    excerpt
}
