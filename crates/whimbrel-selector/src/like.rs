//! Search for a part of a pattern with wildcards for single characters.

use std::collections::BTreeMap;

/// Characters of a pattern that are compared at once.
const WORD: usize = u64::BITS as usize;

/// The rest of `text` after the first occurrence of `pattern`, in which `None` is any character;
/// and the number of steps. Costs characters of the text × characters of the pattern / 64.
///
/// After R. Baeza-Yates and G. Gonnet, "A new approach to text searching" (Communications of the
/// ACM 35, 1992): bit i is set if the first i + 1 characters of the pattern end at the current
/// character of the text.
pub(crate) fn find<'t>(pattern: &[Option<char>], text: &'t str) -> (Option<&'t str>, u64) {
    let Some(last) = pattern.len().checked_sub(1) else { return (Some(text), 1) };
    let words = pattern.len().div_ceil(WORD);
    let mut any = vec![0_u64; words];
    let mut places: BTreeMap<char, Vec<u64>> = BTreeMap::new();
    for (at, character) in pattern.iter().enumerate() {
        match character {
            None => any[at / WORD] |= 1 << (at % WORD),
            Some(character) => {
                places.entry(*character).or_insert_with(|| vec![0; words])[at / WORD] |= 1 << (at % WORD)
            }
        }
    }
    let none = vec![0; words];
    let mut ends = vec![0_u64; words];
    let mut steps = words as u64;
    for (at, character) in text.char_indices() {
        let here = places.get(&character).unwrap_or(&none);
        let mut carry = 1;
        for ((end, any), here) in ends.iter_mut().zip(&any).zip(here) {
            let shifted = *end << 1 | carry;
            carry = *end >> (WORD - 1);
            *end = shifted & (any | here);
        }
        steps += words as u64;
        if ends[last / WORD] >> (last % WORD) & 1 == 1 {
            return (Some(&text[at + character.len_utf8()..]), steps);
        }
    }
    (None, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A plain search, for comparison: tries each position, character by character.
    fn plainly<'t>(pattern: &[Option<char>], text: &'t str) -> Option<&'t str> {
        let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        starts.map(|at| &text[at..]).find_map(|from| {
            let mut rest = from.chars();
            let fits =
                pattern.iter().all(|wanted| rest.next().is_some_and(|found| wanted.is_none_or(|one| one == found)));
            fits.then_some(rest.as_str())
        })
    }

    proptest! {
        #[test]
        fn a_pattern_is_found_where_it_is_first(
            pattern in proptest::collection::vec(proptest::option::of(prop_oneof![Just('a'), Just('b'), Just('ß')]), 0..150),
            before in "[abß]{0,40}",
            after in "[abß]{0,40}",
            planted: bool,
        ) {
            let middle: String = pattern.iter().map(|one| one.unwrap_or('a')).collect();
            let text = if planted { format!("{before}{middle}{after}") } else { format!("{before}{after}") };
            prop_assert_eq!(find(&pattern, &text).0, plainly(&pattern, &text));
        }
    }
}
