//! The composition's side of the overlay: it is opened, driven with what happens on links and with
//! its deadlines, and what the network layer tells is dispatched. Each event and each message has
//! its arm in one exhaustive match. What follows when the topology or the own interest has changed
//! is here, too.

use core::time::Duration;

use whimbrel_event::{Deployment, DomainLabel, Domains, HostId, Time};
use whimbrel_net::interest::reduce;
use whimbrel_net::rpc::MessageContent;
use whimbrel_net::{Identity, Io, Net, NetEvent, NetStep, Work};
use whimbrel_wire::{BrokerMessage, MessageFrame};

use super::profiles::{PROFILES_MAP, ProfileMap, ProfileSite};
use super::{Brokers, Due, Overlay, OverlayConfig};
use crate::api::{HangUp, Output, PeerInput};
use crate::broker::Broker;
use crate::retained::Bounds;
use crate::store::Wait;
use crate::stream::RemoteArrival;
use crate::stream::{OwnEvents, Sources, Streams};

/// Most deadlines that are met before other inputs have their turn.
const DUE_SLICE: usize = 256;

/// A timer that is at least this late shows that the broker was at a standstill.
const STANDSTILL: Duration = Duration::from_millis(500);

/// The pause between two changes of the brokers that sessions depend on, per broker beyond
/// [`FEW_BROKERS`](whimbrel_net::topology::FEW_BROKERS): each broker tells each other one of such a
/// change.
pub const MAP_PAUSE: Duration = Duration::from_millis(1);

/// The sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sender {
    pub(crate) host: HostId,
    /// The incarnation in which the host sent it.
    pub(crate) incarnation: u64,
}

/// The number of low bits of an incarnation that come from its host; the others count units of 2^20
/// ns.
const INCARNATION_HOST_BITS: u32 = 20;

/// The incarnation of a process of `host` that begins at the tick `began`. Ticks are never used
/// twice, so it is greater than that of any earlier process of the same host. It also differs from
/// that of a process of another host that starts at the same moment: silence names the incarnation
/// and version of the interest that it is for, not the host, and is passed on by numbers of links,
/// which may have another meaning once a link has gone down.
fn incarnation_of(host: HostId, began: u64) -> u64 {
    // The low four bits of all hosts are zero.
    let of_host = (host.as_u64() >> 4) & ((1 << INCARNATION_HOST_BITS) - 1);
    (((began >> INCARNATION_HOST_BITS) + 1) << INCARNATION_HOST_BITS) | of_host
}

/// The identity of the own streams, in this incarnation.
fn identity_of(streams: &Sources, deployment: Deployment, incarnation: u64) -> Identity {
    Identity {
        host: streams.own.host(),
        incarnation,
        deployment,
        birth: streams.birth(),
        reliable: Streams::FIRST,
        further: Streams::FURTHER,
    }
}

/// Withholds retained messages that the broker may not carry any more, and has them removed from
/// the log.
fn withhold_outside(broker: &mut Broker) {
    let own = broker.overlay.net.host();
    let domains = broker.overlay.net.domains().of(own);
    let outside = broker.retained.withhold_outside(&domains);
    if broker.has_log() {
        broker.store.lazy_topics.extend(outside);
    }
}

impl Overlay {
    /// As [`Broker::send_to`], over brokers that may carry what has this label.
    pub(crate) fn send_within(
        &mut self,
        now: Time,
        to: HostId,
        label: DomainLabel<'_>,
        message: &BrokerMessage<'_>,
        is_bulk: bool,
        out: &mut dyn Output,
    ) -> bool {
        let mut body = Vec::with_capacity(64);
        let kind = message.encode(&mut body);
        self.net.send_to(now, to, MessageContent { kind, body: &body, is_bulk, label }, out)
    }
}

impl Broker {
    /// Makes the broker a member of an overlay: from now on it accepts links to others. To be
    /// called once, before the first subscription.
    ///
    /// # Panics
    /// When the overlay is open already, or the configuration is not valid; the reader of the
    /// configuration checks that.
    pub fn open_overlay(&mut self, now: Time, config: OverlayConfig) {
        assert!(!self.overlay.is_open(), "an overlay is opened once");
        assert!(whimbrel_wire::is_name(&config.name), "the name of a broker is checked where it is configured");
        assert!(config.interest_max >= reduce::INTEREST_LEAST, "the bound of the interest is checked as well");
        assert!(config.addresses.len() <= whimbrel_wire::ADDRESSES_MAX, "and the number of addresses");
        let incarnation = incarnation_of(self.streams.own.host(), self.streams.own.farthest().0.max(now.as_nanos()));
        let identity = identity_of(&self.streams, self.sessions.limits.deployment, incarnation);
        let (moves_sessions, pace) = (config.moves_sessions, config.pace);
        let net = Net::new(now, identity, self.router.len() > 0, config.of_net());
        let net = self.faults.built_into(net);
        self.overlay = Overlay { faults: self.faults, ..Overlay::new(net, moves_sessions, pace) };
        self.store.remote_reads.number_from(incarnation);
        self.restore_known();
        self.restore_previous();
        self.restore_publishers(now);
        self.open_shares(now);
        withhold_outside(self);
    }

