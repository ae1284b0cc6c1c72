//! Sessions that move, in messages: which broker has a client's session, the contents of the
//! session, and which brokers have copies of it.

use whimbrel_event::{EventId, HostId, PREDECESSORS_MAX, PredecessorsBuf};

use crate::body::Body;
use crate::bytes::{Put, Reader};
use crate::{CLAIMS_MAX, CLIENT_ID_BYTES_MAX, Invalid, LIST_MAX, MESSAGE_BYTES_MAX, PRINCIPAL_BYTES_MAX};

/// Bytes of a session, or of copies, in one message: its other fields take less than the rest.
const CARRIED_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (128 << 10);

/// The kind of a claim: what a broker has of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClaimKind {
    /// Nothing any more.
    Nothing,
    /// The session was at the broker, and ended there.
    Ended,
    /// The client is about to be attached there.
    Coming,
    /// The broker had the session and gave it away; it still has the state of that time.
    Given,
    /// The broker has a copy.
    Copy,
    /// The broker owns a session that ends with its connection.
    Passing,
    /// The broker owns the session.
    Owner,
}

impl ClaimKind {
    const ALL: [ClaimKind; 7] = [
        ClaimKind::Nothing,
        ClaimKind::Ended,
        ClaimKind::Coming,
        ClaimKind::Given,
        ClaimKind::Copy,
        ClaimKind::Passing,
        ClaimKind::Owner,
    ];
}

/// A claim of a broker on a client's session. The greater (epoch, `connected_at`, host) is the
/// newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim<'a> {
    /// The broker.
    pub host: HostId,
    /// The session's client; at most [`CLIENT_ID_BYTES_MAX`] bytes.
    pub client: &'a str,
    /// The kind of the claim.
    pub kind: ClaimKind,
    /// The number of the attachment.
    pub epoch: u64,
    /// Order of two copies of the same attachment: the greater is the later.
    pub version: u64,
    /// When the client attached, nanoseconds since 1970 by the broker's clock.
    pub connected_at: u64,
}

fn client<'a>(input: &mut Reader<'a>) -> Result<&'a str, Invalid> {
    input.text(CLIENT_ID_BYTES_MAX, "a client id")
}

/// The principal's name at the end of a message; empty if absent.
fn principal<'a>(input: &mut Reader<'a>) -> Result<&'a str, Invalid> {
    if input.0.is_empty() { Ok("") } else { input.text(PRINCIPAL_BYTES_MAX, "an owner") }
}

fn put_principal(principal: &str, out: &mut Vec<u8>) {
    if !principal.is_empty() {
        out.put_bytes(principal.as_bytes(), PRINCIPAL_BYTES_MAX, "an owner");
    }
}

fn put_client(client: &str, out: &mut Vec<u8>) {
    out.put_bytes(client.as_bytes(), CLIENT_ID_BYTES_MAX, "a client id");
}

impl<'a> Body<'a> for Claim<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (host, client) = (input.host()?, client(input)?);
        let kind = ClaimKind::ALL.get(usize::from(input.byte()?)).copied().ok_or(Invalid::Range("a claim"))?;
        Ok(Claim { host, client, kind, epoch: input.varint()?, version: input.varint()?, connected_at: input.u64()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.host.as_u64());
        put_client(self.client, out);
        out.push(self.kind as u8);
        out.put_varint(self.epoch);
        out.put_varint(self.version);
        out.put_u64(self.connected_at);
    }
}

fn claims<'a>(input: &mut Reader<'a>) -> Result<Vec<Claim<'a>>, Invalid> {
    input.list(CLAIMS_MAX, "claims", Claim::read)
}

