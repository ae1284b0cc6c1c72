//! The life of other brokers: they become known, end, expire and are forgotten.
//!
//! A broker that returns without its disk is another host of the same name. Its neighbours tell it
//! the previous hosts of its name; its link state then tells every broker up to where those hosts'
//! streams have ended, which no other broker could say. Events of them that a broker does not have
//! by then are lost, and its subscriptions are told so.
//!
//! *Retirement*: an operator declares that a broker will never come back. Its streams end at all
//! brokers, and the retention holds given to it are dropped. The broker at which that is declared
//! announces it with its link state, like the previous hosts of its own name, and writes a record.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_event::{HostId, PubendId, Reliability, Tick, Time};
use whimbrel_net::PeerLink;
use whimbrel_net::link::queue::FrameClass;
use whimbrel_net::topology::LinkState;
use whimbrel_wire::{Frame, Hello, PREVIOUS_IDENTITIES_MAX, PreviousIdentities, PreviousIdentity};

use crate::api::Output;
use crate::broker::Broker;
use crate::cursor::{AHEAD_MAX, Gap, GapReason};
use crate::store::{EndedHostRecord, Key, MapValue};
use crate::stream::{AHEAD_MAX as STREAM_AHEAD_MAX, Streams};
use core::fmt;

/// The frame with previous hosts; `None` if there are none.
fn previous_frame(to: HostId, known: impl Iterator<Item = PreviousIdentity>) -> Option<Vec<u8>> {
    let known: Vec<PreviousIdentity> = known.collect();
    // The last ones are those that other brokers have not heard of yet.
    let hosts = known[known.len().saturating_sub(PREVIOUS_IDENTITIES_MAX)..].to_vec();
    let mut frame = Vec::new();
    Frame::PreviousIdentities(PreviousIdentities { to, hops: 0, hosts }).encode(&mut frame);
    (!known.is_empty()).then_some(frame)
}

impl Broker {
    /// Follows the streams of a host from now on. Their start is told when the host has adopted
    /// this broker's interest. `was_there`: the topology had the host without interruption.
    pub(super) fn follow_host(
        &mut self,
        now: Time,
        (host, name, was_there): (HostId, &str, bool),
        (pubends, birth): ((u8, u8), Tick),
        out: &mut dyn Output,
    ) {
        self.streams.add_host(host, pubends, birth, true);
        self.streams.name_host(host, name);
        self.record_heard_of(host, name, (pubends, birth));
        if !was_there {
            // Subscriptions answered while the host was absent neither waited for it nor named it.
            // So its silence counts only from a version on that has them all, also if its streams
            // were followed before.
            self.tell_interest(now, out);
        }
        let overlay = &mut self.overlay;
        if !was_there {
            self.streams.follow_from(host, overlay.net.own_interest().version());
        }
        overlay.stats.hosts_refused += u64::from(!self.streams.knows(host.pubend(0)));
        if !was_there {
            self.await_grant_of(now, host);
        }
    }

    /// Follows a broker whose link state is new.
    pub(super) fn on_broker_known(&mut self, now: Time, host: HostId, was_known: bool, out: &mut dyn Output) {
        let Some(state) = self.overlay.net.topology().get(host) else { return };
        let (name, pubends, birth) = (state.name.clone(), (state.reliable, state.further), state.birth);
        self.follow_host(now, (host, &name, was_known), (pubends, birth), out);
    }

    /// Tells a new neighbour the previous hosts of its name.
    pub(super) fn tell_previous(&mut self, now: Time, link: PeerLink, hello: &Hello<'_>, out: &mut dyn Output) {
        let known = self.streams.of_name(hello.name).map(|(known, _)| known);
        let Some(frame) = previous_frame(hello.host, known.filter(|known| known.host != hello.host)) else { return };
        self.overlay.net.send(now, link, FrameClass::Control, &frame, out);
    }

    /// Tells brokers the previous hosts that they do not name: their neighbours may not have heard
    /// of those, or have lost their disks as well.
    pub(super) fn remind_of_previous(&mut self, now: Time, out: &mut dyn Output) {
        let overlay = &self.overlay;
        let mut frames = Vec::new();
        for state in overlay.net.topology().states().filter(|state| state.host != overlay.net.host()) {
            let is_named = |host| host == state.host || state.previous.iter().any(|previous| previous.host == host);
            // A broker names as many ended hosts as there is room for.
            let has_room = state.previous.len() < PREVIOUS_IDENTITIES_MAX;
            let is_open =
                |(known, has_ended): &(PreviousIdentity, bool)| (!has_ended || has_room) && !is_named(known.host);
            let open = self.streams.of_name(&state.name).filter(is_open);
            frames.extend(previous_frame(state.host, open.map(|(known, _)| known)).map(|frame| (state.host, frame)));
        }
        for (to, frame) in frames {
            self.overlay.net.send_towards(now, to, &frame, out);
        }
    }

