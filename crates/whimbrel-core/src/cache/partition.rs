//! One partition: its events, and which of them it overwrites.

use core::time::Duration;

use whimbrel_event::{AcceptedEvent, Time};

use super::classes::Classes;
use super::meter::Meter;
use super::outages::Outages;
use super::plan::{Capacity, PartitionPlan, Policy};
use super::slot::SlotContent;
use super::slots::{Charge, Slots};

/// A bound of events and bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

impl Limit {
    /// Whether numbers of events and bytes exceed it.
    pub(super) fn is_exceeded(&self, events: u64, bytes: u64) -> bool {
        events > self.events || bytes > self.bytes
    }

    /// This many thousandths of it.
    fn part(&self, per_mille: u16) -> Limit {
        let part = |whole: u64| (u128::from(whole) * u128::from(per_mille.min(1_000)) / 1_000) as u64;
        Limit { events: part(self.events), bytes: part(self.bytes) }
    }

    fn without(&self, part: Limit) -> Limit {
        Limit { events: self.events - part.events, bytes: self.bytes - part.bytes }
    }
}

/// The state outside the partition that overwriting depends on.
pub(super) struct Around<'a> {
    pub(super) now: Time,
    pub(super) random: &'a mut u64,
    pub(super) outages: &'a mut Outages,
}

/// The charge of each event besides its bytes, measured with `examples/cache_memory.rs`. `random`
/// has as many holes as events, and all of its chunks have dead events that are not compacted yet;
/// the others have fewer.
fn charge(policy: Policy) -> Charge {
    match policy {
        Policy::Lrp => Charge { place: 52, dead: 24 },
        Policy::Random => Charge { place: 150, dead: 176 },
        Policy::Priority { .. } | Policy::Value => Charge { place: 64, dead: 56 },
    }
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) plan: PartitionPlan,
    pub(super) slots: Slots,
    /// For `priority` and `value`.
    classes: Classes,
    meter: Option<Meter>,
    pub(super) written: u64,
    pub(super) overwritten: u64,
}

impl Partition {
    pub(super) fn new(plan: PartitionPlan) -> Self {
        let policy = plan.policy;
        let mut partition = Partition {
            plan,
            slots: Slots::new(charge(policy)),
            classes: Classes::default(),
            meter: None,
            written: 0,
            overwritten: 0,
        };
        partition.meter = partition.new_meter();
        partition
    }

    fn new_meter(&self) -> Option<Meter> {
        match (self.plan.capacity, self.plan.policy) {
            (Capacity::Time { keep, .. }, Policy::Random | Policy::Priority { .. } | Policy::Value) => {
                Some(Meter::new(keep))
            }
            _ => None,
        }
    }

    /// Takes over the events of a partition that has ended.
    pub(super) fn adopt(&mut self, old: Partition, around: &mut Around<'_>) {
        self.slots = old.slots;
        self.slots.recharge(charge(self.plan.policy));
        (self.written, self.overwritten) = (old.written, old.overwritten);
        if self.plan.capacity == old.plan.capacity && old.meter.is_some() {
            self.meter = old.meter;
        } else if let Some(meter) = &mut self.meter {
            self.slots.walk(0).for_each(|(slot, _)| {
                if let SlotContent::Event { since, .. } = slot.what {
                    meter.count(since);
                }
            });
        }
        match (old.plan.policy, self.plan.policy) {
            (Policy::Priority { .. }, Policy::Priority { .. }) | (Policy::Value, Policy::Value) => {
                self.classes = old.classes;
            }
            (_, Policy::Priority { .. }) => self.reclass(|_| 0),
            (_, Policy::Value) => self.reclass(|importance| importance),
            (_, Policy::Lrp | Policy::Random) => {}
        }
        let limit = match self.plan.capacity {
            Capacity::Events(events) => Limit { events, bytes: u64::MAX },
            Capacity::Bytes(bytes) | Capacity::Time { ceiling: bytes, .. } => Limit { events: u64::MAX, bytes },
        };
        if let Policy::Priority { protected, lifetime } = self.plan.policy {
            self.settle(limit, limit.part(protected), lifetime, around.now);
        }
        while limit.is_exceeded(self.slots.events, self.slots.bytes) && self.overwrite_one(around) {}
    }

    fn reclass(&mut self, class: impl Fn(u8) -> u8) {
        let classes = &mut self.classes;
        self.slots.reclass(class, |at, serial, class, since, cost| classes.add(class, cost, serial, since, at));
    }

    /// Events that are kept because of their importance.
    pub(super) fn protected(&self) -> u64 {
        match self.plan.policy {
            Policy::Priority { .. } => self.classes.protected().0,
            _ => 0,
        }
    }

    /// Keeps an event, and overwrites others to make room.
    pub(super) fn write(&mut self, serial: u64, pubend: u16, event: &AcceptedEvent<'_>, around: &mut Around<'_>) {
        self.written += 1;
        let len = event.packed_len();
        let weight = self.slots.cost(len);
        if let (Policy::Lrp, Capacity::Bytes(bytes)) = (self.plan.policy, self.plan.capacity)
            && self.slots.bytes + weight <= bytes
        {
            self.slots.push(serial, event, len, pubend, 0, around.now);
            return;
        }
        let limit = self.limit(around.now);
        if limit.is_exceeded(1, weight) {
            self.overwritten += 1;
            self.slots.push_hole(serial, pubend, event.id.tick);
            return;
        }
        let class = match self.plan.policy {
            Policy::Lrp | Policy::Random => {
                self.make_room(limit, weight, around);
                0
            }
            Policy::Priority { .. } => 0,
            Policy::Value => event.event.importance,
        };
        let at = self.slots.push(serial, event, len, pubend, class, around.now);
        match self.plan.policy {
            Policy::Lrp | Policy::Random => {}
            Policy::Priority { protected, lifetime } => {
                self.classes.add(class, weight, serial, around.now, at);
                self.settle(limit, limit.part(protected), lifetime, around.now);
            }
            Policy::Value => {
                self.classes.add(class, weight, serial, around.now, at);
                while limit.is_exceeded(self.slots.events, self.slots.bytes) && self.overwrite_one(around) {}
            }
        }
    }

