//! The judge of the freight desk: it knows only which orders were sent, which of them the broker
//! has accepted, and what each dispatcher received. It has no clock: time is an argument.
//!
//! An accepted order is due to each dispatcher that wants it, once, unaltered and in its clerk's
//! order. An unanswered order may arrive or not. A repeat is allowed only under the rule of the
//! side that keeps the position (see [`Keeper`]), and only as the same event. As another event it
//! is allowed if the broker says that its clerk may have sent it twice, which is so if a broker
//! could not be asked. While a broker cannot be reached, later orders that a clerk sent to another
//! one may arrive first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_client::EventId;

use crate::fleet::regions::{Disturbances, Sites};

/// Orders of one clerk that a dispatcher may wait for; beyond it the oldest counts as lost.
pub const WAITING_MAX: usize = 65_536;
/// Orders of one clerk whose ids are remembered, to tell a repetition that is allowed.
const REMEMBERED: usize = 4_096;
/// The number of orders in the text about a fault.
const TOLD: usize = 6;

/// The side that keeps a dispatcher's position, which decides about repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// The client, with tokens: no repeats.
    Client,
    /// The broker, QoS 1: on a later connection an event may be repeated, under the same id, if the
    /// broker did not know that it was received.
    AtLeastOnce,
    /// The broker, QoS 2: only repeats that the copy of the session does not exclude after its
    /// broker died.
    ExactlyOnce,
}

/// An order that a dispatcher received.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The clerk.
    pub clerk: usize,
    /// The clerk's number for it.
    pub number: u64,
    /// A hash of everything that must arrive unaltered.
    pub digest: u64,
    /// The event's id; a durable subscriber is always told it.
    pub id: Option<EventId>,
    /// The number of the dispatcher's connections up to now.
    pub connection: u32,
    /// The region of the dispatcher's broker.
    pub region: usize,
    /// Whether the broker says that the clerk may have sent it twice, to another broker as well
    /// (`w-maybe-repeat`).
    pub is_doubtful: bool,
}

/// The judgement of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Correct, this long after it was sent.
    Received(Duration),
    /// An allowed repeat of the same event.
    Repeated,
    /// A forbidden repeat.
    Twice,
    /// New, and allowed to arrive after a later one of the same clerk.
    Overtaken(Duration),
    /// New, but it arrives after a later one of the same clerk.
    OutOfOrder,
    /// Its content was altered.
    Altered,
    /// Not sent, or not matched by the filter.
    Foreign,
}

impl Verdict {
    /// The fault, if there is one.
    pub fn fault(self) -> Option<&'static str> {
        match self {
            Verdict::Twice => Some("came again"),
            Verdict::OutOfOrder => Some("came after a later one"),
            Verdict::Altered => Some("came altered"),
            Verdict::Foreign => Some("was sent by nobody"),
            Verdict::Received(_) | Verdict::Repeated | Verdict::Overtaken(_) => None,
        }
    }
}

/// Counts of one dispatcher, or of several.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Counts {
    /// Orders received, each counted once.
    pub received: u64,
    /// Orders that were accepted, are due, and did not arrive.
    pub lost: u64,
    /// Forbidden arrivals beyond the first.
    pub twice: u64,
    /// Allowed repeats: the same event, on a later connection, at least once.
    pub repeated: u64,
    /// Orders that arrived after later ones of their clerk.
    pub reordered: u64,
    /// Orders that were allowed to: later ones went to another broker, while theirs could not be
    /// reached.
    pub overtaken: u64,
    /// Orders that arrived altered.
    pub altered: u64,
    /// Arrivals that were not sent.
    pub foreign: u64,
    /// Gaps that the broker has told; none is allowed.
    pub gaps: u64,
    /// Unanswered orders that did not arrive.
    pub unsure: u64,
}

impl Counts {
    /// The number of broken promises.
    pub fn faults(&self) -> u64 {
        self.lost + self.twice + self.reordered + self.altered + self.foreign + self.gaps
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Counts) {
        self.received += other.received;
        self.lost += other.lost;
        self.twice += other.twice;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
        self.overtaken += other.overtaken;
        self.altered += other.altered;
        self.foreign += other.foreign;
        self.gaps += other.gaps;
        self.unsure += other.unsure;
    }
}

/// The judge. See the module.
pub struct Ledger {
    clerks: Vec<Clerk>,
    dispatchers: Vec<Dispatcher>,
    disturbances: Arc<Disturbances>,
}