    /// Handles the previous hosts of this broker's name. Hosts in this broker's
    /// own data directory have not ended.
    pub(super) fn on_previous(&mut self, now: Time, previous: PreviousIdentities, out: &mut dyn Output) {
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let birth = self.streams.birth();
        for named in previous.hosts.iter().filter(|named| !own.contains(&named.host)) {
            let overlay = &mut self.overlay;
            let is_known = overlay.previous.iter().any(|known| known.host == named.host);
            // A host that is alive, or is known to have ended, is named by mistake.
            if is_known
                || overlay.net.topology().get(named.host).is_some()
                || self.streams.ended_at(named.host).is_some()
            {
                continue;
            }
            if overlay.previous.len() == PREVIOUS_IDENTITIES_MAX {
                let oldest = overlay.previous.remove(0);
                self.streams.record_ended(oldest, overlay.net.name());
            }
            // Its streams may have been ahead of its clock.
            let upto = Tick(birth.0.saturating_add(STREAM_AHEAD_MAX.as_nanos() as u64));
            let ended = PreviousIdentity { birth: named.birth.min(birth), upto, ..*named };
            overlay.previous.push(ended);
            overlay.net.announce_soon(now);
            self.announce_ended();
            // Cursors with positions in its streams are most likely to return here.
            let name: Box<str> = self.overlay.net.name().into();
            self.add_previous(&ended, &name);
            self.end_host(now, ended, false, out);
        }
    }

    /// Ends the previous hosts that a link state names: the broker has returned without their data.
    /// Another host of its name that it does not name loses the name if it is out of reach.
    pub(super) fn end_namesakes(&mut self, now: Time, state: &LinkState, out: &mut dyn Output) {
        for previous in &state.previous {
            let host = previous.host;
            if self.known_name(host).is_some_and(|name| *name != *state.name) {
                // It was retired at that broker.
                self.end_if_gone(now, previous, out);
                continue;
            }
            let overlay = &mut self.overlay;
            // Also true if this broker has been restarted since: its subscriptions may be older.
            let is_older = self.streams.birth() < previous.upto;
            let was_here = is_older || !overlay.net.knows_no_others() || self.streams.knows(host.pubend(0));
            let own = [overlay.net.host(), self.streams.logged().host()];
            // A host that is alive, or names this one as a previous host, has not ended.
            let known = overlay.net.topology().get(host);
            let is_later = known.is_some_and(|known| known.previous.iter().any(|previous| previous.host == state.host));
            if own.contains(&host) || is_later || overlay.net.is_reachable(host) {
                continue;
            }
            if overlay.net.topology().get(host).is_some_and(|known| known.name == state.name) {
                self.forget_broker(host);
            }
            if was_here {
                // A host that came and ended while it was out of reach is as lost to the
                // subscriptions here as one that was followed.
                self.add_previous(previous, &state.name);
            } else if self.streams.ended_at(host).is_none() {
                // Recorded, so that a broker that asks later does not depend on a single other one,
                // which may lose its disk, too.
                self.streams.record_ended(*previous, &state.name);
                self.write_ended(previous, &state.name, false);
            }
            if self.streams.of_name(&state.name).any(|(known, _)| known.host == host) {
                self.end_host(now, *previous, false, out);
            }
        }
        let overlay = &mut self.overlay;
        let Some(holder) = overlay.net.topology().by_name(&state.name) else { return };
        // A late link state of an ended host does not end its successor.
        let holders = overlay.net.topology().get(holder).map(|holder| &holder.previous);
        let is_older = holders.is_some_and(|previous| previous.iter().any(|previous| previous.host == state.host));
        if holder != state.host && holder != overlay.net.host() && !is_older && !overlay.net.is_reachable(holder) {
            self.forget_broker(holder);
        }
    }

    /// Follows an ended host that may be unknown here, so that its streams can end.
    fn add_previous(&mut self, previous: &PreviousIdentity, name: &str) {
        let pubends = (previous.reliable, previous.further);
        if self.streams.ended_at(previous.host).is_some() {
            return;
        }
        if self.streams.add_host(previous.host, pubends, previous.birth, true) {
            self.streams.name_host(previous.host, name);
        }
    }

