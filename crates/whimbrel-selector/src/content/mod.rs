//! The index over selectors.

/// Selectors that cost most and are remembered by name.
pub const EXPENSIVE_MAX: usize = 16;

/// Selectors under one topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u32);

/// One selector in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorId(pub(crate) u32);

/// What a selector has cost since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events for which the index could not tell without evaluating it.
    pub evaluations: u64,
    /// Steps of these evaluations: operations, and characters compared by `LIKE`.
    pub steps: u64,
    /// Events for which it was true.
    pub matches: u64,
}

/// A selector that costs much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expensive {
    /// Under which topic filter.
    pub filter: String,
    /// The selector.
    pub selector: String,
    /// What it has cost.
    pub cost: Cost,
}
