//! The composition of the core: its parts, and the dispatch of inputs to them.

use std::sync::Arc;

use whimbrel_event::{HostId, Tick, Time, split_mix};
use whimbrel_selector::{Expensive, Fences};

use crate::api::{Accepted, Input, Kick, Limits, Link, Output, Reason};
use crate::cache::{Cache, Plan};
use crate::caching::{CacheInterest, Division};
use crate::copies::EventCopies;
use crate::cursor::{CatchUpTurns, Cursors, ExpectedEvents};
use crate::fault::Faults;
use crate::overlay::Overlay;
use crate::overlay::ProfileMap;
use crate::retained::Retained;
use crate::route::Router;
use crate::session::Sessions;
use crate::shared::Groups;
use crate::stats::{GapCounts, Stats};
use crate::store::{Answer, Batch, BatchNo, Fetch, Store, Wait};
use crate::stream::tell;
use crate::stream::{Sources, Streams};
use crate::timers::Timers;
use crate::topic::{Profile, Rates};

/// Entries of the commit queue that are handled before other work has its turn.
const COMMIT_SLICE: usize = 512;

/// Deadlines that are handled before other work has its turn.
const EXPIRE_SLICE: usize = 256;

/// Separates the seed of the index of retained topics from the others.
const RETAINED_SEED: u64 = 0x7265_7461_696e_6564;

/// The broker's core. See the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Broker {
    pub(crate) sessions: Sessions,
    pub(crate) router: Router,
    pub(crate) groups: Groups,
    pub(crate) retained: Retained,
    pub(crate) streams: Sources,
    pub(crate) timers: Timers,
    pub(crate) cursors: Cursors,
    pub(crate) expected: ExpectedEvents,
    pub(crate) cache: Cache,
    pub(crate) copies: EventCopies,
    pub(crate) store: Store,
    /// What the broker asks other brokers for on its own behalf: the buffer subscription policy.
    pub(crate) buffer: Vec<CacheInterest>,
    pub(crate) division: Division,
    pub(crate) catching_up: CatchUpTurns,
    /// The last silence token: when it was made, after which event, its text. Many subscriptions
    /// are told the same one at the same moment.
    pub(crate) silence: (Time, u64, Box<str>),
    /// Cursors that could not take the event that is being offered.
    pub(crate) fallen: Vec<u32>,
    /// The number of the last event that the consolidated stream has passed; the first is 1.
    pub(crate) serial: u64,
    /// Other brokers that want the event that is being passed, by their numbers; kept for its
    /// memory.
    pub(crate) brokers: Vec<u32>,
    /// The profiles of topics that were made at running brokers.
    pub(crate) profiles: ProfileMap,
    /// Topics whose throughput is bounded.
    pub(crate) rates: Rates,
    /// The other brokers, in its null form if there are none.
    pub(crate) overlay: Overlay,
    /// The present moment.
    pub(crate) now: Time,
    /// Events, and acknowledgements, that need nothing special are handled by a shorter way.
    pub(crate) has_plain_way: bool,
    pub(crate) faults: Faults,
}

impl Broker {
    /// A broker without sessions. `seed` is its only source of randomness, `now` its first moment.
    pub fn new(limits: Limits, seed: u64, now: Time) -> Self {
        Broker::after(limits, seed, now, Tick(0))
    }

