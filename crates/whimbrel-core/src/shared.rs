//! Shared subscriptions: one subscription whose events are handed out among its members.

use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use whimbrel_event::Qos;

use crate::api::Output;
use crate::session::{Publication, Queue, Queued, Sessions, Terms};

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
    members: Vec<Member>,
    /// What waits until a member comes back.
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
    hasher: FixedState,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Self {
        Groups { slots: Vec::new(), free: Vec::new(), by_text: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    /// The shared subscription written as `text`, and whether it is new.
    pub(crate) fn find_or_create(&mut self, text: &str) -> (u32, bool) {
        let hash = self.hasher.hash_one(text);
        let slots = &self.slots;
        let text_of = |id: u32| &*slots[id as usize].as_ref().expect("a group id in use").text;
        if let Some(&id) = self.by_text.find(hash, |&id| text_of(id) == text) {
            return (id, false);
        }
        let group = Group { text: text.into(), members: Vec::new(), queue: Queue::default(), turn: 0 };
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

    /// Adds a member or changes what it asked for.
    pub(crate) fn join(&mut self, id: u32, session: u32, terms: Terms, retain_as_published: bool) {
        let member = Member { session, qos: terms.qos, identifier: terms.identifier, retain_as_published };
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

    /// Gives an event to the least loaded attached member; with none attached it waits, if it is reliable and a
    /// member's session outlives its connection.
    pub(crate) fn offer(
        &mut self,
        id: u32,
        publication: &mut Publication<'_>,
        published: Terms,
        sessions: &mut Sessions,
        out: &mut impl Output,
    ) {
        let group = self.group(id);
        let count = group.members.len();
        let mut best: Option<(usize, usize)> = None;
        for step in 0..count {
            let at = (group.turn + step) % count;
            let session = sessions.get(group.members[at].session);
            if session.is_attached() && best.is_none_or(|(load, _)| session.load() < load) {
                best = Some((session.load(), at));
                if session.load() == 0 {
                    break;
                }
            }
        }
        if let Some((_, at)) = best {
            group.turn = (at + 1) % count;
            let member = group.members[at];
            let retain = published.retain && member.retain_as_published;
            let terms = Terms { qos: published.qos.min(member.qos), identifier: member.identifier, group: id, retain };
            sessions.offer(member.session, publication, terms, out);
        } else {
            let waits = |m: &Member| m.qos != Qos::AtMostOnce && sessions.get(m.session).is_persistent();
            if published.qos != Qos::AtMostOnce && group.members.iter().any(waits) {
                let (event, qos, retain) = (publication.keep(), published.qos, published.retain);
                let entry = Queued { event, identifier: 0, group: id, qos, retain };
                let (bound, total) = (sessions.limits.session_queue_bytes, sessions.limits.total_queue_bytes);
                let dropped = crate::session::push_bounded(&mut group.queue, entry, bound, total, &mut sessions.stats);
                sessions.stats.dropped_queue_full += dropped;
            }
        }
    }

    /// The next event that waits for a member.
    pub(crate) fn pop_waiting(&mut self, id: u32, sessions: &mut Sessions) -> Option<Queued> {
        let entry = self.group(id).queue.pop()?;
        sessions.stats.queued_events -= 1;
        sessions.stats.queued_bytes -= entry.weight() as u64;
        Some(entry)
    }
}
