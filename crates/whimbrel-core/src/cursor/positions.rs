//! Positions in several streams.
//!
//! Many cursors stand at the same ticks of most streams. The common part is stored once, and each
//! one's differences apart. That matters for memory only: positions are the same either way.

use std::sync::Arc;

use whimbrel_event::{PubendId, Tick};

use crate::lazy::{Lazy, at_rest};

type PositionEntry = (PubendId, Tick);

/// A common part of positions, ascending by pubend.
pub(crate) type Common = Arc<[PositionEntry]>;

/// Fewer positions are not stored in common.
pub(crate) const COMMON_MIN: usize = 16;

/// Reference to a common part.
#[derive(Clone, Debug)]
struct Shared {
    base: Common,
    /// The tick of all these positions, if it is one instead of those in `base`.
    at: Option<Tick>,
    /// Pubends of `base` that are not part of these positions, ascending.
    gone: Vec<PubendId>,
}

/// Ticks per pubend, ascending by pubend. A pubend that is missing stands at its birth. Without
/// positions it takes the place of a pointer: most cursors have none of most kinds.
#[derive(Debug, Default)]
pub(crate) struct Positions(Lazy<PositionSet>);

/// The parts of positions.
#[derive(Debug, Default)]
struct PositionSet {
    /// All positions, or those that differ from the common part.
    entries: Vec<PositionEntry>,
    shared: Option<Box<Shared>>,
}

at_rest!(PositionSet, PositionSet { entries: Vec::new(), shared: None });

impl Shared {
    fn find(&self, pubend: PubendId) -> Option<Tick> {
        let at = self.base.binary_search_by_key(&pubend, |entry| entry.0).ok()?;
        self.gone.binary_search(&pubend).is_err().then(|| self.at.unwrap_or(self.base[at].1))
    }

    /// Removes a pubend from `gone`: it has a position again.
    fn give_back(&mut self, pubend: PubendId) {
        if let Ok(at) = self.gone.binary_search(&pubend) {
            self.gone.remove(at);
        }
    }
}

impl Positions {
    /// No positions.
    pub(crate) const fn new() -> Self {
        Positions(Lazy::new())
    }

    fn of(entries: Vec<PositionEntry>, shared: Option<Box<Shared>>) -> Self {
        let mut positions = Positions::new();
        if !entries.is_empty() || shared.is_some() {
            *positions.0 = PositionSet { entries, shared };
        }
        positions
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // A common part is never completely gone, and a set without entries is not in use.
        self.0.is_at_rest()
    }

    /// The number of positions that differ from the common part.
    pub(crate) fn differing(&self) -> usize {
        self.0.entries.len() + self.0.shared.as_deref().map_or(0, |shared| shared.gone.len())
    }

    /// The one tick of all positions in the common part, if it is one.
    pub(crate) fn common_tick(&self) -> Option<Tick> {
        self.0.shared.as_deref().and_then(|shared| shared.at)
    }

    /// The common part.
    pub(crate) fn common(&self) -> Option<&Common> {
        self.0.shared.as_deref().map(|shared| &shared.base)
    }

    /// Bytes of what is stored for single positions, without the common part.
    pub(crate) fn bytes(&self) -> usize {
        let of_shared = |shared: &Shared| size_of::<Shared>() + shared.gone.capacity() * size_of::<PubendId>();
        self.0.entries.capacity() * size_of::<PositionEntry>() + self.0.shared.as_deref().map_or(0, of_shared)
    }

    fn find(&self, pubend: PubendId) -> Option<Tick> {
        let PositionSet { entries, shared } = &*self.0;
        match entries.binary_search_by_key(&pubend, |entry| entry.0) {
            Ok(at) => Some(entries[at].1),
            Err(_) => shared.as_deref()?.find(pubend),
        }
    }

    pub(crate) fn get(&self, pubend: PubendId) -> Tick {
        self.find(pubend).unwrap_or(Tick(0))
    }

    /// Whether a pubend has a position.
    #[inline]
    pub(crate) fn has(&self, pubend: PubendId) -> bool {
        !self.is_empty() && self.find(pubend).is_some()
    }

    pub(crate) fn set(&mut self, pubend: PubendId, tick: Tick) {
        let PositionSet { entries, shared } = &mut *self.0;
        match entries.binary_search_by_key(&pubend, |entry| entry.0) {
            Ok(at) => entries[at].1 = tick,
            Err(at) => {
                if let Some(shared) = shared.as_deref_mut() {
                    if shared.find(pubend) == Some(tick) {
                        return;
                    }
                    shared.give_back(pubend);
                }
                entries.insert(at, (pubend, tick));
            }
        }
    }

