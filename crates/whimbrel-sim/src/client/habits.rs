//! The properties of a follower, drawn once from the scenario's seed.

use std::time::Duration;

use mqtt_protocol_core::mqtt::packet::Qos;

use super::persona::{QOS, random_filter};
use crate::choice::Choice;
use crate::link::Profile;
use crate::random::Random;

/// How a follower tells its position when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Habit {
    /// A token and the ids of later events.
    Token,
    /// Ids only.
    Ids,
    /// A time.
    Time,
    /// The earliest position: it wants everything.
    Earliest,
    /// No position: its session knows it.
    Session,
}

/// The class of a follower's subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The events that it missed, as far as the broker's memory goes.
    SemiDurable,
    /// Everything; its session keeps the position.
    Durable,
    /// Everything; it keeps the position itself, and acknowledges it.
    DurableByToken,
}

/// One subscription that a follower wants to have.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Topic filter.
    pub filter: String,
    /// Maximum QoS.
    pub qos: Qos,
    /// Its selector.
    pub choice: Option<Choice>,
    /// Whether it asks for notices.
    pub notices: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// Retain Handling.
    pub retain_handling: u8,
}

/// The properties of a follower.
#[derive(Clone, Debug)]
pub struct Habits {
    /// The class of its subscriptions.
    pub class: Class,
    /// How it tells its position.
    pub habit: Habit,
    /// Its subscriptions, each with a different filter.
    pub plans: Vec<Plan>,
    /// The session expiry, seconds; 0: each connection has its own session.
    pub expiry: u32,
    /// Receive Maximum.
    pub receive_maximum: Option<u16>,
    /// Maximum Packet Size.
    pub packet_maximum: Option<u32>,
    /// Mean time until a message is acknowledged.
    pub ack_delay: Duration,
    /// Mean time between actions.
    pub uptime: Duration,
    /// Mean time between the end of one connection and the next.
    pub downtime: Duration,
    /// Mean time for which it does not read when it stalls.
    pub stall: Duration,
    /// The weights of its actions: vanish, reset, leave, connect anew, stall, subscribe again,
    /// unsubscribe, acknowledge its position, or choose another position.
    pub weights: [u64; 9],
    /// How many positions of 1,000 are made up.
    pub lie_permille: u64,
    /// The profile of the link, in both directions.
    pub link: Profile,
}

impl Habits {
    /// Draws a follower.
    pub fn draw(random: &mut Random) -> Self {
        let habits =
            [Habit::Token, Habit::Token, Habit::Token, Habit::Ids, Habit::Time, Habit::Earliest, Habit::Session];
        let habit = *random.pick(&habits);
        let keeps = habit == Habit::Session || random.chance(400);
        let mut plans: Vec<Plan> = Vec::new();
        for _ in 0..random.between(1, 3) {
            let plan = Plan::draw(random);
            if plans.iter().all(|other| other.filter != plan.filter) {
                plans.push(plan);
            }
        }
        let flaps = random.chance(200);
        Habits {
            class: Class::SemiDurable,
            habit,
            plans,
            expiry: if keeps { *random.pick(&[3, 10_000, 10_000]) } else { 0 },
            receive_maximum: random.chance(500).then(|| random.between(1, 20) as u16),
            packet_maximum: random.chance(100).then_some(2_000),
            ack_delay: Duration::from_millis(*random.pick(&[0, 0, 50, 800])),
            uptime: Duration::from_millis(if flaps { 80 } else { *random.pick(&[500, 2000, 8000]) }),
            downtime: Duration::from_millis(if flaps { 40 } else { *random.pick(&[50, 1000, 5000]) }),
            stall: Duration::from_secs(*random.pick(&[1, 5])),
            weights: Habits::draw_weights(random),
            lie_permille: *random.pick(&[0, 0, 0, 150]),
            link: *random.pick(&[Profile::LAN, Profile::LAN, Profile::RADIO]),
        }
    }

    /// Draws a follower of a broker with a log.
    pub fn draw_logged(random: &mut Random) -> Self {
        let mut habits = Habits { packet_maximum: None, ..Habits::draw(random) };
        habits.class =
            *random.pick(&[Class::SemiDurable, Class::Durable, Class::DurableByToken, Class::DurableByToken]);
        if habits.class == Class::SemiDurable {
            return habits;
        }
        habits.expiry = *random.pick(&[3, 10_000, 10_000, 10_000, 10_000]);
        let by_token = habits.class == Class::DurableByToken;
        habits.weights[7] = if by_token { *random.pick(&[0, 3, 10]) } else { 0 };
        habits.weights[8] = *random.pick(&[0, 0, 3]);
        if by_token {
            habits.habit = *random.pick(&[Habit::Token, Habit::Token, Habit::Session, Habit::Session, habits.habit]);
        } else {
            (habits.habit, habits.lie_permille) = (Habit::Session, 0);
        }
        for plan in &mut habits.plans {
            let least = if by_token { 0 } else { 1 };
            plan.qos = *random.pick(&QOS[least..]);
        }
        habits
    }

    fn draw_weights(random: &mut Random) -> [u64; 9] {
        let mut weights = [4, 4, 3, 2, 3, 2, 1, 0, 0];
        for weight in weights[..7].iter_mut().skip(1) {
            *weight *= *random.pick(&[0, 1, 1, 3]);
        }
        weights
    }

    /// A follower that is always connected and receives everything.
    pub fn witness() -> Self {
        let plan = Plan {
            filter: "#".to_owned(),
            qos: Qos::AtMostOnce,
            choice: None,
            notices: true,
            retain_as_published: false,
            retain_handling: 2,
        };
        Habits {
            class: Class::SemiDurable,
            habit: Habit::Token,
            plans: vec![plan],
            expiry: 0,
            receive_maximum: None,
            packet_maximum: None,
            ack_delay: Duration::ZERO,
            uptime: Duration::ZERO,
            downtime: Duration::ZERO,
            stall: Duration::ZERO,
            weights: [0; 9],
            lie_permille: 0,
            link: Profile::PERFECT,
        }
    }

    /// Whether it does anything but stay connected.
    pub fn acts(&self) -> bool {
        self.weights.iter().any(|weight| *weight > 0)
    }
}

impl Plan {
    fn draw(random: &mut Random) -> Self {
        let filter = if random.chance(300) { "#".to_owned() } else { random_filter(random) };
        Plan {
            filter,
            qos: *random.pick(&QOS),
            choice: random.chance(400).then(|| Choice::draw(random)),
            notices: random.chance(800),
            retain_as_published: random.chance(200),
            retain_handling: random.below(3) as u8,
        }
    }
}
