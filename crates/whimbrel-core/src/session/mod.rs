//! Sessions: what a client has subscribed to, what is on its way to it, and where it is attached.

mod deliver;
mod inflight;
mod life;
mod queue;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashTable;
use smallvec::SmallVec;
use whimbrel_event::{Publisher, Qos, Seeded, Time};

pub(crate) use deliver::{Publication, Terms, pop, push_bounded};
pub(crate) use inflight::{Inflight, Settled, Slot, Stage};
pub(crate) use queue::{Queue, Queued};

use crate::api::{Limits, Link, Will};
use crate::follow::GapReason;
use crate::stats::Stats;
use crate::store::{AtomNo, SessionNo, Whom};
use crate::stream::Streams;

/// Clients that are named for the gaps they were told of.
const GAPPY_MAX: usize = 16;

/// No link.
const DETACHED: u32 = u32::MAX;

/// An exactly-once publish that its client has not released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreleased {
    /// What has to be durable before the client may hear that it was accepted.
    pub(crate) atom: AtomNo,
    /// The tag is written, and has to be forgotten.
    pub(crate) is_written: bool,
}

/// What has to do with its being remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Its number among all that were ever remembered.
    pub(crate) number: SessionNo,
    /// It is written, and has to be forgotten when it ends.
    pub(crate) is_kept: bool,
    /// What changes its subscriptions and waits to be durable.
    pub(crate) structural: u32,
    /// What waits for that.
    pub(crate) later: u32,
    /// Tags of deliveries that were written and could not be sent.
    pub(crate) abandoned: Vec<u16>,
    /// Exactly-once publishes that the client has not released.
    pub(crate) unreleased: BTreeMap<u16, Unreleased>,
    /// The number of an event that was refused on the present connection: greater ones are, too, until it comes again.
    pub(crate) refused_number: Option<u64>,
}

/// One client's session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client_id: Box<str>,
    link: u32,
    /// Its number among all attachments; the present one, or the last.
    attachment: u32,
    /// Answers to the present link that wait in the line.
    in_line: u32,
    pub(crate) memory: Memory,
    /// Which pubends its events go to.
    pub(crate) binding: u8,
    pub(crate) publisher: Publisher,
    /// The edge takes more for its link.
    open: bool,
    /// It waits in [`Sessions::overflowed`].
    overflowed: bool,
    /// What its tracked subscriptions have in common.
    pub(crate) follow: Followers,
    /// How long it outlives its connection.
    pub(crate) expiry: Duration,
    pub(crate) subscriptions: SmallVec<[u32; 2]>,
    /// Bytes of the selectors of all subscriptions.
    pub(crate) selector_bytes: usize,
    /// Shared subscriptions of which it is a member.
    pub(crate) groups: SmallVec<[u32; 2]>,
    pub(crate) inflight: Inflight,
    /// Reliable deliveries that wait.
    pub(crate) waiting: Queue,
    /// Best-effort deliveries that wait.
    passing: Queue,
    pub(crate) will: Option<Box<Will>>,
    pub(crate) will_at: Option<Time>,
    pub(crate) expires_at: Option<Time>,
}

impl Session {
    pub(crate) fn is_attached(&self) -> bool {
        self.link != DETACHED
    }

    pub(crate) fn link(&self) -> Option<Link> {
        self.is_attached().then_some(Link(self.link))
    }

    /// Answers to the present link that wait in the line.
    pub(crate) fn in_line(&self) -> u32 {
        self.in_line
    }

    /// It outlives its connection.
    pub(crate) fn is_persistent(&self) -> bool {
        !self.expiry.is_zero()
    }

    /// Best-effort deliveries go out at once.
    pub(crate) fn is_open(&self) -> bool {
        self.open && self.passing.is_empty()
    }

    /// How much is on its way to it already.
    pub(crate) fn load(&self) -> usize {
        self.inflight.len() + self.waiting.len() + self.passing.len() + self.follow.queue.len()
    }
}

/// What the tracked subscriptions of a session have in common.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Those that have fallen behind, those first whose turn it is.
    pub(crate) lagging: VecDeque<u32>,
    /// The session waits for its turn to catch up.
    pub(crate) catching_up: bool,
    /// What waits for tracked subscriptions that are live, while the client is there.
    pub(crate) queue: Queue,
    /// What waited last was taken from `queue`.
    turn: bool,
    /// Whoever catches up goes before what waits, next time.
    pub(crate) catches_up_first: bool,
    /// It is known how long the client was away.
    pub(crate) away_known: bool,
    /// Gaps of all of them.
    pub(crate) gaps: u64,
}

