//! The memory that semi-durable subscriptions recover from: the broker's latest events, divided
//! into partitions, and a record of those that were overwritten.
//!
//! An event has a *serial*, its number in the broker's own order. Each partition keeps its events
//! in that order under its own policy, and knows which it has overwritten: for each pubend the tick
//! up to which it is incomplete, and the holes after that. A reader begins at a serial, over the
//! partitions that may hold wanted events, and is shown every event and every hole.

mod chunk;
mod classes;
mod meter;
mod outages;
mod partition;
mod plan;
mod pubends;
mod read;
mod reconfigure;
mod slot;
mod slots;
#[cfg(test)]
mod tests;

use core::ops::ControlFlow;
use core::time::Duration;

use whimbrel_event::{AcceptedEvent, EventId, PubendId, Tick, Time};
use whimbrel_selector::{Selector, TopicFilter};

use outages::Outages;
use partition::{Around, Partition};
pub(crate) use plan::all_content;
pub use plan::{
    Capacity, DEFAULT_BYTES, DefaultPlan, PARTITIONS_MAX, PROTECTED_LIFETIME, PROTECTED_PER_MILLE, PartitionPlan,
    PartitionSet, Plan, Policy,
};
use pubends::Pubends;
use read::CacheReading;
pub use read::{CacheItem, NextRead};

use crate::fault::Faults;

/// Contents and counters of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionGauges {
    /// Events in the partition.
    pub events: u64,
    /// The cost of events and holes, bytes.
    pub bytes: u64,
    /// Events written since the start of the broker, or since the partition exists.
    pub written: u64,
    /// Events overwritten since then.
    pub overwritten: u64,
    /// Events that are kept for their importance (policy `priority`).
    pub protected: u64,
    /// Holes between events.
    pub holes: u64,
    /// Slots that were looked at or moved to find victims and to merge holes.
    pub work: u64,
}

/// The broker's latest events.
#[derive(Debug)]
pub struct Cache {
    plan: Plan,
    /// In the order of the plan; the last is the default one.
    partitions: Vec<Partition>,
    pubends: Pubends,
    outages: Outages,
    random: u64,
    /// The serial after the last written one.
    end: u64,
    /// Bytes of all partitions together.
    bytes: u64,
    pub(crate) faults: Faults,
}

impl Cache {
    /// An empty cache. `seed` is for random choices and for hash tables.
    ///
    /// # Panics
    /// When the plan has more than [`PARTITIONS_MAX`] partitions; configuration bounds them.
    pub fn new(plan: Plan, seed: u64) -> Self {
        Cache {
            partitions: reconfigure::partitions(&plan),
            plan,
            pubends: Pubends::new(seed),
            outages: Outages::new(),
            random: seed,
            end: 1,
            bytes: 0,
            faults: Faults::default(),
        }
    }

    /// Records that events of a pubend up to `to` were never written here, as they are older than
    /// this cache: no partition is complete up to there.
    ///
    /// # Panics
    /// When 65,536 other pubends are known.
    pub fn miss(&mut self, pubend: PubendId, to: Tick) {
        if fault!(self, CacheBelieved) {
            return;
        }
        let number = self.pubends.number(pubend);
        self.pubends.miss(number, to);
    }

    /// Keeps an event that belongs to `partition`, and overwrites others to make room. Amortised
    /// over many events the cost of each is constant; the costliest one moves all slots of its
    /// partition.
    ///
    /// # Panics
    /// When there is no such partition, or `serial` is not above all earlier ones.
    pub fn write(&mut self, serial: u64, partition: usize, event: &AcceptedEvent<'_>, now: Time) {
        assert!(serial >= self.end, "serial {serial} after {}", self.end);
        self.end = serial + 1;
        let id = event.id;
        if self.pubends.is_full_for(id.pubend) {
            self.forget_pubends();
        }
        let pubend = self.pubends.number(id.pubend);
        if self.pubends.written(pubend, id.tick, serial) {
            let oldest = self.first_serial();
            let partitions = &self.partitions;
            self.pubends.thin(pubend, oldest, |from| partitions.iter().filter_map(|p| p.slots.first_at(from)).min());
        }
        let into = &mut self.partitions[partition];
        let before = into.slots.bytes;
        let mut around = Around { now, random: &mut self.random, outages: &mut self.outages };
        into.write(serial, pubend, event, &mut around);
        self.bytes = self.bytes - before + into.slots.bytes;
        self.hold_ceiling(now);
    }

    /// Makes room for pubends: those without an event or hole are forgotten. If all still have
    /// some, everything is overwritten; a broker cannot follow this number at a time.
    fn forget_pubends(&mut self) {
        let mut is_used = vec![false; self.pubends.count()];
        for (slot, _) in self.partitions.iter().flat_map(|partition| partition.slots.walk(0)) {
            is_used[usize::from(slot.pubend())] = true;
        }
        if is_used.iter().all(|is_used| *is_used) {
            self.partitions = reconfigure::partitions(&self.plan);
            self.bytes = 0;
            is_used.fill(false);
        }
        for number in (0..is_used.len()).filter(|number| !is_used[*number]) {
            self.pubends.forget(number as u16);
            self.partitions.iter_mut().for_each(|partition| partition.slots.forget(number as u16));
        }
    }