    /// Sets the domains of a broker that is in no overlay; with one they are in its configuration.
    pub fn set_domains(&mut self, domains: Domains) {
        self.overlay.net.domains().set_own(domains);
        withhold_outside(self);
    }

    /// Goes on with new streams after the log has failed: to other brokers it is another host of
    /// the same name. Links are closed, so that neighbours learn of it when they come up again.
    pub(crate) fn rehost(&mut self, now: Time, out: &mut dyn Output) {
        let alone = Overlay::alone(self.streams.own.host());
        let mut overlay = core::mem::replace(&mut self.overlay, alone);
        if !overlay.is_open() {
            return;
        }
        overlay.net.hang_up_all(now, HangUp::Rehosted, out);
        for number in overlay.destinations.numbers() {
            overlay.destinations.get(number).expect("it has a number").leave(&mut self.router, number);
        }
        let identity = identity_of(&self.streams, self.sessions.limits.deployment, overlay.net.incarnation() + 1);
        let Overlay { net, waiting, stats, moves_sessions, roam, .. } = overlay;
        let fresh = Overlay::new(net.rehost(now, identity), moves_sessions, roam.pace());
        let mut fresh = Overlay { waiting, stats, faults: self.faults, ..fresh };
        fresh.watch_waiting(now);
        self.overlay = fresh;
        self.announce_ended();
        self.groups.brokers = Brokers::default();
        self.share_soon(now);
    }

    /// Records a standstill of this broker before anything else is handled after it: conclusions
    /// from other brokers' silence depend on that.
    pub(crate) fn watch_clock(&mut self, now: Time) {
        if fault!(self, StandstillUnnoticed) {
            return;
        }
        let overlay = &mut self.overlay;
        if overlay.next_deadline().is_some_and(|at| now.since(at) >= STANDSTILL) {
            overlay.net.record_standstill(now);
        }
    }

    /// Handles what the driver reports of the links to other brokers.
    pub(crate) fn peer_input(&mut self, now: Time, input: PeerInput<'_>, out: &mut dyn Output) {
        if !self.overlay.is_open() {
            if let PeerInput::Opened { link, .. } = input {
                out.peer_hang_up(link, HangUp::NotOpen);
            }
            return;
        }
        let mut work = self.overlay.net.begin(now, input, out);
        self.finish(now, &mut work, out);
        self.check_ways(now, out);
    }

    /// Does some work of the network layer to its end, and dispatches its events.
    fn finish(&mut self, now: Time, work: &mut Work<'_>, out: &mut dyn Output) {
        loop {
            let Broker { overlay, retained, profiles, .. } = self;
            match overlay.net.step(work, &mut Io { now, out: &mut *out, maps: &[&*retained, &*profiles] }) {
                NetStep::Event(event) => self.on_net_event(now, event, out),
                NetStep::More => {}
                NetStep::Done => return,
            }
        }
    }

