//! The pubends of the cache's events, and marks that tell where to find these.

use std::collections::VecDeque;

use hashbrown::HashTable;
use whimbrel_event::{PubendId, Seeded, Tick};

/// The least distance between two marks of a pubend, in serials.
pub(super) const MARK_EVERY: u64 = 64;

/// Marks of a pubend before the first thinning.
const MARKS_MIN: usize = 64;

/// The most pubends that are known. A broker knows fewer at a time: the rest is for ended ones.
pub(super) const PUBENDS_MAX: usize = 1 << 16;

/// The serial of the event with a tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) tick: Tick,
    pub(super) serial: u64,
    /// The last event before the next mark.
    pub(super) through: Tick,
}

#[derive(Debug)]
pub(super) struct Pubend {
    pub(super) id: PubendId,
    /// The tick of its latest event.
    last: Tick,
    /// The tick up to which it may have had events that were forgotten with it, or were never
    /// written.
    unsure: Tick,
    marks: VecDeque<Mark>,
    /// The number of marks above which they are thinned.
    thin_at: usize,
}

/// All pubends, by a number that slots can hold.
#[derive(Debug)]
pub(super) struct Pubends {
    all: Vec<Pubend>,
    by_id: HashTable<u16>,
    hasher: Seeded,
    /// Numbers of pubends that were forgotten.
    free: Vec<u16>,
    /// The latest tick of all forgotten pubends.
    forgotten: Tick,
    /// The number that was looked up last.
    recent: u16,
}

impl Pubends {
    pub(super) fn new(seed: u64) -> Self {
        Pubends {
            all: Vec::new(),
            by_id: HashTable::new(),
            hasher: Seeded::new(seed),
            free: Vec::new(),
            forgotten: Tick(0),
            recent: 0,
        }
    }

    /// The ids of all pubends.
    pub(super) fn ids(&self) -> impl Iterator<Item = PubendId> {
        let known = self.all.iter().enumerate().filter(|(number, _)| !self.free.contains(&(*number as u16)));
        known.map(|(_, pubend)| pubend.id)
    }

    /// The number after the highest one.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether an unknown pubend cannot be given a number.
    pub(super) fn is_full_for(&self, id: PubendId) -> bool {
        self.all.len() >= PUBENDS_MAX && self.free.is_empty() && self.find(id).is_none()
    }

    /// Records that events of a pubend up to `to` may never have been written.
    pub(super) fn miss(&mut self, number: u16, to: Tick) {
        let unsure = &mut self.all[usize::from(number)].unsure;
        *unsure = to.max(*unsure);
    }

    /// The tick up to which events may be missing because the pubend was forgotten once, or began
    /// before the cache; `None` stands for an unknown pubend.
    pub(super) fn unsure(&self, number: Option<u16>) -> Tick {
        number.map_or(self.forgotten, |number| self.all[usize::from(number)].unsure)
    }

    /// Forgets a pubend without slots.
    pub(super) fn forget(&mut self, number: u16) {
        let pubend = &mut self.all[usize::from(number)];
        self.forgotten = self.forgotten.max(pubend.last).max(pubend.unsure);
        pubend.marks = VecDeque::new();
        let id = pubend.id;
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(id), |&known| known == number) {
            entry.remove();
        }
        self.free.push(number);
    }

    pub(super) fn id(&self, number: u16) -> PubendId {
        self.all[usize::from(number)].id
    }

    pub(super) fn find(&self, id: PubendId) -> Option<u16> {
        self.by_id.find(self.hasher.hash_one(id), |&number| self.all[usize::from(number)].id == id).copied()
    }

    /// The number of a pubend, which is added if it is unknown.
    #[inline]
    pub(super) fn number(&mut self, id: PubendId) -> u16 {
        if self.all.get(usize::from(self.recent)).is_some_and(|pubend| pubend.id == id) {
            return self.recent;
        }
        self.recent = self.find(id).unwrap_or_else(|| self.add(id));
        self.recent
    }

    fn add(&mut self, id: PubendId) -> u16 {
        let hash = self.hasher.hash_one(id);
        let pubend = Pubend { id, last: Tick(0), unsure: self.forgotten, marks: VecDeque::new(), thin_at: MARKS_MIN };
        let number = match self.free.pop() {
            Some(number) => {
                self.all[usize::from(number)] = pubend;
                number
            }
            None => {
                self.all.push(pubend);
                u16::try_from(self.all.len() - 1).expect("at most PUBENDS_MAX, as the cache forgets in time")
            }
        };
        let Pubends { all, by_id, hasher, .. } = self;
        by_id.insert_unique(hash, number, |&other| hasher.hash_one(all[usize::from(other)].id));
        number
    }

    /// Records that an event of a pubend was written. True if its marks should be thinned.
    pub(super) fn written(&mut self, number: u16, tick: Tick, serial: u64) -> bool {
        let pubend = &mut self.all[usize::from(number)];
        pubend.last = tick;
        match pubend.marks.back_mut() {
            Some(last) if serial < last.serial + MARK_EVERY => last.through = tick,
            _ => pubend.marks.push_back(Mark { tick, serial, through: tick }),
        }
        pubend.marks.len() > pubend.thin_at
    }

    /// Removes marks without events or holes between them: those before `oldest`, the lowest serial
    /// with contents, and if many remain, all others. `first_at` tells the lowest serial with
    /// contents from a given one on.
    pub(super) fn thin(&mut self, number: u16, oldest: u64, first_at: impl Fn(u64) -> Option<u64>) {
        let Pubend { marks, thin_at, .. } = &mut self.all[usize::from(number)];
        while marks.get(1).is_some_and(|second| second.serial <= oldest) {
            marks.pop_front();
        }
        if marks.len() <= *thin_at * 3 / 4 {
            return;
        }
        let old = core::mem::take(marks);
        for mark in old {
            // The mark before this one is needed if there are contents from it up to this one.
            if let Some(before) = marks.back()
                && first_at(before.serial).is_none_or(|serial| serial >= mark.serial)
            {
                marks.pop_back();
            }
            marks.push_back(mark);
        }
        *thin_at = MARKS_MIN.max(marks.len() * 2);
    }

    /// The serial where a reader begins that knows all events of a pubend up to `after`: all later
    /// ones that are kept have at least this serial.
    pub(super) fn serial_for(&self, number: u16, after: Tick) -> Option<u64> {
        let marks = &self.all[usize::from(number)].marks;
        let place = marks.partition_point(|mark| mark.tick <= after);
        match place.checked_sub(1).map(|place| marks[place]) {
            Some(mark) if after < mark.through => Some(mark.serial + 1),
            // No event of it lies between the last one of this mark and the next mark.
            _ => marks.get(place).map(|mark| mark.serial),
        }
    }
}
