//! Properties of the codec for all well-formed packets, damaged packets and arbitrary bytes.

use crate::codec_checks::generate::{Choices, mutated_packet, packet};
use crate::codec_checks::{decode_any, oracle, publish_fast};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_packets_are_accepted_and_survive_the_way_there_and_back(choices in vec(any::<u8>(), 0..400)) {
        let (version, bytes) = packet(&mut Choices::new(&choices));
        prop_assert!(decode_any(&bytes), "{version:?} {bytes:02x?}");
    }

    #[test]
    fn damaged_packets_do_no_harm(choices in vec(any::<u8>(), 0..400)) {
        decode_any(&mutated_packet(&mut Choices::new(&choices)).1);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        decode_any(&bytes);
    }

    #[test]
    fn an_independent_codec_reads_the_same(choices in vec(any::<u8>(), 0..400)) {
        oracle::differential(&packet(&mut Choices::new(&choices)).1);
    }

    #[test]
    fn an_independent_codec_differs_only_where_listed(choices in vec(any::<u8>(), 0..400)) {
        oracle::differential(&mutated_packet(&mut Choices::new(&choices)).1);
    }

    #[test]
    fn the_short_ways_agree_with_the_general_one(bytes in vec(any::<u8>(), 0..100), text in "[a-z/+#\\x00ż]{0,40}") {
        publish_fast(&bytes);
        publish_fast(text.as_bytes());
    }
}
