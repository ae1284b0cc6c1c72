//! What goes on in a journal that is full: a map, and whatever gives space back.

use std::collections::BTreeMap;

use crate::common::mapping::{clean, restore};
use crate::common::{SMALL, fill, id, payload, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    Log, MAP_SEGMENTS, Map, Need, Options, RESERVE_SEGMENTS, Refused, SEGMENTS_MIN, Stepped, Stream,
};

/// The map holds so little that it fits into one segment.
const CLEAN_MIN: u64 = 3000;
/// What a driver asks before it appends an event.
const EVENT: Need = Need { streams: 1, records: 1, puts: 0, bytes: 500, changes: 0 };

/// A journal with a map, the stream that fills it, and one that has nothing to give back.
struct Full<'a> {
    journal: Stepped<'a, Twin>,
    map: Map,
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    events: Stream,
    other: Stream,
}

impl<'a> Full<'a> {
    fn open(twin: &'a Twin, options: Options) -> Full<'a> {
        let (log, report) = Log::open(twin, options, 7).unwrap();
        assert_eq!(report.damages, []);
        let mut journal = Stepped::new(log, twin);
        let [stream, events, other] = [100, 1, 2].map(|number| journal.log.open_stream(id(number)).unwrap().0);
        let (map, values) = restore(&journal, stream, CLEAN_MIN);
        Full { journal, map, values, events, other }
    }

    /// Puts or removes, and chops, as one atom.
    fn submit(&mut self, turn: u64, rng: &mut fastrand::Rng) {
        let Full { journal, map, values, other, .. } = self;
        let key = rng.u64(0..20).to_be_bytes();
        let value = (rng.u32(0..4) > 0).then(|| payload(1, rng.u64(..), rng.usize(0..60)));
        let mut need = Need { streams: 1, changes: 1, ..Need::default() };
        need.put(key.len(), value.as_ref().map_or(0, Vec::len));
        let outcome = until_not_busy(journal, |log| log.require(need));
        assert_eq!(outcome, Ok(()), "turn {turn}, {} files", journal.log.files());
        let log = &mut journal.log;
        let done = match &value {
            Some(value) => map.put(log, &key, value),
            None => map.remove(log, &key),
        };
        done.and_then(|_| log.chop(*other, turn)).expect("what is required is not refused");
        match value {
            Some(value) => drop(values.insert(key.to_vec(), value)),
            None => drop(values.remove(&key[..])),
        }
    }

    /// Does `turns` of that, in commits of some, and cleans the map; events are refused all the
    /// time.
    fn work(&mut self, turns: std::ops::Range<u64>, together: u64, rng: &mut fastrand::Rng) {
        for turn in turns {
            self.submit(turn, rng);
            if turn % together == 0 {
                clean(&mut self.journal, &mut self.map);
                assert_eq!(self.journal.log.require(EVENT), Err(Refused::Full), "turn {turn}");
                let mut mixed = EVENT;
                mixed.put(1, 1);
                mixed.changes = 1;
                assert_eq!(self.journal.log.require(mixed), Err(Refused::Full), "turn {turn}");
            }
        }
    }
}

fn a_map_and_chops_go_on(twin: &Twin, options: Options, together: u64) {
    let mut rng = fastrand::Rng::with_seed(together);
    let mut full = Full::open(twin, options);
    let last = fill(&mut full.journal, full.events, 0);
    full.work(1..5000, together, &mut rng);
    full.journal.settle();
    let values = full.values;
    let mut full = Full::open(twin, options);
    assert_eq!(full.values, values, "the class holds after opening too");
    full.work(5000..10_001, together, &mut rng);
    assert!(full.map.info().cleaned > 100_000, "{:?}", full.map.info());

    full.journal.log.chop(full.events, last).unwrap();
    full.journal.settle();
    let again = fill(&mut full.journal, full.events, last);
    assert!(again > last + 50, "events go on: {last}, {again}");
    (10_001..11_000).for_each(|turn| full.submit(turn, &mut rng));
    full.journal.settle();
    assert_eq!(Full::open(twin, options).values, full.values);
}

#[test]
fn when_events_are_refused_a_map_and_chops_go_on_and_a_chop_lets_events_go_on() {
    for segments in [u64::from(SEGMENTS_MIN), 9, 16] {
        for together in [1, 7, 40] {
            let options = Options { max_bytes: segments * u64::from(SMALL.segment_bytes), ..SMALL };
            a_map_and_chops_go_on(&Twin::new(), options, together);
        }
    }
}

#[test]
fn a_map_and_chops_go_on_also_when_the_disk_is_full() {
    for segments in [u64::from(SEGMENTS_MIN), 9] {
        let twin = Twin::new();
        twin.set_room(Some(segments * u64::from(SMALL.segment_bytes) + 1000));
        a_map_and_chops_go_on(&twin, SMALL, 5);
    }
}

#[test]
fn on_a_disk_without_room_for_what_is_kept_nothing_is_lost_and_chops_are_taken() {
    for segments in 1..u64::from(SEGMENTS_MIN) {
        let twin = Twin::new();
        twin.set_room(Some(segments * u64::from(SMALL.segment_bytes)));
        let mut full = Full::open(&twin, SMALL);
        let mut last = 0;
        for round in 1..20 {
            last = fill(&mut full.journal, full.events, last);
            assert!(last > 40, "{segments} segments: {last} records");
            let upto = full.journal.log.chop(full.events, last - round % 3);
            assert!(upto.is_ok(), "{segments} segments, round {round}: {upto:?}");
            full.journal.settle();
            full.journal.log.retry_space();
        }
        twin.set_room(None);
        full.journal.log.retry_space();
        assert!(fill(&mut full.journal, full.events, last) > last + 500, "it ends when there is room");
    }
}

/// Puts until that is refused; returns how many there were.
fn fill_map(full: &mut Full<'_>) -> u64 {
    let mut puts = 0u64;
    loop {
        let outcome = until_not_busy(&mut full.journal, |log| full.map.put(log, &puts.to_be_bytes(), &[1; 500]));
        match outcome {
            Ok(_) => puts += 1,
            Err(refused) => {
                assert_eq!(refused, Refused::Full);
                full.journal.settle();
                return puts;
            }
        }
    }
}

#[test]
fn when_a_map_is_refused_too_the_reserve_can_be_lent_for_a_start_and_chops_still_go_on() {
    let twin = Twin::new();
    let mut full = Full::open(&twin, SMALL);
    let last = fill(&mut full.journal, full.events, 0);
    fill_map(&mut full);
    for start in 0..40u64 {
        let mut full = Full::open(&twin, SMALL);
        let mut put = || until_not_busy(&mut full.journal, |log| full.map.put(log, b"start", &start.to_be_bytes()));
        assert_eq!(put().unwrap_err(), Refused::Full);
        full.journal.log.lend_reserve(true);
        let mut put = || until_not_busy(&mut full.journal, |log| full.map.put(log, b"start", &start.to_be_bytes()));
        put().unwrap();
        full.journal.log.lend_reserve(false);
        full.journal.settle();
    }
    let mut full = Full::open(&twin, SMALL);
    assert_eq!(full.values[&b"start"[..]], 39u64.to_be_bytes());
    full.journal.log.chop(full.events, last).unwrap();
    full.journal.settle();
    assert!(fill(&mut full.journal, full.events, last) > last + 500);
}

#[test]
fn a_smaller_bound_than_what_is_there_leaves_the_reserve() {
    let twin = Twin::new();
    let mut full = Full::open(&twin, SMALL);
    let last = fill(&mut full.journal, full.events, 0);
    full.journal.settle();
    let files = full.journal.log.files();
    let less = Options { max_bytes: u64::from(SEGMENTS_MIN) * u64::from(SMALL.segment_bytes), ..SMALL };
    let mut full = Full::open(&twin, less);
    full.journal.settle();
    assert_eq!(full.journal.log.files(), files, "what is kept is kept");
    full.map.put(&mut full.journal.log, b"key", b"value").unwrap();
    full.journal.log.chop(full.events, last).unwrap();
    full.journal.settle();
    let room = fill(&mut full.journal, full.events, last) - last;
    assert!((50..300).contains(&room), "{room}");
    assert!(full.journal.log.files() <= u64::from(SEGMENTS_MIN), "{}", full.journal.log.files());
}

#[test]
fn a_map_that_has_filled_its_own_segments_is_refused_and_leaves_the_reserve() {
    let twin = Twin::new();
    let mut full = Full::open(&twin, SMALL);
    let segment = u64::from(SMALL.segment_bytes);
    let used = |full: &mut Full<'_>| {
        let cut = full.journal.log.begin_cut();
        full.journal.log.end_cut();
        cut.files().count() as u64
    };
    let last = fill(&mut full.journal, full.events, 0);
    let most = SMALL.max_bytes / segment - u64::from(RESERVE_SEGMENTS);
    assert_eq!(used(&mut full), most - u64::from(MAP_SEGMENTS), "records take no segment that is kept");
    let puts = fill_map(&mut full);
    assert_eq!(used(&mut full), most, "a map takes no segment of the reserve");
    let mut put = Need { streams: 1, ..Need::default() };
    put.put(8, 500);
    assert_eq!(full.journal.log.require(put), Err(Refused::Full));
    assert_eq!(full.journal.log.require(Need { changes: 1, ..Need::default() }), Ok(()));
    let bytes = puts * 510;
    assert!(bytes > u64::from(MAP_SEGMENTS) * segment * 3 / 5, "{bytes}");
    assert!(bytes < u64::from(MAP_SEGMENTS + 1) * segment, "{bytes}");
    for upto in 1..2000 {
        full.journal.log.reserve(full.other, upto).unwrap();
        full.journal.settle();
    }
    assert_eq!(full.journal.log.files(), SMALL.max_bytes / segment);
    // What is given back first is the map's.
    let per_segment = segment / 560;
    full.journal.log.chop(full.events, per_segment * u64::from(RESERVE_SEGMENTS)).unwrap();
    full.journal.settle();
    assert_eq!(full.journal.log.require(EVENT), Err(Refused::Full));
    full.map.put(&mut full.journal.log, b"key", b"value").unwrap();
    full.journal.log.chop(full.events, last).unwrap();
    full.journal.settle();
    assert!(fill(&mut full.journal, full.events, last) > last + 500);
}
