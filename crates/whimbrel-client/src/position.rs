//! A subscription's position, as its client keeps it.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use whimbrel_event::{CheckpointToken, EventId, InvalidEventId, InvalidToken, PubendId, Tick};

use crate::{GapReason, Message, Notice};

/// A subscription's position: every event before it was received, did not match, or was told as a
/// gap.
///
/// It begins with the token in the broker's answer ([`crate::Answer::tokens`]). [`Position::note`]
/// advances it over each message once the application has processed it. Printed, it is what
/// [`crate::Start::After`] gives to any broker of the deployment to resume from there.
///
/// ```
/// use whimbrel_client::{CheckpointToken, Deployment, EventId, HostId, Position, Tick};
///
/// let host = HostId::new(0xabc0);
/// let mut token = CheckpointToken::new(Deployment::named("harbour"), Tick(1_000));
/// token.cover(host, 4, 4)?;
/// let mut position = Position::at(token);
/// position.advance(EventId { pubend: host.pubend(2), tick: Tick(1_200) });
/// assert_eq!(position.of(host.pubend(2)), Some(Tick(1_200)));
/// assert_eq!(position.to_string().parse(), Ok(position));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    token: CheckpointToken,
    /// Positions that are not in the token: in ended streams whose gap the broker has not yet told,
    /// and in further streams when the token is full.
    beside: BTreeMap<PubendId, Tick>,
}

impl Position {
    /// The position that a token names.
    pub fn at(token: CheckpointToken) -> Position {
        Position { token, beside: BTreeMap::new() }
    }

    /// The broker has resumed the subscription from here, and its answer names `begins`. Streams
    /// that `begins` does not cover have ended: the gap in them is still to be told, so their
    /// positions stay until then.
    pub fn resumed(&mut self, begins: CheckpointToken) {
        let before = core::mem::replace(self, Position::at(begins));
        let beside = before.beside.iter().map(|(pubend, tick)| (*pubend, *tick));
        for (pubend, tick) in before.token.pubends().chain(beside) {
            match self.token.position(pubend) {
                None => _ = self.beside.insert(pubend, tick),
                // A position never goes back, even if the broker names an earlier one.
                Some(position) if position < tick => self.token.set(pubend, tick),
                Some(_) => {}
            }
        }
    }

    /// Advances over a message, or notice, that the application has processed. Retained messages
    /// lie outside of the streams, so they change nothing.
    pub fn note(&mut self, message: &Message) {
        match message.notice() {
            Some(notice) => self.note_notice(&notice),
            None if message.retain => {}
            None => message.id().into_iter().for_each(|id| self.advance(id)),
        }
    }

    /// Advances over what a notice covers.
    pub fn note_notice(&mut self, notice: &Notice) {
        match notice {
            // An ended stream has no further events.
            Notice::Gap(gap) if gap.reason == GapReason::Lost && self.token.position(gap.pubend).is_none() => {
                self.beside.remove(&gap.pubend);
            }
            Notice::Gap(gap) => self.advance(EventId { pubend: gap.pubend, tick: gap.to }),
            // All gaps have been told before.
            Notice::Silence { token } => {
                self.resumed(token.clone());
                self.beside.clear();
            }
            // These stand beside the streams.
            Notice::Overdue { .. } | Notice::Stalled { .. } => {}
        }
    }

    /// Advances over one event; an event at or before the position changes nothing.
    pub fn advance(&mut self, id: EventId) {
        match self.beside.get_mut(&id.pubend) {
            Some(tick) => *tick = id.tick.max(*tick),
            None if self.token.advance(id).is_err() => _ = self.beside.insert(id.pubend, id.tick),
            None => {}
        }
    }

    /// The last processed position in that stream; `None` if the stream is not known.
    pub fn of(&self, pubend: PubendId) -> Option<Tick> {
        self.beside.get(&pubend).copied().or_else(|| self.token.position(pubend))
    }

    /// The position in all streams that go on; to acknowledge with [`crate::Client::acknowledge`].
    pub fn token(&self) -> &CheckpointToken {
        &self.token
    }
}

