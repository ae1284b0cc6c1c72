//! A written position is read again, and is never behind events that were given.

use std::collections::BTreeMap;

use proptest::prelude::*;
use whimbrel_event::{EventId, HostId, PubendId, Tick};

use super::RemotePosition;
use super::keys::BaseNo;
use super::own_ticks::OWN;
use super::position::PositionBase;
use super::position_head::PositionHead;
use super::wire::MapValue;
use super::written::{PositionPart, RestoredPosition};

fn again<'a, V: MapValue<'a>>(value: &V, out: &'a mut Vec<u8>) -> Option<V> {
    value.put_versioned(out);
    V::read_versioned(out)
}

fn host(number: u64) -> HostId {
    HostId::new(number << 8)
}

fn reliable_index(place: u8) -> u8 {
    host(1).reliable(place).index()
}

proptest! {
    #[test]
    fn all_of_it_comes_back(
        ticks: [u64; OWN], number: u64, watermark: u64,
        lacks in proptest::collection::btree_set(1_u64..1 << 40, 0..5),
        remote in proptest::collection::btree_map((0_u8..8).prop_map(reliable_index), (any::<u64>(), any::<u64>()), 0..5),
        beyond in proptest::collection::vec(((0_u8..8).prop_map(reliable_index), any::<u64>()), 0..9),
        base in proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..9),
    ) {
        let acked = ticks.map(|tick| Tick(tick >> 1));
        let head = PositionHead {
            acked,
            beyond: vec![(0, Tick(acked[0].0 + 1)), (11, Tick(acked[7].0 + (number >> 2)))],
            base: BaseNo(number),
            watermark: Tick(watermark),
            lacks: lacks.into_iter().map(host).collect(),
            ..PositionHead::default()
        };
        prop_assert_eq!(again(&head, &mut Vec::new()), Some(head.clone()));
        let part = PositionPart::new(
            remote.into_iter().map(|(index, (since, acked))| (index, Tick(since), Tick(acked))).collect(),
            beyond.into_iter().map(|(index, tick)| (index, Tick(tick))).collect(),
        );
        prop_assert_eq!(again(&part, &mut Vec::new()), Some(part.clone()));
        let base = PositionBase(base.into_iter().map(|(pubend, tick)| (PubendId(pubend), Tick(tick))).collect());
        prop_assert_eq!(again(&base, &mut Vec::new()), Some(base.clone()));
    }

    #[test]
    fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
        let _ = (PositionHead::read_versioned(&bytes), PositionPart::read_versioned(&bytes), PositionBase::read_versioned(&bytes));
    }
}

#[test]
fn earlier_versions_can_be_read() {
    let head = PositionHead::read_versioned(&[1, 20, 0, 0, 0, 2, 0, 3, 0, 4]).unwrap();
    let beyond = vec![(0, Tick(13)), (0, Tick(17))];
    assert_eq!(head, PositionHead { acked: [Tick(10); OWN], beyond, ..PositionHead::default() });
    let bytes = [2, 20, 0, 0, 0, 0, 1, 0x21, 20, 10, 1, 0x21, 30];
    let (pubend, since, acked) = (PubendId(0x21), Tick(10), Tick(15));
    let remote = vec![RemotePosition { pubend, since, acked }];
    let remote_beyond = vec![EventId { pubend, tick: Tick(30) }];
    let head = PositionHead {
        acked: [Tick(10); OWN],
        remote: remote.clone(),
        remote_beyond: remote_beyond.clone(),
        ..PositionHead::default()
    };
    assert_eq!(PositionHead::read_versioned(&bytes), Some(head.clone()));
    // The restored position is the written one, and not behind any event that was given.
    let restored = RestoredPosition::new(&head, BTreeMap::new(), &[]);
    assert_eq!((restored.durable.remote, restored.durable.remote_beyond, restored.digest), (remote, remote_beyond, 0));
    assert_eq!(restored.written.marks().get(pubend), Tick(30));
    let bytes = [3, 20, 0, 0, 1, 0, 7, 0xac, 2, 0];
    let acked = [10, 10, 10, 9, 9, 9, 9, 9].map(Tick);
    let head = PositionHead { acked, base: BaseNo(7), watermark: Tick(300), ..PositionHead::default() };
    assert_eq!(PositionHead::read_versioned(&bytes), Some(head), "before there were deadlines");
    assert_eq!(PositionHead::read_versioned(&[5, 20, 0, 0, 0, 0, 0, 0, 0]), None, "a version that is not known");
}

#[test]
fn this_version_can_be_read() {
    let head = PositionHead {
        acked: [Tick(10); OWN],
        base: BaseNo(7),
        watermark: Tick(300),
        lacks: vec![host(1)],
        ..PositionHead::default()
    };
    assert_eq!(PositionHead::read_versioned(&[4, 20, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xac, 2, 1, 0x80, 2]), Some(head));
    let part = PositionPart::new([(1, Tick(10), Tick(15))].into(), [(1, Tick(20))].into());
    assert_eq!(PositionPart::read_versioned(&[1, 1, 1, 20, 10, 1, 1, 10]), Some(part));
    let base = PositionBase([(PubendId(0x21), Tick(10)), (PubendId(0x22), Tick(9))].into());
    assert_eq!(PositionBase::read_versioned(&[1, 2, 0x21, 20, 1, 1]), Some(base));
}

#[test]
fn it_stands_where_the_base_does_but_in_its_parts_and_where_it_lacks_the_log() {
    let streams = |number: u64, tick: u64| (0..4).map(move |index| (host(number).pubend(index), Tick(tick)));
    let base: Vec<_> = streams(1, 50).chain(streams(2, 20)).chain(streams(3, 50)).chain(streams(4, 50)).collect();
    let head = PositionHead { base: BaseNo(1), watermark: Tick(30), lacks: vec![host(3)], ..PositionHead::default() };
    let part = PositionPart::new([(0, Tick(5), Tick(7))].into(), [(0, Tick(9))].into());
    let restored = RestoredPosition::new(&head, BTreeMap::from([(host(4), part)]), &base);
    let remote = |pubend, since, acked| RemotePosition { pubend, since: Tick(since), acked: Tick(acked) };
    let as_base = (0..4).map(|index| remote(host(1).pubend(index), 30, 50));
    let as_watermark = (0..4).map(|index| remote(host(2).pubend(index), 30, 30));
    let all: Vec<_> = as_base.chain(as_watermark).chain([remote(host(4).pubend(0), 5, 7)]).collect();
    assert_eq!(restored.durable.remote, all);
    assert_eq!(restored.durable.remote_beyond, [EventId { pubend: host(4).pubend(0), tick: Tick(9) }]);
    let marks: Vec<_> = restored.written.marks().iter().collect();
    assert_eq!(marks, [(host(4).pubend(0), Tick(9))], "what a base says is not behind later ones");
}
