//! The pubends whose events the cache has seen, and where in it they stand.

use std::collections::VecDeque;

use hashbrown::HashTable;
use whimbrel_event::{PubendId, Seeded, Tick};

/// Of so many events of a pubend, one is marked.
pub(super) const MARK_EVERY: u32 = 64;

/// Marks of a pubend before the first thinning.
const MARKS_MIN: usize = 64;

/// The event with that tick has that serial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) tick: Tick,
    pub(super) serial: u64,
}

#[derive(Debug)]
pub(super) struct Pubend {
    pub(super) id: PubendId,
    marks: VecDeque<Mark>,
    /// Events since the last mark.
    unmarked: u32,
    /// How many marks there may be before they are thinned.
    thin_at: usize,
}

/// All pubends, by a number that slots can hold.
#[derive(Debug)]
pub(super) struct Pubends {
    all: Vec<Pubend>,
    by_id: HashTable<u16>,
    hasher: Seeded,
    /// The one that was asked for last.
    recent: u16,
}

impl Pubends {
    pub(super) fn new(seed: u64) -> Self {
        Pubends { all: Vec::new(), by_id: HashTable::new(), hasher: Seeded::new(seed), recent: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pubend> {
        self.all.iter()
    }

    pub(super) fn id(&self, number: u16) -> PubendId {
        self.all[usize::from(number)].id
    }

    pub(super) fn find(&self, id: PubendId) -> Option<u16> {
        self.by_id.find(self.hasher.hash_one(id), |&number| self.all[usize::from(number)].id == id).copied()
    }

    /// The number of a pubend, which it is given if it has none.
    pub(super) fn number(&mut self, id: PubendId) -> u16 {
        if self.all.get(usize::from(self.recent)).is_some_and(|pubend| pubend.id == id) {
            return self.recent;
        }
        self.recent = self.find(id).unwrap_or_else(|| self.add(id));
        self.recent
    }

    fn add(&mut self, id: PubendId) -> u16 {
        let number = u16::try_from(self.all.len()).expect("bounded");
        let hash = self.hasher.hash_one(id);
        self.all.push(Pubend { id, marks: VecDeque::new(), unmarked: 0, thin_at: MARKS_MIN });
        let Pubends { all, by_id, hasher, .. } = self;
        by_id.insert_unique(hash, number, |&other| hasher.hash_one(all[usize::from(other)].id));
        number
    }

    /// An event of that pubend was written. True if the marks have become so many that they should be thinned.
    pub(super) fn written(&mut self, number: u16, tick: Tick, serial: u64) -> bool {
        let pubend = &mut self.all[usize::from(number)];
        if pubend.unmarked == 0 {
            pubend.marks.push_back(Mark { tick, serial });
            pubend.unmarked = MARK_EVERY;
        }
        pubend.unmarked -= 1;
        pubend.marks.len() > pubend.thin_at
    }

    /// Takes out marks between which nothing is left: `first_at` tells the lowest serial, from a given one on, of which there is something.
    pub(super) fn thin(&mut self, number: u16, first_at: impl Fn(u64) -> Option<u64>) {
        let pubend = &mut self.all[usize::from(number)];
        let old = core::mem::take(&mut pubend.marks);
        for mark in old {
            // The mark before this one is needed if there is something behind it up to this one.
            if let Some(before) = pubend.marks.back()
                && first_at(before.serial).is_none_or(|serial| serial >= mark.serial)
            {
                pubend.marks.pop_back();
            }
            pubend.marks.push_back(mark);
        }
        pubend.thin_at = MARKS_MIN.max(pubend.marks.len() * 2);
    }

    /// Where a reader begins that knows all events of that pubend up to `after`: all later ones that are kept have at least that serial.
    pub(super) fn serial_for(&self, number: u16, after: Tick) -> Option<u64> {
        let marks = &self.all[usize::from(number)].marks;
        let place = marks.partition_point(|mark| mark.tick <= after);
        match place.checked_sub(1) {
            Some(place) => Some(marks[place].serial + 1),
            None => marks.front().map(|mark| mark.serial),
        }
    }
}
