//! The frames of a direction that are known, by their sequences.

/// The frames of which a window tells whether they are known.
const FRAMES: u64 = u64::BITS as u64;

/// See the module: the greatest sequence, and which of the 63 before it.
#[derive(Debug, Default)]
pub(super) struct SequenceWindow {
    highest: Option<u64>,
    /// Bit k: the frame `highest - k` is known.
    known: u64,
}

impl SequenceWindow {
    /// The greatest sequence; `None`: no frame is known.
    pub(super) fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Bit k: the frame [`SequenceWindow::highest`] less k is not known.
    pub(super) fn missing(&self) -> u64 {
        !self.known
    }

    /// Takes all frames before this one as known, unless any is.
    pub(super) fn begin(&mut self, sequence: u64) {
        if self.highest.is_none() {
            (self.highest, self.known) = (Some(sequence), u64::MAX);
        }
    }

    /// Records a frame, unless it is too far behind.
    pub(super) fn insert(&mut self, sequence: u64) {
        let highest = *self.highest.get_or_insert(sequence);
        if sequence > highest {
            let ahead = sequence - highest;
            self.known = if ahead < FRAMES { (self.known << ahead) | 1 } else { 1 };
            self.highest = Some(sequence);
        } else if highest - sequence < FRAMES {
            self.known |= 1 << (highest - sequence);
        }
    }

    /// Whether a frame is known; `None`: it is too far behind to tell.
    pub(super) fn has(&self, sequence: u64) -> Option<bool> {
        let Some(behind) = self.highest.and_then(|highest| highest.checked_sub(sequence)) else { return Some(false) };
        (behind < FRAMES).then(|| (self.known >> behind) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_known_up_to_63_before_the_greatest() {
        let mut window = SequenceWindow::default();
        assert_eq!((window.highest(), window.has(3)), (None, Some(false)));
        for sequence in [3, 5, 4, 70, 6] {
            window.insert(sequence);
        }
        assert_eq!(window.highest(), Some(70));
        let has = [71, 70, 69, 7].map(|sequence| window.has(sequence));
        assert_eq!(has, [Some(false), Some(true), Some(false), Some(false)]);
        assert_eq!((window.has(6), window.missing()), (None, !1));
        window.insert(8);
        assert_eq!((window.has(8), window.missing()), (Some(true), !(1 | (1 << 62))));
    }

    #[test]
    fn a_window_begins_with_all_before_its_first_frame() {
        let mut window = SequenceWindow::default();
        window.begin(9);
        window.begin(12);
        assert_eq!((window.highest(), window.missing(), window.has(1)), (Some(9), 0, Some(true)));
        window.insert(9 + (1 << 40));
        assert_eq!((window.missing(), window.has(9)), (!1, None));
    }
}
