//! One subscriber, as the checker sees it.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_client::Gap;

use super::names::{Gaps, Names, Told};
use super::{How, Interest, MAX_BEHIND, Message, Promise, Tally, Verdict};
use crate::fleet::regions::{Disturbances, Sites};

/// The number of a vehicle's messages that are remembered after their arrival, to judge repeats and
/// late ones.
const REMEMBERED: usize = 64;
/// The number of messages in the text about a fault.
const TOLD: usize = 6;
/// How long it takes at most until a running broker that was late knows of a subscription.
const PENDING_MAX: Duration = Duration::from_secs(2);

pub(super) struct Subscriber {
    pub(super) interest: Interest,
    pub(super) promise: Promise,
    vehicles: Vec<Stream>,
    pub(super) tally: Tally,
    /// Messages expected and not yet arrived.
    pub(super) in_flight: u64,
    /// Messages among these that a later one has overtaken.
    pub(super) overtaken: u64,
    /// Messages among these that it missed without a connection.
    owed: u64,
    /// Whether it has no connection.
    is_away: bool,
    /// Brokers that did not know of its subscription when it returned, and the time of its return.
    pending: (Sites, Duration),
    gaps: Gaps,
}

/// The messages of one vehicle for one subscriber.
#[derive(Default)]
struct Stream {
    /// The highest number published when the subscription began.
    since: u64,
    /// The highest number that has arrived.
    highest: u64,
    /// Messages that must arrive, by number.
    expected: VecDeque<Expected>,
    /// The last messages that have arrived, in order of arrival.
    came: VecDeque<Came>,
}

/// A message that has arrived.
struct Came {
    seq: u64,
    how: How,
    published: Duration,
    at: Duration,
}

struct Expected {
    seq: u64,
    digest: u64,
    at: Duration,
    overtaken: bool,
    excused: bool,
    /// Whether it may arrive or not; it counts only if it is wrong.
    bordering: bool,
    /// Whether the subscriber had no connection when it should have arrived.
    missed: bool,
    /// Whether it seems to lie in a gap: it counts as reported until it arrives after all.
    presumed: bool,
}

/// The circumstances by which an arrival is judged.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) names: &'a Names,
    pub(super) disturbances: &'a Disturbances,
    /// The time of arrival.
    pub(super) at: Duration,
}

impl Subscriber {
    /// A subscriber from now on; `published`: the greatest number that each vehicle has published.
    pub(super) fn new(interest: Interest, promise: Promise, published: &[u64]) -> Subscriber {
        let stream = |&since: &u64| Stream { since, highest: since, ..Stream::default() };
        Subscriber {
            interest,
            promise,
            vehicles: published.iter().map(stream).collect(),
            tally: Tally::default(),
            in_flight: 0,
            overtaken: 0,
            owed: 0,
            is_away: false,
            pending: (Sites::NONE, Duration::ZERO),
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
            // It is no longer awaited.
            self.in_flight -= 1;
            self.tally.expected -= 1;
            self.overtaken -= u64::from(core::mem::take(&mut expected.overtaken));
        }
    }

    pub(super) fn back(&mut self) {
        self.is_away = false;
    }

    pub(super) fn pending(&mut self, sites: Sites, at: Duration) {
        self.pending = (sites, at);
    }

    /// The last message of a vehicle is handed to a broker, which may not know yet of the
    /// subscription of a subscriber without a position.
    pub(super) fn handed(&mut self, (vehicle, seq): (u32, u64), (region, at): (usize, Duration), known: &Disturbances) {
        let (sites, since) = self.pending;
        if self.promise != Promise::Nondurable || !sites.meets(Sites::one(region)) {
            return;
        }
        if at > since + PENDING_MAX && !known.touch(Sites::one(region), at, at) {
            return;
        }
        let expected = self.vehicles[vehicle as usize].expected.back_mut().filter(|expected| expected.seq == seq);
        if let Some(expected) = expected.filter(|expected| !expected.missed && !expected.bordering) {
            expected.missed = true;
            (self.in_flight, self.tally.expected) = (self.in_flight - 1, self.tally.expected - 1);
        }
    }