fn put_claims(claims: &[Claim<'_>], out: &mut Vec<u8>) {
    out.put_list(claims, CLAIMS_MAX, "claims", |out, claim| claim.put(out));
}

fn hosts(input: &mut Reader<'_>) -> Result<Vec<HostId>, Invalid> {
    input.list(LIST_MAX, "hosts", Reader::host)
}

fn put_hosts(hosts: &[HostId], out: &mut Vec<u8>) {
    out.put_list(hosts, LIST_MAX, "hosts", |out, host| out.put_u64(host.as_u64()));
}

/// Asks which broker has a client's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Where<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// The client.
    pub client: &'a str,
    /// When the client connected to the asking broker, nanoseconds since 1970: it is about to have
    /// the session. 0: the broker only wants to know.
    pub connected_at: u64,
}

impl<'a> Body<'a> for Where<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Where { number: input.varint()?, client: client(input)?, connected_at: input.u64()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        put_client(self.client, out);
        out.put_u64(self.connected_at);
    }
}

/// The answer to [`Where`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found<'a> {
    /// The number of the question.
    pub number: u64,
    /// The known claims, at most [`CLAIMS_MAX`].
    pub claims: Vec<Claim<'a>>,
    /// The brokers for which the answer holds: a hash of all that the answering broker can reach,
    /// as in [`Claims::map`].
    pub map: u64,
    /// Brokers that the answering broker can reach and that have not told their claims, at most
    /// [`LIST_MAX`].
    pub unsynced: Vec<HostId>,
    /// Unreachable brokers of whose sessions the answering broker knew more before its last start;
    /// at most [`LIST_MAX`].
    pub forgotten: Vec<HostId>,
}

impl<'a> Body<'a> for Found<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (number, claims) = (input.varint()?, claims(input)?);
        let (unsynced, forgotten) = (hosts(input)?, hosts(input)?);
        Ok(Found { number, claims, unsynced, forgotten, map: input.u64()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        put_claims(&self.claims, out);
        put_hosts(&self.unsynced, out);
        put_hosts(&self.forgotten, out);
        out.put_u64(self.map);
    }
}

/// Claims of brokers, told to the broker that is asked for them. Answered by [`PageTaken`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims<'a> {
    /// The sender's number for the page.
    pub page: u64,
    /// With this page the sender has told all its claims, as long as the set of brokers stays: a
    /// hash of that set. 0: more pages follow.
    pub map: u64,
    /// At most [`CLAIMS_MAX`].
    pub claims: Vec<Claim<'a>>,
}

impl<'a> Body<'a> for Claims<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Claims { page: input.varint()?, map: input.u64()?, claims: claims(input)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.page);
        out.put_u64(self.map);
        put_claims(&self.claims, out);
    }
}

/// Acknowledges [`Claims`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageTaken {
    /// The page.
    pub page: u64,
}

impl Body<'_> for PageTaken {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        Ok(PageTaken { page: input.varint()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.page);
    }
}

/// A client is attached at the sender, which asks for its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move<'a> {
    /// The asking broker's number for the move: the same for all parts and repetitions.
    pub number: u64,
    /// The client.
    pub client: &'a str,
    /// The least epoch that the session gets.
    pub least: u64,
    /// When the client connected, nanoseconds since 1970.
    pub connected_at: u64,
    /// Whether the session is to end instead.
    pub clean: bool,
    /// Time for which the client's connection has waited for the session, microseconds: a younger
    /// connection at the receiver, by the receiver's own clock, stays.
    pub waited: u64,
    /// Whether a copy will do: the broker with a later state cannot be reached, or does not have
    /// it.
    pub as_copy: bool,
    /// A broker that was asked, or cannot be: the state that was given to it will do, too.
    pub asked_of: Option<HostId>,
    /// The requested part.
    pub part: u32,
    /// The principal of the connection, if it may not have another principal's session; at most
    /// [`PRINCIPAL_BYTES_MAX`] bytes. Empty: it may, or no client has connected.
    pub principal: &'a str,
}

