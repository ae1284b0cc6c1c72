//! Changing the division while events are there.

use std::collections::VecDeque;

use whimbrel_event::{Packed, Time};
use whimbrel_selector::TopicFilter;

use super::Cache;
use super::chunk::Bytes;
use super::partition::{Around, Partition};
use super::plan::{PARTITIONS_MAX, PartitionPlan, PartitionSet, Plan};
use super::slot::Slot;
use super::slot::What;
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

/// The partitions that may get events which now belong to the partition `number`.
fn heirs(old: &Plan, new: &Plan, number: usize) -> PartitionSet {
    let filter = old.partitions.get(number).map_or("#", |partition| &partition.filter);
    let filter = TopicFilter::new(filter).expect("a plan has well-formed filters");
    let is_fixed = |partition: &PartitionPlan| {
        partition.selector.as_ref().is_none_or(|selector| selector.fences().next().is_none())
    };
    // A fence may have changed its shape: then a selector says nothing of what was written before.
    let selector = old.partitions.get(number).filter(|partition| is_fixed(partition));
    let selector = selector.and_then(|partition| partition.selector.as_ref());
    let mut heirs = if number < old.partitions.len() {
        new.candidates(filter, selector)
    } else {
        // No filter covers the default partition, which also has what begins with $.
        PartitionSet::first(new.count())
    };
    // What did not match an earlier partition then does not match it now.
    for earlier in old.partitions[..number].iter().filter(|partition| is_fixed(partition)) {
        let same =
            |(_, now): &(usize, &PartitionPlan)| now.filter == earlier.filter && now.selector == earlier.selector;
        for (place, _) in new.partitions.iter().enumerate().filter(same) {
            heirs.remove(place);
        }
    }
    heirs
}

/// An event that is dealt anew.
struct Dealt {
    serial: u64,
    pubend: u16,
    since: Time,
    /// Which chunk has it, and where.
    chunk: usize,
    place: u32,
    len: u32,
}

/// Events of partitions that have ended, and the bytes of their chunks with how many of their events are still to be dealt.
#[derive(Default)]
struct Estate {
    dealt: Vec<Dealt>,
    chunks: Vec<(Bytes, usize)>,
}

impl Cache {
    /// Divides the cache anew while events are there. `deal` says to which new partition an event belongs. Also to be called with the present plan when
    /// shapes of fences change that a partition's selector refers to.
    ///
    /// A partition that goes on with the same filter and selector keeps exactly what it has and knows, as far as no other one's events can
    /// come to it. Where events are dealt, all holes count as incompleteness of every partition that could have held what is missing. Costs as much as
    /// writing all events that are dealt.
    ///
    /// # Panics
    /// When the plan has more than [`PARTITIONS_MAX`] partitions, or `deal` names one that does not exist.
    pub fn reconfigure(&mut self, plan: Plan, now: Time, deal: impl FnMut(Packed<'_>) -> usize) {
        let heirs: Vec<PartitionSet> = (0..self.plan.count()).map(|number| heirs(&self.plan, &plan, number)).collect();
        let old = core::mem::replace(&mut self.partitions, partitions(&plan));
        self.plan = plan;
        let mut estate = Estate::default();
        for (number, partition) in old.into_iter().enumerate() {
            let others = heirs.iter().enumerate().filter(|(other, _)| *other != number);
            let sole = Some(heirs[number]).filter(|own| own.len() == 1).and_then(|own| own.iter().next());
            match sole.filter(|heir| !others.into_iter().any(|(_, set)| set.contains(*heir))) {
                Some(heir) => {
                    let mut around = Around { now, random: &mut self.random, outages: &mut self.outages };
                    self.partitions[heir].adopt(partition, &mut around);
                }
                None => self.dissolve(partition.slots, &heirs[number], &mut estate),
            }
        }
        self.deal(estate, deal);
        self.bytes = self.partitions.iter().map(|partition| partition.slots.bytes).sum();
        self.hold_ceiling(now);
    }

    /// Collects the events of a partition, and tells its heirs what it lacks.
    fn dissolve(&mut self, slots: Slots, heirs: &PartitionSet, estate: &mut Estate) {
        #[cfg(feature = "mutants")]
        let heirs = if self.forgets { &PartitionSet::EMPTY } else { heirs };
        for pubend in 0..self.pubends.count() {
            let pubend = pubend as u16;
            let to = slots.incomplete(pubend);
            heirs.iter().for_each(|heir| self.partitions[heir].slots.miss(pubend, to));
        }
        for (slots, bytes) in slots.into_chunks() {
            let before = estate.dealt.len();
            self.dissolve_chunk(slots, heirs, estate);
            estate.chunks.push((bytes, estate.dealt.len() - before));
        }
    }

    fn dissolve_chunk(&mut self, slots: VecDeque<Slot>, heirs: &PartitionSet, estate: &mut Estate) {
        for slot in slots {
            match slot.what {
                What::Event { place, len, since, pubend, .. } => {
                    let chunk = estate.chunks.len();
                    estate.dealt.push(Dealt { serial: slot.last, pubend, since, chunk, place, len });
                }
                What::Hole { to, pubend, .. } => {
                    heirs.iter().for_each(|heir| self.partitions[heir].slots.miss(pubend, to));
                }
            }
        }
    }

    fn deal(&mut self, estate: Estate, mut deal: impl FnMut(Packed<'_>) -> usize) {
        let Estate { mut dealt, mut chunks } = estate;
        dealt.sort_unstable_by_key(|event| event.serial);
        let mut latest = Time::ZERO;
        for Dealt { serial, pubend, since, chunk, place, len } in dealt {
            let (bytes, left) = &mut chunks[chunk];
            let event = bytes.get(place, len);
            // The age of a protected event counts from later than those of its neighbours.
            latest = latest.max(since);
            let into = deal(event);
            let mut around = Around { now: latest, random: &mut self.random, outages: &mut self.outages };
            self.partitions[into].write(serial, pubend, &event.unpack(), &mut around);
            *left -= 1;
            if *left == 0 {
                // As they are dealt in their order, only few chunks are there twice.
                *bytes = Bytes::default();
            }
        }
    }
}
