//! Checks that everything owed is delivered in time, unless one of the broker's bounds excuses it.

use mqtt_protocol_core::mqtt::packet::Qos;
use whimbrel_event::Time;

use super::book::{Flight, Limbo, Owed, Session};
use super::line::{GRACE, Line};
use super::track::Circumstances;
use super::{Bounds, Checker, Gauges, Rule};

/// The greatest cost of a message in a queue beside its topic and payload, bytes.
const OVERHEAD_MAX: usize = 640;

/// The greatest cost of a queue beyond its bound, bytes: the message that filled it.
const QUEUE_SLACK: u64 = 8 << 10;

impl Owed {
    /// The rule that is broken if it is not delivered.
    fn rule(&self) -> Rule {
        match self {
            Owed { replay: true, .. } => Rule::Retained,
            Owed { publication, .. } if publication.is_will => Rule::Will,
            _ => Rule::Delivery,
        }
    }

    /// Whether it is a topic's retained message for a new subscription.
    pub(super) fn replays(&self, topic: &str) -> bool {
        self.replay && self.publication.message.topic == topic
    }

    fn is_reliable(&self) -> bool {
        self.qos != Qos::AtMostOnce
    }
}

impl Session {
    /// The greatest number of bytes that may be waiting for it, of one kind.
    fn waiting(&self, reliable: bool) -> usize {
        // Retained messages are read, and do not wait in a queue.
        let of_kind = self.owed.iter().filter(|owed| owed.is_reliable() == reliable && !owed.replay);
        let waiting: usize = of_kind.map(|owed| owed.publication.weight() + OVERHEAD_MAX).sum();
        let tracked: usize = self.tracks.values().map(|track| track.waiting(OVERHEAD_MAX)).sum();
        waiting + tracked
    }

    fn excuse(&mut self, reliable: bool) {
        let of_kind = self.owed.iter_mut().filter(|owed| owed.is_reliable() == reliable && !owed.replay);
        of_kind.for_each(|owed| owed.optional = true);
    }

    /// A topic has another retained message, or none: readings leave the former one out.
    pub(super) fn supersede(&mut self, topic: &str) {
        self.owed.iter_mut().filter(|owed| owed.replays(topic)).for_each(|owed| owed.optional = true);
    }

    /// Something that the client could have been sent by now, with the rule that is broken if it is
    /// not.
    fn stuck(&self, circumstances: &Circumstances, room: bool) -> Option<(Rule, String)> {
        // Retained messages are read in order: they wait for earlier ones that need room in the
        // window.
        let is_read_behind = self.owed.iter().any(|owed| owed.replay && owed.is_reliable());
        let due = |owed: &&Owed| {
            let live = owed.publication.expires.is_none_or(|at| at > circumstances.now);
            let needs_no_room = !(owed.is_reliable() || owed.replay && is_read_behind);
            !owed.optional && live && (room || needs_no_room)
        };
        if let Some(owed) = self.owed.iter().find(due) {
            return Some((owed.rule(), owed.publication.name()));
        }
        let tracked = self.tracks.values().find_map(|track| track.due(circumstances));
        tracked.filter(|_| room).map(|publication| (Rule::Delivery, publication.name()))
    }

    fn circumstances(&self, now: Time, bounds: &Bounds) -> Circumstances {
        Circumstances { now, packet_maximum: self.packet_maximum, nothing_overwritten: bounds.nothing_overwritten }
    }
}

impl Checker {
    /// Excuses losses where a queue's bound may have been reached.
    pub(super) fn excuse_overflow(&mut self) {
        let (reliable_max, passing_max) = (self.bounds.session_queue_bytes, self.bounds.best_effort_queue_bytes);
        for session in self.book.sessions.values_mut() {
            if session.waiting(false) > passing_max {
                session.excuse(false);
            }
            if session.waiting(true) > reliable_max {
                session.excuse(true);
                session.overflowed = Some(self.now);
            }
        }
        for group in self.book.groups.values_mut() {
            if group.waiting(OVERHEAD_MAX) > reliable_max {
                group.excuse();
            }
        }
    }

