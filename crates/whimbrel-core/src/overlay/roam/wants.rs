//! Other brokers want sessions of clients that are connected here: each waits until what the
//! connection has already sent is handled, see [`crate::session`].

use whimbrel_event::{HostId, Time};
use whimbrel_wire::AskPublished;

use super::KnownClaim;
use super::searches::Successor;
use crate::api::{Link, Output};
use crate::broker::Broker;
use crate::overlay::messages::Sender;
use crate::session::{Claimant, Session};

/// What another broker wants of a session that is attached here, kept until its connection has been
/// read out.
#[derive(Debug)]
pub(crate) struct Want {
    client: Box<str>,
    kind: WantKind,
}

#[derive(Debug)]
enum WantKind {
    /// The session.
    Session(Successor),
    /// What the client has published here; at the moment `came` its connection there had waited for
    /// `waited` microseconds.
    Published { from: Sender, number: u64, epoch: u64, waited: u64, came: Time },
    /// Its client is attached elsewhere by now.
    Outdated(KnownClaim),
}

impl Want {
    pub(super) fn session(client: &str, successor: &Successor) -> Want {
        Want { client: client.into(), kind: WantKind::Session(successor.clone()) }
    }

    pub(super) fn published(now: Time, from: Sender, asked: &AskPublished<'_>) -> Want {
        let AskPublished { number, client, epoch, waited } = *asked;
        Want { client: client.into(), kind: WantKind::Published { from, number, epoch, waited, came: now } }
    }

    pub(super) fn outdated(client: &str, known: KnownClaim) -> Want {
        Want { client: client.into(), kind: WantKind::Outdated(known) }
    }

    /// Which broker asks for the session, and under which number.
    fn asker(&self) -> Option<(HostId, u64)> {
        match &self.kind {
            WantKind::Session(successor) => Some((successor.from.host, successor.number)),
            WantKind::Published { from, number, .. } => Some((from.host, *number)),
            WantKind::Outdated(_) => None,
        }
    }

    /// Whether it is the same question, asked again.
    pub(crate) fn is_repeat_of(&self, other: &Want) -> bool {
        self.client == other.client && self.asker().is_some() && self.asker() == other.asker()
    }
}

impl Broker {
    /// Keeps what another broker wants if the session's connection is to be read out first; whether
    /// it is.
    pub(super) fn waits_for_client(
        &mut self,
        now: Time,
        client: &str,
        want: impl FnOnce() -> Want,
        out: &mut dyn Output,
    ) -> bool {
        let unread: Option<Link> = self.unread_link(now, client, out);
        if let Some(link) = unread {
            self.claim(link, Claimant::Broker(Box::new(want())), out);
        }
        unread.is_some()
    }

    /// The connection of the session that another broker wants has been read out, or has ended.
    pub(crate) fn resume_want(&mut self, now: Time, want: Want, out: &mut dyn Output) {
        let client = want.client;
        match want.kind {
            WantKind::Session(successor) => self.resume_move(now, &client, &successor, out),
            WantKind::Published { from, number, epoch, waited, came } => {
                let more = now.since(came).as_micros() as u64;
                let waited = waited.saturating_add(more);
                self.on_ask_published(now, from, &AskPublished { number, client: &client, epoch, waited }, out);
            }
            WantKind::Outdated(known) => self.on_outdated(now, &[known.claim(&client)], out),
        }
    }

    /// Gives a session to the broker that wants it, unless a claimant that was served before has
    /// changed whose it is.
    fn resume_move(&mut self, now: Time, client: &str, successor: &Successor, out: &mut dyn Output) {
        let session = self.sessions.find(client).map(|index| self.sessions.get(index));
        if session.is_some_and(Session::is_given) {
            // It asks again, and hears to which broker.
            return;
        }
        let place = session.filter(|session| session.is_attached()).and_then(|session| session.memory.roam.as_deref());
        if place.is_some_and(|place| place.connected_at > successor.left.as_nanos()) {
            // The client has come here since it connected there.
            let host = self.overlay.net.host();
            return self.say_gave(now, (successor.from.host, successor.number), (host, 0, 0), out);
        }
        self.give_to(now, client, successor, out);
    }
}
