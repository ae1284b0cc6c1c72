//! What was seen in a world of roaming clients.

/// What was seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Events that were published.
    pub published: u64,
    /// Publishes that were said again.
    pub again: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries by a broker that did not accept the event.
    pub remote: u64,
    /// Deliveries that repeated one before.
    pub repeated: u64,
    /// Gaps that were told.
    pub gaps: u64,
    /// Gaps of what was given up early.
    pub released: u64,
    /// Gaps of reliable streams because nobody had asked for such events at a broker.
    pub unbuffered: u64,
    /// Events that had to come, and did.
    pub due: u64,
    /// Events that had to come, and did not as a justified gap was told.
    pub excused: u64,
    /// Sessions that went on at another broker.
    pub moved: u64,
    /// Sessions that went on where they were.
    pub resumed: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Sessions that were lost with their keeper and deputy.
    pub gone: u64,
    /// SUBACKs that named brokers.
    pub pending: u64,
    /// Events that may have been repeated by their publisher.
    pub marked: u64,
    /// Those that several brokers have accepted.
    pub doubled: u64,
    /// Events that came before one that their publisher had sent earlier, excused.
    pub disordered: u64,
    /// Events whose record was seen on a disk.
    pub logged: u64,
}