/// The fate of a clerk's orders.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Clerk {
    /// The greatest number sent.
    pub sent: u64,
    /// Orders that the broker has accepted.
    pub accepted: u64,
    /// Orders that it has refused.
    pub refused: u64,
}

struct Dispatcher {
    keeper: Keeper,
    /// By clerk; `None` if the dispatcher does not want its orders.
    streams: Vec<Option<Stream>>,
    counts: Counts,
}

/// The orders of one clerk for one dispatcher.
#[derive(Default)]
struct Stream {
    /// The greatest number that has arrived.
    highest: u64,
    waiting: VecDeque<Waiting>,
    /// The last orders that have arrived.
    came: VecDeque<Came>,
}

struct Waiting {
    number: u64,
    digest: u64,
    at: Duration,
    /// The brokers that it was handed to.
    sites: Sites,
    is_accepted: bool,
}

struct Came {
    arrival: Arrival,
    sent: Duration,
    at: Duration,
    /// The brokers that it was handed to before its arrival.
    sites: Sites,
}

impl Ledger {
    /// A judge of a number of clerks, and of dispatchers that want the orders of some of them.
    pub fn new(clerks: usize, dispatchers: &[(Keeper, Vec<bool>)]) -> Ledger {
        let dispatcher = |(keeper, wanted): &(Keeper, Vec<bool>)| Dispatcher {
            keeper: *keeper,
            streams: wanted.iter().map(|wanted| wanted.then(Stream::default)).collect(),
            counts: Counts::default(),
        };
        let dispatchers = dispatchers.iter().map(dispatcher).collect();
        Ledger { clerks: vec![Clerk::default(); clerks], dispatchers, disturbances: Arc::default() }
    }

    /// Sets the disturbances by which promises are judged that hold only for brokers that can be
    /// reached.
    #[must_use]
    pub fn during(self, disturbances: Arc<Disturbances>) -> Ledger {
        Ledger { disturbances, ..self }
    }

    /// A clerk is about to send its next order.
    ///
    /// # Panics
    /// If its numbers are not consecutive.
    pub fn sent(&mut self, clerk: usize, number: u64, digest: u64, at: Duration) {
        assert_eq!(number, self.clerks[clerk].sent + 1, "a clerk numbers its orders consecutively");
        self.clerks[clerk].sent = number;
        for Dispatcher { streams, counts, .. } in &mut self.dispatchers {
            let Some(stream) = &mut streams[clerk] else { continue };
            stream.waiting.push_back(Waiting { number, digest, at, sites: Sites::NONE, is_accepted: false });
            if stream.waiting.len() > WAITING_MAX {
                stream.give_up_oldest(counts);
            }
        }
    }

    /// A clerk hands all of its orders from this one on to a region's broker; to be called before
    /// the broker can have them.
    pub fn handed(&mut self, clerk: usize, from: u64, region: usize) {
        for stream in self.dispatchers.iter_mut().filter_map(|dispatcher| dispatcher.streams[clerk].as_mut()) {
            let first = stream.waiting.partition_point(|order| order.number < from);
            stream.waiting.range_mut(first..).for_each(|order| order.sites = order.sites.and(Sites::one(region)));
        }
    }

    /// The broker has accepted an order.
    pub fn accepted(&mut self, clerk: usize, number: u64) {
        self.clerks[clerk].accepted += 1;
        for stream in self.dispatchers.iter_mut().filter_map(|dispatcher| dispatcher.streams[clerk].as_mut()) {
            if let Ok(index) = stream.find(number) {
                stream.waiting[index].is_accepted = true;
            }
        }
    }

    /// The broker has refused an order: it must not arrive.
    pub fn refused(&mut self, clerk: usize, number: u64) {
        self.clerks[clerk].refused += 1;
        for stream in self.dispatchers.iter_mut().filter_map(|dispatcher| dispatcher.streams[clerk].as_mut()) {
            if let Ok(index) = stream.find(number) {
                stream.waiting.remove(index);
            }
        }
    }

