//! The checker of tracked subscriptions is checked: a broker that is made to misbehave in one way
//! is caught by a rule that forbids it.
//!
//! `cargo test -p whimbrel-sim --test it tracked_mutants -- --nocapture --test-threads 1` prints
//! the table: the mutant, the rule that caught it, and the first seed whose world showed it.

use std::collections::BTreeMap;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{Property, Qos, UserProperty};
use whimbrel_core::Mutant;
use whimbrel_mqtt::ConnId;
use whimbrel_sim::check::{Outcome, Rule, Seen};
use whimbrel_sim::packets::next_packet;
use whimbrel_sim::simulation::{Report, run, run_mutant, run_tampered};
use whimbrel_sim::speech::{Heard, Message, Said, event_name};
use whimbrel_sim::world::Tamper;

use crate::tamper::{Spoken, hear, say};

/// Worlds in which a mutant may show itself.
const SEEDS: u64 = 500;

/// A packet identifier that is not in use.
const FREE_ID: u16 = 60_000;

/// What a mutant knows from listening to the broker.
#[derive(Default)]
struct Ears {
    witness: Option<ConnId>,
    /// The last event that the witness was told of: its id.
    last: Option<String>,
    /// The last notice of silence.
    silence: Option<Message>,
    /// Who resumed in this call of the broker.
    resumed: Vec<ConnId>,
}

impl Ears {
    fn listen(&mut self, seen: Seen<'_>, spoken: &[Spoken]) {
        if let Seen::Bytes(conn, bytes) = seen
            && bytes.windows(7).any(|name| name == b"witness")
        {
            self.witness = self.witness.or(Some(conn));
        }
        self.resumed.clear();
        for packet in spoken {
            match &packet.heard {
                Heard::Suback { codes, .. } if codes[0] < 0x80 => self.resumed.push(packet.conn),
                Heard::Publish(message) if is_notice(message, "silence") => self.silence = Some(message.clone()),
                Heard::Publish(message) if Some(packet.conn) == self.witness => {
                    self.last = message.user_property("w-id").map(str::to_owned).or(self.last.take());
                }
                _ => {}
            }
        }
    }

    /// The event that a packet brings to a client that is not the witness, for the first time.
    fn event<'a>(&self, packet: &'a Spoken) -> Option<&'a Message> {
        let message = packet.message().filter(|message| !message.dup && message.user_property("w-id").is_some());
        message.filter(|_| Some(packet.conn) != self.witness)
    }

    /// The same, if it comes late, in the call in which its receiver resumed.
    fn caught_up<'a>(&self, packet: &'a Spoken) -> Option<&'a Message> {
        self.event(packet).filter(|_| self.resumed.contains(&packet.conn))
    }

    /// The gap that a packet tells.
    fn gap<'a>(&self, packet: &'a Spoken) -> Option<&'a Message> {
        packet.message().filter(|message| !message.dup && is_notice(message, "gap"))
    }
}

fn is_notice(message: &Message, kind: &str) -> bool {
    message.topic == "$whimbrel/notice" && message.text().contains(&format!("\"kind\":\"{kind}\""))
}

/// The value of a member of a notice.
fn member<'a>(notice: &'a Message, name: &str) -> &'a str {
    let (_, rest) = notice.text().split_once(&format!("\"{name}\":\"")).expect("a member of a notice");
    rest.split_once('"').expect("a string").0
}

/// The same notice with another value of a member.
fn with_member(notice: &Message, name: &str, value: &str) -> Message {
    let before = format!("\"{name}\":\"{}\"", member(notice, name));
    let text = notice.text().replace(&before, &format!("\"{name}\":\"{value}\""));
    Message { payload: text.into_bytes(), ..notice.clone() }
}

/// Stream and tick of the event that a message brings.
fn name(message: &Message) -> (String, u64) {
    let (pubend, tick) = message.user_property("w-id").and_then(event_name).expect("a tracked event");
    (format!("{pubend:x}"), tick)
}

/// The same event under another name.
fn renamed(message: &Message, id: &str) -> Message {
    let mut other = message.clone();
    other.properties.retain(|p| !matches!(p, Property::UserProperty(pair) if pair.key() == "w-id"));
    other.property(UserProperty::new("w-id", id).expect("valid text"))
}

/// Has the packet sent again right after it.
fn again(spoken: &mut Vec<Spoken>, at: usize) {
    let Spoken { conn, version, ref heard, ref bytes } = spoken[at];
    let mut copy = Spoken { conn, version, heard: heard.clone(), bytes: bytes.clone() };
    copy.change(|message| {
        let reliable = message.qos != Qos::AtMostOnce;
        message.id = if reliable { FREE_ID } else { 0 };
        reliable
    });
    spoken.insert(at + 1, copy);
}

