//! Named geofences.

/// Named shapes on the surface of the earth, and an index over them.
#[derive(Debug, Default)]
pub struct Fences {}

impl Fences {
    /// No fences.
    pub fn new() -> Fences {
        Fences::default()
    }

    /// Whether there is a fence of that name.
    pub fn contains_name(&self, _name: &str) -> bool {
        false
    }

    /// The names of all fences, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        core::iter::empty()
    }

    /// Calls `found` with the name of each fence that contains the position, each once, sorted by name.
    pub fn for_each_containing<'s>(&'s self, _lat: f64, _lon: f64, _found: &mut dyn FnMut(&'s str)) {}
}