impl<'a> Body<'a> for Move<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(Move {
            number: input.varint()?,
            client: client(input)?,
            least: input.varint()?,
            connected_at: input.u64()?,
            clean: input.bool("a clean start")?,
            waited: input.varint()?,
            as_copy: input.bool("the use of a copy")?,
            asked_of: Some(input.host()?).filter(|host| host.as_u64() != 0),
            part: input.small("a part")?,
            principal: principal(input)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        put_client(self.client, out);
        out.put_varint(self.least);
        out.put_u64(self.connected_at);
        out.push(u8::from(self.clean));
        out.put_varint(self.waited);
        out.push(u8::from(self.as_copy));
        out.put_u64(self.asked_of.map_or(0, HostId::as_u64));
        out.put_varint(u64::from(self.part));
        put_principal(self.principal, out);
    }
}

/// The result of a [`Move`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveAnswer {
    /// There is no session, and none will be given: a late part of an older move is refused.
    Nothing,
    /// The session is given.
    Given,
    /// The session has ended; the body is of its publisher only.
    Ended,
    /// Another broker has it.
    GaveTo {
        /// The broker that the session was given to.
        to: HostId,
        /// The epoch of the state that was given to it and is still kept; 0: none is.
        of: u64,
    },
    /// The session belongs to another principal: told only if the request names a principal.
    Foreign,
}

/// The answer to [`Move`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved<'a> {
    /// The number of the question.
    pub number: u64,
    /// The result.
    pub answer: MoveAnswer,
    /// The epoch that the session has from now on.
    pub epoch: u64,
    /// The number of this part.
    pub part: u32,
    /// The number of parts.
    pub parts: u32,
    /// A hash of the whole session: parts of different states do not fit together.
    pub digest: u64,
    /// The part.
    pub body: &'a [u8],
    /// The session's principal, at most [`PRINCIPAL_BYTES_MAX`] bytes; empty if it is not known, as
    /// in minor version 0.
    pub principal: &'a str,
}

impl<'a> Body<'a> for Moved<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let number = input.varint()?;
        let answer = match input.byte()? {
            0 => MoveAnswer::Nothing,
            1 => MoveAnswer::Given,
            2 => MoveAnswer::Ended,
            3 => MoveAnswer::GaveTo { to: input.host()?, of: input.varint()? },
            4 => MoveAnswer::Foreign,
            _ => return Err(Invalid::Range("the answer to a move")),
        };
        Ok(Moved {
            number,
            answer,
            epoch: input.varint()?,
            part: input.small("a part")?,
            parts: input.small("a number of parts")?,
            digest: input.u64()?,
            body: input.bytes(CARRIED_BYTES_MAX, "a session")?,
            principal: principal(input)?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        match self.answer {
            MoveAnswer::Nothing => out.push(0),
            MoveAnswer::Given => out.push(1),
            MoveAnswer::Ended => out.push(2),
            MoveAnswer::GaveTo { to, of } => {
                out.push(3);
                out.put_u64(to.as_u64());
                out.put_varint(of);
            }
            MoveAnswer::Foreign => out.push(4),
        }
        out.put_varint(self.epoch);
        out.put_varint(u64::from(self.part));
        out.put_varint(u64::from(self.parts));
        out.put_u64(self.digest);
        out.put_bytes(self.body, CARRIED_BYTES_MAX, "a session");
        put_principal(self.principal, out);
    }
}

/// Asks what a client, which is about to be attached at the sender, has published last at the
/// receiver. If it still is connected there, it is disconnected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskPublished<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// The client.
    pub client: &'a str,
    /// The epoch of its new attachment.
    pub epoch: u64,
    /// Time for which that connection has waited, microseconds: a younger connection at the
    /// receiver, by the receiver's own clock, stays.
    pub waited: u64,
}

impl<'a> Body<'a> for AskPublished<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (number, client) = (input.varint()?, client(input)?);
        Ok(AskPublished { number, client, epoch: input.varint()?, waited: input.varint()? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        put_client(self.client, out);
        out.put_varint(self.epoch);
        out.put_varint(self.waited);
    }
}

