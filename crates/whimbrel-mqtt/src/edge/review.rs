//! Effects of new rules and quotas on open connections.

use core::time::Duration;

use whimbrel_core::{Input as CoreInput, Link};
use whimbrel_event::Time;
use whimbrel_selector::SharedFilter;

use super::conn::State;
use super::guard::Denial;
use super::{ConnId, Edge, MqttBroker, Output};
use crate::codec::{ReasonCode, Subscribe};
use crate::config::Access;

/// Connections that one step checks against new rules at most: some milliseconds.
const REVIEW_STEP: u32 = 256;

/// The tag of the broker's own requests, which no client's request has.
pub(super) const OWN_TAG: u16 = 0;

/// The text for clients whose connection is not allowed any more.
const NOT_ANY_MORE: &str = "no rule allows the connection any more";

impl MqttBroker {
    /// Puts other rules in force.
    pub(super) fn set_access(&mut self, now: Time, access: &Access, out: &mut impl Output) {
        self.edge.guard.set(now, access);
        self.review(now, out);
    }

    /// Checks the next connections against new rules, if that is not finished.
    pub(super) fn review(&mut self, now: Time, out: &mut impl Output) {
        let Some((next, since)) = self.edge.guard.review else { return };
        let end = (self.edge.conns.len() as u32).min(next.saturating_add(REVIEW_STEP));
        self.edge.guard.review = (end < self.edge.conns.len() as u32).then_some((end, since));
        for id in next..end {
            self.review_one(now, id, out);
        }
    }

    fn review_one(&mut self, now: Time, id: u32, out: &mut impl Output) {
        let conn = &self.edge.conns[id as usize];
        let is_there = matches!(conn.state, State::Attached | State::Awaiting);
        if !is_there || self.edge.guard.allows_everything() {
            return;
        }
        let judged = match &conn.who {
            Some(who) => self.edge.guard.judge(who),
            None => Err(Denial { reason: ReasonCode::NOT_AUTHORIZED, cause: NOT_ANY_MORE }),
        };
        let conn = &mut self.edge.conns[id as usize];
        match (judged, &mut conn.who) {
            (Ok(grants), Some(who)) => {
                who.grants = grants;
                if !who.may_have_will() {
                    return self.expel(now, id, NOT_ANY_MORE, out);
                }
                if conn.state == State::Attached {
                    self.prune(now, id, out);
                }
            }
            (Err(denial), _) => self.expel(now, id, denial.cause, out),
            (Ok(_), None) => {}
        }
    }

