//! CONNECT and DISCONNECT: identifying a client, its permission to connect, and its session.

use core::time::Duration;

use whimbrel_access::Principal;
use whimbrel_core::{Attach, Input as CoreInput, Link};
use whimbrel_event::{Event, EventId, EventRef, PubendId, Tick, Time};
use whimbrel_selector::TopicName;

use super::api::{Credentials, Decision, Identity, Unidentified};
use super::conn::State;
use super::guard::{By, ConnIdentity};
use super::inbound::{Cause, allowed, violation};
use super::{Assigned, ConnId, Edge, MqttBroker, Output};
use crate::codec::{
    Connect, DecodeError, Disconnect, Packet, PublishProperties, ReasonCode, Version, Will, client_id_of, decode,
};
use crate::config::{AWAIT_MAX, IDENTIFY_MAX};

/// Seconds of a session expiry that mean "never".
const NEVER: u32 = u32::MAX;

/// The first byte of a CONNECT.
const CONNECT: u8 = 0x10;

/// The answer to a client that could not be identified, for any cause.
const NOT_BELIEVED: DecodeError = DecodeError {
    reason: ReasonCode::BAD_USER_NAME_OR_PASSWORD,
    cause: "user name and password, or the token, are not right",
};

/// The source of a client's identity.
enum IdentitySource {
    /// None is needed: every client may do everything.
    Nobody,
    /// The client's credentials.
    Credentials,
    /// The connection's certificate, or none (anonymous).
    Known(Principal, By),
}

