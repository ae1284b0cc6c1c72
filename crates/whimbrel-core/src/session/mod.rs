//! Sessions: their subscriptions, deliveries and attachments to links.

mod counted;
mod deliver;
mod gappy;
mod inflight;
mod kinds;
mod lifecycle;
mod memory;
mod missed;
mod own;
mod principal;
mod queue;
mod recipient;
mod slot;
mod tracked;
mod wake;

use core::time::Duration;
use std::collections::VecDeque;

use hashbrown::HashTable;
use smallvec::SmallVec;
use whimbrel_event::{Publisher, Seeded, Time};

pub(crate) use counted::push_bounded;
pub use deliver::BURST_FACTOR;
pub(crate) use deliver::{Marks, Publication, Terms};
pub(crate) use inflight::{Inflight, ReassignedDelivery, Settled};
use kinds::KindsUsed;
pub use lifecycle::READ_OUT_MAX;
pub(crate) use lifecycle::WILL_AGAIN;
pub(crate) use lifecycle::{Claimant, Supersessions};
use memory::PendingWork;
pub(crate) use memory::{Abandoned, Memory, Unreleased};
pub(crate) use own::{Account, Fulfilled, Handed, NOBODY, own_client_id, shared_text, shown};
pub(crate) use principal::is_foreign;
pub(crate) use queue::{Queue, Queued};
pub(crate) use recipient::Pause;
pub(crate) use slot::{Slot, Stage};

use crate::api::{Limits, Link, Will};
use crate::lazy::{Lazy, at_rest};
use crate::stats::{GapCounts, Stats};
use crate::store::SessionNo;
use crate::stream::{StreamKind, Streams};

/// No link.
const DETACHED: u32 = u32::MAX;

/// A session's attachment to a link: the current one, or the last.
#[derive(Clone, Copy, Debug, Default)]
struct LinkAttachment {
    /// Its number among all attachments.
    attachment: u32,
    /// Answers to it that wait in the commit queue.
    in_commit_queue: u32,
    /// The tag assigned last before the deliveries were put to rest: the client may still use it.
    last_tag: u16,
    /// Nothing is read from it for now; one flag per [`Pause`].
    paused: [bool; 2],
    /// It began soon after the restart of some broker, so the numbers of events which that broker
    /// had accepted and not logged may be forgotten.
    is_after_restart: bool,
}

/// One client's session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client_id: Box<str>,
    link: u32,
    attached: LinkAttachment,
    pub(crate) memory: Memory,
    /// Which pubends its events go to.
    pub(crate) binding: u8,
    /// The kinds of streams to which its events went since the profiles of topics changed last.
    pub(crate) kinds: KindsUsed,
    pub(crate) publisher: Publisher,
    /// The edge takes more deliveries for its link.
    open: bool,
    /// It waits in [`Sessions::overflowed`].
    overflowed: bool,
    /// The common state of its cursors.
    pub(crate) follow: Lazy<SessionCursors>,
    /// Gaps of all its cursors.
    gaps: u64,
    /// How long it outlives its connection.
    pub(crate) expiry: Duration,
    pub(crate) subscriptions: SmallVec<[u32; 2]>,
    /// Bytes of the selectors of all subscriptions.
    pub(crate) selector_bytes: usize,
    /// The shared subscriptions that it is a member of.
    pub(crate) groups: SmallVec<[u32; 2]>,
    pub(crate) inflight: Lazy<Inflight>,
    /// Waiting reliable deliveries.
    pub(crate) waiting: Lazy<Queue>,
    /// Waiting best-effort deliveries.
    passing: Lazy<Queue>,
    pub(crate) will: Option<Box<Will>>,
    pub(crate) will_at: Option<Time>,
    pub(crate) expires_at: Option<Time>,
}

impl Session {
    /// The epoch: the number of its client's current connection; 0: there are no other brokers.
    pub(crate) fn epoch(&self) -> u64 {
        self.memory.roam.as_deref().map_or(0, |place| place.epoch)
    }

    /// The epoch, and whether its client may have published through a broker that could not be
    /// asked.
    pub(crate) fn stay(&self) -> (u64, bool) {
        self.memory.roam.as_deref().map_or((0, false), |place| (place.epoch, place.maybe_repeats))
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.link != DETACHED
    }

