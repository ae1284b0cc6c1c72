//! A durable subscriber that keeps its position itself, as the paper's do, or leaves it to the
//! broker.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use whimbrel_client::{EventId, Position};

use super::publisher::class_of;
use super::{CLASSES, PUBLISHERS, SESSION_SECONDS, TOPIC};
use crate::bench::link::Endpoint;
use crate::bench::target::Target;
use crate::bench::wire::{self, Frame, QoS, mqtt};

/// The topic on which positions are acknowledged.
const ACKNOWLEDGE: &str = "$whimbrel/ack";

/// The side that keeps the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The client: it acknowledges now and then.
    Client,
    /// The broker: each event is acknowledged before the next one is delivered.
    Broker,
}

/// The counts of the events that it wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Events received.
    pub received: u64,
    /// Events skipped.
    pub lost: u64,
    /// Events that were delivered again.
    pub repeated: u64,
    /// The number of answers that named brokers without its subscription.
    pub pending: u64,
}

impl Counts {
    /// The sum of both.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            received: self.received + other.received,
            lost: self.lost + other.lost,
            repeated: self.repeated + other.repeated,
            pending: self.pending + other.pending,
        }
    }

    /// Events that were lost or repeated.
    pub fn wrong(self) -> u64 {
        self.lost + self.repeated
    }

    /// A description of the faults.
    pub fn note(self) -> String {
        let Counts { lost, repeated, pending, .. } = self;
        format!(
            "{lost} events lost, {repeated} repeated; {pending} subscriptions were answered before all brokers knew of them"
        )
    }
}

/// The number of a subscription's faults that are described one by one.
const TOLD_MAX: usize = 4;

/// A fault in the events of a publisher.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    /// The number of the expected event, and of the event that arrived.
    expected: u64,
    came: u64,
    /// The time since its subscription was answered.
    answered: Duration,
    /// Whether it was catching up.
    is_behind: bool,
}

/// See the module's documentation.
pub struct Subscriber {
    index: usize,
    class: usize,
    /// The index of its broker among the subscribers' brokers.
    pub place: usize,
    keeper: Keeper,
    endpoint: Option<Endpoint>,
    confirmed: bool,
    /// When its subscription was first answered, and the number of the next event then: from that
    /// one on everything must be delivered.
    answered: Option<(Instant, u64)>,
    /// The first faults.
    wrong: Vec<Wrong>,
    position: Option<Position>,
    /// The properties of the last event of each publisher, its id among them.
    last: [Vec<u8>; PUBLISHERS],
    /// The number of the next event of each publisher; `None`: any.
    next: [Option<u64>; PUBLISHERS],
    /// The value of `next` at its last acknowledgement.
    acknowledged: [Option<u64>; PUBLISHERS],
    /// When it returned, and the number before which it must have everything to have caught up.
    behind: Option<(Instant, u64)>,
    /// The times that it took to catch up.
    pub caught_up: Vec<Duration>,
    /// The counts of its events.
    pub counts: Counts,
}

