//! Events and silence of other brokers' streams are taken in.

use core::time::Duration;

use whimbrel_event::{PubendId, Tick, Time};
use whimbrel_net::traces::TraceStep;
use whimbrel_wire::{Dest, EventFrame, Silence, compact};

use crate::api::Output;
use crate::broker::Broker;
use crate::remote::Learnt;
use crate::retained::TOMBSTONE_LIFETIME;

impl Broker {
    /// Takes in an event that this broker wants, or wanted under an earlier interest.
    pub(super) fn on_remote_event(
        &mut self,
        now: Time,
        (frame, own): (&EventFrame<'_>, Dest),
        age: Duration,
        out: &mut dyn Output,
    ) {
        let overlay = &mut self.overlay;
        let id = frame.id();
        let Ok(mut event) = compact::read(frame.event, id) else {
            overlay.net.refuse_event();
            return;
        };
        // Clocks differ: the rest of the event's lifetime counts from here.
        event.event.expires = event.event.expires.map(|expires| {
            let lifetime = expires.since(event.accepted);
            now + lifetime.saturating_sub(age)
        });
        event.event.headers.retain = frame.retain;
        overlay.stats.events_received += 1;
        let version = overlay.net.own_interest().version_of(own.tag);
        let Some(remote) = self.streams.remote(id.pubend) else { return };
        // Silence holds if it was told for the present interest: under the version told last, or up
        // to the tick from which that version is in force.
        let is_told = remote.told > 0 && remote.told >= remote.least;
        let is_believed = is_told && (version >= remote.told || id.tick <= remote.since);
        let is_believed = is_believed || fault!(self, IntervalAcrossVersions) && remote.told > 0;
        let after = if is_believed {
            own.previous
        } else {
            overlay.stats.silence_disbelieved += 1;
            Tick(id.tick.0 - 1)
        };
        overlay.net.record_step(now, id, TraceStep::Passed);
        // For an event older than the lifetime of tombstones it is unknown whether its retained
        // message was deleted; the registry of retained messages decides.
        let retain = frame.retain && age < TOMBSTONE_LIFETIME;
        let learnt = Learnt::Data { event, retain };
        self.learn_of(now, (id.pubend, after, id.tick), learnt, out);
        if frame.answer {
            self.on_answer(now, id.pubend, frame.event.len(), out);
        }
        self.check_holes(now, id.pubend);
    }

    /// Takes in silence of other brokers' streams.
    pub(super) fn on_silence(&mut self, now: Time, silence: &Silence<'_>, out: &mut dyn Output) {
        for part in &silence.parts {
            let pubend = silence.from.pubend(part.index);
            self.silence_of(now, pubend, (silence.version, part), out);
            self.check_holes(now, pubend);
        }
        let overlay = &mut self.overlay;
        overlay.record_told(&self.streams, silence.from);
        self.confirm_ready(now, out);
    }

    /// Takes in the silence of one stream.
    fn silence_of(
        &mut self,
        now: Time,
        pubend: PubendId,
        (version, part): (u64, &whimbrel_wire::Part),
        out: &mut dyn Output,
    ) {
        let overlay = &mut self.overlay;
        let began = overlay.net.own_interest().began();
        let version_now = overlay.net.own_interest().version();
        let Some(remote) = self.streams.remote(pubend) else { return };
        // Holds under any version: it may be older than the interest that was told last.
        remote.record_still((part.still, part.upto));
        // Subscriptions that were answered before the stream's broker was known did not wait for
        // it: the stream counts once its broker knows of them.
        let least = began.max(remote.least);
        let version = if fault!(self, OldVersionBelieved) { version_now } else { version };
        if version > version_now || version < remote.told.max(least) || part.upto < part.after {
            return;
        }
        let mut after = part.after;
        if remote.told < least {
            // There was no interest before, so no subscription misses anything.
            self.begin_stream(now, pubend, part.begin, out);
            // Events up to `part.since` were matched against other versions: they are asked for.
            after = after.max(part.since);
            if fault!(self, FirstSilenceBelieved) {
                after = part.begin;
            }
        }
        let Some(remote) = self.streams.remote(pubend) else { return };
        let is_more = remote.told < version;
        (remote.told, remote.since) = (version, part.since);
        let overlay = &mut self.overlay;
        overlay.waiting.is_told_more |= is_more;
        if after < part.upto {
            let what = if part.lost { Learnt::Lost } else { Learnt::Silence };
            self.learn_of(now, (pubend, after, part.upto), what, out);
        }
    }
}
