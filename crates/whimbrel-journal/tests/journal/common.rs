//! What the tests of the journal have in common.

pub mod mapping;
mod work;

use whimbrel_journal::twin::Twin;
use whimbrel_journal::{HEAD, Log, Refused, Stepped, Storage, Stream};

pub use work::*;

pub fn open<S: Storage>(storage: &S) -> Stepped<'_, S> {
    let (log, report) = Log::open(storage, SMALL, 7).expect("the journal opens");
    assert_eq!(report.damages, [], "nothing is damaged");
    assert_eq!(log.files(), storage.slots().expect("they can be listed").len() as u64);
    Stepped::new(log, storage)
}

/// Does it when the journal is not busy any more.
pub fn until_not_busy<T, S: Storage>(
    journal: &mut Stepped<'_, S>,
    mut deed: impl FnMut(&mut Log) -> Result<T, Refused>,
) -> Result<T, Refused> {
    loop {
        match deed(&mut journal.log) {
            Err(Refused::Busy) => assert!(journal.write() | journal.chore(), "busy ends by itself"),
            outcome => return outcome,
        }
    }
}

/// Appends until it is refused for want of space; returns the last tick accepted.
pub fn fill(journal: &mut Stepped<'_, Twin>, stream: Stream, mut tick: u64) -> u64 {
    loop {
        match until_not_busy(journal, |log| log.append(stream, tick + 1, &[&payload(1, tick + 1, 500)])) {
            Ok(_) => tick += 1,
            Err(Refused::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    journal.settle();
    tick
}

/// Where the frames of a file begin, up to some place, and their lengths.
pub fn places(twin: &Twin, slot: u32, end: usize) -> Vec<(usize, usize)> {
    let bytes = twin.contents(slot).unwrap();
    let length = |begin: usize| u32::from_le_bytes(bytes[begin..begin + 4].try_into().unwrap()) as usize;
    let begins = std::iter::successors(Some(HEAD), |begin| Some(begin + length(*begin)));
    begins.take_while(|begin| *begin < end).map(|begin| (begin, length(begin))).collect()
}