    pub(super) fn last_before(&self, vehicle: usize, seq: u64, names: &Names) -> String {
        let Stream { came, expected, highest, .. } = &self.vehicles[vehicle];
        if seq > *highest {
            return String::new();
        }
        let last = came.iter().skip(came.len().saturating_sub(TOLD)).map(|came| {
            let Came { seq, how, published, at } = came;
            let name = how.id.map(|id| format!(" {id}")).unwrap_or_default();
            let marks = [(how.may_repeat, " DUP"), (how.is_doubtful, " doubtful")];
            let marks: String = marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect();
            let (published, at) = (published.as_secs_f64(), at.as_secs_f64());
            let to = names.sites(vehicle, *seq);
            let region = how.region;
            format!("{seq}{name}{marks} (handed to {to} from {published:.3} s on, came {at:.3} s in region {region})")
        });
        let waiting = expected.iter().take(TOLD).map(|expected| expected.seq.to_string());
        let (last, waiting) = (last.collect::<Vec<_>>().join(", "), waiting.collect::<Vec<_>>().join(", "));
        let to = names.sites(vehicle, seq);
        format!("it was handed to {to}; came before: {last}; expected: {waiting}")
    }

    pub(super) fn owed(&self) -> u64 {
        self.owed
    }

    /// Messages that it missed and that are no longer awaited.
    pub(super) fn waived(&self) -> u64 {
        let expected = self.vehicles.iter().flat_map(|stream| &stream.expected);
        expected.filter(|expected| !expected.bordering && self.is_waived(expected)).count() as u64
    }

    /// The subscriber was told of a gap: messages in it count as reported.
    pub(super) fn gap(&mut self, gap: Gap, names: &Names) {
        self.gaps.add(gap.clone());
        // Other gaps are known already, and are checked again each second.
        self.settle_in(&Gaps::of(gap), names, false);
    }

    /// Counts messages in gaps as reported, and those that turn out not to be in one as expected,
    /// as more names may be known.
    pub(super) fn settle(&mut self, names: &Names) {
        if !self.gaps.is_empty() {
            let gaps = std::mem::take(&mut self.gaps);
            self.settle_in(&gaps, names, true);
            self.gaps = gaps;
        }
    }

