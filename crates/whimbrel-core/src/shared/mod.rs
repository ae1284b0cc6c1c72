//! Shared subscriptions: one subscription whose events are handed out among its members.
//!
//! A durable one has a session of its own, with the position. Deliveries to that session are handed
//! out here, and are settled there when a member has the event. Begin and end of such a session:
//! [`crate::sharing`].
//!
//! With several brokers, one is the shared subscription's *home*: it alone has interest and
//! position. Other brokers with members are *branches*; they get events from the home. `branches`:
//! a home's view of them. `homes_seen`: a branch's view of its
//! home. Their messages: [`crate::overlay`].

mod branches;
mod choice;
mod homes_seen;

use hashbrown::HashTable;
use whimbrel_event::{Qos, Seeded, Time};
use whimbrel_selector::Selector;

pub(crate) use branches::{BRANCH_SILENT_MAX, Branch, Counting};
use choice::{BranchRefusals, Choice};
use homes_seen::HomesSeen;
pub(crate) use homes_seen::{HandState, MemberState, NumbersTold, Parted, Post};

use crate::api::{Filter, Output};
use crate::overlay::Brokers;
use crate::route::IndexSpot;
use crate::session::{Account, Handed, Marks, Publication, Queue, Queued, ReassignedDelivery, Sessions, push_bounded};

/// Events that wait for members without room, while others are given those behind them. More hold
/// up the shared subscription until one of these members answers, or leaves.
pub(crate) const BUSY_MAX: usize = 64;

/// A member: a session and its request.
#[derive(Debug, Clone, Copy)]
struct Member {
    session: u32,
    qos: Qos,
    marks: Marks,
    /// The shared subscription is durable because of it.
    lasts: bool,
    /// It has unsubscribed and has not settled everything: it gets no more events, and those that
    /// it does not settle go to others.
    is_leaving: bool,
}

/// One shared subscription.
#[derive(Debug)]
struct Group {
    text: Box<str>,
    /// The selector of all members; `None`: all events.
    selector: Option<Selector>,
    /// Its spot in the index, unless its own session stands there.
    spot: Option<IndexSpot>,
    /// Its own session, from its request on.
    own: Option<u32>,
    /// The subscription of its own session is confirmed.
    is_durable: bool,
    members: Vec<Member>,
    /// Sessions whose membership waits to be durable.
    expected: u32,
    /// Events that wait until a member takes them.
    queue: Queue,
    /// Where the search for the least loaded member begins, so that equals take turns.
    turn: usize,
    /// Its number, to tell it from former users of its id.
    serial: u64,
    /// This broker is its home.
    is_home: bool,
    /// Other brokers with members, if this one is the home.
    branches: Vec<Branch>,
    /// Where the search for the least loaded branch begins.
    branch_turn: usize,
    /// Since when other brokers know that this one is the home.
    counting: Counting,
    /// This broker's view of another home.
    visit: Option<Box<HomesSeen>>,
    /// Until when other brokers, which had members before this one was restarted, may report them
    /// again.
    kept_until: Option<Time>,
    /// Its own session is being sought at other brokers.
    is_sought: bool,
    /// The first waiting entry is for members without room: others may take the entries behind it,
    /// which are offered at once.
    has_busy: bool,
    /// The branches that have refused events, waiting or on their way.
    refused: BranchRefusals,
}

/// The remains of a shared subscription that has ended.
#[derive(Debug)]
pub(crate) struct Gone {
    /// Its text, as it was asked for.
    pub(crate) text: Box<str>,
    /// Its spot in the index.
    pub(crate) spot: Option<IndexSpot>,
    /// Its own session.
    pub(crate) own: Option<u32>,
    /// Sessions that have not settled all of its events.
    pub(crate) leaving: Vec<u32>,
}

/// All shared subscriptions.
#[derive(Debug)]
pub(crate) struct Groups {
    slots: Vec<Option<Group>>,
    free: Vec<u32>,
    by_text: HashTable<u32>,
    hasher: Seeded,
    /// The number of shared subscriptions so far.
    serial: u64,
    /// Messages for other brokers.
    pub(crate) post: Post,
    /// The brokers among which homes are chosen.
    pub(crate) brokers: Brokers,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Self {
        Groups {
            slots: Vec::new(),
            free: Vec::new(),
            by_text: HashTable::new(),
            hasher: Seeded::new(seed),
            serial: 0,
            post: Post::default(),
            brokers: Brokers::default(),
        }
    }

