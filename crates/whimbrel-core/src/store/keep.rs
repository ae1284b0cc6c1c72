//! Sessions, wills, retained messages and publishers' numbers are written as they change; what
//! waits is refused when the log is full, and dropped when it has failed.

use core::time::Duration;

use whimbrel_event::{Qos, Time};

use super::keys::{Key, LastWill, SessionNo, SessionRecord};
use super::own_ticks::OwnTicks;
use super::wire::MapValue;
use super::{Answer, BatchNo, Disk, Recipient, Store, Wait};
use crate::api::{Accepted, Kick, Link, Output, Refusal};
use crate::broker::Broker;
use crate::session::Session;
use crate::stream::EventOrigin;
use crate::subscription::SubscriptionRecord;

/// Interval of lazy writes, which a crash may lose: retained messages and numbers of events that
/// are not logged.
pub(crate) const LAZILY_EVERY: Duration = Duration::from_secs(1);

/// Topics, and numbers, written lazily in one turn; and the pause after it if more is left.
const LAZILY_SLICE: usize = 1_024;
const LAZILY_PAUSE: Duration = Duration::from_millis(1);

/// Entries that are forgotten in one batch.
const FORGET_MAX: usize = 1024;

impl SessionRecord {
    /// The record of a session as it is; `left`: when its client left.
    pub(super) fn of(session: &Session, left: Option<Time>) -> SessionRecord {
        let (number, expiry, last_tag) = (session.memory.number, session.expiry, session.last_tag());
        SessionRecord {
            number,
            expiry,
            left,
            last_tag,
            stale_ids: session.inflight.stale_count(),
            principal: session.memory.principal.clone(),
        }
    }
}

impl Broker {
    /// Whether there is a log that accepts writes.
    pub fn has_log(&self) -> bool {
        matches!(self.store.disk, Disk::Open | Disk::Full)
    }

    /// Whether a session and its changes are written.
    pub(crate) fn remembers(&self, index: u32) -> bool {
        self.has_log() && self.sessions.get(index).memory.is_kept
    }

    /// Writes a session, if it outlives its connection, and its will; `left`: when its client left.
    pub(crate) fn remember_session(&mut self, index: u32, left: Option<Time>) {
        if !self.has_log() {
            return;
        }
        let store = &mut self.store;
        let session = self.sessions.get_mut(index);
        let has_will = session.will.is_some();
        if session.memory.number == SessionNo(0) && (has_will || session.is_persistent()) {
            session.memory.number = store.numbers.next_session(&mut store.write_queue);
        }
        let number = session.memory.number;
        if session.is_persistent() || session.memory.is_kept {
            session.memory.is_kept = true;
            let kept = SessionRecord::of(session, left);
            store.write_queue.put(|key| Key::Session(&session.client_id).put(key), |value| kept.put_versioned(value));
        }
        match &session.will {
            Some(will) => {
                let will = LastWill {
                    client_id: &session.client_id,
                    delay: will.delay,
                    lifetime: will.lifetime,
                    retain: will.retain,
                    event: will.event.packed().as_bytes(),
                };
                store.write_queue.put(|key| Key::Will(number).put(key), |value| will.put_versioned(value));
            }
            None if number != SessionNo(0) => store.write_queue.forget(|key| Key::Will(number).put(key)),
            None => {}
        }
        store.write_queue.seal();
    }

