//! Watched links: what the network layer does with reports, and when the condition of a link has
//! changed.

use whimbrel_event::Time;
use whimbrel_wire::{Flash, Frame, LOSS_MAX, LinkReport, LinkStamp, Probe};

use super::peers::Peer;
use super::queue::{FrameClass, WaitingEvent};
use super::watch::LinkCondition;
use crate::due::NetDue;
use crate::forward::Carrier;
use crate::io::{Io, LinkOutput};
use crate::pace::Routing;
use crate::topology::Patched;
use crate::{Channel, Identity, Net, PeerLink};

/// Probes by which a neighbour is checked: each may be lost.
const CHECK_PROBES: usize = 3;

impl Carrier<'_> {
    /// Records a stamped event that has arrived, and sees to it that it is reported. Returns the
    /// time that it took over the link, microseconds; `None`: its repeat was taken before.
    pub(crate) fn record_arrival(&mut self, link: PeerLink, stamp: LinkStamp) -> Option<u64> {
        let now = self.now;
        let peer = self.peers.get_mut(link)?;
        let (way_us, within) = peer.watch.record_arrival(now, stamp, &peer.estimate);
        self.timers.set_once(now + within, NetDue::Report(link));
        if peer.watch.was_repeated(stamp.sequence) {
            self.stats.repeats_known += 1;
            return None;
        }
        Some(way_us)
    }

    /// Records a repeated event. Returns the time since it departed from the other end of the link,
    /// microseconds; `None`: it has arrived before.
    pub(crate) fn record_repeat(&mut self, link: PeerLink, stamp: LinkStamp) -> Option<u64> {
        let peer = self.peers.get_mut(link)?;
        if peer.watch.knows(stamp.sequence) {
            self.stats.repeats_known += 1;
            return None;
        }
        self.stats.repeats_used += 1;
        Some(peer.watch.record_repeat(self.now, stamp, &peer.estimate))
    }

    /// Reports to a neighbour which of its events with a deadline have arrived, and how late.
    pub(crate) fn report(&mut self, link: PeerLink, out: &mut dyn LinkOutput) {
        let Some(due) = self.peers.get_mut(link).and_then(|peer| peer.watch.report()) else { return };
        let mut frame = Vec::with_capacity(24);
        Frame::LinkReport(due.report).encode(&mut frame);
        self.write(link, Channel::Datagram, &frame, out);
        self.timers.set_once(self.now + due.next_in, NetDue::Report(link));
        if due.has_paused {
            self.check(link, out);
        }
    }

    /// Sends a neighbour [`CHECK_PROBES`] probes at once, to see whether it is there.
    pub(crate) fn check(&mut self, link: PeerLink, out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link).filter(|peer| peer.is_watched()) else { return };
        let Some(until) = peer.watch.begin_check(self.now, &peer.estimate) else { return };
        self.timers.set_once(until, NetDue::Judge(link));
        for _ in 0..CHECK_PROBES {
            self.probe(link, out);
        }
    }

    /// Sends a probe.
    pub(crate) fn probe(&mut self, link: PeerLink, out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let sequence = peer.estimate.sent() as u32;
        let mut frame = Vec::with_capacity(16);
        Frame::Probe(Probe { sequence, sent: self.now.as_nanos() }).encode(&mut frame);
        self.write(link, Channel::Datagram, &frame, out);
    }

    /// Stamps an event that departs over a link now, and keeps it until it is reported.
    pub(crate) fn stamp(&mut self, link: PeerLink, event: WaitingEvent, deadline_ms: u32) -> Option<LinkStamp> {
        let peer = self.peers.get_mut(link).filter(|peer| peer.is_watched())?;
        let (stamp, overdue_at) = peer.watch.stamp(self.now, event, deadline_ms, &peer.estimate);
        self.timers.set_once(overdue_at, NetDue::Judge(link));
        Some(stamp)
    }

    /// Tells the neighbours of a change of a link, except one.
    pub(crate) fn flood(&mut self, but: Option<PeerLink>, flash: Flash, out: &mut dyn LinkOutput) {
        let mut frame = Vec::with_capacity(48);
        Frame::Flash(flash).encode(&mut frame);
        for link in self.peers.links_up() {
            if Some(link) != but && self.peers.get(link).is_some_and(Peer::is_watched) {
                self.send(link, FrameClass::Flash, &frame, out);
            }
        }
    }
}

