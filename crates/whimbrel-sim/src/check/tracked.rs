//! Tracked subscriptions: deliveries and gaps together are all matching events, each once, in the
//! order of its stream, from the position where they resumed.
//!
//! Events get their names from the broker, and some are delivered to no client. So a world may have
//! a witness: a client that subscribes to everything, over a link that takes everything at once. It
//! is told each event in the call of the broker that accepts it, and its names hold for the whole
//! account: every other client must be told the same name for the same event.

use mqtt_protocol_core::mqtt::packet::{Property, Qos};
use whimbrel_event::{PubendId, Reliability, Time};
use whimbrel_mqtt::ConnId;

use super::book::{Flight, Grant, Publication};
use super::delivery::Delivered;
use super::line::Due;
use super::notice::{Notice, TOPIC};
use super::track::{Bound, Circumstances, Name, Place, Range, Terms, Track};
use super::{Checker, Rule};
use crate::rig::START;
use crate::speech::user_properties;

/// The user property that names an event.
const NAME: &str = "w-id";

/// Streams that ids do not name begin this long before the smallest of them, nanoseconds.
const ASSUMED: u64 = 60_000_000_000;

/// Whether a SUBSCRIBE is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The SUBSCRIBE must be granted.
    Granted,
    /// The SUBSCRIBE may be granted or refused: its token is not known to the account.
    Open,
    /// The SUBSCRIBE must be refused.
    Refused,
}

/// A tracked subscription that begins when its SUBACK is seen: earlier deliveries belong to the one
/// that it replaces.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) terms: Terms,
    /// `None`: the position of an existing subscription, else now.
    place: Option<Place>,
    pub(super) fate: Fate,
    /// The number of accepted messages at the time of the request.
    no: u64,
    /// Retain Handling: 0, 1 or 2.
    handling: u8,
}

impl Start {
    /// Whether the client told where to begin.
    pub(super) fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// The fate of a SUBSCRIBE with these user properties; `None`: it asks for no tracked
    /// subscription.
    pub(super) fn read(
        checker: &Checker,
        grant: &Grant,
        properties: &[(String, String)],
        handling: u8,
    ) -> Option<Start> {
        let term = |name: &str| properties.iter().find(|(key, _)| key == name).map(|(_, value)| &**value);
        let keeps = term("w-durability") == Some("semi-durable");
        let notices = term("w-notices") == Some("on");
        if !keeps && !notices {
            return None;
        }
        let (place, fate) = match term("w-from").map(|from| checker.place_of(from)) {
            None => (None, Fate::Granted),
            Some((place, fate)) => (Some(place), fate),
        };
        let by_token = term("w-from").is_some() || term("w-ack") == Some("token");
        // A client that keeps the position needs no second phase: at least once is granted.
        let qos = if by_token { grant.qos.min(Qos::AtLeastOnce) } else { grant.qos };
        let terms = Terms { grant: Grant { tracked: true, qos, ..grant.clone() }, notices, keeps, by_token };
        Some(Start { terms, place, fate, no: checker.book.published, handling })
    }
}

