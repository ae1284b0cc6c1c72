//! One subscriber, as the checker sees it.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_client::Gap;

use super::names::{Gaps, Names, Told};
use super::{Interest, MAX_BEHIND, Message, Promise, Tally, Verdict};

pub(super) struct Subscriber {
    pub(super) interest: Interest,
    pub(super) promise: Promise,
    vehicles: Vec<Stream>,
    pub(super) tally: Tally,
    /// Messages expected and not yet arrived.
    pub(super) in_flight: u64,
    /// Those of them that a later message has overtaken.
    pub(super) overtaken: u64,
    /// Those of them that it missed without a connection.
    owed: u64,
    /// It has no connection.
    is_away: bool,
    gaps: Gaps,
}

/// What a subscriber gets of one vehicle.
#[derive(Default)]
struct Stream {
    /// The highest number published when the subscription began.
    since: u64,
    /// The highest number that has arrived.
    highest: u64,
    /// What has to arrive, by number.
    expected: VecDeque<Expected>,
}

struct Expected {
    seq: u64,
    digest: u64,
    at: Duration,
    overtaken: bool,
    excused: bool,
    /// It may come or not, and counts only if it is wrong.
    bordering: bool,
    /// The subscriber had no connection when it should have come.
    missed: bool,
    /// It seems to lie in a gap, and counts as reported until it comes after all.
    presumed: bool,
}

impl Subscriber {
    /// A subscriber from now on; `published` are the highest numbers that vehicles have published.
    pub(super) fn new(interest: Interest, promise: Promise, published: &[u64]) -> Subscriber {
        let stream = |&since: &u64| Stream { since, highest: since, expected: VecDeque::new() };
        Subscriber {
            interest,
            promise,
            vehicles: published.iter().map(stream).collect(),
            tally: Tally::default(),
            in_flight: 0,
            overtaken: 0,
            owed: 0,
            is_away: false,
            gaps: Gaps::default(),
        }
    }

    pub(super) fn expect(&mut self, message: Message, at: Duration, bordering: bool, names: &Names) {
        let Message { vehicle, seq, digest, .. } = message;
        if self.vehicles[vehicle as usize].expected.len() == MAX_BEHIND {
            self.give_up_oldest(vehicle as usize, names);
        }
        let missed = self.is_away;
        let expected =
            Expected { seq, digest, at, overtaken: false, excused: false, bordering, missed, presumed: false };
        self.vehicles[vehicle as usize].expected.push_back(expected);
        if bordering {
            self.tally.bordering += 1;
        } else if !missed {
            (self.in_flight, self.tally.expected) = (self.in_flight + 1, self.tally.expected + 1);
        } else if self.promise != Promise::Nondurable {
            (self.in_flight, self.tally.expected) = (self.in_flight + 1, self.tally.expected + 1);
            self.owed += 1;
        }
    }

    pub(super) fn excuse(&mut self, vehicle: u32, seq: u64) {
        let expected = &mut self.vehicles[vehicle as usize].expected;
        if let Some(found) = expected.iter_mut().find(|expected| expected.seq == seq) {
            found.excused = true;
        }
    }

    pub(super) fn away(&mut self) {
        self.is_away = true;
        for expected in self.vehicles.iter_mut().flat_map(|stream| &mut stream.expected) {
            if core::mem::replace(&mut expected.missed, true) || expected.bordering || expected.presumed {
                continue;
            }
            if self.promise != Promise::Nondurable {
                self.owed += 1;
                continue;
            }
            // Nobody waits for it any more.
            self.in_flight -= 1;
            self.tally.expected -= 1;
            self.overtaken -= u64::from(core::mem::take(&mut expected.overtaken));
        }
    }

    pub(super) fn back(&mut self) {
        self.is_away = false;
    }

    pub(super) fn owed(&self) -> u64 {
        self.owed
    }

    /// Messages that it missed and that nobody waits for.
    pub(super) fn waived(&self) -> u64 {
        let expected = self.vehicles.iter().flat_map(|stream| &stream.expected);
        expected.filter(|expected| !expected.bordering && self.is_waived(expected)).count() as u64
    }

    pub(super) fn gap(&mut self, gap: Gap) {
        self.gaps.add(gap);
    }