/// The answer to [`AskPublished`]; all of it is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The number of the question.
    pub number: u64,
    /// The greatest number that the client has given to an event, as far as the answering broker
    /// knows.
    pub numbered: Option<u64>,
    /// The client's last event there, and the events that may have to be delivered before it; the
    /// latest first.
    pub lasts: PredecessorsBuf,
}

impl Body<'_> for Published {
    fn read(input: &mut Reader<'_>) -> Result<Self, Invalid> {
        let number = input.varint()?;
        let numbered = if input.bool("a publisher's number")? { Some(input.varint()?) } else { None };
        let lasts = input.list(PREDECESSORS_MAX, "a publisher's events", |input| input.event_id())?;
        Ok(Published { number, numbered, lasts: lasts.into_iter().collect() })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number);
        out.push(u8::from(self.numbered.is_some()));
        self.numbered.iter().for_each(|numbered| out.put_varint(*numbered));
        let lasts: Vec<EventId> = self.lasts.iter().collect();
        out.put_list(&lasts, PREDECESSORS_MAX, "a publisher's events", |out, id| out.put_event_id(*id));
    }
}

/// Claims of sessions; the message's kind tells what is asked or said of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionClaims<'a> {
    /// At most [`CLAIMS_MAX`].
    pub claims: Vec<Claim<'a>>,
}

impl<'a> Body<'a> for SessionClaims<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        Ok(SessionClaims { claims: claims(input)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_claims(&self.claims, out);
    }
}

/// Copies of sessions, whole or as changes. Answered by [`CopiesTaken`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copies<'a> {
    /// The sender's number for the page.
    pub page: u64,
    /// The copies, one after the other.
    pub body: &'a [u8],
    /// Principals of the sessions of which there is a whole copy: its place among all copies, from
    /// 0, and the name, at most [`PRINCIPAL_BYTES_MAX`] bytes; unknown ones are left out. At most
    /// [`LIST_MAX`].
    pub principals: Vec<(u32, &'a str)>,
}

impl<'a> Body<'a> for Copies<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (page, body) = (input.varint()?, input.bytes(CARRIED_BYTES_MAX, "copies")?);
        let one = |input: &mut Reader<'a>| Ok((input.small("a copy")?, input.text(PRINCIPAL_BYTES_MAX, "an owner")?));
        let principals = if input.0.is_empty() { Vec::new() } else { input.list(LIST_MAX, "owners", one)? };
        Ok(Copies { page, body, principals })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.page);
        out.put_bytes(self.body, CARRIED_BYTES_MAX, "copies");
        if !self.principals.is_empty() {
            out.put_list(&self.principals, LIST_MAX, "owners", |out, (copy, principal)| {
                out.put_varint(u64::from(*copy));
                out.put_bytes(principal.as_bytes(), PRINCIPAL_BYTES_MAX, "an owner");
            });
        }
    }
}

/// Acknowledges [`Copies`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiesTaken<'a> {
    /// The page.
    pub page: u64,
    /// Clients of whose sessions the receiver has no copy to which the changes apply; at most
    /// [`LIST_MAX`].
    pub lacking: Vec<&'a str>,
    /// A hash of the streams that the receiver of the copies knows: a sender that knows the same
    /// ones need not name them. 0 if it tells none, as in minor version 0.
    pub streams: u64,
}

impl<'a> Body<'a> for CopiesTaken<'a> {
    fn read(input: &mut Reader<'a>) -> Result<Self, Invalid> {
        let (page, lacking) = (input.varint()?, input.list(LIST_MAX, "clients", client)?);
        let streams = if input.0.is_empty() { 0 } else { input.u64()? };
        Ok(CopiesTaken { page, lacking, streams })
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.page);
        out.put_list(&self.lacking, LIST_MAX, "clients", |out, client| put_client(client, out));
        if self.streams != 0 {
            out.extend_from_slice(&self.streams.to_le_bytes());
        }
    }
}