/// Has a notice sent to whom a packet goes to, before it.
fn insert(spoken: &mut Vec<Spoken>, at: usize, notice: Message) {
    let identifier = spoken[at].message().expect("a message").properties.iter();
    let identifier = identifier.filter(|p| matches!(p, Property::SubscriptionIdentifier(_))).cloned().collect();
    let notice = Message { properties: identifier, ..Message::new(&notice.topic, notice.payload) };
    let Spoken { conn, version, .. } = spoken[at];
    let bytes = Said::Publish(notice.clone()).encode(version);
    spoken.insert(at, Spoken { conn, version, heard: Heard::Publish(notice), bytes });
}

/// Does something once, when it can: `act` tells whether it is done.
struct Between<F> {
    act: F,
    ears: Ears,
    done: bool,
}

impl<F: FnMut(&mut Vec<Spoken>, &Ears) -> bool> Tamper for Between<F> {
    fn tamper(&mut self, seen: Seen<'_>, outcome: &mut Outcome, version: &dyn Fn(ConnId) -> Version) {
        let mut spoken = hear(outcome, version);
        self.ears.listen(seen, &spoken);
        if !self.done {
            self.done = (self.act)(&mut spoken, &self.ears);
            if self.done {
                say(outcome, spoken);
            }
        }
    }
}

/// Plays worlds until the mutant has been caught by one of `rules`, in a world that is in order
/// without it.
fn caught(what: &str, rules: &[Rule], mut mutant: impl FnMut() -> Box<dyn Tamper>) {
    caught_in(what, rules, |seed| run_tampered(seed, &mut *mutant()));
}

fn caught_in(what: &str, rules: &[Rule], mut world: impl FnMut(u64) -> Report) {
    let mut others = Vec::new();
    for seed in 0..SEEDS {
        let report = world(seed);
        let Some(first) = report.violations.first() else { continue };
        if !run(seed).violations.is_empty() {
            continue;
        }
        if let Some(violation) = report.violations.iter().find(|violation| rules.contains(&violation.rule)) {
            println!("| {what} | {:?} | {seed} |", violation.rule);
            return;
        }
        others.push(format!("seed {seed}: {first}"));
    }
    panic!("no world of {SEEDS} showed {what}\n{}", others.join("\n"));
}

/// A mutant that does something once to what the broker says.
fn mutant(what: &str, rules: &[Rule], act: impl FnMut(&mut Vec<Spoken>, &Ears) -> bool + Clone + 'static) {
    caught(what, rules, || Box::new(Between { act: act.clone(), ears: Ears::default(), done: false }));
}

#[test]
fn a_catch_up_event_is_dropped() {
    mutant("a catch-up event is dropped", &[Rule::Hole, Rule::Delivery], |spoken, ears| {
        let found = spoken.iter().position(|packet| ears.caught_up(packet).is_some());
        found.map(|at| spoken.remove(at)).is_some()
    });
}

#[test]
fn a_live_event_is_dropped() {
    mutant("a live event is dropped", &[Rule::Hole, Rule::Delivery], |spoken, ears| {
        let found = spoken.iter().position(|s| ears.event(s).is_some() && ears.resumed.is_empty());
        found.map(|at| spoken.remove(at)).is_some()
    });
}

#[test]
fn an_overwritten_range_is_forgotten() {
    mutant("an overwritten range is not told", &[Rule::Hole, Rule::Delivery], |spoken, ears| {
        let found = spoken.iter().position(|packet| ears.gap(packet).is_some());
        found.map(|at| spoken.remove(at)).is_some()
    });
}

#[test]
fn the_last_event_of_a_catch_up_comes_again() {
    mutant("an event is repeated at the seam", &[Rule::Duplicate], |spoken, ears| {
        let Some(at) = spoken.iter().rposition(|packet| ears.caught_up(packet).is_some()) else { return false };
        again(spoken, at);
        true
    });
}

#[test]
fn a_live_event_comes_before_catch_up_ends() {
    mutant("a live event comes before catch-up ends", &[Rule::Hole, Rule::Gap], |spoken, ears| {
        let late: Vec<usize> = (0..spoken.len()).filter(|at| ears.caught_up(&spoken[*at]).is_some()).collect();
        let (Some(first), Some(last)) = (late.first(), late.last()) else { return false };
        let stream = |at: usize| (spoken[at].conn, name(spoken[at].message().expect("an event")).0);
        if first == last || stream(*first) != stream(*last) {
            return false;
        }
        let live = spoken.remove(*last);
        spoken.insert(*first, live);
        true
    });
}

