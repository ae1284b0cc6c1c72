//! Answers to nacks for own streams: events come from the cache or the log, matched against the
//! present interest of the broker that sent the nack.

use core::ops::ControlFlow;

use whimbrel_event::{EventId, HostId, Packed, Tick, Time};
use whimbrel_net::forward::Sending;
use whimbrel_net::interest::others::KnownInterest;
use whimbrel_net::route::TopicPaths;
use whimbrel_net::{Net, PeerLink};
use whimbrel_wire::{Dest, Nack, Part, Repairers, compact};

use crate::api::Output;
use crate::cache::{Cache, CacheItem, PartitionSet};
use crate::overlay::{DomainPlace, Overlay};
use crate::route::Router;
use crate::store::{Disk, FETCH_BYTES, LENDER, Store, StreamName};
use crate::stream::{Sources, Streams};

/// Most events in the answer to one nack; the rest is asked for again.
pub const ANSWER_EVENTS_MAX: usize = 256;

/// Bytes of events after which the answer to one nack ends.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Most slots of the cache that are examined for one nack.
const ANSWER_SLOTS: usize = 1 << 19;

/// The content found for a range.
#[derive(Debug, Default)]
struct FoundRange {
    /// The wanted events in ascending order: tick, retain mark, and end in `bytes`.
    events: Vec<(Tick, bool, usize)>,
    bytes: Vec<u8>,
    /// Parts of which the cache does not know everything.
    lost: Vec<(Tick, Tick)>,
    /// The tick up to which the range was examined.
    upto: Tick,
}

/// The log's content for a range.
enum Logged {
    /// The log has nothing that the cache lacks.
    Elsewhere,
    /// The range is being read.
    Unread,
    /// The content of the range, as far as it has been read.
    Found(FoundRange),
}

/// What a broker that has asked is told in place of a wanted event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ToldInstead {
    /// Nothing: it gets the event.
    Event,
    /// Silence: it may not carry the event.
    Silence,
    /// That the event is lost: there is no path to it over brokers that may carry the event. A
    /// durable subscription reads the log, and waits for a path there.
    Lost,
}

impl ToldInstead {
    fn of(net: &mut Net, event: Packed<'_>, to: HostId) -> ToldInstead {
        let label = event.domains();
        if label.is_any() || net.domains().reaches(label, to) {
            return ToldInstead::Event;
        }
        net.domains().record_refusal(DomainPlace::Nack);
        if net.domains().may_carry(label, to) { ToldInstead::Lost } else { ToldInstead::Silence }
    }
}

/// The parts of the broker that have own events: the answer to a nack comes from them.
pub(crate) struct OwnEvents<'a> {
    pub(crate) router: &'a mut Router,
    pub(crate) cache: &'a mut Cache,
    pub(crate) store: &'a mut Store,
    pub(crate) streams: &'a mut Sources,
}

impl Overlay {
    /// Answers a nack for an own stream.
    pub(crate) fn answer_nack(
        &mut self,
        now: Time,
        link: PeerLink,
        nack: &Nack,
        events: &mut OwnEvents<'_>,
        out: &mut dyn Output,
    ) {
        let passed = events.streams.own.passed_each();
        let own = usize::from(nack.pubend.index());
        if own >= Streams::COUNT {
            return;
        }
        let newest = nack.ranges.iter().map(|range| range.version).max().unwrap_or(0);
        let known = self.destinations.number(nack.from).filter(|number| {
            let destination = self.destinations.get(*number).expect("it is served");
            destination.incarnation == nack.incarnation && destination.version >= newest
        });
        let Some(number) = known else {
            // The interest in this version is not known here, or not in force yet; the nack will be
            // repeated.
            let heard = self.net.interest_of(nack.from);
            let has_heard = |known: &KnownInterest| known.incarnation == nack.incarnation && known.version >= newest;
            if heard.is_none_or(|known| !has_heard(known)) {
                self.net.ask_for_interest(now, link, nack.from, out);
            }
            return;
        };
        let mut left = ANSWER_EVENTS_MAX;
        for range in &nack.ranges {
            let upto = range.upto.min(passed[own]);
            if left == 0 || range.after >= upto {
                continue;
            }
            let found = match self.find_logged(number, own, (range.after, upto), left, events) {
                Logged::Elsewhere => self.find_cached(number, nack, (range.after, upto), left, events),
                // The nack will be repeated, and the range has been read by then.
                Logged::Unread => continue,
                Logged::Found(found) => found,
            };
            left -= found.events.len();
            self.give(now, (number, own), range.after, found, out);
        }
    }

