//! Storage for what the positions of many cursors have in common, so that each takes memory only
//! for what differs.
//!
//! Mostly that is just storage. Only the tick since when a log counts differs for each subscription
//! and stream, as each has begun at another time. But once a subscription has acknowledged
//! everything up to a later tick, earlier events are never needed again, and the log may as well
//! count from there. So it counts from one tick in all but few streams, as soon as the subscription
//! has acknowledged that: the least one possible. The set of streams is the same for all. A client
//! that goes back to before that tick finds what the cache has, and otherwise a gap: the log is not
//! held for it.

use std::collections::BTreeSet;

use whimbrel_event::{PubendId, Tick};

use super::positions::{COMMON_MIN, Common, Positions};
use super::{Cursor, Cursors, RemoteLogs};
use crate::store::RemotePosition;
use crate::stream::Streams;

/// Least positions of a cursor in catch-up for which storage is shared: the number of own streams.
/// After a restart all absent subscriptions of a broker without others stand at the same ticks.
const OWN_MIN: usize = Streams::COUNT;

/// Most streams of a subscription that may count from a later tick than the others.
const LATER_MAX: usize = COMMON_MIN / 2;

/// Shared storage, per kind of positions.
#[derive(Debug, Default)]
pub(crate) struct InCommon {
    /// The streams whose logs count.
    streams: Common,
    /// The last positions that were compared and differed: newest events of streams, holes in them,
    /// holds, and positions of cursors in catch-up.
    newest: Common,
    holes: Common,
    held: Common,
    behind: Common,
    /// As `behind`, for fewer than [`COMMON_MIN`]: these would replace a part that many share.
    behind_few: Common,
    marks: Common,
    /// The streams of cursors whose clients have left.
    away: Common,
}

impl InCommon {
    /// Sets the tick since when logs count to the same one in most streams of a subscription, if it
    /// has acknowledged that; `positions` are its own.
    pub(crate) fn align_since(&mut self, remote: &mut RemoteLogs, positions: &[RemotePosition]) {
        let differing = remote.since.differing();
        if differing < COMMON_MIN || positions.len() < COMMON_MIN {
            return;
        }
        let mut ticks: Vec<_> = positions.iter().map(|remote| remote.since).collect();
        let (_, watermark, _) = ticks.select_nth_unstable(positions.len() - 1 - LATER_MAX);
        let watermark = *watermark;
        let tick = |remote: &RemotePosition| {
            if remote.acked >= watermark { remote.since.max(watermark) } else { remote.since }
        };
        let since: Positions = positions.iter().map(|remote| (remote.pubend, tick(remote))).collect();
        let mut best = since.clone();
        best.share(&self.streams, Some(watermark));
        if best.differing() >= COMMON_MIN {
            let streams: Common = since.iter().collect();
            let mut other = since;
            if other.share(&streams, Some(watermark)) && other.differing() < best.differing() {
                (best, self.streams) = (other, streams);
            }
        }
        if best.differing() < differing {
            remote.since = best;
        }
    }

    /// Shares storage for the holds of a subscription.
    pub(crate) fn hold(&mut self, held: &mut Positions) {
        held.share_with(&mut self.held);
    }

    /// Shares storage for the positions of a cursor in catch-up.
    pub(crate) fn fall_behind(&mut self, positions: &mut Positions) {
        let are_few = positions.common().is_none() && positions.differing() < COMMON_MIN;
        if are_few {
            positions.share_from(&mut self.behind_few, OWN_MIN);
        } else {
            positions.share_with(&mut self.behind);
        }
    }

    /// Sets the streams in `alike` to the watermark, and shares storage for that.
    pub(super) fn align(&mut self, positions: &mut Positions, alike: Vec<PubendId>, watermark: Tick) {
        alike.into_iter().for_each(|pubend| positions.set(pubend, watermark));
        if !positions.share(&self.away, Some(watermark)) {
            self.away = positions.iter().collect();
            positions.share(&self.away, Some(watermark));
        }
    }

    /// Shares storage for a cursor: newest events and holes, positions in catch-up, and
    /// acknowledged positions.
    pub(crate) fn share(&mut self, cursor: &mut Cursor) {
        if let Some(durable) = cursor.durable.as_deref_mut().filter(|durable| !durable.remote.since.is_empty()) {
            let remote = &mut durable.remote;
            remote.newest.share_with(&mut self.newest);
            remote.holes.share_with(&mut self.holes);
            remote.written.share_with(&mut self.marks);
        }
        if let Some(catch_up) = cursor.catch_up.as_deref_mut() {
            self.fall_behind(&mut catch_up.positions);
        }
        cursor.acknowledged.share_with(&mut self.away);
    }
}

