//! Shared subscriptions: one subscription whose events are handed out among its members.

use hashbrown::HashTable;
use whimbrel_event::{Event, Qos, Seeded, Time};
use whimbrel_selector::Selector;

use crate::api::{Filter, Output};
use crate::route::{NO_TRACK, Spot};
use crate::session::{Publication, Queue, Queued, Sessions, Terms, pop, push_bounded};

/// A member: a session and what it asked for.
#[derive(Debug, Clone, Copy)]
struct Member {
    session: u32,
    qos: Qos,
    identifier: u32,
    retain_as_published: bool,
}

/// One shared subscription.
#[derive(Debug)]
struct Group {
    text: Box<str>,
    /// Which events its members share; `None`: all.
    selector: Option<Selector>,
    /// Where it stands in the index, from when it has been put there.
    spot: Option<Spot>,
    members: Vec<Member>,
    /// What waits until a member takes it.
    queue: Queue,
    /// Where the search for the least loaded member begins, so that equals take turns.
    turn: usize,
}

/// All shared subscriptions.
#[derive(Debug)]
pub(crate) struct Groups {
    slots: Vec<Option<Group>>,
    free: Vec<u32>,
    by_text: HashTable<u32>,
    hasher: Seeded,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Self {
        Groups { slots: Vec::new(), free: Vec::new(), by_text: HashTable::new(), hasher: Seeded::new(seed) }
    }

