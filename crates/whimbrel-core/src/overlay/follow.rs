//! Brokers come to be known, end, and are forgotten.
//!
//! A broker that comes back without its disk is another host of the same name. Its neighbours tell
//! it who had the name before it, and it tells everyone, with its link state, up to where those
//! streams have ended: nobody else could say so. What a broker has not got of them by then is lost,
//! and whoever may have wanted it is told.

use std::collections::BTreeSet;

use whimbrel_event::{HostId, PubendId, Reliability, Tick, Time};
use whimbrel_net::topology::LinkState;
use whimbrel_wire::{Frame, Hello, PREVIOUS_IDENTITIES_MAX, PreviousIdentities, PreviousIdentity};

use super::repair::NACK_HOPS_MAX;
use crate::api::{Channel, Output, PeerLink};
use crate::broker::Broker;
use crate::cursor::{AHEAD_MAX, Gap, GapReason};
use crate::stream::AHEAD_MAX as STREAM_AHEAD_MAX;

/// What tells a broker of those; `None`: there are none.
fn previous_frame(to: HostId, known: impl Iterator<Item = PreviousIdentity>) -> Option<Vec<u8>> {
    let known: Vec<PreviousIdentity> = known.collect();
    // The last ones are those that others have not heard of yet.
    let hosts = known[known.len().saturating_sub(PREVIOUS_IDENTITIES_MAX)..].to_vec();
    let mut frame = Vec::new();
    Frame::PreviousIdentities(PreviousIdentities { to, hops: 0, hosts }).encode(&mut frame);
    (!known.is_empty()).then_some(frame)
}

