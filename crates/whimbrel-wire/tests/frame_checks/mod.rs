//! What must hold for any bytes and any frame. Shared by the property tests and the fuzz target.

#![allow(dead_code, reason = "each test binary and fuzz target uses its part")]

pub mod generate;
pub mod tree;

use generate::{Choices, with_frame};
use whimbrel_event::{AcceptedEvent, Event, EventId, Tick};
use whimbrel_wire::{Cutter, Frame, compact};

/// The frame with its length.
pub fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

/// The frames of a stream that comes in one piece.
pub fn cut(stream: &[u8]) -> Vec<Vec<u8>> {
    let (mut cutter, mut chunk, mut frames) = (Cutter::new(), stream, Vec::new());
    while let Ok(Some(frame)) = cutter.next(&mut chunk) {
        frames.push(frame.to_vec());
    }
    frames
}

/// The same event; its name too.
pub fn same(one: &AcceptedEvent<'_>, other: &AcceptedEvent<'_>) -> bool {
    Event::keep(one.id, one.accepted, &one.event) == Event::keep(other.id, other.accepted, &other.event)
}

/// No bytes make anything panic. What is accepted has one form only: encoded again it is the same,
/// up to what was ignored behind it. Returns whether it was accepted.
pub fn decode_any(bytes: &[u8]) -> bool {
    let Ok(frame) = Frame::decode(bytes) else { return false };
    let whole = encoded(&frame);
    let again = &cut(&whole)[0];
    assert!(bytes.starts_with(again), "{frame:?}: {bytes:02x?} became {again:02x?}");
    assert_eq!(Frame::decode(again).as_ref(), Ok(&frame));
    match &frame {
        Frame::Event(event) => {
            tree::walk(event.tree, event.tick, event.default_previous);
            read_any(event.event, event.id());
            let mut split = Vec::new();
            event.encode_header(event.event.len(), &mut split);
            split.extend_from_slice(event.event);
            assert_eq!(split, whole);
        }
        Frame::Silence(silence) => tree::walk(silence.target_tree, Tick(0), Tick(0)),
        _ => (),
    }
    true
}

/// Any bytes as an event.
pub fn read_any(bytes: &[u8], id: EventId) {
    let Ok(event) = compact::read(bytes, id) else { return };
    let mut again = Vec::new();
    compact::write(&event, &mut again);
    assert_eq!(bytes, again);
    // It can be kept as any other.
    Event::keep(id, event.accepted, &event.event);
}

/// Any bytes as a stream, cut at each multiple of `step`: the frames do not depend on where, nor
/// does the error.
pub fn cut_any(stream: &[u8], step: usize) {
    let (mut cutter, mut frames, mut failed) = (Cutter::new(), Vec::new(), None);
    'stream: for mut chunk in stream.chunks(step) {
        loop {
            match cutter.next(&mut chunk) {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(invalid) => {
                    failed = Some(invalid);
                    break 'stream;
                }
            }
        }
        assert!(chunk.is_empty());
        assert!(cutter.held_bytes() <= stream.len());
    }
    let (mut whole, mut chunk) = (Cutter::new(), stream);
    for frame in &frames {
        assert_eq!(whole.next(&mut chunk), Ok(Some(frame.as_slice())));
    }
    assert_eq!(whole.next(&mut chunk).err(), failed);
}

/// A frame made from these choices, whole, short of some bytes, with bytes behind it, and with a
/// byte changed.
pub fn made(choices: &[u8]) {
    let c = &mut Choices(choices);
    with_frame(c, |frame| {
        let whole = encoded(frame);
        let mut bytes = cut(&whole).remove(0);
        assert_eq!(Frame::decode(&bytes).as_ref(), Ok(frame));
        assert!(decode_any(&bytes));
        for end in 0..bytes.len() {
            decode_any(&bytes[..end]);
        }
        let at = usize::from(choices.last().copied().unwrap_or(0)) % bytes.len();
        bytes[at] = bytes[at].wrapping_add(choices.first().copied().unwrap_or(1));
        decode_any(&bytes);
    });
}

/// All of it, for a fuzz target.
pub fn any_bytes(bytes: &[u8]) {
    decode_any(bytes);
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    cut_any(rest, usize::from(*first) + 1);
    made(bytes);
    let c = &mut Choices(bytes);
    let tick = Tick(c.u64());
    let default_previous = Tick(c.u64().min(tick.0));
    tree::check(&generate::tree(c, tick, default_previous, 40, 8), tick, default_previous);
    read_any(rest, EventId { pubend: whimbrel_event::PubendId(7), tick });
}