impl Subscriber {
    /// A subscriber to a class, modulo [`CLASSES`], that was never connected.
    pub fn new(index: usize, class: usize, place: usize, keeper: Keeper) -> Subscriber {
        Subscriber {
            index,
            class: class % CLASSES,
            place,
            keeper,
            endpoint: None,
            confirmed: false,
            answered: None,
            wrong: Vec::new(),
            position: None,
            last: Default::default(),
            next: [None; PUBLISHERS],
            acknowledged: [None; PUBLISHERS],
            behind: None,
            caught_up: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Connects, to continue from its position. `sent`: the number of the next event, before which
    /// it must catch up.
    ///
    /// # Errors
    /// When the system has no sockets left.
    pub fn connect(&mut self, target: Target, sent: u64) -> Result<()> {
        let mut out = Vec::new();
        let name = format!("durable-{}", self.index);
        let one_at_a_time = self.keeper == Keeper::Broker;
        mqtt::connect_5(&mut out, &name, Some(SESSION_SECONDS), one_at_a_time.then_some(1));
        self.subscribe(&mut out)?;
        self.endpoint = Some(Endpoint::connecting(target, out)?);
        self.confirmed = false;
        self.behind = self.position.is_some().then(|| (Instant::now(), sent));
        Ok(())
    }

    /// Subscribes, from its position.
    fn subscribe(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let selector = format!("class = {}", self.class);
        let place = self.place()?.filter(|_| self.keeper == Keeper::Client);
        let from = place.map(|position| position.to_string());
        let mut properties = vec![("w-selector", selector.as_str()), ("w-durability", "durable")];
        let qos = match self.keeper {
            Keeper::Client => {
                properties.push(("w-ack", "token"));
                QoS::AtMostOnce
            }
            Keeper::Broker => QoS::AtLeastOnce,
        };
        if let Some(from) = &from {
            properties.push(("w-from", from));
        }
        mqtt::subscribe(out, true, 1, (TOPIC, qos), &properties);
        Ok(())
    }

    /// Closes the connection without DISCONNECT.
    pub fn leave(&mut self) {
        (self.endpoint, self.confirmed, self.behind) = (None, false, None);
    }

    /// Whether its subscription is in force.
    pub fn is_there(&self) -> bool {
        self.confirmed
    }

    /// Whether it is subscribed and has caught up.
    pub fn is_live(&self) -> bool {
        self.confirmed && self.behind.is_none()
    }

    /// Its position: its token and the last id of each stream.
    fn place(&mut self) -> Result<Option<Position>> {
        let Some(position) = &mut self.position else { return Ok(None) };
        for last in &self.last {
            if let Some(id) = mqtt::last_property(last, "w-id") {
                position.advance(id.parse::<EventId>().with_context(|| format!("{id} is no event id"))?);
            }
        }
        Ok(Some(position.clone()))
    }

    /// Acknowledges its position, if it has changed; returns whether it did.
    ///
    /// # Errors
    /// When the broker has given a malformed id.
    pub fn acknowledge(&mut self) -> Result<bool> {
        if !self.confirmed || self.keeper != Keeper::Client || self.acknowledged == self.next {
            return Ok(false);
        }
        let Some(position) = self.place()? else { return Ok(false) };
        self.acknowledged = self.next;
        if let Some(endpoint) = &mut self.endpoint {
            let token = position.token().to_string();
            mqtt::publish_with(&mut endpoint.out, ACKNOWLEDGE, None, &[], token.as_bytes());
            endpoint.flush()?;
        }
        Ok(true)
    }

    /// Reads arrived packets; `heard` is given the number of each event. `sent`: the number of the
    /// next event.
    ///
    /// # Errors
    /// When the broker refuses, ends the connection or sends something unrequested.
    pub fn receive(&mut self, scratch: &mut [u8], sent: u64, mut heard: impl FnMut(u64)) -> Result<()> {
        let Subscriber { endpoint: Some(endpoint), class, last, next, counts, position, confirmed, .. } = self else {
            return Ok(());
        };
        let (answered, wrong, is_behind) = (&mut self.answered, &mut self.wrong, self.behind.is_some());
        endpoint.flush()?;
        let mut again = false;
        endpoint.receive(scratch, |frame, out| {
            match frame {
                Frame::Ready => {}
                Frame::Subscribed { token, pending } => {
                    counts.pending += u64::from(pending);
                    let is_first = position.is_none();
                    // A new subscription that some brokers do not know yet may miss something: it
                    // is repeated until all know it.
                    again = pending && is_first;
                    if again {
                        return Ok(());
                    }
                    *confirmed = true;
                    if is_first {
                        *answered = Some((Instant::now(), sent));
                    }
                    if position.is_none() {
                        *position = Some(Position::at(token.parse().context("the broker gives no token")?));
                    }
                }
                Frame::Message { properties, body, ack } => {
                    let number = wire::stamp(body)?;
                    if class_of(number) != *class {
                        bail!("a subscriber to class {class} got event {number}");
                    }
                    wire::acknowledge(out, ack);
                    // Events before the answer to a new subscription were not promised, and there
                    // may be holes in them.
                    let Some((since, from)) = *answered else { return Ok(()) };
                    let stream = (number % PUBLISHERS as u64) as usize;
                    last[stream].clear();
                    last[stream].extend_from_slice(properties);
                    let (expected, before) =
                        (next[stream].unwrap_or(number.min(first_from(from, number))), counts.wrong());
                    next[stream] = Some(expected);
                    count(number, &mut next[stream], counts);
                    if counts.wrong() > before && wrong.len() < TOLD_MAX {
                        wrong.push(Wrong { expected, came: number, answered: since.elapsed(), is_behind });
                    }
                    heard(number);
                }
                frame => bail!("a subscriber received {frame:?}, which it did not ask for"),
            }
            Ok(())
        })?;
        endpoint.flush()?;
        if again {
            let mut out = Vec::new();
            self.subscribe(&mut out)?;
            if let Some(endpoint) = &mut self.endpoint {
                endpoint.out.append(&mut out);
                endpoint.flush()?;
            }
        }
        if let Some((since, target)) = self.behind
            && self.confirmed
            && self.has_all_before(target)
        {
            self.caught_up.push(since.elapsed());
            self.behind = None;
        }
        Ok(())
    }

    /// Descriptions of the first faults.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.wrong.iter().map(|Wrong { expected, came, answered, is_behind }| {
            let (index, place) = (self.index, self.place);
            let behind = if *is_behind { ", catching up" } else { "" };
            format!("subscriber {index} at SHB {place}: event {came} instead of {expected}, {answered:?} after its SUBACK{behind}")
        })
    }

    /// Whether it has received an event of each publisher.
    pub fn has_heard_of_all(&self) -> bool {
        self.next.iter().all(Option::is_some)
    }

    /// Whether it has all wanted events before a number.
    pub fn has_all_before(&self, number: u64) -> bool {
        let step = (PUBLISHERS * CLASSES) as u64;
        // The next event that it expects of a stream is due only after `number`, or no event of
        // that stream has arrived since the start.
        number < 2 * step || self.next.iter().all(|next| next.is_some_and(|next| next >= number))
    }

    /// The number before which it has everything, and the number before which it has acknowledged
    /// everything; 0: nothing yet.
    pub fn reached(&self) -> (u64, u64) {
        let least = |all: &[Option<u64>; PUBLISHERS]| all.iter().map(|next| next.unwrap_or(0)).min().unwrap_or(0);
        (least(&self.next), least(&self.acknowledged))
    }
}

