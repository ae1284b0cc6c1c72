//! What a map promises when nothing crashes.

use std::collections::BTreeMap;

use crate::common::mapping::{SEED, clean, restore, try_restore};
use crate::common::{SMALL, fill, id, open, payload, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{
    CLEAN_ABOVE, CLEAN_RATE, Damage, Journal, KEY_MAX, Log, Map, MapOptions, Need, Options, Piece, ReadBuffer,
    ReadError, Refused, RestoreError, Stepped, Stream, Ticket, Wanted,
};

/// A map in the stream 100.
fn map<'a>(twin: &'a Twin, options: Options, clean_min: u64) -> (Stepped<'a, Twin>, Map) {
    let mut journal = Stepped::new(Log::open(twin, options, 7).unwrap().0, twin);
    let (stream, _) = journal.log.open_stream(id(100)).unwrap();
    let (map, _) = try_restore(&journal, stream, clean_min).unwrap();
    (journal, map)
}

/// Does it when the journal is not busy any more.
fn insist(journal: &mut Stepped<'_, Twin>, deed: impl FnMut(&mut Log) -> Result<Ticket, Refused>) -> Ticket {
    until_not_busy(journal, deed).expect("it is not refused")
}

fn number(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

#[test]
fn values_come_back_in_the_order_in_which_they_were_last_written() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, u64::MAX);
    let log = &mut journal.log;
    map.put(log, b"a", b"1").unwrap();
    map.put(log, b"b", b"").unwrap();
    map.put(log, b"", b"no key").unwrap();
    map.put(log, b"c", b"3").unwrap();
    map.put(log, b"a", b"4").unwrap();
    let last = map.remove(log, b"c").unwrap();
    assert_eq!(map.remove(log, b"c").unwrap(), last, "nothing is written for a key without a value");
    assert_eq!(map.remove(log, b"never").unwrap(), last);
    assert!(map.contains(b"a") && map.contains(b"") && !map.contains(b"c"));
    journal.settle();
    let journal = open(&twin);
    let (again, given) = try_restore(&journal, map.stream(), 0).unwrap();
    let expected = [(&b"b"[..], &b""[..]), (b"", b"no key"), (b"a", b"4")];
    assert_eq!(given, expected.map(|(key, value)| (key.to_vec(), value.to_vec())));
    assert_eq!(again.info(), map.info());
}

#[test]
fn the_stream_stays_below_two_and_a_half_times_what_counts() {
    // Overwriting keys at random, a few of them, and all in turn; the last is the hardest for a
    // cleaning that begins with the oldest.
    for style in 0..3 {
        let twin = Twin::new();
        let options = Options { max_bytes: 4 << 20, ..SMALL };
        let (mut journal, mut map) = map(&twin, options, 20_000);
        let mut rng = fastrand::Rng::with_seed(style);
        let mut most = 0.0f64;
        for turn in 0..20_000 {
            let key = match style {
                0 => rng.u32(0..1000),
                1 if turn >= 1000 => rng.u32(0..100),
                _ => turn % 1000,
            };
            let value = payload(1, rng.u64(..), rng.usize(0..200));
            insist(&mut journal, |log| map.put(log, &number(key), &value));
            if turn % 8 == 0 {
                clean(&mut journal, &mut map);
            }
            let info = map.info();
            if info.live > 50_000 {
                most = most.max(info.held as f64 / info.live as f64);
            }
        }
        let bound = CLEAN_ABOVE as f64 * (1.0 + 1.0 / CLEAN_RATE as f64) + 0.1;
        assert!(most > CLEAN_ABOVE as f64 && most < bound, "style {style}: {most} times");
        let info = map.info();
        assert!(info.cleaned > 1_000_000 && info.keys == 1000, "{info:?}");
        journal.settle();
        assert_eq!(restore(&open(&twin), map.stream(), 0).0.info().live, info.live);
    }
}

#[test]
fn when_everything_is_removed_the_stream_shrinks_to_the_minimum() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 10_000);
    for key in 0..1000 {
        insist(&mut journal, |log| map.put(log, &number(key), &payload(1, key.into(), 300)));
    }
    for key in 0..1000 {
        insist(&mut journal, |log| map.remove(log, &number(key)));
        clean(&mut journal, &mut map);
    }
    let info = map.info();
    assert_eq!((info.keys, info.live), (0, 0));
    assert!(info.held <= 10_000 && info.cleaned > 300_000, "{info:?}");
}