/// A token, and after commas the ids of later events: the format of `w-from`.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.token)?;
        self.beside.iter().try_for_each(|(&pubend, &tick)| write!(f, ",{}", EventId { pubend, tick }))
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Position, InvalidPosition> {
        let mut parts = text.split(',');
        let token = parts.next().unwrap_or_default().parse().map_err(InvalidPosition::Token)?;
        let mut position = Position::at(token);
        for id in parts {
            let id: EventId = id.parse().map_err(InvalidPosition::Id)?;
            // The token itself stays unchanged, so that equal positions print equally.
            let tick = position.beside.entry(id.pubend).or_default();
            *tick = id.tick.max(*tick);
        }
        Ok(position)
    }
}

/// The text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPosition {
    /// The text does not begin with a token.
    #[error("{0}")]
    Token(InvalidToken),
    /// The token is followed by something other than an event id.
    #[error("{0}")]
    Id(InvalidEventId),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gap;
    use whimbrel_event::{Deployment, HostId};

    /// An ended host, and its successor.
    const OLD: u64 = 0xa0;
    const NEW: u64 = 0xb0;

    fn pubend(host: u64, index: u8) -> PubendId {
        HostId::new(host).pubend(index)
    }

    fn token(host: u64, tick: u64) -> CheckpointToken {
        let mut token = CheckpointToken::new(Deployment::named("test"), Tick(tick));
        token.cover(HostId::new(host), 4, 4).expect("one host");
        token
    }

    fn id(host: u64, index: u8, tick: u64) -> EventId {
        EventId { pubend: pubend(host, index), tick: Tick(tick) }
    }

    fn lost(host: u64, index: u8, from: u64, to: u64) -> Notice {
        let (from, to, reason) = (Tick(from), Tick(to), GapReason::Lost);
        Notice::Gap(Gap { pubend: pubend(host, index), from, to, reason })
    }

    #[test]
    fn it_moves_over_what_was_received_and_told_and_never_back() {
        let mut position = Position::at(token(NEW, 100));
        position.advance(id(NEW, 1, 120));
        position.advance(id(NEW, 1, 110));
        assert_eq!(position.of(pubend(NEW, 1)), Some(Tick(120)));
        position.note_notice(&lost(NEW, 1, 120, 150));
        assert_eq!((position.of(pubend(NEW, 1)), position.of(pubend(NEW, 0))), (Some(Tick(150)), Some(Tick(100))));
        position.note_notice(&Notice::Silence { token: token(NEW, 130) });
        assert_eq!((position.of(pubend(NEW, 1)), position.of(pubend(NEW, 0))), (Some(Tick(150)), Some(Tick(130))));
    }

    #[test]
    fn streams_that_have_ended_are_named_until_the_broker_has_told_what_is_missing() {
        let mut position = Position::at(token(OLD, 100));
        position.advance(id(OLD, 2, 140));
        position.resumed(token(NEW, 200));
        assert_eq!((position.of(pubend(OLD, 2)), position.of(pubend(NEW, 2))), (Some(Tick(140)), Some(Tick(200))));
        // A client that is disconnected before it got the gap asks for it again.
        let text = position.to_string();
        let named = [id(OLD, 2, 140), id(OLD, 0, 100)].map(|id| format!(",{id}"));
        assert!(named.iter().all(|id| text.contains(id)), "{text}");
        assert_eq!(text.parse(), Ok(position.clone()));
        position.note_notice(&lost(OLD, 2, 140, 200));
        assert_eq!(position.of(pubend(OLD, 2)), None);
        (0..8).for_each(|index| position.note_notice(&lost(OLD, index, 100, 200)));
        assert_eq!(position, Position::at(token(NEW, 200)));
    }

    #[test]
    fn what_is_no_position_says_which_part() {
        let good = token(NEW, 5).to_string();
        assert_eq!(good.parse(), Ok(Position::at(token(NEW, 5))));
        assert!(matches!("".parse::<Position>(), Err(InvalidPosition::Token(_))));
        assert!(matches!(format!("{good},x").parse::<Position>(), Err(InvalidPosition::Id(_))));
        assert!(matches!(format!("{good},").parse::<Position>(), Err(InvalidPosition::Id(_))));
    }
}
