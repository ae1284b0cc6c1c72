//! The real memory of the cache, compared with its own figure.

use whimbrel_event::{AcceptedEvent, EventId, PubendId, Tick, Time};

use super::{Cache, Capacity, DefaultPlan, PARTITIONS_MAX, PartitionSet, Plan, Policy};
use crate::content::plain;

fn write(cache: &mut Cache, importance: u8, payload: &[u8]) {
    let serial = cache.end_serial();
    let now = Time::from_nanos(serial * 1_000_000);
    let event = plain("fleet/7", payload, importance);
    let id = EventId { pubend: PubendId(1 + serial % 3), tick: Tick(now.as_nanos()) };
    cache.write(serial, 0, &AcceptedEvent { id, accepted: now, clock_offset: 0, event }, now);
}

/// A cache of this many bytes, full of small events of the highest importance.
fn full(policy: Policy, bytes: u64) -> Cache {
    let default = DefaultPlan { capacity: Capacity::Bytes(bytes), policy };
    let mut cache = Cache::new(Plan { partitions: Vec::new(), default, ceiling: bytes }, 1);
    while cache.gauges().all(|gauges| gauges.overwritten == 0) {
        write(&mut cache, 10, b"x");
    }
    cache
}

fn held(cache: &Cache) -> u64 {
    cache.partitions.iter().map(|partition| partition.slots.held()).sum()
}

/// As below, with enough events for a few bytes that each leaves behind to show.
#[test]
fn few_large_events_leave_no_room_behind_however_many_have_come() {
    const BYTES: u64 = 1 << 20;
    for policy in [Policy::Lrp, Policy::Random, Policy::PRIORITY, Policy::Value] {
        let mut cache = full(policy, BYTES);
        (0..60_000).for_each(|_| write(&mut cache, 1, &[b'x'; 9_000]));
        let (held, said) = (held(&cache), cache.bytes());
        assert!(held <= said * 3 / 2 + 128 * 1024, "{policy:?}: {held} held, {said} said");
    }
}

#[test]
fn what_is_overwritten_leaves_no_room_behind() {
    const BYTES: u64 = 1 << 20;
    for policy in [Policy::Lrp, Policy::Random, Policy::PRIORITY, Policy::Value] {
        for sizes in [&[0_usize][..], &[900], &[2_000], &[4_040, 26_000], &[1, 900, 300_000], &[50, 50, 50, 9_000]] {
            let mut cache = full(policy, BYTES);
            for turn in 0..6_000 {
                write(&mut cache, 1 + (turn % 3) as u8, &vec![b'x'; sizes[turn % sizes.len()]]);
                let (held, said) = (held(&cache), cache.bytes());
                assert!(said <= BYTES);
                assert!(held <= said * 3 / 2 + 128 * 1024, "{policy:?} {sizes:?} {turn}: {held} held, {said} said");
            }
        }
    }
}

#[test]
fn a_set_is_the_same_however_it_was_made() {
    for number in [0, 63, 64, 127, PARTITIONS_MAX - 1] {
        let mut set = PartitionSet::first(3);
        set.remove(number);
        let before = set.clone();
        assert!(!set.contains(number));
        set.insert(number);
        assert!(set.contains(number) && set != before);
        assert_eq!((set.len(), set.iter().filter(|of| *of == number).count()), (before.len() + 1, 1));
        set.remove(number);
        assert_eq!(set, before, "with and without words beyond the first, {number}");
        (0..3).for_each(|of| set.remove(of));
        assert!(set.is_empty() && set == PartitionSet::EMPTY && set.iter().next().is_none());
    }
}