#[test]
fn a_put_pays_for_a_bounded_step_of_cleaning() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 100_000);
    // As many keys as make the piece that is read long; then all of them cease to count.
    for turn in 0..1000 {
        insist(&mut journal, |log| map.put(log, &number(turn % 500), &[1; 90]));
    }
    journal.settle();
    let mut steps = 0;
    for turn in 0..1000 {
        let before = map.info();
        insist(&mut journal, |log| map.put(log, &number(turn % 500), &[1; 90]));
        if let Some(wanted) = map.wanted() {
            map.take(Piece::read(&journal, map.stream(), wanted, &mut ReadBuffer::default()));
        }
        map.clean(&mut journal.log);
        map.clean(&mut journal.log);
        let cleaned = map.info().cleaned - before.cleaned;
        assert!(cleaned <= CLEAN_RATE * 95 + 95, "{cleaned} bytes for a put of 95");
        steps += u64::from(cleaned > 0);
        journal.settle();
    }
    assert!(steps > 100, "{steps} steps");
}

#[test]
fn what_is_cleaned_is_chopped_before_more_is_read() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 20_000);
    let stream = map.stream();
    let chopped = |journal: &Stepped<'_, Twin>| journal.log.info(stream).map_or(0, |info| info.chopped);
    let mut pieces = 0;
    for turn in 0..3000 {
        insist(&mut journal, |log| map.put(log, &number(turn % 50), &[1; 90]));
        journal.settle();
        let before = chopped(&journal);
        if let Some(wanted) = map.wanted() {
            assert_eq!(wanted.from, before + 1, "all that was cleaned is chopped when the next piece is read");
            map.take(Piece::read(&journal, map.stream(), wanted, &mut ReadBuffer::default()));
            pieces += 1;
        }
        map.clean(&mut journal.log);
        journal.settle();
    }
    let info = map.info();
    assert!(pieces > 2 && info.cleaned > 200_000, "{pieces} pieces, {info:?}");
    assert!(journal.log.usage(map.stream()).unwrap().bytes < 100_000, "it is given back");
}

#[test]
fn a_long_piece_is_chopped_once_when_the_last_of_it_is_cleaned() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, u64::MAX);
    let stream = map.stream();
    // What is earned by a put cleans four records, and the piece holds a multiple of that.
    for turn in 0..1999 {
        insist(&mut journal, |log| map.put(log, &number(turn % 50), &[1; 90]));
    }
    journal.settle();
    let (mut map, _) = restore(&journal, stream, 20_000);
    let mut chops = Vec::new();
    for turn in 1999.. {
        insist(&mut journal, |log| map.put(log, &number(turn % 50), &[1; 90]));
        journal.settle();
        if let Some(wanted) = map.wanted() {
            if wanted.from > 1 {
                assert_eq!(wanted.from, 2001);
                break;
            }
            map.take(Piece::read(&journal, stream, wanted, &mut ReadBuffer::default()));
        }
        map.clean(&mut journal.log);
        journal.settle();
        chops.extend(journal.log.info(stream).map(|info| info.chopped));
    }
    assert_eq!(chops.len(), 500);
    chops.dedup();
    assert_eq!(chops, [0, 2000]);
}

#[test]
fn below_the_minimum_nothing_is_cleaned() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 50_000);
    while map.info().held < 49_900 {
        insist(&mut journal, |log| map.put(log, b"key", &[1; 90]));
        assert_eq!(map.wanted(), None);
        clean(&mut journal, &mut map);
    }
    assert_eq!(map.info().cleaned, 0);
    for _ in 0..2000 {
        insist(&mut journal, |log| map.put(log, b"key", &[1; 90]));
        clean(&mut journal, &mut map);
    }
    let info = map.info();
    assert!(info.cleaned > 100_000 && info.held <= 50_100, "{info:?}");
}