impl MqttBroker {
    /// Handles a CONNECT, whose bytes are kept if the client has to be identified first.
    pub(super) fn connect(
        &mut self,
        now: Time,
        id: u32,
        (connect, body): (&Connect<'_>, &[u8]),
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        self.edge.adopt(id, connect);
        if let Some((reason, cause)) = self.refusal(connect) {
            return Err(DecodeError { reason, cause });
        }
        let source = self.edge.source(id, connect).inspect_err(|error| {
            let (about, client_id) = (connect.user_name.unwrap_or_default(), connect.client_id);
            let (code, why) = (error.reason.0, error.cause);
            out.refused(ConnId(id), &Decision { action: "connect", principal: "", client_id, about, code, why });
        })?;
        match source {
            IdentitySource::Nobody => self.attach(now, id, connect, None, out),
            IdentitySource::Known(principal, by) => self.admit(now, id, connect, (principal, by), out),
            IdentitySource::Credentials => {
                let ticket = self.edge.await_identity(now, id, body);
                let credentials = Credentials {
                    user_name: connect.user_name,
                    password: connect.password.unwrap_or_default(),
                    client_id: connect.client_id,
                };
                out.identify(ConnId(id), ticket, credentials);
                Ok(())
            }
        }
    }

    /// A client was identified, or could not be.
    pub(super) fn identified(
        &mut self,
        now: Time,
        (conn, ticket): (ConnId, u64),
        result: Result<&Identity, Unidentified>,
        out: &mut impl Output,
    ) {
        let id = conn.0;
        // The connection may have ended, and another one may have its number.
        let Some(body) = self.edge.take_asked(id, ticket) else { return };
        let version = self.edge.conns[id as usize].version;
        let judged = match (result, decode(version, CONNECT, &body)) {
            (Err(Unidentified::Busy), _) => Err(DecodeError {
                reason: ReasonCode::QUOTA_EXCEEDED,
                cause: "too many clients are signing in: try again in a few seconds",
            }),
            (Ok(identity), Ok(Packet::Connect(connect))) if self.edge.guard.still_knows(identity) => {
                self.admit(now, id, &connect, (identity.principal.clone(), By::of(identity)), out)
            }
            _ => Err(NOT_BELIEVED),
        };
        match judged {
            Err(error) => self.fail(now, id, &body, error, out),
            Ok(()) => self.edge.resume(id, out),
        }
    }

    /// Gives an identified client its session, if it is allowed to connect.
    fn admit(
        &mut self,
        now: Time,
        id: u32,
        connect: &Connect<'_>,
        (principal, by): (Principal, By),
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        let assigned = connect.client_id.is_empty().then(|| self.edge.assign_id());
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        match self.edge.guard.admit(now, (principal, by), client_id) {
            Ok(who) => self.edge.conns[id as usize].who = Some(Box::new(who)),
            Err((principal, denied)) => {
                out.refused(ConnId(id), &denied.decision("connect", principal.name(), client_id));
                return Err(DecodeError { reason: denied.reason, cause: denied.cause });
            }
        }
        self.attach(now, id, connect, assigned, out)
    }

    fn attach(
        &mut self,
        now: Time,
        id: u32,
        connect: &Connect<'_>,
        assigned: Option<String>,
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        let assigned = match assigned {
            None if connect.client_id.is_empty() => Some(self.edge.assign_id()),
            assigned => assigned,
        };
        let will = self.will(now, id, connect, out)?;
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let (properties, expiry) = (&connect.properties, expiry(connect));
        let keep_alive = self.edge.keep_alive(connect);
        self.edge.greeting = super::Greeting {
            keep_alive: (keep_alive != connect.keep_alive).then_some(keep_alive),
            // The core's bound on the expiry is told if it is smaller than the expiry asked for.
            expiry: (expiry > self.edge.config.core.session_expiry_max)
                .then(|| u32::try_from(self.edge.config.core.session_expiry_max.as_secs()).unwrap_or(NEVER)),
            response_information: (properties.request_response_information == Some(true))
                .then(|| self.edge.response_prefix(client_id)),
            assigned: assigned.clone(),
            client_id: client_id.into(),
        };
        let version = connect.version;
        let welcome = Packet::ConnAck(self.edge.welcome(&self.edge.greeting, false)).encoded_len(version);
        if welcome.map_or(true, |bytes| bytes > self.edge.conns[id as usize].max_packet as usize) {
            let reason = ReasonCode::PACKET_TOO_LARGE;
            return Err(DecodeError { reason, cause: "the maximum packet size is too small for CONNACK" });
        }
        let attach = Attach {
            link: Link(id),
            client_id,
            clean_start: connect.clean_start,
            expiry,
            window: properties.receive_maximum.map_or(u16::MAX, core::num::NonZeroU16::get),
            will,
            without_copy: self.edge.resumes_without_copy(connect),
            principal: self.edge.conns[id as usize].who.as_deref().map(ConnIdentity::principal_of_session),
        };
        self.core_input(now, CoreInput::Attach(attach), out);
        if self.edge.conns[id as usize].state == State::ExpectConnect {
            // The session may be at another broker.
            self.edge.await_session(now, id);
            return Ok(());
        }
        // Each connection begins with a full quota; publishes that earlier ones left unreleased do
        // not count against it.
        let carried = self.core.unreleased(Link(id));
        self.edge.conns[id as usize].carry(carried);
        Ok(())
    }

    /// The will of a CONNECT, if it has one that is allowed.
    fn will(
        &mut self,
        now: Time,
        id: u32,
        connect: &Connect<'_>,
        out: &mut impl Output,
    ) -> Result<Option<Box<whimbrel_core::Will>>, DecodeError> {
        let Some(asked) = &connect.will else { return Ok(None) };
        let read = self.edge.will(now, asked).map_err(|(reason, cause)| DecodeError { reason, cause })?;
        let event = read.event.view();
        let (topic, importance, deadline) = (event.topic, event.importance, event.deadline_ms);
        if let Some(who) = &mut self.edge.conns[id as usize].who {
            if let Err(denied) = who.may_publish(topic, importance, deadline) {
                out.refused(ConnId(id), &denied.decision("publish", who.principal.name(), &who.client_id).about(topic));
                return Err(DecodeError { reason: denied.reason, cause: "no rule allows to publish the will" });
            }
            who.will = Some(Box::new((topic.into(), importance, deadline)));
        }
        Ok(Some(Box::new(read)))
    }

    /// The reason why a well-formed CONNECT is not accepted.
    fn refusal(&self, connect: &Connect<'_>) -> Option<Cause> {
        if self.edge.leave.is_some() {
            return Some((ReasonCode::SERVER_UNAVAILABLE, "the broker is shutting down"));
        }
        if connect.properties.authentication_method.is_some() {
            return Some((ReasonCode::BAD_AUTHENTICATION_METHOD, "enhanced authentication is not available"));
        }
        if connect.client_id.is_empty() && connect.version == Version::V4 && !connect.clean_start {
            return Some((ReasonCode::CLIENT_IDENTIFIER_NOT_VALID, "an empty client id needs a clean session"));
        }
        None
    }

    pub(super) fn disconnect(
        &mut self,
        now: Time,
        id: u32,
        disconnect: &Disconnect<'_>,
        out: &mut impl Output,
    ) -> Result<(), DecodeError> {
        let expiry = disconnect.properties.session_expiry;
        if expiry.is_some_and(|seconds| seconds > 0) && self.edge.conns[id as usize].expiry_zero {
            return Err(violation("DISCONNECT sets a session expiry although CONNECT set none"));
        }
        let expiry = expiry.map(|seconds| match seconds {
            NEVER => Duration::MAX,
            seconds => Duration::from_secs(seconds.into()),
        });
        let publish_will = disconnect.reason != ReasonCode::SUCCESS;
        self.edge.close(id, out);
        self.detach(now, id, publish_will, expiry, out);
        self.edge.forget(id);
        Ok(())
    }
}

impl Edge {
    /// Records the connection's properties from a CONNECT.
    fn adopt(&mut self, id: u32, connect: &Connect<'_>) {
        let (keep_alive, alias_maximum) = (self.keep_alive(connect), self.config.limits.topic_alias_out_maximum);
        let properties = &connect.properties;
        let conn = &mut self.conns[id as usize];
        conn.asked = true;
        if connect.bridge {
            conn.rare().bridge = true;
        }
        conn.problem_information = properties.request_problem_information != Some(false);
        conn.max_packet = properties.maximum_packet_size.unwrap_or(u32::MAX);
        conn.topic_alias_maximum = properties.topic_alias_maximum.unwrap_or(0).min(alias_maximum);
        conn.expiry_zero = expiry(connect).is_zero();
        conn.patience = Duration::from_millis(1500 * u64::from(keep_alive));
    }

