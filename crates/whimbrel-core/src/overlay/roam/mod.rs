//! Sessions that move: a client may connect to any broker, and its session comes there.
//!
//! - `map`: who is asked for a session, and who has a copy of it. `leaders`: for whom that is
//!   known. `directory`: what a clerk knows. `telling`: what is told to clerks.
//! - `seeking`, `deciding`: a CONNECT waits until it is known who has the session, and until that
//!   is here.
//! - `reviewing`: everybody is asked what a publisher has published there, if somebody could not be
//!   asked before.
//! - `giving`: a session goes to somebody else. `settling`: what was given away is dropped when it
//!   is safe there.
//! - `copies`: what a replica has. `copying`: an owner sends it. `takeover`: a replica takes it,
//!   and takes over the sessions of a broker that has ended.
//! - `publishing`: a client that publishes at one broker after the other. `searches`: open
//!   searches. `past`: which brokers there were. `gauges`: what metrics show.
//!
//! All of this is told in messages, which may be lost, come twice or late. Whoever wants something
//! asks again.

mod copies;
mod copying;
mod deciding;
mod directory;
mod gauges;
mod giving;
mod leaders;
mod map;
mod past;
mod publishing;
mod reviewing;
mod searches;
mod seeking;
mod settling;
mod takeover;
mod telling;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use whimbrel_event::{HostId, PredecessorsBuf, Tick, Time};
use whimbrel_net::Pace;
use whimbrel_net::topology::LinkState;

use super::{Due, Overlay};
use crate::api::Output;
use crate::broker::Broker;
use crate::store::{BatchNo, Key, KnownBrokerRecord, MapValue};

pub use copies::{COPIES_BYTES_MAX, COPIES_MAX};
pub use directory::DIRECTORY_MAX;
pub use gauges::RoamGauges;
pub(crate) use giving::Want;
pub(crate) use publishing::said_of;
pub(crate) use searches::Arrival;

use copies::SessionCopies;
use copying::Copying;
use directory::{Directory, KnownClaim};
use map::{Map, hash_of};
use past::{Past, SETTLED};
use publishing::Waits;
use searches::Searches;
use takeover::Takeover;
use telling::Telling;

/// Sessions that have ended and are remembered for [`ENDED_LIFETIME`].
pub const ENDED_MAX: usize = 65_536;

/// For so long it is remembered of a session that ended who its client was: its publisher may go on
/// at another broker.
pub const ENDED_LIFETIME: Duration = Duration::from_secs(600);

/// A replica that can still be reached is changed only after the brokers have been the same for so
/// long.
pub const STILL: Duration = Duration::from_secs(10);

/// For which attachment of its client a session is, and what has to do with its moving.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Greater with each attachment, at whichever broker.
    pub(crate) epoch: u64,
    /// When, nanoseconds since 1970 by this broker's clock.
    pub(crate) connected_at: u64,
    /// It belongs to somebody else by now.
    pub(crate) given: Option<Box<GivenSession>>,
    /// The last reliable events that its client published here, one of each stream.
    pub(crate) last: PredecessorsBuf,
    /// What the reliable events that its client publishes have to come after: the first one, and
    /// those soon after its session came here.
    pub(crate) after: PredecessorsBuf,
    /// Somebody could not be asked for the number that the client gave last, also if that was
    /// before it came here, and has not been asked since.
    pub(crate) maybe_repeats: bool,
    /// What the client has published before that one came here.
    waits: Waits,
    /// How the session began here; `Plain` again once its client has used it, and attached again.
    beginning: Beginning,
    /// The own interest has it from this version on, if it came from elsewhere; 0: that version has
    /// no number yet.
    settling: Option<u64>,
    /// The batch with which the session, and its place as last recorded, are durable here.
    written: BatchNo,
    /// When it came here, or its client resumed a subscription that it had elsewhere.
    came: Time,
    /// Since when its client is there, if it is.
    attached: Time,
    copied: CopyState,
}

/// How a session began here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// The session that the client had goes on, or it had none.
    Plain,
    /// No broker that has the client's session could be reached, and the client names the positions
    /// of its subscriptions itself. It may not have heard yet that the session was begun anew.
    Anew,
    /// The same, and the client has resumed a subscription since: it has heard of it. After a
    /// restart `Plain`.
    Resumed,
}

/// Where a session went.
#[derive(Clone, Debug)]
pub(crate) struct GivenSession {
    pub(crate) to: HostId,
    /// The epoch that it has there.
    pub(crate) epoch: u64,
    /// Since when what is here of it is as it is.
    since: Time,
    /// When all of it had gone there, as far as is known here.
    went: Option<Time>,
    /// In which life of that broker it was asked for, and under which number, if that is known: the
    /// same question gets the same answer.
    asker: Option<(u64, u64)>,
    /// That is durable.
    is_written: bool,
    /// What it went as, as long as it may be asked for again and has several parts.
    body: Option<Arc<[u8]>>,
}

