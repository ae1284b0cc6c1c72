//! The memory that semi-durable subscriptions recover from: the broker's latest events, divided
//! into partitions, and what of them was overwritten.
//!
//! An event has a *serial*, its number in the broker's own order. Each partition keeps its events
//! in that order under its own policy, and knows what it has overwritten: up to which tick of each
//! pubend it is incomplete, and the holes after that. A reader begins at a serial, over the
//! partitions that may hold what it wants, and meets every event there is and every hole.

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

/// What a partition holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionGauges {
    /// Events that it holds.
    pub events: u64,
    /// What they and the holes cost, bytes.
    pub bytes: u64,
    /// Events that were written since the broker started, or the partition came to be.
    pub written: u64,
    /// Events that were overwritten since then.
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
    /// The last is the default one.
    partitions: Vec<Partition>,
    pubends: Pubends,
    outages: Outages,
    random: u64,
    /// Behind the last one that was written.
    end: u64,
    /// All partitions together.
    bytes: u64,
    pub(crate) faults: Faults,
}

impl Cache {
    /// An empty cache. `seed` is for choices at random and for hash tables.
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

    /// Of a pubend, events up to `to` were never written here, as they came before this cache: no
    /// partition is complete up to there.
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

    /// Keeps an event that belongs to `partition`, and overwrites what it takes the place of.
    /// Amortised over many events the cost of each is constant; the costliest one moves as many
    /// slots as its partition has.
    ///
    /// # Panics
    /// When there is no such partition, or `serial` is not above all before.
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

    /// Makes room for pubends: those of which nothing is left are forgotten. If all still have
    /// something, everything is overwritten; a broker cannot follow so many at a time.
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

    /// While there is more than the ceiling, the partition with most bytes overwrites.
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

    /// Shows what `partitions` hold from the serial `from` on, in the order of serials, and says
    /// where to continue. Stops after `budget` slots (at least one), or when `visit` breaks; the
    /// item that it was shown last counts as read. Holes need no room at the reader: what `visit`
    /// says to one is not listened to. Holes that begin before `from` and reach beyond it come
    /// first and are not counted towards the budget, so that what was read in pieces has shown them
    /// more than once.
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

    /// The highest tick of that pubend at or below which `partitions` may lack events without a
    /// hole saying so, though they may have some; 0 if there is none.
    pub fn incomplete(&self, partitions: &PartitionSet, pubend: PubendId) -> Tick {
        let number = self.pubends.find(pubend);
        let unsure = self.pubends.unsure(number);
        let partitions = partitions.iter().filter_map(|place| self.partitions.get(place));
        let of_partition = |partition: &Partition| number.map_or(Tick(0), |number| partition.slots.incomplete(number));
        partitions.map(of_partition).fold(unsure, Tick::max)
    }

    /// Where a reader begins that needs nothing of that pubend up to `after`: nothing later is
    /// before it, and at most 64 earlier events of that pubend are behind it. Of a pubend that has
    /// written nothing, nothing is needed.
    pub fn serial_for(&self, pubend: PubendId, after: Tick) -> u64 {
        let number = self.pubends.find(pubend);
        number.and_then(|number| self.pubends.serial_for(number, after)).unwrap_or(self.end)
    }

    /// Whether one of `partitions` holds that event.
    pub fn holds(&self, partitions: &PartitionSet, id: EventId) -> bool {
        let mut found = false;
        let from = self.serial_for(id.pubend, Tick(id.tick.0.saturating_sub(1)));
        // It is one of the first that have been written since its pubend's last mark, if it is
        // there at all.
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

    /// Behind the serial that was written last.
    pub fn end_serial(&self) -> u64 {
        self.end
    }

    /// All pubends of which events were written. One of which nothing is left may be forgotten when
    /// there are 65,536.
    pub fn pubends(&self) -> impl Iterator<Item = PubendId> {
        self.pubends.ids()
    }

    /// The partitions that may hold events which a subscription to `filter` with `selector`
    /// matches.
    pub fn candidates(&self, filter: TopicFilter<'_>, selector: Option<&Selector>) -> PartitionSet {
        self.plan.candidates(filter, selector)
    }

    /// A subscriber was away for so long. From this the policy `value` learns what events are
    /// worth.
    pub fn observe_outage(&mut self, away: Duration) {
        self.outages.observe(away);
    }

    /// How the cache is divided now.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Events in all partitions.
    pub fn events(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.slots.events).sum()
    }

    /// What all partitions cost, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What each partition holds and did, in the order of the plan, the default one last.
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
