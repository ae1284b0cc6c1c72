//! Clients' connections as operators see them, and disconnecting one.

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
    /// The client's protocol version.
    pub version: Version,
    /// The client is a bridge of another broker.
    pub is_bridge: bool,
    /// The identified principal; `None` where every client may do everything.
    pub principal: Option<Box<str>>,
    /// When the connection was opened.
    pub since: Time,
    /// The traffic of the connection.
    pub traffic: Traffic,
}

/// The traffic of a connection.
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
    /// The traffic of the connection.
    pub(crate) traffic: Traffic,
    /// Bytes given to the driver since its backlog reached the high-water mark, in steps without
    /// room.
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

    /// Disconnects a client; its session is kept as after the loss of a connection.
    pub(super) fn kick(&mut self, now: Time, conn: ConnId, out: &mut impl Output) {
        if self.edge.conns.get(conn.0 as usize).is_some_and(|known| known.state == State::Attached) {
            let cause = "an operator has disconnected the client";
            self.end(now, conn.0, ReasonCode::ADMINISTRATIVE_ACTION, cause, out);
        }
    }
}