    pub(crate) fn link(&self) -> Option<Link> {
        (self.is_attached() && !self.is_within()).then_some(Link(self.link))
    }

    /// Answers to the current link that wait in the commit queue.
    pub(crate) fn in_line(&self) -> u32 {
        self.attached.in_commit_queue
    }

    /// The tag assigned last; 0 if none was.
    pub(crate) fn last_tag(&self) -> u16 {
        if self.inflight.len() == 0 && self.attached.last_tag != 0 {
            self.attached.last_tag
        } else {
            self.inflight.newest_tag()
        }
    }

    /// Whether it outlives its connection.
    pub(crate) fn is_persistent(&self) -> bool {
        !self.expiry.is_zero()
    }

    /// Whether best-effort deliveries go out at once.
    pub(crate) fn is_open(&self) -> bool {
        self.open && self.passing.is_empty()
    }

    /// The number of its deliveries in flight and waiting.
    pub(crate) fn load(&self) -> usize {
        self.inflight.len() + self.waiting.len() + self.passing.len() + self.follow.queue.len()
    }
}

/// The common state of a session's cursors.
#[derive(Debug, Default)]
pub(crate) struct SessionCursors {
    /// Cursors in catch-up; the first one's turn is next.
    pub(crate) lagging: VecDeque<u32>,
    /// The session waits for its turn to catch up.
    pub(crate) catching_up: bool,
    /// Waiting deliveries of cursors that are caught up, while the client is attached.
    pub(crate) queue: Queue,
    /// The last waiting delivery was taken from `queue`.
    turn: bool,
    /// Deliveries without a cursor up to this event go first: a subscription that has a cursor now
    /// had none before. 0: none.
    plain_until: u64,
    /// Next time, the cursors in catch-up go before waiting deliveries.
    pub(crate) catches_up_first: bool,
    /// It is known how long the client was away.
    pub(crate) away_known: bool,
}

at_rest!(
    SessionCursors,
    SessionCursors {
        lagging: VecDeque::new(),
        catching_up: false,
        queue: Queue::new(),
        turn: false,
        plain_until: 0,
        catches_up_first: false,
        away_known: false
    }
);

/// All sessions, and the bounds and counters of what they hold.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Boxed, so that growing moves pointers: no copy of all sessions, and no memory for twice
    /// their number.
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    by_client: HashTable<u32>,
    /// Session by link.
    links: Vec<u32>,
    hasher: Seeded,
    /// Attachments so far.
    attachments: u32,
    pub(crate) limits: Limits,
    /// The present moment.
    pub(crate) now: Time,
    pub(crate) stats: Stats,
    /// Deliveries of this step that have to be durable before they are sent: session, tag, and the
    /// session's number.
    pub(crate) prepared: VecDeque<(u32, u16, SessionNo)>,
    /// Sessions with deliveries that were dropped in this step.
    pub(crate) dropped: Vec<(u32, SessionNo)>,
    /// Deliveries of this step to shared subscriptions' own sessions, to be handed out.
    pub(crate) handed: VecDeque<Handed>,
    /// Deliveries of shared subscriptions that are settled or over.
    pub(crate) fulfilled: Vec<Fulfilled>,
    /// Sessions to resume, as a place in their window has become free in this step.
    woken: Vec<u32>,
    /// Deliveries of shared subscriptions that could not be sent to a member: other members get
    /// them.
    pub(crate) returned: Vec<ReassignedDelivery>,
    /// Attached sessions with a queue that exceeded its bound in this step.
    overflowed: Vec<u32>,
    /// Gaps by class and reason.
    pub(crate) gaps: GapCounts,
    /// The clients with most gaps, in no order; at most [`gappy::GAPPY_MAX`].
    gappy: Vec<(Box<str>, u64)>,
    /// Attached sessions that another connection or broker claims.
    pub(crate) supersessions: Supersessions,
    /// The number of changes of topics' profiles so far, see [`KindsUsed`]; wraps around.
    pub(crate) kinds_epoch: u16,
}

