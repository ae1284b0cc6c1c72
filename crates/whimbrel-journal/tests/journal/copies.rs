//! A copy of a journal that goes on: what it holds, and what it keeps for how long.

use crate::common::{SMALL, fill, id, open, payload, read_all, until_not_busy};
use whimbrel_journal::twin::Twin;
use whimbrel_journal::{CutFile, Log, Options, Refused, Stepped};

#[test]
fn what_a_copy_needs_is_kept_as_long_as_it_is_made_and_no_longer() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    let last = fill(&mut journal, a, 0);
    let records = read_all(&journal, a);
    let cut = journal.log.begin_cut();
    journal.log.chop(a, last).unwrap();
    journal.settle();
    assert_eq!(journal.log.append(a, last + 1, &[]), Err(Refused::Full), "nothing is given back meanwhile");
    let target = Twin::new();
    cut.copy(&twin, &target).unwrap();
    assert_eq!(read_all(&open(&target), a), records);
    journal.log.end_cut();
    journal.settle();
    assert!(fill(&mut journal, a, last) > last + 500, "it is given back");
}

#[test]
fn a_copy_of_files_longer_than_what_is_copied_at_once_is_whole() {
    let options = Options { segment_bytes: (3 << 19) + 4096, batch_bytes: 64 << 10, max_bytes: 16 << 20 };
    let twin = Twin::new();
    let mut journal = Stepped::new(Log::open(&twin, options, 7).unwrap().0, &twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    for tick in 1..=70 {
        let record = payload(1, tick, 60_000);
        until_not_busy(&mut journal, |log| log.append(a, tick, &[&record])).unwrap();
    }
    journal.settle();
    let cut = journal.log.begin_cut();
    let files: Vec<CutFile> = cut.files().collect();
    let (tail, sealed) = files.split_last().unwrap();
    let bytes = u64::from(options.segment_bytes);
    assert!(sealed.len() >= 2 && sealed.iter().all(|file| (file.bytes, file.used) == (bytes, bytes)));
    assert!(tail.bytes == bytes && (1 << 20..bytes).contains(&tail.used), "{tail:?}");
    let target = Twin::new();
    cut.copy(&twin, &target).unwrap();
    let (log, report) = Log::open(&target, options, 8).unwrap();
    assert_eq!((report.created, report.damages, report.torn), (false, vec![], None));
    assert_eq!(read_all(&Stepped::new(log, &target), a), read_all(&journal, a));
}

#[test]
fn a_copy_is_the_same_in_whatever_pieces_it_is_read() {
    let twin = Twin::new();
    let mut journal = open(&twin);
    let (a, _) = journal.log.open_stream(id(1)).unwrap();
    for tick in 1..=400 {
        until_not_busy(&mut journal, |log| log.append(a, tick, &[&payload(1, tick, 300)])).unwrap();
    }
    journal.settle();
    let cut = journal.log.begin_cut();
    // The segment that was written is sealed after the cut: what its head says then is not of that
    // moment.
    let tail = cut.files().last().unwrap();
    let head = twin.contents(tail.slot).unwrap()[..4096].to_vec();
    for tick in 401..=800 {
        until_not_busy(&mut journal, |log| log.append(a, tick, &[&payload(1, tick, 300)])).unwrap();
    }
    journal.settle();
    assert!(twin.contents(tail.slot).unwrap()[..4096] != head, "it is sealed");
    for CutFile { slot, used, .. } in cut.files() {
        let mut whole = vec![0; used as usize];
        cut.read(&twin, slot, 0, &mut whole).unwrap();
        if slot == tail.slot {
            assert_eq!(whole[..4096], head);
        } else {
            assert_eq!(whole, twin.contents(slot).unwrap());
        }
        for piece in [512, 1000, 4096, 5000] {
            let mut pieces = Vec::new();
            while pieces.len() < whole.len() {
                let mut bytes = vec![0; piece.min(whole.len() - pieces.len())];
                cut.read(&twin, slot, pieces.len() as u64, &mut bytes).unwrap();
                pieces.extend(bytes);
            }
            assert!(pieces == whole, "file {slot} in pieces of {piece}");
        }
    }
    assert!(cut.read(&twin, tail.slot, SMALL.segment_bytes.into(), &mut [0]).is_err(), "beyond the end");
}