    /// The certificate of a connection is not valid any more: the connection ends, even if its
    /// client was identified by other means.
    pub(super) fn revoked(&mut self, now: Time, (conn, why): (ConnId, &'static str), out: &mut impl Output) {
        let Some(known) = self.edge.conns.get_mut(conn.0 as usize) else { return };
        let shown = known.rare.as_mut().and_then(|rare| rare.certified.take());
        if shown.is_some() {
            self.expel(now, conn.0, why, out);
        }
    }

    /// Ends a connection that is not allowed any more. Its will is published only if it is allowed.
    fn expel(&mut self, now: Time, id: u32, why: &'static str, out: &mut impl Output) {
        let conn = &self.edge.conns[id as usize];
        let mut publish_will = false;
        if let Some(who) = &conn.who {
            publish_will = who.may_have_will();
            let denial = Denial { reason: ReasonCode::NOT_AUTHORIZED, cause: why };
            out.refused(ConnId(id), &denial.decision("connect", who.principal.name(), &who.client_id));
        }
        if conn.state != State::Attached || publish_will {
            return self.end(now, id, ReasonCode::NOT_AUTHORIZED, NOT_ANY_MORE, out);
        }
        self.edge.say_goodbye(id, ReasonCode::NOT_AUTHORIZED, NOT_ANY_MORE, out);
        self.detach(now, id, false, None, out);
        self.edge.forget(id);
    }

    /// Ends those subscriptions of a connection's session that are not allowed. From then on its
    /// deliveries are checked too, because some may be on their way.
    pub(super) fn prune(&mut self, now: Time, id: u32, out: &mut impl Output) {
        let conn = &self.edge.conns[id as usize];
        let Some(who) = conn.who.as_ref().filter(|_| conn.state == State::Attached) else { return };
        let all = self.core.subscriptions(&who.client_id, None, usize::MAX);
        let denied = |filter: &&str| who.grants.subscribe(filter).is_err();
        let denied: Vec<&str> = all.iter().map(|known| &*known.filter).filter(denied).collect();
        let denial = Denial { reason: ReasonCode::NOT_AUTHORIZED, cause: "no rule allows the subscription any more" };
        for filter in &denied {
            let decision = denial.decision("subscribe", who.principal.name(), &who.client_id);
            out.refused(ConnId(id), &decision.about(filter));
        }
        self.edge.stats.subscriptions_ended += denied.len() as u64;
        let is_any = !denied.is_empty();
        if is_any {
            let input = CoreInput::Unsubscribe { link: Link(id), tag: OWN_TAG, filters: &denied };
            self.core_input(now, input, out);
        }
        if let Some(who) = &mut self.edge.conns[id as usize].who {
            who.is_strict = is_any;
        }
        self.edge.guard.counted.push(id);
    }

    /// Handles the sessions that the current step has recorded: those that have returned, and those
    /// whose subscriptions have changed.
    pub(super) fn look_after(&mut self, now: Time, out: &mut impl Output) {
        while let Some(id) = self.edge.guard.returned.pop() {
            self.prune(now, id, out);
        }
        while let Some(id) = self.edge.guard.counted.pop() {
            let Some(who) = self.edge.conns[id as usize].who.as_mut() else { continue };
            if who.slot == whimbrel_access::Slot::NONE {
                continue;
            }
            let count = self.core.session(&who.client_id).map_or(0, |session| session.subscriptions);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let before = core::mem::replace(&mut who.subscriptions, count);
            self.edge.guard.meter.count_subscriptions(who.slot, before, count);
        }
    }

    /// The codes of the filters of a SUBSCRIBE that are refused; `None` if none is.
    pub(super) fn denied(
        &self,
        id: u32,
        subscribe: &Subscribe<'_>,
        out: &mut impl Output,
    ) -> Option<Box<[Option<ReasonCode>]>> {
        let who = self.edge.conns[id as usize].who.as_ref()?;
        let mut more = 0;
        let mut judge = |filter: &str| -> Option<Denial> {
            if SharedFilter::parse(filter).is_err() {
                // The core reports that the filter is invalid.
                return None;
            }
            if let Err(denied) = who.grants.subscribe(filter) {
                return Some(denied.into());
            }
            if self.edge.guard.meter.has_room(who.slot, more + 1).is_ok() {
                more += 1;
                return None;
            }
            let is_known = || {
                let known = self.core.subscriptions(&who.client_id, None, usize::MAX);
                known.iter().any(|known| *known.filter == *filter)
            };
            self.edge.guard.meter.has_room(who.slot, more + 1).err().filter(|_| !is_known()).map(Denial::from)
        };
        let codes = subscribe.filters.iter().map(|asked| {
            let denial = judge(asked.filter)?;
            let decision = denial.decision("subscribe", who.principal.name(), &who.client_id);
            out.refused(ConnId(id), &decision.about(asked.filter));
            Some(denial.reason)
        });
        let codes: Box<[Option<ReasonCode>]> = codes.collect();
        codes.iter().any(Option::is_some).then_some(codes)
    }
}

impl Edge {
    /// Counts a connection's input towards its principal's quota; beyond the quota the connection
    /// is not read for a while.
    #[inline]
    pub(super) fn spend(&mut self, now: Time, id: u32, (publishes, bytes): (u64, usize), out: &mut impl Output) {
        let conn = &mut self.conns[id as usize];
        let Some(who) = conn.who.as_ref().filter(|_| conn.state == State::Attached) else { return };
        let wait = self.guard.meter.spend(now, who.slot, publishes, bytes as u64);
        if wait > Duration::ZERO {
            self.throttle(now, id, wait, out);
        }
    }

    fn throttle(&mut self, now: Time, id: u32, wait: Duration, out: &mut impl Output) {
        let conn = &mut self.conns[id as usize];
        let (is_paused, until) = (conn.is_paused(), now.after(wait));
        if let Some(before) = conn.rare().throttled.replace(until) {
            self.guard.throttled.remove(&(before, id));
        }
        self.guard.throttled.insert((until, id));
        self.stats.throttled += 1;
        if !is_paused {
            out.pause(ConnId(id));
        }
    }

    /// Resumes reading connections whose quota has recovered.
    pub(super) fn relax(&mut self, now: Time, out: &mut impl Output) {
        while let Some(&(at, id)) = self.guard.throttled.first()
            && at <= now
        {
            self.guard.throttled.pop_first();
            let conn = &mut self.conns[id as usize];
            conn.rare().throttled = None;
            if !conn.is_paused() {
                conn.last_heard = now;
                out.resume(ConnId(id));
            }
        }
    }
}
