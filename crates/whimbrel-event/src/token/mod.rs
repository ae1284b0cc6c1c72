//! Checkpoint tokens: the positions of one subscription in all streams.

mod base64;
mod binary;

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use crate::{EventId, HOST_FURTHER_MAX, HOST_PUBENDS_MAX, HostId, KIND_PUBENDS_MAX, PubendId, Tick};

/// The deployment of a token: a hash of the deployment's name. It detects a token that strayed from
/// another system; it is no protection against a forged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deployment(pub u32);

impl Deployment {
    /// The deployment of that name: FNV-1a of 32 bits over its UTF-8 bytes. It must never change,
    /// as clients keep tokens.
    pub fn named(name: &str) -> Deployment {
        Deployment(name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The positions of one subscription: every event up to and including a stream's position was
/// delivered, or did not match, or was told as a gap.
///
/// A token covers the pubends of the hosts that it lists. Their position is the common tick, except
/// for those that it names. A pubend that it does not cover was registered later: its reader begins
/// at the stream's birth.
///
/// Printed, a token is base64url without padding; equal tokens print equally. Reading it again
/// gives the same token, within [`CheckpointToken::EXCEPTIONS_MAX`].
///
/// ```
/// use whimbrel_event::{CheckpointToken, Deployment, HostId, Tick};
///
/// let host = HostId::new(0xabc0);
/// let mut token = CheckpointToken::new(Deployment::named("harbour"), Tick(1_000));
/// token.cover(host, 4, 4)?;
/// token.set(host.pubend(2), Tick(900));
/// assert_eq!(token.position(host.pubend(0)), Some(Tick(1_000)));
/// assert_eq!(token.position(host.pubend(2)), Some(Tick(900)));
/// assert_eq!(token.to_string().parse(), Ok(token));
/// # Ok::<(), whimbrel_event::TokenFull>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointToken {
    deployment: Deployment,
    common: Tick,
    hosts: BTreeMap<HostId, Covered>,
    /// Number of pubends of all hosts, at most [`CheckpointToken::PUBENDS_MAX`].
    pubends: usize,
    /// Positions of covered pubends that differ from the common tick.
    exceptions: BTreeMap<PubendId, Tick>,
}

/// The pubends of a host that a token covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Covered {
    /// Number of those from index 0 on, which are reliable; at most [`KIND_PUBENDS_MAX`].
    reliable: u8,
    /// Number of those from index [`KIND_PUBENDS_MAX`] on, at most [`HOST_FURTHER_MAX`]: first
    /// those of best effort.
    further: u8,
}

impl Covered {
    const NOTHING: Covered = Covered { reliable: 0, further: 0 };

    /// Whether a host can have these numbers of pubends, and has any.
    fn is_possible(self) -> bool {
        self != Covered::NOTHING && self.reliable <= KIND_PUBENDS_MAX && self.further <= HOST_FURTHER_MAX
    }

    fn count(self) -> usize {
        usize::from(self.reliable) + usize::from(self.further)
    }

    fn indices(self) -> impl Iterator<Item = u8> {
        (0..self.reliable).chain(KIND_PUBENDS_MAX..KIND_PUBENDS_MAX + self.further)
    }

    fn contains(self, index: u8) -> bool {
        index < self.reliable || (KIND_PUBENDS_MAX..KIND_PUBENDS_MAX + self.further).contains(&index)
    }

    /// The least set that covers these and that index.
    fn with(self, index: u8) -> Covered {
        match index.checked_sub(KIND_PUBENDS_MAX) {
            None => Covered { reliable: self.reliable.max(index + 1), ..self },
            Some(beyond) => Covered { further: self.further.max(beyond + 1), ..self },
        }
    }
}

impl CheckpointToken {
    /// Most hosts that a token covers.
    pub const HOSTS_MAX: usize = 1_536;
    /// Most pubends that a token covers: all of each host.
    pub const PUBENDS_MAX: usize = HOST_PUBENDS_MAX as usize * CheckpointToken::HOSTS_MAX;
    /// Most streams with another position than most of their host's, in the text of a token with
    /// more than 1,024 hosts or 3,072 pubends, so that it prints within
    /// [`CheckpointToken::TEXT_MAX`]. If there are more, some hosts are written as if all of their
    /// streams were at the least of their positions: events between may be repeated, none is lost.
    pub const EXCEPTIONS_MAX: usize = binary::EXCEPTIONS_MAX;
    /// Longest text of a token in bytes: the longest string of MQTT.
    pub const TEXT_MAX: usize = 65_535;

    /// A token that covers no host yet.
    pub fn new(deployment: Deployment, common: Tick) -> Self {
        CheckpointToken { deployment, common, hosts: BTreeMap::new(), pubends: 0, exceptions: BTreeMap::new() }
    }

    /// Covers the first `reliable` ordinary reliable pubends of a host, and the first `further` of
    /// those from index [`KIND_PUBENDS_MAX`] on. Those that it did not cover before are at the
    /// common tick. A host that is covered already gets these numbers; exceptions beyond them are
    /// dropped.
    ///
    /// # Errors
    /// When the token covers too much already; it is unchanged then.
    ///
    /// # Panics
    /// When both counts are zero, or are more than a host can have.
    pub fn cover(&mut self, host: HostId, reliable: u8, further: u8) -> Result<(), TokenFull> {
        let covered = Covered { reliable, further };
        assert!(covered.is_possible(), "a host cannot have {reliable} reliable and {further} further pubends");
        self.put(host, covered)?;
        self.exceptions.retain(|pubend, _| pubend.host() != host || covered.contains(pubend.index()));
        Ok(())
    }

