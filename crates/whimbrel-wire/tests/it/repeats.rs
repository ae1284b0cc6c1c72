//! Repeated events: the difference of a frame to the one in front of it, and back.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use whimbrel_event::{HostId, Tick};
use whimbrel_wire::{
    CopiedEvent, Cutter, Dest, EventFrame, Frame, LinkStamp, REPEATED_BYTES_MAX, Repairers, Repeat, StampedEvent,
    TreeWriter,
};

/// A change of a frame: a number of bytes at a place become others.
type Change = (Index, usize, Vec<u8>);

/// A frame and the one in front of it, which is the same but for some changes.
fn pairs() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let change = (any::<Index>(), 0..6_usize, vec(any::<u8>(), 0..6));
    let few = vec(any::<u8>(), 1..=REPEATED_BYTES_MAX);
    (few, vec(change, 0..12)).prop_map(|(frame, changes): (Vec<u8>, Vec<Change>)| {
        let mut front = frame.clone();
        for (at, count, bytes) in changes {
            let at = at.index(front.len() + 1);
            front.splice(at..(at + count).min(front.len()), bytes);
        }
        (frame, front)
    })
}

/// A frame as it is restored from what is sent of it, and the number of bytes that were sent.
fn sent(frame: &[u8], front: &[u8]) -> (Vec<u8>, usize) {
    let (mut runs, mut encoded, mut restored) = (Vec::new(), Vec::new(), Vec::new());
    Frame::Repeat(Repeat::of(7, frame, front, &mut runs)).encode(&mut encoded);
    let mut chunk = encoded.as_slice();
    let mut cutter = Cutter::new();
    let body = cutter.next(&mut chunk).expect("it is valid").expect("it is whole");
    let Ok(Frame::Repeat(repeat)) = Frame::decode(body) else { panic!("it is a repeat") };
    assert_eq!(repeat.sequence, 7);
    repeat.restore(front, &mut restored).expect("the frame in front is the same");
    (restored, encoded.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_frame_is_restored_from_its_difference_to_any_other((frame, front) in pairs()) {
        prop_assert_eq!(&sent(&frame, &front).0, &frame);
        // Its difference to nothing and to itself.
        prop_assert_eq!(&sent(&frame, &[]).0, &frame);
        let (restored, bytes) = sent(&frame, &frame);
        prop_assert_eq!(&restored, &frame);
        prop_assert!(frame.len() < 4 || bytes <= 9, "{} bytes", bytes);
    }

    #[test]
    fn any_bytes_restore_as_many_as_they_say_or_none(
        body in vec(any::<u8>(), 0..60),
        length in 1..80_u8,
        front in vec(any::<u8>(), 0..100),
    ) {
        let bytes = [&[27, 0, 0, length][..], &body].concat();
        if let Ok(Frame::Repeat(repeat)) = Frame::decode(&bytes) {
            let mut restored = Vec::new();
            if repeat.restore(&front, &mut restored).is_ok() {
                prop_assert_eq!(restored.len(), usize::from(length));
            }
        }
    }
}

#[test]
fn what_is_no_difference_is_refused() {
    let of = |bytes: &[u8]| Frame::decode(&[&[27, 0, 0][..], bytes].concat()).is_ok();
    assert!(of(&[3, 0, 3, 1, 2, 3]) && of(&[3, 6, 0]) && of(&[3, 4, 1, 9]));
    assert!(!of(&[0]) && !of(&[0x81, 4]), "a length of none, or too great a one");
    assert!(!of(&[3, 0, 2, 1, 2]) && !of(&[3, 0, 4, 1, 2, 3, 4]), "another length than it has");
    assert!(!of(&[3, 0, 0]) && !of(&[3, 1, 3, 1, 2, 3]), "a run of nothing, or from the end of nothing");
    assert!(!of(&[3, 0, 1, 1, 0, 2, 2, 3]), "two runs that are one");
    let mut restored = Vec::new();
    let repeat = Repeat { sequence: 0, length: 3, runs: &[6, 0] };
    assert!(repeat.restore(&[1, 2], &mut restored).is_err(), "the frame in front is shorter");
}

/// An event of 100 bytes of payload for one destination over two paths, the nth of 100 a second.
fn event(number: u64) -> Vec<u8> {
    let tick = Tick(1_795_000_000_123_456_789 + number * 10_000_000);
    let before = Tick(tick.0 - 10_000_000 + number % 3);
    let mut tree = Vec::new();
    let mut writer = TreeWriter::new(&mut tree, tick, before);
    writer.root(Some(Dest { tag: 513, previous: before }), 0);
    writer.finish();
    let packed = [&[0x43, 5, number as u8, 1, 2, 3, 4, 5, 6, 7, 8, 2, b't', b'1'][..], &number.to_le_bytes(), &[0; 92]];
    let frame = EventFrame {
        pubend: HostId::new(0xabcd_ef01_2345_6780).pubend(14),
        tick,
        age_us: 60 + 90 * (number % 2),
        answer: false,
        retain: false,
        repairers: Repairers::NONE,
        tree: &tree,
        default_previous: before,
        event: &packed.concat(),
    };
    let stamp = LinkStamp { sequence: number as u16, departed_us: number as u32 * 10_007, deadline_ms: 50 };
    let copied = CopiedEvent { last_us: 20_000, stamped: StampedEvent { stamp, frame } };
    let mut out = Vec::new();
    Frame::CopiedEvent(copied).encode(&mut out);
    Cutter::new().next(&mut out.as_slice()).expect("it is valid").expect("it is whole").to_vec()
}

#[test]
fn an_event_like_the_one_behind_it_takes_a_third_of_its_bytes() {
    for number in 0..1_000 {
        let (frame, front) = (event(number), event(number + 1));
        let (restored, bytes) = sent(&frame, &front);
        assert_eq!(restored, frame);
        assert!(bytes <= 55 && frame.len() >= 150, "{bytes} of {}", frame.len());
    }
}
