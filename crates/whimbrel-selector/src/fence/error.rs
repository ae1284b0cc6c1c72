//! The errors of fences.

use core::fmt;

/// The reason for refusing a fence: its name, the place in its GeoJSON, the mistake, and what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{cause}; {advice}", Subject(fence), Where(place))]
pub struct FenceError {
    pub(super) fence: Option<String>,
    pub(super) place: String,
    pub(super) cause: String,
    pub(super) advice: String,
}

impl FenceError {
    /// The name of the fence, if it is known.
    pub fn fence(&self) -> Option<&str> {
        self.fence.as_deref()
    }

    /// The place, such as `features[2].geometry.coordinates[0][5]` or `line 3, column 7`; empty if
    /// it is the whole text.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The mistake.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What to do about it.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

struct Subject<'a>(&'a Option<String>);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, "fence {name:?}: "))
    }
}

struct Where<'a>(&'a str);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// A place inside GeoJSON, from the inside out.
#[derive(Clone, Copy)]
pub enum Path<'a> {
    /// The whole document.
    Root,
    /// A member of an object.
    Member(&'a Path<'a>, &'static str),
    /// An element of an array.
    Element(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// An error at this place; the fence is not known yet.
    pub fn error(&self, cause: impl Into<String>, advice: impl Into<String>) -> FenceError {
        FenceError { fence: None, place: self.to_string(), cause: cause.into(), advice: advice.into() }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(outer, name) => write!(f, "{outer}.{name}"),
            Path::Element(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}