    /// Checks after each call of the broker.
    pub(super) fn end_of_call(&mut self) {
        for (conn, Limbo { session, behind, room }) in core::mem::take(&mut self.limbo) {
            // When a connection ends, messages that arrived in the same call, or could not be
            // written, are lost with it.
            let lost = |owed: &&Owed| {
                let late = owed.call != self.call && self.now.since(owed.publication.accepted) > GRACE;
                let live = owed.publication.expires.is_none_or(|at| at > self.now);
                late && live && !owed.optional && !behind && (room || !owed.is_reliable() && !owed.replay)
            };
            if let Some(owed) = session.owed.iter().find(lost) {
                let what = format!("{} was not delivered over {conn:?} before it ended", owed.publication.name());
                self.broken(owed.rule(), what);
            }
        }
        let mut late = Vec::new();
        for (id, session) in &mut self.book.sessions {
            let Some(line) = session.conn.and_then(|conn| self.lines.get(&conn)) else { continue };
            let Some(owed) = sendable(session, line, self.now, &self.bounds) else {
                session.stuck_since = None;
                continue;
            };
            let since = *session.stuck_since.get_or_insert(self.now);
            if self.now > since + GRACE {
                late.push((owed.0, format!("{id} waits for {} since {since:?}", owed.1)));
                session.stuck_since = None;
                session.owed.clear();
                session.tracks.clear();
            }
        }
        for (rule, what) in late {
            self.broken(rule, what);
        }
        self.check_witness();
        self.check_groups();
        self.check_lines();
    }

    /// Checks at the end that only deliveries to absent clients are left.
    pub(super) fn nothing_is_owed(&mut self) {
        for (rule, what) in self.owed_now() {
            self.broken(rule, what);
        }
    }

    /// Deliveries that connected clients lack, each with the rule that is broken if that stays so.
    pub(super) fn owed_now(&self) -> Vec<(Rule, String)> {
        let mut left = Vec::new();
        for (id, session) in self.book.sessions.iter().filter(|(_, session)| session.conn.is_some()) {
            if let Some((rule, name)) = session.stuck(&session.circumstances(self.now, &self.bounds), true) {
                left.push((rule, format!("{id} never got {name}")));
            }
            // A notice of silence may always have just been sent.
            let open =
                |flight: &&Flight| flight.publication.no != 0 && (flight.sent_on.is_some() || !flight.may_move());
            if let Some(flight) = session.flights.iter().find(open) {
                left.push((Rule::Delivery, format!("{id} never settled {}", flight.publication.name())));
            }
        }
        left.extend(self.shares_owed().into_iter().map(|what| (Rule::Shared, format!("nobody got {what}"))));
        left
    }

    pub(super) fn check_gauges(&mut self, gauges: &Gauges) {
        let sessions = self.book.sessions.len() as u64;
        let attached = self.book.sessions.values().filter(|session| session.conn.is_some()).count() as u64;
        let own: usize = self.book.sessions.values().map(|session| session.grants.len()).sum();
        let shared: usize = self.book.groups.values().map(|group| group.len()).sum();
        let queues = sessions + self.book.groups.len() as u64;
        let best_effort = self.bounds.best_effort_queue_bytes * whimbrel_core::BURST_FACTOR;
        let bound = (self.bounds.session_queue_bytes + best_effort) as u64 + QUEUE_SLACK;
        let counts = [
            ("sessions", gauges.sessions, sessions),
            ("attached sessions", gauges.sessions_attached, attached),
            ("subscriptions", gauges.subscriptions, (own + shared) as u64),
        ];
        for (name, told, counted) in counts {
            if told != counted {
                self.broken(Rule::Gauges, format!("the broker tells of {told} {name}, where {counted} are known"));
            }
        }
        if gauges.queued_bytes > queues * bound {
            self.broken(Rule::Gauges, format!("{} bytes wait in {queues} queues", gauges.queued_bytes));
        }
    }
}

/// Whether an attached session takes a new reliable delivery at once.
pub(super) fn has_room(session: &Session, line: &Line, inflight_max: usize) -> bool {
    let waits = session.flights.iter().any(|flight| flight.sent_on.is_none());
    let open = !line.behind && line.greeted && line.over.is_none();
    open && !waits && session.flights.len() < line.receive_maximum.min(inflight_max)
}

/// A delivery that could be sent to an attached session now: new messages, or messages that were
/// left unsettled on a former connection.
fn sendable(session: &Session, line: &Line, now: Time, bounds: &Bounds) -> Option<(Rule, String)> {
    if line.behind || !line.greeted || line.over.is_some() {
        return None;
    }
    let window = line.receive_maximum.min(bounds.inflight_max);
    let sent = session.flights.iter().filter(|flight| flight.sent_on.is_some()).count();
    let again = session.flights.iter().find(|flight| flight.sent_on.is_none() && !flight.may_move());
    if let Some(flight) = again.filter(|_| sent < window) {
        return Some((Rule::Delivery, format!("{} again", flight.publication.name())));
    }
    session.stuck(&session.circumstances(now, bounds), again.is_none() && sent < window)
}
