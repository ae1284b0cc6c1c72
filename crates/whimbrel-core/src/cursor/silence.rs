//! Subscriptions with notices are told of silence.

use whimbrel_event::{Qos, Time};

use super::{Gaps, Positions, SilenceTimer, notice};
use crate::api::{Output, Reason};
use crate::broker::Broker;
use crate::session::Publication;

impl Broker {
    /// Sets the timer of a subscription with notices.
    pub(super) fn watch_silence(&mut self, now: Time, id: u32) {
        let span = self.sessions.limits.silence_after;
        let cursor = self.cursors.get_mut(id);
        if cursor.notices && cursor.silence.due.is_none() {
            let at = now.after(span);
            cursor.silence = SilenceTimer { told_at: now, due: Some(at) };
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    /// The timer of a subscription fires: tells it of silence, if it is caught up.
    pub(crate) fn tell_silence(&mut self, now: Time, id: u32, out: &mut dyn Output) {
        let span = self.sessions.limits.silence_after;
        let cursor = self.cursors.get(id);
        let (told_at, session) = (cursor.silence.told_at, cursor.session);
        // Also if it gets events: its position in streams without events for it would stay behind.
        if cursor.notices && cursor.catch_up.is_none() {
            let token = self.silence_token(now, id);
            let cursor = self.cursors.get_mut(id);
            let terms = cursor.terms_of_notice(Qos::AtLeastOnce);
            let event = notice::silence(told_at, self.streams.silent(now), &token, now);
            cursor.silence.told_at = now;
            // A client that does not even take this is not silent.
            self.sessions.offer_tracked(session, &mut Publication::of(&event, 0), terms, out);
        }
        let cursor = self.cursors.get_mut(id);
        cursor.silence.due = None;
        if cursor.notices {
            let at = now.after(span);
            cursor.silence.due = Some(at);
            self.timers.insert(at, Reason::Silence, id);
        }
    }

    fn silence_token(&mut self, now: Time, id: u32) -> Box<str> {
        let passed: Positions = self.streams.positions().collect();
        self.cursors.get_mut(id).ahead.retain_above(&passed);
        let cursor = self.cursors.get(id);
        if !cursor.ahead.is_empty() || cursor.is_behind_somewhere() {
            let mut positions = self.ahead_positions(&cursor.ahead);
            cursor.step_back_to_settled(&mut positions);
            self.streams.close(now);
            return self.token_at(&positions, &Gaps::default()).to_string().into();
        }
        if (self.silence.0, self.silence.1) != (now, self.serial) {
            self.silence = (now, self.serial, self.caught_up_token(now).to_string().into());
        }
        self.silence.2.clone()
    }
}