    /// A dispatcher received an order.
    pub fn arrived(&mut self, dispatcher: usize, arrival: Arrival, at: Duration) -> Verdict {
        let Ledger { dispatchers, disturbances, .. } = self;
        let Dispatcher { keeper, streams, counts } = &mut dispatchers[dispatcher];
        let stream = streams.get_mut(arrival.clerk).and_then(Option::as_mut);
        let verdict = match stream {
            Some(stream) => stream.judge(*keeper, arrival, at, disturbances),
            None => Verdict::Foreign,
        };
        match verdict {
            Verdict::Received(_) => counts.received += 1,
            Verdict::Repeated => counts.repeated += 1,
            Verdict::Twice => counts.twice += 1,
            Verdict::Overtaken(_) => (counts.received, counts.overtaken) = (counts.received + 1, counts.overtaken + 1),
            Verdict::OutOfOrder => (counts.received, counts.reordered) = (counts.received + 1, counts.reordered + 1),
            Verdict::Altered => counts.altered += 1,
            Verdict::Foreign => counts.foreign += 1,
        }
        verdict
    }

    /// The orders of a clerk that a dispatcher received around a given one, as an aid to examine a
    /// fault.
    pub fn history(&self, dispatcher: usize, clerk: usize, number: u64) -> String {
        let Some(stream) = self.dispatchers[dispatcher].streams.get(clerk).and_then(Option::as_ref) else {
            return String::new();
        };
        let told = |came: &Came| {
            let Arrival { number, id, connection, region, is_doubtful, .. } = came.arrival;
            let id = id.map(|id| format!(" {id}")).unwrap_or_default();
            let doubtful = if is_doubtful { " doubtful" } else { "" };
            let (sent, at) = (came.sent.as_secs_f64(), came.at.as_secs_f64());
            let sites = came.sites;
            format!(
                "{number}{id}{doubtful} (handed to {sites:?} at {sent:.3} s, came {at:.3} s in region {region} by connection {connection})"
            )
        };
        let later = stream.came.iter().filter(|came| came.arrival.number >= number).take(TOLD).map(told);
        let last = stream.came.iter().rev().take(TOLD).map(told);
        let (later, last) = (later.collect::<Vec<_>>().join(", "), last.collect::<Vec<_>>().join(", "));
        format!("the first ones with a greater number were {later}; the last ones were {last}")
    }

    /// A dispatcher received something that is not an order.
    pub fn arrived_unreadable(&mut self, dispatcher: usize) {
        self.dispatchers[dispatcher].counts.foreign += 1;
    }

    /// A dispatcher was told that something may be missing.
    pub fn gap(&mut self, dispatcher: usize) {
        self.dispatchers[dispatcher].counts.gaps += 1;
    }

    /// Whether a dispatcher lacks an accepted order that was sent before a moment.
    pub fn owes(&self, dispatcher: usize, before: Duration) -> bool {
        let streams = self.dispatchers[dispatcher].streams.iter().flatten();
        streams.flat_map(|stream| &stream.waiting).any(|order| order.is_accepted && order.at < before)
    }

    /// Accepted orders in flight to a dispatcher, and how many of them a later one has overtaken:
    /// lost, unless they arrive after all.
    pub fn owed_to(&self, dispatcher: usize) -> (u64, u64) {
        let streams = self.dispatchers[dispatcher].streams.iter().flatten();
        let owed = |stream: &Stream| {
            let accepted = || stream.waiting.iter().filter(|order| order.is_accepted);
            let overtaken = accepted().take_while(|order| order.number < stream.highest).count() as u64;
            (accepted().count() as u64, overtaken)
        };
        streams.map(owed).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Accepted orders in flight to all dispatchers.
    pub fn waiting(&self) -> u64 {
        (0..self.dispatchers.len()).map(|dispatcher| self.owed_to(dispatcher).0).sum()
    }

    /// The fate of each clerk's orders.
    pub fn clerks(&self) -> &[Clerk] {
        &self.clerks
    }

    /// A dispatcher's counts.
    pub fn counts(&self, dispatcher: usize) -> Counts {
        self.dispatchers[dispatcher].counts
    }

    /// The run is over: accepted orders that have not arrived are lost.
    pub fn close(&mut self) {
        for Dispatcher { streams, counts, .. } in &mut self.dispatchers {
            for stream in streams.iter_mut().flatten() {
                while !stream.waiting.is_empty() {
                    stream.give_up_oldest(counts);
                }
            }
        }
    }
}

impl Stream {
    fn find(&self, number: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&number, |order| order.number)
    }