    /// Dispatches what has happened in the network layer.
    fn on_net_event(&mut self, now: Time, event: NetEvent<'_>, out: &mut dyn Output) {
        match event {
            NetEvent::LinkUp { link, hello, was_known } => {
                self.begin_interest(now);
                let pubends = (hello.reliable, hello.further);
                self.follow_host(now, (hello.host, hello.name, was_known), (pubends, hello.birth), out);
                self.tell_previous(now, link, &hello, out);
            }
            NetEvent::StateOffered(state) => self.end_namesakes(now, &state, out),
            NetEvent::BrokerKnown { host, was_known } => self.on_broker_known(now, host, was_known, out),
            NetEvent::Outbid => {
                let is_owner = !self.sessions.limits.has_successors || !self.has_log();
                self.outbid(now, if is_owner { u64::MAX } else { 0 });
                if self.overlay.net.check_joined(now) {
                    self.confirm_ready(now, out);
                }
            }
            NetEvent::Joined => self.confirm_ready(now, out),
            NetEvent::InterestChanged { host } => {
                let is_proven = !self.sessions.limits.has_successors || !self.has_log();
                self.adopt_interest(now, host, is_proven, out);
            }
            NetEvent::InterestDue => self.tell_interest(now, out),
            NetEvent::Expired(hosts) => hosts.into_iter().for_each(|host| self.forget_broker(host)),
            NetEvent::Refreshed => {
                self.remind_of_previous(now, out);
                let (profiles, mut site) = self.profile_site();
                profiles.tell_configured(now, &mut site, out);
                profiles.expire(now, site.store);
                self.expire_holds_given(now);
                self.end_retired(now, out);
            }
            NetEvent::Event { frame, own, age_us, last_us } => {
                let age = Duration::from_micros(age_us);
                let last = last_us.map(|last_us| Duration::from_micros(last_us.into()));
                self.on_remote_event(now, &RemoteArrival { frame: &frame, own, age, last }, out);
            }
            NetEvent::Silence(silence) => self.on_silence(now, &silence, out),
            NetEvent::Nack { link, nack } => {
                let Broker { overlay, router, cache, store, streams, .. } = self;
                let mut events = OwnEvents { router, cache, store, streams };
                overlay.answer_nack(now, link, &nack, &mut events, out);
            }
            NetEvent::Entries { map: PROFILES_MAP, link, registry } => {
                let (profiles, mut site) = self.profile_site();
                if profiles.take(now, link, &registry, &mut site) {
                    self.profiles_changed();
                }
            }
            NetEvent::Entries { map: _, link, registry } => {
                let bounds = Bounds::of(&self.sessions.limits, self.has_log());
                let taken = self.overlay.on_retained(now, link, &registry, &mut self.retained, bounds);
                self.record_unlogged_topics(taken.news, taken.swept);
            }
            NetEvent::PreviousIdentities(previous) => self.on_previous(now, previous, out),
            NetEvent::Message(message) => self.on_message(now, &message, out),
            NetEvent::Passing(message) => self.pass_message(now, &message, out),
        }
    }

    /// Puts the changed interest of another broker in force in the own streams, and tells it so.
    /// Where another process may own the log by now it waits for a commit of what was written
    /// since: what a former owner confirms is true of no stream that goes on, and subscribers would
    /// miss the events that the owner has not sent to them.
    ///
    /// `is_proven`: there was such a commit, or no other process may be the owner.
    pub(crate) fn adopt_interest(&mut self, now: Time, host: HostId, is_proven: bool, out: &mut dyn Output) {
        let Broker { overlay, router, streams, .. } = self;
        let known = overlay.net.interest_of(host);
        if overlay.destinations.lacks_proof(now, known, host, is_proven) {
            self.store.await_proof_of_owner(Wait::Interest(host));
        } else if is_proven && let Some(number) = overlay.adopt(now, host, router, streams) {
            overlay.tell_quiet(now, number, streams, out);
            self.hold_for(now, host, out);
        }
    }

    /// Goes on as a greater incarnation than others have heard of, when a commit has shown that
    /// this process is the owner.
    pub(crate) fn outbid(&mut self, now: Time, proven: u64) {
        if let Some(greater) = self.overlay.net.outbid(now, proven) {
            self.store.await_proof_of_owner(Wait::Outbid(greater));
        }
    }

    /// Meets the overlay's deadlines that are due.
    pub(crate) fn meet_overlay(&mut self, now: Time, out: &mut dyn Output) {
        self.overlay.net.hold_routes(now);
        for _ in 0..DUE_SLICE {
            let overlay = &mut self.overlay;
            if overlay.is_net_first() {
                let Some(mut work) = overlay.net.begin_due(now) else { break };
                self.finish(now, &mut work, out);
                continue;
            }
            let Some(due) = overlay.take_due(now) else { break };
            match due {
                Due::Quiet(number) => self.overlay.tell_quiet(now, number, &mut self.streams, out),
                Due::Repair(pubend) => self.overlay.request_holes(now, pubend, &mut self.streams, out),
                Due::HeldBack(pubend) if self.streams.remote(pubend).is_some() => self.pass_known(now, pubend, out),
                Due::HeldBack(_) => {}
                Due::Predecessor(_) => self.check_stalled(now, out),
                Due::Read(pubend) => self.read_remote(now, pubend, out),
                Due::Unblock => self.unblock_due(now),
                Due::Lend => self.lend(now, out),
                Due::Confirm => self.confirm_overdue(now, out),
                Due::Share => self.check_shares(now, out),
                Due::Report => self.report_holds(now, out),
                Due::Map => self.watch_map(now, out),
                Due::Seek => self.seek_on(now, out),
                Due::Tell => self.tell_claims(now, out),
                Due::Copy => self.copy_on(now, out),
                Due::Settle => self.ask_settled(now, out),
                Due::Still => self.check_replicas(now),
            }
        }
        self.check_ways(now, out);
    }