    /// Forgets everything that is written of a session that ends, the session itself last, so that
    /// a crash in between leaves one that ends again.
    pub(crate) fn forget_session(&mut self, index: u32) {
        let session = self.sessions.get(index);
        let (number, is_kept) = (session.memory.number, session.memory.is_kept);
        if !self.has_log() || number == SessionNo(0) {
            return;
        }
        let write_queue = &mut self.store.write_queue;
        write_queue.forget(|key| Key::Will(number).put(key));
        if is_kept {
            // Deliveries abandoned in this very call are still to be forgotten.
            let given_up = session.memory.pending.abandoned.iter().map(|abandoned| abandoned.tag);
            let flights = session.inflight.exactly_once().into_iter().chain(given_up);
            let flights = flights.map(|tag| Key::InFlight(number, tag));
            let unreleased = session.memory.pending.unreleased.keys().map(|tag| Key::Unreleased(number, *tag));
            let subscriptions = session.subscriptions.iter().flat_map(|id| {
                let known = self.router.get(*id);
                let durable = self.cursors.durable(known.cursor);
                let position = durable.map(|durable| Key::Position(durable.number));
                let parts = durable.into_iter().flat_map(|durable| durable.remote.written.keys(durable.number));
                position.into_iter().chain(parts).chain([Key::Subscription(number, &known.text)])
            });
            for (count, key) in flights.chain(unreleased).chain(subscriptions).enumerate() {
                if count % FORGET_MAX == FORGET_MAX - 1 {
                    write_queue.seal();
                }
                write_queue.forget(|bytes| key.put(bytes));
                write_queue.seal_large();
            }
            write_queue.forget(|key| Key::Session(&session.client_id).put(key));
        }
        write_queue.seal();
    }

    /// Writes the record of a subscription as it is now, or forgets it if there is none.
    pub(crate) fn remember_subscription(&mut self, index: u32, text: &str) {
        let session = self.sessions.get(index).memory.number;
        let Some(id) = self.router.find(index, text) else {
            return self.store.write_queue.forget(|key| Key::Subscription(session, text).put(key));
        };
        let known = self.router.get(id);
        let durable = self.cursors.durable(known.cursor);
        let record = SubscriptionRecord {
            number: durable.map(|durable| durable.number),
            spec: known.spec,
            start: durable.map_or(OwnTicks::default(), |durable| durable.start.all()),
            selector: known.selector.as_deref(),
            old: durable.map_or(Vec::new(), |durable| durable.rare.old.iter().map(|old| old.view()).collect()),
        };
        self.store
            .write_queue
            .put(|key| Key::Subscription(session, text).put(key), |value| record.put_versioned(value));
    }

    /// Holds back what a client is told of its session, where that has to be durable first: the
    /// session begins anew, and the old one must not come back; or it outlives its connection, and
    /// a successor of this process may have made or ended it.
    pub(crate) fn confirm_session(&mut self, whom: Recipient, begins_anew: bool, outlives: bool, out: &mut dyn Output) {
        let is_in_doubt = outlives && self.sessions.limits.has_successors;
        if is_in_doubt {
            self.store.write_proof_of_owner();
        }
        if !(begins_anew || is_in_doubt) || !self.has_log() {
            return;
        }
        let batch = self.store.write_queue.last();
        let batch = if fault!(self, OldSessionBack) { BatchNo(0) } else { batch };
        if batch > self.store.commit_queue.committed() {
            out.cork(whom.link);
            self.sessions.enter_commit_queue(whom);
            self.store.commit_queue.push(batch, Wait::Uncork(whom));
        }
    }

    /// A client releases a tag (PUBREL): it will not repeat that publish.
    pub(crate) fn release(&mut self, now: Time, link: Link, tag: u16, out: &mut dyn Output) {
        let (whom, index) = (self.sessions.whom(link), self.sessions.of(link));
        self.record_moved(index);
        let session = self.sessions.get_mut(index);
        let (number, known) = (session.memory.number, session.memory.pending.unreleased.remove(&tag));
        let mut after = known.map_or(BatchNo(0), |known| known.batch);
        if known.is_some_and(|known| known.is_written) {
            // Forgotten before the client is told that the tag is free: after a crash a new publish
            // with the tag would be taken for a repeat.
            self.store.write_queue.forget(|key| Key::Unreleased(number, tag).put(key));
            after = self.store.write_queue.seal();
        }
        let answer = Answer::Completed { tag, known: known.is_some() };
        self.answer(now, whom, (after, answer), out);
    }