    /// The bound after the event that arrives now.
    fn limit(&mut self, now: Time) -> Limit {
        match self.plan.capacity {
            Capacity::Events(events) => Limit { events, bytes: u64::MAX },
            Capacity::Bytes(bytes) => Limit { events: u64::MAX, bytes },
            Capacity::Time { ceiling, .. } => {
                let events = self.meter.as_mut().map_or(u64::MAX, |meter| meter.count(now));
                Limit { events, bytes: ceiling }
            }
        }
    }

    /// Overwrites until an event of this weight has room.
    fn make_room(&mut self, limit: Limit, weight: u64, around: &mut Around<'_>) {
        if let (Capacity::Time { keep, .. }, Policy::Lrp) = (self.plan.capacity, self.plan.policy) {
            while let Some(SlotContent::Event { since, .. }) = self.slots.front().map(|slot| &slot.what)
                && around.now.since(*since) > keep
            {
                self.overwrite_one(around);
            }
        }
        while limit.is_exceeded(self.slots.events + 1, self.slots.bytes + weight) {
            // A bound of events is exact.
            let is_by_bytes = self.plan.policy == Policy::Lrp && limit.events == u64::MAX;
            let overwritten = if is_by_bytes { self.slots.pop_chunk() } else { 0 };
            self.overwritten += overwritten;
            if overwritten == 0 && !self.overwrite_one(around) {
                break;
            }
        }
    }

    /// Frees room by one step: overwrites an event, or moves the oldest one to the protected part;
    /// false if there is none.
    pub(super) fn overwrite_one(&mut self, around: &mut Around<'_>) -> bool {
        let overwritten = match self.plan.policy {
            Policy::Lrp => self.slots.pop(),
            Policy::Random => match self.slots.draw(around.random) {
                Some(at) => {
                    self.slots.overwrite(at);
                    true
                }
                None => false,
            },
            Policy::Priority { .. } => {
                // The oldest event competes with the protected ones, which have no room for more.
                let (events, bytes) = self.classes.protected();
                return self.demote(Limit { events, bytes }, around.now) || self.overwrite_least();
            }
            Policy::Value => {
                around.outages.refresh();
                let outages = &*around.outages;
                let worth = |class: usize, since| class as f64 * outages.longer_than(around.now.since(since));
                match self.classes.least_by(worth) {
                    Some(class) => return self.overwrite_oldest(class),
                    None => false,
                }
            }
        };
        self.overwritten += u64::from(overwritten);
        overwritten
    }

    /// Holds the parts of a partition with priorities to their bounds.
    fn settle(&mut self, limit: Limit, protected: Limit, lifetime: Duration, now: Time) {
        while let Some(SlotContent::Event { since, class, .. }) = self.slots.front().map(|slot| &slot.what)
            && *class != 0
            && now.since(*since) > lifetime
        {
            let class = *class;
            self.overwrite_oldest(class);
        }
        let plain = limit.without(protected);
        while self.classes.exceed(0, plain) && self.demote(protected, now) {}
        while self.classes.protected_exceed(protected) && self.overwrite_least() {}
        while self.slots.bytes > limit.bytes && (self.overwrite_least() || self.demote(protected.part(0), now)) {}
    }

    /// Takes the oldest event out of the lrp part: it is protected from now on, or overwritten.
    /// False if there is none.
    fn demote(&mut self, protected: Limit, now: Time) -> bool {
        let Some(oldest) = self.classes.oldest(0) else { return false };
        let at = self.slots.locate(oldest.serial, oldest.at);
        let SlotContent::Event { len, importance, .. } = self.slots.get(at).what else {
            unreachable!("an event of the lrp part")
        };
        let weight = self.slots.cost(len as usize);
        if protected.is_exceeded(1, weight) {
            return self.overwrite_oldest(0);
        }
        loop {
            let (events, bytes) = self.classes.protected();
            if !protected.is_exceeded(events + 1, bytes + weight) {
                break;
            }
            match self.classes.least() {
                Some(least) if least < importance => self.overwrite_oldest(least),
                _ => return self.overwrite_oldest(0),
            };
        }
        let at = self.slots.locate(oldest.serial, oldest.at);
        self.classes.remove_oldest(0, weight, at, &mut self.slots);
        self.slots.promote(at, importance, now);
        self.classes.add(importance, weight, oldest.serial, now, at);
        true
    }

    /// Overwrites the oldest of the least important protected events. False if there is none.
    fn overwrite_least(&mut self) -> bool {
        self.classes.least().is_some_and(|class| self.overwrite_oldest(class))
    }

    /// Overwrites the oldest event of a class that has one.
    fn overwrite_oldest(&mut self, class: u8) -> bool {
        let oldest = self.classes.oldest(class).expect("a class with an event");
        let at = self.slots.locate(oldest.serial, oldest.at);
        let SlotContent::Event { len, .. } = self.slots.get(at).what else { unreachable!("the oldest of a class") };
        let weight = self.slots.cost(len as usize);
        self.classes.remove_oldest(class, weight, at, &mut self.slots);
        self.slots.overwrite(at);
        self.overwritten += 1;
        true
    }
}
