//! What a durable subscription has beside others: a number, what it may still need of the log, and
//! a position that is written.

use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use whimbrel_event::{EventId, Packed, PubendId, Tick};
use whimbrel_selector::{Compiled, Fences};

use super::{Cursor, Positions, RemoteLogs};
use crate::confirming::{Confirmed, remembered};
use crate::content::Content;
use crate::lazy::{Lazy, at_rest};
use crate::store::{DurableNo, DurablePosition, FormerSelector, LogPlan, OWN, OwnTicks, RemotePosition};

/// Stands for a stream of which a subscription has acknowledged everything that it wants.
pub(crate) const NOTHING: Tick = Tick(u64::MAX);

/// What is kept of a durable subscription. Its position is what its session has not had answered,
/// or where it lags, or where the consolidated stream stands; nothing has to be noted as events
/// come and are acknowledged.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) number: DurableNo,
    /// What it wants was logged after these ticks.
    pub(crate) start: OwnTicks,
    /// The last event of each stream that it wants and that was accepted, or a later tick: who has
    /// got there has got everything. The end of the chain through the filter records, unless it was
    /// not logged.
    pub(crate) newest: OwnTicks,
    /// What the log is held for, as it was last counted: [`NOTHING`], or up to where it has
    /// acknowledged.
    pub(crate) held: OwnTicks,
    /// The digest of the position that was written last.
    pub(crate) written: u64,
    /// Its position may have moved since it was counted.
    pub(crate) dirty: bool,
    /// Some of what it wants may never be logged.
    pub(crate) may_be_volatile: bool,
    /// Its client is there and it was live when its position was last counted.
    pub(crate) is_connected: bool,
    /// What it has of other brokers' streams.
    pub(crate) remote: Lazy<RemoteLogs>,
    rare: Lazy<RareDurable>,
}

/// What few durable subscriptions have at a time.
#[derive(Debug, Default)]
pub(crate) struct RareDurable {
    /// What was acknowledged beyond its position before the broker was restarted, ascending.
    pub(crate) beyond: Vec<EventId>,
    /// Selectors that it has had, oldest first.
    pub(crate) old: Vec<FormerInterest>,
    /// Tags of deliveries at [`whimbrel_event::Qos::ExactlyOnce`] that are over: they are forgotten
    /// when its position is written.
    pub(crate) done: Vec<u16>,
    /// Up to where the cache was seen to have holes.
    pub(crate) holes: OwnTicks,
    /// What it knows of the part of the log that it reads.
    pub(crate) plan: Option<Box<LogPlan>>,
}

at_rest!(
    RareDurable,
    RareDurable { beyond: Vec::new(), old: Vec::new(), done: Vec::new(), holes: [Tick(0); OWN], plan: None }
);

impl Deref for Durable {
    type Target = RareDurable;

    fn deref(&self) -> &RareDurable {
        &self.rare
    }
}

impl DerefMut for Durable {
    fn deref_mut(&mut self) -> &mut RareDurable {
        &mut self.rare
    }
}

/// A selector that a subscription has had.
#[derive(Debug)]
pub(crate) struct FormerInterest {
    text: Option<Box<str>>,
    compiled: Option<Compiled>,
    /// The last ticks for which it counts.
    upto: OwnTicks,
    /// The same of other brokers' streams. Where it is not known yet, what this one wants counts as
    /// well as what the next one does.
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
        self.compiled.as_mut().is_none_or(|compiled| compiled.value(Content(event.unpack())) == Some(true))
    }
}

impl Durable {
    pub(crate) fn new(confirmed: &Confirmed, may_be_volatile: bool) -> Self {
        let Confirmed { number, start, newest, .. } = *confirmed;
        Durable {
            number,
            start,
            newest,
            held: [NOTHING; OWN],
            written: 0,
            dirty: false,
            may_be_volatile,
            is_connected: false,
            remote: Lazy::default(),
            rare: Lazy::default(),
        }
    }

    /// Gives back the memory that is not in use. Where the cache has holes is found out again.
    pub(crate) fn rest(&mut self) {
        if self.beyond.is_empty() && self.old.is_empty() && self.done.is_empty() {
            self.rare.rest();
        }
    }

    /// What another request for the same subscription makes of it; `text` is the selector that it
    /// had.
    pub(crate) fn change(&mut self, confirmed: &Confirmed, text: Option<&str>, fences: &Arc<Fences>) {
        if let Some(upto) = confirmed.until {
            self.old.push(FormerInterest::new(&FormerSelector { selector: text, upto, remote: Vec::new() }, fences));
        }
    }

    /// What the log is held for, for one that has acknowledged so much: what came before its start
    /// was never logged for it, unless that was wanted where it comes from.
    pub(crate) fn hold(&self, acked: &OwnTicks) -> OwnTicks {
        let was_elsewhere = |own: usize| acked[own] < self.remote.unnamed[own];
        core::array::from_fn(|own| if was_elsewhere(own) { acked[own] } else { acked[own].max(self.start[own]) })
    }

    /// Forgets selectors for which nothing is left to get, if it stands there; how many, the
    /// oldest.
    pub(crate) fn forget_old(&mut self, durable_position: &DurablePosition) -> usize {
        if self.old.is_empty() {
            return 0;
        }
        let (before, position) = (self.old.len(), self.hold(&durable_position.acked));
        let is_left = |old: &FormerInterest| {
            let has_remote = |remote: &RemotePosition| {
                !old.remote.has(remote.pubend) || old.remote.get(remote.pubend) > remote.acked
            };
            old.upto.iter().zip(&position).any(|(upto, position)| upto > position)
                || durable_position.remote.iter().any(has_remote)
        };
        // Each ends where the one after it does, or before.
        self.old.retain(is_left);
        before - self.old.len()
    }

    /// Whether it is not known yet from where on its present selector counts in another broker's
    /// stream.
    pub(crate) fn awaits_selector(&self, pubend: PubendId) -> bool {
        self.old.iter().any(|old| !old.remote.has(pubend))
    }
}

impl Cursor {
    /// Whether it had another selector when that event of an own stream, or another's, came, and if
    /// so, whether it wanted it.
    pub(crate) fn wanted_before(&mut self, event: Packed<'_>, is_own: bool) -> Option<bool> {
        let durable = self.durable.as_deref_mut().filter(|durable| !durable.old.is_empty())?;
        let id = event.id();
        if is_own {
            let own = usize::from(id.pubend.index());
            let old = durable.old.iter_mut().find(|old| old.upto.get(own).is_some_and(|upto| id.tick <= *upto))?;
            return Some(old.wants(event));
        }
        if !durable.remote.since.has(id.pubend) {
            return None;
        }
        for old in &mut durable.old {
            let is_known = old.remote.has(id.pubend);
            let counts = !is_known || id.tick <= old.remote.get(id.pubend);
            let wants = counts && old.wants(event);
            if wants || is_known && counts {
                return Some(wants);
            }
        }
        None
    }

    /// An event of another broker that it wants is passed. Whether that broker's log counts for it.
    pub(crate) fn record_newest_remote(&mut self, id: EventId) -> bool {
        let Some(durable) = self.durable.as_deref_mut().filter(|durable| durable.remote.since.has(id.pubend)) else {
            return false;
        };
        durable.remote.newest.advance(id.pubend, id.tick);
        true
    }

    /// An event that it wants is passed.
    pub(crate) fn record_newest(&mut self, id: EventId) {
        if let Some(durable) = &mut self.durable
            && let Some(newest) = durable.newest.get_mut(usize::from(id.pubend.index()))
        {
            *newest = id.tick.max(*newest);
        }
    }
}
