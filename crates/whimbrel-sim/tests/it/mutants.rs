//! The checkers are checked: a broker that is made to misbehave in one way is caught by the rule
//! that forbids it.

use std::collections::{BTreeMap, BTreeSet};

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::{MessageExpiryInterval, Property, Qos, TopicAlias};
use whimbrel_mqtt::ConnId;
use whimbrel_sim::check::{Outcome, Rule, Seen};
use whimbrel_sim::packets::next_packet;
use whimbrel_sim::simulation::run_tampered;
use whimbrel_sim::speech::{Ack, Heard, Message, Said};
use whimbrel_sim::world::Tamper;

use crate::tamper::{Spoken, hear, say};

/// Worlds in which a mutant may show itself.
const SEEDS: u64 = 60;

/// How often a mutant lets a chance pass before it acts, so that worlds are well under way.
const PATIENCE: u32 = 20;

/// Does something to what the broker says, once, when it can: true when done.
struct Once<F> {
    act: F,
    chances: u32,
    done: bool,
}

impl<F: FnMut(&mut Vec<Spoken>, &mut u32) -> bool> Tamper for Once<F> {
    fn tamper(&mut self, _seen: Seen<'_>, outcome: &mut Outcome, version: &dyn Fn(ConnId) -> Version) {
        if self.done {
            return;
        }
        let mut spoken = hear(outcome, version);
        self.done = (self.act)(&mut spoken, &mut self.chances);
        say(outcome, spoken);
    }
}

/// Plays worlds until the mutant has been caught by `rule`.
fn is_caught(rule: Rule, mut mutant: impl FnMut() -> Box<dyn Tamper>) {
    let mut others = Vec::new();
    for seed in 0..SEEDS {
        let report = run_tampered(seed, &mut *mutant());
        match report.violations.first() {
            Some(violation) if report.violations.iter().any(|violation| violation.rule == rule) => {
                println!("seed {seed}: {violation}");
                return;
            }
            Some(other) => others.push(format!("seed {seed}: {other}")),
            None => {}
        }
    }
    panic!("no world of {SEEDS} showed {rule:?}\n{}", others.join("\n"));
}

/// A mutant that acts on the first fitting packet after some that it lets pass.
fn packets(rule: Rule, act: impl Fn(&mut Spoken) -> Fate + Copy + 'static) {
    is_caught(rule, || {
        let act = move |spoken: &mut Vec<Spoken>, chances: &mut u32| {
            for at in 0..spoken.len() {
                let untouched = (spoken[at].heard.clone(), spoken[at].bytes.clone());
                let fate = act(&mut spoken[at]);
                *chances += u32::from(fate != Fate::Unfit);
                if fate == Fate::Unfit || *chances < PATIENCE {
                    (spoken[at].heard, spoken[at].bytes) = untouched;
                    continue;
                }
                match fate {
                    Fate::Twice(id) => {
                        let (conn, version) = (spoken[at].conn, spoken[at].version);
                        let mut again = Spoken { conn, version, heard: untouched.0, bytes: untouched.1 };
                        if id != 0 {
                            again.change(|message| {
                                message.id = id;
                                true
                            });
                        }
                        spoken.insert(at + 1, again);
                    }
                    Fate::Dropped => drop(spoken.remove(at)),
                    Fate::Kept | Fate::Unfit => {}
                }
                return true;
            }
            false
        };
        Box::new(Once { act, chances: 0, done: false })
    });
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The mutant has no use for it.
    Unfit,
    /// It goes out as it is now.
    Kept,
    /// It is swallowed.
    Dropped,
    /// It goes out twice, the second time under that packet identifier (0: the same).
    Twice(u16),
}

/// `Kept` if something was changed.
fn kept(changed: bool) -> Fate {
    if changed { Fate::Kept } else { Fate::Unfit }
}

fn when(fits: bool, fate: Fate) -> Fate {
    if fits { fate } else { Fate::Unfit }
}

