//! Sessions that move: who has a client's session, what it is made of, and who has a copy of it.
//! What these say travels in messages.

use whimbrel_event::{EventId, HostId, PREDECESSORS_MAX, PredecessorsBuf};

use crate::bytes::{Put, Reader};
use crate::frame::Body;
use crate::{CLAIMS_MAX, CLIENT_ID_BYTES_MAX, Invalid, LIST_MAX, MESSAGE_BYTES_MAX, PRINCIPAL_BYTES_MAX};

/// Bytes of a session, or of copies, in one message: what else stands in it takes less than the
/// rest.
const CARRIED_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (128 << 10);

/// What a broker has of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClaimKind {
    /// Nothing any more.
    Nothing,
    /// It had it, and the session ended there.
    Ended,
    /// The client is about to be attached there.
    Coming,
    /// It had it and gave it away; it still has what that was then.
    Given,
    /// It has a copy.
    Copy,
    /// It keeps a session that ends with its connection.
    Passing,
    /// It keeps the session.
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

/// What some broker has of a client's session. The greater (epoch, moment, host) is the newer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim<'a> {
    /// Which broker.
    pub host: HostId,
    /// Whose session; at most [`CLIENT_ID_BYTES_MAX`] bytes.
    pub client: &'a str,
    /// What it has.
    pub kind: ClaimKind,
    /// The number of the attachment.
    pub epoch: u64,
    /// Which of two copies of the same attachment is the later one.
    pub version: u64,
    /// When the client attached, nanoseconds since 1970 by that broker's clock.
    pub connected_at: u64,
}

fn client<'a>(input: &mut Reader<'a>) -> Result<&'a str, Invalid> {
    input.text(CLIENT_ID_BYTES_MAX, "a client id")
}

/// The name at the end of a message, if it is there.
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

/// Who has this client's session?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Where<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// Whose.
    pub client: &'a str,
    /// When the client has connected to the asking broker, nanoseconds since 1970: it is about to
    /// have the session. 0: it only wants to know.
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
    /// What is known, at most [`CLAIMS_MAX`].
    pub claims: Vec<Claim<'a>>,
    /// For which brokers the answering one speaks: a hash of all that it can reach, as in
    /// [`Claims::map`].
    pub map: u64,
    /// Brokers that can be reached from there and have not told what they have, at most
    /// [`LIST_MAX`].
    pub unsynced: Vec<HostId>,
    /// Brokers that cannot be reached, and of whose sessions the answering one once knew more,
    /// before it was started again; at most [`LIST_MAX`].
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

/// What brokers have, told to whoever is asked for it. Answered by [`PageTaken`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims<'a> {
    /// The sender's number for it.
    pub page: u64,
    /// With this page the sender has told everything that it has to tell, as long as these are the
    /// brokers there are: a hash of them. 0: there is more.
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

/// [`Claims`] have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageTaken {
    /// Which.
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

/// A client is attached at the sender: it wants to have its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move<'a> {
    /// The asking broker's number for it: the same for all parts and repetitions.
    pub number: u64,
    /// Whose.
    pub client: &'a str,
    /// The epoch that it will have at least.
    pub least: u64,
    /// When the client has connected, nanoseconds since 1970.
    pub connected_at: u64,
    /// The session is to end instead.
    pub clean: bool,
    /// Since when that connection waits for it, microseconds: whoever has come since, by whatever
    /// clock, stays.
    pub waited: u64,
    /// What is a copy will do: whoever has a later state cannot be reached, or has not got it.
    pub as_copy: bool,
    /// And so will what was given to that one, which has been asked, or cannot be.
    pub asked_of: Option<HostId>,
    /// Which part of it.
    pub part: u32,
    /// Who has connected, if that one may not have a session of somebody else; at most
    /// [`PRINCIPAL_BYTES_MAX`] bytes. Empty: it may, or nobody has.
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

/// What became of a [`Move`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveAnswer {
    /// There is nothing, and will not be: what may still come of an older move is refused.
    Nothing,
    /// Here it is.
    Given,
    /// The session has ended; what follows is of its publisher only.
    Ended,
    /// Somebody else has it.
    GaveTo {
        /// Who has.
        to: HostId,
        /// The epoch of the state that went, which is still there; 0: there is none.
        of: u64,
    },
    /// It is somebody else's: said only to those who have named an owner.
    Foreign,
}

/// The answer to [`Move`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved<'a> {
    /// The number of the question.
    pub number: u64,
    /// What became of it.
    pub answer: MoveAnswer,
    /// The epoch that the session has from now on.
    pub epoch: u64,
    /// Which part this is.
    pub part: u32,
    /// Of how many.
    pub parts: u32,
    /// A hash of the whole: parts of different states do not fit together.
    pub digest: u64,
    /// The part.
    pub body: &'a [u8],
    /// Whose the session is, at most [`PRINCIPAL_BYTES_MAX`] bytes; empty if that is not known, as
    /// brokers of minor version 0 do not.
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

/// What has this client, which is about to be attached at the sender, published last at the
/// receiver? If it still is connected there, it is not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskPublished<'a> {
    /// The asking broker's number for the question.
    pub number: u64,
    /// Which client.
    pub client: &'a str,
    /// The epoch of its new attachment.
    pub epoch: u64,
    /// Since when that connection waits, microseconds: whoever has come since, by whatever clock,
    /// stays.
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

/// The answer to [`AskPublished`]: all that is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The number of the question.
    pub number: u64,
    /// The greatest number that the client has given to an event, as far as the answering broker
    /// knows.
    pub numbered: Option<u64>,
    /// The client's last event there, and what may have to come before that; the latest first.
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

/// Claims of sessions, about which something is asked or said: which the message's kind tells.
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

/// Copies of sessions, whole or what has changed of them. Answered by [`CopiesTaken`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copies<'a> {
    /// The sender's number for it.
    pub page: u64,
    /// One after the other.
    pub body: &'a [u8],
    /// Whose the sessions are of which there is a whole copy: its place among all copies, from 0,
    /// and the name, at most [`PRINCIPAL_BYTES_MAX`] bytes; those that are not known are left out.
    /// At most [`LIST_MAX`].
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

/// [`Copies`] have come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiesTaken<'a> {
    /// Which.
    pub page: u64,
    /// Clients of whose sessions the receiver has no copy on which what has changed could build; at
    /// most [`LIST_MAX`].
    pub lacking: Vec<&'a str>,
    /// Says which streams the receiver of the copies knows of: a sender that knows of the same ones
    /// need not name them. 0 if it does not tell, as those of minor version 0 do not.
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
