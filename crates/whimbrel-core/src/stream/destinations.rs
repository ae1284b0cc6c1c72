//! The interests of other brokers in this broker's streams.
//!
//! Invariants: the last tick of a destination moves when an event is *matched* for it, whether or
//! not it could be sent; so everything between two of its last ticks is silence under the version
//! in force. An event is matched under the newest version that was adopted before it passed.

use std::collections::BTreeMap;

use whimbrel_event::{AcceptedEvent, DomainLabel, EventId, HostId, Packed, Reliability, StreamClass, Tick, Time};
use whimbrel_net::forward::{Sending, SilenceTarget};
use whimbrel_net::interest::others::{InterestValue, KnownInterest};
use whimbrel_net::route::TopicPaths;
use whimbrel_selector::{Selector, TopicFilter, TopicName};
use whimbrel_wire::{Dest, Repairers, compact};

use super::silence::SilenceTimes;
use crate::api::Output;
use crate::content::Content;
use crate::overlay::{DomainPlace, Due, Overlay, is_local};
use crate::route::{IndexSpot, Router};
use crate::stream::{Sources, StreamKind, Streams};

/// Another broker with an interest in the own streams.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) host: HostId,
    pub(crate) incarnation: u64,
    /// The version of its interest that was adopted last.
    pub(crate) version: u64,
    /// The tag of that version in its frames.
    pub(crate) tag: u16,
    entries: BTreeMap<u32, (InterestValue, IndexSpot)>,
    /// Per own stream, the tick up to which it was told everything, or should have been; in streams
    /// of the deadline class, that of the last event.
    pub(crate) last: [Tick; Streams::COUNT],
    /// Per own stream, the tick after which the version is in force.
    pub(crate) since: [Tick; Streams::COUNT],
    /// Per own stream, the tick after which it has an interest at all.
    pub(crate) begin: [Tick; Streams::COUNT],
    /// When silence of each own stream is told next.
    pub(crate) silences: SilenceTimes,
    /// Best-effort events were matched for it.
    pub(crate) gets_best_effort: bool,
    /// There was a path to it when the topology was last checked.
    pub(crate) is_reachable: bool,
}

impl Destination {
    /// The entries of its interest.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &InterestValue> {
        self.entries.values().map(|(entry, _)| entry)
    }

    pub(crate) fn wants_nothing(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where silence for it goes.
    pub(crate) fn silence_target(&self) -> SilenceTarget {
        SilenceTarget {
            host: self.host,
            incarnation: self.incarnation,
            version: self.version,
            gets_best_effort: self.gets_best_effort,
        }
    }

    /// Removes its interest from the index.
    pub(crate) fn leave(&self, router: &mut Router, number: u32) {
        for (entry, spot) in self.entries.values() {
            router.remove_broker(number, TopicFilter::checked(&entry.filter), *spot);
        }
    }

    /// Whether an event is in its interest.
    pub(crate) fn wants(&self, event: Packed<'_>, router: &mut Router) -> bool {
        self.why(event, router).is_some()
    }

    /// The first entry of its interest that matches an event.
    pub(crate) fn why(&self, event: Packed<'_>, router: &mut Router) -> Option<&InterestValue> {
        let event = event.unpack();
        let topic = TopicName::checked(event.event.topic);
        let content = Content(&event);
        let mut wants = |(entry, spot): &(InterestValue, IndexSpot)| {
            TopicFilter::checked(&entry.filter).matches(topic) && router.is_selected(*spot, &content)
        };
        self.entries.values().find(|entry| wants(entry)).map(|(entry, _)| entry)
    }
}

/// Proofs for which the changed interest of a broker waits at most, one after the other.
const PROOFS_MAX: u8 = 3;

/// An interest that has arrived and is not in force.
#[derive(Debug)]
struct UnprovenInterest {
    /// When the first change of it arrived.
    since: Time,
    /// The incarnation and version that were known when the last proof was written.
    version: (u64, u64),
    proofs: u8,
}

/// All destinations. Their numbers are in the router's index, and are reused.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    slots: Vec<Option<Box<Destination>>>,
    free: Vec<u32>,
    by_host: BTreeMap<HostId, u32>,
    /// The event that is being sent, in its packed form.
    event: Vec<u8>,
    /// Brokers whose changed interest waits for a proof that this process owns the log.
    unproven: BTreeMap<HostId, UnprovenInterest>,
}