    /// Sends a message to another broker. A bulk message gives way to all other traffic. Returns
    /// `false` if there is no path or no room at present.
    pub(crate) fn send_to(
        &mut self,
        now: Time,
        to: HostId,
        (message, is_bulk): (&BrokerMessage<'_>, bool),
        out: &mut dyn Output,
    ) -> bool {
        self.overlay.send_within(now, to, DomainLabel::ANY, message, is_bulk, out)
    }

    /// Handles a message for this broker.
    pub(super) fn on_message(&mut self, now: Time, routed: &MessageFrame<'_>, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        // Brokers that pass a message on do not decode it, so an invalid one is no fault of the
        // link.
        match BrokerMessage::decode(routed.kind, routed.body) {
            Ok(message) => {
                let from = Sender { host: routed.from, incarnation: routed.incarnation };
                overlay.record_incarnation(now, from);
                if let BrokerMessage::ReadTold(told) = &message {
                    self.answer_passes(now, routed.to, from, (told, routed.body), out);
                }
                self.dispatch_message(now, from, message, out);
            }
            Err(_) => overlay.net.refuse_message(),
        }
    }

    /// Dispatches a message for this broker.
    fn dispatch_message(&mut self, now: Time, from: Sender, message: BrokerMessage<'_>, out: &mut dyn Output) {
        match message {
            BrokerMessage::HoldReport(holds) => self.on_hold_report(now, from, &holds, out),
            BrokerMessage::TakenOver(took) => self.on_taken_over(now, took.owner, from.host),
            BrokerMessage::HoldGrant(grant) => self.on_hold_grant(now, from, grant, out),
            BrokerMessage::ReadAsk(ask) => self.read_asked(now, from, &ask),
            BrokerMessage::ReadTold(told) => self.read_told(now, from, &told),
            BrokerMessage::Question(asked) => out.asked(from.host, asked.number, asked.text),
            BrokerMessage::Reply(reply) => out.answered(from.host, reply.number, reply.text),
            BrokerMessage::Members(members) => self.on_members(now, from, &members, out),
            BrokerMessage::MembersTaken(taken) => self.members_taken(now, from, &taken, out),
            BrokerMessage::Hand(hand) => self.on_hand(now, from, &hand, out),
            BrokerMessage::HandsCame(numbers) => self.on_hands_arrived(from, &numbers),
            BrokerMessage::Handed(numbers) => self.hands_settled(now, from, &numbers, out),
            BrokerMessage::Returned(numbers) => self.hands_returned(now, from, &numbers, out),
            BrokerMessage::HandsRefused(numbers) => self.hands_refused(now, from, &numbers, out),
            BrokerMessage::HandsLeft(numbers) => self.hands_left(from, &numbers),
            BrokerMessage::Where(question) => self.on_where(now, from, &question, out),
            BrokerMessage::Found(found) => self.on_found(now, from, &found, out),
            BrokerMessage::Claims(claims) => self.on_claims(now, from, &claims, out),
            BrokerMessage::PageTaken(taken) => self.page_taken(now, from, taken.page),
            BrokerMessage::Move(asked) => self.on_move(now, from, &asked, out),
            BrokerMessage::Moved(moved) => self.on_moved(now, from, &moved, out),
            BrokerMessage::Settle(asked) => self.on_settle(now, from, &asked.claims, out),
            BrokerMessage::Settled(told) => self.on_settled(now, &told.claims, out),
            BrokerMessage::Outdated(told) => self.on_outdated(now, &told.claims, out),
            BrokerMessage::Copies(copies) => self.on_copies(now, from, &copies, out),
            BrokerMessage::CopiesTaken(taken) => self.copies_taken(now, from, &taken, out),
            BrokerMessage::AskPublished(asked) => self.on_ask_published(now, from, &asked, out),
            BrokerMessage::Published(told) => self.on_published(now, from, &told, out),
            BrokerMessage::Unknown(..) => self.overlay.net.refuse_message(),
        }
    }
}

impl Broker {
    /// Handles a change of the topology, if there is one. A broker that can be reached again is
    /// told at once what it may have missed.
    pub(super) fn check_ways(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        if !overlay.net.check_ways(now) {
            return;
        }
        let Overlay { destinations, net, timers, .. } = overlay;
        let are_known = net.topology().states().all(|state| state.protocol.knows_deadlines());
        if self.streams.deadlines.set_known(now, are_known) {
            self.sessions.begin_kinds();
        }
        let mut back = Vec::new();
        for number in destinations.numbers() {
            let destination = destinations.get_mut(number).expect("it has a number");
            let is_reachable = net.routes().is_reachable(destination.host);
            if is_reachable && !core::mem::replace(&mut destination.is_reachable, is_reachable) {
                destination.silences.tell_all(now);
                if let Some(at) = destination.silences.need_timer(now) {
                    timers.insert(at, Due::Quiet(number));
                }
                back.push(destination.host);
            }
            destination.is_reachable = is_reachable;
        }
        // Retention holds for it could not be told while there was no path.
        back.into_iter().for_each(|host| self.hold_for(now, host, out));
        self.check_stalled(now, out);
        self.watch_map(now, out);
        self.check_candidates(now, out);
        self.confirm_ready(now, out);
        if self.overlay.net.check_joined(now) {
            self.confirm_ready(now, out);
        }
    }