    /// Ends a host: all events of its streams that are not here by now, at least up to
    /// `previous.upto`, are lost.
    pub(super) fn end_host(&mut self, now: Time, previous: PreviousIdentity, is_retired: bool, out: &mut dyn Output) {
        let PreviousIdentity { host, upto, .. } = previous;
        self.held_host_ended(now, host, is_retired);
        if !self.streams.end_host(host) {
            return;
        }
        let overlay = &mut self.overlay;
        overlay.stats.hosts_ended += 1;
        overlay.record_end(now);
        self.adopt_from(now, host);
        // Reads of its log are resumed without it, before subscriptions are told that the rest is
        // lost.
        self.remote_ended(host);
        // Before the end of the streams is handled: events that a subscription waited for are lost,
        // instead of not asked for in time.
        self.settle_all(host);
        let streams: Vec<PubendId> = self.streams.of_host(host).map(|remote| remote.pubend).collect();
        let mut farthest_end = upto;
        for pubend in streams {
            // The host's clock may have differed, and a subscription may have had more of the
            // stream at another broker.
            let stand = |id: u32| {
                let cursor = self.cursors.get(id);
                cursor
                    .catch_up
                    .as_ref()
                    .map_or(Tick(0), |catch_up| catch_up.positions.get(pubend))
                    .max(cursor.ahead.get(pubend))
            };
            let farthest = self.cursors.ids().into_iter().map(stand).fold(Tick(0), Tick::max);
            let remote = self.streams.remote(pubend).expect("it is followed");
            let last = remote.passed.max(remote.knowledge.last());
            // Positions that clients name are believed within bounds.
            let most = Tick(upto.max(last).0.saturating_add(AHEAD_MAX.as_nanos() as u64));
            let last = last.max(farthest.min(most));
            let upto = upto.max(Tick(last.0.saturating_add(1)));
            farthest_end = farthest_end.max(upto);
            remote.is_held = false;
            let base = remote.knowledge.base();
            self.begin_unanswered(pubend, upto);
            let remote = self.streams.remote(pubend).expect("it is followed");
            match pubend.reliability() {
                Reliability::Reliable => remote.knowledge.lost(base, upto),
                Reliability::BestEffort => remote.knowledge.silence(base, upto),
            }
            self.pass_known(now, pubend, out);
        }
        // The record tells cursors with positions in its streams the same after a restart.
        let name: Box<str> = self.streams.name_of(host).unwrap_or_default().into();
        self.write_ended(&PreviousIdentity { upto: farthest_end, ..previous }, &name, false);
        while let Some(oldest) = self.streams.one_ended_too_many() {
            self.lose_cached(oldest);
            self.streams.forget_ended(oldest);
        }
    }

    /// Records the cached events of a host as lost for each cursor in catch-up: they will not be
    /// found any more.
    fn lose_cached(&mut self, host: HostId) {
        let all = self.streams.of_host(host).map(|remote| (remote.pubend, remote.birth, remote.passed));
        let all: Vec<(PubendId, Tick, Tick)> = all.collect();
        for id in self.cursors.ids() {
            let Some(catch_up) = &mut self.cursors.get_mut(id).catch_up else { continue };
            for (pubend, birth, to) in &all {
                let from = catch_up.positions.get(*pubend).max(*birth);
                catch_up.gaps.add(Gap { pubend: *pubend, from, to: *to, reason: GapReason::Lost });
            }
        }
    }

    /// Removes all state of a broker. Its streams stay known: the broker may return.
    pub(super) fn forget_broker(&mut self, host: HostId) {
        let overlay = &mut self.overlay;
        overlay.net.forget(host);
        overlay.waiting.forget_host(host);
        self.overlay.remove_destination(host, &mut self.router);
        // If it returns, its events since then are asked for under the interest at that time.
        self.settle_all(host);
    }

    /// Ends every subscription's wait for a broker. Knowledge beyond the delivered part was told
    /// under an earlier interest than those subscriptions'. So silence does not hold for them, and
    /// is unlearned; ranges that are not told again become gaps.
    fn settle_all(&mut self, host: HostId) {
        let mut waited_for = BTreeSet::new();
        for id in self.cursors.ids() {
            let unsettled = self.cursors.get(id).unsettled.iter().map(|(pubend, _)| pubend);
            waited_for.extend(unsettled.filter(|pubend| pubend.host() == host));
            self.settle_those(id, |other| other == host);
        }
        for pubend in waited_for {
            if let Some(remote) = self.streams.remote(pubend) {
                remote.knowledge.unlearn_silence();
            }
        }
        self.overlay.waiting.forget_settled(&self.cursors);
    }