fn is_plain(message: &Message, qos: Qos) -> bool {
    message.qos == qos && !message.retain && !message.dup && !message.text().contains("will")
}

#[test]
fn a_lost_message_of_qos_1() {
    packets(Rule::Delivery, |s| when(s.message().is_some_and(|m| is_plain(m, Qos::AtLeastOnce)), Fate::Dropped));
}

#[test]
fn a_lost_message_of_qos_0() {
    packets(Rule::Delivery, |s| when(s.message().is_some_and(|m| is_plain(m, Qos::AtMostOnce)), Fate::Dropped));
}

#[test]
fn a_message_of_qos_0_twice() {
    packets(Rule::Duplicate, |s| when(s.message().is_some_and(|m| is_plain(m, Qos::AtMostOnce)), Fate::Twice(0)));
}

#[test]
fn a_message_of_qos_2_twice() {
    packets(Rule::Duplicate, |s| when(s.message().is_some_and(|m| is_plain(m, Qos::ExactlyOnce)), Fate::Twice(60_000)));
}

#[test]
fn a_packet_identifier_in_use() {
    packets(Rule::PacketIdentifier, |s| {
        kept(s.change(|m| {
            let fits = is_plain(m, Qos::AtLeastOnce) && m.id > 1;
            m.id = m.id.wrapping_sub(1);
            fits
        }))
    });
}

#[test]
fn a_lesser_qos() {
    packets(Rule::Qos, |s| {
        kept(s.change(|m| {
            let fits = is_plain(m, Qos::AtLeastOnce);
            (m.qos, m.id) = (Qos::AtMostOnce, 0);
            fits
        }))
    });
}

#[test]
fn a_retain_mark_on_a_live_message() {
    packets(Rule::RetainFlag, |s| {
        kept(s.change(|m| {
            let fits = is_plain(m, Qos::AtMostOnce);
            m.retain = true;
            fits
        }))
    });
}

#[test]
fn a_retained_message_without_its_mark() {
    packets(Rule::RetainFlag, |s| kept(s.change(|m| core::mem::take(&mut m.retain))));
}

#[test]
fn a_first_delivery_with_dup() {
    packets(Rule::DupFlag, |s| {
        kept(s.change(|m| {
            let fits = is_plain(m, Qos::AtLeastOnce);
            m.dup = true;
            fits
        }))
    });
}

#[test]
fn a_repeated_delivery_without_dup() {
    packets(Rule::DupFlag, |s| kept(s.change(|m| core::mem::take(&mut m.dup))));
}

#[test]
fn a_retained_message_that_does_not_come() {
    packets(Rule::Retained, |s| when(s.message().is_some_and(|m| m.retain), Fate::Dropped));
}

#[test]
fn a_will_that_does_not_come() {
    packets(Rule::Will, |s| when(s.message().is_some_and(|m| !m.retain && m.text().contains("will")), Fate::Dropped));
}

#[test]
fn a_missing_subscription_identifier() {
    packets(Rule::SubscriptionIdentifier, |s| {
        kept(s.change(|m| {
            let before = m.properties.len();
            m.properties.retain(|p| !matches!(p, Property::SubscriptionIdentifier(_)));
            m.properties.len() < before && !m.dup
        }))
    });
}

#[test]
fn an_unknown_topic_alias() {
    packets(Rule::TopicAlias, |s| {
        let five = s.version == Version::V5_0;
        kept(s.change(|m| {
            let fits = five && m.topic_alias().is_none();
            m.properties.push(TopicAlias::new(999).expect("in range").into());
            fits
        }))
    });
}

#[test]
fn a_lost_user_property() {
    packets(Rule::Integrity, |s| {
        kept(s.change(|m| {
            let before = m.properties.len();
            m.properties.retain(|p| !matches!(p, Property::UserProperty(_)));
            m.properties.len() < before
        }))
    });
}

#[test]
fn an_altered_payload() {
    packets(Rule::Invented, |s| {
        kept(s.change(|m| {
            m.payload.push(b'!');
            m.qos == Qos::AtMostOnce
        }))
    });
}

