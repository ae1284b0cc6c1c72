//! Changing the division of a cache with events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::vec;

use whimbrel_event::{Packed, Tick, Time};
use whimbrel_selector::TopicFilter;

use super::Cache;
use super::chunk::ChunkBytes;
use super::partition::{Around, Partition};
use super::plan::{PARTITIONS_MAX, PartitionPlan, PartitionSet, Plan};
use super::slot::CacheSlot;
use super::slot::SlotContent;
use super::slots::Slots;

/// Empty partitions for a plan.
pub(super) fn partitions(plan: &Plan) -> Vec<Partition> {
    assert!(plan.count() <= PARTITIONS_MAX, "{} partitions passed the configuration's bound", plan.count());
    let of_default = PartitionPlan {
        filter: "#".into(),
        selector: None,
        capacity: plan.default.capacity,
        policy: plan.default.policy,
    };
    plan.partitions.iter().cloned().chain([of_default]).map(Partition::new).collect()
}

/// The new partitions that may get events of the old partition `number`.
fn heirs(old: &Plan, new: &Plan, number: usize) -> PartitionSet {
    let filter = old.partitions.get(number).map_or("#", |partition| &partition.filter);
    let filter = TopicFilter::new(filter).expect("a plan has well-formed filters");
    let is_fixed = |partition: &PartitionPlan| {
        partition.selector.as_ref().is_none_or(|selector| selector.fences().next().is_none())
    };
    // A fence may have changed its shape: then a selector tells nothing of events written before.
    let selector = old.partitions.get(number).filter(|partition| is_fixed(partition));
    let selector = selector.and_then(|partition| partition.selector.as_ref());
    let mut heirs = if number < old.partitions.len() {
        new.candidates(filter, selector)
    } else {
        // No filter covers the default partition, which also has topics that begin with $.
        PartitionSet::first(new.count())
    };
    // Events that did not match an earlier partition then do not match it now.
    for earlier in old.partitions[..number].iter().filter(|partition| is_fixed(partition)) {
        let same =
            |(_, now): &(usize, &PartitionPlan)| now.filter == earlier.filter && now.selector == earlier.selector;
        for (place, _) in new.partitions.iter().enumerate().filter(same) {
            heirs.remove(place);
        }
    }
    heirs
}

/// Events of a partition that has ended, still to be dealt, in the order of their serials.
struct Estate {
    chunks: vec::IntoIter<(VecDeque<CacheSlot>, ChunkBytes)>,
    /// The rest of the chunk that is being dealt.
    slots: VecDeque<CacheSlot>,
    bytes: ChunkBytes,
    /// The partitions that may get them.
    heirs: PartitionSet,
}

impl Estate {
    /// The serial of its next event; `hole` is told the holes before that.
    fn next(&mut self, mut hole: impl FnMut(u16, Tick)) -> Option<u64> {
        loop {
            while let Some(slot) = self.slots.front() {
                let SlotContent::Hole { to, pubend, .. } = slot.what else { return Some(slot.last) };
                hole(pubend, to);
                self.slots.pop_front();
            }
            // A chunk's memory is freed before the next one is dealt.
            (self.slots, self.bytes) = self.chunks.next()?;
        }
    }
}

impl Cache {
    /// Divides the cache anew. `deal` returns the new partition of an event. To be called with the
    /// current plan, too, when the shapes of fences that a partition's selector refers to change.
    ///
    /// A partition that stays, with equal filter and selector, keeps its contents and its knowledge
    /// of missing events exactly, as far as no events of others can come to it. Where events are
    /// dealt, all holes count as incompleteness of every partition that could have held the missing
    /// events. Costs as much as writing all events that are dealt, and no more memory than they
    /// take and one chunk of each partition.
    ///
    /// # Panics
    /// When the plan has more than [`PARTITIONS_MAX`] partitions, or `deal` names one that does not
    /// exist.
    pub fn reconfigure(&mut self, plan: Plan, now: Time, deal: impl FnMut(Packed<'_>) -> usize) {
        let heirs: Vec<PartitionSet> = (0..self.plan.count()).map(|number| heirs(&self.plan, &plan, number)).collect();
        let old = core::mem::replace(&mut self.partitions, partitions(&plan));
        self.plan = plan;
        let mut estates = Vec::new();
        for (number, partition) in old.into_iter().enumerate() {
            let others = heirs.iter().enumerate().filter(|(other, _)| *other != number);
            let sole = Some(&heirs[number]).filter(|own| own.len() == 1).and_then(|own| own.iter().next());
            match sole.filter(|heir| !others.into_iter().any(|(_, set)| set.contains(*heir))) {
                Some(heir) => {
                    let mut around = Around { now, random: &mut self.random, outages: &mut self.outages };
                    self.partitions[heir].adopt(partition, &mut around);
                }
                None => estates.push(self.dissolve(partition.slots, &heirs[number])),
            }
        }
        self.deal(estates, deal);
        self.bytes = self.partitions.iter().map(|partition| partition.slots.bytes).sum();
        self.hold_ceiling(now);
    }

    /// Ends a partition, and records its missing events at its heirs.
    fn dissolve(&mut self, slots: Slots, heirs: &PartitionSet) -> Estate {
        let heirs = if fault!(self, ForgottenOverwriting) { &PartitionSet::EMPTY } else { heirs };
        for pubend in 0..self.pubends.count() {
            let pubend = pubend as u16;
            let to = slots.incomplete(pubend);
            heirs.iter().for_each(|heir| self.partitions[heir].slots.miss(pubend, to));
        }
        let chunks: Vec<_> = slots.into_chunks().collect();
        let (slots, bytes) = (VecDeque::new(), ChunkBytes::default());
        Estate { chunks: chunks.into_iter(), slots, bytes, heirs: heirs.clone() }
    }

    /// Writes the events of ended partitions into the new ones, in the order of their serials.
    fn deal(&mut self, mut estates: Vec<Estate>, mut deal: impl FnMut(Packed<'_>) -> usize) {
        let mut latest = Time::ZERO;
        let mut turns: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        turns.extend(estates.iter_mut().enumerate().filter_map(|(place, estate)| self.turn(estate, place)));
        while let Some(Reverse((serial, place))) = turns.pop() {
            let estate = &mut estates[place];
            if let Some(slot) = estate.slots.pop_front()
                && let SlotContent::Event { place, len, since, pubend, .. } = slot.what
            {
                let event = estate.bytes.get(place, len);
                // The age of a protected event counts from later than those of its neighbours.
                latest = latest.max(since);
                let into = deal(event);
                let mut around = Around { now: latest, random: &mut self.random, outages: &mut self.outages };
                self.partitions[into].write(serial, pubend, &event.unpack(), &mut around);
            }
            turns.extend(self.turn(estate, place));
        }
    }

    /// The turn of an estate: the serial of its next event.
    fn turn(&mut self, estate: &mut Estate, place: usize) -> Option<Reverse<(u64, usize)>> {
        let heirs = estate.heirs.clone();
        let missing = |pubend, to| heirs.iter().for_each(|heir| self.partitions[heir].slots.miss(pubend, to));
        estate.next(missing).map(|serial| Reverse((serial, place)))
    }
}