#[test]
fn at_the_minimum_nothing_is_cleaned_and_above_it_is() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 940);
    for _ in 0..10 {
        assert_eq!(map.wanted(), None);
        insist(&mut journal, |log| map.put(log, b"key", &[1; 90]));
    }
    assert_eq!((map.info().held, map.wanted()), (940, None));
    insist(&mut journal, |log| map.put(log, b"key", &[1; 90]));
    assert!(map.wanted().is_some());
}

#[test]
fn a_map_tells_its_memory_and_keeps_its_secret() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 0);
    for key in 0..1000 {
        insist(&mut journal, |log| map.put(log, &number(key), b"value"));
    }
    assert!((24_000..100_000).contains(&map.info().memory), "{:?}", map.info());
    let told = format!("{:?}", MapOptions { seed: SEED, clean_min: 4321 });
    assert!(told.contains("clean_min: 4321") && !told.contains("seed"), "{told}");
}

#[test]
fn a_full_journal_refuses_without_harm_and_cleaning_goes_on_when_there_is_room() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 3000);
    let (other, _) = journal.log.open_stream(id(1)).unwrap();
    for key in 0..300 {
        insist(&mut journal, |log| map.put(log, &number(key), &payload(1, key.into(), 400)));
    }
    fill(&mut journal, other, 0);
    for key in 300.. {
        let outcome = until_not_busy(&mut journal, |log| map.put(log, &number(key), &payload(1, key.into(), 400)));
        if outcome == Err(Refused::Full) {
            break;
        }
    }
    journal.settle();
    for round in 0..10 {
        for key in 0..300 {
            let before = map.info();
            let outcome = map.put(&mut journal.log, &number(key), b"new");
            assert_eq!(outcome, Err(Refused::Full), "round {round}");
            assert_eq!(map.remove(&mut journal.log, &number(key)), Err(Refused::Full));
            assert_eq!(map.info(), before);
        }
        clean(&mut journal, &mut map);
    }
    let (again, values) = restore(&open(&twin), map.stream(), 0);
    assert_eq!(again.info().live, map.info().live);
    assert!((0..300).all(|key| values[&number(key)[..]] == payload(1, key.into(), 400)));
    journal.log.chop(other, u64::MAX).unwrap();
    journal.settle();
    let keys = map.info().keys as u32;
    for turn in 0..5 * keys {
        insist(&mut journal, |log| map.put(log, &number(turn % keys), b"new"));
        clean(&mut journal, &mut map);
    }
    assert!(map.info().held < 20_000, "{:?}", map.info());
}

#[test]
fn keys_and_values_have_bounds_that_are_told() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 0);
    let max = SMALL.record_max();
    let before = map.info();
    assert_eq!(KEY_MAX, usize::from(u16::MAX) + 65, "the longest string of the protocol, and what comes before it");
    let refused = map.put(&mut journal.log, b"key", &vec![0; max]);
    assert_eq!(refused, Err(Refused::TooLong { bytes: max + 4, max }));
    let refused = map.put(&mut journal.log, &vec![0; KEY_MAX + 1], b"");
    assert_eq!(refused, Err(Refused::KeyTooLong { bytes: KEY_MAX + 1, max: KEY_MAX }));
    assert_eq!(map.info(), before);
    map.put(&mut journal.log, b"key", &vec![0; max - 4]).unwrap();

    let twin = Twin::new();
    let options = Options { segment_bytes: 2 << 20, batch_bytes: 256 << 10, max_bytes: 16 << 20 };
    let (mut journal, mut map) = self::map(&twin, options, 0);
    map.put(&mut journal.log, &vec![7; KEY_MAX], &[1; 1000]).unwrap();
    journal.settle();
    let (_, given) = try_restore(&journal, map.stream(), 0).unwrap();
    assert_eq!(given, [(vec![7; KEY_MAX], vec![1; 1000])]);
}

