//! Reading retained messages, in topic order, for the subscriptions that begin with them: they are
//! never queued.
//!
//! A session has at most one reading per subscription, and one walk: its subscriptions read one
//! after the other, in the order in which they were made. A reading continues whenever the client
//! takes more (its window opens, its connection drains, it attaches), in turns with waiting
//! deliveries, and while there is room in turns of [`REPLAY_SLICE`].
//!
//! Events that passed after the subscription had begun were delivered, or wait, and are left out:
//! for each topic a client gets the message that was retained when it subscribed, unless a newer
//! one passed before the reading got there.

use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_event::{EventId, Qos, Time};
use whimbrel_selector::{Compiled, Selector, SharedFilter};

use crate::api::{Naming, Output};
use crate::broker::Broker;
use crate::content::Content;
use crate::route::{NO_CURSOR, NO_GROUP};
use crate::session::{Publication, Terms};
use crate::subscription::SubscriptionSpec;
use crate::topic::{VisitOutcome, WalkCursor, WalkEnd};

/// Topics that one session's reading looks at before other work has its turn.
pub(crate) const REPLAY_SLICE: usize = 256;

/// Bytes of a message that cost as much as a look at a topic: a selector may read the payload.
const VISIT_BYTES: usize = 256;

/// Absences of a client that are told apart while its session reads.
const ABSENCES_MAX: usize = 64;

/// One subscription that reads retained messages.
#[derive(Clone, Debug)]
struct RetainedReading {
    /// Its number in the router.
    subscription: u32,
    /// The selector at the request for retained messages. If the subscription gets another one
    /// meanwhile, both have to select the messages still to be read.
    selector: Option<Arc<Selector>>,
    /// The number of the last event that had passed when it was made: later ones are delivered as
    /// they pass.
    begun: u64,
    /// The version of the own interest when it was answered; 0: there are no other brokers.
    version: u64,
    /// Its cursor has been in catch-up since it began, and continues after this reading: up to its
    /// position it gets retained messages, behind that cached events.
    holds: bool,
}

/// The readings of one session.
#[derive(Debug, Default)]
struct SessionReadings {
    /// In the order in which they were made; the first is being read. At most one per subscription.
    readings: BTreeMap<u64, RetainedReading>,
    /// The place of each subscription in that order.
    places: BTreeMap<u32, u64>,
    /// Where the first reading continues.
    place: ReplayPlace,
    /// Next time, it goes before waiting deliveries.
    is_next: bool,
    /// It has had its slice, and continues in the session's own turn.
    is_spent: bool,
}

/// The progress of a session's readings.
#[derive(Debug, Default)]
struct ReplayPlace {
    walk: WalkCursor,
    absences: Absences,
}

/// Absences of a client during a reading, in numbers of events: after the first, up to the last.
#[derive(Debug, Default)]
struct Absences {
    /// In order; at most [`ABSENCES_MAX`].
    spans: Vec<(u64, u64)>,
    /// The number of the last event before the present absence.
    left: Option<u64>,
}

impl Absences {
    /// Ends the present absence: the client is back.
    fn end(&mut self, serial: u64) {
        let Some(left) = self.left.take().filter(|left| *left < serial) else { return };
        if self.spans.len() < ABSENCES_MAX {
            self.spans.push((left, serial));
        } else if let Some((_, back)) = self.spans.last_mut() {
            // Events between the last two absences may be delivered again.
            *back = serial;
        }
    }

    fn covers(&self, passed: u64) -> bool {
        self.spans.iter().any(|(left, back)| (left + 1..=*back).contains(&passed))
    }
}

impl SessionReadings {
    /// Ends the reading of a subscription, if it has one.
    fn forget(&mut self, subscription: u32) {
        let Some(place) = self.places.remove(&subscription) else { return };
        if self.readings.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.place.walk = WalkCursor::default();
        }
        self.readings.remove(&place);
    }
}

/// The sessions that are reading retained messages.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// By session; each has at least one reading.
    of: BTreeMap<u32, SessionReadings>,
    /// The number of readings begun so far.
    begun: u64,
}

impl Readings {
    /// Whether a session has a reading.
    pub(crate) fn has(&self, index: u32) -> bool {
        !self.of.is_empty() && self.of.contains_key(&index)
    }

    /// Whether a session may read in this turn: it has a reading, and has not had its slice.
    pub(crate) fn may_read(&self, index: u32) -> bool {
        !self.of.is_empty() && self.of.get(&index).is_some_and(|replay| !replay.is_spent)
    }

