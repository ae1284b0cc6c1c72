//! Sets of bytes of a file.

use std::ops::Range;

/// Ranges of bytes, in order, with bytes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds these bytes.
    pub(crate) fn add(&mut self, added: Range<u64>) {
        if added.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end < added.start);
        let behind = self.0.partition_point(|range| range.start <= added.end);
        let joined = &self.0[first..behind];
        let start = joined.first().map_or(added.start, |range| range.start.min(added.start));
        let end = joined.last().map_or(added.end, |range| range.end.max(added.end));
        self.0.splice(first..behind, core::iter::once(start..end));
    }

    /// Whether all of these bytes are in it.
    pub(crate) fn has(&self, wanted: Range<u64>) -> bool {
        self.outside(wanted).is_empty()
    }

    /// Those of these bytes that are not in it.
    pub(crate) fn outside(&self, wanted: Range<u64>) -> Vec<Range<u64>> {
        let (mut outside, mut at) = (Vec::new(), wanted.start);
        let first = self.0.partition_point(|range| range.end <= wanted.start);
        for range in self.0[first..].iter().take_while(|range| range.start < wanted.end) {
            outside.push(at..range.start.max(at));
            at = range.end;
        }
        outside.push(at..wanted.end.max(at));
        outside.retain(|range| !range.is_empty());
        outside
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(all: I) -> Ranges {
        let mut ranges = Ranges::default();
        all.into_iter().for_each(|range| ranges.add(range));
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_a_list_of_bytes_is() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 40]);
            for _ in 0..rng.usize(0..12) {
                let begin = rng.usize(0..40);
                let end = begin + rng.usize(0..=(40 - begin).min(7));
                ranges.add(begin as u64..end as u64);
                bytes[begin..end].fill(true);
            }
            let apart = ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start);
            assert!(apart && ranges.0.iter().all(|range| !range.is_empty()), "{ranges:?}");
            let begin = rng.usize(0..40);
            let end = rng.usize(begin..=40);
            let outside = ranges.outside(begin as u64..end as u64);
            let outside: Vec<usize> = outside.into_iter().flatten().map(|at| at as usize).collect();
            let wanted: Vec<usize> = (begin..end).filter(|at| !bytes[*at]).collect();
            assert_eq!(outside, wanted, "{ranges:?} {begin}..{end}");
            assert_eq!(ranges.has(begin as u64..end as u64), wanted.is_empty());
        }
    }
}