#[test]
fn what_no_batch_can_hold_is_told_and_what_this_one_cannot_waits() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 0);
    journal.settle();
    let need = |records, bytes, changes| Need { streams: 1, records, puts: 0, bytes, changes };
    assert!(matches!(journal.log.require(need(2, 2 * SMALL.record_max(), 0)), Err(Refused::TooLong { .. })));
    assert!(matches!(journal.log.require(need(0, 0, 1000)), Err(Refused::TooLong { .. })));
    assert_eq!(journal.log.require(need(3, 3000, 3)), Ok(()));
    map.put(&mut journal.log, b"key", &[0; 2000]).unwrap();
    assert_eq!(journal.log.require(need(3, 3000, 3)), Err(Refused::Busy));
    assert!(journal.write());
    assert_eq!(journal.log.require(need(3, 3000, 3)), Ok(()));
}

#[test]
fn what_is_required_is_reckoned_and_told() {
    // Of a batch, so that its part for changes is a multiple of what one may take.
    let options = Options { batch_bytes: 4800, ..SMALL };
    let (batch, control, record, change) = (4800, 600, 20, 25);
    let twin = Twin::new();
    let (mut journal, map) = map(&twin, options, 0);
    let stream = map.stream();
    journal.settle();
    let log = &mut journal.log;
    let mut need = Need { streams: 3, ..Need::default() };
    need.record(2000);
    need.record(2000);
    need.put(100, 1000);
    need.put(200, 2000);
    assert_eq!(need, Need { streams: 3, records: 2, puts: 2, bytes: 4000 + 1100 + 2200 + 2 * 10, changes: 0 });
    // Of each stream a section, of which the directory is there twice.
    let section = 2 * 47;
    let bytes = need.bytes + 4 * record + 3 * section;
    assert_eq!(log.require(need), Err(Refused::TooLong { bytes, max: batch }));
    let fits = Need { streams: 1, records: 1, puts: 0, bytes: batch - record - section, changes: control / change };
    assert_eq!(log.require(fits), Ok(()));
    assert_eq!(
        log.require(Need { bytes: fits.bytes + 1, ..fits }),
        Err(Refused::TooLong { bytes: batch + 1, max: batch })
    );
    assert_eq!(
        log.require(Need { changes: fits.changes + 1, ..fits }),
        Err(Refused::TooLong { bytes: control + change, max: control })
    );
    // What is collected takes its part: a change four bytes here, a record its length and a byte
    // more.
    for upto in 128..153 {
        log.chop(stream, upto).unwrap();
    }
    log.append(stream, 1000, &[&[1; 100]]).unwrap();
    let left = Need { bytes: fits.bytes - section - 101, changes: (control - 100) / change, ..fits };
    assert_eq!(log.require(left), Ok(()));
    assert_eq!(log.require(Need { bytes: left.bytes + 1, ..left }), Err(Refused::Busy));
    assert_eq!(log.require(Need { changes: left.changes + 1, ..left }), Err(Refused::Busy));
}

#[test]
fn a_damaged_map_is_not_restored_and_neither_is_one_of_a_later_version() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 0);
    for key in 0..100 {
        insist(&mut journal, |log| map.put(log, &number(key), &[0xee; 200]));
    }
    journal.settle();
    let stream = map.stream();
    let contents = twin.contents(0).unwrap();
    let place = contents.windows(50).position(|window| window == [0xee; 50]).unwrap();
    twin.corrupt(0, place as u64, |bytes| bytes[0] ^= 1, 1);
    let error = try_restore(&journal, stream, 0).unwrap_err();
    assert!(matches!(error, RestoreError::Read(ReadError::Damaged(Damage { lost: Some(_), .. }))), "{error}");
    twin.corrupt(0, place as u64, |bytes| bytes[0] ^= 1, 1);
    assert_eq!(restore(&journal, stream, 0).0.info().keys, 100);
    let last = journal.log.info(stream).unwrap().last;
    journal.log.append(stream, last + 1, &[&[1 << 2 | 2, b'k']]).unwrap();
    journal.log.append(stream, last + 2, &[&[1 << 2, b'k']]).unwrap();
    journal.settle();
    assert_eq!(try_restore(&journal, stream, 0).unwrap_err(), RestoreError::Unknown(last + 1));
    journal.log.chop(stream, last + 1).unwrap();
    journal.log.append(stream, last + 4, &[&[1 << 2, b'k']]).unwrap();
    journal.settle();
    assert_eq!(try_restore(&journal, stream, 0).unwrap_err(), RestoreError::Unknown(last + 4), "one is missing");
}