impl Cursors {
    /// The number of stored positions of all cursors, and their bytes, with those of `bases`:
    /// shared storage counts once.
    pub(crate) fn size<'a>(&self, bases: impl Iterator<Item = &'a Common>) -> (usize, usize) {
        let (mut entries, mut bytes, mut seen) = (0, 0, BTreeSet::new());
        for base in bases {
            seen.insert(base.as_ptr());
            (entries, bytes) = (entries + base.len(), bytes + size_of_val(&**base));
        }
        for (_, cursor) in self.from(0) {
            let Some(cursor) = cursor else { continue };
            let remote = cursor.durable.as_deref().map(|durable| &*durable.remote);
            let of_remote = remote.into_iter().flat_map(|remote| {
                [&remote.since, &remote.unsure, &remote.newest, &remote.held, &remote.detached, &remote.holes]
            });
            let of_catch_up = cursor.catch_up.iter().flat_map(|catch_up| [&catch_up.positions, &catch_up.forgiven]);
            if let Some(remote) = remote {
                let (of_written, in_bytes) = remote.written.size();
                (entries, bytes) = (entries + of_written, bytes + in_bytes);
            }
            let of_remote = of_remote.chain(remote.map(|remote| remote.written.marks()));
            let of_cursor = [&cursor.ahead, &cursor.unsettled, &cursor.acknowledged];
            for positions in of_remote.chain(of_catch_up).chain(of_cursor) {
                entries += positions.differing();
                bytes += positions.bytes();
                let is_new = |common: &&Common| seen.insert(common.as_ptr());
                if let Some(common) = positions.common().filter(is_new) {
                    entries += common.len();
                    bytes += size_of_val(&**common);
                }
            }
        }
        (entries, bytes)
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_event::{PubendId, Tick};

    use super::*;

    const STREAMS: u64 = 64;

    /// A subscription that counts from these ticks on, and has acknowledged up to those.
    fn subscription(since: impl Fn(u64) -> u64, acked: impl Fn(u64) -> u64) -> (RemoteLogs, Vec<RemotePosition>) {
        let position = |at| RemotePosition { pubend: PubendId(at), since: Tick(since(at)), acked: Tick(acked(at)) };
        let positions: Vec<RemotePosition> = (0..STREAMS).map(position).collect();
        (
            RemoteLogs {
                since: positions.iter().map(|remote| (remote.pubend, remote.since)).collect(),
                ..RemoteLogs::default()
            },
            positions,
        )
    }

    #[test]
    fn each_counts_from_one_tick_and_from_later_on_in_few_streams() {
        let mut common = InCommon::default();
        for first in [10, 500] {
            let (mut remote, positions) = subscription(|at| first + at, |_| 1_000);
            common.align_since(&mut remote, &positions);
            let watermark = first + STREAMS - 1 - LATER_MAX as u64;
            assert!(remote.since.iter().all(|(pubend, tick)| tick.0 == watermark.max(first + pubend.0)));
            assert_eq!((remote.since.differing(), remote.since.iter().count()), (LATER_MAX, STREAMS as usize));
            assert_eq!(remote.since.common().map(|common| common.as_ptr()), Some(common.streams.as_ptr()));
        }
    }

    #[test]
    fn nobody_counts_from_what_it_has_not_acknowledged() {
        let mut common = InCommon::default();
        let (mut remote, positions) = subscription(|at| 10 + at % 2, |at| if at == 3 { 5 } else { 120 });
        common.align_since(&mut remote, &positions);
        assert_eq!((remote.since.get(PubendId(2)), remote.since.get(PubendId(3))), (Tick(11), Tick(11)));
        let (mut remote, positions) = subscription(|at| 10 + at % 2, |at| if at == 2 { 10 } else { 120 });
        common.align_since(&mut remote, &positions);
        assert_eq!((remote.since.get(PubendId(2)), remote.since.get(PubendId(4))), (Tick(10), Tick(11)));
        assert_eq!(remote.since.differing(), 1);
        let (mut remote, positions) = subscription(|at| 10 + at, |at| 10 + at);
        common.align_since(&mut remote, &positions);
        assert!(remote.since.iter().all(|(pubend, tick)| tick.0 == 10 + pubend.0));
    }

    #[test]
    fn other_streams_come_and_go() {
        let mut common = InCommon::default();
        let (mut remote, positions) = subscription(|_| 10, |_| 100);
        common.align_since(&mut remote, &positions);
        assert_eq!(remote.since.differing(), 0);
        remote.since.remove(PubendId(5));
        for at in STREAMS..STREAMS + 20 {
            remote.since.set(PubendId(at), Tick(50));
        }
        assert_eq!(remote.since.differing(), 21);
        let position = |(pubend, since)| RemotePosition { pubend, since, acked: Tick(100) };
        let positions: Vec<RemotePosition> = remote.since.iter().map(position).collect();
        common.align_since(&mut remote, &positions);
        assert_eq!((remote.since.iter().count(), remote.since.has(PubendId(5))), (STREAMS as usize + 19, false));
        // The new streams are more than may differ: all count from there.
        assert!(remote.since.iter().all(|(_, tick)| tick == Tick(50)) && remote.since.differing() < COMMON_MIN);
    }
}