/// What a replica has of a session.
#[derive(Clone, Copy, Debug, Default)]
struct CopyState {
    /// Grows with each change.
    version: u64,
    /// The version with which what seldom changes has changed last.
    structure: u64,
    /// The version with which it was noted last from where on the logs of others count for it.
    counted: u64,
    /// It waits for being copied.
    is_listed: bool,
    /// Who was sent the whole, and with which structure.
    sent: Option<(HostId, u64)>,
    /// Who has the whole, and up to which version.
    taken: Option<(HostId, u64)>,
    /// Among which brokers, as of [`Map::hash`], who is to have it by rank.
    ranked: (u64, Option<HostId>),
}

impl Attachment {
    pub(crate) fn new(now: Time, epoch: u64, connected_at: u64) -> Attachment {
        // Greater than before a restart, too.
        let version = now.as_nanos() / 1_000_000;
        let copied = CopyState { version, structure: version, ..CopyState::default() };
        let (given, settling) = (None, None);
        let (last, after) = (PredecessorsBuf::new(), PredecessorsBuf::new());
        let (maybe_repeats, waits) = (false, Waits::default());
        Attachment {
            epoch,
            connected_at,
            given,
            last,
            after,
            maybe_repeats,
            waits,
            beginning: Beginning::Plain,
            settling,
            written: BatchNo(0),
            came: now,
            attached: now,
            copied,
        }
    }

    /// The replica that has the whole of it, as far as it has confirmed that.
    pub(crate) fn replica(&self) -> Option<HostId> {
        self.copied.taken.filter(|(_, version)| *version >= self.copied.structure).map(|(host, _)| host)
    }

    /// Whether it was begun anew, and its client has not resumed a subscription yet.
    pub(crate) fn awaits_resumption(&self) -> bool {
        self.beginning == Beginning::Anew
    }

    /// Whether its client may resume subscriptions that it had elsewhere.
    pub(crate) fn may_resume(&self) -> bool {
        self.beginning != Beginning::Plain
    }

    /// Its client resumes a subscription that it had elsewhere: the former session is dropped when
    /// the own interest that has the subscription, and has no number yet, is in force.
    pub(crate) fn settle_later(&mut self, now: Time) {
        (self.settling, self.came) = (Some(0), now);
        if self.awaits_resumption() {
            self.beginning = Beginning::Resumed;
        }
    }

    /// Its client is attached anew, and there is no other broker.
    pub(crate) fn renew_alone(&mut self) {
        (self.epoch, self.given) = (self.epoch.saturating_add(1), None);
    }

    /// Its client is attached anew. `is_used`: it has used the session before.
    pub(crate) fn renew(&mut self, new: Attachment, is_used: bool) {
        if new.after.is_empty() {
            self.waits.begin_anew();
        } else {
            // It has been elsewhere.
            (self.after, self.waits) = (new.after, Waits::default());
        }
        (self.epoch, self.connected_at, self.given, self.attached) = (new.epoch, new.connected_at, None, new.attached);
        self.maybe_repeats = new.maybe_repeats;
        self.beginning = if is_used { Beginning::Plain } else { self.beginning };
    }
}

/// A session that has ended.
#[derive(Clone, Debug)]
struct EndedSession {
    epoch: u64,
    connected_at: u64,
    at: Time,
    /// As of [`Attachment::lasts`].
    lasts: PredecessorsBuf,
    /// As of [`Attachment::maybe_repeats`].
    maybe_repeats: bool,
}

/// Whose turn it is where there are more than may be asked of at a time: behind these clients.
#[derive(Debug, Default)]
struct Turns {
    given: Box<str>,
    void: Box<str>,
}

/// All of them, beginning behind a client.
fn turn<'a, V>(all: &'a BTreeMap<Box<str>, V>, after: &str) -> impl Iterator<Item = (&'a Box<str>, &'a V)> {
    use core::ops::Bound::{Excluded, Included, Unbounded};
    all.range::<str, _>((Excluded(after), Unbounded)).chain(all.range::<str, _>((Unbounded, Included(after))))
}

/// What a broker knows of sessions that move.
#[derive(Debug, Default)]
pub(crate) struct Roam {
    map: Map,
    past: Past,
    /// Since when these have been the brokers.
    still_since: Time,
    directory: Directory,
    telling: Telling,
    searches: Searches,
    copies: SessionCopies,
    copying: Copying,
    ended: BTreeMap<Box<str>, EndedSession>,
    ended_by_age: BTreeSet<(Time, Box<str>)>,
    /// Clients of whose sessions somebody has something that is void, as far as this broker is
    /// their clerk.
    voided: BTreeSet<Box<str>>,
    /// Sessions that were given away, with how often it was asked in vain whether they are safe.
    given: BTreeMap<Box<str>, u32>,
    /// Brokers of whose sessions this one knew before it was started, and which have not told it
    /// anything since.
    forgotten: BTreeSet<HostId>,
    /// Brokers that there are or were, as they are written: with the life in which they were told
    /// everything.
    known: BTreeMap<HostId, u64>,
    /// Clients whose sessions have come since the own interest had a number.
    unnamed: Vec<Box<str>>,
    takeover: Takeover,
    turns: Turns,
}