#[test]
fn an_expiry_that_grows() {
    packets(Rule::Expiry, |s| {
        kept(s.change(|m| match m.expiry() {
            Some(left) => {
                m.properties.retain(|p| !matches!(p, Property::MessageExpiryInterval(_)));
                m.properties.push(MessageExpiryInterval::new(left + 9).expect("in range").into());
                true
            }
            None => false,
        }))
    });
}

#[test]
fn a_puback_for_another_message() {
    packets(Rule::Answers, |s| {
        let fits = matches!(s.heard, Heard::Ack { ack: Ack::Puback, .. });
        if fits {
            s.bytes[3] ^= 0x40;
        }
        kept(fits)
    });
}

#[test]
fn a_pubrel_that_does_not_come() {
    packets(Rule::Answers, |s| when(matches!(s.heard, Heard::Ack { ack: Ack::Pubrel, .. }), Fate::Dropped));
}

#[test]
fn a_suback_that_grants_something_else() {
    packets(Rule::Answers, |s| {
        let fits = matches!(&s.heard, Heard::Suback { codes, .. } if codes.last() == Some(&1));
        *s.bytes.last_mut().expect("a code") = 2;
        kept(fits)
    });
}

#[test]
fn a_pingresp_that_does_not_come() {
    packets(Rule::Answers, |s| when(matches!(s.heard, Heard::Pong), Fate::Dropped));
}

#[test]
fn a_lie_about_the_session() {
    packets(Rule::SessionPresent, |s| {
        let fits = matches!(s.heard, Heard::Connack { code: 0, .. });
        if fits {
            s.bytes[2] ^= 1;
        }
        kept(fits)
    });
}

#[test]
fn a_second_connack() {
    packets(Rule::Handshake, |s| when(matches!(s.heard, Heard::Connack { .. }), Fate::Twice(0)));
}

#[test]
fn half_a_packet() {
    packets(Rule::WellFormed, |s| {
        s.bytes.pop();
        kept(s.message().is_some())
    });
}

/// Keeps one message back until the next one for the same client from the same publisher.
#[test]
fn two_messages_of_one_publisher_in_the_wrong_order() {
    let publisher = |message: &Message| message.text().split('/').next().map(str::to_owned);
    is_caught(Rule::Order, || {
        let mut kept: Option<Spoken> = None;
        let act = move |spoken: &mut Vec<Spoken>, chances: &mut u32| {
            let Some(back) = &kept else {
                let fits = |s: &Spoken| s.message().is_some_and(|m| is_plain(m, Qos::AtMostOnce));
                let Some(at) = spoken.iter().position(fits) else { return false };
                *chances += 1;
                if *chances >= PATIENCE {
                    kept = Some(spoken.remove(at));
                }
                return false;
            };
            let from = publisher(back.message().expect("a message"));
            let next = |s: &Spoken| {
                s.conn == back.conn && s.message().is_some_and(|m| is_plain(m, Qos::AtMostOnce) && publisher(m) == from)
            };
            let Some(at) = spoken.iter().position(next) else { return false };
            spoken.insert(at + 1, kept.take().expect("just seen"));
            true
        };
        Box::new(Once { act, chances: 0, done: false })
    });
}

/// A new subscriber gets what was retained before the latest.
#[test]
fn a_stale_retained_message() {
    is_caught(Rule::Retained, || {
        let mut seen: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        let act = move |spoken: &mut Vec<Spoken>, _: &mut u32| {
            for s in spoken {
                let Some(message) = s.message().filter(|m| m.retain && !m.topic.is_empty()).cloned() else { continue };
                let known = seen.entry(message.topic.clone()).or_default();
                if let Some(stale) = known.iter().find(|payload| **payload != message.payload) {
                    s.replace(Message { payload: stale.clone(), ..message });
                    return true;
                }
                known.push(message.payload);
            }
            false
        };
        Box::new(Once { act, chances: 0, done: false })
    });
}