impl Checker {
    /// The position that a returning client names.
    fn place_of(&self, from: &str) -> (Place, Fate) {
        let now = Place::unknown(self.book.published);
        if from == "earliest" {
            return (Place::oldest(self.book.published), Fate::Granted);
        }
        if let Some(tick) = moment(from) {
            let bound = |tick| Bound { tick, ..Bound::default() };
            // Rounding decides whether an event of that very moment is included.
            let place = Place { low: bound(tick.saturating_sub(1)), high: bound(tick), oldest: None };
            return (place, Fate::Granted);
        }
        let (token, ids) = match from.split_once(',') {
            _ if Name::parse(from.split(',').next().unwrap_or("")).is_some() => (None, Some(from)),
            None => (Some(from), None),
            Some((token, ids)) => (Some(token), Some(ids)),
        };
        let ids: Option<Vec<Name>> = ids.map_or(Some(Vec::new()), |ids| ids.split(',').map(Name::parse).collect());
        let Some(ids) = ids else { return (now, Fate::Refused) };
        let smallest = ids.iter().map(|id| id.tick).min().unwrap_or(0);
        let mut place = match token {
            None => Place::at(Bound { tick: smallest.saturating_sub(ASSUMED), ..Bound::default() }),
            Some(token) if !token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') => {
                return (now, Fate::Refused);
            }
            Some(token) => match self.book.tokens.get(token) {
                Some(place) => place.clone(),
                None => return (now, Fate::Open),
            },
        };
        if ids.iter().any(|id| !self.book.names.contains_key(id)) {
            return (now, Fate::Open);
        }
        ids.into_iter().for_each(|id| place.raise(id));
        (place, Fate::Granted)
    }

    /// A SUBACK was seen that grants a tracked subscription.
    pub(super) fn start(&mut self, conn: ConnId, start: Start, properties: &[Property]) {
        let Some(id) = self.lines[&conn].client_id.clone() else { return };
        if self.book.sessions.get(&id).is_none_or(|session| session.conn != Some(conn)) {
            // It was cut off in the call in which it subscribed.
            self.unsure = true;
            return;
        }
        let grant = &start.terms.grant;
        if start.fate != Fate::Granted {
            let new = self.grant(&id, grant.clone());
            if start.handling == 0 || start.handling == 1 && new {
                self.owe_retained(&id, grant, true);
            }
        }
        let named = user_properties(properties).into_iter().filter(|(name, _)| name == "w-token");
        let tokens: Vec<String> = named.map(|(_, text)| text).collect();
        let (filter, identifier) = (grant.filter.clone(), grant.identifier);
        let place = self.begin(&id, start);
        match &tokens[..] {
            [token] if !token.is_empty() => {
                let (circumstances, track) = (self.circumstances(&id), &self.book.sessions[&id].tracks[&identifier]);
                let known = self.book.tokens.get(token);
                if let Some(left) = known.and_then(|known| track.left_out(known, &circumstances)) {
                    let what = format!("the token of {filter} at {id} is ahead of {left}, which is to come");
                    self.broken(Rule::Token, what);
                }
                self.keep_token(token, place);
            }
            _ => self.broken(Rule::Token, format!("SUBACK of {filter} at {id} with tokens {tokens:?}")),
        }
    }

    /// Returns where the subscription begins.
    fn begin(&mut self, id: &str, start: Start) -> Place {
        let session = self.book.sessions.get_mut(id).expect("its client is there");
        let Start { terms, place, no, .. } = start;
        let (identifier, filter) = (terms.grant.identifier, terms.grant.filter.clone());
        let known = session.tracks.iter().find(|(_, track)| !track.ended && track.terms.grant.filter == filter);
        let known = known.map(|(identifier, _)| *identifier);
        if let Some(known) = known.filter(|_| place.is_some()) {
            // Its deliveries that wait to be sent again do not fit its new position.
            let is_old = |flight: &Flight| flight.tracked && flight.identifier == known && flight.sent_on.is_none();
            session.flights.retain(|flight| !is_old(flight) || flight.qos == Qos::ExactlyOnce);
        }
        let known = known.and_then(|known| session.tracks.remove(&known));
        let mut track = match (place, known) {
            (None, Some(known)) if known.is_parked() => known.restarted(terms),
            (None, Some(mut known)) => {
                known.terms = terms;
                known
            }
            (place, _) => Track::new(terms, place.unwrap_or_else(|| Place::at(Bound::up_to(no)))),
        };
        for publication in &self.book.log {
            track.owe(publication, id);
        }
        let place = track.standing_unsettled(no);
        session.tracks.insert(identifier, track);
        place
    }

    /// Keeps the first meaning of a token: later ones are less precise.
    fn keep_token(&mut self, token: &str, place: Place) {
        self.book.tokens.entry(token.to_owned()).or_insert(place);
    }

    /// A message is delivered to a subscription that is tracked, or should be.
    pub(super) fn tracked_delivery(&mut self, seen: &Delivered) {
        let Some(name) = self.name_of(seen) else { return };
        let is_witness = self.bounds.witness == Some(&*seen.to);
        if is_witness || !self.book.names.contains_key(&name) && !self.is_witnessed() {
            self.learn(seen, name, is_witness);
        }
        let Some(publication) = self.book.names.get(&name).cloned() else {
            self.broken(Rule::EventId, format!("{}: {name:?} is no event's", seen.name()));
            return;
        };
        if !seen.carries(&publication) {
            let what = format!("{}: {name:?} is {}", seen.name(), publication.name());
            self.broken(Rule::EventId, what);
            return;
        }
        let circumstances = self.circumstances(&seen.to);
        let Some(track) = self.track(seen) else {
            self.broken(Rule::EventId, format!("{}: its subscription is not tracked", seen.name()));
            return;
        };
        let mut findings = track.deliver(&publication, &circumstances);
        let Grant { qos, retain_as_published, .. } = track.terms.grant;
        if seen.message.qos != publication.message.qos.min(qos) {
            findings.push((Rule::Qos, format!("{}: granted {qos:?}", seen.name())));
        }
        if seen.message.retain != (publication.message.retain && retain_as_published) {
            findings.push((Rule::RetainFlag, seen.name()));
        }
        if publication.expires.is_some_and(|at| at < self.now) {
            findings.push((Rule::Expiry, format!("{} has expired", seen.name())));
        }
        for (rule, what) in findings {
            self.broken(rule, format!("{what}, at {}", seen.to));
        }
        self.takes_off(seen, &publication, None);
        // It belongs to a tracked subscription even if its name had no room in the packet.
        let session = self.book.sessions.get_mut(&seen.to);
        if let Some(flight) = session.and_then(|session| session.flights.iter_mut().find(|f| f.id == seen.message.id)) {
            (flight.name, flight.tracked) = (Some(name), true);
        }
        self.check_properties(seen, &publication, false);
    }

    /// The event's name in a delivery, if it is correct.
    fn name_of(&mut self, seen: &Delivered) -> Option<Name> {
        let text = seen.message.user_property(NAME);
        let name = text.and_then(Name::parse).or_else(|| self.name_left_out(seen));
        if name.is_none() {
            self.broken(Rule::EventId, format!("{}: {text:?} names no event", seen.name()));
        }
        name
    }

    /// The name of an event that was delivered without it, as the packet would have been larger
    /// than its client takes.
    fn name_left_out(&self, seen: &Delivered) -> Option<Name> {
        if seen.message.user_property(NAME).is_some() {
            return None;
        }
        let packet_maximum = self.book.sessions.get(&seen.to)?.packet_maximum;
        let is_it = |publication: &Publication| seen.carries(publication) && publication.may_exceed(packet_maximum);
        let found = || self.book.names.iter().filter(|(_, publication)| is_it(publication));
        // The same content may have been published twice.
        let is_owed = |publication: &Publication| self.known_track(seen).is_some_and(|track| track.owes(publication));
        let owed = found().find(|(_, publication)| is_owed(publication));
        owed.or_else(|| found().next()).map(|(name, _)| *name)
    }

    /// Checks that a repeated delivery has the same name as before.
    pub(super) fn check_name_again(&mut self, seen: &Delivered, known: Option<Name>) {
        let is_left_out = seen.message.user_property(NAME).is_none() && self.name_left_out(seen).is_some();
        let told = seen.message.user_property(NAME).and_then(Name::parse).or(known.filter(|_| is_left_out));
        if told != known {
            self.broken(Rule::EventId, format!("{}: {told:?} again, which was {known:?}", seen.name()));
        }
    }

    /// Whether a delivery belongs to a tracked subscription, or claims to.
    pub(super) fn is_tracked(&self, seen: &Delivered) -> bool {
        let named = seen.message.user_property(NAME).is_some();
        // Retained messages are delivered to a new subscription as to any other.
        let is_late = |track: &Track| {
            let name = self.name_left_out(seen);
            let publication = name.and_then(|name| self.book.names.get(&name));
            track.terms.grant.retain_as_published && publication.is_some_and(|publication| track.owes(publication))
        };
        named || self.known_track(seen).is_some_and(|track| !seen.message.retain || is_late(track))
    }

    fn known_track(&self, seen: &Delivered) -> Option<&Track> {
        let limbo = self.limbo.get(&seen.conn).map(|limbo| &limbo.session);
        let limbo = limbo.filter(|session| session.tracks.contains_key(&seen.identifier));
        limbo.or_else(|| self.book.sessions.get(&seen.to))?.tracks.get(&seen.identifier)
    }

    fn track(&mut self, seen: &Delivered) -> Option<&mut Track> {
        let limbo = self.limbo.get_mut(&seen.conn).map(|limbo| &mut limbo.session);
        let limbo = limbo.filter(|session| session.tracks.contains_key(&seen.identifier));
        let session = limbo.or_else(|| self.book.sessions.get_mut(&seen.to))?;
        session.tracks.get_mut(&seen.identifier)
    }

    fn circumstances(&self, id: &str) -> Circumstances {
        let packet_maximum = self.book.sessions.get(id).map_or(usize::MAX, |session| session.packet_maximum);
        Circumstances { now: self.now, packet_maximum, nothing_overwritten: self.bounds.nothing_overwritten }
    }

    /// Whether the witness takes everything at once.
    fn is_witnessed(&self) -> bool {
        let session = self.bounds.witness.and_then(|id| self.book.sessions.get(id));
        session.is_some_and(|session| session.conn.is_some() && !session.tracks.is_empty())
    }

    /// An event gets its name: the first one of that content without a name.
    fn learn(&mut self, seen: &Delivered, name: Name, in_order: bool) {
        let content = (seen.message.topic.clone(), seen.message.payload.clone());
        let nameless = self.book.history.get(&content).into_iter().flatten().find(|known| known.id.get().is_none());
        let Some(publication) = nameless.cloned() else { return };
        if let Some(other) = self.book.names.get(&name) {
            let what = format!("{} is called {name:?}, which is {}", publication.name(), other.name());
            self.broken(Rule::EventId, what);
            return;
        }
        publication.id.set(name).expect("it has no name");
        self.book.names.insert(name, publication.clone());
        let last = self.book.last.insert(name.pubend, name.tick).unwrap_or(0);
        if in_order && name.tick <= last {
            self.broken(Rule::EventId, format!("{} is called {name:?}, after {last}", publication.name()));
        }
        let stream = (publication.publisher.clone(), publication.is_reliable());
        let stream = *self.book.streams.entry(stream).or_insert(name.pubend);
        if stream != name.pubend {
            self.broken(Rule::EventId, format!("{} is called {name:?}, not of {stream:x}", publication.name()));
        }
        let limbo = self.limbo.values_mut().map(|limbo| &mut limbo.session);
        let tracks = self.book.sessions.values_mut().chain(limbo).flat_map(|session| session.tracks.values_mut());
        let findings: Vec<String> = tracks.filter_map(|track| track.learn(&publication)).collect();
        for what in findings {
            self.broken(Rule::Gap, what);
        }
    }

    /// A notice is delivered to a subscription.
    pub(super) fn noticed(&mut self, seen: &Delivered) {
        let notice = match Notice::parse(&seen.message.payload) {
            Ok(notice) => notice,
            Err(why) => {
                self.broken(Rule::Gap, format!("{}: {why}", seen.name()));
                return;
            }
        };
        let circumstances = self.circumstances(&seen.to);
        let Some(track) = self.track(seen).filter(|track| track.terms.notices) else {
            self.broken(Rule::Gap, format!("{}: nobody asked for notices", seen.name()));
            return;
        };
        let mut findings = Vec::new();
        match notice {
            Notice::Gap { pubend, from, to, reason } => {
                // A token that the account does not know may be of a broker that has ended. For
                // best effort that is not told, nor any other cause except that a position was
                // assumed.
                let is_best_effort = PubendId(pubend).reliability() == Reliability::BestEffort;
                let may_be_gone = ["assumed", "lost", "best-effort"].contains(&reason.as_str());
                findings = track.gap(Range { pubend, from, to }, may_be_gone, &circumstances);
                if (reason == "best-effort") != (is_best_effort && reason != "assumed") {
                    let what = format!("{}: a gap of {pubend:x} has the reason {reason}", seen.name());
                    findings.push((Rule::Gap, what));
                }
            }
            // These worlds have no profiles.
            Notice::Overdue { .. } | Notice::Stalled => {
                findings.push((Rule::Gap, format!("{}: nothing has a deadline or a period", seen.name())));
            }
            Notice::Silence { to, token } => {
                let (place, wrong) = track.silence(to, &circumstances);
                findings.extend(wrong.map(|what| (Rule::Token, format!("{}: {what}", seen.name()))));
                self.keep_token(&token, place);
            }
        }
        for (rule, what) in findings {
            self.broken(rule, format!("{what}, at {}", seen.to));
        }
        let publication = self.publication_of(seen);
        self.takes_off(seen, &publication, None);
    }

    /// Whether a message is a notice.
    pub(super) fn is_notice(seen: &Delivered) -> bool {
        seen.message.topic == TOPIC
    }

    /// Checks that the witness was told each event by the end of the moment at which it was
    /// accepted.
    pub(super) fn check_witness(&mut self) {
        let witnessed = self.is_witnessed() && !self.draining;
        while let Some(publication) = self.book.log.get(self.book.witnessed).filter(|_| witnessed) {
            let named = publication.id.get().is_some() || publication.message.topic.starts_with('$');
            let untold = (!named).then(|| publication.name());
            if untold.is_some() && publication.accepted >= self.now {
                return;
            }
            self.book.witnessed += 1;
            if let Some(name) = untold {
                self.broken(Rule::EventId, format!("the witness was not told of {name}"));
            }
        }
    }
}

