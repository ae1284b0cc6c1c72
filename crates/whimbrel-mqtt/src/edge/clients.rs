//! What an operator sees of clients' connections, and what it can do to one.

use whimbrel_core::Link;
use whimbrel_event::Time;

use super::conn::{Origin, State};
use super::{ConnId, MqttBroker, Output};
use crate::codec::{ReasonCode, Version};

/// A client's connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// The driver's name for the connection.
    pub conn: ConnId,
    /// The kind of listener it came over.
    pub origin: Origin,
    /// What the client speaks.
    pub version: Version,
    /// The client is a bridge of another broker.
    pub is_bridge: bool,
    /// Who it has proved to be; `None` where everything is allowed to everybody.
    pub principal: Option<Box<str>>,
    /// When the connection was opened.
    pub since: Time,
    /// What went over it.
    pub traffic: Traffic,
}

/// What went over a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// PUBLISH packets received.
    pub publishes_in: u64,
    /// PUBLISH packets sent.
    pub publishes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes handed to the driver.
    pub bytes_out: u64,
}

/// The transport connection of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// The kind of listener it came over.
    pub(crate) origin: Origin,
    /// When it was opened.
    pub(crate) since: Time,
    /// What went over it.
    pub(crate) traffic: Traffic,
    /// Bytes given to the driver while it already had all that a connection may leave unread.
    pub(crate) unread: usize,
}

impl MqttBroker {
    /// The connection of a session's client, by [`whimbrel_core::SessionInfo::link`].
    pub fn client(&self, link: Link) -> Option<ClientInfo> {
        let conn = self.edge.conns.get(link.0 as usize).filter(|conn| conn.state == State::Attached)?;
        Some(ClientInfo {
            conn: ConnId(link.0),
            origin: conn.wire.origin,
            version: conn.version,
            is_bridge: conn.rare.as_ref().is_some_and(|rare| rare.bridge),
            principal: conn.who.as_ref().map(|who| who.principal.name().into()),
            since: conn.wire.since,
            traffic: conn.wire.traffic,
        })
    }

    /// Disconnects a client whose session goes on as if the connection had been lost.
    pub(super) fn kick(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        if self.edge.conns.get(conn.0 as usize).is_some_and(|known| known.state == State::Attached) {
            let cause = "an operator has disconnected the client";
            self.end(now, conn.0, ReasonCode::ADMINISTRATIVE_ACTION, cause, out);
        }
    }
}