impl Sessions {
    pub(crate) fn new(limits: Limits, seed: u64) -> Self {
        Sessions {
            slots: Vec::new(),
            free: Vec::new(),
            by_client: HashTable::new(),
            links: Vec::new(),
            hasher: Seeded::new(seed),
            attachments: 0,
            limits,
            now: Time::ZERO,
            stats: Stats::default(),
            prepared: VecDeque::new(),
            dropped: Vec::new(),
            handed: VecDeque::new(),
            fulfilled: Vec::new(),
            woken: Vec::new(),
            returned: Vec::new(),
            overflowed: Vec::new(),
            gaps: GapCounts::default(),
            gappy: Vec::new(),
            supersessions: Supersessions::default(),
            kinds_epoch: 0,
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Session {
        self.slots[index as usize].as_ref().expect("a session index in use")
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Session {
        self.slots[index as usize].as_mut().expect("a session index in use")
    }

    /// The number of places, in use or free.
    pub(crate) fn places(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The sessions at the places from `place` on.
    pub(crate) fn from(&self, place: u32) -> impl Iterator<Item = (u32, Option<&Session>)> {
        (place..).zip(self.slots.iter().skip(place as usize)).map(|(index, slot)| (index, slot.as_deref()))
    }

    pub(crate) fn find(&self, client_id: &str) -> Option<u32> {
        self.by_client.find(self.hasher.hash_one(client_id), |&i| &*self.get(i).client_id == client_id).copied()
    }

    /// The session of an attached link.
    ///
    /// # Panics
    /// When the link is not attached: the edge may not speak for it then.
    pub(crate) fn of(&self, link: Link) -> u32 {
        self.attached_to(link).expect("the edge speaks for attached links only")
    }

    pub(crate) fn attached_to(&self, link: Link) -> Option<u32> {
        self.links.get(link.0 as usize).copied().filter(|&index| index != DETACHED)
    }

    /// Records that a session publishes to a kind of streams. If its event has to say what may be
    /// before it in others, returns the session's binding.
    pub(crate) fn record_kind(&mut self, index: u32, kind: StreamKind) -> Option<u8> {
        let epoch = self.kinds_epoch;
        let session = self.get_mut(index);
        session.kinds.record(epoch, kind).then_some(session.binding)
    }

    /// Records that topics may go to streams of other kinds from now on.
    pub(crate) fn begin_kinds(&mut self) {
        self.kinds_epoch = self.kinds_epoch.wrapping_add(1);
    }

    pub(crate) fn create(&mut self, client_id: &str) -> u32 {
        let hash = self.hasher.hash_one(client_id);
        let index = self.create_unnamed(client_id);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_client.insert_unique(hash, index, |&i| {
            hasher.hash_one(&*slots[i as usize].as_ref().expect("a session index in use").client_id)
        });
        index
    }

    /// Creates a session that is not found by its client id.
    pub(crate) fn create_unnamed(&mut self, client_id: &str) -> u32 {
        let session = Box::new(Session {
            client_id: client_id.into(),
            link: DETACHED,
            attached: LinkAttachment::default(),
            memory: Memory::default(),
            // Equal after a restart, so that a publisher's events stay in one stream.
            binding: Streams::binding(Publisher::named(client_id).to_bits()),
            kinds: KindsUsed::all(self.kinds_epoch),
            publisher: Publisher::named(client_id),
            open: false,
            overflowed: false,
            follow: Lazy::default(),
            gaps: 0,
            expiry: Duration::ZERO,
            subscriptions: SmallVec::new(),
            selector_bytes: 0,
            groups: SmallVec::new(),
            inflight: Lazy::default(),
            waiting: Lazy::default(),
            passing: Lazy::default(),
            will: None,
            will_at: None,
            expires_at: None,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(session);
                index
            }
            None => {
                self.slots.push(Some(session));
                self.slots.len() as u32 - 1
            }
        };
        self.stats.sessions += u64::from(self.get(index).shares().is_none());
        index
    }

    /// Removes a detached session; its waiting deliveries are dropped and counted.
    pub(crate) fn remove(&mut self, index: u32) {
        let session = self.slots[index as usize].take().expect("a session index in use");
        assert!(
            !session.is_attached() && session.subscriptions.is_empty(),
            "a session is cleared before it is removed"
        );
        let hash = self.hasher.hash_one(&*session.client_id);
        if let Ok(entry) = self.by_client.find_entry(hash, |&i| i == index) {
            entry.remove();
        }
        self.free.push(index);
        self.stats.sessions -= u64::from(session.shares().is_none());
        for queue in [&session.waiting, &session.passing, &session.follow.queue] {
            self.stats.dropped_session_ended += queue.len() as u64;
            self.stats.queued_events -= queue.len() as u64;
            self.stats.queued_bytes -= queue.bytes() as u64;
        }
    }

    /// Attaches a session to a link, with at most `window` unsettled deliveries.
    pub(crate) fn bind(&mut self, index: u32, link: Link, window: u16) {
        let at = link.0 as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, DETACHED);
        }
        assert!(self.links[at] == DETACHED, "a link has one session");
        self.links[at] = index;
        self.stats.sessions_attached += 1;
        let window = window.min(self.limits.inflight_max);
        self.attachments = self.attachments.wrapping_add(1);
        let attachment = self.attachments;
        let session = self.get_mut(index);
        assert!(!session.is_attached(), "a session has one link");
        session.link = link.0;
        let last_tag = core::mem::take(&mut session.attached.last_tag);
        session.attached = LinkAttachment { attachment, ..LinkAttachment::default() };
        session.memory.pending.refused_number = None;
        session.open = true;
        session.inflight.begin(window, last_tag);
    }

    /// Detaches a session; waiting best-effort deliveries are dropped.
    pub(crate) fn unbind(&mut self, index: u32) {
        let session = self.slots[index as usize].as_mut().expect("a session index in use");
        assert!(session.is_attached(), "only what is attached can be detached");
        self.links[session.link as usize] = DETACHED;
        session.link = DETACHED;
        session.open = false;
        let passing = core::mem::take(&mut session.passing);
        self.stats.sessions_attached -= 1;
        self.stats.dropped_slow += passing.len() as u64;
        self.stats.queued_events -= passing.len() as u64;
        self.stats.queued_bytes -= passing.bytes() as u64;
    }

    /// Releases the unused memory of a session without its client.
    pub(crate) fn rest(&mut self, index: u32) {
        let session = self.get_mut(index);
        // Cursors in catch-up are found anew when the client is back.
        let plain_until = if session.waiting.is_empty() { 0 } else { session.follow.plain_until };
        session.follow.rest();
        if plain_until != 0 {
            session.follow.plain_until = plain_until;
        }
        if session.inflight.len() == 0 && session.inflight.stale_count() == 0 {
            session.attached.last_tag = session.inflight.last_tag();
            session.inflight.rest();
        }
        if session.waiting.is_empty() {
            session.waiting.rest();
        }
        let PendingWork { structural, later, unreleased, abandoned, .. } = &*session.memory.pending;
        if structural + later == 0 && unreleased.is_empty() && abandoned.is_empty() {
            session.memory.rest();
        }
    }

    /// Whether a step has left other work than waking sessions: claimants to serve, sessions to cut
    /// off, deliveries to prepare or to hand out among the members of shared subscriptions.
    #[inline]
    pub(crate) fn has_unfinished(&self) -> bool {
        let sessions = usize::from(self.supersessions.is_any_ready()) | self.overflowed.len();
        let deliveries = self.prepared.len() | self.dropped.len();
        let shared = self.handed.len() | self.fulfilled.len() | self.returned.len();
        sessions | deliveries | shared != 0
    }

    /// Whether a session's link takes more deliveries.
    pub(crate) fn is_open(&self, index: u32) -> bool {
        self.get(index).open
    }

    /// The link takes deliveries again.
    pub(crate) fn reopen(&mut self, index: u32) {
        self.get_mut(index).open = true;
    }

    /// Takes a session out of the queue of turns to catch up; `false` if it was not in it.
    pub(crate) fn take_turn(&mut self, index: u32) -> bool {
        let session = self.slots[index as usize].as_mut();
        session.is_some_and(|session| core::mem::take(&mut session.follow.catching_up))
    }

    /// Whether a publisher is a session's own client.
    pub(crate) fn is_own(&self, index: u32, publisher: Publisher) -> bool {
        self.get(index).publisher == publisher
    }

    /// Whether a session is in use and attached.
    pub(crate) fn is_attached(&self, index: u32) -> bool {
        self.slots[index as usize].as_ref().is_some_and(|session| session.is_attached())
    }
}
