//! Sessions and the connections of their clients, as operators see and end them.

use std::net::SocketAddr;

use whimbrel_core::SessionInfo;
use whimbrel_mqtt::ClientInfo;

use super::*;

/// A session, and the connection of its client if there is one.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) info: SessionInfo,
    pub(crate) client: Option<Client>,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) info: ClientInfo,
    /// The client's address: behind a proxy that tells it, not the proxy's.
    pub(crate) address: Option<SocketAddr>,
}

/// A page of sessions.
#[derive(Debug)]
pub(crate) struct Seens {
    pub(crate) sessions: Vec<Seen>,
    /// The place of the next page; `None` at the end.
    pub(crate) next: Option<u32>,
    pub(crate) now: Time,
}

fn seen(machine: &Machine, info: SessionInfo) -> Seen {
    let client = info.link.and_then(|link| machine.broker.client(link)).map(|info| {
        let address = machine.ports.port(info.conn).and_then(|port| port.caller().address);
        Client { info, address }
    });
    Seen { info, client }
}

impl Hub {
    /// Sessions whose client ids begin with `prefix`, as [`whimbrel_core::Broker::sessions_named`].
    pub(crate) fn sessions(&self, prefix: &str, from: u32, places: usize, most: usize) -> Seens {
        let mut seens = Seens { sessions: Vec::new(), next: None, now: Time::ZERO };
        self.run(|machine, now| {
            let (infos, next) = machine.broker.core().sessions_named(prefix, from, places, most);
            let sessions = infos.into_iter().map(|info| seen(machine, info)).collect();
            seens = Seens { sessions, next, now };
        });
        seens
    }

    /// The session of a client, and the broker's time.
    pub(crate) fn session(&self, client_id: &str) -> Option<(Seen, Time)> {
        let mut found = None;
        self.run(|machine, now| {
            found = machine.broker.core().session(client_id).map(|info| (seen(machine, info), now));
        });
        found
    }

    /// Disconnects the client of a session, if it is connected. Returns the session as it was
    /// before, if there is one.
    pub(crate) fn kick(&self, client_id: &str) -> Option<(Seen, Time)> {
        let mut kicked = None;
        self.run(|machine, now| {
            kicked = machine.broker.core().session(client_id).map(|info| (seen(machine, info), now));
            if let Some((Seen { client: Some(client), .. }, _)) = &kicked {
                machine.broker.handle(now, Input::Kick { conn: client.info.conn }, &mut machine.ports);
            }
        });
        kicked
    }

    /// Ends a client's session, if there is one. Returns the session as it was, and the batch that
    /// makes its end durable. The session of a shared subscription ends only with its members.
    pub(crate) fn drop_session(&self, client_id: &str) -> Option<(Seen, BatchNo, Time)> {
        let mut ended = None;
        self.run(|machine, now| {
            let info = machine.broker.core().session(client_id).map(|info| seen(machine, info));
            machine.broker.handle(now, Input::DropSession { client_id }, &mut machine.ports);
            let info = info.filter(|_| machine.broker.core().session(client_id).is_none());
            ended = info.map(|info| (info, machine.broker.core().newest_batch(), now));
        });
        ended
    }
}