    fn settle_in(&mut self, gaps: &Gaps, names: &Names, are_all: bool) {
        for vehicle in 0..self.vehicles.len() {
            let mut expected = core::mem::take(&mut self.vehicles[vehicle].expected);
            expected.retain_mut(|expected| {
                if self.is_waived(expected) {
                    return true;
                }
                let told = names.look(vehicle, expected.seq, gaps);
                match (expected.presumed, told) {
                    (true, Told::No) if are_all => self.wait_again(expected),
                    (false, Told::Perhaps | Told::Yes) => self.report(expected),
                    (true, _) | (false, Told::No) => {}
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

    /// A message that seemed to lie in a gap is expected as before.
    fn wait_again(&mut self, expected: &mut Expected) {
        if core::mem::take(&mut expected.presumed) {
            self.in_flight += 1;
            self.owed += u64::from(expected.missed);
            self.tally.reported -= 1;
        }
    }

    /// Whether a message is no longer awaited.
    fn is_waived(&self, expected: &Expected) -> bool {
        expected.bordering || (expected.missed && self.promise == Promise::Nondurable)
    }

    pub(super) fn judge(&mut self, (message, how): (Message, How), known: Known<'_>) -> Verdict {
        let Known { names, at, .. } = known;
        let vehicle = message.vehicle as usize;
        if message.seq <= self.vehicles[vehicle].since {
            return Verdict::Early;
        }
        let found = self.vehicles[vehicle].expected.binary_search_by_key(&message.seq, |expected| expected.seq);
        let Ok(index) = found else { return self.again((message, how), known) };
        self.overtake(vehicle, index);
        let is_first = message.seq > self.vehicles[vehicle].highest;
        let in_order = is_first || self.may_be_late((message, index), how, known);
        let stream = &mut self.vehicles[vehicle];
        stream.highest = stream.highest.max(message.seq);
        let mut expected = stream.expected.remove(index).expect("it was found at this index");
        let is_told = |gaps: &Gaps| match how.id {
            Some(id) => gaps.contains(id),
            None => names.look(vehicle, message.seq, gaps) == Told::Yes,
        };
        if expected.presumed && is_told(&self.gaps) {
            self.tally.duplicated += 1;
            return Verdict::Duplicate;
        }
        if stream.came.len() == REMEMBERED {
            stream.came.pop_front();
        }
        stream.came.push_back(Came { seq: message.seq, how, published: expected.at, at });
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
            // It arrived although it need not.
            self.tally.expected += 1;
        }
        self.tally.delivered += u64::from(!expected.bordering);
        let delay = at.saturating_sub(expected.at);
        if !in_order {
            self.tally.reordered += 1;
            return Verdict::OutOfOrder(delay);
        }
        self.tally.overtaken += u64::from(!is_first);
        if expected.missed && !waived {
            self.tally.recovered += 1;
            return Verdict::Recovered(delay);
        }
        Verdict::InOrder(delay)
    }

    /// Judges a message that arrived before, or that the subscriber was told to be missing. Each
    /// repeat is compared with the last arrival.
    fn again(&mut self, (message, how): (Message, How), known: Known<'_>) -> Verdict {
        let Known { names, disturbances, at } = known;
        let sites = names.sites(message.vehicle as usize, message.seq);
        let came = &mut self.vehicles[message.vehicle as usize].came;
        let before = came.iter_mut().rev().find(|came| came.seq == message.seq);
        let may_be = match before {
            Some(before) => {
                let first = std::mem::replace(&mut before.how, how);
                let is_anew = self.promise.begins_anew() && first.region != how.region;
                if is_anew {
                    // At that broker it is new; later arrivals there are judged by this one.
                    before.at = at;
                }
                // Two events: the publisher has sent it to two brokers, and one of them could not
                // be asked.
                let is_told = first.is_doubtful || how.is_doubtful;
                let may_be_two = is_told && disturbances.is_hard_to_ask(sites, before.published, at);
                is_anew
                    || match first.id.zip(how.id) {
                        Some((first, again)) if first == again => how.may_repeat,
                        Some(_) => may_be_two,
                        // The subscriber is not told names.
                        None => how.may_repeat || may_be_two,
                    }
            }
            None => how.may_repeat || how.is_doubtful || self.was_told_of_another(message, how, names),
        };
        if may_be {
            self.tally.redelivered += 1;
            return Verdict::Repeated;
        }
        self.tally.duplicated += 1;
        Verdict::Duplicate
    }

    /// Whether a message was accepted twice, and the subscriber was told that the other of its two
    /// events is missing.
    fn was_told_of_another(&self, message: Message, how: How, names: &Names) -> bool {
        let is_told = names.look(message.vehicle as usize, message.seq, &self.gaps) == Told::Yes;
        is_told && how.id.is_some_and(|id| !self.gaps.contains(id))
    }

    /// Whether the message, which is expected at `index`, may arrive after a later one of its
    /// vehicle: the vehicle has moved to another broker in between, and the broker with the message
    /// could not be reached.
    fn may_be_late(
        &self,
        (message, index): (Message, usize),
        how: How,
        Known { names, disturbances, .. }: Known<'_>,
    ) -> bool {
        let vehicle = message.vehicle as usize;
        let said = self.vehicles[vehicle].expected[index].at;
        let sites = names.sites(vehicle, message.seq);
        let stream = names.stream_of(vehicle, message.seq, how.id);
        let is_same = |later: &Came| stream.is_some() && stream == names.stream_of(vehicle, later.seq, later.how.id);
        let is_anew = self.promise.begins_anew();
        let is_later = |came: &&Came| came.seq > message.seq && (!is_anew || came.how.region == how.region);
        let mut later = self.vehicles[vehicle].came.iter().filter(is_later);
        // A stream keeps its order, whatever happens.
        let first = later.clone().next();
        let is_kept = later.any(is_same);
        !is_kept && first.map_or(is_anew, |first| disturbances.may_overtake((sites, said), first.published, first.at))
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

    /// Counts everything that has not arrived.
    pub(super) fn give_up(&mut self, names: &Names) {
        self.settle(names);
        for vehicle in 0..self.vehicles.len() {
            while self.give_up_oldest(vehicle, names) {}
        }
    }

    /// Counts the oldest expected message of a vehicle as lost, unless it is excused; false if
    /// there is none.
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
