//! A cache of selectors' verdicts on cached events: many subscriptions that return at once evaluate
//! the same selectors on the same events.

use whimbrel_selector::Place;

/// Serials of one block.
const SPAN: u64 = 64;

/// Number of blocks: 16,384 of 64 serials, 768 KiB. A thousand selectors over a thousand events
/// fit.
const BLOCKS: usize = 1 << 14;

/// The verdicts of one selector on [`SPAN`] events.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The selector under its filter, and its serials, divided by [`SPAN`].
    of: Option<(Place, u64)>,
    /// The epoch of the verdicts.
    epoch: u64,
    /// Events with a verdict, the first in the lowest bit.
    known: u64,
    /// Events with a verdict that are wanted.
    wanted: u64,
}

/// The cache. A block that is needed for another selector or other events is overwritten.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Empty before the first catch-up.
    blocks: Vec<Block>,
    /// Places are used again, and fences change: verdicts of another epoch do not count.
    epoch: u64,
}

impl Verdicts {
    /// Whether the selector at `place` wants the event with that serial; without a verdict,
    /// `find_out` is called.
    #[inline]
    pub(crate) fn of(&mut self, place: Place, serial: u64, find_out: impl FnOnce() -> bool) -> bool {
        let Some(number) = place.selector() else { return find_out() };
        if self.blocks.is_empty() {
            self.blocks = vec![Block { of: None, epoch: 0, known: 0, wanted: 0 }; BLOCKS];
        }
        let span = serial / SPAN;
        // A multiplication spreads neighbouring spans, and selectors, over the blocks.
        let mixed = (u64::from(number) << 32 ^ span).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let block = &mut self.blocks[(mixed >> 32) as usize % BLOCKS];
        let of = Some((place, span));
        if block.of != of || block.epoch != self.epoch {
            *block = Block { of, epoch: self.epoch, known: 0, wanted: 0 };
        }
        let bit = 1 << (serial % SPAN);
        if block.known & bit == 0 {
            block.known |= bit;
            if find_out() {
                block.wanted |= bit;
            }
        }
        block.wanted & bit != 0
    }

    /// Drops all verdicts.
    pub(crate) fn forget(&mut self) {
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_selector::{Fences, MatchIndex, Selector, TopicFilter};

    use super::*;

    fn places() -> [Place; 3] {
        let mut index = MatchIndex::<u32>::new(1);
        let filter = TopicFilter::new("t/#").expect("a filter");
        let selector = |text| Selector::parse_with(text, &Fences::default()).expect("a selector");
        let (one, two) = (selector("a = 1"), selector("a = 2"));
        [None, Some(&one), Some(&two)].map(|selector| index.insert(filter, selector, 7).0)
    }

    #[test]
    fn a_verdict_is_found_out_once_per_selector_and_event() {
        let (mut verdicts, [plain, one, two]) = (Verdicts::default(), places());
        let mut asked = 0;
        for _ in 0..3 {
            for serial in 1..=200 {
                let mut of = |place, wants| {
                    verdicts.of(place, serial, || {
                        asked += 1;
                        wants
                    })
                };
                assert_eq!((of(one, serial % 3 == 0), of(two, serial % 7 == 0)), (serial % 3 == 0, serial % 7 == 0));
            }
        }
        assert_eq!(asked, 400);
        assert!(
            verdicts.of(plain, 1, || true) && !verdicts.of(plain, 1, || false),
            "without a selector nothing is remembered"
        );
    }

    #[test]
    fn what_was_forgotten_is_found_out_anew() {
        let (mut verdicts, [_, one, _]) = (Verdicts::default(), places());
        assert!(verdicts.of(one, 5, || true) && verdicts.of(one, 5, || false));
        verdicts.forget();
        assert!(!verdicts.of(one, 5, || false));
    }

    #[test]
    fn blocks_that_share_a_place_do_not_mix() {
        let (mut verdicts, [_, one, _]) = (Verdicts::default(), places());
        let serials = || (0..10 * BLOCKS as u64 * SPAN).step_by(17);
        for serial in serials() {
            assert_eq!(verdicts.of(one, serial, || serial % 2 == 0), serial % 2 == 0);
        }
        for serial in serials() {
            assert_eq!(verdicts.of(one, serial, || serial % 2 == 0), serial % 2 == 0);
        }
    }
}