    fn put(&mut self, host: HostId, covered: Covered) -> Result<(), TokenFull> {
        let before = self.hosts.get(&host).copied().unwrap_or(Covered::NOTHING);
        let pubends = self.pubends - before.count() + covered.count();
        if pubends > Self::PUBENDS_MAX || (before == Covered::NOTHING && self.hosts.len() == Self::HOSTS_MAX) {
            return Err(TokenFull);
        }
        self.pubends = pubends;
        self.hosts.insert(host, covered);
        Ok(())
    }

    /// Sets the position in one stream, which is an exception unless it is the common tick.
    ///
    /// # Panics
    /// When the token does not cover that pubend.
    pub fn set(&mut self, pubend: PubendId, tick: Tick) {
        assert!(self.covers(pubend), "a position in {pubend}, which the token does not cover");
        if tick == self.common {
            self.exceptions.remove(&pubend);
        } else {
            self.exceptions.insert(pubend, tick);
        }
    }

    /// Records that the application has dealt with an event: the position in its stream becomes the
    /// event's tick, unless it is further already.
    ///
    /// A stream that the token did not cover is covered then; streams of the same host that have to
    /// be covered with it stay at their birth.
    ///
    /// # Errors
    /// When the token covers too much already; it is unchanged then.
    pub fn advance(&mut self, id: EventId) -> Result<(), TokenFull> {
        let host = id.pubend.host();
        let before = self.hosts.get(&host).copied().unwrap_or(Covered::NOTHING);
        if !before.contains(id.pubend.index()) {
            let covered = before.with(id.pubend.index());
            self.put(host, covered)?;
            for index in covered.indices().filter(|&index| !before.contains(index)) {
                self.set(host.pubend(index), Tick(0));
            }
        }
        if self.position(id.pubend).is_some_and(|position| position < id.tick) {
            self.set(id.pubend, id.tick);
        }
        Ok(())
    }

    fn covers(&self, pubend: PubendId) -> bool {
        self.hosts.get(&pubend.host()).is_some_and(|covered| covered.contains(pubend.index()))
    }

    /// The last tick of a stream that is dealt with; `None` if the token does not cover the stream.
    pub fn position(&self, pubend: PubendId) -> Option<Tick> {
        self.covers(pubend).then(|| self.exceptions.get(&pubend).copied().unwrap_or(self.common))
    }

    /// The deployment of the token.
    pub fn deployment(&self) -> Deployment {
        self.deployment
    }

    /// The position in every covered stream that is not an exception.
    pub fn common(&self) -> Tick {
        self.common
    }

    /// The covered hosts in order, each with the numbers of [`CheckpointToken::cover`].
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, u8, u8)> {
        self.hosts.iter().map(|(&host, covered)| (host, covered.reliable, covered.further))
    }

    /// The covered streams in order, each with its position.
    pub fn pubends(&self) -> impl Iterator<Item = (PubendId, Tick)> {
        let pubends = self.hosts.iter().flat_map(|(&host, covered)| covered.indices().map(move |i| host.pubend(i)));
        pubends.map(|pubend| (pubend, self.exceptions.get(&pubend).copied().unwrap_or(self.common)))
    }
}

impl fmt::Display for CheckpointToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::encode(&binary::encode(self)))
    }
}

impl FromStr for CheckpointToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        if text.len() > Self::TEXT_MAX {
            return Err(InvalidToken::TooLong);
        }
        binary::decode(&base64::decode(text)?)
    }
}

/// A token that cannot cover more (see [`CheckpointToken::HOSTS_MAX`] and
/// [`CheckpointToken::PUBENDS_MAX`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenFull;

impl fmt::Display for TokenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the checkpoint token covers too many streams ({} hosts and {} streams at most): take a new one from a broker",
            CheckpointToken::HOSTS_MAX,
            CheckpointToken::PUBENDS_MAX
        )
    }
}

impl core::error::Error for TokenFull {}

/// Text that is not a checkpoint token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidToken {
    /// Longer than [`CheckpointToken::TEXT_MAX`].
    TooLong,
    /// A character that base64url does not have, at this byte.
    NotBase64(usize),
    /// The text ends before the token does.
    Truncated,
    /// The check byte does not fit the rest.
    Altered,
    /// A layout with this number, which is not known here.
    UnknownVersion(u8),
    /// The token names its streams by a registry that is not known here.
    UnknownRegistry,
    /// The check byte fits, but no broker prints this text.
    Malformed,
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidToken::TooLong => write!(
                f,
                "the checkpoint token is longer than {} bytes: no broker prints such a one",
                CheckpointToken::TEXT_MAX
            ),
            InvalidToken::NotBase64(at) => write!(
                f,
                "the checkpoint token has a character at byte {at} that is not of A-Z a-z 0-9 - _: \
                 give it as the broker printed it, without quotes, spaces or padding"
            ),
            InvalidToken::Truncated => f.write_str(
                "the checkpoint token ends too early: it was cut off; give it whole, as the broker printed it",
            ),
            InvalidToken::Altered => f.write_str(
                "the checkpoint token fails its check: it was altered since the broker printed it; use an earlier one",
            ),
            InvalidToken::UnknownVersion(version) => write!(
                f,
                "this is no checkpoint token that this broker knows (its layout would be {version}, known are {} and {}): \
                 give one as a broker of this release printed it",
                binary::VERSION,
                binary::MANY
            ),
            InvalidToken::UnknownRegistry => f.write_str(
                "the checkpoint token names its streams by a registry that this broker does not have: \
                 use a token that was made without one, or a broker that has joined that deployment",
            ),
            InvalidToken::Malformed => f.write_str(
                "the checkpoint token is not one that a broker prints: it was put together by other means; \
                 use one that a broker printed",
            ),
        }
    }
}

impl core::error::Error for InvalidToken {}
