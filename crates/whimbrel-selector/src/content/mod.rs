//! The index over selectors.

mod axis;
mod clause;
mod guard;
mod invert;
mod keys;
mod node;
mod probe;
mod sight;
mod tree;

use std::sync::Arc;

use smallvec::SmallVec;

use whimbrel_event::Seeded;

use crate::facts::{Facts, Fields, Scratch};
use crate::fence::Fences;
use crate::program::{Op, Program};
use crate::selector::Selector;
use crate::store::{Slab, Table};
use crate::subject::Subject;

use clause::clauses;
use guard::{DECIDES, SEVERAL};
use keys::Keys;
use node::Nodes;
use probe::{Memory, Probe};

/// The number of most expensive selectors that are recorded.
pub const EXPENSIVE_MAX: usize = 16;

/// One event in this number is sampled for the estimates of selectivity.
const NOTED: u64 = 64;

/// Selectors under one topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

impl GroupId {
    /// The group's number; small, reused.
    pub(crate) fn place(self) -> u32 {
        self.0
    }
}

/// One selector in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorId(u32);

impl SelectorId {
    /// The number.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The cost of a selector since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Events for which the selector had to be evaluated because the index could not decide.
    pub evaluations: u64,
    /// Steps of these evaluations: operations, and runs of 16 bytes compared by `LIKE`.
    pub steps: u64,
    /// Events for which the selector was true.
    pub matches: u64,
}

impl core::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.evaluations += other.evaluations;
        self.steps += other.steps;
        self.matches += other.matches;
    }
}

/// A selector under one filter, with the keys of its subscriptions.
///
/// The fields that a match uses are adjacent in memory.
#[derive(Debug)]
#[repr(C)]
struct Entry<K> {
    program: Program,
    cost: Cost,
    keys: Keys<K>,
    clauses: SmallVec<[u32; 2]>,
    text: Box<str>,
    group: u32,
}

/// Finds the keys of all selectors that are true for an event.
#[derive(Debug)]
pub(crate) struct ContentIndex<K> {
    fields: Fields,
    fences: Arc<Fences>,
    entries: Slab<Entry<K>>,
    by_text: Table,
    /// Roots, by group.
    groups: Slab<u32>,
    nodes: Nodes,
    hasher: Seeded,
    scratch: Scratch,
    memory: Memory,
    candidates: Candidates,
    dear: Dear,
    total: Cost,
    events: u64,
}

/// Selectors that may be true, found by their only clause or by one of several. The memory is
/// reused for the next event.
#[derive(Debug, Default)]
struct Candidates {
    once: Vec<u32>,
    several: Vec<u32>,
}

/// The selectors with the most steps.
#[derive(Debug, Default)]
struct Dear {
    entries: Vec<u32>,
    /// Selectors with fewer steps cannot enter the list; 0 while the list is not full.
    least: u64,
}

