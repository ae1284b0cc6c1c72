//! A client that publishes at one broker after the other.
//!
//! Whoever follows the streams from elsewhere waits at the first event of a publisher that has
//! moved until it has passed the one before. Here, at its new broker, nobody can wait in the own
//! stream, as others publish to it: what that client publishes waits before it is accepted. That
//! takes as long as the event before is on its way here, mostly nothing.

use core::time::Duration;

use whimbrel_event::{Event, EventId, EventRef, Headers, PredecessorsBuf, PubendId, Reliability, Tick, Time};

use super::{Attachment, ENDED_LIFETIME, ENDED_MAX, EndedSession};
use crate::api::{Output, Publish};
use crate::broker::Broker;
use crate::overlay::{Due, PREDECESSOR_MAX};
use crate::session::Pause;
use crate::store::Numbered;
use crate::stream::StreamKind;

/// Events of one client that wait to be accepted. Its link is not read meanwhile: these had been
/// read before. With more it goes on without waiting.
const EARLY_MAX: usize = 4096;

/// What such events take together.
const EARLY_BYTES_MAX: usize = 4 << 20;

/// For so long from the first one on events of a publisher that has moved say what came before
/// them: for as long as they may wait to be accepted, and be waited for.
const SAID_MAX: Duration = PREDECESSOR_MAX.saturating_mul(2);

/// An event that waits to be accepted.
#[derive(Debug)]
struct Early {
    tag: u16,
    retain: bool,
    number: Option<u64>,
    event: Event,
}

/// What a publisher that has moved has published too early.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    events: Vec<Early>,
    bytes: usize,
    /// When the client published something first at this broker, also on an earlier connection.
    since: Option<Time>,
    /// It waits no more at this broker.
    is_over: bool,
}

impl Waits {
    /// Its client's connection has ended, or there is another one. How long it waits for what came
    /// before goes on counting.
    pub(crate) fn begin_anew(&mut self) {
        *self = Waits { since: self.since, ..Waits::default() };
    }
}

impl Attachment {
    /// What its client publishes elsewhere comes after these.
    pub(crate) fn lasts(&self) -> PredecessorsBuf {
        self.last.iter().chain(self.after.iter()).collect()
    }
}

impl Broker {
    /// Keeps an event of a publisher that has moved, if the one before has not come here yet.
    pub(crate) fn keep_early(&mut self, now: Time, index: u32, publish: &Publish<'_>, out: &mut dyn Output) -> bool {
        let place = self.sessions.get_mut(index).memory.roam.as_deref_mut();
        let Some(place) = place.filter(|_| publish.event.reliability == Reliability::Reliable) else { return false };
        if place.after.is_empty() {
            return false;
        }
        let since = *place.waits.since.get_or_insert(now);
        if place.waits.is_over {
            return false;
        }
        let begins = place.waits.events.is_empty();
        if begins && !self.must_still_keep(now, index) {
            return false;
        }
        let Publish { tag, retain, number, event, .. } = *publish;
        let unnamed = EventId { pubend: PubendId(0), tick: Tick(0) };
        let early = Early { tag, retain, number, event: Event::keep(unnamed, now, event) };
        let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() else { return false };
        let after = place.after.clone();
        place.waits.bytes += early.event.packed().as_bytes().len();
        place.waits.events.push(early);
        let is_full = place.waits.events.len() >= EARLY_MAX || place.waits.bytes > EARLY_BYTES_MAX;
        if begins {
            if let Some(link) = self.sessions.set_paused(index, Pause::Early, true) {
                out.pause(link);
            }
            self.streams.early.push(index);
            after.iter().for_each(|after| self.ask_upto(now, after, out));
            let overlay = &mut self.overlay;
            overlay.stats.publishers_early += 1;
            let after = after.iter().next().expect("there are some");
            overlay.set_timer(since + PREDECESSOR_MAX, Due::Predecessor(after.pubend));
        }
        if is_full {
            self.accept_early(now, index, out);
        }
        true
    }

    /// Whether what a publisher that has moved published before is still on its way here.
    pub(crate) fn must_still_keep(&self, now: Time, index: u32) -> bool {
        let overlay = &self.overlay;
        let Some(place) = self.sessions.get(index).memory.roam.as_deref() else { return false };
        if fault!(self, PredecessorIgnored) {
            return false;
        }
        // Where nothing is wanted of others nothing comes, nor are they silent to it: nobody here
        // could get it before.
        let wants_any = overlay.net.own_interest().entries().next().is_some();
        let may_come = |after: EventId| overlay.may_come_from(now, after.pubend.host()) && self.streams.lacks(after);
        let is_over = place.waits.since.is_some_and(|since| now >= since + PREDECESSOR_MAX);
        !is_over && wants_any && place.after.iter().any(may_come)
    }

