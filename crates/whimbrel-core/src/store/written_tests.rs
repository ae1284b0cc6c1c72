//! What is written of a position is read again, and never behind what was given.

use std::collections::BTreeMap;

use proptest::prelude::*;
use whimbrel_event::{EventId, HostId, PubendId, Tick};

use super::FarStand;
use super::base::{Base, BaseNo};
use super::keys::{OWN, Value};
use super::written::{Head, Part, Restored};

fn again<'a, V: Value<'a>>(value: &V, out: &'a mut Vec<u8>) -> Option<V> {
    value.put_versioned(out);
    V::read_versioned(out)
}

fn host(number: u64) -> HostId {
    HostId::new(number << 8)
}

proptest! {
    #[test]
    fn all_of_it_comes_back(
        ticks: [u64; OWN], number: u64, level: u64,
        lacks in proptest::collection::btree_set(1_u64..1 << 40, 0..5),
        far in proptest::collection::btree_map(0_u8..4, (any::<u64>(), any::<u64>()), 0..5),
        beyond in proptest::collection::vec((0_u8..4, any::<u64>()), 0..9),
        base in proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..9),
    ) {
        let acked = ticks.map(|tick| Tick(tick >> 1));
        let head = Head {
            acked,
            beyond: vec![(0, Tick(acked[0].0 + 1)), (3, Tick(acked[3].0 + (number >> 2)))],
            base: BaseNo(number),
            level: Tick(level),
            lacks: lacks.into_iter().map(host).collect(),
            ..Head::default()
        };
        prop_assert_eq!(again(&head, &mut Vec::new()), Some(head.clone()));
        let part = Part::new(
            far.into_iter().map(|(index, (since, acked))| (index, Tick(since), Tick(acked))).collect(),
            beyond.into_iter().map(|(index, tick)| (index, Tick(tick))).collect(),
        );
        prop_assert_eq!(again(&part, &mut Vec::new()), Some(part.clone()));
        let base = Base(base.into_iter().map(|(pubend, tick)| (PubendId(pubend), Tick(tick))).collect());
        prop_assert_eq!(again(&base, &mut Vec::new()), Some(base.clone()));
    }

    #[test]
    fn garbage_is_refused_or_read_but_never_a_panic(bytes: Vec<u8>) {
        let _ = (Head::read_versioned(&bytes), Part::read_versioned(&bytes), Base::read_versioned(&bytes));
    }
}

#[test]
fn earlier_versions_can_be_read() {
    let head = Head::read_versioned(&[1, 20, 0, 0, 0, 2, 0, 3, 0, 4]).unwrap();
    let beyond = vec![(0, Tick(13)), (0, Tick(17))];
    assert_eq!(head, Head { acked: [Tick(10); OWN], beyond, ..Head::default() });
    let bytes = [2, 20, 0, 0, 0, 0, 1, 0x21, 20, 10, 1, 0x21, 30];
    let (pubend, since, acked) = (PubendId(0x21), Tick(10), Tick(15));
    let far = vec![FarStand { pubend, since, acked }];
    let far_beyond = vec![EventId { pubend, tick: Tick(30) }];
    let head = Head { acked: [Tick(10); OWN], far: far.clone(), far_beyond: far_beyond.clone(), ..Head::default() };
    assert_eq!(Head::read_versioned(&bytes), Some(head.clone()));
    // Where it stood then is where it stands, and nothing of it is behind what was given.
    let restored = Restored::new(&head, BTreeMap::new(), &[]);
    assert_eq!((restored.stand.far, restored.stand.far_beyond, restored.digest), (far, far_beyond, 0));
    assert_eq!(restored.written.marks().get(pubend), Tick(30));
    assert_eq!(Head::read_versioned(&[4, 20, 0, 0, 0, 0, 0, 0, 0]), None, "a version that is not known");
}

#[test]
fn this_version_can_be_read() {
    let head =
        Head { acked: [Tick(10); OWN], base: BaseNo(7), level: Tick(300), lacks: vec![host(1)], ..Head::default() };
    assert_eq!(Head::read_versioned(&[3, 20, 0, 0, 0, 0, 7, 0xac, 2, 1, 0x80, 2]), Some(head));
    let part = Part::new([(1, Tick(10), Tick(15))].into(), [(1, Tick(20))].into());
    assert_eq!(Part::read_versioned(&[1, 1, 1, 20, 10, 1, 1, 10]), Some(part));
    let base = Base([(PubendId(0x21), Tick(10)), (PubendId(0x22), Tick(9))].into());
    assert_eq!(Base::read_versioned(&[1, 2, 0x21, 20, 1, 1]), Some(base));
}

#[test]
fn it_stands_where_the_base_does_but_in_its_parts_and_where_it_lacks_the_log() {
    let streams = |number: u64, tick: u64| (0..4).map(move |index| (host(number).pubend(index), Tick(tick)));
    let base: Vec<_> = streams(1, 50).chain(streams(2, 20)).chain(streams(3, 50)).chain(streams(4, 50)).collect();
    let head = Head { base: BaseNo(1), level: Tick(30), lacks: vec![host(3)], ..Head::default() };
    let part = Part::new([(0, Tick(5), Tick(7))].into(), [(0, Tick(9))].into());
    let restored = Restored::new(&head, BTreeMap::from([(host(4), part)]), &base);
    let far = |pubend, since, acked| FarStand { pubend, since: Tick(since), acked: Tick(acked) };
    let as_base = (0..4).map(|index| far(host(1).pubend(index), 30, 50));
    let as_level = (0..4).map(|index| far(host(2).pubend(index), 30, 30));
    let all: Vec<_> = as_base.chain(as_level).chain([far(host(4).pubend(0), 5, 7)]).collect();
    assert_eq!(restored.stand.far, all);
    assert_eq!(restored.stand.far_beyond, [EventId { pubend: host(4).pubend(0), tick: Tick(9) }]);
    let marks: Vec<_> = restored.written.marks().iter().collect();
    assert_eq!(marks, [(host(4).pubend(0), Tick(9))], "what a base says is not behind later ones");
}