impl<K: Copy + Ord> ContentIndex<K> {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = Seeded::new(seed);
        ContentIndex {
            fields: Fields::new(seed),
            fences: Arc::default(),
            entries: Slab::new(),
            by_text: Table::new(),
            groups: Slab::new(),
            nodes: Nodes::new(hasher.clone()),
            hasher,
            scratch: Scratch::default(),
            memory: Memory::new(),
            candidates: Candidates::default(),
            dear: Dear::default(),
            total: Cost::default(),
            events: 0,
        }
    }

    pub(crate) fn set_fences(&mut self, fences: Arc<Fences>) {
        self.fences = fences;
    }

    pub(crate) fn fences(&self) -> &Arc<Fences> {
        &self.fences
    }

    /// The number of distinct selectors per group, summed over the groups.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn insert_group(&mut self) -> GroupId {
        let root = self.nodes.insert_root();
        GroupId(self.groups.insert(root))
    }

    /// Removes an empty group.
    pub(crate) fn remove_group(&mut self, group: GroupId) {
        let root = self.groups.remove(group.0);
        self.nodes.remove_root(root);
    }

    pub(crate) fn insert(&mut self, group: GroupId, selector: &Selector, key: K) -> SelectorId {
        let text: Box<str> = selector.to_string().into();
        let hash = self.hasher.hash_one((group.0, &*text));
        let entries = &self.entries;
        if let Some(id) = self.by_text.find(hash, |&id| entries[id].group == group.0 && entries[id].text == text) {
            self.entries[id].keys.push(key);
            return SelectorId(id);
        }
        let program = Program::compile(selector.condition(), &mut self.fields);
        let entry = Entry {
            group: group.0,
            text,
            program,
            clauses: SmallVec::new(),
            keys: Keys::of(key),
            cost: Cost::default(),
        };
        let id = self.entries.insert(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_text.insert(hash, id, |&id| hasher.hash_one((entries[id].group, &*entries[id].text)));
        let root = self.groups[group.0];
        let clauses = clauses(selector.condition(), &self.fields, &mut self.nodes.uses, &self.hasher);
        assert!(id < DECIDES, "2^30 selectors do not fit any memory");
        let several = if clauses.len() > 1 { SEVERAL } else { 0 };
        for clause in &clauses {
            let clause = self.nodes.insert(root, id | several, clause);
            self.entries[id].clauses.push(clause);
        }
        self.nodes.uses.settle();
        self.entries[id].clauses.shrink_to_fit();
        SelectorId(id)
    }

    /// Removes a key of a selector; false if the selector does not have it.
    pub(crate) fn remove(&mut self, id: SelectorId, key: K) -> bool {
        let keys = &mut self.entries[id.0].keys;
        if !keys.remove(key) {
            return false;
        }
        if keys.is_empty() {
            self.remove_entry(id.0);
        }
        true
    }

    fn remove_entry(&mut self, id: u32) {
        let (entries, hasher) = (&self.entries, &self.hasher);
        let rehash = |&id: &u32| hasher.hash_one((entries[id].group, &*entries[id].text));
        self.by_text.remove(rehash(&id), id, rehash);
        self.dear.entries.retain(|&known| known != id);
        self.dear.least = 0;
        let entry = self.entries.remove(id);
        entry.clauses.iter().for_each(|&clause| self.nodes.remove(clause));
        entry.program.release(&mut self.fields);
    }

    /// Whether one selector is true.
    pub(crate) fn is_true(&mut self, id: SelectorId, subject: &dyn Subject) -> bool {
        let program = &self.entries[id.0].program;
        let (value, steps) = self.scratch.ask(&self.fields, &self.fences, subject, |facts| program.is_true(facts));
        self.charge(id.0, Cost { evaluations: 1, steps, matches: value.into() });
        value
    }

    /// Calls `found` with each key in `groups` whose selector is true.
    pub(crate) fn for_each_true(&mut self, groups: &[GroupId], subject: &dyn Subject, mut found: impl FnMut(K)) {
        self.events += 1;
        let noted = self.events % NOTED == 1;
        let ContentIndex { fields, fences, scratch, entries, nodes, hasher, memory, candidates, .. } = self;
        let Candidates { once, several } = candidates;
        let decided = scratch.ask(fields, fences, subject, |facts| {
            memory.fill(facts, &nodes.uses, hasher);
            if noted {
                memory.note(&mut nodes.sight, &nodes.uses);
            }
            let probe = Probe::new(nodes, facts, memory, hasher);
            let flags = if probe.is_exact() { DECIDES } else { 0 };
            for group in groups {
                probe.visit(self.groups[group.0], &mut |id| {
                    if id & SEVERAL == 0 {
                        once.push(id & (!DECIDES | flags))
                    } else {
                        several.push(id & !(SEVERAL | DECIDES))
                    }
                });
            }
            several.sort_unstable();
            several.dedup();
            once.append(several);
            decide(once, entries, facts)
        });
        for (id, cost) in decided {
            self.charge(id, cost);
            if cost.matches > 0 {
                self.entries[id].keys.for_each(&mut found);
            }
        }
        self.candidates.once.clear();
    }

    /// Adds to the cost of a selector.
    fn charge(&mut self, id: u32, cost: Cost) {
        let entry = &mut self.entries[id];
        entry.cost += cost;
        self.total += cost;
        if entry.cost.steps > self.dear.least {
            self.dear.note(id, &self.entries);
        }
    }

    /// The cost of all selectors so far, including removed ones.
    pub(crate) fn total(&self) -> Cost {
        self.total
    }

    /// The canonical text of a selector.
    pub(crate) fn text(&self, selector: SelectorId) -> &str {
        &self.entries[selector.number()].text
    }

    /// Group, text and cost of the selectors with the most steps, the most first.
    pub(crate) fn expensive(&self) -> Vec<(GroupId, &str, Cost)> {
        let entries = self.dear.entries.iter().map(|&id| &self.entries[id]);
        let mut list: Vec<_> = entries.map(|entry| (GroupId(entry.group), &*entry.text, entry.cost)).collect();
        list.sort_unstable_by_key(|(group, text, cost)| (core::cmp::Reverse(cost.steps), *group, *text));
        list
    }
}

/// Evaluates the candidates that the index has not decided; returns the cost of each, including
/// whether it is true.
fn decide<K>(candidates: &[u32], entries: &Slab<Entry<K>>, facts: &Facts<'_>) -> SmallVec<[(u32, Cost); 64]> {
    // Entries and programs are far apart in memory: touching all of one kind before the other lets
    // their cache misses overlap.
    let programs: SmallVec<[Option<&Program>; 128]> =
        candidates.iter().map(|&id| (id & DECIDES == 0).then(|| &entries[id].program)).collect();
    let constants = programs.iter().flatten().filter(|program| matches!(program.first(), Op::Constant(_))).count();
    core::hint::black_box(constants);
    let cost = |program: Option<&Program>| match program.map(|program| program.is_true(facts)) {
        Some((value, steps)) => Cost { evaluations: 1, steps, matches: value.into() },
        None => Cost { evaluations: 0, steps: 0, matches: 1 },
    };
    candidates.iter().zip(programs).map(|(id, program)| (id & !DECIDES, cost(program))).collect()
}

impl Dear {
    /// Updates the list after the steps of an entry have exceeded `least`.
    fn note<K>(&mut self, id: u32, entries: &Slab<Entry<K>>) {
        if !self.entries.contains(&id) {
            if self.entries.len() < EXPENSIVE_MAX {
                self.entries.push(id);
            } else {
                let steps = |place: &usize| entries[self.entries[*place]].cost.steps;
                let place = (0..EXPENSIVE_MAX).min_by_key(steps).expect("the list is full");
                if steps(&place) < entries[id].cost.steps {
                    self.entries[place] = id;
                }
            }
        }
        if self.entries.len() == EXPENSIVE_MAX {
            self.least = self.entries.iter().map(|&id| entries[id].cost.steps).min().expect("the list is full");
        }
    }
}