    /// Whether a session that may read does so before its waiting deliveries: every other time.
    pub(crate) fn take_turn(&mut self, index: u32) -> bool {
        if !self.may_read(index) {
            return false;
        }
        let replay = self.of.get_mut(&index).expect("it may read");
        replay.is_next = !replay.is_next;
        !replay.is_next
    }

    /// Begins a session's own turn: it may read another slice.
    pub(crate) fn begin_turn(&mut self, index: u32) {
        if let Some(replay) = self.of.get_mut(&index) {
            replay.is_spent = false;
        }
    }

    /// Records that a session has had its slice.
    fn spend(&mut self, index: u32) {
        if let Some(replay) = self.of.get_mut(&index) {
            replay.is_spent = true;
        }
    }

    /// Whether a subscription has a reading.
    pub(crate) fn reads(&self, index: u32, subscription: u32) -> bool {
        self.of.get(&index).is_some_and(|replay| replay.places.contains_key(&subscription))
    }

    /// Whether a subscription catches up only after its reading.
    pub(crate) fn holds(&self, index: u32, subscription: u32) -> bool {
        if self.of.is_empty() {
            return false;
        }
        let Some(replay) = self.of.get(&index) else { return false };
        replay.places.get(&subscription).is_some_and(|place| replay.readings[place].holds)
    }

    /// Begins a subscription's reading.
    fn begin(&mut self, index: u32, reading: RetainedReading) {
        self.begun += 1;
        let replay = self.of.entry(index).or_default();
        replay.forget(reading.subscription);
        replay.places.insert(reading.subscription, self.begun);
        replay.readings.insert(self.begun, reading);
    }

    /// Ends the reading of a subscription that has ended, or has read all.
    pub(crate) fn forget(&mut self, index: u32, subscription: u32) {
        if self.of.is_empty() {
            return;
        }
        if let Some(replay) = self.of.get_mut(&index) {
            replay.forget(subscription);
            if replay.readings.is_empty() {
                self.of.remove(&index);
            }
        }
    }

    /// Records that the client of a session left after event `serial`.
    pub(crate) fn leave(&mut self, index: u32, serial: u64) {
        if let Some(replay) = self.of.get_mut(&index) {
            replay.place.absences.left.get_or_insert(serial);
        }
    }

    /// Records that the client is back after event `serial`.
    pub(crate) fn come_back(&mut self, index: u32, serial: u64) {
        if let Some(replay) = self.of.get_mut(&index) {
            replay.place.absences.end(serial);
        }
    }

    /// The current reading of a session, and its progress, which is given back with
    /// [`Readings::put_back`].
    fn take(&mut self, index: u32) -> Option<(RetainedReading, ReplayPlace)> {
        let replay = self.of.get_mut(&index)?;
        let (_, reading) = replay.readings.first_key_value()?;
        Some((reading.clone(), core::mem::take(&mut replay.place)))
    }

    fn put_back(&mut self, index: u32, place: ReplayPlace) {
        self.of.get_mut(&index).expect("it is reading").place = place;
    }
}

impl Broker {
    /// Begins the reading of a subscription that was made when `begun` was the number of the last
    /// event, for messages that `selector` selects.
    pub(crate) fn begin_to_read(&mut self, index: u32, filter: &str, selector: Option<&Selector>, begun: u64) {
        let Some(subscription) = self.router.find(index, filter) else { return };
        let known = self.router.get(subscription);
        if known.group != NO_GROUP || known.spot.is_none() {
            return;
        }
        let holds = known.cursor != NO_CURSOR && self.cursors.get(known.cursor).catch_up.is_some();
        let version = self.overlay.net.own_interest().version();
        let selector = selector.cloned().map(Arc::new);
        if !self.retained.replays.has(index) {
            self.sessions.forget_lost(index);
        }
        self.retained.replays.begin(index, RetainedReading { subscription, selector, begun, version, holds });
    }