    /// As [`Broker::new`], with streams whose ticks are all greater than `floor`.
    pub fn after(limits: Limits, mut seed: u64, now: Time, floor: Tick) -> Self {
        let mut spare = !seed;
        let retained_seed = split_mix(&mut { !seed ^ RETAINED_SEED });
        let sessions = Sessions::new(limits, split_mix(&mut seed));
        let router = Router::new(split_mix(&mut seed));
        let groups = Groups::new(split_mix(&mut seed));
        let streams = Sources::new(split_mix(&mut seed), floor, now);
        let overlay = Overlay::alone(streams.own.host());
        Broker {
            sessions,
            router,
            groups,
            retained: Retained::new(retained_seed),
            streams,
            timers: Timers::default(),
            cursors: Cursors::default(),
            expected: ExpectedEvents::default(),
            cache: Cache::new(Plan::default(), split_mix(&mut seed)),
            copies: EventCopies::default(),
            store: Store { spare_seed: split_mix(&mut spare), ..Store::default() },
            buffer: Vec::new(),
            division: Division::default(),
            catching_up: CatchUpTurns::default(),
            silence: (Time::ZERO, 0, "".into()),
            fallen: Vec::new(),
            serial: 0,
            brokers: Vec::new(),
            profiles: ProfileMap::default(),
            rates: Rates::default(),
            overlay,
            now,
            has_plain_way: true,
            faults: Faults::default(),
        }
    }

    /// Makes the own streams those of a host that was here before, instead of new ones. `birth` is
    /// the tick of their begin. `last` has for each stream the last tick that can have been used or
    /// named: all ticks from now on are greater, and the cache is sure of nothing up to there. No
    /// tick is named that is not reserved ([`Streams::reserve`]).
    ///
    /// # Panics
    /// When the core has been used.
    pub fn resume_host(&mut self, host: HostId, birth: Tick, last: [Tick; Streams::COUNT]) {
        assert!(self.serial == 0 && self.sessions.stats.sessions == 0, "streams are taken up before anybody comes");
        self.streams = Sources::restored(host, birth, last);
        self.overlay = Overlay::alone(host);
        for (pubend, passed) in self.streams.own.pubends() {
            self.cache.miss(pubend, passed);
        }
    }

    /// Whether events, and acknowledgements, that need nothing special are handled by a shorter way
    /// than all others; they are, unless a test compares both.
    pub fn set_plain_way(&mut self, is_used: bool) {
        self.has_plain_way = is_used;
    }

    /// Replaces the fences that selectors refer to. With a fence that is gone, `within` is unknown.
    pub fn set_fences(&mut self, fences: Arc<Fences>) {
        self.router.set_fences(fences);
        if self.cache.plan().partitions.iter().any(|partition| partition.selector.is_some()) {
            // Events may belong to another partition now.
            self.set_cache(self.now, self.cache.plan().clone());
        }
    }

    /// Sets the buffer subscription policy: what the broker asks other brokers for, with or without
    /// a subscriber.
    ///
    /// # Panics
    /// When a filter is invalid; configuration checks that.
    pub fn set_buffer(&mut self, interests: Vec<CacheInterest>) {
        assert!(interests.iter().all(CacheInterest::is_valid), "the filters of a policy are checked");
        self.router.record_buffer(&self.buffer, &interests);
        self.buffer = interests;
        self.collect_own_interest(self.now);
    }

    /// Divides the cache anew. Its events stay as far as there is room, and what is missing stays
    /// known. Costs a look at every cached event.
    ///
    /// # Panics
    /// When a filter of the plan is invalid, or it has more than [`crate::cache::PARTITIONS_MAX`]
    /// partitions: configuration checks both.
    pub fn set_cache(&mut self, now: Time, plan: Plan) {
        self.division.divide(&mut self.router, &mut self.cache, now, plan);
    }

