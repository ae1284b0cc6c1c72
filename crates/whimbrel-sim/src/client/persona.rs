//! The properties of an honest client, drawn once from the scenario's seed.

use std::time::Duration;

use mqtt_protocol_core::mqtt::Version;
use mqtt_protocol_core::mqtt::packet::Qos;

use crate::link::Profile;
use crate::random::Random;

/// Names of topic levels; few, so that filters often match topics.
const LEVELS: [&str; 4] = ["a", "b", "c", "d"];

/// Topics and filters have up to this many levels.
const LEVELS_MAX: u64 = 3;

/// The three levels of delivery.
pub(crate) const QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// An action of an honest client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Publishes one message.
    Publish,
    /// Publishes many at once.
    Burst,
    /// Clears a retained message.
    Clear,
    /// Subscribes, or changes a subscription.
    Subscribe,
    /// Unsubscribes.
    Unsubscribe,
    /// Sends DISCONNECT.
    Leave,
    /// Sends DISCONNECT and asks for its will.
    LeaveWithWill,
    /// Closes without DISCONNECT.
    Close,
    /// Resets the connection.
    Reset,
    /// Vanishes: the broker is not told.
    Vanish,
    /// Connects anew while the old connection is open.
    TakeOver,
    /// Stops reading for a while.
    Stall,
}

impl Action {
    /// All actions, in the order of [`Persona::weights`].
    pub const ALL: [Action; 12] = [
        Action::Publish,
        Action::Burst,
        Action::Clear,
        Action::Subscribe,
        Action::Unsubscribe,
        Action::Leave,
        Action::LeaveWithWill,
        Action::Close,
        Action::Reset,
        Action::Vanish,
        Action::TakeOver,
        Action::Stall,
    ];
}

/// How a client uses wills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WillPlan {
    /// How many of 1,000 connections have one.
    pub permille: u64,
    /// Will delay, seconds (MQTT 5).
    pub delay: u32,
    /// Whether it is retained.
    pub retain: bool,
    /// Its QoS.
    pub qos: Qos,
}

/// The properties of an honest client.
#[derive(Clone, Debug)]
pub struct Persona {
    /// Protocol version.
    pub version: Version,
    /// How many of 1,000 CONNECTs ask for a new session.
    pub clean_permille: u64,
    /// The session expiry, seconds; 0: it ends with the connection. 3.1.1 has only 0 and not 0.
    pub expiry: u32,
    /// The keep-alive interval, seconds; 0: none.
    pub keep_alive: u16,
    /// Receive Maximum (MQTT 5).
    pub receive_maximum: Option<u16>,
    /// Topic Alias Maximum (MQTT 5).
    pub alias_maximum: u16,
    /// Maximum Packet Size (MQTT 5).
    pub packet_maximum: Option<u32>,
    /// Wills.
    pub will: WillPlan,
    /// Mean time between actions.
    pub pace: Duration,
    /// The weight of each of [`Action::ALL`].
    pub weights: [u64; 12],
    /// The weight of each QoS, for messages and for subscriptions.
    pub qos_weights: [u64; 3],
    /// How many of 1,000 messages are retained.
    pub retain_permille: u64,
    /// Mean time until a message is acknowledged.
    pub ack_delay: Duration,
    /// Mean time between the end of one connection and the next.
    pub downtime: Duration,
    /// The largest payload, bytes.
    pub payload_max: u64,
    /// How many of 1,000 subscriptions are shared ones (MQTT 5).
    pub shared_permille: u64,
    /// How many of 1,000 subscriptions have a selector (MQTT 5).
    pub selector_permille: u64,
    /// How many of 1,000 messages expire (MQTT 5).
    pub expiring_permille: u64,
    /// Whether it numbers its messages, and repeats unanswered ones also in another session (MQTT
    /// 5).
    pub numbers: bool,
    /// Whether it asks to be told the names of events (MQTT 5).
    pub is_told_names: bool,
    /// The profile of the link, in both directions.
    pub link: Profile,
}

impl Persona {
    /// Draws a client.
    pub fn draw(random: &mut Random) -> Self {
        let version = if random.chance(600) { Version::V5_0 } else { Version::V3_1_1 };
        let five = version == Version::V5_0;
        let expiry = *random.pick(&[0, 0, 2, 5, 15, 10_000, 10_000]);
        let slow = random.chance(200);
        Persona {
            version,
            clean_permille: if expiry == 0 { 700 } else { *random.pick(&[0, 0, 200, 700]) },
            expiry: if five || expiry == 0 { expiry } else { u32::MAX },
            keep_alive: *random.pick(&[0, 2, 5, 10, 60]),
            receive_maximum: (five && random.chance(500)).then(|| random.between(1, 12) as u16),
            alias_maximum: if five { *random.pick(&[0, 0, 1, 4]) } else { 0 },
            packet_maximum: (five && random.chance(150)).then_some(2_000),
            will: WillPlan {
                permille: *random.pick(&[0, 300, 900]),
                delay: if five { *random.pick(&[0, 0, 1, 3, 8]) } else { 0 },
                retain: random.chance(300),
                qos: *random.pick(&QOS),
            },
            pace: Duration::from_millis(*random.pick(&[60, 200, 200, 1000])),
            weights: Persona::draw_weights(random, slow),
            qos_weights: *random.pick(&[[1, 1, 1], [1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 3, 1]]),
            retain_permille: *random.pick(&[0, 100, 400]),
            ack_delay: Duration::from_millis(*random.pick(&[0, 0, 0, 50, 800])),
            downtime: Duration::from_millis(*random.pick(&[50, 1000, 4000])),
            payload_max: *random.pick(&[40, 40, 200, 4_000]),
            shared_permille: *random.pick(&[0, 100, 400]),
            selector_permille: if five { *random.pick(&[0, 400, 800]) } else { 0 },
            expiring_permille: *random.pick(&[0, 0, 300]),
            numbers: false,
            is_told_names: false,
            link: *random.pick(&[Profile::LAN, Profile::LAN, Profile::RADIO]),
        }
    }

    /// A swarm: every client does a random part of the possible actions.
    fn draw_weights(random: &mut Random, slow: bool) -> [u64; 12] {
        let mut weights = [300, 15, 10, 60, 20, 6, 3, 6, 6, 4, 4, 0];
        for weight in weights.iter_mut().skip(1) {
            *weight *= *random.pick(&[0, 1, 1, 3]);
        }
        if slow {
            weights[11] = 12;
        }
        weights
    }

    /// Whether its session outlives its connection if it asks for no new one.
    pub fn is_persistent(&self) -> bool {
        self.expiry != 0
    }
}

/// Draws a topic name.
pub fn random_topic(random: &mut Random) -> String {
    let levels = random.between(1, LEVELS_MAX);
    let names: Vec<&str> = (0..levels).map(|_| *random.pick(&LEVELS)).collect();
    names.join("/")
}

/// Draws a topic filter: with `+` and `#`, often enough neither.
pub fn random_filter(random: &mut Random) -> String {
    let levels = random.between(1, LEVELS_MAX);
    let mut names: Vec<&str> = Vec::new();
    for _ in 0..levels {
        names.push(if random.chance(250) { "+" } else { *random.pick::<&str>(&LEVELS) });
    }
    if random.chance(200) {
        names.push("#");
    }
    names.join("/")
}