impl Roam {
    /// This broker begins.
    pub(super) fn begun(incarnation: u64, pace: Pace) -> Roam {
        let mut roam = Roam { past: Past::new(pace), ..Roam::default() };
        roam.searches.number_from(incarnation);
        roam.telling.number_from(incarnation);
        roam.copying.number_from(incarnation);
        roam
    }

    /// The next version of the own interest has a client's session: it settles with that.
    pub(crate) fn name_later(&mut self, client: &str) {
        self.unnamed.push(client.into());
    }

    /// How soon a silent broker is noticed.
    pub(super) fn pace(&self) -> Pace {
        self.past.pace
    }
}

impl Overlay {
    /// A broker has ended.
    pub(super) fn record_end(&mut self, now: Time) {
        self.roam.past.record_end(now);
    }

    /// There are other brokers, or may be: a client's session may be with one of them.
    pub(crate) fn has_company(&self, now: Time) -> bool {
        let may_be_elsewhere = self.net.topology().len() > 1
            || self.net.is_young(now)
            || self.net.lacks_everyone()
            || self.roam.directory.len() > 0
            || !self.roam.past.is_empty();
        self.moves_sessions && may_be_elsewhere
    }
}

impl Overlay {
    /// Another broker has told something of its sessions.
    fn record_known(&mut self, host: HostId) {
        self.roam.forgotten.remove(&host);
    }
}

impl Broker {
    /// What was written of other brokers before the start is taken over: who had streams then, and
    /// may have sessions.
    pub(crate) fn restore_known(&mut self) {
        let mut known = core::mem::take(&mut self.store.known);
        known.retain(|host, _| self.streams.ended_at(*host).is_none());
        for (host, KnownBrokerRecord { name, pubends, birth, .. }) in &known {
            if self.streams.add_host(*host, *pubends, *birth, true) {
                self.streams.name_host(*host, name);
            }
        }
        let overlay = &mut self.overlay;
        if let Some(upto) = self.streams.last_end() {
            overlay.roam.past.record_end(Time::from_nanos(upto.0));
        }
        // This broker itself is in another one of its lives now.
        let others = known.iter().map(|(host, known)| (*host, known.incarnation, &*known.name));
        let own = (overlay.net.host(), overlay.net.incarnation() - 1, overlay.net.name());
        overlay.roam.past.record(self.now, Map::new(others.chain([own])), SETTLED);
        overlay.roam.forgotten = known.keys().copied().collect();
        overlay.roam.known = known.into_iter().map(|(host, known)| (host, known.incarnation)).collect();
    }

    /// Writes that a host's streams are followed, also if there never was a path to it. If it ends,
    /// the broker that has its name by then must be told so by those that have heard of it, after a
    /// restart, too; else a position in its streams would never be known to have ended.
    pub(in crate::overlay) fn record_heard_of(&mut self, host: HostId, name: &str, (pubends, birth): ((u8, u8), Tick)) {
        let (has_log, has_ended) = (self.has_log(), self.streams.has_ended(host));
        let overlay = &mut self.overlay;
        if !overlay.moves_sessions || !has_log || has_ended || overlay.roam.known.contains_key(&host) {
            return;
        }
        overlay.roam.known.insert(host, 0);
        let known = KnownBrokerRecord { name, pubends, birth, incarnation: 0 };
        self.store.write_queue.put(|key| Key::Known(host).put(key), |value| known.put_versioned(value));
        self.store.write_queue.seal();
    }

    /// Which brokers there are is written, and in which of their lives they have been told
    /// everything by the others, if they have.
    fn record_brokers(&mut self, is_settled: bool) {
        let (has_log, write_queue) = (self.has_log(), &mut self.store.write_queue);
        let overlay = &mut self.overlay;
        let Overlay { net, roam, .. } = overlay;
        let is_other = |state: &&LinkState| state.host != net.host();
        for state in net.topology().states().filter(is_other) {
            if !roam.map.has(state.host) {
                continue;
            }
            let known = roam.known.get(&state.host).copied();
            let incarnation = if is_settled { state.incarnation } else { known.unwrap_or(0) };
            if known == Some(incarnation) {
                continue;
            }
            roam.known.insert(state.host, incarnation);
            if has_log {
                let pubends = (state.reliable, state.further);
                let known = KnownBrokerRecord { name: &*state.name, pubends, birth: state.birth, incarnation };
                write_queue.put(|key| Key::Known(state.host).put(key), |value| known.put_versioned(value));
                write_queue.seal_large();
            }
        }
        if has_log {
            write_queue.seal();
        }
    }

