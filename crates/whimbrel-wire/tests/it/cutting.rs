//! Cutting a stream into frames: what is copied, what is kept, what is refused.

use whimbrel_wire::{Cutter, FRAME_BYTES_MAX, Invalid};

#[test]
fn whole_frames_are_not_copied() {
    let stream = [2, 7, 8, 1, 9, 3, 1];
    let (mut cutter, mut chunk) = (Cutter::new(), &stream[..]);
    for place in [1..3, 4..5] {
        let frame = cutter.next(&mut chunk).unwrap().unwrap();
        assert_eq!(frame.as_ptr_range(), stream[place].as_ptr_range());
    }
    assert_eq!(cutter.next(&mut chunk), Ok(None));
    assert_eq!((chunk, cutter.held_bytes()), (&[][..], 2));
    // The rest of the frame that was begun, and another whole one.
    let stream = [2, 3, 1, 5];
    let mut chunk = &stream[..];
    assert_eq!(cutter.next(&mut chunk), Ok(Some(&[1, 2, 3][..])));
    assert_eq!(cutter.held_bytes(), 0);
    let frame = cutter.next(&mut chunk).unwrap().unwrap();
    assert_eq!(frame.as_ptr_range(), stream[3..].as_ptr_range());
    assert_eq!(cutter.next(&mut chunk), Ok(None));
}

#[test]
fn a_length_that_is_no_length_ends_the_stream_before_anything_is_kept() {
    let [low, middle, high] = [0x80, 0x80, 0x80];
    for (stream, invalid) in [
        (&[0][..], Invalid::Empty),
        (&[0x81, 0], Invalid::Number),
        (&[low | 1, middle, high, 1], Invalid::TooLong),
        (&[0xff, 0xff, 0xff, 0xff, 0xff], Invalid::TooLong),
    ] {
        for pieces in [1, stream.len()] {
            let mut cutter = Cutter::new();
            let found: Vec<_> = stream.chunks(pieces).map(|mut chunk| cutter.next(&mut chunk).map(|_| ())).collect();
            assert_eq!(found.iter().find(|result| result.is_err()), Some(&Err(invalid)), "{stream:?}");
            assert!(cutter.held_bytes() <= 4);
            // For good, whatever comes.
            assert_eq!(cutter.next(&mut &[1, 7][..]), Err(invalid));
        }
    }
}

#[test]
fn the_longest_frame_is_cut_out_of_a_stream() {
    let mut stream = vec![0x80, 0x80, 0x80, 1];
    stream.resize(4 + FRAME_BYTES_MAX, 5);
    stream.extend([1, 6]);
    let mut cutter = Cutter::new();
    let mut frames = Vec::new();
    for mut chunk in stream.chunks(10_000) {
        while let Some(frame) = cutter.next(&mut chunk).unwrap() {
            frames.push((frame.len(), frame[0]));
        }
        assert!(cutter.held_bytes() <= FRAME_BYTES_MAX + 4);
    }
    assert_eq!(frames, [(FRAME_BYTES_MAX, 5), (1, 6)]);
}
