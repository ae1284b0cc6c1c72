//! The values of the storm's events, and the subset that each subscriber wants: both sides of every
//! delivery are known.

/// The number of values of the attribute, from 0 on.
pub(super) const VALUES: u8 = 100;

/// The number of values that a subscriber wants: one tenth.
const WIDTH: u8 = 10;

/// The attribute's name.
pub(super) const ATTRIBUTE: &str = "index";

/// The values of all events of a run, by the events' numbers; a run makes them once.
#[derive(Debug)]
pub(super) struct Values(Vec<u8>);

impl Values {
    /// Values of `events` events, uniform.
    pub(super) fn new(events: usize, seed: u64) -> Values {
        let mut random = fastrand::Rng::with_seed(seed);
        Values((0..events).map(|_| random.u8(..VALUES)).collect())
    }

    /// The value of event `number`.
    ///
    /// # Panics
    /// When the run has fewer events.
    pub(super) fn get(&self, number: u64) -> u8 {
        self.0[number as usize]
    }
}

/// The selection and progress of one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    first: u8,
    /// The first event that may be delivered next.
    next: u64,
    /// Events that were delivered in order.
    pub(super) received: u64,
    /// Events that were not delivered in order.
    pub(super) missed: u64,
    /// Events that were delivered again, late or unwanted.
    pub(super) wrong: u64,
}

impl Wanted {
    /// A tenth of the values, drawn at random.
    pub(super) fn draw(random: &mut fastrand::Rng) -> Wanted {
        Wanted { first: random.u8(..=VALUES - WIDTH), next: 0, received: 0, missed: 0, wrong: 0 }
    }

    /// The selector.
    pub(super) fn selector(&self) -> String {
        format!("{ATTRIBUTE} BETWEEN {} AND {}", self.first, self.first + WIDTH - 1)
    }

    fn wants(&self, value: u8) -> bool {
        (self.first..self.first + WIDTH).contains(&value)
    }

    /// Event `number` was delivered.
    pub(super) fn came(&mut self, number: u64, values: &Values) {
        if number < self.next || !self.wants(values.get(number)) {
            self.wrong += 1;
            return;
        }
        self.pass(number, values);
        self.next = number + 1;
        self.received += 1;
    }

    /// Whether each event that it wants before `end` was delivered or missed.
    pub(super) fn has_all(&mut self, end: u64, values: &Values) -> bool {
        while self.next < end && !self.wants(values.get(self.next)) {
            self.next += 1;
        }
        self.next >= end
    }

    /// Counts all wanted events before `end` that were not delivered as missed.
    pub(super) fn pass(&mut self, end: u64, values: &Values) {
        while self.next < end {
            self.missed += u64::from(self.wants(values.get(self.next)));
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted { first: 20, next: 0, received: 0, missed: 0, wrong: 0 }
    }

    #[test]
    fn what_comes_at_its_turn_is_received_and_what_was_passed_over_is_missed() {
        let (values, mut wanted) = (Values(vec![20, 19, 29, 30, 25, 21]), wanted());
        wanted.came(0, &values);
        assert!(!wanted.has_all(3, &values), "event 2 has not come");
        wanted.came(4, &values);
        assert!(wanted.has_all(5, &values) && !wanted.has_all(6, &values));
        wanted.pass(6, &values);
        assert_eq!((wanted.received, wanted.missed, wanted.wrong), (2, 2, 0), "{wanted:?}");
    }

    #[test]
    fn what_comes_again_or_late_or_was_not_wanted_is_wrong() {
        let (values, mut wanted) = (Values(vec![20, 21, 22, 40]), wanted());
        for number in [1, 1, 0, 3, 2] {
            wanted.came(number, &values);
        }
        assert_eq!((wanted.received, wanted.missed, wanted.wrong), (2, 1, 3), "{wanted:?}");
    }

    #[test]
    fn every_subscriber_wants_a_tenth() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1_000 {
            let wanted = Wanted::draw(&mut random);
            assert_eq!((0..VALUES).filter(|value| wanted.wants(*value)).count(), usize::from(VALUES / 10));
        }
        let values = Values::new(100_000, 5);
        let share = (0..100_000).filter(|number| wanted().wants(values.get(*number))).count();
        assert!((9_500..10_500).contains(&share), "{share}");
    }
}