    /// A session ends: for a while it is known that it did.
    pub(crate) fn record_ended_session(&mut self, now: Time, index: u32) {
        let session = self.sessions.get_mut(index);
        let Some(place) = session.memory.roam.take() else { return };
        let client = session.client_id.clone();
        if !self.overlay.is_open() {
            return;
        }
        let overlay = &mut self.overlay;
        let roam = &mut overlay.roam;
        roam.given.remove(&client);
        if let Some((replica, _)) = place.copied.sent {
            roam.copying.forget_at(replica, &client);
            overlay.set_once(now + copying::SOON, Due::Copy);
        }
        let roam = &mut overlay.roam;
        if roam.ended.len() >= ENDED_MAX
            && let Some((_, oldest)) = roam.ended_by_age.pop_first()
        {
            roam.ended.remove(&oldest);
        }
        let (lasts, Attachment { epoch, connected_at, maybe_repeats, .. }) = (place.lasts(), *place);
        let ended = EndedSession { epoch, connected_at, at: now, lasts, maybe_repeats };
        if let Some(old) = roam.ended.insert(client.clone(), ended) {
            roam.ended_by_age.remove(&(old.at, client.clone()));
        }
        roam.ended_by_age.insert((now, client.clone()));
        self.record_claim(now, &client);
    }

    /// A session that is safe somewhere else, or void, goes without a word: its will is not
    /// published.
    fn discard(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        let session = self.sessions.get_mut(index);
        assert!(!session.is_attached(), "whoever is there is told first");
        session.will = None;
        if let Some(at) = session.will_at.take() {
            self.timers.remove(at, crate::api::Reason::WillDelay, index);
        }
        let client = session.client_id.clone();
        let sent = session.memory.roam.as_deref().and_then(|place| place.copied.sent);
        self.forget_place(index);
        self.sessions.get_mut(index).memory.roam = None;
        let overlay = &mut self.overlay;
        overlay.roam.given.remove(&client);
        if let Some((replica, _)) = sent {
            overlay.roam.copying.forget_at(replica, &client);
            overlay.set_once(now + copying::SOON, Due::Copy);
        }
        self.end(now, index, out);
        self.record_claim(now, &client);
    }

    /// Who can be reached has changed, perhaps; whether it has.
    pub(super) fn check_map(&mut self, now: Time, out: &mut dyn Output) -> bool {
        let overlay = &mut self.overlay;
        let Overlay { net, roam, moves_sessions, .. } = overlay;
        let is_other = |state: &&LinkState| state.host != net.host() && net.routes().is_reachable(state.host);
        let others = net.topology().states().filter(is_other);
        // Where sessions stay, each broker is alone with its own.
        let others = others.filter(|_| *moves_sessions);
        let others = others.map(|state| (state.host, state.incarnation, &*state.name));
        let map = Map::new(others.chain([(net.host(), net.incarnation(), net.name())]));
        if map.hash() == roam.map.hash() {
            return false;
        }
        let old = core::mem::replace(&mut roam.map, map);
        let come: Vec<HostId> = roam.map.hosts().filter(|host| !old.has(*host)).collect();
        let is_told_late = roam.takeover.record_arrived(&come);
        roam.past.record(now, old.clone(), now.since(roam.still_since));
        roam.still_since = now;
        if roam.map.len() > 1 || old.len() > 1 || !roam.telling.has_walked() {
            // Alone it has told nobody anything, not even itself; but it may be about to, and has
            // another incarnation now.
            roam.telling.begin_walk(if old.len() > 1 { old } else { Map::default() }, &roam.map);
            overlay.set_once(now, Due::Tell);
            overlay.set_once(now + STILL, Due::Still);
        }
        if is_told_late {
            overlay.set_once(now + settling::SETTLE_EVERY, Due::Settle);
        }
        self.record_brokers(false);
        self.check_searches(now, out);
        true
    }

    /// The brokers have been the same for a while: replicas are changed, and later everybody has
    /// been told everything.
    pub(super) fn check_replicas(&mut self, now: Time) {
        let overlay = &mut self.overlay;
        let roam = &mut overlay.roam;
        let (still, settled) = (roam.still_since + STILL, roam.still_since + SETTLED);
        if still > now {
            return overlay.set_once(still, Due::Still);
        }
        if settled > now {
            roam.telling.begin_walk(roam.map.clone(), &roam.map);
            overlay.set_once(now, Due::Tell);
            return overlay.set_once(settled, Due::Still);
        }
        roam.past.settle(&roam.map, |host| self.streams.has_ended(host));
        self.record_brokers(true);
    }
}