    /// Ends the wait of a new subscription for hosts that had ended before it.
    pub(crate) fn settle_ended(&mut self, id: u32) {
        let hosts = self.cursors.get(id).unsettled.iter().map(|(pubend, _)| pubend.host());
        let ended: BTreeSet<HostId> = hosts.filter(|host| self.streams.has_ended(*host)).collect();
        self.settle_those(id, |host| ended.contains(&host));
    }

    /// Ends the wait of a subscription for some brokers. Events of their streams that were
    /// delivered meanwhile are read when the brokers are back, or are a gap.
    fn settle_those(&mut self, id: u32, is_one: impl Fn(HostId) -> bool) {
        let unsettled = &mut self.cursors.get_mut(id).unsettled;
        let of_hosts: Vec<(PubendId, Tick)> = unsettled.iter().filter(|(pubend, _)| is_one(pubend.host())).collect();
        unsettled.retain(|pubend| !is_one(pubend.host()));
        for (pubend, from) in of_hosts {
            let to = self.streams.passed(pubend);
            if from >= to {
                self.rejoin(id, pubend);
            } else if !self.read_unsettled(id, pubend, (from, to)) {
                let has_ended = self.streams.has_ended(pubend.host());
                let reason = if has_ended { GapReason::Lost } else { GapReason::NotBuffered };
                // Its client may name a start position: events from there on are as lost.
                let durable = self.cursors.durable_mut(id).filter(|durable| durable.remote.since.has(pubend));
                if let Some(durable) = durable.filter(|_| has_ended) {
                    durable.remote.holes.advance(pubend, to);
                }
                self.record_gap(id, Gap { pubend, from, to, reason });
            }
        }
    }
}

/// The reason why a broker is not retired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotForgotten {
    /// This broker has no overlay.
    Alone,
    /// No broker of that name is known, and no retention hold is given to one.
    Unknown,
    /// The name is this broker's own.
    Itself,
    /// The broker can be reached.
    Reachable,
}

impl fmt::Display for NotForgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotForgotten::Alone => "this broker has no overlay: it is not one of many",
            NotForgotten::Unknown => "no broker of that name is known here, or is owed anything",
            NotForgotten::Itself => "that is this broker: ask another one to forget it",
            NotForgotten::Reachable => "that broker can be reached: it is not gone. Stop it first",
        })
    }
}

impl Broker {
    /// Retires a broker for ever, under that name: its streams end at all brokers, and its
    /// retention holds are dropped. A broker that can be reached is retired with `force` only, and
    /// ends as soon as it can no longer be reached. Returns the number of hosts that had the name.
    ///
    /// # Errors
    /// When there is no such broker, or it can be reached.
    pub fn retire_broker(
        &mut self,
        now: Time,
        name: &str,
        force: bool,
        out: &mut dyn Output,
    ) -> Result<usize, NotForgotten> {
        if !self.overlay.is_open() {
            return Err(NotForgotten::Alone);
        }
        if self.overlay.net.name() == name {
            return Err(NotForgotten::Itself);
        }
        let hosts = self.hosts_of(now, name);
        if hosts.is_empty() {
            return Err(NotForgotten::Unknown);
        }
        if !force && hosts.iter().any(|previous| self.overlay.net.is_reachable(previous.host)) {
            return Err(NotForgotten::Reachable);
        }
        for previous in &hosts {
            let retired = &mut self.store.holds_given.retired;
            retired.retain(|known| known.host != previous.host);
            if retired.len() == PREVIOUS_IDENTITIES_MAX {
                retired.remove(0);
            }
            retired.push(*previous);
            self.write_ended(previous, name, true);
        }
        self.overlay.net.announce_soon(now);
        self.announce_ended();
        self.end_retired(now, out);
        Ok(hosts.len())
    }