    /// Overwrites in the partition with most bytes until the cache is within its ceiling.
    fn hold_ceiling(&mut self, now: Time) {
        while self.bytes > self.plan.ceiling {
            let most = self.partitions.iter_mut().max_by_key(|partition| partition.slots.bytes);
            let most = most.expect("there is always the default partition");
            let before = most.slots.bytes;
            let mut around = Around { now, random: &mut self.random, outages: &mut self.outages };
            let overwritten = most.overwrite_one(&mut around);
            assert!(overwritten, "bytes without an event");
            self.bytes = self.bytes - before + most.slots.bytes;
        }
    }

    /// Shows the contents of `partitions` from the serial `from` on, in the order of serials, and
    /// returns where to continue. Stops after `budget` slots (at least one), or when `visit`
    /// breaks; the item shown last counts as read. Holes need no room at the reader: the result of
    /// `visit` for a hole is ignored. Holes that begin before `from` and reach beyond it are shown
    /// first and do not count towards the budget, so that a reading in pieces shows them more than
    /// once.
    ///
    /// A hole comes before all later events of its pubend, in all partitions; events within it may
    /// still come from others.
    pub fn read(
        &self,
        from: u64,
        partitions: &PartitionSet,
        budget: usize,
        visit: impl FnMut(CacheItem<'_>) -> ControlFlow<()>,
    ) -> NextRead {
        let slots = partitions.iter().filter_map(|number| self.partitions.get(number)).map(|p| &p.slots);
        CacheReading::new(&self.pubends, slots, from).run(from, self.end, budget, visit)
    }

    /// The highest tick of a pubend at or below which `partitions` may lack events without a hole
    /// for them, though they may have some; 0 if there is none.
    pub fn incomplete(&self, partitions: &PartitionSet, pubend: PubendId) -> Tick {
        let number = self.pubends.find(pubend);
        let unsure = self.pubends.unsure(number);
        let partitions = partitions.iter().filter_map(|place| self.partitions.get(place));
        let of_partition = |partition: &Partition| number.map_or(Tick(0), |number| partition.slots.incomplete(number));
        partitions.map(of_partition).fold(unsure, Tick::max)
    }

    /// The serial where a reader begins that needs no events of a pubend up to `after`: no later
    /// event is before it, and at most 64 earlier events of that pubend are behind it. Of a pubend
    /// that has written nothing, nothing is needed.
    pub fn serial_for(&self, pubend: PubendId, after: Tick) -> u64 {
        let number = self.pubends.find(pubend);
        number.and_then(|number| self.pubends.serial_for(number, after)).unwrap_or(self.end)
    }

    /// Whether one of `partitions` holds an event.
    pub fn holds(&self, partitions: &PartitionSet, id: EventId) -> bool {
        let mut found = false;
        let from = self.serial_for(id.pubend, Tick(id.tick.0.saturating_sub(1)));
        // If it is there, it is one of the first written since its pubend's last mark.
        self.read(from, partitions, pubends::MARK_EVERY as usize + 1, |item| {
            found = matches!(item, CacheItem::Event { event, .. } if event.id() == id);
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// The serial of the oldest event that any partition holds; [`Cache::end_serial`] if there is
    /// none.
    pub fn first_serial(&self) -> u64 {
        self.partitions.iter().filter_map(|partition| partition.slots.first_serial()).min().unwrap_or(self.end)
    }

    /// The serial after the last written one.
    pub fn end_serial(&self) -> u64 {
        self.end
    }

    /// All pubends with written events. One without contents may be forgotten when there are
    /// 65,536.
    pub fn pubends(&self) -> impl Iterator<Item = PubendId> {
        self.pubends.ids()
    }

    /// The partitions that may hold events which a subscription to `filter` with `selector`
    /// matches.
    pub fn candidates(&self, filter: TopicFilter<'_>, selector: Option<&Selector>) -> PartitionSet {
        self.plan.candidates(filter, selector)
    }

    /// Records how long a subscriber was away: the policy `value` derives the worth of events from
    /// that.
    pub fn observe_outage(&mut self, away: Duration) {
        self.outages.observe(away);
    }

    /// The current division of the cache.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Events in all partitions.
    pub fn events(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.slots.events).sum()
    }

    /// The cost of all partitions, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Contents and counters of each partition, in the order of the plan, the default one last.
    pub fn gauges(&self) -> impl Iterator<Item = PartitionGauges> {
        self.partitions.iter().map(|partition| PartitionGauges {
            events: partition.slots.events,
            bytes: partition.slots.bytes,
            written: partition.written,
            overwritten: partition.overwritten,
            protected: partition.protected(),
            holes: partition.slots.holes,
            work: partition.slots.work,
        })
    }
}