    fn judge(&mut self, keeper: Keeper, arrival: Arrival, at: Duration, disturbances: &Disturbances) -> Verdict {
        let number = arrival.number;
        // Each repeat is compared with the last arrival: one copy of a session excuses one repeat.
        if let Some(came) = self.came.iter_mut().rev().find(|came| came.arrival.number == number) {
            let may_be = may_repeat(keeper, (&*came, &arrival), at, disturbances);
            (came.arrival, came.at) = (arrival, at);
            return if may_be { Verdict::Repeated } else { Verdict::Twice };
        }
        let Ok(index) = self.find(number) else {
            // An order that was forgotten, or given up, long ago still arrives a second time.
            return if number > 0 && number <= self.highest { Verdict::Twice } else { Verdict::Foreign };
        };
        let Some(order) = self.waiting.remove(index) else { return Verdict::Foreign };
        let is_first = number > self.highest;
        let may_be_late = is_first || self.may_be_late(&order, arrival, disturbances);
        if self.came.len() == REMEMBERED {
            self.came.pop_front();
        }
        self.came.push_back(Came { arrival, sent: order.at, at, sites: order.sites });
        self.highest = self.highest.max(number);
        let took = at.saturating_sub(order.at);
        match (order.digest == arrival.digest, is_first, may_be_late) {
            (false, ..) => Verdict::Altered,
            (true, true, _) => Verdict::Received(took),
            (true, false, true) => Verdict::Overtaken(took),
            (true, false, false) => Verdict::OutOfOrder,
        }
    }

    /// Whether an order may arrive after a later one of its clerk: the clerk has moved to another
    /// broker in between, and the broker with the order could not be reached. One stream keeps its
    /// order whatever happens.
    fn may_be_late(&self, order: &Waiting, arrival: Arrival, disturbances: &Disturbances) -> bool {
        let stream = arrival.id.map(|id| id.pubend);
        let mut later = self.came.iter().filter(|came| came.arrival.number > order.number);
        let first = later.clone().next();
        let is_kept = later.any(|came| stream.is_none() || came.arrival.id.map(|id| id.pubend) == stream);
        !is_kept && first.is_some_and(|first| disturbances.may_overtake((order.sites, order.at), first.sent, first.at))
    }

    fn give_up_oldest(&mut self, counts: &mut Counts) {
        match self.waiting.pop_front() {
            Some(order) if order.is_accepted => counts.lost += 1,
            Some(_) => counts.unsure += 1,
            None => {}
        }
    }
}