    /// Writes the next slice of retained messages and publishers' numbers, when it is due.
    pub(crate) fn write_lazily(&mut self, now: Time) {
        if now < self.store.lazily_at || self.store.lazy_topics.is_empty() && !self.store.publishers.has_dirty() {
            return;
        }
        let waiting = self.store.commit_queue.retained();
        for _ in 0..LAZILY_SLICE {
            let Some(topic) = self.store.lazy_topics.pop_first() else { break };
            if waiting.contains(&*topic) {
                // A newer event is already written, and must not be overwritten by an older one.
                continue;
            }
            match self.retained.get(&topic) {
                Some(event) => {
                    let bytes = event.packed().as_bytes();
                    self.store
                        .write_queue
                        .put(|key| Key::Retained(&topic).put(key), |value| bytes.put_versioned(value));
                }
                None => self.store.write_queue.forget(|key| Key::Retained(&topic).put(key)),
            }
            self.store.write_queue.seal();
        }
        self.store.publishers.write_dirty(LAZILY_SLICE, &mut self.store.write_queue);
        let is_left = self.store.lazy_topics.len() + self.store.publishers.dirty() >= LAZILY_SLICE;
        self.store.lazily_at = now.after(if is_left { LAZILY_PAUSE } else { LAZILY_EVERY });
    }
}

impl Broker {
    /// The state of the log has changed.
    ///
    /// # Panics
    /// When a log that has failed accepts writes again: it does so only after it was opened anew,
    /// and with a new core.
    pub(crate) fn disk_changed(&mut self, now: Time, disk: Disk, out: &mut dyn Output) {
        let before = core::mem::replace(&mut self.store.disk, disk);
        assert!(before != Disk::Poisoned || disk == Disk::Poisoned, "a log that has failed stays so");
        match disk {
            Disk::None | Disk::Open => {}
            Disk::Full => self.refuse_waiting(),
            Disk::Poisoned if before == Disk::Poisoned => {}
            Disk::Poisoned => {
                while self.store.commit_queue.is_due() {
                    self.pass_committed(now, out);
                }
                self.drop_waiting(now, out);
            }
        }
        self.pass_committed(now, out);
    }

    /// The log is full: refuses the events that were not taken. Their publishers are told in order.
    fn refuse_waiting(&mut self) {
        let refused = self.store.write_queue.refuse_events();
        let Broker { sessions, store, streams, .. } = self;
        let Store { commit_queue, publishers, .. } = store;
        commit_queue.refuse(&refused, |_, wait| match wait {
            Wait::Event(held) => {
                sessions.stats.events_refused += 1;
                streams.own.withdrawn(held.event.id());
                if let Some((client_id, number)) = &held.number {
                    // Also if the publisher is away: it may come back and repeat it.
                    publishers.take_back(client_id, *number);
                }
                let (whom, tag) = held.answer?;
                if let EventOrigin::Publish(index) = held.from
                    && let Some(session) = sessions.of_answer(index, held.session, whom)
                {
                    if let Some((_, number)) = held.number {
                        session.memory.pending.refused_number.get_or_insert(number);
                    }
                    if held.event.qos() == Qos::ExactlyOnce {
                        session.memory.pending.unreleased.remove(&tag);
                    }
                }
                let (qos, result) = (held.event.qos(), Accepted::Refused(Refusal::LogFull));
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            // The repeated event was one of them.
            Wait::Answer(whom, Answer::Repeat { tag, qos, number })
                if !sessions.is_still_repeat(whom, (tag, qos, number), publishers) =>
            {
                let result = Accepted::Refused(Refusal::LogFull);
                Some(Wait::Answer(whom, Answer::Accepted { tag, qos, result }))
            }
            answer => Some(answer),
        });
    }

    /// Drops all that waits. Whether it is on the disk is unknown, so neither refusing nor
    /// accepting it would be true: its clients are disconnected, and may repeat it.
    fn drop_waiting(&mut self, now: Time, out: &mut dyn Output) {
        let unknown = self.store.commit_queue.take_unknown();
        self.store.write_queue.close();
        let seed = self.store.spare_seed;
        self.streams.retire(seed, now);
        self.rehost(now, out);
        for wait in unknown {
            let Some(whom) = wait.whom() else { continue };
            if !self.sessions.leave_commit_queue(whom) {
                continue;
            }
            let index = self.sessions.of(whom.link);
            self.sessions.stats.kicked_log_failed += 1;
            self.kick(now, index, Kick::LogFailed, out);
        }
    }
}