    /// Lets the subscriptions of a session read retained messages, as far as its client takes them
    /// and the budget goes. The cost is taken from the budget. If that is used up, the session has
    /// another turn.
    pub(crate) fn read_retained(&mut self, now: Time, index: u32, budget: &mut usize, out: &mut dyn Output) {
        while let Some((reading, mut place)) = self.retained.replays.take(index) {
            let walk = if *budget == 0 {
                WalkEnd::Spent
            } else if self.sessions.is_open(index) {
                self.read_one(now, (index, &reading), &mut place, budget, out)
            } else {
                WalkEnd::Stopped
            };
            self.retained.replays.put_back(index, place);
            if walk != WalkEnd::Over {
                if walk == WalkEnd::Spent {
                    self.retained.replays.spend(index);
                    self.turn_soon(index);
                }
                return;
            }
            self.retained.replays.forget(index, reading.subscription);
            // Beginning the next one costs something, too.
            *budget = budget.saturating_sub(1);
            let cursor = self.router.get(reading.subscription).cursor;
            if reading.holds && cursor != NO_CURSOR && self.cursors.get(cursor).catch_up.is_some() {
                if *budget == 0 {
                    self.turn_soon(index);
                } else {
                    self.catch_up(now, index, budget, out);
                }
            }
        }
    }

    fn read_one(
        &mut self,
        now: Time,
        (index, reading): (u32, &RetainedReading),
        ReplayPlace { walk, absences }: &mut ReplayPlace,
        budget: &mut usize,
        out: &mut dyn Output,
    ) -> WalkEnd {
        let withholds = fault!(self, RetainedWithheld);
        let Broker { router, retained, sessions, cursors, streams, cache, overlay, .. } = self;
        let known = router.get(reading.subscription);
        let (SubscriptionSpec { qos: granted, identifier, named, .. }, cursor) = (known.spec, known.cursor);
        let attached_only = known.spec.is_attached_only();
        let spot = known.spot.expect("subscriptions that are not shared are in the index");
        let text = known.text.clone();
        let filter = SharedFilter::checked(&text).filter;
        let cursor = (cursor != NO_CURSOR).then(|| cursors.get(cursor));
        let catch_up = cursor.and_then(|cursor| cursor.catch_up.as_ref());
        // Events that it reads from the cache anyway are not sent twice.
        let is_cached = |id: EventId| {
            let comes = catch_up
                .is_some_and(|catch_up| streams.knows(id.pubend) && catch_up.positions.get(id.pubend) < id.tick);
            comes && cursor.is_some_and(|cursor| cache.holds(&cursor.partitions, id))
        };
        // Events in flight from an unreachable broker may never come, nor those passed by a broker
        // that did not know of the subscription.
        let is_to_come = |id: EventId| {
            let is_reachable = !overlay.is_open() || overlay.net.routes().is_reachable(id.pubend.host());
            is_reachable && streams.is_to_come(id, reading.version)
        };
        let asked = reading.selector.as_deref();
        let mut asked = asked.map(|selector| Compiled::new(selector).with_fences(router.fences().clone()));
        retained.walk(now, (filter, walk), budget, |event, passed| {
            let cost = event.weight() / VISIT_BYTES;
            let qos = event.qos().min(granted);
            // Events that passed while the client was away come from elsewhere, wait, or were not
            // for it.
            let is_missed = || match cursor {
                Some(cursor) => !cursor.keeps,
                None => attached_only || qos == Qos::AtMostOnce,
            };
            // Events that were dropped because the client is too slow were not delivered.
            let is_dropped = || cursor.is_none() && qos == Qos::AtMostOnce && sessions.has_lost(index, passed);
            let is_live = passed > reading.begun && !(absences.covers(passed) && is_missed()) && !is_dropped();
            if withholds && streams.is_to_come(event.id(), 0) {
                return VisitOutcome::Passed(0);
            }
            if is_live || is_cached(event.id()) || is_to_come(event.id()) {
                return VisitOutcome::Passed(0);
            }
            let is_asked = |asked: &mut Compiled| asked.value(Content(&event.packed().unpack())) == Some(true);
            let is_selected = router.is_selected(spot, &Content(&event.packed().unpack()));
            if !is_selected || !asked.as_mut().is_none_or(is_asked) {
                return VisitOutcome::Passed(cost);
            }
            // Messages that are not selected need no room.
            if !sessions.takes_retained(index, reading.begun, qos) {
                return VisitOutcome::Stop;
            }
            let terms = terms(qos, identifier, named);
            let mut publication = Publication::of(event, 0);
            sessions.hand_now(index, &mut publication, terms, out);
            VisitOutcome::Passed(cost)
        })
    }
}

/// The terms under which a subscription gets retained messages.
fn terms(qos: Qos, identifier: u32, named: bool) -> Terms {
    let (group, origin, retain, cursor) = (NO_GROUP, 0, true, NO_CURSOR);
    Terms { qos, identifier, group, origin, retain, naming: Naming::beside(named), cursor }
}