    /// The keep-alive in force, seconds.
    fn keep_alive(&self, connect: &Connect<'_>) -> u16 {
        match self.config.limits.keep_alive_max {
            0 => connect.keep_alive,
            max if connect.version == Version::V5 && (connect.keep_alive == 0 || connect.keep_alive > max) => max,
            _ => connect.keep_alive,
        }
    }

    /// Chooses the source of a client's identity.
    fn source(&mut self, id: u32, connect: &Connect<'_>) -> Result<IdentitySource, DecodeError> {
        if self.guard.allows_everything() {
            return Ok(IdentitySource::Nobody);
        }
        if connect.password.is_some() && self.guard.judges() {
            return Ok(IdentitySource::Credentials);
        }
        let certified = self.conns[id as usize].rare.as_ref().and_then(|rare| rare.certified.clone());
        match certified {
            Some(principal) => Ok(IdentitySource::Known(principal, By::Connection)),
            None if connect.password.is_none() && connect.user_name.is_none() => {
                Ok(IdentitySource::Known(Principal::anonymous(), By::Connection))
            }
            None => Err(NOT_BELIEVED),
        }
    }

    /// A connection waits until its client is identified. Its CONNECT is kept, and it is read on,
    /// so that its end is noticed.
    fn await_identity(&mut self, now: Time, id: u32, body: &[u8]) -> u64 {
        let ticket = self.guard.ticket();
        let conn = &mut self.conns[id as usize];
        conn.state = State::Identifying;
        conn.rare().asked = Some(Box::new((ticket, body.into())));
        self.stats.identifying += 1;
        self.watch(id, now.after(IDENTIFY_MAX));
        ticket
    }

    /// Takes the CONNECT of a connection that has this ticket, if it still waits.
    fn take_asked(&mut self, id: u32, ticket: u64) -> Option<Box<[u8]>> {
        let conn = self.conns.get_mut(id as usize).filter(|conn| conn.state == State::Identifying)?;
        let (_, body) = *conn.rare.as_mut()?.asked.take_if(|asked| asked.0 == ticket)?;
        conn.state = State::ExpectConnect;
        Some(body)
    }