/// The first number from `from` on that has the same publisher and class as `other`.
fn first_from(from: u64, other: u64) -> u64 {
    let step = (PUBLISHERS * CLASSES) as u64;
    from + (other % step + step - from % step) % step
}

/// Counts an event of one publisher and class; one event in `PUBLISHERS * CLASSES` is.
pub fn count(number: u64, next: &mut Option<u64>, counts: &mut Counts) {
    let step = (PUBLISHERS * CLASSES) as u64;
    let expected = next.unwrap_or(number);
    if number < expected {
        counts.repeated += 1;
        return;
    }
    counts.lost += (number - expected) / step;
    counts.received += 1;
    *next = Some(number + step);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_is_lost_and_what_comes_again_does_not_count() {
        let (mut next, mut counts) = (None, Counts::default());
        for number in [5, 21, 53, 37, 69] {
            count(number, &mut next, &mut counts);
        }
        assert_eq!((counts.received, counts.lost, counts.repeated), (4, 1, 1));
    }

    #[test]
    fn what_is_due_first_is_of_the_same_publisher_and_class() {
        assert_eq!([first_from(0, 37), first_from(5, 37), first_from(6, 37), first_from(38, 37)], [5, 5, 21, 53]);
    }

    #[test]
    fn who_has_caught_up_expects_nothing_from_before() {
        let mut subscriber = Subscriber::new(0, 0, 0, Keeper::Client);
        assert!(!subscriber.has_all_before(100));
        subscriber.next = [Some(112), Some(113), Some(114), Some(99)];
        assert!(!subscriber.has_all_before(100) && subscriber.has_all_before(99));
        assert_eq!(subscriber.reached(), (99, 0));
    }
}