#[test]
fn a_read_that_fails_is_tried_again_when_more_has_ceased_to_count() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 1000);
    let put = |journal: &mut Stepped<'_, Twin>, map: &mut Map| insist(journal, |log| map.put(log, b"key", &[1; 90]));
    let wanted: Wanted = loop {
        put(&mut journal, &mut map);
        if let Some(wanted) = map.wanted() {
            break wanted;
        }
    };
    assert_eq!(wanted.from, 1);
    assert_eq!(map.wanted(), None, "one at a time");
    map.take(Err(ReadError::Moved));
    assert_eq!((map.wanted(), map.info().failed_reads), (None, 1));
    put(&mut journal, &mut map);
    let wanted = map.wanted().expect("more has ceased to count");
    map.take(Piece::read(&journal, map.stream(), wanted, &mut ReadBuffer::default()));
    put(&mut journal, &mut map);
    clean(&mut journal, &mut map);
    assert!(map.info().cleaned > 0);
}

#[test]
fn an_empty_map_goes_on_behind_everything_that_was_chopped() {
    let twin = Twin::new();
    let (mut journal, mut map) = map(&twin, SMALL, 0);
    let stream: Stream = map.stream();
    map.put(&mut journal.log, b"key", b"old").unwrap();
    journal.log.chop(stream, 1 << 60).unwrap();
    journal.settle();
    drop(journal);
    let (mut journal, mut map) = self::map(&twin, SMALL, 0);
    assert_eq!((map.info().keys, map.contains(b"key")), (0, false));
    map.put(&mut journal.log, b"key", b"new").unwrap();
    journal.settle();
    let mut given = Vec::new();
    let options = MapOptions { seed: SEED, clean_min: 0 };
    let mut sink = |key: &[u8], value: &[u8]| given.push((key.to_vec(), value.to_vec()));
    Map::restore(&(&journal.log, &twin), stream, options, &mut ReadBuffer::default(), &mut sink).unwrap();
    assert_eq!(given, [(b"key".to_vec(), b"new".to_vec())]);
}

#[test]
fn on_real_files_and_with_threads_it_is_cleaned_while_it_is_used_and_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 256 << 10, batch_bytes: 16 << 10, max_bytes: 4 << 20 };
    let restored = |journal: &Journal, model: &BTreeMap<u64, Vec<u8>>| {
        let (stream, ticket) = journal.open_stream(id(100)).unwrap();
        journal.wait(ticket).unwrap();
        let options = MapOptions { seed: SEED, clean_min: 50_000 };
        let mut values = BTreeMap::new();
        let mut sink = |key: &[u8], value: &[u8]| {
            values.insert(u64::from_be_bytes(key.try_into().unwrap()), value.to_vec());
        };
        let map = Map::restore(journal, stream, options, &mut ReadBuffer::default(), &mut sink).unwrap();
        assert_eq!(values, *model);
        map
    };
    let mut model = BTreeMap::new();
    for life in 0..3 {
        let (journal, report) = Journal::open(place.path(), options, |_| {}).unwrap();
        assert_eq!(report.damages, []);
        let mut map = restored(&journal, &model);
        let mut rng = fastrand::Rng::with_seed(life);
        for _ in 0..10_000 {
            let (key, value) = (rng.u64(0..200), payload(1, rng.u64(..), rng.usize(0..300)));
            let remove = rng.u32(0..4) == 0;
            let deed = |log: &mut Log| {
                let key = key.to_be_bytes();
                let ticket = if remove { map.remove(log, &key)? } else { map.put(log, &key, &value)? };
                map.clean(log);
                Ok(ticket)
            };
            journal.submit_wait(deed).unwrap();
            if remove {
                model.remove(&key)
            } else {
                model.insert(key, value)
            };
            if let Some(wanted) = map.wanted() {
                map.take(Piece::read(&journal, map.stream(), wanted, &mut ReadBuffer::default()));
            }
        }
        let info = map.info();
        assert!(info.copied > 100_000 && info.held < 100_000 && info.failed_reads == 0, "{info:?}");
        journal.close().unwrap();
    }
    restored(&Journal::open(place.path(), options, |_| {}).unwrap().0, &model);
}