impl Destinations {
    pub(crate) fn get(&self, number: u32) -> Option<&Destination> {
        self.slots.get(number as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Destination> {
        self.slots.get_mut(number as usize)?.as_deref_mut()
    }

    pub(crate) fn number(&self, host: HostId) -> Option<u32> {
        self.by_host.get(&host).copied()
    }

    /// Whether a proof has to be written for this version of a broker's changed interest: none is
    /// under way, or the one that is there now was for an earlier version. As often as every commit
    /// finds a later version, [`PROOFS_MAX`] proofs are enough.
    pub(crate) fn lacks_proof(
        &mut self,
        now: Time,
        known: Option<&KnownInterest>,
        host: HostId,
        is_there: bool,
    ) -> bool {
        let Some(known) = known else { return false };
        let version = (known.incarnation, known.version);
        match self.unproven.get_mut(&host) {
            None => {
                let first = UnprovenInterest { since: now, version, proofs: 1 };
                !is_there && self.unproven.insert(host, first).is_none()
            }
            Some(unproven) if is_there && unproven.version != version && unproven.proofs < PROOFS_MAX => {
                (unproven.version, unproven.proofs) = (version, unproven.proofs + 1);
                true
            }
            Some(_) => false,
        }
    }

    /// Ends the wait of a broker's interest for a proof; returns when it began.
    fn end_wait(&mut self, host: HostId) -> Option<Time> {
        self.unproven.remove(&host).map(|unproven| unproven.since)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.by_host.values().copied().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Destination> {
        self.by_host.values().filter_map(|number| self.get(*number))
    }

    fn insert(&mut self, destination: Destination) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.by_host.insert(destination.host, number);
        self.slots[number as usize] = Some(Box::new(destination));
        number
    }

    fn remove(&mut self, host: HostId) -> Option<(u32, Box<Destination>)> {
        let number = self.by_host.remove(&host)?;
        self.free.push(number);
        Some((number, self.slots[number as usize].take().expect("what has a number is there")))
    }
}

/// Parses a selector of another broker. `None`, if it is not understood, lets every event through:
/// too many rather than too few.
pub(crate) fn understood(text: Option<&str>) -> Option<Selector> {
    Selector::parse_canonical(text?).ok()
}

impl Overlay {
    /// Adopts the changed interest of another broker: it is in force from now on, in each own
    /// stream after everything that has passed. Returns the number of the destination; silence is
    /// due for it at once.
    pub(crate) fn adopt(&mut self, now: Time, host: HostId, router: &mut Router, streams: &mut Sources) -> Option<u32> {
        streams.close(now);
        let passed = streams.own.passed_each();
        let ignores = fault!(self, IncarnationIgnored);
        let Overlay { destinations, net, .. } = self;
        let arrived = destinations.end_wait(host).unwrap_or(now);
        let known = net.interest_of(host)?;
        let number = destinations.number(host).unwrap_or_else(|| {
            destinations.insert(Destination {
                host,
                incarnation: 0,
                version: 0,
                tag: 0,
                entries: BTreeMap::new(),
                last: [Tick(0); Streams::COUNT],
                since: [Tick(0); Streams::COUNT],
                begin: [Tick(0); Streams::COUNT],
                silences: SilenceTimes::NEVER,
                gets_best_effort: false,
                is_reachable: false,
            })
        });
        let destination = destinations.get_mut(number).expect("it was just found");
        let was_empty = destination.wants_nothing();
        let is_other = |id: &u32, (entry, _): &(InterestValue, IndexSpot)| known.entries.get(id) != Some(entry);
        let mut old: Vec<(InterestValue, IndexSpot)> = Vec::new();
        let gone: Vec<u32> =
            destination.entries.iter().filter(|(id, entry)| is_other(id, entry)).map(|(id, _)| *id).collect();
        old.extend(gone.iter().filter_map(|id| destination.entries.remove(id)));
        for (id, entry) in &known.entries {
            if destination.entries.contains_key(id) || TopicFilter::new(&entry.filter).is_err() {
                continue;
            }
            let selector = understood(entry.selector.as_deref());
            let spot = router.insert_broker(number, TopicFilter::checked(&entry.filter), selector.as_ref());
            destination.entries.insert(*id, (entry.clone(), spot));
        }
        // After the new entries, so that no filter is out of the index for a moment.
        for (entry, spot) in old {
            router.remove_broker(number, TopicFilter::checked(&entry.filter), spot);
        }
        let is_new_incarnation =
            destination.incarnation != known.incarnation && !(ignores && destination.incarnation > 0);
        destination.incarnation = known.incarnation;
        destination.version = known.version;
        destination.tag = whimbrel_net::interest::own::tag_of(host, known.version);
        destination.since = passed;
        if is_new_incarnation || was_empty {
            // No event was matched for it before. Events since its interest began can be asked for.
            let began = arrived.as_nanos().saturating_sub(known.age.as_nanos() as u64);
            let birth = streams.births_own();
            destination.begin = core::array::from_fn(|own| Tick(began).max(birth[own]).min(passed[own]));
            destination.last = passed;
        }
        destination.silences.tell_all(now);
        Some(number)
    }

    /// Removes a broker that is forgotten.
    pub(crate) fn remove_destination(&mut self, host: HostId, router: &mut Router) {
        let Some((number, destination)) = self.destinations.remove(host) else { return };
        destination.leave(router, number);
        self.cancel_all(Due::Quiet(number));
    }

    /// Sends an event of an own stream to the brokers that want it, by their numbers, which are
    /// taken.
    pub(crate) fn forward(
        &mut self,
        now: Time,
        event: &AcceptedEvent<'_>,
        retain: bool,
        paths: TopicPaths,
        wanted: &mut Vec<u32>,
        out: &mut dyn Output,
    ) {
        if fault!(self, SentToAll) {
            *wanted = self.destinations.numbers();
        }
        if !is_local(event.event.topic) {
            wanted.sort_unstable();
            wanted.dedup();
            if !event.event.headers.domains.is_any() {
                self.keep_inside(event.event.headers.domains, wanted);
            }
            let dests = self.matched(now, event.id, wanted);
            let mut bytes = core::mem::take(&mut self.destinations.event);
            bytes.clear();
            compact::write(event, &mut bytes);
            let age_us = event.age(now).as_micros() as u64;
            let repairers = Repairers::NONE;
            let is_watched = event.id.pubend.class() == StreamClass::Deadline;
            let deadline_ms = event.event.deadline_ms.filter(|_| is_watched);
            let by_datagram = deadline_ms.is_some() && StreamKind::goes_by_datagrams(event.id.pubend);
            let (id, event) = (event.id, &*bytes);
            let (answer, last_us) = (false, None);
            let sending =
                Sending { id, age_us, deadline_ms, answer, retain, repairers, by_datagram, paths, last_us, event };
            let copies_take = self.net.send_own(now, &sending, &dests, out);
            if !copies_take.is_zero() {
                for number in wanted.iter() {
                    let destination = self.destinations.get_mut(*number).expect("who stands in the index is served");
                    destination.silences.wait_for(usize::from(id.pubend.index()), now + copies_take);
                }
            }
            self.destinations.event = bytes;
            if fault!(self, PreviousNotMoved) {
                self.take_back(id, &dests);
            }
        }
        wanted.clear();
    }

    /// Removes the brokers that may not carry an event: it is not matched for them, and so is
    /// silence to them.
    fn keep_inside(&mut self, label: DomainLabel<'_>, wanted: &mut Vec<u32>) {
        let Overlay { destinations, net, .. } = self;
        wanted.retain(|number| {
            let host = destinations.get(*number).expect("who stands in the index is served").host;
            let is_inside = net.domains().may_carry(label, host);
            if !is_inside {
                net.domains().record_refusal(DomainPlace::Destination);
            }
            is_inside
        });
    }

    /// The destinations of an event, with the data for each. The event's tick is from now on the
    /// previous one for each of them, whether or not the event reaches it.
    fn matched(&mut self, now: Time, id: EventId, wanted: &[u32]) -> Vec<(HostId, Dest)> {
        let own = usize::from(id.pubend.index());
        let mut dests = Vec::with_capacity(wanted.len());
        for number in wanted {
            let destination = self.destinations.get_mut(*number).expect("who stands in the index is served");
            let previous = core::mem::replace(&mut destination.last[own], id.tick);
            destination.gets_best_effort |= id.pubend.reliability() == Reliability::BestEffort;
            dests.push((destination.host, Dest { tag: destination.tag, previous }));
            self.put_off_silence(now, *number, own);
        }
        // Sets of destinations are known in this order.
        dests.sort_unstable_by_key(|(host, _)| *host);
        dests
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_selector::{Compiled, Datum, Selector};

    use super::understood;

    /// Evaluates a selector with one value.
    fn is_true(selector: &Selector, x: i64) -> bool {
        Compiled::new(selector).value([("x", Datum::Integer(x))]) == Some(true)
    }

    #[test]
    fn what_brokers_of_any_version_tell_is_matched_as_they_mean_it() {
        let (now, before) = (Selector::parse("x / 2 = 3").expect("a selector"), understood(Some("x / 2 = 3")));
        let before = before.expect("it is understood");
        assert_eq!([6, 7].map(|x| is_true(&before, x)), [true, true], "as versions up to 0.2 do");
        assert_eq!([6, 7].map(|x| is_true(&now, x)), [true, false]);
        assert_eq!(understood(Some(&now.to_string())), Some(now));
        assert_eq!(understood(Some("what a later version may tell")), None, "everything is sent");
    }
}