/// All sessions, and the bounds and counters of what they hold.
#[derive(Debug)]
pub(crate) struct Sessions {
    /// Boxed, so that growing moves pointers: no copy of all sessions, and no memory for twice as many.
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    by_client: HashTable<u32>,
    /// Link to session.
    links: Vec<u32>,
    hasher: Seeded,
    /// Attachments so far.
    attachments: u32,
    pub(crate) limits: Limits,
    pub(crate) stats: Stats,
    /// Deliveries of this step that have to be durable before they are sent: session, tag, and the session's number.
    pub(crate) prepared: VecDeque<(u32, u16, SessionNo)>,
    /// Sessions of which deliveries were dropped in this step.
    pub(crate) dropped: Vec<(u32, SessionNo)>,
    /// Attached sessions whose queue outgrew its bound in this step.
    overflowed: Vec<u32>,
    /// Clients with most gaps, in no order; at most [`GAPPY_MAX`].
    gappy: Vec<(Box<str>, u64)>,
}

/// Notes a session among those with most gaps, if it is one of them.
fn note_gappy(gappy: &mut Vec<(Box<str>, u64)>, session: &Session) {
    if let Some(known) = gappy.iter_mut().find(|known| known.0 == session.client_id) {
        known.1 = session.follow.gaps;
    } else if gappy.len() < GAPPY_MAX {
        gappy.push((session.client_id.clone(), session.follow.gaps));
    } else if let Some(least) =
        gappy.iter_mut().min_by_key(|known| known.1).filter(|least| least.1 < session.follow.gaps)
    {
        *least = (session.client_id.clone(), session.follow.gaps);
    }
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
            stats: Stats::default(),
            prepared: VecDeque::new(),
            dropped: Vec::new(),
            overflowed: Vec::new(),
            gappy: Vec::new(),
        }
    }

    pub(crate) fn get(&self, index: u32) -> &Session {
        self.slots[index as usize].as_ref().expect("a session index in use")
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Session {
        self.slots[index as usize].as_mut().expect("a session index in use")
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

    pub(crate) fn create(&mut self, client_id: &str) -> u32 {
        let hash = self.hasher.hash_one(client_id);
        let index = self.create_unnamed(client_id);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.by_client.insert_unique(hash, index, |&i| {
            hasher.hash_one(&*slots[i as usize].as_ref().expect("a session index in use").client_id)
        });
        index
    }

    /// A session that is not found by its client id.
    pub(crate) fn create_unnamed(&mut self, client_id: &str) -> u32 {
        let session = Box::new(Session {
            client_id: client_id.into(),
            link: DETACHED,
            attachment: 0,
            in_line: 0,
            memory: Memory::default(),
            // The same after a restart, so that a publisher's events stay in one stream.
            binding: Streams::binding(Publisher::named(client_id).to_bits()),
            publisher: Publisher::named(client_id),
            open: false,
            overflowed: false,
            follow: Followers::default(),
            expiry: Duration::ZERO,
            subscriptions: SmallVec::new(),
            selector_bytes: 0,
            groups: SmallVec::new(),
            inflight: Inflight::default(),
            waiting: Queue::default(),
            passing: Queue::default(),
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
        self.stats.sessions += 1;
        index
    }

    /// Removes a detached session; what waited for it is dropped and counted.
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
        self.stats.sessions -= 1;
        for queue in [&session.waiting, &session.passing, &session.follow.queue] {
            self.stats.dropped_session_ended += queue.len() as u64;
            self.stats.queued_events -= queue.len() as u64;
            self.stats.queued_bytes -= queue.bytes() as u64;
        }
    }

    /// Ties a session to a link with that window.
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
        (session.link, session.attachment, session.in_line) = (link.0, attachment, 0);
        session.memory.refused_number = None;
        session.open = true;
        session.inflight.begin(window);
    }

    /// Unties a session; best-effort deliveries that waited are dropped.
    pub(crate) fn unbind(&mut self, index: u32) {
        let session = self.slots[index as usize].as_mut().expect("a session index in use");
        assert!(session.is_attached(), "only what is attached can be detached");
        self.links[session.link as usize] = DETACHED;
        session.link = DETACHED;
        session.open = false;
        session.inflight.shrink();
        let passing = core::mem::take(&mut session.passing);
        self.stats.sessions_attached -= 1;
        self.stats.dropped_slow += passing.len() as u64;
        self.stats.queued_events -= passing.len() as u64;
        self.stats.queued_bytes -= passing.bytes() as u64;
    }

    /// A session that has to be cut off because too much waits for it.
    pub(crate) fn pop_overflowed(&mut self) -> Option<u32> {
        let index = self.overflowed.pop()?;
        if let Some(session) = &mut self.slots[index as usize] {
            session.overflowed = false;
        }
        Some(index)
    }

    /// Takes a session out of those that wait for their turn to catch up; `false` if it is none of them.
    pub(crate) fn take_turn(&mut self, index: u32) -> bool {
        let session = self.slots[index as usize].as_mut();
        session.is_some_and(|session| core::mem::take(&mut session.follow.catching_up))
    }

    /// A subscription of that session has been told that something may be missing, or would have been.
    pub(crate) fn count_gap(&mut self, index: u32, reason: GapReason) {
        let Sessions { slots, stats, gappy, .. } = self;
        stats.count_gap(reason);
        let session = slots[index as usize].as_mut().expect("a session index in use");
        session.follow.gaps += 1;
        note_gappy(gappy, session);
    }

    /// The clients that have been told of most gaps, at most [`GAPPY_MAX`], those with most first.
    pub(crate) fn gappy(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.gappy.iter().map(|(client, gaps)| (client.to_string(), *gaps)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    /// Who speaks over a link at present.
    pub(crate) fn whom(&self, link: Link) -> Whom {
        Whom { link, attachment: self.get(self.of(link)).attachment }
    }

    /// The session of somebody who may have gone.
    fn present(&mut self, whom: Whom) -> Option<&mut Session> {
        let index = self.attached_to(whom.link)?;
        let session = self.slots[index as usize].as_mut().expect("links lead to sessions");
        (session.attachment == whom.attachment).then_some(&mut **session)
    }

    /// The session at that place, if its client is that publisher.
    pub(crate) fn of_publisher(&mut self, index: u32, publisher: Publisher) -> Option<&mut Session> {
        let session = self.slots.get_mut(index as usize)?.as_deref_mut()?;
        (session.publisher == publisher).then_some(session)
    }

    /// Whether a publish that came again is one that was not refused meanwhile, as far as its client is there.
    pub(crate) fn is_still_repeat(&mut self, whom: Whom, tag: u16, qos: Qos) -> bool {
        let present = self.present(whom);
        present.is_none_or(|session| match qos {
            Qos::ExactlyOnce => match session.memory.unreleased.get(&tag) {
                // It repeats one that had another tag.
                Some(known) if !known.is_written && session.memory.refused_number.is_some() => {
                    session.memory.unreleased.remove(&tag);
                    false
                }
                known => known.is_some(),
            },
            Qos::AtMostOnce | Qos::AtLeastOnce => session.memory.refused_number.is_none(),
        })
    }

    /// An answer to that client waits in the line.
    pub(crate) fn stand_in_line(&mut self, whom: Whom) {
        if let Some(session) = self.present(whom) {
            session.in_line += 1;
        }
    }

    /// Whether an answer to that client waits in the line.
    pub(crate) fn stands_in_line(&mut self, whom: Whom) -> bool {
        self.present(whom).is_some_and(|session| session.in_line > 0)
    }

    /// An answer to that client waits no more; whether it is still there to get it.
    pub(crate) fn leave_line(&mut self, whom: Whom) -> bool {
        let present = self.present(whom);
        present.is_some_and(|session| {
            session.in_line -= 1;
            true
        })
    }

    /// Whether the session at that place is the one with that number.
    pub(crate) fn is_numbered(&self, index: u32, number: SessionNo) -> bool {
        let session = self.slots.get(index as usize).and_then(Option::as_ref);
        session.is_some_and(|session| session.memory.number == number)
    }

    /// Whether that is what a session's own client has published.
    pub(crate) fn is_own(&self, index: u32, publisher: Publisher) -> bool {
        self.get(index).publisher == publisher
    }

    /// Whether a session is in use and attached.
    pub(crate) fn is_attached(&self, index: u32) -> bool {
        self.slots[index as usize].as_ref().is_some_and(|session| session.is_attached())
    }
}
