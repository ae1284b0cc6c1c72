//! The counters of a world of roaming clients.

/// The counters of one world.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Events that were published.
    pub published: u64,
    /// Publishes that were sent again.
    pub again: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries by a broker that did not accept the event.
    pub remote: u64,
    /// Deliveries that repeated an earlier one.
    pub repeated: u64,
    /// Gaps that clients were told of.
    pub gaps: u64,
    /// Gaps whose reason is `released`: events that were given up early.
    pub released: u64,
    /// Gaps of reliable streams because a broker had no interest in such events.
    pub unbuffered: u64,
    /// Events that had to be delivered, and were.
    pub due: u64,
    /// Events that had to be delivered, and were not, with an excuse such as a justified gap.
    pub excused: u64,
    /// Sessions that continued at another broker.
    pub moved: u64,
    /// Sessions that continued at the same broker.
    pub resumed: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Sessions that were lost with their owner and replica.
    pub gone: u64,
    /// SUBACKs that named brokers as pending.
    pub pending: u64,
    /// Events marked as maybe repeated by their publisher.
    pub marked: u64,
    /// Events that several brokers have accepted.
    pub doubled: u64,
    /// Events that came before an earlier one of their publisher.
    pub disordered: u64,
    /// Events whose record was seen on a disk.
    pub logged: u64,
}