    /// Moves a position forward, unless it is there already or beyond.
    pub(crate) fn advance(&mut self, pubend: PubendId, tick: Tick) {
        if self.find(pubend).is_none_or(|known| known < tick) {
            self.set(pubend, tick);
        }
    }

    pub(crate) fn remove(&mut self, pubend: PubendId) {
        let Some(PositionSet { entries, shared }) = self.0.in_use() else { return };
        if let Ok(at) = entries.binary_search_by_key(&pubend, |entry| entry.0) {
            entries.remove(at);
        }
        if let Some(shared) = shared.as_deref_mut()
            && shared.find(pubend).is_some()
            && let Err(at) = shared.gone.binary_search(&pubend)
        {
            shared.gone.insert(at, pubend);
        }
        self.tidy();
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(PubendId) -> bool) {
        let Some(PositionSet { entries, shared }) = self.0.in_use() else { return };
        entries.retain(|entry| is_kept(entry.0));
        if let Some(shared) = shared.as_deref_mut() {
            let Shared { base, gone, .. } = shared;
            let is_gone = |pubend: &PubendId| !is_kept(*pubend) || gone.binary_search(pubend).is_ok();
            *gone = base.iter().map(|entry| entry.0).filter(is_gone).collect();
        }
        self.tidy();
    }

    /// Frees memory that is not in use.
    fn tidy(&mut self) {
        let Some(PositionSet { entries, shared }) = self.0.in_use() else { return };
        if shared.as_deref().is_some_and(|shared| shared.gone.len() == shared.base.len()) {
            *shared = None;
        }
        if entries.is_empty() && shared.is_none() {
            return self.0.rest();
        }
        if entries.capacity() > 2 * entries.len() + COMMON_MIN {
            entries.shrink_to_fit();
        }
    }

    /// Removes positions that are not ahead of `others`.
    pub(crate) fn retain_above(&mut self, others: &Positions) {
        let ahead: Positions = self.iter().filter(|(pubend, tick)| *tick > others.get(*pubend)).collect();
        *self = ahead;
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        let shared = self.0.shared.as_deref();
        let (base, gone) = shared.map_or((&[][..], &[][..]), |shared| (&*shared.base, &*shared.gone));
        Iter { own: &self.0.entries, base, at: shared.and_then(|shared| shared.at), gone }
    }

    /// Makes `base` the common part, with `at` as the tick of all its streams if there is one, if
    /// at most half of the positions differ; returns whether it does.
    pub(crate) fn share(&mut self, base: &Common, at: Option<Tick>) -> bool {
        let (mut entries, mut gone, mut count) = (Vec::new(), Vec::new(), 0);
        let mut others = base.iter().peekable();
        for (pubend, tick) in self.iter() {
            count += 1;
            while let Some((other, _)) = others.next_if(|(other, _)| *other < pubend) {
                gone.push(*other);
            }
            let common = others.next_if(|(other, _)| *other == pubend).map(|(_, known)| at.unwrap_or(*known));
            if common != Some(tick) {
                entries.push((pubend, tick));
            }
        }
        gone.extend(others.map(|(other, _)| *other));
        if count == 0 || (entries.len() + gone.len()) * 2 > count {
            return false;
        }
        entries.shrink_to_fit();
        gone.shrink_to_fit();
        *self = Positions::of(entries, Some(Box::new(Shared { base: base.clone(), at, gone })));
        true
    }

    /// Stores positions in common with `last`, or with its streams at one tick; otherwise replaces
    /// `last`, for the next ones to compare with. Does nothing with fewer than [`COMMON_MIN`].
    pub(crate) fn share_with(&mut self, last: &mut Common) {
        self.share_from(last, COMMON_MIN);
    }

    /// As [`Positions::share_with`], with another least number of positions.
    pub(crate) fn share_from(&mut self, last: &mut Common, least: usize) {
        if self.differing() < least || self.share(last, None) {
            return;
        }
        let mut ticks: Vec<Tick> = self.iter().map(|(_, tick)| tick).collect();
        let middle = ticks.len() / 2;
        // The tick of most, if most stand at one.
        let (_, tick, _) = ticks.select_nth_unstable(middle);
        if self.share(last, Some(*tick)) {
            return;
        }
        *last = self.iter().collect();
        if !self.share(last, Some(*tick)) {
            self.share(last, None);
        }
    }
}