    /// Handles a change of the brokers that can be reached for sessions, if there is one; not
    /// within the pause after the last change.
    pub(super) fn watch_map(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &mut self.overlay;
        if now < overlay.map_at {
            return overlay.set_once(overlay.map_at, Due::Map);
        }
        if self.check_map(now, out) {
            self.overlay.map_at = now + MAP_PAUSE * self.overlay.net.many();
        }
    }

    /// Begins the own interest with all subscriptions; durable ones count on other brokers' logs
    /// when these have granted that. Called when a link comes up, and does nothing from the second
    /// on. Without a link the interest has no reader, and takes memory for each subscription.
    /// Takes n log n in the number of subscriptions.
    fn begin_interest(&mut self, now: Time) {
        if self.router.is_watched() {
            return;
        }
        self.router.watch(self.groups.indexed());
        if self.router.has_changes() {
            self.overlay.net.begin_interest();
        }
        self.router.record_buffer(&[], &self.buffer);
        for cursor in self.cursors.ids() {
            self.await_grants(cursor);
            let of_cursor = self.cursors.get(cursor);
            let Some(durable) = of_cursor.durable.as_deref() else { continue };
            // Their earlier selectors stay in the interest until the events for them have been
            // delivered.
            let text = &self.router.get(of_cursor.subscription).text.clone();
            let old = durable.rare.old.iter();
            old.for_each(|old| self.router.keep_old_interest(durable.number, text, old.view().selector));
        }
        self.collect_own_interest(now);
    }

    /// Collects which subscriptions were added and removed; other brokers are told soon.
    pub(crate) fn collect_own_interest(&mut self, now: Time) {
        let overlay = &mut self.overlay;
        let changes = self.router.take_changes();
        if changes.is_empty() {
            return;
        }
        for change in changes {
            overlay.net.want(change);
        }
        overlay.net.tell_interest_soon(now);
    }

    /// Announces the own interest, if it has changed.
    pub(super) fn tell_interest(&mut self, now: Time, out: &mut dyn Output) {
        // Subscriptions that were made in this step, and wait for a version that has them, belong
        // to this version. Before the first link no version has any, and no broker can confirm one:
        // the first version that is told has all of them, and comes first.
        self.collect_own_interest(now);
        let Broker { overlay, retained, profiles, .. } = self;
        if overlay.net.tell_interest(&mut Io { now, out: &mut *out, maps: &[&*retained, &*profiles] }) {
            overlay.report_soon(now);
        }
        self.name_version(now, out);
    }

    /// Adapts what depends on the profiles of topics after a change.
    pub(crate) fn profiles_changed(&mut self) {
        self.sessions.begin_kinds();
        for id in self.cursors.ids() {
            let number = self.cursors.get(id).subscription;
            if let Some(durable) = self.cursors.durable_mut(id) {
                durable.may_be_volatile = self.router.may_be_volatile_for(number);
            }
        }
        for (id, _) in self.expected.listeners() {
            let number = self.cursors.get(id).subscription;
            let has_deadline = self.router.may_have_deadline_for(number);
            self.expected.listen(self.now, id, has_deadline, self.router.periods_for(number));
        }
    }

    /// The map of profiles, and the parts of the broker that a change of it concerns.
    pub(crate) fn profile_site(&mut self) -> (&mut ProfileMap, ProfileSite<'_>) {
        let has_log = self.has_log();
        let Broker { router, overlay, store, retained, profiles, .. } = self;
        (profiles, ProfileSite { router, overlay, store: has_log.then_some(store), retained })
    }
}