    /// Finds the wanted events in the part of a range that the cache does not have but the log has.
    /// Events that were not logged are lost: a broker with a durable interest reads the log by
    /// itself.
    fn find_logged(
        &mut self,
        number: u32,
        own: usize,
        (after, upto): (Tick, Tick),
        events_max: usize,
        events: &mut OwnEvents<'_>,
    ) -> Logged {
        let OwnEvents { router, cache, store, streams } = events;
        let pubend = self.net.host().pubend(own as u8);
        let upto = cache.incomplete(&PartitionSet::first(cache.plan().count()), pubend).min(upto);
        let logged = streams.own_reliable(pubend).filter(|_| matches!(store.disk, Disk::Open | Disk::Full));
        let Some(place) = logged.filter(|place| after < upto && store.release.chopped[*place] < upto) else {
            return Logged::Elsewhere;
        };
        let stream = StreamName::Events(place as u8);
        let Some(slice) = store.reads.slice(stream, after) else {
            store.reads.ask(LENDER, crate::store::WantedPart { stream, after, upto, bytes: FETCH_BYTES });
            return Logged::Unread;
        };
        let Overlay { destinations, net, .. } = self;
        let destination = destinations.get(number).expect("it is served");
        let mut found = FoundRange { upto: slice.upto.min(upto), ..FoundRange::default() };
        let first = slice.events.partition_point(|event| event.id().tick <= after);
        for event in slice.events[first..].iter().take_while(|event| event.id().tick <= found.upto) {
            let tick = event.id().tick;
            if !destination.wants(event.packed(), router) {
                continue;
            }
            // All of the range that is not told as an event is told as lost.
            if ToldInstead::of(net, event.packed(), destination.host) != ToldInstead::Event {
                continue;
            }
            if found.events.len() >= events_max || found.bytes.len() >= ANSWER_BYTES_MAX {
                found.upto = Tick(tick.0 - 1);
                break;
            }
            compact::write(&event.packed().unpack(), &mut found.bytes);
            found.events.push((tick, event.packed().retain(), found.bytes.len()));
        }
        found.lost.push((after, found.upto));
        Logged::Found(found)
    }

    /// Finds the wanted events of a range in the cache.
    fn find_cached(
        &mut self,
        number: u32,
        nack: &Nack,
        (after, upto): (Tick, Tick),
        events_max: usize,
        events: &mut OwnEvents<'_>,
    ) -> FoundRange {
        let OwnEvents { router, cache, .. } = events;
        let Overlay { destinations, net, .. } = self;
        let destination = destinations.get(number).expect("it is served");
        let pubend = nack.pubend;
        let partitions = PartitionSet::first(cache.plan().count());
        let mut found = FoundRange { upto, ..FoundRange::default() };
        let incomplete = cache.incomplete(&partitions, pubend).min(upto);
        if incomplete > after {
            found.lost.push((after, incomplete));
        }
        let from = cache.serial_for(pubend, after);
        let mut last = after;
        let next = cache.read(from, &partitions, ANSWER_SLOTS, |item| {
            match item {
                CacheItem::Hole { pubend: of, from, to } if of == pubend => {
                    let (from, to) = (Tick(from.0 - 1).max(after), to.min(upto));
                    if from < to {
                        found.lost.push((from, to));
                    }
                }
                CacheItem::Event { event, .. } if event.id().pubend == pubend && event.id().tick > after => {
                    let tick = event.id().tick;
                    if tick > upto {
                        return ControlFlow::Break(());
                    }
                    let instead = if destination.wants(event, router) {
                        ToldInstead::of(net, event, destination.host)
                    } else {
                        ToldInstead::Silence
                    };
                    if instead == ToldInstead::Lost {
                        found.lost.push((Tick(tick.0 - 1), tick));
                    }
                    if instead == ToldInstead::Event {
                        if found.events.len() >= events_max || found.bytes.len() >= ANSWER_BYTES_MAX {
                            found.upto = last;
                            return ControlFlow::Break(());
                        }
                        compact::write(&event.unpack(), &mut found.bytes);
                        found.events.push((tick, event.retain(), found.bytes.len()));
                    }
                    last = tick;
                }
                CacheItem::Event { .. } | CacheItem::Hole { .. } => {}
            }
            ControlFlow::Continue(())
        });
        if !next.exhausted && next.looked_at >= ANSWER_SLOTS {
            found.upto = found.upto.min(last);
        }
        found.lost.sort_unstable();
        if fault!(self, AnswersNothing) {
            found.events.clear();
        }
        if fault!(self, AnswersFromHoles) {
            found.lost.clear();
        }
        found
    }

