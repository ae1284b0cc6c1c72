//! State of a durable subscription: a number, what it may still need of the log, and a position
//! that is written.

use std::sync::Arc;

use whimbrel_event::{EventId, Packed, PubendId, Tick};
use whimbrel_selector::{Compiled, Fences};

use super::{Cursor, Positions, RemoteLogs};
use crate::content::Content;
use crate::lazy::{Lazy, at_rest};
use crate::store::{CompactTicks, DurableNo, DurablePosition, LogPlan, OWN, OwnTicks, RemotePosition, own_place};
use crate::subscription::{FormerSelector, LoggedFrom, remembered};

/// Stands for a stream in which a subscription has acknowledged all wanted events.
pub(crate) const NOTHING: Tick = Tick(u64::MAX);

/// A cursor's durable state. The position is computed: from unanswered deliveries of the session,
/// or else from catch-up, or else from the consolidated stream. So nothing is recorded as events
/// are given and acknowledged.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) number: DurableNo,
    /// Its interest is logged after these ticks.
    pub(crate) start: CompactTicks,
    /// The last accepted event of each stream that it wants, or a later tick: at that tick it has
    /// everything. The end of the chain through the filter records, unless the event was not
    /// logged.
    pub(crate) newest: CompactTicks,
    /// The ticks that the log is held from, as last counted: [`NOTHING`], or up to where it has
    /// acknowledged.
    pub(crate) held: CompactTicks,
    /// The digest of the last written position.
    pub(crate) written: u64,
    /// The position may have moved since it was last counted.
    pub(crate) dirty: bool,
    /// Some wanted events may never be logged.
    pub(crate) may_be_volatile: bool,
    /// The client was connected and the cursor caught up when its position was last counted.
    pub(crate) is_connected: bool,
    /// State for other brokers' streams.
    pub(crate) remote: Lazy<RemoteLogs>,
    pub(crate) rare: Lazy<RareDurable>,
}

/// State that few durable subscriptions have at a time.
#[derive(Debug, Default)]
pub(crate) struct RareDurable {
    /// Events acknowledged beyond the position before the broker restarted, ascending.
    pub(crate) beyond: Vec<EventId>,
    /// Former selectors, oldest first.
    pub(crate) old: Vec<FormerInterest>,
    /// Tags of completed deliveries at [`whimbrel_event::Qos::ExactlyOnce`]: they are forgotten
    /// when the position is written.
    pub(crate) done: Vec<u16>,
    /// Up to where the cache was seen to have holes.
    pub(crate) holes: OwnTicks,
    /// The plan for the part of the log that is read.
    pub(crate) plan: Option<Box<LogPlan>>,
}

at_rest!(
    RareDurable,
    RareDurable { beyond: Vec::new(), old: Vec::new(), done: Vec::new(), holes: [Tick(0); OWN], plan: None }
);

/// A selector that a subscription has had.
#[derive(Debug)]
pub(crate) struct FormerInterest {
    text: Option<Box<str>>,
    compiled: Option<Compiled>,
    /// The last ticks for which it counts.
    upto: OwnTicks,
    /// The last ticks in other brokers' streams. Where they are unknown yet, events match that this
    /// selector or the next one wants.
    pub(crate) remote: Positions,
}

impl FormerInterest {
    pub(crate) fn new(former: &FormerSelector<'_>, fences: &Arc<Fences>) -> Self {
        let text = former.selector;
        let compiled = text.map(|text| Compiled::new(&remembered(text)).with_fences(fences.clone()));
        let remote = former.remote.iter().copied().collect();
        FormerInterest { text: text.map(Box::from), compiled, upto: former.upto, remote }
    }

    pub(crate) fn view(&self) -> FormerSelector<'_> {
        FormerSelector { selector: self.text.as_deref(), upto: self.upto, remote: self.remote.iter().collect() }
    }

    fn wants(&mut self, event: Packed<'_>) -> bool {
        self.compiled.as_mut().is_none_or(|compiled| compiled.value(Content(&event.unpack())) == Some(true))
    }
}