    /// What was published too early is accepted.
    pub(crate) fn accept_early(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        self.streams.early.retain(|known| *known != index);
        let session = self.sessions.get_mut(index);
        let (link, place) = (session.link(), session.memory.roam.as_deref_mut());
        let Some((link, place)) = link.zip(place) else { return };
        let waits = core::mem::take(&mut place.waits);
        place.waits = Waits { is_over: true, since: waits.since, ..Waits::default() };
        let after = place.after.clone();
        let is_met = !after.iter().any(|after| self.streams.lacks(after));
        self.overlay.stats.order_breaks += u64::from(!is_met);
        if self.sessions.set_paused(index, Pause::Early, false).is_some() {
            out.resume(link);
        }
        for Early { tag, retain, number, event } in waits.events {
            // One may be the end of its connection.
            if self.sessions.attached_to(link) != Some(index) {
                return;
            }
            self.publish(now, &Publish { link, tag, retain, number, event: &event.view() }, out);
        }
    }

    /// The client is not there any more: what has not been accepted never was published.
    pub(crate) fn drop_early(&mut self, index: u32) {
        let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() else { return };
        place.waits.begin_anew();
        self.streams.early.retain(|known| *known != index);
    }

    /// Publishers whose sessions ended with the broker, or with their connections before: their
    /// numbers are here, for wherever they go on.
    pub(crate) fn restore_publishers(&mut self, now: Time) {
        let (streams, positions) = (self.streams.logged(), self.streams.logged().positions());
        let overlay = &mut self.overlay;
        if !overlay.moves_sessions {
            return;
        }
        for (client, numbered) in self.store.publishers.recent(now).take(ENDED_MAX) {
            // Whichever its last event of a stream was, it is not after this one.
            let lasts = streams.latest_of(client, &positions);
            if let Some(index) = self.sessions.find(client) {
                if let Some(place) = self.sessions.get_mut(index).memory.roam.as_deref_mut() {
                    place.last = lasts;
                }
                continue;
            }
            let Numbered { epoch, maybe_repeats, .. } = numbered;
            let ended = EndedSession { epoch, connected_at: 0, at: now, lasts, maybe_repeats };
            overlay.roam.ended.insert(client.into(), ended);
            overlay.roam.ended_by_age.insert((now, client.into()));
        }
    }

    /// Sessions that ended long ago are forgotten.
    pub(super) fn forget_ended(&mut self, now: Time) {
        while let Some((at, _)) = self.overlay.roam.ended_by_age.first()
            && now.since(*at) >= ENDED_LIFETIME
            && let Some((_, client)) = self.overlay.roam.ended_by_age.pop_first()
        {
            self.overlay.roam.ended.remove(&client);
            self.record_claim(now, &client);
        }
    }

    /// A session's client has published an event of this kind, which was accepted.
    pub(crate) fn record_published(&mut self, index: u32, kind: StreamKind, is_remembered: bool) {
        let session = self.sessions.get_mut(index);
        let (now, pubend) = (self.now, self.streams.own.bound_to(session.binding, kind));
        let Some((place, own)) = session.memory.roam.as_deref_mut().zip(pubend.reliable_place()) else {
            return;
        };
        let tick = self.streams.own.assigned()[usize::from(own)];
        place.last.put_latest(EventId { pubend, tick });
        // The first one may be for nobody at a broker that has others to hold back: all say so that
        // may overtake what was before.
        if now.since(place.waits.since.unwrap_or(place.came)) >= SAID_MAX {
            place.after = PredecessorsBuf::new();
        }
        if is_remembered {
            self.record_moved(index);
        }
    }
}

/// What is said of an event because its publisher was at another broker before, or has published to
/// streams of other kinds.
pub(crate) fn said_of<'a>(
    place: Option<&Attachment>,
    after: &'a PredecessorsBuf,
    event: &EventRef<'a>,
    is_numbered: bool,
) -> Headers<'a> {
    let after = if after.is_empty() { event.headers.after } else { after.as_predecessors() };
    let maybe_repeat = place.map_or(event.headers.maybe_repeat, |place| is_numbered && place.maybe_repeats);
    Headers { after, maybe_repeat, ..event.headers }
}
