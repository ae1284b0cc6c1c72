//! The purposes of the overlay's deadlines, and their order within one moment.

use whimbrel_event::PubendId;
use whimbrel_net::NetDue;

/// The purpose of a deadline of what the broker does with the overlay, in the order in which
/// deadlines of one moment are met. Between them are those of the network layer, see [`rank_of`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Due {
    /// The destination with this number is told how far streams are silent.
    Quiet(u32),
    /// Holes of a stream are asked for.
    Repair(PubendId),
    /// A stream has waited for the longest time allowed for the predecessor of one of its events.
    Predecessor(PubendId),
    /// Parts of a stream are asked for that are read at the stream's own broker.
    Read(PubendId),
    /// Durable subscriptions have waited for the longest time allowed for predecessors in other
    /// streams.
    Unblock,
    /// Other brokers' questions for parts of the log are answered.
    Lend,
    /// A subscription has waited for the longest time allowed for its confirmation.
    Confirm,
    /// Shared subscriptions with members at several brokers are checked.
    Share,
    /// Other brokers are told the positions of this broker's durable subscriptions in their
    /// streams.
    Report,
    /// The set of brokers that know of sessions is checked for changes.
    Map,
    /// A session is sought, and the next request for it is due.
    Seek,
    /// Other brokers are told where sessions are.
    Tell,
    /// Replicas get copies of sessions.
    Copy,
    /// Other brokers are asked whether sessions that were given away are safe.
    Settle,
    /// The set of brokers has not changed for a while.
    Still,
    /// Best-effort events have waited for the copy of an earlier one.
    HeldBack(PubendId),
}

impl Due {
    /// The place among the deadlines of one moment, of the network layer, too.
    pub(super) fn rank(self) -> u8 {
        match self {
            Due::Quiet(_) => 3,
            Due::Repair(_) => 4,
            Due::Predecessor(_) => 5,
            Due::Read(_) => 6,
            Due::Unblock => 7,
            Due::Lend => 8,
            Due::Confirm => 9,
            Due::Share => 10,
            Due::Report => 11,
            Due::Map => 13,
            Due::Seek => 15,
            Due::Tell => 16,
            Due::Copy => 17,
            Due::Settle => 18,
            Due::Still => 19,
            Due::HeldBack(_) => 24,
        }
    }
}

/// As [`Due::rank`], of a deadline of the network layer.
pub(super) fn rank_of(due: NetDue) -> u8 {
    match due {
        NetDue::Probe(_) => 0,
        NetDue::Announce => 1,
        NetDue::Interest => 2,
        NetDue::Watch => 12,
        NetDue::Expire => 14,
        NetDue::Survey(..) => 20,
        NetDue::Refresh => 21,
        NetDue::Report(_) => 22,
        NetDue::Judge(_) => 23,
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::HostId;
    use whimbrel_net::PeerLink;

    use super::*;

    /// Recorded traffic depends on this order.
    #[test]
    fn deadlines_of_one_moment_have_one_order() {
        let (link, pubend) = (PeerLink(0), HostId::new(1 << 8).pubend(0));
        let of_net = [
            (0, NetDue::Probe(link)),
            (1, NetDue::Announce),
            (2, NetDue::Interest),
            (12, NetDue::Watch),
            (14, NetDue::Expire),
            (20, NetDue::Survey(link, 0)),
            (21, NetDue::Refresh),
            (22, NetDue::Report(link)),
            (23, NetDue::Judge(link)),
        ];
        let own = [
            Due::Quiet(0),
            Due::Repair(pubend),
            Due::Predecessor(pubend),
            Due::Read(pubend),
            Due::Unblock,
            Due::Lend,
            Due::Confirm,
            Due::Share,
            Due::Report,
            Due::Map,
            Due::Seek,
            Due::Tell,
            Due::Copy,
            Due::Settle,
            Due::Still,
        ];
        let mut ranks: Vec<u8> = of_net.iter().map(|(_, due)| rank_of(*due)).collect();
        assert_eq!(ranks, of_net.map(|(rank, _)| rank));
        assert!(of_net.is_sorted_by_key(|(_, due)| *due), "a queue of one kind has the same order");
        assert!(own.is_sorted() && own.is_sorted_by_key(|due| due.rank()));
        ranks.extend(own.map(Due::rank));
        ranks.sort_unstable();
        assert_eq!(ranks, (0..24).collect::<Vec<u8>>(), "each purpose has its place");
    }
}
