//! The events of a partition by the class that its policy gives them: for `value` by importance;
//! for `priority` class 0 is the lrp part, and protected events are classed by importance. The
//! order of each class is that of the slots: only its oldest event is known, and the next is found
//! by walking on.

use whimbrel_event::{IMPORTANCE_MAX, Time};

use super::partition::Limit;
use super::slot::SlotContent;
use super::slots::{At, Slots};

/// One for each importance, and class 0.
const CLASSES: usize = IMPORTANCE_MAX as usize + 1;

/// The oldest event of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oldest {
    pub(super) serial: u64,
    pub(super) since: Time,
    /// Its place when it was found.
    pub(super) at: At,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    events: u64,
    bytes: u64,
    /// `Some` if there are events.
    oldest: Option<Oldest>,
}

/// All classes.
#[derive(Debug, Default)]
pub(super) struct Classes([Class; CLASSES]);

impl Classes {
    /// Adds an event to a class, as its newest.
    pub(super) fn add(&mut self, class: u8, weight: u64, serial: u64, since: Time, at: At) {
        let class = &mut self.0[usize::from(class)];
        class.events += 1;
        class.bytes += weight;
        class.oldest.get_or_insert(Oldest { serial, since, at });
    }

    pub(super) fn oldest(&self, class: u8) -> Option<Oldest> {
        self.0[usize::from(class)].oldest
    }

    /// Removes the oldest event of a class, which is at `at`.
    pub(super) fn remove_oldest(&mut self, class: u8, weight: u64, at: At, slots: &mut Slots) {
        let of = &mut self.0[usize::from(class)];
        of.events -= 1;
        of.bytes -= weight;
        of.oldest = None;
        if of.events > 0 {
            let (at, slot) = slots.next_of(class, at).expect("there are more of this class");
            let SlotContent::Event { since, .. } = slot.what else { unreachable!("only events have a class") };
            of.oldest = Some(Oldest { serial: slot.last, since, at });
        }
    }

    /// The lowest class but 0 that has an event.
    pub(super) fn least(&self) -> Option<u8> {
        (1..CLASSES as u8).find(|class| self.0[usize::from(*class)].events > 0)
    }

    /// The class whose oldest event has the least worth.
    pub(super) fn least_by(&self, worth: impl Fn(usize, Time) -> f64) -> Option<u8> {
        let mut least: Option<(f64, u8)> = None;
        for (number, class) in self.0.iter().enumerate() {
            if let Some(oldest) = class.oldest {
                let worth = worth(number, oldest.since);
                if least.is_none_or(|(known, _)| worth < known) {
                    least = Some((worth, number as u8));
                }
            }
        }
        least.map(|(_, class)| class)
    }

    /// Events of all classes but 0, and their bytes.
    pub(super) fn protected(&self) -> (u64, u64) {
        self.0[1..].iter().fold((0, 0), |(events, bytes), class| (events + class.events, bytes + class.bytes))
    }

    pub(super) fn protected_exceed(&self, limit: Limit) -> bool {
        let (events, bytes) = self.protected();
        limit.is_exceeded(events, bytes)
    }

    pub(super) fn exceed(&self, class: u8, limit: Limit) -> bool {
        let class = &self.0[usize::from(class)];
        limit.is_exceeded(class.events, class.bytes)
    }
}