#[test]
fn two_events_of_a_pubend_are_swapped() {
    mutant("two events of a pubend are swapped", &[Rule::Hole], |spoken, ears| {
        let same = |at: &usize| {
            let (Some(one), Some(other)) = (ears.event(&spoken[*at]), ears.event(&spoken[at + 1])) else {
                return false;
            };
            let receiver = |at: usize| spoken[at].conn;
            receiver(*at) == receiver(at + 1)
                && name(one).0 == name(other).0
                && one.subscription_identifiers() == other.subscription_identifiers()
        };
        let Some(at) = (0..spoken.len().saturating_sub(1)).find(same) else { return false };
        spoken.swap(at, at + 1);
        true
    });
}

#[test]
fn a_gap_is_told_after_the_event_it_belongs_before() {
    mutant("a gap is told after the event it belongs before", &[Rule::Hole, Rule::Gap], |spoken, ears| {
        let belongs = |at: &usize| {
            let (Some(gap), Some(event)) = (ears.gap(&spoken[*at]), ears.event(&spoken[at + 1])) else { return false };
            spoken[*at].conn == spoken[at + 1].conn && member(gap, "pubend") == name(event).0
        };
        let Some(at) = (0..spoken.len().saturating_sub(1)).find(belongs) else { return false };
        spoken.swap(at, at + 1);
        true
    });
}

#[test]
fn an_event_has_the_name_of_another() {
    mutant("an event has the id of another", &[Rule::EventId], |spoken, ears| {
        for packet in spoken {
            let other = ears.event(packet).zip(ears.last.as_deref());
            let other = other.filter(|(message, last)| message.user_property("w-id") != Some(last));
            if let Some(message) = other.map(|(message, last)| renamed(message, last)) {
                packet.replace(message);
                return true;
            }
        }
        false
    });
}

#[test]
fn an_event_has_no_name() {
    mutant("an event has no id", &[Rule::EventId], |spoken, ears| {
        let found = spoken.iter_mut().find(|packet| ears.event(packet).is_some());
        found.is_some_and(|packet| {
            packet.change(|message| {
                message.properties.retain(|p| !matches!(p, Property::UserProperty(pair) if pair.key() == "w-id"));
                true
            })
        })
    });
}

#[test]
fn a_silence_token_is_ahead_of_an_event() {
    mutant("a silence token is ahead of an undelivered event", &[Rule::Token], |spoken, ears| {
        let Some(silence) = &ears.silence else { return false };
        let found = |at: &usize| ears.event(&spoken[*at]).is_some();
        let Some(at) = (0..spoken.len()).find(found) else { return false };
        let to = name(spoken[at].message().expect("an event")).1.to_string();
        insert(spoken, at, with_member(silence, "to", &to));
        true
    });
}

#[test]
fn a_gap_names_another_pubend() {
    mutant("a gap names another pubend", &[Rule::Hole, Rule::Gap, Rule::Delivery], |spoken, ears| {
        for packet in spoken {
            let other = ears.gap(packet).zip(ears.last.as_deref()).and_then(|(gap, last)| {
                let (pubend, _) = event_name(last)?;
                let pubend = format!("{pubend:x}");
                (pubend != member(gap, "pubend")).then(|| with_member(gap, "pubend", &pubend))
            });
            if let Some(other) = other {
                packet.replace(other);
                return true;
            }
        }
        false
    });
}

#[test]
fn a_gap_reaches_too_far() {
    mutant("a gap reaches over a delivered event", &[Rule::Hole, Rule::Gap], |spoken, ears| {
        for packet in spoken {
            let Some(gap) = ears.gap(packet) else { continue };
            let to: u64 = member(gap, "to").parse().expect("a tick");
            let further = with_member(gap, "to", &(to + 5_000_000_000).to_string());
            packet.replace(further);
            return true;
        }
        false
    });
}

#[test]
fn a_gap_is_too_short() {
    mutant("a gap leaves out its beginning", &[Rule::Hole, Rule::Delivery], |spoken, ears| {
        for packet in spoken {
            let Some(gap) = ears.gap(packet) else { continue };
            let to: u64 = member(gap, "to").parse().expect("a tick");
            let shorter = with_member(gap, "from", &(to - 1).to_string());
            packet.replace(shorter);
            return true;
        }
        false
    });
}

#[test]
fn a_gap_is_told_for_nothing() {
    mutant("a gap is told where nothing is missing", &[Rule::Gap], |spoken, ears| {
        let found = |at: &usize| ears.event(&spoken[*at]).is_some();
        let Some(at) = (0..spoken.len()).find(found) else { return false };
        let (pubend, tick) = name(spoken[at].message().expect("an event"));
        let text = format!(
            r#"{{"kind":"gap","pubend":"{pubend}","from":"{}","to":"{}","reason":"overwritten"}}"#,
            tick - 2,
            tick - 1
        );
        insert(spoken, at, Message::new("$whimbrel/notice", text));
        true
    });
}

