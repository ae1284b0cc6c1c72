//! Identities of clients: asked for after the machine was let go of, and told to its next owner.

use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use whimbrel_mqtt::{Identity, Unidentified};

use super::super::machine::Question;
use super::*;
use crate::access::{Access, Identified};
use crate::identity::Role;
use crate::identity::trust::Trust;

/// An answer to a question of the machine.
#[derive(Debug)]
struct Answer {
    conn: ConnId,
    ticket: u64,
    result: Result<Identity, Unidentified>,
}

/// Answers that wait for the machine, at most one for each connection that awaits its identity.
#[derive(Debug, Default)]
pub(super) struct Answers {
    list: Mutex<Vec<Answer>>,
    /// Whether the list has answers, readable without the lock.
    is_any: AtomicBool,
    news: Notify,
}

impl Answers {
    fn add(&self, question: (ConnId, u64), result: Result<Identified, Unidentified>) {
        let result = result.map(|who| Identity { principal: who.principal, by_token: who.by_token });
        let (conn, ticket) = question;
        self.list.lock().push(Answer { conn, ticket, result });
        self.is_any.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }
}

impl Hub {
    /// Sets the source of clients' identities, which also records refusals. Certificates that
    /// clients have shown are those that `trust` believes. The access rules came with the broker's
    /// configuration. Called once, before the first client connects.
    pub fn set_access(self: &Arc<Self>, access: Arc<Access>, trust: Option<&Arc<Trust>>) {
        if let Some(trust) = trust {
            let _ = self.trust.set(trust.clone());
        }
        self.run(|machine, _| machine.ports.access = Some(access.clone()));
        if self.access.set(access).is_ok() {
            tokio::spawn(attend(self.clone()));
        }
    }

    /// The source of clients' identities, once it is set.
    pub fn access(&self) -> Option<&Arc<Access>> {
        self.access.get()
    }

    /// Number of changes of the believed certificates; a TLS handshake keeps the number that it
    /// began with.
    pub fn trust_round(&self) -> u64 {
        self.trust.get().map_or(0, |trust| trust.round())
    }

    /// Ends a connection whose certificate is not believed any more. It was judged at the
    /// handshake, and [`Hub::renew_trust`] saw only the connections open at that moment.
    pub(super) fn judge_again(&self, line: &Line, port: &Port) {
        let Some((trust, (_, chain))) = self.trust.get().zip(port.caller().known.as_ref()) else { return };
        if trust.round() == port.caller().round {
            return;
        }
        let why = trust.dropped(Role::Client, chain, SystemTime::now());
        if let (Some(why), Source::Conn(conn)) = (why, line.source()) {
            let why = why.text();
            self.run(|machine, at| machine.broker.handle(at, Input::Revoked { conn, why }, &mut machine.ports));
        }
    }

    /// Puts other access rules in force.
    pub fn renew_access(&self, access: &whimbrel_mqtt::Access) {
        self.run(|machine, now| machine.broker.handle(now, Input::Access(access), &mut machine.ports));
    }

    /// Ends the connections of clients, and the links to brokers, whose certificates are not
    /// believed any more, and the links that no rule allows.
    pub fn renew_trust(&self, trust: &Trust, access: &Access) {
        let now = SystemTime::now();
        self.run(|machine, at| {
            let dropped = |chain: &[CertificateDer<'_>]| trust.dropped(Role::Client, chain, now);
            for (conn, why) in machine.ports.with_certificates(dropped) {
                machine.broker.handle(at, Input::Revoked { conn, why: why.text() }, &mut machine.ports);
            }
        });
        self.links
            .review(|link, chain| access.refuses_peer((&link.peer, &link.address.to_string()), Some((trust, chain))));
    }

    /// Asks the machine's questions. The caller has let go of the machine.
    pub(super) fn ask(&self, questions: Vec<Question>) {
        let Some(access) = self.access.get() else { return };
        for Question { conn, ticket, asked } in questions {
            if let Some(who) = access.recall(&asked) {
                // The thread that has let go of the machine looks for work again.
                self.answers.add((conn, ticket), Ok(who));
                continue;
            }
            let answers = self.answers.clone();
            access.identify(asked, move |result| {
                answers.add((conn, ticket), result);
                answers.news.notify_one();
            });
        }
    }

    /// Tells the machine the identities found.
    pub(super) fn tell_answers(&self, machine: &mut Machine, now: Time) {
        if !self.answers.is_any() {
            return;
        }
        let mut list = self.answers.list.lock();
        self.answers.is_any.store(false, Ordering::SeqCst);
        let answers = std::mem::take(&mut *list);
        drop(list);
        for Answer { conn, ticket, result } in answers {
            let result = result.as_ref().map_err(|why| *why);
            machine.broker.handle(now, Input::Identified { conn, ticket, result }, &mut machine.ports);
        }
    }
}

/// Runs the machine when there are answers and it has no owner.
async fn attend(hub: Arc<Hub>) {
    loop {
        hub.answers.news.notified().await;
        // An owner that is at work takes them when it lets go.
        if hub.answers.is_any()
            && let Some(owner) = hub.try_own()
        {
            hub.finish(owner);
        }
    }
}