    /// The client id of a connection whose CONNECT has not been answered yet.
    pub(super) fn waiting_client(&mut self, id: u32) -> Box<str> {
        let conn = &mut self.conns[id as usize];
        let greeting = match conn.state {
            State::Identifying => {
                let asked = conn.rare.as_ref().and_then(|rare| rare.asked.as_ref());
                return asked.and_then(|asked| client_id_of(&asked.1)).unwrap_or_default().into();
            }
            State::Awaiting => conn.rare.as_mut().and_then(|rare| rare.greeting.take()),
            _ => None,
        };
        greeting.map_or_else(|| core::mem::take(&mut self.greeting), |greeting| *greeting).client_id
    }

    /// A connection waits no longer to be identified: packets that it sent meanwhile are handled,
    /// unless it now waits for its session.
    fn resume(&mut self, id: u32, out: &mut impl Output) {
        let conn = &mut self.conns[id as usize];
        if conn.state != State::Attached {
            return;
        }
        if core::mem::take(&mut conn.rare().paused) {
            out.resume(ConnId(id));
        }
        self.admitted.conns.push(id);
    }

    /// Converts a CONNECT's will to the core's.
    fn will(&mut self, now: Time, will: &Will<'_>) -> Result<whimbrel_core::Will, Cause> {
        let invalid = (ReasonCode::TOPIC_NAME_INVALID, "the will's topic is no topic name");
        TopicName::new(will.topic).map_err(|_| invalid)?;
        allowed(will.topic)?;
        let properties = PublishProperties {
            text_payload: will.properties.text_payload,
            content_type: will.properties.content_type,
            response_topic: will.properties.response_topic,
            correlation_data: will.properties.correlation_data,
            user: will.properties.user,
            ..PublishProperties::default()
        };
        let mut event = EventRef::new(will.topic, will.payload, will.qos);
        let mut attributes = whimbrel_event::AttributesBuf::new();
        self.with_properties(now, &mut event, &properties, &mut attributes)?;
        let unnamed = EventId { pubend: PubendId(0), tick: Tick(0) };
        Ok(whimbrel_core::Will {
            event: Event::keep(unnamed, now, &event),
            retain: will.retain,
            delay: Duration::from_secs(will.properties.delay.unwrap_or(0).into()),
            lifetime: will.properties.message_expiry.map(|seconds| Duration::from_secs(seconds.into())),
        })
    }

    /// Whether a client continues without the brokers' copy of its session if the copy cannot be
    /// reached.
    fn resumes_without_copy(&mut self, connect: &Connect<'_>) -> bool {
        let mut resumes = false;
        for (name, value) in connect.properties.user.iter() {
            match (name, value) {
                ("w-session", "client") => resumes = true,
                (name, _) if name.starts_with("w-") => self.stats.reserved_properties_unknown += 1,
                _ => {}
            }
        }
        resumes
    }

    /// A connection waits for its session. It is read on, so that its end is noticed: a session is
    /// not attached to a connection that has ended.
    fn await_session(&mut self, now: Time, id: u32) {
        let greeting = core::mem::take(&mut self.greeting);
        let conn = &mut self.conns[id as usize];
        conn.state = State::Awaiting;
        conn.rare().greeting = Some(Box::new(greeting));
        self.watch(id, now.after(AWAIT_MAX));
    }

    /// A client id for a client without one.
    fn assign_id(&mut self) -> String {
        self.assigned.count += 1;
        let Assigned { seed, count } = self.assigned;
        let mixed = self.hasher.hash_one((seed, count));
        format!("auto-{mixed:016x}{count:x}")
    }

    /// The prefix of the topics on which a client may expect replies.
    fn response_prefix(&self, client_id: &str) -> String {
        format!("$replies/{:016x}/", self.hasher.hash_one(client_id))
    }
}

/// The time for which the session outlives the connection.
fn expiry(connect: &Connect<'_>) -> Duration {
    match (connect.version, connect.properties.session_expiry) {
        (Version::V5, Some(NEVER)) => Duration::MAX,
        (Version::V5, seconds) => Duration::from_secs(seconds.unwrap_or(0).into()),
        (Version::V4, _) if connect.clean_start => Duration::ZERO,
        (Version::V4, _) => Duration::MAX,
    }
}
