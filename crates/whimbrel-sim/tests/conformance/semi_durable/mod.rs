//! Semi-durable subscriptions, checkpoint tokens and notices: no part of MQTT, but carried by it.

mod acknowledge;
mod asking;
mod gaps;
mod names;
mod notices;
mod resume;
mod sessions;

use whimbrel_mqtt::ConnId;

use crate::wire::property::REASON_STRING;
use crate::wire::{Message, Packet, Properties, Props, Publish, Subscribe};
use crate::world::World;

/// The answer to a SUBSCRIBE.
pub struct Answer {
    pub codes: Vec<u8>,
    pub props: Properties,
}

impl Answer {
    /// All `w-token`s.
    pub fn tokens(&self) -> Vec<&str> {
        let tokens = self.props.user();
        tokens.into_iter().filter(|(name, _)| *name == "w-token").map(|(_, token)| token).collect()
    }

    /// The only `w-token`.
    pub fn token(&self) -> String {
        let tokens = self.tokens();
        assert_eq!((tokens.len(), self.codes.len()), (1, 1), "one filter, one token");
        tokens[0].to_owned()
    }

    pub fn reason(&self) -> &str {
        self.props.text(REASON_STRING).unwrap_or_default()
    }
}

/// Subscribes; what follows SUBACK at once stays to be taken.
pub fn ask(world: &mut World, conn: ConnId, filters: &[(&str, u8)], props: Props) -> Answer {
    world.send(conn, Subscribe::new(9, filters).props(props));
    match world.next(conn) {
        Some(Packet::Suback { id: 9, codes, props }) => Answer { codes, props },
        other => panic!("SUBACK expected, got {other:?}"),
    }
}

/// Subscribes to one filter, which must be granted; returns its token, if it asks for the names of
/// events.
#[track_caller]
pub fn follow(world: &mut World, conn: ConnId, filter: &str, options: u8, props: Props) -> String {
    let asked = props.bytes();
    let says = |name: &str| asked.windows(name.len()).any(|part| part == name.as_bytes());
    // Whose client keeps the place needs no second phase.
    let most = if says("w-from") || says("w-ack") { 1 } else { 2 };
    let answer = ask(world, conn, &[(filter, options)], props);
    assert_eq!(answer.codes, [(options & 3).min(most)], "{}", answer.reason());
    let asks_names = says("w-durability") || says("w-from") || says("w-ack") || says("w-notices");
    if !asks_names {
        assert!(answer.tokens().is_empty(), "a plain subscription gets no token");
        return String::new();
    }
    answer.token()
}

/// The properties of a semi-durable subscription.
pub fn semi_durable() -> Props {
    Props::new().user("w-durability", "semi-durable")
}

/// The properties of one that begins there.
pub fn from(place: &str) -> Props {
    semi_durable().user("w-from", place)
}

/// Publishes texts to `t` as reliable events.
pub fn publish(world: &mut World, publisher: ConnId, texts: &[&str]) {
    for text in texts {
        world.send(publisher, Publish::new("t", text).qos(1, 1));
    }
}

/// The name of the event in a delivery.
pub fn name(message: &Message) -> Option<&str> {
    let user = message.props.user();
    let names: Vec<&str> = user.into_iter().filter(|(name, _)| *name == "w-id").map(|(_, id)| id).collect();
    assert!(names.len() <= 1, "{message:?} has one name");
    names.first().copied()
}

/// The texts of messages.
pub fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(Message::text).collect()
}

/// A gap as a notice tells it.
#[derive(Debug, PartialEq)]
pub struct Gap {
    pub pubend: String,
    pub from: u64,
    pub to: u64,
    pub reason: String,
}

/// The member of that name in a notice, which is a flat JSON object of strings.
pub fn member<'a>(notice: &'a Message, name: &str) -> Option<&'a str> {
    assert_eq!(notice.topic, "$whimbrel/notice");
    let (_, rest) = notice.text().split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// A gap notice.
pub fn gap(notice: &Message) -> Gap {
    let of = |name| member(notice, name).unwrap_or_else(|| panic!("{name} in {notice:?}"));
    assert_eq!(of("kind"), "gap");
    let tick = |name| of(name).parse().expect("a tick as a decimal string");
    Gap { pubend: of("pubend").to_owned(), from: tick("from"), to: tick("to"), reason: of("reason").to_owned() }
}