/// The time of a text of the form `2026-01-01T00:00:00.123456789Z`, nanoseconds since the Unix
/// epoch; only for the day on which simulated worlds begin.
pub(crate) fn moment(text: &str) -> Option<u64> {
    let time = text.strip_prefix("2026-01-01T")?.strip_suffix('Z')?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut seconds = 0;
    for part in clock.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(START.as_nanos() + seconds * 1_000_000_000 + nanos)
}

/// Writes a time of the day on which simulated worlds begin, in the form that `moment` reads.
pub fn moment_text(at: Time) -> String {
    let nanos = at.as_nanos() - START.as_nanos();
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("2026-01-01T{hours:02}:{minutes:02}:{:02}.{nanos:09}Z", seconds % 60)
}

impl Due {
    /// Whether this is the answer to a SUBSCRIBE, as it must or may be.
    pub(super) fn allows(&self, answered: u16, answer: &[u8]) -> bool {
        let Due::Suback { id, codes, start } = self else { return false };
        let refused = answer.iter().all(|code| *code >= 0x80);
        let as_asked = answer == codes;
        let right = match start.as_ref().map(|start| start.fate) {
            None | Some(Fate::Granted) => as_asked,
            Some(Fate::Open) => as_asked || refused,
            Some(Fate::Refused) => refused,
        };
        *id == answered && right && answer.len() == codes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for nanos in [0, 1, 999_999_999, 61_000_000_007, 7_384_120_000_000] {
            let at = START + Duration::from_nanos(nanos);
            assert_eq!(moment(&moment_text(at)), Some(at.as_nanos()), "{}", moment_text(at));
        }
        assert_eq!(moment("2026-01-01T00:00:05.5Z"), Some(START.as_nanos() + 5_500_000_000));
        assert_eq!(moment("yesterday"), None);
    }
}