/// A message also goes to a client that did not subscribe to its topic.
#[test]
fn a_message_for_the_wrong_client() {
    is_caught(Rule::Invented, || {
        let mut last: Option<Spoken> = None;
        let act = move |spoken: &mut Vec<Spoken>, chances: &mut u32| {
            let fits = |s: &Spoken| s.message().is_some_and(|m| is_plain(m, Qos::AtMostOnce) && !m.topic.is_empty());
            let Some(at) = spoken.iter().position(fits) else { return false };
            let message = spoken[at].message().expect("just seen").clone();
            let stranger = spoken.iter().all(|s| last.as_ref().is_none_or(|last| last.conn != s.conn));
            *chances += 1;
            if let Some(Spoken { conn, version, .. }) = last.as_ref().filter(|_| stranger && *chances > PATIENCE) {
                let plain = Message::new(&message.topic, message.payload);
                let (bytes, heard) = (Said::Publish(plain.clone()).encode(*version), Heard::Publish(plain));
                spoken.push(Spoken { conn: *conn, version: *version, heard, bytes });
                return true;
            }
            let Spoken { conn, version, ref heard, ref bytes } = spoken[at];
            last = Some(Spoken { conn, version, heard: heard.clone(), bytes: bytes.clone() });
            false
        };
        Box::new(Once { act, chances: 0, done: false })
    });
}

/// Listens to clients, so as to know what they are about to say.
#[derive(Default)]
struct Spy {
    streams: BTreeMap<ConnId, (Option<Version>, Vec<u8>)>,
}

impl Spy {
    /// What a client says in this call of the broker, as far as it is complete.
    fn hear(&mut self, seen: Seen<'_>) -> Vec<(ConnId, Said)> {
        let (conn, bytes) = match seen {
            Seen::Opened(conn) => {
                self.streams.insert(conn, (None, Vec::new()));
                return Vec::new();
            }
            Seen::Bytes(conn, bytes) => (conn, bytes),
            _ => return Vec::new(),
        };
        let (version, stream) = self.streams.entry(conn).or_default();
        stream.extend_from_slice(bytes);
        let level = stream.windows(7).find(|w| w.starts_with(b"\x00\x04MQTT")).map(|w| w[6]);
        let spoken = *version.get_or_insert(if level == Some(4) { Version::V3_1_1 } else { Version::V5_0 });
        let mut at = 0;
        let mut said = Vec::new();
        while let Ok(Some(packet)) = next_packet(spoken, stream, &mut at) {
            said.extend(Said::try_from(packet).ok().map(|said| (conn, said)));
        }
        stream.drain(..at);
        said
    }
}

/// Publishes wills when they are left with the broker.
#[derive(Default)]
struct EarlyWill {
    spy: Spy,
    listener: Option<ConnId>,
    done: bool,
}

impl Tamper for EarlyWill {
    fn tamper(&mut self, seen: Seen<'_>, outcome: &mut Outcome, version: &dyn Fn(ConnId) -> Version) {
        for (_, said) in self.spy.hear(seen) {
            let (Said::Connect(hello), Some(conn)) = (said, self.listener) else { continue };
            let untouched = !self.done && outcome.closes.is_empty() && outcome.sends.iter().all(|(c, _)| *c != conn);
            if let Some(will) = hello.will.filter(|_| untouched) {
                let early = Message::new(&will.topic, will.payload);
                outcome.sends.push((conn, Said::Publish(early).encode(version(conn))));
                self.done = true;
            }
        }
        self.listener = outcome.sends.first().map(|(conn, _)| *conn).or(self.listener);
        self.listener = self.listener.filter(|conn| !outcome.closes.contains(conn));
        if let Seen::Gone(conn) = seen {
            self.listener = self.listener.filter(|listener| *listener != conn);
        }
    }
}

#[test]
fn a_will_before_its_time() {
    is_caught(Rule::Will, || Box::new(EarlyWill::default()));
}

