//! Frames made from arbitrary choices, and arbitrary bytes as frames.

use crate::frame_checks::generate::{self, Choices, with_frame};
use crate::frame_checks::{cut, cut_any, decode_any, encoded, made, read_any, same, tree};
use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_event::{EventId, PubendId, Tick};
use whimbrel_wire::{Frame, compact};

fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn frames_survive_the_way_there_and_back_and_damage_does_not_panic(choices in choices()) {
        made(&choices);
    }

    #[test]
    fn any_bytes_are_a_frame_or_an_error(kind in 0_u8..20, body in choices()) {
        decode_any(&[&[kind], &body[..]].concat());
    }

    #[test]
    fn any_bytes_are_an_event_or_an_error(bytes in choices(), tick: u64) {
        read_any(&bytes, EventId { pubend: PubendId(7), tick: Tick(tick) });
    }

    #[test]
    fn events_survive_the_way_there_and_back(choices in choices(), tick: u64) {
        let event = generate::event(&mut Choices(&choices), EventId { pubend: PubendId(7), tick: Tick(tick) });
        let mut bytes = Vec::new();
        compact::write(&event, &mut bytes);
        let read = compact::read(&bytes, event.id).expect("what was written");
        prop_assert!(same(&read, &event), "{read:?} {event:?}");
        for end in 0..bytes.len() {
            read_any(&bytes[..end], event.id);
        }
    }

    #[test]
    fn trees_survive_the_way_there_and_back_at_every_broker(choices in choices(), tick: u64) {
        let c = &mut Choices(&choices);
        let default_previous = Tick(c.u64().min(tick));
        tree::check(&generate::tree(c, Tick(tick), default_previous, 200, 10), Tick(tick), default_previous);
    }

    #[test]
    fn a_stream_is_cut_alike_wherever_it_is_split(choices in vec(choices(), 1..6), step in 1_usize..100) {
        let frames: Vec<_> = choices.iter().map(|choices| with_frame(&mut Choices(choices), encoded)).collect();
        let stream = frames.concat();
        cut_any(&stream, step);
        let found = cut(&stream);
        prop_assert_eq!(found.len(), frames.len());
        for (found, frame) in found.iter().zip(&frames) {
            prop_assert!(frame.ends_with(found));
            prop_assert!(Frame::decode(found).is_ok());
        }
    }

    #[test]
    fn any_stream_is_cut_alike_wherever_it_is_split(stream in choices(), step in 1_usize..20) {
        cut_any(&stream, step);
    }
}