    /// Counts what lies in gaps as reported.
    pub(super) fn settle(&mut self, names: &Names) {
        if self.gaps.is_empty() {
            return;
        }
        for vehicle in 0..self.vehicles.len() {
            let mut expected = core::mem::take(&mut self.vehicles[vehicle].expected);
            expected.retain_mut(|expected| {
                if self.is_waived(expected) {
                    return true;
                }
                let told = names.look(vehicle, expected.seq, &self.gaps);
                match (expected.presumed, told) {
                    (true, Told::No) => self.wait_again(expected),
                    (false, Told::Perhaps | Told::Yes) => self.report(expected),
                    (true, Told::Perhaps | Told::Yes) | (false, Told::No) => {}
                }
                told != Told::Yes
            });
            self.vehicles[vehicle].expected = expected;
        }
    }

    fn report(&mut self, expected: &mut Expected) {
        self.in_flight -= 1;
        self.overtaken -= u64::from(core::mem::take(&mut expected.overtaken));
        self.owed -= u64::from(expected.missed);
        self.tally.reported += 1;
        expected.presumed = true;
    }

    /// What seemed to lie in a gap is expected as before.
    fn wait_again(&mut self, expected: &mut Expected) {
        if core::mem::take(&mut expected.presumed) {
            self.in_flight += 1;
            self.owed += u64::from(expected.missed);
            self.tally.reported -= 1;
        }
    }

    /// Whether nobody waits for a message.
    fn is_waived(&self, expected: &Expected) -> bool {
        expected.bordering || (expected.missed && self.promise == Promise::Nondurable)
    }

    pub(super) fn judge(&mut self, message: Message, names: &Names, may_repeat: bool, at: Duration) -> Verdict {
        let vehicle = message.vehicle as usize;
        if message.seq <= self.vehicles[vehicle].since {
            return Verdict::Early;
        }
        let found = self.vehicles[vehicle].expected.binary_search_by_key(&message.seq, |expected| expected.seq);
        let Ok(index) = found else {
            if may_repeat {
                self.tally.redelivered += 1;
                return Verdict::Repeated;
            }
            self.tally.duplicated += 1;
            return Verdict::Duplicate;
        };
        self.overtake(vehicle, index);
        let stream = &mut self.vehicles[vehicle];
        let in_order = message.seq > stream.highest;
        stream.highest = stream.highest.max(message.seq);
        let mut expected = stream.expected.remove(index).expect("it was found at this index");
        if expected.presumed && names.look(vehicle, message.seq, &self.gaps) == Told::Yes {
            self.tally.duplicated += 1;
            return Verdict::Duplicate;
        }
        self.wait_again(&mut expected);
        let waived = self.is_waived(&expected);
        if !waived {
            self.in_flight -= 1;
            self.overtaken -= u64::from(expected.overtaken);
            self.owed -= u64::from(expected.missed);
        }
        if expected.digest != message.digest {
            self.tally.altered += 1;
            return Verdict::Altered;
        }
        if waived && !expected.bordering {
            // It came although it need not.
            self.tally.expected += 1;
        }
        self.tally.delivered += u64::from(!expected.bordering);
        let delay = at.saturating_sub(expected.at);
        if !in_order {
            self.tally.reordered += 1;
            return Verdict::OutOfOrder(delay);
        }
        if expected.missed && !waived {
            self.tally.recovered += 1;
            return Verdict::Recovered(delay);
        }
        Verdict::InOrder(delay)
    }

    /// A message has arrived before these.
    fn overtake(&mut self, vehicle: usize, index: usize) {
        let nondurable = self.promise == Promise::Nondurable;
        for before in self.vehicles[vehicle].expected.iter_mut().take(index) {
            let is_excused = before.bordering || before.presumed || before.missed && nondurable;
            if !before.overtaken && !is_excused {
                before.overtaken = true;
                self.overtaken += 1;
            }
        }
    }

    /// Nothing more arrives.
    pub(super) fn give_up(&mut self, names: &Names) {
        self.settle(names);
        for vehicle in 0..self.vehicles.len() {
            while self.give_up_oldest(vehicle, names) {}
        }
    }

    /// Counts the oldest message expected of a vehicle as lost, unless there is an excuse; false if there is none.
    fn give_up_oldest(&mut self, vehicle: usize, names: &Names) -> bool {
        let Some(mut oldest) = self.vehicles[vehicle].expected.pop_front() else { return false };
        if self.is_waived(&oldest) {
            self.tally.missed += u64::from(!oldest.bordering);
            return true;
        }
        self.wait_again(&mut oldest);
        self.in_flight -= 1;
        self.overtaken -= u64::from(oldest.overtaken);
        self.owed -= u64::from(oldest.missed);
        if oldest.excused {
            self.tally.excused += 1;
        } else if names.look(vehicle, oldest.seq, &self.gaps) != Told::No {
            self.tally.reported += 1;
        } else {
            self.tally.lost += 1;
        }
        true
    }
}
