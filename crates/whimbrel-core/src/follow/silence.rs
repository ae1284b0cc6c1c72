//! Subscriptions with notices are told that nothing came.

use whimbrel_event::{Qos, Time};

use super::{Gaps, Positions, Silence, notice};
use crate::api::{Output, Reason};
use crate::broker::Broker;
use crate::session::Publication;

impl Broker {
    /// Has a subscription with notices told about silence when the time comes.
    pub(super) fn watch_silence(&mut self, now: Time, id: u32) {
        let span = self.sessions.limits.silence_after;
        let track = self.tracks.get_mut(id);
        if track.notices && track.silence.due.is_none() {
            let at = now.after(span);
            track.silence = Silence { told_at: now, due: Some(at) };
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    /// A subscription may have been told nothing for a while.
    pub(crate) fn tell_silence(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let span = self.sessions.limits.silence_after;
        let track = self.tracks.get(id);
        let (told_at, session) = (track.silence.told_at, track.session);
        // Also one that gets events: its position in the streams that have none for it would stay behind.
        if track.notices && track.lag.is_none() {
            let token = self.silence_token(now, id);
            let track = self.tracks.get_mut(id);
            let terms = track.terms_of_notice(Qos::AtLeastOnce);
            let event = notice::silence(told_at, self.streams.silent(now), &token, now);
            track.silence.told_at = now;
            // A client that does not take even this is not silent.
            self.sessions.offer_tracked(session, &mut Publication::of(&event, 0), terms, out);
        }
        let track = self.tracks.get_mut(id);
        track.silence.due = None;
        if track.notices {
            let at = now.after(span);
            track.silence.due = Some(at);
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    fn silence_token(&mut self, now: Time, id: u32) -> Box<str> {
        let passed: Positions = self.streams.positions().collect();
        self.tracks.get_mut(id).ahead.retain_above(&passed);
        let track = self.tracks.get(id);
        if !track.ahead.is_empty() || track.is_behind_somewhere() {
            let mut positions = self.ahead_positions(&track.ahead);
            track.step_back_to_settled(&mut positions);
            self.streams.close(now);
            return self.token_at(&positions, &Gaps::default()).to_string().into();
        }
        if (self.silence.0, self.silence.1) != (now, self.serial) {
            self.silence = (now, self.serial, self.live_token(now).to_string().into());
        }
        self.silence.2.clone()
    }
}