/// Gives a shared subscription's message to a second member.
#[derive(Default)]
struct Generous {
    spy: Spy,
    /// Shared subscriptions: text, and under which identifier which connection has it.
    members: BTreeMap<(String, ConnId), u32>,
    done: bool,
}

impl Tamper for Generous {
    fn tamper(&mut self, seen: Seen<'_>, outcome: &mut Outcome, version: &dyn Fn(ConnId) -> Version) {
        for (conn, said) in self.spy.hear(seen) {
            match said {
                Said::Subscribe { identifier, wanted, .. } if wanted[0].filter.starts_with("$share") => {
                    self.members.insert((wanted[0].filter.clone(), conn), identifier);
                }
                Said::Unsubscribe { filters, .. } => drop(self.members.remove(&(filters[0].clone(), conn))),
                _ => {}
            }
        }
        if let Seen::Gone(gone) | Seen::Opened(gone) = seen {
            self.members.retain(|(_, conn), _| *conn != gone);
        }
        self.members.retain(|(_, conn), _| !outcome.closes.contains(conn));
        for (conn, bytes) in &mut outcome.sends.clone() {
            let mut at = 0;
            while let Ok(Some(packet)) = next_packet(version(*conn), bytes, &mut at) {
                let Heard::Publish(message) = Heard::from(packet) else { continue };
                let identifiers = message.subscription_identifiers();
                let shared = |(text, _): &&(String, ConnId)| {
                    identifiers.first() == self.members.get(&(text.clone(), *conn)) && !identifiers.is_empty()
                };
                let Some((text, _)) = self.members.keys().find(shared).filter(|_| !self.done) else { continue };
                let other = |(key, _): &(&(String, ConnId), &u32)| {
                    key.0 == *text && key.1 != *conn && outcome.sends.iter().all(|(known, _)| *known != key.1)
                };
                let Some(((_, other), identifier)) = self.members.iter().find(other) else { continue };
                if message.topic.is_empty() || message.dup {
                    continue;
                }
                let mut copy = message;
                copy.properties.retain(|p| !matches!(p, Property::TopicAlias(_) | Property::SubscriptionIdentifier(_)));
                let identifier = mqtt_protocol_core::mqtt::packet::SubscriptionIdentifier::new(*identifier);
                let copy = copy.property(identifier.expect("in range"));
                let copy = if copy.qos == Qos::AtMostOnce { copy } else { Message { id: 60_000, ..copy } };
                outcome.sends.push((*other, Said::Publish(copy).encode(Version::V5_0)));
                self.done = true;
            }
        }
    }
}

#[test]
fn a_shared_message_for_two_members() {
    is_caught(Rule::Shared, || Box::<Generous>::default());
}

/// Ends a connection without a reason.
#[derive(Default)]
struct Ender {
    calls: u32,
}

impl Tamper for Ender {
    fn tamper(&mut self, _seen: Seen<'_>, outcome: &mut Outcome, _version: &dyn Fn(ConnId) -> Version) {
        self.calls += 1;
        let someone = outcome.sends.first().map(|(conn, _)| *conn).filter(|_| self.calls > 500);
        if let Some(conn) = someone.filter(|_| outcome.closes.is_empty()) {
            outcome.closes.push(conn);
            self.calls = 0;
        }
    }
}

#[test]
fn an_end_without_a_reason() {
    is_caught(Rule::Close, || Box::<Ender>::default());
}

/// Forgets to end connections.
struct Keeper;

impl Tamper for Keeper {
    fn tamper(&mut self, _seen: Seen<'_>, outcome: &mut Outcome, _version: &dyn Fn(ConnId) -> Version) {
        outcome.closes.clear();
    }
}

#[test]
fn a_broken_connection_that_stays() {
    is_caught(Rule::Abandon, || Box::new(Keeper));
}

/// The broker hears other numbers in CONNECT than the client said.
struct Mishear {
    /// The property as it is said, and how many bytes from its beginning are replaced.
    property: u8,
    value: &'static [u8],
}