impl Broker {
    /// There is a broker whose streams are followed from now on: from where, it tells when it has
    /// adopted the interest of this one. `was_there`: others have told of it all the time.
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
            // Subscriptions that were answered when it was not there did not wait for it, nor was
            // it named: what it tells counts from a version on that has them all, also if its
            // streams were followed before.
            self.tell_interest(now, out);
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if !was_there {
            self.streams.follow_from(host, overlay.own_interest.version());
        }
        overlay.stats.hosts_refused += u64::from(!self.streams.knows(host.pubend(0)));
        if !was_there {
            self.await_grant_of(now, host);
        }
    }

    /// A new neighbour is told who had its name before it.
    pub(super) fn tell_previous(&mut self, now: Time, link: PeerLink, hello: &Hello<'_>, out: &mut dyn Output) {
        let known = self.streams.of_name(hello.name).map(|(known, _)| known);
        let Some(frame) = previous_frame(hello.host, known.filter(|known| known.host != hello.host)) else { return };
        self.overlay.as_deref_mut().expect("it has greeted").send(now, link, Channel::Control, &frame, out);
    }

    /// So is whoever does not name somebody who had its name: perhaps its neighbours have not heard
    /// of that one, or have lost their disks as well.
    pub(super) fn remind_of_previous(&mut self, now: Time, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref() else { return };
        let mut frames = Vec::new();
        for state in overlay.topology.states().filter(|state| state.host != overlay.host) {
            let is_named = |host| host == state.host || state.previous.iter().any(|previous| previous.host == host);
            // Of those that have ended it names as many as it may.
            let has_room = state.previous.len() < PREVIOUS_IDENTITIES_MAX;
            let is_open =
                |(known, has_ended): &(PreviousIdentity, bool)| (!has_ended || has_room) && !is_named(known.host);
            let open = self.streams.of_name(&state.name).filter(is_open);
            frames.extend(previous_frame(state.host, open.map(|(known, _)| known)).map(|frame| (state.host, frame)));
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        for (to, frame) in frames {
            overlay.send_towards(now, to, &frame, out);
        }
    }

    /// A broker tells who had the name of this one, or another one, before it. What a broker has on
    /// its own disk, with which it comes back, has not ended.
    pub(super) fn on_previous(&mut self, now: Time, previous: PreviousIdentities, out: &mut dyn Output) {
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let birth = self.streams.birth();
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        if previous.to != overlay.host {
            if previous.hops < NACK_HOPS_MAX {
                let (to, mut frame) = (previous.to, Vec::new());
                Frame::PreviousIdentities(PreviousIdentities { hops: previous.hops + 1, ..previous })
                    .encode(&mut frame);
                overlay.send_towards(now, to, &frame, out);
            }
            return;
        }
        for named in previous.hosts.iter().filter(|named| !own.contains(&named.host)) {
            let Some(overlay) = self.overlay.as_deref_mut() else { return };
            let is_known = overlay.previous.iter().any(|known| known.host == named.host);
            // One that is alive, or is known to be gone, has been mistaken.
            if is_known || overlay.topology.get(named.host).is_some() || self.streams.ended_at(named.host).is_some() {
                continue;
            }
            if overlay.previous.len() == PREVIOUS_IDENTITIES_MAX {
                let oldest = overlay.previous.remove(0);
                self.streams.record_ended(oldest, &overlay.config.name);
            }
            // Its streams may have been ahead of its clock.
            let upto = Tick(birth.0.saturating_add(STREAM_AHEAD_MAX.as_nanos() as u64));
            let ended = PreviousIdentity { birth: named.birth.min(birth), upto, ..*named };
            overlay.previous.push(ended);
            overlay.announce_soon(now);
            // Who stood in its streams comes back here before all.
            let name = overlay.config.name.clone();
            self.add_previous(&ended, &name);
            self.end_host(now, ended, false, out);
        }
    }

    /// A broker came back without what it had, under its name: those that had it have ended. One
    /// that it does not name gives the name up if it is out of reach.
    pub(super) fn end_namesakes(&mut self, now: Time, state: &LinkState, out: &mut dyn Output) {
        for previous in &state.previous {
            let host = previous.host;
            if self.known_name(host).is_some_and(|name| *name != *state.name) {
                // It was forgotten there.
                self.end_if_gone(now, previous, out);
                continue;
            }
            let Some(overlay) = self.overlay.as_deref_mut() else { return };
            // Also if this broker has been started again since: what subscribes here may be older
            // than that.
            let is_older = self.streams.birth() < previous.upto;
            let was_here = is_older || !overlay.knows_no_others() || self.streams.knows(host.pubend(0));
            let own = [overlay.host, self.streams.logged().host()];
            // One that is alive, or says of this one that it was before it, has not ended.
            let known = overlay.topology.get(host);
            let is_later = known.is_some_and(|known| known.previous.iter().any(|previous| previous.host == state.host));
            if own.contains(&host) || is_later || overlay.is_reachable(host) {
                continue;
            }
            if overlay.topology.get(host).is_some_and(|known| known.name == state.name) {
                self.forget_broker(host);
            }
            if was_here {
                // One that has come and gone while it was out of reach is as lost to those who were
                // here as one that was followed.
                self.add_previous(previous, &state.name);
            } else if self.streams.ended_at(host).is_none() {
                // Whoever comes to be told of it must not hear of it from one broker alone, which
                // may lose its disk, too.
                self.streams.record_ended(*previous, &state.name);
                self.write_ended(previous, &state.name, false);
            }
            if self.streams.of_name(&state.name).any(|(known, _)| known.host == host) {
                self.end_host(now, *previous, false, out);
            }
        }
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(holder) = overlay.topology.by_name(&state.name) else { return };
        // What is still told of one that has ended does not end the one that came after it.
        let holders = overlay.topology.get(holder).map(|holder| &holder.previous);
        let is_older = holders.is_some_and(|previous| previous.iter().any(|previous| previous.host == state.host));
        if holder != state.host && holder != overlay.host && !is_older && !overlay.is_reachable(holder) {
            self.forget_broker(holder);
        }
    }

    /// A host has ended of which perhaps nothing was known here.
    fn add_previous(&mut self, previous: &PreviousIdentity, name: &str) {
        let pubends = (previous.reliable, previous.best_effort);
        if self.streams.ended_at(previous.host).is_some() {
            return;
        }
        if self.streams.add_host(previous.host, pubends, previous.birth, true) {
            self.streams.name_host(previous.host, name);
        }
    }

    /// A host has ended: whatever has not come of its streams by now, at least up to that tick, is
    /// lost.
    pub(super) fn end_host(&mut self, now: Time, previous: PreviousIdentity, is_retired: bool, out: &mut dyn Output) {
        let PreviousIdentity { host, upto, .. } = previous;
        self.held_host_ended(now, host, is_retired);
        if !self.streams.end_host(host) {
            return;
        }
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.stats.hosts_ended += 1;
            overlay.record_end(now);
        }
        self.adopt_from(now, host);
        // Whoever waits for a part of them goes on from there, before it is told that the rest is
        // lost.
        self.remote_ended(host);
        // Before what is left of them is passed: what a subscription has waited for is lost, and no
        // longer something that was not asked for in time.
        self.settle_all(host);
        let streams: Vec<PubendId> = self.streams.of_host(host).map(|remote| remote.pubend).collect();
        let mut farthest_end = upto;
        for pubend in streams {
            // Its clock may have been another one, and somebody may have had more of it elsewhere.
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
            // What clients name is believed within bounds.
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
        // Whoever stands in them when this broker is started again is told as much.
        let name: Box<str> = self.streams.name_of(host).unwrap_or_default().into();
        self.write_ended(&PreviousIdentity { upto: farthest_end, ..previous }, &name, false);
        while let Some(oldest) = self.streams.one_ended_too_many() {
            self.lose_cached(oldest);
            self.streams.forget_ended(oldest);
        }
    }

    /// What is cached of a host is found no more: who stands before its end is told that it is
    /// lost.
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

    /// Brokers that were not heard of for long are forgotten. What was followed of their streams
    /// stays known: they may come back.
    pub(super) fn expire_brokers(&mut self, now: Time) {
        let Some(overlay) = &mut self.overlay else { return };
        let gone: Vec<HostId> = overlay.topology.expire(now);
        overlay.stats.brokers_expired += gone.len() as u64;
        overlay.watch_expiry();
        if !gone.is_empty() {
            overlay.record_expiry();
        }
        for host in gone {
            self.forget_broker(host);
        }
    }

    /// A broker is gone: nothing of it is kept.
    pub(super) fn forget_broker(&mut self, host: HostId) {
        let Some(overlay) = &mut self.overlay else { return };
        overlay.topology.forget(host);
        overlay.waiting.forget_host(host);
        overlay.interests.of.remove(&host);
        overlay.record_for_all(None, |pending| {
            pending.states.remove(&host);
            pending.interests.remove(&host);
            pending.has.remove(&host);
        });
        self.remove_destination(host);
        // When it comes back, what it has had since is asked for under what is wanted then.
        self.settle_all(host);
    }

    /// No subscription waits for a broker any more. What is known beyond what was passed was told
    /// under what was wanted before those came that wait: silence says nothing to them, and what is
    /// not told again is a gap.
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
        if let Some(overlay) = self.overlay.as_deref_mut() {
            overlay.waiting.forget_settled(&self.cursors);
        }
    }

    /// A subscription that has come does not wait for those that have ended before it came.
    pub(super) fn settle_ended(&mut self, id: u32) {
        let hosts = self.cursors.get(id).unsettled.iter().map(|(pubend, _)| pubend.host());
        let ended: BTreeSet<HostId> = hosts.filter(|host| self.streams.has_ended(*host)).collect();
        self.settle_those(id, |host| ended.contains(&host));
    }

    /// A subscription waits for some brokers no more: what was passed of their streams while it did
    /// is read when they are back, or is a gap.
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
                // Its client may say from where it wants that: it is as lost from there on.
                let durable = self.cursors.durable_mut(id).filter(|durable| durable.remote.since.has(pubend));
                if let Some(durable) = durable.filter(|_| has_ended) {
                    durable.remote.holes.advance(pubend, to);
                }
                self.record_gap(id, Gap { pubend, from, to, reason });
            }
        }
    }
}