    /// The shared subscription written as `text`, if there is one.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.by_text.find(self.hasher.hash_one(text), |&id| *self.get(id).text == *text).copied()
    }

    /// The shared subscription written as `text`, which may be new.
    pub(crate) fn find_or_create(&mut self, text: &str) -> u32 {
        if let Some(id) = self.find(text) {
            return id;
        }
        let hash = self.hasher.hash_one(text);
        self.serial += 1;
        let group = Group {
            text: text.into(),
            selector: None,
            spot: None,
            own: None,
            is_durable: false,
            members: Vec::new(),
            expected: 0,
            queue: Queue::default(),
            turn: 0,
            serial: self.serial,
            is_home: true,
            branches: Vec::new(),
            branch_turn: 0,
            counting: Counting::Yes,
            visit: None,
            kept_until: None,
            is_sought: false,
            has_busy: false,
            refused: BranchRefusals::default(),
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
        id
    }

    fn get(&self, id: u32) -> &Group {
        self.slots[id as usize].as_ref().expect("a group id in use")
    }

    fn group(&mut self, id: u32) -> &mut Group {
        self.slots[id as usize].as_mut().expect("a group id in use")
    }

    /// The spot of a shared subscription in the index, unless its own session stands there.
    pub(crate) fn spot_mut(&mut self, id: u32) -> &mut Option<IndexSpot> {
        &mut self.group(id).spot
    }

    /// Those that stand in the index themselves, with their texts and spots.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (u32, &str, IndexSpot)> {
        let all = self.ids().map(|id| (id, self.get(id)));
        all.filter_map(|(id, group)| Some((id, &*group.text, group.spot?)))
    }

    /// The selector of a shared subscription.
    pub(crate) fn selector(&self, id: u32) -> Option<&Selector> {
        self.get(id).selector.as_ref()
    }

    /// Sets the selector of a shared subscription.
    pub(crate) fn select(&mut self, id: u32, selector: Option<&Selector>) {
        self.group(id).selector = selector.cloned();
    }

    /// Whether no session but `session` is a member, or is about to be one.
    pub(crate) fn is_alone(&self, id: u32, session: u32) -> bool {
        let group = self.get(id);
        let is_here = group.expected == 0 && group.members.iter().all(|m| m.session == session || m.is_leaving);
        is_here && group.branches.is_empty()
    }

    /// Whether no session is a member, or is about to be one.
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        let group = self.get(id);
        let is_here = group.expected == 0 && group.members.iter().all(|m| m.is_leaving);
        is_here && group.branches.is_empty() && group.kept_until.is_none()
    }

    /// Counts a membership that waits to be durable.
    pub(crate) fn expect_member(&mut self, id: u32) {
        self.group(id).expected += 1;
    }

    /// Uncounts a membership that waited.
    pub(crate) fn expect_no_more(&mut self, id: u32) {
        self.group(id).expected -= 1;
    }

    /// Whether a shared subscription is durable because of one of its members.
    pub(crate) fn lasts(&self, id: u32) -> bool {
        let group = self.get(id);
        group.members.iter().any(|m| m.lasts) || group.branches.iter().any(|branch| branch.lasts)
    }

    /// Where the members' events of a shared subscription are settled.
    pub(crate) fn account(&self, id: u32) -> Account {
        self.get(id).account(id)
    }

    /// The own session of a shared subscription, from its request on.
    pub(crate) fn own(&self, id: u32) -> Option<u32> {
        self.get(id).own
    }

    /// Sets the own session of a shared subscription.
    pub(crate) fn set_own(&mut self, id: u32, own: u32) {
        self.group(id).own = Some(own);
    }

    /// The own session of a durable shared subscription.
    pub(crate) fn durable(&self, id: u32) -> Option<u32> {
        self.get(id).own.filter(|_| self.get(id).is_durable)
    }

    /// Records that the own session's subscription is confirmed. Returns the spot in the index
    /// until then.
    pub(crate) fn set_durable(&mut self, id: u32) -> Option<IndexSpot> {
        let group = self.group(id);
        group.is_durable = true;
        group.spot.take()
    }

    /// Adds a member or changes its request.
    pub(crate) fn join(&mut self, id: u32, session: u32, asked: &Filter<'_>) {
        let (spec, lasts) = (&asked.spec, asked.spec.is_durable());
        let member = Member { session, qos: spec.qos, marks: Marks::of(spec), lasts, is_leaving: false };
        let members = &mut self.group(id).members;
        match members.iter_mut().find(|m| m.session == session) {
            Some(known) => *known = member,
            None => members.push(member),
        }
        self.record_said(id);
    }

    /// A member has unsubscribed. It `stays` until it has settled its events, or has left.
    pub(crate) fn leave(&mut self, id: u32, session: u32, stays: bool) {
        let members = &mut self.group(id).members;
        if stays {
            let member = members.iter_mut().find(|m| m.session == session).expect("a member leaves");
            (member.is_leaving, member.lasts) = (true, false);
        } else {
            members.retain(|m| m.session != session);
        }
        self.record_said(id);
    }

    /// Whether a session that has unsubscribed is still a member.
    pub(crate) fn is_leaving(&self, id: u32, session: u32) -> bool {
        self.get(id).members.iter().any(|m| m.session == session && m.is_leaving)
    }

    /// Ends a shared subscription without members; waiting events are dropped.
    pub(crate) fn remove(&mut self, id: u32, sessions: &mut Sessions) -> Gone {
        let group = self.slots[id as usize].take().expect("a group id in use");
        let hash = self.hasher.hash_one(&*group.text);
        self.by_text.find_entry(hash, |&other| other == id).expect("every group is found by text").remove();
        self.free.push(id);
        sessions.stats.dropped_session_ended += group.queue.len() as u64;
        sessions.stats.queued_events -= group.queue.len() as u64;
        sessions.stats.queued_bytes -= group.queue.bytes() as u64;
        sessions.returned.retain(|taken| taken.group != id);
        let Group { text, spot, own, members, visit, .. } = group;
        if let Some(visit) = visit {
            self.post.part(&text, &visit);
        }
        Gone { text, spot, own, leaving: members.iter().map(|m| m.session).collect() }
    }

    /// Whether a member is attached.
    pub(crate) fn is_attended(&self, id: u32, sessions: &Sessions) -> bool {
        let group = self.get(id);
        let is_here = group.members.iter().any(|m| !m.is_leaving && sessions.is_attached(m.session));
        is_here || group.branches.iter().any(|branch| branch.room > 0)
    }

    /// Has the events that waited for a member which has left offered again at the end of the step.
    pub(crate) fn wake_member(&self, id: u32, sessions: &mut Sessions) {
        let mut members = self.get(id).members.iter().filter(|m| !m.is_leaving).map(|m| m.session);
        if let Some(member) = members.find(|member| sessions.is_attached(*member)) {
            sessions.inflight_mut(member).1.wake();
        }
    }

    /// The deliveries to the own session that members have not settled yet.
    pub(crate) fn unsettled_of_members(&self, id: u32, sessions: &Sessions) -> Vec<u16> {
        let members = self.get(id).members.iter().map(|m| &sessions.get(m.session).inflight);
        let unsettled = members.flat_map(|inflight| inflight.unsettled_of_groups()).filter(|(group, _)| *group == id);
        let given = self.get(id).branches.iter().flat_map(|branch| branch.given.values().map(|given| given.origin));
        unsettled.map(|(_, origin)| origin).chain(given).collect()
    }

    /// Drops waiting events, as far as the own session has them: no member is attached.
    pub(crate) fn desert(&mut self, id: u32, sessions: &mut Sessions) {
        let (events, bytes) = self.group(id).queue.purge(|entry| entry.origin == 0);
        sessions.stats.queued_events -= events as u64;
        sessions.stats.queued_bytes -= bytes as u64;
    }

    /// Gives an event to the least loaded member that takes it at once. Other reliable events wait
    /// in the group, never in a member's own queue, so that the first member with room gets them.
    /// Best-effort events only pass.
    pub(crate) fn offer(
        &mut self,
        id: u32,
        publication: &mut Publication<'_>,
        now: Time,
        sessions: &mut Sessions,
        out: &mut dyn Output,
    ) {
        let qos = publication.accepted.event.qos;
        let (group, post) = self.with_post(id);
        if qos == Qos::AtMostOnce || group.queue.is_empty() {
            match group.choose(publication, sessions, post, out) {
                Choice::Member(member) => return group.give(id, member, publication, 0, sessions, out),
                Choice::Branch(branch) => return group.hand_over(id, branch, publication.keep(), 0, post),
                Choice::Untaken => return group.pass_over(id, publication.accepted.id, 0, sessions, post),
                Choice::Busy => group.has_busy = true,
                Choice::Full => {}
            }
        }
        if qos != Qos::AtMostOnce && group.is_reliable() {
            let entry = Queued::shared(publication.keep(), id, 0);
            let (bound, total) = (sessions.limits.session_queue_bytes, sessions.limits.absent_queue_bytes());
            sessions.stats.dropped_queue_full +=
                push_bounded(&mut group.queue, entry, bound, total, &mut sessions.stats);
            if group.has_busy {
                self.hand_out(id, now, sessions, out);
            }
        } else if self.is_attended(id, sessions) {
            sessions.stats.dropped_slow += 1;
        }
    }

    /// Gives a delivery to its own session to a member, or has it wait for one: at most as many
    /// wait as the window of that session takes. Best-effort events only pass.
    pub(crate) fn hand(&mut self, id: u32, handed: Handed, now: Time, sessions: &mut Sessions, out: &mut dyn Output) {
        let Handed { tag: origin, event, .. } = handed;
        let (group, post) = self.with_post(id);
        if origin == 0 || group.queue.is_empty() {
            let mut publication = Publication::of(&event, 0);
            match group.choose(&publication, sessions, post, out) {
                Choice::Member(member) => return group.give(id, member, &mut publication, origin, sessions, out),
                Choice::Branch(branch) => return group.hand_over(id, branch, event, origin, post),
                Choice::Untaken => return group.pass_over(id, event.id(), origin, sessions, post),
                Choice::Busy | Choice::Full => {}
            }
        }
        if origin == 0 {
            sessions.stats.dropped_slow += 1;
            return;
        }
        let entry = Queued::shared(event, id, origin);
        sessions.stats.queued_events += 1;
        sessions.stats.queued_bytes += entry.weight() as u64;
        group.queue.push(entry);
        self.hand_out(id, now, sessions, out);
    }

    /// Puts back the unacknowledged events of a member that left, before all others.
    pub(crate) fn put_back(&mut self, id: u32, taken: &[ReassignedDelivery], sessions: &mut Sessions) {
        let group = self.group(id);
        for ReassignedDelivery { origin, event, .. } in taken.iter().rev() {
            let entry = Queued::shared(event.clone(), id, *origin);
            sessions.stats.queued_events += 1;
            sessions.stats.queued_bytes += entry.weight() as u64;
            group.queue.push_front(entry);
        }
    }

    /// Hands out waiting events while a member takes them. An event that only members without room
    /// can be sent waits for them, and lets those behind it pass: at most [`BUSY_MAX`] do.
    pub(crate) fn hand_out(&mut self, id: u32, now: Time, sessions: &mut Sessions, out: &mut dyn Output) {
        let (group, post) = self.with_post(id);
        let mut busy = 0;
        while busy < BUSY_MAX
            && let Some(entry) = group.queue.get(busy)
        {
            let (event, origin) = (entry.event.clone(), entry.origin);
            if event.is_expired(now) {
                group.take_out(busy, sessions);
                sessions.stats.dropped_expired += 1;
                group.refused.forget(event.id());
                sessions.fulfil(group.account(id), origin);
                continue;
            }
            // A member that takes one QoS at the moment may not take another.
            let mut publication = Publication::of(&event, 0);
            let choice = group.choose(&publication, sessions, post, out);
            match choice {
                Choice::Full => break,
                Choice::Busy => {
                    busy += 1;
                    continue;
                }
                Choice::Member(_) | Choice::Branch(_) | Choice::Untaken => {}
            }
            group.take_out(busy, sessions);
            match choice {
                Choice::Member(member) => group.give(id, member, &mut publication, origin, sessions, out),
                Choice::Branch(branch) => group.hand_over(id, branch, event, origin, post),
                _ => group.pass_over(id, event.id(), origin, sessions, post),
            }
        }
        group.has_busy = busy > 0;
    }

    fn with_post(&mut self, id: u32) -> (&mut Group, &mut Post) {
        (self.slots[id as usize].as_mut().expect("a group id in use"), &mut self.post)
    }
}

