//! A client resumes without its session, as no broker that has it can be reached: it subscribes
//! again, and names its position.
//!
//! The interest was logged for the previous session, and is held for that until its owner reports
//! otherwise or is forgotten. So the logs count for the subscription from its token on, not from
//! now on, if that session cannot have ended meanwhile: the token may not be older than the
//! session's expiry. That it is the same subscription as before is up to the client.

use std::collections::BTreeMap;

use whimbrel_event::{HostId, PubendId, Reliability, Tick};

use super::{CatchUp, Durable, Gap, GapReason, InForceSince, NOTHING, RemoteLogs};
use crate::api::{Filter, Start};
use crate::broker::Broker;
use crate::store::{Key, MapValue, OWN};

impl Broker {
    /// Whether a requested new subscription resumes one of a session that cannot be reached.
    pub(crate) fn resumes(&self, index: u32, asked: &Filter<'_>) -> bool {
        let session = self.sessions.get(index);
        let Start::Token(token, _) = asked.start else { return false };
        let oldest = self.now.as_nanos().saturating_sub(session.expiry.as_nanos().try_into().unwrap_or(u64::MAX));
        let is_without = session.memory.roam.as_deref().is_some_and(|place| place.resumes);
        is_without && asked.spec.is_durable() && token.common() >= Tick(oldest)
    }

    /// Adds a gap for the part of the own log, behind a resuming cursor, that was given up. Other
    /// brokers tell that of their logs.
    pub(super) fn record_chopped(&self, catch_up: &mut CatchUp) {
        for (own, chopped) in self.store.release.chopped.iter().enumerate() {
            let pubend = self.streams.logged().host().pubend(own as u8);
            let from = catch_up.positions.get(pubend);
            catch_up.gaps.add(Gap { pubend, from, to: *chopped, reason: GapReason::Released });
        }
    }

    /// A stream that is younger than the token, or not in it, may be of a broker that did not know
    /// of the session, and logged nothing for it: adds a gap.
    pub(super) fn record_younger(&self, start: Start<'_>, catch_up: &mut CatchUp) {
        let Start::Token(token, _) = start else { return };
        let is_younger = |pubend, birth| birth > token.common() || token.position(pubend).is_none();
        let births: BTreeMap<PubendId, Tick> =
            self.streams.births().filter(|(pubend, birth)| is_younger(*pubend, *birth)).collect();
        for (pubend, to) in self.streams.positions() {
            let Some(birth) = births.get(&pubend).filter(|birth| catch_up.positions.get(pubend) <= **birth) else {
                continue;
            };
            catch_up.gaps.add(Gap { pubend, from: *birth, to, reason: GapReason::NotBuffered });
        }
    }

    /// Lets the logs count for a subscription from its position on; records of the own streams did
    /// not name it before.
    pub(crate) fn resume_from_token(&mut self, id: u32) {
        let assigned = self.streams.own.assigned();
        let own = [self.streams.own.host(), self.streams.logged().host()];
        let cursor = self.cursors.get(id);
        let (session, catch_up) =
            (cursor.session, cursor.catch_up.as_deref().expect("it begins at a place that was named"));
        let positions = self.streams.births().filter(|(pubend, birth)| {
            let host = pubend.host();
            let has_log = !own.contains(&host) && !self.streams.has_ended(host) && !self.has_no_log(host);
            // A stream that may be younger than the token has logged nothing for it before its
            // broker knows of the interest, as for a new subscription.
            has_log && pubend.reliability() == Reliability::Reliable && catch_up.positions.get(*pubend) > *birth
        });
        let positions: Vec<(PubendId, Tick)> =
            positions.map(|(pubend, _)| (pubend, catch_up.positions.get(pubend))).collect();
        let cursor = self.cursors.get_mut(id);
        let durable = cursor.durable.as_deref_mut().expect("it is durable");
        for (pubend, at) in positions {
            durable.remote.since.set(pubend, at);
            durable.remote.newest.set(pubend, NOTHING);
            durable.remote.written.count(pubend, at, Tick(0));
            durable.remote.written.mark(pubend, at);
        }
        (durable.remote.unnamed, durable.remote.resumes) = (assigned, true);
        let number = durable.number;
        let mut catch_up = cursor.catch_up.take().expect("it was just looked at");
        self.record_unbuffered(Some(id), InForceSince::Untold, &mut catch_up);
        self.cursors.get_mut(id).catch_up = Some(catch_up);
        if self.remembers(session) && assigned != [Tick(0); OWN] {
            self.store.write_queue.put(|key| Key::Unnamed(number).put(key), |value| assigned.put_versioned(value));
            self.write_position(id);
            self.store.write_queue.seal_large();
        }
    }

    /// A broker has no log: for cursors that resume with its streams, the part behind their
    /// position is a gap.
    pub(crate) fn resume_without_log(&mut self, host: HostId) {
        let passed: Vec<(PubendId, Tick)> =
            self.streams.of_host(host).map(|remote| (remote.pubend, remote.passed)).collect();
        for id in self.cursors.ids() {
            for (pubend, to) in &passed {
                let is_believed = |remote: &RemoteLogs| remote.resumes || remote.unsure.get(*pubend) == NOTHING;
                let resumes =
                    |durable: &&mut Durable| is_believed(&durable.remote) && durable.remote.since.has(*pubend);
                let Some(durable) = self.cursors.durable_mut(id).filter(resumes) else { continue };
                let remote = &mut *durable.remote;
                remote.since.remove(*pubend);
                remote.unsure.remove(*pubend);
                remote.newest.remove(*pubend);
                remote.holes.remove(*pubend);
                let detached = Some(remote.detached.get(*pubend)).filter(|_| remote.detached.has(*pubend));
                self.rejoin(id, *pubend);
                let catch_up = self.cursors.get(id).catch_up.as_deref().map(|catch_up| catch_up.positions.get(*pubend));
                if let Some(from) = detached.or(catch_up).filter(|from| from < to) {
                    self.record_gap(id, Gap { pubend: *pubend, from, to: *to, reason: GapReason::NotBuffered });
                }
            }
        }
    }
}