    /// The shared subscription written as `text`, and whether it is new.
    pub(crate) fn find_or_create(&mut self, text: &str) -> (u32, bool) {
        let hash = self.hasher.hash_one(text);
        let slots = &self.slots;
        let text_of = |id: u32| &*slots[id as usize].as_ref().expect("a group id in use").text;
        if let Some(&id) = self.by_text.find(hash, |&id| text_of(id) == text) {
            return (id, false);
        }
        let group = Group {
            text: text.into(),
            selector: None,
            spot: None,
            members: Vec::new(),
            queue: Queue::default(),
            turn: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(group);
                id
            }
            None => {
                self.slots.push(Some(group));
                self.slots.len() as u32 - 1
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_text.insert_unique(hash, id, |&id| {
            hasher.hash_one(&*slots[id as usize].as_ref().expect("a group id in use").text)
        });
        (id, true)
    }

    fn group(&mut self, id: u32) -> &mut Group {
        self.slots[id as usize].as_mut().expect("a group id in use")
    }

    /// Where a shared subscription stands in the index.
    pub(crate) fn spot(&mut self, id: u32) -> Spot {
        self.group(id).spot.expect("a shared subscription is put into the index when it is made")
    }

    /// Notes the selector of a shared subscription and where it stands in the index with it.
    pub(crate) fn select(&mut self, id: u32, selector: Option<&Selector>, spot: Spot) {
        let group = self.group(id);
        group.selector = selector.cloned();
        group.spot = Some(spot);
    }

    /// Whether that is the selector of a shared subscription.
    pub(crate) fn has_selector(&mut self, id: u32, selector: Option<&Selector>) -> bool {
        self.group(id).selector.as_ref() == selector
    }

    /// Whether nobody but `session` is a member.
    pub(crate) fn is_alone(&mut self, id: u32, session: u32) -> bool {
        self.group(id).members.iter().all(|m| m.session == session)
    }

    /// Adds a member or changes what it asked for.
    pub(crate) fn join(&mut self, id: u32, session: u32, asked: &Filter<'_>) {
        let Filter { qos, identifier, retain_as_published, .. } = *asked;
        let member = Member { session, qos, identifier, retain_as_published };
        let members = &mut self.group(id).members;
        match members.iter_mut().find(|m| m.session == session) {
            Some(known) => *known = member,
            None => members.push(member),
        }
    }

    /// Removes a member; true if it was the last, and the group is gone with what waited in it.
    pub(crate) fn leave(&mut self, id: u32, session: u32, sessions: &mut Sessions) -> bool {
        let group = self.group(id);
        group.members.retain(|m| m.session != session);
        if !group.members.is_empty() {
            return false;
        }
        let group = self.slots[id as usize].take().expect("a group id in use");
        let hash = self.hasher.hash_one(&*group.text);
        self.by_text.find_entry(hash, |&other| other == id).expect("every group is found by text").remove();
        self.free.push(id);
        sessions.stats.dropped_session_ended += group.queue.len() as u64;
        sessions.stats.queued_events -= group.queue.len() as u64;
        sessions.stats.queued_bytes -= group.queue.bytes() as u64;
        true
    }

    /// Whether a member other than `session` is attached.
    pub(crate) fn has_other(&mut self, id: u32, session: u32, sessions: &Sessions) -> bool {
        self.group(id).members.iter().any(|m| m.session != session && sessions.is_attached(m.session))
    }

    /// Gives an event to the least loaded member that takes it at once. What nobody takes waits in the group, never in a member's own
    /// queue, so that whoever has room first gets it; best-effort events only pass.
    pub(crate) fn offer(
        &mut self,
        id: u32,
        publication: &mut Publication<'_>,
        retain: bool,
        sessions: &mut Sessions,
        out: &mut impl Output,
    ) {
        let qos = publication.event.qos;
        let group = self.group(id);
        if (qos == Qos::AtMostOnce || group.queue.is_empty())
            && let Some(member) = group.next_taker(qos, sessions)
        {
            return give(id, member, publication, retain, sessions, out);
        }
        let waits = |m: &Member| m.qos != Qos::AtMostOnce;
        if qos != Qos::AtMostOnce && group.members.iter().any(waits) {
            let entry =
                Queued { event: publication.keep(), identifier: 0, group: id, qos, retain, track: NO_TRACK, serial: 0 };
            let (bound, total) = (sessions.limits.session_queue_bytes, sessions.limits.absent_queue_bytes());
            sessions.stats.dropped_queue_full +=
                push_bounded(&mut group.queue, entry, bound, total, &mut sessions.stats);
        } else if group.members.iter().any(|m| sessions.is_attached(m.session)) {
            sessions.stats.dropped_slow += 1;
        }
    }

    /// Puts back what a member that left had not acknowledged, before everything that waits.
    pub(crate) fn put_back(&mut self, id: u32, events: Vec<(Event, bool)>, sessions: &mut Sessions) {
        let group = self.group(id);
        for (event, retain) in events.into_iter().rev() {
            let qos = event.qos();
            let entry = Queued { event, identifier: 0, group: id, qos, retain, track: NO_TRACK, serial: 0 };
            sessions.stats.queued_events += 1;
            sessions.stats.queued_bytes += entry.weight() as u64;
            group.queue.push_front(entry);
        }
    }

    /// Hands out what waits, as long as a member takes it.
    pub(crate) fn hand_out(&mut self, id: u32, now: Time, sessions: &mut Sessions, out: &mut impl Output) {
        let group = self.group(id);
        while !group.queue.is_empty() {
            // What waits is reliable; a member that wants it as best effort takes it too.
            let Some(member) = group.next_taker(Qos::ExactlyOnce, sessions) else { return };
            let Some(entry) = pop(&mut group.queue, now, &mut sessions.stats) else { return };
            give(id, member, &mut Publication::of(&entry.event, 0), entry.retain, sessions, out);
        }
    }
}

impl Group {
    /// The least loaded member that takes an event at once; equals take turns. Costs a look at each member at most.
    fn next_taker(&mut self, qos: Qos, sessions: &Sessions) -> Option<Member> {
        let count = self.members.len();
        let mut best: Option<(usize, usize)> = None;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let member = &self.members[at];
            let session = sessions.get(member.session);
            let takes = if qos.min(member.qos) == Qos::AtMostOnce {
                session.is_open()
            } else {
                session.takes_reliable(qos.min(member.qos))
            };
            if takes && best.is_none_or(|(load, _)| session.load() < load) {
                best = Some((session.load(), at));
                if session.load() == 0 {
                    break;
                }
            }
        }
        let (_, at) = best?;
        self.turn = (at + 1) % count;
        Some(self.members[at])
    }
}

/// Delivers an event of a shared subscription to one of its members.
fn give(
    id: u32,
    member: Member,
    publication: &mut Publication<'_>,
    retain: bool,
    sessions: &mut Sessions,
    out: &mut impl Output,
) {
    let qos = publication.event.qos.min(member.qos);
    let terms = Terms {
        qos,
        identifier: member.identifier,
        group: id,
        retain: retain && member.retain_as_published,
        as_published: retain,
        track: NO_TRACK,
    };
    sessions.offer(member.session, publication, terms, out);
}