/// Whether an order may arrive again, by the side that keeps the position.
fn may_repeat(keeper: Keeper, (came, again): (&Came, &Arrival), at: Duration, disturbances: &Disturbances) -> bool {
    let first = &came.arrival;
    let Some((one, other)) = first.id.zip(again.id) else { return false };
    if one != other {
        return first.is_doubtful || again.is_doubtful;
    }
    let is_later = first.connection < again.connection;
    match keeper {
        Keeper::Client => false,
        Keeper::AtLeastOnce => is_later,
        Keeper::ExactlyOnce => is_later && disturbances.may_have_forgotten(first.region, came.at, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_client::{HostId, Tick};

    const NONE: Duration = Duration::ZERO;

    fn arrival(number: u64, connection: u32) -> Arrival {
        let id = EventId { pubend: HostId::new(0xabc0).pubend(1), tick: Tick(number) };
        let (region, is_doubtful) = (0, false);
        Arrival { clerk: 0, number, digest: number, id: Some(id), connection, region, is_doubtful }
    }

    /// A ledger with one dispatcher, to whom orders 1 to 5 are due.
    fn ledger(keeper: Keeper) -> Ledger {
        let mut ledger = Ledger::new(2, &[(keeper, vec![true, false])]);
        for number in 1..=5 {
            ledger.sent(0, number, number, Duration::from_secs(number));
            ledger.accepted(0, number);
        }
        ledger
    }

    #[test]
    fn what_was_accepted_and_does_not_come_is_lost_and_what_has_no_answer_is_not() {
        let mut ledger = ledger(Keeper::Client);
        ledger.sent(0, 6, 6, NONE);
        ledger.sent(0, 7, 7, NONE);
        ledger.refused(0, 7);
        for number in [1, 2, 4] {
            let verdict = ledger.arrived(0, arrival(number, 1), Duration::from_secs(10));
            assert_eq!(verdict, Verdict::Received(Duration::from_secs(10 - number)));
        }
        assert_eq!((ledger.owed_to(0), ledger.waiting()), ((2, 1), 2));
        assert!(ledger.owes(0, Duration::from_secs(4)) && !ledger.owes(0, Duration::from_secs(3)));
        ledger.close();
        let counts = ledger.counts(0);
        assert_eq!((counts.received, counts.lost, counts.unsure, counts.faults()), (3, 2, 1, 2));
        assert_eq!(ledger.clerks()[0], Clerk { sent: 7, accepted: 5, refused: 1 });
    }

    #[test]
    fn only_at_least_once_may_repeat_and_only_the_same_event_on_another_connection() {
        for keeper in [Keeper::Client, Keeper::AtLeastOnce, Keeper::ExactlyOnce] {
            let mut ledger = ledger(keeper);
            ledger.arrived(0, arrival(1, 1), NONE);
            let again = if keeper == Keeper::AtLeastOnce { Verdict::Repeated } else { Verdict::Twice };
            assert_eq!(ledger.arrived(0, arrival(1, 2), NONE), again, "{keeper:?}");
            assert_eq!(ledger.arrived(0, arrival(1, 2), NONE), Verdict::Twice, "the same connection");
            let other = Arrival { id: arrival(9, 0).id, ..arrival(1, 3) };
            assert_eq!(ledger.arrived(0, other, NONE), Verdict::Twice, "another event");
            assert_eq!(ledger.counts(0).received, 1);
        }
    }

    #[test]
    fn a_broker_that_could_not_be_reached_excuses_what_another_one_did_meanwhile() {
        let (id, at) =
            (|host: u64, tick| EventId { pubend: HostId::new(host).pubend(1), tick: Tick(tick) }, Duration::from_secs);
        let disturbances = Arc::<Disturbances>::default();
        let mut ledger = ledger(Keeper::ExactlyOnce).during(disturbances.clone());
        ledger.handed(0, 1, 1);
        ledger.handed(0, 3, 0);
        let elsewhere = |number| Arrival { id: Some(id(0xdef0, number)), ..arrival(number, 1) };
        // 3 and 4 were sent to another broker after 1 and 2, and 2 is late: once while the first
        // broker could not be reached, once not.
        ledger.arrived(0, elsewhere(3), at(3));
        assert_eq!(ledger.arrived(0, arrival(1, 1), at(3)), Verdict::OutOfOrder);
        disturbances.begin(at(4), Sites::one(1));
        ledger.arrived(0, Arrival { region: 1, ..elsewhere(4) }, at(4));
        assert_eq!(ledger.arrived(0, arrival(2, 1), at(9)), Verdict::OutOfOrder, "3 came before anything happened");
        disturbances.end(at(9));
        // A copy of the session lacks it: so it is repeated once, and not on the same connection.
        let again = Arrival { connection: 2, ..elsewhere(4) };
        assert_eq!(ledger.arrived(0, again, at(5)), Verdict::Repeated);
        assert_eq!(ledger.arrived(0, again, at(5)), Verdict::Twice);
        // A clerk sent it twice, and the broker says so.
        let twice = Arrival { id: Some(id(0xabc0, 44)), is_doubtful: true, ..again };
        assert_eq!(ledger.arrived(0, twice, at(6)), Verdict::Repeated);
        ledger.sent(0, 6, 6, at(10));
        ledger.handed(0, 6, 2);
        ledger.sent(0, 7, 7, at(11));
        ledger.handed(0, 7, 0);
        disturbances.begin(at(10), Sites::one(2));
        ledger.arrived(0, elsewhere(7), at(11));
        assert_eq!(ledger.arrived(0, arrival(6, 1), at(14)), Verdict::Overtaken(at(4)));
        assert_eq!((ledger.counts(0).overtaken, ledger.counts(0).reordered), (1, 2));
    }

    #[test]
    fn what_comes_late_altered_or_unasked_is_told() {
        let mut ledger = ledger(Keeper::ExactlyOnce);
        ledger.arrived(0, arrival(3, 1), NONE);
        assert_eq!(ledger.arrived(0, arrival(2, 1), NONE), Verdict::OutOfOrder);
        assert_eq!(ledger.arrived(0, Arrival { digest: 0, ..arrival(4, 1) }, NONE), Verdict::Altered);
        assert_eq!(ledger.arrived(0, arrival(9, 1), NONE), Verdict::Foreign);
        assert_eq!(ledger.arrived(0, Arrival { clerk: 1, ..arrival(1, 1) }, NONE), Verdict::Foreign);
        ledger.gap(0);
        let counts = ledger.counts(0);
        assert_eq!((counts.reordered, counts.altered, counts.foreign, counts.gaps), (1, 1, 2, 1));
        assert_eq!(counts.faults(), 5);
    }
}