    /// All hosts that have or had a name.
    fn hosts_of(&self, now: Time, name: &str) -> Vec<PreviousIdentity> {
        let followed = self.streams.of_name(name).filter(|(_, has_ended)| !has_ended).map(|(previous, _)| previous);
        let mut hosts: BTreeMap<HostId, PreviousIdentity> =
            followed.map(|previous| (previous.host, previous)).collect();
        let upto = Tick(now.as_nanos());
        let unfollowed =
            |host| PreviousIdentity { host, reliable: Streams::FIRST, further: Streams::FURTHER, birth: upto, upto };
        let present = self.overlay.net.topology().by_name(name);
        let holds_given = self
            .store
            .holds_given
            .of
            .iter()
            .filter(|(_, hold_given)| *hold_given.record.name == *name && !hold_given.is_forfeited());
        for host in present.into_iter().chain(holds_given.map(|(host, _)| *host)) {
            hosts.entry(host).or_insert_with(|| unfollowed(host));
        }
        hosts.into_values().collect()
    }

    /// Ends the hosts that were retired here and cannot be reached.
    pub(super) fn end_retired(&mut self, now: Time, out: &mut dyn Output) {
        for previous in self.store.holds_given.retired.clone() {
            self.end_if_gone(now, &previous, out);
        }
    }

    /// Ends a host that was retired at some broker, unless it can be reached.
    pub(super) fn end_if_gone(&mut self, now: Time, previous: &PreviousIdentity, out: &mut dyn Output) {
        let host = previous.host;
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let overlay = &mut self.overlay;
        if own.contains(&host) || overlay.net.is_reachable(host) {
            return;
        }
        if overlay.net.topology().get(host).is_some() {
            self.forget_broker(host);
        }
        self.held_host_ended(now, host, true);
        if self.streams.knows(host.pubend(0)) {
            self.end_host(now, *previous, true, out);
        } else if self.streams.ended_at(host).is_none() {
            let name: Box<str> = self.known_name(host).unwrap_or_default().into();
            self.streams.record_ended(*previous, &name);
            self.write_ended(previous, &name, false);
        }
    }

    /// The name of a host, if it is known; its streams need not be followed.
    pub(super) fn known_name(&self, host: HostId) -> Option<&str> {
        let present = self.overlay.net.topology().get(host).map(|state| &*state.name);
        let of_hold = self.store.holds_given.of.get(&host).map(|hold_given| &*hold_given.record.name);
        present.or_else(|| self.streams.name_of(host)).or(of_hold)
    }

    /// Writes the record of an ended host; `is_retired`: this broker announces it.
    pub(super) fn write_ended(&mut self, previous: &PreviousIdentity, name: &str, is_retired: bool) {
        if !self.has_log() {
            return;
        }
        let is_retired = is_retired || self.store.holds_given.retired.iter().any(|known| known.host == previous.host);
        let PreviousIdentity { host, reliable, further, birth, upto } = *previous;
        let ended = EndedHostRecord { reliable, further, birth, upto, is_retired, name: name.into() };
        self.store.write_queue.put(|key| Key::Ended(host).put(key), |value| ended.put_versioned(value));
        self.store.write_queue.seal();
    }

    /// Restores ended hosts, so that they are not taken for new ones, and the announcement of those
    /// that were retired here.
    pub(crate) fn restore_ended(&mut self, ended: BTreeMap<HostId, EndedHostRecord>) {
        for (host, EndedHostRecord { reliable, further, birth, upto, is_retired, name }) in ended {
            let previous = PreviousIdentity { host, reliable, further, birth, upto };
            self.streams.record_ended(previous, &name);
            if is_retired && self.store.holds_given.retired.len() < PREVIOUS_IDENTITIES_MAX {
                self.store.holds_given.retired.push(previous);
            }
        }
    }

    /// Restores the previous hosts of this broker's name from the records. They are announced
    /// again, as brokers that had heard of them may have lost their disks since. If there are too
    /// many, the latest births count.
    pub(super) fn restore_previous(&mut self) {
        let overlay = &mut self.overlay;
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let mut previous: Vec<PreviousIdentity> =
            self.streams.ended_of(overlay.net.name()).filter(|known| !own.contains(&known.host)).collect();
        previous.sort_by_key(|known| (known.birth, known.host));
        overlay.previous = previous.split_off(previous.len().saturating_sub(PREVIOUS_IDENTITIES_MAX));
        self.announce_ended();
    }

    /// Has the link state name the ended hosts that this broker knows best: the previous hosts of
    /// its name, then the retired ones, the latest first.
    pub(super) fn announce_ended(&mut self) {
        let overlay = &mut self.overlay;
        let mut ended = overlay.previous.clone();
        ended.extend(self.store.holds_given.retired.iter().rev().take(PREVIOUS_IDENTITIES_MAX - ended.len()));
        overlay.net.set_previous(ended);
    }
}
