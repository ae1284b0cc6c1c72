//! Silence: other brokers are told up to where own streams have nothing for them; so they learn of
//! a last event that was lost, and their subscriptions' positions keep up.

use core::time::Duration;

use whimbrel_event::{HostId, Reliability, Tick, Time};
use whimbrel_net::topology::FEW_BROKERS;
use whimbrel_wire::{Dest, Frame, Part, Silence, TreeWriter};

use super::forward::put_nodes;
use super::{Due, Overlay};
use crate::api::{Channel, Output};
use crate::broker::Broker;
use crate::stream::Streams;

/// Silence is told so long after the last event.
pub const QUIET_GRACE: Duration = Duration::from_millis(20);

/// It is told at doubling intervals up to this one.
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(30);

/// With more than [`FEW_BROKERS`] intervals grow so many times each time: each change of what one
/// wants is answered by all of them, twelve times if they doubled.
const QUIET_GROWS: u32 = 4;

/// And to a destination that wants something else than before, or has just come to be reached, it
/// is told again after this.
const QUIET_AGAIN: Duration = Duration::from_millis(320);

/// While events go to a destination, it is told of its silent streams so often.
pub const QUIET_BUSY: Duration = Duration::from_secs(1);

/// How long it is until silence is told again that was told after such a pause.
fn after(pause: Duration, is_few: bool) -> Duration {
    let next = match (is_few, pause.is_zero()) {
        (true, _) => pause * 2,
        (false, true) => QUIET_AGAIN,
        (false, false) => pause * QUIET_GROWS,
    };
    next.clamp(QUIET_GRACE, QUIET_MAX)
}

impl Overlay {
    /// An event is on its way to a destination: silence is told some time after it.
    pub(super) fn is_quiet_after(&mut self, now: Time, number: u32) {
        let destination = self.destinations.get_mut(number).expect("it is served");
        destination.sent_at = now;
        destination.pause = QUIET_GRACE;
        let at = now + QUIET_GRACE;
        if destination.quiet_at > at {
            destination.quiet_at = at;
            self.set_timer(at, Due::Quiet(number));
        }
    }

    /// Sends parts of a silence to a broker, over the best way.
    pub(super) fn send_silence(
        &mut self,
        now: Time,
        (host, incarnation, version): (HostId, u64, u64),
        parts: Vec<Part>,
        out: &mut dyn Output,
    ) {
        self.routes.update(&self.topology);
        let trees = self.routes.trees(&[host]);
        let Some(tree) = trees.trees.first() else { return };
        let way = &tree.nodes[1..];
        let port = way[0].port;
        let mut bytes = Vec::with_capacity(16);
        let end = Dest { tag: 0, previous: Tick(0) };
        put_nodes(TreeWriter::new(&mut bytes, Tick(0), Tick(0)), way, |_| end);
        let Some(link) = self.peers.behind(port) else { return };
        // Behind the events that it is about. If there were none, one frame takes all.
        let destination = self.destinations.number(host).and_then(|number| self.destinations.get(number));
        let gets_best_effort = destination.is_some_and(|destination| destination.gets_best_effort);
        let is_of_events =
            |part: &Part| !gets_best_effort || self.host.pubend(part.index).reliability() == Reliability::Reliable;
        let (reliable, best_effort): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(is_of_events);
        for (channel, parts) in [(Channel::Reliable, reliable), (Channel::BestEffort, best_effort)] {
            if parts.is_empty() || !self.peers.get(link).is_some_and(|peer| peer.has_room(channel)) {
                continue;
            }
            let silence = Silence { from: self.host, target_tree: &bytes, incarnation, version, parts };
            let mut frame = Vec::with_capacity(128);
            Frame::Silence(silence).encode(&mut frame);
            self.stats.silences_out += 1;
            self.send(now, link, channel, &frame, out);
        }
    }
}

impl Broker {
    /// Tells a destination up to where the own streams have nothing more for it, and sets the timer
    /// for the next time.
    pub(super) fn tell_quiet(&mut self, now: Time, number: u32, out: &mut dyn Output) {
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let Some(destination) = overlay.destinations.get_mut(number) else { return };
        if destination.quiet_at > now && !destination.pause.is_zero() {
            // It was put off.
            return;
        }
        destination.quiet_at = Time::MAX;
        let nothing_new = destination.wants_nothing() && !destination.pause.is_zero();
        let host = destination.host;
        if nothing_new || !overlay.is_reachable(host) {
            return;
        }
        let destination = overlay.destinations.get_mut(number).expect("it is served");
        let is_busy = now.since(destination.sent_at) < QUIET_GRACE && now.since(destination.told_at) < QUIET_BUSY;
        if is_busy && !destination.pause.is_zero() {
            let at = destination.sent_at + QUIET_GRACE;
            destination.quiet_at = at;
            return overlay.set_timer(at, Due::Quiet(number));
        }
        self.streams.close(now);
        let (passed, last_events) = (self.passed_own(), self.streams.own.last_events());
        let beyond = if fault!(self, SilenceAhead) { 1_000_000_000 } else { 0 };
        let Some(overlay) = self.overlay.as_deref_mut() else { return };
        let is_few = overlay.topology.len() <= FEW_BROKERS;
        let destination = overlay.destinations.get_mut(number).expect("it is served");
        let part = |own: usize| Part {
            index: own as u8,
            begin: destination.begin[own],
            since: destination.since[own],
            after: destination.last[own].min(passed[own]),
            upto: Tick(passed[own].0 + beyond),
            lost: false,
            still: last_events[own].min(passed[own]),
        };
        let parts = (0..Streams::COUNT).map(part).collect();
        for (last, passed) in destination.last.iter_mut().zip(passed) {
            *last = passed.max(*last);
        }
        destination.told_at = now;
        destination.pause = after(destination.pause, is_few);
        let at = now + destination.pause;
        destination.quiet_at = at;
        let whom = (host, destination.incarnation, destination.version);
        overlay.set_timer(at, Due::Quiet(number));
        overlay.send_silence(now, whom, parts, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn among_many_silence_is_told_less_often() {
        let times = |mut pause: Duration, is_few| {
            let mut times = 1;
            while pause < QUIET_MAX {
                pause = after(pause, is_few);
                times += 1;
            }
            times
        };
        assert_eq!([times(Duration::ZERO, true), times(Duration::ZERO, false)], [13, 6]);
        assert_eq!([times(QUIET_GRACE, true), times(QUIET_GRACE, false)], [12, 7]);
    }
}
