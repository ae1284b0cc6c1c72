//! Files of every version of the format open, and hold what they held.

use whimbrel_journal::file::Directory;
use whimbrel_journal::{Log, Options, ReadBuffer, Stepped, StreamId, Wanted, check};

#[test]
fn files_of_version_1_open_and_hold_what_they_held() {
    // A copy: opening locks the directory, and may write to it.
    let place = tempfile::tempdir().unwrap();
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1");
    for entry in std::fs::read_dir(fixture).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), place.path().join(entry.file_name())).unwrap();
    }
    let directory = Directory::open(place.path()).unwrap();
    let (log, report) = Log::open(&directory, Options { batch_bytes: 4096, ..Options::default() }, 0).unwrap();
    assert_eq!((report.created, report.damages.as_slice(), report.torn), (false, [].as_slice(), None));
    let mut journal = Stepped::new(log, &directory);
    let mut ticks = Vec::new();
    for id in 0..3 {
        let (stream, _) = journal.log.open_stream(StreamId { kind: 7, id }).unwrap();
        let mut found = Vec::new();
        let wanted = Wanted { from: 0, to: u64::MAX, budget: usize::MAX };
        let sink = &mut |tick, bytes: &[u8]| {
            assert_eq!(bytes, format!("record {tick} ").repeat(12).as_bytes());
            found.push(tick);
        };
        assert_eq!(journal.read(stream, wanted, &mut ReadBuffer::default(), sink), Ok(None));
        ticks.push(found);
    }
    let every_tenth: Vec<u64> = (10..=900).step_by(10).collect();
    let rest: Vec<u64> = (801..=900).filter(|tick| tick % 10 != 0).collect();
    assert_eq!(ticks, [every_tenth, rest, vec![]]);
    let (third, _) = journal.log.open_stream(StreamId { kind: 7, id: 2 }).unwrap();
    assert_eq!(journal.log.info(third).unwrap().reserved, 123_456_789);
    assert!(check(&directory).unwrap().is_whole());
}
