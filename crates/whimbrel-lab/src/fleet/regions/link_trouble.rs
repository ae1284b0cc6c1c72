//! What goes wrong with a link between two regions.

/// The trouble of a link, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkTrouble {
    /// Nothing passes.
    Cut,
    /// All passes, but later than an alarm may arrive.
    Slow,
    /// A part is lost.
    Lossy,
}

impl LinkTrouble {
    /// All kinds.
    pub const ALL: [LinkTrouble; 3] = [LinkTrouble::Cut, LinkTrouble::Slow, LinkTrouble::Lossy];

    /// The state of the link, as an adjective.
    pub fn name(self) -> &'static str {
        match self {
            LinkTrouble::Cut => "cut",
            LinkTrouble::Slow => "slow",
            LinkTrouble::Lossy => "lossy",
        }
    }
}