    /// Applies one input at the moment `now`, which never goes backwards.
    ///
    /// # Panics
    /// When the edge breaks the contract of [`Input`], for instance speaks for a link that is not
    /// attached.
    #[inline]
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut dyn Output) {
        self.now = now;
        self.sessions.now = now;
        match input {
            Input::Publish(publish) => self.publish(now, &publish, out),
            Input::Settle { link, tag, by } => self.settle(now, (link, tag), by, out),
            Input::Release { link, tag } => self.release(now, link, tag, out),
            Input::Writable { link } => {
                if let Some(index) = self.sessions.attached_to(link) {
                    self.sessions.reopen(index);
                    self.resume(now, index, out);
                }
            }
            Input::Peer(input) => {
                self.watch_clock(now);
                self.peer_input(now, input, out);
            }
            other => self.handle_rare(now, other, out),
        }
        let deliveries = self.sessions.has_woken() | self.sessions.has_unfinished();
        let others = !self.groups.post.is_empty() | self.router.has_changes() | self.store.write_queue.is_open();
        if !(deliveries | others) {
            return;
        }
        // Bounded: a session that has more to read has its turn later.
        loop {
            while let Some(index) = self.sessions.pop_woken() {
                self.resume_answered(now, index, out);
            }
            if !self.sessions.has_unfinished() {
                break;
            }
            self.serve_claimants(now, out);
            while let Some(index) = self.sessions.pop_overflowed() {
                self.cut_off(now, index, out);
            }
            self.prepare();
            self.share_out(now, out);
        }
        if !self.groups.post.is_empty() {
            self.tell_shares(now, out);
        }
        if self.router.has_changes() {
            self.collect_own_interest(now);
        }
        if self.store.write_queue.is_open() {
            self.store.write_queue.seal();
        }
    }

    fn handle_rare(&mut self, now: Time, input: Input<'_>, out: &mut dyn Output) {
        self.watch_clock(now);
        match input {
            Input::Attach(attach) => self.attach(now, attach, out),
            Input::Detach { link, publish_will, expiry } => {
                if let Some(index) = self.sessions.attached_to(link) {
                    if let Some(expiry) = expiry {
                        let expiry = expiry.min(self.sessions.limits.session_expiry_max);
                        self.sessions.get_mut(index).expiry = expiry;
                    }
                    self.detach(now, index, publish_will, out);
                } else if !self.sessions.supersessions.withdraw(link) {
                    self.stop_seeking(now, link);
                }
            }
            Input::Subscribe { link, tag, filters } => {
                self.subscribe(now, link, tag, filters, out);
                self.pass_committed(now, out);
            }
            Input::Unsubscribe { link, tag, filters } => {
                self.unsubscribe(now, link, tag, filters, out);
                self.pass_committed(now, out);
            }
            Input::Announce { event, retain } => self.announce(now, event, retain, out),
            Input::RefusedAtEdge { link, tag, qos, code } => {
                let (whom, result) = (self.sessions.whom(link), Accepted::RefusedAtEdge(code));
                self.answer(now, whom, (BatchNo(0), Answer::Accepted { tag, qos, result }), out);
            }
            Input::Committed { upto } => {
                self.store.commit_queue.commit(upto);
                self.pass_committed(now, out);
            }
            Input::ReadOut { link, is_whole } => self.on_read_out(link, is_whole),
            Input::Disk(disk) => self.disk_changed(now, disk, out),
            Input::Fetched(fetched) => self.fetched(&fetched),
            Input::DropSession { client_id } => self.drop_session(now, client_id, out),
            Input::Acknowledge { link, tag, qos, identifier, token } => {
                self.acknowledge(now, (link, tag, qos), (identifier, token), out);
            }
            Input::Host { host, reliable, further, birth } => {
                self.streams.add_host(host, (reliable, further), birth, false);
            }
            Input::Knowledge(segment) => self.learn(now, &segment, out),
            Input::ChangeProfile { filter, made } => {
                let (profiles, mut site) = self.profile_site();
                profiles.change(now, filter, made, &mut site, out);
                self.profiles_changed();
            }
            Input::Deadline => {
                self.pass_committed(now, out);
                self.expire(now, out);
                self.continue_catching_up(now, out);
                self.flush(now);
                self.meet_overlay(now, out);
            }
            Input::Publish(_)
            | Input::Settle { .. }
            | Input::Release { .. }
            | Input::Writable { .. }
            | Input::Peer(_) => {
                unreachable!("handled by the caller")
            }
        }
    }

    /// When [`Input::Deadline`] is wanted, and why.
    pub fn next_deadline(&self) -> Option<(Time, Reason)> {
        if self.store.commit_queue.is_due() {
            return Some((self.now, Reason::Committed));
        }
        if !self.catching_up.queue.is_empty() {
            return Some((self.now, Reason::CatchUp));
        }
        let flush = self.flush_due().map(|at| (at, Reason::Flush));
        let overlay = self.overlay.next_deadline();
        let overlay = overlay.map(|at| (at, Reason::Overlay));
        let expected = self.expected.next_deadline().map(|at| (at, Reason::Expected));
        [self.timers.next(), flush, overlay, expected].into_iter().flatten().min()
    }

    /// The oldest batch that the driver has not taken, between two inputs.
    pub fn batch(&self) -> Option<Batch<'_>> {
        self.store.write_queue.batch()
    }

    /// The driver has taken the batch that [`Broker::batch`] shows, and writes it before any later
    /// one.
    pub fn submitted(&mut self) -> BatchNo {
        self.store.write_queue.take()
    }

    /// The newest batch there is.
    pub fn newest_batch(&self) -> BatchNo {
        self.store.write_queue.last()
    }

    /// Whether a batch is known to be durable.
    pub fn is_durable(&self, batch: BatchNo) -> bool {
        batch <= self.store.commit_queue.committed()
    }

    /// A part of the log to be read, given once; answered by [`Input::Fetched`].
    pub fn fetch(&mut self) -> Option<Fetch> {
        self.store.reads.take()
    }

    /// Whether more waits to be durable than should: then the driver takes no more bytes from
    /// clients until that has changed.
    pub fn is_congested(&self) -> bool {
        self.store.is_congested()
    }

    /// Sets the profiles of topics that the configuration has, in their order.
    ///
    /// # Panics
    /// When a profile has no topic filter.
    pub fn set_profiles(&mut self, profiles: Vec<Profile>) {
        self.profiles.configure(&profiles);
        self.router.configure_profiles(profiles);
        self.profiles_changed();
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let cost = self.router.cost();
        Stats {
            subscriptions: self.router.len() as u64,
            selectors: self.router.selectors() as u64,
            retained: self.retained.len() as u64,
            retained_bytes: self.retained.bytes() as u64,
            route_misses: self.router.misses,
            subscriptions_tracked: self.cursors.len() as u64,
            subscriptions_lagging: self.cursors.lagging() as u64,
            cached_events: self.cache.events(),
            cached_bytes: self.cache.bytes(),
            selector_evaluations: cost.evaluations,
            filter_records: self.store.filters.records,
            filter_names: self.store.filters.named,
            filter_bytes: self.store.filters.bytes,
            selector_steps: cost.steps,
            selector_matches: cost.matches,
            overdue_untold: self.expected.untold(),
            ..self.sessions.stats
        }
    }

    /// The cost so far of the most expensive selectors, most expensive first.
    pub fn expensive_selectors(&self) -> Vec<Expensive> {
        self.router.expensive()
    }

    /// The clients that have been told the most gaps, or would have been with notices: client id
    /// and number of gaps, at most 16, most gaps first.
    pub fn gappy_clients(&self) -> Vec<(String, u64)> {
        self.sessions.gappy()
    }

    /// The gaps that subscriptions have had, by the class of the subscription and the reason.
    pub fn gap_counts(&self) -> GapCounts {
        self.sessions.gaps
    }

    /// The host of the broker's own streams.
    pub fn host(&self) -> HostId {
        self.streams.own.host()
    }

    /// The fences that selectors refer to.
    pub fn fences(&self) -> &Arc<Fences> {
        self.router.fences()
    }

    /// The number of exactly-once publishes of a link that it has not released.
    pub fn unreleased(&self, link: Link) -> usize {
        self.sessions.attached_to(link).map_or(0, |index| self.sessions.get(index).memory.pending.unreleased.len())
    }

    /// Whether something that is to be sent to a link waits to be durable.
    pub fn is_in_commit_queue(&mut self, link: Link) -> bool {
        self.sessions.attached_to(link).is_some() && {
            let whom = self.sessions.whom(link);
            self.sessions.is_in_commit_queue(whom)
        }
    }

    /// Whether answers to a link wait to be durable, or for something before them.
    pub fn has_pending_answers(&self, link: Link) -> bool {
        self.sessions.attached_to(link).is_some_and(|index| {
            let session = self.sessions.get(index);
            session.in_line() > 0 || session.is_paused()
        })
    }

    /// Whether publish `tag` of a link waits for its release.
    pub fn is_unreleased(&self, link: Link, tag: u16) -> bool {
        self.sessions
            .attached_to(link)
            .is_some_and(|index| self.sessions.get(index).memory.pending.unreleased.contains_key(&tag))
    }

    /// Handles the entries of the commit queue that are durable, at most [`COMMIT_SLICE`] at once.
    pub(crate) fn pass_committed(&mut self, now: Time, out: &mut dyn Output) {
        for _ in 0..COMMIT_SLICE {
            let Some(wait) = self.store.commit_queue.pop() else { return };
            let present = wait.whom().filter(|whom| self.sessions.leave_commit_queue(*whom));
            match wait {
                Wait::Event(held) => self.pass_held(now, &held, present, out),
                Wait::Answer(_, answer) => {
                    if let Some(whom) = present {
                        tell(whom.link, answer, out);
                    }
                }
                Wait::Written(written) => self.on_written(now, *written, present.is_some(), out),
                Wait::WrittenEnd(written) => self.on_written_end(now, *written, present.is_some(), out),
                Wait::Asked(asked) => self.on_asked(*asked, present.is_some(), out),
                Wait::Hand { session, number, tag } => self.hand_over(now, session, number, tag, out),
                Wait::Received { session, number, tag, .. } => {
                    let link = present.map(|whom| whom.link);
                    self.received(now, (session, number), (link, tag), out);
                }
                Wait::Uncork(whom) => {
                    if present.is_some() {
                        out.uncork(whom.link);
                    }
                }
                Wait::Gave { session, number } => self.has_given(now, session, number, out),
                Wait::TellEnded { to, number, client } => self.tell_ended(now, (to, number), &client, out),
                Wait::Reserved(upto) => self.streams.own.reserve(upto),
                Wait::Grant(host) => self.tell_grant(now, host, out),
                Wait::Interest(host) => self.adopt_interest(now, host, true, out),
                Wait::Outbid(proven) => self.outbid(now, proven),
                Wait::Covered => self.confirm_ready(now, out),
            }
        }
    }

    fn expire(&mut self, now: Time, out: &mut dyn Output) {
        self.tell_expected(now, out);
        for _ in 0..EXPIRE_SLICE {
            let Some((reason, index)) = self.timers.pop_due(now) else { return };
            match reason {
                Reason::WillDelay => {
                    self.sessions.get_mut(index).will_at = None;
                    self.publish_will(now, index, out);
                }
                Reason::ReadOut => self.on_read_out_late(now, Link(index)),
                Reason::Silence => self.tell_silence(now, index, out),
                Reason::CatchUp | Reason::Committed | Reason::Flush | Reason::Overlay | Reason::Expected => {
                    unreachable!("turns are not timed")
                }
                Reason::SessionExpiry => self.expire_session(now, index, out),
            }
        }
    }

    /// Disconnects a client with more waiting than its bounds allow.
    fn cut_off(&mut self, now: Time, index: u32, out: &mut dyn Output) {
        if self.sessions.is_attached(index) {
            self.sessions.stats.kicked_slow += 1;
            self.kick(now, index, Kick::TooSlow, out);
        }
    }

    /// Disconnects the client of an attached session.
    pub(crate) fn kick(&mut self, now: Time, index: u32, why: Kick, out: &mut dyn Output) {
        let link = self.sessions.get(index).link().expect("only who is there is disconnected");
        out.kicked(link, why);
        self.detach(now, index, true, out);
    }
}