impl Durable {
    pub(crate) fn new(logged: &LoggedFrom, may_be_volatile: bool) -> Self {
        let LoggedFrom { number, start, newest, .. } = *logged;
        Durable {
            number,
            start: start.into(),
            newest: newest.into(),
            held: [NOTHING; OWN].into(),
            written: 0,
            dirty: false,
            may_be_volatile,
            is_connected: false,
            remote: Lazy::default(),
            rare: Lazy::default(),
        }
    }

    /// Frees memory that is not in use. Holes in the cache will be found again.
    pub(crate) fn rest(&mut self) {
        if self.rare.beyond.is_empty() && self.rare.old.is_empty() && self.rare.done.is_empty() {
            self.rare.rest();
        }
    }

    /// Changes the subscription to another request; `text` is its selector so far.
    pub(crate) fn change(&mut self, logged: &LoggedFrom, text: Option<&str>, fences: &Arc<Fences>) {
        if let Some(upto) = logged.until {
            self.rare
                .old
                .push(FormerInterest::new(&FormerSelector { selector: text, upto, remote: Vec::new() }, fences));
        }
    }

    /// The ticks that the log is held from, once `acked` is acknowledged: events before its start
    /// were never logged for it, except for an imported one, at its previous broker.
    pub(crate) fn hold(&self, acked: &OwnTicks) -> OwnTicks {
        let was_elsewhere = |own: usize| acked[own] < self.remote.unnamed[own];
        core::array::from_fn(|own| if was_elsewhere(own) { acked[own] } else { acked[own].max(self.start.get(own)) })
    }

    /// Forgets selectors that have no events left behind the position; returns how many, the
    /// oldest.
    pub(crate) fn forget_old(&mut self, durable_position: &DurablePosition) -> usize {
        if self.rare.old.is_empty() {
            return 0;
        }
        let (before, position) = (self.rare.old.len(), self.hold(&durable_position.acked));
        let is_left = |old: &FormerInterest| {
            let has_remote = |remote: &RemotePosition| {
                !old.remote.has(remote.pubend) || old.remote.get(remote.pubend) > remote.acked
            };
            old.upto.iter().zip(&position).any(|(upto, position)| upto > position)
                || durable_position.remote.iter().any(has_remote)
        };
        // Each ends where the next one does, or before.
        self.rare.old.retain(is_left);
        before - self.rare.old.len()
    }

    /// Records a wanted event that is passed, of an own reliable stream or another one; returns
    /// whether the stream's log counts for the subscription.
    #[inline]
    pub(crate) fn record_newest(&mut self, id: EventId, is_own: bool) -> bool {
        if is_own {
            let own = own_place(id.pubend);
            self.newest.set(own, id.tick.max(self.newest.get(own)));
        }
        let counts = self.remote.since.has(id.pubend);
        if counts {
            self.remote.newest.advance(id.pubend, id.tick);
        }
        is_own || counts
    }

    /// Whether it is unknown yet since when the present selector counts in another broker's stream.
    pub(crate) fn awaits_selector(&self, pubend: PubendId) -> bool {
        self.rare.old.iter().any(|old| !old.remote.has(pubend))
    }
}

impl Cursor {
    /// Whether a former selector counts for an event of an own or remote stream; if so, whether it
    /// wanted the event.
    pub(crate) fn wanted_before(&mut self, event: Packed<'_>, is_own: bool) -> Option<bool> {
        let durable = self.durable.as_deref_mut().filter(|durable| !durable.rare.old.is_empty())?;
        let id = event.id();
        if is_own {
            // Best effort is not logged: no former selector counts for it.
            let own = usize::from(id.pubend.reliable_place()?);
            let old = durable.rare.old.iter_mut().find(|old| old.upto.get(own).is_some_and(|upto| id.tick <= *upto))?;
            return Some(old.wants(event));
        }
        if !durable.remote.since.has(id.pubend) {
            return None;
        }
        for old in &mut durable.rare.old {
            let is_known = old.remote.has(id.pubend);
            let counts = !is_known || id.tick <= old.remote.get(id.pubend);
            let wants = counts && old.wants(event);
            if wants || is_known && counts {
                return Some(wants);
            }
        }
        None
    }
}