#[test]
fn a_subscription_is_not_told_its_token() {
    mutant("a SUBACK has no token", &[Rule::Token], |spoken, ears| {
        let Some(witness) = ears.witness else { return false };
        let found = spoken.iter_mut().find(|packet| {
            packet.conn == witness
                && matches!(&packet.heard, Heard::Suback { properties, .. } if !properties.is_empty())
        });
        found.is_some_and(|packet| {
            let (id, length) = ([packet.bytes[2], packet.bytes[3]], packet.bytes.len());
            let code = packet.bytes[length - 1];
            packet.bytes = vec![0x90, 4, id[0], id[1], 0, code];
            true
        })
    });
}

/// The broker hears another place than the client said.
#[derive(Default)]
struct Misplace {
    /// What becomes of the text of `w-from`.
    turn: Option<fn(&str) -> Option<String>>,
    five: BTreeMap<ConnId, bool>,
    done: bool,
}

impl Tamper for Misplace {
    fn mishear(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        if bytes.first() == Some(&0x10) {
            self.five.insert(conn, bytes.windows(7).any(|w| w == b"\x00\x04MQTT\x05"));
        }
        if self.done || self.five.get(&conn) != Some(&true) {
            return;
        }
        let (mut at, mut heard) = (0, Vec::new());
        while at < bytes.len() {
            let from = at;
            // Only what comes as whole packets is misheard.
            let Ok(Some(packet)) = next_packet(Version::V5_0, bytes, &mut at) else { return };
            let said = Said::try_from(packet);
            let place = |terms: &[(String, String)]| terms.iter().position(|(name, _)| name == "w-from");
            match said {
                Ok(Said::Subscribe { id, identifier, selector, mut terms, wanted }) if place(&terms).is_some() => {
                    let from = place(&terms).expect("just seen");
                    let turned = self.turn.and_then(|turn| turn(&terms[from].1));
                    self.done = turned.is_some();
                    terms[from].1 = turned.unwrap_or(terms[from].1.clone());
                    heard.extend(Said::Subscribe { id, identifier, selector, terms, wanted }.encode(Version::V5_0));
                }
                _ => heard.extend(&bytes[from..at]),
            }
        }
        *bytes = heard;
    }
}

#[test]
fn an_event_behind_the_place_is_delivered() {
    caught("an event at or below the resumed position is delivered", &[Rule::Resumed], || {
        let turn: fn(&str) -> Option<String> = |from| {
            let (token, _) = from.split_once(',')?;
            (!token.contains(':')).then(|| token.to_owned())
        };
        Box::new(Misplace { turn: Some(turn), ..Misplace::default() })
    });
}

#[test]
fn a_place_moves_over_what_was_not_delivered() {
    caught("a position is advanced past a hole", &[Rule::Hole, Rule::Delivery], || {
        let turn: fn(&str) -> Option<String> = |from| {
            let (first, rest) = from.split_once(',').unwrap_or((from, ""));
            let (pubend, tick) = rest.split(',').next_back().and_then(event_name)?;
            Some(format!("{first},{rest},{pubend:x}:{}", tick + 300_000_000))
        };
        Box::new(Misplace { turn: Some(turn), ..Misplace::default() })
    });
}

/// A subscription is told the newest token instead of the one where it begins.
#[test]
fn a_suback_token_is_ahead_of_the_place() {
    mutant("a SUBACK token is advanced past a hole", &[Rule::Token, Rule::Hole, Rule::Delivery], |spoken, ears| {
        let Some(silence) = &ears.silence else { return false };
        let newest = member(silence, "token");
        for packet in spoken {
            let Heard::Suback { id, codes, properties } = &packet.heard else { continue };
            let token = properties.iter().find_map(|p| match p {
                Property::UserProperty(pair) if pair.key() == "w-token" && pair.val().len() > newest.len() => {
                    Some(pair.val())
                }
                _ => None,
            });
            if token.is_none() || codes.len() != 1 {
                continue;
            }
            let mut body = vec![(id >> 8) as u8, *id as u8];
            let mut property = vec![0x26, 0, 7];
            property.extend(b"w-token");
            property.extend((newest.len() as u16).to_be_bytes());
            property.extend(newest.as_bytes());
            body.push(property.len() as u8);
            body.extend(property);
            body.push(codes[0]);
            packet.bytes = vec![0x90, body.len() as u8];
            packet.bytes.extend(body);
            return true;
        }
        false
    });
}

#[test]
fn a_partition_forgets_what_it_lacks_when_the_cache_is_divided_anew() {
    caught_in("wrong completeness after a policy change", &[Rule::Delivery, Rule::Hole], |seed| {
        run_mutant(seed, Mutant::ForgottenOverwriting)
    });
}