impl Net {
    /// Handles a change of a link that another broker tells of.
    pub(crate) fn on_flash(&mut self, io: &mut Io<'_>, link: PeerLink, flash: Flash) {
        if flash.host == self.identity.host {
            if flash.number > self.flashes {
                // This broker never sent it: a link state with a greater sequence replaces it.
                self.stats.flashes_refused += 1;
                self.sequence = self.sequence.max(flash.sequence);
                self.announce_soon(io.now);
            }
            return;
        }
        match self.topology.patch(&flash) {
            Patched::New => {
                self.stats.flashes_in += 1;
                self.carrier(io.now).flood(Some(link), flash, io.out);
                // It may be the broker that has ended, not the link.
                if flash.loss == LOSS_MAX {
                    let other = if flash.neighbour == self.identity.host { flash.host } else { flash.neighbour };
                    if let Some(link) = self.peers.to(other) {
                        self.carrier(io.now).check(link, io.out);
                    }
                }
            }
            Patched::Known => {}
            Patched::Refused => self.stats.flashes_refused += 1,
        }
    }

    /// Takes a neighbour's report of events with a deadline.
    pub(crate) fn on_report(&mut self, now: Time, link: PeerLink, report: LinkReport, out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        if !peer.watch.on_report(now, report, &peer.estimate) {
            self.stats.bad_reports += 1;
        }
        self.follow_condition(now, link, out);
    }

    /// Checks a link for events with a deadline that its other end should have reported.
    pub(crate) fn judge(&mut self, io: &mut Io<'_>, link: PeerLink, due: Time) {
        let has_stood_still = self.has_stood_still(io.now, self.config.pace.dead_after());
        let Some(peer) = self.peers.get_mut(link) else { return };
        if has_stood_still && !fault!(self, OwnSilence) {
            peer.watch.excuse(io.now);
        }
        if let Some(at) = peer.watch.judge(io.now, due, &peer.estimate) {
            self.timers.set_once(at, NetDue::Judge(link));
        }
        self.follow_condition(io.now, link, io.out);
    }

    /// Follows the condition of a link if it has changed: all brokers are told at once, and events
    /// that may be lost on a dark link go once by another way.
    pub(crate) fn follow_condition(&mut self, now: Time, link: PeerLink, out: &mut dyn LinkOutput) {
        let Some(peer) = self.peers.get_mut(link) else { return };
        let Some(condition) = peer.watch.news(now) else { return };
        let Some(neighbour) = peer.host() else { return };
        self.stats.conditions_changed += 1;
        let ((delay_us, loss), port) = (peer.announced(), peer.port);
        let is_told = peer.watch.may_flash(now);
        let unreported = if condition == LinkCondition::Dark { peer.watch.take_unreported() } else { Vec::new() };
        self.announce_soon(now);
        self.flashes += 1;
        let Identity { host, incarnation, .. } = self.identity;
        let (sequence, number) = (self.sequence, self.flashes);
        let flash = Flash { host, incarnation, sequence, number, neighbour, delay_us, loss };
        // The own paths follow in any case.
        if self.topology.patch(&flash) == Patched::New && is_told && !fault!(self, FlashNotFlooded) {
            self.stats.flashes_out += 1;
            self.carrier(now).flood(None, flash, out);
        }
        if self.config.routing == Routing::Reactive {
            for event in unreported.iter().filter(|event| !event.is_late(now)) {
                self.detour(now, port, event, out);
            }
        }
    }
}