impl Group {
    fn account(&self, id: u32) -> Account {
        match (self.own, &self.visit) {
            (Some(own), _) => Account::Own(own),
            (None, Some(_)) => Account::Visit(id, self.serial),
            (None, None) => Account::None,
        }
    }

    /// Whether a member takes events that wait.
    fn is_reliable(&self) -> bool {
        let is_here = self.members.iter().any(|m| !m.is_leaving && m.qos != Qos::AtMostOnce);
        is_here || self.branches.iter().any(|branch| branch.is_reliable)
    }

    /// Takes out a waiting entry.
    fn take_out(&mut self, at: usize, sessions: &mut Sessions) {
        if let Some(entry) = self.queue.remove(at) {
            sessions.stats.queued_events -= 1;
            sessions.stats.queued_bytes -= entry.weight() as u64;
        }
    }

    /// Delivers an event to a member that takes it; `origin`: the delivery to the own session that
    /// it settles.
    fn give(
        &mut self,
        id: u32,
        member: Member,
        publication: &mut Publication<'_>,
        origin: u16,
        sessions: &mut Sessions,
        out: &mut dyn Output,
    ) {
        self.refused.forget(publication.accepted.id);
        let terms = member.terms(id, publication, origin);
        let is_taken = sessions.offer(member.session, publication, terms, out);
        if terms.qos == Qos::AtMostOnce || !is_taken {
            // The member will not settle it.
            sessions.fulfil(self.account(id), origin);
        }
    }
}