impl Clone for Positions {
    fn clone(&self) -> Self {
        Positions::of(self.0.entries.clone(), self.0.shared.clone())
    }
}

impl PartialEq for Positions {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Positions {}

/// Iterates over all positions, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Iter<'a> {
    own: &'a [PositionEntry],
    base: &'a [PositionEntry],
    at: Option<Tick>,
    gone: &'a [PubendId],
}

impl Iterator for Iter<'_> {
    type Item = PositionEntry;

    fn next(&mut self) -> Option<PositionEntry> {
        loop {
            let common = self.base.first();
            if let Some((first, rest)) = self.own.split_first()
                && common.is_none_or(|common| first.0 <= common.0)
            {
                self.own = rest;
                if common.is_some_and(|common| common.0 == first.0) {
                    self.base = &self.base[1..];
                }
                return Some(*first);
            }
            let (first, rest) = self.base.split_first()?;
            self.base = rest;
            match self.gone.split_first() {
                Some((gone, rest)) if *gone == first.0 => self.gone = rest,
                _ => return Some((first.0, self.at.unwrap_or(first.1))),
            }
        }
    }
}

impl FromIterator<PositionEntry> for Positions {
    fn from_iter<I: IntoIterator<Item = PositionEntry>>(all: I) -> Self {
        let mut entries: Vec<_> = all.into_iter().collect();
        entries.sort_unstable();
        entries.dedup_by_key(|entry| entry.0);
        Positions::of(entries, None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn common(entries: &BTreeMap<u64, u64>) -> Common {
        entries.iter().map(|(pubend, tick)| (PubendId(*pubend), Tick(*tick))).collect()
    }

    proptest! {
        #[test]
        fn what_is_in_common_makes_no_difference(
            first in proptest::collection::btree_map(0_u64..40, 0_u64..4, 0..40),
            others in proptest::collection::vec(proptest::collection::btree_map(0_u64..40, 0_u64..4, 0..40), 3),
            steps in proptest::collection::vec((0_u8..7, 0_u64..40, 0_u64..5), 0..60),
        ) {
            let mut positions: Positions = common(&first).iter().copied().collect();
            let mut model = first;
            let mut last = common(&others[0]);
            for (step, at, tick) in steps {
                let pubend = PubendId(at);
                match step {
                    0 => { positions.set(pubend, Tick(tick)); model.insert(at, tick); }
                    1 => {
                        positions.advance(pubend, Tick(tick));
                        let known = model.entry(at).or_insert(tick);
                        *known = tick.max(*known);
                    }
                    2 => { positions.remove(pubend); model.remove(&at); }
                    3 => { positions.retain(|pubend| pubend.0 % 7 != at % 7); model.retain(|pubend, _| pubend % 7 != at % 7); }
                    4 => {
                        let _ = positions.share(&common(&others[at as usize % 3]), (tick < 4).then_some(Tick(tick)));
                    }
                    5 => positions.share_with(&mut last),
                    _ => {
                        let least: Positions = [(pubend, Tick(tick))].into_iter().collect();
                        positions.retain_above(&least);
                        model.retain(|pubend, known| *known > if *pubend == at { tick } else { 0 });
                    }
                }
                let all: Vec<_> = model.iter().map(|(pubend, tick)| (PubendId(*pubend), Tick(*tick))).collect();
                prop_assert_eq!(positions.iter().collect::<Vec<_>>(), all.clone());
                prop_assert_eq!(positions.is_empty(), all.is_empty());
                prop_assert_eq!(&positions, &all.into_iter().collect::<Positions>());
                for at in 0..40 {
                    let known = model.get(&at).copied();
                    prop_assert_eq!((positions.has(PubendId(at)), positions.get(PubendId(at)).0), (known.is_some(), known.unwrap_or(0)));
                }
            }
        }
    }

    #[test]
    fn many_that_are_nearly_the_same_or_stand_mostly_at_one_tick_take_little() {
        for is_moving in [false, true] {
            let all = |number: u64| {
                let tick = if is_moving { number * 100 } else { 5 };
                (0..400).map(move |at| (PubendId(at), Tick(if at == number { 9 } else { tick })))
            };
            let mut last: Common = [].into();
            let mut bytes = 0;
            for number in 0..100 {
                let mut positions: Positions = all(number).collect();
                positions.share_with(&mut last);
                assert!(positions.iter().eq(all(number)));
                bytes += positions.bytes();
            }
            assert!(bytes < 100 * 100, "{bytes}");
        }
    }
}