    /// Sends the events that were found, and silence for the rest of the range.
    fn give(&mut self, now: Time, (number, own): (u32, usize), after: Tick, found: FoundRange, out: &mut dyn Output) {
        let destination = self.destinations.get(number).expect("it is served");
        let (host, tag) = (destination.host, destination.tag);
        let target = destination.silence_target();
        let (begin, since) = (destination.begin[own], destination.since[own]);
        let part = |after, upto, lost| Part { index: own as u8, begin, since, after, upto, lost, still: upto };
        let mut parts = Vec::new();
        let mut stands = after;
        let mut begins = 0;
        let pubend = self.net.host().pubend(own as u8);
        let mut lost = found.lost.iter().copied().filter(|(from, to)| *from < found.upto && *to > after).peekable();
        for (tick, retain, ends) in found.events {
            let before = Tick(tick.0 - 1);
            if lost.peek().is_some_and(|(from, _)| *from < before) {
                stands = split((stands, before), &mut lost, |after, upto, lost| parts.push(part(after, upto, lost)));
            }
            let id = EventId { pubend, tick };
            let sending = Sending {
                id,
                age_us: 0,
                deadline_ms: None,
                answer: true,
                retain,
                repairers: Repairers::NONE,
                by_datagram: false,
                paths: TopicPaths::One,
                last_us: None,
                event: &found.bytes[begins..ends],
            };
            let sending = Sending { age_us: age_of(now, &sending), ..sending };
            self.net.send_again(now, &sending, host, Dest { tag, previous: stands }, out);
            (stands, begins) = (tick, ends);
        }
        split((stands, found.upto), &mut lost, |after, upto, lost| parts.push(part(after, upto, lost)));
        self.stats.ranges_lost += parts.iter().filter(|part| part.lost).count() as u64;
        for parts in parts.chunks(whimbrel_wire::PARTS_MAX) {
            self.net.send_silence(now, target, parts.to_vec(), out);
        }
    }
}

/// The age of an event since it was accepted, microseconds.
fn age_of(now: Time, sending: &Sending<'_>) -> u64 {
    compact::read(sending.event, sending.id).map_or(0, |event| event.age(now).as_micros() as u64)
}

/// Divides a range into silent and lost parts. Returns its end.
fn split(
    (after, upto): (Tick, Tick),
    lost: &mut core::iter::Peekable<impl Iterator<Item = (Tick, Tick)>>,
    mut part: impl FnMut(Tick, Tick, bool),
) -> Tick {
    let mut stands = after;
    while let Some(&(from, to)) = lost.peek().filter(|(from, _)| *from < upto) {
        if stands < from {
            part(stands, from, false);
        }
        let (from, end) = (from.max(stands), to.min(upto));
        if from < end {
            part(from, end, true);
            stands = end;
        }
        if to > upto {
            break;
        }
        lost.next();
    }
    if stands < upto {
        part(stands, upto, false);
    }
    upto.max(stands)
}