impl Tamper for Mishear {
    fn mishear(&mut self, _conn: ConnId, bytes: &mut Vec<u8>) {
        let connect = bytes.first() == Some(&0x10) && bytes.get(4..8) == Some(b"MQTT");
        // The properties of a CONNECT of MQTT 5 begin behind name, level, flags, keep-alive and
        // their length.
        let Some(properties) = bytes.get_mut(13..).filter(|_| connect) else { return };
        let mut at = 0;
        while let Some(known) = properties.get(at) {
            let length = match known {
                0x11 | 0x27 => 5,
                0x21 | 0x22 => 3,
                _ => return,
            };
            if *known == self.property
                && let Some(value) = properties.get_mut(at + 1..at + length)
            {
                value.copy_from_slice(self.value);
            }
            at += length;
        }
    }
}

#[test]
fn a_receive_maximum_that_is_exceeded() {
    is_caught(Rule::ReceiveMaximum, || Box::new(Mishear { property: 0x21, value: &[0xff, 0xff] }));
}

#[test]
fn a_packet_that_is_too_large() {
    is_caught(Rule::PacketSize, || Box::new(Mishear { property: 0x27, value: &[0x0f, 0xff, 0xff, 0xff] }));
}

#[test]
fn a_session_that_lives_too_long() {
    is_caught(Rule::SessionPresent, || Box::new(Mishear { property: 0x11, value: &[0, 0, 0xff, 0xff] }));
}

#[test]
fn a_session_that_dies_too_soon() {
    is_caught(Rule::SessionPresent, || Box::new(Mishear { property: 0x11, value: &[0, 0, 0, 1] }));
}

/// The broker hears other selectors than the client said.
#[derive(Default)]
struct Selectors {
    /// What is heard instead; `None`: the selector that the client gave before, if it had one.
    instead: Option<&'static str>,
    five: BTreeSet<ConnId>,
    /// Selectors by connection and filter.
    known: BTreeMap<(ConnId, String), Option<String>>,
}

impl Tamper for Selectors {
    fn mishear(&mut self, conn: ConnId, bytes: &mut Vec<u8>) {
        if bytes.first() == Some(&0x10) && bytes.windows(7).any(|w| w == b"\x00\x04MQTT\x05") {
            self.five.insert(conn);
            self.known.retain(|(known, _), _| *known != conn);
        }
        if !self.five.contains(&conn) {
            return;
        }
        let (mut at, mut heard) = (0, Vec::new());
        while at < bytes.len() {
            let from = at;
            // Only what comes as whole packets is misheard.
            let Ok(Some(packet)) = next_packet(Version::V5_0, bytes, &mut at) else { return };
            match Said::try_from(packet) {
                Ok(Said::Subscribe { id, identifier, selector, terms, wanted })
                    if !wanted[0].filter.starts_with("$share") =>
                {
                    let other = match self.instead {
                        Some(instead) => selector.as_ref().map(|_| instead.to_owned()),
                        None => self.known.get(&(conn, wanted[0].filter.clone())).unwrap_or(&selector).clone(),
                    };
                    for one in &wanted {
                        self.known.insert((conn, one.filter.clone()), selector.clone());
                    }
                    let said = Said::Subscribe { id, identifier, selector: other, terms, wanted };
                    heard.extend(said.encode(Version::V5_0));
                }
                _ => heard.extend(&bytes[from..at]),
            }
        }
        *bytes = heard;
    }
}

#[test]
fn a_selector_that_is_ignored() {
    is_caught(Rule::Selector, || Box::new(Selectors { instead: Some(""), ..Selectors::default() }));
}

#[test]
fn a_selector_that_selects_too_little() {
    is_caught(Rule::Delivery, || Box::new(Selectors { instead: Some("FALSE"), ..Selectors::default() }));
}

#[test]
fn a_selector_that_outlives_its_replacement() {
    is_caught(Rule::Selector, || Box::<Selectors>::default());
}
